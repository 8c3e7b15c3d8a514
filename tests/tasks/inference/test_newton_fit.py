"""The fit through sums is the pooled fit of statsmodels, with its errors, whatever clients hold."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from conformal_drive import Columns
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Step, TrustModel
from fedassay.summaries.regression.losses import IndexLoss, lent
from fedassay.summaries.regression.moments import Standard
from fedassay.tasks.inference.newton import RegressionFit, fit_newton
from fedassay.tasks.inference.parameters import Variance
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from regression_rows import dealt, driven, fitted, groups, made, pooled

SIX_AND_SIX = (1e-6, 1e6, 1.0)


def oracle(
    model: str, clients: Sequence[Columns], variance: str, *, intercept: bool = True, offset: bool = False
) -> Any:
    """Statsmodels on the pooled rows, with columns scaled to at most 1, and the scales."""
    rows = pooled(clients)
    x = rows["features"]
    x = np.column_stack([np.ones(len(x)), x]) if intercept else x
    scale = np.abs(x).max(axis=0)
    options: dict[str, Any] = {
        "row": {"cov_type": "HC1"},
        "model": {},
        "site": {"cov_type": "cluster", "cov_kwds": {"groups": groups(clients)}, "use_t": True},
    }[variance]
    if model == "linear":
        return sm.OLS(rows["target"] - offset * rows["offset"], x / scale).fit(**options), scale
    added = rows["offset"] if offset else None
    logit = sm.Logit(rows["target"], x / scale, offset=added)
    return logit.fit(disp=0, method="newton", tol=1e-10, maxiter=200, **options), scale


def same(fit: RegressionFit, told: Any, scale: np.ndarray, within: float = 1e-8) -> None:
    assert fit.converged, fit.reason
    estimate = fit.estimate
    np.testing.assert_allclose(estimate.value * scale, told.params, rtol=within)
    np.testing.assert_allclose(estimate.standard_errors * scale, told.bse, rtol=within)
    np.testing.assert_allclose(
        estimate.covariance * np.outer(scale, scale),
        told.cov_params(),
        rtol=within,
        atol=1e-12 * told.bse.max() ** 2,
    )
    np.testing.assert_allclose(
        estimate.intervals(0.9) * scale[:, None], told.conf_int(0.1), rtol=100 * within
    )
    np.testing.assert_allclose(estimate.p_values, told.pvalues, rtol=100 * within, atol=1e-300)


@pytest.mark.parametrize("variance", get_args(Variance))
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_it_is_the_pooled_fit(model: str, intercept: bool, offset: bool, variance: str) -> None:
    clients = dealt(made(model, 300, scales=SIX_AND_SIX), 7)
    assert [len(one["target"]) for one in clients[:2]] == [0, 1]
    fit = fitted(model, clients, intercept=intercept, offset=offset, variance=variance)
    same(fit, *oracle(model, clients, variance, intercept=intercept, offset=offset))
    assert (fit.rows, fit.clients) == (300, 6)
    assert fit.sums == 2 if model == "linear" else fit.sums <= 7


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
def test_sums_are_all_that_is_needed(trust: TrustModel) -> None:
    clients = dealt(made("logistic", 200), 5)
    same(fitted("logistic", clients, trust=trust), *oracle("logistic", clients, "row"))


@pytest.mark.parametrize("variance", ["row", "site"])
def test_the_generalised_linear_model_agrees(variance: str) -> None:
    """The same model by another class of statsmodels: HC0 and HC1 are the same there, too."""
    clients = dealt(made("logistic", 250), 6)
    rows, fit = pooled(clients), fitted("logistic", clients, variance=variance, offset=True)
    options: dict[str, Any] = {
        "row": {"cov_type": "HC0"},
        "site": {"cov_type": "cluster", "cov_kwds": {"groups": groups(clients)}},
    }[variance]
    x, family = sm.add_constant(rows["features"]), sm.families.Binomial()
    told = sm.GLM(rows["target"], x, family=family, offset=rows["offset"]).fit(tol=1e-14, **options)
    np.testing.assert_allclose(fit.estimate.value, told.params, rtol=1e-8)
    np.testing.assert_allclose(fit.estimate.standard_errors, told.bse, rtol=1e-8)
    assert fit.loss == pytest.approx(-told.llf / 250, rel=1e-10)


def test_a_column_far_from_zero_and_a_nearly_perfect_fit() -> None:
    """Nothing cancels: means a million deviations away, and residuals of a millionth of the target's deviation."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(120, 2))
    noise = 1e-6 * rng.normal(size=120)
    rows = {"features": z + 1e6, "target": z @ [1.0, -2.0] + noise, "offset": np.zeros(120)}
    fit = fitted("linear", dealt(rows, 5))
    # The same model about the means, where statsmodels loses nothing either.
    centre = rows["features"].mean(axis=0)
    told = sm.OLS(rows["target"], sm.add_constant(rows["features"] - centre)).fit(cov_type="HC1")
    np.testing.assert_allclose(fit.estimate.value[1:], told.params[1:], rtol=1e-8)
    np.testing.assert_allclose(fit.estimate.standard_errors[1:], told.bse[1:], rtol=1e-8)


