"""Rows that have no fit are refused in a sentence that names the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from fedassay.errors import DataError
from fedassay.summaries.regression.moments import Standard
from fedassay.tasks.inference.diagnosis import dependent
from fedassay.tasks.inference.newton import fit_newton
from regression_rows import dealt, driven, fitted, made

NAMES = ("age", "bmi", "sex", "dose")


def rows_of(
    model: str, *columns: np.ndarray, rows: int = 120, target: np.ndarray | None = None
) -> dict[str, Any]:
    """Three features that mean something, and these."""
    given = made(model, rows, seed=1)
    given["features"] = np.column_stack([given["features"], *columns])
    return given if target is None else {**given, "target": target}


def said(model: str, columns: dict[str, Any], **options: Any) -> str:
    with pytest.raises(DataError) as refused:
        fitted(model, dealt(columns, 5), names=options.pop("names", NAMES), **options)
    return str(refused.value)


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("times", [1.0, -1e6, 1e-6])
def test_a_column_that_is_there_twice(model: str, intercept: bool, times: float) -> None:
    rows = rows_of(model, times * made(model, 120, seed=1)["features"][:, 1])
    assert said(model, rows, intercept=intercept) == (
        "features: got 'bmi' and 'dose', which are multiples of each other (or depend on each other linearly): "
        "leave one out."
    )


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_indicators_of_every_value(model: str) -> None:
    """One of them is rare: its part in the dependence is small, and it is named all the same."""
    value = np.r_[np.zeros(500), np.ones(499), 2]
    rows = rows_of(model, *(value == one for one in range(3)), rows=1000)
    told = said(model, rows, names=("age", "bmi", "sex", "red", "green", "blue"))
    assert (
        told == "features: got 'red', 'green' and 'blue', which depend on each other linearly: leave one out."
    )


def test_two_dependences_are_told_apart() -> None:
    x = made("linear", 120, seed=1)["features"]
    rows = rows_of("linear", 2 * x[:, 0], x[:, 1] + x[:, 2])
    told = said("linear", rows, names=("age", "bmi", "sex", "months", "sum"))
    assert "'age' and 'months', which are multiples" in told
    assert "'bmi', 'sex' and 'sum', which depend on each other linearly" in told


def test_without_a_dependence_nothing_is_named() -> None:
    x = made("linear", 120)["features"]
    assert dependent(x.T @ x, NAMES[:3]) == []


@pytest.mark.parametrize(("intercept", "value", "why"), [
    (True, 0.1, "constant, as the intercept is"),
    (True, 0.0, "constant, as the intercept is"),
    (False, 0.0, "0 in every row"),
])  # fmt: skip
def test_a_constant_column(intercept: bool, value: float, why: str) -> None:
    told = said("linear", rows_of("linear", np.full(120, value)), intercept=intercept)
    assert told == f"features: got 'dose', which is {why}: leave it out."


def test_a_constant_without_an_intercept_is_one() -> None:
    rows = rows_of("linear", np.full(120, 2.0))
    without = fitted("linear", dealt(rows, 5), names=NAMES, intercept=False).estimate
    with_one = fitted("linear", dealt(made("linear", 120, seed=1), 5)).estimate
    assert without.value[-1] * 2 == pytest.approx(with_one.value[0], rel=1e-9)


def test_a_constant_column_on_a_scale_of_ones_own() -> None:
    """Where no moments were asked for, the Hessian shows it."""
    clients = dealt(rows_of("logistic", np.full(120, 7.0)), 5)
    with pytest.raises(DataError, match=r"^features: got 'dose', which is constant: leave it out\.$"):
        driven(fit_newton("logistic", Standard(features=4), ("intercept", *NAMES)), clients)


def test_perfect_separation() -> None:
    rows = rows_of("logistic")
    x = rows["features"]
    rows["target"] = (x[:, 1] > np.median(x[:, 1])).astype(float)
    told = said("logistic", rows, names=NAMES[:3])
    assert told == (
        "features: got 'bmi', which tells the target of every row without a doubt (perfect separation): "
        "coefficients grow without end; leave it out, or join rare values."
    )


def test_separation_by_two_columns_together() -> None:
    rows = rows_of("logistic")
    x = rows["features"]
    rows["target"] = (x[:, 0] - x[:, 2] > 0.1).astype(float)
    assert "got 'age' and 'sex', which tell the target of every row" in said(
        "logistic", rows, names=NAMES[:3]
    )


@pytest.mark.parametrize("model_offset", [False, True])
def test_quasi_complete_separation(model_offset: bool) -> None:
    """All who have the rare value have the same target; the others overlap."""
    rows = rows_of("logistic", (np.arange(120) % 11 == 0).astype(float))
    rows["target"] = np.where(rows["features"][:, 3] == 1, 1.0, rows["target"])
    told = said("logistic", rows, offset=model_offset)
    assert told.startswith(
        "features: got 'dose', which tells the target of some rows without a doubt (quasi-complete"
    )


def test_a_value_of_five_rows_in_ten_thousand() -> None:
    """On the common scale its coefficient hardly moves, and yet it has no end."""
    rows = rows_of("logistic", (np.arange(10_000) % 2_000 == 7).astype(float), rows=10_000)
    rows["target"] = np.where(rows["features"][:, 3] == 1, 0.0, rows["target"])
    assert "got 'dose', which tells the target of some rows" in said("logistic", rows)
    rows["target"][7] = 1.0  # both targets among the five
    fitted("logistic", dealt(rows, 5), names=NAMES)


def test_rare_targets_are_no_separation() -> None:
    rows = rows_of("logistic", rows=20_000, target=(np.arange(20_000) % 4_000 == 7).astype(float))
    assert fitted("logistic", dealt(rows, 5), names=NAMES[:3]).converged


def test_separation_but_for_ties() -> None:
    """A threshold at which both targets occur, and nowhere else."""
    x = np.arange(-20, 21, dtype=float)
    rows = {
        "features": np.r_[x, 0.0][:, None],
        "target": np.r_[x > 0, 1].astype(float),
        "offset": np.zeros(42),
    }
    assert "'age', which tells the target of some rows" in said("logistic", rows, names=NAMES[:1])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_target_only(value: float) -> None:
    told = said("logistic", rows_of("logistic", target=np.full(120, value)), names=NAMES[:3])
    assert told.startswith(f"target: got {value:g} in every row, expected both 0 and 1")


def test_targets_that_are_no_labels() -> None:
    target = np.r_[np.zeros(50), np.ones(68), 2.0, 0.5]
    told = said("logistic", rows_of("logistic", target=target), names=NAMES[:3])
    assert told == "target: got numbers other than 0 and 1 in 2 of 120 rows, expected 0 or 1 in every row."


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_too_few_rows(rows: int) -> None:
    """As many as coefficients fit perfectly, and leave nothing to judge by."""
    columns = made("linear", rows)
    with pytest.raises(DataError, match=rf"rows: got {rows} for 4 coefficients, expected more rows"):
        fitted("linear", [columns])
    with pytest.raises(DataError, match=rf"rows: got {rows} for 4 coefficients, expected more rows"):
        driven(fit_newton("linear", Standard(features=3), ("intercept", "a", "b", "c")), [columns])


def test_numbers_that_are_too_large() -> None:
    columns = made("linear", 50)
    columns["features"][7, 1] = 1e20
    with pytest.raises(DataError, match=r"got numbers beyond ±1.8e\+19 at 1 client, expected smaller ones"):
        fitted("linear", dealt(columns, 4))
    with pytest.raises(DataError, match="at 1 of 3 clients that are too large to be added up"):
        driven(fit_newton("linear", Standard(features=3), ("intercept", "a", "b", "c")), dealt(columns, 4))


def separation(x: np.ndarray, y: np.ndarray) -> str:
    """By linear programming: the most rows that some direction puts on their side, none on the other."""
    margins = (2 * y - 1)[:, None] * np.column_stack([np.ones(len(x)), x])
    rows, size = margins.shape
    found = linprog(
        np.r_[np.zeros(size), -np.ones(rows)],
        A_ub=np.column_stack([-margins, np.eye(rows)]),
        b_ub=np.zeros(rows),
        bounds=[(None, None)] * size + [(0, 1)] * rows,
    )
    if -found.fun > rows - 1e-6:
        return "perfect separation"
    return "quasi-complete separation" if -found.fun > 1e-6 else ""


@pytest.mark.parametrize("values", [2, 4, 1000])
def test_separation_is_found_if_and_only_if_there_is_one(values: int) -> None:
    """Small sets of rows with few and many ties, some of each kind."""
    rng, seen = np.random.default_rng(values), set()
    for _ in range(60):
        rows, f = int(rng.integers(8, 25)), int(rng.integers(1, 4))
        x = rng.integers(0, values, size=(rows, f)).astype(float)
        steep = (x - x.mean(axis=0)) @ rng.normal(size=f) * 6 / values
        y = (rng.random(rows) < 1 / (1 + np.exp(-steep))).astype(float)
        try:
            fitted("logistic", [{"features": x, "target": y, "offset": np.zeros(rows)}])
            told = ""
        except DataError as refused:
            told = str(refused)
        if told and "separation" not in told:  # constant or dependent columns, or one target only
            continue
        kind = separation(x, y)
        assert kind in told if kind else not told
        seen.add(kind)
    assert "" in seen
    assert len(seen) >= 2
