"""Lower bounds on epsilon, with a stated confidence, from samples of two neighbouring worlds.

A mechanism that is (epsilon, delta)-differentially private satisfies, for every event S and both orders of the worlds,

    P(S) <= exp(epsilon)·Q(S) + delta,   hence   epsilon >= ln((P(S) - delta)/Q(S)).

Bounding P(S) of an event from below and Q(S) from above, by counting, therefore bounds epsilon from below,
without assuming anything about the mechanism.

1. *Choice.* On the first half of the samples the event that promises most is chosen, among all thresholds of all
   scores that an attacker computes (`attacks`), upwards and downwards, with either world in the numerator.
2. *Test.* On the second half, which had no part in the choice, the event is counted in both worlds. Clopper and Pearson
   (1934) bound its two probabilities, each one-sided with half of the error rate; both hold together with the stated
   confidence (Bonferroni). Jagielski, Ullman and Oprea (2020, arXiv:2006.07709, Section 4) audit in this way.

The bound is valid for any samples of independent runs. How close it comes to the truth depends on the attack and on
the number of samples: an event with a probability below 1/n is never seen.

An attacker computes scores from his view that should be larger in one world than in the other.

The attacker knows both worlds, row by row, and the law that the noise is stated to have; he wants to know which of the
two he sees. `likelihood` is the best that he can do if the law is as stated (Neyman and Pearson 1933): the logarithm
of how much more probable the outcome is in the second world. The others need no law, and find what a wrong one leaves:
single coordinates, low bits together with the size of a number, entries that are zero or that hit an exact total.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from fedassay.errors import UsageError
from fedassay.privacy.accounting import CHOICE, LAPLACE, UNARY
from fedassay.protocol.vocabulary import Noise, Vector

Scores = NDArray[np.float64]

FEWEST_SAMPLES = 100
"""Smallest number of samples of each world: with fewer, no event can bound anything at the usual confidences."""

_MOST_THRESHOLDS = 256
"""Number of thresholds that are tried for each score, at equal steps of the pooled quantiles."""


@dataclass(frozen=True, kw_only=True)
class ThresholdEvent:
    """The outcomes whose `score` is at least (or at most) a threshold; `world` is the one in which it is likelier."""

    score: str
    threshold: float
    upwards: bool
    world: int

    def count(self, scores: Scores) -> int:
        """Count the outcomes in which it happened."""
        return int(np.count_nonzero(scores >= self.threshold if self.upwards else scores <= self.threshold))

    def __str__(self) -> str:
        """Describe the event in words, for the table."""
        return f"{self.score} {'>=' if self.upwards else '<='} {self.threshold:.4g}"


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """Lower bound on epsilon from the samples.

    Parameters
    ----------
    epsilon : at least this, with the stated confidence; 0 if there is no such bound.
    event : the event that was counted.
    hits, samples : number of runs in which it happened, and of all runs, in the likelier world and in the other.
    """

    epsilon: float
    delta: float
    confidence: float
    event: ThresholdEvent
    hits: tuple[int, int]
    samples: tuple[int, int]


def lower_bound(
    first: Mapping[str, Scores], second: Mapping[str, Scores], *, delta: float, confidence: float
) -> LowerBound:
    """Compute a lower bound on epsilon at this delta, from the scores of independent runs in neighbouring worlds.

    Guarantee: if runs are independent and the mechanism is (epsilon, delta)-differentially private for these worlds,
    the bound exceeds epsilon with a probability of at most 1 - confidence, whatever the scores are.

    Edge cases: the bound is never negative. Ties are no problem, events are unions of whole values. Scores that are NaN
    are in no event.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> first, second = rng.laplace(0, 1, 20_000), rng.laplace(1, 1, 20_000)  # epsilon = 1
    >>> bound = lower_bound({"x": first}, {"x": second}, delta=0.0, confidence=0.99)
    >>> 0.85 < bound.epsilon < 1, bound.event.score
    (True, 'x')
    """
    _check(first, second, delta, confidence)
    worlds, error = (first, second), (1 - confidence) / 2
    halves = [{name: of[: len(of) // 2] for name, of in world.items()} for world in worlds]
    chosen = _chosen(halves, delta, error)
    tests = [world[chosen.score][len(world[chosen.score]) // 2 :] for world in worlds]
    hits = [chosen.count(scores) for scores in tests]
    numerator, denominator = chosen.world, 1 - chosen.world
    low = float(clopper_pearson_low(hits[numerator], len(tests[numerator]), error))
    high = float(clopper_pearson_high(hits[denominator], len(tests[denominator]), error))
    return LowerBound(
        epsilon=max(0.0, math.log((low - delta) / high)) if low > delta else 0.0,
        delta=delta,
        confidence=confidence,
        event=chosen,
        hits=(hits[numerator], hits[denominator]),
        samples=(len(tests[numerator]), len(tests[denominator])),
    )


def clopper_pearson_low(hits: Any, samples: int, error: float) -> Scores:
    """Return for each count a lower bound of its probability, but for an error rate.

    The bound is exact (Clopper and Pearson 1934).

    Examples
    --------
    >>> clopper_pearson_low(np.array([10, 0]), 10, 0.05).round(4)
    array([0.7411, 0.    ])
    """
    return np.where(hits == 0, 0.0, stats.beta.ppf(error, np.maximum(hits, 1), samples - hits + 1))


def clopper_pearson_high(hits: Any, samples: int, error: float) -> Scores:
    """Return for each count an upper bound of its probability, but for an error rate; exact.

    Examples
    --------
    >>> clopper_pearson_high(np.array([0, 10]), 10, 0.05).round(4)
    array([0.2589, 1.    ])
    """
    return np.where(hits == samples, 1.0, stats.beta.isf(error, hits + 1, np.maximum(samples - hits, 1)))


def _check(
    first: Mapping[str, Scores], second: Mapping[str, Scores], delta: float, confidence: float
) -> None:
    if not 0.5 <= confidence < 1:
        raise UsageError(f"confidence: got {confidence:.6g}, expected a number from 0.5 to below 1.")
    if not 0 <= delta < 1:
        raise UsageError(f"delta: got {delta:.3g}, expected a number in [0, 1).")
    if not first or set(first) != set(second):
        raise UsageError("scores: expected the same ones for both worlds, and at least one.")
    fewest = min(len(scores) for world in (first, second) for scores in world.values())
    if fewest < FEWEST_SAMPLES:
        raise UsageError(f"samples: got {fewest}, expected at least {FEWEST_SAMPLES} of each world.")


def _chosen(worlds: list[dict[str, Scores]], delta: float, error: float) -> ThresholdEvent:
    """Choose the event that would give the largest bound if the second half looked like the first.

    This is a choice, so that no guarantee rests on it.
    """
    candidates = [found for name in worlds[0] for found in _best(name, worlds, delta, error)]
    return max(candidates, key=lambda pair: pair[0])[1]


def _best(
    name: str, worlds: list[dict[str, Scores]], delta: float, error: float
) -> list[tuple[float, ThresholdEvent]]:
    """Return the best event of one score in each direction and for each world."""
    samples = [np.sort(world[name]) for world in worlds]
    pooled = np.unique(np.concatenate(samples))
    pooled = pooled[~np.isnan(pooled)]
    if not len(pooled):
        pooled = np.zeros(1)
    places = np.unique(np.linspace(0, len(pooled) - 1, _MOST_THRESHOLDS).round().astype(np.int64))
    thresholds = pooled[places]
    found = []
    for upwards in (True, False):
        counts = [_counts(scores, thresholds, upwards=upwards) for scores in samples]
        for world in (0, 1):
            low = clopper_pearson_low(counts[world], samples[world].size, error)
            high = clopper_pearson_high(counts[1 - world], samples[1 - world].size, error)
            promise = _log_ratios(low, high, delta)
            best = int(np.argmax(promise))
            event = ThresholdEvent(
                score=name, threshold=float(thresholds[best]), upwards=upwards, world=world
            )
            found.append((float(promise[best]), event))
    return found


def _counts(scores: Scores, thresholds: Scores, *, upwards: bool) -> NDArray[np.int64]:
    """Count the sorted scores in the event of each threshold; NaN, which is sorted last, is in none."""
    known = len(scores) - int(np.count_nonzero(np.isnan(scores)))
    if upwards:
        return np.asarray(known - np.searchsorted(scores[:known], thresholds, side="left"), dtype=np.int64)
    return np.asarray(np.searchsorted(scores[:known], thresholds, side="right"), dtype=np.int64)


def _log_ratios(low: Scores, high: Scores, delta: float) -> Scores:
    """Compute ln((low - delta)/high), minus infinity where there is none."""
    possible = low > delta
    return np.where(possible, np.log(np.where(possible, low - delta, 1.0) / high), -np.inf)


# --- what an attacker computes from what he sees ------------------------------------------------------------

_COORDINATES = 4
"""Number of single coordinates that the attacker looks at: those that move most."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """Knowledge of the attacker about one query: the exact answers in both worlds, and the claimed noise.

    Parameters
    ----------
    first, second : without noise; where clients choose among candidates, their losses.
    spread : the matrix that takes draws of noise to entries; None if each entry has its own draw.
    sampled : the probability with which the client under attack takes part.
    counted : True if the last number of a view is the number of clients that answered.
    """

    first: Vector
    second: Vector
    noise: Noise
    spread: NDArray[np.float64] | None = field(default=None, repr=False)
    sampled: float = 1.0
    counted: bool = True

    @property
    def width(self) -> int:
        """Number of values of a view that belong to this query."""
        return len(self.first) + int(self.counted)

    @property
    def moved(self) -> NDArray[np.float64]:
        """Difference of the second world from the first."""
        return np.asarray(self.second - self.first, dtype=np.float64)


def scores(views: NDArray[Any], known: tuple[Known, ...]) -> dict[str, Scores]:
    """Compute all scores of these runs, by name; see the module.

    Examples
    --------
    >>> noise = Noise(law="discrete-laplace", scale=1.0, variance=1.84)
    >>> of = Known(first=np.array([0]), second=np.array([1]), noise=noise, counted=False)
    >>> found = scores(np.array([[[0]], [[5]]]), (of,))
    >>> found["likelihood"].tolist(), found["number 0"].tolist()
    ([-1.0, 1.0], [0.0, 5.0])
    """
    parts = np.split(views, np.cumsum([one.width for one in known])[:-1], axis=-1)
    bare = [part[..., :-1] if one.counted else part for part, one in zip(parts, known, strict=True)]
    found = {"likelihood": sum_of([_likelihood(part, one) for part, one in zip(bare, known, strict=True)])}
    everything = np.concatenate(bare, axis=-1)
    first, second = (np.concatenate([getattr(one, name) for one in known]) for name in ("first", "second"))
    found |= _plain(everything, first, second)
    if any(one.counted for one in known):
        found["answers"] = sum_of(
            [part[..., -1].sum(axis=1) for part, one in zip(parts, known, strict=True) if one.counted]
        )
    return found


def sum_of(parts: list[NDArray[Any]]) -> Scores:
    """Add up scores of independent answers."""
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _likelihood(views: NDArray[Any], known: Known) -> Scores:
    """Compute the logarithm of the likelihood ratio of the messages about one query, second world over first."""
    each = _of_message(views, known)
    if known.sampled < 1:
        # With the client, by chance: (1-q) + q·P/Q of the world in which it is. That is the first one.
        q = known.sampled
        each = -np.logaddexp(np.log1p(-q), np.log(q) - each)
    # Any of the messages may be the victim's, and others look as his does in the first world: the mean of the ratios.
    return np.asarray(logsumexp(each, axis=1) - np.log(each.shape[1]))


def _of_message(views: NDArray[Any], known: Known) -> Scores:
    """Compute the logarithm of the likelihood ratio for single messages: runs x messages."""
    law, scale, moved = known.noise.law, known.noise.scale, known.moved
    if law == CHOICE:
        return np.asarray(views @ (-moved / scale))
    if law == UNARY:
        # A bit that is one is e^ε times as likely, against one that is zero, if the row is in its cell.
        return np.asarray((views - 0.5) @ (moved / scale))
    from_first = np.asarray(views - known.first, dtype=np.float64)
    if known.spread is not None and _can_be_undone(known.spread):
        undo = np.linalg.inv(known.spread)
        from_first, moved = from_first @ undo.T, undo @ moved
    elif known.spread is not None:
        # Exact for Gaussian noise; for other laws the best of all linear scores.
        weights = np.linalg.pinv(known.spread @ known.spread.T) @ moved / scale**2
        return np.asarray((from_first - moved / 2) @ weights)
    if law == LAPLACE:
        return np.asarray((np.abs(from_first) - np.abs(from_first - moved)).sum(axis=-1) / scale)
    return np.asarray((from_first - moved / 2) @ (moved / scale**2))


def _can_be_undone(spread: NDArray[np.float64]) -> bool:
    """Return whether the draws can be computed from the entries."""
    rows, draws = spread.shape
    return rows == draws and bool(np.linalg.matrix_rank(spread) == rows)


def _plain(views: NDArray[Any], first: Vector, second: Vector) -> dict[str, Scores]:
    """Compute scores that need no law."""
    total = views.sum(axis=1)
    moved = np.asarray(second - first)
    largest = [int(place) for place in np.argsort(-np.abs(moved), kind="stable") if moved[place]]
    found = {f"number {place}": total[:, place].astype(np.float64) for place in largest[:_COORDINATES]}
    found["zeros"] = (views == 0).sum(axis=(1, 2)).astype(np.float64)
    found["direct hits"] = (
        ((views == second).astype(np.int64) - (views == first)).sum(axis=(1, 2)).astype(float)
    )
    if total.dtype == np.int64:
        for place in largest[:_COORDINATES]:
            found[f"low bits of number {place}"] = _low_bits(
                total[:, place], int(first[place]), int(moved[place])
            )
    return found


def _low_bits(numbers: Vector, first: int, moved: int) -> Scores:
    """Return the size of a number, with a sign by the lowest bit in which the two worlds differ.

    Whole noise has all bits; noise from a float of this size has only zeros there, which gives the world away.
    """
    lowest = moved & -moved
    same = (numbers - first) & lowest == 0
    size = np.abs(numbers.astype(np.float64) - first)
    return np.where(same, -1.0, 1.0) * size
