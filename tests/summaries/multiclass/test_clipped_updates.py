"""Updates of a calibrator in whole numbers: what they say, and that no client moves a total further than is stated."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from batched import batched
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Neighbours, Protection, Unit
from fedassay.summaries.multiclass import calibrator_sums
from fedassay.summaries.multiclass.calibrator_sums import RADIUS, ClippedUpdates, UpdateWeights, clipped
from fedassay.summaries.multiclass.local_fits import AVERAGED, local_fit
from multiclass_rows import Columns, dirichlet, drawn

METHODS = tuple(AVERAGED)
WEIGHTS = get_args(UpdateWeights)
NONE = drawn(0, 3)


def asked(method: str = "vector", classes: int = 3, **fields: Any) -> ClippedUpdates:
    theta = tuple(AVERAGED[method].identity(classes).tolist())
    most = {"most_rows": 100} if fields.get("weights") == "rows" else {}
    return ClippedUpdates(**{"method": method, "classes": classes, "theta": theta, **most, **fields})


def measure(summary: ClippedUpdates, columns: Columns) -> np.ndarray:
    vector, _ = summary.measure(ArrayRows(columns=columns), {})
    assert vector.dtype == np.int64
    assert vector.shape == (summary.length,)
    assert np.abs(vector).max() <= summary.largest
    return vector


def update_of(summary: ClippedUpdates, columns: Columns) -> np.ndarray:
    theta = np.array(summary.theta)
    return local_fit(summary.method, columns["logits"], columns["class"], theta) - theta


# --- what is said ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_totals_are_those_of_updates_times_weights(method: str, weights: str) -> None:
    clients = dirichlet(drawn(300, 3, seed=1), 20, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    for clip in (0.0, 0.4):
        summary = asked(method, weights=weights, clip=clip)
        found = summary.read(np.sum([measure(summary, one) for one in clients], axis=0))
        expected, total = np.zeros(len(summary.theta)), 0.0
        for one in clients:
            n = len(one["class"])
            u = update_of(summary, one) if n else np.zeros(len(summary.theta))
            w = min(n, 100) if weights == "rows" else float(n > 0)
            expected, total = (
                expected + w * u * min(1, clip / np.linalg.norm(u) if clip and n else 1),
                total + w,
            )
        assert found.total == pytest.approx(expected, abs=20 * found.resolution)
        assert found.weight == (None if weights == "fixed" else pytest.approx(total))
    assert found.resolution <= 0.4 / 2**17


def test_batches_are_one_client() -> None:
    columns, summary = drawn(90, 3, seed=2), asked("vector")
    assert np.array_equal(summary.measure(batched(columns, 40), {})[0], measure(summary, columns))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_clients_without_rows_of_this_model_send_zeros(weights: str, clip: float) -> None:
    """No refusal either: it would say that there are rows."""
    summary = asked(weights=weights, clip=clip)
    for columns in (NONE, drawn(5, 4), drawn(5, 2)):
        assert not measure(summary, columns).any()
    assert measure(summary, drawn(5, 3)).any()


# --- what can be moved ----------------------------------------------------------------------------------


NUMBERS = st.one_of(
    st.floats(-1e3, 1e3),
    st.floats(-1e-9, 1e-9),
    st.sampled_from([0.0, 2.0**10, -(2.0**10), 5e-324, 1e-200, 0.6, 0.8, 1.0, 1 / 3]),
)


@given(
    update=arrays(np.float64, st.integers(1, 40), elements=NUMBERS),
    clip=st.sampled_from([2.0**-20, 0.1, 0.5, 1.0, 5 / 3, 2.0**20]),
    radius=st.sampled_from([0, 1, 1000, RADIUS, 2**42]),
)
@settings(max_examples=300)
def test_the_norm_is_at_most_the_radius_exactly(update: np.ndarray, clip: float, radius: int) -> None:
    found = clipped(update, clip=clip, radius=radius)
    assert sum(int(number) ** 2 for number in found) <= radius**2
    units = update * (radius / clip)
    shortened = units / max(1.0, np.linalg.norm(units) / radius) if radius else units
    assert np.abs(found) == pytest.approx(np.abs(shortened), abs=1.001 + 2e-9 * radius)
    assert (np.abs(found) <= np.abs(units) + 1e-3).all()
    assert (np.sign(found) * np.sign(update) >= 0).all()


UNITS = [
    Protection(unit=Unit.CLIENT, rows_per_client=50),
    Protection(unit=Unit.CLIENT, rows_per_client=50, neighbours=Neighbours.REPLACE_ONE),
    Protection(unit=Unit.EXAMPLE),
    Protection(unit=Unit.EXAMPLE, neighbours=Neighbours.REPLACE_ONE),
]


def moved(summary: ClippedUpdates, one: Columns, other: Columns) -> tuple[int, float]:
    difference = measure(summary, one) - measure(summary, other)
    return int(np.abs(difference).sum()), math.sqrt(sum(int(d) ** 2 for d in difference))


def within_what_is_stated(
    summary: ClippedUpdates, protection: Protection, one: Columns, other: Columns
) -> bool:
    stated = summary.sensitivity(protection)
    l1, l2 = moved(summary, one, other)
    return l1 <= stated.l1 and l2 <= stated.l2 * (1 + 1e-12)


def neighbours_of(protection: Protection, one: Columns, other: Columns) -> list[tuple[Columns, Columns]]:
    """Pairs that differ by one unit: from a client's rows, and from those of another one."""
    if protection.unit is Unit.CLIENT:
        add_remove = protection.neighbours is Neighbours.ADD_REMOVE
        return [(one, NONE), (other, NONE)] if add_remove else [(one, other), (one, NONE)]
    less = {name: column[1:] for name, column in one.items()}
    row = {name: column[:1] for name, column in other.items()}
    replaced = {name: np.concatenate([row[name], less[name]]) for name in one}
    return [(one, less)] if protection.neighbours is Neighbours.ADD_REMOVE else [(one, replaced)]


