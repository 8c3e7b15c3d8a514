from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedassay.crypto import masks
from fedassay.crypto.keys import Secret
from fedassay.crypto.masks import add_masks
from secure_sum_driver import Seeded


def oracle(key: bytes, length: int) -> list[int]:
    """The key stream block by block: AES of the counter as a big-endian number."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = b"".join(cipher.update(counter.to_bytes(16, "big")) for counter in range(-(-length // 2)))
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(length)]


def keys(count: int) -> list[Secret]:
    source = Seeded("keys", count)
    return [Secret(source.bytes(16)) for _ in range(count)]


@pytest.mark.parametrize("length", [0, 1, 2, 5, 1 << 14, (1 << 14) + 1, 40_001])
def test_masks_are_aes_in_counter_mode(length: int):
    [key] = keys(1)
    assert add_masks(np.zeros(length, np.uint64), plus=[key]).tolist() == oracle(key.data, length)


def test_many_masks_add_up_modulo_2_to_the_64():
    plus, minus, x = keys(300), keys(7), Seeded("x").words(11)
    expected = [
        (int(x[i]) + sum(oracle(k.data, 11)[i] for k in plus) - sum(oracle(k.data, 11)[i] for k in minus))
        % 2**64
        for i in range(11)
    ]
    assert add_masks(x, plus=plus, minus=minus).tolist() == expected


def test_block_and_group_sizes_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    plus, x = keys(9), Seeded("x").words(1000)
    expected = add_masks(x, plus=plus)
    monkeypatch.setattr(masks, "_BLOCK", 64)
    monkeypatch.setattr(masks, "_GROUP", 2)
    np.testing.assert_array_equal(add_masks(x, plus=plus), expected)


def test_what_is_added_can_be_subtracted_and_the_argument_is_left_alone():
    x = Seeded("x").words(1000)
    before = x.copy()
    masked = add_masks(x, plus=keys(3), minus=keys(2))
    assert not np.array_equal(masked, x)
    np.testing.assert_array_equal(add_masks(masked, plus=keys(2), minus=keys(3)), before)
    np.testing.assert_array_equal(x, before)
    assert add_masks(x) is not x
