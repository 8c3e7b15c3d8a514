"""Artefact of a conformal run: thresholds that turn a model's predictions into intervals or sets.

A set holds the values that score at most the threshold. The file is plain JSON, checked when it is loaded, never
executed. The interval of all values that score at most a threshold is exact to the last bit.

The scores of regression are max(lower - y, y - upper) / scale, with lower = upper for a single prediction. Computed in
doubles, each difference is rounded, so that lower - t·scale and upper + t·scale, rounded again, can leave out a value
whose score is at most t. Where scores are tied (rounded measurements, say) such values are not rare, and coverage would
be lost. Rounding never reverses an order, so the values that score at most t are an interval of doubles: its ends are
found here.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.reading import Read, read_arrays
from fedassay.artefacts.stored import load_artefact, number, words
from fedassay.artefacts.thresholds import (
    FORMAT,
    KIND,
    Threshold,
    check_parts,
    fields_from_json,
    fields_of,
    limits,
    warnings_of,
)
from fedassay.data.lists import FEWEST_CLASSES
from fedassay.data.schema import CLIENT, LARGEST_CLASS
from fedassay.data.wide import looks_like_probabilities, probabilities_warning
from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.law import checked_level
from fedassay.protocol.arrays import Bools, Floats, Ints
from fedassay.protocol.files import write_atomically
from fedassay.protocol.result import Result
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, scores_of, sets_of
from fedassay.summaries.scored import EVERYONE
from fedassay.version import VERSION

# --- number of classes of a predictor -----------------------------------------------------------------------


def checked_classes(classes: object, *, score: str, by: str, parts: int) -> int | None:
    """Return the number of classes; None for scores without classes, or if it is not stated.

    Thresholds of classes determine it too, and for ``binary`` it is always two.

    Examples
    --------
    >>> checked_classes(None, score="lac", by="class", parts=3), checked_classes(5, score="aps", by="", parts=1)
    (3, 5)
    """
    known = QUANTITIES[score]
    if not known.gives_sets:
        if by == "class" or classes is not None:
            what = "by class" if by == "class" else "classes"
            raise UsageError(
                f"{what}: the score {score} has no classes, expected one of lac, aps, raps, binary."
            )
        return None
    if classes is None:
        classes = known.classes
    if classes is None:
        return parts if by == "class" else None
    if known.classes not in (None, classes):
        raise UsageError(f"classes: the score {score} has {known.classes} of them, expected that or nothing.")
    if type(classes) is not int or not FEWEST_CLASSES <= classes <= LARGEST_CLASS + 1:
        raise UsageError(f"classes: expected a whole number of at least {FEWEST_CLASSES}, or nothing.")
    if by == "class" and classes != parts:
        raise UsageError(f"thresholds: got {parts} for {classes} classes, expected one for each.")
    return classes


def check_width(rows: Read, classes: int | None) -> None:
    """Refuse logits of another number of classes than that of the calibration."""
    if classes is None or "logits" not in rows.chunk.columns:
        return
    width = rows.chunk.columns["logits"].shape[1]
    if width != classes:
        raise DataError(
            f"{rows.table.label}, logits: got {width} classes, expected the {classes} that it was calibrated on; "
            "export the logits of the same classes, in the same order."
        )


def warn_of_probabilities(rows: Sequence[Read]) -> None:
    """Give a `UserWarning` at the caller's caller, if all rows have probabilities in the place of logits."""
    if rows and all(looks_like_probabilities(one.chunk.columns["logits"]) for one in rows):
        name = rows[0].columns.names["logits"]
        warnings.warn(probabilities_warning(rows[0].table.label, name).sentence(), UserWarning, stacklevel=3)


# --- the interval of all values that score at most a threshold ----------------------------------------------


_BLOCK = 1 << 14
"""Number of rows at a time, so that temporary arrays stay in the processor's cache."""

_NEAR = 4 * np.finfo(np.float64).eps
"""Largest error of the end of an interval by rounding, relative to the largest number involved."""


