"""Pads: the key stream of AES-256-GCM, 61 bits of each word."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import Secret
from fedassay.crypto.prekeys import pad, total
from secure_sum_driver import Seeded


def oracle(key: bytes, length: int) -> list[int]:
    """The key stream block by block: AES of the counter as a big-endian number, from 2 on."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = (cipher.update((2 + counter).to_bytes(16, "big")) for counter in range(-(-length // 2)))
    stream = b"".join(blocks)
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") & PRIME for i in range(length)]


@pytest.mark.parametrize("length", [0, 1, 2, 5, (1 << 14) + 1, (1 << 17) // 8, (1 << 17) // 8 + 1, 40_001])
def test_a_pad_is_aes_in_counter_mode(length: int):
    key = Secret(Seeded("key", length).bytes(32))
    found = pad(key, length)
    assert found.tolist() == oracle(key.data, length)
    assert found.dtype == np.uint64


@pytest.mark.parametrize("count", [1, 6, 7, 8, 15])
def test_a_sum_of_pads(count: int):
    keys = [Secret(Seeded("sum", j).bytes(32)) for j in range(count)]
    words = zip(*(pad(key, 70_000 // count).tolist() for key in keys), strict=True)
    assert total(keys, 70_000 // count).tolist() == [sum(column) % PRIME for column in words]
