"""`fedassay ecdf`, `quantiles` and `hosmer-lemeshow` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import fedassay
from command_line import call, output_of, refused, result_of
from fedassay.trust import TRUST_MODELS
from pages import type_and_execute
from trust_terms import terms

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "distributions.md"
COLUMNS = ["--client", "site", "--value", "age"]
RANGE = ["--lower", "0", "--upper", "128", "--points", "64"]
SCORES = ["--client", "site", "--score", "p", "--label", "y"]


def frame(rows: int = 1500, sites: int = 5, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < 0.4).astype(int)
    p = rng.beta(2, 3, rows)
    return pd.DataFrame(
        {
            "site": np.arange(rows) % sites,
            "age": np.clip(rng.normal(55 + 15 * y, 14), 1, 120),
            "y": y,
            "p": p,
            "outcome": (rng.random(rows) < p).astype(int),
        }
    )


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    frame().to_csv(path, index=False)
    return path


def results_of(capsys: Any, *arguments: object) -> dict[str, Any]:
    return result_of(capsys, *arguments, "--seed", 1)


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
def test_every_trust_model_gives_the_curve_and_a_valid_document_in_aggregate(
    capsys: Any, csv: Path, trust: str
) -> None:
    options = terms(trust, epsilon=2, rows_per_client=300)
    document = results_of(
        capsys,
        "ecdf",
        csv,
        *COLUMNS,
        *RANGE,
        *options,
        "--mode",
        "aggregate",
        "--quantile",
        0.5,
        "--quantile",
        0.9,
    )
    assert document["task"] == "ecdf"
    assert document["privacy"]["trust_model"] == trust
    assert document["runtime"]["mode"] == "aggregate"
    assert document["parameters"]["value"] == "age"
    ages, results = frame().age.to_numpy(), document["results"]
    truth = np.array([(ages <= point).mean() for point in results["points"]])
    assert len(results["points"]) == 64
    # Every curve is within its band; without noise it is the curve itself.
    assert (np.array(results["lower"]) <= truth + 1e-12).all()
    assert (truth <= np.array(results["upper"]) + 1e-12).all()
    if not TRUST_MODELS[trust].private:
        assert np.array(results["values"]) == pytest.approx(truth)
        assert document["cohort"]["rows"] == len(ages)
        median = np.quantile(ages, 0.5, method="inverted_cdf")
        assert results["quantiles"][0]["value"] == np.ceil(median / 2) * 2  # the next point
    for entry in results["quantiles"]:
        low, high = entry["interval"]
        assert low <= entry["value"] <= high
        assert low <= np.quantile(ages, entry["quantile"], method="inverted_cdf") <= high


def test_labels_give_the_roc_curve_and_its_area_from_the_same_release(capsys: Any, csv: Path) -> None:
    results = results_of(capsys, "ecdf", csv, *COLUMNS, *RANGE, "--label", "y", "--points", 1024)["results"]
    data = frame()
    assert results["roc_auc"]["value"] == pytest.approx(roc_auc_score(data.y, data.age), abs=2e-3)
    for name, label in (("positives", 1), ("negatives", 0)):
        ages = data.age[data.y == label].to_numpy()
        truth = [(ages <= point).mean() for point in results["points"]]
        assert results[name]["values"] == pytest.approx(truth)
        assert results[name]["rows"]["value"] == len(ages)


def test_public_labels_need_less_noise_where_rows_are_replaced(capsys: Any, csv: Path) -> None:
    options = [
        *("--label", "y", "--neighbours", "replace-one", "--privacy", "server-dp", "--epsilon", 1),
        *("--mechanism", "path"),
    ]
    secret = results_of(capsys, "ecdf", csv, *COLUMNS, *RANGE, *options)["results"]
    public = results_of(capsys, "ecdf", csv, *COLUMNS, *RANGE, *options, "--public-labels")["results"]
    # 64 points: a row moves 2·⌈7/2⌉ nodes, or 6 if it stays in its class.
    assert public["noise"]["scale"] == pytest.approx(secret["noise"]["scale"] * 6 / 8)


@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
@pytest.mark.parametrize("smoothing", ["none", "isotonic", "l1", "l2"])
def test_mechanism_and_smoothing_are_what_was_asked_for(
    capsys: Any, csv: Path, mechanism: str, smoothing: str
) -> None:
    options = ["--privacy", "server-dp", "--epsilon", 1, "--mechanism", mechanism, "--smoothing", smoothing]
    results = results_of(capsys, "ecdf", csv, *COLUMNS, *RANGE, *options)["results"]
    assert (results["mechanism"], results["smoothing"]) == (mechanism, smoothing)
    rising = (np.diff(results["values"]) >= -1e-12).all()
    assert rising == (smoothing != "none")


GRIDS = {
    "uniform": (["--grid", "uniform", *RANGE], np.arange(1, 65) * 2.0),
    "logarithmic": (
        ["--grid", "logarithmic", "--lower", 1, "--upper", 256, "--points", 8],
        2.0 ** np.arange(1, 9),
    ),
    "given": (["--grid", "18, 40,65"], [18, 40, 65]),
}


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_the_points_are_those_of_the_grid(capsys: Any, csv: Path, name: str) -> None:
    options, points = GRIDS[name]
    results = results_of(capsys, "ecdf", csv, *COLUMNS, *options)["results"]
    assert results["points"] == pytest.approx(points)
    assert results["grid"]["spacing"] == name


def test_a_grid_at_quantiles_is_dense_where_the_rows_are(capsys: Any, csv: Path) -> None:
    options = ["--grid", "quantile", *RANGE, "--privacy", "server-dp", "--epsilon", 4]
    results = results_of(capsys, "ecdf", csv, *COLUMNS, *options)["results"]
    steps = np.diff([0.0, *results["values"], 1.0])
    assert steps.max() < 0.06  # of evenly spaced points the largest is 0.06 and more
    assert results["grid"]["first_look"]["share"] > 0
    assert any("first look" in note for note in results["notes"])


def test_values_outside_the_range_are_counted_at_its_ends_and_reported(capsys: Any, csv: Path) -> None:
    ages = frame().age
    outside = int(((ages < 40) | (ages > 80)).sum())
    out = output_of(capsys, "ecdf", csv, *COLUMNS, "--lower", 40, "--upper", 80, "--points", 16)
    said = " ".join(out.split())
    assert f"Warning: {outside} of 1,500 values lie outside the range and are counted at its ends" in said
    document = results_of(capsys, "ecdf", csv, *COLUMNS, "--lower", 40, "--upper", 80, "--points", 16)
    assert document["results"]["values"][-1] == 1.0
    assert document["results"]["values"][0] == pytest.approx((ages <= 42.5).mean())
    assert len(document["warnings"]) == 1
    inside = results_of(capsys, "ecdf", csv, *COLUMNS, *RANGE)
    assert inside["warnings"] == []
    given = results_of(capsys, "ecdf", csv, *COLUMNS, "--grid", "40,80")
    assert given["warnings"] == []  # nothing is moved: what is above has a leaf of its own


def test_some_of_the_points_can_be_smoothed_and_shown(capsys: Any, csv: Path) -> None:
    arguments = ("ecdf", csv, *COLUMNS, *RANGE, *SERVER, 1, "--smoothing", "l2")
    some = results_of(capsys, *arguments, "--smoothed-points", 8)["results"]
    assert len(some["points"]) == len(some["values"]) == 8
    assert some["values"] == sorted(some["values"])
    assert len(results_of(capsys, *arguments)["results"]["points"]) > 8


def test_points_are_rounded_up_and_it_is_said(capsys: Any, csv: Path) -> None:
    out = output_of(capsys, "ecdf", csv, *COLUMNS, "--lower", 0, "--upper", 128, "--points", 50)
    assert "50 was rounded up to 64" in " ".join(out.split())


def test_tables_are_printed_and_files_written(capsys: Any, csv: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "r.json", tmp_path / "r.html"
    out = output_of(
        capsys, "ecdf", csv, *COLUMNS, *RANGE, "--quantile", 0.25, "--json", target, "--report", report
    )
    for words in (
        "Quantiles of age",
        "Distribution of age",
        "share of rows",
        "Privacy",
        f"Written: {target}",
    ):
        assert words in out
    results = json.loads(target.read_text())["results"]
    page = report.read_text()
    assert "<title>Distribution function - fedassay</title>" in page
    assert page.count("<svg") == 1
    assert "https://" not in page
    # What was not asked before can be asked later, for nothing.
    assert fedassay.quantile_at(results, 0.25) == results["quantiles"][0]
    assert fedassay.value_at(results, 64.0)["value"] == pytest.approx((frame().age <= 64).mean())
    assert call(capsys, "ecdf", csv, *COLUMNS, *RANGE, "--quiet") == (0, "", "")


SERVER = ["--privacy", "server-dp", "--epsilon"]
SPAN = " ".join(RANGE)
NOISE = f"{SPAN} --privacy server-dp"
UPSIDE_DOWN = ("--lower 5 --upper 5", "range: got 5 to 5, expected a lower end below")
TOO_PRECISE = (
    f"{NOISE} --epsilon 0.1 --precision 0.01 --expected-rows 1500",
    "noise alone makes the band",
)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        UPSIDE_DOWN,
        TOO_PRECISE,
        ("--lower 5 --upper 9 --grid 6,7", "--lower: got it together with the points of --grid"),
        ("--lower 0 --upper inf", "--upper: got inf, expected a number"),
        (f"{SPAN} --grid logarithmic", "expected one above 0 for a logarithmic grid"),
        ("--grid 1,3,3", "must be finite and increasing"),
        (f"{NOISE} --epsilon 1 --label y --public-labels", "takes its label with it"),
        ("--grid 18,40,65 --points 8", "together with the points of --grid"),
        (f"{SPAN} --public-labels", "rows have no labels"),
        (f"{SPAN} --label age", "expected two different columns"),
        (f"{NOISE} --epsilon 1 --precision 0.1", "give how many you expect (--expected-rows)"),
        (f"{NOISE} --epsilon 1e-4 --expected-rows 1500", "else the band says nothing"),
    ],
)
def test_bad_usage_gets_one_sentence_and_exit_code_2(
    capsys: Any, csv: Path, options: str, sentence: str
) -> None:
    before = set(csv.parent.iterdir())
    assert sentence in refused(capsys, "ecdf", csv, *COLUMNS, *options.split())
    assert set(csv.parent.iterdir()) == before


@pytest.mark.parametrize(("options", "sentence"), [UPSIDE_DOWN, TOO_PRECISE])
def test_what_needs_no_data_is_refused_before_they_are_opened(
    capsys: Any, tmp_path: Path, options: str, sentence: str
) -> None:
    assert sentence in refused(capsys, "ecdf", tmp_path / "none.csv", *COLUMNS, *options.split())


BAD_DATA = {
    "NaN": lambda d: d.assign(age=d.age.where(d.index != 17)),
    "infinite": lambda d: d.assign(age=d.age.where(d.index != 17, np.inf)),
    "text": lambda d: d.assign(age=d.age.astype(str).where(d.index != 17, "old")),
}


@pytest.mark.parametrize("name", sorted(BAD_DATA))
def test_bad_values_name_their_row_and_end_with_exit_code_2(capsys: Any, tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "bad.parquet", tmp_path / "out.json"
    BAD_DATA[name](frame(300)).to_parquet(path)
    err = refused(capsys, "ecdf", path, *COLUMNS, *RANGE, "--json", target)
    assert "got 1 bad value in 300 rows, the first in row 17" in err
    assert "expected a finite number in every row" in err
    assert not target.exists()


def test_one_row_one_value_and_a_site_without_rows(capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, rows in (("a", 1), ("b", 4), ("c", 0)):
        pd.DataFrame({"age": [50.0] * rows}).to_csv(folder / f"{name}.csv", index=False)
    document = results_of(capsys, "ecdf", folder, "--value", "age", *RANGE, "--quantile", 0.5)
    assert document["cohort"]["rows"] == 5
    assert document["results"]["quantiles"][0]["value"] == 50.0
    assert any("no rows" in warning for warning in document["warnings"])


def test_more_noise_than_rows_says_so_instead_of_drawing_a_curve(capsys: Any, tmp_path: Path) -> None:
    path, report = tmp_path / "few.csv", tmp_path / "r.html"
    frame(40).to_csv(path, index=False)
    options = [*SERVER, 0.01, "--quantile", 0.5]
    document = results_of(capsys, "ecdf", path, *COLUMNS, *RANGE, *options, "--report", report)
    results = document["results"]
    assert results["values"] == []
    assert "not enough evidence" in results["reason"]
    assert results["quantiles"][0]["value"] is None
    assert "not enough evidence" in report.read_text()


# --- quantiles by search --------------------------------------------------------------------------------


def test_quantiles_are_searched_by_two_servers(capsys: Any, csv: Path) -> None:
    options = ["--privacy", "two-server", "--epsilon", 20, "--neighbours", "replace-one", "--points", 256]
    document = results_of(
        capsys, "quantiles", csv, *COLUMNS, "--lower", 0, "--upper", 128, "--quantile", 0.5, *options
    )
    (entry,) = document["results"]["quantiles"]
    low, high = entry["interval"]
    assert low <= frame().age.median() <= high
    assert document["results"]["evaluations"] < 64  # of 256


def test_other_trust_models_refuse_a_search_and_say_what_to_do(capsys: Any, csv: Path) -> None:
    err = refused(
        capsys,
        "quantiles",
        csv,
        *COLUMNS,
        "--lower",
        0,
        "--upper",
        128,
        "--quantile",
        0.5,
        "--privacy",
        "secure-sum",
    )
    assert "secure-sum keeps nothing of what clients send" in err
    assert "use --privacy two-server, or ecdf" in err


# --- Hosmer-Lemeshow ------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["shuffle", "two-server"])
@pytest.mark.parametrize("method", ["free", "corrected", "published"])
def test_the_test_runs_wherever_its_queries_do(capsys: Any, csv: Path, trust: str, method: str) -> None:
    options = terms(trust, epsilon=4, rows_per_client=300)
    columns = ["--client", "site", "--score", "p", "--label", "outcome", "--groups", 5]
    arguments = ["hosmer-lemeshow", csv, *columns, "--method", method, *options]
    if trust == "two-server" and method != "free":
        err = refused(capsys, *arguments)
        assert "use server-dp or distributed-dp" in err
        return
    document = results_of(capsys, *arguments)
    test = document["results"]["hosmer_lemeshow"]
    assert test["method"] == method
    assert document["parameters"]["groups"] == 5
    if test["value"] is not None and test["p_value"] is not None:
        assert 0 <= test["p_value"] <= 1
        assert 1 <= len(test["groups"]) <= 5


def test_right_and_wrong_probabilities_are_told_apart(capsys: Any, csv: Path) -> None:
    right = ["--client", "site", "--score", "p", "--label", "outcome"]
    for columns, wrong in ((right, False), (SCORES, True)):
        out = output_of(capsys, "hosmer-lemeshow", csv, *columns, "--degrees", "Q")
        said = " ".join(out.split())
        assert ("the probabilities are wrong by more than chance" in said) == wrong
        assert ("no evidence against the probabilities" in said) != wrong
        assert "10 degrees of freedom" in said


def test_degrees_as_published(capsys: Any, csv: Path) -> None:
    document = results_of(capsys, "hosmer-lemeshow", csv, *SCORES, "--degrees", "Q-2", "--groups", 8)
    assert document["results"]["hosmer_lemeshow"]["degrees_of_freedom"] == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--degrees", "Q-1"], "Q-1"),
        (["--points", 0, "--method", "corrected"], "points: got 0"),
        (["--method", "published", *SERVER, 1, "--delta", 1e-6], "Algorithm 2 is for pure epsilon"),
    ],
)
def test_bad_usage_of_the_test(capsys: Any, csv: Path, options: list[object], sentence: str) -> None:
    err = refused(capsys, "hosmer-lemeshow", csv, *SCORES, *options)
    assert sentence in err


# --- the page -------------------------------------------------------------------------------------------


def test_the_how_to_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page runs, in order, on data of the names it uses; its Python too."""
    monkeypatch.chdir(tmp_path)
    data = frame(4000).rename(columns={"site": "hospital", "p": "risk"})
    data["income"] = np.random.default_rng(5).lognormal(10, 0.7, len(data))
    data.to_parquet("patients.parquet")
    type_and_execute(HOW_TO.read_text(encoding="utf-8"), least=6)
