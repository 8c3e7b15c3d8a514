"""Calibration and accounting: from a budget to a noise law, and from noise laws back to what has been spent.

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
   For noise that clients add in parts, `calibrate_shared` does the same with a Rényi divergence of one order.
4. *Rounding* goes one way: scales are rounded up, sensitivities are rounded up to whole numbers (or whole
   squares). Every scale has a headroom of 2^-29, more than rounding in shares, in ρ or in √ can amount to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.privacy import amplification, noise_shares, renyi, samplers
from fedassay.privacy.laws import (
    CHOICE,
    GAUSSIAN,
    LAPLACE,
    SKELLAM,
    UNARY,
    check_law,
    draw,
    draw_parts,
    largest_share,
    noise_of,
)
from fedassay.privacy.renyi import root
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Noise, Sensitivity

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "CHOICE",
    "GAUSSIAN",
    "LAPLACE",
    "SKELLAM",
    "UNARY",
    "calibrate",
    "calibrate_choice",
    "calibrate_shared",
    "check_law",
    "draw",
    "draw_parts",
    "event",
    "largest_share",
    "noise_of",
    "spent",
    "upper_bounds",
    "whole_sensitivity",
]

_HEADROOM = 1 + Fraction(1, 2**29)
_SLACK = 1 - Fraction(1, 2**40)
_KNOWN_EVENTS = {
    "DiscreteLaplaceDpEvent",
    "ZCDpEvent",
    "SkellamDpEvent",
    "ShuffledDpEvent",
    "PoissonSampledDpEvent",
}
_DEAREST_PLD, _WIDEST_PLD, _FINEST_DELTA, _PLD_STEPS = 64, 2**16, 1e-12, 2**18


def calibrate(budget: Budget, sensitivity: Sensitivity, share: float = 1.0) -> Noise:
    """Return the law of smallest variance that a query may use for this share of the budget.

    Guarantee: queries whose shares sum to at most 1, each with the noise given here, are together
    (epsilon, delta)-differentially private for the unit and the neighbours that the sensitivities are for,
    even if later queries depend on earlier answers. Parts
    whose sum exceeds 1 by 1e-9 (rounding) are covered, but nothing in addition to a whole share.

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
    l1, l2_squared = whole_sensitivity(sensitivity)
    if budget.delta == 0:
        return _pure(budget, l1, share)
    rho = _rho(budget, share)
    laplace = _HEADROOM * l1 / _pure_part(budget, share)
    gaussian = _HEADROOM * root(l2_squared / (2 * rho))
    other = None
    if gaussian <= samplers.LARGEST_SCALE:
        other = noise_of(GAUSSIAN, samplers.gaussian_scale(gaussian))
    return _least_variance(laplace, other)


def calibrate_shared(budget: Budget, sensitivity: Sensitivity, share: float = 1.0) -> Noise:
    """Return noise as `calibrate` does, for noise drawn in shares (`draw_parts`): discrete Laplace or Skellam.

    Guarantee: as for `calibrate`, if the noise of every release amounts to at least one part of the law given
    here; more, if independent, does no harm (post-processing). Releases of one budget must all be planned here:
    shares of `calibrate` and of this function do not add up.

    How shares add up, for delta > 0: the budget fixes one whole order α and the largest D_α that gives
    (epsilon, delta) at this order (`renyi.order_of`). A query may use s·D_α; D_α of adaptively chosen releases adds
    up (Mironov 2017, Proposition 1), so shares that sum to 1 spend D_α. One order is all that is needed, so the
    bound for Skellam noise, which holds for whole orders, loses nothing by that.

    Edge cases: as for `calibrate`; σ of Skellam noise is at most 2^40.

    Examples
    --------
    >>> calibrate_shared(Budget(epsilon=1.0), Sensitivity(l1=2.0, l2=1.5)).law
    'discrete-laplace'
    >>> noise = calibrate_shared(Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=1000.0, l2=32.0))
    >>> noise.law, round(noise.scale, 1)
    ('skellam', 145.0)
    """
    l1, l2_squared = whole_sensitivity(sensitivity)
    if budget.delta == 0:
        return _pure(budget, l1, share)
    order, divergence = renyi.order_of(budget.epsilon, budget.delta)
    if divergence <= 0:
        raise _too_small(budget)
    may_use = _part(share) * Fraction(divergence)
    laplace = Fraction(renyi.laplace_scale_of(float(may_use), order=order, sensitivity=l1))
    if share == 1:
        laplace = min(laplace, l1 / Fraction(budget.epsilon))
    laplace *= _HEADROOM
    variance = renyi.skellam_variance_of(may_use, order=order, l1=l1, l2_squared=l2_squared)
    skellam = _HEADROOM * root(variance)
    other = None
    if skellam < noise_shares.LARGEST_SKELLAM:
        other = noise_of(SKELLAM, noise_shares.skellam_scale(skellam))
    return _least_variance(laplace, other)


