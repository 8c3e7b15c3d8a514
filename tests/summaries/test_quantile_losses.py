"""Losses of candidates for a private quantile: what they are, and how far one row can move them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batched import batched
from fedassay.data.tables import ArrayRows
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import UNBOUNDED, Neighbours, Protection, Select, Setting, Unit
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.trust.plain import Plain


def losses(summary: QuantileLosses, scores: object) -> np.ndarray:
    return summary.measure(ArrayRows(columns={"value": np.array(scores, dtype=np.float64)}), {})[0]


def asked(**fields: object) -> QuantileLosses:
    usual = {"rows": 5, "lower": 0.0, "upper": 1.0, "points": 5, "target": 3, "below": 1, "above": 1}
    return QuantileLosses(quantity="value", **{**usual, **fields})


@st.composite
def questions(draw: st.DrawFn) -> QuantileLosses:
    rows = draw(st.integers(1, 8))
    return asked(
        rows=rows,
        points=draw(st.integers(2, 9)),
        target=draw(st.integers(1, rows)),
        below=draw(st.integers(1, 9)),
        above=draw(st.integers(1, 9)),
    )


scores = st.floats(-0.5, 1.5)


# --- what they are --------------------------------------------------------------------------------------


@given(questions(), st.data())
def test_losses_are_what_the_definition_says(summary: QuantileLosses, data: st.DataObject) -> None:
    listed = data.draw(st.lists(scores, max_size=summary.rows))
    padded = np.array(listed + [math.inf] * (summary.rows - len(listed)))
    c = [0, *(int((padded <= e).sum()) for e in summary.candidates)]
    expected = []
    for b in range(1, summary.points + 1):
        if c[b] < summary.target:
            expected.append(summary.below * (summary.target - c[b]))
        elif c[b - 1] >= summary.target:
            expected.append(summary.above * (c[b - 1] - summary.target + 1))
        else:
            expected.append(0)
    found = losses(summary, listed)
    assert found.tolist() == expected
    assert found.min() >= 0
    assert found.max() <= summary.largest


@given(questions(), st.data())
def test_the_only_candidate_without_loss_is_the_quantile_rounded_up(
    summary: QuantileLosses, data: st.DataObject
) -> None:
    listed = data.draw(st.lists(scores, max_size=summary.rows))
    found = losses(summary, listed)
    assert np.count_nonzero(found == 0) == 1
    padded = np.sort(np.append(listed, [math.inf] * (summary.rows - len(listed))))
    chosen = summary.read((found == 0).astype(np.int64))
    assert chosen == min(e for e in summary.candidates if e >= padded[summary.target - 1])


def test_any_number_of_candidates() -> None:
    assert asked(points=4, lower=-1.0).candidates.tolist() == [-1.0, 0.0, 1.0, math.inf]
    assert asked(points=3, lower=-1.0).candidates.tolist() == [-1.0, 1.0, math.inf]
    assert asked(points=2).candidates.tolist() == [1.0, math.inf]
    largest = float(np.finfo(np.float64).max)
    assert asked(points=5, upper=largest).candidates.tolist()[-2:] == [largest, math.inf]
    many = asked(points=2**16).candidates
    assert len(many) == 2**16
    assert (np.diff(many) > 0).all()


def test_batches_do_not_matter_and_no_rows_are_padding() -> None:
    rng = np.random.default_rng(1)
    summary = asked(rows=10_000, points=100, target=9000, below=1, above=9)
    values = rng.random(8000)

    parts = batched({"value": values}, *range(999, 8000, 999))
    assert np.array_equal(summary.measure(parts, {})[0], losses(summary, values))
    assert losses(asked(points=4), []).tolist() == [3, 3, 3, 0]


# --- how far a row moves them ---------------------------------------------------------------------------

EXAMPLE = {rows: Protection(rows_per_client=rows) for rows in range(1, 9)}


def moved(summary: QuantileLosses, before: object, after: object) -> int:
    """The length of the interval in which all losses move."""
    change = losses(summary, after) - losses(summary, before)
    return int(change.max() - change.min())


@given(questions(), st.data())
def test_one_row_moves_all_losses_within_a_short_interval(
    summary: QuantileLosses, data: st.DataObject
) -> None:
    """Replaced, added and removed."""
    listed = data.draw(st.lists(scores, min_size=1, max_size=summary.rows))
    new, place = data.draw(scores), data.draw(st.integers(0, len(listed) - 1))
    without = listed[:place] + listed[place + 1 :]
    bound = summary.loss_range(EXAMPLE[summary.rows])
    assert bound <= summary.below + summary.above
    assert moved(summary, listed, [*without, new]) <= bound
    assert moved(summary, listed, without) <= bound
    assert moved(summary, without, listed) <= bound


@given(questions(), st.data())
def test_all_rows_of_a_client_move_them_within_a_longer_one(
    summary: QuantileLosses, data: st.DataObject
) -> None:
    some = st.lists(scores, max_size=summary.rows)
    client = Protection(unit=Unit.CLIENT, rows_per_client=summary.rows)
    bound = summary.loss_range(client)
    assert bound <= (summary.below + summary.above) * summary.rows
    assert moved(summary, data.draw(some), data.draw(some)) <= bound


@pytest.mark.parametrize("target", [1, 2, 3])
@pytest.mark.parametrize(("below", "above"), [(1, 1), (1, 9), (5, 2)])
def test_both_bounds_are_attained(target: int, below: int, above: int) -> None:
    """All data sets of three rows on five candidates: no bound is larger than it has to be."""
    summary = asked(rows=3, points=5, target=target, below=below, above=above)
    edges = [0.0, 0.25, 0.5, 0.75, 2.0]
    table = {rows: losses(summary, rows) for rows in itertools.combinations_with_replacement(edges, 3)}
    one = every = 0
    for (a, x), (b, y) in itertools.product(table.items(), repeat=2):
        length = int((y - x).max() - (y - x).min())
        every = max(every, length)
        rest = list(b)
        common = sum(1 for score in a if score in rest and rest.remove(score) is None)
        if common >= 2:
            one = max(one, length)
    assert one == summary.loss_range(EXAMPLE[3])
    assert every == summary.loss_range(Protection(unit=Unit.CLIENT, rows_per_client=3))


def test_choosing_by_these_losses_is_as_private_as_stated() -> None:
    """The exponential mechanism at ε over the range: no probability changes by more than e^ε, and one does."""
    summary = asked(rows=3, points=5, target=2, below=1, above=3)
    epsilon = 0.7
    eta = epsilon / summary.loss_range(EXAMPLE[3])
    edges = [0.0, 0.25, 0.5, 0.75, 2.0]

    def chances(rows: tuple[float, ...]) -> np.ndarray:
        weights = np.exp(-eta * losses(summary, rows))
        return weights / weights.sum()

    worst = 0.0
    for rest in itertools.combinations_with_replacement(edges, 2):
        for old, new in itertools.product(edges, repeat=2):
            ratio = np.log(chances((*rest, new)) / chances((*rest, old)))
            worst = max(worst, float(np.abs(ratio).max()))
    assert 0.6 * epsilon <= worst <= epsilon + 1e-12


def test_rows_and_protection_must_say_the_same() -> None:
    summary = asked(rows=5)
    assert summary.loss_range(Protection(rows_per_client=5)) == 2
    assert summary.loss_range(Protection(rows_per_client=5, neighbours=Neighbours.REPLACE_ONE)) == 2
    # 3 below and 3 above, instead of five times 2
    assert summary.loss_range(Protection(unit=Unit.CLIENT, rows_per_client=5)) == 6
    for wrong in (Protection(), Protection(rows_per_client=4), Protection(rows_per_client=6)):
        with pytest.raises(UsageError, match="rows per client: got .*, expected 5"):
            summary.loss_range(wrong)


@given(questions(), st.data())
def test_no_loss_moves_further_than_its_slope(summary: QuantileLosses, data: st.DataObject) -> None:
    listed = data.draw(st.lists(scores, min_size=1, max_size=summary.rows))
    change = losses(summary, [*listed[1:], data.draw(scores)]) - losses(summary, listed)
    assert np.abs(change).max() <= max(summary.below, summary.above)
    assert summary.sensitivity(EXAMPLE[summary.rows]) == UNBOUNDED  # they are for choosing, not for adding up


def test_more_rows_than_stated_are_refused() -> None:
    with pytest.raises(DataError, match="rows: got 6, expected at most 5"):
        losses(asked(rows=5), np.linspace(0, 1, 6))


# --- as a question --------------------------------------------------------------------------------------


def test_it_can_be_asked() -> None:
    summary = asked(rows=100, points=1000, target=92, below=1, above=9)
    setting = Setting(trust=Plain(), protection=Protection(rows_per_client=100), budget=None, clients=3)
    assert Plain().plan(Select(of=summary), setting).query.of == summary


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": 0}, "target: got 0"),
        ({"target": 6}, "target: got 6, expected a whole number from 1 to 5"),
        ({"lower": 1.0}, "range: got 1 to 1"),
        ({"upper": math.inf}, "upper: got inf"),
        ({"upper": math.nan}, "upper: got nan"),
        ({"lower": 1.0, "upper": 1.0 + 1e-14, "points": 100}, "closer together than numbers can be"),
    ],
)
def test_bad_questions_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(**wrong)
