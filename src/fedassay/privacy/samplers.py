"""Exact integer noise, vectorised: no floating point takes part in any decision.

Everything is made of the integers and coins of `coins.py`. The algorithms are those of Canonne, Kamath,
Steinke, "The Discrete Gaussian for Differential Privacy" (2020, arXiv:2004.00010), run in lockstep over many
draws:

===================  ==========================================================================
`discrete_laplace`   Algorithm 2: P(x) ∝ exp(-|x|/b)
`discrete_gaussian`  Algorithm 3: P(x) ∝ exp(-x²/2σ²), by rejection from a discrete Laplace
===================  ==========================================================================

Scales are ratios of integers; `laplace_scale` and `gaussian_scale` round a wanted scale *up* to one that
can be sampled, so that privacy never gets weaker.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fedassay.errors import ParameterError, UsageError
from fedassay.privacy.coins import Flags, Words, below, bernoulli_exp, fair, fill, geometric
from fedassay.protocol import Randomness, Vector

LARGEST_SCALE = Fraction(2**52)
"""No scale may be larger, so that no draw reaches `LARGEST_DRAW`."""

LARGEST_DRAW = 2**62
"""Every draw is strictly smaller in absolute value."""

SMALLEST_LAPLACE = Fraction(1, 2**6)
"""Below this scale noise is zero but for a probability under 4e-28: smaller scales are rounded up to it."""

SMALLEST_GAUSSIAN = Fraction(1, 2**4)
"""Below this scale noise is zero but for a probability under 6e-56: smaller scales are rounded up to it."""

_LAPLACE_BITS, _GAUSSIAN_BITS = 40, 21
_WIDEST = 64
"""Gaussian draws beyond 65σ are left out: they have probability below exp(-2048) < 1e-889."""


def laplace_scale(wanted: Fraction) -> Fraction:
    """The smallest scale of at least `wanted` that `discrete_laplace` is asked for: excess below 2^-39.

    Examples
    --------
    >>> laplace_scale(Fraction(10)), laplace_scale(Fraction(1, 3)) >= Fraction(1, 3)
    (Fraction(10, 1), True)
    """
    return round_up(wanted, bits=_LAPLACE_BITS, smallest=SMALLEST_LAPLACE)


def gaussian_scale(wanted: Fraction) -> Fraction:
    """The smallest σ of at least `wanted` that `discrete_gaussian` is asked for: excess below 2^-20.

    Examples
    --------
    >>> float(gaussian_scale(Fraction(1, 3)) * 3 - 1) < 1e-6
    True
    """
    return round_up(wanted, bits=_GAUSSIAN_BITS, smallest=SMALLEST_GAUSSIAN)


def discrete_laplace(count: int, *, numerator: int, denominator: int, randomness: Randomness) -> Vector:
    """Independent draws with P(x) ∝ exp(-|x|/b) on the integers, b = numerator/denominator.

    Guarantee: exact, given uniform words, up to a total variation of 1e-444 per draw (see `coins.LONGEST_RUN`);
    |x| < 2^62. Both parts of the ratio, in lowest terms, must be at most 2^52.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> discrete_laplace(5, numerator=3, denominator=2, randomness=SimulatedRandomness(1)).dtype
    dtype('int64')
    """
    scale = checked_scale(numerator, denominator)
    t, s = scale.numerator, scale.denominator

    def candidates(size: int) -> Vector:
        # X = U + tV is geometric with ratio exp(-1/t), because U is kept with probability exp(-U/t);
        # ⌊X/s⌋ is then geometric with ratio exp(-s/t). One of the two signed zeros is left out.
        u = below(t, size, randomness)
        u = u[bernoulli_exp([(u, t)], randomness)]
        x = (u + np.uint64(t) * geometric(u.size, randomness)) // np.uint64(s)
        negative = fair(x.size, randomness)
        kept = ~negative | (x > 0)
        return np.where(negative, -x.view(np.int64), x.view(np.int64))[kept]

    return fill(count, candidates)


def discrete_gaussian(count: int, *, numerator: int, denominator: int, randomness: Randomness) -> Vector:
    """Independent draws with P(x) ∝ exp(-x²/2σ²) on the integers, σ = numerator/denominator.

    Guarantee: exact, given uniform words, up to a total variation of 1e-444 per draw; |x| < 2^62.
    In lowest terms the denominator must be at most 2^25 and the numerator below 2^21, or such a number times
    a power of two (σ is then whole): so that squares fit 64 bits. `gaussian_scale` gives such a σ.

    Candidates Y are discrete Laplace of scale σ, kept with probability exp(-(|Y| - σ)²/2σ²). This is
    Algorithm 3 with t = σ instead of ⌊σ⌋ + 1: the product of both is ∝ exp(-Y²/2σ²) for any t.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> discrete_gaussian(5, numerator=3, denominator=2, randomness=SimulatedRandomness(1)).dtype
    dtype('int64')
    """
    sigma = checked_scale(numerator, denominator)
    n, d = sigma.numerator, sigma.denominator
    shift = max(0, n.bit_length() - _GAUSSIAN_BITS)
    if d > 2**25 or n % 2**shift or (shift and d > 1):
        raise UsageError(f"noise scale: got σ = {sigma}, expected a ratio made by gaussian_scale.")

    def candidates(size: int) -> Vector:
        drawn = discrete_laplace(size, numerator=n, denominator=d, randomness=randomness)
        drawn = drawn[np.abs(drawn) <= (_WIDEST + 1) * n // d]
        distance = np.abs(np.abs(drawn) * d - n).view(np.uint64)
        return drawn[_bernoulli_half_square(distance, n >> shift, shift, randomness)]

    return fill(count, candidates)


def _bernoulli_half_square(f: Words, s: int, shift: int, randomness: Randomness) -> Flags:
    """Coins with P(heads) = exp(-f²/2n²) where n = s·2^shift, f ≤ 64n and s < 2^21.

    With f = c·2^shift + b the exponent is c²/2s² + (c/s²)(b/2^shift) + (1/2s²)(b/2^shift)²: three
    independent coins, whose integers all stay below 2^63 (c² < 2^54). If shift > 0 then s ≥ 2^20, so that
    c ≤ 64s < s² and the last two exponents are at most 1.
    """
    c, b = f >> np.uint64(shift), f & np.uint64(2**shift - 1)
    half = 2 * s * s
    whole, rest = c * c // np.uint64(half), c * c % np.uint64(half)
    kept = bernoulli_exp([(rest, half)], randomness)
    # `whole` coins of exp(-1) all show heads exactly if a run of them is at least that long.
    several = np.flatnonzero(whole > 0)
    kept[several] &= geometric(several.size, randomness) >= whole[several]
    if shift:
        one = np.ones_like(b)
        kept &= bernoulli_exp([(c, s * s), (b, 2**shift)], randomness)
        kept &= bernoulli_exp([(one, half), (b, 2**shift), (b, 2**shift)], randomness)
    return kept


def round_up(wanted: Fraction, *, bits: int, smallest: Fraction) -> Fraction:
    """The smallest number of `bits` significant bits that is at least `wanted` and `smallest`."""
    if not 0 < wanted <= LARGEST_SCALE:
        raise ParameterError(
            "epsilon",
            f"the noise would have a scale of {float(wanted):.3g}, expected above 0 and at most 2^52; give a larger "
            "`epsilon`, or tighter bounds on what one unit contributes.",
        )
    wanted = max(wanted, smallest)
    exponent = wanted.numerator.bit_length() - wanted.denominator.bit_length()
    if Fraction(2) ** exponent > wanted:
        exponent -= 1
    unit = Fraction(2) ** (exponent - bits + 1)  # 2^exponent ≤ wanted < 2^(exponent+1)
    return math.ceil(wanted / unit) * unit


def checked_scale(numerator: int, denominator: int) -> Fraction:
    """The ratio, or an error if the samplers cannot use it."""
    if not (
        isinstance(numerator, int) and isinstance(denominator, int) and numerator > 0 and denominator > 0
    ):
        raise UsageError(
            f"noise scale: got {numerator!r}/{denominator!r}, expected two whole numbers above 0."
        )
    scale = Fraction(numerator, denominator)
    if scale.numerator > LARGEST_SCALE or scale.denominator > LARGEST_SCALE:
        raise UsageError(f"noise scale: got {scale}, expected a ratio of whole numbers of at most 2^52.")
    return scale
