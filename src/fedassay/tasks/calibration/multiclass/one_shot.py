"""The temperature from one release: curves of the log loss on a public grid, so that a budget is not split over rounds.

Without noise the pooled temperature follows to many digits from derivatives on the grid. Under noise it is what the
released curve says beyond the noise (`curve_minimum`).
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

from fedassay.protocol import LARGEST_ROWS_PER_CLIENT, TOTAL_BITS, Part, Released, Setting, Step, Sum, Unit
from fedassay.summaries.multiclass.loss_curves import (
    CLIENT,
    FEWEST_BITS,
    MOST_BITS,
    ROW,
    Curves,
    LossCurves,
)
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.curve_minimum import (
    BEYOND,
    beyond,
    grid_around,
    grid_from,
    lowest_point,
)
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit

Floats = NDArray[np.float64]

EXACT_GRID = tuple(2.0 ** (k / 2) for k in range(-10, 11))
"""Without noise: inverse temperatures from 1/32 to 32, two for each doubling."""

NARROW = 0.02
"""If noise is below this, relative to all clients, for half the budget, a second release looks closer."""

FEW_ROWS = 10
"""Clients of up to so many rows speak row by row."""


def fit_one_shot(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Curves], Fit]:
    """The temperature, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: without noise it is the inverse temperature that `fit_exact` finds, to about 1e-8 (within 1/32 and 32;
    if it is beyond, the nearer end, and a reason). Under noise every client is asked once, or twice where the budget is
    large enough to look closer; shares of the budget add up to one. An end of the grid comes with a reason, too. Where
    noise is all there is, the map is the identity, or nearly so.

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
    t = lowest_point(released.value, _deviation(released))
    if twice:
        released = yield Sum(of=replace(private, grid=grid_around(t)), share=0.5, part=part)
        t = lowest_point(released.value, _deviation(released), around=t)
    return Fit(
        map=Temperature(inverse_temperature=math.exp(t), classes=classes),
        clients=released.clients,
        sums=2 if twice else 1,
        reason=beyond(released.value, t),
        noise=_described(released, clients if private.bound == CLIENT else None),
    )


def _bounded(classes: int, setting: Setting) -> LossCurves:
    """Directions of clients, where these are protected and have rows enough for one, else curves of rows.

    These are as fine as totals over so many clients allow.
    """
    grid = grid_from()
    if has_directions(setting):
        return LossCurves(classes=classes, grid=grid, bound=CLIENT)
    rows = setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT
    room = TOTAL_BITS - (rows * setting.clients).bit_length()
    bits = max(FEWEST_BITS, min(MOST_BITS, room))
    return LossCurves(classes=classes, grid=grid, bound=ROW, bits=bits, most_rows=rows)


def has_directions(setting: Setting) -> bool:
    """Whether clients are protected as a whole and may have more than a few rows.

    One row alone would always say "surer" or "less sure", with full voice: the direction of a client is worth something
    only if its rows have been averaged. Where clients have few rows, bounding each of them costs no more.
    """
    bound = setting.protection.rows_per_client
    return setting.protection.unit is Unit.CLIENT and bound is not None and bound > FEW_ROWS


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
        reason = BEYOND
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


def _deviation(released: Released[Curves]) -> float:
    """Of the noise in each point of the curve."""
    return math.sqrt(released.noise.variance) * released.value.unit


def _described(released: Released[Curves], clients: float | None) -> dict[str, Any]:
    """The noise in each point, as a part of all clients agreeing, or in rows of the largest norm."""
    deviation = _deviation(released)
    return {
        "law": released.noise.law,
        **({"rows": deviation} if clients is None else {"relative": deviation / clients}),
    }
