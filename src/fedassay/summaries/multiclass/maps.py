"""The maps by kind, and how they are read from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from fedassay.errors import UsageError
from fedassay.summaries.maps import one_of
from fedassay.summaries.multiclass.binned_map import Binned, BinnedChanged
from fedassay.summaries.multiclass.fedcal import FedCal
from fedassay.summaries.multiclass.isotonic_map import Isotonic
from fedassay.summaries.multiclass.scaling_maps import (
    LogitMap,
    MatrixScaling,
    OrderPreserving,
    Temperature,
    VectorScaling,
    numbers,
)

LOGIT_MAPS: Mapping[str, type[LogitMap]] = MappingProxyType(
    {
        kind.kind: kind
        for kind in (
            Temperature,
            VectorScaling,
            MatrixScaling,
            OrderPreserving,
            Binned,
            BinnedChanged,
            FedCal,
            Isotonic,
        )
    }
)
"""The maps by the name of their family."""


def logit_map_from_json(content: object) -> LogitMap:
    """The map that `to_json` was called on; anything else is refused with a sentence.

    Examples
    --------
    >>> logit_map_from_json({"kind": "order-preserving", "slopes": [0.5, 1.0]})
    OrderPreserving(slopes=(0.5, 1.0))
    """
    return one_of(LOGIT_MAPS, content)


# --- a map as two fields of a summary -----------------------------------------------------------------------


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
