"""Groups: one histogram each, together the histogram of all rows, for the sensitivity of one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batched import batched, listed
from binormal import measure as measure_scores
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Batch, Neighbours, Protection, Unit
from fedassay.summaries.grouped_histogram import OTHER, GroupedHistogram, fingerprint, fingerprints, group_of

NAMES = ("F", "M", "diverse")
VALUES = (*NAMES, "?", "", OTHER)
SUMMARY = GroupedHistogram(groups=NAMES, transform="mixed", height=5, thresholds=(0.3,), widths=(1, 4))

row = st.tuples(st.floats(0, 1), st.integers(0, 1), st.sampled_from(VALUES))
rows = st.lists(row, max_size=30)
Row = tuple[float, int, str]


def measure(rows: list[Row], summary: GroupedHistogram = SUMMARY) -> np.ndarray:
    return summary.measure(listed(rows, "score", "label", "group"), {})[0]


@given(rows)
def test_each_group_has_its_own_histogram_and_all_rows_have_their_sum(drawn: list[Row]) -> None:
    read = SUMMARY.read(measure(drawn))
    assert list(read) == [*NAMES, OTHER]

    def expected(chosen: list[Row]) -> np.ndarray:
        scores = np.array([score for score, _, _ in chosen])
        labels = np.array([label for _, label, _ in chosen], dtype=np.int8)
        return measure_scores(SUMMARY.histogram, scores, labels)

    for name, histogram in read.items():
        mine = [r for r in drawn if (r[2] if r[2] in NAMES else OTHER) == name]
        assert np.array_equal(np.concatenate([histogram.positives, histogram.negatives]), expected(mine))
    whole = np.sum([np.concatenate([h.positives, h.negatives]) for h in read.values()], axis=0)
    assert np.array_equal(whole, expected(drawn))


@given(rows, row, row)
def test_a_row_moves_the_total_as_one_histogram_would_also_into_another_group(
    drawn: list[Row], old: Row, new: Row
) -> None:
    one = SUMMARY.sensitivity(Protection())
    assert one == SUMMARY.histogram.sensitivity(Protection())
    moved = measure([*drawn, new]) - measure(drawn)
    assert np.abs(moved).sum() == one.l1
    assert np.sqrt((moved**2).sum()) == pytest.approx(one.l2)
    both = SUMMARY.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    replaced = measure([*drawn, new]) - measure([*drawn, old])
    assert np.abs(replaced).sum() <= both.l1
    assert np.sqrt((replaced**2).sum()) <= both.l2 + 1e-12


def test_the_bound_for_a_row_that_changes_its_group_is_attained() -> None:
    both = SUMMARY.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    moved = measure([(0.5, 1, "F")]) - measure([(0.5, 1, "M")])
    assert (np.abs(moved).sum(), np.sqrt((moved**2).sum())) == pytest.approx((both.l1, both.l2))


def test_a_client_s_rows_multiply_the_sensitivity() -> None:
    assert SUMMARY.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=7)).l1 == 14


@given(rows, row)
def test_every_row_adds_one_to_one_cell_of_each_partition(drawn: list[Row], new: Row) -> None:
    moved = measure([*drawn, new]) - measure(drawn)
    assert len(SUMMARY.partitions) == 2
    assert np.array_equal(np.sort(np.concatenate(SUMMARY.partitions)), np.arange(SUMMARY.length))
    for cells in SUMMARY.partitions:
        assert sorted(moved[cells])[-2:] == [0, 1]


def test_multiplied_counts_have_no_partitions() -> None:
    summary = GroupedHistogram(
        groups=("a",), transform="uniform", height=4, widths=(1, 4), multipliers=(1, 2)
    )
    assert summary.partitions == ()
    assert summary.largest == 2 * 2**32


@given(hnp.arrays(np.int64, 20, elements=st.integers(-(2**63), 2**63 - 1)), st.integers(1, 5))
def test_a_fingerprint_finds_its_group_and_no_other(values: np.ndarray, size: int) -> None:
    names = tuple("abcde"[:size])
    known = {fingerprint(name): place for place, name in enumerate(names)}
    found = group_of(np.concatenate([values, fingerprints(names)]), names)
    assert found.tolist() == [*(known.get(int(v), size) for v in values), *range(size)]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((), "got 0 names, expected 1 to 64"),
        (tuple(map(str, range(65))), "got 65 names"),
        (("a", "a"), "got 'a' twice"),
        (("",), "got '', expected a name of 1 to 100 characters"),
        (("x" * 101,), "expected a name of 1 to 100"),
        ((3,), "got 3, expected a name"),
        (("a", "other"), "leave it out"),
    ],
)
def test_bad_groups_are_refused(groups: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GroupedHistogram(groups=groups, transform="uniform", height=4)


def test_64_groups_are_fine() -> None:
    summary = GroupedHistogram(groups=tuple(map(str, range(64))), transform="uniform", height=4)
    assert summary.length == 65 * 32


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"score": np.array([0.5]), "label": np.array([1])}, "none in the role 'group'"),
        ({"score": np.array([0.5]), "label": np.array([1]), "group": np.array(["F"])}, "no fingerprints"),
    ],
)
def test_bad_rows_are_refused(batch: Batch, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SUMMARY.measure(batched(batch), {})
