"""Keys of comparison functions: what one client sends to one server, version 1.

As bytes, a batch of keys is one array with a row per key. In words of 64 bits, little-endian, the key for a domain of n
bits is (docs/reference/dcf.md has the same table byte by byte)::

    0            header: the letters "fdcf", then one byte each: version, party, n, zero
    1, 2         the seed of the root
    3            the correction of the check's square (`fedassay.crypto.sketch`)
    4            the correction of the leaves' values
    5 + 3i ..    for each level i = 0 .. n−1: two words for seeds, one for values and control bits

The two keys of a client are equal but for the party and the seed.

In memory, `Keys` holds a column per field: one level of all keys is what evaluation reads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.field61 import PRIME, Elements
from fedassay.errors import ProtocolError, UsageError
from fedassay.protocol.arrays import Words

VERSION = 1
LARGEST_BITS = 32
MAGIC = b"fdcf"

Bytes = NDArray[np.uint8]

LEFT, RIGHT = np.uint64(1 << 63), np.uint64(1 << 62)
"""Control bits in the third word of a level. Below them: a zero and a field element."""

_P = np.uint64(PRIME)
_CONTROLS = LEFT | RIGHT
_SEED, _SQUARE, _LEAF, _LEVELS, _PER_LEVEL = slice(1, 3), 3, 4, 5, 3

_ROWS_AT_ONCE = 512
"""Rows per block in which rows are turned into columns (and back): a block fits into a core's cache."""


def check_bits(bits: int) -> None:
    """Refuse domains that there are no keys for."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= LARGEST_BITS:
        raise UsageError(f"bits of a comparison function: got {bits!r}, expected 1 to {LARGEST_BITS}.")


def key_bytes(bits: int) -> int:
    """Return the length of one key.

    Examples
    --------
    >>> key_bytes(10), key_bytes(32)
    (280, 808)
    """
    check_bits(bits)
    return 8 * (_LEVELS + _PER_LEVEL * bits)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Keys:
    """The keys that one server holds, as columns over clients.

    Attributes
    ----------
    party : 0 or 1: which of the two servers.
    bits : n; the domain is 0 .. 2^n − 1.
    seeds : K × 2 words. Secret: the only part that the other server does not have too.
    square, leaf : K field elements each.
    seed_words : n × K × 2 words.
    value_words : n × K words: a field element and two control bits each.
    """

    party: int
    bits: int
    seeds: Words
    square: Elements
    leaf: Elements
    seed_words: Words
    value_words: Words

    def __post_init__(self) -> None:
        if self.party not in (0, 1):
            raise UsageError(f"party of comparison keys: got {self.party!r}, expected 0 or 1.")
        check_bits(self.bits)
        count = len(self.seeds)
        assert self.seeds.shape == (count, 2)
        assert self.square.shape == self.leaf.shape == (count,)
        assert self.seed_words.shape == (self.bits, count, 2)
        assert self.value_words.shape == (self.bits, count)

    def __repr__(self) -> str:
        return f"Keys({len(self)} keys, party={self.party}, bits={self.bits})"

    def __len__(self) -> int:
        return len(self.seeds)

    @classmethod
    def from_bytes(cls, data: Bytes, *, party: int, bits: int) -> Keys:
        """Read what clients sent: one row of bytes per client.

        Guarantee: every row has the right length, version, party and domain, and all its field elements are
        reduced; anything else is a `ProtocolError` (`well_formed` returns which rows are valid). That a key is well
        formed implies nothing about the function it encodes: that is what the check in `fedassay.crypto.sketch` is for.

        Examples
        --------
        >>> Keys.from_bytes(np.zeros((1, 88), np.uint8), party=0, bits=2)
        Traceback (most recent call last):
        fedassay.errors.ProtocolError: comparison key 0: expected one of version 1 for party 0 and 2 bits, with \
