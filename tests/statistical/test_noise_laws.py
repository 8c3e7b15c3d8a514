"""The noise has the law that is stated, and the tests that say so would notice if it had not.

Every acceptance is a chi-square test against exact probabilities with a p-value above ERROR divided by the
number of acceptances in this file (Bonferroni), so a correct library fails here with probability below ERROR,
were the seeds not fixed. Every rejection uses the same threshold on a deliberately wrong law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, draw, noise_of
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.privacy.samplers import gaussian_scale, laplace_scale
from fedassay.protocol.vocabulary import (
    Budget,
    Exchange,
    Noise,
    Plan,
    Protection,
    Request,
    Setting,
    Sum,
    Vector,
)
from fedassay.trust.server_dp import ServerDP
from noise_fit import bins_of, law_of, p_value, p_value_of_independence
from toys import CountsUpTo

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


@pytest.mark.parametrize(("law", "scale"), CASES)
def test_draws_have_the_stated_law(law: str, scale: float) -> None:
    noise = rounded(law, scale)
    draws = draw(noise, DRAWS, SimulatedRandomness(11, law, str(scale)))
    assert p_value(draws, law_of(noise)) > THRESHOLD
    assert p_value_of_independence(draws) > THRESHOLD


@pytest.mark.parametrize("factor", [0.9, 0.95, 1.05, 1.1])
@pytest.mark.parametrize(("law", "scale"), CASES)
def test_a_wrong_scale_is_rejected(law: str, scale: float, factor: float) -> None:
    draws = draw(rounded(law, scale * factor), DRAWS, SimulatedRandomness(12, law, str(scale)))
    assert p_value(draws, law_of(rounded(law, scale))) < THRESHOLD


@pytest.mark.parametrize("scale", SCALES)
def test_the_other_law_of_the_same_variance_is_rejected(scale: float) -> None:
    noise = rounded(LAPLACE, scale)
    other = rounded(GAUSSIAN, max(math.sqrt(noise.variance), 0.1))
    draws = draw(other, DRAWS, SimulatedRandomness(13, str(scale)))
    assert p_value(draws, law_of(noise)) < THRESHOLD


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5])
def test_rounded_floating_point_noise_is_rejected(scale: float) -> None:
    generator = np.random.default_rng(14)
    laplace = np.round(generator.laplace(scale=scale, size=DRAWS)).astype(np.int64)
    assert p_value(laplace, law_of(rounded(LAPLACE, scale))) < THRESHOLD
    gaussian = np.round(generator.normal(scale=min(scale, 0.5), size=DRAWS)).astype(np.int64)
    assert p_value(gaussian, law_of(rounded(GAUSSIAN, min(scale, 0.5)))) < THRESHOLD


def test_both_signed_zeros_are_rejected() -> None:
    """The classical mistake: a geometric magnitude with a random sign counts zero twice."""
    noise = rounded(LAPLACE, 2.5)
    generator = np.random.default_rng(15)
    magnitude = generator.geometric(1 - math.exp(-1 / noise.scale), DRAWS) - 1
    assert p_value(magnitude * generator.choice([-1, 1], DRAWS), law_of(noise)) < THRESHOLD


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
    bins = bins_of(law_of(noise), count)

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
    assert p_value(noise_drawn, law_of(plan.noise)) > THRESHOLD
    assert p_value_of_independence(noise_drawn) > THRESHOLD
    for factor in (0.95, 1.05):
        assert p_value(noise_drawn, law_of(rounded(plan.noise.law, factor * plan.noise.scale))) < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize(("law", "scale"), CASES)
def test_five_million_draws_have_the_stated_law(
    law: str, scale: float, verify: Callable[[str, str], None]
) -> None:
    noise = rounded(law, scale)
    right = p_value(draw(noise, 5_000_000, SimulatedRandomness(21, law, str(scale))), law_of(noise))
    wrong = p_value(draw(rounded(law, 1.01 * scale), 5_000_000, SimulatedRandomness(22)), law_of(noise))
    verify(
        f"5,000,000 draws of {law} noise of scale {scale:g} have their law; a scale 1 % off is rejected",
        f"p = {right:.2g}, and {wrong:.2g} for the wrong one",
    )
    assert right > THRESHOLD
    assert wrong < THRESHOLD
