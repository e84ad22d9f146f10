"""What chance alone does: how far from its group's median a healthy host lies, and how many of many.

docs/fleet-method.md says how the noise is estimated. How far healthy hosts then lie is simulated (`calibration`, by
bench/calibrate.py): a noise of the hosts near the median is now and then far too small, and no t has such tails.
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from pciescope_fleet.judge.calibration import BIAS, DISTANCES, FREEDOM, HOSTS, LEVELS

Array = npt.NDArray[np.float64]

MAD_TO_SIGMA = 1.4826022185056018  # A normal distribution's standard deviation, in MADs.

EFFICIENCY = 0.3675
"""How many samples a standard deviation needs for the certainty that one MAD has, in a normal distribution."""

FINEST = 0.001  # A histogram keeps 0.1 %: no noise is taken for smaller.

SMALL = np.array([np.nan, np.nan, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107])
"""By how much a MAD of so many is too small (Croux and Rousseeuw 1992); from 10 on n/(n-0.8)."""


DIGITS = 6
"""Significant digits of an answer. Threads of an engine add in any order: the last of a number's 16 digits are chance,
and the same dataset must have the same answer."""


def rounded(value: float) -> float:
    """A number as an answer has it."""
    return float(f"{value:.{DIGITS}g}")


def sigma(mad: Array, hosts: Array) -> Array:
    """The noise that a MAD of so many hosts speaks of."""
    count = np.maximum(np.asarray(hosts, dtype=np.int64), 2)
    small = np.where(count < 10, SMALL[np.minimum(count, 9)], count / np.maximum(count - 0.8, 1))
    return np.asarray(mad) * MAD_TO_SIGMA * small


NEAR = 2.5  # Distances of more noises do not count where the correlation of figures is estimated: there the faults are.

CAP, PASSES, EDGE = 1.25, 4, 4.0
"""How the noise is refined from the MAD: a mean square in which no distance counts for more than `CAP` noises (Huber's
proposal 2), so often again; then Tukey's biweight, for which what lies beyond `EDGE` noises is not there. To cut at 2.5
noises makes a fixed point instead: with honest p-values 40 % of faults of six noises in 8 hosts are found, not 65 %."""

_CAPPED = float(2 * stats.norm.cdf(CAP) - 1 - 2 * CAP * stats.norm.pdf(CAP) + 2 * CAP**2 * stats.norm.sf(CAP))
"""What is left of a normal distribution's variance with its distances capped."""


def capped(square: Array, axis: int | None = None) -> Array:
    """The noise that capped square distances speak of; their mean, if `axis` is not given."""
    return np.asarray(np.sqrt((square if axis is None else square.mean(axis=axis)) / _CAPPED))


def biweight(square: Array, slope: Array) -> Array:
    """The noise of Tukey's biweight: of the means of d²i⁴ and of i(5i-4), with i = 1-(d/EDGE/noise)²."""
    return np.asarray(np.sqrt(square) / np.maximum(slope, 0.1))


_PER_HOST = 1 / np.array([np.inf, *HOSTS[::-1]])


def _at(hosts: Array, values: tuple[float, ...], limit: float) -> Array:
    return np.asarray(np.interp(1 / np.maximum(hosts, 1), _PER_HOST, [limit, *values[::-1]]))


def bias(hosts: Array) -> Array:
    """By how much such a noise of so many normal hosts is too large."""
    return _at(hosts, BIAS, BIAS[-1])


def freedom(hosts: Array) -> Array:
    """The degrees of freedom of such a noise: as sure as that many make a standard deviation."""
    return np.asarray(_at(hosts, tuple(dof / count for dof, count in zip(FREEDOM, HOSTS, strict=True)),
                          FREEDOM[-1] / HOSTS[-1]) * hosts)  # fmt: skip


def freedom_of_mad(hosts: Array) -> Array:
    """The degrees of freedom of a MAD."""
    return np.maximum(EFFICIENCY * (np.asarray(hosts) - 1), 1.0)


def trigamma_inverse(value: float) -> float:
    """The x whose trigamma is `value`, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    if value > 1e7:
        return float(1 / np.sqrt(value))
    if value < 1e-6:
        return float(1 / value)
    x = 0.5 + 1 / value
    for _ in range(50):
        tri = special.polygamma(1, x)
        step = tri * (1 - tri / value) / special.polygamma(2, x)
        x += step
        if -step / x < 1e-8:
            break
    return float(x)


WINSORISED = 0.679  # What is left of a normal distribution's variance with its outer tenths drawn to their edge.


@dataclass(frozen=True)
class Noise:
    """The noise of each group's figure after it took from the others, and how sure it is."""

    sigma: Array
    freedom: Array


NOISIER = 0.05
"""A figure keeps its own noise where so large a one is less likely than this in its kind. With more, figures with usual
noise keep theirs by chance, and hide faults; with less, healthy hosts of a figure with more noise are false alarms: if
one of 20 figures has one and a half times the noise, 10 of 100 fleets have one, 9 with 0.1, 17 if none keeps it."""


