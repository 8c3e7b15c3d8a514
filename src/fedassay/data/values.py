"""How many values are outside a range: for whoever simulates, and may see all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedassay.data.federation import load


def count_outside(data: Any, column: str, *, lower: float, upper: float) -> tuple[int, int]:
    """How many values are below the lower or above the upper end, and how many there are. Reads the column once.

    Examples
    --------
    >>> count_outside({"age": [-1, 30, 200, 80]}, "age", lower=0, upper=120)
    (2, 4)
    """
    outside = rows = 0
    for batch in load(data, columns={"value": column}).pooled().batches():
        values = batch["value"]
        outside += int(np.count_nonzero((values < lower) | (values > upper)))
        rows += len(values)
    return outside, rows
