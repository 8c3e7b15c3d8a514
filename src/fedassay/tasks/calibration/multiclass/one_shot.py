"""The temperature from one release: curves of the log loss on a public grid, so that a budget is not split over rounds.

Without noise the pooled temperature follows to many digits from derivatives on the grid. Under noise a cubic is fitted
to the released curve, with a prior that says "leave the model as it is": where noise says more than rows, nothing
happens.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq

from fedassay.protocol import LARGEST_ROWS_PER_CLIENT, Part, Released, Setting, Step, Sum, Unit
from fedassay.summaries.multiclass.loss_curves import (
    CLIENT,
    FEWEST_BITS,
    MOST_BITS,
    ROW,
    Curves,
    LossCurves,
)
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit

Floats = NDArray[np.float64]

EXACT_GRID = tuple(2.0 ** (k / 2) for k in range(-10, 11))
"""Without noise: inverse temperatures from 1/32 to 32, two for each doubling."""

_STEP = math.log(2) / 4
_POINTS = 9
_LOWEST = -13 * math.log(2) / 8
"""Under noise: nine points, log s from -1.13 to 0.26. Narrow, because noise is for the whole curve: models that are
calibrated after the fact are mostly too sure of themselves, with s between 0.4 and 1."""

_PRIOR_MEAN = np.array([0.0, 2.0, -1.0])
_PRIOR_SD = np.array([1.5, 0.5, 0.5])
"""Of the coefficients of t, t², t³ in the mean curve of a client, in units of its norm per point: how networks' curves
look. The mean is lowest at t = 0, where the model is left alone."""

_MISFIT = 0.03
"""What a cubic does not describe of a mean curve, as a standard deviation per point."""

NARROW = 0.05
"""If noise is below this, relative to all clients, for half the budget, a second release looks closer."""

_ROOM = 61
"""Bits of a total of rows that does not wrap, noise included."""


def fit_one_shot(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Curves], Fit]:
    """The temperature, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: without noise it is the inverse temperature that `fit_exact` finds, to about 1e-8 (within 1/32 and 32;
    if it is beyond, the nearer end, and a reason). Under noise every client is asked once, or twice where the budget is
    large enough to look closer; shares of the budget add up to one. Where noise is all there is, the map is the
    identity, or nearly so.

    Parameters
    ----------
    clients : about how many clients have rows in this part; public.
    """
    exact = LossCurves(classes=classes, grid=EXACT_GRID)
    private = _bounded(classes, setting)
    if setting.noise(Sum(of=private, part=part)).variance == 0:
        released = yield Sum(of=exact, part=part)
        return exact_fit(released, classes)
    halved = math.sqrt(setting.noise(Sum(of=private, share=0.5, part=part)).variance) / private.units
    twice = private.bound == CLIENT and halved <= NARROW * clients
    released = yield Sum(of=private, share=0.5 if twice else 1.0, part=part)
    size = clients if private.bound == CLIENT else None
    t = _lowest(released, size)
    if twice:
        closer = replace(private, grid=_grid(t - _POINTS // 2 * _STEP))
        released = yield Sum(of=closer, share=0.5, part=part)
        t = _lowest(released, size, around=t)
    return Fit(
        map=Temperature(inverse_temperature=math.exp(t), classes=classes),
        clients=released.clients,
        sums=2 if twice else 1,
        noise=_described(released, size),
    )


def _bounded(classes: int, setting: Setting) -> LossCurves:
    """Curves of clients, where these are protected, else of rows: as fine as totals over so many clients allow."""
    grid = _grid(_LOWEST)
    if setting.protection.unit is Unit.CLIENT:
        return LossCurves(classes=classes, grid=grid, bound=CLIENT)
    rows = setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT
    room = _ROOM - (rows * setting.clients).bit_length()
    bits = max(FEWEST_BITS, min(MOST_BITS, room))
    return LossCurves(classes=classes, grid=grid, bound=ROW, bits=bits, most_rows=rows)


def exact_fit(released: Released[Curves], classes: int) -> Fit:
    """The pooled temperature, from exact curves."""
    curves = released.value
    assert curves.slopes is not None
    assert curves.second is not None
    if not curves.rows:
        return Fit(
            map=Temperature(inverse_temperature=1.0, classes=classes),
            rows=0,
            clients=released.clients,
            sums=1,
            reason="there are no rows",
        )
    s, n = curves.grid, curves.rows
    # With the penalty of `fit_exact`: rows that say nothing about the temperature leave it where it is.
    known = np.stack(
        [
            curves.losses / n + RIDGE / 2 * (s - 1) ** 2,
            curves.slopes / n + RIDGE * s * (s - 1),
            curves.second / n + RIDGE * s * (2 * s - 1),
        ],
        axis=1,
    )
    rising, reason = np.flatnonzero(known[:, 1] > 0), ""
    if not rising.size or not rising[0]:
        found = float(np.log(s[0 if rising.size else -1]))
        reason = "the best temperature is beyond the grid"
    else:
        found = _bottom(np.log(s), known, int(rising[0]))
    return Fit(
        map=Temperature(inverse_temperature=math.exp(found), classes=classes),
        rows=curves.rows,
        clients=released.clients,
        sums=1,
        reason=reason,
    )


def _bottom(t: Floats, known: Floats, place: int) -> float:
    """Where a function is lowest whose slope rises through zero between the points `place` - 1 and `place`.

    `known` holds, for each point, the value and the first two derivatives. By log s the loss bends as slowly for large
    logits as for small ones, so that one polynomial through all that is known at four points around is right to nine
    digits.
    """
    near = slice(max(0, place - 2), place + 2)
    start = t[place - 1]
    values = known[near] - np.array([known[place - 1, 0], 0.0, 0.0])
    polynomial = KroghInterpolator(np.repeat(t[near] - start, 3), values.reshape(-1))
    width, ends = float(t[place] - start), (known[place - 1, 1], known[place, 1])

    def slope(at: float) -> float:
        # At the ends it is known; rounding must not change its sign there.
        return float(ends[int(at > 0)] if at in (0.0, width) else polynomial.derivative(at))

    return float(start + brentq(slope, 0.0, width, xtol=1e-14))


def _grid(lowest: float) -> tuple[float, ...]:
    return tuple(math.exp(lowest + _STEP * place) for place in range(_POINTS))


def _lowest(released: Released[Curves], clients: float | None, *, around: float = 0.0) -> float:
    """Log s where the mean curve is lowest, by a cubic with a prior; within the grid.

    The prior expects the lowest point at `around`. Without a number of clients, where rows were added up, the curve
    itself says how long it is; as noise makes it longer, it is believed only by the part of its squared length that
    noise does not explain (the positive part, as in James and Stein, 1961).
    """
    curves, points = released.value, len(released.value.grid)
    deviation, believed = math.sqrt(released.noise.variance) * curves.unit, 1.0
    heights = curves.losses - curves.losses.mean()
    if clients is None:
        clients = float(np.linalg.norm(heights))
        if clients <= math.sqrt(points - 1) * deviation:
            return around
        believed = 1 - (points - 1) * (deviation / clients) ** 2
    scale = math.sqrt(points) / clients
    t = np.log(curves.grid) - around
    powers = np.stack([t, t**2, t**3], axis=1)
    design = powers - powers.mean(axis=0)  # as the curves: only the shape counts
    spread = np.diag(_PRIOR_SD**2)
    v = design @ spread @ design.T + ((scale * deviation) ** 2 + _MISFIT**2) * np.eye(points)
    more = spread @ design.T @ np.linalg.solve(v, scale * heights - design @ _PRIOR_MEAN)
    b = _PRIOR_MEAN + believed * more
    fine = np.linspace(t[0], t[-1], 801)
    return around + float(fine[int(np.argmin(b[0] * fine + b[1] * fine**2 + b[2] * fine**3))])


def _described(released: Released[Curves], clients: float | None) -> dict[str, Any]:
    """The noise in each point, as a part of all clients agreeing, or in rows of the largest norm."""
    deviation = math.sqrt(released.noise.variance) * released.value.unit
    return {
        "law": released.noise.law,
        **({"rows": deviation} if clients is None else {"relative": deviation / clients}),
    }
