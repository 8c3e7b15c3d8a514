"""Exact Poisson draws, of any rational rate λ.

`total` is for one draw, made of integers only: Poisson(1) draws by rejection from a fair geometric law, as
many as the rate is whole, and one more that is thinned. Its work grows with λ.

`centred` is for many draws of one rate from 16 on, at a cost that does not depend on λ: candidates from an
exact discrete Laplace law around ⌊λ⌋ are accepted with probability p = exp(g). Here, and only here, floating
point saves work, but it decides nothing that exact arithmetic would decide otherwise: p is computed with an
error far below 2^-35, a uniform number that is 2^-30 or more away from it is on the same side of the true p, and a
closer one (one in 10^9) is compared with p in decimal arithmetic of as many digits as it takes.

Notation: m = ⌊λ⌋, c the scale of the candidates, x = X - m, N = m + x + 1, M = m + 1.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from fedassay.privacy.samplers import CHUNK, Flags, below, discrete_laplace, fair, fill, rational
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Randomness, Vector

SMALLEST_CENTRED = 16
LARGEST_CENTRED = 2**90
"""Range of the rates that `centred` draws."""

_GUARD = 2.0**-30
"""Distance to the computed probability below which a uniform number is compared with the exact one."""

_RUN_BITS = 15
_RUNS = np.array([(~n & (n + 1)).bit_length() - 1 for n in range(2**_RUN_BITS)], dtype=np.int64)
"""Number of ones in n below its lowest zero bit."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_TABLED = 32
_ERRORS = np.array(
    [0.0]
    + [math.lgamma(n) - (n - 0.5) * math.log(n) + n - math.log(2 * math.pi) / 2 for n in range(1, _TABLED)]
)
"""Stirling's error S(n) = log n! - (n + ½) log n + n - ½ log 2π of small n; the series serves the others."""


def total(rate: Fraction, randomness: Randomness) -> int:
    """Draw once from Poisson(rate).

    Guarantee: exact, given uniform words. A sum of independent Poisson draws is Poisson of the sum of the
    rates, and keeping each event of a Poisson(1) draw with probability p makes it Poisson(p).

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> total(Fraction(0), SimulatedRandomness(1))
    0
    """
    whole, rest = divmod(rate, 1)
    events = sum(int(units(min(CHUNK, whole - done), randomness).sum()) for done in range(0, whole, CHUNK))
    if rest:
        events += int(rational(rest, int(units(1, randomness)[0]), randomness).sum())
    return events


def units(count: int, randomness: Randomness) -> Vector:
    """Draw independently from Poisson(1), P(n) = 1/(e·n!).

    Candidates n have probability 2^-(n+1): the number of heads before the first tail. They are accepted with
    probability 2^(n+1)/4n!, which is 1/2 for n = 0 and 2/2 · 2/3 ··· 2/n from n = 1 on; e/4 of all are.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> units(100_000, SimulatedRandomness(1)).mean().round(2)
    np.float64(1.0)
    """

    def candidates(size: int) -> Vector:
        bits = np.frombuffer(randomness.bytes(2 * size), dtype="<u2")
        runs = _RUNS[bits & (2**_RUN_BITS - 1)]
        runs = _lengthened(runs[(runs > 0) | (bits >= 2**_RUN_BITS)], randomness)
        kept = np.ones(runs.size, dtype=np.bool_)
        i, active = 3, np.flatnonzero(runs >= 3)
        while active.size:
            heads = below(i, active.size, randomness) < 2
            kept[active[~heads]] = False
            i, active = i + 1, active[heads & (runs[active] > i)]
        return runs[kept]

    return fill(count, candidates)


