"""`--by`, `--versus` and `--per-site` as a user meets them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from command_line import SCHEMA, output_of, refused

COLUMNS = ["--client", "site", "--score", "p", "--label", "y"]


def frame(rows: int = 3000, sites: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    score = rng.beta(2, 3, rows)
    return pd.DataFrame(
        {
            "site": [f"s{i}" for i in rng.integers(0, sites, rows)],
            "p": score,
            "q": np.clip(score + 0.1 * rng.normal(size=rows), 0, 1),
            "y": (rng.random(rows) < score**1.3).astype(int),
            "sex": rng.choice(["F", "M", "X"], rows),
        }
    )


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "scores.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("trust", ["plain", "secure-sum"])
def test_sites_in_the_document_on_the_terminal_and_on_the_page(
    capsys: Any, csv: Path, tmp_path: Path, trust: str
) -> None:
    target, report = tmp_path / "r.json", tmp_path / "r.html"
    out = output_of(
        capsys,
        *("evaluate", csv, *COLUMNS, "--per-site", "--by", "sex", "--privacy", trust),
        *("--json", target, "--report", report),
    )
    document = json.loads(target.read_text())
    jsonschema.validate(document, SCHEMA)
    page = report.read_text()
    for text in (out, page):
        assert "By group" in text
        assert "Between sites" in text
        assert ("By site" in text) == (trust == "plain")
    planted = "site" if trust == "plain" else "group"  # without single sites, groups are drawn
    for metric in ("ROC AUC", "Calibration slope", "Observed / expected"):
        assert page.count(f">{metric} by {planted}<") == 1
    assert page.count("Forest plot of") == 3
    assert "Warning: The groups were taken from the data" in out
    if trust == "plain":
        assert [site["site"] for site in document["results"]["sites"]] == [f"s{i}" for i in range(6)]
    else:
        assert document["results"]["sites"] is None
        assert "secure-sum shows no single site" in " ".join(page.split())


def test_a_second_model_on_the_terminal(capsys: Any, csv: Path) -> None:
    out = output_of(capsys, "evaluate", csv, *COLUMNS, "--versus", "q", "--privacy", "plain")
    assert "Against the second model" in out
    assert "difference, 95% interval" in " ".join(out.split())


BAD_USAGE = {
    "every row a site": (["--score", "p", "--label", "y", "--per-site"], "per-site: got no client column"),
    "sites under noise": (
        [*COLUMNS, "--per-site", "--privacy", "server-dp", "--epsilon", "1"],
        "per-site: under server-dp no estimate of a single site",
    ),
    "the score against itself": ([*COLUMNS, "--versus", "p"], "versus: got 'p', which is the score itself"),
    "the label as a model": ([*COLUMNS, "--versus", "y"], "got 'y' as label and as versus"),
    "groups without a column": ([*COLUMNS, "--group", "F"], "--group: got names without a column"),
    "a group twice": ([*COLUMNS, "--by", "sex", "--group", "F", "--group", "F"], "got 'F' twice"),
    "the group other": ([*COLUMNS, "--by", "sex", "--group", "other"], "leave it out"),
    "groups and a second model": (
        [*COLUMNS, "--by", "sex", "--versus", "q"],
        "--versus: got it together with --by, expected one",
    ),
    "no such group column": ([*COLUMNS, "--by", "age"], "column 'age' (group): got no such column"),
    "no such second model": ([*COLUMNS, "--versus", "r"], "column 'r' (versus): got no such column"),
    "too many groups": ([*COLUMNS, "--by", "p2"], "got more than 64 different values"),
    "missing groups": ([*COLUMNS, "--by", "gaps"], "column 'gaps' (group): got 2 bad values in 3000 rows"),
    "bad second scores": ([*COLUMNS, "--versus", "p2"], "column 'p2' (versus): got"),
}


@pytest.mark.parametrize("name", sorted(BAD_USAGE))
def test_bad_usage_gets_one_sentence_and_exit_code_2(capsys: Any, tmp_path: Path, name: str) -> None:
    options, sentence = BAD_USAGE[name]
    data = frame()
    path = tmp_path / "scores.csv"
    data.assign(p2=np.arange(len(data)), gaps=data.sex.where(~data.index.isin([7, 9]))).to_csv(
        path, index=False
    )
    err = refused(capsys, "evaluate", path, *options)
    assert sentence in err


def compared(capsys: Any, csv: Path, mode: str, *more: object) -> dict[str, Any]:
    options = ("--per-site", "--mode", mode, "--json", "-", "-q", *more)
    out = output_of(capsys, "evaluate", csv, *COLUMNS, *options)
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.parametrize("bound", [[], ["--rows-per-client", 600]], ids=["all rows", "bounded"])
def test_sites_compare_alike_in_both_modes(capsys: Any, csv: Path, bound: list[object]) -> None:
    """Also with a bound that no site reaches: what sites remember between rounds is kept for each of them."""
    faithful, aggregate = (compared(capsys, csv, mode, *bound) for mode in ("faithful", "aggregate"))
    assert faithful["results"]["heterogeneity"] == aggregate["results"]["heterogeneity"]
    assert faithful["results"]["heterogeneity"]["roc_auc"]["tau2"] is not None
    assert faithful["cohort"] == aggregate["cohort"]
    assert faithful["cohort"]["truncated"] == 0


def test_sites_that_leave_out_rows_do_so_in_both_modes(capsys: Any, csv: Path) -> None:
    """Other rows each time, as many of them, and so about the same AUC: within five of its standard errors."""
    faithful, aggregate = (
        compared(capsys, csv, mode, "--rows-per-client", 300, "--seed", 4)
        for mode in ("faithful", "aggregate")
    )
    assert faithful["cohort"]["truncated"] == aggregate["cohort"]["truncated"] == 3000 - 6 * 300
    both = [one["results"]["roc_auc"] for one in (faithful, aggregate)]
    error = max(one["error"]["sampling"] for one in both)
    assert 0 < abs(both[0]["value"] - both[1]["value"]) < 5 * error


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "compare.md"


def test_the_commands_of_the_page_work(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"site": "hospital", "p": "risk", "q": "old_risk", "y": "outcome"}
    data = frame().rename(columns=names)
    data.assign(new_risk=data.risk).to_parquet(tmp_path / "scores.parquet")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("fedassay evaluate scores.parquet")]
    assert len(commands) == 3
    for command in commands:
        out = output_of(capsys, *shlex.split(command)[1:])
        assert "ROC AUC" in out
    assert (tmp_path / "report.html").exists()