@st.composite
def clients(draw: st.DrawFn) -> Columns:
    n = draw(st.integers(1, 5))
    numbers = st.floats(-30, 30) | st.sampled_from([0.0, 1e308, -1e308, 1e6, 1.0])
    return {
        "logits": draw(arrays(np.float64, (n, 3), elements=numbers)),
        "class": draw(arrays(np.int64, n, elements=st.integers(0, 2))),
    }


@pytest.mark.parametrize("method", METHODS)
@given(one=clients(), other=clients(), data=st.data())
@settings(max_examples=40)
def test_no_client_moves_a_total_further_than_is_stated(
    method: str, one: Columns, other: Columns, data: st.DataObject
) -> None:
    summary = asked(
        method,
        weights=data.draw(st.sampled_from(WEIGHTS)),
        clip=data.draw(st.sampled_from([0.01, 0.5])),
        most_rows=data.draw(st.sampled_from([1, 3, 50, 2**32])),
    )
    protection = data.draw(st.sampled_from(UNITS))
    for pair in neighbours_of(protection, one, other):
        assert within_what_is_stated(summary, protection, *pair)


def opposed(n: int) -> tuple[Columns, Columns]:
    """Two clients with as many rows, of which one wants a lower temperature and the other a higher one."""
    y = np.arange(n) % 3
    z = np.eye(3)[y]
    return {"logits": z, "class": y}, {"logits": -3 * z, "class": y}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("protection", UNITS, ids=lambda one: f"{one.unit}-{one.neighbours}")
def test_the_bound_is_tight_and_clipping_is_what_holds_it(
    weights: str, protection: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opposed clients reach it; without clipping the same check fails."""
    summary = asked("temperature", weights=weights, clip=0.01, most_rows=50)
    one, other = opposed(50)
    if protection.unit is Unit.EXAMPLE:
        # One row that outweighs all others: masked where the model was sure.
        row = {"logits": np.array([[-1e4, 1e4, 0.0]]), "class": np.array([0])}
        other = {name: np.concatenate([row[name], one[name][1:]]) for name in one}
        if protection.neighbours is Neighbours.ADD_REMOVE:
            one = {name: column[1:] for name, column in one.items()}
    elif protection.neighbours is Neighbours.ADD_REMOVE:
        other = NONE
    assert within_what_is_stated(summary, protection, one, other)
    reached, stated = moved(summary, one, other)[1], summary.sensitivity(protection).l2
    assert reached >= 0.97 * stated

    def unclipped(update: np.ndarray, *, clip: float, radius: int) -> np.ndarray:
        return np.trunc(update * (radius / clip)).astype(np.int64)

    monkeypatch.setattr(calibrator_sums, "clipped", unclipped)
    monkeypatch.setattr(ClippedUpdates, "largest", 2**62)
    assert not within_what_is_stated(summary, protection, one, other)


def test_the_stated_numbers() -> None:
    vector = {weights: asked("vector", weights=weights, clip=0.5) for weights in WEIGHTS}
    client, replaced, example, _ = UNITS
    root = math.sqrt(6)
    alone = vector["fixed"].sensitivity(client)
    assert (alone.l1, alone.l2) == (RADIUS * root, RADIUS)
    counted = vector["clients"].sensitivity(client)
    assert (counted.l1, counted.l2) == (RADIUS * (root + 1), RADIUS * math.sqrt(2))
    for weights in ("fixed", "clients"):
        for protection in (replaced, example):
            twice = vector[weights].sensitivity(protection)
            assert (twice.l1, twice.l2) == (2 * RADIUS * root, 2 * RADIUS)
    rows = vector["rows"]
    assert rows.radius == 100 * (RADIUS // 100)
    assert rows.sensitivity(client).l2 == rows.radius * math.sqrt(2)
    assert asked(weights="rows", clip=0.5, most_rows=2**32).radius == 2**42


# --- odd questions --------------------------------------------------------------------------------------


def test_a_calibrator_is_not_printed() -> None:
    assert "theta" not in repr(asked())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "platt"}, "method: got 'platt', expected one of temperature, vector"),
        ({"theta": (1.0,)}, "theta: got 1 numbers for vector scaling of 3 classes, expected 6"),
        ({"theta": (float("nan"),) * 6}, "theta"),
        ({"method": "temperature", "theta": (0.01,)}, r"outside \[0.05, 20\]"),
        ({"method": "order-preserving", "theta": (0.0, 1.0, 1.0)}, r"outside \[1e-06, "),
        ({"clip": -1.0}, "clip: got -1"),
        ({"clip": float("nan")}, "clip: got nan"),
        ({"clip": float("inf")}, "clip: got inf"),
        ({"clip": 1e-9}, "clip: got 1e-09"),
        ({"weights": "rows", "most_rows": 0}, "most_rows: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClippedUpdates(**{"method": "vector", "classes": 3, "theta": (1.0,) * 3 + (0.0,) * 3, **fields})
