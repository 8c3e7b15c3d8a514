"""Sums of losses in fixed point: exact over clients, bounded, refused where they make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batched import batched
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.summaries.measures import SUMS
from fedassay.summaries.multiclass.calibrator_sums import LARGEST_SUM, ScalingSums
from fedassay.summaries.multiclass.losses import FAMILIES, LARGEST_PARAMETER, loss_sums
from multiclass_rows import dirichlet, drawn

METHODS = tuple(FAMILIES)


def asked(method: str, classes: int = 4, **fields: Any) -> ScalingSums:
    theta = tuple((0.8 * FAMILIES[method].identity(classes)).tolist())
    return ScalingSums(**{"method": method, "classes": classes, "theta": theta, **fields})


def measure(summary: ScalingSums, columns: dict[str, np.ndarray]) -> np.ndarray:
    return summary.measure(ArrayRows(columns=columns), {})[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("order", [1, 2])
def test_totals_are_the_sums_of_pooled_rows(method: str, order: int) -> None:
    columns = drawn(300, 4)
    summary = asked(method, order=order)
    clients = dirichlet(columns, 40, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    vectors = [measure(summary, one) for one in clients]
    assert all(vector.dtype == np.int64 and vector.shape == (summary.length,) for vector in vectors)
    assert max(np.abs(vector).max() for vector in vectors) <= summary.largest
    found = summary.read(np.sum(vectors, axis=0))
    pooled = loss_sums(method, columns["logits"], columns["class"], summary.theta, order=order)
    assert found.rows == pooled.rows == 300
    # 40 roundings to 2^-48, and those of sums in another order.
    assert found.loss == pytest.approx(pooled.loss, rel=1e-13)
    assert found.gradient == pytest.approx(pooled.gradient, abs=1e-11)
    assert (found.hessian is None) == (order == 1)
    if order == 2:
        assert found.hessian == pytest.approx(pooled.hessian, rel=1e-12, abs=1e-10)


def test_batches_do_not_matter() -> None:
    columns, summary = drawn(200, 4), asked("vector")
    one, two = (
        summary.read(summary.measure(rows, {})[0])
        for rows in (ArrayRows(columns=columns), batched(columns, 70))
    )
    assert one.rows == two.rows
    assert one.loss == pytest.approx(two.loss, rel=1e-14)
    assert one.hessian == pytest.approx(two.hessian, abs=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_the_largest_numbers_fit(method: str) -> None:
    """The most extreme rows and parameters that are allowed, and a loss that is cut."""
    family = FAMILIES[method]
    theta = tuple(np.full(family.size(3), LARGEST_PARAMETER).tolist())
    summary = ScalingSums(method=method, classes=3, theta=theta)
    z = np.array([[1e300, -1e300, 0.0], [1e300, 1e300, -1e300]])
    vector = measure(summary, {"class": np.array([1, 2]), "logits": z})
    assert np.abs(vector).max() <= summary.largest
    assert np.isfinite(summary.read(vector).hessian).all()
    assert SUMS.write(np.array([LARGEST_SUM, -LARGEST_SUM])).max() <= summary.largest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "platt"}, "method: got 'platt', expected one of temperature"),
        ({"theta": ()}, "theta: got 0 numbers for temperature scaling of 4 classes, expected 1"),
        ({"theta": (1.0, 1.0)}, "theta: got 2 numbers"),
        ({"theta": (float("nan"),)}, "theta"),
        ({"theta": (2.0**21,)}, "theta"),
        ({"method": "order-preserving", "theta": (1.0, 0.0, 1.0, 1.0)}, r"outside \[1e-06, "),
        (
            {"method": "matrix", "classes": 21, "theta": (0.0,) * 462},
            "order: got 2 for 462 parameters, expected 1 for more than 420",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScalingSums(**{"method": "temperature", "classes": 4, "theta": (1.0,), **fields})


def test_the_largest_hessian_has_88410_entries() -> None:
    summary = asked("matrix", classes=20)
    assert summary.length == 1 + 4 * (1 + 420 + 88_410)
