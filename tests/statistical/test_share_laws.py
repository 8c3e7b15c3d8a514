"""Shares of noise have the law that is stated, any number of them adds up to it, and less is noticed.

Acceptances are chi-square tests with p-values above ERROR divided by their number in this file (Bonferroni), so
a correct library fails here with probability below ERROR, were the seeds not fixed. Rejections use the same
threshold on deliberately broken variants: a lost share, a halved scale, a wrong sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy import noise_shares, poisson
from fedassay.privacy.accounting import LAPLACE, SKELLAM, calibrate_shared, draw_parts, noise_of
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Noise, Sensitivity, Vector
from noise_fit import bins_of, law_of, p_value, p_value_of_independence, polya_law, skellam_law

DRAWS = 100_000
POLYA = [
    (scale, parts)
    for scale in (Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(40), Fraction(10**4))
    for parts in (Fraction(1, 100), Fraction(1, 7), Fraction(1, 2), Fraction(5, 2))
]
SKELLAMS = [
    Fraction(1, 50),
    Fraction(3),
    Fraction(31),
    Fraction(100, 3),
    Fraction(10**4),
    Fraction(10**10, 3),
]
HUGE = Fraction(2**79)
RATES = [
    Fraction(16),
    Fraction(33, 2),
    Fraction(1999, 100),
    Fraction(64),
    Fraction(10**4, 3),
    Fraction(2**50),
]
SUMS = [
    (law, scale, count)
    for law, scale in ((LAPLACE, 2.5), (LAPLACE, 1e9), (SKELLAM, 2.5), (SKELLAM, 1e6))
    for count in (2, 7, 100)
]
SURVIVORS = [(law, 10.0, survived) for law in (LAPLACE, SKELLAM) for survived in (20, 23, 37)]

ERROR = 1e-6
ACCEPTANCES = (
    2 * len(POLYA) + 2 * (len(SKELLAMS) + 1) + 2 + len(RATES) + 1 + 2 * len(SUMS) + 2 * len(SURVIVORS) + 1
)
"""Law and independence of each Pólya and Skellam case, both kinds of small Poisson draws, each large rate, a
forced comparison, law and independence of sums and of survivors, OpenDP."""
THRESHOLD = ERROR / ACCEPTANCES


def polya(scale: Fraction, parts: Fraction, count: int, *path: str) -> Vector:
    return noise_shares.polya(
        count,
        numerator=scale.numerator,
        denominator=scale.denominator,
        parts=parts,
        randomness=SimulatedRandomness(31, str(scale), str(parts), *path),
    )


def total_of(noise: Noise, part: Fraction, clients: int, seed: int, count: int = DRAWS) -> Vector:
    """What so many clients add, each its share of `part`."""
    source = SimulatedRandomness(seed, noise.law, str(noise.scale), str(part))
    total = np.zeros(count, dtype=np.int64)
    for i in range(clients):
        total = total + draw_parts(noise, count, part, source.child(str(i)))
    return total


@pytest.mark.parametrize(("scale", "parts"), POLYA)
def test_polya_shares_have_the_stated_law(scale: Fraction, parts: Fraction) -> None:
    draws, law = polya(scale, parts, DRAWS), polya_law(float(scale), float(parts))
    assert p_value(draws, law) > THRESHOLD
    reach = math.ceil(3 * scale)  # correlations need tails that are not too heavy
    assert p_value_of_independence(np.clip(draws, -reach, reach)) > THRESHOLD
    for wrong in (polya_law(float(scale) / 2, float(parts)), polya_law(float(scale), float(parts) / 2)):
        assert p_value(draws, wrong) < THRESHOLD


@pytest.mark.parametrize("variance", [*SKELLAMS, HUGE])
def test_skellam_draws_have_the_stated_law(variance: Fraction) -> None:
    source = SimulatedRandomness(32, str(variance))
    draws = noise_shares.skellam(DRAWS, variance=variance, randomness=source)
    assert p_value(draws, skellam_law(float(variance))) > THRESHOLD
    assert p_value_of_independence(draws) > THRESHOLD
    for factor in (0.8, 1.25):
        assert p_value(draws, skellam_law(factor * float(variance))) < THRESHOLD


def test_the_oracles_agree_with_scipy() -> None:
    for scale, parts in ((1.5, 0.3), (20.0, 2.5)):
        k = np.arange(0, 4000)
        one_sided = stats.nbinom.pmf(k, parts, -math.expm1(-1 / scale))
        law, x = polya_law(scale, parts), np.arange(-100, 101)
        exact = [float(one_sided[abs(d) :] @ one_sided[: 4000 - abs(d)]) for d in x]
        assert np.abs(np.diff(law.cumulative(x)) - exact[1:]).max() < 1e-13
    for variance in (0.5, 40.0, 1e4):
        x = np.arange(-200, 201)
        exact = stats.skellam.pmf(x, variance / 2, variance / 2)
        assert np.abs(np.diff(skellam_law(variance).cumulative(x)) - exact[1:]).max() < 1e-11


def poisson_p_value(draws: Vector, rate: float, smallest: int) -> float:
    """The p-value of "these are Poisson draws", given their offset from `smallest`."""
    edges = np.unique(
        np.round(np.linspace(rate - 6 * math.sqrt(rate) - 2, rate + 6 * math.sqrt(rate) + 2, 60))
    )
    cumulative = stats.poisson.cdf(edges, rate)
    wide = edges[(cumulative > 20 / draws.size) & (cumulative < 1 - 20 / draws.size)]
    probabilities = np.diff(np.concatenate([[0.0], stats.poisson.cdf(wide, rate), [1.0]]))
    counts = np.bincount(np.searchsorted(wide - smallest, draws, side="left"), minlength=wide.size + 1)
    sparse = draws.size * probabilities < 5
    assert not sparse.any()
    expected = draws.size * probabilities
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), wide.size))


def test_poisson_of_rate_one_and_of_a_ratio() -> None:
    ones = poisson.units(DRAWS, SimulatedRandomness(33))
    assert poisson_p_value(ones, 1.0, 0) > THRESHOLD
    assert poisson_p_value(ones, 1.05, 0) < THRESHOLD
    source = SimulatedRandomness(34)
    ratio = np.array([poisson.total(Fraction(12, 5), source) for _ in range(4000)])
    assert poisson_p_value(ratio, 2.4, 0) > THRESHOLD
    assert poisson_p_value(ratio, 2.0, 0) < THRESHOLD


@pytest.mark.parametrize("rate", RATES)
def test_large_poisson_draws_have_the_stated_law(rate: Fraction) -> None:
    draws = poisson.centred(DRAWS, rate=rate, randomness=SimulatedRandomness(35, str(rate)))
    assert poisson_p_value(draws, float(rate), math.floor(rate)) > THRESHOLD
    wrong = float(rate) + 0.05 * math.sqrt(rate)
    assert poisson_p_value(draws, wrong, math.floor(rate)) < THRESHOLD


def test_decisions_in_decimal_arithmetic_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poisson, "_GUARD", 1.0)
    draws = poisson.centred(4000, rate=Fraction(100, 3), randomness=SimulatedRandomness(36))
    assert poisson_p_value(draws, 100 / 3, 33) > THRESHOLD
    assert poisson_p_value(draws, 30.0, 33) < THRESHOLD


@pytest.mark.parametrize(("law", "scale", "clients"), SUMS)
def test_shares_of_m_clients_add_up_to_the_whole(law: str, scale: float, clients: int) -> None:
    """And a tenth of the clients (at least one) falling silent is noticed."""
    noise, part = noise_of(law, Fraction(scale)), Fraction(1, clients)
    count = DRAWS if law == LAPLACE else DRAWS // 3  # lighter tails: fewer draws tell as much
    draws = total_of(noise, part, clients, seed=37, count=count)
    assert p_value(draws, law_of(noise)) > THRESHOLD
    assert p_value_of_independence(draws) > THRESHOLD
    fewer = total_of(noise, part, clients - max(1, clients // 10), seed=38, count=count)
    assert p_value(fewer, law_of(noise)) < THRESHOLD


@pytest.mark.parametrize("law", [LAPLACE, SKELLAM])
def test_shares_of_half_the_scale_or_for_another_sensitivity_are_rejected(law: str) -> None:
    budget = Budget(epsilon=0.5, delta=0.0 if law == LAPLACE else 1e-6)
    l1 = 3 if law == LAPLACE else 300
    right = calibrate_shared(budget, Sensitivity(l1=float(l1), l2=math.sqrt(l1)))
    less = calibrate_shared(budget, Sensitivity(l1=l1 * 2 / 3, l2=math.sqrt(l1 * 2 / 3)))
    assert right.law == less.law == law
    for broken in (noise_of(law, Fraction(right.scale / 2)), less):
        assert p_value(total_of(broken, Fraction(1, 5), 5, seed=39), law_of(right)) < THRESHOLD


@pytest.mark.parametrize(("law", "scale", "survived"), SURVIVORS)
def test_any_number_of_survivors_has_its_law_and_variance(law: str, scale: float, survived: int) -> None:
    """Shares made for 20 of at most 37 clients: with S survivors, S/20 of the noise. Drawn in parts and at once."""
    noise, part = noise_of(law, Fraction(scale)), Fraction(1, 20)
    exact = law_of(noise, survived / 20)
    for draws in (
        total_of(noise, part, survived, seed=40),
        draw_parts(noise, DRAWS, survived * part, SimulatedRandomness(41, law, str(survived))),
    ):
        assert p_value(draws, exact) > THRESHOLD
        variance = noise.variance * survived / 20
        assert abs(draws.astype(np.float64).var() / variance - 1) < 6 * math.sqrt(6 / DRAWS)
        for other in (survived - 3, survived + 3):
            assert p_value(draws, law_of(noise, other / 20)) < THRESHOLD


def test_opendp_draws_the_law_that_shares_add_up_to() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    mechanism = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), 12.0)
    theirs = np.array(mechanism([0] * 20_000), dtype=np.int64)
    noise = noise_of(LAPLACE, Fraction(12))
    bins = bins_of(law_of(noise), theirs.size)

    def compare(draws: Vector) -> float:
        table = np.array([bins.count(draws), bins.count(theirs)])
        return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)

    assert compare(total_of(noise, Fraction(1, 6), 6, seed=42)) > THRESHOLD
    assert compare(total_of(noise, Fraction(1, 6), 5, seed=43)) < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize(("law", "clients", "count"), [(LAPLACE, 100, 5_000_000), (SKELLAM, 20, 1_000_000)])
@pytest.mark.parametrize("scale", [2.5, 40.0, 3000.0])
def test_one_lost_share_is_noticed_in_many_draws(
    law: str, clients: int, count: int, scale: float, verify: Callable[[str, str], None]
) -> None:
    noise, part = noise_of(law, Fraction(scale)), Fraction(1, clients)
    right = p_value(total_of(noise, part, clients, seed=44, count=count), law_of(noise))
    lost = p_value(total_of(noise, part, clients - 1, seed=45, count=count), law_of(noise))
    verify(
        f"{count:,} sums of {clients} shares of {law} noise of scale {scale:g} have its law; a lost share is rejected",
        f"p = {right:.2g}, and {lost:.2g} with a lost share",
    )
    assert right > THRESHOLD
    assert lost < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize(("scale", "parts"), POLYA)
def test_five_million_polya_shares_have_the_stated_law(
    scale: Fraction, parts: Fraction, verify: Callable[[str, str], None]
) -> None:
    draws = polya(scale, parts, 5_000_000, "full")
    right = p_value(draws, polya_law(float(scale), float(parts)))
    wrong = p_value(draws, polya_law(float(scale), 0.95 * float(parts)))
    verify(
        f"5,000,000 Pólya draws of {parts} parts, scale {float(scale):g}, have their law; 5 % less is rejected",
        f"p = {right:.2g}, and {wrong:.2g} for the wrong one",
    )
    assert right > THRESHOLD
    assert wrong < THRESHOLD


@pytest.mark.full
@pytest.mark.parametrize("variance", SKELLAMS)
def test_five_million_skellam_draws_have_the_stated_law(
    variance: Fraction, verify: Callable[[str, str], None]
) -> None:
    draws = noise_shares.skellam(
        5_000_000, variance=variance, randomness=SimulatedRandomness(46, str(variance))
    )
    right = p_value(draws, skellam_law(float(variance)))
    wrong = p_value(draws, skellam_law(1.03 * float(variance)))
    verify(
        f"5,000,000 Skellam draws of variance {float(variance):g} have their law; 3 % more is rejected",
        f"p = {right:.2g}, and {wrong:.2g} for the wrong one",
    )
    assert right > THRESHOLD
    assert wrong < THRESHOLD
