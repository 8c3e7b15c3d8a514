"""Columns of a CSV file that hold only numbers, found by a first pass over all of it.

CSV has no types. A column that is numbers in the first rows may hold text in the last, so all rows are looked at, one
batch at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedassay.data.files import CsvTable
from fedassay.data.numbers import is_text
from fedassay.data.tables import Table
from fedassay.errors import DataError

# Numbers that begin with a needless zero or a plus are names by their looks: 007, +49. So are whole numbers with more
# digits than an integer of 64 bits has, and among fractions those with more than a double has.
_WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
_SHORT = r"-?(0|[1-9][0-9]{0,14})"
_FRACTION = r"-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
_NUMBER = rf"^({_SHORT}|{_FRACTION}|-?inf)$"


class _Looks:
    """What the values of one column look like so far; missing ones look like nothing."""

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
    """The Arrow types of the columns that hold only numbers in every one of these CSV files: whole ones, or others.

    A column without a value stays text, and so does one of names that are made of digits, such as 007. Nothing is
    looked for if some of the tables have types of their own. Each file is read once more than otherwise.
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
    """Columns of text as the numbers that `number_types` found; the others as they are."""
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
