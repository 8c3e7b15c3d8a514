"""The estimator that learns from batches: what it estimates, what it keeps, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.base import clone

from fedassay import FederatedRegression, SmoothLoss
from fedassay.errors import DataError, UsageError
from own_losses import PoissonLoss

Batch = tuple[pd.DataFrame, np.ndarray, np.ndarray]


def batches(rounds: int, *, rows: int = 24, seed: int = 0, model: str = "linear") -> Iterator[Batch]:
    """Three clients in each round, of four; they differ in what they have."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        client = np.repeat(rng.permutation(4)[:3], rows // 3)
        x = pd.DataFrame({"u": rng.normal(size=rows) + 0.3 * client, "v": 10 * rng.normal(size=rows)})
        index = 0.2 + 0.5 * x.u - 0.04 * x.v
        y = {
            "linear": index + rng.normal(size=rows),
            "logistic": (rng.random(rows) < 1 / (1 + np.exp(-index))).astype(float),
            "poisson": rng.poisson(np.exp(index)),
        }[model]
        yield x, np.asarray(y, dtype=float), client


def learned(model: FederatedRegression, seen: list[Batch]) -> FederatedRegression:
    for x, y, client in seen:
        model.partial_fit(x, y, client)
    return model


SCALE = ((0.5, 0.0), (1.0, 10.0))


# --- what is estimated ------------------------------------------------------------------------------------------------


def test_a_linear_stream_is_the_least_squares_fit_to_all_rows() -> None:
    seen = list(batches(40))
    x, y = pd.concat([one[0] for one in seen]), np.concatenate([one[1] for one in seen])
    pooled = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC0")
    for options in ({}, {"scale": SCALE}, {"local_steps": 4, "local": "fixed"}):
        model = learned(FederatedRegression(**options), seen)  # type: ignore[arg-type]
        np.testing.assert_allclose(model.params_, pooled.params, rtol=1e-9)
        assert np.abs(np.log(model.bse_ / pooled.bse)).max() < 0.35  # of 37 differences
    assert model.names_ == ("intercept", "u", "v")
    assert (model.rounds_, model.n_features_in_) == (40, 2)
    np.testing.assert_allclose(model.predict(x), pooled.predict(), rtol=1e-8)
    assert model.score(x, y) == pytest.approx(pooled.rsquared)


def test_clients_count_by_their_rows_or_by_their_visits() -> None:
    # Client a has four rows of 0 in each round, client b one row of 1 in every other round.
    found = {}
    for weights in ("rows", "clients"):
        model = FederatedRegression(weighting=weights, step=0.1, intercept=False)
        for number in range(60):
            here = number % 2
            y = np.array([0.0] * 4 + [1.0] * here)
            model.partial_fit(np.ones((len(y), 1)), y, ["a"] * 4 + ["b"] * here)
        found[weights] = float(model.coef_[0])
    # p_b/p_a is 1/2 of a visit, with a quarter of the rows: means 0.5/4.5 and 0.5/1.5.
    assert found["rows"] == pytest.approx(1 / 9, abs=0.02)
    assert found["clients"] == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("model", ["logistic", "poisson"])
def test_other_models_come_near_the_pooled_fit(model: str) -> None:
    seen = list(batches(150, model=model))
    x, y = pd.concat([one[0] for one in seen]), np.concatenate([one[1] for one in seen])
    family = sm.families.Binomial() if model == "logistic" else sm.families.Poisson()
    pooled = sm.GLM(y, sm.add_constant(x), family=family).fit(cov_type="HC0")
    own: str | SmoothLoss = model if model == "logistic" else PoissonLoss()
    options: dict[str, Any] = {} if model == "logistic" else {"step": 0.1}
    found = learned(FederatedRegression(own, scale=SCALE, **options), seen)
    # Up to a quarter of the rounds does not count: sqrt(1/3) standard errors, three times.
    assert np.abs((found.params_ - pooled.params) / pooled.bse).max() < 1.73
    assert np.abs(np.log(found.bse_ / pooled.bse)).max() < 0.3
    if model == "logistic":
        p = found.predict_proba(x)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_array_equal(found.predict(x), p[:, 1] >= 0.5)
        assert found.score(x, y) == np.mean(found.predict(x) == y)


def test_an_offset_is_a_known_part() -> None:
    model, other = FederatedRegression(), FederatedRegression()
    for x, y, client in batches(12):
        known = np.asarray(x.u)
        model.partial_fit(x, y + known, client, offset=known)
        other.partial_fit(x, y, client)
    np.testing.assert_allclose(model.params_, other.params_, rtol=1e-9)
    np.testing.assert_allclose(model.predict(x, known), other.predict(x) + known, rtol=1e-9)


# --- what is said about it --------------------------------------------------------------------------------------------


def test_intervals_contrasts_and_a_table() -> None:
    model = learned(
        FederatedRegression("logistic", level=0.9, scale=SCALE), list(batches(40, model="logistic"))
    )
    intervals, together = model.conf_int(), model.conf_int(simultaneous=True)
    assert intervals.shape == (3, 2)
    np.testing.assert_allclose(intervals.mean(axis=1), model.params_)
    assert (np.diff(together) > np.diff(intervals)).all()
    assert (np.diff(model.conf_int(0.99)) > np.diff(intervals)).all()
    one = model.contrast("u - 2*v = 0.1")
    assert one == model.contrast({"u": 1, "v": -2}, 0.1)
    assert one.estimate == pytest.approx(model.coef_[0] - 2 * model.coef_[1])
    weights = np.array([0, 1, -2])
    assert one.standard_error == pytest.approx(np.sqrt(weights @ model.covariance_ @ weights))
    text = model.summary()
    assert "Logistic regression by round-plug-in: 40 rounds, 960 rows." in text
    assert "std err" in text
    assert "[0.05" in text
    assert "Odds ratios" in text
    assert f"{model.bse_[1]:.3g}" in text
    scaling = learned(FederatedRegression(method="random-scaling"), list(batches(40)))
    assert "P>|ratio|" in scaling.summary()


