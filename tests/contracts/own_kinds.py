"""What all contracts of this repository ask about: one set of tiny rows, and a binary classifier's scores."""

from __future__ import annotations

from typing import ClassVar

import faces
import tiny_rows
from kind_contract import Case, KindContract

BINARY = {"score": "risk", "label": "y"}
LOGITS = {"class": "true", "logits": "z"}


class Ours(KindContract):
    """All kinds of this repository are asked about the same rows."""

    def rows(self) -> faces.Rows:
        return tiny_rows.rows()


class Scores(Ours):
    """The evaluation of a binary classifier, which every trust model can answer."""

    kind, command = "evaluate", "evaluate"
    columns = BINARY
    parameters: ClassVar = {"height": 4}
    expected: ClassVar = {**Ours.expected, "prevalence": 0.4, "auc": 0.8}
    planned = ("--height", "4")
    undefined = Case(trust="secure-sum", rows=tiny_rows.few())


class Logits(Ours):
    """The evaluation of a classifier with three classes."""

    kind, command = "evaluate-classes", "evaluate"
    columns = LOGITS
    parameters: ClassVar = {"height": 4}
    expected: ClassVar = {**Ours.expected, "classes": 3}
    planned = ("--height", "4")
    undefined = Case(trust="server-dp", epsilon=0.05)
