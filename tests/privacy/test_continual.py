"""Totals over time: what hides an event, exact variances, and a state that survives a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from continual_runs import NewNoiseEachStep, build, response, run
from fedassay.errors import UsageError
from fedassay.estimation.least_squares import LeastSquares
from fedassay.estimation.tree import Tree as Levels
from fedassay.privacy.accounting import GAUSSIAN, event, spent
from fedassay.privacy.continual import ContinualCount, Observation
from fedassay.privacy.continual_noise import (
    LONGEST,
    LONGEST_FACTORISED,
    ContinualMechanism,
    Factorised,
    PathMechanism,
    TreeMechanism,
    candidates,
)
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Sensitivity
from fedassay.summaries.distribution.path import ValuePath, steepest
from fedassay.summaries.distribution.roots import ValueRoots, column_norms

PURE, APPROXIMATE = Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-6)
HORIZONS = [1, 2, 3, 4, 5, 7, 8, 11, 16]


def every(horizon: int) -> list[ContinualMechanism]:
    return list(candidates(horizon=horizon, budget=APPROXIMATE, unit_events=1))


# --- what hides an event --------------------------------------------------------------------------------


def fewest_draws(M: np.ndarray, change: np.ndarray) -> int:
    """The least Σ|w| of whole numbers w with M·w = change: by integer programming."""
    matrix = np.concatenate([M, -M], axis=1)
    found = milp(
        np.ones(matrix.shape[1]),
        integrality=np.ones(matrix.shape[1]),
        constraints=LinearConstraint(matrix, change, change),
    )
    return round(found.fun) if found.success else 10**9


def worst_suffix(mechanism: ContinualMechanism) -> int:
    """Over all steps at which an event can be."""
    M = response(mechanism)
    suffixes = np.tri(mechanism.horizon).T
    return max(fewest_draws(M, suffix) for suffix in suffixes)


class OneLess(PathMechanism):
    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(l1=super().sensitivity.l1 - 1, l2=super().sensitivity.l2)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_path_hides_an_event(horizon: int) -> None:
    stated = build(PathMechanism, horizon).sensitivity.l1
    needed = worst_suffix(build(PathMechanism, horizon))
    assert needed <= stated
    if horizon.bit_count() == 1 and horizon > 1:
        levels = horizon.bit_length()
        assert needed == stated == -(-levels // 2)
        assert needed > build(OneLess, horizon).sensitivity.l1
    if horizon > 4:
        assert worst_suffix(build(NewNoiseEachStep, horizon)) > stated


def blocks(tree: TreeMechanism) -> list[tuple[int, int]]:
    """First step and width of every block that is closed, in the order of closing, narrow ones first."""
    return [
        (step - width + 1, width)
        for step in range(1, tree.horizon + 1)
        for width in tree.widths
        if step % width == 0
    ]


def hides(mechanism: ContinualMechanism, shifts: np.ndarray) -> bool:
    """Whether these shifts of the draws, one row per step, undo an event at that step, and are not too long."""
    undone = np.allclose(response(mechanism) @ shifts.T, np.tri(mechanism.horizon), atol=1e-9)
    stated = mechanism.sensitivity
    lengths = np.linalg.norm(shifts, axis=1)
    return undone and np.abs(shifts).sum(axis=1).max() <= stated.l1 and lengths.max() <= stated.l2 + 1e-9


class FewerLevels(TreeMechanism):
    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(self.unit, multipliers=(1,) * (len(self.widths) - 1))


@pytest.mark.parametrize("fan_out", [2, 3, 4, 16])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_tree_hides_an_event(horizon: int, fan_out: int) -> None:
    tree = build(TreeMechanism, horizon, fan_out=fan_out)
    shifts = np.array(
        [[first <= t < first + width for first, width in blocks(tree)] for t in range(1, horizon + 1)],
        dtype=int,
    )
    assert hides(tree, shifts)
    assert shifts.sum(axis=1).max() == tree.sensitivity.l1
    assert not hides(build(FewerLevels, horizon, fan_out=fan_out), shifts)


class ShortColumn(Factorised):
    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(l1=super().sensitivity.l1, l2=0.99 * super().sensitivity.l2)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_factorisation_hides_an_event(horizon: int) -> None:
    roots = ValueRoots(lower=0, upper=1, points=max(2, 1 << (horizon - 1).bit_length()))
    columns = roots.of_counts(np.eye(roots.points, dtype=np.int64))[:horizon, :horizon]
    assert hides(build(Factorised, horizon), columns)
    assert np.abs(columns).sum(axis=1).max() == build(Factorised, horizon).sensitivity.l1
    assert not hides(build(ShortColumn, horizon), columns)


@pytest.mark.parametrize("mechanism", every(16), ids=str)
def test_more_events_per_unit_need_as_much_more(mechanism: ContinualMechanism) -> None:
    more = build(
        type(mechanism),
        16,
        APPROXIMATE,
        3,
        **{k: v for k, v in vars(mechanism).items() if k in ("fan_out", "multiplier")},
    )
    assert more.sensitivity.l1 == pytest.approx(3 * mechanism.sensitivity.l1)
    assert more.sensitivity.l2 == pytest.approx(3 * mechanism.sensitivity.l2)


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
@pytest.mark.parametrize("mechanism", ["path", "tree", "factorised"])
def test_the_whole_stream_spends_the_budget(mechanism: str, budget: Budget) -> None:
    monitor = ContinualCount.begin(horizon=100, budget=budget, mechanism=mechanism)
    assert (
        0.9 * budget.epsilon
        <= spent([event(monitor.noise, monitor.sensitivity)], budget.delta)
        <= budget.epsilon
    )


# --- totals and variances -------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", HORIZONS)
def test_without_noise_totals_are_exact_and_variances_those_of_the_draws(horizon: int) -> None:
    counts = np.random.default_rng(horizon).integers(0, 2**32, horizon, endpoint=True)
    for mechanism in every(horizon):
        totals, _ = run(mechanism, counts.tolist(), [])
        assert np.allclose(totals, np.cumsum(counts), rtol=1e-12, atol=0)
        stated = mechanism.factors(np.arange(1, horizon + 1))
        assert np.allclose((response(mechanism) ** 2).sum(axis=1), stated, rtol=1e-9)


def test_a_path_is_the_release_of_a_distribution() -> None:
    """Over steps instead of points: the same draws give the same numbers."""
    rng = np.random.default_rng(1)
    counts, batch = rng.integers(0, 9, 16), ValuePath(lower=0, upper=1, points=16, multiplier=4)
    draws = rng.integers(-50, 50, batch.draws)
    released = batch.of_counts(counts) + batch.spread(draws)
    path = build(PathMechanism, 16, multiplier=4)
    asked = run(path, counts.tolist(), [])[1]
    nodes = [node for step in range(1, 17) for node in batch.draws_of(step - 1)[: asked.count(step)]]
    assert sorted(nodes) == list(range(batch.draws))  # each node is drawn once
    assert (run(path, counts.tolist(), draws[nodes].tolist())[0] == released / 4).all()


def test_a_factorisation_is_the_release_of_a_distribution() -> None:
    rng = np.random.default_rng(2)
    counts, draws = rng.integers(0, 9, (2, 64))
    roots = ValueRoots(lower=0, upper=1, points=64)
    totals, _ = run(build(Factorised, 64), counts.tolist(), (1000 * draws).tolist())
    assert np.allclose(totals, roots.sums(roots.of_counts(counts) + 1000 * draws), rtol=1e-9)


@pytest.mark.parametrize(("horizon", "fan_out"), [(16, 2), (13, 2), (27, 3), (30, 4), (20, 20)])
def test_a_tree_is_least_squares_over_the_closed_blocks(horizon: int, fan_out: int) -> None:
    rng = np.random.default_rng(3)
    tree = build(TreeMechanism, horizon, fan_out=fan_out)
    closed = blocks(tree)
    draws, counts = rng.integers(-50, 50, len(closed)), rng.integers(0, 20, horizon)
    totals, _ = run(tree, counts.tolist(), draws.tolist())
    for step in range(1, horizon + 1):
        seen = [k for k, (first, width) in enumerate(closed) if first + width - 1 <= step]
        H = np.array(
            [[closed[k][0] <= t < sum(closed[k]) for t in range(1, step + 1)] for k in seen], dtype=float
        )
        noisy = H @ counts[:step] + draws[seen]
        assert totals[step - 1] == pytest.approx(np.linalg.lstsq(H, noisy, rcond=None)[0].sum())


def test_the_last_total_of_a_tree_is_that_of_the_whole_tree() -> None:
    """At the end nothing is in the future: the variance is the one of `LeastSquares`."""
    tree = build(TreeMechanism, 64, fan_out=4)
    fit = LeastSquares(tree=Levels(leaves=64, widths=tree.widths), variances=(1.0,) * 3)
    assert tree.factors(np.array([64]))[0] == pytest.approx(fit.total_variance)


def test_stated_variances() -> None:
    """1,024 steps, epsilon 1: the paper's path costs 3.4 times as much as the best tree."""

    def mean(mechanism: str, budget: Budget) -> float:
        monitor = ContinualCount.begin(horizon=1024, budget=budget, mechanism=mechanism)
        return float(np.mean([monitor.variance(step) for step in range(1, 1025)]))

    assert mean("path", PURE) == pytest.approx(11 * 2 * 36, rel=0.005)
    assert mean("tree", PURE) <= 0.3 * mean("path", PURE)
    assert mean("factorised", APPROXIMATE) <= 0.5 * mean("path", APPROXIMATE)
    factorised = ContinualCount.begin(horizon=1024, budget=APPROXIMATE, mechanism="factorised")
    variance_of_one = factorised.noise.variance / column_norms(1024, 256)[1]  # for a move of length 1
    assert mean("path", APPROXIMATE) == pytest.approx(11 * steepest(10) * variance_of_one, rel=0.01)


