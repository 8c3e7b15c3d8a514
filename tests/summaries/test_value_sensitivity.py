"""The sensitivities of distributions equal what an exhaustive search over all neighbours finds.

A unit of up to r rows is a multiset of leaves for each class. For every class and every pair (taken away, put in) of
multisets a table holds what that change costs: a norm of what is measured, or where noise is spread the least norm of
nodes that add up to it. Classes have cells of their own, so costs (L1, or squared L2) add up over them, and the worst
neighbour is a maximum over pairs of units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from fedassay.protocol.vocabulary import Neighbours, Protection, Sensitivity, Unit
from fedassay.summaries.distribution.path import ValuePath, steepest
from fedassay.summaries.distribution.roots import ValueRoots, column_norms
from fedassay.summaries.distribution.tree import ValueSummary, ValueTree

Table = np.ndarray
"""Cost of a change of one class, by the numbers of what is taken away and of what is put in."""


# --- all neighbours -----------------------------------------------------------------------------------


def multisets(cells: int, rows: int) -> np.ndarray:
    """The counts of every way to have up to so many rows in these cells, nothing first."""
    ways = [way for size in range(rows + 1) for way in combinations_with_replacement(range(cells), size)]
    counts = np.zeros((len(ways), cells), dtype=np.int64)
    for number, way in enumerate(ways):
        np.add.at(counts[number], list(way), 1)
    return counts


def units(sizes: np.ndarray, classes: int, rows: int) -> np.ndarray:
    """Every unit as the numbers of its multisets, one per class, of up to so many rows together."""
    if classes == 1:
        return np.arange(len(sizes))[:, None]
    both = np.stack(np.meshgrid(*[np.arange(len(sizes))] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    return both[sizes[both].sum(axis=1) <= rows]


def worst(table: Table, held: np.ndarray, summary: ValueSummary, protection: Protection) -> float:
    """The largest cost over all pairs of neighbours."""
    sizes, rows = held.sum(axis=1), protection.rows_per_unit
    all_units = units(sizes, summary.classes, rows)
    nothing = np.zeros((1, summary.classes), dtype=np.int64)

    def largest(before: np.ndarray, after: np.ndarray) -> float:
        most = 0.0
        for one in before:
            allowed = after
            if summary.public_labels and replaces_rows(protection):
                allowed = after[(sizes[after] == sizes[one]).all(axis=1)]
            if len(allowed):
                most = max(most, float(sum(table[a, allowed[:, c]] for c, a in enumerate(one)).max()))
        return most

    if replaces_rows(protection):
        exactly_one = all_units[sizes[all_units].sum(axis=1) == 1]
        return largest(exactly_one, exactly_one)
    one_way = max(largest(nothing, all_units), largest(all_units, nothing))
    # A whole client is replaced; or a row comes or goes, and another one then makes or takes its place.
    if protection.neighbours is Neighbours.REPLACE_ONE or protection.rows_per_client is not None:
        if protection.unit is Unit.CLIENT and protection.neighbours is Neighbours.ADD_REMOVE:
            return one_way
        return max(one_way, largest(all_units, all_units))
    return one_way


def replaces_rows(protection: Protection) -> bool:
    """One row becomes another, and nothing else happens."""
    return (
        protection.unit is Unit.EXAMPLE
        and protection.neighbours is Neighbours.REPLACE_ONE
        and protection.rows_per_client is None
    )


# --- what a change costs ------------------------------------------------------------------------------


def distances(vectors: np.ndarray, power: int) -> Table:
    """Σ|a - b|^p for all pairs of rows."""
    return np.stack([(np.abs(vectors - one) ** power).sum(axis=1) for one in vectors])


def curve_pairs(held: np.ndarray) -> np.ndarray:
    """The change of the curve for all pairs of multisets."""
    curves = np.cumsum(held, axis=1)
    return (curves[None] - curves[:, None]).reshape(-1, held.shape[1])


def fewest(curves: np.ndarray, reach: int) -> np.ndarray:
    """The least Σ|w| over whole numbers w on the nodes of the binary tree whose sums over leaves are these curves.

    Dynamic programming from the leaves: cost(x) of a block is what its nodes need if those above add x. A node adds
    any whole number; x stays within ±reach.
    """
    above = np.arange(-reach, reach + 1, dtype=np.int16)
    costs = np.abs(curves[..., None].astype(np.int16) - above)
    while costs.shape[1] > 1:
        costs = with_own_node(costs[:, ::2] + costs[:, 1::2])
    return costs[:, 0, reach]


def with_own_node(costs: np.ndarray) -> np.ndarray:
    """min over c of |c| + cost(x + c), for all x, by a pass in each direction."""
    costs = costs.copy()
    for x in range(1, costs.shape[-1]):
        costs[..., x] = np.minimum(costs[..., x], costs[..., x - 1] + 1)
    for x in range(costs.shape[-1] - 2, -1, -1):
        costs[..., x] = np.minimum(costs[..., x], costs[..., x + 1] + 1)
    return costs


def node_table(held: np.ndarray, reach: int | None = None) -> Table:
    curves = curve_pairs(held)
    reach = int(np.abs(curves).max()) + 1 if reach is None else reach
    parts = [fewest(part, reach) for part in np.array_split(curves, max(1, curves.size // 2**21))]
    return np.concatenate(parts).reshape(len(held), len(held))


def spread_matrix(points: int) -> np.ndarray:
    """A: what a draw at each node adds to each point, from the definition of the tree."""
    levels = [np.repeat(np.eye(points >> k), 1 << k, axis=0) for k in range(points.bit_length())]
    return np.concatenate(levels, axis=1)


def length_table(held: np.ndarray) -> Table:
    """The least squared length of real numbers on the nodes, by the pseudo-inverse."""
    inverse = np.linalg.pinv(spread_matrix(held.shape[1]))
    gram = inverse.T @ inverse
    curves = np.cumsum(held, axis=1)
    product = curves @ gram @ curves.T
    squares = np.diag(product)
    return squares[:, None] + squares[None] - 2 * product


# --- the protections ----------------------------------------------------------------------------------

ADD = Protection()
REPLACE = Protection(neighbours=Neighbours.REPLACE_ONE)
BOUNDED = Protection(rows_per_client=3)
BOUNDED_REPLACE = Protection(neighbours=Neighbours.REPLACE_ONE, rows_per_client=3)
SINGLE_ROWS = [ADD, REPLACE, BOUNDED, BOUNDED_REPLACE]


def client(rows: int, neighbours: Neighbours) -> Protection:
    return Protection(unit=Unit.CLIENT, neighbours=neighbours, rows_per_client=rows)


def clients(rows: int) -> list[Protection]:
    return [client(rows, neighbours) for neighbours in Neighbours]


@dataclass(frozen=True)
class Labels:
    labelled: bool
    public_labels: bool


LABELS = [Labels(False, False), Labels(True, False), Labels(True, True)]


def path(
    height: int, labels: Labels = LABELS[0], kind: type[ValuePath] = ValuePath, **fields: int
) -> ValuePath:
    return kind(lower=0, upper=1, points=1 << height, **vars(labels), **fields)


# --- the mechanism path -------------------------------------------------------------------------------


def excess(summary: ValuePath, protection: Protection, table: Table, held: np.ndarray) -> float:
    """By how much the worst neighbour exceeds what is stated: zero, if the constant is exact."""
    return worst(table, held, summary, protection) - summary.sensitivity(protection).l1


class Understated(ValuePath):
    """One node less than needed."""

    def fewest_nodes(self, protection: Protection) -> int:
        return super().fewest_nodes(protection) - 1


@pytest.mark.parametrize("height", range(1, 9))
def test_the_fewest_nodes_are_exact(height: int) -> None:
    held = multisets(1 << height, 1)
    table = node_table(held)
    for labels in LABELS:
        for protection in SINGLE_ROWS:
            assert excess(path(height, labels), protection, table, held) == 0
            assert excess(path(height, labels, Understated), protection, table, held) == 1


def test_the_constants_are_those_of_the_methods() -> None:
    """⌈(L+1)/2⌉ for one curve and for two, L for a row that moves, 2⌈(L+1)/2⌉ if it may change its class."""
    for height in range(1, 21):
        nodes = [path(height, labels).fewest_nodes(p) for labels in LABELS for p in (ADD, REPLACE)]
        suffix = -(-(height + 1) // 2)
        assert nodes == [suffix, height, suffix, 2 * suffix, suffix, height]


@pytest.mark.parametrize(("height", "rows"), [(1, 2), (2, 2), (3, 2), (4, 2), (1, 3), (2, 3), (3, 3)])
def test_the_fewest_nodes_are_exact_for_clients_with_several_rows(height: int, rows: int) -> None:
    held = multisets(1 << height, rows)
    table = node_table(held)
    for labels in LABELS:
        for protection in clients(rows):
            assert excess(path(height, labels), protection, table, held) == 0
            assert excess(path(height, labels, Understated), protection, table, held) == rows


@pytest.mark.parametrize(("height", "rows"), [(5, 2), (6, 3), (8, 2)])
def test_several_rows_in_one_place_need_several_times_the_nodes(height: int, rows: int) -> None:
    """Attained in large trees too: fractions of nodes, which r rows could use, would not help."""
    held = rows * multisets(1 << height, 1)
    assert (node_table(held) == rows * node_table(held // rows)).all()


@pytest.mark.parametrize("height", [1, 2, 3, 4])
def test_the_dynamic_programme_agrees_with_integer_programming(height: int) -> None:
    points = 1 << height
    singles = multisets(points, 1)
    curves = curve_pairs(singles)
    if height == 4:
        curves = curves[np.random.default_rng(1).permutation(len(curves))[:60]]
    odd = np.random.default_rng(height).integers(-3, 4, (10, points))
    curves = np.unique(np.concatenate([curves, odd]), axis=0)
    A = spread_matrix(points)
    matrix = np.concatenate([A, -A], axis=1)
    costs = np.ones(matrix.shape[1])
    for curve, nodes in zip(curves, fewest(curves, reach=5), strict=True):
        found = milp(costs, integrality=costs, constraints=LinearConstraint(matrix, curve, curve))
        assert round(found.fun) == nodes


def test_a_wider_search_finds_nothing_less() -> None:
    held = multisets(16, 1)
    assert (node_table(held) == node_table(held, reach=9)).all()


def test_l1_and_l2_belong_to_the_same_nodes() -> None:
    for protection in (*SINGLE_ROWS, *clients(3)):
        for labels in LABELS:
            stated, rows = path(6, labels).sensitivity(protection), protection.rows_per_unit
            assert stated.l2**2 == pytest.approx(rows * stated.l1)  # entries of ±rows


# --- the shortest vectors, for Gaussian noise -----------------------------------------------------------


class TooShort(ValuePath):
    """Two per cent too short where it was exact; a mistaken half where rows are replaced."""

    def shortest_squared(self, protection: Protection) -> float:
        squared = super().shortest_squared(protection)
        return squared / 2 if protection.moves_both_ways else squared * 0.98


def squared_ratio(summary: ValuePath, protection: Protection, table: Table, held: np.ndarray) -> float:
    return summary.shortest_squared(protection) / worst(table, held, summary, protection)


@pytest.mark.parametrize("height", range(1, 9))
def test_shortest_vectors_are_not_understated(height: int) -> None:
    held = multisets(1 << height, 1)
    table = length_table(held)
    for labels in LABELS:
        for protection in SINGLE_ROWS:
            ratio = squared_ratio(path(height, labels), protection, table, held)
            if protection.moves_both_ways and path(height, labels).labels_stay(protection):
                assert 1 - 1e-12 <= ratio <= 1.25
            else:
                assert ratio == pytest.approx(1, abs=1e-12)
            assert squared_ratio(path(height, labels, TooShort), protection, table, held) < 1 - 1e-3


def test_the_steepest_suffix_of_ten_levels() -> None:
    suffixes = np.tri(1024).T
    gram = np.linalg.inv(spread_matrix(1024) @ spread_matrix(1024).T)
    assert steepest(10) == pytest.approx(np.einsum("ij,ij->i", suffixes @ gram, suffixes).max(), abs=1e-12)


@lru_cache(maxsize=8)
def kernel(points: int) -> np.ndarray:
    """The vectors (parent, -left, -right): whole, and none of them adds anything to any leaf."""
    vectors = np.zeros((2 * points - 1, points - 1))
    first, number = 0, 0
    for level in range(1, points.bit_length()):
        below, first = first, first + (points >> (level - 1))
        for j in range(points >> level):
            vectors[[first + j, below + 2 * j, below + 2 * j + 1], number] = 1, -1, -1
            number += 1
    assert not (spread_matrix(points) @ vectors).any()
    return vectors


def whole_vectors(curves: np.ndarray, shortest: np.ndarray) -> np.ndarray:
    """The shortest vectors, rounded along the kernel: whole, and still with these sums over the leaves."""
    points = curves.shape[1]
    start = np.concatenate([curves, np.zeros((len(curves), points - 1))], axis=1)  # whole: leaves only
    coefficients = (shortest - start) @ np.linalg.pinv(kernel(points)).T
    return start + np.round(coefficients) @ kernel(points).T


@pytest.mark.parametrize("multiplier", [2, 64, 1 << 16])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 6])
def test_whole_numbers_need_little_more_than_the_shortest_vector(height: int, multiplier: int) -> None:
    points = 1 << height
    curves = multiplier * curve_pairs(multisets(points, 1))
    shortest = curves @ np.linalg.pinv(spread_matrix(points)).T
    w = whole_vectors(curves, shortest)
    assert (w == np.round(w)).all()
    assert (w @ spread_matrix(points).T == curves).all()
    bound = np.linalg.norm(shortest, axis=1) + np.sqrt(2 * points)
    assert (np.linalg.norm(w, axis=1) <= bound).all()
    replaced = curves[:, -1] == 0
    for protection, those in ((ADD, ~replaced), (REPLACE, replaced)):
        stated = path(height, multiplier=multiplier).sensitivity(protection)
        assert bound[those].max() <= stated.l2 * (1 + 1e-12)
        assert np.abs(w[those]).sum(axis=1).max() <= stated.l1


@pytest.mark.parametrize("protection", [*SINGLE_ROWS, *clients(3)])
def test_what_is_stated_for_multiplied_counts(protection: Protection) -> None:
    for labels in LABELS:
        summary = path(5, labels, multiplier=256)
        curves = (
            2 if labels.labelled and protection.moves_both_ways and not summary.labels_stay(protection) else 1
        )
        squared = summary.shortest_squared(protection)
        stated = summary.sensitivity(protection)
        rows = protection.rows_per_unit
        assert stated.l2 == pytest.approx(rows * (256 * np.sqrt(squared) + np.sqrt(curves * 64)))
        assert stated.l1 == pytest.approx(stated.l2 * np.sqrt(curves * 63))


# --- the mechanisms tree and factorised ---------------------------------------------------------------

Build = Callable[[Labels], ValueSummary]


def check_linear(
    build: Build, protections: list[Protection], understate: Callable[[Sensitivity], Sensitivity]
) -> None:
    """Both norms are exact for all neighbours; a smaller statement is refuted by the same comparison."""
    summary = build(LABELS[0])
    for protection in protections:
        held = multisets(summary.points, protection.rows_per_unit)
        vectors = summary.of_counts(held)
        l1, squared = distances(vectors, 1), distances(vectors, 2)
        for labels in LABELS:
            summary = build(labels)
            most = worst(l1, held, summary, protection)
            longest = np.sqrt(worst(squared, held, summary, protection))

            def exact(stated: Sensitivity, most: float = most, longest: float = longest) -> bool:
                return stated.l1 == most and bool(np.isclose(stated.l2, longest, rtol=1e-12))

            stated = summary.sensitivity(protection)
            assert exact(stated), (labels, protection, stated, most, longest)
            assert not exact(understate(stated))


def one_less(stated: Sensitivity) -> Sensitivity:
    return Sensitivity(l1=stated.l1 - 1, l2=stated.l2)


def shorter(stated: Sensitivity) -> Sensitivity:
    return Sensitivity(l1=stated.l1, l2=np.sqrt(stated.l2**2 - 1))


def tree_builder(points: int, widths: tuple[int, ...], multipliers: tuple[int, ...] = ()) -> Build:
    return lambda labels: ValueTree(
        lower=0, upper=1, points=points, widths=widths, multipliers=multipliers, **vars(labels)
    )


def roots_builder(points: int) -> Build:
    return lambda labels: ValueRoots(lower=0, upper=1, points=points, **vars(labels))


SMALL_TREES = [
    (1 << height, (1, *(1 << power for power in powers)))
    for height in range(1, 6)
    for count in range(height)
    for powers in combinations(range(1, height), count)
]


@pytest.mark.parametrize(("points", "widths"), SMALL_TREES)
def test_all_small_trees(points: int, widths: tuple[int, ...]) -> None:
    check_linear(tree_builder(points, widths), SINGLE_ROWS, one_less)
    check_linear(tree_builder(points, widths), [ADD], shorter)
    if points <= 8:
        check_linear(tree_builder(points, widths), [*clients(2), *clients(3)], one_less)


LARGE_WIDTHS = [(1,), (1, 16), (1, 4, 32), (1, 2, 4, 8, 16, 32, 64, 128)]


@pytest.mark.parametrize("height", [6, 7, 8])
@pytest.mark.parametrize("widths", LARGE_WIDTHS)
def test_larger_trees(height: int, widths: tuple[int, ...]) -> None:
    points = 1 << height
    below = tuple(width for width in widths if width < points)
    check_linear(tree_builder(points, below), SINGLE_ROWS, one_less)
    check_linear(tree_builder(points, below, tuple(range(1, len(below) + 1))), SINGLE_ROWS, shorter)


@pytest.mark.parametrize("height", range(1, 9))
def test_columns_of_the_square_root(height: int) -> None:
    check_linear(roots_builder(1 << height), SINGLE_ROWS, one_less)
    check_linear(roots_builder(1 << height), [ADD, REPLACE], shorter)


@pytest.mark.parametrize(("height", "rows"), [(1, 3), (2, 2), (2, 3), (3, 2), (4, 2)])
def test_columns_of_the_square_root_for_clients(height: int, rows: int) -> None:
    check_linear(roots_builder(1 << height), clients(rows), one_less)


def test_norms_of_the_largest_square_root_stay_exact() -> None:
    """The differences at 2^20 points, by a transform, against sums of whole numbers."""
    roots = ValueRoots(lower=0, upper=1, points=1 << 20)
    series = roots.of_counts(np.eye(1, roots.points, dtype=np.int64)[0])
    assert column_norms(roots.points, roots.scale) == (series.sum(), (series**2).sum())
    stated = roots.sensitivity(REPLACE)
    differences = {
        d: np.concatenate([series[:d], series[d:] - series[:-d]])
        for d in (1, 2, 1000, 1 << 19, (1 << 20) - 1)
    }
    assert max(np.abs(one).sum() for one in differences.values()) <= stated.l1
    assert max((one**2).sum() for one in differences.values()) <= stated.l2**2 * (1 + 1e-12)
    assert stated.l1 < 2 * series.sum()
