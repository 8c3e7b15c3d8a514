"""`fedassay conformal` as a user meets it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from command_line import output_of, refused, result_of
from fedassay.trust import TRUST_MODELS
from trust_terms import terms

REGRESSION = ["--client", "site", "--target", "y", "--prediction", "p"]
CLASSES = ["--client", "site", "--label", "k", "--logits", "z"]
BINARY = ["--client", "site", "--label", "died", "--score", "risk"]
PLAIN = ["--privacy", "plain"]


def frame(rows: int = 900, sites: int = 9, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    p = rng.normal(size=rows)
    spread = rng.uniform(0.5, 1.5, rows)
    other = np.random.default_rng(seed + 100)
    risk = other.random(rows)
    return pd.DataFrame(
        {
            "site": [f"clinic {number}" for number in np.arange(rows) % sites],
            "y": p + spread * rng.normal(size=rows),
            "p": p,
            "s": spread,
            "a": p - 1.2 * spread,
            "b": p + 1.2 * spread,
            "own": rng.exponential(size=rows),
            "sex": np.array(["F", "M"])[rng.integers(0, 2, rows)],
            "risk": risk,
            "died": (other.random(rows) < risk) * 1,
        }
    )


def arrays(rows: int = 900, sites: int = 9, classes: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    z = rng.normal(size=(rows, classes)) + 2 * (np.arange(classes) == truth[:, None])
    return {"site": np.arange(rows) % sites, "k": truth, "z": z}


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npz"
    np.savez(path, **arrays())
    return path


def document_of(capsys: Any, *arguments: object) -> dict[str, Any]:
    return result_of(capsys, "conformal", *arguments, "--seed", 1)


def refusal(capsys: Any, *arguments: object) -> str:
    """The one sentence that a refused command says."""
    return refused(capsys, "conformal", *arguments, "--quiet")


CONTRACT = {"threshold", "infinite", "guarantee", "pair", "coverage_law", "rows", "clients"}
PROMISE = {"kind", "level", "confidence", "coverage", "probability", "assumption", "text"}


def check_contract(results: dict[str, Any]) -> None:
    """What every result has, of every method."""
    for one in (results, *results.get("groups", {}).values()):
        assert one.keys() >= CONTRACT
        assert one["guarantee"].keys() == PROMISE
        assert (one["threshold"] is None) or math.isfinite(one["threshold"])
        assert not (one["infinite"] and one["threshold"] is not None)
        if one["threshold"] is None:
            assert one["reason"]
        law = one["coverage_law"]
        if law is not None:
            assert law.keys() == {"mean", "standard_deviation", "exact", "quantiles", "curve"}
            assert all(0 <= x <= 1 for x in law["curve"]["coverage"] + law["curve"]["cdf"])
            assert law["curve"]["cdf"] == sorted(law["curve"]["cdf"])
        kind = one["guarantee"]["kind"]
        assert (kind == "none") == (one["guarantee"]["coverage"] is None)
    assert {"method", "level", "score", "conditional", "notes"} <= results.keys()


# --- every method, score and trust model ----------------------------------------------------------------


@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
@pytest.mark.parametrize("guarantee", ["marginal", "training-conditional"])
def test_every_trust_model_gives_sets_and_a_valid_document(
    capsys: Any, csv: Path, trust: str, guarantee: str
) -> None:
    options = terms(trust, epsilon=4, rows_per_client=70)
    document = document_of(
        capsys, csv, *REGRESSION, *options, "--guarantee", guarantee, "--holdout", 0.2, "--score-range", "0,6"
    )
    results = document["results"]
    check_contract(results)
    assert document["task"] == "conformal"
    assert document["privacy"]["trust_model"] == trust
    assert (document["parameters"]["target"], document["parameters"]["level"]) == ("y", 0.9)
    assert results["method"] == ("qq" if trust in ("plain", "local-dp", "shuffle") else "pooled")
    assert 1.0 < results["threshold"] < 5.0
    assert results["guarantee"]["kind"] == guarantee
    assert results["guarantee"]["coverage"] >= 0.9
    if guarantee != "marginal":
        assert results["guarantee"]["probability"] >= 0.9
    held = results["held_out"]
    assert held["coverage"]["value"] > 0.8
    assert {entry["method"] for entry in results["comparison"]} >= {"pooled", "average", "local"}
    assert (held["sites"] is None) == (trust != "plain")


@pytest.mark.parametrize("method", ["qq", "qq-paper", "average", "pooled", "weighted", "local"])
def test_every_method_in_the_clear(capsys: Any, csv: Path, method: str) -> None:
    document = document_of(capsys, csv, *REGRESSION, *PLAIN, "--method", method, "--holdout", 0.2)
    results = document["results"]
    check_contract(results)
    assert results["method"] == method
    assert (results["guarantee"]["kind"] == "none") == (method == "average")
    if method == "local":
        assert results["threshold"] is None
        assert [one["site"] for one in results["sites"]] == [f"clinic {number}" for number in range(9)]
        assert all(one["threshold"] > 0 for one in results["sites"])


SCORES = {
    "conformity": ["--conformity", "own"],
    "absolute": ["--target", "y", "--prediction", "p"],
    "normalised": ["--target", "y", "--prediction", "p", "--scale", "s"],
    "cqr": ["--target", "y", "--lower", "a", "--upper", "b"],
}


@pytest.mark.parametrize(
    "privacy", [PLAIN, ["--privacy", "server-dp", "--epsilon", "2"]], ids=["plain", "noise"]
)
@pytest.mark.parametrize("name", SCORES)
def test_every_score_of_numbers(capsys: Any, csv: Path, name: str, privacy: list[str]) -> None:
    results = document_of(capsys, csv, "--client", "site", *SCORES[name], *privacy, "--holdout", 0.3)[
        "results"
    ]
    check_contract(results)
    assert results["score"] == {"name": name, "parameters": []}
    size = results["held_out"]["mean_size"]
    if name == "conformity" or (privacy is not PLAIN and name != "absolute"):
        assert size["value"] is None
        assert size["reason"]
    else:
        assert 1.0 < size["value"] < 10.0


@pytest.mark.parametrize(
    "privacy", [PLAIN, ["--privacy", "server-dp", "--epsilon", "2"]], ids=["plain", "noise"]
)
@pytest.mark.parametrize("sets", ["lac", "aps", "raps"])
def test_every_score_of_classes(capsys: Any, npz: Path, sets: str, privacy: list[str]) -> None:
    more = ["--score-parameters", "0.1,2"] if sets == "raps" else []
    options = ["--sets", sets, *more, *privacy, "--holdout", 0.3]
    document = document_of(capsys, npz, *CLASSES, *options)
    results = document["results"]
    check_contract(results)
    assert results["score"]["name"] == sets
    assert results["score"]["parameters"] == ([0.1, 2.0] if sets == "raps" else [])
    assert 0.5 <= results["held_out"]["mean_size"]["value"] <= 4.0
    assert len(results["held_out"]["size_counts"]) == 5
    assert not any("range" in warning for warning in document["warnings"])


@pytest.mark.parametrize(
    "privacy", [PLAIN, ["--privacy", "server-dp", "--epsilon", "2"]], ids=["plain", "noise"]
)
@pytest.mark.parametrize("conditional", [[], ["--conditional", "class"]], ids=["all", "by label"])
def test_scores_of_a_binary_classifier(
    capsys: Any, csv: Path, tmp_path: Path, conditional: list[str], privacy: list[str]
) -> None:
    artefact, out = tmp_path / "c.json", tmp_path / "out.parquet"
    options = [*conditional, *privacy, "--holdout", 0.3, "--out", artefact]
    document = document_of(capsys, csv, *BINARY, *options)
    results = document["results"]
    check_contract(results)
    assert results["score"] == {"name": "binary", "parameters": [], "calibrated": False}
    assert 1.0 <= results["held_out"]["mean_size"]["value"] <= 2.0
    assert len(results["held_out"]["size_counts"]) == 3
    assert document["warnings"] == []
    output_of(capsys, "apply", artefact, csv, "--out", out, "--quiet")
    table = pd.read_parquet(out)
    covered = [label in held for label, held in zip(table["died"], table["prediction_set"], strict=True)]
    assert 0.86 < np.mean(covered) < 0.97
    assert set(table["set_size"]) <= {1, 2}


@pytest.mark.parametrize(
    "privacy", [PLAIN, [], ["--privacy", "server-dp", "--epsilon", "4"]], ids=["plain", "sum", "dp"]
)
def test_thresholds_for_groups_and_classes(capsys: Any, csv: Path, npz: Path, privacy: list[str]) -> None:
    by_group = ["--conditional", "group", "--by", "sex", "--group", "F", "--group", "M"]
    document = document_of(
        capsys, csv, *REGRESSION, *by_group, *privacy, "--score-range", "0,6", "--holdout", 0.2
    )
    results = document["results"]
    check_contract(results)
    assert list(results["groups"]) == ["F", "M", "other"]
    assert list(results["held_out"]["groups"]) == ["F", "M", "other"]
    assert document["parameters"]["group"] == "sex"
    assert not any("taken from the data" in warning for warning in document["warnings"])
    results = document_of(capsys, npz, *CLASSES, "--conditional", "class", *privacy, "--holdout", 0.2)[
        "results"
    ]
    check_contract(results)
    assert list(results["groups"]) == ["0", "1", "2", "3"]


def test_what_is_looked_up_is_said(capsys: Any, csv: Path) -> None:
    by_group = ["--conditional", "group", "--by", "sex"]
    warnings = document_of(capsys, csv, *REGRESSION, *by_group)["warnings"]
    assert any(warning.startswith("The groups were taken from the data ('F', 'M')") for warning in warnings)
    assert any(warning.startswith("The range of the scores, 0 to ") for warning in warnings)
    warnings = document_of(capsys, csv, *REGRESSION, "--privacy", "local-dp", "--epsilon", 8)["warnings"]
    assert any(warning.startswith("Every client uses 100 rows") for warning in warnings)
    assert document_of(capsys, csv, *REGRESSION, *PLAIN)["warnings"] == []


def test_the_table_says_what_is_promised(capsys: Any, csv: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    out = output_of(
        capsys, "conformal", csv, *REGRESSION, *PLAIN, "--holdout", 0.3, "--seed", 1, "--report", report
    )
    said = " ".join(out.split())
    assert "A new row is covered with probability at least 0.9" in said
    assert "held-out" in said
    assert "pooled" in report.read_text()


def test_without_a_client_column_every_row_is_a_client(capsys: Any, csv: Path) -> None:
    columns = ["--target", "y", "--prediction", "p", "--score-range", "0,6"]
    for privacy in (PLAIN, [], ["--privacy", "local-dp", "--epsilon", 8]):
        document = document_of(capsys, csv, *columns, *privacy)
        check_contract(document["results"])
        assert document["cohort"]["clients"] == 900
    results = document_of(capsys, csv, *columns, *PLAIN)["results"]
    assert results["pair"] == [1, 811]  # ⌈0.9·901⌉: split conformal prediction


# --- the artefact ---------------------------------------------------------------------------------------


def test_intervals_from_rows_to_file_to_rows(capsys: Any, csv: Path, tmp_path: Path) -> None:
    artefact, new, out = tmp_path / "c.json", tmp_path / "new.csv", tmp_path / "out.parquet"
    results = document_of(capsys, csv, *REGRESSION, *PLAIN, "--out", artefact)["results"]
    fresh = frame(3000, seed=1)
    fresh.drop(columns="y").to_csv(new, index=False)
    output_of(capsys, "apply", artefact, new, "--out", out, "--quiet")
    table = pd.read_parquet(out)
    assert table["lower"].to_numpy() == pytest.approx(fresh.p.to_numpy() - results["threshold"])
    inside = (table["lower"] <= fresh.y) & (fresh.y <= table["upper"])
    assert 0.87 < inside.mean() < 0.94


def test_sets_from_rows_to_file_to_rows(capsys: Any, npz: Path, tmp_path: Path) -> None:
    artefact, new, out = tmp_path / "c.json", tmp_path / "new.npz", tmp_path / "out.parquet"
    document_of(capsys, npz, *CLASSES, "--sets", "aps", *PLAIN, "--conditional", "class", "--out", artefact)
    fresh = arrays(3000, seed=1)
    np.savez(new, z=fresh["z"])
    output_of(capsys, "apply", artefact, new, "--out", out, "--quiet")
    table = pd.read_parquet(out)
    assert (table["set_size"] == [len(held) for held in table["prediction_set"]]).all()
    for truth in range(4):
        covered = [truth in held for held in table["prediction_set"][fresh["k"] == truth]]
        assert np.mean(covered) > 0.85


def test_a_set_of_everything_can_be_applied_too(capsys: Any, csv: Path, tmp_path: Path) -> None:
    artefact, out = tmp_path / "c.json", tmp_path / "out.parquet"
    document_of(capsys, csv, *REGRESSION, "--score-range", "0,0.5", "--out", artefact)
    said = output_of(capsys, "apply", artefact, csv, "--out", out)
    assert "everything" in " ".join(said.split())
    assert np.isneginf(pd.read_parquet(out)["lower"]).all()


# --- what cannot be had ---------------------------------------------------------------------------------


def test_the_honest_answer_where_privacy_leaves_no_choice(capsys: Any, csv: Path) -> None:
    options = ["--privacy", "local-dp", "--epsilon", 0.1, "--rows-per-client", 100, "--score-range", "0,6"]
    document = document_of(capsys, csv, *REGRESSION, *options)
    results = document["results"]
    check_contract(results)
    assert (results["threshold"], results["infinite"]) == (None, True)
    assert "9 clients with 100 rows each" in results["reason"]
    assert "at least" in results["reason"]
    assert "ε = " in results["reason"]
    assert document["runtime"]["rounds"] == 0  # nobody was asked
    assert any("nothing was spent" in note for note in results["notes"])
    needed = int(results["reason"].split("at least ")[1].split(" rows")[0])
    assert needed > 100
    more = frame(9 * needed)
    path = csv.with_name("more.csv")
    more.to_csv(path, index=False)
    enough = document_of(
        capsys, path, *REGRESSION, *options[:4], "--rows-per-client", needed, "--score-range", "0,6"
    )
    assert enough["runtime"]["rounds"] > 0
    results = document_of(capsys, csv, *REGRESSION, *options, "--guarantee", "training-conditional")[
        "results"
    ]
    check_contract(results)
    assert results["guarantee"]["probability"] == 1.0


def test_noise_that_hides_all_rows_gives_everything(capsys: Any, csv: Path) -> None:
    for confident in ([], ["--guarantee", "training-conditional"]):
        options = ["--privacy", "server-dp", "--epsilon", 0.001, "--score-range", "0,6", *confident]
        results = document_of(capsys, csv, *REGRESSION, *options)["results"]
        check_contract(results)
        assert results["infinite"]
        assert "too much noise" in results["reason"]


COLUMNS_WANTED = "expected one of: conformity; target and prediction"
NUMBERS, SCORED = "--target y --prediction p", "--label died --score risk"
TRAINED = f"{NUMBERS} --privacy plain --guarantee training-conditional"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--privacy plain", COLUMNS_WANTED),
        (f"{NUMBERS} --conformity own --privacy plain", COLUMNS_WANTED),
        (f"{NUMBERS} --upper b --privacy plain", COLUMNS_WANTED),
        ("--target y --lower a --privacy plain", "--lower: needs --upper (CQR)"),
        ("--target y --upper b --privacy plain", "--upper: needs --lower (CQR)"),
        ("--logits p --privacy plain", COLUMNS_WANTED),
        (f"{NUMBERS} --sets aps --privacy plain", "--sets: got 'aps' for the columns target and prediction"),
        (f"{NUMBERS} --confidence 0.95 --privacy plain", "--guarantee training-conditional"),
        (f"{TRAINED} --method weighted", "weighted cannot"),
        (f"{TRAINED} --method average", "average cannot"),
        (f"{NUMBERS} --method local", "here no single one is shown"),
        (f"{NUMBERS} --method average", "here no single one is shown"),
        (f"{NUMBERS} --method qq-paper --score-range 0,1", "only sums of votes are known"),
        (f"{NUMBERS} --method qq --privacy server-dp --epsilon 1", "use --method pooled"),
        (f"{NUMBERS} --conditional class --privacy plain", "the score absolute knows no classes"),
        (f"{NUMBERS} --conditional group --privacy plain", "give --by with the column"),
        (f"{NUMBERS} --by sex --privacy plain", "give --conditional group"),
        (f"{NUMBERS} --score-range 0,1,2", "--score-range: got 0,1,2"),
        (f"{NUMBERS} --score-parameters 1,2 --privacy plain", "got 2 numbers for absolute, expected none"),
        (f"{SCORED} --score-parameters 0.1,2 --privacy plain", "--score has none; leave them out"),
        (f"{SCORED} --sets lac --privacy plain", "--sets: got 'lac' for the columns"),
        ("--score risk --privacy plain", "label and logits; label and score"),
        ("--score p --label died --privacy plain", "column 'p' (score)"),
        ("--target y --prediction q --privacy plain", "'q'"),
        ("--target sex --prediction p --privacy plain", "sex"),
        (
            f"{NUMBERS} --conditional group --by sex --method qq --privacy local-dp --epsilon 1 --rows-per-client 50",
            "qq by group",
        ),
    ],
)
def test_bad_usage_is_one_sentence(capsys: Any, csv: Path, options: str, sentence: str) -> None:
    said = refusal(capsys, csv, "--client", "site", *options.split())
    assert sentence in said
    assert len(said) < 450


def test_rows_that_cannot_be_used_are_named(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    data = frame(60)
    data.loc[17, "own"] = np.nan
    data.to_csv(path, index=False)
    said = refusal(capsys, path, "--client", "site", "--conformity", "own", *PLAIN)
    assert "own" in said
    assert "17" in said or "18" in said or "19" in said
    data = frame(60)
    data.loc[3, "s"] = 0.0
    data.to_csv(path, index=False)
    assert "above 0" in refusal(
        capsys, path, "--client", "site", "--target", "y", "--prediction", "p", "--scale", "s", *PLAIN
    )


def test_classes_and_logits_that_cannot_be_used(capsys: Any, tmp_path: Path) -> None:
    path, data = tmp_path / "rows.npz", arrays(90)
    np.savez(path, **{**data, "k": np.where(np.arange(90) == 5, 4, data["k"])})
    assert "class" in refusal(capsys, path, *CLASSES, *PLAIN)
    np.savez(path, **{**data, "k": np.where(np.arange(90) == 5, -1, data["k"])})
    assert "k" in refusal(capsys, path, *CLASSES, *PLAIN)
    broken = data["z"].copy()
    broken[7, 2] = np.nan
    np.savez(path, **{**data, "z": broken})
    assert "z" in refusal(capsys, path, *CLASSES, *PLAIN)


def test_too_few_rows_in_all_names_the_clients(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    frame(18).to_csv(path, index=False)
    said = refusal(capsys, path, *REGRESSION, *PLAIN, "--level", 0.95)
    assert "18 rows together, expected at least 19" in said
    assert "clinic 0 (2)" in said
    said = refusal(capsys, path, *REGRESSION, "--guarantee", "training-conditional", "--confidence", 0.95)
    assert "expected at least 29" in said


def test_small_and_empty_clients_are_warnings(capsys: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, rows in (("large", 200), ("small", 4), ("empty", 0)):
        frame(rows, sites=1).to_csv(folder / f"{name}.csv", index=False)
    columns = ["--target", "y", "--prediction", "p"]
    document = document_of(capsys, folder, *columns, *PLAIN, "--method", "local")
    (small,) = [warning for warning in document["warnings"] if "Too few rows" in warning]
    assert "small (4)" in small
    assert "9 would be enough" in small
    assert "empty" not in small
    assert any("no rows" in warning for warning in document["warnings"])
    options = [*PLAIN, "--method", "local", "--guarantee", "training-conditional", "--confidence", 0.95]
    document = document_of(capsys, folder, *columns, *options)
    assert any("29 would be enough" in warning for warning in document["warnings"])
    for method in ("qq", "qq-paper", "pooled", "average"):
        document = document_of(capsys, folder, *columns, *PLAIN, "--method", method)
        check_contract(document["results"])
        assert document["results"]["threshold"] > 0
        assert any("no rows" in warning for warning in document["warnings"])


def test_fewer_clients_than_a_secure_sum_needs(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    frame(200, sites=2).to_csv(path, index=False)
    for method in ("qq", "pooled"):
        asked = ("conformal", path, *REGRESSION, "--method", method, "--score-range", "0,6", "--quiet")
        said = refused(capsys, *asked, code=4)
        assert "2 clients, expected at least 3" in said
