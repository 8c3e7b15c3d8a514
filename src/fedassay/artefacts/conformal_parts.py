"""Which threshold belongs to which row: one for all, or one for each class, group or client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.artefacts.reading import Read
from fedassay.artefacts.thresholds import Threshold
from fedassay.data.findings import listed, shown, value_at
from fedassay.data.schema import CLIENT
from fedassay.errors import DataError, UsageError
from fedassay.summaries.group_names import OTHER, group_of
from fedassay.summaries.scored import EVERYONE, checked_condition

BY = ("", "class", "group", CLIENT)
_MOST_LISTED = 5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_parts(by: str, names: Sequence[str]) -> None:
    """Refuse thresholds of parts that rows cannot be told apart by.

    Examples
    --------
    >>> check_parts("group", ["F", "M", "other"]), check_parts("class", ["0", "1"]), check_parts("", ["all"])
    (None, None, None)
    """
    if by not in BY:
        raise UsageError(f"by: got {by!r}, expected class, group, client or nothing.")
    if by == "" and tuple(names) != (EVERYONE,):
        raise UsageError(
            f"thresholds: got {len(names)} of them by nothing, expected one called {EVERYONE!r}."
        )
    if by == CLIENT and not (names and all(names)):
        raise UsageError("thresholds: got a client without a name or no client, expected one for each.")
    if by == "class":
        checked_condition(by, names)
    if by == "group":
        checked_condition(by, [name for name in names if name != OTHER])


def limits(by: str, thresholds: Mapping[str, float], rows: Read) -> Floats:
    """The threshold of each row, or the one for all (no dimension); by class, that of the true class of each row.

    Raises `DataError` for a row of a class, group or client that has none. Groups that were not declared have that of
    ``other``, if there is one.
    """
    names = sorted(thresholds, key=lambda name: by == "group" and name == OTHER)  # other comes last
    values = np.array([thresholds[name] for name in names])
    if by == "":
        return values.reshape(())
    if by == "class":
        places = rows.chunk.columns["class"]
    elif by == "group":
        places = group_of(rows.chunk.columns["group"], tuple(name for name in names if name != OTHER))
    else:
        places = _client_places(names, rows)
    unknown = places >= len(values)
    if unknown.any():
        row = int(np.argmax(unknown))
        got = shown(rows.site) if by == CLIENT and rows.chunk.clients is None else value_at(rows.raw(by), row)
        raise DataError(
            f"{rows.table.label}, {by}: got {got}, which has no threshold, expected one of "
            f"{listed(names, most=_MOST_LISTED)}; leave these rows out."
        )
    return values[places]


def _client_places(names: list[str], rows: Read) -> Ints:
    """The place in `names` of each row's client; past the last if it is none of them."""
    clients = rows.chunk.clients
    known = {name: place for place, name in enumerate(names)}
    if clients is not None:
        found = [known.get(name, len(names)) for name in clients.names.to_pylist()]
        return np.array(found, dtype=np.int64)[clients.codes]
    if rows.site is None:
        raise UsageError("client column: the artefact does not say which one it is; give --client.")
    return np.full(rows.chunk.length, known.get(rows.site, len(names)), dtype=np.int64)


def warnings_of(by: str, thresholds: Mapping[str, Threshold]) -> tuple[str, ...]:
    """Thresholds that promise nothing, and those with which sets hold everything: a sentence each."""
    unpromising = {name: one for name, one in thresholds.items() if one.guarantee.kind == "none"}
    infinite = {name: one for name, one in thresholds.items() if one.infinite}
    found = []
    for title, chosen in (
        ("No coverage is guaranteed", unpromising),
        ("The threshold is infinite, so that sets hold everything", infinite),
    ):
        if chosen:
            whom = f" for {by} {listed(list(chosen), most=_MOST_LISTED)}" if by else ""
            reasons = list(dict.fromkeys(one.reason for one in chosen.values() if one.reason is not None))
            why = f": {reasons[0]}" if len(reasons) == 1 else ""
            found.append(f"{title}{whom}{why}.")
    return tuple(found)
