"""Calibration maps of scores: a step function, a line through points, or a sigmoid.

A map is made of plain numbers: it is written to JSON and read back bit for bit, and applying it executes no code from
the file. Everything in [0, 1] goes to [0, 1]. As a row of numbers it is part of a question (`numbers_of`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats

# --- an object of one of several kinds ----------------------------------------------------------------------

M = TypeVar("M")


def one_of(kinds: Mapping[str, type[M]], content: object) -> M:
    """Return the map of one of these kinds that a JSON object describes."""
    if not isinstance(content, Mapping) or content.get("kind") not in tuple(kinds):
        raise UsageError(f"map: expected an object whose kind is one of {', '.join(kinds)}.")
    fields = {name: value for name, value in content.items() if name != "kind"}
    kind = kinds[content["kind"]]
    try:
        return kind(**fields)
    except TypeError:
        expected = ", ".join(kind.__dataclass_fields__)  # type: ignore[attr-defined]
        raise UsageError(
            f"map of kind {content['kind']}: got {', '.join(map(str, fields)) or 'nothing'}, expected {expected}."
        ) from None


# --- calibration maps of scores -----------------------------------------------------------------------------


LARGEST_PARAMETER = 2.0**20
"""Largest parameter of a map of logits, in absolute value."""

EPSILON = float(np.finfo(np.float64).eps)
"""Least distance from 0 and 1 of scores whose logarithm is taken, as in scikit-learn's log loss."""

MOST_NUMBERS = 1 << 17
"""Largest length of a map in a question: enough for a value and an edge of each of 2^15 score bins, twice over, and
about a megabyte on the wire."""


class PlainMap:
    """Map that consists of its kind and the plain numbers in the fields of a dataclass."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the fields as plain values, from which `one_of` makes the map again."""
        return {"kind": self.kind, **{name: _plain(value) for name, value in self._fields().items()}}

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


class Map(PlainMap, ABC):
    """Function from scores in [0, 1] to probabilities in [0, 1]."""

    @abstractmethod
    def __call__(self, scores: Floats) -> Floats:
        """Return the calibrated probabilities. The caller has checked that scores are in [0, 1]."""

    def to_numbers(self) -> tuple[float, ...]:
        """Return all fields as numbers in a row, without the kind; `from_numbers` reads it."""
        return tuple(np.hstack(list(self._fields().values())).tolist())

    @classmethod
    def from_numbers(cls, numbers: tuple[float, ...]) -> Self:
        """Return the map that `to_numbers` was called on: where there are two fields, the second is the longer one."""
        half = len(numbers) // 2
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**dict(zip(names, (numbers[:half], numbers[half:]), strict=True)))


@dataclass(frozen=True, kw_only=True)
class Steps(Map):
    """Step function: a value below the first edge, between edges, and from the last edge up (half-open steps).

    Examples
    --------
    >>> Steps(edges=(0.5,), values=(0.1, 0.8))(np.array([0.0, 0.49, 0.5, 1.0]))
    array([0.1, 0.1, 0.8, 0.8])
    """

    kind: ClassVar[str] = "steps"

    edges: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", shares("edges", self.edges, strictly_inside=True))
        object.__setattr__(self, "values", shares("values", self.values))
        if len(self.values) != len(self.edges) + 1:
            raise UsageError(
                f"steps: got {len(self.edges)} edges and {len(self.values)} values, expected one value more."
            )
        _increasing("edges", self.edges)

    @classmethod
    def merged(cls, edges: ArrayLike, values: ArrayLike) -> Steps:
        """Build the same function with as few steps as possible; `edges` may repeat and include 0 and 1."""
        lower, kept = np.asarray(edges, dtype=np.float64), np.asarray(values, dtype=np.float64)
        wide = np.diff(np.concatenate([[0.0], lower, [1.0]])) > 0
        kept, starts = kept[wide], np.concatenate([[0.0], lower])[wide]
        new = np.concatenate([[True], kept[1:] != kept[:-1]])
        return cls(edges=tuple(starts[new][1:].tolist()), values=tuple(kept[new].tolist()))

    def __call__(self, scores: Floats) -> Floats:
        """See `Map`."""
        return np.asarray(self.values)[np.searchsorted(self.edges, scores, side="right")]