def intervals(lower: ArrayLike, upper: ArrayLike, scale: ArrayLike, threshold: ArrayLike) -> Floats:
    """Return lower and upper ends (n x 2) of the values y with max(lower - y, y - upper) / scale <= threshold.

    Guarantee: a finite double y is in the interval (ends included) exactly if its score, as `scores_of` computes it,
    is at most the threshold. Edge cases: no value scores so little (a negative threshold of CQR): both ends are NaN; an
    infinite threshold: -inf and inf.

    Parameters
    ----------
    lower, upper : the model's quantiles; equal for a single prediction. Finite.
    scale : above 0; 1 for scores without a scale.
    threshold : a single threshold, or a threshold per row; +inf is allowed.

    Examples
    --------
    >>> intervals([1.0, 3.0], [2.0, 3.0], 1.0, 0.5)
    array([[0.5, 2.5],
           [2.5, 3.5]])
    >>> intervals([1.0, 3.0], [1.5, 3.0], 1.0, [-1.0, np.inf])
    array([[ nan,  nan],
           [-inf,  inf]])
    """
    unscaled = np.ndim(scale) == 0 and float(np.asarray(scale)) == 1.0
    a, b, s, t = np.broadcast_arrays(
        *(np.asarray(column, dtype=np.float64) for column in (lower, upper, scale, threshold))
    )
    ends = np.empty((a.size, 2))
    for start in range(0, a.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        by = None if unscaled else s[part]
        ends[part, 0] = -_largest(-a[part], by, t[part])
        ends[part, 1] = _largest(b[part], by, t[part])
    ends += 0.0  # no -0.0
    ends[ends[:, 0] > ends[:, 1]] = np.nan
    return ends


def _largest(anchor: Floats, scale: Floats | None, threshold: Floats) -> Floats:
    """Return the largest double y with (y - anchor) / scale <= threshold, both operations rounded; no scale is 1.

    Nearly always it is anchor + threshold·scale, rounded, or the double before it; the others are searched for.
    """
    with np.errstate(all="ignore"):  # an infinite threshold, or one end beyond all doubles
        about = _sum(anchor, threshold) if scale is None else anchor + threshold * scale
        found = np.where(_score(about, anchor, scale) <= threshold, about, _moved(about, -1))
        settled = _score(found, anchor, scale) <= threshold
        settled &= _score(_moved(found, 1), anchor, scale) > threshold
        if not settled.all():
            rest = np.flatnonzero(~settled)
            limit, by = threshold[rest], np.ones(rest.size) if scale is None else scale[rest]
            found[rest] = np.where(limit == np.inf, np.inf, _searched(anchor[rest], by, limit))
    return found


def _sum(anchor: Floats, threshold: Floats) -> Floats:
    """Approximate the largest y for which y - anchor rounds to the threshold: half a unit of it more than the sum.

    The error of the sum is added (Knuth's two-sum), because y can have finer digits than the threshold.
    """
    about = anchor + threshold
    added = about - anchor
    error = (anchor - (about - added)) + (threshold - added)
    return about + (error + np.spacing(threshold) / 2)


def _score(y: Floats, anchor: Floats, scale: Floats | None) -> Floats:
    """Compute the score as `scores_of` does."""
    away = y - anchor
    return away if scale is None else away / scale


def _moved(values: Floats, steps: int) -> Floats:
    """Return the next doubles, above for 1, below for -1; no numbers next to zero and infinity: a search follows."""
    bits = values.view(np.int64)
    return np.asarray(bits + steps * ((bits >> 63) | 1)).view(np.float64)


def _searched(anchor: Floats, scale: Floats, threshold: Floats) -> Floats:
    """Compute `_largest` by bisection over the doubles."""
    size = threshold * scale
    about = anchor + size
    near = _NEAR * np.maximum(np.abs(anchor), np.abs(size)) + np.finfo(np.float64).tiny
    # `first` scores at most the threshold, `last` more: usually a few doubles apart.
    first, last = _order(about - near), _order(about + near)
    first = np.where(_fits(first, anchor, scale, threshold), first, _order(np.full_like(about, -np.inf)))
    last = np.where(_fits(last, anchor, scale, threshold), _order(np.full_like(about, np.inf)), last)
    open_ = np.flatnonzero((last > first + 1) & (threshold < np.inf))
    while open_.size:
        a, b = first[open_], last[open_]
        middle = (a >> 1) + (b >> 1) + (a & b & 1)  # their sum could be too large
        fits = _fits(middle, anchor[open_], scale[open_], threshold[open_])
        first[open_[fits]], last[open_[~fits]] = middle[fits], middle[~fits]
        open_ = open_[last[open_] > first[open_] + 1]
    return _double(first)


def _fits(place: Ints, anchor: Floats, scale: Floats, threshold: Floats) -> NDArray[np.bool_]:
    return np.asarray((_double(place) - anchor) / scale <= threshold)


def _order(values: Floats) -> Ints:
    """Return whole numbers in the order of the doubles, without gaps: 0.0 is 0, the next double 1."""
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits, bits)


