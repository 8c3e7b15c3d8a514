"""Selection of a client's rows before they are measured: fit and held-out parts, and a largest number of rows.

The bound on the rows of a client is the one from which the noise for the unit "client" is computed. Which rows stay is
decided by fresh randomness each time, uniformly over all subsets, so that the rows left out do not depend on their
values or their order. Which rows are held out is decided by secret coins for each unit, the same in every run.

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
in both, and the two budgets add up: a real site notices by its fingerprint (`stores.take_stock`), and its ledger then
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

from fedassay.data.federation import Federation
from fedassay.data.names import RowNames
from fedassay.data.schema import CLIENT
from fedassay.data.tables import DerivedRows, PooledRows, batch_length, count_rows, kept
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Batch, Part, Plan, Randomness, Rows, Unit
from fedassay.tasks.shared_parameters import HOLDOUT

# --- a largest number of rows -------------------------------------------------------------------------------


Mask = NDArray[np.bool_]
Whole = NDArray[np.int64]

_WORDS = 2**64
_KEYS_AT_ONCE = 2**20


def limit_rows(rows: Rows, most: int, randomness: Randomness) -> tuple[Rows, int]:
    """Return at most `most` of one client's rows, and the number of rows left out.

    Guarantee: each subset of `most` rows is equally likely, exactly (not up to a modulo bias). The result
    can be read again and gives the same rows. Reads the rows once to count them; memory is proportional to
    the smaller of the two subsets, kept or left out.

    Edge cases: no more than `most` rows pass unchanged and use no randomness.

    What it does to sensitivities: it bounds what a *client* can add or remove by `most` rows. For the unit
    example it is not free: with the bound reached, adding one row can push another one out, so
    neighbours that differ by one row added become neighbours with one row *replaced*.
    """
    _check(most)
    total = count_rows(rows)
    if total <= most:
        return rows, 0
    dropped = total - most
    # Marking the smaller subset is equivalent: the complement of a uniform subset is uniform.
    marks = choose(total, min(most, dropped), randomness)

    def change(batches: Iterator[Batch]) -> Iterator[Batch]:
        start = 0
        for batch in batches:
            stop = start + batch_length(batch)
            inside = marks[np.searchsorted(marks, start) : np.searchsorted(marks, stop)] - start
            keep = np.full(stop - start, most > dropped)
            keep[inside] = most <= dropped
            yield kept(batch, keep)
            start = stop

    return DerivedRows(rows=rows, change=change), dropped


def limit_pooled(rows: PooledRows, most: int, randomness: Randomness) -> tuple[PooledRows, int]:
    """Return at most `most` rows of each client, and the number of rows left out in all.

    Guarantee: for each client the same law as `limit_rows`, independently of the other clients. Reads the
    rows once to count them. Memory: a few words per client and one byte per row of a client with too many.
    """
    _check(most)
    if isinstance(rows.clients, RowNames):
        return rows, 0
    counts = np.zeros(len(rows.clients), dtype=np.int64)
    for batch in rows.by_client.batches():
        counts += np.bincount(batch[CLIENT], minlength=len(counts))
    excess = counts > most
    if not excess.any():
        return rows, 0
    chosen = _choose_each(counts[excess], most, randomness)
    starts = np.full(len(counts), -1, dtype=np.int64)
    starts[excess] = np.cumsum(counts[excess]) - counts[excess]

    def change(batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch, positions in numbered(batches, len(counts)):
            start = starts[batch[CLIENT]]
            yield kept(batch, (start < 0) | chosen[np.maximum(start, 0) + positions * (start >= 0)])

    return rows.changed(change), int((counts[excess] - most).sum())


def numbered(batches: Iterator[Batch], clients: int) -> Iterator[tuple[Batch, Whole]]:
    """Yield each batch of pooled rows with each row's position among the rows of its own client."""
    seen = np.zeros(clients, dtype=np.int64)
    for batch in batches:
        codes = batch[CLIENT]
        order = np.argsort(codes, kind="stable")
        present, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
        positions = np.empty(len(codes), dtype=np.int64)
        positions[order] = np.arange(len(codes)) - np.repeat(first - seen[present], counts)
        yield batch, positions
        seen[present] += counts


def choose(total: int, count: int, randomness: Randomness) -> Whole:
    """Draw a uniformly random subset of `count` of the numbers below `total`, sorted.

    It is the first `count` different values of a sequence of independent uniform draws: relabelling the numbers
    does not change the law of the sequence, so no subset is preferred. Never more values are drawn at once
    than are still missing, so none has to be left out at the end. Fast for ``count <= total / 2``.
    """
    found: Whole = np.empty(0, dtype=np.int64)
    while len(found) < count:
        draws = np.sort(below(total, count - len(found), randomness))
        merged = np.sort(np.concatenate([found, draws]), kind="stable")  # two sorted runs: linear
        found = merged[np.diff(merged, prepend=-1) > 0]
    return found


