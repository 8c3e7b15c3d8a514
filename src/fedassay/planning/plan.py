"""Plan of a study: predictions for each task, for all together, and under each trust model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedassay.planning.other_terms import Inverse, TrustRow, inverse_of, trust_table
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, Forecast, Prediction, Sufficiency

if TYPE_CHECKING:
    from fedassay.planning.planner import Planner


@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """Plan of a task.

    Parameters
    ----------
    share : the planned share; `recommended` is the recommended one.
    rows : the number of rows that it fits on, or queries.
    metrics : by name; `decisive` are those for which its share was chosen, and on which its verdict rests.
    refused : the reason why a run would not even begin it.
    """

    name: str
    kind: str
    share: float
    recommended: float
    rows: float
    metrics: Mapping[str, Prediction]
    decisive: tuple[str, ...]
    refused: str | None = None

    @property
    def judged(self) -> dict[str, Sufficiency]:
        """Verdicts on all metrics that have a target."""
        return {name: one.verdict for name, one in self.metrics.items() if one.verdict is not None}

    @property
    def verdicts(self) -> dict[str, Sufficiency]:
        """Verdicts on the decisive metrics."""
        judged = self.judged
        return {name: judged[name] for name in self.decisive if name in judged}

    @property
    def verdict(self) -> Sufficiency:
        """Worst verdict on the decisive metrics; not decidable if there is none."""
        if self.refused is not None:
            return Sufficiency.NOT_ENOUGH
        return worst_of(list(self.verdicts.values()))

    @property
    def ratio(self) -> float:
        """Largest ratio of an error to its target, over the decisive metrics."""
        return max((self.metrics[name].ratio for name in self.verdicts), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
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


def worst_of(verdicts: Sequence[Sufficiency]) -> Sufficiency:
    """Return not enough if any verdict is; else not decidable if any is, or if there is none."""
    for worse in (Sufficiency.NOT_ENOUGH, Sufficiency.UNDECIDABLE):
        if worse in verdicts:
            return worse
    return Sufficiency.ENOUGH if verdicts else Sufficiency.UNDECIDABLE


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Plan of a study, or of a single task.

    Parameters
    ----------
    tasks : by name, in the order of the study.
    given : True if shares were given; else the recommended ones are planned.
    planner : computes further parts of the plan when they are read.
    """

    study: PlannedStudy
    tasks: Mapping[str, TaskPlan]
    given: bool
    planner: Planner = field(repr=False, compare=False)

    @property
    def shares(self) -> dict[str, float]:
        """Recommended shares."""
        return {name: one.recommended for name, one in self.tasks.items()}

    @property
    def outcome(self) -> Sufficiency:
        """Verdict on the whole study: that of its worst task."""
        return worst_of([one.verdict for one in self.tasks.values()])

    @property
    def verdict(self) -> str:
        """Verdict in a line: on the decisive metrics of a study, or on all metrics of a single task with a target."""
        if self.single is None:
            return in_words(
                {
                    self._label(name, metric): verdict
                    for name, one in self.tasks.items()
                    for metric, verdict in one.verdicts.items()
                }
            )
        reasons = {one.reason for one in self.single.metrics.values()}
        if len(reasons) == 1 and None not in reasons:
            return f"Not enough data: {str(reasons.pop()).rstrip('.')}."
        return in_words(self.single.judged)

    @property
    def single(self) -> TaskPlan | None:
        """Task that is planned alone; None in a study."""
        return None if self.planner.agenda.study else next(iter(self.tasks.values()))

    def _label(self, task: str, metric: str) -> str:
        """Return the name of a metric, with its task in a study."""
        return metric if self.single else f"{task}.{metric}"

    @cached_property
    def _parts(self) -> list[tuple[Forecast[Any], PlannedStudy]]:
        """Each task's forecast, with the study at its share."""
        planner = self.planner
        return [
            (planner.forecasts[item.name], planner.share_of(item, self.tasks[item.name].share))
            for item in planner.agenda.items
        ]

    @property
    def _main(self) -> tuple[str, float]:
        """Main metric of a study: the first decisive metric of its first task, and its target."""
        main = self._parts[0][0]
        return next(iter(main.decisive(self.planner.given(main.name)).items()))

    @cached_property
    def inverse(self) -> tuple[Inverse, ...]:
        """Sufficient terms for each given target; without targets for the main metric, if that is quick."""
        wanted = [
            (forecast, gets, name, target)
            for forecast, gets in self._parts
            for name, target in {**forecast.own, **self.planner.given(forecast.name)}.items()
        ]
        if not wanted and self._parts[0][0].quick:
            wanted = [(*self._parts[0], *self._main)]
        return tuple(
            inverse_of(forecast, gets, name, target, label=self._label(forecast.name, name))
            for forecast, gets, name, target in wanted
        )

    @cached_property
    def trust_models(self) -> tuple[TrustRow, ...]:
        """Study under each trust model."""
        metric, _ = self._main
        return trust_table(self._parts, metric, label=self._label(self._parts[0][0].name, metric))

    @cached_property
    def details(self) -> Details:
        """Additions of its forecast to the plan of a single task."""
        forecast, gets = self._parts[0]
        return forecast.details(gets, self.planner.given(forecast.name))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about terms that should be changed, and about limits of the predictions."""
        study, expected = self.study, self.study.expectation
        found = []
        if study.rows < expected.rows:
            found.append(
                f"Only {study.rows:,.0f} of {expected.rows:,.0f} rows will be used: at most "
                f"{study.protection.rows_per_client:,} of each of {expected.clients:,} clients."
            )
        found += [note for forecast, _ in self._parts for note in forecast.notes(study)]
        if not study.trust.private and len(self.tasks) > 1:
            found.append(
                f"{study.trust.name} adds no noise and spends no budget: shares are equal, and do not matter."
            )
        for name, one in self.tasks.items():
            if one.refused is not None:
                found.append(f"A run would refuse {name}: {one.refused}")
            if self.single is None:
                reasons = {m.reason for key, m in one.metrics.items() if key in one.decisive and m.reason}
                found += [f"{name}: {reason.rstrip('.')}." for reason in sorted(reasons)]
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON: that of a single task has its numbers at the top level."""
        alone = self.single
        about = {"assumptions": self.study.to_dict(), "verdict": self.verdict}
        inverse, warnings = [one.to_dict() for one in self.inverse], list(self.warnings)
        if alone is not None:
            parameters = dict(self.planner.agenda.items[0].parameters)
            return {
                "plan": alone.kind,
                **alone.to_dict(),
                **about,
                "outcome": str(self.outcome),
                "assumption": self._parts[0][0].assumption,
                "parameters": parameters,
                **self.details.to_dict(),
                "inverse": inverse,
                "warnings": [*self.details.warnings, *warnings],
            }
        return {
            "plan": "study",
            **about,
            "outcome": str(self.outcome),
            "shares_given": self.given,
            "tasks": {name: one.to_dict() for name, one in self.tasks.items()},
            "trust_models": [one.to_dict() for one in self.trust_models],
            "inverse": inverse,
            "warnings": warnings,
        }


def in_words(verdicts: Mapping[str, Sufficiency]) -> str:
    """Describe all verdicts in a line.

    Examples
    --------
    >>> in_words({"roc_auc": Sufficiency.NOT_ENOUGH, "f1": Sufficiency.ENOUGH})
    'Enough data for f1; not enough data for roc_auc.'
    """
    by: dict[Sufficiency, list[str]] = {verdict: [] for verdict in Sufficiency}
    for name, verdict in verdicts.items():
        by[verdict].append(name)
    if len(by[Sufficiency.ENOUGH]) == len(verdicts) > 2:
        return "Enough data for everything."
    phrases = {
        Sufficiency.ENOUGH: "enough data for {}",
        Sufficiency.NOT_ENOUGH: "not enough data for {}",
        Sufficiency.UNDECIDABLE: "not decidable for {}: it depends on the true prevalence and AUC",
    }
    text = "; ".join(text.format(_listed(by[one])) for one, text in phrases.items() if by[one])
    return f"{text[0].upper()}{text[1:]}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
