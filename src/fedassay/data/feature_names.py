"""What the coefficients of a regression are called."""

from __future__ import annotations

from typing import Any

from fedassay.data.features import list_names
from fedassay.data.lists import first_length, lengths_of
from fedassay.data.numbers import is_list, plain
from fedassay.data.schema import FEATURES, Columns
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import Table


def feature_names(names: str, source: Any) -> tuple[str, ...]:
    """The name of each feature, in the order of the columns of a batch.

    Several names are what they are, and the data are not opened. A single one may be a column of lists, whose entries
    are called ``x[0]``, ``x[1]``, .., or stand for numbered columns, which keep their names. Of a folder, the first
    file that has rows says so.

    Edge cases: where nothing can be found out (no rows, no such column), the names as given: `federation.load` says
    what is wrong. An Arrow stream is used up; see `groups.reread`.

    Examples
    --------
    >>> feature_names("age, bmi", None)
    ('age', 'bmi')
    >>> feature_names("x", {"x": [[1.0, 2.0]], "y": [1]}), feature_names("z", {"z_1": [1], "z_2": [2]})
    (('x[0]', 'x[1]'), ('z_1', 'z_2'))
    """
    columns = Columns(names={FEATURES: names})
    named = columns.named(FEATURES)
    if len(named) > 1:
        return named
    opened = open_source(source)
    for table in opened.sites.values() if isinstance(opened, Folder) else (opened,):
        found = columns.in_table(table.names)[FEATURES]
        if found and found != named:
            return found
        if table.names.count(named[0]) == 1 and (known := _of_column(table, named[0])):
            return known
    return named


def _of_column(table: Table, name: str) -> tuple[str, ...]:
    """The names of what is in one column; none if it has no rows."""
    for batch in table.batches([name]):
        array = batch.column(0)
        width = first_length(lengths_of(array)) if is_list(plain(array)) else None
        if width is not None:
            return list_names(name, width)
        if len(array) and not is_list(plain(array)):
            return (name,)
    return ()
