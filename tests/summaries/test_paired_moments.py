"""What two models' rows add up to, and how far one row can move it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batched import batched, listed
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Setting, Sum, Unit
from fedassay.summaries.bounded_sums import ONE, PairedMoments, packed
from fedassay.summaries.score_histogram import PairedHistograms, VersusHistogram
from fedassay.trust import TRUST_MODELS

LEAVES = 16
unit = st.floats(0, 1)
row = st.tuples(unit, unit, st.integers(0, 1))
rows = st.lists(row, max_size=20)
Row = tuple[float, float, int]


def summary_of(tables: list[np.ndarray]) -> PairedMoments:
    return PairedMoments(transform="uniform", height=4, placements=packed(*tables))


def random_tables(seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).random((4, LEAVES)))


seeds = st.integers(0, 1000)
EXTREME = summary_of([np.array([0.0] * 8 + [1.0] * 8)] * 4)


def measure(summary: Any, found: list[Row], batch: int = 1000) -> np.ndarray:
    return summary.measure(listed(found, "score", "versus", "label", batch=batch), {})[0]


@given(seeds, rows)
def test_the_sums_are_what_they_say(seed: int, found_rows: list[Row]) -> None:
    tables = random_tables(seed)
    found = summary_of(tables).read(measure(summary_of(tables), found_rows))
    expected = np.zeros(4)
    for s, t, y in found_rows:
        i, j = min(int(s * LEAVES), 15), min(int(t * LEAVES), 15)
        d = tables[1 - y][i] - tables[3 - y][j]
        b = (s - y) ** 2 - (t - y) ** 2
        expected += [d * d * y, d * d * (1 - y), b, b * b]
    sums = [found.positive_squares, found.negative_squares, found.losses, found.loss_squares]
    # A placement is rounded to 2^-16, a square to 2^-21, a loss to 2^-22.
    assert np.abs(sums - expected).max() <= len(found_rows) * 1e-4
    assert abs(found.losses - expected[2]) <= len(found_rows) * 2.0**-22 + 1e-12


corner = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0**-22, 1 - 2.0**-22, 1 - 3 * 2.0**-22, 1e-9, 1 - 1e-7]), unit
)
corner_row = st.tuples(corner, corner, st.integers(0, 1))


@given(
    st.one_of(seeds.map(lambda seed: summary_of(random_tables(seed))), st.just(EXTREME)),
    corner_row,
    corner_row,
)
def test_one_row_moves_the_whole_numbers_by_at_most_the_sensitivity(
    summary: PairedMoments, old: Row, new: Row
) -> None:
    added = measure(summary, [new])
    bound = summary.sensitivity(Protection())
    assert np.abs(added).sum() <= bound.l1
    assert np.sqrt((added.astype(float) ** 2).sum()) <= bound.l2
    moved = measure(summary, [new]) - measure(summary, [old])
    bound = summary.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    assert np.abs(moved).sum() <= bound.l1
    assert np.sqrt((moved.astype(float) ** 2).sum()) <= bound.l2


def test_the_bounds_are_attained() -> None:
    """Score 1 against 0: the placements are 1 apart and the squared errors too."""
    up, down = measure(EXTREME, [(0.0, 1.0, 1)]), measure(EXTREME, [(0.0, 1.0, 0)])
    assert (up / ONE).tolist() == [1, 0, 2, 1]
    assert (down / ONE).tolist() == [0, 1, -2, 1]
    single = EXTREME.sensitivity(Protection())
    both = EXTREME.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    assert (np.abs(up).sum(), np.sqrt((up**2.0).sum())) == pytest.approx((single.l1, single.l2))
    assert (np.abs(up - down).sum(), np.sqrt(((up - down) ** 2.0).sum())) == pytest.approx((both.l1, both.l2))
    client = EXTREME.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=5))
    assert (client.l1, client.l2) == pytest.approx((5 * single.l1, 5 * single.l2))


def test_its_tables_are_not_printed() -> None:
    assert "placements" not in repr(summary_of(random_tables(3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placements": b"\0" * 7}, "four tables of 16 numbers"),
        ({"placements": "x"}, "four tables"),
        ({"placements": b"\xff" * 128}, "got one above 1"),
        ({"capacity": 0}, "capacity: got 0"),
        ({"capacity": 2**33}, "capacity: got"),
        ({"height": 99}, "height"),
    ],
)
def test_bad_questions_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(EXTREME, **change)


def test_a_site_without_a_second_model_says_so() -> None:
    one = batched({"score": [0.5], "label": [1]})
    for summary in (EXTREME, HISTOGRAMS, SECOND):
        with pytest.raises(DataError, match="none in the role 'versus'"):
            summary.measure(one, {})


HISTOGRAMS = PairedHistograms(transform="uniform", height=4, widths=(1, 4), multipliers=(1, 3))
SECOND = VersusHistogram.like(HISTOGRAMS.histogram)


def counted(found: list[Row], batch: int = 1000) -> np.ndarray:
    return measure(HISTOGRAMS, found, batch)


@given(rows, rows, st.integers(1, 5))
def test_both_histograms_count_the_same_rows(a: list[Row], b: list[Row], batch: int) -> None:
    assert np.array_equal(counted(a + b), counted(a) + counted(b))
    assert np.array_equal(counted(a, batch), counted(a))
    for place, read in enumerate(HISTOGRAMS.read(counted(a))):
        for label, nodes in ((1, read.positives), (0, read.negatives)):
            scores = [row[place] for row in a if row[2] == label]
            leaves = np.histogram(scores, read.grid.edges)[0]
            assert nodes.tolist() == [*leaves, *(3 * leaves.reshape(-1, 4).sum(1))]


@given(rows, row, row)
def test_a_row_moves_both_histograms(found_rows: list[Row], old: Row, new: Row) -> None:
    one = HISTOGRAMS.sensitivity(Protection())
    moved = counted([*found_rows, new]) - counted(found_rows)
    assert (np.abs(moved).sum(), (moved**2).sum()) == (one.l1, pytest.approx(one.l2**2))
    both = HISTOGRAMS.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    moved = counted([*found_rows, new]) - counted([*found_rows, old])
    assert np.abs(moved).sum() <= both.l1
    assert (moved**2).sum() <= both.l2**2 + 1e-9


def test_two_histograms_cost_as_much_as_two_with_half_the_budget_each() -> None:
    for trust, budget in (("server-dp", Budget(epsilon=1.0)), ("server-dp", Budget(epsilon=1.0, delta=1e-6))):
        setting = Setting(trust=TRUST_MODELS[trust](), protection=Protection(), budget=budget, clients=10)
        together = setting.noise(Sum(of=HISTOGRAMS, share=0.8))
        single = setting.noise(Sum(of=HISTOGRAMS.histogram, share=0.4))
        assert together.variance == pytest.approx(single.variance, rel=1e-6)


@given(rows)
def test_the_second_histogram_alone_is_the_second_of_both(found_rows: list[Row]) -> None:
    alone = measure(SECOND, found_rows)
    assert np.array_equal(alone, np.split(counted(found_rows), 2)[1])