def test_a_stream_of_separated_rows_is_told() -> None:
    """Rows are gone, so that it can only be guessed: curvature vanishes as coefficients grow."""
    seen = list(batches(400, rows=60, model="logistic"))
    apart = [(x, (x.u > 0.4).to_numpy(dtype=float), client) for x, _, client in seen]
    told = learned(FederatedRegression("logistic", scale=SCALE), apart).summary()
    assert "Next to no row is in doubt along" in told
    assert "'u'" in told.split("Next to no row")[1]
    assert "in doubt" not in learned(FederatedRegression("logistic", scale=SCALE), seen).summary()


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["linear", "logistic", PoissonLoss()])
def test_stopped_and_resumed_it_has_the_same_numbers_to_the_last_bit(own: Any, tmp_path: Path) -> None:
    name = own if isinstance(own, str) else own.name
    seen = list(batches(14, model=name))
    options: dict[str, Any] = {"local_steps": 3, "scale": SCALE, "weighting": "clients", "step": 0.05}
    whole = learned(FederatedRegression(own, **options), seen)
    part = learned(FederatedRegression(own, **options), seen[:5])
    for batch in seen[5:]:
        part.save(tmp_path / "state.json")
        lost = None if isinstance(own, str) else own
        part = learned(FederatedRegression.load(tmp_path / "state.json", model=lost), [batch])
    np.testing.assert_array_equal(part.params_, whole.params_)
    np.testing.assert_array_equal(part.covariance_, whole.covariance_)
    assert part.summary() == whole.summary()
    assert (tmp_path / "state.json").stat().st_size < 10_000  # however many rows there were


def test_a_clone_has_the_parameters_and_no_memory() -> None:
    model = learned(FederatedRegression("logistic", local_steps=2), list(batches(6, model="logistic")))
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert repr(other) == "FederatedRegression(model='logistic', local_steps=2)"
    with pytest.raises(UsageError, match="call partial_fit first"):
        _ = other.coef_


# --- what is refused --------------------------------------------------------------------------------------------------

X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"model": "probit"}, (X, Y), "model: got 'probit'"),
        ({"model": 3}, (X, Y), "model: got 3"),
        ({"method": "separated-plug-in"}, (X, Y), "method: got 'separated-plug-in', expected one of round"),
        ({"local": "none"}, (X, Y), "local: got 'none'"),
        ({"weighting": "all"}, (X, Y), "weighting: got 'all'"),
        ({"level": 2}, (X, Y), "level: got 2"),
        ({"scale": ((0.0,), (1.0,))}, (X, Y), "centres: expected 2 finite numbers"),
        ({"model": "logistic"}, (X, Y + 1), "y: got 2, expected 0 or 1"),
        ({}, (X[:, 0], Y), "X: got the shape"),
        ({}, (np.where(X == 3, np.nan, X), Y), "X: got nan in row 1, column 1"),
        ({}, ([["a"]], [1.0]), "X: got values that are no numbers"),
        ({}, (X, Y[:2]), "y: got the shape"),
        ({}, (X, np.array([0.0, np.inf, 1.0])), "y: got inf in row 1"),
        ({}, (X, Y, ["a"]), "client: got the shape"),
        ({}, (X, Y, None, [1.0]), "offset: got the shape"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], given: tuple[Any, ...], words: str) -> None:
    with pytest.raises((UsageError, DataError), match=words.replace("(", r"\(")):
        FederatedRegression(**options).partial_fit(*given)


def test_what_is_refused_changes_nothing() -> None:
    model = learned(FederatedRegression(step=0.3), list(batches(6)))
    before = model.params_
    with pytest.raises(UsageError, match="X: got 3 columns, expected 2 as before"):
        model.partial_fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(UsageError, match="X: got the columns v, u, expected u, v as before"):
        model.partial_fit(pd.DataFrame({"v": [1.0], "u": [1.0]}), [1.0])
    with pytest.raises(UsageError, match="iterates diverge"):
        model.partial_fit(np.full((4, 2), 1e30), np.ones(4))
    np.testing.assert_array_equal(model.partial_fit(np.ones((0, 2)), []).params_, before)
    with pytest.raises(UsageError, match="no probabilities"):
        model.predict_proba(X)


def test_too_few_rounds_have_no_errors_and_columns_that_depend_are_named(tmp_path: Path) -> None:
    model = learned(FederatedRegression(), list(batches(3)))
    assert model.coef_.shape == (2,)
    with pytest.raises(UsageError, match="rounds: got 3, expected at least 8"):
        model.conf_int()
    twice = FederatedRegression()
    for x, y, client in batches(6):
        twice.partial_fit(x.assign(v=2 * x.u), y, client)
    with pytest.raises(DataError, match="'u' and 'v'"):
        _ = twice.coef_
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match="it cannot be read"):
        FederatedRegression.load(tmp_path / "other.json")
