"""A temperature and shifts of the classes from one release, for whole clients: vector scaling that noise has room for.

A model can find some classes too probable for all clients together, which no temperature repairs. The mean of p - e_y
shows it, and it is short for every client of a model that is mostly right: it can be clipped to a small norm, so that
little noise covers it. A Newton step turns it into shifts of the logits,

    b_j = -(excess of class j)·c/h,   h = the mean of 1 - Σ p²,

which is right where all classes are about as uncertain; where few classes are, it is too long by up to c. It is shrunk
by the part of what is seen that noise, or a chance selection of clients, accounts for (James and Stein, 1961),
and left out where that could be all of it.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.protocol import Part, Released, Setting, Step, Sum
from fedassay.summaries.multiclass.client_profiles import LARGEST_EXCESS, ClientProfiles, Profiles
from fedassay.summaries.multiclass.loss_curves import CLIENT, UNITS, LossCurves
from fedassay.summaries.multiclass.scaling_maps import Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.curve_minimum import grid_around, grid_from, lowest_point
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.one_shot import NARROW

Floats = NDArray[np.float64]

STANDS_OUT = 2.0
"""Shifts count if their sum of squares is above what noise has by so many standard deviations of it."""

LARGEST_SHIFT = 1.0
"""Of a logit: a factor of e in the odds of a class. More is never done for so little evidence."""

LEAST_ROOT = 0.35
"""√h is taken to be at least this: surer models need longer steps, which would make noise longer too."""


def fit_shifted(
    classes: int, setting: Setting, *, clients: float, part: Part = Part.FIT
) -> Generator[Step, Released[Any], Fit]:
    """The map, from one release, or from two where the budget is large. Tasks `yield from` it.

    Guarantee: shares of the budget add up to one. The map is a `Temperature`, which keeps the order of classes, unless
    shifts of the classes stand out from the noise; then it is softmax(s z + b).

    Parameters
    ----------
    clients : about how many clients have rows in this part; public.
    """
    profiles = ClientProfiles(classes=classes, grid=grid_from())
    halved = math.sqrt(setting.noise(Sum(of=profiles, share=0.5, part=part)).variance) / UNITS
    twice = halved <= NARROW * clients
    first = yield Sum(of=profiles, share=0.5 if twice else 1.0, part=part)
    deviation = math.sqrt(first.noise.variance)
    t = lowest_point(first.value.curves, deviation * first.value.units[0])
    if twice:
        closer = LossCurves(classes=classes, grid=grid_around(t), bound=CLIENT)
        second = yield Sum(of=closer, share=0.5, part=part)
        noise = math.sqrt(second.noise.variance) * second.value.unit
        t = lowest_point(second.value, noise, around=t)
    s, shifts = math.exp(t), shifts_of(first.value, deviation, clients)
    shifted = VectorScaling(slopes=(s,) * classes, intercepts=tuple(shifts.tolist()))
    return Fit(
        map=shifted if shifts.any() else Temperature(inverse_temperature=s, classes=classes),
        clients=first.clients,
        sums=2 if twice else 1,
        noise={"law": first.noise.law, "relative": deviation / UNITS / clients},
    )


def shifts_of(profiles: Profiles, deviation: float, clients: float) -> Floats:
    """The shifts that released profiles speak for, with noise of this deviation in each entry; zeros if it may be all.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.loss_curves import Curves
    >>> seen = Profiles(curves=Curves(grid=np.ones(1), losses=np.zeros(1)), excess=np.array([2.0, -1.0, -1.0]),
    ...     uncertainty=50.0, units=(1.0, 1.0, 1.0))
    >>> shifts_of(seen, 1.0, 100.0), shifts_of(seen, 0.01, 100.0).round(3)
    (array([0., 0., 0.]), array([-0.23 ,  0.115,  0.115]))
    """
    classes = len(profiles.excess)
    excess = (profiles.excess - profiles.excess.mean()) / clients
    # Clients differ, too: the mean of as many vectors varies by at most their squared norm, divided by their number.
    noise = (classes - 1) * (deviation * profiles.units[1] / clients) ** 2 + LARGEST_EXCESS**2 / clients
    squares = float(excess @ excess)
    # No mean of clipped vectors is longer than the clip: where noise is nearly as long, what is seen is noise.
    drowned = noise > (LARGEST_EXCESS / 2) ** 2
    if drowned or not squares > noise * (1 + STANDS_OUT * math.sqrt(2 / (classes - 1))):
        return np.zeros(classes)
    excess = excess * min(1.0, LARGEST_EXCESS / math.sqrt(squares))
    root = max(LEAST_ROOT, min(1.0, profiles.uncertainty / clients))
    shifts = -(1 - noise / squares) * excess * classes / root**2
    return np.asarray(np.clip(shifts, -LARGEST_SHIFT, LARGEST_SHIFT))
