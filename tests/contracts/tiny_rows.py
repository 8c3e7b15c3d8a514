"""The rows that all contracts of this repository ask about: 300 rows of 4 sites, and a dozen of one class."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

ROWS, SITES, CLASSES = 300, 4, 3
FEW = 12


@cache
def rows() -> dict[str, list[Any]]:
    """Scores of an overconfident model, and columns for other tasks."""
    rng = np.random.default_rng(22)
    odds = rng.normal(-0.5, 1.2, ROWS)
    label = rng.random(ROWS) < 1 / (1 + np.exp(-odds))
    age = rng.integers(20, 90, ROWS).astype(float)
    target = 1 + 0.5 * odds - 0.03 * age + rng.normal(0, 0.5, ROWS)
    true = rng.integers(0, CLASSES, ROWS)
    logits = rng.normal(0, 1.5, (ROWS, CLASSES)) + 2.0 * np.eye(CLASSES)[true]
    columns = {
        "risk": (1 / (1 + np.exp(-1.8 * odds))).round(4),
        "y": label.astype(int),
        "age": age,
        "odds": odds.round(3),
        "t": target.round(3),
        "p": (1 - 0.03 * age).round(3),
        "true": true,
        **{f"z{place}": logits[:, place].round(3) for place in range(CLASSES)},
    }
    return {
        "site": [f"site-{place % SITES}" for place in range(ROWS)],
        **{name: values.tolist() for name, values in columns.items()},
    }


@cache
def few() -> dict[str, list[Any]]:
    """A few of the rows, of one class."""
    return {name: [0] * FEW if name in ("y", "true") else values[:FEW] for name, values in rows().items()}
