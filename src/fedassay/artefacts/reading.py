"""Rows for an artefact: every column as it is, and those that play a role checked and converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fedassay.artefacts.text_columns import with_types
from fedassay.data.findings import raise_first
from fedassay.data.frames import frame_table
from fedassay.data.logits import Width
from fedassay.data.numbers import is_text
from fedassay.data.scan import Chunk, Scan
from fedassay.data.schema import CLIENT, ROLES, Columns
from fedassay.data.tables import Table
from fedassay.errors import UsageError

Tables = Iterable[tuple[str | None, Table]]
"""Tables, each with the name of its site if it is one file of a folder."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Some rows of a table: `batch` has all columns (a `pyarrow.RecordBatch`), `chunk` those with a role."""

    site: str | None
    table: Table
    columns: Columns
    batch: Any = field(repr=False)
    chunk: Chunk = field(repr=False)

    def raw(self, role: str) -> Any:
        """The column in this role as it came; for a role with several columns there is none."""
        return self.batch.column(self.columns.names[role] if role in ROLES else self.columns.client)

    def with_columns(self, new: dict[str, Any], types: Mapping[str, Any] | None) -> Any:
        """All columns and the new ones; the site's name comes first, if there is one.

        CSV files are read as text: a column that was checked to hold numbers, or has one of the `types` of numbers,
        does so from now on. Without types all text stays as it is.
        """
        kept = dict(zip(self.table.names, self.batch.columns, strict=True))
        if types is not None:
            kept = with_types({**kept, **self._numbers()}, types, label=self.table.label)
        named = self.site is not None and CLIENT not in kept
        first = {CLIENT: pa.repeat(pa.scalar(self.site), len(self.batch))} if named else {}
        return pa.RecordBatch.from_pydict({**first, **kept, **new})

    def _numbers(self) -> dict[str, Any]:
        found = {}
        for role, names in self.columns.in_table(self.table.names).items():
            values = self.chunk.columns[role]
            for place, name in enumerate(names):
                if role != "group" and is_text(self.batch.column(name)):
                    found[name] = pa.array(values if len(names) == 1 else values[:, place])
        return found


def read(tables: Tables, columns: Columns) -> Iterator[Read]:
    """The rows of all tables, in order. The first value that cannot be used ends it with a `DataError`."""
    width: Width | None = None
    for site, table in tables:
        whole = _Whole(label=table.label, names=table.names, table=table)
        scan = Scan(whole, columns, width)
        for chunk in scan.chunks():
            raise_first(scan.findings())
            yield Read(site=site, table=table, columns=columns, batch=whole.last[0], chunk=chunk)
        raise_first(scan.findings())
        width = scan.width


def read_arrays(
    use: str, given: Mapping[str, Any], needed: Sequence[str], *, called: Mapping[str, str] | None = None
) -> list[Read]:
    """Arrays as the columns of a table, so that they are checked and converted like any others.

    Parameters
    ----------
    use : what they are for, in errors.
    given : arrays by role; None where nothing was given.
    needed : the roles that must be given, and no others.
    called : roles that the user knows by another word.
    """
    words, found = called or {}, {role: values for role, values in given.items() if values is not None}
    if set(found) != set(needed):
        got, expected = (", ".join(words.get(role, role) for role in roles) for roles in (found, needed))
        raise UsageError(f"{use}: got {got or 'nothing'}, expected {expected}.")
    table = frame_table({role: found[role] for role in needed})
    assert table is not None
    columns = Columns(
        names={role: role for role in needed if role != CLIENT}, client=CLIENT if CLIENT in needed else None
    )
    return list(read([(None, replace(table, label=use))], columns))


@dataclass(frozen=True, kw_only=True)
class _Whole(Table):
    """A table that, asked for some columns, reads all and keeps the last batch of them."""

    table: Table
    last: list[Any] = field(default_factory=list, repr=False)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        for batch in self.table.batches(self.table.names):
            self.last[:] = [batch]
            yield batch.select(list(columns))

    def line_of(self, row: int) -> int | None:
        """See `Table.line_of`."""
        return self.table.line_of(row)
