"""Amplification: less noise where clients enter by chance (Poisson sampling) or reports are shuffled.

Noise for releases that each client enters by chance: amplification by Poisson sampling.

A client takes part in a release with probability q, by a secret coin of its own; otherwise it answers as a client
without rows does. An observer of the noisy totals alone cannot tell the two apart, so that less noise is needed.
Against an observer of the coins (a server that gets exact vectors, say) nothing is gained; each release counts in full.

The argument (docs/explanation/sampling.md has it in full):

1. *One release* of a vector that one client moves by at most Δ in L2 from what it is without the client's rows: the
   output is q·N(v, σ²) + (1-q)·N(0, σ²) with the client and N(0, σ²) without, |v| <= Δ. By symmetry of the Gaussian
   only |v| matters, and the privacy loss distribution for |v| = Δ dominates (dp-accounting's `PoissonSampledDpEvent`).
   That "taking part without rows" and "not taking part" are the same message is what this rests on: the protected unit
   must be the client, added or removed.
2. *T releases* compose by convolution, whatever later questions depend on; dp-accounting rounds losses up.
3. *Whole numbers.* Noise is discrete Gaussian, drawn exactly. Its probabilities and those of a rounded Gaussian, which
   is the Gaussian mechanism with rounding after it, differ by at most a factor exp(±η), η = (|k|²/σ² + d)/(24 σ²) for
   an outcome k in d dimensions; with |k|² <= (4d + 400)σ², beyond which probabilities are below 1e-40. A scale of at
   least 2^20 makes that negligible, and what is left is taken off the budget.

Amplification by shuffling: the privacy of a bag of messages whose senders are unknown. Computed, not estimated.

Notation: n clients; each applies the same randomiser R, which is ε₀-differentially private for *everything the client
holds*: R(x) ≤ e^ε₀ R(x') for any two inputs. An adversary is to distinguish the inputs x₀ and x₁ of client 1, and
knows the inputs of all others. Write a = e^ε₀, t = e^ε, p₀ = R(x₀), p₁ = R(x₁), r = R(x) for any other input x.

**Theorem.** The messages in random order are (ε, δ)-differentially private with δ = E[D_C], C ~ Bin(n-1, 2/(a+1)),
where D_C is the divergence sup P - t·Q between (A+Δ, C-A+1-Δ) and (A+1-Δ, C-A+Δ), A ~ Bin(C, 1/2), Δ ~ Bern(a/(a+1)):
one binary randomised response hidden among C fair coins.

*Proof.* Let s = (a+1)·|p₀-p₁|₁/(2(a-1)), at most 1, and w = s/(a+1). With q₀ and q₁ the normalised positive parts of
p₀-p₁ and of p₁-p₀, and the rest ρ = min(p₀, p₁) - w(q₀+q₁),

    p₀ = a·w·q₀ + w·q₁ + ρ,    p₁ = w·q₀ + a·w·q₁ + ρ,    r ≥ w·q₀ + w·q₁ + ρ/a.

(Where p₀ > p₁: w·q₀ = (p₀-p₁)/(a-1), so ρ = (a·p₁-p₀)/(a-1) ≥ 0 and w·q₀ + ρ/a = p₀/a ≤ r.) So each other client draws
from q₀, q₁ or ρ, with probabilities w, w and (1-s)/a, or from something of its own. How often each of the three was
drawn, in all, is enough to make the shuffled messages without knowing x₀ from x₁. The divergence of these numbers is
E[(Z₁ + .. + Z_n)⁺]/n (write their probabilities relative to n draws of other clients), with independent Z_i that are

    a - t  and  1 - a·t  with probability w each,   a(1-t)  with probability (1-s)/a,   else 0.

As s grows, mass moves from the inner points a(1-t) and 0 to the outer points 1 - a·t and a - t, and E[Z] = 1 - t stays:
a mean-preserving spread, and x⁺ is convex. So s = 1 is the worst, which is the theorem. ∎

The reduction to "clones" of client 1, with probability 1/a, is V. Feldman, A. McMillan, K. Talwar, Hiding among the
clones (FOCS 2021), Theorem 3.2; that it holds with 2/(a+1) they state in Stronger privacy amplification by shuffling
(SODA 2023). Assumption that cannot be dropped: R is ε₀-private for the whole input. For a randomiser that protects one
of a client's many rows nothing of this holds (`docs/explanation/shuffle.md` has the counterexample).

**Arithmetic.** With k = ⌊(C+1)(a·t-1)/((a-1)(t+1))⌋ + 1 and S(j) = P(Bin(C, 1/2) ≥ j)

    D_C = ((a-t)·S(k-1) - (a·t-1)·S(k))/(a+1).

D_C falls with C (another fair coin is post-processing), so E[D_C] is bounded from above by a sum over blocks of C, each
with the value of its left end, and everything below and above a window with those of 0 and of its end. All rounding is
upwards, by more than the measured errors of the incomplete beta function.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from fedassay.errors import UsageError
from fedassay.privacy import samplers
from fedassay.privacy.laws import GAUSSIAN, noise_of
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    Budget,
    Neighbours,
    Noise,
    Plan,
    Protection,
    Sample,
    Sensitivity,
    Unit,
)

MOST_ROUNDS = 10_000
FINEST = 1e-10
"""Smallest delta: smaller ones are beyond what the Fourier transforms of the accountant resolve."""

LEAST_RATE, MOST_EPSILON, LEAST_EPSILON = 1e-3, 16.0, 1e-3
"""Bounds of rate and epsilon beyond which a plan would take minutes: sampling then counts for nothing."""

_RESERVE = 2.0**-19
"""The part of the budget that is left for whole numbers in the place of real ones."""

_SMALLEST_SCALE = 2.0**20
_COARSEST, _FINEST_STEP = 1e-3, 1e-6
"""Bounds of the steps of losses, well below the spread of one release's loss, about rate/multiplier."""


