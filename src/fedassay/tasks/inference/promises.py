"""What a regression promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedassay.tasks.promise import ROWS, Data, Promise, clients, within


def _rows(rng: np.random.Generator) -> Data:
    """A slope of 1, and errors that grow with the feature: the textbook's own standard errors are too small."""
    x = rng.normal(size=ROWS)
    return {"client": clients(), "x": x, "y": 0.5 + x + (0.5 + np.abs(x)) * rng.normal(size=ROWS)}


def _slope_holds(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    (slope,) = (entry for entry in results["coefficients"] if entry["name"] == "x")
    return within(slope["interval"], 1.0)


PROMISES = (
    Promise(
        name="infer",
        statement="95 % interval of a slope, errors that grow with the feature, no noise",
        level=0.95,
        parameters={"model": "linear", "features": ["x"], "method": "newton"},
        columns={"features": "x", "target": "y"},
        draw=_rows,
        holds=_slope_holds,
        noisy=False,
    ),
)
