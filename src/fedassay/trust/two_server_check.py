"""The check of `two-server`: one verdict per client, from which a server that lies learns a yes or a no at most.

`fedassay.crypto.sketch` reduces "each of these keys counts exactly once" to two numbers P and S for each key, of which
the servers hold additive shares, and which are 0 for an honest client. Opening them, as it does by itself, would tell a
server that lied in its first message the values of the keys. Here they stay shared:

1. The servers take random numbers ρ, σ that no client could know when it made its keys, and add up, for each client,
   Q = Σ ρP + σS over its keys. If any P or S is not 0, Q is 0 with a probability of at most 2^-60.
2. Each server draws a number w_b of its own. With w = w_0 + w_1 they compute and open w·Q only, by a multiplication
   triple (α, β, γ = αβ) that the client has dealt in shares (D. Beaver, CRYPTO 1991): both open D = w + α and
   E = Q + β; then w·Q = DE − Dβ − Eα + γ.

The client is accepted if w·Q = 0.

**Complete.** An honest client has Q = 0 and a true triple.

**Sound.** A client may deal a false triple, γ = αβ + e. Then w·Q + e is opened, which for Q ≠ 0 is 0 with a probability
of at most 2^-60, as w is drawn when keys, triple and ρ, σ are fixed. Together with the sketch (2^-59): a client that
does not count exactly once with every key, at every point, is accepted with a probability of at most 2^-58.

**A server that lies.** Say server 0 lies in its masked values, by numbers of its choice: what the servers then share is
Q + q, where q depends on the client's values. It may lie about D by ε and about E by ε' as well. The other's shares
of D and E are masked by that one's shares of α and β. What the other opens in the end is, but for what server 0 knows,
(w + ε)(Q + q + ε'). As w contains the other's own uniform number, this is uniform, whatever the values, unless
Q + q + ε' = 0. So server 0 learns whether its guess about this client's values was right, one bit, and nothing
else. A wrong guess makes w·Q ≠ 0: an honest client is rejected, and the other server sees it, for both commit to their
shares of w·Q before either is opened; but server 0, which gets the other's share first if it withholds its own, may
then break the exchange off, and the other sees no more than that. The bit is not paid for: it is the same for a query
of any epsilon, and there is one for each query of an exchange. (A server that shifts its shares of the function itself
can test a guess in the same way. Boneh et al., IEEE S&P 2021, prevent that too, by keys of twice the size that take
twice as long.)
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
