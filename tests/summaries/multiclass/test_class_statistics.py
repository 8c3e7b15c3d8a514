"""What clients measure of multiclass models: against the definitions, with the sensitivity that it claims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax

from batched import batched
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Summary, Unit
from fedassay.summaries.multiclass.class_statistics import LARGEST_LOSS, ClassStatistics
from fedassay.summaries.multiclass.histograms import ClassHistograms
from fedassay.summaries.score_histogram import ScoreHistogram
from softmax_rows import SoftmaxPopulation, rows_of

BOTH = (
    ClassStatistics(classes=4, bins=7),
    ClassStatistics(classes=4, bins=7, bits=9, digits=1),
    ClassHistograms(classes=4, height=6, widths=(1, 4)),
)


def drawn(rows: int, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return SoftmaxPopulation(classes=classes, stretch=1.7).sample(rows, np.random.default_rng(seed))


def measure(summary: Summary[Any], logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return summary.measure(rows_of(logits, labels), {})[0]


# --- what is measured -----------------------------------------------------------------------------------


def test_sums_are_those_of_the_definitions() -> None:
    z, y = drawn(3000)
    summary = ClassStatistics(classes=4)
    total = summary.read(measure(summary, z, y))
    p, truth = softmax(z, axis=1), np.eye(4)[y]
    right, confidence = p.argmax(axis=1) == y, p.max(axis=1)
    brier, loss = ((p - truth) ** 2).sum(axis=1) / 2, -np.log(p[np.arange(3000), y]) / LARGEST_LOSS
    wanted = {"rows": np.ones(3000), "correct": right, "brier": brier, "brier_squared": brier**2}
    for name, numbers in {**wanted, "loss": loss, "loss_squared": loss**2}.items():
        assert float(total.sums[name].value) == pytest.approx(
            numbers.sum(), abs=3000 * total.sums[name].resolution
        )
    top = {"rows": np.ones(3000), "correct": right, "confidence": confidence}
    top |= {"squared": (confidence - right) ** 2, "spread": confidence * (1 - confidence)}
    for name, numbers in top.items():
        bins = np.minimum((confidence * 15).astype(int), 14)
        assert total.top[name].value == pytest.approx(
            np.bincount(bins, weights=numbers, minlength=15), abs=1e-4
        )
    for j in range(4):
        bins = np.minimum((p[:, j] * 15).astype(int), 14)
        cells = {"positives": truth[:, j], "probability": p[:, j], "squared": (p[:, j] - truth[:, j]) ** 2}
        for name, numbers in {**cells, "spread": p[:, j] * (1 - p[:, j])}.items():
            found = total.cells[name].value[j]
            assert found == pytest.approx(np.bincount(bins, weights=numbers, minlength=15), abs=1e-4)
    assert np.all(total.cells["positives"].value == np.round(total.cells["positives"].value))


def test_histograms_are_those_of_each_class_against_the_others() -> None:
    z, y = drawn(2000, seed=1)
    summary = ClassHistograms(classes=4, height=6, widths=(1, 4))
    p = softmax(z, axis=1)
    for j, found in enumerate(summary.read(measure(summary, z, y))):
        one = ScoreHistogram(transform="mixed", height=6, widths=(1, 4))
        columns = {"score": p[:, j], "label": (y == j).astype(np.int8)}
        wanted = one.read(one.measure(batched(columns), {})[0])
        # A probability can differ in its last bit, and so be on the other side of an edge.
        assert np.abs(found.positives - wanted.positives).sum() <= 4
        assert np.abs(found.negatives - wanted.negatives).sum() <= 4


def test_certain_and_impossible_classes_are_finite() -> None:
    z = np.array([[800.0, -800.0, 0.0], [-1e308, 1e308, 0.0]])
    summary = ClassStatistics(classes=3)
    total = summary.read(measure(summary, z, np.array([0, 0])))
    assert float(total.sums["loss"].value) == pytest.approx(1.0, abs=1e-6)  # one row as bad as can be
    assert float(total.sums["brier"].value) == pytest.approx(1.0, abs=1e-6)
    assert float(total.sums["correct"].value) == 1


# --- how far a row can move it --------------------------------------------------------------------------

logits = hnp.arrays(np.float64, (2, 4), elements=st.floats(-40, 40))


@given(logits, st.integers(0, 3), st.integers(0, 3), st.sampled_from(BOTH))
def test_no_row_moves_more_than_the_sensitivity(z: np.ndarray, a: int, b: int, summary: Summary[Any]) -> None:
    one, other = measure(summary, z[:1], np.array([a])), measure(summary, z[1:], np.array([b]))
    added, replaced = (summary.sensitivity(Protection(neighbours=n)) for n in Neighbours)
    for moved, most in ((one, added), (other, added), (one - other, replaced)):
        assert np.abs(moved).sum() <= most.l1
        assert math.sqrt((moved.astype(float) ** 2).sum()) <= most.l2 * (1 + 1e-12)
    client = summary.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=3))
    thrice = measure(summary, np.repeat(z[:1], 3, axis=0), np.full(3, a))
    assert np.abs(thrice).sum() <= client.l1 == 3 * added.l1
    assert math.sqrt((thrice.astype(float) ** 2).sum()) <= client.l2 * (1 + 1e-12)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_worst_row_comes_close_to_the_bound_however_many_classes_there_are(classes: int) -> None:
    summary = ClassStatistics(classes=classes, bits=12, digits=1)
    z = np.full((1, classes), -50.0)
    z[0, 1] = 50.0
    worst = measure(summary, z, np.array([0])).astype(float)
    most = summary.sensitivity(Protection())
    assert np.abs(worst).sum() >= 0.93 * most.l1
    assert math.sqrt((worst**2).sum()) >= 0.99 * most.l2
    assert most.l1 <= 8.1 * 2**12
    ranking = ClassHistograms(classes=classes, height=4).sensitivity(Protection())
    assert (ranking.l1, ranking.l2) == (classes, pytest.approx(math.sqrt(classes)))


# --- as questions ---------------------------------------------------------------------------------------


def test_no_entry_exceeds_what_each_row_may_add() -> None:
    z, y = drawn(300, seed=3)
    for summary in BOTH[:2]:
        assert measure(summary, z, y).max() <= 300 << summary.bits
        assert measure(summary, z, y).min() >= 0


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ClassHistograms, {"classes": 3, "height": 40}),
    ],
)
def test_bad_questions_are_refused(kind: type, fields: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="got"):
        kind(**fields)
