"""Curves of the log loss: what SciPy computes, and no unit moves bounded ones further than is stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from batched import batched
from fedassay.data.tables import StreamedRows
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import (
    UNBOUNDED,
    Neighbours,
    Protection,
    Unit,
)
from fedassay.summaries.multiclass.loss_curves import CLIENT, NONE, ROW, ROW_NORM, UNITS, Bound, LossCurves
from logit_neighbours import keeps_to_it, measured, repeated
from multiclass_rows import Columns, dirichlet, drawn

BOUNDS = get_args(Bound)
GRID = tuple(2.0 ** (k / 2) for k in range(-4, 3))
CLASSES = 3


def curves(bound: str = NONE, classes: int = CLASSES, **fields: Any) -> LossCurves:
    return LossCurves(**{"classes": classes, "grid": GRID, "bound": bound, **fields})


def read(summary: LossCurves, columns: Columns) -> Any:
    return summary.read(measured(summary, columns))


# --- written down a second time, from the definitions ---------------------------------------------------


def row_curves(columns: Columns, grid: tuple[float, ...]) -> np.ndarray:
    """L(s) - L(1) of each row, rows x points."""
    z, y = np.clip(columns["logits"], -(2.0**20), 2.0**20), columns["class"]
    losses = [-log_softmax(s * z, axis=1)[np.arange(len(y)), y] for s in (1.0, *grid)]
    return np.stack(losses[1:], axis=1).reshape(len(y), -1) - losses[0][:, None]


def level(curve: np.ndarray) -> np.ndarray:
    return curve - curve.mean(axis=-1, keepdims=True)


def of_client(summary: LossCurves, columns: Columns) -> np.ndarray:
    """The direction of the mean curve, in units, before rounding."""
    found = row_curves(columns, summary.grid)
    curve = level(found.mean(axis=0)) if len(found) else np.zeros(len(summary.grid))
    weight = min(1.0, len(found) / summary.full_rows)
    norm = np.linalg.norm(curve)
    return np.zeros_like(curve) if norm < 1e-12 else summary.units * weight * curve / norm


def of_rows(summary: LossCurves, columns: Columns) -> np.ndarray:
    """The curve of each row, cut, in units, before rounding."""
    found = level(row_curves(columns, summary.grid)) / ROW_NORM / math.sqrt(len(summary.grid))
    return UNITS * found / np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True))


# --- exact sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "scale"), [(2, 0.3), (5, 2.5), (30, 1.0), (4, 300.0), (3, 1e5)], ids=str)
def test_exact_sums_are_those_of_scipy(classes: int, scale: float) -> None:
    columns, grid = drawn(300, classes, seed=1, scale=scale), np.array(GRID)
    found = read(curves(classes=classes), columns)
    z, y = columns["logits"], columns["class"]
    assert found.rows == 300
    assert found.losses == pytest.approx(row_curves(columns, GRID).sum(axis=0), rel=1e-9, abs=1e-9)
    assert found.losses[GRID.index(1.0)] == 0
    p = [softmax(s * z, axis=1) for s in grid]
    mean = [(one * z).sum(axis=1) for one in p]
    first = [(one - z[np.arange(300), y]).sum() for one in mean]
    second = [((one * z**2).sum(axis=1) - m**2).sum() for one, m in zip(p, mean, strict=True)]
    assert found.slopes == pytest.approx(grid * first, rel=1e-8, abs=1e-8)
    # By log s the second derivative is s L' + s² L''; squares of large logits cancel.
    assert found.second == pytest.approx(
        grid * first + grid**2 * second, rel=1e-6, abs=1e-6 * max(1, scale**2 / 1e6)
    )


def test_slopes_are_derivatives_by_the_logarithm_of_s() -> None:
    columns, h = drawn(50, 4), 1e-4
    t = np.log(0.7) + h * np.arange(-2, 3)
    found = read(curves(classes=4, grid=tuple(np.exp(t))), columns)
    assert found.slopes[2] == pytest.approx((found.losses[3] - found.losses[1]) / (2 * h), rel=1e-7)
    assert found.second[2] == pytest.approx((found.slopes[3] - found.slopes[1]) / (2 * h), rel=1e-7)


def test_exact_sums_add_up_over_clients() -> None:
    columns = drawn(800, 4, seed=2)
    clients = dirichlet(columns, 40, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    summary = curves(classes=4)
    together = summary.read(np.sum([measured(summary, one) for one in clients], axis=0))
    pooled = read(summary, columns)
    assert together.rows == pooled.rows == 800
    for name in ("losses", "slopes", "second"):
        assert getattr(together, name) == pytest.approx(getattr(pooled, name), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_batches_do_not_matter(bound: str) -> None:
    columns, summary = drawn(300, CLASSES), curves(bound)
    batches, whole = summary.measure(batched(columns, 0, 7, 100), {})[0], measured(summary, columns)
    if bound == NONE:
        both = [summary.read(vector) for vector in (batches, whole)]
        assert both[0].losses == pytest.approx(both[1].losses, rel=1e-13, abs=1e-11)
        assert both[0].rows == both[1].rows
    else:
        # Sums over rows are rounded in floating point for clients, and are whole numbers for rows.
        assert np.abs(batches - whole).max() <= (1 if bound == CLIENT else 0)
        assert whole.any()


# --- rows as they come ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", BOUNDS)
def test_nobody_measures_nothing(bound: str) -> None:
    summary, nobody = curves(bound), StreamedRows(read=lambda: iter(()))
    vector, memory = summary.measure(nobody, {"a": 1})
    assert not vector.any()
    assert not measured(summary, drawn(0, CLASSES)).any()
    assert memory == {"a": 1}


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("width", [2, 4])
def test_rows_of_another_model_count_for_nothing(bound: str, width: int) -> None:
    mixed = StreamedRows(read=lambda: iter([drawn(5, width), drawn(40, CLASSES)]))
    assert np.array_equal(curves(bound).measure(mixed, {})[0], measured(curves(bound), drawn(40, CLASSES)))


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_types_of_logits(bound: str, kind: type) -> None:
    columns = drawn(60, CLASSES)
    z = np.rint(4 * columns["logits"])
    wanted = measured(curves(bound), {**columns, "logits": z})
    assert np.array_equal(measured(curves(bound), {**columns, "logits": z.astype(kind)}), wanted)


EXTREME = np.array([[1e300, -1e300, 0.0], [-1e308, 1e308, 1e308], [0.0, 1e5, 5e-324], [1e6, 1e6, -1e6]])


@pytest.mark.parametrize("label", range(CLASSES))
@pytest.mark.parametrize("bound", BOUNDS)
def test_extreme_logits_and_one_class_only(bound: str, label: int) -> None:
    """A logit beyond 2^20 counts as 2^20, as in the maps; nothing overflows, and nothing refuses."""
    columns = {"logits": EXTREME.copy(), "class": np.full(len(EXTREME), label)}
    summary = curves(bound, full_rows=1)
    found = measured(summary, columns)
    assert np.array_equal(columns["logits"], EXTREME)
    assert (np.abs(found) <= summary.largest).all()
    cut = {**columns, "logits": np.clip(EXTREME, -(2.0**20), 2.0**20)}
    assert np.array_equal(found, measured(summary, cut))
    if bound == NONE:
        assert summary.read(found).losses == pytest.approx(row_curves(cut, GRID).sum(axis=0), rel=1e-12)
    elif bound == CLIENT:
        assert np.abs(found - of_client(summary, cut)).max() < 1.5
    else:
        assert np.abs(found - of_rows(summary, cut).sum(axis=0)).max() < len(EXTREME) + 1


@pytest.mark.parametrize("value", [0.0, 5.0, -7.3, 299.0, 1e4, 1e300])
@pytest.mark.parametrize("bound", [CLIENT, ROW])
def test_rows_that_say_nothing_about_the_temperature_say_nothing(bound: str, value: float) -> None:
    """Equal logits have a flat curve: what rounding makes of it must not become a direction of full weight."""
    columns = {"logits": np.full((50, CLASSES), value), "class": np.arange(50) % CLASSES}
    assert not measured(curves(bound), columns).any()


# --- what bounded curves say ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 10, 200])
def test_a_client_sends_the_direction_of_its_curve(rows: int) -> None:
    columns, summary = drawn(rows, CLASSES, seed=3), curves(CLIENT)
    found, wanted = measured(summary, columns), of_client(summary, columns)
    assert np.abs(found - wanted).max() < 1.001  # rounded toward zero
    assert (np.abs(found) <= np.abs(wanted) + 1e-6).all()
    norm = np.linalg.norm(found.astype(np.float64)) / UNITS
    assert norm == pytest.approx(min(1.0, rows / 10), rel=1e-6)
    twice = {name: np.concatenate([column, column]) for name, column in columns.items()}
    if rows >= 10:
        assert np.abs(measured(summary, twice) - found).max() <= 1
    assert read(summary, columns).losses == pytest.approx(found / UNITS)
    assert read(summary, columns).unit == 1 / UNITS


def test_shortening_a_curve_leaves_its_lowest_point_where_it_is() -> None:
    columns = drawn(300, CLASSES, seed=7)
    lowest = int(np.argmin(read(curves(), columns).losses))
    assert 0 < lowest < len(GRID) - 1
    assert int(np.argmin(read(curves(CLIENT, full_rows=1000), columns).losses)) == lowest


@pytest.mark.parametrize("bits", [24, 18, 4])
def test_rows_are_cut_one_by_one(bits: int) -> None:
    columns = drawn(200, CLASSES, seed=4, scale=6.0)
    summary = curves(ROW, bits=bits)
    each = of_rows(summary, columns)
    lengths = np.linalg.norm(each, axis=1) / UNITS
    assert (lengths > 1 - 1e-9).any()
    assert (lengths < 0.5).any()
    wanted = each.sum(axis=0) * summary.units / UNITS
    found = measured(summary, columns)
    assert np.abs(found - wanted).max() < 1.001 + 200 * summary.units / UNITS
    assert summary.largest == summary.units << 32
    assert replace(summary, most_rows=7).largest == 7 * summary.units
    assert read(summary, columns).losses == pytest.approx(found / summary.units)


def test_rows_add_up_exactly_however_they_are_dealt() -> None:
    columns = drawn(500, CLASSES, seed=6, scale=4.0)
    summary = curves(ROW)
    total = np.sum([measured(summary, one) for one in dirichlet(columns, 30, 0.1)], axis=0)
    assert np.array_equal(total, measured(summary, columns))


# --- sensitivity ----------------------------------------------------------------------------------------

SHAPES = np.array(
    [
        [0.0, 0.0, 0.0],
        [2.0, 0.5, 0.0],
        [9.0, 1.0, 0.0],
        [60.0, 0.0, -5.0],
        [0.01, 0.0, 0.0],
        [1e300, -1e300, 0.0],
        [900.0, 899.0, 0.0],
    ]
)
parts = st.tuples(
    st.integers(0, len(SHAPES) - 1), st.integers(0, CLASSES - 1), st.sampled_from([1, 2, 9, 300])
)
clients = st.lists(parts, max_size=4).map(lambda found: rows_of(*found))
grids = st.sampled_from(
    [GRID, (0.25, 1.0), (1.0,), (2.0**-20, 1.0, 2.0**20), tuple(np.geomspace(0.3, 3, 40))]
)
summaries = st.builds(
    curves,
    bound=st.sampled_from([CLIENT, ROW]),
    grid=grids,
    full_rows=st.sampled_from([1, 10, 1000]),
    bits=st.sampled_from([4, 11, 24]),
)


def rows_of(*found: tuple[int, int, int]) -> Columns:
    return repeated(SHAPES, *found)


@given(summaries, clients, clients, st.integers(0, len(SHAPES) - 1), st.integers(0, CLASSES - 1))
@settings(max_examples=150)
def test_no_unit_moves_the_total_by_more_than_is_stated(
    summary: LossCurves, one: Columns, other: Columns, which: int, y: int
) -> None:
    assert keeps_to_it(summary, one, other, rows_of((which, y, 1)))
    for columns in (one, other):
        assert (np.abs(measured(summary, columns)) <= summary.largest).all()


@dataclass(frozen=True, kw_only=True)
class Unnormalised(LossCurves):
    """Broken on purpose: curves as they are."""

    def measure(self, rows: Any, memory: Any) -> Any:
        exact = LossCurves(classes=self.classes, grid=self.grid)
        sums = exact.read(exact.measure(rows, {})[0])
        curve = level(sums.losses) / max(1, sums.rows if self.bound == CLIENT else 1)
        return np.trunc(curve * self.units).astype(np.int64), memory


@dataclass(frozen=True, kw_only=True)
class RoundedAway(LossCurves):
    """Broken on purpose: rounded away from zero, so that norms grow."""

    def measure(self, rows: Any, memory: Any) -> Any:
        (columns,) = rows.batches()
        found = of_rows(self, columns) if self.bound == ROW else of_client(self, columns)[None, :]
        return (np.sign(found) * np.ceil(np.abs(found))).astype(np.int64).sum(axis=0), memory


MANY, FEW = rows_of((3, 0, 300), (1, 2, 9)), rows_of((3, 1, 40), (2, 2, 1))


@pytest.mark.parametrize("broken", [Unnormalised, RoundedAway])
@pytest.mark.parametrize("bound", [CLIENT, ROW])
def test_what_breaks_the_bounds_is_noticed(bound: str, broken: Callable[..., LossCurves]) -> None:
    row = rows_of((3, 2, 1))
    assert keeps_to_it(curves(bound), MANY, FEW, row)
    assert not keeps_to_it(broken(classes=CLASSES, grid=GRID, bound=bound), MANY, FEW, row)


def test_bounds_are_reached() -> None:
    """So that no more noise is added than is needed: nearly, by clients that agree and that contradict each other."""
    sure, wrong = rows_of((3, 0, 50)), rows_of((3, 1, 50))
    for bound, unit in ((CLIENT, Unit.CLIENT), (ROW, Unit.EXAMPLE)):
        summary = curves(bound, grid=(0.25, 1.0))
        rows = {"rows_per_client": 50} if unit is Unit.CLIENT else {}
        first, second = (
            measured(summary, one if bound == CLIENT else {n: c[:1] for n, c in one.items()})
            for one in (wrong, sure)
        )
        stated = summary.sensitivity(Protection(unit=unit, **rows))
        assert np.linalg.norm(first) > 0.999999 * stated.l2
        if bound == CLIENT:
            replaced = summary.sensitivity(Protection(unit=unit, neighbours=Neighbours.REPLACE_ONE, **rows))
            assert np.linalg.norm(first - second) > 0.999999 * replaced.l2


def test_sensitivities() -> None:
    client = Protection(unit=Unit.CLIENT, rows_per_client=20)
    away, other = curves(CLIENT).sensitivity(client), curves(CLIENT).sensitivity(Protection())
    assert (away.l2, other.l2) == (UNITS, 2 * UNITS)
    assert away.l1 == pytest.approx(UNITS * math.sqrt(len(GRID)))
    assert curves(CLIENT, bits=10).sensitivity(client).l2 == 1024
    assert curves(ROW).sensitivity(Protection()).l2 == UNITS
    assert curves(ROW).sensitivity(Protection(rows_per_client=5)).l2 == 2 * UNITS
    assert curves(ROW).sensitivity(client).l2 == 20 * UNITS
    assert curves(ROW, bits=10).sensitivity(Protection()).l2 == 1024 + math.sqrt(len(GRID))
    assert curves().sensitivity(client) == UNBOUNDED


# --- fields ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"grid": ()}, "grid: expected 1 to 256"),
        ({"grid": (1.0,) * 300}, "grid: expected 1 to 256"),
        ({"grid": (0.0, 1.0)}, "between 2"),
        ({"grid": (1.0, math.nan)}, "grid: got nan"),
        ({"grid": (1.0, 1.0)}, "that rise"),
        ({"grid": (2.0, 1.0)}, "that rise"),
    ],
)
def test_fields_that_make_no_summary(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        curves(**fields)
