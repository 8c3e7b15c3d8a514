"""What a check says about logits and the classes that they belong to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import Finding, warning
from fedassay.data.logits import looks_like_probabilities, probabilities_error
from fedassay.data.profile import Distinct
from fedassay.data.scan import Chunk
from fedassay.data.schema import CLASS, LOGITS, Columns

MOST_CLASSES_LISTED = 5


class ClassesLook:
    """The classes and the logits of all rows, in one pass."""

    def __init__(self, label: str, columns: Columns) -> None:
        self._label, self._names = label, columns.names
        self._rows_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._distinct = Distinct()
        self._labels = self._both = self._right = self._with_logits = 0
        self._probabilities = True

    def add(self, chunk: Chunk) -> None:
        """Look at some more rows."""
        labels, logits = chunk.good(CLASS), chunk.good(LOGITS)
        if labels is not None:
            self._labels += len(labels)
            self._distinct.add(labels.astype(np.float64))
        if logits is None or not len(logits):
            return
        self._with_logits += len(logits)
        self._probabilities = self._probabilities and looks_like_probabilities(logits)
        if labels is None:
            return
        classes = logits.shape[1]
        if len(self._rows_of) != classes:
            self._rows_of = np.zeros(classes, dtype=np.int64)
        self._rows_of = self._rows_of + np.bincount(labels, minlength=classes)
        usable = ~(chunk.is_bad(CLASS) | chunk.is_bad(LOGITS))
        best = chunk.columns[LOGITS].argmax(axis=1)
        self._both += int(np.count_nonzero(usable))
        self._right += int(np.count_nonzero(usable & (best == chunk.columns[CLASS])))

    def profile(self) -> dict[str, int | float]:
        """How many classes, how many of them without rows, and how often the largest logit is right."""
        found: dict[str, int | float] = {}
        if len(self._rows_of):
            empty = int(np.count_nonzero(self._rows_of == 0))
            found |= {"classes": len(self._rows_of), "classes_without_rows": empty}
        elif self._labels:
            found["classes"] = self._distinct.count()
        if self._both:
            found["accuracy"] = self._right / self._both
        return found

    def findings(self) -> list[Finding]:
        """Probabilities in the place of logits, classes that nobody has."""
        found = []
        if self._with_logits and self._probabilities:
            found.append(probabilities_error(self._label, self._names[LOGITS]))
        empty = [str(one) for one in np.flatnonzero(self._rows_of == 0)]
        shown = ", ".join(empty[:MOST_CLASSES_LISTED]) + ", .." * (len(empty) > MOST_CLASSES_LISTED)
        if self._labels > 1 and self._distinct.count() == 1:
            fix = "check the column; there is nothing to tell apart"
            found.append(self._about_classes("one class in all rows", "several", fix))
        elif empty and self._labels:
            got = f"no row of {len(empty)} of {len(self._rows_of)} classes ({shown})"
            fix = "nothing to do if they are rare; what is said about them rests on no rows"
            found.append(self._about_classes(got, "rows of every class", fix))
        return found

    def _about_classes(self, got: str, expected: str, fix: str) -> Finding:
        what = f"{self._label}, column {self._names[CLASS]!r} (class)"
        return warning(what=what, got=got, expected=expected, fix=fix)
