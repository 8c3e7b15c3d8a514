"""The command line as a user meets it: results, exit codes, one clear sentence, and nothing written on failure."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from command_line import SCHEMA, call, json_of, output_of, refused, result_of
from fedassay.artefacts import verified
from fedassay.cli.demo import hospitals
from fedassay.trust import TRUST_MODELS
from trust_terms import terms

COLUMNS = ["--client", "site", "--score", "p", "--label", "y"]


def frame(rows: int = 4000, sites: int = 6, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    score = rng.beta(2, 3, rows)
    return pd.DataFrame(
        {
            "site": [f"s{i}" for i in rng.integers(0, sites, rows)],
            "p": score,
            "y": (rng.random(rows) < score**1.3).astype(int),
        }
    )


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
def test_every_trust_model_gives_a_valid_document_in_aggregate(capsys: Any, csv: Path, trust: str) -> None:
    private = TRUST_MODELS[trust].private
    options = (*terms(trust, epsilon=1, rows_per_client=720), "--mode", "aggregate", "--seed", 1)
    document = result_of(capsys, "evaluate", csv, *COLUMNS, *options)
    data = frame()
    assert document["privacy"]["trust_model"] == trust
    assert document["privacy"]["simulated"] is True
    assert document["runtime"]["mode"] == "aggregate"
    assert document["cohort"]["clients"] == 6
    tolerance = 0.03 if private else 1e-5
    assert document["results"]["roc_auc"]["value"] == pytest.approx(
        roc_auc_score(data.y, data.p), abs=tolerance
    )
    assert (document["cohort"]["rows"] == len(data)) == (not private)


def test_the_default_is_a_secure_sum_in_two_legs(capsys: Any, csv: Path) -> None:
    document = result_of(capsys, "evaluate", csv, *COLUMNS)
    assert document["privacy"]["trust_model"] == "secure-sum"
    assert document["runtime"]["rounds"] == 2
    assert document["privacy"]["epsilon"] is None


def test_tables_are_printed_and_files_written(capsys: Any, csv: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "r.json", tmp_path / "r.html"
    options = ("--threshold", 0.3, "--threshold", 0.6, "--json", target, "--report", report)
    out = output_of(capsys, "evaluate", csv, *COLUMNS, *options)
    assert "ROC AUC" in out
    assert "Privacy" in out
    document = json.loads(target.read_text())
    assert [row["applied"] for row in document["results"]["thresholds"]] == [0.3, 0.6]
    page = report.read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_quiet_prints_nothing(capsys: Any, csv: Path) -> None:
    assert call(capsys, "evaluate", csv, *COLUMNS, "--quiet") == (0, "", "")


def test_a_seed_makes_a_simulation_repeatable(capsys: Any, csv: Path) -> None:
    def results(seed: int) -> Any:
        options = ("--privacy", "server-dp", "--epsilon", 1, "--seed", seed)
        return json_of(capsys, "evaluate", csv, *COLUMNS, *options)["results"]

    assert results(5) == results(5)
    assert results(5) != results(6)


def test_without_a_client_column_every_row_is_a_client(capsys: Any, csv: Path) -> None:
    document = json_of(capsys, "evaluate", csv, "--score", "p", "--label", "y")
    assert document["cohort"]["clients"] == 4000
    assert document["runtime"]["mode"] == "aggregate"


def test_unit_client_bounds_the_rows(capsys: Any, csv: Path) -> None:
    options = ("--privacy", "server-dp", "--epsilon", 5, "--unit", "client", "--rows-per-client", 100)
    document = json_of(capsys, "evaluate", csv, *COLUMNS, *options)
    assert document["cohort"]["truncated"] == 4000 - 600
    assert "client" in document["privacy"]["statement"]


BAD_USAGE = {
    "two servers see how many rows there are": (
        ["--privacy", "two-server", "--epsilon", "1"],
        "give --rows-per-client (clients",
    ),
    "unit client unbounded": (
        ["--privacy", "server-dp", "--epsilon", "1", "--unit", "client"],
        "--rows-per-client",
    ),
    "runtime": (["--runtime", "pigeon"], "expected in-process"),
}


@pytest.mark.parametrize("name", sorted(BAD_USAGE))
def test_bad_usage_gets_one_sentence_and_exit_code_2(capsys: Any, csv: Path, name: str) -> None:
    options, sentence = BAD_USAGE[name]
    before = set(csv.parent.iterdir())
    err = refused(capsys, "evaluate", csv, *COLUMNS, *options)
    assert sentence in err
    assert set(csv.parent.iterdir()) == before


BAD_DATA = {
    "NaN score": (lambda d: d.assign(p=d.p.where(d.index != 17)), ["17"]),
    "score above one": (lambda d: d.assign(p=d.p + (d.index == 5)), ["5"]),
    "labels of three kinds": (lambda d: d.assign(y=np.arange(300) % 3), ["2"]),
    "no rows": (lambda d: d.head(0), ["no rows", "empty"]),
}


@pytest.mark.parametrize("name", sorted(BAD_DATA))
def test_bad_data_get_one_sentence_and_exit_code_2(capsys: Any, tmp_path: Path, name: str) -> None:
    change, words = BAD_DATA[name]
    path, target = tmp_path / "bad.parquet", tmp_path / "out.json"
    change(frame(rows=300)).to_parquet(path)
    err = refused(capsys, "evaluate", path, *COLUMNS, "--json", target)
    assert any(word in err for word in words)
    assert not target.exists()


TWO_SITES = """
name = "two"
data = {path = "two.csv", client = "site", columns = {score = "p", label = "y"}}
expected = {rows = 200, clients = 2, prevalence = 0.3, auc = 0.8}
privacy = {privacy = "secure-sum"}
tasks.evaluate = {}
"""


def test_too_few_clients_end_with_the_same_exit_code_in_a_plan_and_in_a_run(
    capsys: Any, tmp_path: Path
) -> None:
    path, study = tmp_path / "two.csv", tmp_path / "study.toml"
    frame(rows=200, sites=2).to_csv(path, index=False)
    study.write_text(TWO_SITES)
    expected = ("--rows", 200, "--clients", 2, "--prevalence", 0.3, "--auc", 0.8)
    noisy = ("--privacy", "distributed-dp", "--epsilon", 1, "--delta", 1e-6)
    for command in (
        ("evaluate", path, *COLUMNS),
        ("evaluate", path, *COLUMNS, *noisy),
        ("conformal", path, *COLUMNS, "--level", 0.9),
        ("infer", path, "--client", "site", "--target", "y", "--features", "p", "--model", "logistic"),
        ("plan", "evaluate", *expected),
        ("plan", "evaluate", *expected, *noisy),
        ("plan", "study", study),
        ("run", study),
        ("init", path, "--yes", "--out", tmp_path / "other.toml"),
    ):
        code, _, err = call(capsys, *command)
        assert code == 4, command
        assert "got 2 clients, expected at least 3" in " ".join(err.split())


def test_one_class_only_gives_null_with_a_reason_and_the_rest(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "ones.csv"
    frame(rows=300).assign(y=1).to_csv(path, index=False)
    results = result_of(capsys, "evaluate", path, *COLUMNS)["results"]
    assert results["roc_auc"]["value"] is None
    assert results["roc_auc"]["reason"]
    assert results["recall"]["value"] is not None
    assert results["prevalence"]["value"] == 1


def test_all_scores_equal(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "equal.csv"
    frame(rows=300).assign(p=0.3).to_csv(path, index=False)
    assert json_of(capsys, "evaluate", path, *COLUMNS)["results"]["roc_auc"]["value"] == pytest.approx(0.5)


def test_a_client_without_rows_is_a_warning(capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for i in range(4):
        frame(rows=100, seed=i).to_csv(folder / f"site{i}.csv", index=False)
    frame(rows=100).head(0).to_csv(folder / "empty.csv", index=False)
    code, out, err = call(capsys, "evaluate", folder, "--score", "p", "--label", "y")
    assert code == 0
    assert "Warning" in out + err
    assert "empty" in out + err


def test_check_finds_everything_at_once(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    frame(300).assign(p=lambda d: d.p + (d.index == 5), y=np.arange(300) % 3).to_csv(path, index=False)
    code, out, err = call(capsys, "check", path, *COLUMNS)
    assert code == 2
    text = out + err
    assert "p" in text
    assert text.count("error") >= 2


def test_check_is_content_with_a_good_file(capsys: Any, csv: Path) -> None:
    out = output_of(capsys, "check", csv, *COLUMNS)
    assert "4,000" in out


def test_demo_runs_a_study_and_compares_trust_models(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over ten hospitals; with all forty, as the tutorial shows it, in the full tier."""
    monkeypatch.setattr("fedassay.cli.demo.hospitals", partial(hospitals, clients=10, patients=60_000))
    out_folder = tmp_path / "demo"
    out = output_of(capsys, "demo", "--out", out_folder)
    for name in set(TRUST_MODELS) - {"shuffle"}:
        assert name in out
        jsonschema.validate(json.loads((out_folder / f"{name}.json").read_text()), SCHEMA)
    assert (out_folder / "result.svg").exists()
    study = out_folder / "hospitals"
    document = json.loads((study / "result.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert list(document["results"]["tasks"]) == ["evaluate", "calibrate", "conformal"]
    assert document["results"]["verdict"]["needs_calibration"] is True
    assert document["results"]["budget"]["spent"] <= 1
    assert document["results"]["verdict"]["text"] in (study / "report.html").read_text()
    assert (study / "calibrator.json").exists()
    assert (study / "conformal.json").exists()
    assert verified.check(study, key=verified.ANY_KEY).holds
    assert f"Read this:   {(study / 'report.html').as_uri()}" in out.splitlines()


def test_version(capsys: Any) -> None:
    from fedassay import __version__

    assert call(capsys, "--version") == (0, f"fedassay {__version__}\n", "")
