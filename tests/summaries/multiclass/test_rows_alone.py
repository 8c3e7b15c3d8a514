"""What is measured of a row does not depend on the other rows: not on how many there are, nor on where it stands.

Not in the last bit: bits decide bins and ranks, and if one row moved others into other bins, no noise would cover it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batched import batched
from class_calibrators import some_map
from fedassay.protocol.vocabulary import Protection, Summary
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.summaries.multiclass.class_statistics import ClassStatistics
from fedassay.summaries.multiclass.histograms import ProbabilityHistograms
from fedassay.summaries.multiclass.loss_curves import LossCurves
from fedassay.summaries.multiclass.losses import padded
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.summaries.multiclass.maps import LOGIT_MAPS, predicted
from multiclass_rows import drawn

CLASSES = 20
ROWS = drawn(4_000, CLASSES, seed=3)


def rows(first: int, last: int) -> dict[str, np.ndarray]:
    return {name: column[first:last] for name, column in ROWS.items()}


@pytest.mark.parametrize("kind", ["", *LOGIT_MAPS])
def test_a_row_has_the_same_probabilities_alone_and_anywhere(kind: str) -> None:
    through = some_map(kind, CLASSES) if kind else None

    def probabilities(first: int, last: int) -> np.ndarray:
        return np.concatenate([block.p for block in predicted(rows(first, last), CLASSES, through)], axis=1)

    together = probabilities(0, 4_000)
    for first, last in ((0, 1), (7, 8), (1, 4_000), (3, 70), (5, 3_998), (3_333, 3_400)):
        assert np.array_equal(probabilities(first, last), together[:, first:last])


def test_without_padding_it_would_not_be_so() -> None:
    """That the test above can fail: products of matrices treat the last few columns of a block by themselves."""
    z, weights = ROWS["logits"][:200].T.copy(), np.random.default_rng(0).normal(size=(CLASSES, CLASSES))
    together = weights @ padded(z)
    plain = [weights @ np.ascontiguousarray(z[:, :n]) for n in range(1, 130)]
    assert any(not np.array_equal(one, together[:, : one.shape[1]]) for one in plain)
    alike = [weights @ padded(z[:, :n]) for n in range(1, 130)]
    assert all(np.array_equal(one[:, :n], together[:, :n]) for n, one in enumerate(alike, start=1))


def summaries() -> list[Summary[Any]]:
    matrix = some_map("matrix", CLASSES)
    carried = {"kind": matrix.kind, "theta": tuple(matrix.theta.tolist())}
    return [
        ProbabilityHistograms(classes=CLASSES),
        ClassStatistics(classes=CLASSES, bits=14, digits=1),
        ClassStatistics(classes=CLASSES, bits=14, digits=1, **carried),
        MapChanges(classes=CLASSES, loss_bound=2.0, brier_bound=1.0, moments=2, bits=14, digits=1, **carried),
        LossCurves(classes=CLASSES, grid=(0.5, 1.0, 2.0), bound="row"),
    ]


@pytest.mark.parametrize("summary", summaries(), ids=lambda one: f"{one.name}-{getattr(one, 'kind', '')}")
def test_one_row_more_moves_a_total_by_its_own_numbers(summary: Summary[Any]) -> None:
    def measured(first: int, last: int) -> np.ndarray:
        return summary.measure(batched(rows(first, last)), {})[0]

    total = measured(1, 4_000)
    moved = measured(0, 4_000) - total
    assert np.array_equal(moved, measured(0, 1))
    sensitivity = summary.sensitivity(Protection())
    assert np.abs(moved).sum() <= sensitivity.l1
    assert np.sqrt((moved.astype(float) ** 2).sum()) <= sensitivity.l2


def test_a_map_that_makes_no_numbers_is_not_believed() -> None:
    """A server chooses the map: with these weights and this scale it once divided zero by zero."""
    values = ((0.0,) * 4, (0.0, 0.0, 0.0, 1.0))
    trap = Isotonic(inverse_temperature=2.0**20, values=values, weights=(1.0, 0.0), reach=16.0)
    batch = {"logits": np.array([[5.0, -5.0], [-5.0, 5.0], [1e6, -1e6]]), "class": np.array([0, 1, 1])}
    for block in predicted(batch, 2, trap):
        assert np.isfinite(block.p).all()
    summary = MapChanges(
        classes=2,
        kind=trap.kind,
        theta=tuple(trap.theta.tolist()),
        loss_bound=2.0,
        brier_bound=1.0,
        moments=2,
    )
    vector, _ = summary.measure(batched(batch), {})
    assert np.abs(vector).sum() <= 3 * summary.sensitivity(Protection()).l1
