"""The display of what a study has spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import altair as alt

from fedassay.errors import UsageError
from fedassay.reports import budget_plots
from fedassay.reports.displays.base import Display
from fedassay.reports.displays.source import Source, Wanted, document_of
from fedassay.reports.study import is_study


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetDisplay(Display):
    """What each task of a study has spent, what they have spent together, and the budget.

    Attributes: `epsilon` and `delta` of the budget, `spent` and `remaining` (epsilons at that delta), `by_task`.
    """

    wanted: ClassVar[Wanted] = Wanted(what="budget", entry="budget", tasks=("study",))

    @classmethod
    def from_result(cls, result: Source, task: str | None = None) -> Self:
        """Of a study under noise; the budget is that of all its tasks, so there is no `task` to choose."""
        document = document_of(result)
        if task is not None:
            raise UsageError(f"task: got {task!r}, but a budget is that of a whole study; leave `task` out.")
        if not is_study(document):
            raise UsageError(
                f"budget: got a result of {document['task']}, expected that of a study (`fedassay run`); a single task "
                "spends its whole budget, see the 'privacy' of the result."
            )
        if not budget_plots.has_noise(document["results"]):
            raise UsageError("budget: no noise was added in this study, so there is none; see its 'privacy'.")
        return cls(results=document["results"])

    def _main(self) -> Mapping[str, Any]:
        return {"spent": self.spent, "epsilon": self.epsilon, "delta": self.delta}

    @property
    def epsilon(self) -> float:
        """Of the whole budget."""
        return float(self.results["budget"]["epsilon"])

    @property
    def delta(self) -> float:
        """Of the whole budget."""
        return float(self.results["budget"]["delta"])

    @property
    def spent(self) -> float:
        """By all tasks together."""
        return float(self.results["budget"]["spent"])

    @property
    def remaining(self) -> float:
        """What is left of epsilon."""
        return float(self.results["budget"]["remaining"])

    @property
    def by_task(self) -> Mapping[str, float]:
        """By each task alone; under a delta these add up to more than was spent."""
        return budget_plots.spent_by_task(self.results)

    def draw(self) -> alt.LayerChart:
        """A bar for each task and one for all."""
        return budget_plots.budget(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return budget_plots.budget_alternative(self.results)
