"""Calibrators of logits for tests, made by hand, and rows for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import fedassay
from fedassay.summaries.multiclass.fedcal import fedcal_size
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.multiclass.scaling_maps import LogitMap

KINDS = sorted(LOGIT_MAPS)

SIZES: Mapping[str, Callable[[int], int]] = {
    "temperature": lambda c: 1,
    "vector": lambda c: 2 * c,
    "matrix": lambda c: c * (c + 1),
    "order-preserving": lambda c: c,
    "binned": lambda c: 9 * c,
    "binned-changed": lambda c: 9 * c,
    "fedcal": fedcal_size,
    "isotonic": lambda c: 9 * c + 2,
}
"""How many numbers a map of so many classes has, 8 bins each for those with bins."""

COLUMNS = {"logits": "z", "label": "k", "client": "site"}


def some_map(kind: str = "temperature", classes: int = 4, seed: int = 0) -> LogitMap:
    rng = np.random.default_rng(seed)
    theta = rng.uniform(0.1, 0.9, SIZES[kind](classes))
    if kind == "isotonic":  # values that rise, weights, an inverse temperature and a reach
        rising = np.sort(theta[: 8 * classes].reshape(classes, 8), axis=1)
        theta = np.concatenate([rising.reshape(-1), theta[8 * classes : -1], [16.0]])
    return LOGIT_MAPS[kind].of(0.05 * theta if kind == "fedcal" else theta, classes)


def calibrator(kind: str = "temperature", classes: int = 4, **fields: Any) -> fedassay.ClassCalibrator:
    return fedassay.ClassCalibrator(
        **{"map": some_map(kind, classes), "method": kind, "solver": "exact", "columns": COLUMNS, **fields}
    )
