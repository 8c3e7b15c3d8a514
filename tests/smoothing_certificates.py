"""Smoothed curves with the proof that they are the best ones.

How far a smoothed curve is from the conditions of optimality. Nothing here knows how the solution was found: it is
written from the definition, in the natural order of the tree, with the multipliers λ of the steps w_0..w_K (from zero
to the first point, from point to point, from the last point to the top) as the only witness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedassay.tasks.distribution.smoothing import curves

Levels = tuple[np.ndarray, ...]


class Smoothed(NamedTuple):
    """A smoothed curve, the correction ν of each level, what was minimised, and how far it is from optimal."""

    curve: np.ndarray
    correction: Levels
    objective: float
    residual: float


def isotonic(curve, *, top: float) -> Smoothed:
    values = np.asarray(curve, dtype=np.float64)
    smoothed = curves.isotonic(curve, top=top)
    moves = smoothed - values
    residual = isotonic_residual(values, top, smoothed=smoothed)
    return Smoothed(smoothed, (moves,), float((moves * moves).sum()), residual)


def l2(curve, *, top: float, points=None) -> Smoothed:
    problem = curves.Problem.of(curve, top, points)
    correction, multipliers = problem.l2_solution()
    smoothed = curves.l2(curve, top=top, points=points)
    squares = sum(float((level * level).sum()) for level in correction) * problem.scale**2
    return certified(problem, correction, multipliers, smoothed, squares, l2_residual)


def l1(curve, *, top: float, points=None) -> Smoothed:
    problem = curves.Problem.of(curve, top, points)
    correction, multipliers = problem.l1_solution()
    smoothed = curves.l1(curve, top=top, points=points)
    absolute = sum(float(np.abs(level).sum()) for level in correction) * problem.scale
    return certified(problem, correction, multipliers, smoothed, absolute, l1_residual)


def certified(
    problem: curves.Problem,
    correction: Levels,
    multipliers: np.ndarray,
    smoothed: np.ndarray,
    objective: float,
    residual: Callable[..., float],
) -> Smoothed:
    raw = curves.corrected(problem.curve, correction, problem.points)
    how_far = residual(
        problem.curve,
        problem.top,
        problem.points,
        correction=correction,
        raw=raw,
        smoothed=smoothed / problem.scale,
        multipliers=multipliers,
    )
    return Smoothed(smoothed, tuple(level * problem.scale for level in correction), objective, how_far)


def steps_of(curve: np.ndarray, top: float) -> np.ndarray:
    """From zero to the first value, from value to value, and from the last value to the top."""
    return np.diff(curve, prepend=0.0, append=top)


def l2_residual(
    curve: np.ndarray,
    top: float,
    points: np.ndarray | None,
    *,
    correction: Levels,
    raw: np.ndarray,
    smoothed: np.ndarray,
    multipliers: np.ndarray,
) -> float:
    """The largest violation of the Karush-Kuhn-Tucker conditions, relative to max(top, max |F̂|).

    They are: ν = Bᵀλ (stationarity), λ ≥ 0, w ≥ 0, and min(λ, w) = 0 (complementarity), with w the steps of `raw`,
    what `corrected` makes of the curve. The distance between that and the curve that is returned counts as well.
    """
    steps = steps_of(raw, top)
    differences = curves.across(multipliers, points, len(curve))
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
    curve: np.ndarray,
    top: float,
    points: np.ndarray | None,
    *,
    correction: Levels,
    raw: np.ndarray,
    smoothed: np.ndarray,
    multipliers: np.ndarray,
) -> float:
    """The duality gap or the largest violation of the constraints, whichever is larger.

    Gap: |Σ|ν| + Σ q λ|, relative to the larger of Σ|ν| and max(top, max |F̂|); infinite if λ is not feasible for the
    dual, λ ≥ 0 and |λ_a - λ_b| ≤ 1 on all nodes, which is checked exactly. Violations: of w ≥ 0 with w the steps of
    `raw`, what `corrected` makes of the curve, and the distance between that and the curve that is returned, relative
    to max(top, max |F̂|).
    """
    if multipliers.min() < 0 or any(
        np.abs(d).max() > 1 for d in curves.across(multipliers, points, len(curve))
    ):
        return float("inf")
    size = max(top, np.abs(curve).max())
    primal = sum(float(np.abs(nu).sum()) for nu in correction)
    dual = -float((steps_of(curve if points is None else curve[points], top) * multipliers).sum())
    violation = max(-steps_of(raw, top).min(), np.abs(smoothed - raw).max())
    return float(max(abs(primal - dual) / max(primal, size), violation / size))


def isotonic_residual(curve: np.ndarray, top: float, *, smoothed: np.ndarray) -> float:
    """The largest violation of complementarity for the projection of the values themselves.

    The multiplier of step i is μ_i = μ_0 - S_i with S_i the moves of the first i values. All are ≥ 0 and
    one is zero, because the steps add up to more than zero: μ_0 = max S. Optimal if min(μ, w) = 0, with μ per value;
    relative to max(top, max |F̂|).
    """
    # In the widest floats there are: the rounding of a million sums would be larger than what is looked for.
    sums = np.cumsum(smoothed - curve, dtype=np.longdouble)
    moved = np.concatenate([[0.0], sums.astype(np.float64)]) / len(curve)
    violation = np.minimum(moved.max() - moved, steps_of(smoothed, top)).max()
    return float(violation / max(top, np.abs(curve).max()))
