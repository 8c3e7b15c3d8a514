"""The bound of a point's noise, against exact laws of weighted sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve

from fedassay.errors import UsageError
from fedassay.estimation.coverage import NoiseTail
from fedassay.estimation.coverage.noise_tail import NoiseLaw

STEP = 0.25
"""Weights are multiples of it, so that sums of draws have a lattice."""

LAWS: tuple[NoiseLaw, ...] = ("discrete-laplace", "discrete-gaussian", "skellam")
WEIGHTS = {
    "one": (1.0,),
    "alike": (1.0,) * 12,
    "unlike": (1.0, -0.75, 0.5, 0.5, 0.25, 0.25, 0.25, -0.25),
    "one large": (1.0, *(0.25,) * 30),
}


def draw(law: str, scale: float) -> np.ndarray:
    """P(X = x) for x from -reach to reach, all but about 1e-18."""
    reach = math.ceil((45 if law == "discrete-laplace" else 10) * scale) + 20
    x = np.arange(-reach, reach + 1)
    if law == "discrete-laplace":
        p = np.exp(-np.abs(x) / scale)
    elif law == "discrete-gaussian":
        p = np.exp(-(x**2) / (2 * scale**2))
    else:
        half = np.exp(
            -(scale**2) / 2
            + np.arange(3 * reach) * math.log(scale**2 / 2)
            - [math.lgamma(i + 1) for i in range(3 * reach)]
        )
        p = np.convolve(half, half[::-1])[len(half) - 1 - reach : len(half) + reach]
    return p / p.sum()


def weighted_sum(law: str, scale: float, weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of Σ w_i X_i, by convolution on the lattice."""
    one, total = draw(law, scale), np.ones(1)
    for weight in weights:
        apart = round(abs(weight) / STEP)
        spread = np.zeros((len(one) - 1) * apart + 1)
        spread[::apart] = one
        total = np.maximum(fftconvolve(total, spread), 0.0)
    reach = len(total) // 2
    return STEP * np.arange(-reach, reach + 1), total


def tail_of(law: NoiseLaw, scale: float, weights: tuple[float, ...], *, least: bool) -> NoiseTail:
    x, p = weighted_sum(law, scale, weights)
    variance = float(x**2 @ p)
    reach = max(abs(w) for w in weights)
    return NoiseTail(
        law=law,
        scale=scale,
        variance=variance * (1 + 1e-9),
        reach=reach,
        least_variance=least * variance * (1 - 1e-9),
    )


@pytest.mark.parametrize("scale", [0.4, 3.0])
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("law", LAWS)
def test_no_sum_exceeds_the_bound(law: NoiseLaw, name: str, scale: float) -> None:
    x, p = weighted_sum(law, scale, WEIGHTS[name])
    exact = np.cumsum(p[::-1])[::-1]  # P(Z >= x)
    seen = exact > 1e-11
    for least in (True, False):
        found = tail_of(law, scale, WEIGHTS[name], least=least)
        assert (found.above(x[seen]) >= exact[seen] - 1e-13).all()
        assert (found.above(x[seen] - 1e-9) >= exact[seen] - 1e-13).all()


