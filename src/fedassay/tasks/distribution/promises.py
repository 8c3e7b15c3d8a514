"""Guarantees of a distribution function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedassay.tasks.promise import Promise, uniform, within


def _band_holds(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    truth = np.array(results["points"])
    return bool(((np.array(results["lower"]) <= truth) & (truth <= np.array(results["upper"]))).all())


_CURVE = {"lower": 0.0, "upper": 1.0, "points": 64, "quantiles": [0.5]}

PROMISES = (
    Promise(
        name="ecdf-quantile",
        statement="95 % interval of the median, epsilon 1",
        level=0.95,
        parameters=_CURVE,
        columns={"value": "x"},
        draw=uniform,
        holds=lambda results, rng: within(results["quantiles"][0]["interval"], 0.5),
    ),
    Promise(
        name="ecdf-band",
        statement="95 % band of a distribution function, everywhere at once, epsilon 1",
        level=0.95,
        parameters=_CURVE,
        columns={"value": "x"},
        draw=uniform,
        holds=_band_holds,
    ),
)
