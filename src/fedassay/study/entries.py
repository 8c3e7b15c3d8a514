"""Entries of a TOML file, read by the parameters of a dataclass; what is wrong is said with its line.

Sections, the parameters of tasks and those of trust models are all frozen dataclasses. Their fields say which values an
entry can have (`parameters`), and the JSON Schema of the file is made from the same ones.

Where in a TOML text each key stands, so that an error about it can name the line.

`tomllib` keeps no positions, and neither does tomlkit; a second parser beside the one that reads the values could
disagree with it. This is no parser: it walks through a text that `tomllib` has accepted and only notes where keys are.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from fedassay.data.files import OPENERS
from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.parameters import Parameter, meant, parameters

# --- where in a TOML text each key stands -------------------------------------------------------------------

Key = tuple[str | int, ...]
"""The names that lead to an entry; a number is a place in an array."""

_Place = tuple[int, int]
"""Line and column, counted from 1."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}#\n]*")
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:\\.|[^\\])*?"""(?:"{0,2})',
        r"'''.*?'''(?:'{0,2})",
        r'"(?:\\.|[^"\\])*"',
        r"'[^']*'",
    )
)
"""Strings of several lines first, which begin like empty ones. They may end in quotes of their own."""


def key_places(text: str) -> Mapping[Key, _Place]:
    r"""Line and column of every key of a valid TOML text, and of every entry of its arrays.

    Guarantee: every path in what `tomllib.loads` returns for the text is found. A table is where its own header
    begins, and if it has none, where it is named first.

    Examples
    --------
    >>> places = key_places('a = 1\n[b]\n"c d" = {e = [2, 3]}\n')
    >>> places["b", "c d", "e"], places["b", "c d", "e", 1]
    ((3, 10), (3, 18))
    """
    walk = _Walk(text=text)
    walk.document()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(at: int) -> _Place:
        line = bisect_right(starts, at)
        return line, at - starts[line - 1] + 1

    return MappingProxyType({key: place(at) for key, at in walk.found.items()})


@dataclass
class _Walk:
    """One pass through the text: `at` is where it is, `found` where keys were."""

    text: str
    at: int = 0
    found: dict[Key, int] = field(default_factory=dict)
    lengths: dict[Key, int] = field(default_factory=dict)
    """Of arrays of tables, how many tables each has so far."""

    def document(self) -> None:
        table: Key = ()
        while self._skip(_BLANK) < len(self.text):
            if self.text.startswith("[[", self.at):
                table = self._array_header()
            elif self.text[self.at] == "[":
                table = self._header()
            else:
                self._entry(table)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = self.at if match is None else match.end()
        return self.at

    def _header(self) -> Key:
        start = self.at
        self.at += 1
        names = self._names()
        self.at += 1
        key = self._note((), [(name, start) for name, _ in names])
        self.found[key] = start  # a header says where a table is, even if a table in it came first
        return key

    def _array_header(self) -> Key:
        start = self.at
        self.at += 2
        names = self._names()
        self.at += 2
        key = (*self._note((), [(name, start) for name, _ in names[:-1]]), names[-1][0])
        self.found.setdefault(key, start)
        place = self.lengths.get(key, 0)
        self.lengths[key] = place + 1
        self.found[(*key, place)] = start
        return (*key, place)

    def _note(self, key: Key, names: list[tuple[str, int]]) -> Key:
        """Note names that lead on from a key; where an array of tables is meant, its last table."""
        for name, at in names:
            key = (*key, name)
            self.found.setdefault(key, at)
            if key in self.lengths:
                key = (*key, self.lengths[key] - 1)
        return key

    def _names(self) -> list[tuple[str, int]]:
        """The parts of a dotted key, each with where it begins; stops at what follows them."""
        names = []
        while True:
            self._skip(_SPACE)
            start = self.at
            names.append((self._name(), start))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return names
            self.at += 1

    def _name(self) -> str:
        start = self.at
        if self.text[start] not in "\"'":
            return self.text[start : self._skip(_BARE)]
        self._string()
        quoted: str = tomllib.loads(f"name = {self.text[start : self.at]}")["name"]
        return quoted

    def _string(self) -> None:
        for pattern in _STRINGS:
            match = pattern.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
                return
        raise AssertionError("tomllib has accepted a string that does not end")

    def _entry(self, table: Key) -> None:
        key = self._note(table, self._names())
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(key)

    def _value(self, key: Key) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(key)
        elif first == "{":
            self._inline_table(key)
        else:
            self._skip(_PLAIN)

    def _array(self, key: Key) -> None:
        self.at += 1
        place = 0
        while self.text[self._skip(_BLANK)] != "]":
            self.found[(*key, place)] = self.at
            self._value((*key, place))
            place += 1
            if self.text[self._skip(_BLANK)] == ",":
                self.at += 1
        self.at += 1

    def _inline_table(self, key: Key) -> None:
        self.at += 1
        while self.text[self._skip(_BLANK)] != "}":
            self._entry(key)
            if self.text[self._skip(_BLANK)] == ",":
                self.at += 1
        self.at += 1


# --- entries of a TOML file ---------------------------------------------------------------------------------

T = TypeVar("T")

_NAMED = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, kw_only=True)
class TomlDocument:
    """What a TOML file holds, and where."""

    path: Path
    content: Mapping[str, Any]
    places: Mapping[Key, _Place] = field(repr=False)
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
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
    def parse(cls, text: str, path: Path) -> TomlDocument:
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
        """The error about an entry; a parameter that it names is an entry as well."""
        wrong = _NAMED.sub(lambda match: f"{match[1]} = {match[2]}" if match[2] else match[1], wrong)
        return UsageError(f"{self.where(key)}: {wrong}")

    @property
    def root(self) -> Section:
        """The whole file."""
        return Section(document=self, key=(), entries=self.content)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of the file."""

    document: TomlDocument
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
                    name, f"{'' if self.key else 'a study '}has no {name!r}{meant(name, known)}."
                )

    def value(self, entry: Parameter) -> Any:
        """An entry that is there, as its parameter has it; paths are relative to the file."""
        given = self.entries[entry.name]
        if entry.item is Path and isinstance(given, str) and given:
            given = self.document.path.absolute().parent / given
        try:
            return entry.check(given)
        except ParameterError as error:
            problem = error.problem
            if isinstance(given, bool):
                problem = f"got {_shown(given)}, expected {entry.words}."
            raise self.problem(entry.name, f"{entry.name}: {problem}") from None

    def given(self, entries: Iterable[Parameter], *, besides: Collection[str] = ()) -> dict[str, Any]:
        """Its entries, each as its parameter has it; unknown ones are refused, `besides` are left to others."""
        known = {one.name: one for one in entries}
        self.only([*besides, *known])
        return {name: self.value(known[name]) for name in self.entries if name in known}

    def made(self, kind: type[T], *, besides: Collection[str] = (), **known: Any) -> T:
        """The dataclass that its entries make; what that objects to is about the entry that it names first."""
        given = self.given(parameters(kind), besides=besides)
        for one in parameters(kind):
            if one.required and one.name not in given:
                needs = f"needs {one.name}, {one.words}."
                raise self.problem(None, needs if self.key else f"a study {needs}")
        try:
            return kind(**given, **known)
        except UsageError as error:
            raise self.located(error) from error

    def located(self, error: UsageError) -> UsageError:
        """The same objection with the line of the entry that it begins with, or of this section."""
        subject = str(error).partition(":")[0]
        named = (name for name, _ in _NAMED.findall(str(error)))
        names = (re.sub(r"[ -]", "_", subject), subject.partition(" ")[0], *named)
        return self.problem(next((name for name in names if name in self.entries), None), str(error))


def _shown(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}.."
