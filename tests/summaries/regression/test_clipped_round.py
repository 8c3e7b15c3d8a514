"""A client's clipped round: what it says, its derivative, and that no client moves a total further than is stated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from conformal_drive import Columns, setting_of
from fedassay.data.tables import ArrayRows
from fedassay.kernel.client import EmptyRows
from fedassay.protocol.vocabulary import Memory, Neighbours, Protection, Sum, Unit
from fedassay.summaries.regression import rounds
from fedassay.summaries.regression.local_work import LOCAL, MOST_LOCAL_STEPS
from fedassay.summaries.regression.losses import Design, loss_of
from fedassay.summaries.regression.moments import LARGEST_THETA
from fedassay.summaries.regression.rounds import SLOPES, UNITS, ClippedRound, derivative, shortened
from fedassay.trust.server_dp import ServerDP

MODELS = ("linear", "logistic")
TINY = 5e-324


def asked(**changed: Any) -> ClippedRound:
    given: dict[str, Any] = {
        "features": 2,
        "model": "linear",
        "theta": (0.1, -0.2, 0.3),
        "step": 1.0,
        "local": "fixed",
    }
    return ClippedRound(**{**given, "clip": 1.0, "slopes_clip": 2.0, **changed})


def client(rows: int, *, model: str = "linear", seed: int = 0, size: float = 1.0) -> Columns:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=rows) if model == "linear" else rng.integers(0, 2, size=rows).astype(float)
    return {"features": size * rng.normal(size=(rows, 2)), "target": y}


def measured(of: ClippedRound, columns: Columns, memory: Memory | None = None) -> np.ndarray:
    vector, _ = of.measure(ArrayRows(columns=columns), memory or {})
    assert vector.dtype == np.int64
    assert vector.shape == (of.length,)
    return vector


def squared(vector: np.ndarray) -> int:
    """The squared norm, exactly."""
    return sum(int(number) ** 2 for number in vector)


# --- what is said -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("slopes_clip", [0.05, 100.0])
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_it_is_the_mean_gradient_and_its_derivative_shortened(
    model: str, clip: float, slopes_clip: float
) -> None:
    of, columns = asked(model=model, clip=clip, slopes_clip=slopes_clip), client(7, model=model)
    found = of.read(measured(of, columns))
    rows = Design.of(np.column_stack([np.ones(7), columns["features"]]), columns["target"])
    loss, theta, share = loss_of(model), np.array(of.theta), np.full(7, 1 / 7)
    g, hessian = loss.gradient_sum(theta, rows, share), loss.hessian_sum(theta, rows, share)
    size = float(np.linalg.norm(g))
    expected = g * min(1.0, clip / size)
    assert found.gradient == pytest.approx(expected, abs=3 * found.units[0])
    u = g / size
    bent = hessian if size <= clip else clip / size * (hessian - np.outer(u, u) @ hessian)
    bent = bent * min(1.0, slopes_clip / float(np.linalg.norm(bent)))
    assert found.slopes == pytest.approx(bent, abs=3 * found.units[1])


def test_the_norm_is_shared_between_both_parts() -> None:
    vector = measured(asked(clip=1e-3, slopes_clip=1e-3), client(5)) / UNITS
    assert float(vector[:3] @ vector[:3]) == pytest.approx(1 - SLOPES, rel=1e-6)
    assert float(vector[3:] @ vector[3:]) == pytest.approx(SLOPES, rel=1e-6)


@given(
    numbers=arrays(np.float64, 2, elements=st.floats(-3, 3)),
    target=st.floats(-3, 3),
    clip=st.sampled_from([0.01, 1.0, 50.0]),
)
@settings(max_examples=60)
def test_rounding_is_toward_zero_and_takes_less_than_a_unit(
    numbers: np.ndarray, target: float, clip: float
) -> None:
    of = asked(clip=clip)
    vector = measured(of, {"features": numbers[None, :], "target": np.array([target])})
    x = np.concatenate([[1.0], numbers])
    g = (x @ np.array(of.theta) - target) * x
    exact = math.sqrt(1 - SLOPES) * UNITS * shortened(g, clip)
    assert (np.abs(vector[:3]) <= np.abs(exact)).all()
    assert (np.abs(exact) - np.abs(vector[:3]) < 1 + 1e-3).all()
    assert (np.sign(vector[:3]) * np.sign(exact) >= 0).all()


def test_noise_of_a_unit_is_read_in_its_units() -> None:
    of = asked(clip=3.0, slopes_clip=7.0)
    ones = of.read(np.ones(of.length, dtype=np.int64))
    assert (ones.gradient == ones.units[0]).all()
    assert (ones.slopes == ones.units[1]).all()
    assert ones.units == pytest.approx((3 / (UNITS * math.sqrt(0.7)), 7 / (UNITS * math.sqrt(0.3))))


def test_clients_without_rows_send_zeros_whatever_they_remember() -> None:
    of = asked(visits=3)
    _, kept = of.measure(ArrayRows(columns=client(9)), {})
    for columns in (client(0), {"features": np.ones((4, 3)), "target": np.zeros(4)}):
        for memory in ({}, kept):
            assert not measured(of, columns, memory).any()
    vector, _ = of.measure(EmptyRows(), {})  # as a client answers whose coin says no
    assert vector.shape == (of.length,)
    assert not vector.any()


def test_a_visit_uses_rows_that_were_not_used_before() -> None:
    of, columns = asked(visits=4), client(12)
    memory: Memory = {}
    for _ in range(4):
        before = int(memory.get("at", 0))
        vector, memory = of.measure(ArrayRows(columns=columns), memory)
        part = {name: column[before : before + 3] for name, column in columns.items()}
        assert np.array_equal(vector, measured(asked(), part))
    assert memory["at"] == 12


# --- the two functions ------------------------------------------------------------------------------------


def gradient_at(model: str, rows: Design, theta: np.ndarray) -> np.ndarray:
    return loss_of(model).gradient_sum(theta, rows, np.full(rows.rows, 1 / rows.rows))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [0.1, 10.0], ids=["outside", "inside"])
def test_the_derivative_is_that_of_the_shortened_gradient(model: str, clip: float) -> None:
    columns, theta, h = client(6, model=model, seed=4), np.array([0.4, -1.0, 0.7]), 1e-6
    rows = Design.of(np.column_stack([np.ones(6), columns["features"]]), columns["target"])
    g = gradient_at(model, rows, theta)
    assert (np.linalg.norm(g) > clip) == (clip < 1), "the case is what it is called"
    hessian = loss_of(model).hessian_sum(theta, rows, np.full(6, 1 / 6))

    def clipped(at: np.ndarray) -> np.ndarray:
        return clip * shortened(gradient_at(model, rows, at), clip)

    slopes = [(clipped(theta + h * e) - clipped(theta - h * e)) / (2 * h) for e in np.eye(3)]
    assert derivative(g, hessian, clip) == pytest.approx(np.column_stack(slopes), abs=1e-8)
    if clip < 1:
        assert derivative(g, hessian, clip) != pytest.approx(hessian, abs=1e-2)


def test_both_take_leading_axes() -> None:
    rng = np.random.default_rng(1)
    g, a = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3, 5, 5))
    hessian = a @ np.swapaxes(a, -1, -2)
    short, slopes = shortened(g, 2.0), derivative(g, hessian, 2.0)
    clipped = np.linalg.norm(g, axis=-1) > 2
    assert clipped.any()
    assert not clipped.all()
    for place in np.ndindex(4, 3):
        assert short[place] == pytest.approx(shortened(g[place], 2.0), rel=1e-14)
        assert slopes[place] == pytest.approx(derivative(g[place], hessian[place], 2.0), rel=1e-12)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-3, 3),
    st.sampled_from([0.0, TINY, -TINY, 1e-310, 1e308, -1e308, 1e154, 0.6, 0.8, 1 / 3]),
)


@given(
    vector=arrays(np.float64, st.integers(0, 60), elements=NUMBERS),
    clip=st.sampled_from([TINY, 1e-300, 1e-3, 1.0, 5 / 3, 2.0**20]),
)
@settings(max_examples=100)
def test_no_vector_is_too_long_or_too_short(vector: np.ndarray, clip: float) -> None:
    with np.errstate(all="ignore"):
        found = shortened(vector, clip)
    assert np.isfinite(found).all()
    assert math.hypot(*found) <= 1 + 2.0**-48
    whole = math.hypot(*vector)
    if 1e-290 < whole < 1e300 and clip > 1e-290:
        assert math.hypot(*found) == pytest.approx(min(1.0, whole / clip), rel=1e-12, abs=1e-300)


# --- what can be moved ------------------------------------------------------------------------------------


PROTECTIONS = [
    Protection(unit=Unit.CLIENT, rows_per_client=50),
    Protection(unit=Unit.CLIENT, rows_per_client=50, neighbours=Neighbours.REPLACE_ONE),
    Protection(unit=Unit.EXAMPLE),
    Protection(unit=Unit.EXAMPLE, rows_per_client=50),
    Protection(unit=Unit.EXAMPLE, neighbours=Neighbours.REPLACE_ONE),
]
ALONE = PROTECTIONS[0]


def test_the_stated_numbers() -> None:
    of = asked()
    assert of.largest == UNITS
    for protection in PROTECTIONS:
        stated, times = of.sensitivity(protection), 1 if protection is ALONE else 2
        assert (stated.l1, stated.l2) == (times * UNITS * math.sqrt(12), times * UNITS)


@st.composite
def questions(draw: st.DrawFn) -> ClippedRound:
    """Whatever a server that lies may ask."""
    numbers = st.sampled_from([0.0, 1.0, LARGEST_THETA, -LARGEST_THETA, TINY]) | st.floats(-5, 5)
    positive = st.sampled_from([TINY, 1e-300, 1.0, 1e300])
    return asked(
        model=draw(st.sampled_from(MODELS)),
        theta=tuple(draw(st.lists(numbers, min_size=3, max_size=3))),
        clip=draw(st.sampled_from([TINY, 1e-3, 1.0, 2.0**20])),
        slopes_clip=draw(st.sampled_from([TINY, 1e-3, 1.0, 2.0**20])),
        step=draw(st.sampled_from([1e-300, 1.0, 999_999.0])),
        local=draw(st.sampled_from(LOCAL)),
        local_steps=draw(st.sampled_from([1, 3, MOST_LOCAL_STEPS])),
        visits=draw(st.sampled_from([1, 2, 1 << 30])),
        seed=draw(st.sampled_from([None, 0, 2**63 - 1])),
        per=draw(st.sampled_from([1e-300, 1.0, 1e17])),
        scales=(draw(positive), draw(positive)),
        centres=(draw(numbers), draw(st.sampled_from([0.0, 1e308, -1e308]))),
        target_scale=draw(positive),
    )


@st.composite
def clients(draw: st.DrawFn) -> Columns:
    n = draw(st.integers(0, 5))
    return {
        "features": draw(arrays(np.float64, (n, 2), elements=NUMBERS)),
        "target": draw(arrays(np.float64, n, elements=NUMBERS)),
    }


@given(of=questions(), one=clients(), before=clients(), rounds=st.integers(1, 3))
@settings(max_examples=80)
def test_whoever_asks_whatever_of_whatever_rows_the_norm_is_at_most_one(
    of: ClippedRound, one: Columns, before: Columns, rounds: int
) -> None:
    """Exactly, in whole numbers, in every round, whatever was remembered of other rows; any two are then within two."""
    _, memory = of.measure(ArrayRows(columns=before), {})
    for _ in range(rounds):
        vector, memory = of.measure(ArrayRows(columns=one), memory)
        assert squared(vector) <= UNITS**2
        assert np.abs(vector).sum() <= of.sensitivity(ALONE).l1


@pytest.mark.parametrize("features", [1, 40, 256])
def test_long_vectors_do_not_add_up_rounding(features: int) -> None:
    """Of up to 66,049 entries of a derivative: what floating point gets wrong in so long a sum is below the margin."""
    p = features + 1
    for clip in (1e-3, 2.0**20):
        of = asked(features=features, theta=(0.0,) * p, clip=clip, slopes_clip=1e-3)
        for x in (np.full((3, features), 1 / 3), np.random.default_rng(2).normal(size=(3, features))):
            vector = measured(of, {"features": x, "target": np.ones(3)})
            assert squared(vector) <= UNITS**2
            if clip > 1:
                assert squared(vector[p:]) > 0.999 * SLOPES * UNITS**2


def opposed(protection: Protection) -> tuple[Columns, Columns]:
    """Neighbours that are as far from each other as can be."""
    far = {"features": np.ones((3, 2)), "target": np.full(3, 1e3)}
    other = {"features": far["features"], "target": -far["target"]}
    if protection.unit is Unit.CLIENT:
        return far, client(0) if protection.neighbours is Neighbours.ADD_REMOVE else other
    # One row that outweighs all others: it turns the gradient round.
    heavy = {"features": np.ones((1, 2)), "target": np.array([-1e6])}
    kept = far if protection.neighbours is Neighbours.ADD_REMOVE else {k: v[1:] for k, v in far.items()}
    return far, {name: np.concatenate([heavy[name], kept[name]]) for name in kept}


@pytest.mark.parametrize(
    "protection", PROTECTIONS, ids=lambda one: f"{one.unit}-{one.neighbours}-{one.rows_per_client}"
)
def test_the_bound_is_tight_and_clipping_is_what_holds_it(
    protection: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient's part can be turned round; derivatives of convex losses have less room."""
    of = asked()
    one, other = opposed(protection)

    def moved(entries: slice = slice(None)) -> float:
        return math.sqrt(squared((measured(of, one) - measured(of, other))[entries]))

    stated = of.sensitivity(protection).l2
    assert 0.99 * math.sqrt(1 - SLOPES) * stated < moved(slice(3))
    assert moved() <= stated

    def unclipped(vector: np.ndarray, clip: float) -> np.ndarray:
        return vector / clip

    monkeypatch.setattr(rounds, "shortened", unclipped)
    assert moved() > stated


