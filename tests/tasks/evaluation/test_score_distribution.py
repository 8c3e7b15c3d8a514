"""Counts to be looked at: those of the rows without noise, and never negative with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.tasks.evaluation.evaluate import BUCKETS, score_distribution
from fedassay.tasks.evaluation.stored import evidence_from_json


def rows(*, squeezed: bool = False, number: int = 4000) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    labels = (rng.random(number) < 0.3).astype(np.int8)
    odds = rng.normal(2.0 * labels - (7.0 if squeezed else 1.0), 1.0)
    return {"p": 1 / (1 + np.exp(-odds)), "y": labels}


def results(data: dict[str, Any], **options: Any) -> dict[str, Any]:
    simulation = fedassay.Simulation(seed=1)
    return dict(fedassay.evaluate(data, score="p", label="y", simulation=simulation, **options).results)


@pytest.mark.parametrize("squeezed", [False, True])
def test_without_noise_it_counts_the_rows(squeezed: bool) -> None:
    data = rows(squeezed=squeezed)
    found = results(data)["score_distribution"]
    assert found["spacing"] == ("logit" if squeezed else "uniform")
    assert found["noise"] is None
    assert 35 <= len(found["positives"]) <= BUCKETS[0]
    for name, label in (("positives", 1), ("negatives", 0)):
        counts, _ = np.histogram(data["p"][data["y"] == label], found["edges"])
        np.testing.assert_allclose(found[name], counts, atol=1e-9)
    # Not one column only: the fullest bucket holds a fair part.
    assert max(found["negatives"]) < 0.3 * sum(found["negatives"])


def noisy(epsilon: float) -> dict[str, Any]:
    return results(rows(), privacy=fedassay.ServerDP(), budget=fedassay.Budget(epsilon=epsilon))


def test_under_noise_counts_are_not_negative_and_add_up() -> None:
    found = noisy(1.0)
    evidence = evidence_from_json(found)
    seen = found["score_distribution"]
    assert seen == score_distribution(evidence)
    for name, whole in (("positives", evidence.positive_rows), ("negatives", evidence.negative_rows)):
        assert min(seen[name]) >= 0
        assert sum(seen[name]) == pytest.approx(whole)
    # The noise that is stated is that of sums over the leaves of a bucket.
    places = np.searchsorted(evidence.edges, seen["edges"])
    one = np.zeros(evidence.leaves)
    one[places[2] : places[3]] = 1.0
    variance = evidence.noise_covariance(one[None], np.zeros((1, len(one))))[0, 0]
    assert seen["noise"]["positives"][2] == pytest.approx(np.sqrt(variance))


def test_more_noise_leaves_fewer_buckets() -> None:
    numbers = [len(noisy(epsilon)["score_distribution"]["positives"]) for epsilon in (20.0, 2.0, 0.5)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 30
    assert numbers[-1] <= 10


def test_a_coarse_grid_has_the_edges_it_has() -> None:
    found = results(rows(), height=2, buckets=2, transform="uniform")["score_distribution"]
    assert found["edges"] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert sum(found["positives"]) + sum(found["negatives"]) == pytest.approx(4000)


def test_without_rows_of_a_class_there_is_a_reason() -> None:
    data = rows(number=50)
    found = results({**data, "y": np.ones(50, dtype=np.int8)})["score_distribution"]
    assert (found["edges"], found["positives"], found["reason"]) == ([], [], "there are no negative rows")
    drowned = results(rows(number=50), privacy=fedassay.ServerDP(), budget=fedassay.Budget(epsilon=0.01))
    assert drowned["score_distribution"]["reason"].startswith("not enough evidence")


def test_scores_that_are_all_the_same_are_in_one_bucket() -> None:
    found = results({"p": np.full(20, 0.3), "y": np.arange(20) % 2})["score_distribution"]
    assert max(found["positives"]) == max(found["negatives"]) == 10
