"""Evaluation of a model with several classes: what a simulation looks up before it asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedassay.api.terms import Terms
from fedassay.data.federation import load
from fedassay.data.groups import reread
from fedassay.data.logits import looks_like_probabilities
from fedassay.data.schema import Columns
from fedassay.errors import DataError
from fedassay.result import Result
from fedassay.run import rehearse
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass


def evaluate_classes(task: EvaluateMulticlass, terms: Terms, data: Any, columns: Columns) -> Result:
    """The result of an evaluation from logits; how many classes there are is taken from the data.

    In a release it is declared: the width of a model's output is public.
    """
    # What can be refused without the data is refused before they are opened.
    rehearse(replace(task, classes=2), terms.setting)
    data = reread(data)
    classes = number_of_classes(data, columns)
    result = terms.simulate("evaluate", replace(task, classes=classes), data, columns)
    return replace(result, warnings=(*result.warnings, *result.results["notes"]))


def number_of_classes(data: Any, columns: Columns) -> int:
    """How many logits a row has, if they are logits."""
    federation = load(data, client=columns.client, columns=columns.names)
    classes, probabilities = None, True
    for batch in federation.pooled().batches():
        logits = np.asarray(batch["logits"])
        if len(logits):
            classes = int(logits.shape[1])
            probabilities = probabilities and looks_like_probabilities(logits)
        if classes is not None and not probabilities:
            return classes
    if classes is None:
        raise DataError("logits: got no rows, expected at least one.")
    raise DataError(
        f"column {columns.names['logits']!r} (logits): got numbers from 0 that sum to one in every row, so these look "
        "like probabilities; give logits, e.g. their logarithms."
    )