def _double(places: Ints) -> Floats:
    """Return the doubles at these places."""
    bits = np.where(places < 0, np.int64(np.iinfo(np.int64).min) - places, places)
    return np.asarray(bits, dtype=np.int64).view(np.float64)


# --- the predictor of a conformal run -----------------------------------------------------------------------

TRUTH = ("target", "class", "label")
"""Roles that only labelled rows have; prediction does not need them."""


@dataclass(frozen=True, kw_only=True)
class ConformalPredictor:
    """Prediction intervals or sets from thresholds that a federation has agreed on.

    Parameters
    ----------
    method, level : how the thresholds were found, and the requested coverage.
    score, parameters : the conformity score (`fedassay.summaries.quantities`).
    by : the parts with thresholds of their own: none (``""``, the only threshold is called ``all``), each ``class``,
        each ``group``, or each ``client`` (the method local).
    thresholds : by name, each with its guarantee.
    classes : the number of classes; None for scores of numbers, or if it is not stated; 2 for the score binary, whose
        parameters are a calibrator (`fedassay.summaries.maps.numbers_of`), or none.
    columns : the column that played each role, such as ``{"target": "y", "prediction": "p"}``.
    notes : other notes of the run.
    privacy : the `privacy` part of the result that it comes from.

    Guarantee: that of each threshold, for rows like those of the calibration. Membership of a set is
    decided exactly: a value is in it if and only if its score, as the calibration computes scores, is at most the
    threshold. `save` and `load` keep every number bit for bit; loading executes nothing from the file.

    Edge cases: an infinite threshold gives (-inf, inf) or all classes; a set of ``lac`` and of ``binary`` can be
    empty, and so can an interval of CQR, whose ends are then NaN; thresholds per class give label-conditional
    (Mondrian) sets, in which each class is held against its own threshold.

    Examples
    --------
    >>> from fedassay.artefacts.thresholds import StoredGuarantee, Threshold
    >>> promise = StoredGuarantee(kind="marginal", level=0.9, text="A new row is covered with probability 0.9.")
    >>> predictor = ConformalPredictor(
    ...     method="qq", level=0.9, score="absolute", thresholds={"all": Threshold(value=0.5, guarantee=promise)}
    ... )
    >>> predictor.predict_interval([1.0, 3.0])
    array([[0.5, 1.5],
           [2.5, 3.5]])
    >>> predictor.covers(predictor.conformity(target=[1.2, 4.0], prediction=[1.0, 3.0]))
    array([ True, False])
    """

    method: str
    level: float
    score: str
    parameters: tuple[float, ...] = ()
    by: str = ""
    thresholds: Mapping[str, Threshold] = field(repr=False)
    classes: int | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), repr=False)
    privacy: Mapping[str, Any] | None = field(default=None, repr=False)
    fedassay: str = VERSION

    def __post_init__(self) -> None:
        words(self.method, "method")
        object.__setattr__(self, "level", checked_level(number(self.level, "level")))
        if self.score == "value":
            raise UsageError(
                "score: got 'value', which is a column without a prediction, expected a conformity score."
            )
        object.__setattr__(self, "parameters", checked_quantity(self.score, self.parameters))
        check_parts(self.by, tuple(self.thresholds))
        classes = checked_classes(self.classes, score=self.score, by=self.by, parts=len(self.thresholds))
        object.__setattr__(self, "classes", classes)

    @classmethod
    def of(cls, result: Result) -> ConformalPredictor:
        """Return the predictor of a result of `fedassay.conformal`.

        Raises `DataError` with the reason if the result has no threshold.
        """
        return cls(**fields_of(result))

    # --- properties ------------------------------------------------------------------------------------------

    @property
    def threshold(self) -> float:
        """The only threshold; see `thresholds` if there are several."""
        if self.by:
            raise UsageError(f"threshold: each {self.by} has its own; see `thresholds`.")
        return self.thresholds[EVERYONE].value

    @property
    def inputs(self) -> tuple[str, ...]:
        """Roles of the columns that prediction needs. The true class is not among them: all classes are tried."""
        roles = tuple(role for role in QUANTITIES[self.score].columns if role not in TRUTH)
        return (*roles, self.by) if self.by in ("group", CLIENT) else roles

    @property
    def gives_sets(self) -> bool:
        """True if it predicts sets of classes; otherwise intervals, or nothing for a user-defined score."""
        return QUANTITIES[self.score].gives_sets

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user: thresholds that promise nothing, or sets that hold everything."""
        return warnings_of(self.by, self.thresholds)

    # --- use -------------------------------------------------------------------------------------------------

    def predict_interval(
        self,
        prediction: ArrayLike | None = None,
        *,
        scale: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        group: ArrayLike | None = None,
        client: ArrayLike | None = None,
    ) -> Floats:
        """Return the lower and the upper end of each row's interval, both included: an array of n x 2.

        Parameters
        ----------
        prediction : the model's prediction, for the scores absolute and normalised.
        scale : the model's expected error, for the score normalised.
        lower, upper : the model's quantiles, for the score cqr.
        group, client : the name for each row, if each group or client has a threshold of its own. A group that was not
            declared has the threshold of ``other``, if it exists.
        """
        self.check_use("predict_interval")
        given = {"prediction": prediction, "scale": scale, "lower": lower, "upper": upper}
        rows = read_arrays("predict_interval", {**given, "group": group, CLIENT: client}, self.inputs)
        return np.concatenate([np.empty((0, 2)), *(self.intervals_of(one) for one in rows)])

    def predict_set(
        self,
        logits: ArrayLike | None = None,
        *,
        score: ArrayLike | None = None,
        group: ArrayLike | None = None,
        client: ArrayLike | None = None,
    ) -> Bools:
        """Return the classes in each row's set: an array of n x K. Gives a `UserWarning` for logits like probabilities.

        Parameters
        ----------
        logits : n x K, of the same classes in the same order as in the calibration.
        score : for the score binary, the model's probabilities of 1, before any calibrator; the columns of the answer
            are 0 and 1.
        group, client : as for `predict_interval`.
        """
        self.check_use("predict_set")
        given = {"logits": logits, "score": score, "group": group, CLIENT: client}
        rows = read_arrays("predict_set", given, self.inputs)
        found = [self.sets_of(one) for one in rows]
        if logits is not None:
            warn_of_probabilities(rows)
        width = (self.classes,) if logits is None else np.shape(logits)[1:2]
        return np.concatenate(found) if found else np.zeros((0, *width), dtype=np.bool_)

    def conformity(
        self,
        *,
        target: ArrayLike | None = None,
        prediction: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        label: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        score: ArrayLike | None = None,
    ) -> Floats:
        """Compute the conformity scores of labelled rows as the calibration does; `label` is the true class."""
        if self.score == "conformity":
            raise UsageError("conformity: the score is a column of your own; give it to covers as it is.")
        given = {"target": target, "prediction": prediction, "scale": scale, "lower": lower, "upper": upper}
        known = QUANTITIES[self.score]
        given |= {known.truth: label, "logits": logits, "score": score}
        rows = read_arrays("conformity", given, known.columns, called={"class": "label"})
        for one in rows:
            check_width(one, self.classes)
        scores = (scores_of(one.chunk.columns, self.score, self.parameters) for one in rows)
        return np.concatenate([np.empty(0), *scores])

    def covers(
        self, scores: ArrayLike, *, group: ArrayLike | None = None, client: ArrayLike | None = None
    ) -> Bools:
        """Return whether the sets of rows with these scores hold their true values.

        Parameters
        ----------
        scores : the result of `conformity`, or a user-defined score.
        group : the group of each row, if each group has a threshold of its own; with thresholds per class, the
            true class.
        client : as for `predict_interval`.
        """
        condition = "class" if self.by == "class" else "group"
        rows = read_arrays(
            "covers",
            {"conformity": scores, condition: group, CLIENT: client},
            ("conformity", self.by) if self.by else ("conformity",),
            called={"conformity": "scores", "class": "group"},
        )
        covered = (one.chunk.columns["conformity"] <= self.limits_of(one) for one in rows)
        return np.concatenate([np.empty(0, dtype=np.bool_), *covered])

    def check_use(self, use: str) -> None:
        """Refuse intervals for scores of classes, and sets for scores of numbers."""
        if self.score == "conformity":
            raise UsageError(
                f"{use}: the score is a column of your own, so that only you can tell which values score at most the "
                "threshold; compare scores with `threshold`, or use `covers`."
            )
        if (use == "predict_set") != self.gives_sets:
            right = "predict_set" if self.gives_sets else "predict_interval"
            raise UsageError(f"{use}: the score {self.score} does not fit, expected {right}.")

    # --- rows ------------------------------------------------------------------------------------------------

    def intervals_of(self, rows: Read) -> Floats:
        """Return `predict_interval` of rows that have been read."""
        columns = rows.chunk.columns
        lower, upper = (columns.get(role, columns.get("prediction")) for role in ("lower", "upper"))
        assert lower is not None
        assert upper is not None
        return intervals(lower, upper, columns.get("scale", 1.0), self.limits_of(rows))

    def sets_of(self, rows: Read) -> Bools:
        """Return `predict_set` of rows that have been read."""
        check_width(rows, self.classes)
        if self.by == "class":
            limit = np.array([self.thresholds[str(place)].value for place in range(len(self.thresholds))])
        else:
            limit = self.limits_of(rows)
            limit = limit.reshape(-1, 1) if limit.ndim else limit
        return sets_of(rows.chunk.columns, limit, self.score, self.parameters)

    def limits_of(self, rows: Read) -> Floats:
        """Return the threshold of each row, or the common one."""
        return limits(self.by, {part: one.value for part, one in self.thresholds.items()}, rows)

    # --- file ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the artefact as plain values."""
        return {
            "artefact": KIND,
            "format": FORMAT,
            "fedassay": self.fedassay,
            "method": self.method,
            "level": self.level,
            "score": {"name": self.score, "parameters": list(self.parameters)},
            "by": self.by,
            "classes": self.classes,
            "thresholds": {part: one.to_json() for part, one in self.thresholds.items()},
            "columns": dict(self.columns),
            "notes": list(self.notes),
            "privacy": None if self.privacy is None else dict(self.privacy),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact; the file is complete or it is not there."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ConformalPredictor:
        """Read an artefact; refuse any other file with one sentence (`UsageError`)."""
        return load_artefact(path, cls.from_json)

    @classmethod
    def from_json(cls, content: object) -> ConformalPredictor:
        """Return the predictor that `to_json` was called on; refuse anything else."""
        return cls(**fields_from_json(content))
