"""Results as short documents, and how two of them are compared on processors that round differently."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LONGEST, LONGEST_OF_MAPPINGS = 8, 3
"""Longer arrays are stored as their length, both ends and the sum of all numbers in them."""

ARRAY = "array"
"""The key of a long array's length, first entry, last entry and sum."""

DIGITS, WIDTH = 8, 180

LONG_NUMBER = re.compile(r"-?\d+\.\d{7,}(?:e-?\d+)?")

RELATIVE, ABSOLUTE = 1e-6, 1e-10


def write(path: Path, document: Any) -> None:
    """Store a document as JSON that can be read and compared line by line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(document, 0) + "\n", "utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def summarised(value: Any) -> Any:
    """The same document with long arrays made short."""
    if isinstance(value, Mapping):
        return {str(key): summarised(item) for key, item in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if not isinstance(value, list | tuple):
        return value
    nested = any(isinstance(item, Mapping) for item in value)
    if len(value) <= (LONGEST_OF_MAPPINGS if nested else LONGEST):
        return [summarised(item) for item in value]
    total = summarised(math.fsum(_numbers(value)))
    return {ARRAY: [len(value), summarised(value[0]), summarised(value[-1]), total]}


def differences(
    stored: Any, current: Any, *, relative: float = RELATIVE, absolute: float = ABSOLUTE, place: str = ""
) -> Iterator[str]:
    """Where two documents differ: structure, texts and whole numbers exactly, other numbers up to a tolerance."""
    if isinstance(stored, dict) and isinstance(current, dict):
        if list(stored) != list(current):
            yield f"{place}: the keys {list(current)}, stored {list(stored)}"
            return
        for key, value in stored.items():
            # Terms of a sum may cancel.
            more = absolute + (relative * value[0] if key == ARRAY else 0)
            where = f"{place}.{key}"
            yield from differences(value, current[key], relative=relative, absolute=more, place=where)
    elif isinstance(stored, list) and isinstance(current, list):
        if len(stored) != len(current):
            yield f"{place}: {len(current)} entries, stored {len(stored)}"
            return
        for number, (before, now) in enumerate(zip(stored, current, strict=True)):
            where = f"{place}[{number}]"
            yield from differences(before, now, relative=relative, absolute=absolute, place=where)
    elif not _same(stored, current, relative, absolute):
        yield f"{place}: {current!r}, stored {stored!r}"


def text_differences(stored: str, current: str) -> Iterator[str]:
    """Lines in which two texts differ, where numbers with many decimals may differ a little."""
    before, now = stored.split("\n"), current.split("\n")
    for number, (old, new) in enumerate(zip_longest(before, now), start=1):
        if old == new:
            continue
        if old is None or new is None or LONG_NUMBER.sub("#", old) != LONG_NUMBER.sub("#", new):
            yield f"line {number}: {new!r}, stored {old!r}"
            continue
        yield from differences(_long_numbers(old), _long_numbers(new), relative=1e-5, place=f"line {number}")


def _long_numbers(line: str) -> list[float]:
    return [float(number) for number in LONG_NUMBER.findall(line)]


def _same(stored: Any, current: Any, relative: float, absolute: float) -> bool:
    if isinstance(stored, float) or isinstance(current, float):
        both = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in (stored, current)
        )
        return both and math.isclose(stored, current, rel_tol=relative, abs_tol=absolute)
    return type(stored) is type(current) and stored == current


def _text(value: Any, depth: int) -> str:
    """JSON whose objects and arrays stand on one line where they fit."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or depth + len(line) <= WIDTH:
        return line
    pad, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        named = (
            f"{json.dumps(key, ensure_ascii=False)}: {_text(item, depth + 1)}" for key, item in value.items()
        )
        return "{" + pad + ("," + pad).join(named) + end + "}"
    return "[" + pad + ("," + pad).join(_text(item, depth + 1) for item in value) + end + "]"


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)
