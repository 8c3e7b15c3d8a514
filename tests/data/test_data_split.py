"""The fit and the held-out part: disjoint, complete, the same in every run and in both modes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.data.federation import Federation, load
from fedassay.data.selection import Coins, name_blocks, number_blocks, select_part, select_pooled_part
from fedassay.data.tables import ArrayRows, StreamedRows
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Part, Rows, Unit

KEY = bytes(range(32))


def rows_of(count: int) -> ArrayRows:
    return ArrayRows(
        columns={"score": np.arange(count) / count, "label": (np.arange(count) % 2).astype(np.int8)}
    )


def scores(rows: Rows) -> list[float]:
    return [value for batch in rows.batches() for value in batch["score"].tolist()]


def positions(
    part: Part, *, key: bytes = KEY, client: str = "a", unit: Unit = Unit.EXAMPLE, count: int = 1000
) -> set[int]:
    rows = select_part(rows_of(count), part, key=key, unit=unit, client=client)
    assert scores(rows) == scores(rows)
    return {round(score * count) for score in scores(rows)}


@pytest.mark.parametrize("unit", Unit)
def test_the_parts_are_disjoint_and_complete(unit: Unit) -> None:
    fit, held_out = positions(Part.FIT, unit=unit), positions(Part.HELD_OUT, unit=unit)
    assert fit.isdisjoint(held_out)
    assert fit | held_out == positions(Part.ALL, unit=unit) == set(range(1000))


def test_a_stored_split() -> None:
    """A later version that splits differently would put rows into both parts of earlier releases."""
    assert sorted(positions(Part.HELD_OUT, client="hospital-01", count=40)) == [
        *(2, 13, 14, 16, 18, 19, 20, 21, 26, 28, 34, 38, 39)
    ]
    long = "a name of more than fifteen bytes: é"
    assert sorted(positions(Part.HELD_OUT, client=long, count=40)) == [3, 4, 6, 28, 31, 33, 36, 38, 39]
    clients = [f"c{i}" for i in range(20)]
    held = [c for c in clients if positions(Part.HELD_OUT, client=c, unit=Unit.CLIENT, count=1)]
    assert held == ["c1", "c3", "c4", "c12", "c13", "c14"]


def test_another_key_client_or_unit_is_another_split() -> None:
    splits = [
        positions(Part.HELD_OUT),
        positions(Part.HELD_OUT, key=KEY[::-1]),
        positions(Part.HELD_OUT, client="b"),
        positions(Part.HELD_OUT, client="a" * 99),
        positions(Part.HELD_OUT, client="a" * 98),
    ]
    for i, one in enumerate(splits):
        for other in splits[:i]:
            # independent coins agree on 58 % of 1000 rows, with a standard deviation of 1.6 %
            assert 300 < len(one ^ other) < 540


def test_appended_rows_leave_the_others_where_they_are() -> None:
    assert positions(Part.FIT, count=1000) == {p for p in positions(Part.FIT, count=3000) if p < 1000}


def test_batches_do_not_matter() -> None:
    whole = rows_of(1000)
    pieces = StreamedRows(
        read=lambda: (
            {name: column[i : i + 7] for name, column in whole.columns.items()} for i in range(0, 1000, 7)
        )
    )
    parts = [
        scores(select_part(r, Part.FIT, key=KEY, unit=Unit.EXAMPLE, client="a")) for r in (whole, pieces)
    ]
    assert parts[0] == parts[1]


def test_a_client_is_in_one_part_only() -> None:
    sizes = {
        client: len(positions(Part.FIT, client=client, unit=Unit.CLIENT, count=10))
        for client in map(str, range(200))
    }
    assert set(sizes.values()) == {0, 10}


def federation(clients: np.ndarray | None, limit: int) -> Federation:
    count = 400 if clients is None else len(clients)
    data = {"p": np.arange(count) / 1000, "c": np.zeros(count) if clients is None else clients}
    return load(data, client=None if clients is None else "c", columns={"score": "p"}, memory_limit=limit)


@pytest.mark.parametrize("limit", [0, 2**30])
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("kind", ["rows", "short names", "long names"])
def test_pooled_rows_are_split_as_each_client_splits_them(
    kind: str, part: Part, unit: Unit, limit: int
) -> None:
    codes = np.random.default_rng(1).integers(0, 30, 400)
    clients = {
        "rows": None,
        "short names": codes,
        "long names": np.array([f"a long name, {c:09}" for c in codes]),
    }
    whole = federation(clients[kind], limit)
    apart = [
        score
        for name in whole.clients
        for score in scores(select_part(whole.rows_of(name), part, key=KEY, unit=unit, client=name))
    ]
    pooled = select_pooled_part(whole, part, key=KEY, unit=unit)
    assert sorted(apart) == scores(pooled)
    assert pooled.clients is whole.clients


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(names=st.lists(st.text(max_size=20), unique=True, min_size=2, max_size=20))
def test_different_names_have_different_blocks(names: list[str]) -> None:
    blocks = name_blocks([name.encode("utf-8", "replace").decode() for name in names])
    distinct = len({name.encode("utf-8", "replace") for name in names})
    assert len(np.unique(blocks, axis=0)) == distinct


def test_a_name_with_zero_bytes_is_another_name() -> None:
    assert len(np.unique(name_blocks(["", "\0", "\0\0", "a", "a\0"]), axis=0)) == 5


@given(numbers=st.lists(st.integers(0, 10**15 - 1), max_size=20))
@settings(max_examples=50, deadline=None, database=None, derandomize=True)
def test_numbers_have_the_blocks_of_their_names(numbers: list[int]) -> None:
    expected = name_blocks([str(number) for number in numbers])
    assert (number_blocks(np.array(numbers, dtype=np.int64)) == expected).all()


@pytest.mark.parametrize("held_out", [0.0, 1.0, -0.1, float("nan")])
def test_the_share_must_leave_something_on_both_sides(held_out: float) -> None:
    with pytest.raises(UsageError, match="holdout: got"):
        select_part(rows_of(3), Part.ALL, key=KEY, unit=Unit.EXAMPLE, client="a", holdout=held_out)


@pytest.mark.parametrize("key", [b"", b"short", bytes(65)])
def test_the_key_must_be_long_enough_to_be_secret(key: bytes) -> None:
    with pytest.raises(UsageError, match="split key: got"):
        select_part(rows_of(3), Part.FIT, key=key, unit=Unit.EXAMPLE, client="a")


def test_the_key_is_never_printed() -> None:
    coins = Coins(key=b"secret-secret-secret", unit=Unit.EXAMPLE, holdout=0.3)
    assert "secret" not in repr(coins)
    assert "secret" not in str(vars(coins))
