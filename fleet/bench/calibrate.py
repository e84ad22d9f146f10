"""Simulates how far healthy hosts lie from their group's median, in noises as `outliers` estimates them.

    python bench/calibrate.py table             prints judge/calibration.py; some minutes
    python bench/calibrate.py clocks [FLEETS]   the same of clocks whose ticks are so many noises
    python bench/calibrate.py check [FLEETS]    how often a p-value below a level comes, beside that level

`table` draws groups of one figure with normal noise. `check` also draws figures of one kind together, which lend each
other certainty, and says for each level how many times too often a p-value below it comes, with the standard error.
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from pciescope_fleet.judge import null
from pciescope_fleet.judge.statistics import TICKS

Array = npt.NDArray[np.float64]

HOSTS = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 30, 50, 100, 300)
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.0025, 0.001, 5e-4, 2.5e-4, 1e-4, 3e-5, 1e-5)
DRAWS, AT_ONCE = 8_000_000, 1_000_000
"""Distances that are drawn for each number of hosts, and in memory at a time."""


def noise(x: Array, tick: float = 0.0) -> tuple[Array, Array]:
    """Of each group (a row) the distances from its median, and the noise as `statistics` has it before any bias."""
    away = np.abs(x - np.median(x, axis=1, keepdims=True))
    sigma = np.maximum(null.sigma(np.median(away, axis=1), np.full(len(x), x.shape[1])), tick * TICKS)
    for _ in range(null.PASSES):
        sigma = np.maximum(null.capped(np.minimum(away, null.CAP * sigma[:, None]) ** 2, axis=1), tick * TICKS)
    inside = 1 - np.minimum(away / (null.EDGE * sigma[:, None]), 1) ** 2
    return away, null.biweight((away**2 * inside**4).mean(axis=1), (inside * (5 * inside - 4)).mean(axis=1))


def table() -> None:
    """Prints the module with the table."""
    rng = np.random.default_rng(1)
    rows, bias, freedom = [], [], []
    for hosts in HOSTS:
        far, logs = [], []
        for _ in range(DRAWS // AT_ONCE):
            away, sigma = noise(rng.normal(size=(AT_ONCE // hosts, hosts)))
            far.append((away / sigma[:, None]).astype(np.float32).ravel())
            logs.append(2 * np.log(sigma))
        log = np.concatenate(logs)
        freedom.append(optimize.brentq(lambda dof, log=log: special.polygamma(1, dof / 2) - log.var(), 0.5, 1e4))
        bias.append(np.exp(np.median(log) / 2) / np.sqrt(stats.chi2.median(freedom[-1]) / freedom[-1]))
        rows.append(np.quantile(np.concatenate(far), 1 - np.array(LEVELS)) * bias[-1])
    sys.stdout.write(
        '"""How far healthy hosts lie: simulated, by `bench/calibrate.py table`. Do not edit."""\n\n# fmt: off\n'
    )
    sys.stdout.write(f"HOSTS = {HOSTS}\n")
    for name, values in (("BIAS", bias), ("FREEDOM", freedom)):
        line = f"{name} = ({', '.join(f'{value:.4g}' for value in values)})"
        sys.stdout.write(textwrap.fill(line, 116, subsequent_indent="    ") + "\n")
    sys.stdout.write(f"LEVELS = {LEVELS}\nDISTANCES = (\n")
    for row in rows:
        sys.stdout.write(f"    ({', '.join(f'{value:.4g}' for value in row)}),\n")
    sys.stdout.write(")\n")


def p_values(x: Array, alike: float = 0.0, tick: float = 0.0) -> Array:
    """The p-values of fleets: `x` by fleet, figure and host. Figures of a fleet are of one kind."""
    x = np.rint(x / tick) * tick if tick else x
    fleets, figures, hosts = x.shape
    away, own = noise(x.reshape(-1, hosts), tick)
    count = np.full(figures, float(hosts))
    found = [
        null.moderate(np.maximum(each / null.bias(count), tick * TICKS), null.freedom(count), alike)
        for each in own.reshape(fleets, -1)
    ]
    sigma, dof = (np.array([getattr(each, name) for each in found]) for name in ("sigma", "freedom"))
    z = away.reshape(x.shape) / sigma[..., None]
    return null.two_sided(z.ravel(), np.repeat(dof.ravel(), hosts), np.full(z.size, float(hosts))).reshape(x.shape)


CHECKED = (0.01, 0.0025, 0.001, 0.0001)


def too_often(p: Array) -> list[tuple[float, float]]:
    """For each level how many times too often a smaller p-value comes, and the standard error of a right answer."""
    # Hosts of a group share its noise: the error is that of the groups' counts.
    found = []
    for level in CHECKED:
        each = (p < level).reshape(len(p), -1).mean(axis=1) / level
        found.append((float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))))
    return found


def check(fleets: int) -> None:
    """Prints a line for each number of hosts and of figures of one kind."""
    rng = np.random.default_rng(2)
    for figures in (10, 3, 1, 40):
        for hosts in (8, 12, 20, 50, 200):
            drawn = max(200, fleets // figures)
            p = p_values(rng.normal(0, 0.05, (drawn, figures, hosts)))
            cells = "  ".join(
                f"{level:g}: {times:.2f} +- {error:.2f}"
                for level, (times, error) in zip(CHECKED, too_often(p), strict=True)
            )
            sys.stdout.write(f"{hosts} hosts, {figures} figures, {drawn} fleets:  {cells}\n")


def clocks(fleets: int) -> None:
    """Prints a line for each number of hosts and each tick, in noises. The fleets' middles lie anywhere in a tick."""
    rng = np.random.default_rng(3)
    for tick in (0.5, 1, 1.5, 2, 4, 20):
        for hosts in (8, 20, 100):
            x = rng.normal(0, 0.02, (fleets, 1, hosts)) + rng.uniform(0, 0.02 * tick, (fleets, 1, 1))
            cells = "  ".join(
                f"{level:g}: {times:.2f} +- {error:.2f}"
                for level, (times, error) in zip(CHECKED, too_often(p_values(x, tick=0.02 * tick)), strict=True)
            )
            sys.stdout.write(f"{hosts} hosts, a tick of {tick} noises:  {cells}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        table()
    else:
        {"check": check, "clocks": clocks}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 40_000)
