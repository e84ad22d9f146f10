"""What `trend` finds of changes that were planted, and how often it finds some where there are none.

    python bench/trends.py changes [--fleets 40]
    python bench/trends.py alarms [--fleets 100] [--series 100] [--correlation 0,0.3,0.5,0.8,0.9]

A fleet has 100 series of one kind, and as many runs as the table says. In `changes` the noise is 2 %, and half of the
runs of five series, or of all, are 10 % higher. In `alarms` nothing changes, and the noise is 10 %, so that the least
effect hides little; a run resembles the run before it by the correlation.

The distances and differences that the engine counts are counted here by numpy; all that follows is the program's own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pciescope_fleet.judge import null, trend

Array = npt.NDArray[np.float64]
RUNS = (6, 8, 10, 20, 30)
PLAN = trend.Plan()


def drawn(rng: np.random.Generator, series: int, runs: int, r: float) -> Array:
    """Series with noise of 1, of which each run resembles the one before by `r`."""
    x = np.empty((series, runs))
    x[:, 0] = rng.normal(size=series)
    for run in range(1, runs):
        x[:, run] = r * x[:, run - 1] + np.sqrt(1 - r * r) * rng.normal(size=series)
    return x


@dataclass
class Found:
    """What `trend` says of a fleet."""

    has_changed: npt.NDArray[np.bool_]
    sigma: float
    """The noise that it takes, in the middle of the series."""


def judged(x: Array) -> Found:
    """Whether each series has changed."""
    count, runs = len(x), np.full(len(x), x.shape[1])
    splits = [trend.best_split(own) for own in x]
    steps = np.abs(np.diff(x, axis=1))
    steps[np.arange(count), [place - 1 for place, _ in splits]] = np.nan
    own, dof = trend.of_steps(np.nanmedian(steps, axis=1), runs)
    noise = null.moderate(own, dof, is_of_means=True)
    sampled = {row: x[row] for row in range(0, count, -(-count // trend.SAMPLED))}
    kinds = np.zeros(count, dtype=np.int64)
    sigma = noise.sigma * trend.lasting_by_kind(sampled, kinds, runs, noise.sigma, noise.freedom)
    p = trend.split_p(np.array([score for _, score in splits]) / sigma, runs, noise.freedom)
    changed = {
        int(row)
        for row in np.flatnonzero(p <= trend.SPLIT_LEVEL)
        if trend.steps(x[row], trend.segments(x[row], sigma[row], noise.freedom[row]), np.log1p(PLAN.least_effect))
    }
    series = pd.DataFrame({"series": np.arange(count), "origin": "measured", "p": p})
    q = trend.bounded(series, changed).to_numpy()
    return Found(np.array([row in changed and q[row] <= PLAN.level for row in range(count)]), float(np.median(sigma)))


def changes(args: argparse.Namespace) -> None:
    """Prints what is found where series change."""
    print("| runs | changes found | false alarms beside them | found where all change | noise taken / true noise |")
    print("|---|---|---|---|---|")
    for runs in RUNS:
        found, false, noise = {5: 0, 100: 0}, 0, []
        for changed, fleets in ((5, args.fleets), (100, args.fleets // 3)):
            rng = np.random.default_rng(runs)
            for _ in range(fleets):
                x = 0.02 * drawn(rng, 100, runs, 0.0)
                x[:changed, runs // 2 :] += np.log1p(0.1)
                told = judged(x)
                found[changed] += int(told.has_changed[:changed].sum())
                false += int(told.has_changed[changed:].sum())
                noise += [told.sigma / 0.02] if changed == 5 else []
        print(
            f"| {runs} | {found[5]} of {5 * args.fleets} | {false} | "
            f"{found[100]} of {100 * (args.fleets // 3)} | {np.mean(noise):.2f} |"
        )


def alarms(args: argparse.Namespace) -> None:
    """Prints how many fleets without a change have a false alarm."""
    print("| runs | " + " | ".join(f"r {r:g}" for r in args.correlation) + " |")
    print("|---|" + "---|" * len(args.correlation))
    for runs in RUNS:
        cells: list[Any] = []
        for r in args.correlation:
            rng = np.random.default_rng(int(runs * 100 + r * 10) + args.series)
            fleets = (judged(0.1 * drawn(rng, args.series, runs, r)) for _ in range(args.fleets))
            cells.append(f"{sum(bool(told.has_changed.any()) for told in fleets)} of {args.fleets}")
        print(f"| {runs} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("changes")
    one.add_argument("--fleets", type=int, default=40)
    one.set_defaults(run=changes)
    other = verbs.add_parser("alarms")
    other.add_argument("--fleets", type=int, default=100)
    other.add_argument("--series", type=int, default=100)
    other.add_argument(
        "--correlation", type=lambda text: [float(r) for r in text.split(",")], default=[0, 0.3, 0.5, 0.8, 0.9]
    )
    other.set_defaults(run=alarms)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
