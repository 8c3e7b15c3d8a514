"""Whether clients move a total of rows with logits no further than a summary states, in whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedassay.data.tables import ArrayRows
from fedassay.protocol.vocabulary import Neighbours, Protection, Sensitivity, Summary, Unit
from multiclass_rows import Columns


def measured(summary: Summary[Any], columns: Columns) -> np.ndarray:
    return summary.measure(ArrayRows(columns=columns), {})[0]


def repeated(logits: np.ndarray, *parts: tuple[int, int, int]) -> Columns:
    """So many rows of these logits and this class."""
    which, y, times = np.array(parts, dtype=np.int64).reshape(-1, 3).T
    return {"logits": np.repeat(logits[which], times, axis=0), "class": np.repeat(y, times)}


def covers(stated: Sensitivity, moved: np.ndarray) -> bool:
    """Whether the stated norms are at least those of this move; squares of whole numbers, exactly."""
    squares, sizes = sum(int(one) ** 2 for one in moved), sum(abs(int(one)) for one in moved)
    # The float that states √2 or √(2c) may be an ulp below it: the accountant rounds squares up to whole numbers.
    return squares <= math.ceil(stated.l2**2 * (1 + 1e-15)) and sizes <= math.ceil(stated.l1 * (1 + 1e-15))


def keeps_to_it(summary: Summary[Any], one: Columns, other: Columns, row: Columns) -> bool:
    """Whether no unit moves the total by more than is stated: two whole clients, and single rows of a client."""
    a, b = measured(summary, one), measured(summary, other)
    more, else_ = (
        measured(summary, {name: np.concatenate([one[name], added[name]]) for name in one})
        for added in (row, _another(row))
    )
    added, replaced = Neighbours
    moves = [
        (_client_unit(added, one), a),
        (_client_unit(added, other), b),
        (_client_unit(replaced, one, other), a - b),
        (Protection(), more - a),
        (Protection(rows_per_client=10**6), more - else_),
        (Protection(rows_per_client=10**6, neighbours=replaced), more - else_),
        (Protection(neighbours=replaced), more - else_),
    ]
    return all(covers(summary.sensitivity(protection), moved) for protection, moved in moves)


def _client_unit(neighbours: Neighbours, *columns: Columns) -> Protection:
    """With the smallest bound on rows that these clients keep to."""
    rows = max(1, *(len(one["class"]) for one in columns))
    return Protection(unit=Unit.CLIENT, neighbours=neighbours, rows_per_client=rows)


def _another(row: Columns) -> Columns:
    classes = row["logits"].shape[1]
    return {"logits": np.roll(row["logits"], 1, axis=1), "class": (row["class"] + 1) % classes}
