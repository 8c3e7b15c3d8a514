"""Parameters, declared once: as the fields of a frozen dataclass, each with a type and a sentence below it.

Everything that speaks of a parameter reads it here: the check of its value and the sentence of the error, the option of
the command line with its help, the entry of a study file with its JSON Schema, and the line in the documentation.

>>> @dataclass(frozen=True, kw_only=True)
... class Shape(Checked):
...     '''A shape.'''
...
...     sides: Annotated[int, Interval(ge=3, le=12)] = 4
...     '''Number of sides.'''
...     colour: Literal["red", "blue"] = "red"
...     '''Colour of the surface.'''
>>> [(side.name, side.words) for side in parameters(Shape)]
[('sides', 'a whole number from 3 to 12'), ('colour', 'red or blue')]
>>> Shape(sides=2)
Traceback (most recent call last):
fedassay.errors.ParameterError: sides: got 2, expected a whole number from 3 to 12.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from difflib import get_close_matches
from enum import EnumType
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Interval as Interval  # declared here for all parameters

from fedassay.errors import ParameterError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

Fraction = Annotated[float, Interval(gt=0, lt=1)]
"""A number strictly between 0 and 1."""

INTERNAL = {"parameter": False}
"""Metadata of a field that no user gives: ``state: State | None = field(default=None, metadata=INTERNAL)``."""


@dataclass(frozen=True)
class Listed:
    """Metadata of a list that the command line takes as one word with commas, such as ``--score-range 0,10``."""

    metavar: str = "A,B,.."


@dataclass(frozen=True)
class Stated:
    """Metadata of public knowledge that users have to state: its default is for calls in code alone."""


_NOUNS: Mapping[Any, tuple[str, str]] = {
    bool: ("true or false", "values true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a dataclass.

    Parameters
    ----------
    name : of the field.
    annotation : its declared type, with metadata and with None where it may be left open.
    default : MISSING where it has to be given.
    sentence : what stands below the field.
    """

    name: str
    annotation: Any
    default: Any
    sentence: str

    @property
    def optional(self) -> bool:
        """True if the value None is allowed."""
        return _is_union(self.annotation) and NoneType in get_args(self.annotation)

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is MISSING

    @property
    def several(self) -> bool:
        """True if the value is a list; a single value is then a list of one."""
        return get_origin(_bare(self._known)[0]) is tuple

    @property
    def mixed(self) -> bool:
        """True if it is a choice or a list: ``Literal["uniform", "quantile"] | tuple[float, ...]``."""
        return _is_union(_bare(self._known)[0])

    @property
    def listed(self) -> Listed | None:
        """The form of a list as one word of the command line; None where the option is repeated instead."""
        return next((mark for mark in _bare(self._known)[1] if isinstance(mark, Listed)), None)

    @property
    def shown_default(self) -> Any:
        """The default as faces say it; None where there is none to say."""
        stated = any(isinstance(mark, Stated) for mark in _bare(self._known)[1])
        return None if self.required or stated else self.default

    @property
    def item(self) -> Any:
        """The type of a value, or of each value of a list; without metadata and without None."""
        kind = _bare(self._known)[0]
        return _bare(get_args(kind)[0])[0] if self.several else kind

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words of an enumerated parameter; empty for others."""
        kinds = get_args(self.item) if self.mixed else (self.item,)
        return tuple(str(choice) for kind in kinds for choice in _choices(kind))

    @property
    def words(self) -> str:
        """The expected value, as errors and help say it."""
        kind, limits = _bare(self._known)
        return _words(kind, limits)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its values; None is no value that a file could give."""
        if isinstance(self.item, EnumType):
            return {"type": "string", "enum": list(self.choices)}
        schema = _schema(_adapter(self._known).json_schema())
        return {"anyOf": [schema["items"], schema]} if self.several else schema

    def check(self, value: Any) -> Any:
        """The value, with whole numbers as numbers and lists as tuples where these are meant; others are refused."""
        from pydantic import ValidationError

        plain = self._plain(value)
        try:
            return _adapter(self.annotation).validate_python(plain)
        except ValidationError as error:
            got, expected = value, self.words
            place = error.errors()[0]["loc"][-1:]
            if self.several and isinstance(value, Iterable) and not isinstance(value, str) and place:
                got, expected = plain[place[0]], _words(*_bare(get_args(_bare(self._known)[0])[0]))
            raise ParameterError(
                self.name, f"got {shown(got)}{_guess(got, self.choices)}, expected {expected}."
            ) from None

    def _plain(self, value: Any) -> Any:
        """Scalars of NumPy as Python's own, lists as tuples, a single value as a list of one."""
        value = _scalar(value)
        if isinstance(self.item, EnumType) and value in self.choices:
            return self.item(value)
        if value is None or not (self.several or self.mixed):
            return value
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return (value,) if self.several else value
        return tuple(map(_scalar, value))

    @property
    def _known(self) -> Any:
        """The declared type without None."""
        if not self.optional:
            return self.annotation
        kinds = tuple(kind for kind in get_args(self.annotation) if kind is not NoneType)
        return kinds[0] if len(kinds) == 1 else Union[kinds]  # noqa: UP007 # made at run time


class Checked:
    """A dataclass whose fields are checked, and normalised, by what they declare.

    A subclass that checks more in `__post_init__` calls this one first.
    """

    def __post_init__(self) -> None:
        for parameter in parameters(type(self)):
            value = getattr(self, parameter.name)
            object.__setattr__(self, parameter.name, parameter.check(value))


