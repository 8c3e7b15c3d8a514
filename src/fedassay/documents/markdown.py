r"""Writer for Markdown: tables and sentences, and the YAML block at the top of a file.

Texts come from studies and may hold anything: none of them becomes markup. The block is read the same by readers of
YAML 1.1 and 1.2: texts in double quotes, numbers with a point before an exponent, one entry on a line. Unprintable
characters are escaped, so that no text can end the block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedassay.documents.blocks import Cell, DocumentBlock, SentenceBlock, TableBlock

YamlValue = None | bool | int | float | str | Sequence["YamlValue"] | Mapping[str, "YamlValue"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")
_MOST_ROWS = 40
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML 1.1 does not read as names."""


def text(value: object) -> str:
    r"""Return text that Markdown shows as it is: on one line, no markup.

    Examples
    --------
    >>> print(text("a *b*\n c"))
    a \*b\* c
    """
    line = " ".join(str(value).split())
    return _SPECIAL.sub(r"\\\1", "".join(one for one in line if one.isprintable()))


def body(blocks: Iterable[DocumentBlock], *, title: str) -> Iterator[str]:
    """Yield tables and sentences as paragraphs; a table with the name of its section has no heading of its own."""
    for block in blocks:
        if isinstance(block, TableBlock):
            if block.title != title:
                yield f"**{text(block.title)}**"
            yield from _table(block)
        elif isinstance(block, SentenceBlock):
            yield text(block.text)


def _table(block: TableBlock) -> Iterator[str]:
    if block.rows:
        head = [_line(map(text, block.head)), _line(["---", *["---:"] * (len(block.head) - 1)])]
        yield "\n".join([*head, *(_line(map(_cell, row)) for row in block.rows[:_MOST_ROWS])])
    if len(block.rows) > _MOST_ROWS:
        yield f"And {len(block.rows) - _MOST_ROWS:,} more rows: see `report.html`."
    yield from map(text, block.notes)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return text(f"{cell.text} ({cell.detail})" if cell.detail else cell.text)


# --- the block at the top ---------------------------------------------------------------------------------------------


def front_matter(content: Mapping[str, YamlValue]) -> str:
    r"""Return the block with the lines that begin and end it.

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


def _mapping(content: Mapping[str, YamlValue], indent: str) -> Iterator[str]:
    for name, value in content.items():
        if not _KEY.fullmatch(name):
            raise ValueError(f"key {name!r}: expected letters, digits, '-' and '_'")
        key = f'"{name}"' if name.lower() in _WORDS else name
        if value and isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _mapping(value, f"{indent}  ")
        elif value and isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{indent}{key}:"
            yield from _list(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _list(content: Sequence[YamlValue], indent: str) -> Iterator[str]:
    for value in content:
        if value and isinstance(value, Mapping):
            first, *rest = _mapping(value, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        elif value and isinstance(value, Sequence) and not isinstance(value, str):
            raise ValueError("a list in a list has no use here")
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: YamlValue) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
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