def test_the_page_states_the_variances_as_they_are() -> None:
    page = FilePath(__file__).parents[2] / "docs" / "explanation" / "continual-counts.md"
    lines = [line.replace("*", "").split("|")[1:-1] for line in page.read_text().splitlines()]
    rows = [[cell.strip() for cell in line] for line in lines if line and line[0].strip() in ("0", "10⁻⁶")]
    assert len(rows) == 10
    for delta, steps, path, tree, factorised, _ in rows:
        horizon = int(steps.replace(",", ""))
        if horizon > 1024:
            continue
        for name, cell in (("path", path), ("tree", tree), ("factorised", factorised)):
            budget = PURE if delta == "0" else APPROXIMATE
            monitor = ContinualCount.begin(horizon=horizon, budget=budget, mechanism=name)
            variances = monitor.noise.variance * monitor.mechanism.factors(np.arange(1, horizon + 1))
            fan_out = (
                f" ({monitor.mechanism.fan_out})" if isinstance(monitor.mechanism, TreeMechanism) else ""
            )
            assert cell == f"{variances.mean():.0f} / {variances.max():.0f}{fan_out}"


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
@pytest.mark.parametrize("horizon", [1, 2, 30, 1024])
def test_auto_is_the_best_of_those_that_survive_reactions(horizon: int, budget: Budget) -> None:
    steps = np.arange(1, horizon + 1)
    means = {
        name: ContinualCount.begin(horizon=horizon, budget=budget, mechanism=name)
        for name in ("path", "tree", "factorised", "auto")
    }
    variance = {name: m.noise.variance * m.mechanism.factors(steps).mean() for name, m in means.items()}
    able = [name for name, m in means.items() if m.mechanism.survives_reactions]
    assert variance["auto"] == min(variance[name] for name in able)
    assert "auto" in able


