"""The noise laws by name: their variance, and how they are drawn, whole or in shares.

==================  ==========================================  ===========  =======================
law                 probabilities                               scale        in shares (`draw_parts`)
==================  ==========================================  ===========  =======================
`LAPLACE`           P(x) ∝ exp(-|x|/b)                          b            Pólya
`GAUSSIAN`          P(x) ∝ exp(-x²/2σ²)                         σ            no
`SKELLAM`           two Poisson draws of mean σ²/2, subtracted  σ            Skellam
`UNARY`             answers randomised bit by bit, 1/b-DP       b = 1/ε      no: nothing is added
`CHOICE`            a candidate, P ∝ exp(-loss/b)               b            no: nothing is added
==================  ==========================================  ===========  =======================
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fedassay.errors import UsageError
from fedassay.privacy import noise_shares, samplers
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Randomness, Vector

LAPLACE = "discrete-laplace"
GAUSSIAN = "discrete-gaussian"
SKELLAM = "skellam"
UNARY = "unary"
CHOICE = "choice"

_LARGEST = {
    LAPLACE: 2.0**52,
    GAUSSIAN: 2.0**52,
    SKELLAM: float(noise_shares.LARGEST_SKELLAM),
    UNARY: 2.0**52,
    CHOICE: 2.0**52,
}


def check_law(law: str, scale: float) -> None:
    """Raise unless this is a law that protects, with a scale that could have been drawn."""
    if law not in _LARGEST:
        raise UsageError(f"noise: got the law {law!r}, expected none, {', '.join(_LARGEST)}.")
    if not 2.0**-52 <= scale <= _LARGEST[law]:
        raise UsageError(
            f"noise: got {law} of scale {scale:.3g}, expected a scale between 2^-52 and "
            f"2^{int(math.log2(_LARGEST[law]))}."
        )


def noise_of(law: str, scale: Fraction) -> Noise:
    """Return a noise law with its exact variance.

    Discrete Laplace: 2a/(1-a)² with a = exp(-1/b). Discrete Gaussian: the sum, which from σ = 2 on is
    σ² to the last bit of a float (the relative difference is of the order of exp(-2π²σ²) < 1e-34). Skellam: σ².
    Unary: 4e^ε/(e^ε-1)² with ε = 1/scale, the variance of one client's estimate of a bit that is zero, under
    optimised unary encoding (Wang, Blocki, Li, Jha 2017, "OUE"). Choice: as discrete Laplace.

    Examples
    --------
    >>> noise_of(LAPLACE, Fraction(1)).variance == 2 * math.exp(-1) / math.expm1(-1) ** 2
    True
    >>> noise_of(SKELLAM, Fraction(3)).variance, round(noise_of(UNARY, Fraction(1)).variance, 3)
    (9.0, 3.683)
    """
    value = float(scale)
    check_law(law, value)
    if law in (LAPLACE, UNARY, CHOICE):
        times = 4 if law == UNARY else 2
        variance = times * math.exp(-1 / value) / math.expm1(-1 / value) ** 2
    elif law == SKELLAM or value > 2:
        variance = value * value
    else:
        squares = np.arange(1, 100, dtype=np.float64) ** 2
        weights = np.exp(-squares / (2 * value * value))
        variance = float(2 * (squares @ weights) / (1 + 2 * weights.sum()))
    return Noise(law=law, scale=value, variance=variance)


def draw(noise: Noise, count: int, randomness: Randomness) -> Vector:
    """Draw independently from a noise law: exactly, and below 2^62 in absolute value.

    One draw of the law and scale, whatever `noise.copies`; `draw_parts` draws several, or a part of one.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> draw(NO_NOISE, 3, SecureRandomness())
    array([0, 0, 0])
    """
    if noise.law in (NO_NOISE.law, SKELLAM):
        return draw_parts(noise, count, Fraction(1), randomness)
    check_law(noise.law, noise.scale)
    if noise.law in (UNARY, CHOICE):
        raise UsageError(
            f"noise: got {noise.law}, expected noise that is added; answers are randomised instead."
        )
    sampler = samplers.discrete_laplace if noise.law == LAPLACE else samplers.discrete_gaussian
    numerator, denominator = noise.scale.as_integer_ratio()
    return sampler(count, numerator=numerator, denominator=denominator, randomness=randomness)


def draw_parts(noise: Noise, count: int, parts: Fraction, randomness: Randomness) -> Vector:
    """Draw independently `parts` parts of the noise of law and scale: a client's share has 1/M of them.

    Guarantee: independent draws of r₁ and r₂ parts add up to draws of r₁ + r₂ parts; one part is `draw`. Each
    is exact and below ⌈parts⌉·`largest_share` in absolute value.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> noise = noise_of(SKELLAM, Fraction(30))
    >>> shares = [draw_parts(noise, 10_000, Fraction(1, 10), SimulatedRandomness(i)) for i in range(10)]
    >>> round(np.sum(shares, axis=0).var() / noise.variance, 1)
    np.float64(1.0)
    """
    if noise.law == NO_NOISE.law:
        return np.zeros(count, dtype=np.int64)
    scale = _shared_scale(noise)
    if noise.law == SKELLAM:
        return noise_shares.skellam(count, variance=parts * scale * scale, randomness=randomness)
    t, s = scale.as_integer_ratio()
    return noise_shares.polya(count, numerator=t, denominator=s, parts=parts, randomness=randomness)


def largest_share(noise: Noise) -> int:
    """Return a bound that every share (a draw of at most one part) stays below in absolute value.

    Shares as large would have probability below 1e-300 and are drawn again, which changes the law by less.

    Examples
    --------
    >>> largest_share(noise_of(LAPLACE, Fraction(10))), largest_share(NO_NOISE)
    (20480, 1)
    """
    if noise.law == NO_NOISE.law:
        return 1
    scale = _shared_scale(noise)
    laplace = noise.law == LAPLACE
    return noise_shares.largest_polya(scale) if laplace else noise_shares.largest_skellam(scale * scale)


def _shared_scale(noise: Noise) -> Fraction:
    """Return the scale of noise that can be drawn in shares."""
    check_law(noise.law, noise.scale)
    if noise.law not in (LAPLACE, SKELLAM):
        raise UsageError(f"noise: got {noise.law}, expected {LAPLACE} or {SKELLAM}; others have no shares.")
    return Fraction(noise.scale)