def test_rounding_to_the_nearest_would_break_the_bound() -> None:
    """And the exact check in whole numbers notices it."""
    drawn = [shortened(np.random.default_rng(seed).normal(size=12), 1e-3) for seed in range(50)]
    assert any(squared(np.rint(UNITS * one).astype(np.int64)) > UNITS**2 for one in drawn)
    assert all(squared(np.trunc(UNITS * one).astype(np.int64)) <= UNITS**2 for one in drawn)


def test_memory_does_not_make_a_client_louder_in_the_rounds_it_takes_part_in() -> None:
    """A client whose coin said no in some rounds says what it would have said then, later; never two rounds' worth."""
    of, columns = asked(visits=3, clip=1e-3), client(9, size=100.0)
    said, memory = [], {}
    for takes_part in (True, False, False, True, True, True):
        if takes_part:
            vector, memory = of.measure(ArrayRows(columns=columns), memory)
        else:
            vector, _ = of.measure(EmptyRows(), {})
        said.append(vector)
    assert [squared(vector) <= UNITS**2 for vector in said] == [True] * 6
    assert [bool(vector.any()) for vector in said] == [True, False, False, True, True, True]


# --- odd questions ----------------------------------------------------------------------------------------


def test_it_is_planned_under_noise() -> None:
    of = asked(offset=True, seed=5, visits=3)
    for protection in PROTECTIONS:
        setting = setting_of(
            ServerDP(), clients=10**6, epsilon=1.0, delta=1e-5, unit=protection.unit, rows_per_client=50
        )
        assert setting.noise(Sum(of=of, share=1 / 50)).variance > UNITS**2
    assert of.columns == ("features", "target", "offset")
