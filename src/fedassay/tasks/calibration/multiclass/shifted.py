"""A temperature and shifts of the classes from one release, for whole clients: vector scaling that noise has room for.

A model can find some classes too probable for all clients together, which no temperature repairs. The mean r of p - e_y
shows it. Shifts of the logits by b change the mean log loss by r·b + b'Hb/2, to second order, with H the mean of
diag(p) - pp'. Each line of 2 diag(p(1 - p)) - (diag(p) - pp') has p_j(1 - p_j) on the diagonal and as much beside it,
so that it is positive semidefinite (Gershgorin), and b'Hb ≤ 2 Σ v_j b_j² with v the mean of p(1 - p). Along b = -αr
this bound is lowest at

    α = 1/(2Q),   Q = Σ r_j² v_j / Σ r_j²,

a step that to second order never makes the loss larger, whichever classes hold the uncertainty. Where only pairs of
classes are confused it is Newton's; where many are alike it is half of it, and gains three quarters as much. Q is a
mean over classes, in which noise averages out. The step is shrunk by the part of |r|² that noise, or a chance selection
of clients, accounts for (James and Stein, 1961, the positive part).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Part, Released, Setting, Step, Sum
from fedassay.summaries.multiclass.client_profiles import LARGEST_MOMENTS, PARTS, ClientProfiles, Profiles
from fedassay.summaries.multiclass.loss_curves import CLIENT, UNITS, LossCurves
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.curve_minimum import beyond, grid_around, grid_from, lowest_point
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.one_shot import NARROW, fit_one_shot

Floats = NDArray[np.float64]

LARGEST_SHIFT = 1.0
"""Of a logit: a factor of e in the odds of a class. More is never done for so little evidence."""

LOUDEST = 0.25
"""Noise may be as long as this part of a vector that all clients agree on. Clients with few rows, or with few classes,
agree by less than that."""

LOUDEST_CURVE = 0.05
"""Nor may the noise in each entry be more than this part of all clients: the temperature shares the norm."""

UNSURE = 0.5
"""Standard deviations of Q that are added to it."""


def fit_shifted(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Any], Fit]:
    """The map, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: shares of the budget add up to one. The map is a `Temperature`, which keeps the order of classes, unless
    shifts of the classes are longer than noise makes them; then it is softmax(s z + b). Where noise would drown shifts,
    which is public, nobody is asked for them: the whole budget goes to the temperature (`fit_one_shot`).

    Parameters
    ----------
    clients : about how many clients have rows in this part; public.
    """
    profiles = ClientProfiles(classes=classes, grid=grid_from())
    halved = math.sqrt(setting.noise(Sum(of=profiles, share=0.5, part=part)).variance)
    twice = halved <= NARROW * clients * UNITS
    share = 0.5 if twice else 1.0
    deviation = math.sqrt(setting.noise(Sum(of=profiles, share=share, part=part)).variance)
    if _drowned(deviation, classes, clients):
        fit: Fit = yield from fit_one_shot(classes, setting, clients=clients, part=part)
        return fit
    around = 0.0
    if twice:
        curve = LossCurves(classes=classes, grid=grid_from(), bound=CLIENT)
        first = yield Sum(of=curve, share=0.5, part=part)
        around = lowest_point(first.value, math.sqrt(first.noise.variance) * first.value.unit)
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
    """Whether noise of this deviation in each entry leaves too little to see."""
    if deviation > LOUDEST_CURVE * clients * UNITS:
        return True
    unit = LARGEST_MOMENTS / (UNITS * math.sqrt(PARTS[1]))
    return _squares(classes, unit * deviation / clients, clients) > (LOUDEST * LARGEST_MOMENTS) ** 2


def _squares(classes: int, deviation: float, clients: float) -> float:
    """What the squared length of the mean excess is expected to be where there is none.

    Clients differ, too: the mean of as many vectors varies by at most their squared norm, divided by their number.
    """
    return (classes - 1) * deviation**2 + LARGEST_MOMENTS**2 / clients


def shifts_of(profiles: Profiles, deviation: float, clients: float) -> Floats:
    """The shifts that released profiles speak for, with noise of this deviation in each entry; zeros if it may be all.

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
