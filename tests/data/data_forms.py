"""A small federation in every form that a user may have it in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa

import postgres
from fedassay.data.sql import Database

COLUMNS = {"score": "p", "label": "y"}
SITES = ["007", "B", "a b", "é"]


def small(rows: int = 500) -> dict[str, Any]:
    """Columns with site names that a careless reader would change; the last one has no rows."""
    rng = np.random.default_rng(5)
    return {
        "site": np.array(SITES[:3])[rng.integers(0, 3, rows)],
        "p": np.round(rng.random(rows), 6),
        "y": rng.integers(0, 2, rows).astype(np.int8),
        "note": np.array(['a, "quoted"\nline', "plain"])[rng.integers(0, 2, rows)],
    }


def in_form(name: str, data: dict[str, Any], folder: Path) -> Any:
    """The same rows as `name` says."""
    frame = pd.DataFrame(data)
    if name in ("lists", "arrays"):
        return {key: value.tolist() if name == "lists" else value for key, value in data.items()}
    if name == "pandas":
        return frame
    if name == "pandas, other types":
        return frame.astype({"site": "category", "p": "Float64", "y": "bool"}).set_index(frame.index[::-1])
    if name == "polars":
        return pl.DataFrame(data)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if name == "arrow":
        return table
    if name == "arrow stream":
        return table.to_reader(max_chunksize=77)
    if name in ("sqlite", "postgresql"):
        return in_database(name, frame, folder)
    path = folder / f"rows.{name}"
    write(path, data)
    return path


FORMS = [
    *("lists", "arrays", "pandas", "pandas, other types", "polars", "arrow", "arrow stream"),
    *("parquet", "csv", "npz", "sqlite", "postgresql"),
]


def in_database(kind: str, frame: pd.DataFrame, folder: Path) -> Database:
    """The rows in a table `rows`, to be asked for in their order."""
    url = f"sqlite:///{folder / 'rows.db'}" if kind == "sqlite" else postgres.server()
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "rows.db")) as connection:
            frame.to_sql("rows", connection, if_exists="replace", index_label="position")
    else:
        types = {"f": "double precision", "i": "bigint", "O": "text"}
        columns = ", ".join(f"{name} {types[frame[name].dtype.kind]}" for name in frame)
        with psycopg.connect(url) as server:
            server.execute("DROP TABLE IF EXISTS rows")
            server.execute(f"CREATE TABLE rows (position bigint, {columns})")
            marks = ", ".join(["%s"] * (frame.shape[1] + 1))
            rows = [tuple(row) for row in frame.astype(object).itertuples()]
            server.cursor().executemany(f"INSERT INTO rows VALUES ({marks})", rows)
    return Database(url=url, query="select * from rows order by position")


def write(path: Path, data: dict[str, Any]) -> None:
    """Write columns to a file of the kind that its suffix says."""
    if path.suffix == ".csv":
        pd.DataFrame(data).to_csv(path, index=False)
    elif path.suffix == ".npz":
        np.savez_compressed(path, **data)
    else:
        pd.DataFrame(data).to_parquet(path, index=False)
