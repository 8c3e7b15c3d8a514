"""Junk of any kind gives a federation or one of our two errors, and a check never raises."""

from __future__ import annotations

import datetime
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.wide import looks_like_probabilities
from fedassay.errors import DataError, UsageError

ROBUST = settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

good = st.one_of(st.sampled_from([0, 1, 0.0, 1.0, True, False, "0", "1"]), st.floats(0, 1))
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.complex_numbers(),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])),
    st.timedeltas(),
    st.decimals(allow_nan=True),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
    st.builds(object),
    st.just(np.float32(0.5)),
    st.just(np.datetime64("NaT")),
    st.just(pd.NaT),
    st.just(pd.NA),
    st.just(Decimal("0.5")),
    st.just("\ud800"),
)
cells = st.one_of(good, good, good, junk)


@st.composite
def column_lists(draw: st.DrawFn) -> dict[str, list[Any]]:
    length = draw(st.integers(0, 6))
    kind = st.sampled_from([good, cells, junk])
    return {name: draw(st.lists(draw(kind), min_size=length, max_size=length)) for name in ("c", "p", "y")}


def survive(data: Any) -> None:
    """Load and check, by row and by client, in memory and streamed."""
    for client in (None, "c"):
        outcomes = []
        for limit in (0, 2**30):
            try:
                federation = load(
                    data, client=client, columns={"score": "p", "label": "y"}, memory_limit=limit
                )
            except (DataError, UsageError) as problem:
                outcomes.append(str(problem))
                continue
            batches = list(federation.pooled().by_client.batches())
            assert all(((b["score"] >= 0) & (b["score"] <= 1)).all() for b in batches)
            assert all(np.isin(b["label"], (0, 1)).all() for b in batches)
            assert sum(len(b["client"]) for b in batches) == federation.row_count > 0
            for name in federation.clients:
                list(federation.rows_of(name).batches())
            outcomes.append(str(federation))
        assert outcomes[0] == outcomes[1]
        assert "\n" not in outcomes[0]
        report = check(data, client=client, columns={"score": "p", "label": "y"})
        assert report.ok == outcomes[0].startswith("Federation")
        json.dumps(report.to_dict(), allow_nan=False)


def form_of(kind: str, columns: dict[str, list[Any]]) -> Any:
    if kind == "objects":
        arrays = {}
        for name, values in columns.items():
            arrays[name] = np.empty(len(values), dtype=object)
            arrays[name][:] = values
        return arrays
    if kind == "pandas":
        return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    if kind == "polars":
        return pl.DataFrame([pl.Series(name, values, dtype=pl.Object) for name, values in columns.items()])
    return columns


@ROBUST
@given(columns=column_lists(), kind=st.sampled_from(["lists", "objects", "pandas", "polars"]))
def test_junk_in_frames(columns: dict[str, list[Any]], kind: str) -> None:
    survive(form_of(kind, columns))


@ROBUST
@given(data=st.data())
def test_junk_arrow_types(data: st.DataObject) -> None:
    kinds = [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.bool_()),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.null()),
        *(
            pa.date32(),
            pa.time64("us"),
            pa.timestamp("s", "UTC"),
            pa.duration("s"),
            pa.month_day_nano_interval(),
        ),
        *(
            pa.list_(pa.int8()),
            pa.list_(pa.float32(), 2),
            pa.struct([("a", pa.int8())]),
            pa.map_(pa.string(), pa.int8()),
        ),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.float64())),
        *(pa.run_end_encoded(pa.int32(), pa.float64()), pa.uuid(), pa.bool8(), pa.json_()),
    ]
    length = data.draw(st.integers(1, 4))
    columns = {}
    for name in ("c", "p", "y"):
        kind = data.draw(st.sampled_from(kinds))
        values = data.draw(st.lists(st.sampled_from([0, 1, None]), min_size=length, max_size=length))
        columns[name] = arrow_array(kind, values)
    survive(pa.table(columns))


