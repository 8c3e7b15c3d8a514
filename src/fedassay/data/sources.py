"""Open whatever the user has: arrays, data frames, a file, a folder with one file per site, a query.

Rows in which a value is missing are left out and counted, where the user asks for it. A value is missing where a column
holds null, NaN, an empty text or one of the words that stand for it in a CSV file. Columns of groups and clients do not
count: a row without them has to be repaired.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.files import OPENERS
from fedassay.data.findings import Finding, listed, warning
from fedassay.data.numbers import is_missing
from fedassay.data.schema import Columns
from fedassay.data.sql import Database, is_url
from fedassay.data.tables import NoRows, Table, frame_table, reading
from fedassay.errors import DataError, UsageError

# --- rows in which a value is missing -----------------------------------------------------------------------


Missing = Literal["refuse", "report"]
"""Treatment of rows in which a value is missing: they are an error, or they are left out and counted."""


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
        """Return the same table without these rows."""
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
        """Add the counts of two tables."""
        names = dict.fromkeys((*self.by_column, *other.by_column))
        return LeftOut(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            by_column={n: self.by_column.get(n, 0) + other.by_column.get(n, 0) for n in names},
        )

    @property
    def words(self) -> str:
        """Number of rows without a value, and their columns.

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
    """Count the rows that are left out of these tables; None where such rows are an error."""
    counts = [table.left_out() for table in tables if isinstance(table, CompleteTable)]
    return sum(counts[1:], start=counts[0]) if counts else None


# --- whatever the user has ----------------------------------------------------------------------------------


_KNOWN = ", ".join(OPENERS)
COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz"})
FAR_AWAY = ("http", "https", "ftp", "s3", "gs", "az", "abfs", "hdfs")
"""Schemes of addresses of files, which are no databases."""
_NO_QUERY = (
    "data: got a database URL without a query, expected both; add `query` with one SELECT (in a site's file: "
    "query, in Python: fedassay.Database(url=..., query=...))."
)


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One table per site, by the stem of its file, in sorted order; `others` are the names of what is no site."""

    label: str
    sites: Mapping[str, Table]
    others: tuple[str, ...] = ()


Source = Table | Folder


def open_source(data: Any) -> Source:
    """Open `data` as far as the names of its columns.

    Accepts a mapping of names to arrays or lists, a pandas or polars DataFrame, anything that exports an
    Arrow stream, the path of a ``.parquet``, ``.csv`` or ``.npz`` file, a folder of such files, or a
    `Database` with its query. Files are streamed; an Arrow stream that can be read only once is kept in
    memory; a query is executed once and its rows are copied.

    Raises
    ------
    UsageError
        If `data` is of no known kind, or the path does not exist or has another suffix.
    DataError
        If a file is empty or unreadable, a folder holds no site, or a database refuses.

    Examples
    --------
    >>> open_source({"p": [0.1, 0.9], "y": [0, 1]}).names
    ('p', 'y')
    """
    if isinstance(data, CompleteRows):
        return _complete(data)
    if isinstance(data, Database):
        return data.open()
    if isinstance(data, str) and is_url(data):
        raise UsageError(_NO_QUERY)
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        with reading(str(path), fix="check the path and its permissions"):
            return _folder(path) if path.is_dir() else _file(path)
    table = frame_table(data)
    if table is None:
        raise UsageError(
            f"data: got a {type(data).__name__}, expected a mapping of columns, a pandas or polars "
            f"DataFrame, an Arrow table, a {_KNOWN} file, a folder of them, or a Database."
        )
    return table


def _complete(data: CompleteRows) -> Source:
    source = open_source(data.data)
    if not isinstance(source, Folder):
        return data.table(source)
    sites = {name: data.table(table) for name, table in source.sites.items()}
    return replace(source, sites=MappingProxyType(sites))


def source_named(text: str, query: str | None, *, folder: Path = Path()) -> Path | Database:
    """Return the data that an option or a site's file names: a database query, or a path relative to `folder`.

    Examples
    --------
    >>> source_named("sqlite:///scores.db", "select * from scores")
    Database(sqlite:///scores.db)
    """
    if is_url(text):
        if text.partition("://")[0].lower() in FAR_AWAY:
            raise UsageError(
                f"data: got the address {text!r}, expected a file on this machine, or a database; download it first."
            )
        if query is None:
            raise UsageError(_NO_QUERY)
        return Database(url=text, query=query, folder=folder)
    if query is not None:
        raise UsageError(
            "query: got one for a file, expected it with a database URL only (sqlite:///FILE, "
            "postgresql://USER@HOST/DATABASE); leave it out or give the URL."
        )
    return folder / text


def _file(path: Path) -> Table:
    if not path.exists():
        if any(mark in path.name for mark in "*?["):
            raise UsageError(
                f"data: got the pattern {str(path)!r}, expected a file, or a folder with one file per site; give the "
                "folder."
            )
        raise UsageError(
            f"data: got {str(path)!r}, which does not exist, expected a file or a folder; check the path."
        )
    _opener(path)
    if path.stat().st_size == 0:
        raise DataError(f"{path}: got an empty file, expected rows; export it again.")
    return _opener(path)(path)


def _opener(path: Path) -> Callable[[Path], Table]:
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        if path.suffix.lower() in COMPRESSED:
            raise UsageError(f"{path}: got a compressed file, expected one of {_KNOWN}; unpack it first.")
        suffix = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise UsageError(f"{path}: got a file with {suffix}, expected one of {_KNOWN}; convert or rename it.")
    return opener


def files_with_rows(path: Path) -> list[Path]:
    """Return the file, or those of a folder that are sites, in sorted order."""
    if not path.is_dir():
        return [path]
    return sorted(entry for entry in _visible(path) if entry.suffix.lower() in OPENERS and not entry.is_dir())


def not_read(source: Source) -> list[Finding]:
    """Return one warning that names the files in a folder of sites that are not read, if there are any.

    Examples
    --------
    >>> print(not_read(Folder(label="sites", sites={}, others=("notes.txt",)))[0].sentence())  # doctest: +ELLIPSIS
    sites: got 'notes.txt', expected one file per site (.parquet, .csv, .npz) and nothing else; ...
    """
    if not isinstance(source, Folder) or not source.others:
        return []
    return [
        warning(
            what=source.label,
            got=listed(list(source.others), most=5),
            expected=f"one file per site ({_KNOWN}) and nothing else",
            fix="move what is no site, and convert what holds rows: none of it is read",
        )
    ]


def _visible(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]


def _folder(path: Path) -> Folder:
    files = files_with_rows(path)
    others = sorted(entry.name for entry in set(_visible(path)) - set(files))
    if not files:
        got = f"only {listed(others, most=5)}" if others else "an empty folder"
        raise DataError(f"{path}: got {got}, expected one file per site ({_KNOWN}); add them.")
    sites: dict[str, Path] = {}
    for entry in sorted(files, key=lambda entry: entry.stem):
        if entry.stem in sites:
            raise DataError(
                f"{path}: got {sites[entry.stem].name!r} and {entry.name!r} for one site, "
                "expected one file per site; remove one."
            )
        sites[entry.stem] = entry
    tables = {stem: _site(file) for stem, file in sites.items()}
    return Folder(label=str(path), sites=MappingProxyType(tables), others=tuple(others))


def _site(path: Path) -> Table:
    return NoRows(label=str(path)) if path.stat().st_size == 0 else _file(path)
