"""Writer for HTML: blocks as elements of a page. Every text is escaped here, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from html import escape
from itertools import groupby

from fedassay.documents import plots
from fedassay.documents.blocks import Cell, CurveBlock, DocumentBlock, KeyNumber, SentenceBlock, TableBlock

_UNSAFE = re.compile(r"[^a-z0-9]+")

_SHORT = 24
"""Largest number of characters of a cell with numbers, which is kept on one line; longer cells are words."""

_NAME = 16
"""Largest number of characters of a name at the side of a table that is kept on one line."""


def anchor(*words: str) -> str:
    """Return a name for a place in the page.

    Examples
    --------
    >>> anchor("task", "Prediction sets: 95 %")
    'task-prediction-sets-95'
    """
    return "-".join(_UNSAFE.sub("-", word.lower()).strip("-") for word in words if word)


def paragraph(text: str, *, kind: str = "") -> str:
    """Return a paragraph, of a kind that the style sheet defines."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def _class(kind: str) -> str:
    return f" class='{kind}'" if kind else ""


def body(blocks: Iterable[DocumentBlock], *, place: str, draw: DrawCurve | None = None) -> str:
    """Return tables, curves and sentences in their order, curves side by side if there is room.

    Parameters
    ----------
    place : the anchor of the section, from which ids are made.
    draw : the function that makes the markup of a curve; `figure` by default.
    """
    made = []
    numbered = enumerate(blocks, start=1)
    for drawn, run in groupby(numbered, key=lambda pair: isinstance(pair[1], CurveBlock)):
        parts = [_block(block, name=f"{place}-{number}", draw=draw or figure) for number, block in run]
        made.append(f"<div class='plots'>{''.join(parts)}</div>" if drawn and parts[1:] else "".join(parts))
    return f"<div class='flow'>{''.join(made)}</div>" if made else ""


def _block(block: DocumentBlock, *, name: str, draw: DrawCurve) -> str:
    if isinstance(block, CurveBlock):
        return draw(block, name)
    if isinstance(block, SentenceBlock):
        return paragraph(block.text, kind="missing")
    assert isinstance(block, TableBlock)  # an explorer has a place of its own
    return f"<div class='sheet'>{titled_table(block, name=name)}</div>"


DrawCurve = Callable[[CurveBlock, str], str]
"""Function that makes the markup of a plot with a name."""


def figure(part: CurveBlock, name: str) -> str:
    """Return a plot with its text alternative.

    A plot that cannot be drawn becomes its alternative: results that cost budget are worth more than one plot.
    """
    marks = f" data-marks='{escape(part.marks, quote=True)}'" if part.marks else ""
    label = escape(part.alternative, quote=True)
    try:
        drawing = plots.as_svg(part.draw(), key=name)
    except Exception as error:
        return paragraph(
            f"{part.alternative}. It could not be drawn ({type(error).__name__}).", kind="missing"
        )
    return (
        f"<figure id='{name}' class='scrolls'{marks}><div role='img' aria-label='{label}'>"
        f"{drawing}</div></figure>"
    )


def undrawn(part: CurveBlock, name: str) -> str:
    """Return the alternative of a plot in its place."""
    return f"<figure id='{name}'>{escape(part.alternative)}</figure>"


def titled_table(part: TableBlock, *, name: str) -> str:
    """Return a table under its heading, with its notes below it and its inner rows folded away."""
    heading = f"<h3 id='{name}'>{escape(part.title)}</h3>"
    notes = "".join(paragraph(note, kind="note") for note in part.notes)
    inner = ""
    if part.inner:
        hidden = replace(part, title=f"{part.title}: how it was computed", rows=part.inner)
        inner = f"<details><summary>How it was computed</summary>{table(hidden, labelled=name)}</details>"
    return heading + (table(part, labelled=name) if part.rows else "") + notes + inner


def table(part: TableBlock, *, labelled: str) -> str:
    """Return the table alone; `labelled` is the id of its heading."""
    head = "".join(f"<th scope='col'>{escape(name)}</th>" if name else "<td></td>" for name in part.head)
    rows = "".join(f"<tr>{_row(row)}</tr>" for row in part.rows)
    return (
        f"<div class='scrolls' role='region' aria-labelledby='{labelled}'><table>"
        f"<caption class='unseen'>{escape(part.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Iterable[Cell]) -> str:
    first, *others = row
    name = f"<th scope='row'{_class('name' if len(first.text) <= _NAME else '')}>{_inside(first)}</th>"
    words = (_class("words" if len(cell.text) > _SHORT else "") for cell in others)
    return name + "".join(f"<td{kind}>{_inside(cell)}</td>" for kind, cell in zip(words, others, strict=True))


def _inside(cell: Cell) -> str:
    return escape(cell.text) + _small(cell.detail)


def _small(detail: str) -> str:
    return f"<small>{escape(detail)}</small>" if detail else ""


def tiles(numbers: Iterable[KeyNumber]) -> str:
    """Return key numbers, each in a tile."""
    made = "".join(
        f"<div class='tile'><dt>{escape(one.label)}</dt><dd><b>{escape(one.text)}</b>{_small(one.detail)}</dd></div>"
        for one in numbers
    )
    return f"<dl class='tiles' aria-label='Key numbers'>{made}</dl>" if made else ""


def steps(entries: Iterable[tuple[str, str]]) -> str:
    """Return a list of sentences, each with its command, if there is one."""
    made = (
        f"<li>{escape(text)}" + (f"<pre><code>{escape(command)}</code></pre>" if command else "") + "</li>"
        for text, command in entries
    )
    return f"<ol>{''.join(made)}</ol>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and their values."""
    inside = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl class='facts'>{inside}</dl>"
