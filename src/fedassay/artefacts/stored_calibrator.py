"""What calibrators of scores and of logits have in common: where they come from, and their file.

The file is plain JSON, versioned, checked when it is loaded, never executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

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
from fedassay.result import Result
from fedassay.version import VERSION

FORMAT = 1
"""Raised when a file of an older version would be misread by a newer one, or the other way round."""

SCORES, CLASSES = "calibrator", "class-calibrator"

_OF: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        SCORES: ("Calibrator", "the scores of a binary classifier"),
        CLASSES: ("ClassCalibrator", "the logits of a model with several classes"),
    }
)
"""By what the file calls itself: the class that reads it, and what it calibrates."""


class _Plain(Protocol):
    def to_json(self) -> dict[str, Any]: ...


M = TypeVar("M", bound=_Plain)


@dataclass(frozen=True, kw_only=True)
class StoredCalibrator(Generic[M]):
    """A fitted map and where it comes from.

    Guarantee: `save` and `load` keep every number bit for bit; loading executes nothing from the file, and refuses
    anything that `save` has not written with one sentence.
    """

    artefact: ClassVar[str]
    """What the file calls itself."""
    kinds: ClassVar[Mapping[str, Any]]
    """The maps that it can have, by kind."""
    read_map: ClassVar[Callable[[object], Any]]
    """The map from JSON; anything else is refused."""
    roles: ClassVar[tuple[str, ...]]
    """Those whose columns it remembers."""
    more: ClassVar[tuple[str, ...]] = ()
    """Entries of the file that only this kind of calibrator has: words or nothing."""

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
        """What whoever uses it should know: that it was not recommended, and why."""
        if self.recommended is not False:
            return ()
        return ("Not recommended." if self.reason is None else self.reason,)

    # --- from a result ---------------------------------------------------------------------------------------

    @classmethod
    def of(cls, result: Result) -> Self:
        """The calibrator of a result of `fedassay.calibrate`.

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
            method=results["method"],
            parameters=results["parameters"],
            columns={role: _column(result.parameters, role) for role in cls.roles},
            recommended=results["recommended"],
            reason=results["reason"],
            privacy=dict(result.privacy),
            fedassay=result.fedassay,
            **{name: results[name] for name in cls.more},
        )

    # --- file ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The artefact as plain values."""
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
        """Read an artefact. Anything that is not one is refused with one sentence (`UsageError`)."""
        return load_artefact(path, cls.from_json)

    @classmethod
    def from_json(cls, content: object) -> Self:
        """What `to_json` was called on; anything else is refused."""
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
    """The column in this role; summaries call the label of a model with several classes its class."""
    found = parameters.get(role)
    return parameters.get("class") if found is None and role == "label" else found


def _check_header(content: object, artefact: str) -> None:
    """Refuse what is another artefact, or of another version."""
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
