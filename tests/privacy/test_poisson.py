"""Exact Poisson draws: the probabilities of their decisions, and who takes them. Laws: tests/statistical."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from fedassay.privacy import poisson
from fedassay.privacy.poisson import LARGEST_CENTRED, SMALLEST_CENTRED, centred, total, units
from fedassay.privacy.randomness import SimulatedRandomness

RATES = [
    Fraction(16),
    Fraction(1699, 100),
    Fraction(129, 2),
    Fraction(1000, 7),
    Fraction(123456, 5),
    10**10 + Fraction(1, 3),
    2**53 + Fraction(1, 3),
    2**70 + Fraction(2, 3),
    Fraction(2**80),
    Fraction(2**90),
]


def offsets(law: poisson._Centred) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Near, far, and the last ones possible."""
    near, far = np.arange(-20, 21), np.round(np.linspace(-30, 30, 101) * law.c)
    everything = np.unique(np.concatenate([near, far, [-min(law.m, 2**50)]])).astype(np.int64)
    return everything[everything >= -law.m]


@pytest.mark.parametrize("rate", RATES)
def test_the_computed_probability_is_the_exact_one(rate: Fraction) -> None:
    """The error is below 2^-45, where 2^-30 would be allowed, and the exact one never exceeds 1."""
    law = poisson._Centred(rate)
    x = offsets(law)
    computed = np.exp(law.log_acceptance(x))
    exact = [law.acceptance(int(one), 40) for one in x]
    assert max(exact) <= 1
    assert max(exact) > Decimal("0.7")  # and the candidates are not wasted
    assert np.abs(computed - np.array(exact, dtype=np.float64)).max() < 2.0**-45


@pytest.mark.parametrize("rate", RATES[:4])
def test_the_exact_probability_is_that_of_the_law(rate: Fraction) -> None:
    """P(m+x)/P(m) as a product of ratios, an independent way to say it."""
    law = poisson._Centred(rate)
    for x in range(-16, 40):
        ratio = Fraction(1)
        for i in range(1, x + 1):
            ratio *= rate / (law.m + i)
        for i in range(-x):
            ratio *= (law.m - i) / rate
        expected = float(ratio) * math.exp(abs(x) / law.c - 0.5 - 1.25 / law.c)
        assert float(law.acceptance(x, 30)) == pytest.approx(expected, rel=1e-13)


@given(st.fractions(min_value=SMALLEST_CENTRED, max_value=10**7))
def test_no_probability_exceeds_one(rate: Fraction) -> None:
    """Around the two places where it is largest: x = ±c."""
    law = poisson._Centred(rate)
    x = np.unique(np.round(np.linspace(-2, 2, 41) * law.c)).astype(np.int64)
    assert law.log_acceptance(x[x >= -law.m]).max() < -1e-9


@pytest.mark.parametrize("rate", [Fraction(16), Fraction(100, 3), 10**10 + Fraction(1, 3), Fraction(2**80)])
def test_exact_arithmetic_would_decide_the_same(rate: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = centred(500, rate=rate, randomness=SimulatedRandomness(1))
    decisions = []
    original = poisson._accepted_exactly
    monkeypatch.setattr(poisson, "_GUARD", 1.0)
    monkeypatch.setattr(
        poisson, "_accepted_exactly", lambda *a: decisions.append(original(*a)) or decisions[-1]
    )
    slow = centred(500, rate=rate, randomness=SimulatedRandomness(1))
    assert len(decisions) >= 500
    assert (quick == slow).all()


def test_a_close_word_gets_more_digits() -> None:
    """A uniform number that agrees with the probability in 64 bits is decided by the bits that follow."""
    law = poisson._Centred(Fraction(100, 3))
    p = Fraction(law.acceptance(3, 100))
    words = [int(p * 2**64), int(p * 2**128) % 2**64]

    class Next:
        simulated = True

        def __init__(self, word: int) -> None:
            self.word = word

        def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            return np.array([self.word] * count, dtype=np.uint64)

        def bytes(self, count: int) -> bytes:
            raise AssertionError

    for step, decision in ((-1, True), (1, False)):
        assert poisson._accepted_exactly(law, 3, words[0], Next(words[1] + step)) is decision
        assert poisson._accepted_exactly(law, 3, words[0] + step, Next(0)) is decision


@pytest.mark.parametrize("n", [0, 1, 5, 999, 1000, 1001, 10**6])
def test_log_factorials_are_right(n: int) -> None:
    with decimal.localcontext(poisson._context(60)):
        ours = poisson._log_factorial(n)
    assert float(ours) == pytest.approx(special.gammaln(n + 1), rel=1e-14, abs=1e-14)


def test_stirlings_series_continues_the_factorials() -> None:
    """To 60 digits: log 1000! by the series minus log 999! by the product is log 1000."""
    with decimal.localcontext(poisson._context(60)):
        step = poisson._log_factorial(1000) - poisson._log_factorial(999)
        assert abs(step - Decimal(1000).ln()) < Decimal("1e-55")


def test_pi_and_bernoullis_numbers() -> None:
    assert str(poisson._pi(60))[:52] == "3.14159265358979323846264338327950288419716939937510"
    assert [poisson._bernoulli(n) for n in (2, 4, 12)] == [
        Fraction(1, 6),
        Fraction(-1, 30),
        Fraction(-691, 2730),
    ]


def test_rates_that_cannot_be_drawn_are_refused() -> None:
    for rate in (SMALLEST_CENTRED - Fraction(1, 10**9), LARGEST_CENTRED + Fraction(1)):
        with pytest.raises(ValueError, match="rate"):
            centred(1, rate=rate, randomness=SimulatedRandomness(1))


@pytest.mark.parametrize("count", [0, 1, 5, 40_000])
def test_as_many_as_asked_for(count: int) -> None:
    assert units(count, SimulatedRandomness(1)).shape == (count,)
    assert centred(count, rate=Fraction(50), randomness=SimulatedRandomness(1)).shape == (count,)


@pytest.mark.parametrize("rate", [Fraction(1, 10**30), Fraction(40_000), Fraction(100_001, 3)])
def test_one_draw_of_any_rate(rate: Fraction) -> None:
    drawn = total(rate, SimulatedRandomness(2))
    assert abs(drawn - rate) <= 6 * math.sqrt(rate)
    assert drawn == total(rate, SimulatedRandomness(2))


def test_long_runs_of_heads_go_on() -> None:
    """A run that fills its bits is continued by fair coins: of 10^5 such runs half end at once."""
    runs = np.full(100_000, poisson._RUN_BITS)
    longer = poisson._lengthened(runs, SimulatedRandomness(3)) - poisson._RUN_BITS
    assert abs((longer == 0).mean() - 0.5) < 0.01
    assert longer.mean() == pytest.approx(1, abs=0.03)
    assert (runs == poisson._RUN_BITS).all()  # what was passed in is not changed
