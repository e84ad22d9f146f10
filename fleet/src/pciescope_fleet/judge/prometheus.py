"""Verdicts for node_exporter's textfile collector."""

from typing import Any

from pciescope_fleet.judge.doubt import doubt
from pciescope_fleet.judge.outliers import Judged, direction, outlier

LABELS = ("host", "host_key", "device", "origin", "direction")
"""What tells one series from another. A verdict on figures that no hardware made says so by its origin."""
OF_FAILED = ("host", "host_key", "device", "origin", "verb", "code")


def escape(text: str) -> str:
    """A label's value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(judged: Judged, now: float) -> str:
    """The text: one series for each outlying host, device, origin and direction, and totals."""
    figures, effects, doubts = {}, {}, {}
    if len(judged.outliers):
        rows = judged.outliers.assign(direction=[direction(row) for row in judged.outliers.to_dict("records")])
        for names, part in rows.groupby(list(LABELS), sort=True):
            labels = _labels(LABELS, names)
            figures[labels] = len(part)
            effects[labels] = f"{part.sort_values('p').iloc[0]['effect']:.6g}"
            doubts[labels] = int(all(doubt(outlier(row)) is not None for row in part.to_dict("records")))
    of_failed = sorted((tuple(str(each[name]) for name in OF_FAILED), each["is_broken"]) for each in judged.failed)
    failed = {_labels(OF_FAILED, names): int(is_broken) for names, is_broken in of_failed}
    lines = [
        *_gauge("hosts", "Hosts with figures, judged or not.", judged.hosts),
        *_gauge("figures_unjudged", "Figures whose group has too few hosts.", judged.unjudged),
        *_gauge("groups_of_two_modes", "Groups whose hosts fall into two.", len(judged.modes)),
        *_gauge("judged_timestamp_seconds", "When the hosts were judged.", f"{now:.0f}"),
        *_gauge("outlier_figures", "Figures in which a host differs from its like.", figures),
        *_gauge("outlier_effect_ratio", "The effect that is surest, as a share: 0.1 is 10 % more.", effects),
        *_gauge("outlier_in_doubt", "Whether all of these figures may be of hardware that is gone.", doubts),
        *_gauge("failed", "An error of a device's newest run: 1 where the device is broken, else 0.", failed),
    ]
    return "\n".join(lines) + "\n"


def _gauge(name: str, what: str, value: Any) -> list[str]:
    """The lines of a gauge: its value, or one by the labels of each series."""
    full = f"pciescope_fleet_{name}"
    series = [f"{full}{{{labels}}} {one}" for labels, one in value.items()] if isinstance(value, dict) else None
    return [f"# HELP {full} {what}", f"# TYPE {full} gauge", *([f"{full} {value}"] if series is None else series)]


def _labels(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    return ",".join(f'{name}="{escape(str(value))}"' for name, value in zip(names, values, strict=True))
