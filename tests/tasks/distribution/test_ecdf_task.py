"""The task: what it refuses, asks, says, and stores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from drawn_values import PLAIN, drive, server
from fedassay.errors import UsageError
from fedassay.estimation.metric import Undefined
from fedassay.protocol.vocabulary import LARGEST_EPSILON, Neighbours, Protection, Setting, Sum
from fedassay.tasks.distribution import Ecdf, quantile_at, value_at
from fedassay.tasks.distribution.curve import ReleasedCurve
from fedassay.tasks.distribution.ecdf import FIRST_SHARE, MOST_LISTED, quantile_points
from fedassay.tasks.distribution.stored import Release, packed, unpacked
from fedassay.trust.server_dp import ServerDP

MECHANISMS = ("tree", "path", "factorised")


def rows(count: int = 4000, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = (rng.random(count) < 0.4).astype(np.int8)
    return {"value": rng.normal(0.45 + 0.15 * label, 0.15), "label": label}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lower": 1.0, "upper": 1.0}, "range: got 1 to 1"),
        ({"lower": float("nan")}, "lower: got nan"),
        ({"grid": "log"}, "grid: got 'log', expected uniform, logarithmic, quantile, or a list of numbers"),
        ({"grid": "logarithmic"}, "expected one above 0 for a logarithmic grid"),
        ({"grid": (1.0, 1.0)}, "increasing"),
        ({"quantiles": (0.5, 1.0)}, "quantiles: got 1.0"),
        ({"public_labels": True}, "public_labels"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Ecdf(**fields)


def test_the_number_of_points_is_rounded_up_and_the_result_says_so() -> None:
    results = drive(Ecdf(points=1000), PLAIN, rows())
    assert len(results["points"]) == results["grid"]["points"] == 1024
    assert "1,000 was rounded up to 1,024" in results["notes"][0]
    assert drive(Ecdf(points=1024), PLAIN, rows())["notes"] == []
    assert drive(Ecdf(grid=(0.2, 0.4, 0.5)), PLAIN, rows())["notes"] == []


@pytest.mark.parametrize("mechanism", ["auto", *MECHANISMS])
@pytest.mark.parametrize("labelled", [False, True])
def test_the_results_are_plain_and_complete(mechanism: str, labelled: bool) -> None:
    task = Ecdf(points=128, mechanism=mechanism, labelled=labelled, quantiles=(0.1, 0.5))
    results = drive(task, server(1.0, 1e-6), rows())
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    if mechanism != "auto":
        assert results["mechanism"] == mechanism
    curves = [results] + [results[name] for name in ("positives", "negatives") if labelled]
    for curve in curves:
        values, lower, upper = (np.array(curve[name]) for name in ("values", "lower", "upper"))
        assert len(results["points"]) == len(values) == 128
        assert ((lower >= 0) & (lower <= values) & (values <= upper) & (upper <= 1)).all()
        assert (np.diff(values) >= 0).all()
        assert values[-1] == 1
        for errors in curve["standard_error"].values():
            assert len(errors) == 128
        assert curve["rows"]["error"]["privacy"] > 0
    for entry in results["quantiles"]:
        assert entry["interval"][0] < entry["value"] <= entry["interval"][1]
    assert ("roc_auc" in results) == ("roc_curve" in results) == labelled
    if labelled:
        assert results["roc_auc"]["error"]["privacy"] > 0
        both = results["positives"]["rows"]["value"] + results["negatives"]["rows"]["value"]
        assert results["rows"]["value"] == pytest.approx(both)


@pytest.mark.parametrize("smoothing", ["none", "isotonic", "l1", "l2"])
@pytest.mark.parametrize("smoothed_points", [None, 16])
def test_smoothing_on_all_points_or_some(smoothing: str, smoothed_points: int | None) -> None:
    task = Ecdf(points=256, smoothing=smoothing, smoothed_points=smoothed_points, quantiles=(0.3,))
    results = drive(task, server(0.2), rows())
    values = np.array(results["values"])
    assert len(values) == (smoothed_points or 256)
    assert ((values >= 0) & (values <= 1)).all()
    if smoothing != "none":
        assert (np.diff(values) >= 0).all()
    elif smoothed_points is None:
        assert (np.diff(values) < 0).any()
    assert results["points"][-1] == 1.0
    low, high = results["quantiles"][0]["interval"]
    assert low <= results["quantiles"][0]["value"] <= high
    assert quantile_at(results, 0.3) == results["quantiles"][0]


def test_a_grid_at_quantiles_asks_twice_and_says_so() -> None:
    data = {"value": np.random.default_rng(2).normal(20.0, 0.5, 20_000)}
    task = Ecdf(lower=0.0, upper=1000.0, points=256, grid="quantile", quantiles=(0.5,))
    steps = task.steps(server(1.0))
    first = next(steps)
    assert isinstance(first, Sum)
    assert (first.share, first.of.points) == (FIRST_SHARE, 256)
    results = drive(task, server(1.0), data)
    points = np.array(results["points"])
    assert len(points) == 255
    assert points[-1] == 1000.0
    assert ((points > 15) & (points < 25)).mean() > 0.8
    assert (np.diff(points) > 0).all()
    assert results["grid"]["first_look"]["share"] == FIRST_SHARE
    assert results["grid"]["spacing"] == "quantile"
    assert "30% of the budget" in results["notes"][0]
    low, high = results["quantiles"][0]["interval"]
    assert low < 20.0 < high
    uniform = drive(Ecdf(lower=0.0, upper=1000.0, points=256, quantiles=(0.5,)), server(1.0), data)
    assert high - low < 0.25 * np.subtract(*uniform["quantiles"][0]["interval"][::-1])


def test_a_first_look_that_sees_nothing_spreads_points_evenly() -> None:
    results = drive(Ecdf(points=16, grid="quantile"), server(1.0), rows(3))
    assert results["points"] == pytest.approx((np.arange(15) + 1) / 15)
    assert results["values"] == []
    curve = Release.from_results(results).everyone
    with pytest.raises(Undefined, match="not enough evidence"):
        curve.require_rows()
    assert len(quantile_points(curve_on_range(), 5)) == 5


def curve_on_range() -> ReleasedCurve:
    results = drive(Ecdf(points=4), PLAIN, rows(100))
    return Release.from_results(results).everyone


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_too_few_rows_have_a_reason_and_no_numbers(mechanism: str) -> None:
    task = Ecdf(points=64, mechanism=mechanism, labelled=True, quantiles=(0.5,))
    results = drive(task, server(0.1, 1e-6), rows(20))
    assert results["values"] == results["lower"] == results["upper"] == []
    assert "not enough evidence" in results["reason"]
    assert results["quantiles"][0]["value"] is None
    assert "not enough evidence" in results["quantiles"][0]["reason"]
    assert results["roc_auc"]["value"] is None
    assert results["roc_curve"]["fpr"] == []
    assert quantile_at(results, 0.5) == results["quantiles"][0]
    assert value_at(results, 0.5)["value"] is None


def test_no_rows_at_all() -> None:
    results = drive(Ecdf(quantiles=(0.5,)), PLAIN, {"value": np.empty(0)})
    assert results["reason"] == "there are no rows"
    assert results["rows"]["value"] == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_two_points_are_enough(mechanism: str, neighbours: Neighbours) -> None:
    task = Ecdf(points=2, mechanism=mechanism, labelled=True, quantiles=(0.2, 0.9))
    for setting in (PLAIN, server(1.0, neighbours=neighbours), server(1.0, 1e-6, neighbours=neighbours)):
        results = drive(task, setting, rows())
        assert results["points"] == [0.5, 1.0]
        assert results["values"][0] == pytest.approx((rows()["value"] <= 0.5).mean(), abs=0.05)
        assert [entry["value"] for entry in results["quantiles"]] == [0.5, 1.0]
        assert results["quantiles"][0]["reason"].startswith("at or below 0.5, in the first cell")
        assert results["quantiles"][1]["reason"].startswith("above 0.5, in the last cell")


def test_long_lists_are_thinned_and_the_release_is_not() -> None:
    task = Ecdf(points=1 << 14, quantiles=(0.37,))
    results = drive(task, server(1.0), rows(50_000))
    assert len(results["points"]) == len(results["values"]) == len(results["lower"]) == MOST_LISTED
    assert any("4,096 are listed" in note for note in results["notes"])
    assert results["points"][-1] == 1.0
    release = Release.from_results(json.loads(json.dumps(results)))
    assert release.summary.points == 1 << 14
    assert quantile_at(results, 0.37) == results["quantiles"][0]
    assert len(json.dumps(results["distribution"])) < 3 * (1 << 14)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_stored_release_is_the_release(mechanism: str) -> None:
    task = Ecdf(grid=tuple(np.linspace(0.1, 0.9, 30)), mechanism=mechanism, labelled=True)
    results = json.loads(json.dumps(drive(task, server(1.0, 1e-6), rows())))
    release = Release.from_results(results)
    assert release.to_json() == results["distribution"]
    for name in ("all", "positives", "negatives"):
        curve = release.named(name)
        listed = results if name == "all" else results[name]
        assert curve.rows == listed["rows"]["value"]
        entry = quantile_at(results, 0.5, of=name)
        at = value_at(results, entry["value"], of=name)
        assert at["interval"][0] <= at["value"] <= at["interval"][1]
        assert at["value"] == pytest.approx(listed["values"][results["points"].index(entry["value"])])
    wide, narrow = (quantile_at(results, 0.5, level=level)["interval"] for level in (0.99, 0.5))
    assert wide[0] <= narrow[0] < narrow[1] <= wide[1]


def test_a_stored_release_that_was_tampered_with_is_refused() -> None:
    results = drive(Ecdf(points=16), server(1.0), rows())
    stored = results["distribution"]
    numbers = stored["numbers"]
    for broken in (
        {},
        {"distribution": None},
        {**results, "smoothing": "other"},
        {**results, "distribution": {**stored, "summary": {**stored["summary"], "name": "value-other"}}},
        {**results, "distribution": {**stored, "summary": {**stored["summary"], "points": 32}}},
        {**results, "distribution": {**stored, "summary": {**stored["summary"], "extra": 1}}},
        {**results, "distribution": {**stored, "numbers": {**numbers, "type": "object"}}},
        {**results, "distribution": {**stored, "numbers": {**numbers, "length": 2**40}}},
        {**results, "distribution": {**stored, "numbers": {**numbers, "data": "%%"}}},
        {**results, "distribution": {**stored, "numbers": {**numbers, "data": numbers["data"][:-8]}}},
        {**results, "distribution": {**stored, "numbers": packed(np.zeros(15))}},
        {**results, "distribution": {**stored, "numbers": packed(np.full(16, np.nan))}},
        {**results, "distribution": {**stored, "noise": {}}},
    ):
        with pytest.raises(UsageError):
            quantile_at(broken, 0.5)
    with pytest.raises(UsageError, match="quantile: got 0"):
        quantile_at(results, 0)
    with pytest.raises(UsageError, match="rows have no labels"):
        quantile_at(results, 0.5, of="positives")
    with pytest.raises(UsageError, match="x: got inf"):
        value_at(results, np.inf)
    with pytest.raises(UsageError, match="level: got 2"):
        value_at(results, 0.5, level=2)


@pytest.mark.parametrize("numbers", [[], [0], [-128, 127], [128], [-(2**31), 2**31], [2**62], [0.5, 1e300]])
def test_packed_numbers_come_back(numbers: list[float]) -> None:
    given = np.array(numbers)
    given = given if given.dtype.kind == "f" and numbers else given.astype(np.int64)
    assert unpacked(packed(given)).tolist() == given.tolist()
    # A string that would grow to gigabytes is not unpacked beyond what it says it holds.
    with pytest.raises(ValueError, match="bytes instead of"):
        unpacked({**packed(np.zeros(1 << 20)), "length": 10})


def test_values_outside_the_range_count_as_its_ends() -> None:
    data = {"value": np.array([-5.0, 0.0, 0.3, 0.3, 2.0, 1e300])}
    results = drive(Ecdf(points=4, quantiles=(0.1, 0.95)), PLAIN, data)
    assert results["values"] == pytest.approx([2 / 6, 4 / 6, 4 / 6, 1.0])
    low, high = results["quantiles"]
    assert (low["value"], low["interval"][0]) == (0.25, 0.0)
    assert "all values below 0 are counted too" in low["reason"]
    assert (high["value"], high["interval"][1]) == (1.0, 1.0)
    assert "all values above 1 are counted too" in high["reason"]


def test_ends_of_given_points_are_open() -> None:
    data = {"value": np.concatenate([np.linspace(-10, 10, 999), np.full(2, 0.5)])}
    results = drive(Ecdf(grid=(-1.0, 0.0, 1.0), quantiles=(0.1, 0.5, 0.9)), PLAIN, data)
    low, middle, high = results["quantiles"]
    assert (low["value"], low["interval"]) == (-1.0, [None, -1.0])
    assert low["reason"] == "at or below -1, in the first cell"
    assert (middle["value"], "reason" in middle) == (1.0, False)
    assert (high["value"], high["interval"], high["reason"]) == (
        None,
        [1.0, None],
        "above 1, the last of the given points",
    )


# --- precision ---------------------------------------------------------------------------------------------


def test_too_little_budget_for_the_precision_is_said_with_a_remedy() -> None:
    task = Ecdf(points=1024, precision=0.01, expected_rows=2_000)
    with pytest.raises(
        UsageError, match=r"precision: with epsilon 1 and 2,000 rows.*epsilon (\S+) would do"
    ) as e:
        next(task.steps(server(1.0)))
    enough = float(str(e.value).split("epsilon ")[2].split()[0])
    assert isinstance(next(task.steps(server(enough))), Sum)
    with pytest.raises(UsageError):
        next(task.steps(server(0.8 * enough)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", ["atom", "even", "two ends"])
def test_a_precision_that_is_accepted_is_reached(mechanism: str, kind: str) -> None:
    """The noise part of the band, whatever the values are."""
    rng, count = np.random.default_rng(1), 3_000
    value = {"atom": np.full(count, 0.01), "even": rng.random(count), "two ends": rng.integers(0, 2, count)}
    task = Ecdf(points=256, mechanism=mechanism, expected_rows=count)
    setting = server(1.0, 1e-6)
    results = drive(task, setting, {"value": value[kind].astype(float)})
    curve = Release.from_results(results).everyone
    reached = float(curve.noise_half_widths(level=0.95).max()) * curve.rows / count
    accepted = Ecdf(points=256, mechanism=mechanism, expected_rows=count, precision=reached * 0.9)
    with pytest.raises(UsageError, match="precision"):
        next(accepted.steps(setting))


def test_a_useless_budget_is_refused_where_rows_are_known() -> None:
    bounded = Protection(rows_per_client=10)
    setting = server(0.01)
    with pytest.raises(UsageError, match="budget: with epsilon 0.01 and 500 rows.*the band says nothing"):
        next(Ecdf().steps(Setting(**{**vars(setting), "protection": bounded})))
    assert isinstance(next(Ecdf().steps(setting)), Sum)  # nobody knows how many rows there are
    unknown = Setting(trust=ServerDP(), protection=bounded, budget=setting.budget, clients=0)
    assert isinstance(next(Ecdf().steps(unknown)), Sum)  # nor how many clients


def test_a_precision_needs_a_number_of_rows_and_noise() -> None:
    with pytest.raises(UsageError, match="give how many you expect"):
        next(Ecdf(precision=0.1).steps(server(1.0)))
    assert isinstance(next(Ecdf(precision=1e-6).steps(PLAIN)), Sum)


def test_a_precision_that_no_epsilon_reaches() -> None:
    with pytest.raises(UsageError, match="no epsilon would do"):
        next(Ecdf(precision=1e-9, expected_rows=1, points=2).steps(server(LARGEST_EPSILON)))
