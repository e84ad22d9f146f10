"""Verdicts for node_exporter's textfile collector."""

from __future__ import annotations

from typing import Any

from pciescope_fleet.judge.doubt import doubt
from pciescope_fleet.judge.outliers import Judged


def escape(text: str) -> str:
    """A label's value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


LABELS = ("host", "host_key", "device", "origin", "direction")
"""What tells one series from another. A verdict on figures that no hardware made says so by its origin."""


def render(judged: Judged, now: float) -> str:
    """The text: one series for each outlying host, device, origin and direction, and totals."""
    lines = [
        "# HELP pciescope_fleet_hosts Hosts with figures, judged or not.",
        "# TYPE pciescope_fleet_hosts gauge",
        f"pciescope_fleet_hosts {judged.hosts}",
        "# HELP pciescope_fleet_figures_unjudged Figures whose group has too few hosts.",
        "# TYPE pciescope_fleet_figures_unjudged gauge",
        f"pciescope_fleet_figures_unjudged {judged.unjudged}",
        "# HELP pciescope_fleet_judged_timestamp_seconds When the hosts were judged.",
        "# TYPE pciescope_fleet_judged_timestamp_seconds gauge",
        f"pciescope_fleet_judged_timestamp_seconds {now:.0f}",
        "# HELP pciescope_fleet_outlier_figures Figures in which a host differs from its like.",
        "# TYPE pciescope_fleet_outlier_figures gauge",
    ]
    effects = [
        "# HELP pciescope_fleet_outlier_effect_ratio The effect that is surest, as a share: 0.1 is 10 % more.",
        "# TYPE pciescope_fleet_outlier_effect_ratio gauge",
    ]
    doubts = [
        "# HELP pciescope_fleet_outlier_in_doubt Whether all of these figures may be of hardware that is gone.",
        "# TYPE pciescope_fleet_outlier_in_doubt gauge",
    ]
    if len(judged.outliers):
        from pciescope_fleet.judge.outliers import direction, outlier

        rows = judged.outliers.assign(direction=[direction(row) for row in judged.outliers.to_dict("records")])
        for labelled, part in rows.groupby(["host", "host_key", "device", "origin", "direction"], sort=True):
            labels = _labels(LABELS, labelled)
            lines.append(f"pciescope_fleet_outlier_figures{{{labels}}} {len(part)}")
            worst = part.sort_values("p").iloc[0]
            effects.append(f"pciescope_fleet_outlier_effect_ratio{{{labels}}} {worst['effect']:.6g}")
            in_doubt = all(doubt(outlier(row)) is not None for row in part.to_dict("records"))
            doubts.append(f"pciescope_fleet_outlier_in_doubt{{{labels}}} {int(in_doubt)}")
    return "\n".join(lines + effects + doubts + _failed(judged)) + "\n"


OF_FAILED = ("host", "host_key", "device", "origin", "verb", "code")


def _failed(judged: Judged) -> list[str]:
    """The errors of the newest runs."""
    failed = {tuple(str(each[name]) for name in OF_FAILED): each["is_broken"] for each in judged.failed}
    return [
        "# HELP pciescope_fleet_failed An error of a device's newest run: 1 where the device is broken, else 0.",
        "# TYPE pciescope_fleet_failed gauge",
        *(f"pciescope_fleet_failed{{{_labels(OF_FAILED, names)}}} {int(failed[names])}" for names in sorted(failed)),
    ]


def _labels(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    return ",".join(f'{name}="{escape(str(value))}"' for name, value in zip(names, values, strict=True))
