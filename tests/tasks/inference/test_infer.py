"""The task: what it refuses, what it asks, and how it goes on from a saved state."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import fedassay
from conformal_drive import setting_of
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Draw
from fedassay.summaries.regression.moments import MOST_FEATURES, RegressionMoments
from fedassay.summaries.regression.rounds import ClientSpread, RegressionRound
from fedassay.tasks.inference.infer import Infer, default_rounds
from fedassay.tasks.inference.online import INTERVALS
from regression_rows import made, pooled
from regression_streams import Stream

FEATURES = ("age", "body mass", "dose")


def task(**changed: Any) -> Infer:
    return Infer(**{"features": FEATURES, "rounds": 40, **changed})


def parts(
    model: str, sizes: tuple[int, ...], scales: tuple[float, ...] = (1.0, 50.0, 1e-3)
) -> list[dict[str, np.ndarray]]:
    columns = made(model, sum(sizes), scales=scales)
    ends = np.cumsum((0, *sizes))
    return [{name: column[a:b] for name, column in columns.items()} for a, b in itertools.pairwise(ends)]


def found(of: Infer, stream: Stream) -> dict[str, Any]:
    results = stream.drive(of.steps(setting_of(clients=len(stream.clients))))
    return json.loads(json.dumps(results, allow_nan=False))  # type: ignore[no-any-return]


def values(results: dict[str, Any], what: str = "value") -> np.ndarray:
    return np.array([one[what] for one in results["coefficients"]])


# --- what it refuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "probit"}, "model: got 'probit', expected one of linear, logistic"),
        ({"method": "bootstrap"}, "method: got 'bootstrap', expected round-plug-in"),
        ({"scales": ("age=50",)}, "scales: got 'age=50'"),
        ({"features": ("a", "")}, "features: got an empty name"),
        ({"features": ("a", 3)}, "features: got 3, expected a text"),
        ({"features": ("a", "a")}, "features: got one of them twice"),
        ({"features": ("a", "intercept")}, "features: got one named 'intercept', which is taken"),
        ({"features": (), "intercept": False}, "features: got 0, expected 1 to"),
        ({"features": tuple(map(str, range(MOST_FEATURES + 1)))}, f"features: got {MOST_FEATURES + 1}"),
        ({"contrasts": ("age - weight",)}, "contrasts: got 'age - weight'"),
        ({"contrasts": ("intercept",), "intercept": False}, "contrasts: got 'intercept'"),
        ({"method": "newton"}, "rounds: the method newton has no use for it; leave out `rounds`"),
        ({"method": "newton", "rounds": None, "participation": 0.5}, "participation: the method newton"),
        (
            {"method": "newton", "rounds": None, "local_steps": 2},
            "local_steps: the method newton .*`local_steps`",
        ),
        ({"method": "newton", "rounds": None, "local": "fixed"}, "local: the method newton"),
        ({"method": "newton", "rounds": None, "step": 0.1}, "step: the method newton"),
        ({"method": "newton", "rounds": None, "decay": 0.7}, "decay: the method newton"),
        ({"method": "newton", "rounds": None, "weighting": "clients"}, "weighting: the method newton"),
        ({"method": "newton", "rounds": None, "state": {}}, "state: the method newton"),
        ({"variance": "model"}, "variance: the method round-plug-in has no use for it; leave out `variance`"),
        ({"state": {}, "step": 0.1}, "step: got one together with a state"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_the_task_is_made(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        task(**wrong)


def test_names_and_defaults() -> None:
    assert task().names == ("intercept", *FEATURES)
    assert task(intercept=False).names == FEATURES
    assert Infer().names == ("intercept",)
    assert Infer(features=list(FEATURES)).features == FEATURES  # type: ignore[arg-type]
    assert task(contrasts=[" age - dose "]).contrasts == ("age - dose",)


def test_a_bound_on_rows_is_refused_where_there_is_no_noise() -> None:
    """Which rows stay is drawn anew in each round: rows would be used twice without being counted."""
    with pytest.raises(UsageError, match="rows_per_client"):
        next(task().steps(setting_of(clients=3, rows_per_client=5)))


def test_as_many_rounds_as_there_are_fresh_rows_for() -> None:
    assert default_rounds(10**6, 10, 1.0) == 200
    assert default_rounds(10, 10, 1.0) == 20
    assert default_rounds(1000, 10, 0.5) == 100
    stream = Stream(parts("linear", (100, 300, 200)))
    assert found(task(rounds=None), stream)["fit"]["rounds"] == 100


# --- what it asks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", INTERVALS)
def test_one_sum_for_the_scale_then_rounds(method: str) -> None:
    stream = Stream(parts("linear", (80, 120, 200, 80)))
    found(task(method=method, participation=0.5), stream)
    asked = [query.of for query in stream.asked]
    assert isinstance(asked[0], RegressionMoments)
    assert all(isinstance(of, RegressionRound) for of in asked[1:41])
    assert [type(of) for of in asked[41:]] == ([ClientSpread] if method.startswith("separated") else [])
    assert all(query.cohort == Draw(clients=2) for query in stream.asked[1:41])
    assert sum(query.share for query in stream.asked) <= 1


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_linear_estimates_are_those_of_the_pooled_rows_in_their_units(
    standardise: bool, intercept: bool
) -> None:
    """Every row once; features of scales 1, 50 and 0.001 where they are standardised, with an offset."""
    scales = (1.0, 50.0, 1e-3) if standardise else (1.0, 1.0, 1.0)
    clients = parts("linear", (40, 160, 200), scales)
    of = task(
        standardise=standardise, intercept=intercept, offset=True, step=0.1, contrasts=("age - 2*dose = 0.5",)
    )
    results = found(of, Stream(clients))
    every = pooled(clients)
    x = sm.add_constant(every["features"]) if intercept else every["features"]
    theirs = sm.OLS(every["target"] - every["offset"], x).fit(cov_type="HC0")
    np.testing.assert_allclose(values(results), theirs.params, rtol=1e-6)
    np.testing.assert_allclose(values(results, "standard_error"), theirs.bse, rtol=0.5)
    (contrast,) = results["contrasts"]
    weights = np.array([0.0] * intercept + [1.0, 0.0, -2.0])
    assert contrast["value"] == pytest.approx(weights @ theirs.params, rel=1e-6)
    assert contrast["standard_error"] == pytest.approx(
        np.sqrt(weights @ np.array(results["covariance"]) @ weights), rel=1e-9
    )
    assert results["fit"]["rows"] == 400
    assert results["fit"]["clients"] == 3
    np.testing.assert_allclose(results["path"][-1]["values"], values(results), rtol=1e-9)
    np.testing.assert_allclose(
        results["path"][-1]["standard_errors"], values(results, "standard_error"), rtol=1e-6
    )


def test_logistic_estimates_with_an_offset() -> None:
    """With the steps that it chooses itself: where the path began must not be seen in the estimate."""
    clients = parts("logistic", (1000, 2000, 1000))
    results = found(task(model="logistic", rounds=100, offset=True), Stream(clients))
    every = pooled(clients)
    x = sm.add_constant(every["features"])
    theirs = sm.GLM(every["target"], x, offset=every["offset"], family=sm.families.Binomial()).fit(
        cov_type="HC0"
    )
    # Up to a quarter of the rounds is left out: three times sqrt(1/3) standard errors.
    assert (np.abs(values(results) - theirs.params) < 1.73 * theirs.bse).all()
    np.testing.assert_allclose(values(results, "standard_error"), theirs.bse, rtol=0.35)
    odds = results["coefficients"][1]["odds_ratio"]
    assert odds["value"] == pytest.approx(np.exp(values(results)[1]))


def test_clients_without_rows_change_nothing() -> None:
    clients = parts("linear", (80, 120, 200))
    empty = {name: column[:0] for name, column in clients[0].items()}
    for weights, per in (("rows", 400 / 4), ("clients", 3 / 4)):
        stream = Stream([*clients, empty])
        with_ = found(task(weighting=weights), stream)
        assert {query.of.per for query in stream.asked[1:]} == {per}  # weights of all four have the mean 1
        without = found(task(weighting=weights), Stream(clients))
        np.testing.assert_allclose(values(with_), values(without), rtol=1e-9)
        np.testing.assert_allclose(
            values(with_, "standard_error"), values(without, "standard_error"), rtol=1e-6
        )
        assert with_["fit"]["clients"] == 3


def test_a_diverging_step_is_named() -> None:
    results = found(task(step=100.0), Stream(parts("linear", (80, 80))))
    assert reason_of(results).startswith("step: got 100, with which the iterates diverge")


def test_columns_that_depend_on_each_other_are_named() -> None:
    clients = parts("linear", (200, 200))
    for columns in clients:
        twice = columns["features"].copy()
        twice[:, 2] = 1 - 2 * twice[:, 0]
        columns["features"] = twice
    assert "'age' and 'dose'" in reason_of(found(task(contrasts=("age - dose = 1",)), Stream(clients)))


def reason_of(results: Mapping[str, Any]) -> str:
    """Why a regression has no fit; nothing in it has a value then."""
    assert all(one["value"] is None and one["reason"] for one in results["coefficients"])
    assert all(one["value"] is None and one["reason"] for one in results["contrasts"])
    assert results["covariance"] is results["fit"]["loss"] is None
    assert not results["fit"]["converged"]
    assert results["fit"]["rounds"] >= 1
    reason: str = results["fit"]["reason"]
    return reason


# --- a saved state ----------------------------------------------------------------------------------------


class Fed:
    """Answers to the questions of a task, given by hand."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def through(self, steps: Generator[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        reply = None
        while True:
            try:
                self.asked.append(steps.send(reply))
            except StopIteration as finished:
                assert not self.answers
                return finished.value  # type: ignore[no-any-return]
            reply = self.answers.pop(0)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_twice_fifty_rounds_with_a_state_between_are_a_hundred(model: str) -> None:
    """Of the same released sums, to the last bit: the state is all that a server keeps."""
    stream = Stream(parts(model, (300, 200, 100)))
    setting = setting_of(clients=3)
    of = task(model=model, rounds=100, local_steps=2, contrasts=("age - dose",))
    whole = found(of, stream)
    half = replace(of, rounds=50)
    # A logistic run ends with sums that look for a separation, from the same rows and the same start.
    first = Fed([*stream.answers[:51], *stream.answers[101:]]).through(half.steps(setting))
    kept = json.loads(json.dumps(first["state"]))
    fed = Fed([stream.answers[0], *stream.answers[51:101]])  # how many rows there are now is asked again
    second = fed.through(replace(half, state=kept).steps(setting))
    assert len(fed.asked) == 51
    assert [query.of.theta for query in fed.asked[1:]] == [query.of.theta for query in stream.asked[51:101]]
    assert [query.of.step for query in fed.asked[1:]] == [query.of.step for query in stream.asked[51:101]]
    for what in ("coefficients", "covariance", "contrasts", "law", "state"):
        assert json.loads(json.dumps(second[what])) == whole[what]
    assert second["fit"]["rounds"] == 100
    assert second["fit"]["rows"] == whole["fit"]["rows"]


