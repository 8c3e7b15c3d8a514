"""Errors to expect of a distribution, the check that a budget is enough, and the mechanism with the least error.

Mechanisms are decided from public settings by exact variances: compared is the mean variance of a sum up to a point
(`mean_variance`). A budget that is too small for what is asked is refused before anything is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.curves import NOISE_SHARE, half_width_of, report_half_width
from fedassay.estimation.least_squares import LeastSquares, least_squares, mean_prefix_variance, ranked_widths
from fedassay.estimation.metric import LEVEL
from fedassay.estimation.tree import Tree
from fedassay.protocol.vocabulary import LARGEST_EPSILON, Noise, Setting, Sum
from fedassay.summaries.distribution.path import LARGEST_MULTIPLIER, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueSummary, ValueTree
from fedassay.tasks.distribution.curve import ReleasedCurve, curve_of

# --- how large errors will be -------------------------------------------------------------------------------


def mean_variance(summary: ValueSummary, noise: Noise) -> float:
    """Return the noise variance of the number of rows (of one class) up to a point, averaged over the points; exact.

    Where each client reports on one level, for rows that are spread evenly.

    Examples
    --------
    >>> from fedassay.summaries.distribution.path import ValuePath
    >>> path = ValuePath(lower=0, upper=1, points=1024)
    >>> mean_variance(path, Noise(law="discrete-laplace", scale=6.0, variance=72.0))  # 6 nodes hide a row
    792.0
    """
    fit = summary.leaf_covariance(noise)
    if isinstance(fit, LeastSquares):
        return mean_prefix_variance(fit)
    return float(fit.prefix_variances[1:].mean())


def expected_curve(summary: ValueSummary, noise: Noise, *, rows: float) -> ReleasedCurve:
    """Return the curve to expect of rows that are spread evenly over the leaves, all classes together."""
    if not rows > 0:
        raise UsageError(f"expected rows: got {rows:g}, expected a number above 0.")
    sums = rows * np.arange(summary.points + 1) / summary.points
    return curve_of(summary.grid, sums, summary.leaf_covariance(noise), noise, times=summary.classes)


def noise_half_width(summary: ValueSummary, noise: Noise, *, rows: float, level: float = LEVEL) -> float:
    """Return the most that noise will add to the half-width of the simultaneous band of all rows.

    Guarantee: no release with this noise and at least `rows` (noisy) rows has a band of which more is due to noise,
    whatever the values are. Where each client reports on one level that is so for rows that are spread evenly.

    Examples
    --------
    >>> from fedassay.summaries.distribution.tree import ValueTree
    >>> tree = ValueTree(lower=0, upper=1, points=1024, widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=17.8)
    >>> round(noise_half_width(tree, noise, rows=10_000), 4)
    0.0094
    """
    if noise.variance == 0:
        return 0.0
    curve = expected_curve(summary, noise, rows=rows)
    # The variance of F_r - s·F_N is convex in the share s, so that it is largest at 0 or 1.
    variance = float(max(curve.law.below.max(), curve.law.above.max()))
    if curve.reports is not None:
        return report_half_width(noise, variance, summary.points, 1 - level) / rows
    error = NOISE_SHARE * (1 - level)
    return half_width_of(noise, variance, points=summary.points, error=error, reach=curve.reach) / rows


def quantile_errors(
    summary: ValueSummary, noise: Noise, *, quantile: float, rows: float, density: float
) -> tuple[float, float]:
    """Return the standard errors of a quantile that sampling and noise will cause, in units of the values.

    Parameters
    ----------
    quantile : between 0 and 1.
    rows : number of rows to expect.
    density : of the values at the quantile, per unit; 1/(upper - lower) for values that are spread evenly.

    Both are errors of the distribution function at the quantile, divided by the density (Bahadur 1966). The width of
    a leaf comes on top.

    Examples
    --------
    >>> from fedassay.protocol.vocabulary import NO_NOISE
    >>> from fedassay.summaries.distribution.tree import ValueTree
    >>> tree = ValueTree(lower=0, upper=100, points=1024)
    >>> quantile_errors(tree, NO_NOISE, quantile=0.5, rows=10_000, density=0.01)
    (0.5, 0.0)
    """
    if not 0 < quantile < 1 or not density > 0:
        raise UsageError(
            f"quantile: got {quantile:g} at density {density:g}, expected one between 0 and 1, and a density above 0."
        )
    curve = expected_curve(summary, noise, rows=rows)
    place = min(summary.points - 1, math.ceil(quantile * summary.points) - 1)
    sampling = math.sqrt(quantile * (1 - quantile) / rows)
    privacy = math.sqrt(float(curve.share_variances(quantile)[place])) if noise.variance else 0.0
    return sampling / density, privacy / density


# --- a budget that is too small is refused before anything is spent -----------------------------------------

USELESS = 0.5
"""Half-width from noise alone at which a band says nothing."""


def known_rows(setting: Setting, expected_rows: float | None) -> float | None:
    """Return the number of rows to expect: as stated, or with all clients at their bound; None if it is not known."""
    if expected_rows is not None:
        return expected_rows
    per_client = setting.protection.rows_per_client
    if per_client is None or setting.clients == 0:
        return None
    return float(setting.clients * per_client)


def check_precision(
    summary: ValueSummary,
    setting: Setting,
    *,
    precision: float | None,
    expected_rows: float | None,
    level: float,
    share: float = 1.0,
) -> None:
    """Refuse a release of which the noise alone would make the band wider than asked for, or useless.

    Parameters
    ----------
    summary : what would be released, for this share of the budget.
    precision : the largest half-width of the simultaneous band that noise may cause; None for any that says
        something.
    expected_rows : number of rows to expect, if known.
    level : of the band.

    Guarantee: what passes with a precision has it, if there are as many rows as expected (`noise_half_width`).
    """
    query = Sum(of=summary, share=share)
    if setting.noise(query).variance == 0:
        return
    if setting.clients == 0 and setting.noise(query) != replace(setting, clients=1000).noise(query):
        return  # how much noise there is depends on the number of clients, which is not known yet
    rows = known_rows(setting, expected_rows)
    if rows is None:
        if precision is not None:
            raise UsageError(
                "precision: how wide the band will be depends on the number of rows, which is not public; give "
                "how many you expect (`expected_rows`)."
            )
        return
    budget = setting.budget
    assert budget is not None

    def half_width(epsilon: float) -> float:
        other = replace(setting, budget=replace(budget, epsilon=epsilon))
        try:
            noise = other.noise(query)
        except (UnsupportedQuery, UsageError):
            return math.inf
        return noise_half_width(summary, noise, rows=rows, level=level)

    reached, wanted = half_width(budget.epsilon), USELESS if precision is None else precision
    if reached < wanted or (precision is not None and reached == wanted):
        return
    enough = sufficient(half_width, wanted, start=budget.epsilon)
    remedy = "no epsilon would do" if enough is None else f"epsilon {enough:.3g} would do"
    expected = (
        f"less than {USELESS:g}, else the band says nothing" if precision is None else f"at most {wanted:.3g}"
    )
    what = "budget" if precision is None else "precision"
    raise UsageError(
        f"{what}: with epsilon {budget.epsilon:.3g} and {rows:,.0f} rows, noise alone makes the band ±{reached:.2g} "
        f"wide, expected {expected}; {remedy}, or ask for fewer points, or of more rows."
    )


def sufficient(half_width: Callable[[float], float], wanted: float, *, start: float) -> float | None:
    """Return an epsilon above `start` for which the half-width is as wanted, rounded up to two digits; None if none is.

    Examples
    --------
    >>> sufficient(lambda epsilon: 1 / epsilon, 0.03, start=1.0)
    34.0
    """
    low = high = start
    while half_width(high) > wanted:
        if high >= LARGEST_EPSILON:
            return None
        low, high = high, min(2 * high, LARGEST_EPSILON)
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if half_width(middle) > wanted else (low, middle)
    unit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return min(LARGEST_EPSILON, float(f"{math.ceil(high / unit * (1 - 1e-9)) * unit:.2g}"))


# --- which mechanism releases a distribution ----------------------------------------------------------------


MECHANISMS = ("tree", "path", "factorised")

S = TypeVar("S", bound=ValueSummary)

_CANDIDATES = 20
"""Number of fan-outs that are compared again where variances depend on the width of a node."""


def name_of(summary: ValueSummary, noise: Noise) -> str:
    """Return the name of the mechanism that a release was made by; ``none`` without noise."""
    if noise.variance == 0:
        return "none"
    if isinstance(summary, ValueTree):
        return "tree"
    return "path" if isinstance(summary, ValuePath) else "factorised"


def chosen(leaves: ValueTree, setting: Setting, *, mechanism: str, share: float = 1.0) -> ValueSummary:
    """Return the summary to ask for.

    Parameters
    ----------
    leaves : the grid and the classes, as counts per leaf.
    setting : what is public.
    mechanism : one of `MECHANISMS`, or ``auto``: the one with the least variance among those that the trust model
        can answer; `tree` where clients report on one level each. Only noise of a Gaussian type, for a delta above 0,
        makes `factorised` better than the others, so that it is not tried for a pure epsilon.
    share : the part of the budget.

    Without noise the answer is `leaves`: all mechanisms would give the same.
    """
    if setting.noise(Sum(of=leaves, share=share)).variance == 0:
        return leaves
    if mechanism == "path":
        return best_path(leaves, setting, share=share)
    if mechanism == "factorised":
        return leaves.like(ValueRoots)
    tree = best_tree(leaves, setting, share=share)
    if mechanism == "tree" or setting.noise(Sum(of=tree, share=share)).reporting:
        return tree
    others: list[ValueSummary] = [best_path(leaves, setting, share=share)]
    if setting.budget is not None and setting.budget.delta > 0:
        others.append(leaves.like(ValueRoots))
    return _least_noisy([tree, *others], setting, share=share) or tree


def _least_noisy(candidates: Sequence[S], setting: Setting, *, share: float) -> S | None:
    """Return the first of the candidates with the least mean variance; None if none can be answered."""
    possible = []
    for candidate in candidates:
        try:
            noise = setting.noise(Sum(of=candidate, share=share))
        except UnsupportedQuery:
            continue
        possible.append((mean_variance(candidate, noise), candidate))
    return min(possible, key=lambda one: one[0])[1] if possible else None


def best_tree(leaves: ValueTree, setting: Setting, *, share: float = 1.0) -> ValueTree:
    """Return the tree whose levels have the least mean variance.

    All fan-outs are compared for noise that is the same on all levels. Where clients report on one level each, the
    variance also depends on how wide a node is: the best ones are compared again. Levels get equal parts of the
    budget; multipliers that would give the coarser ones more have never been found to help a sum up to a point.
    """

    def noise_of(levels: int) -> Noise:
        # Noise depends on how many levels count a row, not on how wide their nodes are.
        like = replace(
            leaves,
            lower=0,
            upper=1,
            points=1 << levels,
            spacing="uniform",
            given=(),
            widths=tuple(1 << level for level in range(levels)),
            multipliers=(),
        )
        return setting.noise(Sum(of=like, share=share))

    def variance(widths: tuple[int, ...]) -> float:
        tree, levels = Tree(leaves=leaves.points, widths=widths), len(widths)
        return mean_prefix_variance(
            least_squares(tree, (1,) * levels, noise_of(levels), classes=leaves.classes)
        )

    ranked = ranked_widths(leaves.points, lambda levels: noise_of(levels).variance, keep=_CANDIDATES)
    best = min(ranked, key=variance) if noise_of(1).reporting else ranked[0]
    return replace(leaves, widths=best, multipliers=())


def best_path(leaves: ValueTree, setting: Setting, *, share: float = 1.0) -> ValuePath:
    """Return the mechanism of the paper, with the multiplier that has the least variance.

    Multipliers above 1 make noise of a Gaussian type smaller: 2^9·√N leaves half a percent to gain. Many clients need
    smaller ones, so that totals stay within 64 bits.
    """
    single = leaves.like(ValuePath)
    candidates = [single]
    if setting.budget is not None and setting.budget.delta > 0:
        multiplier = min(LARGEST_MULTIPLIER, 1 << (single.height // 2 + 9))
        while multiplier > 1:
            candidates.append(replace(single, multiplier=multiplier))
            multiplier //= 4
    return _least_noisy(candidates, setting, share=share) or single
