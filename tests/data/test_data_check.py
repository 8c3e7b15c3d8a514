"""A check finds everything at once and describes what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_forms import COLUMNS, FORMS, in_form, small, write
from scipy.special import expit

from fedassay.data.check import CheckReport, check
from fedassay.data.findings import Severity
from fedassay.data.scan import Distinct
from fedassay.errors import UsageError


def said(report: CheckReport, severity: str) -> str:
    return "\n".join(finding.sentence() for finding in report.findings if finding.severity == severity)


@pytest.mark.parametrize("form", FORMS)
def test_a_good_file_in_every_form(form: str, tmp_path: Path) -> None:
    data = small()
    report = check(in_form(form, data, tmp_path), client="site", columns=COLUMNS)
    sizes = [int((data["site"] == site).sum()) for site in set(data["site"].tolist())]
    assert report.ok
    assert report.findings == ()
    assert report.profile == {
        "rows": 500,
        "clients": 3,
        "smallest_client": min(sizes),
        "median_client": sorted(sizes)[1],
        "largest_client": max(sizes),
        "prevalence": data["y"].mean(),
        "clients_without_positives": 0,
        "clients_without_negatives": 0,
        "distinct_scores": len(set(data["p"].tolist())) / 500,
        "scores_at_0": 0,
        "scores_at_1": 0,
        "scores_in_densest_bin": np.bincount((data["p"] * 1024).astype(int)).max() / 500,
    }


def test_everything_wrong_is_found_at_once() -> None:
    data = {"site": ["a", None, "b", ""], "p": [0.5, 7.0, "x", None], "y": [2, 1, 0, "no"]}
    report = check(data, client="site", columns=COLUMNS)
    errors = said(report, "error")
    assert not report.ok
    assert "(score): got 3 bad values in 4 rows, the first in row 1" in errors
    assert "(label): got 2 bad values in 4 rows, the first in row 0" in errors
    assert "(client): got 2 bad values in 4 rows, the first in row 1" in errors
    assert report.profile["rows"] == 4
    assert report.profile["prevalence"] == 0.5
    assert report.profile["clients"] == 2
    assert [finding.severity for finding in report.findings] == sorted(
        (finding.severity for finding in report.findings), key=list(Severity).index
    )


def test_the_other_columns_are_looked_at_when_one_is_missing() -> None:
    report = check({"site": ["a", "b"], "y": [0, 3]}, client="hospital", columns=COLUMNS)
    errors = said(report, "error")
    assert "column 'p' (score): got no such column, expected one of 'site', 'y'" in errors
    assert "column 'hospital' (client): got no such column" in errors
    assert "column 'y' (label): got 1 bad value" in errors
    assert report.profile == {"rows": 2, "prevalence": 0.0}


def test_every_file_of_a_folder_is_looked_at(site_folder: Path) -> None:
    write(site_folder / "B.parquet", {"p": [0.5, 7.0], "y": [1, 0]})
    (site_folder / "broken.npz").write_bytes(b"PK broken")
    write(site_folder / "other.csv", {"q": [0.5]})
    report = check(site_folder, columns=COLUMNS)
    assert "unreadable" in said(report, "error")
    (site_folder / "broken.npz").unlink()
    errors = said(check(site_folder, columns=COLUMNS), "error")
    assert "B.parquet, column 'p' (score): got 1 bad value in 2 rows" in errors
    assert "other.csv, column 'p' (score): got no such column, expected one of 'q'" in errors
    assert "other.csv, column 'y' (label): got no such column, expected one of 'q'" in errors


def test_a_file_that_breaks_off_is_read_as_far_as_possible(tmp_path: Path) -> None:
    rows = "0.5,1\n" * 800_000
    (tmp_path / "a.csv").write_text("p,y\n7,1\n" + rows + "0.5,1,3\n")
    report = check(tmp_path / "a.csv", columns=COLUMNS)
    errors = said(report, "error")
    assert "the first in row 0 (counting from 0): '7'" in errors
    assert "got a row with 3 columns under a header with 2" in errors
    assert report.profile["rows"] > 100_000


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ({"y": np.ones(300)}, "warning", ["only the label 1, expected both 0 and 1", "AUC"]),
        ({"y": np.zeros(300)}, "warning", ["only the label 0"]),
        ({"p": np.full(300, 0.25)}, "warning", ["one value in all rows", "constant score"]),
        (
            {"p": expit(np.linspace(-16, -12, 300))},
            "warning",
            ["100% of the scores in one of 1024", "--transform logit"],
        ),
        ({"p": (np.arange(300) % 2).astype(float)}, "warning", ["the label in every row"]),
        (
            {"p": np.where(np.arange(300) < 7, 1.0, np.linspace(0.01, 0.99, 300))},
            "note",
            ["7 scores of exactly 0 or 1"],
        ),
        ({"site": np.arange(300)}, "note", ["300 of 300 clients with one class only"]),
        ({"site": np.arange(300) % 2}, "warning", ["2 clients, expected at least 3", "--privacy plain"]),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_is_worth_knowing(change: dict[str, Any], severity: str, words: list[str]) -> None:
    data = {"site": np.arange(300) % 5, "p": np.linspace(0.01, 0.99, 300), "y": np.arange(300) % 2}
    report = check(data | change, client="site", columns=COLUMNS)
    assert report.ok
    for word in words:
        assert word in said(report, severity)
    plain = check(data, client="site", columns=COLUMNS)
    assert plain.findings == ()


def test_clients_without_rows_and_without_a_class(site_folder: Path) -> None:
    write(site_folder / "ones.csv", {"p": [0.5, 0.6], "y": [1, 1]})
    report = check(site_folder, columns=COLUMNS)
    assert report.ok
    assert "1 of 5 clients without rows ('é')" in said(report, "warning")
    assert report.profile["smallest_client"] == 0
    assert report.profile["clients_without_negatives"] == 1
    assert report.profile["clients_without_positives"] == 0


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("p,y,x,x\n0.5,1,0,0\n0.4,0,0,0\n0.3,0,0,0\n")
    report = check(tmp_path / "a.csv", columns=COLUMNS)
    assert report.ok
    assert "several columns called 'x'" in said(report, "warning")


def test_without_roles_the_rows_are_counted() -> None:
    report = check({"site": ["a", "b", "c"], "x": [1, 2, 3]}, columns={})
    assert report.ok
    assert "name the columns of the scores and the labels" in said(report, "note")
    assert report.profile == {"rows": 3, "clients": 3}
    assert check({"site": ["a", "b", "b"]}, client="site", columns={}).profile["largest_client"] == 2


def test_mistakes_in_the_call_are_raised() -> None:
    with pytest.raises(UsageError, match="column role: got 'skore'"):
        check({"p": [0.5]}, columns={"skore": "p"})


def test_the_report_is_json() -> None:
    report = check({"p": [0.5, None], "y": [1, 0]}, columns=COLUMNS)
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert document["ok"] is False
    assert set(document["findings"][0]) == {"severity", "what", "got", "expected", "fix"}
    assert document["profile"]["rows"] == 2


def test_distinct_values_are_exact_up_to_a_point_and_then_close() -> None:
    few, many = Distinct(), Distinct()
    values = np.random.default_rng(0).random(400_000)
    for part in np.split(values, 8):
        many.add(part)
        many.add(part)
        few.add(np.round(part, 3))
    assert few.count() == len(np.unique(np.round(values, 3)))
    # relative standard error 0.0055: five of them
    assert many.count() == pytest.approx(400_000, rel=0.028)
