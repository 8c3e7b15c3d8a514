"""Conformal thresholds and their guarantees, as an artefact stores them, and the fields around them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fedassay.artefacts.reading import Read
from fedassay.artefacts.stored import column_names, entries, number, privacy_terms, truth, words
from fedassay.artefacts.stored import name as checked_name
from fedassay.data.findings import listed, shown, value_at
from fedassay.data.schema import CLIENT
from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.result import Result
from fedassay.summaries.grouped_histogram import OTHER, group_of
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE, checked_condition
from fedassay.version import VERSION

GUARANTEES = ("marginal", "training-conditional", "none")
_KEYS = ("threshold", "infinite", "reason", "guarantee")


@dataclass(frozen=True, kw_only=True)
class StoredGuarantee:
    """Guarantee about new rows.

    Parameters
    ----------
    kind : ``marginal``, ``training-conditional`` or ``none``.
    level : the requested coverage.
    confidence : that of a training-conditional guarantee.
    coverage : the marginal coverage as computed; None if nothing is known.
    probability : the probability that the coverage, given the calibration rows, is at least the level; None if it is
        not known.
    assumption : the assumption under which it holds.
    text : the whole guarantee in plain English.
    """

    kind: str
    level: float
    confidence: float | None = None
    coverage: float | None = None
    probability: float | None = None
    assumption: str | None = None
    text: str

    def __post_init__(self) -> None:
        if self.kind not in GUARANTEES:
            raise UsageError(f"guarantee: got {self.kind!r}, expected one of {', '.join(GUARANTEES)}.")
        object.__setattr__(self, "level", number(self.level, "level"))
        for field in ("confidence", "coverage", "probability"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else number(value, field))
        if self.assumption is not None:
            words(self.assumption, "assumption")
        words(self.text, "text")

    @classmethod
    def of(cls, guarantee: Mapping[str, Any]) -> StoredGuarantee:
        """Return the guarantee in the results of a run, which may have more entries."""
        return cls(**{field.name: guarantee[field.name] for field in fields(cls)})

    @classmethod
    def from_json(cls, content: object) -> StoredGuarantee:
        """Return the guarantee that `asdict` was called on; refuse anything else."""
        return cls(**entries(content, tuple(field.name for field in fields(cls)), "guarantee"))


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Largest score of the members of a set, and the guarantee for it.

    `value` is infinite if sets hold everything; `reason` is the reason for this, or for a missing guarantee.
    """

    value: float
    guarantee: StoredGuarantee
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.value != math.inf:
            object.__setattr__(self, "value", number(self.value, "threshold"))
        if self.reason is not None:
            words(self.reason, "reason")

    @property
    def infinite(self) -> bool:
        """True if sets hold everything."""
        return self.value == math.inf

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Threshold:
        """Return the threshold in the results of a run, or of one of its groups or sites.

        Raises `DataError` with the reason if there is none.
        """
        value = math.inf if found["infinite"] else found["threshold"]
        if value is None:
            raise DataError(f"result: it has no threshold: {found.get('reason', 'it does not say why')}.")
        return cls(value=value, guarantee=StoredGuarantee.of(found["guarantee"]), reason=found.get("reason"))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; JSON has no infinite numbers."""
        return {
            "threshold": None if self.infinite else self.value,
            "infinite": self.infinite,
            "reason": self.reason,
            "guarantee": asdict(self.guarantee),
        }

    @classmethod
    def from_json(cls, content: object) -> Threshold:
        """Return the threshold that `to_json` was called on; refuse anything else."""
        given = entries(content, _KEYS, "thresholds")
        infinite = truth(given["infinite"], "infinite")
        if infinite and given["threshold"] is not None:
            raise UsageError(
                "the entry 'threshold' holds a number and is said to be infinite, expected one of these."
            )
        return cls(
            value=math.inf if infinite else number(given["threshold"], "threshold"),
            guarantee=StoredGuarantee.from_json(given["guarantee"]),
            reason=given["reason"],
        )


# --- which threshold belongs to which row -------------------------------------------------------------------

BY = ("", "class", "group", CLIENT)
_MOST_LISTED = 5


def check_parts(by: str, names: Sequence[str]) -> None:
    """Refuse thresholds of parts to which rows cannot be assigned.

    Examples
    --------
    >>> check_parts("group", ["F", "M", "other"]), check_parts("class", ["0", "1"]), check_parts("", ["all"])
    (None, None, None)
    """
    if by not in BY:
        raise UsageError(f"by: got {by!r}, expected class, group, client or nothing.")
    if by == "" and tuple(names) != (EVERYONE,):
        raise UsageError(
            f"thresholds: got {len(names)} of them by nothing, expected one called {EVERYONE!r}."
        )
    if by == CLIENT and not (names and all(names)):
        raise UsageError("thresholds: got a client without a name or no client, expected one for each.")
    if by == "class":
        checked_condition(by, names)
    if by == "group":
        checked_condition(by, [name for name in names if name != OTHER])


def limits(by: str, thresholds: Mapping[str, float], rows: Read) -> Floats:
    """Return the threshold of each row, or the common one (no dimension); by class, that of each row's true class.

    Raises `DataError` for a row of a class, group or client without a threshold. Groups that were not declared have the
    threshold of ``other``, if it exists.
    """
    if by == "":
        return np.array(thresholds[EVERYONE])
    names = _ordered(by, thresholds)
    return np.array([thresholds[name] for name in names])[_places(by, names, rows)]


def rows_of_parts(by: str, thresholds: Mapping[str, Threshold], rows: Read) -> Counter[str]:
    """Count the rows of each threshold, by its name."""
    names = _ordered(by, thresholds)
    counts = np.bincount(_places(by, names, rows), minlength=len(names))
    return Counter(dict(zip(names, counts.tolist(), strict=True)))


def _ordered(by: str, names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: by == "group" and name == OTHER)  # other comes last


def _places(by: str, names: list[str], rows: Read) -> Ints:
    """Return the place in `names` of each row's part."""
    if by == "class":
        places = rows.chunk.columns["class"]
    elif by == "group":
        places = group_of(rows.chunk.columns["group"], tuple(name for name in names if name != OTHER))
    else:
        places = _client_places(names, rows)
    unknown = places >= len(names)
    if unknown.any():
        row = int(np.argmax(unknown))
        got = shown(rows.site) if by == CLIENT and rows.chunk.clients is None else value_at(rows.raw(by), row)
        raise DataError(
            f"{rows.table.label}, {by}: got {got}, which has no threshold, expected one of "
            f"{listed(names, most=_MOST_LISTED)}; leave these rows out."
        )
    return places


