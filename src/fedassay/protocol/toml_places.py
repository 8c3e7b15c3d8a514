"""Where in a TOML text each key stands, so that an error about it can name the line.

`tomllib` keeps no positions, and neither does tomlkit; a second parser beside the one that reads the values could
disagree with it. This is no parser: it walks through a text that `tomllib` has accepted and only notes where keys are.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Key = tuple[str | int, ...]
"""The names that lead to an entry; a number is a place in an array."""

KeyPlace = tuple[int, int]
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


def toml_content(text: str) -> dict[str, Any]:
    """What a TOML text holds; a `tomllib.TOMLDecodeError` also where it is nested too deeply to be read.

    Examples
    --------
    >>> toml_content("name = 'spring'")
    {'name': 'spring'}
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None


def key_places(text: str) -> Mapping[Key, KeyPlace]:
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

    def place(at: int) -> KeyPlace:
        line = bisect_right(starts, at)
        return line, at - starts[line - 1] + 1

    return MappingProxyType({key: place(at) for key, at in walk.found.items()})


def nearest_place(key: Key, places: Mapping[Key, KeyPlace]) -> KeyPlace | None:
    r"""Find the place of an entry or, where it is missing, of what it would be in.

    Examples
    --------
    >>> nearest_place(("total", "delta"), key_places("a = 1\n[total]\nepsilon = 0"))
    (2, 1)
    """
    return next((places[key[:end]] for end in range(len(key), 0, -1) if key[:end] in places), None)


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
