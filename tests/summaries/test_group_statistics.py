"""What groups of scored rows add up to, and how far one row can move it; the distribution that groups come from."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batched import batched, listed
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Unit
from fedassay.summaries.bounded_sums import ONE, AllGroupStatistics, GroupStatistics
from fedassay.summaries.distribution.path import ScorePath, ValuePath

Row = tuple[float, int]
EDGES = (0.0, 0.125, 0.5, 0.9, 1.0)
BOTH = (GroupStatistics(edges=EDGES), AllGroupStatistics(edges=EDGES))

score = st.one_of(st.floats(0, 1), st.sampled_from(EDGES))
rows = st.lists(st.tuples(score, st.integers(0, 1)), max_size=30)
summaries = st.sampled_from(BOTH)


def measure(summary: Any, rows: list[Row]) -> np.ndarray:
    return summary.measure(listed(rows, "score", "label"), {})[0]


@given(rows)
def test_the_sums_are_what_they_say(found_rows: list[Row]) -> None:
    found = BOTH[1].read(measure(BOTH[1], found_rows))
    expected = np.zeros((4, 4))
    for s, y in found_rows:
        group = next(j for j in range(4) if s <= EDGES[j + 1])  # (e_{j-1}, e_j], and 0 in the first
        expected[:, group] += [y, 1 - y, s, 1 - s]
    assert found.observed_positives.tolist() == expected[0].tolist()
    assert found.observed_negatives.tolist() == expected[1].tolist()
    assert found.expected_negatives is not None
    assert np.abs(found.expected_positives - expected[2]).max() <= len(found_rows) * 2.0**-21 + 1e-12
    assert np.abs(found.expected_negatives - expected[3]).max() <= len(found_rows) * 2.0**-21 + 1e-12
    # Every row is counted once, at the boundaries too.
    assert found.observed_positives.sum() + found.observed_negatives.sum() == len(found_rows)
    three = BOTH[0].read(measure(BOTH[0], found_rows))
    assert three.expected_negatives is None
    assert three.expected_positives.tolist() == found.expected_positives.tolist()


def corners(edges: tuple[float, ...]) -> list[Row]:
    """Rows at the ends of every group, where a bound can be attained: beside each edge, and at it."""
    beside = [s for e in edges for s in (e, np.nextafter(e, 0), np.nextafter(e, 1), e + 2.0**-21)]
    return list(product([float(s) for s in beside if 0 <= s <= 1], (0, 1)))


@pytest.mark.parametrize("kind", [GroupStatistics, AllGroupStatistics])
@pytest.mark.parametrize(
    "edges", [(0.0, 1.0), (0.0, 0.25, 1.0), EDGES, (0.0, 1 / 3, 1 - 1e-9, 1.0), (0.0, 1e-9, 1.0)]
)
@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_sensitivities_equal_brute_force(
    kind: type[GroupStatistics], edges: tuple[float, ...], rows_per_unit: int
) -> None:
    """All rows and all pairs of rows in the corners; several rows of a client move furthest if they are alike."""
    summary, r = kind(edges=edges), rows_per_unit
    moved = np.array([measure(summary, [row] * r) for row in corners(edges)], dtype=float)
    between = (moved[:, None] - moved).reshape(-1, summary.length)
    unit = {"unit": Unit.EXAMPLE} if r == 1 else {"unit": Unit.CLIENT, "rows_per_client": r}
    for neighbours, moves in ((Neighbours.ADD_REMOVE, moved), (Neighbours.REPLACE_ONE, between)):
        stated = summary.sensitivity(Protection(neighbours=neighbours, **unit))
        assert np.abs(moves).sum(axis=1).max() == pytest.approx(stated.l1, rel=1e-15)
        assert np.sqrt((moves**2).sum(axis=1).max()) == pytest.approx(stated.l2, rel=1e-15)


@given(summaries, st.lists(st.tuples(score, st.integers(0, 1)), min_size=2, max_size=2))
def test_no_row_moves_more(summary: GroupStatistics, pair: list[Row]) -> None:
    moved = [measure(summary, [row]).astype(float) for row in pair]
    both = summary.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    assert np.abs(moved[0] - moved[1]).sum() <= both.l1
    assert np.sqrt(((moved[0] - moved[1]) ** 2).sum()) <= both.l2 * (1 + 1e-15)
    bounded = summary.sensitivity(Protection(rows_per_client=5))  # a row can push another one out
    assert (bounded.l1, bounded.l2) == (both.l1, both.l2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edges": (0.0,)}, "increasing numbers from 0 to 1"),
        ({"edges": (0.0, 0.5)}, "increasing numbers from 0 to 1"),
        ({"edges": (0.0, 0.5, 0.5, 1.0)}, "increasing"),
        ({"edges": (0.0, float("nan"), 1.0)}, "increasing"),
        ({"edges": tuple(np.linspace(0, 1, 1002))}, "groups: got 1001"),
        ({"edges": EDGES, "capacity": 0}, "capacity: got 0"),
        ({"edges": EDGES, "capacity": 2**33}, "capacity: got"),
    ],
)
def test_bad_questions_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GroupStatistics(**fields)


@given(rows)
def test_the_distribution_of_scores_is_a_path_of_values(found: list[Row]) -> None:
    scores, values = ScorePath(points=32), ValuePath(lower=0, upper=1, points=32)
    expected = values.measure(batched({"value": [float(s) for s, _ in found]}), {})[0]
    assert measure(scores, found).tolist() == expected.tolist()
    assert scores.columns == ("score",)
    for neighbours in Neighbours:
        protection = Protection(neighbours=neighbours)
        assert scores.sensitivity(protection) == values.sensitivity(protection)
    draws = np.arange(scores.draws)
    assert scores.spread(draws).tolist() == values.spread(draws).tolist()


@pytest.mark.parametrize(
    "fields", [{"upper": 2.0}, {"labelled": True}, {"spacing": "logarithmic", "lower": 0.1}]
)
def test_a_distribution_of_something_else_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="uniform grid of"):
        ScorePath(points=16, **fields)


def test_units_of_the_fixed_point() -> None:
    assert measure(BOTH[1], [(1.0, 1)]).tolist() == [0, 0, 0, ONE, 0, 0, 0, 0, 0, 0, 0, ONE, 0, 0, 0, 0]