@pytest.mark.parametrize("law", LAWS)
def test_sums_of_smaller_variance_do_not_exceed_it_either(law: NoiseLaw) -> None:
    """The bound of points whose variances differ by a factor of 12, at each of them."""
    largest = tail_of(law, 3.0, (1.0,) * 12, least=False)
    one = float(np.arange(-len(draw(law, 3.0)) // 2 + 1, len(draw(law, 3.0)) // 2 + 1) ** 2 @ draw(law, 3.0))
    known = NoiseTail(
        law=law, scale=3.0, variance=largest.variance, reach=1.0, least_variance=one * (1 - 1e-9)
    )
    for count in (1, 2, 3, 5, 8, 12):
        x, p = weighted_sum(law, 3.0, (1.0,) * count)
        exact = np.cumsum(p[::-1])[::-1]
        seen = exact > 1e-11
        assert (largest.above(x[seen]) >= exact[seen] - 1e-13).all()
        assert (known.above(x[seen]) >= exact[seen] - 1e-13).all()


@pytest.mark.parametrize(
    ("law", "most"), [("discrete-gaussian", 0.06), ("skellam", 0.06), ("discrete-laplace", 0.06)]
)
def test_the_bound_is_close_where_variances_are_alike(law: NoiseLaw, most: float) -> None:
    """∫ of what it exceeds the exact law by, in standard deviations; Chernoff's alone has 0.89 for x > 0."""
    weights = (1.0,) * 12
    x, p = weighted_sum(law, 10.0, weights)
    found = tail_of(law, 10.0, weights, least=True)
    at = np.linspace(-8, 8, 4001) * math.sqrt(found.variance)
    exact = np.append(np.cumsum(p[::-1])[::-1], 0)[np.searchsorted(x, at)]
    excess = float((found.above(at) - exact).mean()) * 16
    assert 0 < excess < most


def test_a_bound_of_half_the_variance_is_exceeded() -> None:
    """The first test would see it."""
    x, p = weighted_sum("discrete-laplace", 5.0, WEIGHTS["alike"])
    exact = np.cumsum(p[::-1])[::-1]
    right = tail_of("discrete-laplace", 5.0, WEIGHTS["alike"], least=True)
    wrong = NoiseTail(law="discrete-laplace", scale=5.0, variance=right.variance / 2, reach=1.0)
    assert (wrong.above(x) < exact - 0.01).any()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.3, 2.0, 300.0])
def test_it_is_a_tail(law: NoiseLaw, scale: float) -> None:
    found = NoiseTail(law=law, scale=scale, variance=8 * scale**2, reach=1.0, least_variance=scale**2)
    x = np.linspace(-30, 60, 2001) * scale
    bound = found.above(x)
    assert ((bound >= 0) & (bound <= 1)).all()
    assert (np.diff(bound) <= 0).all()
    assert (found.above(np.array([math.ulp(0.0), 1e-9])) <= 0.5).all()
    assert found.above(found.furthest) <= 1e-15
    for p in (1e-9, 1e-3, 0.3):
        assert found.above(found.reach_of(p)) <= p


def test_its_integral() -> None:
    found = NoiseTail(law="unary", variance=100.0, reach=3.0)
    grid = np.linspace(-20, found.furthest, 400_001)
    for start in (-10.0, 0.0, 7.3, found.furthest + 1):
        expected = found.above(grid[grid >= start]).sum() * (grid[1] - grid[0])
        assert found.integral(start) == pytest.approx(expected, abs=1e-3)


def test_no_noise_is_none() -> None:
    found = NoiseTail(law="none")
    assert found.above([-1.0, 0.0, 1e-12]).tolist() == [1, 1, 0]
    assert found.above(found.reach_of(1e-6)) == 0
    assert NoiseTail(law="discrete-laplace", scale=1.0).exact


def test_reports_have_bernsteins_bound() -> None:
    found = NoiseTail(law="unary", variance=100.0, reach=3.0)
    x = np.array([5.0, 20.0, 60.0])
    exact = np.exp(-(x**2) / (2 * (100 + x)))
    assert (found.above(x) >= exact).all()
    assert found.above(x) == pytest.approx(exact, rel=0.05)
    assert found.above(0.0) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"law": "cauchy"},
        {"law": "skellam", "scale": 1.0, "variance": -1.0},
        {"law": "skellam", "scale": 1.0, "variance": 1.0, "least_variance": 2.0},
        {"law": "skellam", "scale": 0.0, "variance": 1.0},
        {"law": "skellam", "scale": 1.0, "variance": math.inf},
        {"law": "unary", "variance": 1.0, "reach": 0.0},
    ],
    ids=str,
)
def test_what_is_no_noise_is_refused(bad: dict) -> None:
    with pytest.raises(UsageError, match="noise"):
        NoiseTail(**bad)


def test_probabilities_that_are_none_are_refused() -> None:
    for p in (0.0, 1.0, math.nan):
        with pytest.raises(UsageError, match="probability"):
            NoiseTail(law="skellam", scale=1.0, variance=1.0).reach_of(p)
