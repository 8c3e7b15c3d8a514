"""Exact integer noise, vectorised: no floating point takes part in any decision.

Everything is made of the integers and coins below. The algorithms are those of Canonne, Kamath,
Steinke, "The Discrete Gaussian for Differential Privacy" (2020, arXiv:2004.00010), run in lockstep over many
draws:

===================  ==========================================================================
`discrete_laplace`   Algorithm 2: P(x) ∝ exp(-|x|/b)
`discrete_gaussian`  Algorithm 3: P(x) ∝ exp(-x²/2σ²), by rejection from a discrete Laplace
===================  ==========================================================================

Scales are ratios of integers; `laplace_scale` and `gaussian_scale` round a wanted scale *up* to one that
can be sampled, so that privacy never gets weaker.

Uniform integers and coins of exact probability, vectorised: what every sampler of noise is made of.

No floating point takes part in any decision. Integers are uniform by rejection, so without modulo bias, and
all comparisons are of integers that are proven to fit 64 bits.

===============  ==========================================================================================
`below`          uniform integers in [0, bound)
`fair`           coins of 1/2
`rational`       coins of any ratio
`bernoulli_exp`  coins of exp(-γ), 0 ≤ γ ≤ 1 a product of ratios (Canonne, Kamath, Steinke 2020, Algorithm 1)
`geometric`      number of coins of exp(-1) that show heads before the first tail
`fill`           the first accepted candidates, as many as are wanted
===============  ==========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.arrays import Words
from fedassay.protocol.vocabulary import Randomness, Vector

# --- uniform integers and coins of exact probability --------------------------------------------------------

Flags = NDArray[np.bool_]

LONGEST_RUN = 1024
"""Longest run of geometric draws: the cut changes the law by exp(-1024) < 1e-444 in total variation."""
LONGEST_COIN = 2048
"""Longest run of Algorithm 1: it goes on for longer with probability below 1/2048! < 1e-5000."""
CHUNK = 1 << 15
"""Candidates per pass: few enough for the processor's cache."""


