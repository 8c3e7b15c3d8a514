"""The fit part (of two halves) and the held-out part of the data: secret coins for each unit, the same in every run.

Why releases from different parts cost the largest and not the sum of their budgets
-----------------------------------------------------------------------------------
A coin says which of the three atoms (`Part.atoms`) a unit is in. For the unit *client* it is a function of the
client's name alone: adding or removing a client leaves every other client where it is, and the client itself is
in one part only. That is parallel composition (McSherry 2009, Theorem 4), whether or not anyone knows the key.

For the unit *example* the coin belongs to the position of the row among the rows of its client. Under replace-
one the positions stay and the same argument holds. Under add-remove the rows behind the added one move up and
meet other coins; what saves the argument is that the coins are independent of each other and of the data (a
pseudorandom function under a key that only the site knows). Independent coins of equal law can be dealt to the
rows in any order without changing the law of the parts: the law is the same as if each row carried a coin of
its own. Given those coins, two neighbouring data sets differ in one row of one atom, so that releases from
different ones are max(ε₁, ε₂, ..)-private together; the coins are independent of the data, and a mixture over
them keeps the bound.

What this needs: a random key of the site that it does not publish, and rows that keep their position between
two releases. If a file is rewritten between a release of one part and a release of the other, a row may take part
in both, and the two budgets add up: a real site notices by its fingerprint (`holdings.py`), and its ledger then
counts every further release for all rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from fedassay.data.bounds import numbered
from fedassay.data.federation import Federation
from fedassay.data.names import RowNames
from fedassay.data.schema import CLIENT
from fedassay.data.tables import DerivedRows, PooledRows, batch_length, kept
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Batch, Part, Rows, Unit
from fedassay.tasks.shared_parameters import HOLDOUT

_BLOCK = 16
_SHORT = _BLOCK - 1
_LONG_NAME = b"\xff"
_SMALLEST_KEY, _LARGEST_KEY = 16, 64

Blocks = NDArray[np.uint64]
"""Blocks of 128 bits, one in each row, as two little-endian words."""


def select_part(
    rows: Rows, part: Part, *, key: bytes, unit: Unit, client: str, holdout: float = HOLDOUT
) -> Rows:
    """The rows of one client that belong to `part`.

    Guarantee: the atoms are disjoint and together all rows; the same key gives the same split in every run; a unit
    is held out with probability `holdout`, and otherwise in either half of the fit rows with equal
    probability, independently of the other units and of all values, as far as anyone without the key can tell.
    See the module for what follows for privacy. Use it on all rows of the client, before any other selection:
    the coin of a row is that of its position.

    Edge cases: `Part.ALL` passes everything; for the unit client one atom has all rows and the others none.
    """
    coins = Coins(key=key, unit=unit, holdout=holdout)
    if part is Part.ALL:
        return rows

    def change(batches: Iterator[Batch]) -> Iterator[Batch]:
        name, start = coins.start(name_blocks([client])), 0
        for batch in batches:
            stop = start + batch_length(batch)
            yield kept(batch, coins.within(part, name, np.arange(start, stop)))
            start = stop

    return DerivedRows(rows=rows, change=change)


def select_pooled_part(
    federation: Federation, part: Part, *, key: bytes, unit: Unit, holdout: float = HOLDOUT
) -> PooledRows:
    """The rows of all clients that belong to `part`: for each client exactly those of `select_part`."""
    coins = Coins(key=key, unit=unit, holdout=holdout)
    rows = federation.pooled()
    if part is Part.ALL:
        return rows

    def change(batches: Iterator[Batch]) -> Iterator[Batch]:
        for blocks, positions, batch in _addressed(batches, rows.clients, coins):
            yield kept(batch, coins.within(part, blocks, positions))

    return rows.changed(change)


def _addressed(
    batches: Iterator[Batch], clients: Sequence[str], coins: Coins
) -> Iterator[tuple[Blocks, NDArray[np.int64], Batch]]:
    """Each batch with what its rows' coins depend on: the client's block and the position."""
    if isinstance(clients, RowNames):
        for batch in batches:
            codes = batch[CLIENT]
            yield coins.start(number_blocks(codes)), np.zeros(len(codes), dtype=np.int64), batch
        return
    blocks = coins.start(name_blocks(clients[:]))
    for batch, positions in numbered(batches, len(clients)):
        yield blocks[batch[CLIENT]], positions, batch


class Coins:
    """Coins for each unit: the pseudorandom function AES(AES(client) ⊕ position).

    Its first word, compared with `holdout`, says whether the unit is held out; a bit of the second one, in which
    half of the fit rows it is otherwise. That is CBC-MAC on messages of exactly two blocks, a pseudorandom
    function if AES is one (Bellare, Kilian, Rogaway 2000). The AES key is derived from `key` and the unit, so
    that coins for examples and for clients are unrelated. For the unit client the position is left out.
    """

    def __init__(self, *, key: bytes, unit: Unit, holdout: float) -> None:
        if not 0 < holdout < 1:
            raise UsageError(f"holdout: got {holdout:.3g}, expected a number between 0 and 1.")
        if not _SMALLEST_KEY <= len(key) <= _LARGEST_KEY:
            raise UsageError(
                f"split key: got {len(key)} bytes, expected {_SMALLEST_KEY} to {_LARGEST_KEY}; draw it anew."
            )
        derived = hashlib.blake2b(unit.encode(), key=key, digest_size=32, person=b"fedassay-split").digest()
        self._cipher = Cipher(AES256(derived), ECB())
        self._threshold = np.uint64(int(holdout * 2**64))
        self._by_position = unit is Unit.EXAMPLE

    def start(self, blocks: Blocks) -> Blocks:
        """The first of the two steps, which is the same for all rows of a client."""
        return self._encrypt(blocks)

    def within(self, part: Part, started: Blocks, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each row is in this part; `started` has one block for all rows or one for each."""
        if part is Part.ALL:
            return np.ones(len(positions), dtype=np.bool_)
        blocks = np.empty((len(positions), 2), dtype="<u8")
        blocks[:, 0] = started[:, 0] ^ positions.astype(np.uint64) if self._by_position else started[:, 0]
        blocks[:, 1] = started[:, 1]
        words = self._encrypt(blocks)
        held: NDArray[np.bool_] = words[:, 0] < self._threshold
        if part is Part.HELD_OUT:
            return held
        if part is Part.FIT:
            return np.asarray(~held)
        second = (words[:, 1] & np.uint64(1)).astype(np.bool_)
        return np.asarray(~held & (second == (part is Part.SECOND_FIT)))

    def _encrypt(self, blocks: Blocks) -> Blocks:
        data = self._cipher.encryptor().update(np.ascontiguousarray(blocks, dtype="<u8").data.cast("B"))
        return np.frombuffer(data, dtype="<u8").reshape(-1, 2)


def name_blocks(names: Sequence[str]) -> Blocks:
    """A block for each name, different names getting different blocks.

    Up to 15 bytes stand in the block as they are, with their length in the last byte; of longer names it is a
    120-bit hash, marked as such.
    """
    return np.frombuffer(b"".join(_name_block(name.encode()) for name in names), dtype="<u8").reshape(-1, 2)


def _name_block(name: bytes) -> bytes:
    if len(name) <= _SHORT:
        return name.ljust(_SHORT, b"\0") + bytes([len(name)])
    return hashlib.blake2b(name, digest_size=_SHORT).digest() + _LONG_NAME


def number_blocks(numbers: NDArray[np.int64]) -> Blocks:
    """The same as `name_blocks` of the decimal numbers, without a Python string for each.

    Examples
    --------
    >>> bool((number_blocks(np.array([7, 123])) == name_blocks(["7", "123"])).all())
    True
    """
    digits = numbers.astype(f"S{_SHORT}")
    blocks = np.zeros((len(numbers), _BLOCK), dtype=np.uint8)
    blocks[:, :_SHORT] = digits.view(np.uint8).reshape(-1, _SHORT)
    blocks[:, _SHORT] = np.strings.str_len(digits)
    return blocks.view("<u8")
