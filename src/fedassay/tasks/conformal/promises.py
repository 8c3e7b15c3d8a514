"""What prediction sets promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedassay.tasks.promise import Promise, uniform


def _new_row_is_covered(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    return bool(results["infinite"] or rng.random() <= results["threshold"])


PROMISES = (
    Promise(
        name="conformal",
        statement="90 % prediction set of a new row, epsilon 1",
        level=0.9,
        parameters={"method": "pooled", "level": 0.9, "score_range": [0.0, 1.0]},
        columns={"conformity": "x"},
        draw=uniform,
        holds=_new_row_is_covered,
    ),
)
