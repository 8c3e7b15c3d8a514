"""A fitted calibrator as a file: plain JSON, versioned, checked when it is loaded, never executed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.files import write_atomically
from fedassay.result import Result
from fedassay.tasks.calibration.maps import Map, map_from_json
from fedassay.tasks.calibration.methods import FITS
from fedassay.version import VERSION

FORMAT = 1
"""Raised when a file of an older version would be misread by a newer one, or the other way round."""

_KIND = "calibrator"
_KEYS = (
    "artefact",
    "format",
    "fedassay",
    "method",
    "map",
    "parameters",
    "columns",
    "recommended",
    "reason",
    "privacy",
)
_LARGEST = 64 * 2**20

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Calibrator:
    """A map from scores to calibrated probabilities, and where it comes from.

    Parameters
    ----------
    map : the function.
    method, parameters : how it was fitted, and the numbers that describe it.
    columns : the column that played each role when it was fitted, such as ``{"score": "p", "label": "y"}``.
    recommended, reason : whether it was better than the model on held-out rows, beyond its interval; None if
        nobody looked.
    privacy : the `privacy` part of the result that it comes from; None if it was fitted to pooled rows.

    Guarantee: `save` and `load` keep every number bit for bit; loading executes nothing from the file.

    Examples
    --------
    >>> from fedassay.tasks.calibration.maps import Sigmoid
    >>> calibrator = Calibrator(map=Sigmoid(a=0.5, b=0.5, c=0.0), method="platt")
    >>> calibrator.predict([0.2, 0.5, 0.8]).round(3)
    array([0.333, 0.5  , 0.667])
    >>> calibrator.predict_proba([0.2]).round(3)
    array([[0.667, 0.333]])
    """

    map: Map = field(repr=False)
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    columns: Mapping[str, str | None] = field(default_factory=dict)
    recommended: bool | None = None
    reason: str | None = field(default=None, repr=False)
    privacy: Mapping[str, Any] | None = field(default=None, repr=False)
    fedassay: str = VERSION

    @classmethod
    def of(cls, result: Result) -> Calibrator:
        """The calibrator of a result of `fedassay.calibrate`.

        Raises `DataError` with the reason if the result has none (not enough evidence, say).
        """
        results = result.results
        if result.task != "calibrate":
            raise UsageError(f"result: got one of the task {result.task}, expected one of calibrate.")
        if results["calibrator"] is None:
            raise DataError(results["reason"])
        return cls(
            map=map_from_json(results["calibrator"]),
            method=results["method"],
            parameters=results["parameters"],
            columns={role: result.parameters.get(role) for role in ("score", "label", "client")},
            recommended=results["recommended"],
            reason=results["reason"],
            privacy=dict(result.privacy),
            fedassay=result.fedassay,
        )

    # --- use -----------------------------------------------------------------------------------------------

    def predict(self, scores: ArrayLike) -> Floats:
        """The calibrated probability of the positive class for each score.

        Parameters
        ----------
        scores : the model's probabilities in [0, 1], one per row, or with two columns: those of the negative
            and of the positive class.
        """
        return self.map(checked_scores(scores))

    def predict_proba(self, scores: ArrayLike) -> Floats:
        """The calibrated probabilities of the negative and of the positive class: one row per score."""
        positive = self.predict(scores)
        return np.stack([1 - positive, positive], axis=1)

    # --- file ----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The artefact as plain values."""
        return {
            "artefact": _KIND,
            "format": FORMAT,
            "fedassay": self.fedassay,
            "method": self.method,
            "map": self.map.to_json(),
            "parameters": dict(self.parameters),
            "columns": dict(self.columns),
            "recommended": self.recommended,
            "reason": self.reason,
            "privacy": None if self.privacy is None else dict(self.privacy),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact; the file is complete or it is not there."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibrator:
        """Read an artefact. Anything that is not one is refused with one sentence (`UsageError`)."""
        where = Path(path)
        try:
            if where.stat().st_size > _LARGEST:
                raise UsageError(f"{where}: got {where.stat().st_size:,} bytes, no calibrator is that large.")
            content = json.loads(where.read_text(encoding="utf-8"), parse_constant=_no_constant)
        except OSError as error:
            raise UsageError(
                f"{where}: cannot be read ({error.strerror}), expected a file that `fedassay calibrate --out` "
                "has written."
            ) from error
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{where}: got something that is not JSON, expected a file that `fedassay calibrate --out` has "
                "written."
            ) from error
        try:
            return cls.from_json(content)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error

    @classmethod
    def from_json(cls, content: object) -> Calibrator:
        """What `to_json` was called on; anything else is refused."""
        if not isinstance(content, dict) or content.get("artefact") != _KIND:
            raise UsageError("it is not a calibrator, expected what `fedassay calibrate --out` has written.")
        if content.get("format") != FORMAT:
            raise UsageError(
                f"got format {content.get('format')!r}, expected {FORMAT}; calibrate again with this version "
                f"({VERSION}), or use the one that wrote it ({content.get('fedassay')})."
            )
        if set(content) != set(_KEYS):
            strange = sorted(set(content) ^ set(_KEYS))
            raise UsageError(f"the entry {strange[0]!r} is missing or unknown; calibrate again.")
        _check_entries(content)
        return cls(
            map=map_from_json(content["map"]),
            **{name: content[name] for name in _KEYS if name not in ("artefact", "format", "map")},
        )


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator:
    """The calibrator in a file that `fedassay calibrate --out` or `Calibrator.save` has written."""
    return Calibrator.load(path)


def checked_scores(scores: ArrayLike) -> Floats:
    """Scores as one double per row, or a `DataError` that names the first row that cannot be used.

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


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _check_entries(content: Mapping[str, Any]) -> None:
    text_or_none = str | None
    expected: dict[str, Any] = {
        "fedassay": str,
        "method": str,
        "parameters": dict,
        "columns": dict,
        "recommended": bool | None,
        "reason": text_or_none,
        "privacy": dict | None,
    }
    for name, kind in expected.items():
        if not isinstance(content[name], kind):
            raise UsageError(f"the entry {name!r} holds a {type(content[name]).__name__}; calibrate again.")
    if content["method"] not in FITS:
        raise UsageError(f"got method {content['method']!r}, expected one of {', '.join(FITS)}.")
    if not all(isinstance(name, text_or_none) for name in content["columns"].values()):
        raise UsageError("the entry 'columns' holds something that is not a name; calibrate again.")
