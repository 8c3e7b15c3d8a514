"""Conformity scores by name: formulas, parameters, ranges, and what cannot be scored."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import DataError, UsageError
from fedassay.summaries.quantities import (
    QUANTITIES,
    checked_quantity,
    public_range,
    scores_of,
    sets_of,
    widths,
)

BATCH = {
    "value": np.array([1.0, -2.0, 0.5]),
    "conformity": np.array([0.1, 0.2, -0.3]),
    "target": np.array([1.0, 2.0, -3.0]),
    "prediction": np.array([1.5, 2.0, -5.0]),
    "scale": np.array([0.5, 1.0, 4.0]),
    "lower": np.array([0.0, 2.5, -4.0]),
    "upper": np.array([3.0, 3.0, -3.5]),
    "class": np.array([0, 1, 1]),
    "logits": np.log([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]),
    "label": np.array([0, 1, 1], dtype=np.int8),
    "score": np.array([0.5, 0.25, 0.75]),
}

EXPECTED = {
    "value": [1.0, -2.0, 0.5],
    "conformity": [0.1, 0.2, -0.3],
    "absolute": [0.5, 0.0, 2.0],
    "normalised": [1.0, 0.0, 0.5],
    "cqr": [-1.0, 0.5, 0.5],
    "lac": [0.5, 0.25, 0.75],
    "aps": [0.0, 0.0, 0.75],
    "raps": [0.0, 0.0, 0.85],
    "binary": [0.5, 0.75, 0.25],
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_scores_are_what_their_names_say_and_need_no_other_column(name: str) -> None:
    parameters = (0.1, 1.0) if name == "raps" else ()
    needed = {role: BATCH[role] for role in QUANTITIES[name].columns}
    scores = scores_of(needed, name, checked_quantity(name, parameters))
    assert scores.dtype == np.float64
    assert scores.tolist() == pytest.approx(EXPECTED[name], abs=1e-12)
    for role in needed:
        with pytest.raises(DataError, match=f"none in the role '{role}'"):
            scores_of({r: c for r, c in needed.items() if r != role}, name, parameters)


@given(
    st.sampled_from(["absolute", "normalised", "lac", "aps", "raps", "binary"]),
    st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 4), min_size=1, max_size=8),
    st.floats(0, 1),
    st.integers(0, 6),
)
def test_no_score_is_outside_the_public_range(
    name: str, rows: list[tuple[float, ...]], penalty: float, k_reg: int
) -> None:
    table = np.array(rows)
    batch = {
        "target": table[:, 0],
        "prediction": table[:, 1],
        "scale": np.abs(table[:, 2]) + 1e-3,
        "class": np.arange(len(table)) % 4,
        "logits": table,
        "label": np.arange(len(table)) % 2,
        "score": np.abs(np.cos(table[:, 0])),
    }
    parameters = (penalty, float(k_reg)) if name == "raps" else ()
    lower, upper = public_range(name, parameters, classes=4)
    scores = scores_of(batch, name, parameters)
    assert lower == 0.0
    assert scores.min() >= lower
    assert upper is None or scores.max() <= upper


def test_nobody_knows_the_range_of_the_others() -> None:
    assert {name for name in QUANTITIES if public_range(name) == (None, None)} == {
        "value",
        "conformity",
        "cqr",
    }
    assert public_range("raps") == (0.0, None)


def test_minus_zero_is_zero() -> None:
    """The order of the bits is the order of the scores."""
    assert not np.signbit(scores_of({"value": np.array([-0.0])}, "value", ())[0])


HARMLESS = {("logits", -np.inf), ("scale", np.inf), ("lower", -np.inf), ("upper", np.inf)}
"""A class of probability zero, a prediction that says nothing, a band with one end: scores are numbers all the same."""


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", QUANTITIES)
def test_a_number_that_is_none_is_refused_with_its_column(name: str, bad: float) -> None:
    for role in set(QUANTITIES[name].columns) - {"class", "label"}:
        column = BATCH[role].copy()
        column.reshape(-1)[-1] = bad
        if (role, bad) in HARMLESS:
            assert np.isfinite(scores_of({**BATCH, role: column}, name, checked_quantity(name))).all()
            continue
        with pytest.raises(DataError, match=f"^{role}: got"):
            scores_of({**BATCH, role: column}, name, checked_quantity(name))


LARGEST = np.finfo(np.float64).max


@pytest.mark.parametrize(
    ("name", "columns", "score"),
    [
        ("absolute", {"target": 1.7e308, "prediction": -1.7e308}, LARGEST),
        ("normalised", {"target": 1.7e308, "prediction": -1.7e308, "scale": 1.7e308}, LARGEST),
        ("normalised", {"target": 1e10, "prediction": 0.0, "scale": 5e-324}, LARGEST),
        ("cqr", {"target": -1.7e308, "lower": 1.7e308, "upper": 0.0}, LARGEST),
        ("cqr", {"target": 0.0, "lower": -1.7e308, "upper": 1.7e308}, -1.7e308),
        ("cqr", {"target": -1.7e308, "lower": -1.7e308, "upper": 1.7e308}, 0.0),
    ],
)
def test_a_score_that_overflows_is_the_largest_there_is(
    name: str, columns: dict[str, float], score: float
) -> None:
    """Whoever refused would say that there is such a row."""
    batch = {role: np.array([number]) for role, number in columns.items()}
    assert scores_of(batch, name, ()).tolist() == [score]


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_that_is_not_positive_is_refused(scale: float) -> None:
    batch = {**BATCH, "scale": np.array([1.0, scale, 1.0])}
    for work in (lambda: scores_of(batch, "normalised", ()), lambda: widths(batch, "normalised", 1.0)):
        with pytest.raises(DataError, match="scale: got a number that is not above 0"):
            work()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("nothing", (), "got 'nothing', expected one of value, conformity"),
        (3, (), "got 3, expected one of"),
        ("aps", (0.1,), "score_parameters: got 1 numbers for aps, expected none"),
        ("raps", (0.1,), "got 1 numbers for raps, expected lambda, k_reg"),
        ("raps", (-0.1, 5), "score_parameters: got the lambda -0.1"),
        ("raps", (math.nan, 5), "score_parameters: got the lambda nan"),
        ("raps", (0.1, 2.5), "got the k_reg 2.5, expected a whole number"),
        ("raps", (0.1, math.inf), "got the k_reg inf"),
        ("raps", (0.1, -1), "got the k_reg -1"),
        ("binary", (3.0, 0.5), "map: got 3.0 as its kind"),
        ("binary", (2.0, 1.0, math.nan, 0.0), "sigmoid: got nan for b"),
        ("binary", (0.0, 0.5, 0.1, 1.2), "map: values hold 1.2"),
    ],
)
def test_bad_questions_are_refused(name: str, parameters: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_quantity(name, parameters)


@given(
    st.sampled_from(["normalised", "cqr"]),
    st.floats(-10, 10),
    st.floats(-10, 10),
    st.floats(0.01, 10),
    st.floats(-3, 10),
)
def test_widths_are_those_of_what_scores_at_most_the_threshold(
    name: str, low: float, high: float, scale: float, threshold: float
) -> None:
    batch = {
        "prediction": np.array([low]),
        "lower": np.array([low]),
        "upper": np.array([high]),
        "scale": np.array([scale]),
    }
    width = float(widths(batch, name, threshold)[0])
    middle = low if name == "normalised" else (low + high) / 2
    ends = {"inside": 0.5 - 1e-9, "outside": 0.5 + 1e-9}
    for where, part in ends.items():
        target = np.array([middle + part * width + (1e-9 if where == "outside" else 0.0)])
        covered = scores_of({**batch, "target": target}, name, ())[0] <= threshold
        if where == "outside":
            assert not covered
        elif width > 1e-6:
            assert covered


def test_other_scores_have_no_sets() -> None:
    assert {name for name, one in QUANTITIES.items() if one.gives_sets} == {"lac", "aps", "raps", "binary"}
    with pytest.raises(UsageError, match="prediction sets: got 'cqr', which scores no classes"):
        sets_of(BATCH, 0.5, "cqr", ())


@pytest.mark.parametrize("name", ["lac", "aps", "raps", "binary"])
def test_a_class_is_in_a_set_exactly_if_its_score_is_at_most_the_threshold(name: str) -> None:
    parameters, truth = checked_quantity(name), QUANTITIES[name].truth
    for limit in (0.25, 0.5, 0.75):
        members = sets_of(BATCH, limit, name, parameters)
        for k in range(2):
            scores = scores_of({**BATCH, truth: np.full(3, k)}, name, parameters)
            assert members[:, k].tolist() == (scores <= limit).tolist()


def test_other_scores_have_no_widths() -> None:
    with pytest.raises(UsageError, match="expected 'normalised' or 'cqr'"):
        widths(BATCH, "absolute", 1.0)
