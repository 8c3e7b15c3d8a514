"""Curves with simultaneous bands: ROC, precision-recall, net benefit, reliability.

A curve is a plain mapping of lists (its JSON), or has empty lists and a ``reason``. Thresholds are edges of
leaves, so every point is exact up to sampling and noise. Each function states how its band is made.

Simultaneous bands for the two score distributions, from which the bands of curves are made.

Sampling: the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, valid for every distribution and
sample size. Noise: a Chernoff bound with a union over all edges; Laplace noise has exponential tails, so a
normal quantile would be too small that far out. Most of the allowed error goes to sampling, because the noise
bound depends on its share only through a logarithm. Where each client reports on one level, sampling and noise
are one sum of independent reports, and Bernstein's inequality bounds both together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.confusion import Confusion, net_benefit
from fedassay.estimation.count_noise import LevelReports
from fedassay.estimation.evidence import ENOUGH, Evidence
from fedassay.estimation.intervals import share_interval, z_value
from fedassay.estimation.least_squares import report_reach
from fedassay.estimation.metric import LEVEL, Undefined
from fedassay.estimation.ratios import prevalence
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise

# --- simultaneous bands for the two score distributions -----------------------------------------------------

NOISE_SHARE = 0.1
"""Part of the allowed error that the noise may use."""

_SMALL_SCALE = 0.5
"""Scale below which discrete Laplace noise has heavier tails than continuous noise of the same variance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RateBand:
    """Share of a class at or above each edge, non-increasing, and a half-width for all edges at once."""

    rates: Floats
    half_width: float

    @property
    def lower(self) -> Floats:
        """Lower ends of the band."""
        return np.maximum(self.rates - self.half_width, 0.0)

    @property
    def upper(self) -> Floats:
        """Upper ends of the band."""
        return np.minimum(self.rates + self.half_width, 1.0)


def rate_band(evidence: Evidence, label: int, *, error: float) -> RateBand:
    """Return the band of the class with this label (1 or 0); true at all edges at once but for `error`.

    Under noise the rates are the isotonic regression of the estimates. It moves no point further from a monotone truth
    than the worst point was before, so that one half-width serves all.
    """
    below = evidence.positives_below if label else evidence.negatives_below
    total = float(below[-1])
    rates = 1 - below / total
    if evidence.exact:
        return RateBand(rates=rates, half_width=dkw_half_width(total, error))
    law = evidence.count_noise
    if isinstance(law, LevelReports):
        variances = law.rate_variances(label, rates)
        half_width = report_half_width(evidence.noise, float(variances.max()), len(below) - 2, error) / total
    else:
        noise = law.positives if label else law.negatives
        fewest = max(1.0, total - z_value(1 - error) * math.sqrt(noise.total))
        joint = noise.total - noise.joint
        # The noise of (rows above the edge)/(all rows): the first minus the rate times the second, over the
        # total.
        variance = float((noise.above - 2 * rates * joint + rates**2 * noise.total).max())
        of_noise = half_width_of(
            evidence.noise,
            variance,
            points=len(below) - 2,
            error=NOISE_SHARE * error,
            reach=evidence.fit.reach,
        )
        half_width = dkw_half_width(fewest, (1 - NOISE_SHARE) * error) + of_noise / total
    monotone = np.asarray(isotonic_regression(rates, increasing=False).x)
    return RateBand(rates=np.clip(monotone, 0.0, 1.0), half_width=half_width)


def dkw_half_width(rows: float, error: float) -> float:
    """Return sqrt(log(2/error)/(2 rows)): no empirical distribution strays further (Massart 1990).

    Examples
    --------
    >>> round(dkw_half_width(100, 0.05), 4)
    0.1358
    """
    return math.sqrt(math.log(2 / error) / (2 * rows))


