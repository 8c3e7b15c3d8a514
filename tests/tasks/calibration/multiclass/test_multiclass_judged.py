"""Held-out rows before and after a map: equal to scikit-learn on pooled rows, paired, and a verdict with its reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from conformal_drive import answer, setting_of
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.estimation.intervals import Estimate
from fedassay.estimation.metric import Metric
from fedassay.protocol.vocabulary import NO_NOISE, TOTAL_BITS, Part, Setting, Unit
from fedassay.summaries.multiclass.binned_map import Binned
from fedassay.summaries.multiclass.class_statistics import MOST_BITS
from fedassay.summaries.multiclass.scaling_maps import LogitMap, OrderPreserving, Temperature, VectorScaling
from fedassay.tasks.calibration.multiclass.held_out_judge import (
    METRICS,
    ORDER_KEPT,
    WORTH,
    Judging,
    Paired,
    accuracy_change,
    loss_change,
    skewed_interval,
    verdict,
)
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.server_dp import ServerDP
from multiclass_rows import Columns, dirichlet, drawn
from softmax_rows import SoftmaxPopulation, binned_error, pooled_metrics

CLASSES = 4
SOFTER = Temperature(inverse_temperature=0.5, classes=CLASSES)
SHIFTED = VectorScaling(slopes=(0.5, 0.6, 0.5, 0.4), intercepts=(0.5, -0.5, 0.0, 0.2))
STEPS = Binned(values=((0.05, 0.2, 0.4, 0.8),) * CLASSES, weights=(1.0, 0.5, 0.8, 0.0))
MAPS = {"temperature": SOFTER, "vector": SHIFTED, "binned": STEPS}


def judged(
    one: LogitMap, clients: Sequence[Columns], setting: Setting | None = None, seed: int = 0, **fields: Any
) -> dict[str, Any]:
    setting, judging = setting or setting_of(clients=len(clients)), Judging(map=one, **fields)
    queries = judging.queries(setting)
    assert all(query.part is Part.HELD_OUT for query in queries)
    assert sum(query.share for query in queries) == pytest.approx(1)
    released = tuple(answer(q, setting, clients, seed + i) for i, q in enumerate(queries))
    results = judging.results(released)
    json.dumps(results, allow_nan=False)
    return results


# --- without noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MAPS))
def test_noise_off_equals_scikit_learn_on_pooled_rows(name: str) -> None:
    columns, one = drawn(2000, CLASSES, seed=1), MAPS[name]
    z, y = columns["logits"], columns["class"]
    results = judged(one, dirichlet(columns, 10, 0.1), buckets=9)
    old, new = softmax(z, axis=1), one.predict_proba(z)
    before, after = pooled_metrics(old, y, 9), pooled_metrics(new, y, 9)
    assert set(results["before"]) == set(results["after"]) == set(METRICS) == set(before)
    for metric in METRICS:
        assert results["before"][metric]["value"] == pytest.approx(before[metric], abs=1e-6)
        assert results["after"][metric]["value"] == pytest.approx(after[metric], abs=1e-6)
    for metric in ("log_loss", "brier_score", "accuracy"):
        difference = results["difference"][metric]
        assert difference["value"] == pytest.approx(after[metric] - before[metric], abs=1e-9)
        assert difference["error"]["privacy"] == 0
        assert "bound" not in difference
    d = -np.log(new[np.arange(2000), y] / old[np.arange(2000), y])
    spread = results["difference"]["log_loss"]["error"]["sampling"]
    assert spread == pytest.approx(d.std(ddof=1) / np.sqrt(2000), rel=1e-6)
    unpaired = np.hypot(*(results[when]["log_loss"]["error"]["sampling"] for when in ("before", "after")))
    assert spread < unpaired
    for j, entry in enumerate(results["classes"]):
        assert (entry["class"], entry["rows"]) == (j, np.count_nonzero(y == j))
        for when, p in (("before", old), ("after", new)):
            assert entry[when]["value"] == pytest.approx(binned_error(p[:, j], y == j, 9), abs=1e-6)
    curve = results["reliability_curve"]["after"]
    assert sum(curve["share"]) == pytest.approx(1)
    weighted = np.dot(curve["share"], np.abs(np.subtract(curve["mean_score"], curve["observed"])))
    assert weighted == pytest.approx(after["expected_calibration_error"], abs=1e-6)
    assert results["rows"] == 2000
    assert results["notes"] == []


def test_a_good_map_is_recommended_and_the_reason_has_the_numbers() -> None:
    results = judged(SOFTER, [drawn(2000, CLASSES)])
    value = results["difference"]["log_loss"]["value"]
    assert results["recommended"]
    assert results["reason"].startswith(
        f"Recommended: on held-out rows the log loss changes by {value:+.2g} (95%"
    )
    assert "and the Brier score changes by -" in results["reason"]
    assert results["reason"].endswith(f"; {ORDER_KEPT}.")
    assert results["difference"]["accuracy"] == {
        "value": 0.0,
        "interval": [0.0, 0.0],
        "level": 0.95,
        "error": {"sampling": 0.0, "privacy": 0.0, "discretisation": 0.0},
        "note": ORDER_KEPT,
    }
    assert results["after"]["accuracy"] == results["before"]["accuracy"]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Temperature(inverse_temperature=1.0, classes=CLASSES), "no improvement beyond the intervals"),
        (OrderPreserving(slopes=(1.0,) * CLASSES), "no improvement beyond the intervals"),
        (Temperature(inverse_temperature=2.0, classes=CLASSES), "the log loss changes by"),
        (Temperature(inverse_temperature=-1.0, classes=CLASSES), "an estimated fall of more than 1 %"),
    ],
    ids=["identity", "identity up to rounding", "sharper", "upside down"],
)
def test_maps_that_are_no_better_are_not_recommended(one: LogitMap, words: str) -> None:
    results = judged(one, [drawn(2000, CLASSES)])
    assert not results["recommended"]
    assert results["reason"].startswith("Not recommended: on held-out rows the ")
    assert words in results["reason"]
    assert results["reason"].endswith(".")
    assert results["reason"].count(". ") == 0  # one sentence


def test_accuracy_counts_whatever_the_losses_say() -> None:
    """Better probabilities, but the two most frequent classes are taken for each other where they are close."""
    columns = drawn(4000, CLASSES)
    tilted = VectorScaling(slopes=(0.5,) * CLASSES, intercepts=(1.0, 0.0, 0.0, -1.0))
    results = judged(tilted, [columns])
    fall = results["difference"]["accuracy"]
    assert fall["value"] < -0.01
    assert results["difference"]["log_loss"]["interval"][1] < 0
    assert not results["recommended"]
    assert f"the accuracy changes by {100 * fall['value']:+.2g} %" in results["reason"]


def test_too_few_rows_are_not_judged() -> None:
    columns = drawn(400, CLASSES)
    right = columns["logits"].argmax(axis=1) == columns["class"]
    for kept, word in ((np.flatnonzero(right), "wrong"), (np.flatnonzero(~right), "right")):
        rows = np.concatenate([kept, np.flatnonzero(right == (word == "right"))[:9]])
        few = {name: column[rows] for name, column in columns.items()}
        results = judged(SOFTER, [few])
        assert not results["recommended"]
        assert f"the model has 9 of {len(rows)} held-out rows {word}, and 10 are needed" in results["reason"]
    for size in (0, 1):
        results = judged(SOFTER, [{name: column[:size] for name, column in columns.items()}])
        assert not results["recommended"]
        assert "held-out rows" in results["reason"]
        assert results["difference"]["log_loss"]["value"] is None
        assert results["notes"] in ([], ["3 classes (0, 1, 2): no held-out row has them."]) or size == 1


def test_a_class_that_nobody_has_is_noted() -> None:
    columns = drawn(600, CLASSES)
    missing = {name: column[columns["class"] != 2] for name, column in columns.items()}
    results = judged(SOFTER, [missing])
    assert results["notes"] == ["Class 2: no held-out row has it."]
    assert results["classes"][2]["rows"] == 0
    only = {name: column[columns["class"] == 1] for name, column in columns.items()}
    assert judged(SOFTER, [only])["notes"] == ["3 classes (0, 2, 3): no held-out row has them."]


@pytest.mark.parametrize("fields", [{"buckets": 0}, {"level": 1.0}])
def test_bad_values_are_refused_before_any_row_is_read(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="got"):
        Judging(map=SOFTER, **fields)


# --- intervals ------------------------------------------------------------------------------------------


def paired_of(one: LogitMap, columns: Columns) -> Paired:
    setting = setting_of(clients=1)
    released = answer(Judging(map=one).queries(setting)[0], setting, [columns], 0)
    return Paired(totals=released.value, noise=NO_NOISE)


def test_skewness_is_that_of_the_changes_and_moves_the_interval() -> None:
    columns, one = drawn(500, CLASSES), Temperature(inverse_temperature=2.0, classes=CLASSES)
    p, q = softmax(columns["logits"], axis=1), one.predict_proba(columns["logits"])
    at = np.arange(500), columns["class"]
    d = np.log(p[at] / q[at])
    paired = paired_of(one, columns)
    gamma = paired.skewness(paired.totals.changes["loss"])
    assert gamma == pytest.approx(((d - d.mean()) ** 3).mean() / d.std() ** 3, rel=1e-4)
    assert gamma > 1
    low, high = loss_change(paired, "loss").interval
    assert high - d.mean() > 1.1 * (d.mean() - low)
    plain = Estimate(value=0.0, sampling_variance=1.0, privacy_variance=0.0)
    assert skewed_interval(plain, 0.0, 100, level=0.95) == pytest.approx((-1.96, 1.96), abs=1e-3)
    for extreme in (-1e6, 1e6):
        ends = skewed_interval(plain, extreme, 10, level=0.95)
        assert ends[0] <= 0 <= ends[1]


def test_the_change_of_accuracy_has_some_width_where_no_row_has_changed() -> None:
    columns = drawn(100, CLASSES)
    slight = VectorScaling(slopes=(1.0 + 1e-9, 1.0, 1.0, 1.0), intercepts=(0.0,) * CLASSES)
    metric = accuracy_change(paired_of(slight, columns))
    low, high = metric.interval
    assert metric.value == 0
    assert -0.03 < low < -0.01 < 0.01 < high < 0.03


# --- under noise ----------------------------------------------------------------------------------------


def bounded_changes(one: LogitMap, columns: Columns) -> dict[str, np.ndarray]:
    """What each row counts under noise."""
    z, y = columns["logits"], columns["class"]
    p, q, truth = softmax(z, axis=1), one.predict_proba(z), np.eye(CLASSES)[y]
    at = np.arange(len(y)), y
    brier = ((q - truth) ** 2).sum(axis=1) - ((p - truth) ** 2).sum(axis=1)
    return {
        "log_loss": np.clip(np.log(p[at] / q[at]), -2.0, 2.0),
        "brier_score": np.clip(brier, -1.0, 1.0),
        "accuracy": (q.argmax(axis=1) == y) * 1.0 - (p.argmax(axis=1) == y),
    }


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("name", ["temperature", "vector"])
def test_under_noise_intervals_hold_what_all_rows_say(trust: Any, name: str) -> None:
    columns, one = drawn(20_000, CLASSES, seed=2), MAPS[name]
    setting = setting_of(trust, clients=50, epsilon=2.0, delta=1e-6)
    results = judged(one, [columns], setting, seed=5)
    z, y = columns["logits"], columns["class"]
    before, after = pooled_metrics(softmax(z, axis=1), y), pooled_metrics(one.predict_proba(z), y)
    for when, wanted in (("before", before), ("after", after)):
        for metric in METRICS:
            low, high = results[when][metric]["interval"]
            assert low <= wanted[metric] <= high, (when, metric)
    for metric, changes in bounded_changes(one, columns).items():
        low, high = results["difference"][metric]["interval"]
        assert low <= changes.mean() <= high
    assert results["difference"]["log_loss"]["error"]["privacy"] > 0
    assert [results["difference"][m].get("bound") for m in ("log_loss", "brier_score")] == [2.0, 1.0]
    assert results["recommended"]
    assert results["after"]["accuracy"] == results["before"]["accuracy"] or name == "vector"
    assert results["notes"][0].startswith(
        "Under privacy noise the change of a held-out row counts at most 2 in"
    )
    assert len(results["notes"]) == 1  # not which classes are missing: noise does not tell


def test_the_comparison_gets_most_of_the_budget_and_all_of_it_where_the_rest_would_drown() -> None:
    few, many = (
        setting_of(ServerDP(), clients=clients, epsilon=1.0, delta=1e-5, unit=Unit.CLIENT, rows_per_client=20)
        for clients in (100, 20_000)
    )
    asked = {name: Judging(map=SOFTER).queries(setting) for name, setting in (("few", few), ("many", many))}
    assert [query.of.name for query in asked["few"]] == ["map-changes"]
    assert [query.of.name for query in asked["many"]] == ["map-changes", *["class-statistics"] * 2]
    assert [query.share for query in asked["many"]] == pytest.approx([0.7, 0.15, 0.15])
    alone, changes = asked["few"][0], asked["many"][0]
    assert few.noise(alone).variance < many.noise(changes).variance
    statistics = asked["many"][1]
    deviation = np.sqrt(many.noise(statistics).variance) / 2**statistics.of.bits
    assert 20_000 * 20 > WORTH * deviation > 100 * 20
    for queries in asked.values():
        assert {query.of.digits for query in queries} == {1}
        assert (queries[0].of.moments, queries[0].of.loss_bound, queries[0].of.brier_bound) == (2, 2.0, 1.0)


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("clients", [3, 10**5, 10**7])
def test_a_bound_on_the_rows_is_worth_bits(trust: Any, clients: int) -> None:
    """With ten million clients of any size, 2 bits are left; with 50 rows each, all; and no total can wrap."""
    bits = {}
    for rows in (None, 50):
        setting = setting_of(trust, clients=clients, epsilon=8.0, delta=1e-5, rows_per_client=rows)
        queries = Judging(map=SHIFTED).queries(setting)
        for query in queries:
            trust.plan(query, setting)
            assert clients * query.of.largest < 2 ** (TOTAL_BITS + 1)
        bits[rows] = [query.of.bits for query in queries]
    assert bits[50] == [MOST_BITS] * 3
    assert (bits[None][0] == 2) == (clients == 10**7)


def test_a_client_at_its_bound_is_counted_in_full() -> None:
    """What is cut is only what no client with so many rows can have."""
    columns = {"logits": np.tile([9.0, 0.0, 0.0, 0.0], (50, 1)), "class": np.ones(50, dtype=np.int64)}
    setting = setting_of(ServerDP(), clients=10**7, epsilon=8.0, delta=1e-5, rows_per_client=50)
    swapped = VectorScaling(slopes=(0.0,) * CLASSES, intercepts=(0.0, 30.0, 0.0, 0.0))
    for query in Judging(map=swapped).queries(setting):
        vector, _ = query.of.measure(ArrayRows(columns=columns), {})
        assert np.abs(vector).max() == query.of.largest  # every row at its largest: right now, wrong before


def test_more_noise_than_rows_is_said_with_what_would_help() -> None:
    clients = dirichlet(drawn(2000, CLASSES), 100, 1.0)
    setting = setting_of(
        ServerDP(), clients=100, epsilon=0.1, delta=1e-5, unit=Unit.CLIENT, rows_per_client=20
    )
    results = judged(SOFTER, clients, setting)
    assert not results["recommended"]
    assert "not enough evidence" in results["reason"]
    assert results["reason"].endswith("; more held-out rows or a larger epsilon would help.")
    for metric in METRICS:
        assert results["before"][metric]["value"] is None
        assert results["after"][metric]["reason"].startswith("not asked for: ")
    assert [entry["rows"] for entry in results["classes"]] == [None] * CLASSES
    assert results["reliability_curve"]["after"]["reason"].startswith("not asked for")
    assert results["notes"][1].startswith("Metrics before and after were not asked for")


def test_undecided_under_noise_says_what_most_of_the_uncertainty_is() -> None:
    clients = [drawn(3000, CLASSES)]
    setting = setting_of(ServerDP(), clients=3000, epsilon=0.2, delta=1e-6)
    slight = Temperature(inverse_temperature=0.97, classes=CLASSES)
    results = judged(slight, clients, setting)
    assert not results["recommended"]
    assert (
        "no improvement beyond the intervals; most of the uncertainty is privacy noise" in results["reason"]
    )
    z, y = SoftmaxPopulation(classes=CLASSES).sample(200, np.random.default_rng(0))
    jitter = VectorScaling(slopes=(1.0,) * CLASSES, intercepts=(0.02, -0.02, 0.02, -0.02))
    exact = judged(jitter, [{"logits": z, "class": y}])
    assert not exact["recommended"]
    assert exact["reason"].endswith("; more held-out rows would tell more.")


# --- the verdict ----------------------------------------------------------------------------------------


def changed(value: float, half: float, privacy: float = 0.0) -> Metric:
    return Metric(
        value=value,
        interval=(value - half, value + half),
        level=0.95,
        sampling=half / 2,
        privacy=privacy,
        discretisation=0.0,
    )


@pytest.mark.parametrize(
    ("log", "brier", "accuracy", "private", "recommended", "words"),
    [
        ((-0.1, 0.05), (-0.01, 0.02), (0.0, 0.02), False, True, "Recommended"),
        ((-0.1, 0.15), (-0.01, 0.005), (0.0, 0.02), False, True, "Recommended"),
        ((-0.1, 0.15), (-0.01, 0.02), (0.0, 0.02), False, False, "no improvement"),
        ((-0.1, 0.05), (0.02, 0.01), (0.0, 0.02), False, False, "the Brier score changes by +0.02"),
        ((0.1, 0.05), (-0.02, 0.01), (0.0, 0.02), False, False, "the log loss changes by +0.1"),
        ((-0.1, 0.05), (-0.02, 0.01), (-0.011, 0.02), False, False, "an estimated fall of more than 1 %"),
        ((-0.1, 0.05), (-0.02, 0.01), (-0.009, 0.02), False, False, "more than 1 % cannot be ruled out"),
        ((-0.1, 0.05), (-0.02, 0.01), (-0.005, 0.004), False, True, "the accuracy changes by -0.5 %"),
        ((-0.1, 0.05), (-0.02, 0.01), (0.001, 0.02), False, True, "the accuracy changes by +0.1 %"),
        ((0.001, 0.05), (-0.02, 0.01), (0.001, 0.02), False, False, "a few rows lose a lot"),
        ((-0.1, 0.05), (-0.02, 0.01), (0.0, 0.02), True, False, "more than 1 % cannot be ruled out"),
        ((-0.1, 0.05), (-0.02, 0.01), (-0.03, 0.04), True, False, "more than 1 % cannot be ruled out"),
        ((-0.1, 0.05), (-0.02, 0.01), (-0.03, 0.01), True, False, "an estimated fall of more than 1 %"),
        ((-0.1, 0.05), (-0.02, 0.01), (0.0, 0.005), True, True, "Recommended"),
    ],
)
def test_the_verdict_follows_from_the_intervals(
    log: Any, brier: Any, accuracy: Any, private: bool, recommended: bool, words: str
) -> None:
    columns, setting = drawn(500, CLASSES), setting_of(ServerDP(), clients=10, epsilon=50.0)
    paired = paired_of(SHIFTED, columns)
    if private:
        released = answer(Judging(map=SHIFTED).queries(setting)[0], setting, [columns], 0)
        paired = Paired(totals=released.value, noise=released.noise)
    differences = {
        "log_loss": changed(*log),
        "brier_score": changed(*brier),
        "accuracy": changed(*accuracy, privacy=0.1 if private else 0.0),
    }
    found = verdict(differences, paired)
    assert found.recommended is recommended
    assert words in found.reason
    if private and words.endswith("ruled out"):
        assert found.reason.endswith(
            "most of the uncertainty is privacy noise, more held-out rows or a larger epsilon would help."
        )
