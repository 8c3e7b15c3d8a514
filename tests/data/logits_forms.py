"""Rows of several classes in every form that a user may have them in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
from data_forms import in_database

from fedassay.protocol.vocabulary import Rows

COLUMNS = {"class": "y", "logits": "z"}
CLASSES = 12  # so that the order of numbers is not that of the alphabet
LIMITS = {"in memory": 2**30, "streamed": 0}


def small(rows: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {
        "site": np.array(["a", "b", "c"])[rng.integers(0, 3, rows)],
        "y": rng.integers(0, CLASSES, rows),
        "z": rng.normal(size=(rows, CLASSES)).astype(np.float32).astype(np.float64),
    }


def numbered(data: dict[str, Any], style: str = "z_{}", first: int = 0) -> dict[str, Any]:
    """One column for each class, the last one first."""
    others = {name: values for name, values in data.items() if name != "z"}
    classes = range(data["z"].shape[1])
    return others | {style.format(i + first): data["z"][:, i] for i in reversed(classes)}


def lists(kind: Any) -> Callable[[dict[str, Any], Path], Any]:
    def made(data: dict[str, Any], _: Path) -> Any:
        return pa.table({**data, "z": pa.array(data["z"].tolist(), kind)})

    return made


def in_parquet(kind: Any) -> Callable[[dict[str, Any], Path], Any]:
    def made(data: dict[str, Any], folder: Path) -> Any:
        parquet.write_table(lists(kind)(data, folder), folder / "a.parquet", row_group_size=77)
        return folder / "a.parquet"

    return made


def in_npz(order: Any, kind: Any = np.float64) -> Callable[[dict[str, Any], Path], Any]:
    def made(data: dict[str, Any], folder: Path) -> Any:
        z = np.require(data["z"], dtype=kind, requirements=order)
        np.savez_compressed(folder / "a.npz", **{**data, "z": z})
        return folder / "a.npz"

    return made


def with_objects(data: dict[str, Any], entry: Callable[[Any], Any]) -> pd.DataFrame:
    frame = pd.DataFrame({name: values for name, values in data.items() if name != "z"})
    frame["z"] = [entry(row) for row in data["z"]]
    return frame


def polars(kind: Any) -> Callable[[dict[str, Any], Path], Any]:
    def made(data: dict[str, Any], _: Path) -> Any:
        return pl.DataFrame({**data, "z": pl.Series(data["z"].tolist(), dtype=kind)})

    return made


def written(data: dict[str, Any], folder: Path, suffix: str) -> Path:
    path = folder / f"a.{suffix}"
    frame = pd.DataFrame(numbered(data))
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    return path


FORMS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "2-D array": lambda data, _: data,
    "Fortran order": lambda data, _: {**data, "z": np.asfortranarray(data["z"])},
    "masked array": lambda data, _: {**data, "z": np.ma.array(data["z"], mask=False)},
    "other byte order": lambda data, _: {**data, "z": data["z"].astype(">f4")},
    "lists of lists": lambda data, _: {**data, "z": data["z"].tolist()},
    "list of arrays": lambda data, _: {**data, "z": list(data["z"])},
    "list of texts": lambda data, _: {**data, "z": [[str(x) for x in row] for row in data["z"]]},
    "list": lists(pa.list_(pa.float64())),
    "large list of 32 bits": lists(pa.large_list(pa.float32())),
    "fixed-size list": lists(pa.list_(pa.float64(), CLASSES)),
    "list view": lists(pa.list_view(pa.float64())),
    "arrow stream": lambda data, _: lists(pa.list_(pa.float32()))(data, _).to_reader(max_chunksize=70),
    "parquet list": in_parquet(pa.list_(pa.float64())),
    "parquet fixed-size list": in_parquet(pa.list_(pa.float32(), CLASSES)),
    "npz": in_npz("C"),
    "npz in Fortran order": in_npz("F", np.float32),
    "pandas, arrays": lambda data, _: with_objects(data, np.array),
    "pandas, lists": lambda data, _: with_objects(data, list),
    "pandas, tuples": lambda data, _: with_objects(data, tuple),
    "polars list": polars(pl.List(pl.Float64)),
    "polars array": polars(pl.Array(pl.Float64, CLASSES)),
    "numbered": lambda data, _: numbered(data),
    "numbered from 1": lambda data, _: numbered(data, first=1),
    "numbered without an underscore": lambda data, _: numbered(data, "z{}"),
    "numbered with zeros": lambda data, _: numbered(data, "z_{:03d}", first=1),
    "numbered, pandas": lambda data, _: pd.DataFrame(numbered(data)),
    "numbered, csv": lambda data, folder: written(data, folder, "csv"),
    "numbered, parquet": lambda data, folder: written(data, folder, "parquet"),
    "numbered, sqlite": lambda data, folder: in_database("sqlite", pd.DataFrame(numbered(data)), folder),
    "numbered, postgresql": lambda data, folder: in_database(
        "postgresql", pd.DataFrame(numbered(data)), folder
    ),
}


def joined(rows: Rows, role: str = "logits") -> np.ndarray:
    return np.concatenate([batch[role] for batch in rows.batches()])
