"""The check of `two-server`: one verdict per client, from which a server that lies learns a yes or a no at most.

`fedassay.crypto.sketch` reduces "each of these keys counts exactly once" to numbers P_k and S_k for each key k, of which
the servers hold additive shares and all of which are 0 for an honest client. Opening them, as it does by itself, would
tell a server that lied in its first message the values of the keys. Here they stay shared:

1. The servers take random numbers ρ that nobody could know when the keys were made, and add up, for each client,
   Q = Σ_k ρ_k P_k + ρ'_k S_k. If a P_k or S_k is not 0, Q is 0 with a probability of 1/p.
2. Each server draws a number w_b of its own. With w = w_0 + w_1 they compute and open w·Q only, by a multiplication
   triple (α, β, γ = αβ) that the client has dealt in shares (D. Beaver, CRYPTO 1991): both open D = w + α and E = Q + β;
   then w·Q = DE − Dβ − Eα + γ.

The client is accepted if w·Q = 0.

**Sound.** A client may deal a false triple, γ = αβ + e. Then w·Q + e is opened. For Q ≠ 0 it is 0 with a probability of
1/p, as w is drawn after the keys, the triple and ρ are fixed. Together with the sketch: a client that does not count
exactly once, anywhere, is accepted with a probability of at most 2^-59 + 2·2^-60 (numbers of 61 random bits take no
value with a probability of more than 2^-60).

**Complete.** An honest client has Q = 0 and e = 0.

**A server that lies.** Say server 0 lies about its masked values, so that the other's share of Q becomes one of Q + q
for a q of its choice that depends on the values; about D by ε and about E by ε'. From the other server it sees, masked by
that one's shares of α and β, nothing; and in the end (w + ε)(Q + q + ε') plus what it knows already. As w_1 is uniform and
the other's alone, this is uniform unless Q + q + ε' = 0. So it learns whether its guess of the client's values was right:
one bit. A wrong guess ends in the rejection of an honest client, which the other server sees, for both commit to
their shares of w·Q before either is opened.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.field61 import Elements, add, from_bits, multiply, negate, reduce
from fedassay.crypto.keys import Secret
from fedassay.crypto.masks import add_masks
from fedassay.crypto.sketch import Half, answer
from fedassay.protocol import Randomness

Counts = NDArray[np.int64]
"""How many keys each client has."""

TRIPLE = 3


def random_elements(count: int, randomness: Randomness) -> Elements:
    """Numbers modulo p; see `from_bits` for how uniform."""
    return from_bits(randomness.words(count))


def deal_triple(randomness: Randomness) -> tuple[Elements, Elements]:
    """Client side: each server's shares of α, β and γ = αβ."""
    first, second = random_elements(2 * TRIPLE, randomness).reshape(2, TRIPLE)
    alpha, beta, _ = add(first, second)[:, np.newaxis]
    second[2:] = add(multiply(alpha, beta), negate(first[2:]))
    return first, second


def claim(half: Half, received: object, counts: Counts, weights: Secret) -> Elements:
    """This server's share of each client's Q, from the other's masked values (first message of the sketch).

    The keys of the clients lie one behind the other, `counts` of each.
    """
    shares = answer(half, received)
    rho = from_bits(add_masks(np.zeros(shares.size, np.uint64), plus=[weights])).reshape(shares.shape)
    return _sums_by_client(add(*multiply(rho, shares).T), counts)


def masked_factors(claims: Elements, triples: Elements, randomness: Randomness) -> Elements:
    """This server's shares of D and E for each client (a row each); its part of w is drawn here and forgotten."""
    w = random_elements(len(claims), randomness)
    return np.stack([add(w, triples[:, 0]), add(claims, triples[:, 1])], axis=1)


def product(own: Elements, received: Elements, triples: Elements, *, party: int) -> Elements:
    """This server's share of w·Q for each client, from both servers' `masked_factors`."""
    d, e = add(own, received).T
    alpha, beta, gamma = triples.T
    share = add(gamma, negate(add(multiply(d, beta), multiply(e, alpha))))
    return share if party else add(share, multiply(d, e))


def accepted(own: Elements, received: Elements) -> NDArray[np.bool_]:
    """Which clients count exactly once with every key."""
    passed: NDArray[np.bool_] = add(own, received) == 0
    return passed


def _sums_by_client(elements: Elements, counts: Counts) -> Elements:
    """Sums over consecutive runs, of at most 2^32 elements in all; an empty run gives 0."""
    ends = np.cumsum(counts)
    halves = []
    for part in (elements >> np.uint64(32), elements & np.uint64(2**32 - 1)):
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(part, dtype=np.uint64)])
        halves.append(reduce(sums[ends] - sums[ends - counts]))
    return add(multiply(halves[0], np.full(len(counts), 2**32, np.uint64)), halves[1])