def below(bound: int, count: int, randomness: Randomness) -> Words:
    """Draw uniform integers in [0, bound): each owns ⌊2^64/bound⌋ words; the words left over are redrawn."""
    if bound == 1:
        return np.zeros(count, dtype=np.uint64)
    width = np.uint64(2**64 // bound)
    drawn = randomness.words(count) // width
    while (over := np.flatnonzero(drawn >= np.uint64(bound))).size:
        drawn[over] = randomness.words(over.size) // width
    return drawn


def fair(count: int, randomness: Randomness) -> Flags:
    """Toss fair coins."""
    bits = np.frombuffer(randomness.bytes(-(-count // 8)), dtype=np.uint8)
    return np.unpackbits(bits, count=count).view(np.bool_)


def rational(probability: Fraction, count: int, randomness: Randomness) -> Flags:
    """Toss coins of any ratio, however long its numbers.

    A uniform real number is compared with the ratio, 64 binary digits at a time: if they agree in the first
    64, the next 64 decide.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> rational(Fraction(1), 2, SimulatedRandomness(1)), rational(Fraction(0), 2, SimulatedRandomness(1))
    (array([ True,  True]), array([False, False]))
    """
    if probability >= 1:
        return np.ones(count, dtype=np.bool_)
    heads = np.zeros(count, dtype=np.bool_)
    active = np.arange(count)
    while active.size and probability > 0:
        digits, probability = divmod(probability * 2**64, 1)
        words = randomness.words(active.size)
        heads[active[words < np.uint64(digits)]] = True
        active = active[words == np.uint64(digits)]
    return heads


def bernoulli_exp(factors: Sequence[tuple[Words, int]], randomness: Randomness) -> Flags:
    """Toss coins with P(heads) = exp(-γ), γ the product of the ratios (numerators, denominator), each at most 1.

    Algorithm 1: flip coins of γ/1, γ/2, γ/3, .. until the first tail; heads exactly if that was coin
    number 1, 3, 5, ... A coin of γ/K is heads if independent coins of all its factors are.
    """
    (first, denominator), *others = factors
    heads = np.ones(first.size, dtype=np.bool_)
    active = np.arange(first.size)
    k = 1
    while active.size and k <= LONGEST_COIN:
        active = active[below(denominator * k, active.size, randomness) < first[active]]
        for numerators, bound in others:
            active = active[below(bound, active.size, randomness) < numerators[active]]
        k += 1
        heads[active] = k % 2 == 1
    return heads


def geometric(count: int, randomness: Randomness) -> Words:
    """Count for each draw how many coins with P(heads) = exp(-1) show heads before the first tail."""
    runs = np.zeros(count, dtype=np.uint64)
    active = np.arange(count)
    length = 0
    while active.size and length < LONGEST_RUN - 1:
        length += 1
        active = active[bernoulli_exp([(np.ones(active.size, dtype=np.uint64), 1)], randomness)]
        runs[active] = length
    return runs


def fill(count: int, candidates: Callable[[int], Vector]) -> Vector:
    """Return the first `count` accepted candidates."""
    result = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        accepted = candidates(min(CHUNK, 2 * (count - filled) + 8))[: count - filled]
        result[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return result


# --- exact integer noise ------------------------------------------------------------------------------------

LARGEST_SCALE = Fraction(2**52)
"""Largest scale, so that no draw reaches `LARGEST_DRAW`."""

LARGEST_DRAW = 2**62
"""Strict bound on the absolute value of every draw."""

SMALLEST_LAPLACE = Fraction(1, 2**6)
"""Smallest scale: below it noise is zero but for a probability under 4e-28; smaller ones are rounded up to it."""

SMALLEST_GAUSSIAN = Fraction(1, 2**4)
"""Smallest scale: below it noise is zero but for a probability under 6e-56; smaller ones are rounded up to it."""

_LAPLACE_BITS, _GAUSSIAN_BITS = 40, 21
_WIDEST = 64
"""Gaussian draws beyond 65σ are left out: they have probability below exp(-2048) < 1e-889."""


def laplace_scale(wanted: Fraction) -> Fraction:
    """Return the smallest scale of at least `wanted` that `discrete_laplace` is asked for: excess below 2^-39.

    Examples
    --------
    >>> laplace_scale(Fraction(10)), laplace_scale(Fraction(1, 3)) >= Fraction(1, 3)
    (Fraction(10, 1), True)
    """
    return round_up(wanted, bits=_LAPLACE_BITS, smallest=SMALLEST_LAPLACE)


def gaussian_scale(wanted: Fraction) -> Fraction:
    """Return the smallest σ of at least `wanted` that `discrete_gaussian` is asked for: excess below 2^-20.

    Examples
    --------
    >>> float(gaussian_scale(Fraction(1, 3)) * 3 - 1) < 1e-6
    True
    """
    return round_up(wanted, bits=_GAUSSIAN_BITS, smallest=SMALLEST_GAUSSIAN)


def discrete_laplace(count: int, *, numerator: int, denominator: int, randomness: Randomness) -> Vector:
    """Draw independently with P(x) ∝ exp(-|x|/b) on the integers, b = numerator/denominator.

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
    """Draw independently with P(x) ∝ exp(-x²/2σ²) on the integers, σ = numerator/denominator.

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
    """Toss coins with P(heads) = exp(-f²/2n²) where n = s·2^shift, f ≤ 64n and s < 2^21.

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
    """Return the smallest number of `bits` significant bits that is at least `wanted` and `smallest`."""
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
    """Return the ratio, or raise if the samplers cannot use it."""
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


# --- choosing one of several candidates in private ----------------------------------------------------------


def choose(losses: Vector, *, scale: Fraction, randomness: Randomness) -> int:
    """Choose a candidate, with probability proportional to exp(-loss/scale).

    Guarantee: exact, given uniform words, up to a total variation of 1e-440: candidates are drawn uniformly and kept
    with probability exp(-(loss - least loss)/scale), a coin of `coins.py`; no floating point decides anything. If one
    unit moves all losses by amounts within an interval of length r, the choice is (r/scale)-differentially private:
    a shift of all losses changes nothing, so that the weights of two candidates change by a factor of at most
    exp(r/scale) relative to each other, and so does every probability.

    How long it takes depends on the losses (about as many tries as candidates, at worst): who can measure the time of
    single choices learns about them.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> losses = np.array([0, 1000, 1000])
    >>> {choose(losses, scale=Fraction(1), randomness=SimulatedRandomness(i)) for i in range(20)}
    {0}
    """
    if losses.size == 0 or losses.dtype != np.int64:
        raise UsageError("choice: got no candidates, or losses that are not whole numbers, expected some.")
    checked = checked_scale(scale.numerator, scale.denominator)
    n, d = checked.numerator, checked.denominator
    least = int(losses.min())
    excess = [(int(loss) - least) * d for loss in losses.tolist()]
    # Beyond the longest run of coins a candidate has no chance that could be drawn.
    whole = np.array([min(over // n, LONGEST_RUN) for over in excess], dtype=np.uint64)
    rest = np.array([over % n for over in excess], dtype=np.uint64)
    size = min(CHUNK, 2 * losses.size + 8)
    while True:
        tried = below(losses.size, size, randomness).astype(np.int64)
        tried = tried[geometric(tried.size, randomness) >= whole[tried]]
        tried = tried[bernoulli_exp([(rest[tried], n)], randomness)]
        if tried.size:
            return int(tried[0])