@given(st.data())
@settings(max_examples=25)
def test_how_rows_are_dealt_changes_nothing(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(["linear", "logistic"]))
    variance = data.draw(st.sampled_from(["row", "model"]))
    rows = made(model, 60, seed=data.draw(st.integers(0, 3)), scales=(1.0, 30.0))
    holder = np.array(data.draw(st.lists(st.integers(0, 6), min_size=60, max_size=60)))
    clients = [{name: column[holder == one] for name, column in rows.items()} for one in range(7)]
    apart, together = fitted(model, clients, variance=variance), fitted(model, [rows], variance=variance)
    np.testing.assert_allclose(apart.estimate.value, together.estimate.value, rtol=1e-10)
    np.testing.assert_allclose(apart.estimate.covariance, together.estimate.covariance, rtol=1e-9, atol=1e-14)
    assert apart.clients == len(set(holder.tolist()))


def test_the_scale_is_only_a_way() -> None:
    """Any standard of about the right size leads to the same fit in the units of the data."""
    clients = dealt(made("logistic", 200), 5)
    names = ("intercept", "x0", "x1", "x2")
    other = Standard(features=3, centres=(3.0, -1.0, 0.0), scales=(5.0, 0.2, 1.0))
    found = driven(fit_newton("logistic", other, names), clients).estimate
    expected = fitted("logistic", clients).estimate
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9)


