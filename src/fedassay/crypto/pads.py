"""One-time pads over the prime field: vectors that look uniform to anyone who lacks their key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fedassay.crypto import field61
from fedassay.crypto.field61 import Elements, P
from fedassay.crypto.keys import Secret

PAD_KEY_BYTES = 32

_AT_ONCE = 1 << 17
"""Elements of all pads together: what a core's own cache holds; measured, half as much is a twentieth slower."""

_FEWEST = 1 << 9
"""Elements of one pad at a time, however many pads there are."""

_ZEROS = memoryview(bytes(8 * _AT_ONCE))
UNFOLDED = 7
"""So many elements, and a folded sum, fit into a word."""


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
    return total([key], count)


def total(keys: Sequence[Secret], count: int) -> Elements:
    """The sum of the keys' pads."""
    before, after = np.zeros(count, np.uint64), np.empty(count, np.uint64)
    for first in range(0, len(keys), UNFOLDED):

        def add(part: slice, pads: Elements, before: Elements = before, after: Elements = after) -> None:
            after[part] = field61.fold(before[part] + pads.sum(axis=0, dtype=np.uint64))

        expand(keys[first : first + UNFOLDED], count, add)
        before, after = after, before
    return field61.reduce(before)


def expand(keys: Sequence[Secret], count: int, use: Callable[[slice, Elements], None]) -> None:
    """Call `use` with the pads of all keys, a row each, some columns at a time: where these are, and what they hold.

    The rows last for the call. If one pad has to be drawn again all are gone through once more from the start, so
    `use` must write over what it made of the same columns before.
    """
    at_once = max(_FEWEST, min(count, _AT_ONCE // len(keys)))
    buffer = np.empty((len(keys), at_once + 2), "<u8")  # the cipher library wants room for one more block
    rows = [row.data.cast("B") for row in buffer]
    attempts = np.zeros(len(keys), int)
    while True:
        streams = [_stream(key, attempt) for key, attempt in zip(keys, attempts.tolist(), strict=True)]
        for start in range(0, count, at_once):
            part = slice(start, min(start + at_once, count))
            for stream, row in zip(streams, rows, strict=True):
                stream.update_into(_ZEROS[: 8 * (part.stop - start)], row)
            words = buffer[:, : part.stop - start].astype(np.uint64, copy=False)
            words &= P
            if words.max() == P:
                attempts += (words == P).any(axis=1)
                break
            use(part, words)
        else:
            return


def _stream(key: Secret, attempt: int) -> CipherContext:
    """The key stream. The counter's first four bytes tell attempts apart: 2^96 blocks of each never meet the next's."""
    assert len(key.data) == PAD_KEY_BYTES
    start = attempt.to_bytes(4, "big") + bytes(12)
    return Cipher(algorithms.AES(key.data), modes.CTR(start)).encryptor()
