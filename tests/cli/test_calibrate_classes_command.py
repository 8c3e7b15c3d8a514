"""`fedassay calibrate --logits` as a user meets it: results, artefacts, words and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from scipy.special import softmax

import fedassay
from command_line import call
from multiclass_rows import drawn

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
COLUMNS = ("--logits", "logits", "--label", "labels", "--client", "client")
UNIT_CLIENT = ("--unit", "client", "--rows-per-client", 100)
PRIVATE = ("--privacy", "server-dp", "--epsilon", 4, "--delta", 1e-5)
Table = dict[str, Any]


def rows(count: int = 900, classes: int = 4) -> Table:
    found = drawn(count, classes, seed=1)
    return {"logits": found["logits"], "labels": found["class"], "client": np.arange(count) % 12}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logits") / "rows.npz"
    np.savez(path, **rows())
    return path


def calibrated(capsys: Any, path: Path, *options: object) -> dict[str, Any]:
    code, out, err = call(capsys, "calibrate", path, *options, "--seed", 1, "--json", "-", "--quiet")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    return document


# --- results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "method", "solver"),
    [
        (("--privacy", "plain"), "isotonic", "counts"),
        ((), "isotonic", "counts"),
        (("--method", "temperature", "--privacy", "plain"), "temperature", "exact"),
        (("--method", "temperature", "--solver", "one-shot", "--privacy", "plain"), "temperature", "one-shot"),
        (("--method", "vector", "--solver", "fedavg", "--rounds", 2, "--privacy", "plain"), "vector", "fedavg"),
        (("--method", "bbq", "--weighting", "changed", "--height", 5, "--privacy", "plain"), "bbq", "counts"),
        (PRIVATE, "temperature", "one-shot"),
        ((*PRIVATE, *UNIT_CLIENT, "--method", "histogram", "--clipping", "separate"), "histogram", "counts"),
        (
            (*PRIVATE, *UNIT_CLIENT, "--solver", "fedavg", "--rounds", 2, "--participation", 0.5, "--clip", 1),
            "temperature",
            "fedavg",
        ),
    ],
)  # fmt: skip
def test_the_document(capsys: Any, data: Path, options: tuple[Any, ...], method: str, solver: str) -> None:
    document = calibrated(capsys, data, *COLUMNS, *options)
    results = document["results"]
    assert document["task"] == "calibrate"
    assert (results["method"], results["solver"]) == (method, solver)
    assert document["cohort"]["clients"] == 12
    given = dict(zip(options[::2], options[1::2], strict=True))
    for name in ("rounds", "participation", "clip", "weighting", "height", "clipping"):
        if f"--{name}" in given:
            assert results["parameters"][name] == given[f"--{name}"]
            assert document["parameters"][name] == given[f"--{name}"]
    assert document["parameters"]["logits"] == "logits"
    assert document["parameters"]["class"] == "labels"
    assert document["parameters"]["classes"] == 4
    assert document["parameters"]["holdout"] == 0.3


def test_the_same_seed_gives_the_same_results(capsys: Any, data: Path) -> None:
    one, again = (calibrated(capsys, data, *COLUMNS, *PRIVATE) for _ in range(2))
    assert one["results"] == again["results"]


def test_rows_can_be_dealt_to_simulated_clients(capsys: Any, data: Path) -> None:
    dealt = ("--logits", "logits", "--label", "labels", "--partition", "dirichlet:0.1", "--clients", 20)
    document = calibrated(capsys, data, *dealt, "--method", "temperature", "--privacy", "plain")
    assert document["cohort"]["clients"] == 20
    assert document["parameters"]["partition"] == "dirichlet:0.1"
    usual = calibrated(capsys, data, *COLUMNS, "--method", "temperature", "--privacy", "plain")
    # Other rows are held out, as the coins of rows depend on their clients; the temperature is about the same.
    ratio = document["results"]["temperature"]["value"] / usual["results"]["temperature"]["value"]
    assert 0.8 < ratio < 1.25


@pytest.mark.parametrize("method", ["temperature", "matrix", "bbq", "isotonic", "fedcal"])
def test_the_artefact_gives_calibrated_probabilities(
    capsys: Any, data: Path, tmp_path: Path, method: str
) -> None:
    artefact, applied = tmp_path / "calibrator.json", tmp_path / "applied.parquet"
    more = ("--rounds", 2) if method == "fedcal" else ()
    document = calibrated(
        capsys, data, *COLUMNS, "--method", method, *more, "--out", artefact, "--privacy", "plain"
    )
    made = fedassay.load_calibrator(artefact)
    assert isinstance(made, fedassay.ClassCalibrator)
    assert made.map.to_json() == document["results"]["calibrator"]
    assert made.recommended == document["results"]["recommended"]
    new = drawn(50, 4, seed=7)["logits"]
    np.savez(tmp_path / "new.npz", logits=new)
    code, _, err = call(capsys, "apply", artefact, tmp_path / "new.npz", "--out", applied)
    assert code == 0, err
    table = parquet.read_table(applied)
    wanted = made.predict_proba(new)
    assert table["probabilities"].to_pylist() == wanted.tolist()
    assert table["predicted_class"].to_pylist() == wanted.argmax(axis=1).tolist()
    assert np.abs(wanted - softmax(new, axis=1)).max() > 0.05


def test_quiet_and_loud(capsys: Any, data: Path, tmp_path: Path) -> None:
    options = (*COLUMNS, "--method", "temperature", "--privacy", "plain", "--seed", 1)
    target = tmp_path / "r.json"
    assert call(capsys, "calibrate", data, *options, "--quiet", "--json", target) == (0, "", "")
    document = json.loads(target.read_text())
    code, out, _ = call(capsys, "calibrate", data, *options, "--out", tmp_path / "c.json")
    assert code == 0
    words = " ".join(out.split())
    assert document["results"]["reason"].split(":")[0] in words
    assert "temperature" in words.lower()
    assert "c.json" in words


# --- what is wrong --------------------------------------------------------------------------------------


def changed(name: str, row: int, value: Any) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        column = table[name].astype(np.float64)
        column[row] = value
        return {**table, name: column}

    return change


NOBODY = {name: column[:0] for name, column in rows().items()}
BAD_ROWS: dict[str, tuple[Callable[[Table], Table], str]] = {
    "label too large": (
        changed("labels", 7, 4),
        "expected a whole number from 0 to 3 in every row, one of the 4 classes",
    ),
    "label below zero": (
        changed("labels", 7, -1),
        "column 'labels' (class): got 1 bad value in 900 rows, the first in row 7",
    ),
    "nan": (
        changed("logits", 7, [0, np.nan, 0, 0]),
        "(logits): got 1 row with a bad value in 900 rows, the first in row 7",
    ),
    "infinite": (
        changed("logits", 7, [0, 0, np.inf, 0]),
        "expected finite numbers in every row, one for each class",
    ),
    "probabilities": (
        lambda table: {**table, "logits": softmax(table["logits"], axis=1)},
        "probabilities by their looks, expected logits; give the logarithms of the probabilities",
    ),
    "no rows": (lambda table: NOBODY, "got no rows, expected at least one"),
}


def refused(capsys: Any, path: Path, out: Path, *options: object, code: int = 2) -> str:
    """The one sentence that is said; nothing is printed or written."""
    arguments = ("calibrate", path, *options, "--out", out, "--json", out.with_suffix(".result.json"))
    found, printed, said = call(capsys, *arguments)
    assert (found, printed) == (code, ""), said
    assert said.startswith("Error: ")
    assert len(said.strip().splitlines()) == 1
    assert said.strip().endswith((".", "?"))
    assert not out.exists()
    assert not out.with_suffix(".result.json").exists()
    return said


@pytest.mark.parametrize("terms", [(), PRIVATE], ids=["secure-sum", "server-dp"])
@pytest.mark.parametrize("problem", BAD_ROWS)
def test_bad_rows_are_one_sentence(capsys: Any, tmp_path: Path, problem: str, terms: tuple[Any, ...]) -> None:
    change, words = BAD_ROWS[problem]
    path = tmp_path / "rows.npz"
    np.savez(path, **change(rows()))
    assert words in refused(capsys, path, tmp_path / "c.json", *COLUMNS, *terms)


def test_rows_of_different_width_are_one_sentence(capsys: Any, tmp_path: Path) -> None:
    table = rows(90)
    lists = [*(list(row) for row in table["logits"][:-1]), [1.0, 2.0]]
    parquet.write_table(pa.table({**table, "logits": pa.array(lists)}), tmp_path / "a.parquet")
    said = refused(capsys, tmp_path / "a.parquet", tmp_path / "c.json", *COLUMNS)
    assert "got 1 row of another length in 90 rows, the first in row 89" in said
    sites = tmp_path / "sites"
    sites.mkdir()
    np.savez(sites / "a.npz", **table)
    np.savez(sites / "b.npz", **{**table, "logits": table["logits"][:, :3], "labels": table["labels"] % 3})
    said = refused(capsys, sites, tmp_path / "c.json", *COLUMNS[:4])
    assert "got 3 logits in a row, expected 4" in said


TINY = ("--privacy", "server-dp", "--epsilon", 0.1, "--delta", 1e-5, *UNIT_CLIENT)
NOT_EXACT = "under differential privacy, but exact sums carry no noise; expected"
BAD_USAGE: dict[str, tuple[tuple[Any, ...], str]] = {
    "no such column": (
        ("--logits", "logit", "--label", "labels"),
        "column 'logit' (logits): got no such column",
    ),
    "no such label": (
        ("--logits", "logits", "--label", "label"),
        "column 'label' (class): got no such column",
    ),
    "no such client": ((*COLUMNS[:4], "--client", "site"), "column 'site' (client): got no such column"),
    "too many rounds": (
        (*COLUMNS, *TINY, "--method", "vector", "--rounds", 12),
        "epsilon: got 0.1 for 12 rounds",
    ),
    "exact under noise": (
        (*COLUMNS, *PRIVATE, "--solver", "exact"),
        f"solver: got exact for temperature {NOT_EXACT} one-shot",
    ),
    "exact vector under noise": (
        (*COLUMNS, *PRIVATE, "--solver", "exact", "--method", "vector"),
        f"solver: got exact for vector {NOT_EXACT} fedavg, or the method temperature",
    ),
    "isotonic under noise": ((*COLUMNS, *PRIVATE, "--method", "isotonic"), "it needs exact sums"),
    "no bound on rows": ((*COLUMNS, *PRIVATE, "--unit", "client"), "give --rows-per-client"),
    "rounds of auto": (
        (*COLUMNS, "--rounds", 3),
        "rounds: the method auto has no use for it; leave out --rounds",
    ),
    "weights of a temperature": (
        (*COLUMNS, "--method", "temperature", "--weighting", "all"),
        "weighting: the method temperature has no use for it",
    ),
    "clips of counts": (
        (*COLUMNS, "--method", "bbq", "--negative-clip", 3),
        "negative-clip: got it for bbq, but clients count rows as they are",
    ),
    "one-shot vector": (
        (*COLUMNS, "--method", "vector", "--solver", "one-shot"),
        "solver: got one-shot for vector, which is for noise that protects clients of more than 10 rows",
    ),
    "a method of scores": (
        (*COLUMNS, "--method", "platt"),
        "--method: got 'platt', expected auto, temperature",
    ),
    "a method of logits": (
        ("--score", "p", "--label", "labels", "--method", "vector"),
        "method: got 'vector'",
    ),
    "scores too": ((*COLUMNS, "--score", "p"), "--score: got it together with --logits"),
    "neither": (("--label", "labels"), "give --score"),
}


@pytest.mark.parametrize("problem", BAD_USAGE)
def test_bad_usage_is_one_sentence(capsys: Any, data: Path, tmp_path: Path, problem: str) -> None:
    options, words = BAD_USAGE[problem]
    assert words in refused(capsys, data, tmp_path / "c.json", *options)


def test_too_few_clients_for_a_secure_sum(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, **{**rows(60), "client": np.arange(60) % 2})
    said = refused(capsys, path, tmp_path / "c.json", *COLUMNS, code=4)
    assert "got 2 clients, expected at least 3" in said


# --- what is worth a warning ----------------------------------------------------------------------------


def test_a_class_that_nobody_has_is_a_warning(capsys: Any, tmp_path: Path) -> None:
    table, path = rows(), tmp_path / "rows.npz"
    np.savez(path, **{**table, "labels": np.where(table["labels"] == 2, 1, table["labels"])})
    for method in ("temperature", "vector", "bbq", "isotonic"):
        document = calibrated(capsys, path, *COLUMNS, "--method", method, "--privacy", "plain")
        assert "No row is of class 2: what is said about it rests on no rows." in document["warnings"]
        assert document["results"]["classes"][2]["rows"] == 0
    code, out, _ = call(capsys, "calibrate", path, *COLUMNS, "--method", "bbq", "--privacy", "plain")
    assert code == 0
    assert "No row is of class 2" in " ".join(out.split())
    private = calibrated(capsys, path, *COLUMNS, *PRIVATE)
    assert not any("class 2" in one.lower() for one in private["warnings"])


def test_a_client_without_rows_is_a_warning(capsys: Any, tmp_path: Path) -> None:
    table = rows(120)
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", **table)
    np.savez(tmp_path / "d.npz", **{name: column[:0] for name, column in table.items()})
    document = calibrated(capsys, tmp_path, *COLUMNS[:4], "--method", "bbq")
    assert document["cohort"]["clients"] == 4
    assert any(one.startswith("1 of 4 clients") and "no rows ('d')" in one for one in document["warnings"])


def test_numbered_columns_of_a_table(capsys: Any, data: Path, tmp_path: Path) -> None:
    table = rows()
    frame = pd.DataFrame({"labels": table["labels"], "client": table["client"]})
    frame = frame.assign(**{f"logit_{k}": column for k, column in enumerate(table["logits"].T)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    options = (
        *("--label", "labels", "--client", "client", "--method", "order-preserving", "--privacy", "plain"),
    )
    found = calibrated(capsys, tmp_path / "rows.csv", "--logits", "logit", *options)
    assert found["results"] == calibrated(capsys, data, "--logits", "logits", *options)["results"]
