"""Choosing one of several candidates in private: the exponential mechanism, drawn exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fedassay.errors import UsageError
from fedassay.privacy.coins import CHUNK, LONGEST_RUN, below, bernoulli_exp, geometric
from fedassay.privacy.samplers import checked_scale
from fedassay.protocol import Randomness, Vector


def choose(losses: Vector, *, scale: Fraction, randomness: Randomness) -> int:
    """A candidate, with probability proportional to exp(-loss/scale).

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
