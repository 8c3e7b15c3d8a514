"""Tables, plots and numbers as HTML. Every text is escaped here, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from html import escape
from itertools import groupby

from fedassay.documents import plots
from fedassay.documents.sheet import Cell, Figure, KeyNumber, Notice, Sheet

_UNSAFE = re.compile(r"[^a-z0-9]+")

_SHORT = 24
"""Characters of a cell that holds numbers, which are kept on one line; longer ones are words."""

_NAME = 16
"""Characters of a name at the side of a table that is kept on one line."""


def anchor(*words: str) -> str:
    """A name for a place in the page.

    Examples
    --------
    >>> anchor("task", "Prediction sets: 95 %")
    'task-prediction-sets-95'
    """
    return "-".join(_UNSAFE.sub("-", word.lower()).strip("-") for word in words if word)


def paragraph(text: str, *, kind: str = "") -> str:
    """A paragraph, of a kind that the style knows."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def _class(kind: str) -> str:
    return f" class='{kind}'" if kind else ""


def body(
    pieces: Iterable[Sheet | Figure | Notice], *, place: str, level: int = 3, draw: Draw | None = None
) -> str:
    """Tables, plots and boxes in their order, side by side where there is room.

    Parameters
    ----------
    place : the anchor of the section, from which ids are made.
    level : of the headings of tables.
    draw : makes the markup of a plot; `figure` by default.
    """
    made = []
    numbered = enumerate(pieces, start=1)
    for drawn, run in groupby(numbered, key=lambda pair: isinstance(pair[1], Figure)):
        parts = [
            _piece(piece, name=f"{place}-{number}", level=level, draw=draw or figure) for number, piece in run
        ]
        together = drawn and len(parts) > 1
        made.append(f"<div class='plots'>{''.join(parts)}</div>" if together else "".join(parts))
    return f"<div class='flow'>{''.join(made)}</div>" if made else ""


def _piece(piece: Sheet | Figure | Notice, *, name: str, level: int, draw: Draw) -> str:
    if isinstance(piece, Figure):
        return draw(piece, name)
    if isinstance(piece, Notice):
        return paragraph(piece.text, kind="missing")
    return f"<div class='sheet'>{sheet(piece, name=name, level=level)}</div>"


Draw = Callable[[Figure, str], str]
"""Makes the markup of a plot of this name."""


def figure(part: Figure, name: str) -> str:
    """A plot; who cannot see it gets the alternative.

    A plot that cannot be drawn becomes its alternative: results that were paid for are worth more than one plot.
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


def undrawn(part: Figure, name: str) -> str:
    """The alternative of a plot in its place."""
    return f"<figure id='{name}'>{escape(part.alternative)}</figure>"


def sheet(part: Sheet, *, name: str, level: int = 3) -> str:
    """A table under its heading, with its notes below it, and what few people need behind a click."""
    heading = f"<h{level} id='{name}'>{escape(part.title)}</h{level}>"
    notes = "".join(paragraph(note, kind="note") for note in part.notes)
    inner = ""
    if part.inner:
        hidden = replace(part, title=f"{part.title}: how it was computed", rows=part.inner)
        inner = f"<details><summary>How it was computed</summary>{table(hidden, labelled=name)}</details>"
    return heading + (table(part, labelled=name) if part.rows else "") + notes + inner


def table(part: Sheet, *, labelled: str) -> str:
    """The table alone; `labelled` is the id of the heading that names it."""
    head = "".join(f"<th scope='col'>{escape(name)}</th>" if name else "<td></td>" for name in part.head)
    rows = "".join(f"<tr>{_row(row)}</tr>" for row in part.rows)
    return (
        f"<div class='scrolls' role='region' aria-labelledby='{labelled}'><table>"
        f"<caption class='unseen'>{escape(part.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Iterable[Cell]) -> str:
    first, *others = row
    cells = (
        f"<td{_class('words' if len(cell.text) > _SHORT else '')}>{_inside(cell)}</td>" for cell in others
    )
    return (
        f"<th scope='row'{_class('name' if len(first.text) <= _NAME else '')}>{_inside(first)}</th>"
        + "".join(cells)
    )


def _inside(cell: Cell) -> str:
    return escape(cell.text) + (f"<small>{escape(cell.detail)}</small>" if cell.detail else "")


def tiles(numbers: Iterable[KeyNumber]) -> str:
    """Key numbers, each in a tile."""
    made = "".join(
        f"<div class='tile'><dt>{escape(one.label)}</dt><dd><b>{escape(one.text)}</b>"
        + (f"<small>{escape(one.detail)}</small>" if one.detail else "")
        + "</dd></div>"
        for one in numbers
    )
    return f"<dl class='tiles' aria-label='Key numbers'>{made}</dl>" if made else ""


def steps(entries: Iterable[tuple[str, str]]) -> str:
    """Sentences one below the other, each with the command that does it, if there is one."""
    made = (
        f"<li>{escape(text)}" + (f"<pre><code>{escape(command)}</code></pre>" if command else "") + "</li>"
        for text, command in entries
    )
    return f"<ol>{''.join(made)}</ol>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, one below the other."""
    return (
        "<dl class='facts'>"
        + "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in pairs)
        + "</dl>"
    )
