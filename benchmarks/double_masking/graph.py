"""Who shares masks with whom in a secure sum, and how many key shares open a mask.

Up to `LARGEST_COMPLETE` clients everybody is everybody's neighbour. Beyond, clients stand in a ring in random
order and each is a neighbour of the k/2 before and the k/2 after it (J. Bell, K. A. Bonawitz, A. Gascón,
T. Lepoint, M. Raykova, Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020).

Notation: n clients, k neighbours of each, h = k/2, t shares open a secret. Of the n clients, D = ⌊dropout·n⌋
fall silent and C = ⌊collusion·n⌋ help the server; c bounds the colluders among the neighbours in question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import floor
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from fedassay.crypto.keys import context
from fedassay.errors import UsageError

LARGEST_COMPLETE = 64
"""Up to this many clients, all are neighbours: no probability enters, and a client sees the whole cohort."""

LARGEST_DEGREE = 4096
"""More neighbours than this would be impractical; `parameters` refuses instead."""

CORRECTNESS_FAILURE = 2.0**-20
SECURITY_FAILURE = 2.0**-40

_EXAMPLES = (
    (0.0, 0.0),
    (0.05, 0.05),
    (0.1, 0.1),
    (0.2, 0.1),
    (0.2, 0.2),
    (0.3, 0.1),
    (0.4, 0.05),
    (0.1, 0.4),
)


class Parameters(NamedTuple):
    """What every client of a run must agree on, with the probabilities that the choice was too small."""

    neighbours: int
    threshold: int
    correctness_failure: float
    security_failure: float


@lru_cache(maxsize=1024)
def parameters(clients: int, dropout: float, collusion: float) -> Parameters:
    """The fewest neighbours, and the lowest threshold, that keep both promises of a secure sum.

    Guarantee, for all sets of at most ⌊dropout·n⌋ silent and ⌊collusion·n⌋ colluding clients that are fixed
    before the ring is drawn:

    - *correctness*: except with probability `correctness_failure` (at most 2^-20), t neighbours of every
      client stay, so that its masks can be removed. A client that sends false shares counts as silent.
    - *security*: except with probability `security_failure` (at most 2^-40), whatever the server says about
      who is silent, (1) it never gets t shares of both secrets of an honest client, not even by telling
      different clients different things, and (2) if it tells all of them the same, it learns the total over
      all honest survivors or nothing: it cannot cut the ring into pieces with totals of their own.

    Complete graph, k = n − 1: (1) needs 2t > k + c: of the k − c honest neighbours each reveals one kind of
    share, the c colluders both, so both kinds reach t only if 2t ≤ k + c. (2) is immediate.

    Ring: t = h + c + 2 where c bounds the colluders in every h consecutive places. (1) A client's neighbours
    are two such stretches, so 2t > k + 2c suffices. (2) To cut, the server must make a stretch of h places
    colluding or silent. The client v before it has at most h + c others to open its seed: h on its other
    side and the c colluders. An honest client in the stretch has at most h + 1 neighbours outside and c
    colluders inside that count as alive; that is fewer than t, so it refuses to answer (`told_survivors`).
    Hence nobody opens v's seed, and the total of v's piece stays hidden.

    Edge cases: with very few clients the fractions round down to nobody: 3 clients tolerate no dropout.

    Examples
    --------
    >>> parameters(4, 0.2, 0.1)
    Parameters(neighbours=3, threshold=2, correctness_failure=0.0, security_failure=0.0)
    >>> parameters(1000, 0.1, 0.05)[:2]
    (106, 75)
    """
    if not (0 <= dropout < 1 and 0 <= collusion < 1):
        raise UsageError(
            f"tolerated fractions: got dropout {dropout:.3g} and collusion {collusion:.3g}, "
            "expected numbers in [0, 1)."
        )
    if clients < 2:
        raise UsageError(f"secure sum: got {clients} clients, expected at least 2.")
    found = _search(clients, dropout, collusion)
    if found is None:
        raise UsageError(_impossible(clients, dropout, collusion))
    return found


def failures(
    *, clients: int, neighbours: int, threshold: int, dropouts: int, colluders: int
) -> tuple[float, float]:
    """Upper bounds on the probabilities that correctness and security (see `parameters`) fail.

    The ring order is uniform, so the dropouts among the k neighbours of a client, and the colluders among h
    consecutive places, are hypergeometric; both bounds add up over the n clients. For a complete graph the
    answers are 0 or 1.
    """
    n, k, t = clients, neighbours, threshold
    if k == n - 1:
        return float(k - dropouts < t), float(2 * t <= k + colluders)
    h = k // 2
    correctness = n * _exceeds(k - t, drawn=k, marked=dropouts, of=n - 1)
    security = n * _exceeds(t - h - 2, drawn=h, marked=colluders, of=n)
    return min(1.0, correctness), min(1.0, security)


def tolerated(clients: int, fraction: float) -> int:
    """⌊fraction·n⌋, without the surprise that 0.29 · 100 is a little less than 29.

    Examples
    --------
    >>> tolerated(100, 0.29), tolerated(4, 0.2)
    (29, 0)
    """
    return floor(fraction * clients + 1e-9)


def survivable(clients: int, dropout: float, found: Parameters) -> int:
    """How many clients may fall silent: in a complete graph exactly n − 1 − t, which may be more than asked.

    Examples
    --------
    >>> survivable(4, 0.2, parameters(4, 0.2, 0.1))
    1
    """
    if found.neighbours == clients - 1:
        return found.neighbours - found.threshold
    return tolerated(clients, dropout)


def _search(n: int, dropout: float, collusion: float) -> Parameters | None:
    D, C = tolerated(n, dropout), tolerated(n, collusion)
    k = 4
    while n > LARGEST_COMPLETE and k < min(n - 1, LARGEST_DEGREE):
        c = _colluders_per_stretch(n, C, k // 2)
        t = k // 2 + c + 2
        if t <= k:
            correctness, security = failures(clients=n, neighbours=k, threshold=t, dropouts=D, colluders=C)
            if correctness <= CORRECTNESS_FAILURE:
                return Parameters(k, t, correctness, security)
        k += 2 * (1 + k // 128)  # where k is large, steps of about 2 % are fine enough
    k, t = n - 1, (n - 1 + C) // 2 + 1
    if k <= LARGEST_DEGREE and t <= k - D:
        return Parameters(k, t, 0.0, 0.0)
    return None


def _colluders_per_stretch(n: int, colluders: int, h: int) -> int:
    """The smallest c that some stretch of h places exceeds with probability at most 2^-40."""
    low, high = -1, min(colluders, h)
    while high - low > 1:
        middle = (low + high) // 2
        if n * _exceeds(middle, drawn=h, marked=colluders, of=n) <= SECURITY_FAILURE:
            high = middle
        else:
            low = middle
    return high


def _exceeds(count: int, *, drawn: int, marked: int, of: int) -> float:
    """P(X > count) for X marked items among `drawn`, without replacement, `of` which `marked` are marked.

    Summed in log space from the upper end, so that tails of 2^-60 keep their relative precision.
    """
    x = np.arange(max(count + 1, 0, drawn - (of - marked)), min(marked, drawn) + 1, dtype=np.float64)
    if len(x) == 0:
        return 0.0
    logs = _log_choose(marked, x) + _log_choose(of - marked, drawn - x) - _log_choose(of, drawn)
    return float(min(1.0, np.exp(logsumexp(logs))))


def _log_choose(n: float, k: np.ndarray | float) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1))


def _impossible(n: int, dropout: float, collusion: float) -> str:
    possible = ", ".join(f"({d:.3g}, {c:.3g})" for d, c in _EXAMPLES if _search(n, d, c) is not None)
    return (
        f"secure sum of {n:,} clients: nobody can tolerate dropout {dropout:.3g} together with collusion "
        f"{collusion:.3g}; expected 2 * dropout + collusion well below 1, such as the pairs {possible}."
    )


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The neighbours of every client: a ring in an order that only the exchange's id decides.

    A resumed run therefore builds the same graph, in whatever order it lists its clients.

    Examples
    --------
    >>> graph = Graph.of(["a", "b", "c", "d", "e"], exchange=b"x", degree=2)
    >>> graph.ring
    ('e', 'd', 'b', 'a', 'c')
    >>> graph.neighbours("c")
    ('a', 'e')
    """

    ring: tuple[str, ...]
    degree: int

    @classmethod
    def of(cls, clients: Sequence[str], *, exchange: bytes, degree: int) -> Graph:
        """The graph of these clients with `degree` neighbours each (even, or all the others)."""
        n = len(clients)
        assert 0 < degree < n
        assert degree % 2 == 0 or degree == n - 1
        place = {name: hashlib.sha256(context("ring", exchange, name)).digest() for name in clients}
        return cls(ring=tuple(sorted(clients, key=place.__getitem__)), degree=degree)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.ring)}

    def neighbours(self, client: str) -> tuple[str, ...]:
        """Whom this client shares masks with."""
        n, here = len(self.ring), self._positions[client]
        if self.degree == n - 1:
            return self.ring[:here] + self.ring[here + 1 :]
        half = self.degree // 2
        steps = (*range(-half, 0), *range(1, half + 1))
        return tuple(self.ring[(here + step) % n] for step in steps)

    def among(self, left: Collection[str]) -> dict[str, list[str]]:
        """For each client that is left, the neighbours that are left."""
        return {i: [j for j in self.neighbours(i) if j in left] for i in sorted(left)}