numbers in range.
        """
        good = well_formed(data, party=party, bits=bits)
        if not good.all():
            place = int(np.argmin(good))
            raise ProtocolError(
                f"comparison key {place}: expected one of version {VERSION} for party {party} and {bits} bits, with "
                "numbers in range."
            )
        keys = cls.empty(len(data), party=party, bits=bits)
        words = _words(data)
        for rows in _blocks(len(keys)):
            keys.seeds[rows] = words[rows, _SEED]
            keys.square[rows], keys.leaf[rows] = words[rows, _SQUARE], words[rows, _LEAF]
            _as_pairs(keys.seed_words)[:, rows] = _levels_of_seeds(words, bits)[rows].T
            keys.value_words[:, rows] = _levels_of_values(words)[rows].T
        return keys

    @classmethod
    def empty(cls, count: int, *, party: int, bits: int) -> Keys:
        """Allocate room for `count` keys, to be filled before any other code sees it."""
        return cls(
            party=party,
            bits=bits,
            seeds=np.empty((count, 2), np.uint64),
            square=np.empty(count, np.uint64),
            leaf=np.empty(count, np.uint64),
            seed_words=np.empty((bits, count, 2), np.uint64),
            value_words=np.empty((bits, count), np.uint64),
        )

    def to_bytes(self) -> Bytes:
        """Return the keys as bytes, one row per key."""
        words = np.empty((len(self), key_bytes(self.bits) // 8), "<u8")
        words[:, 0] = np.frombuffer(_header(party=self.party, bits=self.bits), "<u8")
        for rows in _blocks(len(self)):
            words[rows, _SEED] = self.seeds[rows]
            words[rows, _SQUARE], words[rows, _LEAF] = self.square[rows], self.leaf[rows]
            _levels_of_seeds(words, self.bits)[rows] = _as_pairs(self.seed_words)[:, rows].T
            _levels_of_values(words)[rows] = self.value_words[:, rows].T
        return words.view(np.uint8)


def well_formed(data: Bytes, *, party: int, bits: int) -> NDArray[np.bool_]:
    """Return which rows are keys of this version for this party and domain, with reduced field elements.

    Raises `ProtocolError` if the rows do not have the length of such keys.
    """
    length = key_bytes(bits)
    if not isinstance(data, np.ndarray):
        raise ProtocolError(f"comparison keys: got {type(data).__name__}, expected an array of bytes.")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != length:
        shape = " x ".join(map(str, data.shape))
        raise ProtocolError(
            f"comparison keys: got {shape} values of type {data.dtype}, "
            f"expected rows of {length} bytes for a domain of {bits} bits."
        )
    words = _words(data)
    good: NDArray[np.bool_] = words[:, 0] == np.frombuffer(_header(party=party, bits=bits), "<u8")
    good &= (words[:, _SQUARE] < _P) & (words[:, _LEAF] < _P)
    for rows in _blocks(len(words)):
        values = _levels_of_values(words)[rows]
        good[rows] &= (values & ~_CONTROLS < _P).all(axis=1)
    return good


def _header(*, party: int, bits: int) -> bytes:
    return MAGIC + bytes([VERSION, party, bits, 0])


def _words(data: Bytes) -> Words:
    """Return rows of bytes as little-endian words; copied only if they do not lie on word boundaries."""
    rows = np.ascontiguousarray(data)
    return (rows.copy() if rows.ctypes.data % 8 else rows).view("<u8")


def _levels_of_seeds(words: Words, bits: int) -> NDArray[np.complex128]:
    """View the seeds' correction words of rows, both halves as one element: numpy moves such pairs in one piece."""
    row = words.strides[0]
    at = 8 * _LEVELS
    return np.ndarray((len(words), bits), np.complex128, words, at, (row, 8 * _PER_LEVEL))


def _levels_of_values(words: Words) -> Words:
    return words[:, _LEVELS + 2 :: _PER_LEVEL]


def _as_pairs(words: Words) -> NDArray[np.complex128]:
    return words.view(np.complex128)[..., 0]


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, count, _ROWS_AT_ONCE))
