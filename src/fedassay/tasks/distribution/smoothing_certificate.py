"""How far a smoothed curve is from the conditions of optimality.

Nothing here knows how the solution was found: it is written from the definition, in the natural order of the
tree, with the multipliers λ of the steps w_0..w_K (from zero to the first point, from point to point, from the last
point to the top) as the only witness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.tasks.distribution.dyadic import Floats, Ints


def corrected(curve: Floats, correction: tuple[Floats, ...], points: Ints | None = None) -> Floats:
    """F̂_i + Σ_l ν_{⌈i/2^l⌉,l}, at the points."""
    total = correction[-1]
    for level in reversed(correction[:-1]):
        total = np.repeat(total, 2) + level
    total = total + curve
    return total if points is None else total[points]


def steps_of(curve: Floats, top: float) -> Floats:
    """From zero to the first value, from value to value, and from the last value to the top."""
    return np.diff(curve, prepend=0.0, append=top)


def across(multipliers: NDArray[np.generic], points: Ints | None, count: int) -> tuple[Floats, ...]:
    """λ_a - λ_b over each node of each level: a and b are the steps that the node moves mass to and from."""
    if points is not None:
        multipliers = multipliers[np.searchsorted(points, np.arange(count + 1))]
    ends = [np.asarray(multipliers[:: 1 << level], dtype=np.float64) for level in range(count.bit_length())]
    return tuple(at[:-1] - at[1:] for at in ends)


def l2_residual(
    curve: Floats,
    top: float,
    points: Ints | None,
    *,
    correction: tuple[Floats, ...],
    raw: Floats,
    smoothed: Floats,
    multipliers: Floats,
) -> float:
    """The largest violation of the Karush-Kuhn-Tucker conditions, relative to max(top, max |F̂|).

    They are: ν = Bᵀλ (stationarity), λ ≥ 0, w ≥ 0, and min(λ, w) = 0 (complementarity), with w the steps of `raw`,
    what `corrected` makes of the curve. The distance between that and the curve that is returned counts as well.
    """
    steps = steps_of(raw, top)
    differences = across(multipliers, points, len(curve))
    stationarity = max(np.abs(nu - d).max() for nu, d in zip(correction, differences, strict=True))
    worst = max(
        stationarity,
        -multipliers.min(),
        -steps.min(),
        np.minimum(multipliers, steps).max(),
        np.abs(smoothed - raw).max(),
    )
    return float(worst / max(top, np.abs(curve).max()))


def l1_residual(
    curve: Floats,
    top: float,
    points: Ints | None,
    *,
    correction: tuple[Floats, ...],
    raw: Floats,
    smoothed: Floats,
    multipliers: Ints,
) -> float:
    """The duality gap or the largest violation of the constraints, whichever is larger.

    Gap: |Σ|ν| + Σ q λ|, relative to the larger of Σ|ν| and max(top, max |F̂|); infinite if λ is not feasible for the
    dual, λ ≥ 0 and |λ_a - λ_b| ≤ 1 on all nodes, which is checked exactly. Violations: of w ≥ 0 with w the steps of
    `raw`, what `corrected` makes of the curve, and the distance between that and the curve that is returned, relative
    to max(top, max |F̂|).
    """
    if multipliers.min() < 0 or any(np.abs(d).max() > 1 for d in across(multipliers, points, len(curve))):
        return float("inf")
    size = max(top, np.abs(curve).max())
    primal = sum(float(np.abs(nu).sum()) for nu in correction)
    dual = -float((steps_of(curve if points is None else curve[points], top) * multipliers).sum())
    violation = max(-steps_of(raw, top).min(), np.abs(smoothed - raw).max())
    return float(max(abs(primal - dual) / max(primal, size), violation / size))


def isotonic_residual(curve: Floats, top: float, weights: Floats, *, smoothed: Floats) -> float:
    """The largest violation of complementarity for the weighted projection of the values themselves.

    The multiplier of step i is μ_i = μ_0 - S_i with S_i the weighted moves of the first i values. All are ≥ 0 and
    one is zero, because the steps add up to more than zero: μ_0 = max S. Optimal if min(μ, w) = 0, with μ per total
    weight; relative to max(top, max |F̂|).
    """
    # In the widest floats there are: the rounding of a million sums would be larger than what is looked for.
    sums = np.cumsum(weights * (smoothed - curve), dtype=np.longdouble)
    moved = np.concatenate([[0.0], sums.astype(np.float64)]) / weights.sum()
    violation = np.minimum(moved.max() - moved, steps_of(smoothed, top)).max()
    return float(violation / max(top, np.abs(curve).max()))