def centred(count: int, *, rate: Fraction, randomness: Randomness) -> Vector:
    """Draw independently X - ⌊rate⌋, X from Poisson(rate), for rates from 16 to 2^90.

    Guarantee: exact, given uniform words, up to a total variation of 1e-440 per draw (that of the discrete
    Laplace draws). Assumption: the processor's and NumPy's exp, log and log1p err by less than 2^-46, relative.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SimulatedRandomness
    >>> centred(100_000, rate=Fraction(100), randomness=SimulatedRandomness(1)).std().round(1)
    np.float64(10.0)
    """
    if not SMALLEST_CENTRED <= rate <= LARGEST_CENTRED:
        raise ValueError(f"Poisson rate: got {float(rate):.3g}, expected 16 to 2^90.")
    law = _Centred(rate)

    def candidates(size: int) -> Vector:
        x = discrete_laplace(size, numerator=law.c, denominator=1, randomness=randomness)
        x = x[x >= -law.m]
        return x[_accepted(law, x, randomness)]

    return fill(count, candidates)


@dataclass(frozen=True)
class _Centred:
    """Poisson(rate) by rejection from a discrete Laplace law around m = ⌊rate⌋.

    The scale is c = ⌊√m⌋ + 1 ≥ √M, and a candidate x is accepted with probability exp(g(x)),

        g(x) = log P(m+x)/P(m) + |x|/c - C,    C = 1/2 + 5/4c,

    which must not exceed 1. Proof of g ≤ 0 for m ≥ 16, so c ≥ 5 and c ≤ 2√m:

    x > 0: P(m+x)/P(m) ≤ Π_{i<x} 1/(1 + i/M), and Σ_{i<x} log(1 + i/M) ≥ ∫_0^{x-1} log(1 + y/M) dy = M·h((x-1)/M)
    with h(u) = (1+u)log(1+u) - u, whose conjugate is e^s - 1 - s. So x/c - M·h((x-1)/M) ≤ 1/c + M(e^(1/c) - 1 - 1/c)
    ≤ 1/c + 1/2 + e^(1/c)/6c ≤ 1/2 + 5/4c, because M ≤ c² and e^(1/5) < 3/2.
    x = -z < 0: P(m-z)/P(m) ≤ Π_{i<z} (1 - i/m) ≤ exp(-z(z-1)/2m), and z/c - z(z-1)/2m ≤ (m/2)(1/c + 1/2m)²
    = m/2c² + 1/2c + 1/8m ≤ 1/2 + 1/2c + 1/2c² < 1/2 + 5/4c, because m ≤ c² ≤ 4m. ∎
    """

    rate: Fraction

    @cached_property
    def m(self) -> int:
        return math.floor(self.rate)

    @cached_property
    def c(self) -> int:
        return math.isqrt(self.m) + 1

    def log_acceptance(self, x: Vector) -> Floats:
        """Compute g(x), so closely that exp(g) errs by less than 2^-45 (tested against `acceptance`; 2^-35 would do).

        With log n! = N log N - N + ½ log 2π - ½ log N + S(N), N = n + 1 (the saddle-point form of Loader,
        "Fast and Accurate Computation of Binomial Probabilities", 2000), all that is large cancels by itself:

            log P(m+x)/P(m) = x log(λ/M) - M·h(x/M) + ½ log(N/M) - S(N) + S(M).

        With v = x/(N + M), M·h(x/M) = N log(N/M) - x = xv + 2N(v³/3 + v⁵/5 + ..), which serves small v.
        """
        M, z = float(self.m + 1), x.astype(np.float64)
        N = M + z
        v = z / (N + M)
        square = v * v
        series = square * 0
        for k in range(19, 1, -2):
            series = (series + 1 / k) * square
        deviance = np.where(np.abs(v) < 0.1, z * v + 2 * N * v * series, N * np.log(N / M) - z)
        drift = z * math.log1p(float(self.rate - self.m - 1) / M)
        rest = np.log(N / M) / 2 - _stirling_error(N) + _stirling_error(np.array([M]))
        g: Floats = drift - deviance + rest + np.abs(z) / self.c - (0.5 + 1.25 / self.c)
        return g

    def acceptance(self, x: int, digits: int) -> Decimal:
        """Compute exp(g(x)) with an error below 10^-digits, by decimal arithmetic.

        No number that is added up exceeds 2^97 < 10^30, and each operation errs by less than one unit in the
        last of digits + 44 places: fewer than 100 of them change g by less than 10^-(digits + 10).
        """
        with decimal.localcontext(_context(digits + 44)):
            ratio = Decimal(self.rate.numerator).ln() - Decimal(self.rate.denominator).ln()
            g = x * ratio - _log_factorial(self.m + x) + _log_factorial(self.m)
            g += Decimal(4 * abs(x) - 2 * self.c - 5) / (4 * self.c)
            return g.exp()


