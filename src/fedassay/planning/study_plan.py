"""The plan of a study: what to expect of each task, of all of them, and under each trust model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Foreseen
from fedassay.planning.study_inverse import StudyInverse
from fedassay.planning.trust_table import TrustRow
from fedassay.planning.verdict import Verdict, in_words


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """What to expect of one task.

    Parameters
    ----------
    share : that is planned with; `recommended` the one that the planner would take.
    rows : that it fits on, or asks about.
    metrics : by name; `decisive` are those that its share was chosen for, and that its verdict is about.
    refused : why a run would not even begin it.
    """

    name: str
    kind: str
    share: float
    recommended: float
    rows: float
    metrics: Mapping[str, Foreseen]
    decisive: tuple[str, ...]
    refused: str | None = None

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Of what decides."""
        found = {name: self.metrics[name].verdict for name in self.decisive if name in self.metrics}
        return {name: verdict for name, verdict in found.items() if verdict is not None}

    @property
    def verdict(self) -> Verdict:
        """The worst of what decides; not decidable if nothing is known about it."""
        if self.refused is not None:
            return Verdict.NOT_ENOUGH
        return worst_of(list(self.verdicts.values()))

    @property
    def ratio(self) -> float:
        """The worst of what decides, as a part of its target."""
        return max((self.metrics[name].ratio for name in self.verdicts), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "task": self.kind,
            "share": self.share,
            "recommended_share": self.recommended,
            "rows": self.rows,
            "metrics": {name: one.to_dict() for name, one in self.metrics.items()},
            "decisive": list(self.decisive),
            "refused": self.refused,
            "verdict": str(self.verdict),
        }


def worst_of(verdicts: list[Verdict]) -> Verdict:
    """Not enough if one is; else not decidable if one is, or if there is none."""
    for worse in (Verdict.NOT_ENOUGH, Verdict.UNDECIDABLE):
        if worse in verdicts:
            return worse
    return Verdict.ENOUGH if verdicts else Verdict.UNDECIDABLE


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What to expect of a study.

    Parameters
    ----------
    tasks : by name, in the order of the study.
    given : whether shares were given; else those that are recommended are planned with.
    inverse : what would be enough, for each target that was given (without any, for the first that decides).
    trust_models : the same study under each of them.
    """

    study: PlannedStudy
    tasks: Mapping[str, TaskPlan]
    given: bool
    inverse: tuple[StudyInverse, ...]
    trust_models: tuple[TrustRow, ...]
    warnings: tuple[str, ...]

    @property
    def shares(self) -> dict[str, float]:
        """That are recommended."""
        return {name: one.recommended for name, one in self.tasks.items()}

    @property
    def outcome(self) -> Verdict:
        """Of the whole study: that of its worst task."""
        return worst_of([one.verdict for one in self.tasks.values()])

    @property
    def verdict(self) -> str:
        """One line."""
        return in_words(
            {
                f"{name}.{metric}": verdict
                for name, one in self.tasks.items()
                for metric, verdict in one.verdicts.items()
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        return {
            "plan": "study",
            "assumptions": self.study.to_dict(),
            "outcome": str(self.outcome),
            "verdict": self.verdict,
            "shares_given": self.given,
            "tasks": {name: one.to_dict() for name, one in self.tasks.items()},
            "inverse": [one.to_dict() for one in self.inverse],
            "trust_models": [one.to_dict() for one in self.trust_models],
            "warnings": list(self.warnings),
        }
