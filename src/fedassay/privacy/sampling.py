"""Noise for releases that each client enters by chance: amplification by Poisson sampling.

A client takes part in a release with probability q, by a secret coin of its own; otherwise it answers as a client
without rows does. Whoever sees only the noisy totals cannot tell the two apart, so that less noise is needed. Whoever
sees the coins (a server that gets exact vectors, say) gains nothing by them: for him every release counts in full.

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
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from fedassay.errors import UsageError
from fedassay.privacy import samplers
from fedassay.privacy.laws import GAUSSIAN, noise_of
from fedassay.protocol import Budget, Neighbours, Noise, Protection, Sample, Sensitivity, Unit

MOST_ROUNDS = 10_000
FINEST = 1e-10
"""Smaller deltas are beyond what the Fourier transforms of the accountant resolve."""

LEAST_RATE, MOST_EPSILON, LEAST_EPSILON = 1e-3, 16.0, 1e-3
"""Beyond these a plan would take minutes: sampling then counts for nothing."""

_RESERVE = 2.0**-19
"""The part of the budget that is left for whole numbers in the place of real ones."""

_SMALLEST_SCALE = 2.0**20
_COARSEST, _FINEST_STEP = 1e-3, 1e-6
"""Losses are rounded to steps well below the spread of one release's loss, which is about rate/multiplier."""


def rounds_of(share: float) -> int | None:
    """T, if the share is that of one of T equal releases."""
    if not 0 < share <= 1:
        return None
    rounds = round(1 / share)
    return rounds if abs(rounds * share - 1) <= 1e-9 and rounds <= MOST_ROUNDS else None


def amplifies(budget: Budget, protection: Protection, cohort: object, share: float) -> bool:
    """Whether sampling counts for the guarantee: whole clients added or removed, a delta, equal releases."""
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
    """Discrete Gaussian noise for each of T = 1/share releases that clients enter with probability `rate`.

    Guarantee: T such releases of one task, with sensitivities that have these L2 norms, are together (epsilon,
    delta)-differentially private for one client added or removed, for whoever does not see who took part. They do not
    share a budget with other releases: `run.py` holds tasks to that.

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
    """The epsilon of sampled releases (`PoissonSampledDpEvent` of Gaussian noise) together; a mapping counts them.

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
    """A sampled release, as dp-accounting sees it."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    if noise.law != GAUSSIAN:
        raise UsageError(f"sampling: got {noise.law} noise, expected {GAUSSIAN}; only that is amplified.")
    return PoissonSampledDpEvent(rate, GaussianDpEvent(noise.scale / math.ceil(sensitivity.l2)))


def cost_in_full(event: Any) -> Any:
    """The release as it is for whoever sees who took part."""
    from dp_accounting import ZCDpEvent

    return ZCDpEvent(rho=1 / event.event.noise_multiplier**2 / 2)


@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """The smallest noise, in units of the sensitivity, that meets the budget; up to 1e-4 of it."""
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
