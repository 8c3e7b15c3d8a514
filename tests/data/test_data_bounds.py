"""At most so many rows of each client: sizes, repeatability and edge cases. Its law: `tests/statistical`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.data import selection
from fedassay.data.federation import load
from fedassay.data.selection import below, choose, limit_pooled, limit_rows, numbered
from fedassay.data.tables import ArrayRows, DerivedRows, StreamedRows
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Rows


def values(rows: Rows, name: str = "score") -> list[float]:
    return [value for batch in rows.batches() for value in batch[name].tolist()]


def in_batches(columns: dict[str, NDArray[Any]], size: int) -> StreamedRows:
    length = len(next(iter(columns.values())))
    return StreamedRows(
        read=lambda: ({n: c[i : i + size] for n, c in columns.items()} for i in range(0, length, size))
    )


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(total=st.integers(0, 60), most=st.integers(1, 70), size=st.integers(1, 20), seed=st.integers(0, 999))
def test_so_many_rows_are_left_in_their_order(total: int, most: int, size: int, seed: int) -> None:
    score = np.arange(total, dtype=float)
    rows = in_batches({"score": score, "label": np.arange(total) % 2}, size)
    limited, dropped = limit_rows(rows, most, SimulatedRandomness(seed))
    left = values(limited)
    assert len(left) == min(total, most)
    assert dropped == total - len(left)
    assert left == sorted(set(left))
    assert values(limited) == left  # the same rows in every pass
    assert values(limited, "label") == [row % 2 for row in left]


def test_enough_room_changes_nothing_and_uses_no_randomness() -> None:
    rows = ArrayRows(columns={"score": np.arange(5.0)})
    assert limit_rows(rows, 5, None) == (rows, 0)  # type: ignore[arg-type]


def test_two_limits_draw_two_subsets() -> None:
    rows, randomness = ArrayRows(columns={"score": np.arange(1000.0)}), SimulatedRandomness(3)
    first, second = (values(limit_rows(rows, 500, randomness)[0]) for _ in range(2))
    assert first != second


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    codes=st.lists(st.integers(0, 4), min_size=1, max_size=80),
    most=st.integers(1, 12),
    limit=st.sampled_from([0, 2**30]),
    at_once=st.sampled_from([1, 8, 2**22]),
)
def test_pooled_rows_of_each_client(codes: list[int], most: int, limit: int, at_once: int) -> None:
    clients = np.array(codes)
    data = {"c": clients, "p": np.arange(len(codes)) / 100}
    federation = load(data, client="c", columns={"score": "p"}, memory_limit=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_KEYS_AT_ONCE", at_once)
        limited, dropped = limit_pooled(federation.pooled(), most, SimulatedRandomness(0))
    left = values(limited)
    assert left == sorted(left)
    assert values(limited) == left
    owners = clients[np.round(np.array(left) * 100).astype(int)]
    for code in set(codes):
        assert (owners == code).sum() == min(most, codes.count(code))
    assert dropped == len(codes) - len(left)
    names = [federation.clients[int(code)] for code in values(limited.by_client, "client")]
    assert names == [str(code) for code in owners]


def test_one_row_clients_are_never_limited() -> None:
    pooled = load({"p": [0.1, 0.2]}, columns={"score": "p"}).pooled()
    assert limit_pooled(pooled, 1, SimulatedRandomness(0)) == (pooled, 0)


def test_positions_among_the_rows_of_a_client() -> None:
    codes = np.array([2, 0, 2, 2, 1, 0, 2, 1])
    batches = ({"client": codes[i : i + 3]} for i in range(0, 8, 3))
    positions = [p for _, part in numbered(batches, 3) for p in part.tolist()]
    assert positions == [0, 0, 1, 2, 0, 1, 3, 1]


class Scripted:
    """Hands out the given words and counts how many were asked for."""

    simulated = True

    def __init__(self, *words: int) -> None:
        self.left = iter(words)

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.array(list(itertools.islice(self.left, count)), dtype=np.uint64)


def test_words_of_the_incomplete_multiple_are_drawn_again() -> None:
    assert below(3, 2, Scripted(2**64 - 1, 2**64 - 2, 4)).tolist() == [2, 1]
    assert below(2**63, 1, Scripted(2**64 - 1)).tolist() == [2**63 - 1]


def test_a_subset_is_the_first_different_values() -> None:
    assert choose(10, 3, Scripted(7, 2, 7, 2, 12, 5)).tolist() == [2, 5, 7]


def test_equal_keys_are_drawn_again() -> None:
    words = Scripted(1, 1, 5, 2, 1, 3)
    assert selection._smallest_keys(np.array([3]), 1, words).tolist() == [False, True, False]


@pytest.mark.parametrize("most", [0, -1])
def test_a_bound_below_one(most: int) -> None:
    with pytest.raises(UsageError, match="expected at least 1"):
        limit_rows(ArrayRows(columns={"score": np.arange(3.0)}), most, SimulatedRandomness(0))


def test_derived_rows_keep_quiet_about_their_values() -> None:
    rows = ArrayRows(columns={"score": np.array([0.123])})
    assert "0.123" not in repr(DerivedRows(rows=rows, change=iter))
