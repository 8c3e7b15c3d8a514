"""Models with several classes: what a simulation looks up before it asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.terms import Roles, Terms
from fedassay.data.federation import Federation, load
from fedassay.data.findings import raise_first
from fedassay.data.logits import looks_like_probabilities, probabilities_error
from fedassay.data.schema import CLASS, LOGITS
from fedassay.protocol import TrustModel
from fedassay.result import Result
from fedassay.run import rehearse
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass

MOST_LISTED = 20


def evaluate_classes(task: EvaluateMulticlass, terms: Terms, data: Any, columns: Roles) -> Result:
    """The result of an evaluation from logits; how many classes there are is taken from the data.

    In a release it is declared: the width of a model's output is public.
    """
    # What can be refused without the data is refused before they are opened.
    rehearse(replace(task, classes=2), terms.setting)
    found = look_up(data, columns)
    result = terms.simulate("evaluate", replace(task, classes=found.classes), found.federation, columns)
    return replace(
        result, warnings=(*result.warnings, *found.warnings(terms.trust), *result.results["notes"])
    )


def calibrate_classes(task: CalibrateMulticlass, terms: Terms, data: Any, columns: Roles) -> Result:
    """The result of a calibration from logits; how many classes there are is taken from the data."""
    rehearse(replace(task, classes=2), terms.setting)
    found = look_up(data, columns)
    task = replace(task, classes=found.classes, holdout=terms.simulation.holdout)
    result = terms.simulate("calibrate", task, found.federation, columns)
    return replace(
        result, warnings=(*result.warnings, *found.warnings(terms.trust), *result.results["notes"])
    )


@dataclass(frozen=True, kw_only=True)
class ClassesFound:
    """The classes of all rows of a simulation: how many rows each of them has; the rows are loaded for it."""

    federation: Federation
    rows: NDArray[np.int64] = field(repr=False)

    @property
    def classes(self) -> int:
        """How many classes there are, with or without rows."""
        return len(self.rows)

    def warnings(self, trust: TrustModel) -> tuple[str, ...]:
        """What to say about classes that nobody has.

        Nothing under trust models that add noise: that no row is of a class is an exact count, and their results show
        only what a release would show. The noisy counts of each class are in the results.
        """
        without = np.flatnonzero(self.rows == 0)
        if trust.private or not len(without):
            return ()
        named = ", ".join(str(one) for one in without[:MOST_LISTED]) + ", .." * (len(without) > MOST_LISTED)
        which = (
            f"class {named}" if len(without) == 1 else f"{len(without)} of {self.classes} classes ({named})"
        )
        return (
            f"No row is of {which}: what is said about {'it' if len(without) == 1 else 'them'} rests on no rows.",
        )


def look_up(data: Any, columns: Roles) -> ClassesFound:
    """How many logits rows have, if they are logits, and how many rows are of each class.

    Raises
    ------
    DataError
        If a value is not what its role asks for, there are no rows, or the logits look like probabilities.

    Examples
    --------
    >>> data = {"y": [0, 2], "z": [[1.0, -1.0, 0.5], [0.0, 2.0, 0.5]]}
    >>> look_up(data, Roles(names={"class": "y", "logits": "z"})).rows.tolist()
    [1, 0, 1]
    """
    federation = load(data, client=columns.client, columns=columns.names)
    rows, probabilities = np.zeros(0, dtype=np.int64), True
    for batch in federation.pooled().batches():
        classes = batch[LOGITS].shape[1]
        rows = np.bincount(batch[CLASS], minlength=classes) + (rows if len(rows) else 0)
        probabilities = probabilities and looks_like_probabilities(batch[LOGITS])
    if probabilities:
        raise_first([probabilities_error(federation.label, columns.names[LOGITS])])
    return ClassesFound(federation=federation, rows=rows)
