"""Pads: the key stream of AES-256 in counter mode, 61 bits of each word, but for the word that stands for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fedassay.crypto import prekeys as pads
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import Secret
from fedassay.crypto.prekeys import expand, pad, total
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


class Holding:
    """A key stream that has been made to hold 64 ones, of which 61 are p, as its last word."""

    def __init__(self, stream: CipherContext, length: int) -> None:
        self._stream, self._left = stream, 8 * length

    def update_into(self, data: memoryview, buffer: memoryview) -> int:
        written = self._stream.update_into(data, buffer)
        self._left -= written
        if self._left == 0:
            buffer[written - 8 : written] = bytes([255]) * 8
        return written


@pytest.mark.parametrize("length", [5, 40_001])
def test_a_stream_with_the_word_p_is_drawn_again(length: int, monkeypatch: pytest.MonkeyPatch):
    """It happens once in 2^61 elements: here the first two streams of one key of three are made to hold it, at the end,
    when everything but the last columns has been used."""
    keys, drawn = [Secret(bytes([j]) * 32) for j in range(3)], list[tuple[Secret, int]]()
    stream = pads._stream

    def holding(secret: Secret, attempt: int) -> CipherContext | Holding:
        drawn.append((secret, attempt))
        honest = stream(secret, attempt)
        return Holding(honest, length) if secret == keys[1] and attempt < 2 else honest

    monkeypatch.setattr(pads, "_stream", holding)
    expected = [oracle(key.data, length, first=(j == 1) * 2 << 96) for j, key in enumerate(keys)]
    assert [pad(key, length).tolist() for key in keys] == expected
    found = np.empty((3, length), np.uint64)

    def keep(part: slice, words: np.ndarray) -> None:
        found[:, part] = words

    expand(keys, length, keep)
    assert found.tolist() == expected
    assert total(keys, length).tolist() == [sum(words) % PRIME for words in zip(*expected, strict=True)]
    assert drawn[-3:] == [(keys[0], 0), (keys[1], 2), (keys[2], 0)]
    assert found.max() < PRIME


@pytest.mark.parametrize("count", [1, 6, 7, 8, 15])
def test_a_sum_of_pads(count: int):
    keys = [Secret(Seeded("sum", j).bytes(32)) for j in range(count)]
    words = zip(*(pad(key, 70_000 // count).tolist() for key in keys), strict=True)
    assert total(keys, 70_000 // count).tolist() == [sum(column) % PRIME for column in words]