def _least_variance(laplace: Fraction, other: Noise | None) -> Noise:
    """Return Laplace noise of this scale or another law, whichever has less variance, if both can be drawn."""
    if other is not None and laplace > samplers.LARGEST_SCALE:
        return other
    noise = noise_of(LAPLACE, samplers.laplace_scale(laplace))
    return noise if other is None else min(other, noise, key=lambda one: one.variance)


def calibrate_choice(budget: Budget, loss_range: float, share: float = 1.0) -> Noise:
    """Return the law ``choice`` for losses that one unit moves by amounts within an interval of this length.

    Guarantee: as for `calibrate`, together with whose releases it may share a budget: a choice of scale b is
    (range/b)-differentially private (`choices.choose`), which is all that step 3 uses of Laplace noise.

    Examples
    --------
    >>> round(calibrate_choice(Budget(epsilon=1.0), 2.0).scale, 6)
    2.0
    """
    reach, _ = whole_sensitivity(Sensitivity(l1=loss_range, l2=loss_range))
    wanted = _HEADROOM * reach / _pure_part(budget, share)
    return noise_of(CHOICE, samplers.laplace_scale(wanted))


def _rho(budget: Budget, share: float) -> Fraction:
    """Return the zCDP that a share of a budget with a delta may spend."""
    rho = _part(share) * Fraction(renyi.rho_of(budget.epsilon, budget.delta))
    if rho <= 0:
        raise _too_small(budget)
    return rho


def _pure_part(budget: Budget, share: float) -> Fraction:
    """Return the pure epsilon that a query with this share may spend."""
    if budget.delta == 0:
        return _part(share) * Fraction(budget.epsilon)
    pure = root(2 * _rho(budget, share))
    return max(pure, Fraction(budget.epsilon)) if share == 1 else pure


def _part(share: float) -> Fraction:
    if not 0 < share <= 1:
        raise UsageError(f"share of the budget: got {share:.3g}, expected a number in (0, 1].")
    return Fraction(share)


def _pure(budget: Budget, l1: int, share: float) -> Noise:
    """Return Laplace noise for a share of a pure epsilon."""
    wanted = _HEADROOM * l1 / _pure_part(Budget(epsilon=budget.epsilon), share)
    return noise_of(LAPLACE, samplers.laplace_scale(wanted))


def _too_small(budget: Budget) -> UsageError:
    return UsageError(
        f"budget: got epsilon {budget.epsilon:.3g} and delta {budget.delta:.3g}, expected larger ones; "
        "these ask for more noise than can be drawn."
    )


