"""The display of what a study has spent of its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fedassay.documents import budget
from fedassay.documents.display import Display, DisplayedEntry, ResultSource, document_of, number
from fedassay.documents.report import is_study
from fedassay.errors import UsageError


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetDisplay(Display):
    """What each task of a study has spent, what they have spent together, and the budget.

    Attributes: `epsilon` and `delta` of the budget, `spent` and `remaining` (epsilons at that delta), `by_task`.
    """

    wanted = DisplayedEntry("budget", "budget", ("study",))
    make = budget.curve
    main = ("spent", "epsilon", "delta")

    epsilon = number("budget", "epsilon", "Of the whole budget.")
    delta = number("budget", "delta", "Of the whole budget.")
    spent = number("budget", "spent", "By all tasks together.")
    remaining = number("budget", "remaining", "What is left of epsilon.")

    @classmethod
    def from_result(cls, result: ResultSource, task: str | None = None) -> Self:
        """Of a study under noise; the budget is that of all its tasks, so there is no `task` to choose."""
        document = document_of(result)
        if task is not None:
            raise UsageError(f"task: got {task!r}, but a budget is that of a whole study; leave `task` out.")
        if not is_study(document):
            raise UsageError(
                f"budget: got a result of {document['task']}, expected that of a study (`fedassay run`); a single task "
                "spends its whole budget, see the 'privacy' of the result."
            )
        if not budget.has_noise(document["results"]):
            raise UsageError("budget: no noise was added in this study, so there is none; see its 'privacy'.")
        return cls(results=document["results"])

    @property
    def by_task(self) -> Mapping[str, float]:
        """By each task alone; under a delta these add up to more than was spent."""
        return budget.spent_by_task(self.results)
