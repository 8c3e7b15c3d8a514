"""Where keys of a TOML text stand, against what tomllib reads from it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.protocol.toml_places import Key, key_places

BARE = st.text("abz_-019", min_size=1, max_size=4)
QUOTED = st.text("a .=#[]{}\"'\\\té\n", max_size=4)
KEYS = st.one_of(BARE, QUOTED)
TEXTS = st.text("ab \"'\\#[]{}=,.\n", max_size=8)


def written_key(draw: Any, key: str) -> str:
    if key and all(one in "abz_-019" for one in key) and draw(st.booleans()):
        return key
    if key.isprintable() and "'" not in key and draw(st.booleans()):
        return f"'{key}'"
    return json.dumps(key)


def written_text(draw: Any, text: str) -> str:
    styles = [json.dumps(text, ensure_ascii=False)]
    if "'" not in text and "\n" not in text:
        styles.append(f"'{text}'")
    if "'''" not in text and not text.endswith("'"):
        styles.append(f"'''\n{text}'''")
    escaped = text.replace("\\", "\\\\").replace('"""', '""\\"')
    styles.append(f'"""\n{escaped}"""')  # what ends in a quote ends in four of them
    return draw(st.sampled_from(styles))


@st.composite
def values(draw: Any, depth: int = 2) -> tuple[str, Any]:
    """A value as TOML, with what is read from it."""
    kinds = ["number", "text", "truth", "time"] + (["array", "table"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "array":
        parts = draw(st.lists(values(depth - 1), max_size=3))
        between = draw(st.sampled_from([", ", ",\n  ", " , # x = [1]\n"]))
        end = "," if parts and draw(st.booleans()) else ""
        return f"[{between.join(text for text, _ in parts)}{end}]", [value for _, value in parts]
    if kind == "table":
        entries = draw(st.dictionaries(KEYS, values(depth - 1), max_size=3))
        inner = ", ".join(f"{written_key(draw, key)} = {text}" for key, (text, _) in entries.items())
        return f"{{{inner}}}", {key: value for key, (_, value) in entries.items()}
    if kind == "text":
        text = draw(TEXTS)
        return written_text(draw, text), text
    plain = {"number": ["1", "-2.5e3", "0x1F", "1_000"], "truth": ["true"], "time": ["1979-05-27 07:32:00"]}
    text = draw(st.sampled_from(plain[kind]))
    return text, tomllib.loads(f"v = {text}")["v"]


@st.composite
def documents(draw: Any) -> str:
    """Top-level entries, dotted ones, tables and arrays of tables, with comments and blank lines between them."""
    lines = []
    names = draw(st.lists(KEYS, min_size=1, max_size=6, unique=True))
    headers = False
    for name in names:
        gap = draw(st.sampled_from(["", "\n", "# a = [\n", "  "]))
        key = written_key(draw, name)
        kind = draw(st.sampled_from(["entry", "dotted", "table", "array", "deep"]))
        text, _ = draw(values())
        if kind == "entry" and not headers:
            lines.append(f"{gap}{key} = {text}  # = [x]")
        elif kind == "dotted" and not headers:
            inner = draw(KEYS)
            lines.append(f"{gap}{key} . {written_key(draw, inner)} = {text}")
        elif kind == "array":
            headers = True
            for _ in range(draw(st.integers(1, 3))):
                inner = written_key(draw, draw(KEYS))
                lines.append(f"{gap}[[ {key} ]]\n{inner} = {text}\n[{key}.sub]\nx = 1")
        else:
            headers = True
            sub = f".{written_key(draw, draw(KEYS))}" if kind == "deep" else ""
            lines.append(f"{gap}[{key}{sub}]\n{written_key(draw, draw(KEYS))} = {text}")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


def paths(value: Any, path: Key = ()) -> Iterator[Key]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths(one, (*path, key))


def check(text: str) -> None:
    content = tomllib.loads(text)
    places = key_places(text)
    assert set(paths(content)) == set(places)
    lines = text.split("\n")
    for path, (line, column) in places.items():
        rest = lines[line - 1][column - 1 :]
        name = path[-1]
        if isinstance(name, int) or rest.startswith("["):
            assert rest
        elif rest[0] in "\"'":
            quote = rest[: rest.index(rest[0], 1) + 1] if rest[0] == "'" else json_string(rest)
            assert tomllib.loads(f"v = {quote}")["v"] == name
        else:
            assert rest.startswith(name)


def json_string(text: str) -> str:
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end]


def valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def test_every_path_that_tomllib_yields_has_a_place() -> None:
    tried = []

    @given(documents())
    @settings(max_examples=60, deadline=None)
    def every_path(text: str) -> None:
        tried.append(valid(text))  # not if the same key was drawn twice
        if tried[-1]:
            check(text)

    every_path()
    assert sum(tried) > 0.7 * len(tried)


@pytest.mark.parametrize(
    ("text", "path", "place"),
    [
        ("a = 1", ("a",), (1, 1)),
        ("\n\n  a = 1", ("a",), (3, 3)),
        ("[a.b]\nc = 1\n[a]\nd = 2", ("a",), (3, 1)),
        ("[a.b]\nc = 1", ("a",), (1, 1)),
        ('s = """\nx = 1\n"""\nx = 2', ("x",), (4, 1)),
        ("s = '''\n[t]\n'''\n[t]\ny = 1", ("t", "y"), (5, 1)),
        ('s = """a\\"""b"""\nx = 2', ("x",), (2, 1)),
        ('s = """"a""""\nx = 2', ("x",), (2, 1)),
        ("[[t]]\nx = 1\n[[t]]\nx = 2", ("t", 1, "x"), (4, 1)),
        ("[[t]]\n[t.u]\nx = 1\n[[t]]\n[t.u]\nx = 2", ("t", 1, "u", "x"), (6, 1)),
        ("a = [\n  1, # [\n  2,\n]\nb = 1", ("a", 1), (3, 3)),
        ("a = {b.c = 1, d = [{e = 1}]}", ("a", "d", 0, "e"), (1, 21)),
        ("a.b.c = 1\na.b.d = 2", ("a", "b", "d"), (2, 5)),
        ('"a b"."c.d" = 1', ("a b", "c.d"), (1, 7)),
        ("# only = 1\na = '#' # b = 2\nc = 3", ("c",), (3, 1)),
    ],
)
def test_places(text: str, path: Key, place: tuple[int, int]) -> None:
    assert key_places(text)[path] == place
    check(text)


def test_carriage_returns_count_as_space() -> None:
    assert key_places("a = 1\r\nb = 2\r\n[c]\r\nd = 3")["c", "d"] == (4, 1)