def half_width_of(noise: Noise, variance: float, *, points: int, error: float, reach: float = 1.0) -> float:
    """Return `noise_half_width` for the law of a draw.

    `variance` is that of the whole sum, however many draws (`Noise.copies`) the noise of a node amounts to: the
    cumulants of independent draws add up. `reach` is the largest weight of a draw in the sum: the bounds are for
    weights up to 1, and sums scale.
    """
    if reach != 1.0:
        return reach * half_width_of(noise, variance / reach**2, points=points, error=error)
    if noise.law == "discrete-gaussian":
        # Its generating function is below that of a normal with σ² (Canonne, Kamath, Steinke 2020), of which
        # the variance falls short if σ is small.
        excess = noise.copies * noise.scale * noise.scale / noise.variance
        return noise_half_width(variance * max(1.0, excess), 0.0, points=points, error=error)
    if noise.law == "skellam":
        # cosh t - 1 <= (t²/2)/(1 - t²/12), coefficient by coefficient.
        return noise_half_width(variance, 1 / math.sqrt(12), points=points, error=error)
    if noise.law == "discrete-laplace" and noise.scale < _SMALL_SCALE:
        return sharp_half_width(variance, noise.scale, points=points, error=error)
    return noise_half_width(variance, noise.scale, points=points, error=error)


def noise_half_width(variance: float, scale: float, *, points: int, error: float) -> float:
    """Bound the largest of `points` noisy sums, each with at most this variance.

    A sum Σ a_i X_i of independent Laplace variables of scale b, |a_i| <= 1, has a cumulant generating
    function of at most (v/2) t²/(1 - b²t²), v its variance; the same holds for discrete Laplace variables of
    scale at least ½. Hence P(|sum| > u) <= 2 exp((v/2) t²/(1 - b²t²) - u t) for each t < 1/b, and with t
    chosen best

        u = min_t (log(2·points/error) + (v/2) t²/(1 - b²t²))/t.

    `scale` 0 is the Gaussian case, u = sqrt(2 v log(2·points/error)).

    Examples
    --------
    >>> round(noise_half_width(1.0, 0.0, points=1, error=0.05), 3)
    2.716
    >>> round(noise_half_width(150.0, 3.0, points=1023, error=0.05), 1)
    76.5
    """
    x = math.log(2 * points / error)
    if scale == 0:
        return math.sqrt(2 * variance * x)
    t = np.linspace(0, (1 - 1e-9) / scale, 4001)[1:-1]
    return float(((x + variance / 2 * t**2 / (1 - (scale * t) ** 2)) / t).min())


def sharp_half_width(variance: float, scale: float, *, points: int, error: float) -> float:
    """Bound the largest sum as `noise_half_width` does, with the exact generating function of discrete Laplace draws,
    for scales that are small.

    One draw has the cumulant generating function K(t) = -log(1 - v(cosh t - 1)), v its variance, whose
    cumulants are all positive: K(at) <= a² K(t) for |a| <= 1, so that of the sum is at most (variance/v)·K(t).

    Examples
    --------
    >>> sharp_half_width(150.0, 3.0, points=1023, error=0.05) < 76.5
    True
    """
    x = math.log(2 * points / error)
    one = 0.5 / math.sinh(0.5 / scale) ** 2  # 2a/(1-a)² with a = exp(-1/b)
    t = np.linspace(0, (1 - 1e-9) / scale, 4001)[1:-1]
    return float(((x - variance / one * np.log1p(-one * (np.cosh(t) - 1))) / t).min())


def bernstein_half_width(variance: float, largest: float, *, points: int, error: float) -> float:
    """Bound the largest of `points` sums whose generating functions are at most (v/2) t²/(1 - ct/3).

    Bernstein's inequality: P(|sum| > u) <= 2 exp(-u²/(2(v + cu/3))), solved for u; c is `largest`.

    Examples
    --------
    >>> round(bernstein_half_width(1.0, 0.0, points=1, error=0.05), 3)
    2.716
    """
    x = math.log(2 * points / error)
    shift = largest * x / 3
    return shift + math.sqrt(shift**2 + 2 * variance * x)


def report_half_width(noise: Noise, variance: float, points: int, error: float) -> float:
    """Bound the largest sum for bits of clients that report on one level each; sampling is in the variance already.

    A client on level k adds Σ_j w_j (bit_j - q)/(½ - q)/f_k to a sum. With x_j = t w_j/(f_k (½ - q)) its generating
    function is Π_j (1 - q + q e^{x_j}) times the mean of R(x_j) over the cells j that the client may be in, R(x) =
    ½(1 + e^x)/(1 - q + q e^x): bits that know nothing, and what the row's own bit adds to them. By log R <= R - 1,
    its logarithm without the linear part is at most Σ_j (K(x_j) + π_j r(x_j)), π_j the probability of cell j, K(x)
    = log(1 - q + q e^x) - qx, r(x) = R(x) - 1 - (½ - q)x; and K + π r <= (q(1-q)/2 + π(½-q)²) x²/(1 - |x|/3) for all
    |x| < 3 and π in [0, 1]. So Bernstein's inequality holds with v = Σ_k (M V |w_k|² + 2 Σ n w²)/f_k and c =
    1/((½ - q) min f_k), because no weight of these sums exceeds 1.
    """
    return bernstein_half_width(variance, report_reach(noise), points=points, error=error)


