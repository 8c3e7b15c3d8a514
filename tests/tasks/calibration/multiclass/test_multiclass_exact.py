"""The fit through sums is the pooled optimum, whatever clients hold, under trust models that only add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from conformal_drive import answer, setting_of
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import NO_NOISE, Part, Query, Released, Sum, TrustModel
from fedassay.summaries.multiclass.losses import FAMILIES, LEAST_SLOPE
from fedassay.tasks.calibration.multiclass import LOGIT_MAPS, RIDGE, Fit, fit_exact
from fedassay.tasks.calibration.multiclass.exact import GRADIENT_SUMS, NEWTON_SUMS
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from flows import finished
from multiclass_rows import Columns, design, dirichlet, drawn, objective, pooled_optimum
from secure_sum_driver import Run, vectors

METHODS = tuple(FAMILIES)


def fitted(method: str, clients: Sequence[Columns], trust: TrustModel | None = None, **fields: Any) -> Fit:
    setting = setting_of(trust, clients=len(clients))
    flow = fit_exact(method, clients[0]["logits"].shape[1], **fields)
    return finished(flow, lambda query, _: answer(query, setting, clients, 0))[0]  # type: ignore[no-any-return]


def judge(method: str, columns: Columns, found: Fit, ridge: float = RIDGE) -> None:
    """Objective to 1e-8 and probabilities to 1e-6 of what SciPy finds on the pooled rows."""
    family, z = FAMILIES[method], columns["logits"]
    c = z.shape[1]
    at = objective(design(method, z, family.size(c)), columns["class"], family.identity(c), ridge)
    least = LEAST_SLOPE if method == "order-preserving" else None
    expected = pooled_optimum(at, family.identity(c), least)
    best = at(expected)[0]
    assert found.converged, found.reason
    assert at(found.map.theta)[0] == pytest.approx(best, rel=1e-8)
    assert at(found.map.theta)[0] <= best * (1 + 1e-10)
    assert found.objective == pytest.approx(best, rel=1e-8)
    assert found.loss_before == pytest.approx(at(family.identity(c))[0], rel=1e-6)
    assert found.loss <= found.objective <= found.loss_before * (1 + 1e-6)
    probabilities = LOGIT_MAPS[method].of(expected, c).predict_proba(z)
    assert np.abs(found.map.predict_proba(z) - probabilities).max() <= 1e-6


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", METHODS)
def test_skewed_clients_find_the_pooled_optimum(method: str, trust: TrustModel) -> None:
    columns = drawn(1_500, 5)
    clients = dirichlet(columns, 100, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    found = fitted(method, clients, trust)
    judge(method, columns, found)
    assert (found.rows, found.clients) == (1_500, 100)
    assert found.sums <= 8


def test_local_fits_averaged_would_not_be_the_pooled_optimum() -> None:
    """That the test above can fail: the mean of what clients find alone is far off, weighted by rows or not."""
    columns = drawn(1_500, 5)
    clients = [one for one in dirichlet(columns, 100, 0.1) if len(one["class"])]
    alone = np.stack([fitted("vector", [one]).map.theta for one in clients])
    rows = np.array([len(one["class"]) for one in clients])
    pooled = fitted("vector", [columns])
    for weights in (np.ones(len(clients)), rows):
        mean = LOGIT_MAPS["vector"].of(np.average(alone, axis=0, weights=weights), 5)
        p = [one.predict_proba(columns["logits"]) for one in (mean, pooled.map)]
        assert np.abs(p[0] - p[1]).max() > 0.01


@pytest.mark.parametrize("method", ["temperature", "order-preserving"])
def test_masked_sums_give_the_same_fit(method: str) -> None:
    """With real keys, masks and shares between the clients, not only their law."""
    columns = drawn(300, 4, seed=3)
    clients = dirichlet(columns, 6, 0.1)

    def masked(query: Query[Any], _: int) -> Released[Any]:
        values = {
            f"c{j}": (query.of.measure(ArrayRows(columns=one), {})[0],) for j, one in enumerate(clients)
        }
        run = Run(trust=SecureSum(), values=values, lengths=(query.of.length,))
        (total,) = vectors(run.go())
        return Released(value=query.of.read(np.array(total)), noise=NO_NOISE, clients=len(clients))

    found, _ = finished(fit_exact(method, 4), masked)
    assert found == fitted(method, clients)
    judge(method, columns, found)


@pytest.mark.parametrize("method", ["temperature", "vector", "order-preserving"])
def test_many_classes(method: str) -> None:
    columns = drawn(400, 12, seed=4)
    judge(method, columns, fitted(method, dirichlet(columns, 10, 0.1)))


def test_more_parameters_than_hessians_are_summed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-BFGS finds the same optima, bounds included, and stops by a bound that strong convexity gives."""
    monkeypatch.setattr("fedassay.tasks.calibration.multiclass.exact.MOST_NEWTON", 0)
    for method in METHODS:
        columns = drawn(600, 4, seed=5)
        found = fitted(method, [columns], ridge=1e-4)
        judge(method, columns, found, ridge=1e-4)
        assert 8 < found.sums < GRADIENT_SUMS or method == "temperature"


