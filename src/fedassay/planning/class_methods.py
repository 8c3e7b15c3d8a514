"""The methods that a calibration of logits can be asked for, each with the noise that enters it and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from fedassay.errors import UnsupportedQuery
from fedassay.planning.class_averages import averaged
from fedassay.planning.rehearsed_classes import (
    ClassStudy,
    Cost,
    cost_of,
    drive,
    queries_of,
    temperature_error,
)
from fedassay.planning.typical_classes import TypicalClients
from fedassay.protocol import NO_NOISE, Noise, Query, Released
from fedassay.summaries.multiclass.clipped_updates import ClippedUpdates
from fedassay.summaries.multiclass.scaling_sums import MOST_NEWTON, ScalingSums
from fedassay.tasks.calibration.multiclass.choice import (
    AUTO,
    AVERAGED,
    EXACT,
    ONE_SHOT,
    SCALINGS,
    Choice,
)
from fedassay.tasks.calibration.multiclass.exact import GRADIENT_SUMS
from fedassay.tasks.calibration.multiclass.fedavg import NOISIEST
from fedassay.tasks.calibration.multiclass.isotonic_fit import FEWEST_ROWS, PRIOR_ROWS
from fedassay.tasks.calibration.parameters import ClassMethod, Solver

CLEAR, DROWNED = 0.5, 2.0
"""Noise, relative to what a method learns from: usable up to the first, noisy up to the second."""

ROWS_PER_PARAMETER = 10
"""Fewer, and the optimum is one of these rows rather than of the model."""

ROWS_ALONE = 10
"""Of a client that fits by itself: with fewer, what is averaged are fits to next to nothing."""

_EXACT_ROWS = 1_000


class Word(StrEnum):
    """Whether a method is of use, in a word.

    For what comes from one release: the error of the temperature is within the target; or at least half of what there
    is to gain will be gained (what is left grows as the square of the error); or less. For averages: the noise in a
    mean update is at most half as long as the longest update; or up to twice, beyond which a run refuses. For counts:
    the noise in a bin is at most half of the rows of a class that are in a bin on average; or up to twice; or more,
    which was worse than leaving the model alone wherever it was tried. Without noise, and for averages: whether there
    are rows enough.
    """

    USABLE = "usable"
    NOISY = "noisy"
    DROWNED = "drowned"
    REFUSED = "refused"
    FEW_ROWS = "few rows"


@dataclass(frozen=True, kw_only=True)
class PlannedMethod:
    """One method as it would be run.

    Parameters
    ----------
    parameters : how many numbers are learnt; None for binnings.
    noise : its law in one release. `deviation` is its standard deviation in the units of `of`: log s, a parameter of a
        mean update in clips, or a count in rows.
    relative : what `word` goes by: the noise relative to what is learnt from; of the temperature from one release, its
        whole error relative to the target.
    cost : None where nothing can be asked, see `reason`.
    """

    method: str
    solver: str
    rounds: int | None = None
    participation: float = 1.0
    parameters: int | None = None
    noise: Noise = NO_NOISE
    of: str = ""
    deviation: float = 0.0
    relative: float = 0.0
    word: Word
    reason: str = ""
    cost: Cost | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "method": self.method,
            "solver": self.solver,
            "rounds": self.rounds,
            "participation": self.participation,
            "parameters": self.parameters,
            "noise": {
                "law": self.noise.law,
                "scale": self.noise.scale,
                "of": self.of,
                "standard_deviation": self.deviation,
                "relative": self.relative,
            },
            "answers": None if self.cost is None else self.cost.answers,
            "bytes": None if self.cost is None else self.cost.bytes,
            "at_most": self.cost is not None and self.cost.at_most,
            "usable": str(self.word),
            **({"reason": self.reason} if self.reason else {}),
        }


def choices(
    study: ClassStudy, *, rounds: int | None = None, participation: float = 1.0
) -> tuple[Choice, ...]:
    """All methods that can be asked, the default first."""
    base = Choice(classes=study.expectation.classes, holdout=study.holdout)
    auto = base.settled(study.setting)
    at_once = replace(base, method="temperature", solver=ONE_SHOT)
    solver: Solver = AVERAGED if study.trust.private else AUTO
    others: list[tuple[ClassMethod, Solver]] = [(method, solver) for method in SCALINGS] + [("bbq", AUTO)]
    return (
        auto,
        *((at_once,) if study.trust.private and auto.method != at_once.method else ()),
        *(
            replace(base, method=method, solver=by, rounds=rounds, participation=participation)
            for method, by in others
        ),
    )


# --- one method -----------------------------------------------------------------------------------------


def planned_method(choice: Choice, study: ClassStudy, *, target: float) -> PlannedMethod:
    """One of `choices`, in this study. `target` is the error of a temperature that is small enough."""
    choice = choice.settled(study.setting)
    plain = PlannedMethod(
        method=choice.method,
        solver=choice.solver,
        rounds=choice.rounds,
        participation=choice.participation,
        word=Word.USABLE,
    )
    try:
        if choice.solver == ONE_SHOT:
            return _one_shot(plain, choice, study, target)
        if choice.solver == AVERAGED:
            return _averaging(plain, choice, study)
        if choice.solver == EXACT:
            return _exact(plain, choice, study)
        return _counted(plain, choice, study)
    except UnsupportedQuery as problem:
        return replace(plain, word=Word.REFUSED, reason=str(problem))


def _one_shot(plain: PlannedMethod, choice: Choice, study: ClassStudy, target: float) -> PlannedMethod:
    error = temperature_error(study, method=choice.method)
    alone = abs(math.log(study.expectation.temperature))
    half = 2 * error.total**2 <= alone**2
    costs = [cost_of(query, study, times=1) for query in error.queries]
    return replace(
        plain,
        rounds=len(costs),
        parameters=1 if choice.method == "temperature" else 1 + choice.classes,
        noise=error.noises[0],
        of="log s",
        deviation=error.privacy,
        relative=error.total / target,
        word=Word.USABLE if error.total <= target else Word.NOISY if half else Word.DROWNED,
        cost=Cost(answers=len(costs), bytes=sum(cost.bytes for cost in costs)),
    )


def _averaging(plain: PlannedMethod, choice: Choice, study: ClassStudy) -> PlannedMethod:
    plan, deviation = averaged(choice, study)
    size = cast(ClippedUpdates, plan.query.of).averaged.size(choice.classes)
    relative = deviation * math.sqrt(size)
    word, reason = _by_noise(relative), ""
    if relative > NOISIEST:
        word = Word.REFUSED
        reason = f"the noise in a mean update would be {relative:.3g} times as long as the longest update"
    found = replace(
        plain,
        parameters=size,
        noise=plan.noise,
        of="parameter, in clips" if deviation else "",
        deviation=deviation,
        relative=relative,
        word=word,
        reason=reason,
        cost=cost_of(plan.query, study, times=_times(choice, study)),
    )
    few = word is not Word.REFUSED and study.each < ROWS_ALONE
    return _with_few_rows(found, study.each, "at each client, which fits by itself") if few else found


def _counted(plain: PlannedMethod, choice: Choice, study: ClassStudy) -> PlannedMethod:
    """Isotonic maps and binnings."""
    step = next(choice.fit(study.setting))
    times = 1.0 if choice.rounds is None else _times(choice, study)
    plain = replace(plain, cost=cost_of(step, study, times=times))
    query = queries_of(step)[0]
    noise = study.setting.noise(query)
    if noise.variance == 0:
        rows, enough, what = study.fit_rows, float(FEWEST_ROWS), "in all"
        if choice.method != "isotonic":
            rows, enough, what = rows / choice.classes, PRIOR_ROWS, "for each class"
        return plain if rows >= enough else _with_few_rows(plain, rows, what)
    assert choice.rounds is not None
    seen = choice.rounds * choice.participation * study.typical_clients
    counts = query.of.read(study.typical.total(query.of, seen))
    # Noise adds up over rounds, as counts do.
    sigma = math.sqrt(choice.rounds * noise.variance)
    positives, negatives = counts.unit_positive * sigma, counts.unit_negative * sigma
    relative = math.hypot(positives, negatives) / max(float(counts.by_class.mean()) / counts.bins, 1e-300)
    return replace(
        plain,
        noise=noise,
        of="count, in rows",
        deviation=positives,
        relative=relative,
        word=_by_noise(relative),
    )


def _exact(plain: PlannedMethod, choice: Choice, study: ClassStudy) -> PlannedMethod:
    """How often clients are asked depends on the rows: about as often as for typical ones."""
    (query,) = queries_of(next(choice.fit(study.setting)))
    size = len(cast(ScalingSums, query.of).theta)
    newton, each = size <= MOST_NEWTON, study.fit_rows / size
    cost = cost_of(query, study, times=_sums(choice, study) if newton else GRADIENT_SUMS)
    plain = replace(plain, parameters=size, cost=replace(cost, at_most=not newton))
    return plain if each >= ROWS_PER_PARAMETER else _with_few_rows(plain, each, "for each parameter")


def _sums(choice: Choice, study: ClassStudy) -> int:
    model = study.expectation.model
    rows = TypicalClients(model=model, each=min(_EXACT_ROWS, model.most_each)).rows[0]

    def answer(query: Query[Any]) -> Released[Any]:
        return Released(value=query.of.read(query.of.measure(rows, {})[0]), noise=NO_NOISE, clients=1)

    return drive(choice.fit(study.setting), answer).sums


def _times(choice: Choice, study: ClassStudy) -> float:
    """How often a client is asked: a server that draws the cohort does not ask the others."""
    assert choice.rounds is not None
    return choice.rounds * (1.0 if study.trust.clients_sample else choice.participation)


def _by_noise(relative: float) -> Word:
    return Word.USABLE if relative <= CLEAR else Word.NOISY if relative <= DROWNED else Word.DROWNED


def _with_few_rows(plain: PlannedMethod, rows: float, what: str) -> PlannedMethod:
    return replace(plain, word=Word.FEW_ROWS, reason=f"there are about {rows:.2g} rows {what}")
