"""Sets and intervals agree with the scores of the calibration, for one threshold and for many."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedassay
from conformal_artefacts import class_rows, predictor, regression_rows, threshold
from fedassay.data.check import check
from fedassay.errors import DataError, UsageError

SOFTMAX = ("lac", "aps", "raps")
INPUTS = {"absolute": ("p",), "normalised": ("p", "s"), "cqr": ("a", "b")}
WORDS = {"p": "prediction", "s": "scale", "a": "lower", "b": "upper", "sex": "group", "site": "client"}


def named(rows: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {WORDS[column]: rows[column] for column in columns}


@pytest.mark.parametrize("score", sorted(INPUTS))
@pytest.mark.parametrize("digits", [None, 1])
def test_a_row_is_covered_exactly_if_its_value_is_in_the_interval(score: str, digits: int | None) -> None:
    rows = regression_rows(500, digits=digits)
    given = named(rows, INPUTS[score])
    scores = predictor(score).conformity(target=rows["y"], **given)
    for t in (*np.sort(scores)[[1, 50, 250, 450]], 0.0, 0.7, math.inf):
        made = predictor(score, float(t))
        ends = made.predict_interval(**given)
        assert ends.shape == (500, 2)
        covered = made.covers(scores)
        assert covered.tolist() == (scores <= t).tolist()
        assert ((ends[:, 0] <= rows["y"]) & (rows["y"] <= ends[:, 1])).tolist() == covered.tolist()


@pytest.mark.parametrize("score", SOFTMAX)
def test_a_row_is_covered_exactly_if_its_class_is_in_the_set(score: str) -> None:
    rows = class_rows(400)
    scores = predictor(score).conformity(label=rows["k"], logits=rows["z"])
    for t in (*np.sort(scores)[[3, 200, 380]], 0.0, 1.0, math.inf):
        made = predictor(score, float(t))
        members = made.predict_set(rows["z"])
        assert members.shape == (400, 4)
        assert members.dtype == np.bool_
        assert members[np.arange(400), rows["k"]].tolist() == made.covers(scores).tolist()
        for k in range(4):  # not only of the true class
            assert (
                members[:, k].tolist()
                == (made.conformity(label=np.full(400, k), logits=rows["z"]) <= t).tolist()
            )


def test_values_by_hand() -> None:
    ends = predictor("absolute", 0.5).predict_interval([1, 3])
    assert ends == pytest.approx(np.array([[0.5, 1.5], [2.5, 3.5]]), abs=1e-15)
    ends = predictor("normalised", 0.5).predict_interval([1, 3], scale=[2, 4])
    assert ends == pytest.approx(np.array([[0, 2], [1, 5]]), abs=1e-15)
    bands = predictor("cqr", -0.5).predict_interval(lower=[0, 0, 0], upper=[2, 1, 0.5])
    assert bands[:2] == pytest.approx(np.array([[0.5, 1.5], [0.5, 0.5]]), abs=1e-15)
    assert np.isnan(bands[2]).all()
    logits = np.log([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5]])
    assert predictor("lac", 0.6).predict_set(logits).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert predictor("aps", 0.4).predict_set(logits).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert predictor("aps", 0.6).predict_set(logits).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert predictor("raps", 0.6, parameters=(0.3, 1)).predict_set(logits).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert predictor("raps", 0.9, parameters=(0.3, 1)).predict_set(logits).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert predictor("absolute", math.inf).predict_interval([1.0]).tolist() == [[-math.inf, math.inf]]
    assert predictor("lac", math.inf).predict_set(logits).all()
    assert not predictor("lac", 0.1).predict_set(logits).any()


@pytest.mark.parametrize("score", SOFTMAX)
def test_each_class_is_held_against_its_own_threshold(score: str) -> None:
    rows = class_rows(300)
    values = {"0": 0.9, "1": 0.2, "2": math.inf, "3": 0.6}
    made = predictor(score, values, by="class")
    members = made.predict_set(rows["z"])
    for k in range(4):
        alone = predictor(score, values[str(k)]).predict_set(rows["z"])
        assert members[:, k].tolist() == alone[:, k].tolist()
    assert members[:, 2].all()
    scores = made.conformity(label=rows["k"], logits=rows["z"])
    covered = made.covers(scores, group=rows["k"])
    assert covered.tolist() == members[np.arange(300), rows["k"]].tolist()
    with pytest.raises(DataError, match=r"got 5 classes, expected the 4 that it was calibrated on"):
        made.predict_set(class_rows(5, classes=5)["z"])
    with pytest.raises(DataError, match=r"covers, class: got 4, which has no threshold"):
        made.covers([0.1, 0.2], group=[0, 4])


def test_logits_of_another_number_of_classes_are_refused() -> None:
    made = predictor("aps", classes=5)
    rows = class_rows(5)
    sentence = r"logits: got 4 classes, expected the 5 that it was calibrated on; export the logits of the same classes"
    with pytest.raises(DataError, match="predict_set, " + sentence):
        made.predict_set(rows["z"])
    with pytest.raises(DataError, match="conformity, " + sentence):
        made.conformity(label=rows["k"], logits=rows["z"])
    five = class_rows(5, classes=5)
    assert made.predict_set(five["z"]).tolist() == predictor("aps").predict_set(five["z"]).tolist()
    assert made.conformity(label=five["k"], logits=five["z"]).shape == (5,)
    assert predictor("lac", {"0": 0.5, "1": 0.5}, by="class").classes == 2


def test_probabilities_in_the_place_of_logits_are_warned_of() -> None:
    logits = class_rows(50)["z"]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="sum to 1") as warned:
        members = predictor("lac").predict_set(probabilities)
    assert members.shape == (50, 4)
    (one,) = warned
    assert one.filename == __file__
    said = check({"logits": probabilities}, columns={"logits": "logits"}).findings[0].sentence()
    assert str(one.message).partition(", ")[2] == said.partition(", ")[2]
    assert "probabilities by their looks" in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert predictor("lac").predict_set(np.log(probabilities)).shape == (50, 4)
        # One row that is none is enough: all rows of a softmax sum to one.
        assert predictor("lac").predict_set(np.vstack([probabilities, logits[:1]])).shape == (51, 4)


def test_each_group_has_its_threshold_and_others_that_of_other() -> None:
    rows = regression_rows()
    made = predictor("absolute", {"other": 3.0, "M": 2.0, "F": 1.0}, by="group")
    ends = made.predict_interval(rows["p"], group=rows["sex"])
    t = np.array([{"F": 1.0, "M": 2.0, "X": 3.0}[sex] for sex in rows["sex"]])
    assert ends == pytest.approx(np.stack([rows["p"] - t, rows["p"] + t], axis=1))
    scores = made.conformity(target=rows["y"], prediction=rows["p"])
    assert made.covers(scores, group=rows["sex"]).tolist() == (scores <= t).tolist()
    for forms in (list(rows["sex"]), pd.Series(rows["sex"], dtype="category")):
        assert made.predict_interval(rows["p"], group=forms).tolist() == ends.tolist()
    few = predictor("absolute", {"F": 1.0, "M": 2.0}, by="group")
    with pytest.raises(DataError, match=r"group: got 'X', which has no threshold, expected one of 'F', 'M'"):
        few.predict_interval(rows["p"], group=rows["sex"])
    sets = predictor("lac", {"F": 0.2, "M": 0.7, "other": math.inf}, by="group")
    images = class_rows()
    members = sets.predict_set(images["z"], group=images["sex"])
    for name, value in {"F": 0.2, "M": 0.7, "X": math.inf}.items():
        alone = predictor("lac", value).predict_set(images["z"])
        assert members[images["sex"] == name].tolist() == alone[images["sex"] == name].tolist()
    numbers = predictor("absolute", {"7": 1.0, "8": 2.0}, by="group")
    assert numbers.predict_interval([0.0, 0.0], group=[7.0, 8.0]).tolist() == [[-1, 1], [-2, 2]]


def test_each_client_has_its_threshold() -> None:
    rows = regression_rows()
    made = predictor("normalised", {"north": 1.0, "south": math.inf}, by="client")
    ends = made.predict_interval(rows["p"], scale=rows["s"], client=rows["site"])
    north = rows["site"] == "north"
    assert np.isinf(ends[~north]).all()
    assert ends[north, 1] == pytest.approx((rows["p"] + rows["s"])[north])
    unused = pd.Series(pd.Categorical(rows["site"], categories=["east", "north", "south"]))
    assert made.predict_interval(rows["p"], scale=rows["s"], client=unused).tolist() == ends.tolist()
    with pytest.raises(DataError, match=r"client: got 'east', which has no threshold"):
        made.covers([0.1], client=["east"])


def test_arrays_of_other_kinds_and_of_no_length() -> None:
    made = predictor("absolute")
    rows = regression_rows(30)["p"]
    same = [rows.tolist(), tuple(rows), pd.Series(rows), rows.astype(">f8")]
    assert all(made.predict_interval(form).tolist() == made.predict_interval(rows).tolist() for form in same)
    assert made.predict_interval([]).shape == (0, 2)
    assert made.covers([]).shape == (0,)
    assert made.conformity(target=[], prediction=[]).shape == (0,)
    sets = predictor("aps")
    z = class_rows(30)["z"]
    assert sets.predict_set(z.tolist()).tolist() == sets.predict_set(z).tolist()
    assert sets.predict_set(np.empty((0, 7))).shape == (0, 7)
    long = np.random.default_rng(0).normal(size=300_000)
    ends = made.predict_interval(long)
    assert np.abs(ends - np.stack([long - 0.5, long + 0.5], axis=1)).max() < 1e-14


WRONG_USE = {
    "set of numbers": (lambda: predictor("absolute").predict_set([[0.0, 1.0]]), "expected predict_interval"),
    "interval of classes": (lambda: predictor("lac").predict_interval([0.5]), "expected predict_set"),
    "interval of one's own": (lambda: predictor("conformity").predict_interval([0.5]), "column of your own"),
    "set of one's own": (lambda: predictor("conformity").predict_set([[0.5, 1.0]]), "column of your own"),
    "score of one's own": (lambda: predictor("conformity").conformity(target=[1.0]), "column of your own"),
    "no scale": (lambda: predictor("normalised").predict_interval([1.0]), "expected prediction, scale"),
    "scale": (lambda: predictor("absolute").predict_interval([1.0], scale=[1.0]), "got prediction, scale"),
    "quantiles": (lambda: predictor("cqr").predict_interval([1.0]), "got prediction, expected lower, upper"),
    "nothing": (lambda: predictor("cqr").predict_interval(), "got nothing, expected lower, upper"),
    "label": (lambda: predictor("lac").conformity(logits=[[0.0, 1.0]]), "expected label, logits"),
    "no group": (
        lambda: predictor("absolute", {"F": 1.0}, by="group").predict_interval([1.0]),
        "got prediction, expected prediction, group",
    ),
    "group": (lambda: predictor("absolute").predict_interval([1.0], group=["F"]), "got prediction, group"),
    "no class": (
        lambda: predictor("lac", {"0": 0.5, "1": 0.5}, by="class").covers([0.1]),
        "covers: got scores, expected scores, group",
    ),
    "class for a set": (
        lambda: predictor("lac", {"0": 0.5, "1": 0.5}, by="class").predict_set([[0.0, 1.0]], group=[0]),
        "predict_set: got logits, group, expected logits",
    ),
    "client": (
        lambda: predictor("absolute", {"a": 1.0}, by="client").predict_interval([1.0], group=["a"]),
        "expected prediction, client",
    ),
    "half a class": (lambda: predictor("lac", classes=2.5), "a whole number"),
    "two thresholds for three classes": (
        lambda: predictor("lac", {"0": 0.5, "1": 0.5}, by="class", classes=3),
        "got 2 for 3 classes",
    ),
    "several thresholds": (lambda: predictor("lac", {"0": 0.5, "1": 1}, by="class").threshold, "has its own"),
    "by class of numbers": (
        lambda: predictor("absolute", {"0": 1.0, "1": 1.0}, by="class"),
        "by class: the score absolute has no classes",
    ),
    "classes with a gap": (lambda: predictor("lac", {"0": 1.0, "2": 1.0}, by="class"), "got '2'"),
    "NaN": (lambda: threshold(math.nan), "expected a finite number"),
    "minus infinity": (lambda: threshold(-math.inf), "expected a finite number"),
    "guarantee": (lambda: threshold(1.0, kind="best"), "got 'best'"),
}


@pytest.mark.parametrize("case", sorted(WRONG_USE))
def test_wrong_use_is_one_sentence(case: str) -> None:
    use, words = WRONG_USE[case]
    with pytest.raises(UsageError) as refused:
        use()
    sentence = str(refused.value)
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


BAD_ROWS = {
    "NaN": (lambda: predictor("absolute").predict_interval([1.0, math.nan]), "row 1"),
    "infinite": (lambda: predictor("absolute").predict_interval([math.inf]), "row 0"),
    "text": (lambda: predictor("absolute").predict_interval(["high"]), "'high'"),
    "scale": (lambda: predictor("normalised").predict_interval([1.0, 2.0], scale=[1.0, 0.0]), "row 1"),
    "lengths": (lambda: predictor("normalised").predict_interval([1.0, 2.0], scale=[1.0]), "lengths"),
    "a number": (lambda: predictor("absolute").predict_interval(1.0), "one entry per row"),
    "two dimensions": (lambda: predictor("absolute").predict_interval([[1.0], [2.0]]), "prediction"),
    "flat logits": (lambda: predictor("lac").predict_set([0.0, 1.0]), "logits"),
    "ragged logits": (lambda: predictor("lac").predict_set([[0.0, 1.0], [1.0]]), "row 1"),
    "logit": (lambda: predictor("lac").predict_set([[0.0, math.inf]]), "row 0"),
    "label": (lambda: predictor("lac").conformity(label=[2], logits=[[0.0, 1.0]]), "0 to 1"),
    "no name": (
        lambda: predictor("absolute", {"F": 1.0}, by="group").predict_interval([1.0], group=[None]),
        "group",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD_ROWS))
def test_rows_that_cannot_be_used_are_named(case: str) -> None:
    use, words = BAD_ROWS[case]
    with pytest.raises(DataError) as refused:
        use()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_who_uses_it_is_warned() -> None:
    assert predictor("absolute").warnings == ()
    nothing = threshold(1.0, kind="none", reason="the mean of quantiles has no proven coverage")
    assert predictor("absolute", thresholds={"all": nothing}).warnings == (
        "No coverage is guaranteed: the mean of quantiles has no proven coverage.",
    )
    all_of_it = threshold(math.inf, reason="the noise is too large")
    assert predictor("absolute", thresholds={"all": all_of_it}).warnings == (
        "The threshold is infinite, so that sets hold everything: the noise is too large.",
    )
    parts = {"F": threshold(1.0), "M": all_of_it, "other": threshold(math.inf, reason="no rows")}
    assert predictor("absolute", by="group", thresholds=parts).warnings == (
        "The threshold is infinite, so that sets hold everything for group 'M', 'other'.",
    )
    classes = {"0": threshold(0.5), "1": all_of_it}
    assert predictor("lac", by="class", thresholds=classes).warnings == (
        "The threshold is infinite for class '1', so that every set holds it: the noise is too large.",
    )


# --- from a run -----------------------------------------------------------------------------------------


def run(**options: Any) -> fedassay.Result:
    return fedassay.conformal(
        options.pop("data", regression_rows(600)),
        client="site",
        privacy=fedassay.Plain(),
        simulation=fedassay.Simulation(seed=1),
        **options,
    )


def test_the_predictor_of_a_run_has_its_threshold_and_covers_as_it_says() -> None:
    rows = regression_rows(600)
    result = run(data=rows, target="y", prediction="p", scale="s")
    made = fedassay.ConformalPredictor.of(result)
    assert made.threshold == result["threshold"]
    assert made.columns == {"target": "y", "prediction": "p", "scale": "s", "client": "site"}
    assert (made.method, made.level, made.score) == (result["method"], 0.9, "normalised")
    assert made.thresholds["all"].guarantee.coverage == result["guarantee"]["coverage"]
    assert made.privacy == dict(result.privacy)
    assert made.fedassay == fedassay.__version__
    scores = made.conformity(target=rows["y"], prediction=rows["p"], scale=rows["s"])
    assert made.threshold in scores
    assert 0.88 < made.covers(scores).mean() < 0.95


def test_a_run_by_class_and_one_by_group() -> None:
    images = class_rows(3000)
    result = run(data=images, label="k", logits="z", sets="raps", conditional="class")
    made = fedassay.ConformalPredictor.of(result)
    assert (made.by, list(made.thresholds)) == ("class", ["0", "1", "2", "3"])
    assert made.parameters == (0.01, 5.0)
    assert made.classes == 4
    assert fedassay.ConformalPredictor.of(run(data=images, label="k", logits="z")).classes == 4
    covered = made.covers(made.conformity(label=images["k"], logits=images["z"]), group=images["k"])
    assert all(0.87 < covered[images["k"] == k].mean() < 0.97 for k in range(4))
    rows = regression_rows(3000)
    result = run(
        data=rows, target="y", lower="a", upper="b", conditional="group", by="sex", groups=["F", "M"]
    )
    made = fedassay.ConformalPredictor.of(result)
    assert (made.by, list(made.thresholds), made.columns["group"]) == ("group", ["F", "M", "other"], "sex")
    assert made.predict_interval(lower=rows["a"], upper=rows["b"], group=rows["sex"]).shape == (3000, 2)


def test_a_run_in_which_each_client_is_alone() -> None:
    result = run(target="y", prediction="p", method="local")
    made = fedassay.ConformalPredictor.of(result)
    assert made.by == "client"
    assert {name: one.value for name, one in made.thresholds.items()} == {
        site["site"]: site["threshold"] for site in result["sites"]
    }
    assert set(made.thresholds) == {"north", "south"}


def test_a_result_without_a_threshold_has_no_predictor() -> None:
    rows = regression_rows(600)
    found = run(data=rows, target="y", prediction="p")
    none = {**found.results, "threshold": None, "infinite": False, "reason": "nobody sent anything"}
    with pytest.raises(DataError, match="it has no threshold: nobody sent anything"):
        fedassay.ConformalPredictor.of(replace(found, results=none))
    ecdf = fedassay.ecdf(rows, client="site", value="y", lower=-5, upper=5, privacy=fedassay.Plain())
    with pytest.raises(UsageError, match="expected one of conformal"):
        fedassay.ConformalPredictor.of(ecdf)


def test_an_average_promises_nothing_and_says_so() -> None:
    made = fedassay.ConformalPredictor.of(run(target="y", prediction="p", method="average"))
    (warning,) = made.warnings
    assert warning.startswith("No coverage is guaranteed: ")
