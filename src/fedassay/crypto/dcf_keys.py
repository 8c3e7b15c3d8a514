"""Keys of comparison functions as bytes: what one client sends to one server, version 1.

A batch of keys is one array of bytes, a row per key. In words of 64 bits, little-endian, a key for a domain of n bits
is (docs/reference/dcf.md has the same table in bytes)::

    0            header: "fdcf", version, party, n, zero (one byte each, after the four letters)
    1, 2         the root's seed
    3            the correction of the check's square (`fedassay.crypto.sketch`)
    4            the correction word of the leaves
    5 + 3i ..    for each level i = 0 .. n−1: two words for the seed, one for value and control bits

The two keys of a client are equal but for the party and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.field61 import PRIME, Words
from fedassay.errors import ProtocolError, UsageError

VERSION = 1
LARGEST_BITS = 32
MAGIC = b"fdcf"

Bytes = NDArray[np.uint8]

HEADER = 0
SEED = slice(1, 3)
SQUARE = 3
LEAF = 4
LEVELS = 5
WORDS_PER_LEVEL = 3
VALUE_SHIFT = np.uint64(3)
"""A level's last word: the value's correction above three bits, which are left control, right control, zero."""

_P = np.uint64(PRIME)
_UNUSED = np.uint64(0b100)


def check_bits(bits: int) -> None:
    """Refuse domains that there are no keys for."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= LARGEST_BITS:
        raise UsageError(f"bits of a comparison function: got {bits!r}, expected 1 to {LARGEST_BITS}.")


def key_bytes(bits: int) -> int:
    """The length of one key.

    Examples
    --------
    >>> key_bytes(10), key_bytes(32)
    (280, 808)
    """
    check_bits(bits)
    return 8 * (LEVELS + WORDS_PER_LEVEL * bits)


def header(*, party: int, bits: int) -> Bytes:
    """The first eight bytes of every key."""
    return np.frombuffer(MAGIC + bytes([VERSION, party, bits, 0]), np.uint8)


def well_formed(data: Bytes, *, party: int, bits: int) -> NDArray[np.bool_]:
    """Which rows are keys of this version for this party and domain, with reduced field elements.

    Raises `ProtocolError` if the rows do not have the length of such keys.
    """
    length = key_bytes(bits)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != length:
        shape = " x ".join(map(str, data.shape))
        raise ProtocolError(
            f"comparison keys: got {shape} values of type {data.dtype}, "
            f"expected rows of {length} bytes for a domain of {bits} bits."
        )
    words = _words(data)
    single, levels = words[:, [SQUARE, LEAF]], words[:, LEVELS + 2 :: WORDS_PER_LEVEL]
    good = (data[:, :8] == header(party=party, bits=bits)).all(axis=1) & (single < _P).all(axis=1)
    return good & ((levels >> VALUE_SHIFT < _P) & (levels & _UNUSED == 0)).all(axis=1)


@dataclass(frozen=True, kw_only=True, repr=False)
class Keys:
    """The keys that one server holds, one row per client; checked when made.

    Guarantee: every row has the right length, version, party and domain, and all its field elements are reduced;
    anything else is a `ProtocolError`. That a key is well formed says nothing about the function it encodes: that
    is what the check of `fedassay.crypto.sketch` is for.

    Examples
    --------
    >>> Keys(data=np.zeros((1, 88), np.uint8), party=0, bits=2)
    Traceback (most recent call last):
    fedassay.errors.ProtocolError: comparison key 0: it does not begin with "fdcf"; expected a key from fedassay.
    """

    data: Bytes
    party: int
    bits: int

    def __post_init__(self) -> None:
        if self.party not in (0, 1):
            raise UsageError(f"party of comparison keys: got {self.party!r}, expected 0 or 1.")
        good = well_formed(self.data, party=self.party, bits=self.bits)
        if not good.all():
            place = int(np.argmin(good))
            complaint = _complaint(self.data[place].tobytes(), party=self.party, bits=self.bits)
            raise ProtocolError(f"comparison key {place}: {complaint}.")
        view = _words(self.data).view(np.uint8)
        view.flags.writeable = False
        object.__setattr__(self, "data", view)

    def __repr__(self) -> str:
        return f"Keys({len(self)} keys, party={self.party}, bits={self.bits})"

    def __len__(self) -> int:
        return len(self.data)

    @property
    def words(self) -> Words:
        """The same rows as words of 64 bits."""
        return _words(self.data)


def _words(data: Bytes) -> Words:
    """Rows of bytes as little-endian words; copied only if they do not lie on word boundaries."""
    rows = np.ascontiguousarray(data)
    return (rows.copy() if rows.ctypes.data % 8 else rows).view("<u8")


def _complaint(key: bytes, *, party: int, bits: int) -> str:
    """What is wrong with a key of the right length."""
    if key[:4] != MAGIC:
        return f'it does not begin with "{MAGIC.decode()}"; expected a key from fedassay'
    if key[4] != VERSION:
        return f"got version {key[4]}, expected {VERSION}; client and servers need the same version of fedassay"
    if key[5] != party:
        return f"got one for party {key[5]}, expected party {party}; the keys went to the wrong server"
    if key[6] != bits:
        return f"got a domain of {key[6]} bits, expected {bits}; client and servers need the same grid"
    return "a number in it is out of range; expected a key that was not changed on its way"
