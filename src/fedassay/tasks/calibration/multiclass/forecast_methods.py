"""Methods of calibrating logits, each with the noise that enters it and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from fedassay.errors import UnsupportedQuery
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Plan, Query, Released
from fedassay.summaries.multiclass.calibrator_sums import MOST_NEWTON, ScalingSums
from fedassay.summaries.multiclass.local_fits import AVERAGED as AVERAGED_MAPS
from fedassay.tasks.calibration.multiclass.calibrate import (
    AUTO,
    AVERAGED,
    EXACT,
    ONE_SHOT,
    ROUNDS,
    SCALINGS,
    CalibratorChoice,
)
from fedassay.tasks.calibration.multiclass.exact import GRADIENT_SUMS
from fedassay.tasks.calibration.multiclass.fedavg import NOISIEST
from fedassay.tasks.calibration.multiclass.isotonic_fit import FEWEST_ROWS, PRIOR_ROWS
from fedassay.tasks.calibration.multiclass.rehearsal import LogitsStudy, drive, queries_of, temperature_error
from fedassay.tasks.evaluation.typical_model import TypicalClients
from fedassay.tasks.forecast import DetailTable

CLEAR, DROWNED = 0.5, 2.0
"""Thresholds of noise relative to the signal of a method: usable up to the first, noisy up to the second."""

ROWS_PER_PARAMETER = 10
"""Rows per parameter below which the optimum describes these rows rather than the model."""

ROWS_ALONE = 10
"""Rows of a client that fits by itself, below which its fit is nearly meaningless."""

_EXACT_ROWS = 1_000


class Usefulness(StrEnum):
    """Usefulness of a method, in a word.

    For methods of one release: the error of the temperature is within the target; or at least half of the possible
    gain will be reached (the rest grows as the square of the error); or less. For averages: the noise in a
    mean update is at most half as long as the longest update; or up to twice, beyond which a run refuses. For counts:
    the noise in a bin is at most half of the rows of a class that are in a bin on average; or up to twice; or more,
    which was worse than leaving the model alone wherever it was tried. Without noise, and for averages, it also depends
    on the number of rows.
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
    parameters : number of learnt parameters; None for binnings.
    noise : law of the noise in one release. `deviation` is its standard deviation in the units of `of`.
    relative : the number that decides `usable`: the noise relative to the signal; for the temperature from one release,
        its whole error relative to the target.
    answers, bytes : numbers of one client; None where nothing can be asked, see `reason`. `at_most` if it may be fewer.
    """

    method: str
    solver: str
    rounds: int | None
    participation: float
    parameters: int | None = None
    noise: Noise = NO_NOISE
    of: str = ""
    deviation: float = 0.0
    relative: float = 0.0
    usable: Usefulness = Usefulness.USABLE
    reason: str = ""
    answers: float | None = None
    bytes: int | None = None
    at_most: bool = False

    @property
    def title(self) -> str:
        """Name of the method, with its solver."""
        return self.method if self.solver == "counts" else f"{self.method} ({self.solver})"

    def costing(self, case: LogitsStudy, queries: Sequence[Query[Any]], times: float) -> PlannedMethod:
        """Return the method with the cost of these queries, asked together this number of times."""
        return replace(self, answers=times, bytes=round(times * case.study.bytes_of(*queries)))

    def with_few_rows(self, rows: float, what: str) -> PlannedMethod:
        """Return the method with the verdict that there are too few rows."""
        return replace(self, usable=Usefulness.FEW_ROWS, reason=f"there are about {rows:.2g} rows {what}")

    def to_row(self) -> dict[str, Any]:
        """Return the row of the table of methods."""
        return {
            "method": self.title,
            "rounds": self.rounds,
            "participation": self.participation,
            "parameters": self.parameters,
            **({"noise": self.deviation, "of": self.of} if self.of else {}),
            "relative": self.relative,
            "answers": self.answers,
            "kilobytes": None if self.bytes is None else self.bytes / 1e3,
            "at_most": self.at_most,
            "usable": str(self.usable),
            **({"reason": self.reason} if self.reason else {}),
        }


def method_table(methods: Sequence[PlannedMethod]) -> DetailTable:
    """Build the table of all methods: their noise, and the messages of one client."""
    return DetailTable(
        title="The methods: the noise that enters (sd), and what one client sends and gets",
        columns={
            "method": "method",
            "rounds": "rounds",
            "noise": "noise",
            "of": "of",
            "answers": "answers",
            "kilobytes": "kB",
            "usable": "it is",
        },
        rows=[method.to_row() for method in methods],
        digits={"noise": ".2g", "answers": ".3g", "kilobytes": ",.1f"},
    )


def choices(
    case: LogitsStudy, *, rounds: int | None = None, participation: float = 1.0
) -> tuple[CalibratorChoice, ...]:
    """Return all methods that can be asked for, the default first."""
    private = case.study.trust.private
    auto = case.choice(AUTO, AUTO).settled(case.setting)
    by = AVERAGED if private else AUTO
    others = [(method, by) for method in SCALINGS] + [("bbq", AUTO)]
    return (
        auto,
        *((case.choice("temperature", ONE_SHOT),) if private and auto.method != "temperature" else ()),
        *(
            case.choice(method, solver, rounds=rounds, participation=participation)
            for method, solver in others
        ),
    )


def planned_method(choice: CalibratorChoice, case: LogitsStudy, *, target: float) -> PlannedMethod:
    """Plan one of `choices`; `target` is the error of a temperature that is small enough."""
    choice = choice.settled(case.setting)
    plain = PlannedMethod(
        method=choice.method, solver=choice.solver, rounds=choice.rounds, participation=choice.participation
    )
    try:
        if choice.solver == ONE_SHOT:
            return _one_shot(plain, choice, case, target)
        if choice.solver == AVERAGED:
            return _averaging(plain, choice, case)
        if choice.solver == EXACT:
            return _exact(plain, choice, case)
        return _counted(plain, choice, case)
    except UnsupportedQuery as problem:
        return replace(plain, usable=Usefulness.REFUSED, reason=str(problem))


def _one_shot(
    plain: PlannedMethod, choice: CalibratorChoice, case: LogitsStudy, target: float
) -> PlannedMethod:
    error = temperature_error(case, method=choice.method)
    half_the_gain = abs(math.log(case.model.temperature)) / math.sqrt(2)  # the loss grows as the square
    return replace(
        plain,
        answers=len(error.queries),
        bytes=sum(case.study.bytes_of(query) for query in error.queries),
        rounds=len(error.queries),
        parameters=1 if choice.method == "temperature" else 1 + choice.classes,
        noise=error.noises[0],
        of="log s",
        deviation=error.privacy,
        relative=error.total / target,
        usable=_by_noise(error.total, clear=target, drowned=half_the_gain),
    )


def _averaging(plain: PlannedMethod, choice: CalibratorChoice, case: LogitsStudy) -> PlannedMethod:
    plan, deviation = averaged(choice, case)
    size = AVERAGED_MAPS[choice.method].size(choice.classes)
    relative = deviation * math.sqrt(size)
    found = replace(
        plain.costing(case, [plan.query], _times(choice, case)),
        parameters=size,
        noise=plan.noise,
        of="clips" if deviation else "",
        deviation=deviation,
        relative=relative,
        usable=_by_noise(relative),
    )
    if relative > NOISIEST:
        reason = f"the noise in a mean update would be {relative:.3g} times as long as the longest update"
        return replace(found, usable=Usefulness.REFUSED, reason=reason)
    few = case.each < ROWS_ALONE
    return found.with_few_rows(case.each, "at each client, which fits by itself") if few else found


def _counted(plain: PlannedMethod, choice: CalibratorChoice, case: LogitsStudy) -> PlannedMethod:
    """Plan isotonic maps and binnings."""
    queries = queries_of(next(choice.fit(case.setting)))
    times = 1.0 if choice.rounds is None else _times(choice, case)
    plain = plain.costing(case, queries, times)
    query = queries[0]
    noise = case.setting.noise(query)
    if noise.variance == 0:
        rows, enough, what = case.fit_rows, float(FEWEST_ROWS), "in all"
        if choice.method != "isotonic":
            rows, enough, what = rows / choice.classes, PRIOR_ROWS, "for each class"
        return plain if rows >= enough else plain.with_few_rows(rows, what)
    assert choice.rounds is not None
    seen = choice.rounds * choice.participation * case.typical_clients
    counts = query.of.read(case.typical.total(query.of, seen))
    # Noise adds up over rounds, as counts do.
    sigma = math.sqrt(choice.rounds * noise.variance)
    positives, negatives = counts.unit_positive * sigma, counts.unit_negative * sigma
    relative = math.hypot(positives, negatives) / max(float(counts.by_class.mean()) / counts.bins, 1e-300)
    return replace(
        plain,
        noise=noise,
        of="rows",
        deviation=positives,
        relative=relative,
        usable=_by_noise(relative),
    )


def _exact(plain: PlannedMethod, choice: CalibratorChoice, case: LogitsStudy) -> PlannedMethod:
    """Plan an exact fit; the number of queries depends on the rows: about that for typical rows."""
    (query,) = queries_of(next(choice.fit(case.setting)))
    size = len(cast(ScalingSums, query.of).theta)
    newton, each = size <= MOST_NEWTON, case.fit_rows / size
    plain = plain.costing(case, [query], _sums(choice, case) if newton else GRADIENT_SUMS)
    plain = replace(plain, parameters=size, at_most=not newton)
    return plain if each >= ROWS_PER_PARAMETER else plain.with_few_rows(each, "for each parameter")


def _sums(choice: CalibratorChoice, case: LogitsStudy) -> int:
    rows = TypicalClients(model=case.model, each=min(_EXACT_ROWS, case.model.most_each)).rows[0]

    def answer(query: Query[Any]) -> Released[Any]:
        return Released(value=query.of.read(query.of.measure(rows, {})[0]), noise=NO_NOISE, clients=1)

    return drive(choice.fit(case.setting), answer).sums


def _times(choice: CalibratorChoice, case: LogitsStudy) -> float:
    """Return the number of queries to a client: a server that draws the cohort asks no other client."""
    assert choice.rounds is not None
    return choice.rounds * (1.0 if case.study.trust.clients_sample else choice.participation)


def _by_noise(relative: float, *, clear: float = CLEAR, drowned: float = DROWNED) -> Usefulness:
    useful = Usefulness.NOISY if relative <= drowned else Usefulness.DROWNED
    return Usefulness.USABLE if relative <= clear else useful


# --- averages, with and without sampling ----------------------------------------------------------------


def averaged(choice: CalibratorChoice, case: LogitsStudy) -> tuple[Plan, float]:
    """Return the plan of one round, and the noise deviation in a parameter of the mean update, in clips."""
    averaging = choice.averaged(case.setting, noisiest=math.inf).prepared
    plan = case.setting.plan(averaging.query(averaging.start))
    return plan, averaging.spread / averaging.longest if plan.noise.variance else 0.0


def sampled_rounds(
    case: LogitsStudy, *, rounds: int | None, participation: float
) -> tuple[Mapping[str, Any], ...]:
    """Compare the noise of the same rounds with all clients and with those drawn by a secret coin.

    Sampling needs less noise, but the mean is over fewer clients. The result is empty where the coin does not count for
    the guarantee.
    """
    if not case.study.trust.clients_sample:
        return ()
    lines = []
    for rate in (1.0, participation):
        choice = case.choice("temperature", AVERAGED, rounds=rounds or ROUNDS, participation=rate)
        plan, deviation = averaged(choice, case)
        if rate < 1 and plan.sampled == 1:
            return ()
        multiplier = plan.noise.scale / math.ceil(plan.sensitivity.l2)
        names = ("participation", "rounds", "noise_multiplier", "standard_deviation")
        lines.append(dict(zip(names, (rate, choice.rounds, multiplier, deviation), strict=True)))
    return tuple(lines)


def sampling_table(lines: Sequence[Mapping[str, Any]]) -> DetailTable:
    """Build the table of averaging with and without sampling of clients."""
    headings = ("participation", "rounds", "noise of a round / sensitivity", "sd in the mean, clips")
    return DetailTable(
        title="Federated averaging with and without sampling",
        columns=dict(zip(lines[0], headings, strict=True)),
        rows=lines,
        digits={"participation": "g", "noise_multiplier": ".3g"},
    )
