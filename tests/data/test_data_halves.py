"""The two halves of the fit rows: disjoint, complete, and the same in every version."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.data.selection import Coins, name_blocks, select_part
from fedassay.data.tables import ArrayRows
from fedassay.protocol.vocabulary import ATOMS, Part, Unit

KEY = bytes(range(32))


def within(part: Part, *, rows: int = 1000, held_out: float = 0.3) -> NDArray[np.bool_]:
    coins = Coins(key=KEY, unit=Unit.EXAMPLE, holdout=held_out)
    return coins.within(part, coins.start(name_blocks(["a"])), np.arange(rows))


@pytest.mark.parametrize("held_out", [0.05, 0.3, 0.9])
def test_every_row_is_in_one_atom(held_out: float) -> None:
    atoms = np.array([within(part, held_out=held_out) for part in ATOMS])
    assert (atoms.sum(axis=0) == 1).all()
    assert (atoms[:2].any(axis=0) == within(Part.FIT, held_out=held_out)).all()
    assert within(Part.ALL).all()


def test_a_client_is_in_one_atom_where_clients_are_protected() -> None:
    rows = ArrayRows(columns={"score": np.arange(5) / 5})
    for client in map(str, range(50)):
        parts = [select_part(rows, part, key=KEY, unit=Unit.CLIENT, client=client) for part in ATOMS]
        sizes = [sum(len(batch["score"]) for batch in part.batches()) for part in parts]
        assert sorted(sizes) == [0, 0, 5]


def test_stored_halves() -> None:
    """A later version that halves differently would let a threshold see rows that its calibrator was fitted to."""
    first, second = (np.flatnonzero(within(part, rows=30)).tolist() for part in ATOMS[:2])
    assert first == [4, 6, 7, 8, 11, 13, 18, 20, 22, 25, 26, 27, 28]
    assert second == [0, 1, 2, 5, 9, 14, 16, 21, 23, 24]


def test_a_row_keeps_its_half_whatever_is_held_out() -> None:
    few, many = (within(Part.SECOND_FIT, held_out=share) for share in (0.1, 0.6))
    fit = within(Part.FIT, held_out=0.6)
    assert (few[fit] == many[fit]).all()
