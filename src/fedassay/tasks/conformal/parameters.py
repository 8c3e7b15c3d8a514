"""Parameters of prediction sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fedassay.errors import UsageError
from fedassay.protocol.parameters import Fraction, Interval, Listed
from fedassay.summaries.quantities import QUANTITIES
from fedassay.tasks.shared_parameters import Classes, Groups
from fedassay.tasks.study_rules import Given, RangeOf, StudyRules, missing_classes, same_holdout

ConformalMethod = Literal["auto", "qq", "qq-paper", "average", "pooled", "weighted", "local"]
Sets = Literal["conformity", "absolute", "normalised", "cqr", "lac", "aps", "raps", "binary"]
Guarantee = Literal["marginal", "training-conditional"]
Conditional = Literal["class", "group", "none"]

MOST_POINTS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ConformalParameters(Groups, Classes):
    """Parameters of `Conformal`."""

    level: Fraction = 0.9
    """Share of new rows that the sets cover."""
    method: ConformalMethod = "auto"
    """Method for the threshold; auto is qq where single clients answer, and pooled elsewhere."""
    sets: Sets = "conformity"
    """Conformity score that makes the sets. Default: the first that the columns stand for."""
    score_parameters: Annotated[tuple[float, ...], Listed("LAMBDA,K")] = ()
    """Parameters of raps: the penalty lambda, and the rank after which it counts. Default: 0.01,5."""
    guarantee: Guarantee = "marginal"
    """Coverage on average over calibration rows (marginal), or for the rows used, with a confidence."""
    confidence: Fraction = 0.9
    """Probability with which a training-conditional guarantee holds."""
    score_range: Annotated[tuple[float, ...], Listed("A,B")] = ()
    """Range of the scores, which is public. It is known for the scores of classes."""
    bins: Annotated[int, Interval(ge=2, le=MOST_POINTS)] | None = None
    """Number of public points, where single scores are not seen."""
    conditional: Conditional | None = None
    """Threshold and guarantee for each class or group, or one for all rows (none). Default: class where two are."""
    holdout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Share of the units (rows, or whole clients) that is kept to judge the result."""
    report_level: Fraction = 0.95
    """Confidence level of the intervals of measured coverage."""


# --- what a study file implies for prediction sets ----------------------------------------------------------

DERIVED = ("conformity", "cqr", "normalised", "absolute", "lac", "binary")
"""Conformity scores that columns can stand for; of several for the same columns, the first counts."""

UNBOUNDED = ("conformity", "cqr", "normalised", "absolute")
"""Conformity scores whose range has to be stated."""


class ConformalRules(StudyRules):
    """Columns stand for a conformity score; coverage is measured on the held-out rows of the study."""

    implied_names: ClassVar[tuple[str, ...]] = ("sets", "holdout")
    builds_on: ClassVar[str] = "calibrate"
    needs_level: ClassVar[bool] = True

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        grouped = ("group",) if parameters.get("conditional") == "group" else ()
        return (*QUANTITIES[parameters.get("sets", "conformity")].columns, *grouped)

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        return {**same_holdout(given, holdout, besides=(0,)), "sets": _sets(given, columns)}

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        softmax = getattr(QUANTITIES.get(parameters.get("sets", "")), "is_softmax", False)
        return missing_classes(parameters) if softmax else ()

    def stand_in(self, parameters: Given) -> dict[str, Any]:
        """See `StudyRules`. Any number of classes stands in for the number that is looked up later."""
        by_class = parameters.get("conditional") == "class" and "groups" not in parameters
        return {"classes": 2, **parameters} if by_class else dict(parameters)

    def column_sets(self) -> tuple[frozenset[str], ...]:
        """See `StudyRules`."""
        return tuple(frozenset(one.columns) for name, one in QUANTITIES.items() if name != "value")

    def first_entries(
        self, columns: Given, level: float | None, classes: int | None, range_of: RangeOf
    ) -> dict[str, Any]:
        """See `StudyRules`."""
        found: dict[str, Any] = {"level": 0.9 if level is None else level}
        unbounded = (name for name in UNBOUNDED if columns.keys() >= set(QUANTITIES[name].columns))
        quantity = next(unbounded, None)
        binary = quantity is None and columns.keys() >= set(QUANTITIES["binary"].columns)
        if binary or ("logits" in columns and classes == 2):
            found["conditional"] = "class"
        return found if quantity is None else {**found, "score_range": range_of(quantity)}

    def warnings(self, task: Any, results: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        from fedassay.tasks.conformal.promises import (
            warnings_about,  # with arrays; the command line reads rules
        )

        return warnings_about(results, task)

    def holds_out(self, parameters: Given) -> bool:
        """See `StudyRules`."""
        return bool(parameters["holdout"])

    def can_build(self, parameters: Given) -> bool:
        """See `StudyRules`. Sets of a binary classifier, without a calibrator of their own."""
        return _on_scores(parameters) and not parameters.get("score_parameters")

    def require_base(self, name: str, base: str, parameters: Given) -> None:
        """See `StudyRules`."""
        if not _on_scores(parameters):
            raise UsageError(
                f"{name}: only prediction sets of a binary classifier (score and label, with held-out rows) can "
                f"build on a calibration; leave out after = {base!r}."
            )
        if parameters.get("score_parameters"):
            raise UsageError(
                f"{name}: its scores have a calibrator of their own (parameters), expected none where it builds "
                f"on {base!r}; leave one of them out."
            )

    def informed(self, task: Any, results: Given) -> Any:
        """See `StudyRules`. Build sets on calibrated scores, if the calibrator is recommended."""
        if not results["recommended"] or results["calibrator"] is None:
            return task
        return task.calibrated(results["calibrator"])


def _on_scores(parameters: Given) -> bool:
    return bool(parameters.get("sets") == "binary" and parameters.get("holdout"))


def _sets(given: Given, columns: Mapping[str, str] | None) -> str:
    """Return the conformity score that the columns stand for."""
    if "sets" in given:
        return str(given["sets"])
    if columns is None:
        raise UsageError(
            f"needs sets, because sites name their own columns; expected one of {', '.join(DERIVED)}."
        )
    fitting = [name for name in DERIVED if columns.keys() >= set(QUANTITIES[name].columns)]
    if "normalised" in fitting:
        fitting.remove("absolute")
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"needs sets: the columns would do for {' and for '.join(fitting)}; name one.")
    wanted = "; ".join(" and ".join(QUANTITIES[name].columns) for name in DERIVED)
    raise UsageError(f"needs columns for a conformity score; give in [data.columns] {wanted}.")
