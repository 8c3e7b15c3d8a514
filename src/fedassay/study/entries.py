"""Entries of a TOML file, read by the annotations of a dataclass; what is wrong is said with its line.

Sections, the parameters of tasks and those of trust models are all frozen dataclasses with plain fields. Their
annotations say which type an entry has, and the JSON Schema of the file is made from the same ones.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fedassay.data.files import OPENERS
from fedassay.errors import UsageError
from fedassay.study.lines import Key, Place, key_places

T = TypeVar("T")

WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    Path: "a path in quotes",
    tuple[float, ...]: "a list of numbers",
    tuple[str, ...]: "a list of texts in quotes",
    Mapping[str, Any]: "a table",
}
"""The types that an entry can have, and what errors call them."""

_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_OPTION = re.compile(r"--([a-z][a-z-]*)")


class WrongType(Exception):
    """A value of another type than its entry has."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a TOML file holds, and where."""

    path: Path
    content: Mapping[str, Any]
    places: Mapping[Key, Place] = field(repr=False)
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read and parse a file, or say in which line it is not TOML."""
        if path.suffix.lower() in OPENERS or path.is_dir():
            raise UsageError(
                f"{path}: is not a study; write one for these rows with: fedassay init {shlex.quote(str(path))}"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be read ({error.strerror}); `fedassay init` writes a first study."
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8.") from error
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: Path) -> Document:
        """Parse the text of a file of this name."""
        text = text.replace("\r\n", "\n")
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            match = _PLACE.search(str(error))
            where = f", line {match[1]}, column {match[2]}" if match else ""
            wrong = _PLACE.sub("", str(error))
            raise UsageError(f"{path}{where}: is not TOML ({wrong}); correct it there.") from error
        return cls(path=path, content=content, places=key_places(text), text=text)

    def where(self, key: Key) -> str:
        """The file, and the line of an entry or, where it is missing, of what it would be in."""
        for end in range(len(key), 0, -1):
            if key[:end] in self.places:
                line, column = self.places[key[:end]]
                return f"{self.path}, line {line}" + (f", column {column}" if column > 1 else "")
        return str(self.path)

    def problem(self, key: Key, wrong: str) -> UsageError:
        """The error about an entry; what names options of commands names entries here."""
        wrong = _OPTION.sub(lambda match: match[1].replace("-", "_"), wrong)
        return UsageError(f"{self.where(key)}: {wrong}")

    @property
    def root(self) -> Section:
        """The whole file."""
        return Section(document=self, key=(), entries=self.content)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of the file."""

    document: Document
    key: Key
    entries: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"[{'.'.join(map(str, self.key))}]"

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def problem(self, name: str | None, wrong: str) -> UsageError:
        """The error about one of its entries, or about all of it."""
        where = self.key if name is None else (*self.key, name)
        return self.document.problem(where, f"{self.title} {wrong}" if self.key else wrong)

    def section(self, name: str) -> Section:
        """A table in it, empty if there is none."""
        entries = self.entries.get(name, {})
        if not isinstance(entries, dict):
            raise self.problem(name, f"{name}: got {_shown(entries)}, expected a section ([{name}]).")
        return Section(document=self.document, key=(*self.key, name), entries=entries)

    def only(self, known: Collection[str]) -> None:
        """Refuse every entry but these; suggest what may have been meant."""
        for name in self.entries:
            if name not in known:
                raise self.problem(
                    name, f"{'' if self.key else 'a study '}has no {name!r}{_meant(name, known)}."
                )

    def value(self, name: str, kind: Any) -> Any:
        """An entry as this type."""
        try:
            return typed(self.entries[name], kind, folder=self.document.path.absolute().parent)
        except WrongType:
            got = _shown(self.entries[name])
            raise self.problem(name, f"{name}: got {got}, expected {words(kind)}.") from None

    def given(self, types: Mapping[str, Any], *, besides: Collection[str] = ()) -> dict[str, Any]:
        """Its entries, each of the type that it must have; unknown ones are refused, `besides` are left to others."""
        self.only([*besides, *types])
        return {name: self.value(name, types[name]) for name in self.entries if name in types}

    def made(self, kind: type[T], *, besides: Collection[str] = (), **known: Any) -> T:
        """The dataclass that its entries make; what that objects to is about the entry that it names first."""
        types = field_types(kind)
        given = self.given(types, besides=besides)
        for one in fields(kind):  # type: ignore[arg-type]
            if one.name in types and one.name not in given and not has_default(one):
                needs = f"needs {one.name}, {words(types[one.name])}."
                raise self.problem(None, needs if self.key else f"a study {needs}")
        try:
            return kind(**given, **known)
        except UsageError as error:
            raise self.located(error) from error

    def located(self, error: UsageError) -> UsageError:
        """The same objection with the line of the entry that it begins with, or of this section."""
        subject = str(error).partition(":")[0]
        names = (re.sub(r"[ -]", "_", subject), subject.partition(" ")[0])
        return self.problem(next((name for name in names if name in self.entries), None), str(error))


def field_types(kind: type[Any]) -> dict[str, Any]:
    """The types of the fields of a dataclass, by name, without those that no file gives.

    Those have ``metadata={"entry": False}``.
    """
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind) if one.metadata.get("entry", True)}


def has_default(one: Field[Any]) -> bool:
    """Whether the entry may be left out."""
    return one.default is not MISSING or one.default_factory is not MISSING


def plain(kind: Any) -> Any:
    """The type without None, for an entry that may be left out."""
    if get_origin(kind) is UnionType:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return kind


def words(kind: Any) -> str:
    """What errors call a type."""
    return WORDS[plain(kind)]


def typed(value: Any, kind: Any, *, folder: Path = Path()) -> Any:
    """A value of a TOML file as this type: whole numbers are numbers too, lists become tuples.

    Examples
    --------
    >>> typed(1, float), typed([1, 0.5], tuple[float, ...]), typed("a.csv", Path, folder=Path("/data"))
    (1.0, (1.0, 0.5), PosixPath('/data/a.csv'))
    """
    kind = plain(kind)
    if get_origin(kind) is tuple:
        if type(value) is not list:
            raise WrongType
        return tuple(typed(one, get_args(kind)[0]) for one in value)
    if get_origin(kind) is not None:
        kind = get_origin(kind)
        if not isinstance(value, kind):
            raise WrongType
        return value
    if kind is Path and type(value) is str and value:
        return folder / value
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type(value) is not kind:
        raise WrongType
    return value


def _shown(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}.."


def _meant(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    guess = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{guess}; expected {', '.join(known)}"
