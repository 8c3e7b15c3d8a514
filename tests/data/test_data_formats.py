"""Every form of the same rows gives the same federation, in memory and streamed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from data_forms import COLUMNS, FORMS, SITES, in_form, small, write

from fedassay.data.federation import Federation, load
from fedassay.data.names import RowNames
from fedassay.protocol.vocabulary import Rows

WITHOUT_FRAMES = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "polars"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from fedassay.data.federation import load

print(load({"y": [0, "1"]}, columns={"label": "y"}))
"""
LIMITS = {"in memory": 2**30, "streamed": 0}


def column(rows: Rows, name: str) -> list[float]:
    return [value for batch in rows.batches() for value in batch[name].tolist()]


def assert_same(federation: Federation, data: dict[str, Any]) -> None:
    names = sorted(set(data["site"].tolist()))
    assert list(federation.clients) == names
    assert federation.row_count == len(data["p"])
    for position, name in enumerate(names):
        mine = data["site"] == name
        rows = federation.rows_of(name)
        for _ in range(2):  # rows can be read again
            assert column(rows, "score") == data["p"][mine].tolist()
            assert column(rows, "label") == data["y"][mine].tolist()
        assert federation.rows_per_client[position] == mine.sum()
    pooled = federation.pooled()
    assert column(pooled, "score") == data["p"].tolist()
    assert [names[int(code)] for code in column(pooled.by_client, "client")] == data["site"].tolist()
    assert all(set(batch) == {"score", "label"} for batch in pooled.batches())


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", FORMS)
def test_rows_by_client_column(form: str, limit: str, tmp_path: Path) -> None:
    data = small()
    source = in_form(form, data, tmp_path)
    federation = load(source, client="site", columns=COLUMNS, memory_limit=LIMITS[limit])
    assert_same(federation, data)
    batch = next(federation.pooled().batches())
    assert batch["score"].dtype == np.float64
    assert batch["label"].dtype == np.int8
    assert federation.warnings == ()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", FORMS)
def test_each_row_its_own_client(form: str, limit: str, tmp_path: Path) -> None:
    data = small()
    federation = load(in_form(form, data, tmp_path), columns=COLUMNS, memory_limit=LIMITS[limit])
    assert isinstance(federation.clients, RowNames)
    assert federation.client_count == federation.row_count == 500
    for row in (0, 17, 499):
        assert column(federation.rows_of(str(row)), "score") == [data["p"][row]]
    assert column(federation.pooled().by_client, "client") == list(range(500))
    assert federation.rows_per_client.sum() == 500


@pytest.mark.parametrize("limit", LIMITS)
def test_a_folder_with_one_file_per_site(site_folder: Path, limit: str) -> None:
    data = small()
    federation = load(str(site_folder), columns=COLUMNS, memory_limit=LIMITS[limit])
    assert list(federation.clients) == SITES
    order = np.argsort(data["site"], kind="stable")
    assert column(federation.pooled(), "score") == data["p"][order].tolist()
    for site in SITES:
        assert column(federation.rows_of(site), "score") == data["p"][data["site"] == site].tolist()
    assert federation.warnings == ("1 of 4 clients has no rows ('é') and takes part with nothing to count.",)
    assert federation.rows_per_client[-1] == 0


@pytest.mark.parametrize("limit", LIMITS)
def test_a_folder_whose_files_name_the_client(site_folder: Path, limit: str) -> None:
    data = small()
    order = np.argsort(data["site"], kind="stable")
    ordered = {name: values[order] for name, values in data.items()}
    assert_same(load(site_folder, client="site", columns=COLUMNS, memory_limit=LIMITS[limit]), ordered)


@pytest.mark.parametrize(
    "name", ["zero.csv", "zero.parquet", "zero.npz", "header.csv", "header-no-newline.csv"]
)
def test_a_site_with_nothing_to_export_is_a_client_without_rows(site_folder: Path, name: str) -> None:
    content = {"header.csv": "p,y\n\n", "header-no-newline.csv": "p,y"}.get(name, "")
    (site_folder / name).write_text(content)
    federation = load(site_folder, columns=COLUMNS)
    assert Path(name).stem in federation.clients
    assert list(federation.rows_of(Path(name).stem).batches()) == []
    assert "2 of 5 clients have no rows" in federation.warnings[0]


