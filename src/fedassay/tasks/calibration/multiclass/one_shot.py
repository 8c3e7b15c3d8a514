"""Temperature from one release: curves of the log loss on a public grid, so that a budget is not split over rounds.

Without noise the pooled temperature follows to many digits from derivatives on the grid. Under noise it is
estimated from the released curve beyond the noise (`curve_minimum`).

Minimum of the mean curve of the log loss, from a noisy sum of curves: a cubic with a prior.

The prior states the usual shape of the curves of networks, and that the model is best left as it is: where noise
exceeds the signal of the rows, nothing changes.

Temperature and shifts of the classes from one release, for whole clients: vector scaling that tolerates noise.

A model can find some classes too probable for all clients together, which no temperature repairs. The mean r of p - e_y
shows it. Shifts of the logits by b change the mean log loss by r·b + b'Hb/2, to second order, with H the mean of
diag(p) - pp'. Each line of 2 diag(p(1 - p)) - (diag(p) - pp') has p_j(1 - p_j) on the diagonal and as much off it,
so that it is positive semidefinite (Gershgorin), and b'Hb ≤ 2 Σ v_j b_j² with v the mean of p(1 - p). Along b = -αr
this bound is lowest at

    α = 1/(2Q),   Q = Σ r_j² v_j / Σ r_j²,

a step that to second order never makes the loss larger, for any distribution of the uncertainty over classes. Where
only pairs of classes are confused it is Newton's; where many are alike it is half of it, and gains three quarters as
much. Q is a mean over classes, in which noise averages out. The step is shrunk by the part of |r|² that noise, or a
chance selection of clients, accounts for (James and Stein, 1961, the positive part).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq

from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    TOTAL_BITS,
    Part,
    Released,
    Setting,
    Step,
    Sum,
    Unit,
)
from fedassay.summaries.multiclass.loss_curves import (
    CLIENT,
    FEWEST_BITS,
    LARGEST_MOMENTS,
    MOST_BITS,
    PARTS,
    ROW,
    UNITS,
    ClientProfiles,
    Curves,
    LossCurves,
    Profiles,
)
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit

# --- minimum of the mean curve of the log loss --------------------------------------------------------------


STEP = math.log(2) / 4
POINTS = 9
LOWEST = -13 * math.log(2) / 8
"""Lowest of nine points, log s from -1.13 to 0.26. The grid is narrow, because noise is for the whole curve: models
that are calibrated after the fact are mostly over-confident, with s between 0.4 and 1."""

PRIOR_MEAN = np.array([0.0, 2.0, -1.0])
PRIOR_SD = np.array([1.5, 0.5, 0.5])
"""Prior deviations of the coefficients of t, t², t³ in the mean curve, in units of its norm per point.