# --- curves with simultaneous bands -------------------------------------------------------------------------

POINTS = 200
"""Largest number of points of a curve."""

CurveValues = dict[str, Any]


def roc_curve(evidence: Evidence, *, level: float = LEVEL) -> CurveValues:
    """Compute the true against the false positive rate, from (0, 0) to (1, 1).

    Band: each class's score distribution has a band (`rate_band`) at half the error. Together they confine
    the true curve's point at every threshold to a rectangle; `lower` and `upper` are the bounds that all rectangles
    together give for the true positive rate at each of the listed false positive rates, simultaneously.

    The threshold of (0, 0) is None: no finite threshold excludes every possible score.
    """
    try:
        evidence.require_classes()
    except Undefined as error:
        return _empty("fpr", "tpr", "thresholds", "lower", "upper", level=level, reason=error)
    tpr, fpr = (rate_band(evidence, label, error=(1 - level) / 2) for label in (1, 0))
    # The true curve R is non-decreasing and passes within the rectangles: R(x) is at most the upper end of
    # any point whose false positive rate is surely at least x, and at least the lower end of any surely at
    # most x.
    x = fpr.rates
    surely_right = np.searchsorted(-fpr.lower, -x, side="right") - 1  # the last edge with lower >= x
    upper = np.where(surely_right >= 0, tpr.upper[np.maximum(surely_right, 0)], 1.0)
    surely_left = np.searchsorted(-fpr.upper, -x, side="left")  # the first edge with upper <= x
    last = len(x) - 1
    lower = np.where(surely_left <= last, tpr.lower[np.minimum(surely_left, last)], 0.0)
    chosen = _spread_out(tpr, fpr)
    return {
        "fpr": _list(x[chosen]),
        "tpr": _list(tpr.rates[chosen]),
        "thresholds": _thresholds(evidence, chosen),
        "lower": _list(np.minimum(lower, tpr.rates)[chosen]),
        "upper": _list(np.maximum(upper, tpr.rates)[chosen]),
        "level": level,
    }


def precision_recall_curve(evidence: Evidence, *, level: float = LEVEL) -> CurveValues:
    """Compute precision against recall, from high thresholds to low ones.

    Band: a third of the error each to the distributions of positives and of negatives (simultaneous bands)
    and to the prevalence; precision is monotone in all three, so its worst corners bound it, simultaneously.
    """
    names = ("recall", "precision", "thresholds", "lower", "upper")
    share = (1 - level) / 3
    base = prevalence(evidence, level=1 - share)
    try:
        P, N = evidence.require_classes()
    except Undefined as error:
        return _empty(*names, level=level, reason=error)
    assert base.interval is not None
    tpr, fpr = (rate_band(evidence, label, error=share) for label in (1, 0))
    chosen = _spread_out(tpr, fpr)
    predicted = P * tpr.rates[chosen] + N * fpr.rates[chosen]
    chosen = chosen[predicted > 0]
    precision = _precision(P / (P + N), tpr.rates[chosen], fpr.rates[chosen])
    return {
        "recall": _list(tpr.rates[chosen]),
        "precision": _list(precision),
        "thresholds": _thresholds(evidence, chosen),
        "lower": _list(
            np.minimum(precision, _precision(base.interval[0], tpr.lower[chosen], fpr.upper[chosen]))
        ),
        "upper": _list(
            np.maximum(precision, _precision(base.interval[1], tpr.upper[chosen], fpr.lower[chosen]))
        ),
        "level": level,
    }


