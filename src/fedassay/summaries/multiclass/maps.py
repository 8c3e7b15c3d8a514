"""The maps by kind, and how they are read from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedassay.summaries.kinds import one_of
from fedassay.summaries.multiclass.binned_map import Binned, BinnedChanged
from fedassay.summaries.multiclass.fedcal import FedCal
from fedassay.summaries.multiclass.isotonic_map import Isotonic
from fedassay.summaries.multiclass.logit_map import LogitMap
from fedassay.summaries.multiclass.scaling_maps import (
    MatrixScaling,
    OrderPreserving,
    Temperature,
    VectorScaling,
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
