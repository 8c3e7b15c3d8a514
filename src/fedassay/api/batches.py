"""Rows of a regression as arrays or data frames have them, checked, and taken apart by client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows: features, target, offset, whose they are (numbers from 0), and the features' names if they have any."""

    x: Floats
    y: Floats
    offset: Floats
    owners: NDArray[np.int64]
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Floats]:
        """By role, as clients read them."""
        return {"features": self.x, "target": self.y, "offset": self.offset}

    def by_client(self) -> Iterator[Batch]:
        """The rows of each client, in the order in which they are; clients in the order of their names."""
        for owner in np.unique(self.owners):
            mine = self.owners == owner
            yield Batch(x=self.x[mine], y=self.y[mine], offset=self.offset[mine], owners=self.owners[mine])


def batch_of(x: Any, y: Any, client: Any = None, offset: Any = None) -> Batch:
    """Check rows; names are those of a data frame.

    Examples
    --------
    >>> [len(one.y) for one in batch_of([[1.0], [2.0], [3.0]], [0, 1, 0], ["b", "a", "b"]).by_client()]
    [1, 2]
    """
    rows = matrix_of(x)
    target = _numbers("y", y, len(rows))
    added = np.zeros(len(rows)) if offset is None else _numbers("offset", offset, len(rows))
    owners = np.zeros(len(rows), dtype=np.int64)
    if client is not None:
        named = np.asarray(client)
        if named.shape != (len(rows),):
            raise DataError(
                f"client: got the shape {named.shape}, expected one for each of {len(rows)} rows."
            )
        owners = np.unique(named.astype(str), return_inverse=True)[1].astype(np.int64)
    # Pandas and Polars both have them; the columns of a frame without names are numbers.
    columns = [name for name in getattr(x, "columns", ()) if isinstance(name, str)]
    names = tuple(columns) if len(columns) == rows.shape[1] else ()
    return Batch(x=rows, y=target, offset=added, owners=owners, names=names)


def matrix_of(x: Any) -> Floats:
    """Features, rows by columns, finite."""
    try:
        rows = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X: got values that are no numbers ({error}), expected numbers.") from None
    if rows.ndim != 2:
        raise DataError(f"X: got the shape {rows.shape}, expected rows by features.")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise DataError(
            f"X: got {rows[row, column]} in row {row}, column {column}, expected finite numbers; repair or remove it."
        )
    return rows


def _numbers(what: str, values: Any, rows: int) -> Floats:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}: got values that are no numbers ({error}), expected numbers.") from None
    if found.shape != (rows,):
        raise DataError(f"{what}: got the shape {found.shape}, expected one number for each of {rows} rows.")
    if not np.isfinite(found).all():
        row = int(np.argmax(~np.isfinite(found)))
        raise DataError(f"{what}: got {found[row]} in row {row}, expected finite numbers.")
    return found
