"""How many rows a site has, and the fingerprint by which a change is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedassay.data.stores import take_stock
from fedassay.protocol.vocabulary import Batch

KEY = bytes(range(32))


class Batches:
    def __init__(self, *batches: dict[str, Any]) -> None:
        self._batches = [{name: np.asarray(column) for name, column in one.items()} for one in batches]

    def batches(self) -> Iterator[Batch]:
        return iter(self._batches)


ONE = Batches({"score": [0.1, 0.2, 0.3], "label": [0, 1, 1]})


def test_batches_and_types_do_not_count() -> None:
    stock = take_stock(ONE, key=KEY)
    assert stock.rows == 3
    for other in (
        Batches({"score": [0.1], "label": [0]}, {"label": [1, 1], "score": [0.2, 0.3]}),
        Batches({"score": [0.1, 0.2, 0.3], "label": np.array([0, 1, 1], dtype=np.int8)}),
    ):
        assert take_stock(other, key=KEY) == stock


@pytest.mark.parametrize(
    "other",
    [
        Batches(
            {"score": [0.3, 0.1, 0.2], "label": [1, 0, 1]}
        ),  # the same rows: which are held out has changed
        Batches({"score": [0.1, 0.2, 0.3], "label": [1, 0, 1]}),  # the same columns, other rows
        Batches({"score": [0.1, 0.2, np.nextafter(0.3, 1)], "label": [0, 1, 1]}),
        Batches({"score": [0.1, 0.2], "label": [0, 1]}),
        Batches({"score": [0.1, 0.2, 0.3, 0.3], "label": [0, 1, 1, 1]}),
        Batches({"value": [0.1, 0.2, 0.3], "label": [0, 1, 1]}),
        Batches(),
    ],
)
def test_whatever_else_changes_is_noticed(other: Batches) -> None:
    assert take_stock(other, key=KEY).fingerprint != take_stock(ONE, key=KEY).fingerprint


def test_lists_and_no_rows() -> None:
    logits = Batches({"logits": [[1.0, 2.0], [3.0, 4.0]]})
    swapped = Batches({"logits": [[2.0, 1.0], [3.0, 4.0]]})
    assert take_stock(logits, key=KEY).fingerprint != take_stock(swapped, key=KEY).fingerprint
    assert take_stock(Batches(), key=KEY) == take_stock(Batches(), key=KEY)
    assert take_stock(Batches(), key=KEY).rows == 0


def test_without_the_key_nobody_can_try_rows() -> None:
    assert take_stock(ONE, key=KEY).fingerprint != take_stock(ONE, key=bytes(32)).fingerprint
