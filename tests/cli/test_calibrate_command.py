"""`fedassay calibrate` and `fedassay apply` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import fedassay
from calibration_rows import crooked
from command_line import SCHEMA, call, json_of, output_of, refused, result_of
from fedassay.tasks.calibration import METHODS
from fedassay.trust import TRUST_MODELS
from pages import type_and_execute
from trust_terms import terms

COLUMNS = ["--client", "site", "--score", "p", "--label", "y"]
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "calibrate.md"


def frame(rows: int = 6000) -> pd.DataFrame:
    scores, labels = crooked(rows)
    sites = np.random.default_rng(1).integers(0, 6, rows)
    return pd.DataFrame({"site": [f"s{i}" for i in sites], "p": scores, "y": labels})


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
def test_every_trust_model_gives_a_valid_document_and_an_artefact_in_aggregate(
    capsys: Any, csv: Path, tmp_path: Path, trust: str
) -> None:
    out = tmp_path / "c.json"
    options = (*terms(trust, epsilon=5, rows_per_client=1080), "--mode", "aggregate", "--method", "platt")
    document = result_of(capsys, "calibrate", csv, *COLUMNS, *options, "--seed", 1, "--out", out)
    assert document["task"] == "calibrate"
    assert document["privacy"]["trust_model"] == trust
    results = document["results"]
    # The scores are 1.5 x + 0.4 on the logit scale, so the truth is a slope of 2/3 and an intercept of -0.27.
    assert results["parameters"]["slope"] == pytest.approx(2 / 3, abs=0.15)
    assert results["parameters"]["intercept"] == pytest.approx(-0.267, abs=0.15)
    assert results["difference"]["log_loss"]["value"] < 0
    assert fedassay.load_calibrator(out).map.to_json() == results["calibrator"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_from_rows_to_applied_rows(capsys: Any, csv: Path, tmp_path: Path, method: str) -> None:
    artefact, applied = tmp_path / "c.json", tmp_path / "out.parquet"
    out = output_of(capsys, "calibrate", csv, *COLUMNS, "--method", method, "--out", artefact, "--seed", 2)
    assert "Calibration by" in out
    assert "ecommended: on held-out rows" in " ".join(out.split())
    out = output_of(capsys, "apply", artefact, csv, "--out", applied)
    assert "6,000 rows" in " ".join(out.split())
    rows = pd.read_parquet(applied)
    assert rows.calibrated.to_numpy() == pytest.approx(fedassay.load_calibrator(artefact).predict(frame().p))
    labels = rows.y.astype(int)
    assert np.mean((rows.calibrated - labels) ** 2) < np.mean((rows.p - labels) ** 2)


@pytest.mark.parametrize("mode", ["faithful", "aggregate"])
def test_holdout_reaches_the_rows(capsys: Any, csv: Path, mode: str) -> None:
    for holdout in (0.1, 0.5):
        options = ("--holdout", holdout, "--mode", mode, "--seed", 3)
        histogram = json_of(capsys, "calibrate", csv, *COLUMNS, *options)["results"]["histogram"]
        assert histogram["rows"] == 6000
        assert histogram["held_out"]["rows"] == pytest.approx(6000 * holdout, abs=4 * np.sqrt(6000 * 0.25))


def test_a_seed_makes_it_repeatable_in_both_modes(capsys: Any, csv: Path) -> None:
    def results(mode: str, seed: int) -> Any:
        return json_of(capsys, "calibrate", csv, *COLUMNS, "--mode", mode, "--seed", seed)["results"]

    assert results("faithful", 1) == results("aggregate", 1)
    assert results("faithful", 1) != results("faithful", 2)


def test_unit_client_holds_out_whole_clients(capsys: Any, tmp_path: Path) -> None:
    data = frame(12_000)
    data["site"] = np.arange(12_000) // 40
    data.to_csv(tmp_path / "d.csv", index=False)
    terms = ("--privacy", "server-dp", "--epsilon", 20, "--unit", "client", "--rows-per-client", 40)
    options = (*COLUMNS, *terms, "--seed", 1, "--method", "platt")
    document = json_of(capsys, "calibrate", tmp_path / "d.csv", *options)
    held_out = document["results"]["histogram"]["held_out"]["rows"]
    assert held_out == pytest.approx(3600, abs=40 * 4 * np.sqrt(300 * 0.21) + 200)


def test_without_enough_rows_the_result_comes_the_artefact_does_not_and_the_exit_code_is_2(
    capsys: Any, tmp_path: Path
) -> None:
    path, out, report = tmp_path / "few.csv", tmp_path / "c.json", tmp_path / "r.html"
    frame(150).to_csv(path, index=False)
    options = ("--privacy", "server-dp", "--epsilon", 0.2, "--json", "-", "--seed", 1, "--report", report)
    code, text, err = call(capsys, "calibrate", path, *COLUMNS, *options, "--out", out)
    assert code == 2
    jsonschema.validate(json.loads(text), SCHEMA)
    assert json.loads(text)["results"]["calibrator"] is None
    assert "there is no calibrator: not enough evidence" in " ".join(err.split())
    assert not out.exists()
    assert "there is no calibrator" in report.read_text()
    output_of(capsys, "calibrate", path, *COLUMNS, *options)


BAD_USAGE = {
    "out into nowhere": (["--out", "no/such/c.json"], "folder does not exist"),
}


@pytest.mark.parametrize("name", sorted(BAD_USAGE))
def test_bad_usage_gets_one_sentence_and_exit_code_2(capsys: Any, csv: Path, name: str) -> None:
    options, sentence = BAD_USAGE[name]
    err = refused(capsys, "calibrate", csv, *COLUMNS, *options)
    assert sentence in err


def test_apply_refuses_with_one_sentence_and_exit_code_2(capsys: Any, csv: Path, tmp_path: Path) -> None:
    artefact, out = tmp_path / "c.json", tmp_path / "out.parquet"
    call(capsys, "calibrate", csv, *COLUMNS, "--out", artefact, "-q", "--seed", 1)
    for arguments, words in (
        ((tmp_path / "none.json", csv, "--out", out), "cannot be read"),
        ((csv, csv, "--out", out), "not JSON"),
        ((artefact, tmp_path / "none.csv", "--out", out), "does not exist"),
        ((artefact, csv, "--out", tmp_path / "out.txt"), "expected .parquet"),
        ((artefact, csv, "--out", out, "--score", "risk"), "'risk'"),
        ((artefact, csv, "--out", out, "--column", "y"), "already has a column 'y'"),
    ):
        err = refused(capsys, "apply", *arguments)
        assert words in err
        assert not out.exists()
    assert call(capsys, "apply", artefact, csv, "--out", out, "--quiet") == (0, "", "")
    err = refused(capsys, "apply", artefact, csv, "--out", out)
    assert "--force" in err
    assert call(capsys, "apply", artefact, csv, "--out", out, "--force")[0] == 0


def test_apply_warns_of_a_calibrator_that_is_not_recommended(capsys: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    data = pd.DataFrame({"site": np.arange(3000) % 4, "p": p, "y": (rng.random(3000) < p).astype(int)})
    data.to_csv(tmp_path / "d.csv", index=False)
    artefact = tmp_path / "c.json"
    call(capsys, "calibrate", tmp_path / "d.csv", *COLUMNS, "--out", artefact, "-q", "--seed", 1)
    out = output_of(capsys, "apply", artefact, tmp_path / "d.csv", "--out", tmp_path / "o.parquet")
    assert "Warning: Not recommended" in " ".join(out.split())


def test_the_how_to_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page runs, in order, on data of the names it uses; its Python too."""
    monkeypatch.chdir(tmp_path)
    data = frame(20_000).rename(columns={"site": "hospital", "p": "risk", "y": "outcome"})
    data.to_parquet("scores.parquet")
    data.drop(columns="outcome").to_csv("new.csv", index=False)
    type_and_execute(HOW_TO.read_text(encoding="utf-8"), least=3)