The mean is lowest at t = 0.
"""

MISFIT = 0.03
"""Misfit of a cubic to a mean curve, as a standard deviation per point."""

STANDS_OUT = 1.0
"""Smallest gain of a temperature, in standard deviations of the gain; else none is applied."""


_ROUNDING = 1e-9

BEYOND = "the best temperature is beyond the grid"
"""Reason of a fit that ends at an end of its grid."""


def grid_from(lowest: float = LOWEST) -> tuple[float, ...]:
    """Return the inverse temperatures of a curve under noise, rising from this log s."""
    return tuple(math.exp(lowest + STEP * place) for place in range(POINTS))


def grid_around(t: float) -> tuple[float, ...]:
    """Return the inverse temperatures of a curve under noise, with this log s in the middle."""
    return grid_from(t - POINTS // 2 * STEP)


def lowest_point(curves: Curves, deviation: float, *, around: float = 0.0) -> float:
    """Find log s where the mean curve is lowest, within the grid; `around` where noise hides the curve.

    Parameters
    ----------
    deviation : standard deviation of the noise in each of `curves.losses`.
    around : log s at which the curve is expected to be lowest.

    The length of the curve is taken from the curve: clients that have few rows, or disagree, add up to less than their
    number. As noise makes it longer, only the part of its squared length that noise does not explain is used (the
    positive part, as in James and Stein, 1961).
    """
    points = len(curves.grid)
    heights = curves.losses - curves.losses.mean()
    size = float(np.linalg.norm(heights))
    if size <= math.sqrt(points - 1) * deviation:
        return around
    believed = 1 - (points - 1) * (deviation / size) ** 2
    scale = math.sqrt(points) / size
    t = np.log(curves.grid) - around
    b, spread = _cubic(t, scale * heights, scale * deviation)
    b = PRIOR_MEAN + believed * (b - PRIOR_MEAN)
    fine = np.linspace(t[0], t[-1], 801)
    best = float(fine[int(np.argmin(b[0] * fine + b[1] * fine**2 + b[2] * fine**3))])
    powers = np.array([best, best**2, best**3])
    gain, unsure = -float(b @ powers), math.sqrt(max(0.0, float(powers @ spread @ powers)))
    return around + (best if gain > STANDS_OUT * unsure else 0.0)


def beyond(curves: Curves, t: float) -> str:
    """Return `BEYOND` if this lowest point is an end of the grid, up to rounding; else empty."""
    ends = np.log(curves.grid[[0, -1]])
    return BEYOND if float(np.abs(ends - t).min()) < _ROUNDING else ""


def _cubic(t: Floats, heights: Floats, deviation: float) -> tuple[Floats, Floats]:
    """Return the posterior mean and covariance of the coefficients; the level of a curve does not count."""
    powers = np.stack([t, t**2, t**3], axis=1)
    design, prior = powers - powers.mean(axis=0), np.diag(PRIOR_SD**2)
    v = design @ prior @ design.T + (deviation**2 + MISFIT**2) * np.eye(len(t))
    gain = np.linalg.solve(v, design @ prior).T
    return PRIOR_MEAN + gain @ (heights - design @ PRIOR_MEAN), prior - gain @ design @ prior


# --- the temperature from one release -----------------------------------------------------------------------

EXACT_GRID = tuple(2.0 ** (k / 2) for k in range(-10, 11))
"""Inverse temperatures without noise: from 1/32 to 32, two for each doubling."""

NARROW = 0.02
"""Noise for half the budget, relative to all clients, below which a second release refines the first."""

FEW_ROWS = 10
"""Number of rows up to which a client contributes row by row."""


def fit_one_shot(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Curves], Fit]:
    """Fit the temperature, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: without noise it is the inverse temperature that `fit_exact` finds, to about 1e-8 (within 1/32 and 32;
    if it is beyond, the nearer end, and a reason). Under noise every client is asked once, or twice where the budget is
    large enough to refine; shares of the budget add up to one. An end of the grid comes with a reason, too. Where
    noise dominates, the map is the identity, or nearly so.

    Parameters
    ----------
    clients : about how many clients have rows in this part; public.
    """
    exact = LossCurves(classes=classes, grid=EXACT_GRID)
    private = _bounded(classes, setting)
    if setting.noise(Sum(of=private, part=part)).variance == 0:
        released = yield Sum(of=exact, part=part)
        return exact_fit(released, classes)
    halved = _planned(setting, Sum(of=private, share=0.5, part=part)) / private.units
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
    """Return directions of clients, where these are protected and have enough rows for one, else curves of rows.

    Curves of rows are as fine as totals over this number of clients allow.
    """
    grid = grid_from()
    if has_directions(setting):
        return LossCurves(classes=classes, grid=grid, bound=CLIENT)
    rows = setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT
    room = TOTAL_BITS - (rows * setting.clients).bit_length()
    bits = max(FEWEST_BITS, min(MOST_BITS, room))
    return LossCurves(classes=classes, grid=grid, bound=ROW, bits=bits, most_rows=rows)


def has_directions(setting: Setting) -> bool:
    """Return whether clients are protected as a whole and may have more than a few rows.

    One row alone would always give "surer" or "less sure" with full weight: the direction of a client is informative
    only if its rows have been averaged. Where clients have few rows, bounding each of them costs no more.
    """
    bound = setting.protection.rows_per_client
    return setting.protection.unit is Unit.CLIENT and bound is not None and bound > FEW_ROWS


def exact_fit(released: Released[Curves], classes: int) -> Fit:
    """Compute the pooled temperature from exact curves."""
    curves = released.value
    assert curves.slopes is not None
    assert curves.second is not None
    if not curves.rows:
        identity, reason = Temperature(inverse_temperature=1.0, classes=classes), "there are no rows"
        return Fit(map=identity, rows=0, clients=released.clients, sums=1, reason=reason)
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
    """Find the minimum of a function whose slope rises through zero between the points `place` - 1 and `place`.

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


def _planned(setting: Setting, query: Sum[Any]) -> float:
    """Return the standard deviation of the noise that a query would get."""
    return math.sqrt(setting.noise(query).variance)


def _deviation(released: Released[Curves]) -> float:
    """Return the standard deviation of the noise in each point of the curve."""
    return math.sqrt(released.noise.variance) * released.value.unit


def _described(released: Released[Curves], clients: float | None) -> dict[str, Any]:
    """Describe the noise in each point, relative to all clients agreeing, or in rows of the largest norm."""
    deviation = _deviation(released)
    return {
        "law": released.noise.law,
        **({"rows": deviation} if clients is None else {"relative": deviation / clients}),
    }


