"""The plan of a conformal threshold: ranks, what they will cover, what pooling would give, and what would be enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import best_pair, scores_needed
from fedassay.planning.evaluation import unused_rows
from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.predicted_coverage import FINITE, Enough, PredictedCoverage, predict, what_is_enough
from fedassay.planning.verdict import Verdict, checked_targets, in_words, judged
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.found import Law, law_to_json

TARGETS: Mapping[str, float] = MappingProxyType({"spread": 0.02, "excess": 0.02, "shortfall": 0.02})
"""What most uses of prediction sets could live with: the standard deviation of the coverage; by how much it will be
above the level on average; and by how much below it the coverage is that is reached with the confidence."""

QQ = ("qq", "qq-paper")


@dataclass(frozen=True, kw_only=True)
class ConformalPlan:
    """What to expect of a threshold for prediction sets.

    Parameters
    ----------
    predicted : of the method that the options ask for.
    beside : the laws of other ways to use the same rows, or why there is none: ``pooled`` (all rows in one place),
        ``alone`` (one client), ``confident`` (with the other guarantee), ``without noise``.
    inverse : what would be enough, for each target that was given.
    """

    study: PlannedRelease
    task: Conformal
    predicted: PredictedCoverage
    beside: Mapping[str, Law | str]
    targets: Mapping[str, float]
    inverse: tuple[Enough, ...]
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """For each target about which something is known, whether there are enough rows."""
        widths = {name: self.predicted.width(name) for name in self.targets}
        return {
            name: judged(self.targets[name], [width]) for name, width in widths.items() if width is not None
        }

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.predicted.finite:
            return f"Not enough data: every set will hold everything. {_sentence(self.predicted.reason)}"
        return in_words(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        task, confidence = self.task, self.task.request.confidence
        return {
            "plan": "conformal",
            "assumptions": self.study.to_dict() | {"rows_each": _rows_each(self.study)},
            "parameters": {
                "level": task.level,
                "method": task.method,
                "guarantee": task.guarantee,
                "confidence": task.confidence,
                "bins": task.bins,
            },
            "verdict": self.verdict,
            "verdicts": {name: str(verdict) for name, verdict in self.verdicts.items()},
            "targets": dict(self.targets),
            **_found(self.predicted, confidence),
            "expected": None if self.predicted.expected is None else self.predicted.expected._asdict(),
            "widths": {name: _finite(self.predicted.width(name)) for name in self.targets},
            "beside": {name: _described(law, self.task) for name, law in self.beside.items()},
            "rows_needed": {
                "marginal": scores_needed(task.level),
                "training-conditional": scores_needed(task.level, confidence=task.confidence),
            },
            "inverse": [one.to_dict() for one in self.inverse],
            "warnings": list(self.warnings),
        }


def plan_conformal(
    study: PlannedRelease, *, task: Conformal | None = None, targets: Mapping[str, float] | None = None
) -> ConformalPlan:
    """Predict a threshold for prediction sets from what is public and assumed; no data.

    Guarantee: ranks, law and guarantee are those that the task itself would state for clients with equally many rows.
    `expected` is a prediction for scores that are spread evenly over their range (`tasks.conformal.accuracy`).

    Parameters
    ----------
    study : how many rows in all, at how many clients of equal size, and the terms. Clients of different sizes are
        approximated by this.
    task : level, method, guarantee, bins.
    targets : what is small enough: ``spread``, ``excess``, ``shortfall`` (`TARGETS`).

    Edge cases: where single clients choose privately, every client must use the same public number of rows; if the
    protection does not say it, it is planned with what a client has.

    Examples
    --------
    >>> from fedassay.planning.expectation import Size
    >>> from fedassay.trust import Plain
    >>> size = Size(rows=1000, clients=10)
    >>> plan = plan_conformal(PlannedRelease(expectation=size, trust=Plain()))
    >>> plan.predicted.rehearsed.found.pair, round(plan.predicted.law.mean, 4), round(plan.predicted.width("spread"), 4)
    ((92, 4), 0.9023, 0.012)
    >>> round(plan.beside["pooled"].standard_deviation, 4), round(plan.beside["alone"].standard_deviation, 4)
    (0.0095, 0.0296)
    """
    task = Conformal() if task is None else task
    given = checked_targets(targets or {}, TARGETS)
    planned, notes = _with_bound(study, task)
    predicted = predict(planned, task)
    for name in given:
        if predicted.width(name) is None:
            raise UsageError(
                f"target {name}: nothing is known about it beforehand for this method; expected another target, or "
                "another method."
            )
    wanted = dict(given)
    if not predicted.finite and planned.budget is not None and not task.chooses(planned.setting):
        wanted = {FINITE: 0.0, **given}  # private choices say it themselves
    return ConformalPlan(
        study=planned,
        task=task,
        predicted=predicted,
        beside=_beside(planned, task),
        targets={**TARGETS, **given},
        inverse=tuple(what_is_enough(planned, task, name, target) for name, target in wanted.items()),
        warnings=(*unused_rows(planned), *notes, *_uneven(planned, predicted)),
    )


def _rows_each(study: PlannedRelease) -> int:
    return math.floor(study.rows / study.expectation.clients)


def _with_bound(study: PlannedRelease, task: Conformal) -> tuple[PlannedRelease, tuple[str, ...]]:
    """The study with a public number of rows per client, if clients choose privately and it has none."""
    if study.protection.rows_per_client is not None or not task.chooses(study.setting):
        return study, ()
    rows = _rows_each(study)
    note = f"Every client has to use the same public number of rows: planned with --rows-per-client {rows}."
    return replace(study, protection=replace(study.protection, rows_per_client=rows)), (note,)


def _uneven(study: PlannedRelease, predicted: PredictedCoverage) -> tuple[str, ...]:
    """What is not as equal as it is taken to be."""
    notes: list[str] = []
    clients, each, bound = study.expectation.clients, _rows_each(study), study.protection.rows_per_client
    if clients * each != study.rows:
        notes.append(
            f"{clients:,} clients cannot have equally many of {study.rows:,.0f} rows: planned with {each:,}."
        )
    if (
        predicted.rehearsed is not None
        and predicted.rehearsed.in_private
        and bound is not None
        and each < bound
    ):
        notes.append(
            f"Clients have {each:,} rows but count as {bound:,}: what is missing counts as infinite scores, and makes "
            f"sets wider; give --rows-per-client {each}."
        )
    return tuple(notes)


def _beside(study: PlannedRelease, task: Conformal) -> dict[str, Law | str]:
    """Other ways to use the same rows, without privacy."""
    clients, each = study.expectation.clients, _rows_each(study)
    confidence = task.request.confidence
    laws = {
        "pooled": _best(1, clients * each, task.level, confidence),
        "alone": _best(1, each, task.level, confidence),
    }
    if task.way(study.setting)[0] not in QQ:
        return laws
    if task.chooses(study.setting):
        return {**laws, "without noise": _best(clients, each, task.level, confidence)}
    other = task.confidence if confidence is None else None
    return {
        **laws,
        "confident" if confidence is None else "marginal": _best(clients, each, task.level, other),
    }


def _best(clients: int, rows: int, level: float, confidence: float | None) -> Law | str:
    try:
        return best_pair(clients, max(1, rows), level, confidence=confidence)
    except DataError as problem:
        return str(problem)


# --- as JSON --------------------------------------------------------------------------------------------


def _found(predicted: PredictedCoverage, confidence: float | None) -> dict[str, Any]:
    """Method, pair, guarantee and law, under the names that they have in a result."""
    rehearsed = predicted.rehearsed
    if rehearsed is None:
        nothing = dict.fromkeys(("method", "guarantee", "pair", "coverage_law"))
        return {**nothing, "infinite": True, "reason": predicted.reason, "details": {}}
    made = rehearsed.found.to_json(level=predicted.level, confidence=confidence)
    details = {
        **rehearsed.found.details,
        "noise": {"law": rehearsed.noise.law, "scale": rehearsed.noise.scale},
    }
    return {
        "method": rehearsed.method,
        **{name: made[name] for name in ("guarantee", "pair", "coverage_law")},
        "infinite": rehearsed.trivial,
        **({} if predicted.reason is None else {"reason": predicted.reason}),
        "details": details,
    }


def _described(law: Law | str, task: Conformal) -> dict[str, Any]:
    if isinstance(law, str):
        return {"mean": None, "reason": law}
    whole = law_to_json(law, exact=True)
    return {
        **{name: whole[name] for name in ("mean", "standard_deviation", "quantiles")},
        "pair": list(getattr(law, "pair", ())),
        "probability": law.probability_at_least(task.level),
        "reached": law.quantile(1 - task.confidence),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _sentence(text: str | None) -> str:
    return "" if not text else f"{text[0].upper()}{text[1:].rstrip('.')}."