def _client_places(names: list[str], rows: Read) -> Ints:
    """Return the place in `names` of each row's client; past the last if it is not among them."""
    clients = rows.chunk.clients
    known = {name: place for place, name in enumerate(names)}
    if clients is not None:
        found = [known.get(name, len(names)) for name in clients.names.to_pylist()]
        return np.array(found, dtype=np.int64)[clients.codes]
    if rows.site is None:
        raise UsageError("client column: the artefact does not say which one it is; give --client.")
    return np.full(rows.chunk.length, known.get(rows.site, len(names)), dtype=np.int64)


def warnings_of(
    by: str, thresholds: Mapping[str, Threshold], rows: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Describe thresholds that promise nothing, and those with which sets hold everything: a sentence each.

    `rows` is the number of rows of each threshold, if known; an infinite threshold without rows does no harm.
    """
    unpromising = {name: one for name, one in thresholds.items() if one.guarantee.kind == "none"}
    infinite = {
        name: one for name, one in thresholds.items() if one.infinite and (rows is None or rows.get(name, 0))
    }
    found = []
    if unpromising:
        found.append(f"No coverage is guaranteed{_whom(by, unpromising)}{_why(unpromising)}.")
    if infinite and by == "class":
        found.append(
            f"The threshold is infinite{_whom(by, infinite)}, so that every set holds it{_why(infinite)}."
        )
    elif infinite:
        number = 0 if rows is None else sum(rows.get(name, 0) for name in infinite)
        many = f" ({number:,} row{'s' * (number != 1)})" if number else ""
        whom = _whom(by, infinite) + many
        found.append(f"The threshold is infinite, so that sets hold everything{whom}{_why(infinite)}.")
    return tuple(found)


def _whom(by: str, chosen: Mapping[str, Threshold]) -> str:
    return f" for {by} {listed(list(chosen), most=_MOST_LISTED)}" if by else ""


def _why(chosen: Mapping[str, Threshold]) -> str:
    """Return the reason, if all have the same."""
    reasons = list(dict.fromkeys(one.reason for one in chosen.values() if one.reason is not None))
    return f": {reasons[0]}" if len(reasons) == 1 else ""


# --- the fields of a predictor, from a result or from a file that may hold anything -------------------------

FORMAT = 1
"""Format number; increased when an older or a newer version would misread the file."""

KIND = "conformal"
_FILE_KEYS = (
    *("artefact", "format", "fedassay", "method", "level", "score", "by", "classes"),
    *("thresholds", "columns", "notes", "privacy"),
)


def fields_of(result: Result) -> dict[str, Any]:
    """Return the fields of a result of the task conformal. Raise `DataError` with the reason if it has no threshold."""
    if result.task != KIND:
        raise UsageError(f"result: got one of the task {result.task}, expected one of {KIND}.")
    results = result.results
    by, thresholds = thresholds_of(results)
    score = QUANTITIES[results["score"]["name"]]
    roles = (*score.columns, "group", CLIENT)
    return {
        "method": results["method"],
        "level": results["level"],
        "score": results["score"]["name"],
        "parameters": tuple(results["score"]["parameters"]),
        "by": by,
        "classes": result.parameters.get("classes") if score.gives_sets else None,
        "thresholds": thresholds,
        "columns": {role: result.parameters[role] for role in roles if role in result.parameters},
        "notes": tuple(results["notes"]),
        "privacy": dict(result.privacy),
        "fedassay": result.fedassay,
    }


def thresholds_of(results: Mapping[str, Any]) -> tuple[str, dict[str, Threshold]]:
    """Return the condition of the thresholds of a conformal run (`BY`), and the thresholds by name.

    Raises `DataError` with the reason if there is no threshold.
    """
    if results["conditional"]:
        return results["conditional"], {part: Threshold.of(one) for part, one in results["groups"].items()}
    if results["method"] == "local":
        promised = results["guarantee"]
        return CLIENT, {one["site"]: Threshold.of({**one, "guarantee": promised}) for one in results["sites"]}
    return "", {EVERYONE: Threshold.of(results)}


def fields_from_json(content: object) -> dict[str, Any]:
    """Return the fields in `ConformalPredictor.to_json`; refuse anything else with one sentence (`UsageError`)."""
    if not isinstance(content, dict) or content.get("artefact") != KIND:
        raise UsageError(
            "it is no conformal predictor, expected what `fedassay conformal --out` has written."
        )
    if type(content.get("format")) is not int or content["format"] != FORMAT:
        raise UsageError(
            f"it has another format, expected {FORMAT}; conformalise again with this version ({VERSION}), or use the "
            "one that wrote it."
        )
    given = entries(content, _FILE_KEYS, "the file")
    score = entries(given["score"], ("name", "parameters"), "score")
    for what, value, kind in (
        ("by", given["by"], str),
        ("thresholds", given["thresholds"], dict),
        ("notes", given["notes"], list),
        ("parameters", score["parameters"], list),
    ):
        if not isinstance(value, kind):
            raise UsageError(f"the entry {what!r} is no {kind.__name__}; conformalise again.")
    return {
        "method": words(given["method"], "method"),
        "level": number(given["level"], "level"),
        "score": words(score["name"], "score"),
        "parameters": tuple(number(one, "parameters") for one in score["parameters"]),
        "by": given["by"],
        "classes": given["classes"],
        "thresholds": {
            checked_name(part, "thresholds"): Threshold.from_json(one)
            for part, one in given["thresholds"].items()
        },
        "columns": column_names(given["columns"]),
        "notes": tuple(words(note, "notes") for note in given["notes"]),
        "privacy": privacy_terms(given["privacy"]),
        "fedassay": words(given["fedassay"], "fedassay"),
    }