def parameters(kind: type[Any]) -> tuple[Parameter, ...]:
    """The parameters of a dataclass: its own in the order of its fields, then those that it inherits."""
    return _parameters(cast("Hashable", kind))


def values_of(thing: Any) -> dict[str, Any]:
    """The values of an object's parameters, by name."""
    return {known.name: getattr(thing, known.name) for known in parameters(type(thing))}


def parameter(kind: type[Any], name: str) -> Parameter:
    """The parameter of this name."""
    return next(known for known in parameters(kind) if known.name == name)


@cache
def _parameters(kind: Any) -> tuple[Parameter, ...]:
    hints = get_type_hints(kind, include_extras=True)
    sentences = _sentences(kind)
    return tuple(
        Parameter(
            name=field.name,
            annotation=hints[field.name],
            default=field.default,
            sentence=sentences.get(field.name, ""),
        )
        for field in sorted(dataclasses.fields(kind), key=lambda field: _distance(kind, field.name))
        if field.metadata.get("parameter", True)
    )


def _distance(kind: type[Any], name: str) -> int:
    """The number of classes below the one that declares a field first."""
    return next(k for k, base in enumerate(kind.__mro__) if name in inspect.get_annotations(base))


def made(kind: type[T], values: Mapping[str, Any], *, of: str = "", **internal: Any) -> T:
    """The dataclass with these values; a name that it does not have is refused, with what may have been meant.

    Fields that no user gives are `internal`.
    """
    known = {parameter.name: parameter for parameter in parameters(kind)}
    for name in values:
        if name not in known:
            raise ParameterError(name, f"unknown parameter{of and f' of {of}'}{meant(name, known)}.")
    for name, parameter in known.items():
        if parameter.required and name not in values:
            raise ParameterError(name, f"missing, expected {parameter.words}.")
    return kind(**values, **internal)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, and all of them."""
    names = list(known)
    if not names:
        return ", which has none"
    return f"{_guess(name, names)}; expected {', '.join(names)}"


def _guess(value: Any, names: Iterable[str]) -> str:
    """The name that was probably meant, as a part of an error."""
    close = get_close_matches(value, names, n=1) if isinstance(value, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: Any) -> str:
    """A value as an error repeats it: short, in one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def in_words(names: Iterable[str], *, last: str = "or") -> str:
    """Names as an enumeration.

    Examples
    --------
    >>> in_words(["a"]), in_words(["a", "b"]), in_words(["a", "b", "c"])
    ('a', 'a or b', 'a, b or c')
    """
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} {last} {listed[-1]}"


# --- types ------------------------------------------------------------------------------------------------------


def _is_union(kind: Any) -> bool:
    return isinstance(kind, UnionType) or get_origin(kind) is Union


def _bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its metadata, and the metadata."""
    if get_origin(kind) is Annotated:
        bare, *metadata = get_args(kind)
        return bare, tuple(metadata)
    return kind, ()


def _scalar(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a choice; none for other types."""
    if isinstance(kind, EnumType):
        return tuple(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _words(kind: Any, metadata: tuple[Any, ...] = ()) -> str:
    if _choices(kind):
        return in_words(map(str, _choices(kind)))
    if _is_union(kind):
        choices, items = get_args(kind)
        return f"{', '.join(map(str, get_args(choices)))}, or a list of {_NOUNS[get_args(items)[0]][1]}"
    if get_origin(kind) is tuple:
        item, limits = _bare(get_args(kind)[0])
        if get_origin(item) is Literal:
            return f"one or more of {', '.join(map(str, get_args(item)))}"
        return f"{_words(item, limits)} or a list of {_NOUNS[item][1]}"
    if kind not in _NOUNS:
        return "a table" if get_origin(kind) in (Mapping, dict) else str(kind)
    noun = _NOUNS[kind][0]
    ranges = [_range(limits) for limits in metadata if isinstance(limits, Interval)]
    return " ".join([noun, *ranges]).rstrip()


def _range(limits: Interval) -> str:
    """The bounds of a number in words.

    Examples
    --------
    >>> _range(Interval(ge=2, le=2048)), _range(Interval(gt=0, lt=1)), _range(Interval(gt=0, le=1))
    ('from 2 to 2,048', 'between 0 and 1', 'above 0 and at most 1')
    """
    if limits.ge is not None and limits.le is not None:
        return f"from {_number(limits.ge)} to {_number(limits.le)}"
    if limits.gt is not None and limits.lt is not None:
        return f"between {_number(limits.gt)} and {_number(limits.lt)}"
    ends = {"from": limits.ge, "above": limits.gt, "at most": limits.le, "below": limits.lt}
    return " and ".join(f"{word} {_number(end)}" for word, end in ends.items() if end is not None)


def _number(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,g}"


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without the titles that pydantic gives, and with Literals of one value as enumerations of one."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "format")}
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if "items" in kept:
        kept["items"] = _schema(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_schema(choice) for choice in kept["anyOf"]]
    return kept


# --- sentences ----------------------------------------------------------------------------------------------------


def _sentences(kind: type[Any]) -> dict[str, str]:
    """The sentences below the fields of a class and of its bases."""
    sentences: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            sentences |= _of_module(base.__module__).get(base.__qualname__, {})
    return sentences


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """The sentences below the fields of every class of a module, by the qualified name of the class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # made without a file
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}", _fields(node.body)
            yield from _classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield from _classes(node.body, f"{prefix}{node.name}.<locals>.")


def _fields(body: Sequence[ast.stmt]) -> dict[str, str]:
    return {
        field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