def below(bound: int, count: int, randomness: Randomness) -> Whole:
    """Draw independent numbers, exactly uniform on the whole numbers below `bound`.

    Words from the incomplete last multiple of `bound` are drawn again, which removes the bias of a remainder.
    """
    largest = np.uint64(_WORDS - _WORDS % bound - 1)
    words = randomness.words(count)
    while (rejected := words > largest).any():
        words = np.concatenate([words[~rejected], randomness.words(int(np.count_nonzero(rejected)))])
    return (words % np.uint64(bound)).astype(np.int64)


def _choose_each(counts: Whole, most: int, randomness: Randomness) -> Mask:
    """Draw for each client, one after the other, which of its rows stay."""
    chosen = np.zeros(int(counts.sum()), dtype=np.bool_)
    ends = np.cumsum(counts)
    start = client = 0
    while client < len(counts):
        stop = int(np.searchsorted(ends, start + _KEYS_AT_ONCE, side="right"))
        if stop > client:
            chosen[start : ends[stop - 1]] = _smallest_keys(counts[client:stop], most, randomness)
        else:  # one client with more rows than are sorted at once
            stop = client + 1
            total = int(counts[client])
            smaller = choose(total, min(most, total - most), randomness)
            chosen[start : ends[client]] = most > total - most
            chosen[start + smaller] = most <= total - most
        start, client = int(ends[stop - 1]), stop
    return chosen


def _smallest_keys(counts: Whole, most: int, randomness: Randomness) -> Mask:
    """Give each row a random key; each client keeps the rows with its `most` smallest keys.

    Exact: given that no client has two equal keys, every order of its rows is equally likely, and keys with
    a tie are drawn again.
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    while True:
        keys = randomness.words(len(owner))
        order = np.lexsort((keys, owner))
        if not ((np.diff(keys[order]) == 0) & (np.diff(owner) == 0)).any():
            break
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.empty(len(owner), dtype=np.bool_)
    chosen[order] = rank < most
    return chosen


def _check(most: int) -> None:
    if most < 1:
        raise UsageError(f"rows per client: got {most}, expected at least 1.")


# --- fit and held-out parts ---------------------------------------------------------------------------------


_BLOCK = 16
_SHORT = _BLOCK - 1
_LONG_NAME = b"\xff"
_SMALLEST_KEY, _LARGEST_KEY = 16, 64

Blocks = NDArray[np.uint64]
"""Blocks of 128 bits, one in each row, as two little-endian words."""


def select_part(
    rows: Rows, part: Part, *, key: bytes, unit: Unit, client: str, holdout: float = HOLDOUT
) -> Rows:
    """Return the rows of one client that belong to `part`.

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


def measured_rows(
    rows: Rows, plan: Plan, *, key: bytes, client: str, holdout: float, randomness: Randomness
) -> tuple[Rows, int]:
    """Return the rows of one client that a plan is about, at most as many as it allows, and the number left out."""
    protection = plan.setting.protection
    rows = select_part(rows, plan.query.part, key=key, unit=protection.unit, client=client, holdout=holdout)
    if protection.rows_per_client is None:
        return rows, 0
    return limit_rows(rows, protection.rows_per_client, randomness)


def select_pooled_part(
    federation: Federation, part: Part, *, key: bytes, unit: Unit, holdout: float = HOLDOUT
) -> PooledRows:
    """Return the rows of all clients that belong to `part`: for each client exactly those of `select_part`."""
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
    """Yield each batch with what its rows' coins depend on: the client's block and the position."""
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
        """Compute the first of the two steps, which is the same for all rows of a client."""
        return self._encrypt(blocks)

    def within(self, part: Part, started: Blocks, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each row is in this part; `started` has one block for all rows or one for each."""
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
    """Return a block for each name, different names getting different blocks.

    Up to 15 bytes stand in the block as they are, with their length in the last byte; of longer names it is a
    120-bit hash, marked as such.
    """
    return np.frombuffer(b"".join(_name_block(name.encode()) for name in names), dtype="<u8").reshape(-1, 2)


def _name_block(name: bytes) -> bytes:
    if len(name) <= _SHORT:
        return name.ljust(_SHORT, b"\0") + bytes([len(name)])
    return hashlib.blake2b(name, digest_size=_SHORT).digest() + _LONG_NAME


def number_blocks(numbers: NDArray[np.int64]) -> Blocks:
    """Return `name_blocks` of the decimal numbers, without a Python string for each.

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
