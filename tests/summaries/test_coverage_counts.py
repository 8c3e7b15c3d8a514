"""Coverage of held-out rows: counts, sizes of sets, sums over sites, widths."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.data.tables import ArrayRows
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Summary, Unit
from fedassay.summaries.class_scores import sets
from fedassay.summaries.coverage_counts import (
    CoverageCounts,
    CoverageSums,
    MeanWidth,
    SiteCoverage,
    site_entries,
)
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.quantities import QUANTITIES, scores_of

CLASSES = 4
NAMES = {"": ("all",), "class": ("0", "1", "2", "3"), "group": ("a", "b", "other")}
GROUPS = {"": (), "class": ("0", "1", "2", "3"), "group": ("a", "b")}
LIMITS = {"": (0.6,), "class": (0.3, 0.8, math.inf, 0.95), "group": (0.5, 0.9, -1.0)}


def drawn(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "value": rng.random(rows),
        "class": rng.integers(0, CLASSES, rows),
        "logits": np.round(2 * rng.normal(size=(rows, CLASSES)), 1),
        "group": fingerprints(["a", "b", "c"])[rng.integers(0, 3, rows)],
        "scale": rng.uniform(0.5, 2, rows),
        "target": rng.normal(size=rows),
        "prediction": rng.normal(size=rows),
        "lower": rng.normal(size=rows) - 1,
        "upper": rng.normal(size=rows) + 1,
    }


def place_of(columns: dict[str, np.ndarray], by: str) -> np.ndarray:
    if by == "class":
        return columns["class"]
    if by == "group":
        known = fingerprints(["a", "b", "c"]).tolist()
        return np.array([known.index(value) for value in columns["group"].tolist()], dtype=np.int64)
    return np.zeros(len(columns["value"]), dtype=np.int64)


def asked(kind: type = CoverageCounts, quantity: str = "value", by: str = "", **fields: object) -> Summary:
    if kind is CoverageCounts and QUANTITIES[quantity].is_softmax:
        fields = {"classes": CLASSES, **fields}
    return kind(quantity=quantity, by=by, groups=GROUPS[by], thresholds=LIMITS[by], **fields)


def measure(summary: Summary, columns: dict[str, np.ndarray]) -> np.ndarray:
    return summary.measure(ArrayRows(columns=columns), {})[0]


def some(columns: dict[str, np.ndarray], rows: np.ndarray | slice) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in columns.items()}


QUESTIONS = [(quantity, by) for quantity in ("value", "lac", "aps", "raps", "cqr") for by in NAMES]


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quantity", "by"), QUESTIONS)
def test_counts_are_those_of_rows_within_their_threshold(quantity: str, by: str) -> None:
    columns = drawn(500)
    summary = asked(quantity=quantity, by=by)
    found = summary.read(measure(summary, columns))
    assert tuple(found) == NAMES[by]
    place = place_of(columns, by)
    covered = scores_of(columns, quantity, summary.parameters) <= np.array(LIMITS[by])[place]
    for group, one in enumerate(found.values()):
        assert one.rows == np.count_nonzero(place == group)
        assert one.covered == np.count_nonzero(covered & (place == group))


@pytest.mark.parametrize("quantity", ["lac", "aps", "raps"])
@pytest.mark.parametrize("by", NAMES)
def test_sizes_are_those_of_the_sets(quantity: str, by: str) -> None:
    columns = drawn(400, seed=1)
    summary = asked(quantity=quantity, by=by)
    found = summary.read(measure(summary, columns))
    place = place_of(columns, by)
    for group, one in enumerate(found.values()):
        chosen = place == group
        limit = np.array(LIMITS[by]) if by == "class" else LIMITS[by][group]
        inside = sets(columns["logits"][chosen], limit, quantity, summary.parameters)
        size = inside.sum(axis=1)
        holds = inside[np.arange(len(inside)), columns["class"][chosen]]
        assert one.covered_by_size.tolist() == np.bincount(size[holds], minlength=CLASSES + 1).tolist()
        assert one.missed_by_size.tolist() == np.bincount(size[~holds], minlength=CLASSES + 1).tolist()
        assert one.sizes.tolist() == np.bincount(size, minlength=CLASSES + 1).tolist()
        assert one.covered_by_size[0] == 0  # an empty set covers nothing
        assert one.missed_by_size[-1] == 0  # a full set misses nothing


@pytest.mark.parametrize(("quantity", "by"), QUESTIONS)
def test_the_union_measures_the_sum_and_a_row_is_in_one_cell(quantity: str, by: str) -> None:
    columns = drawn(60, seed=2)
    summary = asked(quantity=quantity, by=by)
    whole = measure(summary, columns)
    assert np.array_equal(
        measure(summary, some(columns, slice(20))) + measure(summary, some(columns, slice(20, None))), whole
    )
    (cells,) = summary.partitions
    assert np.array_equal(cells, np.arange(summary.length))
    for row in range(10):
        alone = measure(summary, some(columns, slice(row, row + 1)))
        assert sorted(alone[cells])[-2:] == [0, 1]
    assert summary.leaves == summary
    assert np.array_equal(summary.from_leaves(whole), whole)


def test_no_rows() -> None:
    for summary in (asked(quantity="aps", by="class"), asked(), asked(SiteCoverage), asked(MeanWidth, "cqr")):
        assert not measure(summary, drawn(0)).any()


@given(st.integers(0, 59), st.integers(0, 59))
def test_a_row_moves_as_much_as_one_count(first: int, second: int) -> None:
    columns = drawn(60, seed=3)
    summary = asked(quantity="aps", by="group")
    a, b = (measure(summary, some(columns, slice(row, row + 1))) for row in (first, second))
    added = summary.sensitivity(Protection())
    replaced = summary.sensitivity(Protection(neighbours=Neighbours.REPLACE_ONE))
    assert np.abs(a).sum() == added.l1 == 1
    assert np.abs(a - b).sum() <= replaced.l1 == 2
    assert math.sqrt(((a - b) ** 2).sum()) <= replaced.l2
    assert summary.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=7)).l1 == 7


@pytest.mark.parametrize("by", ["", "group"])
@pytest.mark.parametrize("classes", [CLASSES - 1, CLASSES + 1])
def test_another_number_of_logits_leaves_sets_without_a_size_and_coverage_as_it_is(
    by: str, classes: int
) -> None:
    """A refusal would say that there are rows."""
    columns = drawn(50, seed=4)
    mine, others = asked(quantity="aps", by=by), asked(quantity="aps", by=by, classes=classes)
    expected, found = (one.read(measure(one, columns)) for one in (mine, others))
    for name, one in found.items():
        assert (one.covered, one.rows) == (expected[name].covered, expected[name].rows)
        assert (one.covered_by_size[0], one.sizes[0]) == (one.covered, one.rows)
    assert expected["a" if by else "all"].sizes[0] == 0  # of the right number, sets have sizes


# --- sums over sites ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", NAMES)
def test_sums_over_sites_say_how_much_they_differ(by: str) -> None:
    sites = [drawn(rows, seed=rows) for rows in (0, 1, 7, 100, 333)]
    summary = asked(SiteCoverage, by=by)
    found = summary.read(np.sum([measure(summary, columns) for columns in sites], axis=0))
    for group, name in enumerate(NAMES[by]):
        counts = []
        for columns in sites:
            mine = place_of(columns, by) == group
            within = columns["value"] <= LIMITS[by][group]
            counts.append((np.count_nonzero(mine), np.count_nonzero(mine & within)))
        n, c = (np.array(count, dtype=float) for count in zip(*counts, strict=True))
        n, c = n[n > 0], c[n > 0]
        one = found[name]
        assert (one.sites, one.rows, one.covered) == (len(n), n.sum(), c.sum())
        # Each site rounds to sixteenths.
        assert abs(float(one.squares) - (c**2 / n).sum()) <= len(n) / 32 + 1e-10
        between = (n * (c / n - c.sum() / n.sum()) ** 2).sum()
        assert one.between == pytest.approx(between, abs=len(n) / 32 + 1e-8)


@given(st.lists(st.tuples(st.integers(1, 2**32), st.floats(0, 1)), min_size=1, max_size=5))
def test_squares_fit_and_are_rounded_to_sixteenths(sites: list[tuple[int, float]]) -> None:
    summary = asked(SiteCoverage)
    total, exact = np.zeros(summary.length, dtype=np.int64), Fraction(0)
    for rows, part in sites:
        entries = np.array(site_entries(rows, int(part * rows)))
        assert entries.max() <= summary.largest
        total = total + entries
        exact += Fraction(int(part * rows) ** 2, rows)
    found = summary.read(total)["all"]
    assert abs(found.squares - exact) <= Fraction(len(sites), 32)
    assert (16 * found.squares).denominator == 1


def test_totals_of_three_sites_seldom_say_which_they_are() -> None:
    """With all digits of c²/n, most totals of up to nine rows each can belong to one set of sites only."""
    pairs = [(n, c) for n in range(1, 10) for c in range(n + 1)]
    entries = [tuple(site_entries(n, c)) for n, c in pairs]
    squares = [Fraction(c * c, n) for n, c in pairs]
    sent: Counter[tuple[int, ...]] = Counter()
    exact: Counter[tuple[int, int, Fraction]] = Counter()
    for sites in itertools.combinations_with_replacement(range(len(pairs)), 3):
        total = tuple(map(sum, zip(*(entries[site] for site in sites), strict=True)))
        sent[total] += 1
        exact[total[1], total[2], sum((squares[site] for site in sites), Fraction(0))] += 1
    solved = [sum(times == 1 for times in found.values()) / found.total() for found in (sent, exact)]
    assert solved[0] < 0.2 < 0.4 < solved[1]


def test_nobody_has_rows() -> None:
    assert CoverageSums(sites=0, rows=0, covered=0, squares=Fraction(0)).between == 0.0


# --- widths ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", ["normalised", "cqr"])
@pytest.mark.parametrize("by", NAMES)
def test_widths_add_up(quantity: str, by: str) -> None:
    sites = [drawn(rows, seed=rows) for rows in (0, 30, 200)]
    summary = asked(MeanWidth, quantity, by=by)
    found = summary.read(np.sum([measure(summary, columns) for columns in sites], axis=0))
    for group, (name, limit) in enumerate(zip(NAMES[by], LIMITS[by], strict=True)):
        widths = []
        for columns in sites:
            mine = some(columns, place_of(columns, by) == group)
            width = (
                2 * limit * mine["scale"]
                if quantity == "normalised"
                else mine["upper"] - mine["lower"] + 2 * limit
            )
            widths += np.maximum(0, width).tolist()
        assert found[name].rows == len(widths)
        assert found[name].width == pytest.approx(sum(widths), rel=1e-12, abs=1e-12)
        assert found[name].mean == pytest.approx(np.mean(widths), rel=1e-12, abs=1e-12)
        assert found[name].squares == pytest.approx(np.square(widths).sum(), rel=1e-11, abs=1e-11)


def test_widths_of_nobody_and_of_everything() -> None:
    by_class = asked(MeanWidth, "cqr", by="class")
    empty = by_class.read(np.zeros(by_class.length, dtype=np.int64))
    assert {one.mean for one in empty.values()} == {None}
    endless = MeanWidth(quantity="cqr", thresholds=(math.inf,))
    assert endless.read(measure(endless, drawn(5)))["all"].mean == math.inf


def test_widths_need_no_targets() -> None:
    assert asked(MeanWidth, "normalised").columns == ("scale",)
    assert asked(MeanWidth, "cqr", by="group").columns == ("lower", "upper", "group")


@pytest.mark.parametrize("scale", [1e13, 1e308, math.inf])
def test_endless_widths_are_cut(scale: float) -> None:
    summary = asked(MeanWidth, "normalised")
    found = summary.read(measure(summary, {"scale": np.array([1.0, scale])}))["all"]
    assert (found.rows, found.width) == (2, 1.2 + 2.0**40)
    assert found.squares == pytest.approx(2.0**80)


@pytest.mark.parametrize(("ends", "width"), [((-1e308, 1e308), 2.0**40), ((1e308, -1e308), 0.0)])
@pytest.mark.parametrize("threshold", [1e308, -1e308, 0.0])
def test_ends_too_far_apart_for_a_number_have_a_width_too(
    ends: tuple[float, float], width: float, threshold: float
) -> None:
    summary = MeanWidth(quantity="cqr", thresholds=(threshold,))
    columns = dict(zip(summary.columns, map(np.array, zip(ends, strict=True)), strict=True))
    found = summary.read(measure(summary, columns))["all"]
    # What is infinite both ways is no number, and counts as an empty interval.
    assert (found.rows, found.width) == (1, 0.0 if threshold < 0 else width)


def test_a_scale_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="scale: got"):
        measure(asked(MeanWidth, "normalised"), {"scale": np.array([1.0, math.nan])})


def test_no_entry_of_a_client_exceeds_its_bound() -> None:
    columns = {"scale": np.full(1000, 2.0**39)}
    summary = MeanWidth(quantity="normalised", thresholds=(0.999,))
    vector = measure(summary, columns)
    assert np.abs(vector).max() < summary.largest
    assert summary.read(vector)["all"].mean == pytest.approx(2 * 0.999 * 2.0**39, rel=1e-12)


# --- as questions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (CoverageCounts, {"thresholds": ()}, "expected a number for each of the 1 groups"),
        (CoverageCounts, {"thresholds": (math.nan,)}, "expected a number for each"),
        (CoverageCounts, {"classes": 3}, "classes: got 3 for value, expected none"),
        (CoverageCounts, {"quantity": "aps"}, "classes: got 0"),
        (CoverageCounts, {"quantity": "aps", "classes": 1025}, "classes: got 1025"),
        (
            CoverageCounts,
            {"quantity": "lac", "classes": 3, "by": "class", "groups": ("0", "1"), "thresholds": (0.1, 0.2)},
            "got 2 for 3 classes",
        ),
        (MeanWidth, {"quantity": "absolute"}, "expected 'normalised' or 'cqr'"),
    ],
)
def test_bad_questions_are_refused(kind: type, fields: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind(**{"quantity": "value", "thresholds": (0.5,), **fields})