def test_large_matrices_ask_for_gradients_only() -> None:
    flow = fit_exact("matrix", 21)
    query = next(flow)
    assert isinstance(query, Sum)
    assert query.of.order == 1
    assert query.share == 1 / GRADIENT_SUMS
    query = next(fit_exact("matrix", 20, part=Part.FIT))
    assert isinstance(query, Sum)
    assert (query.of.order, query.share, query.part) == (2, 1 / NEWTON_SUMS, Part.FIT)


# --- rows that are odd ----------------------------------------------------------------------------------


def bounded_case() -> Columns:
    """The second class is drawn as often as the first, however far below it is: its gap should vanish."""
    rng = np.random.default_rng(6)
    z = np.sort(rng.normal(size=(400, 4)) * 3, axis=1)[:, ::-1].copy()
    return {"class": (np.arange(400) % 5 > 1).astype(np.int64), "logits": z}


def test_order_preserving_scaling_stops_at_its_bound() -> None:
    columns = bounded_case()
    found = fitted("order-preserving", [columns])
    assert found.map.theta[0] == LEAST_SLOPE
    judge("order-preserving", columns, found)


@pytest.mark.parametrize("method", METHODS)
def test_separable_rows_stay_finite(method: str) -> None:
    y = np.arange(60) % 3
    z = np.eye(3)[y] + 0.1 * np.random.default_rng(7).normal(size=(60, 3))
    columns = {"class": y, "logits": z}
    assert (z.argmax(axis=1) == y).all()
    found = fitted(method, [columns])
    judge(method, columns, found)
    assert np.abs(found.map.theta).max() < 1e4
    assert found.loss < 0.01


@pytest.mark.parametrize("method", METHODS)
def test_a_class_that_no_row_has_stays_finite(method: str) -> None:
    columns = drawn(500, 4, seed=8)
    kept = columns["class"] != 2
    columns = {name: column[kept] for name, column in columns.items()}
    found = fitted(method, dirichlet(columns, 20, 0.1))
    judge(method, columns, found)
    assert np.abs(found.map.theta).max() < 100
    if method == "vector":
        assert found.map.predict_proba(columns["logits"])[:, 2].max() < 0.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["huge", "equal", "one-hot-like", "one row", "masked", "upside down"])
def test_odd_logits_have_a_fit_or_a_reason(method: str, name: str) -> None:
    rng = np.random.default_rng(9)
    y = rng.integers(0, 3, 40)
    z = {
        "huge": rng.choice([-1e300, 1e6, 1e300], size=(40, 3)),
        "equal": np.full((40, 3), 7.0),
        "one-hot-like": 1e5 * np.eye(3)[y],
        "one row": np.array([[1.0, 0.0, -1.0]]),
        "masked": np.where(rng.random((40, 3)) < 0.3, -1e9, rng.normal(size=(40, 3))),
        "upside down": -3.0 * np.eye(3)[y] + rng.normal(size=(40, 3)),
    }[name]
    found = fitted(method, [{"class": y[: len(z)], "logits": z}])
    assert np.isfinite([found.loss, found.objective, *found.map.theta]).all()
    assert found.objective <= found.loss_before * (1 + 1e-6)
    assert np.isfinite(found.map.predict_proba(z)).all()
    assert found.sums <= NEWTON_SUMS
    if name not in ("huge", "masked"):
        assert found.converged, found.reason
    if name == "one-hot-like":
        assert found.map.predict_proba(z) == pytest.approx(np.eye(3)[y])


