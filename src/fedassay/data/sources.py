"""Open whatever the user has: arrays, data frames, a file, a folder with one file per site, a query."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedassay.data.files import OPENERS
from fedassay.data.findings import listed
from fedassay.data.frames import frame_table
from fedassay.data.sql import Database, is_url
from fedassay.data.tables import NoRows, Table, reading
from fedassay.errors import DataError, UsageError

_KNOWN = ", ".join(OPENERS)
_NO_QUERY = (
    "data: got a database URL without a query, expected both; add --query with one SELECT (in a site's file: "
    "query, in Python: fedassay.Database(url=..., query=...))."
)


@dataclass(frozen=True, kw_only=True)
class Folder:
    """One table per site, by the stem of its file, in sorted order."""

    label: str
    sites: Mapping[str, Table]


Source = Table | Folder


def open_source(data: Any) -> Source:
    """What `data` holds, opened as far as the names of its columns.

    Accepts a mapping of names to arrays or lists, a pandas or polars DataFrame, anything that exports an
    Arrow stream, the path of a ``.parquet``, ``.csv`` or ``.npz`` file, a folder of such files, or a
    `Database` with its query. Files are streamed; an Arrow stream that can be read only once is kept in
    memory; a query is executed once and its rows are copied.

    Raises
    ------
    UsageError
        If `data` is of no known kind, or the path does not exist or has another suffix.
    DataError
        If a file is empty or unreadable, a folder holds no site or something that is no site, or a
        database refuses.

    Examples
    --------
    >>> open_source({"p": [0.1, 0.9], "y": [0, 1]}).names
    ('p', 'y')
    """
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


def source_named(text: str, query: str | None, *, folder: Path = Path()) -> Path | Database:
    """What an option or a site's file names: a query of a database, or a path relative to `folder`.

    Examples
    --------
    >>> source_named("sqlite:///scores.db", "select * from scores")
    Database(sqlite:///scores.db)
    """
    if is_url(text):
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
        suffix = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise UsageError(f"{path}: got a file with {suffix}, expected one of {_KNOWN}; convert or rename it.")
    return opener


def _folder(path: Path) -> Folder:
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not entries:
        raise DataError(f"{path}: got an empty folder, expected one file per site ({_KNOWN}); add them.")
    strange = [entry.name for entry in entries if entry.is_dir() or entry.suffix.lower() not in OPENERS]
    if strange:
        raise DataError(
            f"{path}: got {listed(strange, most=5)}, expected one file per site ({_KNOWN}) and nothing else; "
            "convert or move what is no site."
        )
    sites: dict[str, Path] = {}
    for entry in sorted(entries, key=lambda entry: entry.stem):
        if entry.stem in sites:
            raise DataError(
                f"{path}: got {sites[entry.stem].name!r} and {entry.name!r} for one site, "
                "expected one file per site; remove one."
            )
        sites[entry.stem] = entry
    tables = {stem: _site(file) for stem, file in sites.items()}
    return Folder(label=str(path), sites=MappingProxyType(tables))


def _site(path: Path) -> Table:
    return NoRows(label=str(path)) if path.stat().st_size == 0 else _file(path)
