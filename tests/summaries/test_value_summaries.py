"""What holds for every summary of a distribution: linear in the leaf counts, additive over clients, portable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batched import batched
from fedassay.errors import DataError, ProtocolError, UsageError
from fedassay.kernel.envelope import describe, rebuild
from fedassay.protocol import wire
from fedassay.summaries import CATALOGUE
from fedassay.summaries.distribution.grid import ValueGrid
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueSummary, ValueTree

seeds = st.integers(0, 2**32 - 1)


def measured(summary: ValueSummary, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    rows = batched({"value": values, "label": labels}, *range(7, len(values), 7))
    vector, _ = summary.measure(rows, {})
    assert vector.dtype == np.int64
    assert vector.shape == (summary.length,)
    return vector


def rows(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(5, 4, count - count // 5), rng.integers(-2, 12, count // 5)])
    return rng.permutation(values), rng.integers(0, 2, count)


@st.composite
def grids(draw: st.DrawFn, most: int = 6) -> dict[str, object]:
    spacing = draw(st.sampled_from(["uniform", "logarithmic", "given"]))
    if spacing == "given":
        grid = ValueGrid.of(sorted(draw(st.sets(st.floats(-9, 9), min_size=1, max_size=(1 << most) - 1))))
    else:
        grid = ValueGrid(lower=0.5, upper=9.5, points=1 << draw(st.integers(1, most)), spacing=spacing)
    fields = {name: getattr(grid, name) for name in ("lower", "upper", "points", "spacing", "given")}
    labelled = draw(st.booleans())
    return {**fields, "labelled": labelled, "public_labels": labelled and draw(st.booleans())}


@st.composite
def summaries(draw: st.DrawFn) -> ValueSummary:
    fields = draw(grids())
    kind = draw(st.sampled_from([ValueTree, ValuePath, ValueRoots]))
    if kind is ValuePath:
        fields["multiplier"] = draw(st.sampled_from([1, 4, 1 << 16]))
    if kind is ValueTree:
        powers = draw(st.sets(st.integers(1, 5)))
        fields["widths"] = (1, *(1 << p for p in sorted(powers) if 1 << p < fields["points"]))
        fields["multipliers"] = draw(st.tuples(*[st.integers(1, 16) for _ in fields["widths"]]))
    return kind(**fields)


@given(summaries(), seeds, seeds)
def test_of_counts_is_linear(summary: ValueSummary, one: int, other: int) -> None:
    a, b = (np.random.default_rng(s).integers(-(2**33), 2**33, (3, summary.points)) for s in (one, other))
    assert (summary.of_counts(2 * a - 3 * b) == 2 * summary.of_counts(a) - 3 * summary.of_counts(b)).all()
    assert not summary.of_counts(a - a).any()


@given(summaries(), seeds, st.integers(0, 100))
def test_leaves_determine_the_rest(summary: ValueSummary, seed: int, count: int) -> None:
    values, labels = rows(seed, count)
    leaves = summary.leaves
    counts = measured(leaves, values, labels)
    assert (measured(summary, values, labels) == summary.from_leaves(counts)).all()
    assert counts.sum() == count
    expected = np.zeros((summary.classes, summary.points), dtype=np.int64)
    place = summary.grid.locate(values)
    np.add.at(expected, (1 - labels if summary.labelled else 0 * labels, place), 1)
    assert (counts.reshape(expected.shape) == expected).all()
    assert (summary.read(counts).classes == expected).all()


@given(summaries(), seeds)
def test_noise_is_spread_linearly_over_named_draws(summary: ValueSummary, seed: int) -> None:
    draws = np.random.default_rng(seed).integers(-100, 100, (2, summary.draws))
    both = summary.spread(3 * draws[0] - draws[1])
    assert both.dtype == np.int64
    assert both.shape == (summary.length,)
    assert (both == 3 * summary.spread(draws[0]) - summary.spread(draws[1])).all()
    matrix = np.stack([summary.spread(one) for one in np.eye(summary.draws, dtype=np.int64)], axis=1)
    assert np.abs(matrix).sum(axis=1).max() == summary.overlap
    for place in {0, 1, summary.length // 2, summary.length - 1}:
        assert sorted(summary.draws_of(place)) == np.flatnonzero(matrix[place]).tolist()
        assert set(matrix[place]) <= {0, 1}


def test_each_node_of_a_path_covers_its_block() -> None:
    path = ValuePath(lower=0, upper=1, points=8, labelled=True)
    matrix = np.stack([path.spread(one) for one in np.eye(path.draws, dtype=np.int64)], axis=1)
    blocks = [np.repeat(np.eye(8 >> level, dtype=int), 1 << level, axis=0) for level in range(4)]
    one = np.concatenate(blocks, axis=1)
    assert (matrix == np.kron(np.eye(2, dtype=int), one)).all()


def test_paths_of_the_largest_grid_name_their_draws() -> None:
    path = ValuePath(lower=0, upper=1, points=1 << 20)
    last = path.draws_of(path.points - 1)
    assert len(last) == path.overlap == 21
    assert last[0] == 2**20 - 1
    assert last[-1] == path.draws - 1 == 2**21 - 2
    shared = set(path.draws_of(12345)) & set(path.draws_of(12345 ^ 64))
    assert len(shared) == 21 - 7


@given(summaries())
def test_partitions_count_every_row_once(summary: ValueSummary) -> None:
    one_row = np.eye(summary.classes * summary.points, dtype=np.int64)
    totals = np.stack([summary.from_leaves(row) for row in one_row])
    for cells in summary.partitions:
        assert (totals[:, cells].sum(axis=1) == 1).all()
    multiplied = set(getattr(summary, "multipliers", ())) != {1}
    assert bool(summary.partitions) != multiplied


@given(summaries())
def test_no_row_counts_for_more_than_the_largest(summary: ValueSummary) -> None:
    """`largest` is stated for 2^32 rows; entries grow with rows, so one row must stay below its part."""
    one_row = np.eye(summary.points, dtype=np.int64)
    assert np.abs(summary.of_counts(one_row)).max() == summary.largest / 2**32


@pytest.mark.parametrize("kind", [ValueTree, ValuePath, ValueRoots])
def test_ten_thousand_given_points_are_a_small_request(kind: type[ValueSummary]) -> None:
    grid = ValueGrid.of(np.sort(np.random.default_rng(5).normal(size=10_000)))
    summary = kind(lower=grid.lower, upper=grid.upper, points=grid.points, spacing="given", given=grid.given)
    sent = wire.encode(describe(summary))
    assert len(sent) <= 9 * 10_000 + 400
    assert rebuild(CATALOGUE, wire.decode(sent)) == summary


@pytest.mark.parametrize(
    "change",
    [
        {"points": 6},
        {"points": 4.0},
        {"lower": 2.0},
        {"lower": "low"},
        {"upper": None},
        {"upper": float("nan")},
        {"spacing": "logarithmic"},
        {"given": [0.5]},
        {"given": "abc"},
        {"multiplier": 3},
        {"multiplier": 1 << 17},
        {"extra": 1},
    ],
)
def test_what_is_not_valid_does_not_arrive(change: dict[str, object]) -> None:
    described = describe(ValuePath(lower=0, upper=1, points=4)) | change
    with pytest.raises(ProtocolError):
        rebuild(CATALOGUE, wire.decode(wire.encode(described)))


@given(summaries(), st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]))
def test_what_is_no_finite_number_is_refused(summary: ValueSummary, bad: float) -> None:
    with pytest.raises(DataError, match="value: got a number that is NaN or infinite"):
        measured(summary, np.array([1.0, 2.0, bad]), np.array([0, 1, 1]))


def test_values_outside_are_counted_at_the_ends() -> None:
    tree = ValueTree(lower=0, upper=1, points=4)
    assert measured(tree, np.array([-1e300, -1, 0, 1e300]), np.zeros(4, dtype=int)).tolist() == [3, 0, 0, 1]


def test_rows_beyond_one_block_are_all_counted() -> None:
    values = np.random.default_rng(6).uniform(-0.1, 1.1, 300_000)
    values.flags.writeable = False
    tree = ValueTree(lower=0, upper=1, points=1024)
    vector, _ = tree.measure(batched({"value": values}), {})
    assert (vector == np.bincount(tree.grid.locate(values), minlength=1024)).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ValueTree(lower=0, upper=1, points=1 << 21), "expected a power of two from 2 to 2^20"),
        (lambda: ValueRoots(lower=0, upper=1, points=1 << 21), "expected a power of two from 2 to 2^20"),
        (lambda: ValueTree(lower=0, upper=1, points=8, widths=(1, 3)), "widths: got"),
        (lambda: ValueTree(lower=0, upper=1, points=8, widths=(2, 4)), "widths: got"),
        (lambda: ValueTree(lower=0, upper=1, points=8, widths=(1, 8)), "widths: got"),
        (lambda: ValueTree(lower=0, upper=1, points=8, multipliers=(1, 1)), "multipliers: got"),
        (lambda: ValueTree(lower=0, upper=1, points=8, multipliers=(17,)), "multipliers: got"),
        (lambda: ValuePath(lower=0, upper=1, points=8, multiplier=3), "multiplier: got 3, expected a power"),
        (lambda: ValuePath(lower=0, upper=1, points=8, multiplier=0), "multiplier: got 0"),
        (lambda: ValuePath(lower=1, upper=1, points=8), "expected a lower end below the upper end"),
    ],
)
def test_bad_parameters_are_refused(build: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        build()  # type: ignore[operator]
    assert message in str(raised.value)
