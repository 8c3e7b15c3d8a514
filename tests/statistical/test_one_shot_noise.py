"""What the temperature is computed from: released curves have the stated noise, and noise alone moves nothing.

Laws by a chi-square test, variances by the normal law of a sample variance: 5 settings, each with two tests at level
10^-4, so that a false alarm has a probability of 10^-3 at most over all of them. Half and twice the scale must be
noticed, and a summary that states half of its sensitivity. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedassay.data.federation import load
from fedassay.data.tables import ArrayRows
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Noise,
    Part,
    Protection,
    Released,
    Sensitivity,
    Setting,
    Step,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.summaries.multiclass.loss_curves import LossCurves
from fedassay.tasks.calibration.multiclass.one_shot import fit_one_shot, lowest_point
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.server_dp import ServerDP
from multiclass_rows import Columns, drawn
from noise_fit import law_of, p_value
from simulated_clients import clients_of

LEVEL = 1e-4
CLIENTS, CLASSES = 12, 3
BUDGET, PURE = Budget(epsilon=1.0, delta=1e-6), Budget(epsilon=1.0)
ROWS = drawn(240, CLASSES)
WHOLE_CLIENTS: dict[str, Any] = {"unit": Unit.CLIENT, "rows_per_client": 30}
FEDERATION = load(
    {"site": np.arange(240) % CLIENTS, "z": ROWS["logits"], "y": ROWS["class"]},
    client="site",
    columns={"class": "y", "logits": "z"},
)


@dataclass(frozen=True, kw_only=True)
class FirstRelease:
    """What the fit gets to see first, and what it is of."""

    def steps(self, setting: Setting) -> Generator[Step, Any, tuple[Sum[Any], Released[Any]]]:
        flow = fit_one_shot(CLASSES, setting, clients=float(CLIENTS), part=Part.ALL)
        query = next(flow)
        assert isinstance(query, Sum)
        released = yield query
        return query, released


def setting_of(trust: TrustModel, budget: Budget, **protection: Any) -> Setting:
    return Setting(trust=trust, protection=Protection(**protection), budget=budget, clients=CLIENTS)


def noise_in_units(setting: Setting, mode: Any, seeds: int) -> tuple[np.ndarray, Any]:
    """Released less exact entries, in whole numbers, and the noise that the releases say they carry."""
    job, found, stated = Job(name="fit", task=FirstRelease(), setting=setting), [], None
    exact = None
    for seed in range(seeds):
        query, released = run(
            [job],
            runtime=clients_of(FEDERATION, seed=seed, mode=mode),
            ledger=MemoryLedger(None),
            randomness=SimulatedRandomness(seed),
            study="noise",
        )["fit"]
        if exact is None:
            by_client = [query.of.measure(FEDERATION.rows_of(name), {})[0] for name in FEDERATION.clients]
            exact = np.sum(by_client, axis=0)
        total = np.rint(released.value.losses / released.value.unit).astype(np.int64)
        found.append(total - exact)
        stated = released.noise
    return np.concatenate(found), stated


def variance_p_value(draws: np.ndarray, variance: float) -> float:
    """Two-sided, for draws whose fourth moment is at most that of Laplace noise: as if there were fewer of them."""
    kurtosis = float(stats.kurtosis(draws, fisher=False))
    z = (float(np.mean(draws.astype(np.float64) ** 2)) / variance - 1) / math.sqrt(
        (kurtosis - 1) / draws.size
    )
    return float(2 * stats.norm.sf(abs(z)))


def fits(draws: np.ndarray, noise: Noise, times: float) -> bool:
    """Whether the draws have the law of this noise, with so many times its scale.

    In steps of 2^14, a thousandth of the scale: that much finer, laws of shares cannot be tabled.
    """
    coarser = replace(noise, scale=times * noise.scale / 2**14)
    return p_value(np.rint(draws / 2**14).astype(np.int64), law_of(coarser, noise.copies)) > LEVEL


CASES = {
    "server, clients": (ServerDP(), BUDGET, WHOLE_CLIENTS, "aggregate", 200),
    "server, rows": (ServerDP(), BUDGET, {}, "aggregate", 200),
    "server, pure": (ServerDP(), PURE, WHOLE_CLIENTS, "aggregate", 200),
    "server, messages": (ServerDP(), BUDGET, WHOLE_CLIENTS, "faithful", 60),
    "distributed, messages": (DistributedDP(), BUDGET, WHOLE_CLIENTS, "faithful", 30),
}


@pytest.mark.parametrize("name", CASES)
def test_released_curves_have_the_stated_noise(name: str) -> None:
    trust, budget, protection, mode, seeds = CASES[name]
    setting = setting_of(trust, budget, **protection)
    draws, noise = noise_in_units(setting, mode, seeds)
    query = next(fit_one_shot(CLASSES, setting, clients=float(CLIENTS), part=Part.ALL))
    assert isinstance(query, Sum)
    assert noise == setting.noise(query)
    assert fits(draws, noise, 1.0)
    assert variance_p_value(draws, noise.variance) > LEVEL
    # Half or twice the scale would be noticed.
    for wrong in (0.5, 2.0):
        assert not fits(draws, noise, wrong)
        assert variance_p_value(draws, wrong**2 * noise.variance) < LEVEL


@dataclass(frozen=True, kw_only=True)
class HalfStated(LossCurves):
    """Broken on purpose: it states half of what a client can move."""

    def sensitivity(self, protection: Protection) -> Sensitivity:
        stated = super().sensitivity(protection)
        return Sensitivity(l1=stated.l1 / 2, l2=stated.l2 / 2)


def test_a_summary_that_states_half_its_sensitivity_is_noticed() -> None:
    """Its noise is not what the budget asks for; an honest summary's is."""
    setting = setting_of(ServerDP(), BUDGET, **WHOLE_CLIENTS)
    query = next(fit_one_shot(CLASSES, setting, clients=float(CLIENTS)))
    assert isinstance(query, Sum)
    wanted = setting.noise(query)
    broken = HalfStated(**{one.name: getattr(query.of, one.name) for one in fields(query.of)})
    for of, honest in ((query.of, True), (broken, False)):
        plan = setting.trust.plan(replace(query, of=of), setting)
        total, draws = np.zeros(of.length, dtype=np.int64), []
        for seed in range(200):
            (released,) = setting.trust.aggregate([plan], [total], CLIENTS, SimulatedRandomness(seed))
            draws.append(released.value)
        assert fits(np.concatenate(draws), wanted, 1.0) == honest


