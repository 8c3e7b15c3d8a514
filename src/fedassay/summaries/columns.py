"""Columns that not every site has named."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fedassay.errors import DataError
from fedassay.protocol import Batch


def column(batch: Batch, role: str) -> NDArray[Any]:
    """The column in this role, or an error that says what a site has to add.

    Examples
    --------
    >>> column({"group": [1]}, "versus")
    Traceback (most recent call last):
    fedassay.errors.DataError: columns: got none in the role 'versus', expected one; name it with the others.
    """
    if role not in batch:
        raise DataError(f"columns: got none in the role {role!r}, expected one; name it with the others.")
    return batch[role]
