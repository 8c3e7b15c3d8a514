from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from binormal import measure
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Unit
from fedassay.summaries import CATALOGUE
from fedassay.summaries.score_histogram import ScoreHistogram

scores = hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(0, 1))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def histograms(draw: st.DrawFn) -> ScoreHistogram:
    widths, multipliers = draw(
        st.sampled_from([((1,), ()), ((1, 2), (1, 1)), ((1, 2), (3, 5)), ((1, 4, 8), (2, 3, 4))])
    )
    return ScoreHistogram(
        transform=draw(st.sampled_from(["uniform", "logit", "mixed"])),
        height=draw(st.integers(4, 9)),
        thresholds=tuple(draw(st.lists(st.floats(0, 1), max_size=5))),
        widths=widths,
        multipliers=multipliers,
    )


def labelled(s: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, len(s)).astype(np.int8)


@given(histograms(), scores, seeds)
def test_counts_equal_numpy_s(h: ScoreHistogram, s: np.ndarray, seed: int) -> None:
    y = labelled(s, seed)
    read = h.read(measure(h, s, y))
    assert len(read.positives) == h.tree.length == h.length // 2
    for label, nodes in ((1, read.positives), (0, read.negatives)):
        leaf = np.searchsorted(h.grid.edges[1:-1], s[y == label], side="right")
        counts = np.bincount(leaf, minlength=h.grid.leaves)
        for width, multiplier, level in zip(h.widths, h.multipliers, h.tree.split(nodes), strict=True):
            assert np.array_equal(level, multiplier * counts.reshape(-1, width).sum(1))


@given(histograms(), st.floats(0, 1), st.booleans())
def test_a_row_is_in_one_cell_of_every_partition(h: ScoreHistogram, score: float, label: bool) -> None:
    vector = measure(h, np.array([score]), np.array([label], dtype=np.int8))
    assert bool(h.partitions) == (set(h.multipliers) == {1})
    for cells in h.partitions:
        assert sorted(vector[cells]) == [0] * (len(cells) - 1) + [1]
    if h.partitions:
        assert sorted(np.concatenate(h.partitions)) == list(range(h.length))


@pytest.mark.parametrize("wrong", [(1,), (0, 1), (1, 17), (1, 2.0), (1, True)])
def test_multipliers_are_small_whole_numbers_one_per_level(wrong: tuple) -> None:
    with pytest.raises(UsageError, match="multipliers"):
        ScoreHistogram(transform="uniform", height=4, widths=(1, 2), multipliers=wrong)


def test_more_rows_than_one_block() -> None:
    rng = np.random.default_rng(0)
    s, y = rng.random(200_001), rng.integers(0, 2, 200_001).astype(np.int8)
    h = ScoreHistogram(transform="uniform", height=6, thresholds=(0.3,))
    assert measure(h, s, y)[:64].tolist() == np.histogram(s[y == 1], h.grid.edges)[0].tolist()


@given(histograms(), scores, seeds, st.floats(0, 1), st.booleans(), st.booleans())
def test_one_row_moves_the_total_by_at_most_the_sensitivity(
    h: ScoreHistogram, s: np.ndarray, seed: int, other: float, label: bool, replace: bool
) -> None:
    y = labelled(s, seed)
    before = measure(h, np.append(s, 0.5), np.append(y, 1)) if replace else measure(h, s, y)
    moved = measure(h, np.append(s, other), np.append(y, label).astype(np.int8)) - before
    neighbours = Neighbours.REPLACE_ONE if replace else Neighbours.ADD_REMOVE
    bound = h.sensitivity(Protection(neighbours=neighbours))
    assert np.abs(moved).sum() <= bound.l1
    assert np.sqrt((moved**2).sum()) <= bound.l2 + 1e-12
    if not replace:
        assert np.abs(moved).sum() == bound.l1  # attained: no noise is wasted


def test_a_client_s_rows_multiply_the_sensitivity() -> None:
    h = ScoreHistogram(transform="uniform", height=4, widths=(1, 4))
    assert h.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=7)).l1 == 14


def test_rows_are_not_changed() -> None:
    s, y = np.array([0.25, -0.0, 1.0]), np.array([0, 1, 1], dtype=np.int8)
    s.flags.writeable = y.flags.writeable = False
    measure(ScoreHistogram(transform="mixed", height=6, thresholds=(0.2,)), s, y)


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE["mine"] = ScoreHistogram  # type: ignore[index]
