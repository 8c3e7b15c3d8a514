"""Regressions with a loss of one's own, in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.optimize import least_squares

import fedassay
from fedassay.errors import DataError, UsageError
from own_losses import ExponentialSquares, PoissonLoss


def rows_of_counts(rows: int = 1500, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose, known = rng.normal(50, 10, rows), rng.normal(size=rows), 0.2 * rng.normal(size=rows)
    mean = np.exp(0.3 + 0.02 * (age - 50) + 0.3 * dose + known)
    return pd.DataFrame(
        {"site": np.arange(rows) % 5, "age": age, "dose": dose, "known": known, "k": rng.poisson(mean)}
    )


def fitted(data: pd.DataFrame, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    given = {"model": PoissonLoss(), "target": "k", "features": ["age", "dose"], "offset": "known"}
    found = fedassay.infer(data, client="site", privacy=fedassay.Plain(), **(given | options))["coefficients"]
    return np.array([one["value"] for one in found]), np.array([one["standard_error"] for one in found])


def test_a_poisson_regression_is_that_of_statsmodels() -> None:
    data = rows_of_counts()
    x = sm.add_constant(data[["age", "dose"]])
    pooled = sm.GLM(data.k, x, family=sm.families.Poisson(), offset=data.known).fit(cov_type="HC0")
    value, error = fitted(data, method="newton")
    np.testing.assert_allclose(value, pooled.params, rtol=1e-8)
    np.testing.assert_allclose(error, pooled.bse, rtol=1e-7)
    value, error = fitted(data, rounds=60)
    assert np.abs((value - pooled.params) / pooled.bse).max() < 0.8
    assert np.abs(np.log(error / pooled.bse)).max() < 0.4  # of 60 rounds
    with pytest.raises(UsageError, match="expected one of linear, logistic"):
        fitted(data, model="poisson")  # it was lent only for the runs


def test_a_loss_about_which_nothing_else_is_known_sees_features_as_they_are() -> None:
    data = rows_of_counts().assign(age=lambda rows: rows.age - 50)
    x = sm.add_constant(data[["age", "dose"]]).to_numpy()
    best = least_squares(lambda theta: np.exp(x @ theta + data.known) - data.k, np.zeros(3), xtol=1e-12)
    value, _ = fitted(data, model=ExponentialSquares(), method="newton")
    np.testing.assert_allclose(value, best.x, rtol=1e-5)


def test_what_makes_no_sense_is_refused() -> None:
    class Nameless(PoissonLoss):
        name = None  # type: ignore[assignment]

    class Wider(ExponentialSquares):
        def parameters(self, features: int) -> int:
            return features + 1

    class Taken(PoissonLoss):
        name = "logistic"

    data = rows_of_counts(60)
    for model, words in (
        (Nameless(), "model: got <"),
        (PoissonLoss, "an instance of a SmoothLoss"),
        (Wider(), "with 4 parameters for 3 columns"),
        (Taken(), "'logistic', which is taken"),
    ):
        with pytest.raises(UsageError, match=words):
            fitted(data, model=model)
    with pytest.raises(
        DataError, match="column 'k' .target of a poisson model.: got -1, expected counts from 0"
    ):
        fitted(data.assign(k=data.k - 1))
    with pytest.raises(UsageError, match="code does not travel"):
        fitted(data, simulation=fedassay.Simulation(runtime="flower"))
    with pytest.raises(UsageError, match="without commas"):
        fitted(data, features=["age,dose"])
    with pytest.raises(UsageError, match="at least one column"):
        fitted(data, features=[])
