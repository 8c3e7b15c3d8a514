"""Pads: the key stream of AES-256 in counter mode, 61 bits of each word, but for the word that stands for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto import pads
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import Secret
from fedassay.crypto.pads import pad
from secure_sum_driver import Seeded


def oracle(key: bytes, length: int, first: int = 0) -> list[int]:
    """The key stream block by block: AES of the counter as a big-endian number."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = (cipher.update((first + counter).to_bytes(16, "big")) for counter in range(-(-length // 2)))
    stream = b"".join(blocks)
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") & PRIME for i in range(length)]


@pytest.mark.parametrize("length", [0, 1, 2, 5, (1 << 14) + 1, (1 << 17) // 8, (1 << 17) // 8 + 1, 40_001])
def test_a_pad_is_aes_in_counter_mode(length: int):
    key = Secret(Seeded("key", length).bytes(32))
    found = pad(key, length)
    assert found.tolist() == oracle(key.data, length)
    assert found.dtype == np.uint64


def test_a_stream_with_the_word_p_is_drawn_again(monkeypatch: pytest.MonkeyPatch):
    """It happens once in 2^61 elements: here the first stream is made to hold it."""
    key, drawn = Secret(bytes(32)), list[bytes]()
    stream = pads._stream

    def holding(secret: Secret, start: bytes, count: int) -> np.ndarray:
        drawn.append(start)
        words = stream(secret, start, count)
        if len(drawn) < 3:
            words[1] = 2**64 - 1
        return words

    monkeypatch.setattr(pads, "_stream", holding)
    found = pad(key, 5)
    assert drawn == [attempt.to_bytes(4, "big") + bytes(12) for attempt in range(3)]
    assert found.tolist() == oracle(key.data, 5, first=2 << 96)
    assert found.max() < PRIME
