"""Features in every form are one array of rows and features, in the order in which they are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from data_forms import in_database, write
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from logits_forms import LIMITS, joined

from fedassay.data.federation import load
from fedassay.data.inventory import feature_names
from fedassay.data.schema import ROLES, Columns
from fedassay.data.selection import limit_rows, select_pooled_part
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Part, Unit

NAMES = ("bmi", "age", "sex")
COLUMNS = {"target": "y", "features": "bmi, age ,sex", "offset": "o"}
ROWS = 200


def small() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "site": np.array(["a", "b", "c"])[rng.integers(0, 3, ROWS)],
        "age": rng.integers(18, 90, ROWS),
        "sex": rng.random(ROWS) < 0.5,
        "bmi": rng.normal(25, 4, ROWS),
        "y": rng.normal(size=ROWS),
        "o": rng.normal(size=ROWS),
    }


def matrix(data: dict[str, Any]) -> np.ndarray:
    return np.column_stack([data[name] for name in NAMES]).astype(np.float64)


def on_disk(suffix: str) -> Any:
    def made(data: dict[str, Any], folder: Path) -> Path:
        write(folder / f"rows.{suffix}", data)
        return folder / f"rows.{suffix}"

    return made


def as_lists(data: dict[str, Any]) -> dict[str, Any]:
    return {"site": data["site"], "y": data["y"], "o": data["o"], "x": matrix(data)}


def numbered(data: dict[str, Any]) -> dict[str, Any]:
    others = {name: data[name] for name in ("site", "y", "o")}
    return {f"x{i + 1}": data[name] for i, name in reversed(list(enumerate(NAMES)))} | others


FORMS = {
    "arrays": lambda data, _: data,
    "lists": lambda data, _: {name: values.tolist() for name, values in data.items()},
    "pandas": lambda data, _: pd.DataFrame(data),
    "pandas, other types": lambda data, _: pd.DataFrame(data).astype({"sex": "boolean", "age": "Int16"}),
    "polars": lambda data, _: pl.DataFrame(data),
    "arrow": lambda data, _: pa.table(data),
    "arrow stream": lambda data, _: pa.table(data).to_reader(max_chunksize=33),
    "csv": on_disk("csv"),
    "parquet": on_disk("parquet"),
    "npz": on_disk("npz"),
    "sqlite": lambda data, folder: in_database("sqlite", pd.DataFrame(data), folder),
}
ALONE = {
    "2-D array": lambda data, _: as_lists(data),
    "2-D array of an archive": lambda data, folder: on_disk("npz")(as_lists(data), folder),
    "Arrow lists": lambda data, _: pa.table({**as_lists(data), "x": pa.array(matrix(data).tolist())}),
    "polars lists": lambda data, _: pl.DataFrame({**as_lists(data), "x": matrix(data).tolist()}),
    "lists in Parquet": lambda data, folder: on_disk("parquet")(
        {**as_lists(data), "x": matrix(data).tolist()}, folder
    ),
    "numbered": lambda data, _: numbered(data),
    "numbered in CSV": lambda data, folder: on_disk("csv")(numbered(data), folder),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", [*FORMS, *ALONE])
def test_every_form_gives_the_same_rows(form: str, limit: str, tmp_path: Path) -> None:
    data, wanted = small(), COLUMNS if form in FORMS else {**COLUMNS, "features": "x"}
    source = (FORMS | ALONE)[form](data, tmp_path)
    federation = load(source, client="site", columns=wanted, memory_limit=LIMITS[limit])
    for name in "abc":
        mine = data["site"] == name
        for _ in range(2):
            rows = federation.rows_of(name)
            assert np.array_equal(joined(rows, "features"), matrix(data)[mine])
            assert np.array_equal(joined(rows, "offset"), data["o"][mine])
            assert np.array_equal(joined(rows, "target"), data["y"][mine])
    for batch in federation.pooled().batches():
        assert list(batch) == ["target", "features", "offset"]
        assert batch["features"].dtype == batch["offset"].dtype == np.float64
        assert batch["features"].flags.c_contiguous
    assert np.array_equal(joined(federation.pooled(), "features"), matrix(data))


@pytest.mark.parametrize("limit", LIMITS)
def test_a_folder_with_one_file_per_site(limit: str, tmp_path: Path) -> None:
    data = small()
    for kind, named in (("by name", COLUMNS["features"]), ("alone", "x")):
        folder = tmp_path / kind
        folder.mkdir()
        for site, suffix in zip("abc", (".csv", ".npz", ".parquet"), strict=True):
            mine = {name: values[data["site"] == site] for name, values in data.items()}
            forms = {".csv": numbered, ".npz": as_lists, ".parquet": numbered}
            write(folder / (site + suffix), mine if kind == "by name" else forms[suffix](mine))
        (folder / "d.csv").touch()
        federation = load(folder, columns={**COLUMNS, "features": named}, memory_limit=LIMITS[limit])
        assert list(federation.clients) == ["a", "b", "c", "d"]
        for site in "abc":
            mine = matrix(data)[data["site"] == site]
            assert np.array_equal(joined(federation.rows_of(site), "features"), mine)
        assert list(federation.rows_of("d").batches()) == []
        expected = ("bmi", "age", "sex") if kind == "by name" else ("x1", "x2", "x3")
        assert feature_names(named, folder) == expected


@pytest.mark.parametrize("column", [[1.5, 2.5], [[1.5], [2.5]], ["1.5", " 2.5"]], ids=str)
def test_one_feature_is_enough(column: Any) -> None:
    for data in ({"x": column}, {"x_0": column} if column[0] != [1.5] else {"x": np.array(column)}):
        federation = load(data, columns={"features": "x"})
        assert joined(federation.pooled(), "features").tolist() == [[1.5], [2.5]]
        assert joined(federation.rows_of("1"), "features").tolist() == [[2.5]]


def test_truth_values_count_as_0_and_1() -> None:
    data = {"a": [True, False], "b": ["TRUE", "false"], "c": np.array([False, True]), "d": ["1", "0"]}
    federation = load(data, columns={"features": "a,b,c,d"})
    assert joined(federation.pooled(), "features").tolist() == [[1, 1, 0, 1], [0, 0, 1, 0]]
    lists = load({"x": [[True, False], [False, False]]}, columns={"features": "x"})
    assert joined(lists.pooled(), "features").tolist() == [[1, 0], [0, 0]]


def test_a_name_that_exists_is_a_column_and_not_a_beginning() -> None:
    data = {"x": [7.0], "x_0": [1.0], "x_1": [2.0]}
    assert joined(load(data, columns={"features": "x"}).pooled(), "features").tolist() == [[7.0]]
    assert joined(load(data, columns={"features": "x_1,x"}).pooled(), "features").tolist() == [[2.0, 7.0]]


def test_a_site_without_rows_may_answer() -> None:
    for data in ({"a": [], "b": []}, {"a": [], "b": [], "c": []}):
        federation = load(data, columns={"features": "a,b"}, empty_is_fine=True)
        assert list(federation.pooled().batches()) == []


def test_what_the_coefficients_are_called(tmp_path: Path) -> None:
    assert feature_names(" age ,bmi", tmp_path / "is not opened") == ("age", "bmi")
    assert feature_names("age", {"age": [1.0]}) == ("age",)
    assert feature_names("x", {"x": np.ones((2, 3))}) == ("x[0]", "x[1]", "x[2]")
    assert feature_names("x", pa.table({"x": pa.array([None, [1.0]])})) == ("x[0]",)
    assert feature_names("x", {"x_2": [1], "x_10": [1], "x_1": [1]}) == ("x_1", "x_2", "x_10")
    assert feature_names("x", {"x": []}) == feature_names("x", {"y": [1]}) == ("x",)


def test_columns_keep_the_names_without_blanks() -> None:
    columns = Columns(names=COLUMNS, client="site")
    assert columns.names["features"] == "bmi,age,sex"
    assert columns.named("features") == NAMES
    assert columns.named("target") == ("y",)
    assert columns.needed == ("y", "bmi", "age", "sex", "o", "site")


@pytest.mark.parametrize("unit", Unit)
def test_parts_and_bounds_take_whole_rows(unit: Unit) -> None:
    data = {**small(), "bmi": np.arange(ROWS), "age": np.arange(ROWS) + 0.5}
    outcomes = []
    for limit in LIMITS.values():
        federation = load(data, client="site", columns=COLUMNS, memory_limit=limit)
        parts = [
            joined(select_pooled_part(federation, part, key=bytes(32), unit=unit), "features")
            for part in (Part.FIT, Part.HELD_OUT)
        ]
        assert sorted(np.concatenate(parts)[:, 0]) == list(range(ROWS))
        assert all(np.array_equal(part[:, 1] - part[:, 0], np.full(len(part), 0.5)) for part in parts)
        few, _ = limit_rows(federation.rows_of("a"), 5, SimulatedRandomness(1))
        assert joined(few, "features").shape == (5, 3)
        outcomes.append([part.tobytes() for part in (*parts, joined(few, "features"))])
    assert outcomes[0] == outcomes[1]


tables = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 4)),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    values=tables,
    kind=st.sampled_from(["arrays", "text", "arrow", "lists", "array"]),
    shift=st.integers(0, 3),
)
def test_any_finite_numbers_come_back(values: np.ndarray, kind: str, shift: int) -> None:
    width = values.shape[1]
    names = np.roll([f"c{i}" for i in range(width)], shift).tolist()
    columns = {f"c{i}": values[:, i] for i in range(width)}
    wanted, named = values[:, [int(name[1:]) for name in names]], ",".join(names)
    if kind in ("lists", "array"):
        wanted, named, columns = values, "x", {"x": values if kind == "array" else values.tolist()}
    elif kind == "text":
        columns = {name: [repr(float(value)) for value in column] for name, column in columns.items()}
    data = pa.table(columns) if kind == "arrow" else columns
    for limit in LIMITS.values():
        found = joined(load(data, columns={"features": named}, memory_limit=limit).pooled(), "features")
        assert np.array_equal(found, wanted)
    converted, bad = ROLES["features"].convert(pa.array(values.tolist()))
    assert np.array_equal(converted, values)
    assert not bad.any()


@pytest.mark.parametrize("sort", [False, True])
def test_rows_of_a_client_are_arranged_once(sort: bool) -> None:
    rng = np.random.default_rng(0)
    rows, clients = 50_000, 10
    site = rng.integers(0, clients, rows)
    data = {"s": np.sort(site) if sort else site, "a": rng.random(rows), "b": rng.random(rows)}
    federation = load(data, client="s", columns={"features": "a,b"})
    for name in federation.clients:
        first, again = (next(iter(federation.rows_of(name).batches()))["features"] for _ in range(2))
        mine = data["s"] == int(name)
        assert np.shares_memory(first, again)
        assert not first.flags.writeable
        assert np.array_equal(first, np.column_stack([data["a"][mine], data["b"][mine]]))


def test_small_clients_are_not_kept_and_stay_right() -> None:
    rng = np.random.default_rng(0)
    data = {"s": rng.integers(0, 50, 500), "a": rng.random(500)}
    federation = load(data, client="s", columns={"features": "a"})
    for name in federation.clients:
        first, again = (next(iter(federation.rows_of(name).batches()))["features"] for _ in range(2))
        assert not np.shares_memory(first, again)
        assert np.array_equal(first[:, 0], data["a"][data["s"] == int(name)])
