"""What all contracts of this repository ask about: one set of tiny rows, and a binary classifier's scores."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import faces
from kind_contract import SITES, Case, KindContract

from golden import cells

BINARY = {"score": "risk", "label": "y"}
LOGITS = {"class": "class", "logits": "z"}


@cache
def rows() -> faces.Rows:
    """300 rows of 4 sites."""
    return {name: values.tolist() for name, values in cells.rows(300, SITES).items()}


def few() -> faces.Rows:
    """A dozen of them, of one class."""
    return {name: [0] * 12 if name in ("y", "class") else values[:12] for name, values in rows().items()}


class Ours(KindContract):
    """All kinds of this repository are asked about the same rows."""

    def rows(self) -> faces.Rows:
        return rows()


class Scores(Ours):
    """The evaluation of a binary classifier, which every trust model can answer."""

    kind, command = "evaluate", "evaluate"
    columns = BINARY
    parameters: ClassVar = {"height": 4}
    expected: ClassVar = {**Ours.expected, "prevalence": 0.4, "auc": 0.8}
    planned = ("--height", "4")
    undefined = Case(trust="secure-sum", rows=few())


class Logits(Ours):
    """The evaluation of a classifier with three classes."""

    kind, command = "evaluate-classes", "evaluate"
    columns = LOGITS
    parameters: ClassVar = {"height": 4}
    expected: ClassVar = {**Ours.expected, "classes": 3}
    planned = ("--height", "4")
    undefined = Case(trust="server-dp", epsilon=0.05)
