"""`fedassay calibrate --logits` as a user meets it: results, artefacts, words and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from scipy.special import softmax

import fedassay
from command_line import call, output_of, result_of
from multiclass_rows import drawn

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
    return result_of(capsys, "calibrate", path, *options, "--seed", 1)


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
    output_of(capsys, "apply", artefact, tmp_path / "new.npz", "--out", applied)
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
    out = output_of(capsys, "calibrate", data, *options, "--out", tmp_path / "c.json")
    words = " ".join(out.split())
    assert document["results"]["reason"].split(":")[0] in words
    assert "temperature" in words.lower()
    assert "c.json" in words


# --- what is wrong --------------------------------------------------------------------------------------


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


ROWS = " ".join(COLUMNS)
NOISE = f"{ROWS} --privacy server-dp --epsilon 4 --delta 1e-5"
NOT_EXACT = "under differential privacy, but exact sums carry no noise; expected"
BAD_USAGE = [
    ("--logits logit --label labels", "column 'logit' (logits): got no such column"),
    ("--logits logits --label label", "column 'label' (class): got no such column"),
    ("--logits logits --label labels --client site", "column 'site' (client): got no such column"),
    (
        f"{NOISE} --epsilon 0.1 --unit client --rows-per-client 100 --method vector --rounds 12",
        "epsilon: got 0.1 for 12 rounds",
    ),
    (f"{NOISE} --solver exact", f"solver: got exact for temperature {NOT_EXACT} one-shot"),
    (f"{NOISE} --solver exact --method vector", f"for vector {NOT_EXACT} fedavg, or the method temperature"),
    (f"{NOISE} --method isotonic", "it needs exact sums"),
    (f"{NOISE} --unit client", "give --rows-per-client"),
    (f"{ROWS} --rounds 3", "rounds: the method auto has no use for it; leave out --rounds"),
    (f"{ROWS} --method temperature --weighting all", "weighting: the method temperature has no use for it"),
    (f"{ROWS} --method bbq --negative-clip 3", "got it for bbq, but clients count rows as they are"),
    (f"{ROWS} --method vector --solver one-shot", "which is for noise that protects clients of more than 10"),
    (f"{ROWS} --method platt", "--method: got 'platt', expected auto, temperature"),
    ("--score p --label labels --method vector", "method: got 'vector'"),
    (f"{ROWS} --score p", "--score: got it together with --logits"),
    ("--label labels", "give --score"),
]


@pytest.mark.parametrize(("options", "words"), BAD_USAGE)
def test_bad_usage_is_one_sentence(capsys: Any, data: Path, tmp_path: Path, options: str, words: str) -> None:
    assert words in refused(capsys, data, tmp_path / "c.json", *options.split())


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
    out = output_of(capsys, "calibrate", path, *COLUMNS, "--method", "bbq", "--privacy", "plain")
    assert "No row is of class 2" in " ".join(out.split())
    private = calibrated(capsys, path, *COLUMNS, *PRIVATE)
    assert not any("class 2" in one.lower() for one in private["warnings"])
