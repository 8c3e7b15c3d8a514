"""The names that occur in the data: undeclared subgroups, clients, and the features of a regression.

Names of groups and clients are only for simulations: in a release, that a name occurs at all is information about
the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fedassay.data.findings import listed, raise_first
from fedassay.data.lists import first_length, lengths_of
from fedassay.data.numbers import is_list, plain, to_clients
from fedassay.data.partition import Partition
from fedassay.data.scan import Scan
from fedassay.data.schema import FEATURES, Columns
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import NoRows, Table, reading
from fedassay.data.wide import list_names
from fedassay.errors import DataError
from fedassay.summaries.grouped_histogram import LONGEST_NAME, MOST_GROUPS, OTHER


def reread(data: Any) -> Any:
    """Return the same data, in a form that can be opened more than once: an Arrow stream is kept in memory.

    Examples
    --------
    >>> import pyarrow as pa
    >>> stream = pa.table({"sex": ["M", "F"]}).to_reader()
    >>> group_names(data := reread(stream), "sex"), data.num_rows
    (('F', 'M'), 2)
    """
    known = type(data).__module__.partition(".")[0] in ("pandas", "polars")
    if known or isinstance(data, pa.Table | pa.RecordBatch) or not hasattr(data, "__arrow_c_stream__"):
        return data
    with reading("the Arrow stream", fix="give a table, or write the stream to a .parquet file first"):
        return pa.table(data)


def group_names(data: Any, column: str) -> tuple[str, ...]:
    """Return the groups in a column, sorted, without ``other``.

    Raises
    ------
    DataError
        If the column is missing, or holds no group or more than an evaluation can have.

    Examples
    --------
    >>> group_names({"sex": ["M", "F", "M"]}, "sex")
    ('F', 'M')
    """
    columns = Columns(names={"group": column})
    found: set[str] = set()
    for where, names in _names(data, columns):
        found.update(name for name in names if name != OTHER and len(name) <= LONGEST_NAME)
        if len(found) > MOST_GROUPS:
            raise DataError(
                f"{where}, column {column!r} (group): got more than {MOST_GROUPS} different values "
                f"({listed(sorted(found), most=3)}), expected a few groups; name those of interest with `groups`, "
                "the others then count as one."
            )
    if not found:
        for table in _tables(data):
            scan = Scan(table, columns)
            for _ in scan.chunks():
                pass  # until the end, where its findings are complete
            raise_first(scan.findings())
        raise DataError(
            f"column {column!r} (group): got no value besides {OTHER!r}, expected some groups; name another column."
        )
    return tuple(sorted(found))


def client_names(data: Any, client: str | Partition | None) -> tuple[str, ...]:
    """Return the clients, in the order of `Federation.clients`; without a column, those of a folder.

    Examples
    --------
    >>> client_names({"site": [10, 9, 10]}, "site")
    ('10', '9')
    """
    if isinstance(client, Partition):
        if client.column is None:
            return tuple(client.names)
        client = client.column
    if client is None:
        source = open_source(data)
        return tuple(sorted(source.sites)) if isinstance(source, Folder) else ()
    found: set[str] = set()
    for _, names in _names(data, Columns(names={}, client=client)):
        found.update(names)
    return tuple(sorted(found))


def _names(data: Any, columns: Columns) -> Iterator[tuple[str, list[str]]]:
    """Yield the label of each table and the names in its column, batch by batch."""
    for table in _tables(data):
        raise_first(list(columns.missing_from(table.names, where=table.label).values()))
        for batch in table.batches(list(columns.needed)):
            yield table.label, to_clients(batch.column(0)).names.to_pylist()


def _tables(data: Any) -> list[Table]:
    source = open_source(data)
    tables = list(source.sites.values()) if isinstance(source, Folder) else [source]
    return [table for table in tables if not isinstance(table, NoRows)]


def feature_names(names: str, source: Any) -> tuple[str, ...]:
    """Return the name of each feature, in the order of the columns of a batch.

    Several names are what they are, and the data are not opened. A single one may be a column of lists, whose entries
    are called ``x[0]``, ``x[1]``, .., or stand for numbered columns, which keep their names. Of a folder, the first
    file that has rows says so.

    Edge cases: where nothing can be found out (no rows, no such column), the names as given: `federation.load` says
    what is wrong. An Arrow stream is used up; see `reread`.

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
    """Return the names of the content of one column; none if it has no rows."""
    for batch in table.batches([name]):
        array = batch.column(0)
        width = first_length(lengths_of(array)) if is_list(plain(array)) else None
        if width is not None:
            return list_names(name, width)
        if len(array) and not is_list(plain(array)):
            return (name,)
    return ()
