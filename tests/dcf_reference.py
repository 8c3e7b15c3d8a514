"""Comparison functions and their check once more: slow, in plain Python integers, from docs/reference/dcf.md alone.

Nothing here imports the code that it is compared with. `generate` lets the client cheat: it says what leaving the
path at each level, and reaching the leaf, shall be worth.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**61 - 1
Key = bytes


def expand(purpose: str, seed: bytes) -> bytes:
    key = hashlib.sha256(b"fedassay comparison functions 1: " + purpose.encode()).digest()[:16]
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(seed)
    return xor(block, seed)


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def values(seed: bytes) -> list[tuple[int, int]]:
    """For the left and the right child: the number to add, and the control bit."""
    return [(word % 2**61, word >> 63) for word in struct.unpack("<2Q", expand("values", seed))]


def leaf_number(seed: bytes) -> int:
    return struct.unpack("<2Q", seed)[0] % 2**61


def check_numbers(seed: bytes) -> tuple[int, int]:
    """Shares of a and of c before correction."""
    a, c = struct.unpack("<2Q", expand("check", seed))
    return a % 2**61, c % 2**61


def generate(
    x: int,
    bits: int,
    seeds: tuple[bytes, bytes],
    leaving: Sequence[int] | None = None,
    leaf: int = 1,
    square_error: int = 0,
) -> tuple[Key, Key]:
    """Both keys. `leaving[i]` is what the points get that leave the path at level i."""
    path = [x >> (bits - 1 - level) & 1 for level in range(bits)]
    worth = [1 - bit for bit in path] if leaving is None else leaving
    s, t, total, words = list(seeds), [0, 1], 0, []
    for bit, target in zip(path, worth, strict=True):
        sign = -1 if t[1] else 1
        drawn = [values(seed) for seed in s]
        children = [(expand("left seed", seed), expand("right seed", seed)) for seed in s]
        seed_word = xor(children[0][1 - bit], children[1][1 - bit])
        lost = drawn[0][1 - bit][0] - drawn[1][1 - bit][0]
        value_word = sign * (target - total - lost) % P
        total += drawn[0][bit][0] - drawn[1][bit][0] + sign * value_word
        left = drawn[0][0][1] ^ drawn[1][0][1] ^ bit ^ 1
        right = drawn[0][1][1] ^ drawn[1][1][1] ^ bit
        words.append(seed_word + struct.pack("<Q", value_word | left << 63 | right << 62))
        s = [xor(c[bit], seed_word) if tb else c[bit] for c, tb in zip(children, t, strict=True)]
        t = [d[bit][1] ^ (tb & (left, right)[bit]) for d, tb in zip(drawn, t, strict=True)]
    sign = -1 if t[1] else 1
    leaf_word = sign * (leaf - total - leaf_number(s[0]) + leaf_number(s[1])) % P
    (a0, c0), (a1, c1) = (check_numbers(seed) for seed in seeds)
    square = ((a0 + a1) ** 2 - c0 - c1 + square_error) % P
    rest = struct.pack("<2Q", square, leaf_word) + b"".join(words)
    first, second = (b"fdcf" + bytes([1, b, bits, 0]) + seeds[b] + rest for b in (0, 1))
    return first, second


def evaluate(key: Key, point: int) -> int:
    party, bits = key[5], key[6]
    s, t, value = key[8:24], party, 0
    for level in range(bits):
        at = 40 + 24 * level
        seed_word, word = key[at : at + 16], struct.unpack("<Q", key[at + 16 : at + 24])[0]
        side = point >> (bits - 1 - level) & 1
        number, bit = values(s)[side]
        value += number + t * (word % 2**61)
        child = expand(("left seed", "right seed")[side], s)
        s = xor(child, seed_word) if t else child
        t = bit ^ (t & (word >> 63 - side & 1))
    value += leaf_number(s) + t * struct.unpack("<Q", key[32:40])[0]
    return (-value if party else value) % P


def challenge(seed: bytes, count: int) -> list[int]:
    purpose = b"comparison functions 1: check"
    info = len(purpose).to_bytes(4, "big") + purpose
    key = HKDF(algorithm=SHA256(), length=16, salt=b"", info=info).derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
    return [word % 2**61 % P for word in struct.unpack(f"<{count}Q", stream)]


def first_message(key: Key, seed: bytes) -> tuple[int, tuple[int, ...]]:
    """The share of d, and the shares of (a, c, z*, f of the last point)."""
    shares = [evaluate(key, point) for point in range(2 ** key[6])]
    increments = [after - before for before, after in zip([0, *shares], shares, strict=False)]
    r = challenge(seed, len(shares))
    a, c = check_numbers(key[8:24])
    if key[5] == 0:
        c += struct.unpack("<Q", key[24:32])[0]
    z = sum(rj * yj for rj, yj in zip(r, increments, strict=True))
    squares = sum(rj * rj * yj for rj, yj in zip(r, increments, strict=True))
    return (z + a) % P, (a % P, c % P, squares % P, shares[-1])


def second_message(key: Key, seed: bytes, d: int) -> tuple[int, int]:
    _, (a, c, squares, last) = first_message(key, seed)
    mine = 1 - key[5]
    return (mine * d * d - 2 * d * a + c - squares) % P, (last - mine) % P


def passes(keys: tuple[Key, Key], seed: bytes) -> bool:
    d = sum(first_message(key, seed)[0] for key in keys) % P
    both = [second_message(key, seed, d) for key in keys]
    return all(sum(column) % P == 0 for column in zip(*both, strict=True))