def moderate(own: Array, dof: Array, alike: float = 0.0, is_of_means: bool = False) -> Noise:
    """Draws noises of one kind towards what they show together, the more the less sure each is.

    `dof` says how sure, in degrees of freedom. Its prior has the median and the winsorised spread of the logarithms. A
    figure whose noise is of another kind hardly moves them; it keeps its own noise if that is larger.

    `alike` is the correlation of two estimates: the mean square of the correlation that two figures have over the
    hosts. `is_of_means`: the median of the logarithms counts as their mean; `trend` was calibrated so.
    """
    own = np.maximum(own, FINEST)
    if len(own) < 3:
        return Noise(own, dof)
    # That they are equal is an estimate, too (simulated for 3 figures and more).
    few = 1.0 if is_of_means else 1 - 1 / len(own)
    log_variance = 2 * np.log(own)
    expected = special.digamma(dof / 2) - np.log(dof / 2)
    centred = log_variance - expected
    spread = float(np.clip(centred, *np.quantile(centred, [0.1, 0.9])).var(ddof=1)) / WINSORISED
    excess = spread - (1 - alike) * float(np.mean(special.polygamma(1, dof / 2)))
    if excess <= 0:
        # They differ no more than by chance: one noise for all. It is as sure as all of them together.
        prior_dof, usual_ratio = few * float(np.sum(dof)), stats.chi2.median(dof) / dof
    else:
        prior_dof = 2 * trigamma_inverse(excess)
        usual_ratio = stats.f.median(dof, prior_dof)
    usual_log = np.log(usual_ratio)
    if is_of_means:
        usual_log = expected - (special.digamma(prior_dof / 2) - np.log(prior_dof / 2) if excess > 0 else 0.0)
    prior = float(np.exp(np.median(log_variance - usual_log)))
    is_noisier = stats.f.sf(own**2 / prior, dof, prior_dof) < NOISIER
    usual = int(np.sum(~is_noisier))
    most = np.maximum(few * float(np.sum(dof[~is_noisier])) / (1 + max(usual - 1, 0) * alike), dof)
    if excess <= 0:
        common = Noise(np.full(len(own), np.sqrt(prior)), most)
    else:
        variance = (prior_dof * prior + dof * own**2) / (prior_dof + dof)
        common = Noise(np.maximum(np.sqrt(variance), FINEST), np.minimum(dof + prior_dof, most))
    return Noise(np.where(is_noisier, own, common.sigma), np.where(is_noisier, dof, common.freedom))


def kind(figure: str) -> str:
    """A figure's test and what it measured: `mmio-read latency` of `mmio-read BAR0+0x10/4 latency`.

    Those have noise of one kind on all targets. The time until an interrupt's handler runs has more noise than a read.
    """
    words = figure.split()
    return f"{words[0]} {words[-1]}" if words else ""


TAILS = np.concatenate([np.arange(2.0, 12.0, 0.25), np.arange(12.0, 60.0, 2.0), [80, 120, 200, 500, 1e6]])

CUT = 4.0  # Distances beyond are left out where tails are judged: there the faults are.
BINS = 40  # Distances below the cut are counted in so many bins.

FAR_UNIT, LEAST_FIGURES = 2.5, 4
"""A unit whose distances have a larger median, over so many figures at least, is left out there: all of it is far."""

NEEDED = 3.0
"""So much more likely (logarithm) than a normal distribution a heavier one must be. By the theory of likelihood ratios
a statistic with normal noise is taken for heavy-tailed in 1 fleet of 140 then, and hides faults; at 1: 1 of 12."""


@functools.cache
def _likelihoods(first: int) -> Array:
    """The logarithm of each bin's share of those from the first on, by degrees of freedom and by scale."""
    edges = np.linspace(0, CUT, BINS + 1)[first:]
    scales = np.exp(np.linspace(np.log(0.4), np.log(1.5), 54))
    shares = 2 * stats.t.cdf(edges / scales[None, :, None], TAILS[:, None, None]) - 1
    return np.asarray(np.log(np.maximum(np.diff(shares) / (shares[..., -1:] - shares[..., :1]), 1e-300)))


def heaviness(counts: Array, hosts: float = np.inf) -> float:
    """The degrees of freedom of the t that is most likely for distances, given how many lie in each bin below the cut.

    Infinite where a normal distribution is nearly as likely, and where they are too few. The scale does not matter.
    In a group of few hosts the two that its median lies between are nearer to it than chance has it: they do not count.
    """
    if counts.sum() < 40:
        return np.inf
    first = int(np.ceil(stats.norm.ppf(0.5 + 1 / max(5.0, hosts)) * BINS / CUT))
    likelihood = (_likelihoods(first) @ counts[first:]).max(axis=1)
    best = int(np.argmax(likelihood))
    return np.inf if likelihood[best] - likelihood[-1] <= NEEDED else float(TAILS[best])


