"""The reference of the public names, made from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import fedassay
from fedassay.protocol.vocabulary import TrustModel

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Studies", ("fedassay.api.study", "fedassay.study")),
    ("Tasks", ("fedassay.api",)),
    ("Artefacts", ("fedassay.artefacts",)),
    ("Privacy", ("fedassay.protocol.vocabulary",)),
    ("Trust models", ("fedassay.trust",)),
    ("Data and simulation", ("fedassay.data", "fedassay.study.simulation")),
    ("Results and displays", ("fedassay.protocol.result", "fedassay.documents", "fedassay.tasks")),
    ("Losses of your own", ("fedassay.summaries",)),
)
"""Headings of the page, and the modules whose names stand below them; of several that fit, the first."""

_WIDE = 100
_RULE = re.compile(r"-{3,}")
_ENTRY = re.compile(r"(\S.*?) : (.*)")
_LISTS = ("Parameters", "Raises", "Attributes")


def api_page(package: ModuleType = fedassay) -> str:
    """Every public name with its signature and what its docstring says, as a page of the documentation."""
    names = {name: getattr(package, name) for name in package.__all__ if name != "__version__"}
    lines = [
        "# Python",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date. All names are in `fedassay`:",
        "`fedassay.evaluate(..)`. What else there is, below `fedassay.planning` for instance, is shown by the",
        "[how-to pages](../index.md#how-to).",
        "",
    ]
    left = dict(names)
    for title, homes in (*SECTIONS, ("Others", ("",))):
        here = {
            name: left.pop(name) for name, found in names.items() if name in left and _lives(found, homes)
        }
        if here:
            lines += [f"## {title}", ""]
        for name in sorted(here, key=str.lower):
            lines += _public(name, here[name])
    return "\n".join(lines).rstrip() + "\n"


def _lives(found: Any, homes: tuple[str, ...]) -> bool:
    module = found.__module__
    return any(home in ("", module) or module.startswith(home + ".") for home in homes)


def _public(name: str, found: Any) -> Iterator[str]:
    """One name: the heading, how it is called, what it says, and what can be done with it."""
    yield from (f"### {name}", "")
    if isinstance(found, type) and issubclass(found, Enum):
        yield from described(inspect.getdoc(found) or "")
        yield from (*(f"- `{name}.{one.name}` is `{one.value!r}`" for one in found), "")
        return
    yield from ("```python", called(name, found), "```", "")
    yield from described(inspect.getdoc(found) or "")
    # What a trust model does is for runtimes to call, and documented where the vocabulary is.
    if isinstance(found, type) and not issubclass(found, TrustModel):
        for member, kind in _members(found):
            text = inspect.getdoc(kind) or ""
            yield f"- `{_one_line(member, kind)}`: {' '.join(text.partition(chr(10) * 2)[0].split())}"
        yield ""


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that are documented, without those that come from outside."""
    for name, found in inspect.getmembers_static(kind):
        value = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        home = getattr(value.fget if isinstance(value, property) else value, "__module__", None) or ""
        kinds = inspect.isfunction(value) or isinstance(value, property)
        if kinds and not name.startswith("_") and home.startswith("fedassay") and inspect.getdoc(value):
            yield name, value


def _one_line(name: str, member: Any) -> str:
    return name if isinstance(member, property) else called(name, member, wide=10_000)


def called(name: str, found: Any, *, wide: int = _WIDE) -> str:
    """The signature as one would type it; on several lines if it is long.

    Examples
    --------
    >>> def mean(values: list[float], *, weight: float = 1.0) -> float:
    ...     return weight * sum(values)
    >>> called("mean", mean)
    'mean(values: list[float], *, weight: float = 1.0) -> float'
    """
    signature = inspect.signature(found)
    parts: list[str] = []
    starred = False
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        starred = starred or one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(_parameter(one))
    result = "" if isinstance(found, type) else f" -> {_type(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= wide:
        return line
    return "\n".join((f"{name}(", *(f"    {part}," for part in parts), f"){result}"))


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    typed = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    # A default that is made anew each time, or that is no plain value, has no text to type.
    plain = isinstance(one.default, str | int | float | tuple | type(None)) and not isinstance(
        one.default, Enum
    )
    return f"{stars}{one.name}{typed} = {repr(one.default) if plain else '...'}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def described(text: str) -> list[str]:
    r"""A docstring as Markdown: sections in bold, their entries as lists, examples as code.

    Examples
    --------
    >>> described("What.\n\nParameters\n----------\nx : a number,\n    in bits.")
    ['What.', '', '**Parameters**', '', '- `x`: a number, in bits.', '']
    """
    lines, made, listed = text.splitlines(), [], False
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if _RULE.fullmatch(following):
            listed = line in _LISTS
            made += [f"**{line}**", ""]
        elif _RULE.fullmatch(line):
            continue
        elif listed and line.startswith(" ") and made[-1]:
            made[-1] += f" {line.strip()}"
        elif listed and line and (entry := _ENTRY.fullmatch(line)):
            made.append(f"- `{entry[1]}`: {entry[2]}")
        elif listed and line and following.startswith(" "):
            made.append(f"- `{line}`:")
        else:
            listed = listed and not line
            made.append(line)
    return [*_fenced(made), ""]


def _fenced(lines: list[str]) -> Iterator[str]:
    """Examples, from the prompt to the next blank line, as code."""
    inside = False
    for line in lines:
        if line.startswith(">>>") and not inside:
            inside = True
            yield "```python"
        elif inside and not line:
            inside = False
            yield "```"
        yield line
    if inside:
        yield "```"