def test_many_batches_and_row_groups_are_one_table(tmp_path: Path) -> None:
    data = small(300_000)
    parquet.write_table(pa.table(data), tmp_path / "rows.parquet", row_group_size=70_000)
    np.savez(tmp_path / "rows.npz", **data)
    write(tmp_path / "rows.csv", data)
    for source in (tmp_path / "rows.parquet", tmp_path / "rows.npz", tmp_path / "rows.csv", data):
        for limit in LIMITS.values():
            federation = load(source, client="site", columns=COLUMNS, memory_limit=limit)
            assert sum(1 for _ in federation.pooled().batches()) > 2
            for name in federation.clients:
                scores = np.concatenate([b["score"] for b in federation.rows_of(name).batches()])
                assert (scores == data["p"][data["site"] == name]).all()


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 1],
        [False, True, True],
        [0.0, 1.0, 1.0],
        ["0", "1", "1"],
        ["0.0", "1.0", " 1"],
        ["False", "TRUE", "true"],
        [0, "1", True],
        np.array([0, 1, 1], dtype=">i8"),
        np.array([0, 1, 1], dtype=np.float16),
        np.ma.array([0, 1, 1], mask=False),
        pa.array(["0", "1", "1"]).dictionary_encode(),
        pa.array(["0", "1", "1"], pa.string_view()),
        pa.chunked_array([[0], [1, 1]]),
    ],
    ids=str,
)
def test_spellings_of_a_label(labels: Any) -> None:
    federation = load({"y": labels}, columns={"label": "y"})
    assert column(federation.pooled(), "label") == [0, 1, 1]


@pytest.mark.parametrize(
    "scores",
    [
        [0.25, 1, 0],
        ["0.25", " 1 ", "+0e5"],
        np.array([0.25, 1, 0], dtype=np.float32),
        np.array([0.25, 1, 0], dtype=np.longdouble),
        np.array([0.25, 1, -0.0], dtype=">f8"),
        pa.array([0.25, 1, -0.0]),
    ],
    ids=str,
)
def test_spellings_of_a_score(scores: Any) -> None:
    federation = load({"p": scores}, columns={"score": "p"})
    (batch,) = federation.pooled().batches()
    assert batch["score"].tolist() == [0.25, 1.0, 0.0]
    assert not np.signbit(batch["score"]).any()  # bits are ordered like the numbers


@pytest.mark.parametrize(
    ("clients", "names"),
    [
        ([3, 10, 3], ["10", "3"]),
        (np.array([3.0, 10.0, 3.0]), ["10", "3"]),
        (["3", "10", "3"], ["10", "3"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
        (np.array([b"b", b"a", b"b"]), ["a", "b"]),
        (
            np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
            ["2020-01-01", "2020-01-02"],
        ),
        ([-0.0, 1.0, 0.0], ["0", "1"]),
    ],
    ids=str,
)
def test_spellings_of_a_client(clients: Any, names: list[str]) -> None:
    federation = load({"c": clients, "y": [0, 1, 1]}, client="c", columns={"label": "y"})
    assert list(federation.clients) == names
    assert column(federation.pooled().by_client, "client") in ([1, 0, 1], [0, 1, 0])
    assert federation.rows_per_client.sum() == 3


def test_unneeded_columns_may_be_anything(tmp_path: Path) -> None:
    data = {"p": [0.5], "y": [1], "junk": object(), "cube": np.zeros((2, 3, 4))}
    assert load(data, columns=COLUMNS).row_count == 1
    np.savez(
        tmp_path / "a.npz", p=[0.5, 0.1], y=[1, 0], cube=np.zeros((2, 3, 4)), x=np.array([{}], dtype=object)
    )
    assert load(tmp_path / "a.npz", columns=COLUMNS).row_count == 2


def test_suffixes_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "A.CSV").write_text("\ufeffp,y\r\n0.5,1\r\n", encoding="utf-8")
    assert load(tmp_path / "A.CSV", columns=COLUMNS).row_count == 1


def test_arrays_handed_out_are_read_only_and_arguments_unchanged() -> None:
    data = small()
    before = {name: values.copy() for name, values in data.items()}
    federation = load(data, client="site", columns=COLUMNS)
    for batch in federation.pooled().by_client.batches():
        for values in batch.values():
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 0
    assert all((data[name] == values).all() for name, values in before.items())


def test_a_million_clients_make_no_million_objects() -> None:
    federation = load({"y": np.zeros(10**6, dtype=np.int8)}, columns={"label": "y"})
    assert federation.client_count == 10**6
    assert federation.clients[10**6 - 1] == "999999"
    assert federation.clients[-1] in federation.clients
    assert list(federation.clients[5:7]) == ["5", "6"]
    assert federation.rows_per_client.strides == (0,)
    assert repr(federation) == "Federation(clients=1000000, rows=1000000)"


def test_neither_pandas_nor_polars_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FRAMES], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Federation(clients=2, rows=2)"
