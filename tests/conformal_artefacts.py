"""Conformal predictors for tests, made by hand, and rows for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

import fedassay
from fedassay.artefacts.thresholds import StoredGuarantee, Threshold

COLUMNS = {
    **{
        "target": "y",
        "prediction": "p",
        "scale": "s",
        "lower": "a",
        "upper": "b",
        "class": "k",
        "logits": "z",
    },
    **{"group": "sex", "client": "site"},
}


def threshold(value: float, *, kind: str = "marginal", reason: str | None = None) -> Threshold:
    promise = StoredGuarantee(
        kind=kind, level=0.9, coverage=0.91, text="A new row is covered.", assumption="alike"
    )
    return Threshold(value=value, guarantee=promise, reason=reason)


def predictor(
    score: str, values: float | Mapping[str, float] = 0.5, *, by: str = "", **fields: Any
) -> fedassay.ConformalPredictor:
    parts = values if isinstance(values, Mapping) else {"all": values}
    method = "local" if by == "client" else "qq"
    return fedassay.ConformalPredictor(
        **{
            "method": method,
            "level": 0.9,
            "score": score,
            "by": by,
            "thresholds": {name: threshold(value) for name, value in parts.items()},
            "columns": COLUMNS,
            **fields,
        }
    )


def regression_rows(rows: int = 60, seed: int = 0, *, digits: int | None = None) -> dict[str, Any]:
    """Columns as in `COLUMNS`; with a number of digits they are rounded, so that scores are tied."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=rows)
    columns = {"p": p, "s": rng.uniform(0.5, 2, rows), "a": p - rng.uniform(0, 1, rows)}
    columns |= {"b": p + rng.uniform(0, 1, rows), "y": p + rng.normal(size=rows)}
    if digits is not None:
        columns = {name: np.round(values, digits) for name, values in columns.items()}
    return {
        **columns,
        "sex": np.array(["F", "M", "X"])[np.arange(rows) % 3],
        "site": np.array(["north", "south"])[np.arange(rows) % 2],
    }


def class_rows(rows: int = 60, classes: int = 4, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    z = rng.normal(size=(rows, classes)) + 1.5 * (np.arange(classes) == truth[:, None])
    others = {name: regression_rows(rows)[name] for name in ("sex", "site")}
    return {"z": z, "k": truth, **others}


def binary_rows(rows: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Scores that are too sure of themselves, and labels of which a third are 1."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=rows) - 0.8
    return {"p": expit(2 * z), "y": (rng.random(rows) < expit(z)) * 1}


def rows_by_site(data: dict[str, Any], sites: int = 6) -> dict[str, Any]:
    return {**data, "site": np.arange(len(next(iter(data.values())))) % sites}


def split(scores: np.ndarray, level: float = 0.9) -> float:
    """Split conformal prediction, as numpy has it; half a rank keeps away from rounding."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return float(np.quantile(scores, (rank - 0.5) / len(scores), method="inverted_cdf"))
