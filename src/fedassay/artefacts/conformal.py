"""What a conformal run leaves behind: thresholds that turn a model's predictions into intervals or sets.

A set holds what scores at most the threshold. The file is plain JSON, checked when it is loaded, never executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.conformal_classes import check_width, checked_classes, warn_of_probabilities
from fedassay.artefacts.conformal_file import FORMAT, KIND, fields_from_json, fields_of
from fedassay.artefacts.conformal_parts import check_parts, limits, warnings_of
from fedassay.artefacts.intervals import intervals
from fedassay.artefacts.reading import Read, read_arrays
from fedassay.artefacts.stored import number, read_artefact, words
from fedassay.artefacts.thresholds import Threshold
from fedassay.data.schema import CLIENT
from fedassay.errors import UsageError
from fedassay.estimation.coverage.law import checked_level
from fedassay.files import write_atomically
from fedassay.result import Result
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, scores_of, sets_of
from fedassay.summaries.scored import EVERYONE
from fedassay.version import VERSION

TRUTH = ("target", "class", "label")
"""Roles that only labelled rows have; prediction does without."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ConformalPredictor:
    """Prediction intervals or sets from thresholds that a federation has agreed on.

    Parameters
    ----------
    method, level : how the thresholds were found, and the coverage that was asked for.
    score, parameters : the conformity score (`fedassay.summaries.quantities`).
    by : what has a threshold of its own: nothing (``""``, the one threshold is called ``all``), each ``class``, each
        ``group``, or each ``client`` (the method local).
    thresholds : by name, each with what it promises.
    classes : how many classes there are; None for scores of numbers, or if nobody said; 2 for the score binary, whose
        parameters are a calibrator (`fedassay.summaries.maps.numbers_of`), or none.
    columns : the column that played each role, such as ``{"target": "y", "prediction": "p"}``.
    notes : what else the run said.
    privacy : the `privacy` part of the result that it comes from.

    Guarantee: that of each threshold, for rows like those of the calibration. What is in a set and what is not is
    decided exactly: a value is in it if and only if its score, as the calibration computes scores, is at most the
    threshold. `save` and `load` keep every number bit for bit; loading executes nothing from the file.

    Edge cases: an infinite threshold gives (-inf, inf) or all classes; a set of ``lac`` and of ``binary`` can be
    empty, and so can an interval of CQR, whose ends are then NaN; thresholds per class give label-conditional
    (Mondrian) sets, in which each class is held against its own threshold.

    Examples
    --------
    >>> from fedassay.artefacts.thresholds import Guarantee, Threshold
    >>> promise = Guarantee(kind="marginal", level=0.9, text="A new row is covered with probability 0.9.")
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
        """The predictor of a result of `fedassay.conformal`.

        Raises `DataError` with the reason if the result has no threshold.
        """
        return cls(**fields_of(result))

    # --- what is known ---------------------------------------------------------------------------------------

    @property
    def threshold(self) -> float:
        """The one threshold; `thresholds` has them where there are several."""
        if self.by:
            raise UsageError(f"threshold: each {self.by} has its own; see `thresholds`.")
        return self.thresholds[EVERYONE].value

    @property
    def inputs(self) -> tuple[str, ...]:
        """The roles of the columns that prediction needs. The true class is not among them: all are tried."""
        roles = tuple(role for role in QUANTITIES[self.score].columns if role not in TRUTH)
        return (*roles, self.by) if self.by in ("group", CLIENT) else roles

    @property
    def gives_sets(self) -> bool:
        """Whether it predicts sets of classes; otherwise intervals, or nothing for a score of one's own."""
        return QUANTITIES[self.score].gives_sets

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever uses it should know: thresholds that promise nothing, or sets that hold everything."""
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
        """The lower and the upper end of each row's interval, both in it: an array of n x 2.

        Parameters
        ----------
        prediction : the model's, for the scores absolute and normalised.
        scale : how far it expects to be off, for the score normalised.
        lower, upper : the quantiles that it predicts, for the score cqr.
        group, client : where each of them has a threshold of its own, the name for each row. A group that was not
            declared has the threshold of ``other``, if there is one.
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
        """Which classes are in each row's set: an array of n x K; a `UserWarning` if logits look like probabilities.

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
        """The conformity scores of labelled rows, as the calibration computes them; `label` is the true class."""
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
        """Whether the sets of rows with these scores hold their true values.

        Parameters
        ----------
        scores : what `conformity` gives, or a score of one's own.
        group : where each group has a threshold of its own, the group of each row; with thresholds per class, the
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
        """Refuse to make intervals of what are scores of classes, and the other way round."""
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
        """As `predict_interval`, of rows that have been read."""
        columns = rows.chunk.columns
        lower, upper = (columns.get(role, columns.get("prediction")) for role in ("lower", "upper"))
        assert lower is not None
        assert upper is not None
        return intervals(lower, upper, columns.get("scale", 1.0), self.limits_of(rows))

    def sets_of(self, rows: Read) -> Bools:
        """As `predict_set`, of rows that have been read."""
        check_width(rows, self.classes)
        if self.by == "class":
            limit = np.array([self.thresholds[str(place)].value for place in range(len(self.thresholds))])
        else:
            limit = self.limits_of(rows)
            limit = limit.reshape(-1, 1) if limit.ndim else limit
        return sets_of(rows.chunk.columns, limit, self.score, self.parameters)

    def limits_of(self, rows: Read) -> Floats:
        """The threshold of each row, or the one for all."""
        return limits(self.by, {part: one.value for part, one in self.thresholds.items()}, rows)

    # --- file ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The artefact as plain values."""
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
        """Read an artefact. Anything that is not one is refused with one sentence (`UsageError`)."""
        content = read_artefact(path)
        try:
            return cls.from_json(content)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, content: object) -> ConformalPredictor:
        """What `to_json` was called on; anything else is refused."""
        return cls(**fields_from_json(content))