@pytest.mark.parametrize("classes", [3, 4])
def test_what_rounding_hides_of_huge_logits_is_said(classes: int) -> None:
    """Shifts that the softmax does not see have no curvature but the ridge: 1e-6, beside 1e12 for the others."""
    columns = drawn(300, classes)
    usual, huge = (fitted("matrix", [{**columns, "logits": k * columns["logits"]}]) for k in (1.0, 1e6))
    assert usual.reason == ""
    means = huge.map.theta[: classes**2].reshape(classes, classes).mean(axis=0)
    # At the optimum shifts are as they were.
    missed = RIDGE / 2 * classes * float(np.sum((means - 1 / classes) ** 2))
    assert missed > 1e-8 * huge.objective
    assert huge.reason == (
        "the logits are so large that rounding hides a part of the curvature: the mean loss with its penalty may still "
        f"fall by {missed:.1e}"
    )


@pytest.mark.parametrize("method", METHODS)
def test_classes_that_a_model_rules_out_do_no_harm(method: str) -> None:
    """Logits of -1e9 for classes that are not the true one."""
    columns = drawn(400, 4, seed=11)
    others = np.arange(4) != columns["class"][:, None]
    ruled_out = others & (np.random.default_rng(11).random((400, 4)) < 0.2)
    found = fitted(method, [{**columns, "logits": np.where(ruled_out, -1e9, columns["logits"])}])
    assert found.converged, found.reason
    assert found.sums <= 20
    assert found.map.predict_proba(np.where(ruled_out, -1e9, columns["logits"]))[ruled_out].max() <= 1e-3


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0, 8.0])
def test_temperatures_take_few_sums(factor: float) -> None:
    """Logits that are far too large have no curvature left where the fit begins."""
    columns = drawn(800, 5, seed=12)
    columns = {**columns, "logits": factor * columns["logits"]}
    found = fitted("temperature", [columns])
    judge("temperature", columns, found)
    assert found.sums <= 8


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_leave_everything_as_it_is(method: str) -> None:
    found = fitted(method, [drawn(0, 3), drawn(0, 3)])
    assert (found.rows, found.sums, found.converged) == (0, 1, False)
    assert found.reason == "there are no rows"
    assert np.array_equal(found.map.theta, FAMILIES[method].identity(3))


def test_clients_that_drop_out_do_not_stop_the_fit() -> None:
    """Another objective cannot be compared: the step is taken, and the fit ends at the optimum of who is left."""
    columns = drawn(900, 4, seed=10)
    clients = dirichlet(columns, 30, 1.0)
    setting, asked = setting_of(clients=30), []

    def dropping(query: Query[Any], _: int) -> Released[Any]:
        asked.append(query)
        return answer(query, setting, clients if len(asked) < 3 else clients[:25], 0)

    found, _ = finished(fit_exact("vector", 4), dropping)
    left = {name: np.concatenate([one[name] for one in clients[:25]]) for name in columns}
    assert found.converged
    expected = fitted("vector", [left]).map
    z = columns["logits"]
    assert np.abs(found.map.predict_proba(z) - expected.predict_proba(z)).max() <= 1e-6


def test_sums_that_lead_nowhere_end_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = drawn(300, 4)
    monkeypatch.setattr("fedassay.tasks.calibration.multiclass.exact.NEWTON_SUMS", 4)
    found = fitted("vector", [columns])
    assert found.sums == 4
    assert found.reason.startswith("4 sums were not enough: the mean loss may still fall by ")
    assert found.loss < found.loss_before
    monkeypatch.undo()
    setting, first = setting_of(clients=1), []

    def rising(query: Query[Any], _: int) -> Released[Any]:
        """Sums that no function has: whatever is tried is worse."""
        released = answer(query, setting, [columns], 0)
        first.append(released.value.loss)
        value = released.value
        worse = type(value)(
            rows=value.rows, loss=first[0] + len(first) - 1, gradient=value.gradient, hessian=value.hessian
        )
        return released.with_value(worse)

    found, _ = finished(fit_exact("temperature", 4), rising)
    assert not found.converged
    assert found.map.theta.tolist() == [1.0]
    assert len(first) <= NEWTON_SUMS


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("platt", {}, "method: got 'platt'"),
        ("vector", {"ridge": 0.0}, "ridge: got 0"),
        ("vector", {"ridge": float("inf")}, "ridge: got inf"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        next(fit_exact(method, 3, **fields))


def test_the_number_of_classes_is_checked() -> None:
    with pytest.raises(UsageError, match="classes: got 1"):
        next(fit_exact("temperature", 1))