def test_auto_does_not_take_a_path_with_gaussian_noise() -> None:
    """Where it would have the least variance: many steps, delta above 0."""
    horizon = 4 * LONGEST_FACTORISED
    path = ContinualCount.begin(horizon=horizon, budget=APPROXIMATE, mechanism="path")
    auto = ContinualCount.begin(horizon=horizon, budget=APPROXIMATE)
    assert path.noise.law == GAUSSIAN
    assert auto.mechanism.name == "tree"
    assert path.variance(1) < np.mean([auto.variance(step) for step in range(1, horizon, 997)])


# --- one stream, observed -------------------------------------------------------------------------------


def stream(monitor: ContinualCount, counts: list[int], source: SimulatedRandomness) -> list[Observation]:
    return [monitor.observe(count, source) for count in counts]


NAMES = ["path", "tree", "factorised"]


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
@pytest.mark.parametrize("name", NAMES)
def test_a_restart_after_every_step_changes_nothing(name: str, budget: Budget) -> None:
    counts = np.random.default_rng(4).integers(0, 50, 40).tolist()
    straight = ContinualCount.begin(horizon=40, budget=budget, mechanism=name, unit_events=2)
    expected = stream(straight, counts, SimulatedRandomness(5))
    source, again = (
        SimulatedRandomness(5),
        ContinualCount.begin(horizon=40, budget=budget, mechanism=name, unit_events=2),
    )
    for step, count in enumerate(counts):
        assert again.observe(count, source) == expected[step]
        again = ContinualCount.from_dict(json.loads(json.dumps(again.to_dict())))
        assert again.latest == expected[step]
        assert again.noise == straight.noise
    assert again.to_dict() == straight.to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_is_not_changed_by_going_on(name: str) -> None:
    monitor = ContinualCount.begin(horizon=8, budget=PURE, mechanism=name)
    stream(monitor, [3, 1, 4], SimulatedRandomness(6))
    saved = monitor.to_dict()
    frozen = json.dumps(saved)
    one, two = (ContinualCount.from_dict(saved) for _ in range(2))
    assert stream(one, [1, 5], SimulatedRandomness(7)) == stream(two, [1, 5], SimulatedRandomness(7))
    assert json.dumps(saved) == frozen


