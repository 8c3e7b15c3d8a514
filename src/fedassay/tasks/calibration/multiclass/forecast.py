"""Forecast of a calibration of logits: temperature error, every method, and held-out intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from fedassay.protocol.vocabulary import Unit
from fedassay.summaries.multiclass.loss_curves import ClientProfiles
from fedassay.tasks.calibration.multiclass.calibrate import ONE_SHOT, CalibrateMulticlass, CalibratorChoice
from fedassay.tasks.calibration.multiclass.forecast_methods import (
    choices,
    method_table,
    planned_method,
    sampled_rounds,
    sampling_table,
)
from fedassay.tasks.calibration.multiclass.isotonic_fit import FEWEST_ROWS
from fedassay.tasks.calibration.multiclass.rehearsal import (
    Judgement,
    LogitsStudy,
    TemperatureError,
    judgement,
    temperature_error,
)
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction, half_width

CLASS_TARGETS: Mapping[str, float] = MappingProxyType({"temperature": 0.1, "improvement": 0.05})
"""Targets: temperature to 10 % (standard error), and a visible change of the log loss."""

PARTICIPATION = 0.1
"""Default participation in the comparison with sampling: the published number."""

SAMPLING = "Sampling saves noise in a round, but the mean is over fewer clients: compare the last column."

_DRAWS = 100
"""Number of draws of the noise in a temperature: the search for shares repeats them often."""

_LOOSE = 1.5
"""Ratio of the bound on a client's rows to its rows, above which a warning is given."""


