"""Rows for an artefact: every column as it is, and those that play a role checked and converted.

Columns of a CSV file that hold only numbers are found by a first pass over all of it. CSV has no types. A column that
is numbers in the first rows may hold text in the last, so all rows are read, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedassay.data.files import CsvTable
from fedassay.data.findings import raise_first
from fedassay.data.lists import Width
from fedassay.data.numbers import is_text
from fedassay.data.scan import Chunk, Scan
from fedassay.data.schema import CLIENT, ROLES, Columns
from fedassay.data.tables import Table, frame_table
from fedassay.errors import DataError, UsageError

# --- columns of a CSV file that hold only numbers -----------------------------------------------------------

# Numbers that begin with a needless zero or a plus are taken for names: 007, +49. So are whole numbers with more
# digits than an integer of 64 bits has, and among fractions those with more than a double has.
_WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
_SHORT = r"-?(0|[1-9][0-9]{0,14})"
_FRACTION = r"-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
_NUMBER = rf"^({_SHORT}|{_FRACTION}|-?inf)$"


class _Looks:
    """Type of the values of one column so far; missing values are ignored."""

    def __init__(self) -> None:
        self.values = 0
        self.whole = self.number = True

    def add(self, text: Any) -> None:
        there = text.drop_null()
        self.values += len(there)
        self.whole = self.whole and _all_match(there, _WHOLE)
        self.number = self.number and _all_match(there, _NUMBER)

    @property
    def is_text(self) -> bool:
        return not (self.whole or self.number)

    @property
    def type(self) -> Any:
        return pa.int64() if self.whole else pa.float64()


def _all_match(text: Any, pattern: str) -> bool:
    return len(text) == 0 or bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())


def number_types(tables: Sequence[Table]) -> dict[str, Any]:
    """Return the Arrow types, integer or double, of the columns that hold only numbers in all these CSV files.

    A column without a value stays text, and so does a column of names that are made of digits, such as 007. Nothing is
    searched for if some of the tables have types of their own. Each file is read once more than otherwise.
    """
    if not all(isinstance(table, CsvTable) for table in tables):
        return {}
    looks: dict[str, _Looks] = {}
    for table in tables:
        wanted = [name for name in table.names if name not in looks or not looks[name].is_text]
        for batch in table.batches(wanted) if wanted else ():
            for name in wanted:
                found = looks.setdefault(name, _Looks())
                if not found.is_text:
                    found.add(batch.column(name))
            if all(looks[name].is_text for name in wanted):
                break
    return {name: one.type for name, one in looks.items() if one.values and not one.is_text}


def with_types(columns: Mapping[str, Any], types: Mapping[str, Any], *, label: str) -> dict[str, Any]:
    """Convert columns of text to the numbers that `number_types` found; return the others as they are."""
    try:
        return {
            name: pc.cast(array, types[name]) if name in types and is_text(array) else array
            for name, array in columns.items()
        }
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{label}: got text where there were numbers a moment ago, expected a file that does not change while it "
            "is read; wait until it is complete."
        ) from error


# --- rows for an artefact -----------------------------------------------------------------------------------

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
        """Return the unconverted column in this role; a role with several columns has none."""
        return self.batch.column(self.columns.names[role] if role in ROLES else self.columns.client)

    def with_columns(self, new: dict[str, Any], types: Mapping[str, Any] | None) -> Any:
        """Return all columns and the new ones; the site's name comes first, if there is one.

        CSV files are read as text: a column that was checked to hold numbers, or that has one of the `types` of
        numbers, is converted. Without types all text stays as it is.
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
    """Yield the rows of all tables, in order. Raise `DataError` at the first value that cannot be used."""
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
    """Read arrays as the columns of a table, so that they are checked and converted like any others.

    Parameters
    ----------
    use : the arrays' purpose, for errors.
    given : arrays by role; None for roles without an array.
    needed : the roles that must be given, and no others.
    called : the names of roles that the user knows by another word.
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
    """Table that reads all columns when asked for some, and keeps the last batch of them."""

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
