"""Promises of an evaluation."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from fedassay.tasks.promise import ROWS, Data, Promise, clients, within


def _scored(rng: np.random.Generator) -> Data:
    """Draw scores of two normal classes, one standard deviation apart."""
    label = (rng.random(ROWS) < 0.5).astype(np.int8)
    return {"client": clients(), "p": ndtr(rng.normal(label, 1.0) - 0.5), "y": label}


_AUC = float(ndtr(1 / math.sqrt(2)))
"""AUC of two normal classes, one standard deviation apart."""

PROMISES = (
    Promise(
        name="evaluate",
        statement="95 % interval of the area under the ROC curve, epsilon 1",
        level=0.95,
        parameters={"height": 8},
        columns={"score": "p", "label": "y"},
        draw=_scored,
        holds=lambda results, rng: within(results["roc_auc"]["interval"], _AUC),
    ),
)
