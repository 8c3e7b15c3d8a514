r"""Plain values as the YAML block at the top of a Markdown file, for readers of YAML 1.1 and 1.2 alike.

Only what both read the same is written: texts in double quotes, numbers with a point before an exponent, one entry on
a line. Texts come from studies and may hold anything: what is not printable is escaped, so that no text can end the
block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

Plain = None | bool | int | float | str | Sequence["Plain"] | Mapping[str, "Plain"]

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""What YAML 1.1 takes for something else than a name."""


def front_matter(content: Mapping[str, Plain]) -> str:
    r"""The block with the lines that begin and end it.

    Examples
    --------
    >>> print(front_matter({"tags": ["a"], "model-index": [{"name": 'b "c"', "results": [{"value": 1e-06}]}]}), end="")
    ---
    tags:
      - "a"
    model-index:
      - name: "b \"c\""
        results:
          - value: 1.0e-06
    ---
    """
    return "\n".join(["---", *_mapping(content, ""), "---", ""])


def _mapping(content: Mapping[str, Plain], indent: str) -> Iterator[str]:
    for name, value in content.items():
        if not _KEY.fullmatch(name):
            raise ValueError(f"key {name!r}: expected letters, digits, '-' and '_'")
        key = f'"{name}"' if name.lower() in _WORDS else name
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from _mapping(value, f"{indent}  ")
        elif _is_list(value) and value:
            yield f"{indent}{key}:"
            yield from _list(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _list(content: Sequence[Plain], indent: str) -> Iterator[str]:
    for value in content:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        elif _is_list(value) and value:
            raise ValueError("a list in a list has no use here")
        else:
            yield f"{indent}- {_scalar(value)}"


def _is_list(value: Plain) -> TypeGuard[Sequence[Plain]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: Plain) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    return "{}" if isinstance(value, Mapping) else "[]"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"number {value}: expected a finite one")
    mantissa, _, exponent = repr(value).partition("e")
    point = mantissa if "." in mantissa else f"{mantissa}.0"
    return point if not exponent else f"{point}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:  # half of a pair: UTF-8 has no bytes for it
        return "\N{REPLACEMENT CHARACTER}"
    if character.isprintable():
        return character
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
