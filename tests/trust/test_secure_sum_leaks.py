"""The rule 3(t + 1) > 2k + c, by exhaustive search: what a coordinator learns that names any set to any member.

Everything is linear: a client's polynomial is its l entries and t free values; a colluding member knows its share of
every client's polynomial; an honest member's answer, with the public corrections, is the sum of its shares over the set
that it was told. Combinations of these in which no free value is left are what leaks. Allowed is one total over one
set of clients: each combination weighs the clients of that set alike, and no others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.crypto.packed import Packing
from stated import Verify

PRIME = 2**31 - 1
"""The rule holds over every field with enough points; products of this one's elements fit into 64 bits."""

Matrices = NDArray[np.int64]


def evaluation(packing: Packing) -> NDArray[np.int64]:
    """Member j's share as a combination of the entries and of free values at points of their own (k × (l + t))."""
    known = [*range(1, packing.packed + 1), *range(-1, -packing.threshold - 1, -1)]
    rows = []
    for member in range(packing.members):
        x = packing._point(member)
        row = []
        for point in known:
            weight = 1
            for other in known:
                if other != point:
                    weight = weight * (x - other) * pow(point - other, -1, PRIME) % PRIME
            row.append(weight)
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    result, square, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * square % PRIME
        square, exponent = square * square % PRIME, exponent >> 1
    return result


def leaked(views: Matrices, free: int) -> tuple[Matrices, NDArray[np.bool_]]:
    """Rows without the first `free` columns' unknowns, after elimination, and which of the rows are such."""
    views, used = views.copy(), np.zeros(views.shape[:2], bool)
    batch = np.arange(len(views))
    for column in range(free):
        candidates = (views[:, :, column] != 0) & ~used
        pivot, there = candidates.argmax(axis=1), candidates.any(axis=1)
        row = views[batch, pivot]
        factor = views[:, :, column] * inverse(row[:, column])[:, None] % PRIME
        factor[used | ~there[:, None]] = 0
        factor[batch, pivot] = 0
        views = (views - factor[:, :, None] * row[:, None, :]) % PRIME
        used[batch[there], pivot[there]] = True
    return views[:, :, free:], ~used


def opens_more_than_one_total(
    packing: Packing, colluding: tuple[int, ...], sets: Matrices
) -> NDArray[np.bool_]:
    """For each assignment (assignments × honest members × clients, 0 or 1), whether more than one total leaks."""
    k, packed, t = packing.members, packing.packed, packing.threshold
    clients, weights = sets.shape[2], evaluation(packing)
    honest = [j for j in range(k) if j not in colluding]
    views = np.zeros((len(sets), clients * len(colluding) + len(honest), clients * (t + packed)), np.int64)
    for row, (client, member) in enumerate(itertools.product(range(clients), colluding)):
        views[:, row, client * t : (client + 1) * t] = weights[member, packed:]
        views[:, row, clients * t + client * packed : clients * t + (client + 1) * packed] = weights[
            member, :packed
        ]
    for place, member in enumerate(honest, start=clients * len(colluding)):
        told = sets[:, place - clients * len(colluding)]
        views[:, place, : clients * t] = np.kron(told, weights[member, packed:])
        views[:, place, clients * t :] = np.kron(told, weights[member, :packed])
    entries, open_rows = leaked(views, clients * t)
    entries = np.where(open_rows[:, :, None], entries, 0).reshape(len(sets), -1, clients, packed)
    seen = entries.any(axis=(1, 3))
    several = np.zeros(len(sets), bool)
    for one, other in itertools.combinations(range(clients), 2):
        both = seen[:, one] & seen[:, other]
        several |= both & (entries[:, :, one] != entries[:, :, other]).any(axis=(1, 2))
    return several


def assignments(honest: int, clients: int) -> Matrices:
    """Every way to name a set of clients, or none, to each honest member."""
    subsets = np.array(list(itertools.product((0, 1), repeat=clients)))
    return subsets[np.array(list(itertools.product(range(len(subsets)), repeat=honest)))]


def smallest_threshold(k: int, c: int) -> int:
    return (2 * k + c) // 3


def cases(largest: int) -> Iterator[tuple[int, int]]:
    """Committees for which the rule leaves a member's room, with c colluding members."""
    return ((k, c) for k in range(3, largest + 1) for c in range(k) if c <= smallest_threshold(k, c) < k)


def leaking(k: int, t: int, c: int, *, clients: int) -> int:
    """The leaking assignments, for all colluding members and all numbers of packed entries."""
    sets = assignments(k - c, clients)
    return sum(
        int(opens_more_than_one_total(Packing(members=k, threshold=t, packed=packed), colluding, sets).sum())
        for packed in range(1, k - t + 1)
        for colluding in itertools.combinations(range(k), c)
    )


@pytest.mark.parametrize(("k", "c"), list(cases(6)))
def test_at_the_rule_no_assignment_opens_more_than_one_total(k: int, c: int):
    assert leaking(k, smallest_threshold(k, c), c, clients=2) == 0


@pytest.mark.parametrize(
    ("k", "c"), [(k, c) for k, c in cases(6) if smallest_threshold(k, c) - 1 >= max(c, 1)]
)
def test_one_below_the_rule_some_assignment_does(k: int, c: int):
    assert leaking(k, smallest_threshold(k, c) - 1, c, clients=2) > 0


@pytest.mark.parametrize(("k", "c"), [(k, c) for k, c in cases(6) if k - c <= 4])
def test_at_the_rule_three_clients_do_not_help(k: int, c: int):
    assert leaking(k, smallest_threshold(k, c), c, clients=3) == 0


def random_leaks(count: int, *, below: int, seed: int) -> tuple[int, int]:
    """Assignments of which something opens, and of which more than one total does, for random larger committees."""
    generator = np.random.default_rng(seed)
    something = several = 0
    for _ in range(count):
        k = int(generator.integers(5, 15))
        c = int(generator.integers(0, 3))
        t = smallest_threshold(k, c) - below
        packing = Packing(members=k, threshold=t, packed=int(generator.integers(1, k - t + 1)))
        clients = int(generator.integers(2, 5))
        # Three blocks of members with sets that overlap are what leaks first below the rule.
        kinds = generator.integers(0, 2, size=(40, 3, clients))
        blocks = generator.integers(0, 3, size=(40, k - c))
        sets = kinds[np.arange(40)[:, None], blocks]
        several += int(opens_more_than_one_total(packing, tuple(range(c)), sets).sum())
        whole = np.broadcast_to(kinds[:, :1], sets.shape)
        something += int((whole.any(axis=(1, 2))).sum())
        assert not opens_more_than_one_total(packing, tuple(range(c)), whole).any()
    return something, several


def test_random_equivocations_of_larger_committees():
    assert random_leaks(60, below=0, seed=1)[1] == 0
    assert random_leaks(60, below=2, seed=2)[1] > 0


@pytest.mark.full
def test_many_random_equivocations(verify: Verify):
    tried, several = random_leaks(5000, below=0, seed=3)
    assert several == 0
    verify(
        "secure-sum: sets named to members of committees of 5 to 14, at random; more than one total opens",
        f"{several} of {tried:,}",
    )