def whole_sensitivity(sensitivity: Sensitivity) -> tuple[int, int]:
    """Return L1 and squared L2 as whole numbers, rounded up: between integer vectors they are nothing else.

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


def event(
    noise: Noise, sensitivity: Sensitivity, shuffled: Budget | None = None, *, sampled: float = 1.0
) -> DpEvent:
    """Return the event that stands for one release in dp-accounting.

    Discrete Laplace noise is a `DiscreteLaplaceDpEvent`, not a `LaplaceDpEvent`: both are k/b-DP, but below
    that epsilon the discrete law loses more (at b = k = 1 it *is* randomised response, the worst of all
    1-DP mechanisms), so a Rényi or privacy-loss accountant would understate it. Discrete Gaussian noise is a
    `ZCDpEvent`, Skellam noise a `SkellamDpEvent` of ours; no noise is a `NonPrivateDpEvent`.

    Any other pure mechanism may be charged as discrete Laplace noise of scale 1/epsilon and L1 sensitivity 1:
    that is randomised response, which dominates it (Kairouz, Oh, Viswanath 2015). So are `UNARY` releases,
    whatever the sensitivity: each client's answers are 1/scale-DP for what it holds. And so is a `CHOICE`, whose L1
    sensitivity stands for the range of its losses.

    Where noise and sensitivity are those of single messages, of which only the `shuffled` ones are seen, it is a
    `ShuffledDpEvent` of ours that has both. Where clients take part by secret coins that come up with probability
    `sampled`, it is a `PoissonSampledDpEvent` (`sampling.py` has the argument).
    """
    from dp_accounting import NonPrivateDpEvent, ZCDpEvent  # late: this import takes half a second
    from dp_accounting.dp_event import DiscreteLaplaceDpEvent

    from fedassay.privacy.events import ShuffledDpEvent, SkellamDpEvent

    if shuffled is not None:
        local = event(noise, sensitivity)
        return ShuffledDpEvent(local=local, epsilon=shuffled.epsilon, delta=shuffled.delta)
    if noise.law == NO_NOISE.law:
        return NonPrivateDpEvent()
    check_law(noise.law, noise.scale)
    if sampled < 1:
        return amplification.event_of(noise, sensitivity, sampled)
    l1, l2_squared = whole_sensitivity(sensitivity)
    if noise.law == CHOICE:
        return DiscreteLaplaceDpEvent(noise_parameter=l1 / noise.scale, sensitivity=1)
    if noise.law in (LAPLACE, UNARY):
        moved = l1 if noise.law == LAPLACE else 1
        return DiscreteLaplaceDpEvent(noise_parameter=1 / noise.scale, sensitivity=moved)
    if noise.law == SKELLAM:
        return SkellamDpEvent(variance=noise.scale * noise.scale, l1=l1, l2_squared=l2_squared)
    return ZCDpEvent(rho=l2_squared / noise.scale / noise.scale / 2)


def spent(events: Iterable[DpEvent] | Mapping[DpEvent, int], delta: float) -> float:
    """Return the smallest epsilon provable for these releases together at this delta; a mapping counts them.

    Guarantee: never below the truth, whatever the order of the releases and however questions depend on earlier
    answers, if the noise of each was settled before the answers. The smallest of: the sum of pure epsilons; the Rényi
    bound (exact divergences of the discrete Laplace, ρα of the Gaussian, a bound for Skellam, tight conversion); for
    pure releases of few kinds dp-accounting's privacy loss distribution. Infinite if there is no noise, if there is
    Gaussian or Skellam noise and delta is 0, or if an event is not one of `event`. Shuffled releases count by their
    messages, or by the sums of their epsilons and deltas, plus what the others cost at the delta that is left:
    whichever gives less. Sampled releases count by dp-accounting's privacy loss distributions, with the others at half
    the delta each, or as if all clients had taken part: whichever gives less.

    Examples
    --------
    >>> release = event(noise_of(LAPLACE, Fraction(10)), Sensitivity(l1=1.0, l2=1.0))
    >>> round(spent([release] * 50, 0.0), 3), round(spent([release] * 50, 1e-6), 3)
    (5.0, 3.173)
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta: got {delta:.3g}, expected a number in [0, 1).")
    events = events if isinstance(events, Mapping) else list(events)
    if not {type(one).__name__ for one in events} <= _KNOWN_EVENTS:
        return math.inf
    counts: Counter[Any] = Counter(events)
    if not counts:
        return 0.0
    if any(hasattr(one, "local") for one in counts):
        return _spent_shuffled(counts, delta)
    if any(hasattr(one, "sampling_probability") for one in counts):
        return _spent_sampled(counts, delta)
    bounds = [_pure_epsilon(counts)]
    if delta > 0:
        bounds.append(renyi.epsilon_of(lambda orders: _divergence(counts, orders), delta))
        bounds.append(_pld_epsilon(counts, delta))
    return min(bounds)


