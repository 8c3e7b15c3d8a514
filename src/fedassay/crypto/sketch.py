"""A check that every client counts exactly once: the increments of its comparison function form a unit vector.

A client is free to choose every correction word of its keys, so that its function can be right at one point and 1000
at others. The two servers therefore check, once and before they release anything, the whole grid of points
τ_1 < .. < τ_N on which they will ever evaluate, τ_N being the last of the domain. Let f be the function that the two
keys of a client encode, whatever they are, and y_j = f(τ_j) − f(τ_{j−1}), f(τ_0) = 0, modulo p. An honest client has
y = e_i for one i: then f is the step from 0 to 1 at τ_i, and nothing else.

**The check.** The keys also give the servers additive shares of two numbers a and c, where c = a² if the client is
honest. After all keys are fixed, the servers agree on a seed that no client could foresee. It gives r_1, .., r_N in
Z_p, and each server computes, from its shares alone, shares of z = Σ r_j y_j, of z* = Σ r_j² y_j and of f(τ_N) = Σ y_j.

1. Both send their share of d = z + a.
2. Both send their shares of P = d² − 2da + c − z* and of S = f(τ_N) − 1 (linear in what they share, d being known).

A client is accepted if P = 0 and S = 0.

**Complete.** For y = e_i and c = a²: P = (z + a)² − 2(z + a)a + a² − z* = z² − z* = r_i² − r_i² = 0, and S = 0. An
honest client is never rejected.

**Sound.** Let c = a² + e for any e; then P = z² − z* + e. As a polynomial in r_1, .., r_N,

    P = Σ_j (y_j² − y_j) r_j² + 2 Σ_{j<k} y_j y_k r_j r_k + e,

where y, a and e do not depend on r, as the keys were fixed first. If P is the zero polynomial, each y_j is 0 or 1 and
at most one is 1; with S = 0 exactly one is. Otherwise it is zero with a probability of at most 2·2/2^61 = 2^-59
(Schwartz-Zippel for degree 2; no r_j takes any value with a probability of more than 2/2^61). So a client that does not
count exactly once, anywhere on the grid, passes with a probability of at most 2^-59, whatever it sent: different
correction words to the two servers, a false c, anything. (With M attempts, by as many clients, M·2^-59.)

**Zero knowledge.** Towards one server, for an honest client: the first message that it receives is d minus its own
share, and d is uniform since a is (the sum of two pseudorandom numbers, of which it knows one); the second is minus
its own shares of P and S. Both can be computed without the value: the server learns nothing but that the client is
honest. But a and c serve for *one* check only: z + a and z' + a, for two seeds, would give z − z' away.

**Assumption: both servers follow the protocol**, and do not collude. A server that sends a false first message, for
d + δ, and then reads the other's second one, learns 2δ times the other's share of a, hence z, hence the value. D.
Boneh, E. Boyle, H. Corrigan-Gibbs, N. Gilboa, Y. Ishai, Lightweight Techniques for Private Heavy Hitters (IEEE S&P
2021, Section 4), from which the sketch is taken, prevent it by an authenticated second payload at every level, for
larger keys. Short of that, do not open P and S: `fedassay.trust.two_server.check` does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from fedassay.crypto.dcf import in_blocks, whole_domain, whole_numbers
from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.dcf_levels import Generator, PathPoints, Purpose, room
from fedassay.crypto.field61 import (
    Elements,
    add,
    from_bits,
    limbs,
    multiply,
    negate,
    require_reduced,
    sums,
    weighted_sums,
)
from fedassay.crypto.keys import Secret, context, derive
from fedassay.errors import UsageError

SEED_BYTES = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Challenge:
    """Grid, and the multipliers of the shares at its points; the same for both servers, and public.

    Σ_j r_j y_j = Σ_j (r_j − r_{j+1}) f(τ_j) with r_{N+1} = 0: `weights` holds these differences, of r and of its
    squares (as `limbs`), so that increments need not be computed.
    """

    points: PathPoints
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, seed: bytes, *, bits: int, points: ArrayLike | None = None) -> Challenge:
        """Return the challenge of a seed of 32 bytes, which clients must not know before their keys are fixed.

        `points` are increasing and end with the last point of the domain; by default they are all of them.
        """
        if len(seed) != SEED_BYTES:
            raise UsageError(f"seed of the check: got {len(seed)} bytes, expected {SEED_BYTES}.")
        given = whole_domain(bits) if points is None else points
        tau = whole_numbers(given, bits=bits, what="points of the check")
        if len(tau) == 0 or int(tau[-1]) != 2**bits - 1 or not (tau[1:] > tau[:-1]).all():
            raise UsageError(f"points of the check: expected increasing ones that end with {2**bits - 1}.")
        r = _random_elements(seed, len(tau))
        weights = np.stack([r, multiply(r, r)])
        after = np.concatenate([weights[:, 1:], np.zeros((2, 1), np.uint64)], axis=1)
        return cls(points=tau, weights=limbs(add(weights, negate(after))))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Half:
    """State of one server between the messages of a check: a row for each client. Secret.

    The columns of `numbers` are this server's shares of d = z + a, a, c, z* and f(τ_N).
    """

    party: int
    numbers: Elements

    def __post_init__(self) -> None:
        if self.party not in (0, 1):
            raise UsageError(f"party of a check: got {self.party!r}, expected 0 or 1.")
        require_reduced(self.numbers, shape=(len(self.numbers), 5), what="half of a check")

    def __repr__(self) -> str:
        return f"Half(party={self.party}, {len(self.numbers)} clients)"


def begin(keys: Keys, challenge: Challenge) -> tuple[Half, Elements]:
    """Return the first message, a number for each client, and what to remember for `answer`.

    Nearly all the work is here: the whole grid is evaluated for every key, in bounded memory. Use a key in one check
    only (see above): a second one, under another seed, would tell the other server the value.
    """
    half, masked, _ = begin_and_total(keys, challenge)
    return half, masked


def begin_and_total(keys: Keys, challenge: Challenge) -> tuple[Half, Elements, Elements]:
    """Return what `begin` does and, from the same pass over the keys, `dcf.totals` at the points of the challenge."""
    if int(challenge.points[-1]) != 2**keys.bits - 1:
        raise UsageError(f"challenge: got one for another domain, expected one for {keys.bits} bits.")
    linear = np.zeros((3, len(keys)), np.uint64)
    total = np.zeros(len(challenge.points), np.uint64)
    for rows, columns, shares in in_blocks(keys, challenge.points):
        linear[:2, rows] = add(linear[:2, rows], weighted_sums(challenge.weights[:, columns], shares))
        linear[2, rows] = shares[-1]
        total[columns] = add(total[columns], sums(shares))
    z, squares, last = linear
    a, c = _mask_shares(keys)
    masked = add(z, a)
    half = Half(party=keys.party, numbers=np.stack([masked, a, c, squares, last], axis=1))
    return half, masked, total


def answer(half: Half, received: object) -> Elements:
    """Return the second message, two numbers for each client, from the other server's first."""
    masked, a, c, squares, last = half.numbers.T
    d = add(masked, require_reduced(received, shape=masked.shape, what="first message of a check"))
    product = multiply(d, a)
    p = add(add(c, negate(squares)), negate(add(product, product)))
    if half.party == 1:
        return np.stack([p, last], axis=1)
    one = np.ones(len(d), np.uint64)
    return np.stack([add(p, multiply(d, d)), add(last, negate(one))], axis=1)


def accepted(own: Elements, received: object) -> NDArray[np.bool_]:
    """Return which clients count exactly once, from both servers' second messages."""
    other = require_reduced(received, shape=own.shape, what="second message of a check")
    passed: NDArray[np.bool_] = (add(own, other) == 0).all(axis=1)
    return passed


def _mask_shares(keys: Keys) -> tuple[Elements, Elements]:
    """Return this party's pseudorandom shares of a and c = a²; party 0 adds the correction that makes c right."""
    blocks = Generator().expand(Purpose.CHECK, np.ascontiguousarray(keys.seeds), out=room(len(keys), 2))
    a, c = from_bits(blocks).T
    return a, c if keys.party else add(c, keys.square)


def _random_elements(seed: bytes, count: int) -> Elements:
    """Draw r: AES-128-CTR under a key that is derived from the seed, 61 bits of each word."""
    key = derive(Secret(seed), salt=b"", info=context("comparison functions 1: check"), length=16)
    stream = Cipher(algorithms.AES(key.data), modes.CTR(bytes(16))).encryptor()
    return from_bits(np.frombuffer(stream.update(bytes(8 * count)), "<u8").astype(np.uint64))
