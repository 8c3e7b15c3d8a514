"""Paired differences: DeLong on pooled rows without noise, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.errors import UnsupportedQuery
from fedassay.protocol.vocabulary import Budget, Plan, Protection, Query, Setting, Sum
from fedassay.summaries.bounded_sums import ONE, PairedMoments, packed
from fedassay.summaries.grid import Grid
from fedassay.summaries.score_histogram import PairedHistograms
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.accuracy import expected_auc_noise
from fedassay.tasks.evaluation.comparisons import HISTOGRAMS_SHARE, MOMENTS_SHARE
from fedassay.trust import TRUST_MODELS
from fedassay.trust.plain import Plain
from pairs import Twins, delong, driven

TWINS = Twins()


def evaluated(data: dict[str, Any], **options: Any) -> fedassay.Result:
    data = {"site": np.arange(len(data["y"])) % 5, **data}
    return fedassay.evaluate(data, client="site", score="p", label="y", versus="q", **options)


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return TWINS.sample(3_000, np.random.default_rng(1))


def test_with_scores_as_they_are_it_is_delong_and_the_mean_squared_difference(
    data: dict[str, np.ndarray],
) -> None:
    difference = evaluated(data)["difference"]
    value, variance = delong(data["p"], data["q"], data["y"])
    auc = difference["roc_auc"]
    assert abs(auc["value"] - value) <= auc["error"]["discretisation"]
    assert auc["error"]["discretisation"] < 2e-4
    assert auc["error"]["sampling"] ** 2 == pytest.approx(variance, rel=1e-3)
    losses = (data["p"] - data["y"]) ** 2 - (data["q"] - data["y"]) ** 2
    brier = difference["brier_score"]
    assert abs(brier["value"] - losses.mean()) <= brier["error"]["discretisation"] < 1e-6
    assert brier["error"]["sampling"] == pytest.approx(losses.std(ddof=1) / np.sqrt(len(losses)), rel=1e-3)
    for entry in difference.values():
        low, high = entry["interval"]
        half = 1.959964 * entry["error"]["sampling"] + entry["error"]["discretisation"]
        assert (low, high) == pytest.approx((entry["value"] - half, entry["value"] + half), rel=1e-6)
        assert entry["error"]["privacy"] == 0


def test_with_binned_scores_it_is_delong_exactly(data: dict[str, np.ndarray]) -> None:
    """Scores that are the midpoints of bins tie where the bins tie: nothing is lost but the 16 bits of a placement."""
    task = Evaluate(height=7, versus=True)
    grid = task.histogram(Setting(trust=Plain(), protection=Protection(), budget=None, clients=5)).grid
    assert isinstance(grid, Grid)
    middles = (grid.edges[1:] + grid.edges[:-1]) / 2
    binned = {**data, **{name: middles[grid.locate(data[name])] for name in ("p", "q")}}
    entry = evaluated(binned, height=7)["difference"]["roc_auc"]
    value, variance = delong(binned["p"], binned["q"], binned["y"])
    assert entry["value"] == pytest.approx(value, abs=1e-13)
    assert entry["error"]["sampling"] ** 2 == pytest.approx(variance, rel=5e-5)


def test_both_models_have_their_metrics(data: dict[str, np.ndarray]) -> None:
    result = evaluated(data)
    for column, entry in (("p", result.results), ("q", result["versus"])):
        alone = fedassay.evaluate({**data, "s": data["y"] * 0}, score=column, label="y")
        for metric in ("roc_auc", "brier_score", "recall", "thresholds", "log_loss"):
            assert entry[metric] == alone[metric]
    assert result["versus"]["rows"] == 3_000


def test_the_sign_turns_with_the_models(data: dict[str, np.ndarray]) -> None:
    one = evaluated(data)["difference"]
    other = evaluated({"p": data["q"], "q": data["p"], "y": data["y"]})["difference"]
    for metric in one:
        assert one[metric]["value"] == pytest.approx(-other[metric]["value"], abs=1e-12)
        assert one[metric]["error"]["sampling"] == pytest.approx(other[metric]["error"]["sampling"], rel=1e-9)


def test_a_model_does_not_differ_from_itself(data: dict[str, np.ndarray]) -> None:
    difference = evaluated({**data, "q": data["p"].copy()})["difference"]
    for entry in difference.values():
        assert entry["value"] == 0
        assert entry["error"]["sampling"] == 0


@pytest.mark.parametrize("mode", ["faithful", "aggregate"])
def test_both_models_are_judged_on_the_same_rows_also_if_some_are_left_out(
    data: dict[str, np.ndarray], mode: Any
) -> None:
    result = evaluated(
        {**data, "q": data["p"].copy()},
        privacy=fedassay.Plain(),
        protection=Protection(rows_per_client=100),
        simulation=fedassay.Simulation(mode=mode),
    )
    assert result.cohort["truncated"] == 3_000 - 500
    assert result["difference"]["roc_auc"]["value"] == 0
    assert result["versus"]["roc_auc"] == result["roc_auc"]


def test_one_row_clients_report_on_one_level_of_each_model() -> None:
    data = TWINS.sample(20_000, np.random.default_rng(5))
    result = fedassay.evaluate(
        data,
        score="p",
        label="y",
        versus="q",
        privacy=TRUST_MODELS["local-dp"](),
        budget=Budget(epsilon=6.0),
        protection=Protection(rows_per_client=1),
        simulation=fedassay.Simulation(seed=6),
    )
    noise = result["histogram"]["noise"]
    assert noise["law"] == "unary"
    assert sum(noise["reporting"]) == pytest.approx(1.0)
    for entry, model in ((result.results, TWINS.models[0]), (result["versus"], TWINS.models[1])):
        low, high = entry["roc_auc"]["interval"]
        assert low <= model.truth(0.5)["roc_auc"] <= high
        assert high - low < 0.15
    low, high = result["difference"]["roc_auc"]["interval"]
    assert low <= TWINS.truth("roc_auc") <= high


def test_one_class_only_has_no_auc_but_a_brier_score(data: dict[str, np.ndarray]) -> None:
    difference = evaluated({**data, "y": np.ones_like(data["y"])})["difference"]
    assert difference["roc_auc"]["reason"] == "there are no negative rows"
    assert difference["brier_score"]["value"] is not None


def test_one_row_of_a_class_has_no_variance() -> None:
    rows = {"p": np.array([0.1, 0.6, 0.3]), "q": np.array([0.2, 0.5, 0.9]), "y": np.array([0, 1, 0])}
    difference = evaluated(rows, privacy=fedassay.Plain())["difference"]
    assert difference["roc_auc"]["reason"] == "a variance needs at least two rows of each class"


def test_more_noise_than_rows_is_said() -> None:
    rows = TWINS.sample(60, np.random.default_rng(2))
    result = evaluated(rows, privacy=fedassay.ServerDP(), budget=Budget(epsilon=0.05))
    for entry in result["difference"].values():
        assert entry["reason"].startswith("not enough evidence")


def test_two_servers_refuse_it_because_a_row_is_in_two_histograms(data: dict[str, np.ndarray]) -> None:
    with pytest.raises(UnsupportedQuery, match="encodes each row by the cell"):
        evaluated(
            data,
            privacy=TRUST_MODELS["two-server"](),
            budget=Budget(epsilon=8.0),
            protection=Protection(rows_per_client=700),
        )


@pytest.mark.parametrize("trust", sorted(set(TRUST_MODELS) - {"two-server"}))
def test_it_runs_under_every_other_trust_model(trust: str, data: dict[str, np.ndarray]) -> None:
    model = TRUST_MODELS[trust]()
    result = evaluated(
        data,
        privacy=model,
        budget=Budget(epsilon=8.0) if model.private else None,
        simulation=fedassay.Simulation(seed=3),
    )
    for metric, entry in result["difference"].items():
        low, high = entry["interval"]
        assert low - 0.01 <= TWINS.truth(metric) <= high + 0.01
        assert (entry["error"]["privacy"] > 0) == model.private


def test_the_budget_is_divided_and_spent_whole() -> None:
    setting = Setting(
        trust=fedassay.ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=5
    )
    shares = []
    steps = Evaluate(versus=True).steps(setting)
    query = next(steps)
    assert isinstance(query, Sum)
    shares.append(query.share)
    data = TWINS.sample(500, np.random.default_rng(1))
    seen: list[Query[Any]] = []

    @dataclass(frozen=True)
    class Watching(Plain):
        def plan(self, query: Query[Any], setting: Setting) -> Plan:
            seen.append(query)
            return super().plan(query, setting)

    driven(
        Evaluate(versus=True), replace(setting, trust=Watching(), budget=None), data, lambda noise, size: 0
    )
    shares.append(seen[-1].share)
    assert isinstance(seen[-1].of, PairedMoments)
    assert sum(shares) == pytest.approx(1.0)


def test_noise_weighs_as_much_on_one_difference_as_on_the_other() -> None:
    """Why the budget is divided as it is; see `HISTOGRAMS_SHARE`."""
    setting = Setting(
        trust=fedassay.ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=5
    )
    rows, histogram = 1e5, Evaluate().histogram(setting)
    noise = setting.noise(Sum(of=PairedHistograms.like(histogram), share=HISTOGRAMS_SHARE))
    auc = math.sqrt(2) * expected_auc_noise(histogram, noise, rows=rows)
    auc_sampling = 0.15 * math.sqrt(1 / (rows / 2) + 1 / (rows / 2))
    moments = PairedMoments(transform="uniform", height=2, placements=packed(*[np.zeros(4)] * 4))
    brier = math.sqrt(setting.noise(Sum(of=moments, share=MOMENTS_SHARE)).variance) / (2 * ONE) / rows
    brier_sampling = 0.1 / math.sqrt(rows)
    assert auc / auc_sampling == pytest.approx(brier / brier_sampling, rel=0.1)


def test_what_the_second_step_cannot_have_is_refused_before_the_first() -> None:
    @dataclass(frozen=True)
    class OnlyCounts(Plain):
        def plan(self, query: Query[Any], setting: Setting) -> Plan:
            if isinstance(query, Sum) and not query.of.partitions:
                raise UnsupportedQuery("only counts")
            return super().plan(query, setting)

    setting = Setting(trust=OnlyCounts(), protection=Protection(), budget=None, clients=5)
    next(Evaluate().steps(setting))
    with pytest.raises(UnsupportedQuery, match="only counts"):
        next(Evaluate(versus=True).steps(setting))