# --- noise alone ----------------------------------------------------------------------------------------


def released_curves(rows: Columns, epsilon: float, seeds: int) -> list[Released[Any]]:
    setting = setting_of(ServerDP(), Budget(epsilon=epsilon, delta=1e-6))
    query = next(fit_one_shot(CLASSES, setting, clients=float(CLIENTS)))
    assert isinstance(query, Sum)
    plan, total = setting.trust.plan(query, setting), query.of.measure(ArrayRows(columns=rows), {})[0]
    found = []
    for seed in range(seeds):
        (released,) = setting.trust.aggregate([plan], [total], CLIENTS, SimulatedRandomness(seed))
        found.append(released.with_value(query.of.read(released.value)))
    return found


def log_s(released: Released[Any], *, admitted: float = 1.0) -> float:
    """With this part of the noise admitted; 0 believes the curve whatever its length."""
    deviation = math.sqrt(released.noise.variance) * released.value.unit
    return lowest_point(released.value, admitted * deviation)


def test_noise_alone_moves_nothing() -> None:
    """Rows are added up, so that only the curve itself says how long it is, and noise makes it long.

    If at most 2 % of the releases moved the temperature in truth, more than 5 % of 300 would with a probability below
    10^-3. Believing the curve whatever its length, as a broken variant does, moves it in about half of them.
    """
    curves = released_curves(ROWS, 1e-3, 300)
    logs = np.abs([log_s(one) for one in curves])
    assert np.mean(logs > 0) <= 0.05
    assert logs.mean() < 0.02
    broken = np.abs([log_s(one, admitted=0.0) for one in curves])
    assert np.mean(broken > 0) > 0.3
    assert broken.mean() > 0.1


def test_more_budget_brings_it_closer() -> None:
    """The mean distance from what hardly any noise gives falls with epsilon, by more than its standard errors."""
    rows = drawn(3_000, CLASSES, seed=4)
    target = log_s(released_curves(rows, 1e3, 1)[0])
    assert target < -0.5
    means, errors = [], []
    for epsilon in (0.01, 0.1, 1.0):
        away = np.abs(np.array([log_s(one) for one in released_curves(rows, epsilon, 100)]) - target)
        means.append(away.mean())
        errors.append(away.std() / 10)
    for place in (0, 1):
        assert means[place] - means[place + 1] > 4 * math.hypot(*errors[place : place + 2])
    assert means[2] < 0.02
