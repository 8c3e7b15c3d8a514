"""From a budget to a noise law, and from noise laws back to what has been spent.

The argument, in four steps (`docs/explanation/differential-privacy.md` has it in full):

1. *One release.* Discrete Laplace noise of scale b on integers that one unit moves by at most k in L1 is
   k/b-DP: P(x)/P(x-v) ≤ exp(|v|₁/b) holds coordinate by coordinate, whatever the dimension. Discrete Gaussian
   noise of scale σ on integers that one unit moves by at most Δ in L2 is ρ-zCDP with ρ = Δ²/2σ²
   (Canonne, Kamath, Steinke 2020, Theorem 4, one coordinate at a time: Rényi divergences of products add up).
2. *Shares, delta = 0.* Query i gets s_i·epsilon; pure epsilons add up, so shares that sum to 1 spend epsilon.
3. *Shares, delta > 0.* ρ is the largest that gives (epsilon, delta). Query i may spend s_i·ρ: Gaussian noise
   with Δ²/2σ² ≤ s_i·ρ, or Laplace noise with k/b ≤ √(2 s_i ρ), which is (k/b)²/2-zCDP (Bun, Steinke 2016,
   Proposition 1.4). zCDP adds up, adaptively, so the whole is ρ-zCDP and (epsilon, delta). A query that gets
   the whole budget (s = 1) stands alone and may also use Laplace noise with k/b ≤ epsilon.
4. *Rounding* goes one way: scales are rounded up, sensitivities are rounded up to whole numbers (or whole
   squares). Every scale has a headroom of 2^-29, more than rounding in shares, in ρ or in √ can amount to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.privacy import samplers
from fedassay.privacy.renyi import Reals, epsilon_of, laplace_divergence, rho_of
from fedassay.protocol import NO_NOISE, Budget, Noise, Randomness, Sensitivity, Vector

if TYPE_CHECKING:
    from dp_accounting import DpEvent

LAPLACE = "discrete-laplace"
GAUSSIAN = "discrete-gaussian"

_HEADROOM = 1 + Fraction(1, 2**29)
_SLACK = 1 - Fraction(1, 2**40)
_DEAREST_PLD, _WIDEST_PLD, _FINEST_DELTA, _PLD_STEPS = 64, 2**16, 1e-12, 2**18


def calibrate(budget: Budget, sensitivity: Sensitivity, share: float = 1.0) -> Noise:
    """The law of smallest variance that a query may use for this share of the budget.

    Guarantee: queries whose shares sum to at most 1, each with the noise given here, are together
    (epsilon, delta)-differentially private for the unit and the neighbours that the sensitivities are for,
    even if later queries depend on earlier answers. A sum that exceeds 1 by 1e-9 (rounding) is covered.

    Edge cases: delta = 0 always gives discrete Laplace noise. A sensitivity that is not finite and positive
    is an `UnsupportedQuery`; a scale beyond 2^52 is a `UsageError`. `Noise.scale` is a dyadic number: the
    float is exactly the ratio that is sampled.

    Examples
    --------
    >>> calibrate(Budget(epsilon=1.0), Sensitivity(l1=2.0, l2=1.5)).law
    'discrete-laplace'
    >>> noise = calibrate(Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=1000.0, l2=32.0))
    >>> noise.law, round(noise.scale, 1)
    ('discrete-gaussian', 145.0)
    """
    if not 0 < share <= 1:
        raise UsageError(f"share of the budget: got {share:.3g}, expected a number in (0, 1].")
    l1, l2_squared = whole_sensitivity(sensitivity)
    if budget.delta == 0:
        wanted = _HEADROOM * l1 / (Fraction(share) * Fraction(budget.epsilon))
        return noise_of(LAPLACE, samplers.laplace_scale(wanted))
    rho = Fraction(share) * Fraction(rho_of(budget.epsilon, budget.delta))
    if rho <= 0:
        raise UsageError(
            f"budget: got epsilon {budget.epsilon:.3g} and delta {budget.delta:.3g}, expected larger ones; "
            "these ask for more noise than can be drawn."
        )
    pure = _root(2 * rho)
    if share == 1:
        pure = max(pure, Fraction(budget.epsilon))
    laplace = _HEADROOM * l1 / pure
    gaussian = _HEADROOM * _root(l2_squared / (2 * rho))
    candidates = []
    if gaussian <= samplers.LARGEST_SCALE:
        candidates.append(noise_of(GAUSSIAN, samplers.gaussian_scale(gaussian)))
    if laplace <= samplers.LARGEST_SCALE or not candidates:
        candidates.append(noise_of(LAPLACE, samplers.laplace_scale(laplace)))
    return min(candidates, key=lambda noise: noise.variance)


def draw(noise: Noise, count: int, randomness: Randomness) -> Vector:
    """Independent draws from a noise law: exact, and smaller than 2^62 in absolute value.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> draw(NO_NOISE, 3, SecureRandomness())
    array([0, 0, 0])
    """
    if noise.law == NO_NOISE.law:
        return np.zeros(count, dtype=np.int64)
    check_law(noise.law, noise.scale)
    sampler = samplers.discrete_laplace if noise.law == LAPLACE else samplers.discrete_gaussian
    numerator, denominator = noise.scale.as_integer_ratio()
    return sampler(count, numerator=numerator, denominator=denominator, randomness=randomness)


def noise_of(law: str, scale: Fraction) -> Noise:
    """A noise law with its exact variance.

    Discrete Laplace: 2a/(1-a)² with a = exp(-1/b). Discrete Gaussian: the sum, which from σ = 2 on is
    σ² to the last bit of a float (the relative difference is of the order of exp(-2π²σ²) < 1e-34).

    Examples
    --------
    >>> noise_of(LAPLACE, Fraction(1)).variance == 2 * math.exp(-1) / math.expm1(-1) ** 2
    True
    """
    value = float(scale)
    check_law(law, value)
    if law == LAPLACE:
        return Noise(law=law, scale=value, variance=2 * math.exp(-1 / value) / math.expm1(-1 / value) ** 2)
    if value > 2:
        return Noise(law=law, scale=value, variance=value * value)
    squares = np.arange(1, 100, dtype=np.float64) ** 2
    weights = np.exp(-squares / (2 * value * value))
    return Noise(law=law, scale=value, variance=float(2 * (squares @ weights) / (1 + 2 * weights.sum())))


def whole_sensitivity(sensitivity: Sensitivity) -> tuple[int, int]:
    """L1 and squared L2 as whole numbers, rounded up: between integer vectors they are nothing else.

    A relative 2^-40 above a whole number still counts as that number, because √2·√2 > 2 in floats.

    Examples
    --------
    >>> whole_sensitivity(Sensitivity(l1=2.0, l2=2**0.5))
    (2, 2)
    """
    if not (0 < sensitivity.l1 <= 2**63 and 0 < sensitivity.l2 <= 2**63):
        raise UnsupportedQuery(
            f"sensitivity: got L1 {sensitivity.l1:.3g} and L2 {sensitivity.l2:.3g}, expected numbers above 0 "
            "and at most 2^63; noise cannot hide a contribution that has no bound."
        )
    l1, l2 = Fraction(sensitivity.l1), Fraction(sensitivity.l2)
    return math.ceil(l1 * _SLACK), math.ceil(l2 * l2 * _SLACK)


def event(noise: Noise, sensitivity: Sensitivity) -> DpEvent:
    """What one release is to dp-accounting.

    Discrete Laplace noise is a `DiscreteLaplaceDpEvent`, not a `LaplaceDpEvent`: both are k/b-DP, but below
    that epsilon the discrete law loses more (at b = k = 1 it *is* randomised response, the worst of all
    1-DP mechanisms), so a Rényi or privacy-loss accountant would understate it. Discrete Gaussian noise is a
    `ZCDpEvent`; no noise is a `NonPrivateDpEvent`.

    Any other pure mechanism may be charged as discrete Laplace noise of scale 1/epsilon and L1 sensitivity 1:
    that is randomised response, which dominates it (Kairouz, Oh, Viswanath 2015).
    """
    from dp_accounting import NonPrivateDpEvent, ZCDpEvent  # late: this import takes half a second
    from dp_accounting.dp_event import DiscreteLaplaceDpEvent

    if noise.law == NO_NOISE.law:
        return NonPrivateDpEvent()
    check_law(noise.law, noise.scale)
    l1, l2_squared = whole_sensitivity(sensitivity)
    if noise.law == LAPLACE:
        return DiscreteLaplaceDpEvent(noise_parameter=1 / noise.scale, sensitivity=l1)
    return ZCDpEvent(rho=l2_squared / noise.scale / noise.scale / 2)


def spent(events: Iterable[DpEvent], delta: float) -> float:
    """The smallest epsilon that we can show for these releases together, at this delta.

    Guarantee: never below the truth, whatever the order of the releases and however they depend on each
    other's answers. The smallest of: the sum of pure epsilons; the Rényi bound (exact divergences of the
    discrete Laplace, ρα of the Gaussian, tight conversion); for pure releases of few kinds dp-accounting's
    privacy loss distribution. Infinite if there is no noise, if there is Gaussian noise and delta is 0, or if
    an event is not one of `event`.

    Examples
    --------
    >>> release = event(noise_of(LAPLACE, Fraction(10)), Sensitivity(l1=1.0, l2=1.0))
    >>> round(spent([release] * 50, 0.0), 3), round(spent([release] * 50, 1e-6), 3)
    (5.0, 3.173)
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta: got {delta:.3g}, expected a number in [0, 1).")
    events = list(events)
    if not events:
        return 0.0
    if not {type(one).__name__ for one in events} <= {"DiscreteLaplaceDpEvent", "ZCDpEvent"}:
        return math.inf
    counts = Counter(events)
    bounds = [_pure_epsilon(counts)]
    if delta > 0:
        bounds.append(epsilon_of(lambda orders: _divergence(counts, orders), delta))
        bounds.append(_pld_epsilon(counts, delta))
    return min(bounds)