# --- a temperature and shifts of the classes from one release -----------------------------------------------

LARGEST_SHIFT = 1.0
"""Largest shift of a logit: a factor of e in the odds of a class. The evidence never justifies more."""

LOUDEST = 0.25
"""Largest noise, relative to a vector that all clients agree on. Clients with few rows, or with few classes, agree by
less than that."""

LOUDEST_CURVE = 0.05
"""Largest noise in each entry, relative to all clients: the temperature shares the norm."""

UNSURE = 0.5
"""Number of standard deviations of Q that are added to it."""


def fit_shifted(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Any], Fit]:
    """Fit the map, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: shares of the budget add up to one. The map is a `Temperature`, which keeps the order of classes, unless
    shifts of the classes are longer than noise makes them; then it is softmax(s z + b). Where noise would hide shifts,
    which is public, no client is asked for them: the whole budget goes to the temperature (`fit_one_shot`).

    Parameters
    ----------
    clients : about how many clients have rows in this part; public.
    """
    profiles = ClientProfiles(classes=classes, grid=grid_from())
    twice = _planned(setting, Sum(of=profiles, share=0.5, part=part)) <= NARROW * clients * UNITS
    share = 0.5 if twice else 1.0
    if _drowned(_planned(setting, Sum(of=profiles, share=share, part=part)), classes, clients):
        fit: Fit = yield from fit_one_shot(classes, setting, clients=clients, part=part)
        return fit
    around = 0.0
    if twice:
        curve = LossCurves(classes=classes, grid=grid_from(), bound=CLIENT)
        first = yield Sum(of=curve, share=0.5, part=part)
        around = lowest_point(first.value, _deviation(first))
        profiles = ClientProfiles(classes=classes, grid=grid_around(around), at=math.exp(around))
    released = yield Sum(of=profiles, share=share, part=part)
    deviation = math.sqrt(released.noise.variance)
    curves = released.value.curves
    t = lowest_point(curves, deviation * released.value.units[0], around=around)
    s = math.exp(t)
    shifts = shifts_of(released.value, deviation, clients)
    shifted = VectorScaling(slopes=(s,) * classes, intercepts=tuple(shifts.tolist()))
    return Fit(
        map=shifted if shifts.any() else Temperature(inverse_temperature=s, classes=classes),
        clients=released.clients,
        sums=2 if twice else 1,
        reason=beyond(curves, t),
        noise={"law": released.noise.law, "relative": deviation / UNITS / clients},
    )


def _drowned(deviation: float, classes: int, clients: float) -> bool:
    """Return whether noise of this deviation in each entry hides too much."""
    if deviation > LOUDEST_CURVE * clients * UNITS:
        return True
    unit = LARGEST_MOMENTS / (UNITS * math.sqrt(PARTS[1]))
    return _squares(classes, unit * deviation / clients, clients) > (LOUDEST * LARGEST_MOMENTS) ** 2


def _squares(classes: int, deviation: float, clients: float) -> float:
    """Return the expected squared length of the mean excess where there is no excess.

    Clients differ, too: the mean of that many vectors varies by at most their squared norm, divided by their number.
    """
    return (classes - 1) * deviation**2 + LARGEST_MOMENTS**2 / clients


def shifts_of(profiles: Profiles, deviation: float, clients: float) -> Floats:
    """Estimate shifts from released profiles, with noise of this deviation in each entry; zeros if noise explains all.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.loss_curves import Curves
    >>> seen = Profiles(curves=Curves(grid=np.ones(1), losses=np.zeros(1)), excess=np.array([2.0, -1.0, -1.0]),
    ...     spread=np.array([10.0, 10.0, 10.0]), units=(1.0, 1.0, 1.0))
    >>> shifts_of(seen, 2.0, 100.0), shifts_of(seen, 0.01, 100.0).round(3)
    (array([0., 0., 0.]), array([-0.096,  0.048,  0.048]))
    """
    classes = len(profiles.excess)
    excess = (profiles.excess - profiles.excess.mean()) / clients
    squares = float(excess @ excess)
    noise = _squares(classes, deviation * profiles.units[1] / clients, clients)
    if not squares > noise:
        return np.zeros(classes)
    weights = excess**2 / squares
    unsure = deviation * profiles.units[2] / clients * float(np.linalg.norm(weights))
    curvature = max(0.0, float(weights @ profiles.spread) / clients) + UNSURE * unsure
    direction = -(1 - noise / squares) * excess
    longest = float(np.abs(direction).max())
    # Written so that no curvature, which is possible without noise, is as little.
    return np.asarray(direction / max(2 * curvature, longest / LARGEST_SHIFT))
