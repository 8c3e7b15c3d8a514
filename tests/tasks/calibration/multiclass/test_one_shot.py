"""One release gives the pooled temperature without noise; under noise, one within the grid and the budget."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformal_drive import answer, setting_of
from fedassay.data.federation import load
from fedassay.data.tables import ArrayRows
from fedassay.errors import BudgetExceeded, UsageError
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import Charge, MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    TOTAL_BITS,
    Budget,
    Part,
    Protection,
    Released,
    Setting,
    Step,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.summaries.multiclass.loss_curves import CLIENT, NONE, ROW, LossCurves
from fedassay.summaries.multiclass.losses import loss_sums
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit, fit_exact
from fedassay.tasks.calibration.multiclass.one_shot import EXACT_GRID, fit_one_shot
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from flows import finished
from multiclass_rows import Columns, dirichlet, drawn
from simulated_clients import clients_of

BEYOND = "the best temperature is beyond the grid"
LOWEST, HIGHEST = EXACT_GRID[0], EXACT_GRID[-1]


def driven(flow: Any, setting: Setting, clients: Sequence[Columns], seed: int = 0) -> Fit:
    return finished(flow, lambda query, _: answer(query, setting, clients, seed))[0]  # type: ignore[no-any-return]


def fitted(
    clients: Sequence[Columns],
    setting: Setting | None = None,
    *,
    expected: float | None = None,
    seed: int = 0,
) -> Fit:
    setting = setting or setting_of(clients=len(clients))
    flow = fit_one_shot(clients[0]["logits"].shape[1], setting, clients=expected or float(len(clients)))
    return driven(flow, setting, clients, seed)


def inverse(fit: Fit) -> float:
    assert isinstance(fit.map, Temperature)
    return fit.map.inverse_temperature


def exact(clients: Sequence[Columns]) -> float:
    flow = fit_exact("temperature", clients[0]["logits"].shape[1])
    fit = driven(flow, setting_of(clients=len(clients)), clients)
    assert fit.converged
    return inverse(fit)


# --- without noise --------------------------------------------------------------------------------------


def with_outliers() -> Columns:
    columns = drawn(1_000, 4, seed=7)
    columns["logits"][:100] *= 1e4  # right, and as sure as can be
    columns["class"][:100] = columns["logits"][:100].argmax(axis=1)
    columns["logits"][100:400] *= 0.05
    columns["logits"][400:405] *= 10
    return columns


DATA = {
    "usual": drawn(1_500, 5),
    "two classes": drawn(1_000, 2, seed=1, scale=1.0),
    "many classes": drawn(800, 40, seed=2, scale=1.5),
    "sure": drawn(1_000, 5, seed=3, scale=10.0),
    "unsure": drawn(3_000, 5, seed=1, scale=0.15),
    "much too unsure": {**drawn(1_000, 4, seed=4), "logits": 0.05 * drawn(1_000, 4, seed=4)["logits"]},
    "outliers": with_outliers(),
    "few rows": drawn(12, 3, seed=6),
    "shifted": {**drawn(500, 4), "logits": drawn(500, 4)["logits"] + 1e4},
}


@pytest.mark.parametrize("name", DATA)
def test_without_noise_it_is_the_pooled_temperature(name: str) -> None:
    clients = dirichlet(DATA[name], 30, 0.1)
    found = fitted(clients)
    assert inverse(found) == pytest.approx(exact([DATA[name]]), abs=1e-6)
    assert found.converged
    assert (found.rows, found.clients, found.sums) == (len(DATA[name]["class"]), 30, 1)
    assert LOWEST < inverse(found) < HIGHEST
    assert not found.noise


def test_a_secure_sum_gives_the_same() -> None:
    clients = dirichlet(DATA["usual"], 30, 0.1)
    assert fitted(clients, setting_of(SecureSum(), clients=30)) == fitted(clients)


def test_the_grid_alone_would_not_do() -> None:
    """That the test above can fail: the lowest point of the grid, or a parabola through it, is far off."""
    values = [
        loss_sums("temperature", DATA["usual"]["logits"], DATA["usual"]["class"], [s], order=1).loss
        for s in EXACT_GRID
    ]
    place, t = int(np.argmin(values)), np.log(EXACT_GRID)
    parabola = np.polyfit(t[place - 1 : place + 2], values[place - 1 : place + 2], 2)
    wanted = exact([DATA["usual"]])
    assert abs(EXACT_GRID[place] - wanted) > 1e-3
    assert abs(math.exp(-parabola[1] / 2 / parabola[0]) - wanted) > 1e-3


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        ({**drawn(500, 4), "logits": 100 * drawn(500, 4)["logits"]}, LOWEST),
        ({**drawn(500, 4), "logits": -drawn(500, 4)["logits"]}, LOWEST),
        ({"class": np.arange(60) % 3, "logits": 0.1 * np.eye(3)[np.arange(60) % 3]}, HIGHEST),
    ],
    ids=["too sure", "the wrong way round", "separable"],
)
def test_beyond_the_grid_it_says_so(columns: Columns, end: float) -> None:
    found = fitted([columns])
    assert inverse(found) == pytest.approx(end, rel=1e-12)
    assert found.reason == BEYOND
    assert not found.converged


def test_no_rows() -> None:
    found = fitted([drawn(0, 3)] * 3)
    assert (inverse(found), found.rows, found.clients, found.reason) == (1.0, 0, 3, "there are no rows")


@pytest.mark.parametrize("value", [0.0, 5.0, 299.7, 1e5, 1e300])
def test_rows_that_say_nothing_leave_the_model_as_it_is(value: float) -> None:
    found = fitted([{"class": np.arange(50) % 4, "logits": np.full((50, 4), value)}])
    assert inverse(found) == pytest.approx(1.0, abs=1e-6)
    assert found.converged


@given(st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e4, 1e7]))
@settings(max_examples=60, deadline=None)
def test_few_rows_of_any_size_never_crash_and_are_fitted(seed: int, rows: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    columns = {
        "logits": scale * rng.normal(size=(rows, 3)) * rng.choice([0, 1, 20], (rows, 1)),
        "class": rng.integers(0, 3, rows),
    }
    s = inverse(fitted([columns]))
    assert LOWEST * (1 - 1e-12) <= s <= HIGHEST * (1 + 1e-12)

    def objective(at: float) -> float:
        sums = loss_sums("temperature", columns["logits"], columns["class"], [at], order=1)
        return sums.loss / rows + RIDGE / 2 * (at - 1) ** 2

    # No point of a fine grid is better.
    for other in np.geomspace(LOWEST, HIGHEST, 201):
        assert objective(s) <= objective(other) * (1 + 1e-10) + 1e-12


# --- under noise ----------------------------------------------------------------------------------------

USUAL = DATA["usual"]
CLIENTS = dirichlet(USUAL, 60, 1.0)


@lru_cache(maxsize=64)
def total_of(summary: LossCurves) -> np.ndarray:
    return np.sum([summary.measure(ArrayRows(columns=one), {})[0] for one in CLIENTS], axis=0)


def under_noise(setting: Setting, seed: int) -> float:
    """log s from these clients; only the noise is drawn anew for each seed."""

    def answered(query: Any, again: int) -> Released[Any]:
        plan, randomness = setting.trust.plan(query, setting), SimulatedRandomness(seed, f"release {again}")
        (found,) = setting.trust.aggregate([plan], [total_of(query.of)], 60, randomness)
        return found.with_value(query.of.read(found.value))

    return math.log(inverse(finished(fit_one_shot(5, setting, clients=60.0), answered)[0]))


WHOLE_CLIENTS = {"unit": Unit.CLIENT, "rows_per_client": 200}
UNITS = {"example": {}, "bounded": {"rows_per_client": 200}, "client": WHOLE_CLIENTS}


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("unit", ["example", "client"])
def test_with_much_budget_it_approaches_the_pooled_temperature(unit: str, trust: TrustModel) -> None:
    """Not quite: rows and clients weigh otherwise than in the pooled loss, and a cubic is not the curve."""
    pooled = math.log(exact([USUAL]))
    setting = setting_of(trust, clients=60, epsilon=50.0, delta=1e-5, **UNITS[unit])
    logs = [under_noise(setting, seed) for seed in range(5)]
    assert max(abs(one - pooled) for one in logs) < (0.05 if unit == "example" else 0.12)
    assert pooled < -0.5  # a model that is left alone would be far off


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("unit", list(UNITS))
def test_with_hardly_any_budget_the_model_is_left_alone(unit: str, trust: TrustModel) -> None:
    setting = setting_of(trust, clients=60, epsilon=1e-4, delta=1e-5, **UNITS[unit])
    logs = [abs(under_noise(setting, seed)) for seed in range(31)]
    assert np.median(logs) < 0.02
    assert np.mean(logs) < 0.1


def test_less_budget_moves_less() -> None:
    medians = []
    for epsilon in (0.01, 0.1, 1.0):
        setting = setting_of(ServerDP(), clients=60, epsilon=epsilon, delta=1e-5, **WHOLE_CLIENTS)
        medians.append(np.median([under_noise(setting, seed) for seed in range(15)]))
    assert 0.1 > medians[0] >= medians[1] > medians[2]


def step_of(setting: Setting, clients: float = 60.0) -> tuple[Any, Sum[Any]]:
    flow = fit_one_shot(5, setting, clients=clients)
    query = next(flow)
    assert isinstance(query, Sum)
    return flow, query


def released(query: Sum[Any], setting: Setting, total: np.ndarray) -> Released[Any]:
    plan = setting.trust.plan(query, setting)
    return Released(value=query.of.read(total), noise=plan.noise, clients=setting.clients)


totals = st.lists(
    st.integers(-(2**62), 2**62) | st.sampled_from([0, 1, -1, 2**24, -(2**24)]), min_size=9, max_size=9
) | st.just([0] * 9)


@given(totals, totals, st.sampled_from([1e-6, 0.5, 1e4]), st.booleans(), st.sampled_from([1.0, 60.0, 1e6]))
@settings(max_examples=150)
def test_whatever_is_released_the_map_is_within_the_grid(
    first: list[int], second: list[int], epsilon: float, whole: bool, expected: float
) -> None:
    setting = setting_of(
        ServerDP(), clients=60, epsilon=epsilon, delta=1e-5, **(WHOLE_CLIENTS if whole else {})
    )
    answers = [first, second]
    fit, asked = finished(
        fit_one_shot(5, setting, clients=expected),
        lambda query, step: released(query, setting, np.array(answers[step])),  # type: ignore[arg-type]
    )
    grids = [query.of.grid for (query,) in asked]
    assert len(grids) == fit.sums <= 2
    s = inverse(fit)
    assert math.isfinite(s)
    assert grids[-1][0] * (1 - 1e-9) <= s <= grids[-1][-1] * (1 + 1e-9)
    at_an_end = min(abs(math.log(s / end)) for end in (grids[-1][0], grids[-1][-1])) < 1e-9
    assert fit.reason == (BEYOND if at_an_end else "")


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize(("factor", "end"), [(100.0, 0), (0.2, -1)], ids=["too sure", "too unsure"])
def test_beyond_the_grid_under_noise_it_says_so(unit: str, factor: float, end: int) -> None:
    columns = {**USUAL, "logits": factor * USUAL["logits"]}
    setting = setting_of(ServerDP(), clients=60, epsilon=4.0, delta=1e-5, **UNITS[unit])
    _, query = step_of(setting)
    found = fitted(dirichlet(columns, 60, 1.0), setting)
    assert (found.sums, found.reason) == (1, BEYOND)
    assert inverse(found) == pytest.approx(query.of.grid[end], rel=1e-9)
    within = fitted(CLIENTS, setting)
    assert (within.sums, within.reason) == (1, "")


def test_rows_without_a_curve_leave_the_model_alone() -> None:
    """Nothing at all comes back: no rows and, with this much budget, no noise."""
    setting = setting_of(ServerDP(), clients=60, epsilon=1e4, delta=1e-5)
    flow, query = step_of(setting)
    with pytest.raises(StopIteration) as ended:
        flow.send(released(query, setting, np.zeros(9, dtype=np.int64)))
    assert inverse(ended.value.value) == 1.0


# --- what is asked --------------------------------------------------------------------------------------


def test_what_is_bounded_is_what_is_protected() -> None:
    for unit, bound in (("example", ROW), ("bounded", ROW), ("client", CLIENT)):
        setting = setting_of(ServerDP(), clients=60, epsilon=1.0, delta=1e-5, **UNITS[unit])
        _, query = step_of(setting)
        assert (query.of.bound, query.part, query.share) == (bound, Part.FIT, 1.0)
    _, query = step_of(setting_of(Plain(), clients=60, **WHOLE_CLIENTS))
    assert (query.of.bound, query.share) == (NONE, 1.0)
    flow = fit_one_shot(5, setting_of(clients=3), clients=3.0, part=Part.ALL)
    assert next(flow).part is Part.ALL  # type: ignore[union-attr]


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("clients", [0, 3, 64, 1_000, 100_000])
@pytest.mark.parametrize("unit", list(UNITS))
def test_any_number_of_clients_can_be_asked(unit: str, clients: int, trust: TrustModel) -> None:
    """Curves are as fine as totals allow: what one client could send, times all of them, must not wrap."""
    setting = setting_of(trust, clients=clients, epsilon=0.5, delta=1e-6, **UNITS[unit])
    _, query = step_of(setting, max(1.0, float(clients)))
    assert query.of.largest * clients < 2**TOTAL_BITS
    assert setting.noise(query).variance > 0
    assert query.of.bits >= (24 if unit != "example" else 10)


def test_pure_differential_privacy() -> None:
    for unit in UNITS:
        setting = setting_of(ServerDP(), clients=60, epsilon=2.0, **UNITS[unit])
        assert -1.13 < under_noise(setting, 0) < -0.3


@dataclass(frozen=True, kw_only=True)
class OnlyFit:
    """A task that fits and does nothing else; broken on purpose if each release asks for this share."""

    clients: float
    share: float | None = None

    def steps(self, setting: Setting) -> Generator[Step, Any, Fit]:
        flow: Any = fit_one_shot(5, setting, clients=self.clients)
        query = next(flow)
        while True:
            released = yield query if self.share is None else replace(query, share=self.share)
            try:
                query = flow.send(released)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return]


FEDERATION = load(
    {"site": np.arange(3_000) % 400, "z": drawn(3_000, 5)["logits"], "y": drawn(3_000, 5)["class"]},
    client="site",
    columns={"logits": "z", "class": "y"},
)


def spent(task: OnlyFit, trust: TrustModel, unit: str, budget: Budget) -> tuple[Fit, MemoryLedger]:
    """On a ledger that refuses what exceeds the budget."""
    setting = Setting(trust=trust, protection=Protection(**UNITS[unit]), budget=budget, clients=400)
    ledger = MemoryLedger(budget)
    found = run(
        [Job(name="fit", task=task, setting=setting)],
        runtime=clients_of(FEDERATION, seed=1, mode="aggregate"),
        ledger=ledger,
        randomness=SimulatedRandomness(2),
        study="one-shot",
    )
    return found["fit"], ledger


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize(("unit", "releases"), [("example", 1), ("bounded", 1), ("client", 2)])
def test_all_releases_together_spend_the_budget_and_no_more(
    unit: str, releases: int, trust: TrustModel
) -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    fit, ledger = spent(OnlyFit(clients=400.0), trust, unit, budget)
    assert fit.sums == len(ledger.charges) == releases
    assert {charge.part for charge in ledger.charges} == {Part.FIT}
    assert 0.98 * budget.epsilon < ledger.spent("federation", budget.delta) <= budget.epsilon
    key = "relative" if unit == "client" else "rows"
    assert set(fit.noise) == {"law", key}
    noise = ledger.charges[-1]
    assert fit.noise[key] > 0
    assert fit.noise["law"] == noise.law


def test_two_releases_at_the_full_budget_are_refused() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    with pytest.raises(
        UsageError, match="with its queries 2 of the budget are asked for, expected at most 1"
    ):
        spent(OnlyFit(clients=400.0, share=1.0), ServerDP(), "client", budget)
    # And if the run did not look, the ledger would: the noise of two whole shares is not enough.
    setting = setting_of(ServerDP(), clients=60, epsilon=2.0, delta=1e-6, **WHOLE_CLIENTS)
    _, query = step_of(setting)
    assert query.share == 1
    plan, ledger = setting.trust.plan(query, setting), MemoryLedger(budget)
    ledger.charge([Charge.of(plan, id="1", dataset="d", study="s")])
    with pytest.raises(BudgetExceeded):
        ledger.charge([Charge.of(plan, id="2", dataset="d", study="s")])


def test_a_second_release_only_where_the_first_is_clear() -> None:
    for clients, sums in ((60.0, 1), (6_000.0, 2)):
        setting = setting_of(ServerDP(), clients=60, epsilon=1.0, delta=1e-5, **WHOLE_CLIENTS)
        flow, query = step_of(setting, clients)
        assert query.share == 1 / sums
        if sums == 2:
            second = flow.send(answer(query, setting, CLIENTS, 0))
            assert second.share == 0.5
            assert len(second.of.grid) == len(query.of.grid)
            assert replace(second.of, grid=query.of.grid) == query.of