def rounds_of(share: float) -> int | None:
    """Return T, if the share is that of one of T equal releases."""
    if not 0 < share <= 1:
        return None
    rounds = round(1 / share)
    return rounds if abs(rounds * share - 1) <= 1e-9 and rounds <= MOST_ROUNDS else None


def amplifies(budget: Budget, protection: Protection, cohort: object, share: float) -> bool:
    """Return whether sampling counts for the guarantee: whole clients added or removed, a delta, equal releases."""
    return (
        isinstance(cohort, Sample)
        and LEAST_RATE <= cohort.rate < 1
        and LEAST_EPSILON <= budget.epsilon <= MOST_EPSILON
        and protection.unit is Unit.CLIENT
        and protection.neighbours is Neighbours.ADD_REMOVE
        and FINEST <= (1 - _RESERVE) * budget.delta < 0.5
        and rounds_of(share) is not None
    )


def calibrate_sampled(
    budget: Budget, sensitivity: Sensitivity, *, rate: float, share: float, length: int
) -> Noise | None:
    """Return discrete Gaussian noise for each of T = 1/share releases that clients enter with probability `rate`.

    Guarantee: T such releases of one task, with sensitivities that have these L2 norms, are together (epsilon,
    delta)-differentially private for one client added or removed, against an observer who does not see who took part.
    They do not share a budget with other releases: `run.py` holds tasks to that.

    None if the sensitivity is too small a whole number, or the vector too long, for the argument about whole numbers.

    Examples
    --------
    >>> noise = calibrate_sampled(
    ...     Budget(epsilon=1.0, delta=1e-5), Sensitivity(l1=2.0**24, l2=2.0**24), rate=0.1, share=1 / 30, length=1
    ... )
    >>> noise.law, round(noise.scale / 2**24, 2)  # 2.41 in units of the sensitivity
    ('discrete-gaussian', 2.41)
    """
    rounds = rounds_of(share)
    if rounds is None:
        raise UsageError(f"share of the budget: got {share:.3g}, expected one part of a whole number.")
    multiplier = _multiplier(budget.epsilon, budget.delta, rate, rounds)
    scale = samplers.gaussian_scale(Fraction(multiplier) * Fraction(math.ceil(sensitivity.l2)))
    noise = noise_of(GAUSSIAN, scale)
    if noise.scale < _SMALLEST_SCALE:
        return None
    apart = (5 * length + 400) / (24 * noise.scale**2)
    if 2 * rounds * apart > _RESERVE * budget.epsilon or 2 * rounds * apart > _RESERVE:
        return None
    return noise