@pytest.mark.parametrize(
    "mechanism",
    [build(PathMechanism, LONGEST), build(TreeMechanism, LONGEST), build(TreeMechanism, LONGEST, fan_out=16)],
)
def test_memory_does_not_grow_with_the_steps(mechanism: ContinualMechanism) -> None:
    state = mechanism.start()
    for step in range(1, 3000):
        _, state = mechanism.advance(step, state, 2**32, lambda size: [10**6 + k for k in range(size)])
    assert len(json.dumps(state)) < 1000


def test_the_horizon_is_the_end() -> None:
    monitor = ContinualCount.begin(horizon=3, budget=PURE)
    assert monitor.latest is None
    assert [one.step for one in stream(monitor, [1, 2, 3], SimulatedRandomness(8))] == [1, 2, 3]
    before = monitor.to_dict()
    with pytest.raises(UsageError, match="step: got 4, expected at most 3, the horizon"):
        monitor.observe(1, SecureRandomness())
    assert monitor.to_dict() == before


@pytest.mark.parametrize("count", [-1, 1.0, True, "3", 2**32 + 1, None])
def test_other_counts_are_refused_and_leave_no_trace(count: object) -> None:
    monitor = ContinualCount.begin(horizon=3, budget=PURE)
    with pytest.raises(UsageError, match="count: got"):
        monitor.observe(count, SecureRandomness())  # type: ignore[arg-type]
    assert monitor.latest is None
    assert monitor.observe(np.int64(7), SecureRandomness()).step == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"horizon": 0}, "horizon: got 0, expected a number of steps from 1"),
        ({"horizon": LONGEST + 1}, "horizon: got"),
        ({"horizon": 3.0}, "horizon: got"),
        ({"unit_events": 0}, "events of a unit: got 0"),
        ({"mechanism": "magic"}, "mechanism: got 'magic' for 8 steps"),
        ({"mechanism": "factorised", "horizon": LONGEST_FACTORISED + 1}, "for 16,385 steps, expected"),
    ],
)
def test_bad_beginnings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        ContinualCount.begin(**{"horizon": 8, "budget": PURE, **fields})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved: saved.clear(),
        lambda saved: saved.update(version=2),
        lambda saved: saved.update(scale=0.5 * saved["scale"]),
        lambda saved: saved.update(mechanism="magic"),
        lambda saved: saved.update(mechanism="factorised"),
        lambda saved: saved.update(state=None),
        lambda saved: saved.update(latest={}),
        lambda saved: saved["parameters"].update(horizon=0),
        lambda saved: saved["parameters"].update(horizon=10**9),
        lambda saved: saved["parameters"].update(fan_out=1),
        lambda saved: saved["parameters"].update(horizon=1000),
        lambda saved: saved["parameters"]["budget"].update(epsilon=2.0),
        lambda saved: saved["state"].pop("open"),
        lambda saved: saved["state"]["open"].append(0),
        lambda saved: saved["state"].update(open=["0"] * len(saved["state"]["open"])),
    ],
)
def test_damaged_states_are_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    monitor = ContinualCount.begin(horizon=8, budget=PURE, mechanism="tree")
    stream(monitor, [1, 2], SimulatedRandomness(9))
    saved = json.loads(json.dumps(monitor.to_dict()))
    ContinualCount.from_dict(json.loads(json.dumps(saved)))
    damage(saved)
    with pytest.raises(UsageError):
        ContinualCount.from_dict(saved)


@pytest.mark.parametrize("name", NAMES)
def test_totals_that_never_fall(name: str) -> None:
    counts = [0] * 30
    plain = stream(
        ContinualCount.begin(horizon=30, budget=PURE, mechanism=name), counts, SimulatedRandomness(10)
    )
    rising = ContinualCount.begin(horizon=30, budget=PURE, mechanism=name, non_decreasing=True)
    source, totals = SimulatedRandomness(10), []
    for count in counts:
        totals.append(rising.observe(count, source).total)
        rising = ContinualCount.from_dict(rising.to_dict())
    assert totals == np.maximum.accumulate([0.0, *(one.total for one in plain)])[1:].tolist()
    assert [one.total for one in plain] != totals


def test_a_seed_is_remembered() -> None:
    monitor = ContinualCount.begin(horizon=4, budget=PURE)
    assert not monitor.observe(1, SecureRandomness()).simulated
    assert monitor.observe(1, SimulatedRandomness(1)).simulated
    monitor = ContinualCount.from_dict(monitor.to_dict())
    assert monitor.observe(1, SecureRandomness()).simulated


def test_nothing_secret_is_printed() -> None:
    monitor = ContinualCount.begin(horizon=4, budget=PURE)
    monitor.observe(987_654_321, SecureRandomness())
    assert repr(monitor) == str(monitor) == "ContinualCount(tree, step 1 of 4)"
