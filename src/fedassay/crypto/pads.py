"""One-time pads over the prime field: vectors that look uniform to anyone who lacks their key."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto.field61 import Elements, P
from fedassay.crypto.keys import Secret

PAD_KEY_BYTES = 32

_ZEROS = bytes(1 << 17)


def pad(key: Secret, count: int) -> Elements:
    """Expand a key of 32 bytes into `count` elements: the key stream of AES-256 in counter mode, 61 bits of each word.

    Guarantee: exactly uniform if the key stream is. The word p = 2^61 − 1 stands for no element; a stream that holds
    it (probability 2^-61 for each element) is drawn again from another range of the counter. Equal keys give equal
    pads on every platform; a key must serve one pad only.

    Examples
    --------
    >>> pad(Secret(bytes(32)), 2).tolist()
    [687151484705478108, 513556120466507949]
    """
    assert len(key.data) == PAD_KEY_BYTES
    attempt = 0
    while True:
        # The first four bytes of the counter tell attempts apart; 2^96 blocks of each never meet the next one's.
        start = attempt.to_bytes(4, "big") + bytes(12)
        words = _stream(key, start, count)
        words &= P
        if count == 0 or words.max() != P:
            return words
        attempt += 1


def _stream(key: Secret, start: bytes, count: int) -> Elements:
    """The key stream as little-endian words."""
    size = 8 * count
    buffer = np.empty(count + 2, "<u8")  # the cipher library wants room for one more block
    cipher = Cipher(algorithms.AES(key.data), modes.CTR(start)).encryptor()
    cipher.update_into(
        memoryview(_ZEROS)[:size] if size <= len(_ZEROS) else bytes(size), buffer.data.cast("B")
    )
    return buffer[:count].astype(np.uint64, copy=False)
