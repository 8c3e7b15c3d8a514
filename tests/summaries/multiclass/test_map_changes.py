"""What a map changes row by row: as defined, with the sensitivity that it claims; and rows seen through a map."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax, softmax

from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Summary, Unit
from fedassay.summaries.multiclass.class_statistics import LARGEST_LOSS, ClassStatistics
from fedassay.summaries.multiclass.map_changes import COUNTS, MapChanges
from fedassay.summaries.multiclass.maps import LOGIT_MAPS, predicted
from fedassay.summaries.multiclass.scaling_maps import LogitMap, MatrixScaling, OrderPreserving, Temperature
from softmax_rows import SoftmaxPopulation, rows_of

SWAPPED = MatrixScaling(weights=((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)), intercepts=(0.0,) * 3)
"""The first two classes change places: the worst that can be done to rows that are certain of one of them."""

NOISY = {"loss_bound": 2.0, "brier_bound": 0.5, "moments": 2, "bits": 12, "digits": 1}


def of(one: LogitMap, **fields: Any) -> MapChanges:
    return MapChanges(classes=one.width, kind=one.kind, theta=tuple(one.theta.tolist()), **fields)


def drawn(rows: int, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return SoftmaxPopulation(classes=classes, stretch=1.7).sample(rows, np.random.default_rng(seed))


def measure(summary: Summary[Any], logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return summary.measure(rows_of(logits, labels), {})[0]


# --- what is measured -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, NOISY, {"loss_bound": 0.1, "brier_bound": 0.01}])
def test_sums_are_those_of_the_definitions(fields: dict[str, Any]) -> None:
    z, y = drawn(2000)
    total = of(SWAPPED, **fields).read(measure(of(SWAPPED, **fields), z, y))
    p, q, truth = softmax(z, axis=1), softmax(z[:, [1, 0, 2]], axis=1), np.eye(3)[y]
    changes = {
        "loss": np.log(p[np.arange(2000), y] / q[np.arange(2000), y]),
        "brier": ((q - truth) ** 2).sum(axis=1) - ((p - truth) ** 2).sum(axis=1),
        "correct": (q.argmax(axis=1) == y) * 1.0 - (p.argmax(axis=1) == y),
    }
    assert set(total.changes) == set(changes)
    bounds = {"loss": fields.get("loss_bound", LARGEST_LOSS), "brier": fields.get("brier_bound", 2.0)}
    for name, d in changes.items():
        found, cut = total.changes[name], np.clip(d, -bounds.get(name, 1.0), bounds.get(name, 1.0))
        powers = [found.first, found.second, *([found.third] if found.third is not None else [])]
        assert len(powers) == fields.get("moments", 3)
        for power, part in enumerate(powers, start=1):
            assert float(part.value) == pytest.approx((cut**power).sum(), abs=2000 * part.resolution + 1e-9)
    assert float(total.rows.value) == 2000
    assert float(total.wrong.value) == np.count_nonzero(p.argmax(axis=1) != y)


def test_without_bounds_nothing_is_cut_and_tiny_changes_have_squares() -> None:
    z, y = drawn(500, seed=1)
    slight = of(Temperature(inverse_temperature=1 + 1e-5, classes=3))
    d = (log_softmax(z, axis=1) - log_softmax((1 + 1e-5) * z, axis=1))[np.arange(500), y]
    found = slight.read(measure(slight, z, y)).changes["loss"]
    assert float(found.second.value) == pytest.approx((d**2).sum(), rel=1e-6)
    assert float(found.third.value) == pytest.approx((d**3).sum(), rel=1e-2)
    extreme = of(SWAPPED)
    total = extreme.read(measure(extreme, np.array([[800.0, -800.0, 0.0]]), np.array([0])))
    assert float(total.changes["loss"].first.value) == pytest.approx(LARGEST_LOSS)
    assert float(total.changes["brier"].first.value) == pytest.approx(2.0)


def test_a_map_that_keeps_the_order_has_no_change_of_accuracy() -> None:
    flat = OrderPreserving(slopes=(1e-6,) * 3)
    z = np.array([[0.0, 1e-12, 0.0], [0.0, -1.0, 1e-300]])
    (through,) = predicted({"logits": z, "class": np.array([1, 2])}, 3, flat)
    assert through.top.tolist() == [1, 2]  # although rounding makes all classes as probable
    assert through.confidence.tolist() == pytest.approx([1 / 3, 1 / 3], abs=1e-6)
    summary = of(flat)
    assert set(summary.read(measure(summary, z, np.array([1, 2]))).changes) == {"loss", "brier"}
    assert of(Temperature(inverse_temperature=-1.0, classes=3)).length > summary.length


def test_the_identity_changes_nothing() -> None:
    z, y = drawn(300, seed=2)
    same = of(Temperature(inverse_temperature=1.0, classes=3))
    assert np.count_nonzero(measure(same, z, y)) <= len(COUNTS)


def test_no_entry_exceeds_what_so_many_rows_may_add() -> None:
    z, y = drawn(40, seed=3)
    for summary in (of(SWAPPED), of(SWAPPED, **NOISY)):
        assert np.abs(measure(summary, z, y)).max() <= 40 << (summary.bits + 1)


# --- rows seen through a map ----------------------------------------------------------------------------


@pytest.mark.parametrize("one", [SWAPPED, Temperature(inverse_temperature=0.5, classes=3)])
def test_statistics_through_a_map_are_those_of_its_probabilities(one: LogitMap) -> None:
    z, y = drawn(1000, seed=4)
    through = ClassStatistics(classes=3, kind=one.kind, theta=tuple(one.theta.tolist()))
    # Logarithms of its probabilities are logits with these probabilities.
    direct = measure(ClassStatistics(classes=3), np.log(one.predict_proba(z)), y)
    found, wanted = (through.read(total) for total in (measure(through, z, y), direct))
    for name, part in found.sums.items():
        assert float(part.value) == pytest.approx(float(wanted.sums[name].value), abs=1e-4), name
    assert found.cells["probability"].value == pytest.approx(wanted.cells["probability"].value, abs=1e-4)
    assert not np.array_equal(measure(ClassStatistics(classes=3), z, y), measure(through, z, y))


logits = hnp.arrays(np.float64, (2, 3), elements=st.floats(-40, 40))
parameters = hnp.arrays(
    np.float64, 12, elements=st.sampled_from([-40.0, 0.0, 1.0, 40.0]) | st.floats(-40, 40)
)
labels = st.integers(0, 2)


def moves(summary: Summary[Any], z: np.ndarray, a: int, b: int) -> None:
    one, other = measure(summary, z[:1], np.array([a])), measure(summary, z[1:], np.array([b]))
    added, replaced = (summary.sensitivity(Protection(neighbours=n)) for n in Neighbours)
    pushed_out = summary.sensitivity(Protection(rows_per_client=5))
    client = summary.sensitivity(Protection(unit=Unit.CLIENT, rows_per_client=3))
    assert pushed_out == replaced
    assert client.l2 == 3 * added.l2
    for moved, most in ((one, added), (other, added), (one - other, replaced), (2 * one + other, client)):
        assert np.abs(moved).sum() <= most.l1
        assert math.sqrt((moved.astype(float) ** 2).sum()) <= most.l2 * (1 + 1e-12)


@given(logits, labels, labels, parameters, st.sampled_from([2, 3]), st.integers(2, 14), st.integers(1, 3))
def test_no_row_moves_more_than_the_sensitivity(
    z: np.ndarray, a: int, b: int, theta: np.ndarray, moments: int, bits: int, digits: int
) -> None:
    for one in (MatrixScaling.of(theta, 3), Temperature.of(np.abs(theta[:1]) + 1e-3, 3)):
        summary = of(one, loss_bound=2.0, brier_bound=0.5, moments=moments, bits=bits, digits=digits)
        moves(summary, z, a, b)
        moves(
            ClassStatistics(classes=3, kind=one.kind, theta=summary.theta, bits=bits, digits=digits), z, a, b
        )


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=2), st.integers(2, 14), st.sampled_from([2, 3]))
def test_no_pair_of_changes_moves_more_than_twice_its_weight(
    pair: list[float], bits: int, moments: int
) -> None:
    """The argument for rounded squares, on any two changes: rows that show them need not be found."""
    summary = of(Temperature(inverse_temperature=2.0, classes=3), moments=moments, bits=bits, digits=1)
    weights = summary._weights[len(COUNTS) : len(COUNTS) + moments]
    first, second = (
        summary._digits.write(
            np.array([[c**power] for power in range(1, moments + 1)]) * weights[:, None]
        ).sum(axis=2)
        for c in pair
    )
    moved = np.abs(first - second).astype(float)
    extra = 0.5 if moments == 3 else 0.0
    assert moved.sum() <= (2 + extra) * 2**bits
    assert (moved**2).sum() <= (4 + extra**2) * 4**bits


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_worst_rows_reach_the_bound(neighbours: Neighbours) -> None:
    """A certain row turns from wrong to right: everything at its largest. Replaced by its opposite, twice that."""
    summary = of(SWAPPED, **NOISY)
    z = np.array([[800.0, -800.0, 0.0]])
    moved = measure(summary, z, np.array([1]))
    if neighbours is Neighbours.REPLACE_ONE:
        moved = moved - measure(summary, z, np.array([0]))
    most = summary.sensitivity(Protection(neighbours=neighbours))
    assert np.abs(moved).sum() == most.l1
    assert math.sqrt((moved.astype(float) ** 2).sum()) == pytest.approx(most.l2, rel=1e-12)
    broken = replace(summary, loss_bound=1.0, bits=13)  # twice as fine: more than this bound
    assert np.abs(measure(broken, z, np.array([1]))).sum() > summary.sensitivity(Protection()).l1


# --- as questions ---------------------------------------------------------------------------------------


def test_a_map_is_not_printed() -> None:
    """It can have thousands of numbers."""
    for summary in (of(SWAPPED), ClassStatistics(classes=3, kind="temperature", theta=(2.0,))):
        assert "theta" not in repr(summary)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": ""}, "kind: got none"),
        ({"kind": "", "theta": ()}, "kind: got none"),
        ({"kind": "spline"}, "kind: got 'spline', expected one of temperature"),
        ({"theta": (1.0, 2.0)}, "theta: got 2 numbers, expected those of a map of kind temperature for 3"),
        ({"theta": ()}, "theta: got 0 numbers"),
        ({"theta": (math.nan,)}, "theta: got nan"),
        ({"theta": ("1",)}, "theta: got '1', expected a number"),
        ({"kind": "vector", "theta": (1.0,) * 4}, "theta: got 4 numbers"),
        ({"kind": "vector", "theta": (1.0,) * 7}, "theta: got 7 numbers"),
        ({"kind": "matrix", "theta": (1.0,) * 5}, "theta: got 5 numbers"),
        ({"kind": "order-preserving", "theta": (1.0, 1.0, -1.0)}, "expected numbers in"),
    ],
)
def test_bad_questions_are_refused(fields: dict[str, Any], message: str) -> None:
    good = {"classes": 3, "kind": "temperature", "theta": (2.0,)}
    assert MapChanges(**good).map == Temperature(inverse_temperature=2.0, classes=3)
    with pytest.raises(UsageError, match=message):
        MapChanges(**{**good, **fields})
    if set(fields) <= {"kind", "theta"} and fields.get("theta") != ():
        with pytest.raises(UsageError):
            ClassStatistics(**{**good, **fields})


@pytest.mark.parametrize("kind", sorted(LOGIT_MAPS))
def test_no_number_of_parameters_is_anything_but_refused(kind: str) -> None:
    for size in range(1, 10):
        try:
            made = MapChanges(classes=3, kind=kind, theta=(0.5,) * size).map
        except UsageError:
            continue
        assert made.theta.tolist() == [0.5] * size
        assert made.width == 3