def epsilon_of(events: Iterable[Any] | Mapping[Any, int], delta: float) -> float:
    """Return the joint epsilon of sampled releases (`PoissonSampledDpEvent` of Gaussian noise); a mapping counts them.

    An upper bound, by dp-accounting's privacy loss distributions.
    """
    from dp_accounting import NeighboringRelation, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    if delta < FINEST:
        return math.inf
    counts: Counter[Any] = Counter(events)
    if not counts:
        return 0.0
    step = min(_COARSEST, *(one.sampling_probability / one.event.noise_multiplier / 8 for one in counts))
    accountant = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=max(step, _FINEST_STEP)
    )
    for one, times in counts.items():
        accountant.compose(SelfComposedDpEvent(one, times))
    return float(accountant.get_epsilon(0.999 * delta))


def event_of(noise: Noise, sensitivity: Sensitivity, rate: float) -> Any:
    """Return a sampled release, as dp-accounting sees it."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    if noise.law != GAUSSIAN:
        raise UsageError(f"sampling: got {noise.law} noise, expected {GAUSSIAN}; only that is amplified.")
    return PoissonSampledDpEvent(rate, GaussianDpEvent(noise.scale / math.ceil(sensitivity.l2)))


def cost_in_full(event: Any) -> Any:
    """Return the cost of the release to an observer who sees which clients took part."""
    from dp_accounting import ZCDpEvent

    return ZCDpEvent(rho=1 / event.event.noise_multiplier**2 / 2)


@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """Return the smallest noise, in units of the sensitivity, that meets the budget; up to 1e-4 of it."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    wanted, delta = epsilon * (1 - _RESERVE), delta * (1 - _RESERVE)

    def affordable(multiplier: float) -> bool:
        one = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
        return epsilon_of([one] * rounds, delta) <= wanted

    high = 1.0
    while not affordable(high):
        high *= 2
        if high > 2.0**20:
            raise UsageError(
                f"budget: got epsilon {epsilon:.3g} and delta {delta:.3g} for {rounds} sampled releases, expected "
                "larger ones; these ask for more noise than can be drawn."
            )
    low = high / 2
    while low > 2.0**-6 and affordable(low):
        low, high = low / 2, low
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


# --- amplification by shuffling -----------------------------------------------------------------------------

LARGEST_LOCAL_EPSILON = 64.0
"""Largest ε₀ that is considered: a message at ε₀ = 64 reveals all, and hides among e^63 others at best."""

_STEP = 2.0**-12
"""Step of local epsilons: all parties that plan the same query must come to the same number."""

_BLOCKS = 1000
_WINDOW = 80.0
"""Width of the window: C is below it with probability below e^-80; what lies beyond costs accuracy, never privacy."""

_UNDERFLOW = 2.0**-1000

Wholes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ShuffledPlan(Plan):
    """Plan whose noise and sensitivity are those of one client's message, of which only shuffled ones are seen.

    `cost` is the cost of all messages together to an observer who sees them in random order.
    """

    cost: Budget


def cost_of(plan: Plan) -> Budget | None:
    """Return the joint cost of shuffled messages; None where nothing is shuffled, or shuffling adds nothing."""
    return plan.cost if isinstance(plan, ShuffledPlan) else None


def delta_of(epsilon: float, local_epsilon: float, clients: int) -> float:
    """Return a δ for which the shuffled messages of `clients` are (ε, δ)-private, if each message is ε₀-private.

    Guarantee: never below the δ of the theorem, and hardly above (10^-3 of it, up to 10^9 clients).

    Edge cases: from ε = ε₀ on δ is 0. A single client has no others to hide among: δ = (e^ε₀ - e^ε)/(e^ε₀ + 1).

    Examples
    --------
    >>> print(f"{delta_of(0.1, 1.0, 10_000):.2e}")
    1.77e-18
    >>> delta_of(1.0, 1.0, 10_000)
    0.0
    """
    _check(epsilon, local_epsilon, clients)
    if epsilon >= local_epsilon:
        return 0.0
    others, chance = clients - 1, 2 / (math.exp(local_epsilon) + 1)
    ends = _ends(others, chance)
    hidden = np.minimum.accumulate(_hidden_among(ends, epsilon, local_epsilon))
    # E[D_C] for a D that falls in steps: each fall counts as often as C has not reached it.
    falls = hidden[:-1] - hidden[1:]
    return min(1.0, float(hidden[-1] + falls @ _below(ends[1:], others, chance)) * (1 + 2.0**-40))


