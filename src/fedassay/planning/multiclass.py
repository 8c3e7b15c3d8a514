"""The plan of a calibration of logits: what noise leaves of each method, and whether held-out rows will show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import LEVEL
from fedassay.planning.class_averages import SampledRounds, sampled_rounds
from fedassay.planning.class_judgement import Judgement, half_width, judgement
from fedassay.planning.class_methods import PlannedMethod, choices, planned_method
from fedassay.planning.evaluation import unused_rows
from fedassay.planning.inverse import LARGEST_EPSILON, Answer, Inverse, fewest_rows, smallest_epsilon
from fedassay.planning.rehearsed_classes import ClassStudy, TemperatureError, temperature_error
from fedassay.planning.verdict import Verdict, checked_targets, judged
from fedassay.protocol import Unit
from fedassay.summaries.multiclass.client_profiles import ClientProfiles
from fedassay.tasks.calibration.multiclass.choice import ONE_SHOT, Choice
from fedassay.tasks.calibration.multiclass.isotonic_fit import FEWEST_ROWS

CLASS_TARGETS: Mapping[str, float] = MappingProxyType({"temperature": 0.1, "improvement": 0.05})
"""What is near enough: the temperature to 10 % (standard error), and a change of the log loss that can be seen."""

PARTICIPATION = 0.1
"""Of the comparison with sampling, if no other is given: the published one."""

_FEWER = 100
"""Draws for the inverse question, which asks often."""

_LOOSE = 1.5
"""A bound on the rows of a client that is so many times what it has costs accuracy."""


@dataclass(frozen=True, kw_only=True)
class MulticlassPlan:
    """What to expect of a calibration of logits.

    Parameters
    ----------
    temperature : the error of the temperature from one release, in log s.
    methods : all that can be asked, the default first.
    held_out : what held-out rows will say.
    sampled : averaging without and with sampling; empty where sampling does not count.
    auto : what ``--method auto`` will do, and why.
    """

    study: ClassStudy
    level: float
    auto: Choice
    reason: str
    temperature: TemperatureError
    methods: tuple[PlannedMethod, ...]
    held_out: Judgement
    sampled: tuple[SampledRounds, ...]
    targets: Mapping[str, float]
    inverse: tuple[Inverse, ...]
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """For each target, whether there are enough rows for so little noise."""
        widths = {"temperature": self.temperature.total, "improvement": self.held_out.visible}
        return {name: judged(self.targets[name], [width]) for name, width in widths.items()}

    @property
    def verdict(self) -> str:
        """In two sentences: the calibrator, and whether anybody will see that it helps."""
        default, error = self.methods[0], self.temperature
        right = "Auto fits an isotonic map"
        if default.solver == ONE_SHOT:
            right = f"Auto fits a temperature that is right to {error.total:.0%} ({default.word})"
        visible, value = self.held_out.visible, self.held_out.log_loss["value"]
        if math.isinf(visible):
            seen = "held-out rows will not be able to show anything, so that nothing will be recommended"
        else:
            will = "will" if self.held_out.recommended else "will hardly"
            seen = (
                f"held-out rows show improvements of the log loss from {visible:.2g} on, so that the {-value:.2g} that "
                f"such a model has to gain {will} be seen"
            )
        return f"{right}; {seen}."

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        error, held_out = self.temperature, self.held_out
        return {
            "plan": "calibrate-classes",
            "assumptions": {**self.study.to_dict(), "holdout": self.study.holdout},
            "parameters": {"level": self.level},
            "verdict": self.verdict,
            "verdicts": {name: str(verdict) for name, verdict in self.verdicts.items()},
            "targets": dict(self.targets),
            "auto": {"method": self.auto.method, "solver": self.auto.solver, "reason": self.reason},
            "temperature": {
                "value": self.study.expectation.temperature,
                "error": {"sampling": error.sampling, "privacy": error.privacy, "bias": error.bias},
                "total": error.total,
                "releases": max(1, len(error.queries)),
            },
            "methods": [method.to_dict() for method in self.methods],
            "held_out": {
                "rows": self.study.held_out_rows,
                **{
                    name: {**metric, "half_width": _finite(half_width(metric))}
                    for name, metric in (
                        ("log_loss", held_out.log_loss),
                        ("brier_score", held_out.brier_score),
                        ("accuracy", held_out.accuracy),
                    )
                },
                "noise": {"law": held_out.noise.law, "scale": held_out.noise.scale},
                "recommended": held_out.recommended,
                "reason": held_out.reason,
                "before_and_after": held_out.releases > 1,
                "bytes": held_out.cost.bytes,
            },
            "sampling": [one.to_dict() for one in self.sampled],
            "inverse": [one.to_dict() for one in self.inverse],
            "warnings": list(self.warnings),
        }


def plan_multiclass(
    study: ClassStudy,
    *,
    rounds: int | None = None,
    participation: float | None = None,
    level: float = LEVEL,
    targets: Mapping[str, float] | None = None,
) -> MulticlassPlan:
    """Predict a calibration of logits from what is public and assumed; no data.

    Guarantee: noise, rounds and questions are those that a run in this setting gets, because the task's own flows are
    asked (`rehearsed_classes`). What becomes of them is predicted for a typical model (`typical_classes`) and clients
    that are alike and equally large.

    Parameters
    ----------
    rounds, participation : of averaging and binning; what the budget bears, and everybody, by default.
    targets : what is near enough: ``temperature``, relative; ``improvement``, of the log loss in nats. By default those
        of `CLASS_TARGETS`. For each, the smallest epsilon and the fewest clients are looked for; for the temperature
        they are right to about 10 %.

    Examples
    --------
    >>> from fedassay.planning.typical_classes import ClassExpectation
    >>> from fedassay.protocol import Budget, Protection
    >>> from fedassay.trust import ServerDP
    >>> study = ClassStudy(
    ...     expectation=ClassExpectation(rows=50_000, clients=1000, classes=10),
    ...     trust=ServerDP(),
    ...     budget=Budget(epsilon=1, delta=1e-5),
    ...     protection=Protection(unit=Unit.CLIENT, rows_per_client=50),
    ... )
    >>> error = temperature_error(study)
    >>> len(error.queries), error.total < 0.1
    (2, True)
    """
    wanted = {**CLASS_TARGETS, **checked_targets(targets or {}, CLASS_TARGETS)}
    rate = 1.0 if participation is None else participation
    asked = choices(study, rounds=rounds, participation=rate)
    held_out = judgement(study, level=level)  # first: it says what cannot be done at all
    error = temperature_error(study)
    return MulticlassPlan(
        study=study,
        level=level,
        auto=asked[0],
        reason=why_auto(asked[0], study, error),
        temperature=error,
        methods=tuple(planned_method(one, study, target=wanted["temperature"]) for one in asked),
        held_out=held_out,
        sampled=sampled_rounds(study, rounds=rounds, participation=rate if rate < 1 else PARTICIPATION),
        targets=wanted,
        inverse=_inverse(study, wanted, level),
        warnings=(*unused_rows(study), *loose_bound(study, level=level)),
    )


def why_auto(choice: Choice, study: ClassStudy, error: TemperatureError) -> str:
    """What the default will do, and why, in half a sentence; `error` has the questions that a run would ask."""
    if choice.solver == ONE_SHOT:
        asked = any(isinstance(query.of, ClientProfiles) for query in error.queries)
        shifts = ", and shifts of the classes as far as they exceed the noise," if asked else ""
        why = f"a temperature{shifts} from one release or two, so that the budget is not split over rounds"
        drowned = choice.method == "vector" and not asked
        return why + (
            "; noise would drown shifts of the classes, so that nobody is asked for them" if drowned else ""
        )
    if study.fit_rows < FEWEST_ROWS:
        return f"sums are exact; but with fewer than {FEWEST_ROWS:,} rows to fit, the map will be the temperature alone"
    return "sums are exact, and how rows are spread over clients has no influence"


def _inverse(study: ClassStudy, targets: Mapping[str, float], level: float) -> tuple[Inverse, ...]:
    def error(other: ClassStudy) -> float:
        return temperature_error(other, draws=_FEWER).total

    def visible(other: ClassStudy) -> float:
        return judgement(other, level=level).visible

    def beside_noise(other: ClassStudy) -> str:
        found = temperature_error(other, draws=_FEWER)
        return f"rows, and the bounds on them, leave {math.hypot(found.sampling, found.bias):.2g}"

    def unseen(other: ClassStudy) -> str:
        found = judgement(other, level=level)
        if math.isinf(found.visible):
            return (
                f"even ε = {LARGEST_EPSILON:g} leaves nothing to see; rows of clients must be bounded closer"
            )
        sampling = z_value(level) * found.log_loss["error"]["sampling"]
        alone = f"sampling alone leaves ±{sampling:.2g}"
        return (
            alone
            if sampling > targets["improvement"]
            else f"ε = {LARGEST_EPSILON:g} leaves ±{found.visible:.2g}"
        )

    return tuple(
        Inverse(
            metric=name,
            target=targets[name],
            epsilon=smallest_epsilon(study, width, targets[name], rest),
            rows=_clients(fewest_rows(study, width, targets[name])),
        )
        for name, width, rest in (("temperature", error, beside_noise), ("improvement", visible, unseen))
    )


def _clients(answer: Answer) -> Answer:
    if answer.value is None:
        return replace(answer, reason="no number of clients like these is enough")
    return answer


def loose_bound(study: ClassStudy, *, level: float = LEVEL) -> tuple[str, ...]:
    """The warning that noise in the judgement is made for more rows than clients have."""
    protection, each = study.protection, math.ceil(study.rows / study.expectation.clients)
    bound = protection.rows_per_client
    if study.budget is None or protection.unit is not Unit.CLIENT or bound is None or bound < _LOOSE * each:
        return ()
    closer = replace(study, protection=replace(protection, rows_per_client=each))
    visible = judgement(closer, level=level).visible
    gain = "" if math.isinf(visible) else f", and improvements of the log loss seen from {visible:.2g} on"
    return (
        f"Clients have about {each:,} rows, but noise in the judgement is made for {bound:,}: with --rows-per-client "
        f"{each} it would be {bound / each:.2g} times smaller{gain}.",
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
