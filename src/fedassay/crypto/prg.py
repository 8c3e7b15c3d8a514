"""A pseudorandom generator for trees of seeds: AES with fixed keys, over all seeds at once.

Block j of the expansion of a 128-bit seed s is AES_j(s) ⊕ s: the compression function of Matyas, Meyer and Oseas, under
a key that is fixed for the purpose j. A cipher with a fixed key needs no key schedule per seed, so that one call to
OpenSSL expands the seeds of all clients.

What is needed (`fedassay.crypto.dcf` needs no more): the blocks of independent uniform seeds look uniform and
independent. In the trees there every secret seed is uniform given all else that the other server knows, and it is
expanded under each purpose once.

What is assumed: AES-128 under the fixed keys behaves like as many independent random permutations (the ideal-cipher
model). Then anyone who computes AES q times tells the blocks of D ≤ q seeds from random ones with a probability of at
most about 2·D·q/2^128: a difference shows only if a computation hits a seed, or the image of one. This is the
non-circular part of the *tweakable circular correlation robustness* that is usually assumed of fixed-key AES (C. Guo,
J. Katz, X. Wang, Y. Yu, Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers, IEEE S&P 2020; the
tweak is the purpose). The circular part matters where one secret offset is xored to inputs and outputs alike; here
none is, so no orthomorphism is put before the cipher.

Mind the D, as with every generator whose keys all clients share: with a million keys of 32 bits (D ≈ 2^25) it takes
about 2^102 AES calls, not 2^127, to find *any one* of the seeds. To find that of a given client takes 2^123.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from math import prod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto.field61 import Words


class Purpose(IntEnum):
    """What a block is for. Each has its own fixed key."""

    LEFT_SEED = 0
    RIGHT_SEED = 1
    VALUES = 2
    CHECK = 3


def fixed_key(purpose: Purpose) -> bytes:
    """The AES-128 key of a purpose: nothing up our sleeve but a hash of its name.

    Examples
    --------
    >>> fixed_key(Purpose.LEFT_SEED).hex()
    '733fbc2949f764931ceed7925794ce2f'
    """
    name = purpose.name.lower().replace("_", " ")
    return hashlib.sha256(f"fedassay comparison functions 1: {name}".encode()).digest()[:16]


def room(*shape: int) -> Words:
    """An array for blocks, with the room for one more behind it that the cipher library insists on."""
    return np.empty(prod(shape) + 2, "<u8")[:-2].reshape(shape)


class Generator:
    """The ciphers of all purposes, opened once. Not to be shared between threads."""

    def __init__(self) -> None:
        self._ciphers = [Cipher(algorithms.AES(fixed_key(j)), modes.ECB()).encryptor() for j in Purpose]

    def expand(self, purpose: Purpose, seeds: Words, *, out: Words) -> Words:
        """One block per seed, written into `out`, which must be the beginning of a `room`.

        Seeds and blocks are contiguous arrays whose last axis is two little-endian words. The cipher is called once.
        """
        self.encrypt(purpose, seeds, out=out)
        out ^= seeds
        return out

    def encrypt(self, purpose: Purpose, seeds: Words, *, out: Words) -> Words:
        """AES alone, for callers that xor the seeds to it together with something else. Never use it without."""
        assert isinstance(out.base, np.ndarray)
        if seeds.size:
            self._ciphers[purpose].update_into(seeds.data.cast("B"), out.base.data.cast("B"))
        return out