_WITHIN = 2 * stats.t.cdf(CUT, TAILS) - 1
RATIOS = stats.t.ppf(0.5 + 0.475 * _WITHIN, TAILS) / stats.t.ppf(0.5 + 0.25 * _WITHIN, TAILS)
"""The 0.95 quantile over the median of |t| below the cut, for each of `TAILS`."""


def tail(ratio: float, count: int, hosts: float) -> float:
    """The same of CPUs, by the 0.95 quantile over the median of the distances below the cut.

    `count` is how many there are, `hosts` how many a group usually has. A small group's median lies among its own
    hosts, so the ratio is larger there, and less sure (both simulated for 5 to 100 hosts). What 2.5 standard errors
    explain makes no tail heavy.
    """
    if count < 40 or not np.isfinite(ratio):
        return np.inf
    error = 3.6 / np.sqrt(count) * (1 + 4 / hosts)
    own = ratio / (1 + 1 / hosts)
    return np.inf if own <= RATIOS[-1] + 2.5 * error else float(TAILS[np.argmin(np.abs(RATIOS - own))])


_NORMAL = stats.norm.isf(np.array(LEVELS) / 2)
_LOG_DISTANCES = np.log(np.array([_NORMAL, *DISTANCES[::-1]]))
_HEAVIER = 0.55
"""Beyond the table tails are those of a t with so many times its degrees of freedom: the noise of a group is more often
much too small than a standard deviation is."""


def _of_median(per_host: Array) -> Array:
    """The variance of a far host's distance from a median that it is among, over the noise's (simulated)."""
    return 1 + 0.5 * per_host


def two_sided(z: Array, dof: Array, hosts: Array, heavy: float | Array = np.inf) -> Array:
    """How often chance alone goes as far, in either direction, in a group of so many hosts.

    A noise of so many degrees of freedom is as sure as one figure of a certain number of hosts alone makes it: the
    table has the distances of those. `heavy` are the degrees of freedom of the t that healthy hosts' differences have.
    """
    z, dof, hosts = (np.asarray(each, dtype=float) for each in np.broadcast_arrays(np.abs(z), dof, hosts))
    is_known = np.isfinite(z) & (dof > 0)
    found = np.full(z.shape, np.nan)
    if not is_known.any():
        return found
    z, dof, hosts = z[is_known], dof[is_known], hosts[is_known]
    place = np.interp(1 / dof, [0.0, *(1 / np.array(FREEDOM[::-1]))], _PER_HOST)
    scale = np.sqrt(_of_median(place) / _of_median(1 / hosts))
    away = np.log(np.maximum(z * scale, 1e-300))
    below = np.clip(np.searchsorted(_PER_HOST, place, side="right") - 1, 0, len(_PER_HOST) - 2)
    part = ((place - _PER_HOST[below]) / (_PER_HOST[below + 1] - _PER_HOST[below]))[:, None]
    knots = (1 - part) * _LOG_DISTANCES[below] + part * _LOG_DISTANCES[below + 1]
    last = np.clip((away[:, None] >= knots).sum(axis=1) - 1, 0, len(LEVELS) - 2)[:, None]
    left, right = (np.take_along_axis(knots, last + step, axis=1)[:, 0] for step in (0, 1))
    at = _NORMAL[last[:, 0]], _NORMAL[last[:, 0] + 1]
    normal = at[0] + (at[1] - at[0]) * (away - left) / (right - left)
    p = 2 * stats.norm.sf(np.maximum(normal, 0))
    tail = np.minimum(_HEAVIER * dof, 1e6)
    far = 2 * stats.t.sf(np.exp(away - knots[:, -1]) * stats.t.isf(LEVELS[-1] / 2, tail), tail)
    p = np.where(away > knots[:, -1], far, p)
    found[is_known] = np.maximum(p, 2 * stats.t.sf(z, np.broadcast_to(heavy, found.shape)[is_known]))
    return found


def simes(p: Array, owner: npt.NDArray[np.int64], tested: Array) -> Array:
    """One p-value for each owner, of those of its statistics (Simes 1986).

    `p` has the small ones only; `tested` says for each owner how many statistics it has.
    """
    order = np.lexsort((p, owner))
    sorted_owner, sorted_p = owner[order], p[order]
    first = np.r_[0, np.flatnonzero(np.diff(sorted_owner)) + 1]
    starts = np.zeros(len(p), dtype=np.int64)
    starts[first] = first
    rank = np.arange(len(p)) - np.maximum.accumulate(starts) + 1
    bound = np.minimum(sorted_p * tested[sorted_owner] / rank, 1.0)
    combined = np.ones(len(tested))
    np.minimum.at(combined, sorted_owner, bound)
    return combined


def benjamini_hochberg(p: Array, tests: int) -> Array:
    """The q-value of each p-value among so many tests, of which the others are larger than the level.

    A test is a discovery where its q-value is at most the level (Benjamini and Hochberg 1995).
    """
    order = np.argsort(p)[::-1]
    ranks = np.arange(len(p), 0, -1)
    q = np.minimum.accumulate(p[order] * tests / ranks) if len(p) else p
    result = np.empty(len(p))
    result[order] = np.minimum(q, 1.0)
    return result
