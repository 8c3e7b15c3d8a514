"""What one server sees of a comparison function is random: its key, and the first message of the check.

Every bit of a key is a fair coin whatever the value, but for the header and three unused bits in each field element
(61 uniform bits modulo p differ from uniform by 2^-61). Tested: bytes are uniform; no bit, and no sum of two bits that
matter most, goes together with a bit of the value.
"""

from __future__ import annotations

import hashlib
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.crypto import dcf_levels as prg
from fedassay.crypto.dcf import generate
from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.sketch import Challenge, begin
from secure_sum_driver import Seeded
from stated import Verify

BITS = 8
ERROR_RATE = 1e-6
"""Probability that one of the tests below fails although keys are random; shared by all their comparisons."""

TESTS = 5

Coins = NDArray[np.bool_]


def coins(keys: Keys) -> Coins:
    """All bits of the keys that should be fair, a row for each key, the lowest bit of each word first."""
    words = keys.to_bytes().view("<u8")
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1) == 1
    fair = np.ones((words.shape[1], 64), bool)
    fair[0] = False  # the header
    fair[3:5, 61:] = False  # square and leaf
    fair[7::3, 61] = False  # values: above them are the control bits
    return bits[:, fair]


def important(keys: Keys) -> Coins:
    """Control bits, and the lowest bit of every seed, correction word and number."""
    words = keys.to_bytes().view("<u8")
    shifts = [(word, 0) for word in range(1, words.shape[1])]
    shifts += [(word, shift) for word in range(7, words.shape[1], 3) for shift in (62, 63)]
    return np.stack(
        [(words[:, word] >> np.uint64(shift)) & np.uint64(1) == 1 for word, shift in shifts], axis=1
    )


def p_of_agreement(bits: Coins, others: Coins) -> NDArray[np.float64]:
    """Two-sided p-values that bit i and other j agree half of the time, for all i and j."""
    signs, other_signs = (np.float32(1) - np.float32(2) * each for each in (bits, others))
    z = (signs.T @ other_signs).astype(np.float64) / np.sqrt(len(bits))  # the sums are exact: below 2^24
    return 2 * stats.norm.sf(np.abs(z))


def smallest_p(keys: Keys, x: NDArray[np.int64]) -> float:
    """The smallest p-value, times the number of comparisons: uniform bytes, and nothing that goes with the value."""
    free = coins(keys)
    octets = np.packbits(free[:, : free.shape[1] // 8 * 8], axis=1)
    uniform = [stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in octets.T]
    fair = p_of_agreement(free, np.zeros((len(x), 1), bool))
    value = (x[:, None] >> np.arange(BITS)) & 1 == 1
    single = p_of_agreement(free, value)
    few = important(keys)
    pairs = np.stack([few[:, i] ^ few[:, j] for i, j in combinations(range(few.shape[1]), 2)], axis=1)
    double = p_of_agreement(pairs, value)
    every = np.concatenate([uniform, fair.ravel(), single.ravel(), double.ravel()])
    return float(every.min() * len(every))


def is_random(keys: Keys, x: NDArray[np.int64]) -> bool:
    return smallest_p(keys, x) > ERROR_RATE / TESTS


def some_values(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(count).integers(0, 2**BITS, count)


COUNT = 12_000


@pytest.mark.parametrize("party", [0, 1])
def test_either_key_alone_is_random(party: int):
    x = some_values(COUNT)
    assert is_random(generate(x, bits=BITS, randomness=Seeded("alone"))[party], x)


@pytest.mark.full
def test_either_key_alone_is_random_in_many_keys(verify: Verify):
    x = some_values(40_000)
    keys = generate(x, bits=BITS, randomness=Seeded("many alone"))
    smallest = [smallest_p(party, x) for party in keys]
    assert min(smallest) > ERROR_RATE / TESTS
    verify(
        "comparison functions: one key alone passes byte, bit and correlation tests (40,000 keys of 8 bits)",
        f"smallest p-values after Bonferroni {smallest[0]:.2g}, {smallest[1]:.2g}; error rate {ERROR_RATE:g}",
    )


def test_the_first_message_of_a_check_is_uniform_whatever_the_value():
    """The other server's share of d, and d itself, for one value: 61 uniform bits, tested byte by byte."""
    keys = generate(np.full(COUNT, 3), bits=3, randomness=Seeded("messages"))
    challenge = Challenge.of(hashlib.sha256(b"messages").digest(), bits=3)
    shares = [begin(party, challenge)[1] for party in keys]
    d = (shares[0] + shares[1]) % np.uint64(PRIME)
    for numbers in (*shares, d):
        octets = (numbers >> np.uint64(5)).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :7]
        p = [stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in octets.T]
        assert min(p) > ERROR_RATE / TESTS / (3 * 7)


# --- the tests reject generators that are broken ------------------------------------------------------------


class Stuck(Seeded):
    """A source with one bit that is always zero."""

    def words(self, count: int) -> np.ndarray[Any, Any]:
        return super().words(count) & ~np.uint64(1 << 40)


def test_a_constant_seed_bit_is_found():
    x = some_values(COUNT)
    for party in generate(x, bits=BITS, randomness=Stuck("stuck")):
        assert not is_random(party, x)


def broken(monkeypatch: pytest.MonkeyPatch, purpose: prg.Purpose, mask: int) -> None:
    """A generator whose blocks for one purpose lack some bits."""
    original = prg.Generator.expand

    def expand(self, asked, seeds, *, out):
        blocks = original(self, asked, seeds, out=out)
        if asked == purpose:
            blocks &= np.uint64(mask)
        return blocks

    monkeypatch.setattr(prg.Generator, "expand", expand)


@pytest.mark.parametrize(
    "mask", [2**63 - 1, 2**64 - 2**61, 2**64 - 1 - 2**60], ids=["control", "value", "bit"]
)
def test_values_and_controls_that_are_not_masked_are_found(monkeypatch: pytest.MonkeyPatch, mask: int):
    """Without random control bits, without random numbers, and with one bit less of them."""
    broken(monkeypatch, prg.Purpose.VALUES, mask)
    x = some_values(COUNT)
    for party in generate(x, bits=BITS, randomness=Seeded("broken")):
        assert not is_random(party, x)


def test_one_fixed_key_for_all_purposes_is_found(monkeypatch: pytest.MonkeyPatch):
    """Then children have the same seed, and the values of a level show the seeds of the next."""
    original = prg.Generator.encrypt

    def encrypt(self, asked, seeds, *, out):
        return original(self, prg.Purpose.VALUES, seeds, out=out)

    monkeypatch.setattr(prg.Generator, "encrypt", encrypt)
    x = some_values(COUNT)
    for party in generate(x, bits=BITS, randomness=Seeded("same")):
        assert not is_random(party, x)
