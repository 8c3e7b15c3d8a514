"""The task: what it refuses, which way it takes, what it asks, and what it says."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from conformal_drive import drive, normal_clients, setting_of
from fedassay.errors import FedassayError, UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import Collect, Part, Select, Sum
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.local_quantiles import LocalQuantile, QuantileLosses, QuantileVotes
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.threshold import Found
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, Shuffle, TwoServer

RANGE = (0.0, 4.0)
SETTINGS = {
    "plain": setting_of(Plain(), clients=10),
    "secure-sum": setting_of(SecureSum(), clients=10),
    "server-dp": setting_of(ServerDP(), clients=10, epsilon=1.0),
    "distributed-dp": setting_of(DistributedDP(), clients=10, epsilon=1.0),
    "two-server": setting_of(TwoServer(), clients=10, epsilon=1.0, rows_per_client=100),
    "local-dp": setting_of(LocalDP(), clients=10, epsilon=4.0, rows_per_client=100),
    "shuffle": setting_of(Shuffle(), clients=10, epsilon=4.0, rows_per_client=100),
    "one row, local-dp": setting_of(LocalDP(), clients=5000, epsilon=4.0, rows_per_client=1, unit="client"),
    "one row, shuffle": setting_of(
        Shuffle(), clients=5000, epsilon=1.0, delta=1e-6, rows_per_client=1, unit="client"
    ),
}
SUMMING = ("secure-sum", "server-dp", "distributed-dp", "two-server")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "magic"}, "method: got 'magic', expected auto, qq"),
        ({"guarantee": "none"}, "guarantee: got 'none'"),
        ({"level": 1.0}, "level: got 1"),
        ({"level": math.nan}, "level: got nan"),
        ({"confidence": 0.0}, "confidence: got 0"),
        ({"confidence": 0.8}, "confidence: it belongs to"),
        ({"report_level": 1.0}, "report_level: got 1"),
        ({"sets": "residual"}, "sets: got 'residual'"),
        ({"score_parameters": (1.0,)}, "score_parameters: got 1 numbers for conformity, expected none"),
        ({"score_range": (1.0,)}, "score_range: got 1"),
        ({"score_range": (1.0, 1.0)}, "score_range: got 1,1"),
        ({"score_range": (0.0, math.inf)}, "score_range: got inf"),
        ({"score_range": (math.nan, 1.0)}, "score_range: got nan"),
        ({"bins": 1}, "bins: got 1"),
        ({"bins": 2.0}, "bins: got 2.0"),
        ({"bins": (1 << 20) + 1}, "bins: got 1048577"),
        ({"conditional": "site"}, "conditional: got 'site'"),
        ({"conditional": "class", "groups": ("0", "1")}, "knows no classes"),
        ({"conditional": "group"}, "group"),
        ({"groups": ("F",)}, "nothing to tell rows apart by"),
        (
            {"sets": "lac", "conditional": "class", "groups": ("0", "1"), "classes": 3},
            "groups: got 2 for 3 classes",
        ),
        (
            {"method": "local", "conditional": "group", "groups": ("F",)},
            "with the method local each client has a threshold",
        ),
        ({"method": "average", "guarantee": "training-conditional"}, "which average cannot promise"),
        ({"method": "weighted", "guarantee": "training-conditional"}, "which weighted cannot promise"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Conformal(**fields)


ASKED = {"qq": LocalQuantile, "votes": QuantileVotes, "choices": QuantileLosses, "distribution": ValueTree}


def first(method: str, setting: str, **fields: Any) -> tuple[str, Any]:
    task = Conformal(method=method, **{"score_range": RANGE, **fields})
    return task.way(SETTINGS[setting])[0], next(task.steps(SETTINGS[setting]))


def test_the_default_fits_the_trust_model() -> None:
    found = {name: first("auto", name) for name in SETTINGS}
    assert {name: method for name, (method, _) in found.items()} == {
        **{"plain": "qq", "local-dp": "qq", "shuffle": "qq"},
        **dict.fromkeys((*SUMMING, "one row, local-dp", "one row, shuffle"), "pooled"),
    }
    for name, (_, query) in found.items():
        kind = Collect if name == "plain" else Select if name in ("local-dp", "shuffle") else Sum
        assert type(query) is kind
        assert (query.share, query.part) == (1.0, Part.ALL)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", ["qq", "qq-paper", "average", "pooled", "weighted", "local"])
def test_each_method_asks_in_its_own_way_or_says_why_not(method: str, setting: str) -> None:
    chooses = setting in ("local-dp", "shuffle", "one row, local-dp", "one row, shuffle")
    if method in ("pooled", "weighted"):
        possible = method == "pooled" or not setting.startswith("one row")
    elif method in ("average", "local"):
        possible = setting == "plain"
    else:
        possible = setting == "plain" or chooses or (method == "qq" and setting == "secure-sum")
    if not possible:
        with pytest.raises(UnsupportedQuery, match="use `"):
            first(method, setting)
        return
    if method == "qq-paper" and setting.startswith(
        "one row"
    ):  # the published correction is more than one row
        with pytest.raises(StopIteration) as end:
            first(method, setting)
        assert end.value.value["infinite"]
        assert "by the published rule" in end.value.value["reason"]
        return
    name, query = first(method, setting, bins=16, level=0.5)
    assert name == method
    if method in ("pooled", "weighted"):
        assert type(query) is Sum
    elif setting == "plain":
        assert isinstance(query.of, LocalQuantile)
    else:
        assert isinstance(query.of, QuantileVotes if setting == "secure-sum" else QuantileLosses)


@pytest.mark.parametrize("setting", ["local-dp", "shuffle"])
def test_private_choices_are_not_made_for_groups(setting: str) -> None:
    with pytest.raises(UnsupportedQuery, match="qq by group: a client would choose once for each"):
        first("qq", setting, conditional="group", groups=("F", "M"))
    method, query = first("auto", setting, conditional="group", groups=("F", "M"))
    assert (method, type(query)) == ("pooled", Sum)


def test_a_range_is_needed_where_points_are_public_and_not_known() -> None:
    for name, setting in SETTINGS.items():
        task = Conformal(sets="absolute")
        assert task.needs_range(setting) == (name != "plain")
        if name != "plain":
            with pytest.raises(UsageError, match="give `score_range`"):
                next(task.steps(setting))
        for quantity in ("lac", "aps"):
            assert not Conformal(sets=quantity).needs_range(setting)
        assert Conformal(sets="raps").needs_range(setting) == (name != "plain")
        assert not Conformal(sets="raps", classes=5).needs_range(setting)


def test_private_choices_need_the_same_number_of_rows_everywhere() -> None:
    with pytest.raises(UsageError, match="rows_per_client"):
        next(Conformal(score_range=RANGE).steps(setting_of(LocalDP(), clients=10, epsilon=1.0)))


def test_more_points_than_reports_can_bear_are_refused_before_anything_is_asked() -> None:
    setting = SETTINGS["one row, local-dp"]
    with pytest.raises(UsageError, match="bins: got 8,192, expected at most 4,096"):
        next(Conformal(score_range=RANGE, bins=5000).steps(setting))
    query = next(Conformal(score_range=RANGE).steps(setting))
    assert isinstance(query, Sum)
    assert query.of.points == 128


def test_held_out_rows_ask_for_the_fit_first_and_know_the_number_of_classes() -> None:
    task = Conformal(sets="lac", holdout=0.3)
    with pytest.raises(UsageError, match="give `classes`"):
        next(task.steps(SETTINGS["plain"]))
    query = next(Conformal(sets="lac", holdout=0.3, classes=3).steps(SETTINGS["plain"]))
    assert isinstance(query, Collect)
    assert query.part is Part.FIT


def test_as_many_clients_as_ranks_can_be_found_for() -> None:
    crowd = setting_of(Plain(), clients=100_001)
    assert Conformal(score_range=RANGE).way(crowd)[0] == "pooled"
    with pytest.raises(FedassayError, match='use `method="pooled"`'):
        next(Conformal(method="qq", score_range=RANGE).steps(crowd))


# --- what is said ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["marginal", "training-conditional"])
@pytest.mark.parametrize("setting", [name for name in SETTINGS if not name.startswith("one row")])
def test_the_promise_in_words_and_numbers(setting: str, guarantee: str) -> None:
    promised = {} if guarantee == "marginal" else {"confidence": 0.8}
    task = Conformal(score_range=RANGE, guarantee=guarantee, bins=64, **promised)
    results = drive(task, SETTINGS[setting], normal_clients((100,) * 10))
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    promise, law = results["guarantee"], results["coverage_law"]
    assert promise["kind"] == guarantee
    assert promise["level"] == 0.9
    assert promise["coverage"] >= 0.9
    assert "probability at least 0.9" in promise["text"]
    assert "Assumed: rows of all clients" in promise["text"]
    if guarantee == "marginal":
        assert promise["confidence"] is None
        assert "With probability" not in promise["text"]
    else:
        assert promise["confidence"] == 0.8
        assert promise["probability"] >= 0.8
        assert "With probability at least 0.8 over the calibration rows" in promise["text"]
    assert law["exact"] == (setting == "plain")
    assert law["mean"] >= 0.899
    coverage = [entry["coverage"] for entry in law["quantiles"]]
    assert coverage == sorted(coverage)
    # The curve is the law's: its value where a quantile is, is the probability of that quantile.
    grid, cdf = np.array(law["curve"]["coverage"]), np.array(law["curve"]["cdf"])
    for entry in law["quantiles"]:
        assert np.interp(entry["coverage"], grid, cdf) == pytest.approx(entry["probability"], abs=0.02)


def test_private_choices_by_the_published_rule_keep_a_confidence_too() -> None:
    task = Conformal(
        method="qq-paper", score_range=RANGE, guarantee="training-conditional", confidence=0.95, bins=64
    )
    results = drive(task, SETTINGS["local-dp"], normal_clients((100,) * 10))
    assert results["guarantee"]["probability"] >= 0.95
    assert results["gamma"] > 0


def test_everything_covers_everything() -> None:
    found = Found.everything("there are too few rows.", clients=2)
    for confidence in (None, 0.9):
        described = found.to_json(level=0.9, confidence=confidence)
        assert described["reason"] == "there are too few rows"
        promise = described["guarantee"]
        assert (promise["coverage"], promise["probability"], promise["assumption"]) == (1.0, 1.0, None)
        assert promise["text"] == "The set holds everything, and so covers every new row."
