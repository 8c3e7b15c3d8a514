"""At most so many rows of a client: the bound from which the noise for the unit "client" is computed.

Which rows stay is decided by fresh randomness each time, uniformly over all subsets, so that the rows left
out do not depend on their values or their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedassay.data.names import RowNames
from fedassay.data.schema import CLIENT
from fedassay.data.tables import DerivedRows, PooledRows, batch_length, count_rows, kept
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Batch, Randomness, Rows

Mask = NDArray[np.bool_]
Whole = NDArray[np.int64]

_WORDS = 2**64
_KEYS_AT_ONCE = 2**20


def limit_rows(rows: Rows, most: int, randomness: Randomness) -> tuple[Rows, int]:
    """At most `most` of one client's rows, and how many were left out.

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
    """At most `most` rows of each client, and how many were left out in all.

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
    """Each batch of pooled rows with each row's position among the rows of its own client."""
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
    """A uniformly random subset of `count` of the numbers below `total`, sorted.

    The first `count` different values of a sequence of independent uniform draws: relabelling the numbers
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
    """Independent draws, exactly uniform on the whole numbers below `bound`.

    Words from the incomplete last multiple of `bound` are drawn again, which removes the bias of a remainder.
    """
    largest = np.uint64(_WORDS - _WORDS % bound - 1)
    words = randomness.words(count)
    while (rejected := words > largest).any():
        words = np.concatenate([words[~rejected], randomness.words(int(np.count_nonzero(rejected)))])
    return (words % np.uint64(bound)).astype(np.int64)


def _choose_each(counts: Whole, most: int, randomness: Randomness) -> Mask:
    """For each client, one after the other, which of its rows stay."""
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
