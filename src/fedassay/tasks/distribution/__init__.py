"""Private distribution functions: noisy prefix counts of any scalar, and what can be read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.tasks.distribution.curve import area_between
    from fedassay.tasks.distribution.ecdf import Ecdf
    from fedassay.tasks.distribution.search import SearchQuantiles, inverse_by_search
    from fedassay.tasks.distribution.stored import quantile_at, value_at

__all__ = ["Ecdf", "SearchQuantiles", "area_between", "inverse_by_search", "quantile_at", "value_at"]

__getattr__ = names_of(
    __name__,
    {
        "Ecdf": "ecdf",
        "area_between": "curve",
        "SearchQuantiles": "search",
        "inverse_by_search": "search",
        "quantile_at": "stored",
        "value_at": "stored",
    },
)