@dataclass(frozen=True, kw_only=True)
class InterpolatedMap(Map):
    """Straight lines between points, constant before the first and after the last.

    Examples
    --------
    >>> InterpolatedMap(scores=(0.2, 0.6), values=(0.1, 0.5))(np.array([0.0, 0.4, 1.0]))
    array([0.1, 0.3, 0.5])
    """

    kind: ClassVar[str] = "points"

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", shares("scores", self.scores))
        object.__setattr__(self, "values", shares("values", self.values))
        if not self.scores or len(self.values) != len(self.scores):
            raise UsageError(
                f"points: got {len(self.scores)} scores and {len(self.values)} values, expected equally many."
            )
        _increasing("scores", self.scores)

    def __call__(self, scores: Floats) -> Floats:
        """See `Map`."""
        # A line may round to just above the value at its end.
        return np.clip(np.interp(scores, self.scores, self.values), 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Sigmoid(Map):
    """1/(1 + exp(-(c + a ln s - b ln(1 - s)))): beta calibration, and Platt scaling of the logit if a = b.

    Examples
    --------
    >>> Sigmoid(a=1.0, b=1.0, c=0.0)(np.array([0.0, 0.25, 1.0])).round(6)
    array([0.  , 0.25, 1.  ])
    """

    kind: ClassVar[str] = "sigmoid"

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, float | int) or not math.isfinite(number):
                raise UsageError(f"sigmoid: got {number!r} for {name}, expected a finite number.")
            object.__setattr__(self, name, float(number))

    def __call__(self, scores: Floats) -> Floats:
        """See `Map`."""
        s = np.clip(scores, EPSILON, 1 - EPSILON)
        return np.asarray(expit(self.c + self.a * np.log(s) - self.b * np.log1p(-s)))

    @classmethod
    def from_numbers(cls, numbers: tuple[float, ...]) -> Self:
        """See `Map`."""
        if len(numbers) != 3:
            raise UsageError(f"sigmoid: got {len(numbers)} numbers, expected three: a, b and c.")
        a, b, c = numbers
        return cls(a=a, b=b, c=c)


_KINDS: tuple[type[Map], ...] = (Steps, InterpolatedMap, Sigmoid)
"""Kinds of maps. A kind is written as its place here: new kinds go to the end."""

MAPS: Mapping[str, type[Map]] = MappingProxyType({kind.kind: kind for kind in _KINDS})


def map_from_json(content: object) -> Map:
    """Return the map that `to_json` was called on; anything else is refused with a sentence.

    Examples
    --------
    >>> map_from_json({"kind": "sigmoid", "a": 1.0, "b": 1.0, "c": 0.5})
    Sigmoid(a=1.0, b=1.0, c=0.5)
    """
    return one_of(MAPS, content)


def numbers_of(one: Map) -> tuple[float, ...]:
    """Return the map as numbers in a row, of which the first is its kind; `map_from_numbers` reads it bit for bit.

    Raises `UsageError` for a map of more than `MOST_NUMBERS`.

    Examples
    --------
    >>> numbers_of(Steps(edges=(0.5,), values=(0.1, 0.8)))
    (0.0, 0.5, 0.1, 0.8)
    """
    return _short_enough((float(_KINDS.index(type(one))), *one.to_numbers()))


def map_from_numbers(numbers: Iterable[float]) -> Map | None:
    """Return the map that `numbers_of` was called on; None for no numbers, which stand for scores as they are.

    Anything else is refused with a sentence: each kind of map checks what it is made of.

    Examples
    --------
    >>> map_from_numbers([2.0, 1.0, 1.0, 0.5]), map_from_numbers(())
    (Sigmoid(a=1.0, b=1.0, c=0.5), None)
    """
    given = _short_enough(tuple(numbers))
    if not given:
        return None
    if given[0] not in range(len(_KINDS)):
        raise UsageError(
            f"map: got {given[0]!r} as its kind, expected a whole number from 0 to {len(_KINDS) - 1}."
        )
    return _KINDS[int(given[0])].from_numbers(given[1:])


def _short_enough(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if len(numbers) > MOST_NUMBERS:
        raise UsageError(
            f"map: got {len(numbers):,} numbers, expected at most {MOST_NUMBERS:,}; calibrate with fewer bins."
        )
    return numbers


def numbers(
    what: str, given: object, *, least: float = -LARGEST_PARAMETER, most: float = LARGEST_PARAMETER
) -> tuple[float, ...]:
    """Return the numbers of a map as floats; refuse anything else than numbers within the bounds."""
    if not isinstance(given, list | tuple):
        raise UsageError(f"map: {what} are not a list of numbers.")
    for number in given:
        if isinstance(number, bool) or not isinstance(number, float | int):
            raise UsageError(f"map: {what} hold something that is not a number.")
        if not least <= number <= most:  # NaN fails too
            raise UsageError(f"map: {what} hold {number}, expected numbers in [{least:g}, {most:g}].")
    return tuple(float(number) for number in given)


def shares(what: str, given: object, *, strictly_inside: bool = False) -> tuple[float, ...]:
    """Return the numbers of a map that have to be in [0, 1], or between 0 and 1."""
    found = numbers(what, given, least=0.0, most=1.0)
    ends = [number for number in found if number in (0.0, 1.0)]
    if strictly_inside and ends:
        raise UsageError(f"map: {what} hold {ends[0]}, expected numbers in [0, 1].")
    return found


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _increasing(what: str, numbers: tuple[float, ...]) -> None:
    if any(high <= low for low, high in pairwise(numbers)):
        raise UsageError(f"map: {what} are not increasing.")
