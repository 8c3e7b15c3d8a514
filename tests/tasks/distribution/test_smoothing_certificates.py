"""Large curves are solved to the last digits, and the certificates that say so cannot be fooled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from fedassay.tasks.distribution.smoothing import curves as smoothing
from fedassay.tasks.distribution.smoothing import least_absolute as smoothing_flow
from fedassay.tasks.distribution.smoothing import least_absolute as smoothing_l1
from fedassay.tasks.distribution.smoothing import least_squares as smoothing_l2
from fedassay.tasks.distribution.smoothing.curves import Problem, across, corrected
from fedassay.tasks.distribution.smoothing.dyadic import Increments
from smoothing_certificates import isotonic, isotonic_residual, l1, l1_residual, l2, l2_residual

EXACT = 1e-12
ROWS = 100_000


def path_noise(rng: np.random.Generator, height: int, epsilon: float) -> np.ndarray:
    """The noise of the paper's mechanism for add-remove neighbours (Theorem 3)."""
    count, scale = 1 << height, ((height + 2) // 2) / epsilon
    levels = tuple(rng.laplace(0, scale, count >> level) for level in range(height + 1))
    return corrected(np.zeros(count), levels)


def noisy(mass: Callable[[np.random.Generator, int], np.ndarray], epsilon: float):
    def curve(rng: np.random.Generator, height: int) -> np.ndarray:
        return np.cumsum(mass(rng, 1 << height)) + path_noise(rng, height, epsilon)

    return curve


def even(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.multinomial(ROWS, np.full(count, 1 / count))


def atoms(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.bincount(rng.choice(rng.integers(0, count, 8), ROWS), minlength=count)


def nobody(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.zeros(count)


def of_shape(shape: Callable[[np.ndarray], np.ndarray]):
    """A fixed shape on the positions in (0, 1), with a little noise."""

    def curve(rng: np.random.Generator, height: int) -> np.ndarray:
        position = (np.arange(1 << height) + rng.random()) / (1 << height)
        return ROWS * shape(position) * (1 + rng.choice([0.0, 1e-9]) * rng.normal(size=1 << height))

    return curve


FAMILIES = {
    "even, ε = 0.1": noisy(even, 0.1),
    "even, ε = 1": noisy(even, 1.0),
    "atoms, ε = 0.1": noisy(atoms, 0.1),
    "atoms, ε = 1": noisy(atoms, 1.0),
    "noise only": noisy(nobody, 0.01),
    "white": lambda rng, height: ROWS * rng.normal(size=1 << height),
    "walk": lambda rng, height: ROWS * np.cumsum(rng.normal(size=1 << height)),
    "heavy": lambda rng, height: ROWS * rng.standard_cauchy(1 << height),
    "ties": lambda rng, height: ROWS * rng.integers(-1, 3, 1 << height).astype(float),
    "falling": of_shape(lambda t: 1 - t),
    "steps down": of_shape(lambda t: 1 - np.floor(8 * t) / 8),
    "teeth": of_shape(lambda t: 1 - (512 * t) % 1),
    "chirp": of_shape(lambda t: np.sin(2e4 * t * t)),
    "root": of_shape(lambda t: -np.sqrt(t)),
    "pole": of_shape(lambda t: 1 / (t - np.sqrt(0.5))),
    "half": of_shape(lambda t: np.where(t < 0.5, 1.0, 0.0)),
}
"""Noisy distribution functions, random curves, and curves that are as far from one as can be."""


def residuals(seed: int, height: int) -> tuple[float, float, float]:
    rng = np.random.default_rng(seed)
    curve = list(FAMILIES.values())[seed % len(FAMILIES)](rng, height)
    top = float(rng.choice([1.0, ROWS, 100 * ROWS])) if rng.random() < 0.5 else float(ROWS)
    points = (
        None if rng.random() < 0.7 else np.flatnonzero(rng.random(1 << height) < 10 ** rng.uniform(-3, 0))
    )
    if points is not None and not len(points):
        points = np.array([int(rng.integers(1 << height))])
    return (
        l2(curve, top=top, points=points).residual,
        l1(curve, top=top, points=points).residual,
        isotonic(curve, top=top).residual,
    )


@pytest.mark.parametrize("seed", range(16))
def test_curves_of_32768_values_are_solved_exactly(seed: int) -> None:
    assert max(residuals(seed, height=15)) <= EXACT


@pytest.mark.full
def test_200_curves_of_32768_values_are_solved_exactly(verify) -> None:
    worst = np.max([residuals(seed, height=15) for seed in range(200)], axis=0)
    for name, value in zip(
        ("l2, KKT residual", "l1, duality gap", "isotonic, KKT residual"), worst, strict=True
    ):
        verify(f"smoothing {name}, 200 curves of 32,768 values <= 1e-12", f"{value:.1e}")
    assert worst.max() <= EXACT


@pytest.mark.full
def test_a_million_values_are_solved_exactly(verify) -> None:
    worst = np.max([residuals(seed, height=20) for seed in range(len(FAMILIES))], axis=0).max()
    verify("smoothing, all residuals, 2^20 values, every kind of curve <= 1e-12", f"{worst:.1e}")
    assert worst <= EXACT


@pytest.mark.parametrize("family", FAMILIES)
def test_few_rounds_are_enough(family: str) -> None:
    """The bound is the number of vertices; a solver that freed them one by one would need thousands."""
    curve = FAMILIES[family](np.random.default_rng(0), 13)
    *_, rounds = smoothing_l2.least_squares(Increments.of(curve / ROWS, 1.0, None))
    assert rounds <= 25


# --- what is wrong is said to be wrong ------------------------------------------------------------------


def example(seed: int = 0) -> np.ndarray:
    """A curve of 256 values with much to smooth."""
    return noisy(atoms, 0.01)(np.random.default_rng(seed), 8)


def l2_parts(curve: np.ndarray) -> dict:
    """What `l2` hands to its certificate."""
    correction, multipliers = Problem(curve=curve, top=ROWS, points=None, scale=1.0).l2_solution()
    return {"correction": correction, "multipliers": multipliers}


def l1_parts(curve: np.ndarray) -> dict:
    correction, multipliers = Problem(curve=curve, top=ROWS, points=None, scale=1.0).l1_solution()
    return {"correction": correction, "multipliers": multipliers}


def judged(judge, curve: np.ndarray, parts: dict) -> float:
    raw = corrected(curve, parts["correction"])
    return judge(curve, float(ROWS), None, raw=raw, smoothed=raw, **parts)


def with_level(correction: tuple[np.ndarray, ...], level: int, nodes: np.ndarray) -> tuple[np.ndarray, ...]:
    return (*correction[:level], nodes, *correction[level + 1 :])


def test_an_l2_solution_that_is_off_is_rejected() -> None:
    curve = example()
    right = l2_parts(curve)
    assert judged(l2_residual, curve, right) <= EXACT
    for level in range(9):
        nodes = right["correction"][level].copy()
        nodes[0] += 1e-6 * ROWS
        off = right | {"correction": with_level(right["correction"], level, nodes)}
        assert judged(l2_residual, curve, off) > 1e-7
    shifted = right | {"correction": tuple(np.roll(level, 1) for level in right["correction"])}
    assert judged(l2_residual, curve, shifted) > 1e-4
    assert judged(l2_residual, curve, right | {"multipliers": right["multipliers"] + 1.0}) > 1e-7
    nothing = {"correction": across(np.zeros(257), None, 256), "multipliers": np.zeros(257)}
    assert judged(l2_residual, curve, nothing) > 1e-4


def test_an_l1_solution_that_is_off_is_rejected() -> None:
    curve = example()
    right = l1_parts(curve)
    assert judged(l1_residual, curve, right) <= EXACT
    # Feasible but not optimal: the closest curve in squares, reached by moving every value by itself.
    moves = isotonic(curve, top=ROWS).curve - curve
    apart = (moves, *(np.zeros_like(level) for level in right["correction"][1:]))
    assert judged(l1_residual, curve, right | {"correction": apart}) > 1e-3
    # Optimal value, but not feasible.
    smaller = tuple(0.9 * level for level in right["correction"])
    assert judged(l1_residual, curve, right | {"correction": smaller}) > 1e-4
    # A witness that is not feasible for the dual proves nothing, however good its value.
    for wrong in (right["multipliers"] * 2, right["multipliers"] - 1):
        assert judged(l1_residual, curve, right | {"multipliers": wrong}) == float("inf")
    weaker = np.minimum(right["multipliers"], right["multipliers"].max() - 1)
    assert judged(l1_residual, curve, right | {"multipliers": weaker}) > 1e-6


def test_an_isotonic_solution_that_is_off_is_rejected() -> None:
    curve = example()
    assert isotonic_residual(curve, ROWS, smoothed=isotonic(curve, top=ROWS).curve) <= EXACT
    for wrong in (np.maximum.accumulate(curve), np.minimum.accumulate(curve[::-1])[::-1]):
        within = np.clip(wrong, 0, ROWS)
        assert isotonic_residual(curve, ROWS, smoothed=within) > 1e-5


def test_a_solver_that_stops_early_gives_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_round(increments: Increments) -> tuple[np.ndarray, float, int]:
        """The λ of the first round: what `least_squares` goes on from."""
        levels, free, count = smoothing_l2._levels(increments), increments.steps < 0, len(increments)
        levels[0].eliminate_between_edges(free[count // 2 :])
        for level in levels[1:]:
            level.eliminate(free[level.n : 2 * level.n])
        lefts, rights = np.zeros(count), np.zeros(count)
        for level in reversed(levels):
            level.substitute(lefts, rights)
        return lefts, 0.0, 1

    monkeypatch.setattr(smoothing, "least_squares", one_round)
    assert l2(example(), top=ROWS).residual > 1e-6


def test_a_solver_with_a_wrong_conductance_gives_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    right = smoothing_l2._Level.eliminate_between_edges

    def half_an_edge(level, free):
        right(level, free)
        level.whole.between[:] -= 0.5

    monkeypatch.setattr(smoothing_l2._Level, "eliminate_between_edges", half_an_edge)
    assert l2(example(), top=ROWS).residual > 1e-6


def test_a_programme_with_a_short_table_gives_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row less, and T is extended from where λ ≥ 0 still matters."""
    right = smoothing_l1._Tables.rows

    def shorter(tables, half, rows):
        return right(dataclasses.replace(tables, cost=tables.cost[:2]), half, rows)

    monkeypatch.setattr(smoothing_l1._Tables, "rows", shorter)
    assert max(l1(example(seed=seed), top=ROWS).residual for seed in range(5)) > 1e-6


def test_a_flow_that_ignores_a_bound_gives_itself_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing_flow, "_nearest", lambda target, least, most: np.minimum(most, target))
    assert l1(example(), top=ROWS).residual > 1e-6