@functools.cache
def state() -> dict[str, Any]:
    return found(task(), Stream(parts("linear", (80, 120))))["state"]  # type: ignore[no-any-return]


def test_a_state_of_another_question_is_refused() -> None:
    kept = state()
    for changed, said in (
        ({"model": "logistic"}, "model 'linear', expected 'logistic'"),
        ({"features": ("age", "dose", "body mass")}, "names"),
        ({"intercept": False}, "names"),
        ({"weighting": "clients"}, "weighting 'rows', expected 'clients'"),
        ({"offset": True}, "offset False, expected True"),
        ({"decay": 0.7}, "decay"),
    ):
        with pytest.raises(UsageError, match=f"state: got one with {said}"):
            next(task(state=kept, **changed).steps(setting_of(clients=2)))


@pytest.mark.parametrize(
    "damage",
    [
        {"path": None},
        {"path": {}},
        {"standard": {"features": 3, "colour": 1}},
        {"standard": None},
        {"step": "fast"},
        {"answers": "many"},
        {"answers": None},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_in_one_sentence(damage: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="state|step, per"):
        next(task(state={**state(), **damage}).steps(setting_of(clients=2)))


def by_rounds(x: np.ndarray, y: np.ndarray, **options: Any) -> Mapping[str, Any]:
    data = {
        "site": np.arange(len(x)) % 6,
        **{f"x{j}": x[:, j] for j in range(x.shape[1])},
        "y": y.astype(int),
    }
    return fedassay.infer(
        data,
        client="site",
        target="y",
        features=[f"x{j}" for j in range(x.shape[1])],
        model="logistic",
        privacy=fedassay.Plain(),
        simulation=fedassay.Simulation(seed=1, mode="aggregate"),
        **{"rounds": 60, **options},
    ).results


@pytest.mark.parametrize("method", INTERVALS)
def test_rounds_tell_of_perfect_separation(method: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 2))
    told = reason_of(by_rounds(x, x[:, 0] > 0, method=method))
    assert re.search(r"got 'x0', which tells the target of every row.*perfect separation", told)
    notes = by_rounds(x, x[:, 0] + rng.logistic(size=3000) > 0, method=method)["notes"]
    assert not any("separat" in note for note in notes)


@pytest.mark.parametrize("rare", [10, 300])
def test_rounds_tell_of_quasi_complete_separation(rare: int) -> None:
    """All who have the rare value have the same target, and the others overlap; one exception, and there is an end."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.normal(size=3000), np.arange(3000) % (3000 // rare) == 7])
    y = (x[:, 0] + rng.logistic(size=3000) > 0) | (x[:, 1] == 1)
    assert re.search(
        r"got 'x1', which tells the target of some rows.*quasi-complete", reason_of(by_rounds(x, y))
    )
    y[7] = False
    by_rounds(x, y)


def test_rows_that_are_separated_after_others_that_were_not_are_only_told() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3000, 1))
    first = by_rounds(x, 3 * x[:, 0] + rng.logistic(size=3000) > 0)
    then = by_rounds(x, x[:, 0] > 0, state=first["state"])
    told = [
        note for note in then["notes"] if note.startswith("Of the rows of this run alone: features: got 'x0'")
    ]
    assert len(told) == 1
    assert told[0].endswith("Rows of earlier runs may say otherwise.")


def test_clients_who_would_use_their_rows_again_and_again_are_not_asked() -> None:
    data = {"x": np.arange(100.0), "y": np.sin(np.arange(100.0))}
    result = fedassay.infer(data, target="y", features="x", rounds=20, privacy=fedassay.Plain())
    told = reason_of(result.results)
    assert told.startswith("rounds: got 20 for clients of 1 rows on average, who would use each row 20")


def test_a_path_that_has_hardly_arrived_is_told() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=480)
    data = {"site": np.arange(480) % 6, "x": x, "y": (3 * x + rng.logistic(size=480) > 0).astype(int)}
    simulation = fedassay.Simulation(seed=1, mode="aggregate")
    few = fedassay.infer(
        data,
        client="site",
        target="y",
        features="x",
        model="logistic",
        rounds=9,
        participation=0.5,
        privacy=fedassay.Plain(),
        simulation=simulation,
    )
    assert any("still have been on its way" in note for note in few["notes"])
