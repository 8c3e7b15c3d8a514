"""Words that the statements of several trust models share."""

from __future__ import annotations

from typing import Any

from fedassay.errors import UnsupportedQuery
from fedassay.protocol import Neighbours, Points, Protection, Query, Unit


def refuse_points(query: Query[Any]) -> None:
    """Refuse to go on with points later: nobody keeps what clients have sent."""
    if isinstance(query, Points):
        raise UnsupportedQuery(
            f"Points of {query.of.name}: only two servers keep what clients have sent, so that points can be asked for "
            "later; use two-server, or ask for the whole curve at once (ecdf)."
        )


def protected(protection: Protection) -> str:
    """Who is protected, and which data sets look alike.

    Examples
    --------
    >>> protected(Protection())
    'one example (row): it is nearly as likely with and without it (add-remove)'
    """
    whom = {
        Unit.EXAMPLE: "one example (row)",
        Unit.CLIENT: f"everything that one client contributes (at most {protection.rows_per_unit} rows)",
    }[protection.unit]
    neighbours = {
        Neighbours.ADD_REMOVE: "with and without it",
        Neighbours.REPLACE_ONE: "with it and with another in its place",
    }[protection.neighbours]
    return f"{whom}: it is nearly as likely {neighbours} ({protection.neighbours})"


def exactly(number: float) -> str:
    """A number as it is: rounding an epsilon down would promise more than holds.

    Examples
    --------
    >>> exactly(1.0), exactly(1e-6)
    ('1', '1e-06')
    """
    return str(number).removesuffix(".0")
