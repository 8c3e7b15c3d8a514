"""The noise has the law that is stated, and the tests that say so would notice if it had not.

Every acceptance is a chi-square test against exact probabilities with a p-value above ERROR divided by the
number of acceptances in this file (Bonferroni), so a correct library fails here with probability below ERROR,
were the seeds not fixed. Every rejection uses the same threshold on a deliberately wrong law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, draw, noise_of
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.privacy.samplers import gaussian_scale, laplace_scale
from fedassay.protocol import Budget, Exchange, Noise, Plan, Protection, Request, Setting, Sum, Vector
from fedassay.trust.server_dp import ServerDP
from toys import CountsUpTo

Reals = NDArray[np.float64]

SCALES = [0.3, 1.0, 2.5, 40.0, 1e4, 3e7, 1e12]
CASES = [(law, scale) for law in (LAPLACE, GAUSSIAN) for scale in SCALES]
BUDGETS = [Budget(epsilon=0.3), Budget(epsilon=0.3, delta=1e-5)]
DRAWS = 200_000

ERROR = 1e-6
ACCEPTANCES = 2 * len(CASES) + 4 + 2 * len(BUDGETS)
"""Law and independence of each case, four comparisons with OpenDP, law and independence of each release."""
THRESHOLD = ERROR / ACCEPTANCES


def rounded(law: str, scale: float) -> Noise:
    """The law of this scale, as the samplers round it (up, by at most 1e-6)."""
    rounding = laplace_scale if law == LAPLACE else gaussian_scale
    return noise_of(law, rounding(Fraction(scale)))


@dataclass(frozen=True)
class Bins:
    """Intervals (.., e_0], (e_0, e_1], .., (e_k, ..) and their exact probabilities."""

    edges: NDArray[np.int64]
    probabilities: Reals

    def count(self, draws: Vector) -> NDArray[np.int64]:
        return np.bincount(np.searchsorted(self.edges, draws, side="left"), minlength=self.edges.size + 1)


def cumulative(noise: Noise) -> Callable[[NDArray[np.int64]], Reals]:
    """P(X ≤ x): closed for Laplace, summed for Gaussian (smoothed above σ = 1e5, where it errs by 1e-11)."""
    if noise.law == LAPLACE:
        a = math.exp(-1 / noise.scale)
        return lambda x: np.where(
            x < 0, np.exp(x / noise.scale) / (1 + a), 1 - np.exp(-(x + 1) / noise.scale) / (1 + a)
        )
    if noise.scale > 1e5:
        return lambda x: stats.norm.cdf((x + 0.5) / noise.scale)
    reach = int(20 * noise.scale) + 20
    weights = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * noise.scale**2))
    table = np.cumsum(weights) / weights.sum()
    return lambda x: table[np.clip(x + reach, 0, 2 * reach)]


def bins_of(noise: Noise, draws: int) -> Bins:
    """About sixty bins: every heavy value by itself, the rest in groups, no group expected below ten."""
    law = cumulative(noise)
    near = np.arange(-40, 41)
    far = np.round(np.linspace(-12, 12, 61) * noise.scale).astype(np.int64)
    edges = np.unique(np.concatenate([near if noise.scale < 5 else near[:0], far]))
    kept = []
    below = 0.0
    for edge, value in zip(edges, law(edges), strict=True):
        if value - below >= 10 / draws and 1 - value >= 10 / draws:
            kept.append(edge)
            below = value
    at = np.array(kept, dtype=np.int64)
    return Bins(at, np.diff(np.concatenate([[0.0], law(at), [1.0]])))


def p_value(draws: Vector, noise: Noise) -> float:
    """The p-value of "these are draws from this law"."""
    bins = bins_of(noise, draws.size)
    expected = draws.size * bins.probabilities
    statistic = float(((bins.count(draws) - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, bins.edges.size))


def p_value_of_independence(draws: Vector) -> float:
    """The p-value of "neighbours are uncorrelated", in value and in size."""
    smallest = 1.0
    for x in (draws.astype(np.float64), np.abs(draws).astype(np.float64)):
        x = (x - x.mean()) / x.std()
        z = float((x[1:] * x[:-1]).mean()) * math.sqrt(x.size)
        smallest = min(smallest, float(2 * stats.norm.sf(abs(z))))
    return 2 * smallest


@pytest.mark.parametrize(("law", "scale"), CASES)
def test_draws_have_the_stated_law(law: str, scale: float) -> None:
    noise = rounded(law, scale)
    draws = draw(noise, DRAWS, SimulatedRandomness(11, law, str(scale)))
    assert p_value(draws, noise) > THRESHOLD
    assert p_value_of_independence(draws) > THRESHOLD


@pytest.mark.parametrize("factor", [0.9, 0.95, 1.05, 1.1])
@pytest.mark.parametrize(("law", "scale"), CASES)
def test_a_wrong_scale_is_rejected(law: str, scale: float, factor: float) -> None:
    draws = draw(rounded(law, scale * factor), DRAWS, SimulatedRandomness(12, law, str(scale)))
    assert p_value(draws, rounded(law, scale)) < THRESHOLD


@pytest.mark.parametrize("scale", SCALES)
def test_the_other_law_of_the_same_variance_is_rejected(scale: float) -> None:
    noise = rounded(LAPLACE, scale)
    other = rounded(GAUSSIAN, max(math.sqrt(noise.variance), 0.1))
    draws = draw(other, DRAWS, SimulatedRandomness(13, str(scale)))
    assert p_value(draws, noise) < THRESHOLD


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5])
def test_rounded_floating_point_noise_is_rejected(scale: float) -> None:
    generator = np.random.default_rng(14)
    laplace = np.round(generator.laplace(scale=scale, size=DRAWS)).astype(np.int64)
    assert p_value(laplace, rounded(LAPLACE, scale)) < THRESHOLD
    gaussian = np.round(generator.normal(scale=min(scale, 0.5), size=DRAWS)).astype(np.int64)
    assert p_value(gaussian, rounded(GAUSSIAN, min(scale, 0.5))) < THRESHOLD


def test_both_signed_zeros_are_rejected() -> None:
    """The classical mistake: a geometric magnitude with a random sign counts zero twice."""
    noise = rounded(LAPLACE, 2.5)
    generator = np.random.default_rng(15)
    magnitude = generator.geometric(1 - math.exp(-1 / noise.scale), DRAWS) - 1
    assert p_value(magnitude * generator.choice([-1, 1], DRAWS), noise) < THRESHOLD


def test_repeated_draws_are_rejected() -> None:
    draws = draw(rounded(LAPLACE, 40.0), DRAWS, SimulatedRandomness(16))
    assert p_value_of_independence(np.repeat(draws[: DRAWS // 50], 50)) < THRESHOLD
    mixed = np.where(np.arange(DRAWS) % 20 == 0, np.roll(draws, 1), draws)
    assert p_value_of_independence(mixed) < THRESHOLD


@pytest.mark.parametrize("scale", [1.5, 200.0])
@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_opendp_draws_from_the_same_law(law: str, scale: float) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    count = 20_000
    distance = dp.l1_distance(T="i64") if law == LAPLACE else dp.l2_distance(T="f64")
    make = dp.m.make_laplace if law == LAPLACE else dp.m.make_gaussian
    mechanism = make(dp.vector_domain(dp.atom_domain(T="i64")), distance, scale)
    theirs = np.array(mechanism([0] * count), dtype=np.int64)
    noise = noise_of(law, Fraction(scale))
    bins = bins_of(noise, count)

    def compare(draws: Vector) -> float:
        table = np.array([bins.count(draws), bins.count(theirs)])
        return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)

    assert compare(draw(noise, DRAWS, SimulatedRandomness(17, law, str(scale)))) > THRESHOLD
    # OpenDP is slow, hence few draws: 10 % off is the finest that 20,000 draws can show at this threshold.
    assert compare(draw(rounded(law, 1.1 * scale), DRAWS, SimulatedRandomness(18))) < THRESHOLD


def release(trust: ServerDP, plans: list[Plan], vectors: dict[str, list[Vector]]) -> list[Vector]:
    """The noise of one real exchange: what is released minus what is true."""
    source = SimulatedRandomness(19)
    exchange = Exchange(id=bytes(16), plans=tuple(plans), cohort=tuple(vectors))
    flow = trust.exchange(exchange, source)
    replies = {}
    for name, message in next(flow).requests.items():
        request = Request(
            exchange=exchange.id,
            plans=exchange.plans,
            cohort=len(exchange.cohort),
            leg=0,
            recipient=name,
            message=message,
        )
        replies[name], _ = trust.respond(request, lambda n=name: tuple(vectors[n]), {}, source.child(name))
    with pytest.raises(StopIteration) as finished:
        flow.send(replies)
    totals = [np.sum(column, axis=0) for column in zip(*vectors.values(), strict=True)]
    return [one.value - total for one, total in zip(finished.value.value, totals, strict=True)]


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_release_is_the_total_plus_noise_of_the_stated_law(budget: Budget) -> None:
    setting = Setting(trust=ServerDP(), protection=Protection(), budget=budget, clients=3)
    plan = ServerDP().plan(Sum(of=CountsUpTo(top=9_999), share=0.05), setting)
    assert plan.noise.law == (LAPLACE if budget.delta == 0 else GAUSSIAN)
    generator = np.random.default_rng(20)
    vectors = {name: [generator.integers(0, 1000, 10_000) for _ in range(20)] for name in "abc"}
    noises = release(ServerDP(), [plan] * 20, vectors)
    noise_drawn = np.stack(noises, axis=1).ravel()  # neighbours are noises of one cell in two releases
    assert p_value(noise_drawn, plan.noise) > THRESHOLD
    assert p_value_of_independence(noise_drawn) > THRESHOLD
    for factor in (0.95, 1.05):
        assert p_value(noise_drawn, rounded(plan.noise.law, factor * plan.noise.scale)) < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize(("law", "scale"), CASES)
def test_five_million_draws_have_the_stated_law(
    law: str, scale: float, verify: Callable[[str, str], None]
) -> None:
    noise = rounded(law, scale)
    right = p_value(draw(noise, 5_000_000, SimulatedRandomness(21, law, str(scale))), noise)
    wrong = p_value(draw(rounded(law, 1.01 * scale), 5_000_000, SimulatedRandomness(22)), noise)
    verify(
        f"5,000,000 draws of {law} noise of scale {scale:g} have their law; a scale 1 % off is rejected",
        f"p = {right:.2g}, and {wrong:.2g} for the wrong one",
    )
    assert right > THRESHOLD
    assert wrong < THRESHOLD
