"""Results of a regression, as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Setting
from fedassay.summaries.regression.losses import LogLoss
from fedassay.summaries.regression.moments import Moments, Standard
from fedassay.tasks.inference.estimate import CoefficientEstimate, Contrast
from fedassay.tasks.inference.newton import SITE, RegressionFit
from fedassay.tasks.inference.online import SCALING, Course, RoundHistory
from fedassay.tasks.inference.private_rounds import PrivateCourse, PrivateSeen

if TYPE_CHECKING:
    from fedassay.tasks.inference.infer import Infer


ENOUGH_CLUSTERS = 10

UNSETTLED = 0.15
"""Standard errors (`Path.unsettled`) above which the result says that the path may still have been on its way."""

_ERRORS = ("standard_error", "statistic", "p_value", "interval")
ENOUGH_TO_SCALE = 1000
"""Rounds from which 95 % intervals of random scaling cover 0.9 or more (docs/experiments/inference.md)."""

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


def parsed(text: str, names: Sequence[str]) -> tuple[dict[str, float], float]:
    """Return the weights of a contrast and the value that it is compared with.

    Examples
    --------
    >>> parsed("age - 2*bmi = 0.5", ["age", "bmi"])
    ({'age': 1.0, 'bmi': -2.0}, 0.5)
    """
    marks = {f"\x00{place}\x00": name for place, name in enumerate(names)}
    marked = text.replace("\x00", " ")
    # Names may hold signs, blanks and "=": the longest ones are taken first, and stand for themselves.
    for mark, name in sorted(marks.items(), key=lambda pair: -len(pair[1])):
        marked = re.sub(rf"(?<![\w\x00]){re.escape(name)}(?![\w\x00])", mark, marked)
    left, _, right = marked.partition("=")
    try:
        value = float(right) if right.strip() else 0.0
        weights = _weights(left, marks)
        if not all(np.isfinite([value, *weights.values()])) or not any(weights.values()):
            raise ValueError("its numbers are not finite, or all 0")
    except ValueError as error:
        raise UsageError(
            f"contrasts: got {text!r} ({error}), expected weighted coefficients such as 'a - 2*b = 0', of "
            f"{', '.join(names)}."
        ) from None
    return weights, value


def _weights(text: str, marks: Mapping[str, str]) -> dict[str, float]:
    rest = text.strip()
    rest = rest if rest[:1] in ("+", "-") else f"+{rest}"
    term = re.compile(rf"\s*([+-])\s*(?:({_NUMBER})\s*\*?\s*)?(\x00\d+\x00)\s*")
    weights: dict[str, float] = {}
    at = 0
    while at < len(rest):
        found = term.match(rest, at)
        if found is None:
            raise ValueError(f"what is {_shown(rest[at:], marks)!r}?")
        sign, number, mark = found.groups()
        name = marks[mark]
        weights[name] = weights.get(name, 0.0) + float(f"{sign}{number or 1}")
        at = found.end()
    return weights


def _shown(text: str, marks: Mapping[str, str]) -> str:
    for mark, name in marks.items():
        text = text.replace(mark, name)
    return text.strip()


def normal(text: str, names: Sequence[str]) -> str:
    """Return the contrast as it was given; raise if it cannot be understood."""
    parsed(text, names)
    return text.strip()


def scale_of(
    scales: Sequence[str], features: Sequence[str], *, intercept: bool, linear: bool, offset: bool
) -> Standard:
    """Return the common scale that these words give; 0 and 1 for what they leave out.

    Examples
    --------
    >>> scale_of(["a=0:1", "b=2:4", "target=1:3"], ["a", "b"], intercept=True, linear=True, offset=False).scales
    (1.0, 4.0)
    """
    known = [*features, *(["target"] if linear else [])]
    found: dict[str, tuple[float, float]] = {}
    for text in scales:
        name, _, numbers = text.rpartition("=")
        centre, colon, spread = numbers.partition(":")
        try:
            given = float(centre), float(spread)
        except ValueError:
            given = (math.nan, math.nan)
        if name.strip() not in known or not colon or not np.isfinite(given).all() or not given[1] > 0:
            raise UsageError(
                f"scales: got {text!r}, expected a name, a mean and a spread above 0, such as 'age=50:10', of "
                f"{', '.join(known)}."
            )
        found[name.strip()] = given
    missing = [name for name in known if name not in found] if scales else []
    if missing:
        raise UsageError(
            f"scales: got none of {', '.join(missing)}, expected one for each feature and the target of a linear "
            "model; NAME=0:1 leaves one as it is."
        )
    centres, spreads = (
        zip(*(found.get(name, (0.0, 1.0)) for name in features), strict=True) if features else ((), ())
    )
    middle, width = found.get("target", (0.0, 1.0))
    # Without an intercept nothing can be shifted.
    return Standard(
        features=len(features),
        centres=centres if intercept else (),
        scales=spreads,
        intercept=intercept,
        target_centre=middle if intercept else 0.0,
        target_scale=width,
        offset=offset,
    )


def _fit(task: Infer, reason: str, *, rounds: int, **known: Any) -> dict[str, Any]:
    """Describe what was fitted, and how; it converged unless there is a reason why not."""
    return {
        "method": task.method,
        "model": task.model,
        "variance": None,
        "rounds": rounds,
        "rows": None,
        "clients": None,
        "converged": not reason,
        "reason": reason,
        "loss": None,
        **known,
    }


def private(
    task: Infer,
    estimate: CoefficientEstimate,
    seen: PrivateSeen,
    course: PrivateCourse,
    setting: Setting,
    note: str,
) -> dict[str, Any]:
    """Return the results of rounds under noise."""
    fit = _fit(
        task,
        estimate.withheld,
        rounds=seen.seen.rounds,
        clients=setting.clients,
        participation=course.participation,
        clip=course.clips(len(task.names))[0],
        decay=course.decay,
        noise=dict(seen.noise),
    )
    scale = "Each client counts alike, and rows are on the scale that was given."
    notes = [*_withheld(estimate), scale, *([note] if note else [])]
    return {**_coefficients(task, estimate), "fit": fit, "path": [], "notes": notes}


def newton(task: Infer, fit: RegressionFit, moments: Moments) -> dict[str, Any]:
    """Return the results of the pooled fit."""
    found = _fit(
        task,
        fit.reason,
        variance=task.variance,
        rounds=fit.sums + 1,
        rows=fit.rows,
        clients=fit.clients,
        loss=fit.loss,
    )
    notes = [
        *_data_notes(moments),
        *_cluster_notes(task, fit),
        *([f"The fit ended early: {fit.reason}."] if fit.reason else []),
    ]
    return {**_coefficients(task, fit.estimate), "fit": found, "path": [], "notes": notes}


def _cluster_notes(task: Infer, fit: RegressionFit) -> list[str]:
    if task.variance != SITE or fit.clients >= ENOUGH_CLUSTERS:
        return []
    return [
        f"Standard errors by client rest on {fit.clients} clients, and are themselves uncertain; {ENOUGH_CLUSTERS} or "
        "more are advised."
    ]


def streamed(
    task: Infer,
    estimate: CoefficientEstimate,
    seen: RoundHistory,
    course: Course,
    standard: Standard,
    moments: Moments | None,
    state: Mapping[str, Any],
    doubt: str | None = None,
) -> dict[str, Any]:
    """Return the results of rounds of federated averaging; `doubt` is what else is to be reported of the rows."""
    fit = _fit(
        task,
        estimate.withheld,
        rounds=seen.path.rounds,
        rows=seen.rows,
        clients=None if moments is None else moments.clients,
        participation=course.participation,
        local_steps=seen.mean_steps,
        step=course.sizes.first,
        decay=course.sizes.decay,
    )
    # Earlier rounds were further from the optimum: where the last ones have no intervals, they have none.
    path = [] if estimate.withheld else [_snapshot(*shown, standard) for shown in seen.shown]
    notes = [
        *_withheld(estimate),
        *([] if moments is None else _data_notes(moments)),
        *([doubt] if doubt else []),
    ]
    notes += _round_notes(task, seen, course, moments, settled=not estimate.withheld)
    return {**_coefficients(task, estimate), "fit": fit, "path": path, "state": dict(state), "notes": notes}


def _snapshot(at: int, value: Floats, covariance: Floats, standard: Standard) -> dict[str, Any]:
    matrix = standard.matrix
    variances = np.diagonal(matrix @ covariance @ matrix.T)
    return {
        "round": int(at),
        "values": standard.back(value).tolist(),
        "standard_errors": np.sqrt(np.maximum(0.0, variances)).tolist(),
    }


def _coefficients(task: Infer, estimate: CoefficientEstimate) -> dict[str, Any]:
    """Return coefficients and contrasts; only their values, and the reason, where rounds have not arrived."""
    reason = estimate.withheld
    withheld = {**dict.fromkeys(_ERRORS), "level": task.level, "reason": reason} if reason else {}
    together = [None] * len(task.names) if reason else estimate.simultaneous(task.level).tolist()
    coefficients = []
    for name, interval in zip(estimate.names, together, strict=True):
        tested = _tested(estimate.contrast({name: 1.0}), task.level) | withheld
        odds = {"odds_ratio": _odds(tested)} if task.model == LogLoss.name else {}
        coefficients.append({"name": name, **tested, "simultaneous_interval": interval, **odds})
    contrasts = []
    for text in task.contrasts:
        weights, value = parsed(text, task.names)
        tested = _tested(estimate.contrast(weights, value), task.level) | withheld
        named = {
            "contrast": text,
            "value": tested.pop("value"),
            "standard_error": tested.pop("standard_error"),
        }
        contrasts.append({**named, "against": value, **tested})
    return {
        "coefficients": coefficients,
        "covariance": None if reason else estimate.covariance.tolist(),
        "law": type(estimate.law).__name__,
        "contrasts": contrasts,
    }


def _tested(contrast: Contrast, level: float) -> dict[str, Any]:
    """Return a coefficient, or a weighted sum of some, with its error, its test and its interval."""
    statistic = contrast.statistic
    return {
        "value": contrast.estimate,
        "standard_error": contrast.standard_error,
        "statistic": statistic if np.isfinite(statistic) else None,
        "p_value": contrast.p_value,
        "interval": list(contrast.interval(level)),
        "level": level,
    }


def _withheld(estimate: CoefficientEstimate) -> list[str]:
    """Return a note why there are values only."""
    said = estimate.withheld
    return [f"{said[0].upper()}{said[1:]}."] if said else []


def without_values(task: Infer, reason: str, *, rounds: int) -> dict[str, Any]:
    """Return the results of a regression that has no fit: every coefficient with the reason why."""
    unknown = {**dict.fromkeys(("value", *_ERRORS)), "level": task.level, "reason": reason}
    return {
        "coefficients": [{"name": name, **unknown, "simultaneous_interval": None} for name in task.names],
        "covariance": None,
        "law": "Normal",
        "contrasts": [
            {"contrast": text, "against": parsed(text, task.names)[1], **unknown} for text in task.contrasts
        ],
        "fit": _fit(task, reason, rounds=rounds, participation=task.participation),
        "path": [],
        "notes": [reason],
    }


def _odds(tested: Mapping[str, Any]) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        ends = np.exp([tested["value"], *(tested["interval"] or ())]).tolist()
    finite = [end if math.isfinite(end) else None for end in ends]
    return {"value": finite[0], "interval": finite[1:] or None}


def _data_notes(moments: Moments) -> list[str]:
    notes = []
    if moments.constant_targets and moments.rows >= 2 * moments.clients:
        one = moments.constant_targets == 1
        notes.append(
            f"{moments.constant_targets:,} of {moments.clients:,} clients {'has' if one else 'have'} the same target "
            f"in every row: {'it says' if one else 'they say'} nothing about slopes but by comparison with others."
        )
    return notes


def _round_notes(
    task: Infer, seen: RoundHistory, course: Course, moments: Moments | None, *, settled: bool
) -> list[str]:
    notes = []
    if seen.again:
        part = seen.again / max(1, seen.answers)
        fewer = int(course.rounds * (1 - part))
        instead = f"ask for fewer rounds (about --rounds {fewer}), or take" if fewer >= 8 else "take"
        notes.append(
            f"In {part:.0%} of all visits clients had come to the end of their rows and began again: intervals count "
            f"rows as new that were used before, and are too narrow; {instead} the method newton."
        )
    if moments is not None and seen.rows < 0.5 * moments.rows and not seen.again:
        notes.append(
            f"Only {seen.rows:,} of {moments.rows:,} rows were used: a client takes the same number in each round, and "
            "leaves the rest; other numbers of rounds, or the method newton, use more."
        )
    if settled and course.restarts and float(seen.path.unsettled) > UNSETTLED:
        notes.append(
            "The path may still have been on its way to the optimum where the estimate begins to count it: estimates "
            "can be off and intervals too narrow; ask for more rounds or more rows, or take the method newton."
        )
    if settled and course.intervals == SCALING and seen.path.rounds < ENOUGH_TO_SCALE:
        notes.append(
            "Intervals of random scaling are too narrow after few rounds: of 95 % intervals about 0.7 cover after 10 "
            "rounds, 0.85 after 50 and 0.9 after 200; ask for more rounds, or take the method round-plug-in."
        )
    if task.local_steps > 1 and seen.mean_steps < 0.75 * task.local_steps:
        notes.append(
            f"Clients did {seen.mean_steps:.1f} local steps in a round on average and not {task.local_steps}: a step "
            "needs a row of its own."
        )
    if task.state is not None:
        notes.append(
            "This run goes on from a state: rows that an earlier run has used and that are in these data again count "
            "twice, and make intervals too narrow."
        )
    if task.local == "published" and task.local_steps > 1:
        notes.append(
            "Local steps are not corrected, as published: estimates are biased where clients differ and do several."
        )
    return notes