def _accepted(law: _Centred, x: Vector, randomness: Randomness) -> Flags:
    """Return for each candidate whether a uniform number is below exp(g(x)), as exact arithmetic would decide."""
    words = randomness.words(x.size)
    gap = np.exp(law.log_acceptance(x)) - words.astype(np.float64) * 2.0**-64
    accepted = gap > 0
    for i in np.flatnonzero(np.abs(gap) <= _GUARD):
        accepted[i] = _accepted_exactly(law, int(x[i]), int(words[i]), randomness)
    return accepted


def _accepted_exactly(law: _Centred, x: int, word: int, randomness: Randomness) -> bool:
    """Decide for one candidate, whose uniform number begins with this word; take more words while it is open."""
    bits, digits = 64, 30
    while True:
        p, error = Fraction(law.acceptance(x, digits)), Fraction(1, 10**digits)
        if Fraction(word + 1, 2**bits) <= p - error:
            return True
        if Fraction(word, 2**bits) >= p + error:
            return False
        word = (word << 64) | int(randomness.words(1)[0])
        bits, digits = bits + 64, digits + 30


def _log_factorial(n: int) -> Decimal:
    """Compute the logarithm of n!; from n = 1000 on by Stirling's series, which errs by less than its next term."""
    if n < 1000:
        return Decimal(math.factorial(n)).ln()
    N, digits = Decimal(n), decimal.getcontext().prec
    value = (N + Decimal("0.5")) * N.ln() - N + (2 * _pi(digits + 10)).ln() / 2
    smallest = Decimal(10) ** -digits
    for k in range(1, digits):
        term = _bernoulli(2 * k) / (2 * k * (2 * k - 1))
        step = Decimal(term.numerator) / (Decimal(term.denominator) * N ** (2 * k - 1))
        if abs(step) < smallest:
            break
        value += step
    return value


def _context(digits: int) -> decimal.Context:
    return decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


@lru_cache(maxsize=16)
def _pi(digits: int) -> Decimal:
    """Return π to `digits` digits: 16 arctan(1/5) - 4 arctan(1/239) in whole numbers (Machin)."""
    one: int = 10**digits

    def arctan_of_inverse(n: int) -> int:
        power, value, k = one // n, 0, 1
        while power:
            value += power // k if k % 4 == 1 else -(power // k)
            power, k = power // (n * n), k + 2
        return value

    with decimal.localcontext(_context(digits + 10)):
        return Decimal(16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) / one


@lru_cache(maxsize=1024)
def _bernoulli(n: int) -> Fraction:
    """Compute Bernoulli's numbers 1, -1/2, 1/6, 0, -1/30, ..: Σ_{k ≤ n} C(n+1, k) B_k = 0."""
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * _bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def _stirling_error(n: Floats) -> Floats:
    """Compute S(n): tabled below 32; beyond, the next term of the series is below 691/360360/32^11 < 1e-19."""
    inverse = 1 / n
    series: Floats = np.zeros_like(n)
    for term in reversed(_STIRLING):
        series = series * inverse * inverse + term
    small = np.minimum(n, _TABLED - 1).astype(np.int64)
    return np.where(n < _TABLED, _ERRORS[small], series * inverse)


def _lengthened(runs: Vector, randomness: Randomness) -> Vector:
    """Continue runs of heads that filled all their bits with fair coins."""
    active = np.flatnonzero(runs == _RUN_BITS)
    if not active.size:
        return runs
    longer = runs.copy()
    while active.size:
        active = active[fair(active.size, randomness)]
        longer[active] += 1
    return longer