def arrow_array(kind: Any, values: list[Any]) -> Any:
    """The values under this type where it can hold them, otherwise nulls of this type."""
    try:
        if pa.types.is_run_end_encoded(kind):
            return pa.RunEndEncodedArray.from_arrays(pa.array([len(values)], pa.int32()), pa.array([1.0]))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return pa.array([None if value is None else str(value) for value in values], kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.nulls(len(values), kind)


@ROBUST
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.text('pyc,"\n\r;01.5eNa\x00 é', max_size=60).map(lambda text: ("c,p,y\n" + text).encode()),
        st.lists(st.tuples(cells, cells, cells), max_size=5).map(
            lambda rows: ("c,p,y\n" + "\n".join(",".join(map(str, row)) for row in rows)).encode(
                "utf-8", "replace"
            )
        ),
    ),
    suffix=st.sampled_from(["csv", "csv", "parquet", "npz"]),
)
def test_junk_in_files(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(content)
        survive(path)
        survive(folder)


@ROBUST
@given(position=st.integers(0, 10**6), value=st.integers(0, 255), suffix=st.sampled_from(["parquet", "npz"]))
def test_one_damaged_byte(position: int, value: int, suffix: str) -> None:
    columns = {"c": np.array(["a", "b"] * 20), "p": np.linspace(0, 1, 40), "y": np.arange(40) % 2}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        if suffix == "npz":
            np.savez_compressed(path, **columns)
        else:
            pd.DataFrame(columns).to_parquet(path)
        content = bytearray(path.read_bytes())
        content[position % len(content)] = value
        path.write_bytes(content)
        survive(path)


lists = st.lists(st.one_of(st.floats(-9, 9), st.integers(-9, 9)), min_size=2, max_size=2)
rows_of_logits = st.one_of(lists, lists, lists, st.lists(cells, max_size=3), lists.map(np.array), cells)


def survive_logits(data: Any) -> None:
    """Load and check classes and logits, in memory and streamed."""
    columns = {"class": "y", "logits": "z"}
    outcomes, probabilities = [], False
    for limit in (0, 2**30):
        try:
            federation = load(data, columns=columns, memory_limit=limit)
        except (DataError, UsageError) as problem:
            outcomes.append(str(problem))
            continue
        batches = list(federation.pooled().batches())
        for batch in batches:
            assert batch["logits"].dtype == np.float64
            assert batch["logits"].shape[1] == batches[0]["logits"].shape[1] >= 2
            assert np.isfinite(batch["logits"]).all()
            assert ((batch["class"] >= 0) & (batch["class"] < batch["logits"].shape[1])).all()
        probabilities = looks_like_probabilities(np.concatenate([batch["logits"] for batch in batches]))
        outcomes.append(str(federation) + str([batch["logits"].tolist() for batch in batches]))
    assert outcomes[0] == outcomes[1]
    assert "\n" not in outcomes[0]
    report = check(data, columns=columns)
    assert report.ok == (outcomes[0].startswith("Federation") and not probabilities)
    json.dumps(report.to_dict(), allow_nan=False)


@ROBUST
@given(data=st.data(), kind=st.sampled_from(["lists", "objects", "pandas", "polars"]))
def test_junk_in_logits(data: st.DataObject, kind: str) -> None:
    length = data.draw(st.integers(0, 5))
    of = data.draw(st.sampled_from([lists, rows_of_logits, junk]))
    classes = data.draw(st.sampled_from([st.sampled_from([0, 1]), cells]))
    columns = {
        "y": data.draw(st.lists(classes, min_size=length, max_size=length)),
        "z": data.draw(st.lists(of, min_size=length, max_size=length)),
    }
    survive_logits(form_of(kind, columns))


@ROBUST
@given(data=st.data())
def test_junk_in_numbered_columns(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["z0", "z1", "z_0", "z_1", "z2", "z", "z_x"]), unique=True))
    length = data.draw(st.integers(1, 4))
    of = data.draw(st.sampled_from([st.floats(-9, 9), cells]))
    columns = {name: data.draw(st.lists(of, min_size=length, max_size=length)) for name in names}
    survive_logits({"y": [0] * length, **columns})


@ROBUST
@given(data=st.data())
def test_junk_arrow_lists(data: st.DataObject) -> None:
    inner = [pa.int8(), pa.float16(), pa.float64(), pa.string(), pa.bool_(), pa.null(), pa.decimal128(5, 2)]
    inner += [pa.list_(pa.int8()), pa.date32(), pa.dictionary(pa.int8(), pa.float64()), pa.binary()]
    wrap = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2)]
    kind = data.draw(st.sampled_from(wrap))(data.draw(st.sampled_from(inner)))
    entries = st.lists(st.sampled_from([0, 1, 1, 2, None]), min_size=2, max_size=2)
    rows = data.draw(st.lists(st.one_of(entries, entries, st.none()), min_size=1, max_size=4))
    survive_logits(pa.table({"y": [0] * len(rows), "z": arrow_array(kind, rows)}))


@ROBUST
@given(position=st.integers(0, 10**6), value=st.integers(0, 255), suffix=st.sampled_from(["parquet", "npz"]))
def test_one_damaged_byte_of_logits(position: int, value: int, suffix: str) -> None:
    z = np.linspace(-1, 1, 80).reshape(40, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        if suffix == "npz":
            np.savez_compressed(path, y=np.arange(40) % 2, z=np.asfortranarray(z) if position % 2 else z)
        else:
            pd.DataFrame({"y": np.arange(40) % 2, "z": list(z)}).to_parquet(path)
        content = bytearray(path.read_bytes())
        content[position % len(content)] = value
        path.write_bytes(content)
        survive_logits(path)