def net_benefit_curve(evidence: Evidence, *, level: float = LEVEL) -> CurveValues:
    """Compute net benefit at thresholds from 0.01 to 0.99 (the edges nearest to them), and that of treating everyone.

    Band: intervals at an error of (1 - level)/points each (Bonferroni), simultaneous.
    """
    names = ("thresholds", "net_benefit", "treat_all", "lower", "upper")
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return _empty(*names, level=level, reason=error)
    edges = sorted({evidence.nearest_edge(percent / 100) for percent in range(1, 100)})
    edges = [edge for edge in edges if 0 < evidence.edges[edge] < 1]
    curve: dict[str, list[float]] = {name: [] for name in names}
    for edge in edges:
        confusion = Confusion.at_edge(evidence, edge)
        point = net_benefit(confusion, level=1 - (1 - level) / len(edges))
        assert point.value is not None
        assert point.interval is not None
        t = confusion.threshold
        all_treated = (evidence.positive_rows - evidence.negative_rows * t / (1 - t)) / n
        row = (t, point.value, all_treated, *point.interval)
        for name, number in zip(names, row, strict=True):
            curve[name].append(number)
    return {**curve, "level": level}


def reliability_curve(buckets: Buckets, *, level: float = LEVEL) -> CurveValues:
    """Compute observed frequency against mean score per bucket.

    Band: Clopper-Pearson intervals, widened for the noise, at an error of (1 - level)/buckets each
    (Bonferroni), simultaneous. Buckets whose rows drown in noise are left out.
    """
    evidence, lists = buckets.evidence, ReliabilityLists(bins=buckets.number, level=level)
    try:
        n = evidence.require_rows()
    except Undefined as error:
        return lists.to_json(reason=str(error))
    for j in range(buckets.number):
        rows, noise = float(buckets.rows[j]), float(buckets.row_noise_variances[j])
        if rows > 0 and rows >= ENOUGH * math.sqrt(noise):
            low, high = (float(side[j]) for side in buckets.ends)
            v, mean = float(buckets.observed[j]) / rows, float(buckets.expected[j]) / rows
            lists.add((low, high), mean, v, rows, n, buckets.rate_noise_variance(j))
    return lists.to_json()


@dataclass(frozen=True, kw_only=True)
class ReliabilityLists:
    """Entries of a reliability curve of some bins, each with an error of (1 - level)/bins."""

    bins: int
    level: float
    points: list[tuple[Any, ...]] = field(default_factory=list)

    def add(
        self, ends: tuple[float, float], mean: float, observed: float, rows: float, of: float, privacy: float
    ) -> None:
        """Add a bin with this many rows, out of `of` in all; `privacy` is the noise variance of the observed share."""
        band = share_interval(observed, rows, privacy, level=1 - (1 - self.level) / self.bins)
        inside, share = min(ends[1], max(ends[0], mean)), min(1.0, max(0.0, observed))
        self.points.append((list(ends), inside, share, rows / of, *band))

    def to_json(self, *, reason: str = "") -> CurveValues:
        """Return the lists, and the reason why they are empty, if they are."""
        names = ("edges", "mean_score", "observed", "share", "lower", "upper")
        lists = zip(*self.points, strict=True) if self.points else [()] * len(names)
        curve = {name: list(values) for name, values in zip(names, lists, strict=True)}
        return {**curve, "level": self.level, **({"reason": reason} if reason else {})}


def _precision(share: float, tpr: Floats, fpr: Floats) -> Floats:
    true, false = share * tpr, (1 - share) * fpr
    return np.asarray(np.where(true + false > 0, true / np.maximum(true + false, 1e-300), 0.0))


def _spread_out(tpr: RateBand, fpr: RateBand) -> NDArray[np.int64]:
    """Return at most `POINTS` edges, evenly spread along the curve, from the highest edge to the lowest."""
    progress = (tpr.rates + fpr.rates)[::-1] / 2  # from 0 at the top edge to 1 at the lowest
    targets = np.linspace(0, 1, POINTS)
    places = np.searchsorted(progress, targets - 1e-12)
    places = np.unique(np.clip(np.concatenate([[0], places, [len(progress) - 1]]), 0, len(progress) - 1))
    return np.asarray(len(progress) - 1 - places[: POINTS + 1], dtype=np.int64)


def _thresholds(evidence: Evidence, edges: NDArray[np.int64]) -> list[float | None]:
    top, at = evidence.leaves, evidence.edges
    return [float(at[edge]) if edge < top and math.isfinite(at[edge]) else None for edge in edges]


def _list(values: Floats) -> list[float]:
    return [float(value) for value in values]


def _empty(*names: str, level: float, reason: Undefined) -> CurveValues:
    return {**{name: [] for name in names}, "level": level, "reason": str(reason)}