@lru_cache(maxsize=1024)
def local_epsilon_for(budget: Budget, clients: int) -> float:
    """Return the largest ε₀ at which the shuffled messages of `clients` keep a budget; at least its epsilon.

    Guarantee: with any randomiser that is ε₀-private for all that a client holds, what comes out of the shuffler is
    (epsilon, delta)-differentially private for it. `clients` counts those that follow the protocol, this one included.

    Edge cases: with delta 0, or among too few others, it is epsilon itself: messages that are ε-private one by one are
    so in any order.

    Examples
    --------
    >>> local_epsilon_for(Budget(epsilon=1.0, delta=1e-6), 10_000)
    5.469970703125
    >>> local_epsilon_for(Budget(epsilon=1.0), 10_000), local_epsilon_for(Budget(epsilon=1.0, delta=1e-6), 1)
    (1.0, 1.0)
    """
    if budget.delta == 0 or budget.epsilon >= LARGEST_LOCAL_EPSILON:
        return budget.epsilon
    # δ grows with ε₀ (a weaker response is a stronger one that lies more), so a bisection finds the last that passes.
    passes, fails = math.floor(budget.epsilon / _STEP), math.floor(LARGEST_LOCAL_EPSILON / _STEP) + 1
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if delta_of(budget.epsilon, middle * _STEP, clients) <= budget.delta:
            passes = middle
        else:
            fails = middle
    return max(budget.epsilon, passes * _STEP)


def _check(epsilon: float, local_epsilon: float, clients: int) -> None:
    if not (epsilon >= 0 and 0 < local_epsilon <= LARGEST_LOCAL_EPSILON):
        raise UsageError(
            f"shuffling: got epsilon {epsilon:.3g} and local epsilon {local_epsilon:.3g}, expected one of at least 0 "
            f"and one above 0 and at most {LARGEST_LOCAL_EPSILON:g}."
        )
    if clients < 1:
        raise UsageError(f"shuffling: got {clients} clients, expected at least 1.")


def _ends(others: int, chance: float) -> Wholes:
    """Return the left ends of the blocks: 0, then the window around the mean of C, in steps of 1 or more."""
    mean = others * chance
    # Chernoff: P(C < mean - √(2L·mean)) ≤ e^-L.
    low = max(0, math.floor(mean - math.sqrt(2 * _WINDOW * mean)))
    high = min(others, math.ceil(mean + math.sqrt(2 * _WINDOW * mean) + _WINDOW))
    step = max(1, -(-(high - low) // _BLOCKS))
    return np.unique(np.concatenate([[0], np.arange(low, high + step, step).clip(max=others)]))


def _hidden_among(coins: Wholes, epsilon: float, local_epsilon: float) -> Floats:
    """Compute D_C for these C, rounded up."""
    inverse = math.exp(-local_epsilon)
    gain = -math.expm1(epsilon - local_epsilon) / (1 + inverse)  # (a - t)/(a + 1)
    loss = (math.exp(epsilon) - inverse) / (1 + inverse)  # (a·t - 1)/(a + 1)
    k = np.floor((coins + 1.0) * (loss / (gain + loss))) + 1
    rounding = _rounding(coins)
    upper = gain * _heads(k - 1, coins) * (1 + rounding) - loss * _heads(k, coins) * (1 - rounding)
    return np.clip(upper, 0, 1) + _UNDERFLOW


def _heads(k: Floats, coins: Wholes) -> Floats:
    """Compute P(Bin(C, 1/2) ≥ k)."""
    inside = np.clip(k, 1, np.maximum(coins, 1))
    tail = betainc(inside, np.maximum(coins, 1) - inside + 1, 0.5)
    return np.where(k <= 0, 1.0, np.where(k > coins, 0.0, tail))


def _below(ends: Wholes, others: int, chance: float) -> Floats:
    """Compute P(C < end), rounded up; all ends are at least 1 and at most the number of others."""
    tail = betaincc(ends.astype(np.float64), others - ends + 1.0, chance)
    return np.minimum(1.0, tail * (1 + _rounding(np.array(others))) + _UNDERFLOW)


def _rounding(size: Wholes) -> Floats:
    """Bound the relative error of the incomplete beta function; measured: 10^-14·√size, up to 4·10^9."""
    return np.asarray(1e-13 * (10 + np.sqrt(size)))
