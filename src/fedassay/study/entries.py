"""Entries of a TOML file, read by the parameters of a dataclass; errors name the line.

Sections, the parameters of tasks and those of trust models are all frozen dataclasses. Their fields say which values an
entry can have (`parameters`), and the JSON Schema of the file is made from the same ones.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedassay.data.files import OPENERS
from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.parameters import Parameter, meant, parameters
from fedassay.protocol.toml_places import Key, KeyPlace, key_places, nearest_place, toml_content

T = TypeVar("T")

_NAMED = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, kw_only=True)
class TomlDocument:
    """Content of a TOML file, and where each entry stands."""

    path: Path
    content: Mapping[str, Any]
    places: Mapping[Key, KeyPlace] = field(repr=False)
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """Read and parse a file; raise with the line in which it is not TOML."""
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
            content = toml_content(text)
        except tomllib.TOMLDecodeError as error:
            match = _PLACE.search(str(error))
            where = f", line {match[1]}, column {match[2]}" if match else ""
            wrong = _PLACE.sub("", str(error))
            raise UsageError(f"{path}{where}: is not TOML ({wrong}); correct it there.") from error
        return cls(path=path, content=content, places=key_places(text), text=text)

    def where(self, key: Key) -> str:
        """Return the file, and the line of an entry or, where it is missing, of the table it would be in."""
        place = nearest_place(key, self.places)
        if place is None:
            return str(self.path)
        line, column = place
        return f"{self.path}, line {line}" + (f", column {column}" if column > 1 else "")

    def problem(self, key: Key, wrong: str) -> UsageError:
        """Return the error about an entry; a parameter that it names is an entry as well."""
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
        """Name of the table in errors."""
        return f"[{'.'.join(map(str, self.key))}]"

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def problem(self, name: str | None, wrong: str) -> UsageError:
        """Return the error about one of its entries, or about all of it."""
        where = self.key if name is None else (*self.key, name)
        return self.document.problem(where, f"{self.title} {wrong}" if self.key else wrong)

    def section(self, name: str) -> Section:
        """Return a table in it, empty if there is none."""
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
        """Return an entry that is there, as its parameter has it; paths are relative to the file."""
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
        """Return its entries, each as its parameter has it; refuse unknown ones and skip `besides`."""
        known = {one.name: one for one in entries}
        self.only([*besides, *known])
        return {name: self.value(known[name]) for name in self.entries if name in known}

    def made(self, kind: type[T], *, besides: Collection[str] = (), **known: Any) -> T:
        """Make the dataclass of its entries; an objection of it is located at the entry that it names first."""
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
        """Return the same objection with the line of the entry that it begins with, or of this section."""
        subject = str(error).partition(":")[0]
        named = (name for name, _ in _NAMED.findall(str(error)))
        names = (re.sub(r"[ -]", "_", subject), subject.partition(" ")[0], *named)
        return self.problem(next((name for name in names if name in self.entries), None), str(error))


def _shown(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}.."