def _pure_epsilon(counts: Counter[Any]) -> float:
    if any(hasattr(one, "rho") for one in counts):
        return math.inf
    return math.fsum(n * one.sensitivity * one.noise_parameter for one, n in counts.items())


def _divergence(counts: Counter[Any], orders: Reals) -> Reals:
    total = np.zeros_like(orders)
    for one, n in counts.items():
        if hasattr(one, "rho"):
            total = total + n * (one.xi + one.rho * orders)
        else:
            scale = 1 / one.noise_parameter
            total = total + n * laplace_divergence(orders, scale=scale, sensitivity=one.sensitivity)
    return total


def _pld_epsilon(counts: Counter[Any], delta: float) -> float:
    """Pure releases by privacy loss distributions, where that is quick and numerically safe.

    Valid for vectors: a shift of k in one coordinate dominates every way to split it (proven on the page).
    """
    from dp_accounting import SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    total = _pure_epsilon(counts)
    widest = max(getattr(one, "sensitivity", math.inf) for one in counts)
    if total > _DEAREST_PLD or widest > _WIDEST_PLD or len(counts) > 16 or delta < _FINEST_DELTA:
        return math.inf
    accountant = PLDAccountant(value_discretization_interval=max(total / _PLD_STEPS, 1e-7))
    for one, n in counts.items():
        accountant.compose(SelfComposedDpEvent(one, n))
    # A little less delta, for rounding in its Fourier transforms (1e-16, far below 1e-3·delta).
    return float(accountant.get_epsilon(0.999 * delta))


def check_law(law: str, scale: float) -> None:
    """Raise unless this is a law that adds noise, with a scale that could have been drawn."""
    if law not in (LAPLACE, GAUSSIAN) or not 2.0**-52 <= scale <= 2.0**52:
        raise UsageError(
            f"noise: got the law {law!r} of scale {scale:.3g}, expected none, {LAPLACE} or {GAUSSIAN} "
            "and a scale between 2^-52 and 2^52."
        )


def _root(square: Fraction) -> Fraction:
    """√square to 60 bits, rounded down; the headroom of every scale makes up for it."""
    places = 60 + max(0, square.denominator.bit_length() - square.numerator.bit_length())
    return Fraction(math.isqrt(math.floor(square * 4**places)), 2**places)
