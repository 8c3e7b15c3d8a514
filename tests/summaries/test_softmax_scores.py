"""Scores of classifiers against a direct computation; a class is in the set exactly if its score is small enough."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from fedassay.errors import DataError, UsageError
from fedassay.summaries import class_scores
from fedassay.summaries.class_scores import aps, lac, raps, sets

SCORES = {"lac": lac, "aps": aps, "raps": raps}
PARAMETERS = {"lac": (), "aps": (), "raps": (0.125, 2.0)}
NAMES = tuple(SCORES)


def score(name: str, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return SCORES[name](logits, labels, *PARAMETERS[name])


def all_scores(name: str, logits: np.ndarray) -> np.ndarray:
    """Of each row with each class, by the code that calibrates."""
    rows, classes = logits.shape
    return np.stack([score(name, logits, np.full(rows, y)) for y in range(classes)], axis=1)


def directly(name: str, z: np.ndarray, y: int) -> float:
    """By the definition, one row at a time, with all classes that are more probable."""
    p = softmax(z)
    if name == "lac":
        return float(1 - p[y])
    penalty, k_reg = PARAMETERS["raps"] if name == "raps" else (0.0, 0.0)
    more_probable = z > z[y]
    return float(p[more_probable].sum() + penalty * max(0.0, 1 + more_probable.sum() - k_reg))


def drawn(rows: int, classes: int, *, seed: int = 0, spread: float = 3.0, tied: bool = False) -> np.ndarray:
    logits = spread * np.random.default_rng(seed).normal(size=(rows, classes))
    return np.round(logits) if tied else logits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 33, 100])
def test_scores_are_what_the_definition_says(name: str, classes: int, tied: bool) -> None:
    logits = drawn(60, classes, seed=classes, tied=tied)
    labels = np.random.default_rng(1).integers(0, classes, 60)
    expected = [directly(name, z, y) for z, y in zip(logits, labels, strict=True)]
    np.testing.assert_allclose(score(name, logits, labels), expected, rtol=0, atol=1e-11)


def test_probabilities_are_as_accurate_as_stated() -> None:
    """Against sums of the same exponentials in exact arithmetic: K·2^-b with b = 52 - ceil(log2 K)."""
    for classes, bound in ((2, 2 * 2.0**-51), (10, 4e-14), (100, 3e-12)):
        logits = drawn(50, classes, seed=2)
        for z, found in zip(logits, 1 - lac(logits, np.zeros(50, dtype=int)), strict=True):
            weights = [Fraction(float(w)) for w in np.exp(z - z.max())]
            assert abs(float(Fraction(float(found)) - weights[0] / sum(weights))) <= bound + 2.0**-51


@pytest.mark.parametrize("name", NAMES)
def test_scores_stay_within_their_range_and_a_certain_class_scores_least(name: str) -> None:
    logits = np.array([[800.0, -800.0, 0.0], [0.0, 0.0, 0.0], [-1.7e308, 1.7e308, 0.0]])
    first = score(name, logits, np.array([0, 0, 1]))
    uniform = 2 / 3 if name == "lac" else 0.0  # no class is more probable
    assert first.tolist() == pytest.approx([0.0, uniform, 0.0])
    last = 1.125 if name == "raps" else 1.0  # rank 3, of which 2 are free
    assert score(name, logits, np.array([1, 2, 0]))[[0, 2]].tolist() == [last, last]


# --- sets -----------------------------------------------------------------------------------------------

few_values = st.sampled_from([-40.0, -3.0, -1.5, 0.0, 0.1, 0.1 + 2**-54, 2.0, 2.0000001, 30.0])
any_value = st.one_of(few_values, st.floats(-50, 50), st.floats(-1e300, 1e300))


@st.composite
def some_logits(draw: st.DrawFn) -> np.ndarray:
    classes = draw(st.sampled_from([1, 2, 3, 7, 32, 33, 100]))
    if classes > 7:
        seed, tied = draw(st.integers(0, 2**32 - 1)), draw(st.booleans())
        return drawn(draw(st.integers(1, 4)), classes, seed=seed, tied=tied)
    row = st.lists(any_value, min_size=classes, max_size=classes)
    return np.array(draw(st.lists(row, min_size=1, max_size=5)))


@settings(max_examples=150)
@given(some_logits(), st.sampled_from(NAMES), st.data())
def test_a_class_is_in_the_set_exactly_if_its_score_is_at_most_the_threshold(
    logits: np.ndarray, name: str, data: st.DataObject
) -> None:
    scores = all_scores(name, logits)
    at = float(data.draw(st.sampled_from(sorted(set(scores.reshape(-1).tolist())))))
    for threshold in (at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)):
        found = sets(logits, threshold, name, PARAMETERS[name])
        assert np.array_equal(found, scores <= threshold)


@settings(max_examples=60)
@given(some_logits(), st.sampled_from(NAMES), st.integers(0, 2**32 - 1))
def test_thresholds_of_classes_and_of_rows(logits: np.ndarray, name: str, seed: int) -> None:
    scores = all_scores(name, logits)
    rows, classes = logits.shape
    rng = np.random.default_rng(seed)
    per_class = np.append(rng.choice(scores.reshape(-1), classes - 1), np.inf)
    assert np.array_equal(sets(logits, per_class, name, PARAMETERS[name]), scores <= per_class)
    per_row = rng.choice(scores.reshape(-1), (rows, 1))
    assert np.array_equal(sets(logits, per_row, name, PARAMETERS[name]), scores <= per_row)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 10, 100])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.9])
def test_aps_takes_the_most_probable_classes_until_they_pass_the_threshold(
    classes: int, tied: bool, q: float
) -> None:
    """With the one that passes it, and all that are as probable as that one; so no set is empty."""
    logits = drawn(80, classes, seed=7, spread=1.0, tied=tied)
    for z, found in zip(logits, sets(logits, q, "aps"), strict=True):
        p = softmax(z)
        order = np.argsort(-p, kind="stable")
        last = order[np.argmax(np.append(p[order].cumsum()[:-1] > q, True))]
        assert np.array_equal(found, z >= z[last])


@pytest.mark.parametrize("name", ["aps", "raps"])
@pytest.mark.parametrize("k_reg", [0.0, 1.0, 2.0])
def test_thresholds_that_are_scores_make_no_empty_sets(name: str, k_reg: float) -> None:
    """Also where the first rank is penalised: then it is in all scores."""
    parameters = (0.125, k_reg) if name == "raps" else ()
    logits = drawn(300, 5, seed=8)
    smallest = SCORES[name](logits, np.arange(300) % 5, *parameters).min()
    assert sets(logits, smallest, name, parameters).sum(axis=1).min() == 1
    assert not sets(logits, np.nextafter(smallest, -1), name, parameters).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_blocks_do_not_matter(name: str, classes: int) -> None:
    """A row has the same score and the same set alone, at the end of a block, and in the middle of one."""
    rows = 2 * class_scores._BLOCK // classes + 5
    logits = drawn(rows, classes, seed=3, tied=True)
    labels = np.random.default_rng(4).integers(0, classes, rows)
    scores = score(name, logits, labels)
    threshold = float(np.median(scores))
    found = sets(logits, threshold, name, PARAMETERS[name])
    assert np.array_equal(found[np.arange(rows), labels], scores <= threshold)
    edge = class_scores._BLOCK // classes
    for row in (0, 1, edge - 1, edge, edge + 1, rows - 1):
        alone = slice(row, row + 1)
        assert score(name, logits[alone], labels[alone]) == scores[row]
        assert np.array_equal(sets(logits[alone], threshold, name, PARAMETERS[name])[0], found[row])


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_of_array_does_not_matter(name: str) -> None:
    logits = drawn(50, 6, seed=6).astype(np.float32)
    labels = np.arange(50) % 6
    expected = score(name, logits.astype(np.float64), labels)
    for other in (logits, np.asfortranarray(logits), logits.astype(np.float64)[::1]):
        assert np.array_equal(score(name, other, labels.astype(np.uint8)), expected)
        assert np.array_equal(
            sets(other, 0.5, name, PARAMETERS[name]), sets(logits, 0.5, name, PARAMETERS[name])
        )


def test_no_rows_have_no_scores() -> None:
    assert lac(np.empty((0, 3)), np.empty(0, dtype=int)).shape == (0,)
    assert sets(np.empty((0, 3)), 0.5, "aps").shape == (0, 3)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[0.0, np.nan]], [0], "logits: got NaN or infinite"),
        ([[0.0, np.inf]], [0], "logits: got NaN or infinite"),
        ([[-np.inf, -np.inf]], [0], "logits: got NaN or infinite"),
        ([0.0, 1.0], [0, 1], "logits: got an array of shape"),
        ([["a", "b"]], [0], "logits: got an array of shape"),
        ([[0.0, 1.0]], [2], "class: got 2, expected whole numbers from 0 to 1"),
        ([[0.0, 1.0]], [-1], "class: got -1"),
        ([[0.0, 1.0]], [0.5], "class: got numbers of type float64"),
        ([[0.0, 1.0]], [0, 1], "expected one per row"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_scored_is_refused(name: str, logits: list, labels: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        score(name, np.array(logits), np.array(labels))


@pytest.mark.parametrize(
    ("threshold", "quantity", "message"),
    [
        (np.nan, "aps", "threshold: got NaN"),
        ([0.1, 0.2], "aps", "one per class"),
        ([[0.1, 0.2, 0.3]] * 4, "lac", "one per row"),
        (0.5, "absolute", "expected one of lac, aps, raps"),
    ],
)
def test_bad_thresholds_are_refused(threshold: object, quantity: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sets(drawn(4, 3), threshold, quantity)


def test_nobody_predicts_for_logits_that_are_no_numbers() -> None:
    for quantity in NAMES:
        with pytest.raises(DataError, match="logits"):
            sets([[0.0, np.nan]], 0.5, quantity)
