from __future__ import annotations

import numpy as np
import pytest

from fedassay.errors import UsageError
from fedassay.estimation.evidence import Evidence


def evidence(edges: list[float]) -> Evidence:
    nothing = np.zeros(len(edges) - 1)
    return Evidence.exactly(edges=np.array(edges), positives=nothing, negatives=nothing)


def test_a_threshold_is_applied_at_the_nearest_edge() -> None:
    found = evidence([0.0, 0.25, 0.5, 0.75, 1.0])
    assert [found.nearest_edge(t) for t in (0.0, 0.1, 0.2, 0.6, 0.7)] == [0, 0, 1, 2, 3]


def test_a_threshold_of_one_is_the_last_edge_only_if_its_scores_have_a_leaf() -> None:
    assert evidence([0.0, 0.5, 1.0]).nearest_edge(1.0) == 1
    assert evidence([0.0, 0.5, 1.0, 1.0]).nearest_edge(1.0) == 2


def test_scores_may_start_anywhere() -> None:
    assert evidence([-np.inf, 10.0, 20.0, 30.0]).nearest_edge(12.0) == 1


@pytest.mark.parametrize("threshold", [1.5, -0.1, float("nan")])
def test_a_threshold_that_no_score_can_have_is_refused(threshold: float) -> None:
    expected = rf"threshold: got {threshold}, expected a number in \[0, 1\], like the scores"
    with pytest.raises(UsageError, match=expected):
        evidence([0.0, 0.5, 1.0]).nearest_edge(threshold)


def test_edges_and_counts_fit_together() -> None:
    with pytest.raises(AssertionError):
        Evidence.exactly(edges=np.array([0.0, 1.0]), positives=np.zeros(2), negatives=np.zeros(2))
