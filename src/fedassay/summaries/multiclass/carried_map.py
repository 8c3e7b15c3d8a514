"""A map as two fields of a summary, its kind and its numbers: so a question says what rows are to be seen through."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedassay.errors import UsageError
from fedassay.summaries.multiclass.logit_map import LogitMap, numbers
from fedassay.summaries.multiclass.maps import LOGIT_MAPS


def carried_theta(kind: str, theta: tuple[float, ...], classes: int) -> tuple[float, ...]:
    """The numbers as floats, if they make a map of this kind; both are empty for the model as it is."""
    if not kind and not theta:
        return ()
    if not isinstance(kind, str) or kind not in LOGIT_MAPS:
        raise UsageError(f"kind: got {kind!r}, expected one of {', '.join(LOGIT_MAPS)}.")
    checked = numbers("theta", theta)
    carried_map(kind, checked, classes)
    return checked


@lru_cache(maxsize=8)
def carried_map(kind: str, theta: tuple[float, ...], classes: int) -> LogitMap | None:
    """The map with these fields, None for the model as it is.

    Examples
    --------
    >>> carried_map("temperature", (2.0,), 3)
    Temperature(inverse_temperature=2.0, classes=3)
    >>> carried_map("vector", (2.0,), 3)
    Traceback (most recent call last):
    fedassay.errors.UsageError: theta: got 1 numbers, expected those of a map of kind vector for 3 classes.
    """
    if not kind:
        return None
    try:
        made = LOGIT_MAPS[kind].of(np.array(theta), classes)
    except (IndexError, ValueError):  # not as many as can be cut into the parts of such a map
        made = None
    if made is None or made.width != classes or len(made.theta) != len(theta):
        raise UsageError(
            f"theta: got {len(theta):,} numbers, expected those of a map of kind {kind} for {classes} classes."
        )
    return made
