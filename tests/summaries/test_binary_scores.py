"""Scores and sets of 0 and 1: formulas, exactness, ranges, and what cannot be scored."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.data.tables import ArrayRows
from fedassay.errors import DataError, UsageError
from fedassay.summaries.class_scores import binary, binary_sets
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.maps import InterpolatedMap, Map, Sigmoid, Steps, numbers_of

MAPS: dict[str, Map | None] = {
    "none": None,
    "steps": Steps(edges=(0.3, 0.6), values=(0.1, 0.4, 0.8)),
    "points": InterpolatedMap(scores=(0.1, 0.35, 0.9), values=(0.05, 0.5, 0.7)),
    "sigmoid": Sigmoid(a=1.3, b=0.7, c=-0.2),
}
SHARES = st.floats(0, 1)


def parameters_of(one: Map | None) -> tuple[float, ...]:
    return () if one is None else numbers_of(one)


def by_hand(one: Map | None, score: float, label: int) -> float:
    """One row, in plain Python."""
    p = score if one is None else float(one(np.array([score]))[0])
    return 1 - p if label == 1 else p


@pytest.mark.parametrize("name", MAPS)
@given(rows=st.lists(st.tuples(SHARES, st.integers(0, 1)), max_size=20), limit=st.floats(-0.1, 1.1))
def test_scores_and_sets_are_those_of_a_loop_over_rows(
    name: str, rows: list[tuple[float, int]], limit: float
) -> None:
    one = MAPS[name]
    scores = np.array([score for score, _ in rows])
    labels = np.array([label for _, label in rows], dtype=np.int8)
    found = binary(scores, labels, parameters_of(one))
    assert found.tolist() == [by_hand(one, score, label) for score, label in rows]
    members = binary_sets(scores, limit, parameters_of(one))
    assert members.tolist() == [[by_hand(one, score, k) <= limit for k in (0, 1)] for score, _ in rows]


@pytest.mark.parametrize("name", MAPS)
def test_no_bit_depends_on_how_rows_come(name: str) -> None:
    """In one batch, in small ones, in columns with gaps, at calibration and at prediction."""
    rng, parameters = np.random.default_rng(0), parameters_of(MAPS[name])
    scores, labels = rng.random(1001), rng.integers(0, 2, 1001)
    whole = binary(scores, labels, parameters)
    gaps = np.zeros((1001, 3))
    gaps[:, 1] = scores
    assert binary(gaps[:, 1], labels, parameters).tobytes() == whole.tobytes()
    assert binary(scores[::-1], labels[::-1], parameters).tobytes() == whole[::-1].tobytes()
    parts = [binary(scores[i : i + 7], labels[i : i + 7], parameters) for i in range(0, 1001, 7)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    for row in range(200):  # the score of each row as the threshold
        members = binary_sets(scores, whole[row], parameters)
        assert members[np.arange(1001), labels].tolist() == (whole <= whole[row]).tolist()


@given(
    numbers=st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3),
    scores=st.lists(SHARES, min_size=1, max_size=5),
)
def test_whatever_the_coefficients_scores_are_in_the_public_range(
    numbers: tuple[float, float, float], scores: list[float]
) -> None:
    a, b, c = numbers
    for label in (0, 1):
        found = binary(scores, np.full(len(scores), label), numbers_of(Sigmoid(a=a, b=b, c=c)))
        assert ((found >= 0) & (found <= 1)).all()


def test_a_probability_that_is_no_number_scores_1_for_both_labels() -> None:
    endless = numbers_of(Sigmoid(a=1.79e308, b=1.79e308, c=-1.7e308))  # c + a ln s is -inf, b ln(1 - s) too
    assert binary([0.7], [0], endless).tolist() == binary([0.7], [1], endless).tolist() == [1.0]
    assert not binary_sets([0.7], 0.99, endless).any()
    assert binary_sets([0.7], 1.0, endless).all()


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.5, math.nan], [0, 1], "score: got a number that is NaN or outside"),
        ([0.5, 1.1], [0, 1], "score: got"),
        ([0.5, -0.1], [0, 1], "score: got"),
        ([0.5, 0.6], [0, 2], "label: got a value other than 0 and 1"),
        ([0.5, 0.6], [0, -1], "label: got"),
        ([0.5, 0.6], [0.0, 1.0], "label: got"),
        ([0.5, 0.6], [0], "one for each score"),
    ],
)
def test_rows_that_the_data_layer_would_not_let_pass(scores: list, labels: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        binary(scores, np.array(labels))


@pytest.mark.parametrize("threshold", [math.nan, [0.5, 0.5, 0.5], [[0.5]]])
def test_thresholds_of_another_shape_are_refused(threshold: object) -> None:
    with pytest.raises(UsageError, match="threshold: got NaN, or an array of shape"):
        binary_sets([0.1, 0.2], threshold)


# --- as a part of summaries -----------------------------------------------------------------------------


def drawn(rows: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    scores = np.round(rng.random(rows), 2)  # tied, so that thresholds are met exactly
    return {"score": scores, "label": (rng.random(rows) < scores).astype(np.int8)}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("by", ["", "class"])
def test_counts_are_those_of_a_loop_over_rows(name: str, by: str) -> None:
    one, columns = MAPS[name], drawn()
    groups, limits = (("0", "1"), (0.3, 0.62)) if by else ((), (0.45,))
    summary = CoverageCounts(
        quantity="binary", parameters=parameters_of(one), by=by, groups=groups, thresholds=limits, classes=2
    )
    found = summary.read(summary.measure(ArrayRows(columns=columns), {})[0])
    counts = {group: np.zeros((2, 3), dtype=int) for group in found}
    for score, label in zip(columns["score"].tolist(), columns["label"].tolist(), strict=True):
        inside = [by_hand(one, score, k) <= (limits[k] if by else limits[0]) for k in (0, 1)]
        counts[str(label) if by else "all"][int(not inside[label]), sum(inside)] += 1
    for group, cells in counts.items():
        assert found[group].covered_by_size.tolist() == cells[0].tolist()
        assert found[group].missed_by_size.tolist() == cells[1].tolist()


@pytest.mark.parametrize("classes", [0, 1, 3])
def test_there_are_two_classes_always(classes: int) -> None:
    with pytest.raises(UsageError, match=f"classes: got {classes}, expected a whole number from 2 to 2"):
        CoverageCounts(quantity="binary", thresholds=(0.5,), classes=classes)
