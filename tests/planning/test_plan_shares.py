"""Shares of a budget: against brute force, in every atom, and what to change where they do not fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.planning.shares import (
    CLOSE,
    SMALLEST_SHARE,
    RatioCurve,
    Uses,
    best_shares,
    cheapest_change,
    equal_shares,
    load,
)
from fedassay.protocol.vocabulary import Part

ALL = Part.ALL.atoms
FIRST = (Part.FIRST_FIT, Part.HELD_OUT)
SECOND = (Part.SECOND_FIT, Part.HELD_OUT)


def error(floor: float, noise: float) -> Callable[[float], float]:
    """Sampling and noise, as they add up: what a share does to a width."""
    return lambda share: math.hypot(floor, noise / share)


CASES: Mapping[str, tuple[Mapping[str, Callable[[float], float]], Uses]] = {
    "all rows": (
        {"a": error(0.3, 0.1), "b": error(0.1, 0.4), "c": error(0.5, 0.01)},
        {"a": ALL, "b": ALL, "c": ALL},
    ),
    "parts": (
        {"evaluate": error(0.2, 0.1), "calibrate": error(0.1, 0.3), "conformal": error(0.0, 0.05)},
        {"evaluate": ALL, "calibrate": FIRST, "conformal": SECOND},
    ),
    "different rows": (
        {"a": error(0.0, 0.2), "b": error(0.0, 0.5)},
        {"a": (Part.FIRST_FIT,), "b": (Part.SECOND_FIT,)},
    ),
    "none below a third": (
        {"a": lambda share: 0.1 / share if share > 0.3 else math.inf, "b": error(0.1, 0.4)},
        {"a": ALL, "b": ALL},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_split_on_a_grid_is_clearly_better(name: str) -> None:
    errors, uses = CASES[name]
    shares = best_shares({task: RatioCurve.of(one) for task, one in errors.items()}, uses)
    assert max(load(shares, uses).values()) <= 1 + 1e-12
    worst = max(one(shares[task]) for task, one in errors.items())
    grid = np.arange(0.02, 1.001, 0.02)
    best = min(
        max(one(share) for one, share in zip(errors.values(), split, strict=True))
        for split in itertools.product(grid, repeat=len(errors))
        if max(load(dict(zip(errors, split, strict=True)), uses).values()) <= 1 + 1e-9
    )
    assert worst <= best * CLOSE * 1.02  # of curves that are interpolated


def test_brute_force_would_notice_equal_shares() -> None:
    """The same comparison rejects a split that does not look at errors."""
    errors, uses = CASES["parts"]
    equal, best = equal_shares(uses), best_shares({n: RatioCurve.of(one) for n, one in errors.items()}, uses)
    worst = [max(one(shares[task]) for task, one in errors.items()) for shares in (equal, best)]
    assert worst[0] > worst[1] * CLOSE * 1.02


def test_the_whole_budget_is_used() -> None:
    """A task that needs hardly anything leaves the rest to the others, also if they do not need it either."""
    shares = best_shares(
        {"a": RatioCurve.of(error(1.0, 0.0)), "b": RatioCurve.of(error(0.1, 0.0))}, {"a": ALL, "b": ALL}
    )
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share >= SMALLEST_SHARE for share in shares.values())


def test_tasks_without_hope_do_not_take_from_the_others_more_than_their_part() -> None:
    curves = {"a": RatioCurve.of(lambda share: math.inf), "b": RatioCurve.of(error(0.1, 0.1))}
    shares = best_shares(curves, {"a": ALL, "b": ALL})
    assert shares == {"a": 0.5, "b": 0.5}
    assert best_shares({"a": curves["a"]}, {"a": ALL}) == {"a": 1.0}


def test_what_no_split_can_do_is_shared_in_proportion() -> None:
    """Both need more than half for any value at all."""
    late = RatioCurve.of(lambda share: 0.1 if share > 0.6 else math.inf)
    shares = best_shares({"a": late, "b": late}, {"a": ALL, "b": ALL})
    assert shares == {"a": 0.5, "b": 0.5}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
    st.lists(st.sampled_from([ALL, FIRST, SECOND]), min_size=6, max_size=6),
)
def test_shares_always_fit(errors: list[tuple[float, float]], atoms: list[tuple[Part, ...]]) -> None:
    names = [f"task-{place}" for place in range(len(errors))]
    uses = dict(zip(names, atoms, strict=False))
    curves = {name: RatioCurve.of(error(*one)) for name, one in zip(names, errors, strict=True)}
    for shares in (best_shares(curves, uses), equal_shares(uses)):
        assert all(0 < share <= 1 for share in shares.values())
        assert max(load(shares, uses).values()) == pytest.approx(1, abs=1e-9)
        assert cheapest_change(shares, uses) == ""


def test_a_curve_meets_what_was_predicted() -> None:
    curve = RatioCurve.of(error(0.1, 0.05))
    for share in (SMALLEST_SHARE, 0.1, 0.33, 1.0):
        assert curve.at(share) == pytest.approx(error(0.1, 0.05)(share), rel=0.02)
        assert curve.smallest_share(curve.at(share)) == pytest.approx(share, rel=0.02)
    assert curve.smallest_share(math.inf) == SMALLEST_SHARE


def test_the_cheapest_change_fits() -> None:
    uses = {"evaluate": ALL, "calibrate": FIRST, "conformal": SECOND}
    shares = {"evaluate": 0.5, "calibrate": 0.4, "conformal": 0.3}
    assert cheapest_change(shares, uses) == "lower the share of evaluate from 0.5 to 0.3"
    assert cheapest_change({**shares, "evaluate": 0.3}, uses) == ""


def test_where_one_share_is_not_enough_all_are_scaled() -> None:
    uses = {"a": ALL, "b": ALL, "c": ALL}
    text = cheapest_change({"a": 0.6, "b": 0.6, "c": 0.6}, uses)
    assert text == "multiply all shares by 0.555: a 0.333, b 0.333, c 0.333"
    # Two atoms are too full, and no one task is in both.
    apart = {"a": (Part.FIRST_FIT,), "b": (Part.FIRST_FIT,), "c": (Part.SECOND_FIT,), "d": (Part.SECOND_FIT,)}
    assert cheapest_change(dict.fromkeys(apart, 0.6), apart).startswith("multiply all shares by 0.833: ")
