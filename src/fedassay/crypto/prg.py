"""A pseudorandom generator for trees of seeds: AES with fixed keys, over all seeds at once.

Block j of the expansion of a 128-bit seed s is AES_j(s) ⊕ s, the compression function of Matyas, Meyer and Oseas
under a key that is fixed for the purpose j. A cipher with a fixed key needs no key schedule per seed, so one call
to OpenSSL expands the seeds of all clients.

What is needed: that the blocks of independent uniform seeds, each expanded under every purpose, look uniform and
independent (a pseudorandom generator). Whoever builds on this must see to it that a secret seed is uniform given
everything else that is known; the comparison functions in `fedassay.crypto.dcf` do.

What is assumed: AES-128 under the fixed keys behaves like independent random permutations (the ideal-cipher model).
Then the blocks of D seeds are told from random with a probability of at most about 2·D·q/2^128 by anyone who
computes AES q times (q ≥ D): the only ways are to hit a seed, or the image of one. This is the non-circular part of
the tweakable circular correlation robustness that is usually assumed of fixed-key AES (C. Guo, J. Katz, X. Wang,
Y. Yu, Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers, IEEE S&P 2020; the tweak is the
purpose): in our trees nobody xors a secret to an input and to the output as well, so no orthomorphism is put before
the cipher. Note the D: with a million keys of 32 bits (D = 2^25), to find *any one* seed takes 2^103 AES calls, not
2^128, as with every generator under keys that all clients share.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto.field61 import Words

SEED_BYTES = 16


class Purpose(IntEnum):
    """What a block is for. Each has its own fixed key."""

    LEFT_SEED = 0
    RIGHT_SEED = 1
    LEFT_VALUE = 2
    RIGHT_VALUE = 3
    MASK = 4
    SQUARE = 5


def fixed_key(purpose: Purpose) -> bytes:
    """The AES-128 key of a purpose: nothing up our sleeve but a hash of its name.

    Examples
    --------
    >>> fixed_key(Purpose.LEFT_SEED).hex()
    '733fbc2949f764931ceed7925794ce2f'
    """
    name = purpose.name.lower().replace("_", " ")
    return hashlib.sha256(f"fedassay comparison functions 1: {name}".encode()).digest()[:16]


class Generator:
    """The ciphers of all purposes, opened once. Not to be shared between threads."""

    def __init__(self) -> None:
        self._ciphers = [
            Cipher(algorithms.AES(fixed_key(purpose)), modes.ECB()).encryptor() for purpose in Purpose
        ]

    def expand(self, purpose: Purpose, seeds: Words) -> Words:
        """One block per seed. Seeds and blocks are arrays whose last axis is two little-endian words.

        One call to the cipher, whatever the number of seeds.
        """
        blocks = self.encrypt(purpose, seeds)
        blocks ^= seeds
        return blocks

    def encrypt(self, purpose: Purpose, seeds: Words) -> Words:
        """The blocks before the seeds are xored to them, for callers that xor something else in the same pass."""
        plain = np.ascontiguousarray(seeds, dtype="<u8")
        if plain.size == 0:
            return plain.copy()
        # The library asks for room for one more block than it writes.
        room = np.empty(plain.size + 2, dtype="<u8")
        self._ciphers[purpose].update_into(plain.data.cast("B"), room.data.cast("B"))
        return room[: plain.size].reshape(plain.shape)
