"""Whether rounds have arrived at the optimum: before that, no interval and no p-value says anything true.

The mean of the iterates and the one-step estimate (`path`) have the same limit and the same first-order error. Where
they differ by more than their standard errors, at least one of them is still on its way. What was measured, coverage of
95 % intervals with and without these rules, is in docs/explanation/inference.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.tasks.inference.laws import Law, Normal
from fedassay.tasks.inference.path import Path

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Of the intervals by which the errors of laws are compared."""

MEAN = 1.0
"""In standard errors: a mean of iterates further than this from the one-step estimate has no intervals."""

UNDER_NOISE = 2.0
"""The same for the one-step estimate of rounds under noise: there the mean of few iterates is itself uncertain."""

ON_THE_WAY = 0.5
"""In standard errors (`Path.unsettled`): a one-step estimate that its path may move further has no intervals."""

_WITHHELD = "standard errors, intervals and p-values are withheld"

HIDDEN = (
    "noise hides the curvature of the loss in some direction, and random scaling cannot tell how far rounds have to "
    f"go, so that {_WITHHELD}; use more clients or a larger epsilon, or take the method round-plug-in"
)
"""Why random scaling gets no intervals where noise hides the curvature."""


def distance(one: Floats, other: Floats, *covariances: Floats) -> Floats:
    """By how many standard errors two estimates differ, coefficient by coefficient; the smaller errors count.

    Arrays may have leading axes, as those of a `Path`.

    Examples
    --------
    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 5.0]), np.diag([1.0, 4.0]), np.diag([1.0, 9.0]))
    array([0. , 1.5])
    """
    smallest = np.min([np.diagonal(each, axis1=-2, axis2=-1) for each in covariances], axis=0)
    errors, apart = np.sqrt(np.maximum(0.0, smallest)), np.abs(one - other)
    far = np.divide(apart, errors, out=np.where(apart > 0, math.inf, 0.0), where=errors > 0)
    return np.where(np.isfinite(apart), far, math.inf)


def from_mean(mean: Floats, covariance: Floats, law: Law, path: Path, *, quadratic: bool) -> Floats:
    """The distance of the mean of the iterates, whose intervals follow this law, from the one-step estimate.

    Errors of random scaling are not standard errors: what counts is half of an interval, in those of a normal law.
    """
    errors = covariance * (law.critical(LEVEL) / Normal().critical(LEVEL)) ** 2
    return distance(mean, path.one_step(quadratic=quadratic), errors, path.sandwich(path.spread))


def of_mean(
    mean: Floats, covariance: Floats, law: Law, path: Path, names: Sequence[str], *, quadratic: bool = False
) -> str:
    """Why the mean of the iterates gets no intervals; empty if it has arrived."""
    apart = from_mean(mean, covariance, law, path, quadratic=quadratic)
    return _apart(apart, names, most=MEAN, fix="ask for more rounds, or take the method round-plug-in")


def of_one_step(path: Path) -> str:
    """Why the one-step estimate gets no intervals; empty if it has arrived, as it always has for a parabola."""
    moved = float(path.unsettled)
    if moved <= ON_THE_WAY:
        return ""
    far = f"by {moved:.2g} standard errors" if math.isfinite(moved) else "by more than can be told"
    return (
        f"the rounds have not arrived (the estimate counts some that may move it {far}, as they were far from the "
        f"optimum), so that {_WITHHELD}; ask for more rounds, or for more rows in each, or take the method newton"
    )


def under_noise(path: Path, names: Sequence[str]) -> str:
    """Why the one-step estimate of rounds under noise gets no intervals; empty if they have arrived."""
    step = path.one_step(quadratic=False)
    apart = distance(path.mean, step, path.sandwich(path.spread))
    fix = "ask for more rounds, or give scales with which coefficients are smaller"
    return _apart(apart, names, most=UNDER_NOISE, fix=fix)


def _apart(apart: Floats, names: Sequence[str], *, most: float, fix: str) -> str:
    place = int(apart.argmax())
    if apart[place] <= most:
        return ""
    many = (
        f"by {apart[place]:.2g} standard errors"
        if math.isfinite(apart[place])
        else "by more than can be told"
    )
    return (
        f"the rounds have not arrived (the mean of the iterates and the one-step estimate differ {many} in "
        f"{names[place]!r}), so that {_WITHHELD}; {fix}"
    )
