"""`fedassay infer` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedassay
from command_line import call, output_of, refused, result_of

LINEAR = ["--client", "site", "--target", "y", "--features", "age,dose,sex"]
LOGISTIC = ["--client", "site", "--target", "ill", "--features", "age,dose,sex", "--model", "logistic"]
NEWTON = ["--method", "newton"]


def frame(rows: int = 1200, sites: int = 5, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose, sex = rng.normal(50, 10, rows), rng.exponential(1e3, rows), rng.integers(0, 2, rows)
    u = -2 + 0.03 * age - 0.0005 * dose + sex
    return pd.DataFrame(
        {
            "site": [f"clinic {number}" for number in np.arange(rows) % sites],
            **{"age": age, "dose": dose, "sex": sex, "known": rng.normal(size=rows)},
            "y": u + rng.normal(size=rows) * (1 + sex),
            "ill": (rng.random(rows) < 1 / (1 + np.exp(-u))).astype(int),
        }
    )


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    frame().to_csv(path, index=False)
    return path


def document_of(capsys: Any, *arguments: object) -> dict[str, Any]:
    return result_of(capsys, "infer", *arguments, "--seed", 1)


def refusal(capsys: Any, *arguments: object) -> str:
    """The one sentence that a refused command says."""
    return refused(capsys, "infer", *arguments, "--quiet")


def reason_of(document: dict[str, Any]) -> str:
    """Why no coefficient has a value."""
    (reason,) = {one["reason"] for one in document["results"]["coefficients"] if one["value"] is None}
    return str(reason)


def column(document: dict[str, Any], name: str) -> list[Any]:
    return [one[name] for one in document["results"]["coefficients"]]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_newton_is_what_statsmodels_finds_in_the_pooled_rows(capsys: Any, csv: Path) -> None:
    rows = frame()
    x = sm.add_constant(rows[["age", "dose", "sex"]])
    offset = ["--offset", "known"]
    for arguments, pooled in (
        ((*LINEAR, *NEWTON), sm.OLS(rows.y, x).fit(cov_type="HC1")),
        ((*LOGISTIC, *NEWTON, *offset), sm.Logit(rows.ill, x, offset=rows.known).fit(disp=0, cov_type="HC0")),
    ):
        document = document_of(capsys, csv, *arguments)
        assert column(document, "name") == ["intercept", "age", "dose", "sex"]
        np.testing.assert_allclose(column(document, "value"), pooled.params, rtol=1e-8)
        np.testing.assert_allclose(column(document, "standard_error"), pooled.bse, rtol=1e-8)
        np.testing.assert_allclose(column(document, "p_value"), pooled.pvalues, rtol=1e-6, atol=1e-300)
        np.testing.assert_allclose(column(document, "interval"), pooled.conf_int(), rtol=1e-8)
        assert document["cohort"]["rows"] == len(rows)
        assert document["parameters"]["features"] == ["age", "dose", "sex"]
    assert document["parameters"]["offset"] == "known"
    odds = [one["odds_ratio"]["value"] for one in document["results"]["coefficients"]]
    np.testing.assert_allclose(odds, np.exp(pooled.params), rtol=1e-8)


def test_the_command_is_the_function(capsys: Any, csv: Path) -> None:
    options = ["--rounds", 24, "--participation", 0.6, "--local-steps", 3, "--local", "fixed", "--level", 0.9]
    more = ["--step", 1e-6, "--decay", 0.7, "--weighting", "clients", "--contrast", "age - 2*sex = 1"]
    document = document_of(capsys, csv, *LOGISTIC, *options, *more, "--no-intercept", "--no-standardise")
    result = fedassay.infer(
        frame(),
        client="site",
        target="ill",
        features=["age", "dose", "sex"],
        model="logistic",
        rounds=24,
        participation=0.6,
        local_steps=3,
        local="fixed",
        level=0.9,
        step=1e-6,
        decay=0.7,
        weighting="clients",
        contrasts=["age - 2*sex = 1"],
        intercept=False,
        standardise=False,
        simulation=fedassay.Simulation(seed=1),
    )
    assert document["results"] == json.loads(result.to_json())["results"]
    assert document["parameters"] == json.loads(result.to_json())["parameters"]
    assert document["results"]["fit"]["rounds"] == 24
    assert document["cohort"]["dropped"] == 0  # who is not drawn is not missing


def test_rounds_that_are_stopped_go_on_where_they_were(capsys: Any, tmp_path: Path) -> None:
    state, rows = tmp_path / "state.json", frame()
    for number, part in enumerate((rows[:600], rows[600:])):
        part.to_csv(tmp_path / "part.csv", index=False)
        options = ["--rounds", 12, "--state", state, "--privacy", "plain"]
        document = document_of(capsys, tmp_path / "part.csv", *LINEAR, *options)
        assert document["parameters"]["state"] == ({"rounds": 12} if number else None)
    assert document["results"]["fit"]["rounds"] == 24
    assert json.loads(state.read_text())["path"] == document["results"]["state"]["path"]
    # Every row was used once: for a squared error that is the pooled fit.
    pooled = sm.OLS(rows.y, sm.add_constant(rows[["age", "dose", "sex"]])).fit()
    np.testing.assert_allclose(column(document, "value"), pooled.params, rtol=1e-6)


def test_noise_takes_scales_and_a_clip_and_says_how_many_rounds_there_are(capsys: Any, csv: Path) -> None:
    privacy = ["--privacy", "server-dp", "--epsilon", 200, "--delta", 1e-5, "--unit", "client"]
    options = ["--rows-per-client", 300, "--rounds", 8, "--scale", "age=50:10", "--scale", "dose=1000:1000"]
    options += ["--scale", "sex=0:1"]
    document = document_of(capsys, csv, *LOGISTIC, *privacy, *options, "--clip", 0.5)
    assert document["parameters"]["scales"] == ["age=50:10", "dose=1000:1000", "sex=0:1"]
    assert (document["results"]["fit"]["rounds"], document["results"]["fit"]["clip"]) == (8, 0.5)
    assert document["cohort"]["clients"] == 5
    assert document["cohort"]["rows"] is None  # nobody is told
    code, out, err = call(capsys, "infer", csv, *LOGISTIC, *privacy, *options)
    assert (code, err) == (0, "")
    assert "norm of a client's gradient that counts" in out
    state = ["--state", csv.parent / "state.json"]
    assert "cannot be taken up again" in refusal(capsys, csv, *LOGISTIC, *privacy, *options, *state)
    privacy[3] = 2
    said = refusal(capsys, csv, *LOGISTIC, *privacy, *options)
    assert "epsilon: with 5 clients the noise of 8 rounds hides the coefficients; expected about" in said


def test_features_may_be_one_array(capsys: Any, tmp_path: Path) -> None:
    rows = frame()
    x = rows[["age", "sex"]].to_numpy(dtype=float)
    np.savez(tmp_path / "rows.npz", site=np.arange(len(x)) % 5, x=x, y=rows.y)
    named = ["--client", "site", "--target", "y", "--features", "x", "--contrast", "x[0] - 2*x[1]"]
    document = document_of(capsys, tmp_path / "rows.npz", *named, *NEWTON)
    assert column(document, "name") == ["intercept", "x[0]", "x[1]"]
    pooled = sm.OLS(rows.y, sm.add_constant(x)).fit()
    np.testing.assert_allclose(column(document, "value"), pooled.params, rtol=1e-8)
    (contrast,) = document["results"]["contrasts"]
    assert contrast["value"] == pytest.approx(pooled.params.iloc[1] - 2 * pooled.params.iloc[2])


# --- words ------------------------------------------------------------------------------------------------------------


def test_progress_says_which_round_it_is(csv: Path) -> None:
    told: list[tuple[int, int, int]] = []
    simulation = fedassay.Simulation(seed=1, progress=lambda *numbers: told.append(numbers), mode="aggregate")
    fedassay.infer(csv, client="site", target="y", features="age", rounds=8, simulation=simulation)
    assert told == [(0, begun, 8) for begun in range(1, 9)]
    told.clear()
    fedassay.infer(csv, client="site", target="y", features="age", method="newton", simulation=simulation)
    assert told == [(0, 1, 0), (0, 2, 0)]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--features", "age,dosis"], "column 'dosis' (feature): got no such column"),
        (["--features", "age,age"], "twice"),
        (["--model", "logistic"], "column 'y' (target of a logistic model): got"),
        (
            ["--participation", "0.2"],
            "participation: got 0.2 of 5 clients, which is 1 in a round, expected at least 3 (secure-sum)",
        ),
        (["--contrast", "age - height"], "contrast: got 'age - height'"),
        (["--method", "newton", "--rounds", "20"], "rounds: the method newton has no use for it"),
        (["--variance", "model"], "--variance: the method round-plug-in has no use for it"),
        (["--method", "newton", "--state", "new.json"], "--state: newton keeps none"),
    ],
)
def test_one_sentence_says_what_is_wrong(capsys: Any, csv: Path, arguments: list[str], words: str) -> None:
    given = dict(zip(LINEAR[::2], LINEAR[1::2], strict=True)) | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    said = refusal(capsys, csv, *(word for pair in given.items() for word in pair))
    assert words in said


def test_features_that_are_not_finite_or_depend_on_each_other_are_named(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    frame().assign(age=lambda rows: rows.age.where(rows.index != 7)).to_csv(path, index=False)
    assert "column 'age' (feature): got 1 bad value" in refusal(capsys, path, *LINEAR)
    frame().assign(dose=lambda rows: 2 * rows.age + 1).to_csv(path, index=False)
    assert "'age' and 'dose'" in reason_of(document_of(capsys, path, *LINEAR, *NEWTON))


def test_rounds_that_diverge_have_no_values_and_keep_no_state(capsys: Any, csv: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    words = ("--step", 1000, "--rounds", 60, "--state", state)
    assert "iterates diverge" in reason_of(document_of(capsys, csv, *LINEAR, *words))
    assert not state.exists()
    out = output_of(capsys, "infer", csv, *LINEAR, *words, "--seed", 1)
    assert "iterates diverge" in " ".join(out.split())


def test_a_file_that_is_no_state_is_neither_read_nor_overwritten(
    capsys: Any, csv: Path, tmp_path: Path
) -> None:
    for text in ("precious", '{"kind": "other"}', "[]"):
        path = tmp_path / "notes.json"
        path.write_text(text)
        assert "not a regression state" in refusal(capsys, csv, *LINEAR, "--state", path)
        assert path.read_text() == text
    other = tmp_path / "state.json"
    assert call(capsys, "infer", csv, *LINEAR, "--rounds", 8, "--state", other, "-q")[0] == 0
    before = other.read_text()
    assert "state: got one with model 'linear'" in refusal(capsys, csv, *LOGISTIC, "--state", other)
    broken = json.loads(before)
    del broken["path"]["theta"]
    other.write_text(json.dumps(broken))
    assert "state: it cannot be read" in refusal(capsys, csv, *LINEAR, "--state", other)
