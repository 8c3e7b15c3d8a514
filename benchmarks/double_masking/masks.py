"""Masks: vectors over Z_{2^64} that look uniform to whoever lacks their 16-byte key.

A mask is the AES-128-CTR key stream read as little-endian 64-bit words. The counter starts at zero, so a key
must serve one mask only; callers derive a fresh key for each (see `fedassay.crypto.keys.derive`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fedassay.crypto.keys import Secret

Words = NDArray[np.uint64]
"""Elements of Z_{2^64}: addition wraps."""

MASK_KEY_BYTES = 16

# One block of the sum and one of the key stream stay in a core's own cache while all masks pass over them;
# measured, blocks from 64 KiB to 512 KiB are equally fast, and a whole 8 MB vector is a quarter slower.
_BLOCK = 1 << 14
_GROUP = 256  # ciphers that are open at the same time: bounds the memory, whatever the number of masks


def add_masks(vector: Words, *, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> Words:
    """`vector` with the masks of the keys in `plus` added and those in `minus` subtracted, modulo 2^64.

    Guarantee: equal keys give equal masks on every platform, so a mask that one side adds the other removes.
    Memory: one copy of the vector, one block and `_GROUP` ciphers.

    Examples
    --------
    >>> x, key = np.arange(3, dtype=np.uint64), Secret(bytes(16))
    >>> masked = add_masks(x, plus=[key])
    >>> [hex(word) for word in masked.tolist()]
    ['0x3b2c8aefd44be966', '0x2e2b34ca59fa4c89', '0x61307efacefce25a']
    >>> add_masks(masked, minus=[key])
    array([0, 1, 2], dtype=uint64)
    """
    result = vector.astype(np.uint64, copy=True)
    signed = [(np.add, key) for key in plus] + [(np.subtract, key) for key in minus]
    zeros = memoryview(bytes(8 * _BLOCK))
    stream = bytearray(8 * _BLOCK)
    words = np.frombuffer(stream, dtype="<u8")
    for first in range(0, len(signed), _GROUP):
        ciphers = [(combine, _key_stream(key)) for combine, key in signed[first : first + _GROUP]]
        for start in range(0, len(result), _BLOCK):
            block = result[start : start + _BLOCK]
            plain, mask = zeros[: block.nbytes], words[: len(block)]
            for combine, cipher in ciphers:
                cipher.update_into(plain, stream)
                combine(block, mask, out=block)
    return result


def _key_stream(key: Secret) -> CipherContext:
    assert len(key.data) == MASK_KEY_BYTES
    return Cipher(algorithms.AES(key.data), modes.CTR(bytes(16))).encryptor()
