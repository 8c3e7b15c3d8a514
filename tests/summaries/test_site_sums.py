"""What sums over sites say without any site being seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binormal import InMemoryRows, Population, release
from fedassay.errors import UsageError
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.heterogeneity import (
    LARGEST_VALUE,
    LARGEST_VARIANCE,
    LEAST_VARIANCE,
    SiteEstimate,
    site_estimate,
    weighted_sums,
)
from fedassay.protocol import wire
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import Batch
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.summaries.site_sums import EligibleSites, SiteSums

HISTOGRAM = ScoreHistogram(transform="mixed", height=15)
POPULATION = Population(0.3, shift=0.3, stretch=1.3)


def sample(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return POPULATION.sample(rows, np.random.default_rng(seed))


def evidence_of(scores: np.ndarray, labels: np.ndarray) -> Evidence:
    released = release(HISTOGRAM, scores, labels)
    return released.value.evidence(released.noise)


@given(st.floats(LEAST_VARIANCE, LARGEST_VARIANCE), st.floats(-LARGEST_VALUE, LARGEST_VALUE))
def test_no_entry_of_a_site_exceeds_its_bound(variance: float, value: float) -> None:
    class Site(SiteSums):
        def _estimates(self, rows: Any, memory: Any) -> Any:
            return [SiteEstimate(value, variance)], memory

    summary = Site(metrics=("roc_auc",))
    vector, _ = summary.measure(InMemoryRows(*sample(0)), {})
    assert np.abs(vector).max() < summary.largest
    # A thousand million sites cannot make a total wrap.
    assert 2**30 * summary.largest < 2**63
    (sums,) = summary.read(vector).values()
    w = Fraction(1 / variance)
    assert sums.sites == 1
    for found, exact in ((sums.w, w), (sums.wy, w * Fraction(value)), (sums.wy2, w * Fraction(value) ** 2)):
        assert abs(found - exact) <= abs(exact) * Fraction(1, 2**50) + Fraction(1, 2**48)


def test_sums_over_sites_are_the_sums_of_what_sites_say() -> None:
    sites = [sample(200 + 100 * seed, seed) for seed in range(6)]
    tau2 = (0.1, 0.0, 0.2, 0.05, 0.3)
    summary = SiteSums(tau2=tau2)
    total = np.sum([summary.measure(InMemoryRows(*rows), {})[0] for rows in sites], axis=0)
    found = summary.read(total)
    for metric, between in zip(compared(), tau2, strict=True):
        estimates = [site_estimate(metric, evidence_of(*rows)) for rows in sites]
        expected = weighted_sums(estimates, tau2=between)
        assert found[metric].sites == 6
        for name in ("w", "w2", "wy", "wy2"):
            exact = getattr(expected, name)
            assert float(getattr(found[metric], name)) == pytest.approx(float(exact), rel=1e-12, abs=1e-13)


def test_sites_without_an_estimate_add_nothing_but_are_counted() -> None:
    good, bad = InMemoryRows(*sample(300)), InMemoryRows(np.full(30, 0.5), np.zeros(30, int))
    eligible = EligibleSites()
    votes = [eligible.measure(rows, {})[0] for rows in (good, bad, good)]
    assert eligible.read(np.sum(votes, axis=0)) == dict.fromkeys(compared(), 2)
    assert not SiteSums().measure(bad, {})[0].any()


def test_all_rounds_speak_of_the_same_rows() -> None:
    """Rows may be left out at random; what was estimated first is remembered, and it can be stored."""

    class Once:
        read = 0

        def batches(self) -> Iterator[Batch]:
            self.read += 1
            yield from InMemoryRows(*sample(300, self.read)).batches()

    rows = Once()
    _, memory = EligibleSites().measure(rows, {"other": 1})
    assert memory["other"] == 1
    stored = wire.decode(wire.encode(dict(memory)))
    first, memory = SiteSums().measure(rows, stored)
    again, _ = SiteSums(metrics=("brier_score",)).measure(rows, memory)
    assert rows.read == 1
    assert (
        SiteSums(metrics=("brier_score",)).read(again)["brier_score"] == SiteSums().read(first)["brier_score"]
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metrics": ()}, "metrics: got"),
        ({"metrics": ("f1",)}, "expected different ones of roc_auc"),
        ({"metrics": ("roc_auc", "roc_auc")}, "expected different ones"),
        ({"tau2": (1.0,)}, "tau2: got"),
        ({"tau2": (-1.0, 0, 0, 0, 0)}, "tau2: got"),
        ({"tau2": (math.nan, 0, 0, 0, 0)}, "tau2: got"),
        ({"height": 1}, "height"),
    ],
)
def test_bad_questions_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SiteSums(**wrong)


def test_the_order_of_metrics_is_that_of_the_wire() -> None:
    names = (
        *("roc_auc", "brier_score", "calibration_intercept", "calibration_slope", "observed_expected_ratio"),
    )
    assert names == compared()