@dataclass(frozen=True, kw_only=True)
class ClassCalibrationForecast(Forecast[CalibrateMulticlass]):
    """The error of a temperature, and the smallest improvement of the log loss that held-out rows will show.

    Other methods than a temperature from one release are judged as if they were that method.
    """

    targets: ClassVar[Mapping[str, float | None]] = CLASS_TARGETS
    main: ClassVar[tuple[str, ...]] = ("temperature", "improvement")
    expects: ClassVar[tuple[str, ...]] = ("classes", "accuracy", "temperature")
    assumption: ClassVar[str] = "Clients are taken to be alike."
    meanings: ClassVar[Mapping[str, str]] = {
        "improvement": "the smallest gain in log loss that the held-out rows will show"
    }
    wishes: ClassVar[Mapping[str, str]] = {
        "temperature": "a temperature that is right to {:.0%}",
        "improvement": "seeing an improvement of the log loss of {:g}",
    }

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        case = self._case(study)
        found: dict[str, Prediction] = {}
        if "improvement" in names:  # first: it refuses what is impossible
            found["improvement"] = Prediction(width=judgement(case, level=self.task.level).visible)
        if "temperature" in names:
            error = temperature_error(case, draws=_DRAWS)
            found["temperature"] = Prediction(
                width=error.total, sampling=error.sampling, privacy=error.privacy
            )
        return {name: found[name] for name in names}

    def _case(self, study: PlannedStudy) -> LogitsStudy:
        return LogitsStudy.of(study, self.name, self.task.classes)

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: the methods, the choice of ``auto``, held-out intervals, the gain of sampling."""
        case, rate = self._case(study), self.task.participation
        asked = choices(case, rounds=self.task.rounds, participation=rate)
        shown, error = judgement(case, level=self.task.level), temperature_error(case)
        target = given.get("temperature", CLASS_TARGETS["temperature"])
        methods = [planned_method(one, case, target=target) for one in asked]
        sampled = sampled_rounds(
            case, rounds=self.task.rounds, participation=rate if rate < 1 else PARTICIPATION
        )
        why = reason_of_auto(asked[0], case, error)
        tables = {"methods": method_table(methods)}
        if shown.changes["log_loss"]["value"] is not None:
            tables["held_out"] = _held_out(shown, case.held_out_rows)
        if sampled:
            tables["sampling"] = sampling_table(sampled)
        return Details(
            facts={
                "auto": {"method": asked[0].method, "solver": asked[0].solver, "reason": why},
                "temperature_error": {
                    **{name: getattr(error, name) for name in ("sampling", "privacy", "bias", "total")},
                    "releases": max(1, len(error.queries)),
                },
                "recommended": shown.recommended,
                "judgement_bytes": study.bytes_of(*shown.queries),
            },
            tables=tables,
            remarks=(
                f"auto is {methods[0].title}: {why}.",
                _temperature(error),
                f"To expect: {shown.reason}",
                _gain(shown),
                *([SAMPLING] if sampled else []),
            ),
            warnings=loose_bound(case, level=self.task.level),
        )


def reason_of_auto(choice: CalibratorChoice, case: LogitsStudy, error: TemperatureError) -> str:
    """Explain the choice of the default; `error` has the queries that a run would ask."""
    if choice.solver == ONE_SHOT:
        asked = any(isinstance(query.of, ClientProfiles) for query in error.queries)
        shifts = ", and shifts of the classes as far as they exceed the noise," if asked else ""
        why = f"a temperature{shifts} from one release or two, so that the budget is not split over rounds"
        drowned = choice.method == "vector" and not asked
        return why + (
            "; noise would drown shifts of the classes, so that they are not asked for" if drowned else ""
        )
    if case.fit_rows < FEWEST_ROWS:
        return f"sums are exact; but with fewer than {FEWEST_ROWS:,} rows to fit, the map will be the temperature alone"
    return "sums are exact, and how rows are spread over clients has no influence"


def _temperature(error: TemperatureError) -> str:
    if not error.queries:
        return f"The temperature of all rows will be right to {error.total:.2g} in log s: sampling."
    releases = "1 release" if len(error.queries) == 1 else f"{len(error.queries)} releases"
    return (
        f"The temperature from {releases} will be right to {error.total:.2g} in log s: noise {error.privacy:.2g}, "
        f"sampling {error.sampling:.2g}, bounds and caution {error.bias:.2g}."
    )


def _gain(shown: Judgement) -> str:
    if math.isinf(shown.visible):
        return "Held-out rows will not be able to show anything, so that nothing will be recommended."
    will = "will" if shown.recommended else "will hardly"
    return (
        f"Held-out rows show improvements of the log loss from {shown.visible:.2g} on, so that the "
        f"{-shown.changes['log_loss']['value']:.2g} that such a model has to gain {will} be seen."
    )


def _held_out(shown: Judgement, rows: float) -> DetailTable:
    names = {"log_loss": "log loss", "brier_score": "Brier score", "accuracy": "accuracy (if it can change)"}
    parts = {part: part for part in ("sampling", "privacy")}
    lines: list[dict[str, Any]] = [
        {
            "change": word,
            "value": shown.changes[name]["value"],
            "width": half_width(shown.changes[name]["interval"]),
            **{part: shown.changes[name].get("error", {}).get(part) for part in parts},
        }
        for name, word in names.items()
    ]
    return DetailTable(
        title=f"Changes that {round(rows):,} held-out rows can show",
        columns={"change": "change of", "value": "to expect", "width": "±", **parts},
        rows=lines,
    )


def loose_bound(case: LogitsStudy, *, level: float) -> tuple[str, ...]:
    """Warn if noise in the judgement is sized for more rows than clients have."""
    study, protection = case.study, case.study.protection
    each, bound = math.ceil(study.rows / study.expectation.clients), protection.rows_per_client
    if study.budget is None or protection.unit is not Unit.CLIENT or bound is None or bound < _LOOSE * each:
        return ()
    closer = replace(study, protection=replace(protection, rows_per_client=each))
    visible = judgement(replace(case, study=closer), level=level).visible
    gain = "" if math.isinf(visible) else f", and improvements of the log loss seen from {visible:.2g} on"
    return (
        f"Clients have about {each:,} rows, but noise in the judgement is made for {bound:,}: with --rows-per-client "
        f"{each} it would be {bound / each:.2g} times smaller{gain}.",
    )
