"""Inference under noise: the released noise has the stated law, and intervals that count it cover.

Coverage is measured in simulated federations, replications as a leading axis, with the shipped `PrivatePath`,
`shortened` and `derivative`, and noise of the deviation that the shipped trust model plans. It is a mean over
independent replications, with the standard error of their means. Under noise intervals are rather too wide than too
narrow (derivatives are clipped too), so that tests are one-sided: an ordinary one fails by chance with a probability of
1e-3 at most if coverage is 0.95, divided among its comparisons; intervals that leave the noise out are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtri, stdtrit

from conformal_drive import setting_of
from fedassay.data.federation import load
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Noise, Released, Setting, Step, Sum, TrustModel
from fedassay.summaries.regression.losses import Design, loss_of
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.rounds import ClippedSums, derivative, shortened
from fedassay.tasks.inference import private_rounds
from fedassay.tasks.inference.online import UNDER_NOISE, distance
from fedassay.tasks.inference.private_rounds import PrivateCourse, PrivatePath
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.server_dp import ServerDP
from noise_fit import law_of, p_value
from simulated_clients import clients_of
from stated import Verify

LEVEL, FALSE_ALARM = 0.95, 1e-3
P = 5

# --- the noise --------------------------------------------------------------------------------------------

CLIENTS, ROWS = 6, 12
_rng = np.random.default_rng(0)
FEDERATION = load(
    {
        "site": np.arange(CLIENTS * ROWS) % CLIENTS,
        "x": _rng.normal(size=(CLIENTS * ROWS, 3)),
        "y": _rng.normal(size=CLIENTS * ROWS),
    },
    client="site",
    columns={"features": "x", "target": "y"},
)


@dataclass(frozen=True, kw_only=True)
class FirstRound:
    """What the task gets to see first, and what it is of."""

    def steps(self, setting: Setting) -> Generator[Step, Any, tuple[Sum[Any], Released[ClippedSums]]]:
        of = PrivateCourse(model="linear", rounds=12).asked(Standard(features=3), np.zeros(4))
        query = Sum(of=of, share=1 / 12)
        released = yield query
        return query, released


def noise_in_units(trust: TrustModel, mode: Any, seeds: int) -> tuple[np.ndarray, Noise]:
    """Released less exact entries, in whole numbers, and the noise that releases say they carry."""
    setting = setting_of(trust, clients=CLIENTS, epsilon=1.0, delta=1e-5, unit="client", rows_per_client=ROWS)
    draws, stated, exact = [], None, None
    for seed in range(seeds):
        query, released = run(
            [Job(name="infer", task=FirstRound(), setting=setting)],
            runtime=clients_of(FEDERATION, seed=seed, mode=mode),
            ledger=MemoryLedger(None),
            randomness=SimulatedRandomness(seed),
            study="noise",
        )["infer"]
        if exact is None:
            single = [query.of.measure(FEDERATION.rows_of(name), {})[0] for name in FEDERATION.clients]
            exact = np.sum(single, axis=0)
        sums, stated = released.value, released.noise
        units = [sums.gradient / sums.units[0], sums.slopes.reshape(-1) / sums.units[1]]
        draws.append(np.rint(np.concatenate(units)).astype(np.int64) - exact)
    assert stated is not None
    return np.concatenate(draws), stated


@pytest.mark.parametrize(
    ("trust", "mode", "seeds"), [(ServerDP(), "aggregate", 60), (DistributedDP(), "faithful", 12)]
)
def test_the_noise_of_a_round_has_the_stated_law(trust: TrustModel, mode: Any, seeds: int) -> None:
    """Chi-square at level 5e-4 for each of two trust models: 1e-3 in all. Half and twice the noise are rejected."""
    draws, stated = noise_in_units(trust, mode, seeds)
    assert stated.scale > 2**24  # more than one client can move it

    def fits(times: float) -> bool:
        # In steps of 2^16, a thousandth of the scale: finer laws of shares cannot be tabled.
        coarser = replace(stated, scale=times * stated.scale / 2**16)
        return p_value(np.rint(draws / 2**16).astype(np.int64), law_of(coarser, stated.copies)) > 5e-4

    assert [fits(times) for times in (0.5, 1.0, 2.0)] == [False, True, False]


# --- coverage ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Clients whose features are independent and standard normal, and whose coefficients are about common ones.

    Parameters
    ----------
    each : rows of a visit.
    apart : the standard deviation of clients' coefficients about the common ones, which have one of 0.5.
    rare : whether the first feature is an intercept of -3: one outcome in twenty is a one.
    """

    model: str
    clients: int
    epsilon: float
    rounds: int
    each: int
    apart: float = 0.0
    clip: float | None = None
    rare: bool = False
    size: float = 0.5
    """The standard deviation of the common coefficients."""

    def __str__(self) -> str:
        return (
            f"{self.model} N={self.clients} eps={self.epsilon:g} T={self.rounds} rows={self.each} "
            f"apart={self.apart:g}"
            + (f" clip={self.clip:.2g}" if self.clip else "")
            + (" rare outcomes" if self.rare else "")
        )

    @property
    def course(self) -> PrivateCourse:
        return PrivateCourse(model=self.model, rounds=self.rounds, clip=self.clip, rows_each=self.each)

    @property
    def noise(self) -> tuple[float, float]:
        """The deviations of the noise in a round's mean gradient and mean derivative, as the trust model plans it."""
        of = self.course.asked(Standard(features=P, intercept=False), np.zeros(P))
        rows = self.each * self.rounds
        setting = setting_of(
            ServerDP(),
            clients=self.clients,
            epsilon=self.epsilon,
            delta=1e-5,
            unit="client",
            rows_per_client=rows,
        )
        deviation = math.sqrt(setting.noise(Sum(of=of, share=1 / self.rounds)).variance) / self.clients
        units = of.read(np.zeros(of.length, dtype=np.int64)).units
        return deviation * units[0], deviation * units[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Errors of estimates (replications, coefficients), their standard errors, degrees of freedom; parts of runs."""

    error: np.ndarray
    deviation: np.ndarray
    freedom: float
    clipped: float
    scaled: np.ndarray
    told: np.ndarray

    def covered(self, deviation: np.ndarray | None = None) -> np.ndarray:
        """The part of the intervals of each replication that cover."""
        wide = stdtrit(self.freedom, (1 + LEVEL) / 2) * (self.deviation if deviation is None else deviation)
        return np.asarray((np.abs(self.error) <= wide).mean(axis=1))


def score(covered: np.ndarray) -> float:
    """Coverage less its level, in standard errors; where nearly all is covered, in those of 95 %."""
    least = math.sqrt(LEVEL * (1 - LEVEL) / P)
    return float((covered.mean() - LEVEL) / max(covered.std(), least) * math.sqrt(len(covered)))


def limit(comparisons: int) -> float:
    return float(ndtri(FALSE_ALARM / comparisons))


def simulate(one: Federation, replications: int, rng: np.random.Generator) -> Found:
    runs, loss, (clip, slopes_clip) = replications, loss_of(one.model), one.course.clips(P)
    in_gradient, in_slopes = one.noise
    theta = one.size * rng.normal(size=(runs, 1, P)) + one.apart * rng.normal(size=(runs, one.clients, P))
    theta[..., 0] = np.where(one.rare, -3.0, theta[..., 0])
    seen, share = PrivatePath.start(np.zeros((runs, P)), one.rounds), np.full(one.each, 1 / one.each)
    clipped = 0.0
    for t in range(one.rounds):
        x = rng.standard_normal((runs, one.clients, one.each, P))
        x[..., 0] = np.where(one.rare, 1.0, x[..., 0])
        u = (x @ theta[..., None])[..., 0]
        linear = one.model == "linear"
        y = (
            u + rng.standard_normal(u.shape)
            if linear
            else (rng.random(u.shape) < expit(u)).astype(np.float64)
        )
        rows, at = Design(x=x, y=y, offset=np.zeros_like(y)), seen.path.theta[:, None, :]
        g, hessian = loss.gradient_sum(at, rows, share), loss.hessian_sum(at, rows, share)
        slopes = derivative(g, hessian, clip).reshape(runs, one.clients, P * P)
        mean = slopes_clip * shortened(slopes, slopes_clip).mean(axis=1).reshape(runs, P, P)
        seen = seen.after(
            clip * shortened(g, clip).mean(axis=1) + in_gradient * rng.standard_normal((runs, P)),
            mean + in_slopes * rng.standard_normal((runs, P, P)),
            unsure=in_slopes,
            decay=0.505,
        )
        clipped += float((np.linalg.norm(g, axis=-1) > clip).mean()) * (t >= one.rounds // 2)
    path, truth = seen.settled, optimum(one.model, theta)
    step = path.one_step(quadratic=False)
    apart = distance(path.mean, step, path.sandwich(path.spread)).max(axis=1)
    return Found(
        error=step - truth,
        deviation=_roots(path.sandwich(path.spread)),
        freedom=float(path.freedom[0]),  # the same in all runs
        clipped=clipped / (one.rounds - one.rounds // 2),
        scaled=np.abs(path.mean - truth) <= 6.747 * _roots(path.scaling),
        told=apart <= UNDER_NOISE,
    )


def _roots(matrices: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.maximum(0.0, np.einsum("...ii->...i", matrices))))


def without_noise(one: Federation, found: Found) -> np.ndarray:
    """Standard errors as they would be if the noise were left out of the spread; curvatures are I, or about I/5."""
    curvature = 1.0 if one.model == "linear" else 0.21
    counted = one.rounds - max(1, one.rounds // 4)
    noise = one.noise[0] ** 2 / counted / curvature**2
    return np.sqrt(np.maximum(0.0, found.deviation**2 - noise))


def optimum(model: str, thetas: np.ndarray) -> np.ndarray:
    """Of the mean loss over clients. Logistic: it is along the mean of θ_i s(|θ_i|), s(r) = E σ'(r Z), by bisection."""
    if model == "linear" or thetas.shape[1] == 1:
        return np.asarray(thetas.mean(axis=1))
    along = (thetas * _slope(np.linalg.norm(thetas, axis=-1))[..., None]).mean(axis=1)
    wanted = np.linalg.norm(along, axis=-1)
    low, high = np.zeros_like(wanted), np.full_like(wanted, 12.0)
    for _ in range(60):
        middle = (low + high) / 2
        below = middle * _slope(middle) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(along / wanted[:, None] * low[:, None])


_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def _slope(size: np.ndarray) -> np.ndarray:
    u = size[..., None] * _POINTS
    return np.asarray((expit(u) * expit(-u)) @ (_WEIGHTS / _WEIGHTS.sum()))


SMALL = (
    Federation(model="linear", clients=200, epsilon=4, rounds=24, each=4, apart=0.3),
    Federation(model="logistic", clients=200, epsilon=4, rounds=24, each=4),
    Federation(model="logistic", clients=300, epsilon=4, rounds=12, each=1),
)


@pytest.mark.parametrize("one", SMALL, ids=str)
def test_intervals_that_count_the_noise_cover_and_others_do_not(one: Federation) -> None:
    found = simulate(one, 120, np.random.default_rng(80))
    assert score(found.covered()) >= limit(len(SMALL)), found.covered().mean()
    assert score(found.covered(without_noise(one, found))) < limit(len(SMALL)), (
        "without noise: must be rejected"
    )


def test_rounds_that_have_not_arrived_are_not_told_and_others_are() -> None:
    """Coefficients with a standard deviation of 2.5 are not reached in 12 rounds that begin at zero."""
    for one in SMALL:
        assert simulate(one, 60, np.random.default_rng(86)).told.mean() > 0.9
    far = Federation(model="logistic", clients=1000, epsilon=8, rounds=12, each=10, size=2.5)
    found = simulate(far, 20, np.random.default_rng(87))
    assert found.covered().mean() < 0.6, "as it would be without"
    assert not found.told.any()


RARE = Federation(model="logistic", clients=600, epsilon=4, rounds=24, each=4, rare=True)


def test_curvatures_of_the_beginning_do_not_make_intervals_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one outcome in twenty, curvatures are five times as large where rounds begin as at the optimum."""
    assert score(simulate(RARE, 30, np.random.default_rng(84)).covered()) >= limit(1)
    monkeypatch.setattr(private_rounds, "GROWTH", 0)  # as it must not be: all rounds alike
    assert score(simulate(RARE, 30, np.random.default_rng(84)).covered()) < limit(1)


def test_a_clip_that_cuts_one_side_is_noticed() -> None:
    """One row a visit, half the default clip: a quarter of the gradients are clipped, and estimates are elsewhere."""
    one = Federation(model="logistic", clients=800, epsilon=4, rounds=24, each=1, clip=math.sqrt(P) / 2)
    found = simulate(one, 40, np.random.default_rng(81))
    assert found.clipped > 0.15
    assert score(found.covered()) < limit(1)


# --- the stated numbers -----------------------------------------------------------------------------------


def _grid(model: str) -> list[Federation]:
    usual = Federation(model=model, clients=500, epsilon=4, rounds=24, each=4, apart=0.3)
    return [
        *(replace(usual, clients=n, epsilon=e) for n in (200, 500, 2000) for e in (1, 4)),
        *(replace(usual, rounds=t, epsilon=e) for t in (12, 50) for e in (1, 4)),
        *(replace(usual, each=1, epsilon=e, clients=n) for e, n in ((1, 500), (4, 500), (4, 2000))),
        *(replace(usual, apart=apart) for apart in (0.0, 1.0)),
    ]


@pytest.mark.full
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_private_intervals_cover_over_the_grid(model: str, verify: Verify) -> None:
    """200 replications (40 of the largest federations) of five coefficients; all at least 0.93 but for chance."""
    lowest = []
    for one in _grid(model):
        many = 200 if one.clients < 2000 else 40
        found = simulate(one, many, np.random.default_rng([82, one.clients, one.rounds]))
        covered = found.covered()
        lowest.append((covered.mean() - 0.93) / max(covered.std(), 0.05) * math.sqrt(many))
        verify(
            f"infer under noise, {one}: 95 % intervals cover (random scaling beside them)",
            f"{covered.mean():.3f} ± {covered.std() / math.sqrt(many):.3f} ({found.scaled.mean():.2f}), "
            f"median standard error {np.median(found.deviation):.3f}, clipped {found.clipped:.0%}",
        )
    assert min(lowest) >= ndtri(FALSE_ALARM / len(lowest))


@pytest.mark.full
@pytest.mark.parametrize("clients", [500, 2000])
def test_rare_outcomes_are_covered(clients: int, verify: Verify) -> None:
    one, many = replace(RARE, clients=clients), 200 if clients < 2000 else 60
    covered = simulate(one, many, np.random.default_rng(85)).covered()
    verify(
        f"infer under noise, {one}: 95 % intervals cover",
        f"{covered.mean():.3f} ± {covered.std() / math.sqrt(many):.3f}",
    )
    assert score(covered) >= limit(2)


@pytest.mark.full
def test_where_private_intervals_fail(verify: Verify) -> None:
    """A clip that cuts one side: the optimum of clipped gradients is covered, not that of the loss."""
    one = Federation(model="logistic", clients=2000, epsilon=4, rounds=24, each=1, clip=math.sqrt(P) / 2)
    found = simulate(one, 40, np.random.default_rng(83))
    verify(
        f"infer under noise, {one}: intervals fail",
        f"{found.covered().mean():.2f}, clipped {found.clipped:.0%}",
    )
    assert found.covered().mean() < 0.9
