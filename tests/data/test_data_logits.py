"""Logits in every form are one array of rows and classes, in memory and streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logits_forms import CLASSES, COLUMNS, FORMS, LIMITS, joined, small

from fedassay.data.federation import load
from fedassay.data.schema import ROLES
from fedassay.data.selection import limit_pooled, limit_rows, select_part, select_pooled_part
from fedassay.data.tables import BATCH_VALUES, batch_length
from fedassay.data.wide import looks_like_probabilities
from fedassay.errors import DataError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Part, Unit

KEY = bytes(range(32))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(form: str, limit: str, tmp_path: Path) -> None:
    data = small()
    federation = load(FORMS[form](data, tmp_path), client="site", columns=COLUMNS, memory_limit=LIMITS[limit])
    assert list(federation.clients) == ["a", "b", "c"]
    for name in federation.clients:
        mine = data["site"] == name
        for _ in range(2):
            assert np.array_equal(joined(federation.rows_of(name)), data["z"][mine])
            assert np.array_equal(joined(federation.rows_of(name), "class"), data["y"][mine])
    for rows in (federation.pooled(), federation.pooled().by_client):
        assert np.array_equal(joined(rows), data["z"])
        for batch in rows.batches():
            assert batch["logits"].dtype == np.float64
            assert batch["logits"].flags.c_contiguous
            assert batch["class"].dtype == np.int64


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", ["2-D array", "parquet list", "numbered, csv"])
def test_each_row_its_own_client(form: str, limit: str, tmp_path: Path) -> None:
    data = small()
    federation = load(FORMS[form](data, tmp_path), columns=COLUMNS, memory_limit=LIMITS[limit])
    assert federation.client_count == 300
    for row in (0, 150, 299):
        assert np.array_equal(joined(federation.rows_of(str(row))), data["z"][row : row + 1])


@pytest.mark.parametrize("limit", LIMITS)
def test_a_folder_of_forms(limit: str, tmp_path: Path) -> None:
    data = small()
    sites = {}
    for name, form in (("a", "parquet list"), ("b", "npz in Fortran order"), ("c", "numbered, csv")):
        (tmp_path / name).mkdir()
        sites[name] = {key: values[data["site"] == name] for key, values in data.items()}
        path = FORMS[form](sites[name], tmp_path / name)
        (tmp_path / "sites").mkdir(exist_ok=True)
        path.rename(tmp_path / "sites" / f"{name}{path.suffix}")
    (tmp_path / "sites" / "d.csv").touch()
    (tmp_path / "sites" / "e.csv").write_text("y,z_0\n")
    with pytest.raises(DataError, match="e.csv, columns 'z' .logits.: got 'z_0' alone"):
        load(tmp_path / "sites", columns=COLUMNS, memory_limit=LIMITS[limit])
    (tmp_path / "sites" / "e.csv").write_text("y,z_0,z_1\n")  # no rows, so no width
    federation = load(tmp_path / "sites", columns=COLUMNS, memory_limit=LIMITS[limit])
    assert list(federation.clients) == ["a", "b", "c", "d", "e"]
    for name, site in sites.items():
        assert np.array_equal(joined(federation.rows_of(name)), site["z"])
    assert list(federation.rows_of("e").batches()) == []


def test_a_site_without_rows_may_answer() -> None:
    federation = load(
        {"y": [], "z": np.zeros((0, 3))}, columns=COLUMNS, empty_is_fine=True, client=None, memory_limit=2**20
    )
    assert federation.row_count == 0
    assert list(federation.pooled().batches()) == []


@pytest.mark.parametrize("unit", Unit)
def test_parts_and_bounds_take_whole_rows(unit: Unit) -> None:
    data = small()
    marked = {**data, "z": np.arange(300.0)[:, None] + np.arange(CLASSES) / 64}
    outcomes = []
    for limit in LIMITS.values():
        federation = load(marked, client="site", columns=COLUMNS, memory_limit=limit)
        fit, held = (
            joined(select_pooled_part(federation, part, key=KEY, unit=unit))
            for part in (Part.FIT, Part.HELD_OUT)
        )
        assert sorted([*fit[:, 0], *held[:, 0]]) == list(range(300))
        assert np.array_equal(held - held[:, :1], np.broadcast_to(marked["z"][0], held.shape))
        mine = [
            select_part(federation.rows_of(c), Part.HELD_OUT, key=KEY, unit=unit, client=c) for c in "abc"
        ]
        parts = [batch["logits"] for rows in mine for batch in rows.batches()]
        assert sorted(np.concatenate(parts)[:, 0]) == sorted(held[:, 0])
        pooled, left_out = limit_pooled(federation.pooled(), 10, SimulatedRandomness(1))
        assert joined(pooled).shape == (30, CLASSES)
        one, gone = limit_rows(federation.rows_of("a"), 10, SimulatedRandomness(1))
        assert joined(one).shape == (10, CLASSES)
        assert (left_out, gone) == (270, int((data["site"] == "a").sum()) - 10)
        for rows in (pooled, one):
            assert all(batch["logits"].flags.c_contiguous for batch in rows.batches())
        outcomes.append((held.tobytes(), joined(pooled).tobytes(), joined(one).tobytes()))
    assert outcomes[0] == outcomes[1]


def test_the_split_is_that_of_any_other_column() -> None:
    data = small()
    plain = load({**data, "p": np.arange(300) / 300}, client="site", columns={"score": "p"})
    wide = load(
        {**data, "z": np.arange(300)[:, None] / 300 + np.zeros((300, 2)), "y": data["y"] % 2},
        client="site",
        columns=COLUMNS,
    )
    for unit in Unit:
        parts = [select_pooled_part(one, Part.FIT, key=KEY, unit=unit) for one in (plain, wide)]
        assert np.array_equal(joined(parts[0], "score"), joined(parts[1])[:, 0])


@pytest.mark.parametrize("form", ["2-D array", "parquet list", "npz", "numbered, parquet"])
def test_many_classes_come_in_small_batches(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = {"site": np.repeat("a", 3000), "y": np.zeros(3000, int), "z": rng.normal(size=(3000, 1500))}
    if form.startswith("numbered"):
        data["z"] = data["z"][:, :999]
    source = FORMS[form](data, tmp_path)
    for limit in LIMITS.values():
        federation = load(source, client="site", columns=COLUMNS, memory_limit=limit)
        sizes = [batch["logits"].size for batch in federation.pooled().batches()]
        assert sum(sizes) == data["z"].size
        assert max(sizes) <= BATCH_VALUES
        assert np.array_equal(joined(federation.rows_of("a")), data["z"])


def test_arguments_are_not_changed_and_what_is_kept_is_read_only() -> None:
    data = small()
    before = data["z"].copy()
    federation = load(data, client="site", columns=COLUMNS)
    data["z"][:] = 0
    assert np.array_equal(joined(federation.pooled()), before)
    for batch in federation.pooled().batches():
        with pytest.raises(ValueError, match="read-only"):
            batch["logits"][0] = 0


@pytest.mark.parametrize(
    ("rows", "probabilities"),
    [
        ([[0.25, 0.75], [1.0, 0.0]], True),
        ([[0.25, 0.7505], [0.5, 0.4995]], True),
        ([[0.25, 0.75], [0.5, 0.502]], False),
        ([[1.5, -0.5]], False),
        ([[0.25, 0.75], [2.0, 3.0]], False),
    ],
    ids=str,
)
def test_what_looks_like_probabilities(rows: Any, probabilities: bool) -> None:
    assert looks_like_probabilities(np.array(rows)) is probabilities
    assert looks_like_probabilities(np.empty((0, 2))) is False


def reference(column: list[Any]) -> tuple[list[list[float]] | None, bool]:
    """Rows read one by one: the array, or None, and whether there is anything wrong."""
    lists = [row for row in column if row is not None]
    width = len(lists[0]) if lists else 0
    good = [
        row is not None and len(row) == width and all(x is not None and np.isfinite(x) for x in row)
        for row in column
    ]
    return (column, False) if all(good) and width >= 2 else (None, True)


numbers = st.one_of(st.floats(-5, 5), st.floats(-5, 5), st.sampled_from([None, np.nan, np.inf]))
some_rows = st.one_of(
    st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=2), min_size=1, max_size=6),
    st.lists(st.one_of(st.none(), st.lists(numbers, min_size=1, max_size=3)), min_size=1, max_size=6),
)
KINDS = [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_view(pa.float64()), None]


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(rows=some_rows, kind=st.sampled_from(KINDS), cut=st.integers(0, 3))
def test_any_lists_against_reading_row_by_row(rows: list[Any], kind: Any, cut: int) -> None:
    column = (
        rows
        if kind is None
        else pa.concat_arrays([pa.array([[1.0]] * cut, kind), pa.array(rows, kind)])[cut:]
    )
    expected, wrong = reference(rows)
    data = {"z": column}
    for limit in LIMITS.values():
        try:
            federation = load(data, columns={"logits": "z"}, memory_limit=limit)
        except DataError:
            assert wrong
            continue
        assert not wrong
        assert joined(federation.pooled()).tolist() == expected
        assert sum(batch_length(batch) for batch in federation.pooled().batches()) == len(rows)
    values, bad = ROLES["logits"].convert(pa.array(rows) if kind is None else column)
    assert bad.any() == wrong
    assert values.shape[0] == len(rows)
