"""The check of `two-server`: one verdict per client, and the possible gain of a server that lies.

`fedassay.crypto.sketch` reduces "each of these keys counts exactly once" to two numbers P and S for each key, of which
the servers hold additive shares, and which are 0 for an honest client. Opening them, as it does by itself, would tell a
server that lied in its first message the values of the keys. Here they stay shared:

1. The servers take random numbers ρ, σ that no client could know when it made its keys, and add up, for each client,
   Q = Σ ρP + σS over all its keys, of all queries of the exchange. If any P or S is not 0, Q is 0 with a probability of
   at most 2^-60.
2. Each server draws a number w_b of its own. With w = w_0 + w_1 they compute shares of w·Q only, by a multiplication
   triple (α, β, γ = αβ) that the client has dealt in shares (D. Beaver, CRYPTO 1991): both open D = w + α and
   E = Q + β; then w·Q = DE − Dβ − Eα + γ.
3. The second server commits to its shares of w·Q. The first one opens its own. The second one sees for whom w·Q = 0. If
   more than one client fails, it states that there will be no release, and no more. Else it answers, and opens its
   shares, which the first one compares with the commitment.

A client is accepted if w·Q = 0.

**Complete.** An honest client has Q = 0 and a true triple.

**Sound.** A client may deal a false triple, γ = αβ + e. Then w·Q + e is opened, which for Q ≠ 0 is 0 with a probability
of at most 2^-60, as w is drawn when keys, triple and ρ, σ are fixed. Together with the sketch (2^-59): a client that
does not count exactly once with every key, at every point, is accepted with a probability of at most 2^-58.

**A server that follows the protocol** learns of an honest client that it is honest: the masked values, D and E are
uniform given its own shares, and the other's share of w·Q is minus its own.

**A server that lies** may add numbers of its choice to its masked values and its factors: what the servers then share
is not w·Q but (w + ε)·u, with u = Q + q + ε', where q depends on the client's values. All that it sees until then
is masked by numbers that it does not know (the other's shares of a, α and β), or is a commitment, which hides. As w
contains the other's own uniform number, (w + ε)·u is uniform, whatever the values, unless u = 0; then it is 0. So all
it can learn of a client from an exchange is whether u = 0: whether a guess was right, *one bit*. The guess is about the
values of any of the client's keys; of a row that k queries ask about it can be that the row is in one of k leaves (u is
linear in one number for each query). The bit is not paid for: it is the same for any epsilon.

- *The first server, with the relay in its hand,* gets these bits of the clients that it lied about as far as the second
  one lets it: that all guesses were right; or which one was wrong, if one was; or that more were. About one client
  that is one bit, about m clients log2(m + 2) at most. If it does not open its own share it learns nothing, and it must
  open before it hears anything that depends on the other's share: it cannot make a wrong guess look right.
- *The second server* hears first, and gets the bit of every client. Being committed, it cannot make a wrong guess look
  right either: it shows the first one who fails, or breaks off.

Either way the honest server has an exchange in its books for a wrong guess, as not finished or as one in which clients
failed, and after a few of them it begins no other (`fedassay.trust.question`). A right guess does not show; who tests
only what is nearly sure can do so for long, and learns little each time. A client that cheats looks like a wrong guess,
which is why one is put up with. It is one, and not a share of the clients, because a coordinator can make up clients.
(Boneh et al., IEEE S&P 2021, prevent all of this by an authenticated payload, for larger keys that take longer.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.field61 import Elements, add, from_bits, multiply, negate, reduce
from fedassay.crypto.keys import Secret
from fedassay.crypto.prekeys import pad
from fedassay.crypto.sketch import Half, answer
from fedassay.protocol.vocabulary import Randomness

KeyCounts = NDArray[np.int64]
"""Number of keys of each client."""

TRIPLE = 3


def random_elements(count: int, randomness: Randomness) -> Elements:
    """Draw numbers modulo p; see `from_bits` for how uniform."""
    return from_bits(randomness.words(count))


def deal_triple(randomness: Randomness) -> tuple[Elements, Elements]:
    """Deal each server's shares of α, β and γ = αβ (client side)."""
    first, second = random_elements(2 * TRIPLE, randomness).reshape(2, TRIPLE)
    alpha, beta, _ = add(first, second)[:, np.newaxis]
    second[2:] = add(multiply(alpha, beta), negate(first[2:]))
    return first, second


def claim(half: Half, received: object, counts: KeyCounts, weights: Secret) -> Elements:
    """Compute this server's share of each client's Q, from the other's masked values (first message of the sketch).

    The keys of the clients lie one behind the other, `counts` of each.
    """
    shares = answer(half, received)
    rho = pad(weights, shares.size).reshape(shares.shape)
    return _sums_by_client(add(*multiply(rho, shares).T), counts)


def masked_factors(claims: Elements, triples: Elements, randomness: Randomness) -> Elements:
    """Compute this server's shares of D and E for each client (a row each); its part of w is drawn and forgotten."""
    w = random_elements(len(claims), randomness)
    return np.stack([add(w, triples[:, 0]), add(claims, triples[:, 1])], axis=1)


def product(own: Elements, received: Elements, triples: Elements, *, party: int) -> Elements:
    """Compute this server's share of w·Q for each client, from both servers' `masked_factors`."""
    d, e = add(own, received).T
    alpha, beta, gamma = triples.T
    share = add(gamma, negate(add(multiply(d, beta), multiply(e, alpha))))
    return share if party else add(share, multiply(d, e))


def accepted(own: Elements, received: Elements) -> NDArray[np.bool_]:
    """Return which clients count exactly once with every key."""
    passed: NDArray[np.bool_] = add(own, received) == 0
    return passed


def _sums_by_client(elements: Elements, counts: KeyCounts) -> Elements:
    """Sum over consecutive runs, of at most 2^32 elements in all; an empty run gives 0."""
    ends = np.cumsum(counts)
    halves = []
    for part in (elements >> np.uint64(32), elements & np.uint64(2**32 - 1)):
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(part, dtype=np.uint64)])
        halves.append(reduce(sums[ends] - sums[ends - counts]))
    return add(multiply(halves[0], np.full(len(counts), 2**32, np.uint64)), halves[1])
