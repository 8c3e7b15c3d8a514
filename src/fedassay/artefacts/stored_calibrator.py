"""Common base of calibrators of scores and of logits: their origin and their file.

The file is plain JSON, versioned, checked when it is loaded, never executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedassay.artefacts.conformal import check_width, warn_of_probabilities
from fedassay.artefacts.reading import Read, read_arrays
from fedassay.artefacts.stored import (
    column_names,
    entries,
    load_artefact,
    named_entries,
    privacy_terms,
    save_artefact,
    truth,
    words,
)
from fedassay.data.findings import shown
from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.result import Result
from fedassay.summaries.maps import MAPS, Map, map_from_json
from fedassay.summaries.multiclass.maps import LOGIT_MAPS, logit_map_from_json
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.tasks.calibration.methods import FITS
from fedassay.version import VERSION

FORMAT = 1
"""Format number; increased when an older or a newer version would misread the file."""

SCORES, CLASSES = "calibrator", "class-calibrator"

_OF: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        SCORES: ("Calibrator", "the scores of a binary classifier"),
        CLASSES: ("ClassCalibrator", "the logits of a model with several classes"),
    }
)
"""Class that reads the file, and the outputs that it calibrates, by the name of the artefact."""


class _Plain(Protocol):
    def to_json(self) -> dict[str, Any]: ...


M = TypeVar("M", bound=_Plain)


@dataclass(frozen=True, kw_only=True)
class StoredCalibrator(Generic[M]):
    """Fitted map and its origin.

    Guarantee: `save` and `load` keep every number bit for bit; loading executes nothing from the file, and refuses
    anything that `save` has not written with one sentence.
    """

    artefact: ClassVar[str]
    """Name of the artefact in its file."""
    kinds: ClassVar[Mapping[str, Any]]
    """Possible maps, by kind."""
    read_map: ClassVar[Callable[[object], Any]]
    """Function that reads the map from JSON and refuses anything else."""
    roles: ClassVar[tuple[str, ...]]
    """Roles whose columns are stored."""
    more: ClassVar[tuple[str, ...]] = ()
    """Entries of the file that only this kind of calibrator has: text or None."""

    map: M = field(repr=False)
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    columns: Mapping[str, str | None] = field(default_factory=dict)
    recommended: bool | None = None
    reason: str | None = field(default=None, repr=False)
    privacy: Mapping[str, Any] | None = field(default=None, repr=False)
    fedassay: str = VERSION

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user: the reason, if the calibrator was not recommended."""
        if self.recommended is not False:
            return ()
        return ("Not recommended." if self.reason is None else self.reason,)

    # --- from a result ---------------------------------------------------------------------------------------

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return the calibrator of a result of `fedassay.calibrate`.

        Raises `DataError` with the reason if the result has none (not enough evidence, say).
        """
        results = result.results
        if "calibrator" not in results:
            raise UsageError(f"result: got one of the task {result.task}, expected one of calibrate.")
        if results["calibrator"] is None:
            raise DataError(results["reason"])
        if results["calibrator"]["kind"] not in cls.kinds:
            other = CLASSES if cls.artefact == SCORES else SCORES
            raise UsageError(_mistaken("result", other, cls.artefact, "of"))
        return cls(
            map=cls.read_map(results["calibrator"]),
            columns={role: _column(result.parameters, role) for role in cls.roles},
            privacy=dict(result.privacy),
            fedassay=result.fedassay,
            **{name: results[name] for name in ("method", "parameters", "recommended", "reason", *cls.more)},
        )

    # --- file ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the artefact as plain values."""
        return {
            "artefact": self.artefact,
            "format": FORMAT,
            "fedassay": self.fedassay,
            "method": self.method,
            **{name: getattr(self, name) for name in self.more},
            "map": self.map.to_json(),
            "parameters": dict(self.parameters),
            "columns": dict(self.columns),
            "recommended": self.recommended,
            "reason": self.reason,
            "privacy": None if self.privacy is None else dict(self.privacy),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact; the file is complete or it is not there."""
        save_artefact(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an artefact; refuse any other file with one sentence (`UsageError`)."""
        return load_artefact(path, cls.from_json)

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Return the calibrator that `to_json` was called on; refuse anything else."""
        _check_header(content, cls.artefact)
        keys = ("artefact", "format", "fedassay", "method", *cls.more, "map", "parameters", "columns")
        given = entries(content, (*keys, "recommended", "reason", "privacy"), "the file")
        said = {
            name: None if given[name] is None else words(given[name], name) for name in ("reason", *cls.more)
        }
        return cls(
            map=cls.read_map(given["map"]),
            method=words(given["method"], "method"),
            parameters=named_entries(given["parameters"], "parameters"),
            columns=column_names(given["columns"]),
            recommended=None if given["recommended"] is None else truth(given["recommended"], "recommended"),
            privacy=privacy_terms(given["privacy"]),
            fedassay=words(given["fedassay"], "fedassay"),
            **said,
        )


def _column(parameters: Mapping[str, Any], role: str) -> str | None:
    """Return the column in this role; summaries call the label of a model with several classes its class."""
    found = parameters.get(role)
    return parameters.get("class") if found is None and role == "label" else found


def _check_header(content: object, artefact: str) -> None:
    """Refuse another artefact, or another version."""
    found = content.get("artefact") if isinstance(content, dict) else None
    if isinstance(found, str) and found in _OF and found != artefact:
        raise UsageError(_mistaken("it", found, artefact, "load"))
    if not isinstance(content, dict) or found != artefact:
        raise UsageError("it is not a calibrator, expected what `fedassay calibrate --out` has written.")
    if type(content.get("format")) is not int or content["format"] != FORMAT:
        raise UsageError(
            f"got format {shown(content.get('format'))}, expected {FORMAT}; calibrate again with this version "
            f"({VERSION}), or use the one that wrote it ({shown(content.get('fedassay'))})."
        )


def _mistaken(what: str, found: str, expected: str, use: str) -> str:
    name, of_what = _OF[found]
    return f"{what} has a calibrator of {of_what}, expected one of {_OF[expected][1]}; use fedassay.{name}.{use}."


# --- a fitted calibrator of a binary classifier -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Calibrator(StoredCalibrator[Map]):
    """Map from scores to calibrated probabilities, and its origin.

    Parameters
    ----------
    map : the function.
    method, parameters : how it was fitted, and the numbers that describe it.
    columns : the column that played each role when it was fitted, such as ``{"score": "p", "label": "y"}``.
    recommended, reason : whether it was better than the model on held-out rows, beyond its interval; None if
        this was not checked.
    privacy : the `privacy` part of the result that it comes from; None if it was fitted to pooled rows.

    Guarantee: `save` and `load` keep every number bit for bit; loading executes nothing from the file.

    Examples
    --------
    >>> from fedassay.summaries.maps import Sigmoid
    >>> calibrator = Calibrator(map=Sigmoid(a=0.5, b=0.5, c=0.0), method="platt")
    >>> calibrator.predict([0.2, 0.5, 0.8]).round(3)
    array([0.333, 0.5  , 0.667])
    >>> calibrator.predict_proba([0.2]).round(3)
    array([[0.667, 0.333]])
    """

    artefact: ClassVar[str] = SCORES
    kinds: ClassVar[Mapping[str, Any]] = MAPS
    read_map: ClassVar[Callable[[object], Any]] = staticmethod(map_from_json)
    roles: ClassVar[tuple[str, ...]] = ("score", "label", "client")

    def __post_init__(self) -> None:
        if self.method not in FITS:
            raise UsageError(f"got method {self.method!r}, expected one of {', '.join(FITS)}.")

    # --- use -----------------------------------------------------------------------------------------------

    def predict(self, scores: ArrayLike) -> Floats:
        """Return the calibrated probability of the positive class for each score.

        Parameters
        ----------
        scores : the model's probabilities in [0, 1], one per row, or with two columns: those of the negative
            and of the positive class.
        """
        return self.map(checked_scores(scores))

    def predict_proba(self, scores: ArrayLike) -> Floats:
        """Return the calibrated probabilities of the negative and of the positive class: one row per score."""
        positive = self.predict(scores)
        return np.stack([1 - positive, positive], axis=1)


def checked_scores(scores: ArrayLike) -> Floats:
    """Return scores as one double per row, or raise a `DataError` that names the first unusable row.

    Examples
    --------
    >>> checked_scores([[0.9, 0.1], [0.4, 0.6]])
    array([0.1, 0.6])
    """
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("scores: got something that is not numbers, expected probabilities.") from error
    if values.ndim == 2 and values.shape[1] == 2:
        apart = np.flatnonzero(~(np.abs(values.sum(axis=1) - 1) <= 1e-6))
        if apart.size:
            row = int(apart[0])
            raise DataError(
                f"scores: row {row} holds {values[row].tolist()}, expected the probabilities of two classes, "
                "which add up to 1."
            )
        values = values[:, 1]
    elif values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(
            f"scores: got an array of shape {values.shape}, expected one probability per row or two columns."
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if bad.size:
        row = int(bad[0])
        raise DataError(f"scores: got {values[row]} in row {row}, expected a number in [0, 1].")
    return values


# --- a fitted calibrator of a model with several classes ----------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassCalibrator(StoredCalibrator[LogitMap]):
    """Map from logits to calibrated probabilities, and its origin.

    Parameters
    ----------
    map : the function.
    method, solver, parameters : how it was fitted, and the numbers that describe it.
    columns : the column that played each role when it was fitted, such as ``{"logits": "z", "label": "y"}``.
    recommended, reason : whether it was better than the model on held-out rows, beyond its interval, without losing
        accuracy; None if this was not checked.
    privacy : the `privacy` part of the result that it comes from; None if it was fitted to pooled rows.

    Guarantee: every row of logits gets probabilities that add up to one; a map that keeps the order of the classes
    (`keeps_order`) never changes which class is predicted. `save` and `load` keep every number bit for bit; loading
    executes nothing from the file.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> calibrator = ClassCalibrator(map=Temperature(inverse_temperature=2.0, classes=3), method="temperature")
    >>> logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    >>> calibrator.predict_proba(logits).round(3)
    array([[0.667, 0.167, 0.167],
           [0.015, 0.015, 0.97 ]])
    >>> calibrator.predict(logits)
    array([0, 2])
    """

    artefact: ClassVar[str] = CLASSES
    kinds: ClassVar[Mapping[str, Any]] = LOGIT_MAPS
    read_map: ClassVar[Callable[[object], Any]] = staticmethod(logit_map_from_json)
    roles: ClassVar[tuple[str, ...]] = ("logits", "label", "client")
    more: ClassVar[tuple[str, ...]] = ("solver",)

    solver: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.map, LogitMap):
            raise UsageError(f"map: got a {type(self.map).__name__}, expected a map of logits.")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.map.width

    # --- use -------------------------------------------------------------------------------------------------

    def predict_proba(self, logits: ArrayLike) -> Floats:
        """Return the calibrated probabilities of all classes: n x c, each row adds up to one.

        Parameters
        ----------
        logits : n x c, of the same classes in the same order as in the calibration: an array, a frame, or a column of
            lists. A `UserWarning` is given if they look like probabilities.

        Raises `DataError` for another number of classes, or with the first row that holds anything but finite
        numbers.
        """
        rows = read_arrays("predict_proba", {"logits": logits}, ("logits",))
        found = [self.proba_of(one) for one in rows]
        warn_of_probabilities(rows)
        return np.concatenate([np.empty((0, self.classes)), *found])

    def predict(self, logits: ArrayLike) -> Ints:
        """Return the number of the most probable class of each row; of equally probable classes the first."""
        rows = read_arrays("predict", {"logits": logits}, ("logits",))
        found = [most_probable(self.map, one.chunk.columns["logits"], self.proba_of(one)) for one in rows]
        warn_of_probabilities(rows)
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def proba_of(self, rows: Read) -> Floats:
        """Return `predict_proba` of rows that have been read."""
        check_width(rows, self.classes)
        return self.map.predict_proba(rows.chunk.columns["logits"])


def most_probable(found: LogitMap, logits: ArrayLike, probabilities: Floats) -> Ints:
    """Return the most probable class of each row.

    If the map keeps the order of the classes, that is the class of the largest logit, also where floating point cannot
    tell the probabilities of two classes apart: no prediction changes by rounding.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> flat = Temperature(inverse_temperature=1e-6, classes=2)
    >>> z = np.array([[0.0, 1e-12]])
    >>> flat.predict_proba(z)
    array([[0.5, 0.5]])
    >>> most_probable(flat, z, flat.predict_proba(z))
    array([1])
    """
    by = np.asarray(logits) if found.keeps_order else probabilities
    return np.asarray(by.argmax(axis=1), dtype=np.int64)


# --- the calibrator in a file -------------------------------------------------------------------------------


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator | ClassCalibrator:
    """The calibrator in a file that `fedassay calibrate --out` or `save` has written.

    A `Calibrator` if it is one of scores, a `ClassCalibrator` if it is one of logits. Anything else is refused with
    one sentence (`UsageError`).
    """
    return load_artefact(path, calibrator_from_json)


def calibrator_from_json(content: object) -> Calibrator | ClassCalibrator:
    """Return the calibrator that `to_json` was called on; refuse anything else."""
    if isinstance(content, dict) and content.get("artefact") == ClassCalibrator.artefact:
        return ClassCalibrator.from_json(content)
    return Calibrator.from_json(content)