class PoissonLoss(IndexLoss):
    """A loss of one's own: counts with a log link."""

    name: ClassVar[str] = "poisson"

    def value(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(u) - y * u

    def first(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(u) - y

    def second(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(u)


class PoissonWithin(PoissonLoss):
    """The same up to what y adds, so that it is never negative; and far from 0 nothing is known of it."""

    name: ClassVar[str] = "poisson-within"

    def value(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(np.abs(u) < 30, super().value(u, y) + y * np.log(y) - y, np.nan)


@pytest.mark.parametrize("loss", [PoissonLoss(), PoissonWithin()], ids=lambda loss: loss.name)
def test_a_loss_of_ones_own_and_steps_that_are_too_long(loss: IndexLoss) -> None:
    """From 0, Newton's first step overshoots to exp(1000) and has to be halved many times."""
    rows = made("linear", 200)
    rows["target"] = np.random.default_rng(5).poisson(np.exp(7 + 0.1 * rows["features"][:, 0])).astype(float)
    clients = dealt(rows, 5)
    with lent(loss):
        fit = fitted(loss.name, clients)
    x = sm.add_constant(pooled(clients)["features"])
    told = sm.GLM(pooled(clients)["target"], x, family=sm.families.Poisson()).fit(tol=1e-14, cov_type="HC0")
    same(fit, told, np.ones(4))


@pytest.mark.parametrize("variance", ["model", "row"])
def test_a_client_whose_own_rows_are_separated_is_no_problem(variance: str) -> None:
    rows = made("logistic", 150)
    order = np.argsort(rows["target"], kind="stable")
    clients = [{name: column[part] for name, column in rows.items()} for part in np.split(order, [40, 90])]
    assert not clients[0]["target"].any()
    same(fitted("logistic", clients, variance=variance), *oracle("logistic", clients, variance))


def test_nearly_separated_rows_still_have_an_optimum() -> None:
    """One row on the wrong side bounds the coefficients, at values far from 0."""
    x = np.linspace(-1, 1, 200)
    y = (x > 0.002).astype(float)
    y[np.argmin(np.abs(x - 0.06))] = 0.0
    clients = dealt({"features": x[:, None], "target": y, "offset": np.zeros(200)}, 4)
    fit = fitted("logistic", clients)
    assert fit.estimate.value[1] > 50
    same(fit, *oracle("logistic", clients, "row"), 1e-7)


def test_an_offset_that_tells_every_target_leaves_an_optimum() -> None:
    """The total loss is below log 2 from the start, and yet no coefficient separates the rows."""
    rows = made("logistic", 40)
    rows["offset"] = np.where(rows["target"] == 1, 6.0, -6.0)
    clients = dealt(rows, 4)
    fit = fitted("logistic", clients, offset=True)
    assert fit.loss * 40 < np.log(2)
    same(fit, *oracle("logistic", clients, "row", offset=True), 1e-7)


def test_columns_that_nearly_depend_on_each_other() -> None:
    rows = made("logistic", 3000)
    twin = rows["features"][:, 0] + 1e-5 * np.random.default_rng(6).normal(size=3000)
    more = {**rows, "features": np.column_stack([rows["features"], twin])}
    alone, both = fitted("logistic", dealt(rows, 5)), fitted("logistic", dealt(more, 5))
    assert both.converged
    assert both.sums <= 10
    assert both.estimate.standard_errors[1] > 1e3
    # What one more column of noise changes, of the others.
    np.testing.assert_allclose(both.estimate.value[2:4], alone.estimate.value[2:4], rtol=0.1)
    np.testing.assert_allclose(
        both.estimate.standard_errors[2:4], alone.estimate.standard_errors[2:4], rtol=0.1
    )


def test_it_ends_where_rounding_begins() -> None:
    """Sums that are right to eight digits, as of many more rows or of columns that nearly depend on each other."""
    clients, rng = dealt(made("logistic", 200), 5), np.random.default_rng(7)
    names = ("intercept", "x0", "x1", "x2")

    def rounded() -> Generator[Step, Any, RegressionFit]:
        steps, reply = fit_newton("logistic", Standard(features=3), names), None
        while True:
            try:
                released = yield steps.send(reply)
            except StopIteration as finished:
                return finished.value
            gradient = released.value.gradient + 1e-6 * rng.normal(size=4)
            reply = released.with_value(replace(released.value, gradient=gradient))

    found = driven(rounded(), clients)
    assert found.converged
    assert found.sums <= 10
    np.testing.assert_allclose(found.estimate.value, fitted("logistic", clients).estimate.value, atol=1e-6)


def test_no_answer_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few sums allowed the fit says so, and what it has."""
    monkeypatch.setattr("fedassay.tasks.inference.newton.MOST_SUMS", 4)
    fit = fitted("logistic", dealt(made("logistic", 100), 4))
    assert not fit.converged
    assert "sums were not enough" in fit.reason
    assert fit.sums <= 4


def test_one_client_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(DataError, match=r"variance: got site with rows at 1 client, expected at least 2"):
        fitted("linear", [made("linear", 50)], variance="site")


@pytest.mark.parametrize(("options", "said"), [({"names": ("a", "b")}, "names: got 3, expected 4")])
def test_bad_questions_are_refused(options: dict[str, Any], said: str) -> None:
    clients = [made("linear", 50)]
    standard, names = Standard(features=3), ("intercept", *options.pop("names", ("a", "b", "c")))
    with pytest.raises(UsageError, match=said):
        driven(fit_newton("linear", standard, names, **options), clients)
