"""Sums of losses and their derivatives are those of the pooled rows."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from fedassay.data.tables import ArrayRows, StreamedRows
from fedassay.errors import ProtocolError, UsageError
from fedassay.kernel.envelope import describe, rebuild
from fedassay.summaries import CATALOGUE
from fedassay.summaries.regression.losses import loss_of
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.newton_sums import DerivativeSums, Meat, NewtonSums

MEATS = get_args(Meat)
THETA = (0.3, -0.5, 0.2)
STANDARD = Standard(features=2, centres=(1.0, -2.0), scales=(2.0, 0.5), offset=True)


def rows_of(seed: int, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(size=(count, 2)),
        "target": (rng.random(count) < 0.4).astype(float),
        "offset": rng.normal(size=count),
    }


CLIENTS = [rows_of(seed, count) for seed, count in enumerate((5, 0, 1, 12))]


def summed(summary: NewtonSums, clients: list[dict[str, np.ndarray]]) -> DerivativeSums:
    vectors = [summary.measure(ArrayRows(columns=one), {})[0] for one in clients]
    assert all(vector.shape == (summary.length,) for vector in vectors)
    assert all(np.abs(vector).max() <= summary.largest for vector in vectors)
    return summary.read(np.sum(vectors, axis=0))


@pytest.mark.parametrize("meat", MEATS)
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_sums_are_those_of_each_row_by_itself(model: str, meat: str) -> None:
    found = summed(NewtonSums.of(STANDARD, model=model, theta=THETA, meat=meat), CLIENTS)
    loss, theta = loss_of(model), np.array(THETA)
    designs = [STANDARD.design(one, linear=model == "linear") for one in CLIENTS]
    gradients = [loss.gradients(theta, one) for one in designs]
    assert (found.rows, found.clients, found.cut) == (18, 3, 0)
    assert found.loss == pytest.approx(sum(loss.losses(theta, one).sum() for one in designs), rel=1e-13)
    np.testing.assert_allclose(found.gradient, np.concatenate(gradients).sum(axis=0), rtol=1e-12)
    hessian = sum(loss.hessians(theta, one).sum(axis=0) for one in designs)
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-12)
    if meat == "none":
        assert found.meat is None
        return
    outer = np.concatenate(gradients) if meat == "rows" else np.array([one.sum(axis=0) for one in gradients])
    np.testing.assert_allclose(found.meat, outer.T @ outer, rtol=1e-12)


@pytest.mark.parametrize("meat", MEATS)
def test_batches_are_added_up(meat: str) -> None:
    summary = NewtonSums.of(STANDARD, model="logistic", theta=THETA, meat=meat)
    whole = {name: np.concatenate([one[name] for one in CLIENTS]) for name in CLIENTS[0]}
    streamed = summary.read(summary.measure(StreamedRows(read=lambda: iter(CLIENTS)), {})[0])
    together = summed(summary, [whole])
    assert (streamed.rows, streamed.clients) == (18, 1)
    np.testing.assert_allclose(streamed.hessian, together.hessian, rtol=1e-13)
    if meat != "none":
        np.testing.assert_allclose(streamed.meat, together.meat, rtol=1e-12)


def test_the_gradient_alone() -> None:
    summary = NewtonSums.of(STANDARD, model="logistic", theta=THETA, order=1)
    found = summed(summary, CLIENTS)
    assert found.hessian is None
    second = summed(NewtonSums.of(STANDARD, model="logistic", theta=THETA), CLIENTS)
    assert np.array_equal(found.gradient, second.gradient)


def test_rows_of_another_width_count_for_nothing() -> None:
    summary = NewtonSums.of(Standard(features=3), model="linear", theta=(0.0,) * 4, meat="clients")
    vector, _ = summary.measure(ArrayRows(columns=CLIENTS[0]), {})
    assert not vector.any()


@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0), (2.0**40, 2.0**40, -(2.0**40))])
def test_what_is_too_large_is_cut_and_counted(theta: tuple[float, ...]) -> None:
    """Rows beyond the bound, or sums: nothing overflows."""
    large = {**CLIENTS[0], "features": CLIENTS[0]["features"] * (1.0 if any(theta) else 1e300)}
    summary = NewtonSums.of(STANDARD, model="linear", theta=theta, meat="rows")
    found = summed(summary, [large, {name: column[:0] for name, column in large.items()}])
    assert found.cut == 1
    assert np.isfinite(found.loss)


def test_fields_that_are_wrong_do_not_arrive() -> None:
    sent = NewtonSums.of(STANDARD, model="logistic", theta=THETA, meat="clients")
    for field, wrong in (("features", "2"), ("scales", [0.0, 1.0]), ("theta", ["x"]), ("centres", [1.0])):
        with pytest.raises(ProtocolError):
            rebuild(CATALOGUE, {**describe(sent), field: wrong})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "probit"}, "model: got 'probit'"),
        ({"theta": (1.0,)}, "theta: got 1 numbers, expected 3"),
        ({"theta": (1.0, 2.0, float("nan"))}, "theta: got nan"),
        ({"theta": (1.0, 2.0, 1e13)}, "theta: got numbers beyond"),
    ],
)
def test_bad_questions_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NewtonSums(**({"features": 2, "model": "linear", "theta": THETA} | fields))