def upper_bounds(event: DpEvent, orders: Floats) -> tuple[float, Floats]:
    """Return a pure epsilon of one release, and its Rényi divergences at these orders; infinite without a bound.

    Guarantee: `spent` of releases is at most the sum of their pure epsilons, and at most what the sums of their
    divergences at one of these orders give, if these are whole orders that `renyi.epsilon_of` looks at.
    """
    one = getattr(event, "local", event)
    if type(one).__name__ not in _KNOWN_EVENTS or hasattr(one, "sampling_probability"):
        return math.inf, np.full_like(orders, np.inf)
    counts = Counter([one])
    return _pure_epsilon(counts), _divergence(counts, orders)


def _spent_shuffled(counts: Counter[Any], delta: float) -> float:
    """Apply basic composition, whatever depends on what (Dwork, Roth 2014, Theorem 3.16, and for adaptive choices)."""
    shuffled, others = _parted(counts, "local")
    messages = Counter(others)
    for one, n in shuffled.items():
        messages[one.local] += n
    by_messages = spent(messages, delta)
    left = delta - math.fsum(n * one.delta for one, n in shuffled.items())
    if left < 0:
        return by_messages
    return min(by_messages, math.fsum(n * one.epsilon for one, n in shuffled.items()) + spent(others, left))


def _spent_sampled(counts: Counter[Any], delta: float) -> float:
    """Compose the sampled releases and the others by basic composition; or all of them as if all clients took part."""
    drawn, others = _parted(counts, "sampling_probability")
    if not others:
        return amplification.epsilon_of(drawn, delta)
    in_full = Counter(others)
    for one, n in drawn.items():
        in_full[amplification.cost_in_full(one)] += n
    return min(spent(in_full, delta), amplification.epsilon_of(drawn, delta / 2) + spent(others, delta / 2))


def _parted(counts: Counter[Any], attribute: str) -> tuple[Counter[Any], Counter[Any]]:
    """Split the events into those that have this attribute, and the others."""
    having = Counter({one: n for one, n in counts.items() if hasattr(one, attribute)})
    return having, Counter({one: n for one, n in counts.items() if one not in having})


def _pure_epsilon(counts: Counter[Any]) -> float:
    if not all(hasattr(one, "noise_parameter") for one in counts):
        return math.inf
    return math.fsum(n * one.sensitivity * one.noise_parameter for one, n in counts.items())


def _divergence(counts: Counter[Any], orders: Floats) -> Floats:
    total = np.zeros_like(orders)
    for one, n in counts.items():
        if hasattr(one, "rho"):
            total = total + n * (one.xi + one.rho * orders)
        elif hasattr(one, "variance"):
            total = total + n * renyi.skellam_divergence(
                orders, variance=one.variance, l1=one.l1, l2_squared=one.l2_squared
            )
        else:
            scale = 1 / one.noise_parameter
            total = total + n * renyi.laplace_divergence(orders, scale=scale, sensitivity=one.sensitivity)
    return total


def _pld_epsilon(counts: Counter[Any], delta: float) -> float:
    """Compose pure releases by privacy loss distributions, where that is quick and numerically safe.

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
