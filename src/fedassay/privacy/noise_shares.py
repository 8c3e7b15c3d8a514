"""Shares of noise: integer noise that many clients draw in small parts, exactly.

A law is infinitely divisible if it is, for every M, the law of a sum of M independent equal shares. Two such
laws serve here; with any number of parts r > 0 (r = 1/M is one of M shares, r = S/M the sum of S of them):

=========  =============================================================  ===================================
`polya`    X - Y, X and Y negative binomial: P(k) = Γ(k+r)/(k! Γ(r)) ·    1 part: discrete Laplace of scale b
           (1-α)^r α^k, α = exp(-1/b)                                     (Cormode, Markov 2023, Section 2.2)
`skellam`  X - Y, X and Y Poisson of mean v/2                             variances v add up
=========  =============================================================  ===================================

Guarantee of both: given uniform words, independent draws that have the stated law up to a total variation of
1e-300 each, and |draw| < `largest_polya` or `largest_skellam`, so that the caller can prove that sums do not
wrap. (Larger draws, of probability below 1e-300, are drawn again.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from fedassay.errors import UsageError
from fedassay.privacy import poisson, samplers
from fedassay.privacy.samplers import CHUNK, Flags, below, bernoulli_exp, geometric
from fedassay.protocol.arrays import Words
from fedassay.protocol.vocabulary import Randomness, Vector

LARGEST_SKELLAM = Fraction(2**40)
"""Largest σ of Skellam noise."""

LARGEST_VARIANCE = Fraction(2**90)
"""Largest variance of a Skellam draw: room for a thousand parts of the largest noise."""

SMALLEST_SKELLAM = Fraction(1, 2**20)
"""Smallest σ of Skellam noise: smaller wanted ones are rounded up to it."""

_SKELLAM_BITS = 26
"""Bits of σ, so that σ² is a float without rounding."""
_REACH = 2**11
_RUN = 2**10
"""Largest size of a cluster in multiples of b; see `_fraction`."""
_EVENTS = 2 * poisson.SMALLEST_CENTRED
"""Variance up to which Skellam draws are made of single events; from here on of two large Poisson draws."""


def polya(count: int, *, numerator: int, denominator: int, parts: Fraction, randomness: Randomness) -> Vector:
    """Draw independently `parts` parts of a discrete Laplace draw of scale b = numerator/denominator.

    Draws of r₁ and of r₂ parts add up to one of r₁ + r₂; one part is the discrete Laplace law itself; the
    variance is r·2α/(1-α)². Whole parts are drawn as such, the rest as clusters (`_fraction`); no floating
    point takes part. b in lowest terms must be a ratio of numbers of at most 2^52, and all draws below 2^62.

    Tail: of ⌈r⌉ parts each is beyond 2^11·max(1, b) with probability at most 2·exp(-2^11) < 1e-888.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> source = SimulatedRandomness(1)
    >>> share = polya(10_000, numerator=40, denominator=1, parts=Fraction(1, 100), randomness=source)
    >>> round((share != 0).mean(), 2)
    np.float64(0.07)
    """
    scale = samplers.checked_scale(numerator, denominator)
    if not parts > 0:
        raise UsageError(f"share of the noise: got {parts} parts, expected a number above 0.")
    bound = largest_polya(scale, parts)
    if bound > samplers.LARGEST_DRAW:
        raise UsageError(
            f"noise scale: got {float(scale):.3g} in {math.ceil(parts)} parts, expected a product below 2^51; a "
            "larger epsilon or tighter bounds on what one unit contributes make it smaller."
        )
    t, s = scale.numerator, scale.denominator

    def draws(size: int) -> Vector:
        whole, rest = divmod(parts, 1)
        total = _fraction(size, t, s, rest, randomness) if rest else np.zeros(size, dtype=np.int64)
        for _ in range(whole):
            total = total + samplers.discrete_laplace(size, numerator=t, denominator=s, randomness=randomness)
        return total

    return _within(bound, count, draws)


def skellam(count: int, *, variance: Fraction, randomness: Randomness) -> Vector:
    """Draw independently the difference of two Poisson draws of mean variance/2; variance at most 2^90.

    Up to variance 32 all draws are made together, of integers only: the events of a whole vector are
    Poisson(count·variance) many, each adds +1 or -1 to a coordinate, uniformly (splitting a Poisson number of
    events uniformly makes independent Poisson numbers). Beyond, each is the difference of two exact draws of
    `poisson.centred`.

    Tail (Bernstein): P(|x| ≥ t) ≤ 2 exp(-t²/2(v + t/3)), which for t = 2^11·(1+√v) is below exp(-3000) < 1e-1300.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> draws = skellam(100_000, variance=Fraction(10**10), randomness=SimulatedRandomness(1))
    >>> round(draws.std() / 10**5, 2)
    np.float64(1.0)
    """
    if not 0 < variance <= LARGEST_VARIANCE:
        raise UsageError(f"noise variance: got {float(variance):.3g}, expected above 0 and at most 2^90.")

    def draws(size: int) -> Vector:
        if variance > _EVENTS:
            one, other = (poisson.centred(size, rate=variance / 2, randomness=randomness) for _ in range(2))
            return one - other
        total = np.zeros(size, dtype=np.int64)
        events = poisson.total(size * variance, randomness)
        for done in range(0, events, CHUNK):
            cells = below(2 * size, min(CHUNK, events - done), randomness)
            np.add.at(total, *_signed(cells, np.ones(cells.size, dtype=np.int64)))
        return total

    return _within(largest_skellam(variance), count, draws)


def skellam_scale(wanted: Fraction) -> Fraction:
    """Return the smallest σ of at least `wanted` that Skellam noise is given: excess below 2^-25.

    Examples
    --------
    >>> skellam_scale(Fraction(3)), Fraction(float(skellam_scale(Fraction(1, 3))) ** 2) > Fraction(1, 9)
    (Fraction(3, 1), True)
    """
    return samplers.round_up(wanted, bits=_SKELLAM_BITS, smallest=SMALLEST_SKELLAM)


def largest_polya(scale: Fraction, parts: Fraction = Fraction(1)) -> int:
    """Bound the absolute value of all draws of `polya`: ⌈r⌉·2^11·max(1, b), rounded up."""
    return math.ceil(parts) * math.ceil(_REACH * max(scale, Fraction(1)))


def largest_skellam(variance: Fraction) -> int:
    """Bound the absolute value of all draws of `skellam`: 2^11·(2 + ⌊σ⌋)."""
    return _REACH * (2 + math.isqrt(math.floor(variance)))


def _fraction(count: int, t: int, s: int, parts: Fraction, randomness: Randomness) -> Vector:
    """Draw X - Y, X and Y negative binomial of index r = parts, as sums of clusters; b = t/s.

    log E[z^X] = r·log((1-α)/(1-αz)) = Σ_k (r α^k/k)(z^k - 1): X is a sum of clusters, of size k as many as
    Poisson(r α^k/k). In each block 2^j ≤ k < 2^(j+1) candidates come at the rate r/2^j for each k, so Poisson(r)
    in all, and are kept with probability 2^j/k · α^k. The candidates of all blocks, coordinates and signs
    together are one Poisson draw, and each belongs to one of these uniformly.

    The blocks end at the first power of two K ≥ 1024·b. What is left out has the rate
    r Σ_{k ≥ K} α^k/k ≤ r·α^K/(K(1-α)) ≤ r·exp(-1024)·(1+b)/K, a total variation below 2r·1e-440 for each draw.
    """
    blocks = max(1, (-(-_RUN * t // s) - 1).bit_length())
    cells = 2 * count * blocks
    total = np.zeros(count, dtype=np.int64)
    candidates = poisson.total(cells * parts, randomness) if count else 0
    for done in range(0, candidates, CHUNK):
        where = below(cells, min(CHUNK, candidates - done), randomness)
        cell, j = where // np.uint64(blocks), where % np.uint64(blocks)
        # The j highest bits of a word are uniform below 2^j; a shift by 64 has no meaning, hence two.
        k = (np.uint64(1) << j) + (randomness.words(j.size) >> np.uint64(1) >> (np.uint64(63) - j))
        kept = np.flatnonzero(_exponential(k, t, s, randomness))
        kept = kept[_kept_in_block(k[kept], j[kept], randomness)]
        np.add.at(total, *_signed(cell[kept], k[kept].astype(np.int64)))
    return total


def _exponential(k: Words, t: int, s: int, randomness: Randomness) -> Flags:
    """Toss coins of exp(-ks/t), for k < 2·(1024·t/s + 1), so that ks < 2^64."""
    whole, rest = np.divmod(k * np.uint64(s), np.uint64(t))
    kept = np.ones(k.size, dtype=np.bool_)
    several = np.flatnonzero(whole > 0)
    kept[several] = geometric(several.size, randomness) >= whole[several]
    left = np.flatnonzero(kept)
    kept[left] = bernoulli_exp([(rest[left], t)], randomness)
    return kept


def _kept_in_block(k: Words, j: Words, randomness: Randomness) -> Flags:
    """Toss coins of 2^j/k, for 2^j ≤ k < 2^(j+1): uniform numbers below 2^(j+1), drawn again while not below k."""
    shift = np.uint64(63) - j
    drawn = randomness.words(k.size) >> shift
    while (over := np.flatnonzero(drawn >= k)).size:
        drawn[over] = randomness.words(over.size) >> shift[over]
    kept: Flags = drawn >> j == 0
    return kept


def _signed(cells: Words, sizes: Vector) -> tuple[Vector, Vector]:
    """Return coordinates and signed sizes: cell 2i adds to coordinate i, cell 2i + 1 takes away."""
    return (cells >> np.uint64(1)).astype(np.int64), np.where(cells & np.uint64(1), -sizes, sizes)


def _within(bound: int, count: int, draws: Callable[[int], Vector]) -> Vector:
    """Draw, again and again where draws are not below the bound."""
    drawn = draws(count)
    while (over := np.flatnonzero(np.abs(drawn) >= bound)).size:
        drawn[over] = draws(over.size)
    return drawn
