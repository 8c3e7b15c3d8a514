"""Rows in which a value is missing: left out and counted, where the user asks for it.

A value is missing where a column holds null, NaN, an empty text or one of the words that stand for it in a CSV file.
Columns of groups and clients do not count: a row without them has to be repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.numbers import is_missing
from fedassay.data.schema import Columns
from fedassay.data.tables import NoRows, Table

Missing = Literal["refuse", "report"]
"""What is done about rows in which a value is missing: they are an error, or they are left out and counted."""


@dataclass(frozen=True, kw_only=True)
class CompleteRows:
    """Some data without the rows in which a value is missing; `columns` says which column plays which role.

    Examples
    --------
    >>> from fedassay.data.federation import load
    >>> columns = {"score": "p", "label": "y"}
    >>> rows = load(CompleteRows(data={"p": [0.1, None, 0.4], "y": [0, 1, 1]}, columns=columns), columns=columns)
    >>> rows.row_count, rows.missing
    (2, 1)
    """

    data: Any
    columns: Mapping[str, str]

    def table(self, table: Table) -> Table:
        """The same table without these rows."""
        roles = {role: name for role, name in self.columns.items() if role != "group"}
        if isinstance(table, NoRows) or not roles:
            return table
        label = f"{table.label} (complete rows)"
        return CompleteTable(label=label, names=table.names, table=table, columns=Columns(names=roles))


@dataclass(frozen=True, kw_only=True)
class CompleteTable(Table):
    """The rows of `table` that have a value in each of these columns."""

    table: Table
    columns: Columns

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        for batch in self.table.batches(list(dict.fromkeys((*columns, *self._judged)))):
            gaps = self._gaps(batch)
            some = batch.select(list(columns))
            yield some.filter(pa.array(~gaps)) if gaps.any() else some

    def line_of(self, row: int) -> int | None:
        """See `Table.line_of`."""
        before = 0
        for batch in self.table.batches(self._judged):
            complete = np.flatnonzero(~self._gaps(batch))
            if row < len(complete):
                return self.table.line_of(before + int(complete[row]))
            row, before = row - len(complete), before + len(batch)
        return None

    def left_out(self) -> LeftOut:
        """Count the rows that are left out, in a pass of its own."""
        rows = missing = 0
        by_column = dict.fromkeys(self._judged, 0)
        for batch in self.table.batches(self._judged) if self._judged else ():
            rows, missing = rows + len(batch), missing + int(self._gaps(batch).sum())
            for name in self._judged:
                by_column[name] += int(is_missing(batch.column(name)).sum())
        return LeftOut(rows=rows, missing=missing, by_column=by_column)

    @cached_property
    def _judged(self) -> list[str]:
        """The columns that have to hold a value, as far as they are there."""
        found = (name for names in self.columns.in_table(self.names).values() for name in names)
        return [name for name in dict.fromkeys(found) if self.names.count(name) == 1]

    def _gaps(self, batch: Any) -> NDArray[np.bool_]:
        gaps = np.zeros(len(batch), dtype=np.bool_)
        for name in self._judged:
            gaps = gaps | is_missing(batch.column(name))
        return gaps


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The number of rows, of those without a value, and of these by column."""

    rows: int
    missing: int
    by_column: Mapping[str, int]

    def __add__(self, other: LeftOut) -> LeftOut:
        """The counts of two tables together."""
        names = dict.fromkeys((*self.by_column, *other.by_column))
        return LeftOut(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            by_column={n: self.by_column.get(n, 0) + other.by_column.get(n, 0) for n in names},
        )

    @property
    def words(self) -> str:
        """How many rows have no value, and in which columns.

        Examples
        --------
        >>> LeftOut(rows=1200, missing=2, by_column={"p": 2, "y": 0}).words
        "2 of 1,200 rows without a value ('p': 2)"
        """
        columns = ", ".join(f"{name!r}: {count:,}" for name, count in self.by_column.items() if count)
        return f"{self.missing:,} of {self.rows:,} rows without a value" + (
            f" ({columns})" if columns else ""
        )


def left_out(tables: Sequence[Table]) -> LeftOut | None:
    """The rows that are left out of these tables; None where such rows are an error."""
    counts = [table.left_out() for table in tables if isinstance(table, CompleteTable)]
    return sum(counts[1:], start=counts[0]) if counts else None
