"""Packed sharing and pads against Python's own integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import Secret
from fedassay.crypto.packed import Packing, interpolation, product
from fedassay.crypto.prekeys import pad
from secure_sum_driver import Seeded

SIZES = [(3, 2, 1), (4, 3, 1), (5, 3, 1), (8, 5, 2), (10, 7, 1), (16, 11, 2), (40, 28, 4), (40, 30, 2)]


def interpolated(points: dict[int, int], at: int) -> int:
    """The value of the polynomial through these points, by Lagrange's formula."""
    total = 0
    for x, y in points.items():
        weight = 1
        for other in points:
            if other != x:
                weight = weight * (at - other) * pow(x - other, -1, PRIME) % PRIME
        total += weight * y
    return total % PRIME


def shared(packing: Packing, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    vector = generator.integers(-(2**60) + 1, 2**60, size=length)
    pads = generator.integers(0, PRIME, size=(packing.members, packing.columns(length)), dtype=np.uint64)
    corrections = packing.corrections(packing.rows(vector), [(slice(pads.shape[1]), pads)])
    assert corrections is not None
    return vector, np.stack([packing.share(j, one, corrections) for j, one in enumerate(pads)])


@pytest.mark.parametrize("size", SIZES)
def test_shares_lie_on_the_polynomial_through_the_entries(size: tuple[int, int, int]):
    k, t, packed = size
    packing = Packing(members=k, threshold=t, packed=packed)
    vector, shares = shared(packing, 3 * packed + 1, seed=k)
    for column in range(shares.shape[1]):
        entries = np.zeros(4 * packed, object)
        entries[: len(vector)] = vector
        points = {
            place + 1: int(entries[place * shares.shape[1] + column]) % PRIME for place in range(packed)
        }
        points |= {packed + 1 + j: int(shares[j, column]) for j in range(t)}
        for j in range(t, k):
            assert interpolated(points, packed + 1 + j) == int(shares[j, column])


@pytest.mark.parametrize("size", SIZES)
def test_any_needed_shares_open_the_vector_and_fewer_do_not(size: tuple[int, int, int]):
    k, t, packed = size
    packing = Packing(members=k, threshold=t, packed=packed)
    vector, shares = shared(packing, 2 * packed + 1, seed=k)
    generator = np.random.default_rng(k)
    for _ in range(5):
        chosen = generator.permutation(k)[: packing.needed]
        opened = packing.read(packing.open({int(j): shares[j] for j in chosen}), len(vector))
        np.testing.assert_array_equal(opened, vector)
    with pytest.raises(AssertionError):
        packing.open({j: shares[j] for j in range(packing.needed - 1)})


def test_sums_of_shares_are_shares_of_the_sum():
    packing = Packing(members=6, threshold=4, packed=1)
    vectors, shares = zip(*(shared(packing, 5, seed) for seed in range(4)), strict=True)
    total = {
        j: np.array([sum(int(s[j, c]) for s in shares) % PRIME for c in range(5)], np.uint64)
        for j in range(6)
    }
    expected = [sum(int(v[c]) for v in vectors) % PRIME for c in range(5)]
    assert [int(x) for x in packing.open(total)[0]] == expected


@pytest.mark.parametrize("spare", [0, 1, 3])
def test_a_false_share_is_noticed_wherever_more_than_needed_are_there(spare: int):
    packing = Packing(members=10, threshold=6, packed=1)
    _, shares = shared(packing, 7, seed=1)
    check = pad(Secret(Seeded("check").bytes(32)), 7)
    there = {j: shares[j] for j in range(packing.needed + spare)}
    assert packing.consistent(there, check)
    for false in there:
        changed = shares[false].copy()
        changed[3] = (int(changed[3]) + 1) % PRIME
        assert packing.consistent({**there, false: changed}, check) is (spare == 0)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("columns", [1, 2, 33, 800])
def test_products_are_exact_at_their_extremes(rows: int, columns: int):
    known = tuple(range(1, columns + 1))
    weights = interpolation(known, tuple(range(columns + 1, columns + 1 + rows)))
    for values in (
        np.full((columns, 2), PRIME - 1, np.uint64),
        np.random.default_rng(columns).integers(0, PRIME, size=(columns, 2), dtype=np.uint64),
    ):
        exact = np.zeros((rows, 2), object)
        limbs = weights.limbs.reshape(-1, rows, columns)
        for i, limb in enumerate(limbs):
            for r, c in itertools.product(range(rows), range(2)):
                whole = sum(int(w) * int(v) for w, v in zip(limb[r], values[:, c], strict=True))
                exact[r, c] += whole << (weights.bits * i)
        np.testing.assert_array_equal(product(weights, values), (exact % PRIME).astype(np.uint64))


@pytest.mark.parametrize("place", [0, 3, 6])
def test_pads_with_the_word_p_hide_nothing(place: int):
    """It stands for no element, and would make 0 twice as probable."""
    packing = Packing(members=7, threshold=5, packed=1)
    pads = np.ones((7, 4), np.uint64)
    rows = packing.rows(np.arange(4))
    assert packing.corrections(rows, [(slice(4), pads)]) is not None
    pads[place, 2] = PRIME
    parts = [(part, pads[:, part]) for part in (slice(0, 2), slice(2, 4))]
    assert packing.corrections(rows, parts) is None


def test_pads_are_uniform_and_a_weak_one_is_not():
    count = 40_000
    words = pad(Secret(Seeded("pad").bytes(32)), count)
    assert int(words.max()) < PRIME

    def smallest_p(values: np.ndarray) -> float:
        """Of the six bytes below bit 48 and the 13 bits above."""
        octets = [(values >> np.uint64(8 * place)) & np.uint64(255) for place in range(6)]
        top = values >> np.uint64(48)
        return min(
            *(stats.chisquare(np.bincount(o.astype(int), minlength=256)).pvalue for o in octets),
            stats.chisquare(np.bincount(top.astype(int) >> 5, minlength=256)).pvalue,
        )

    assert smallest_p(words) > 1e-6 / 7
    assert smallest_p(words >> np.uint64(1)) < 1e-6 / 7


@pytest.mark.parametrize("size", [(3, 2, 1), (10, 7, 1), (16, 11, 2), (40, 28, 4)])
def test_vectors_longer_than_what_is_computed_at_once(size: tuple[int, int, int]):
    """Each block has its own columns, also the last one, which is short; elements are as large as they can be."""
    members, threshold, packed = size
    packing = Packing(members=members, threshold=threshold, packed=packed)
    length = packed * 4_500 - (packed - 1)
    vector = np.arange(length) * 3 - 7
    pads = np.full((members, packing.columns(length)), PRIME - 1, np.uint64)
    pads[:, ::3] -= np.arange(members, dtype=np.uint64)[:, None]
    rows, parts = packing.rows(vector), [slice(start, start + 500) for start in range(0, pads.shape[1], 500)]
    corrections = packing.corrections(rows, ((part, pads[:, part]) for part in parts))
    one = packing.columns(length) - 2
    alone = packing.corrections(rows[:, one, None], [(slice(1), pads[:, one, None])])
    assert corrections is not None
    assert alone is not None
    assert corrections[:, one].tolist() == alone[:, 0].tolist()
    shares = {j: packing.share(j, one, corrections) for j, one in enumerate(pads)}
    assert packing.consistent(shares, pad(Secret(bytes(32)), packing.columns(length)))
    opened = packing.open({j: shares[j] for j in range(members - packing.needed, members)})
    assert (packing.read(opened, length) == vector).all()
