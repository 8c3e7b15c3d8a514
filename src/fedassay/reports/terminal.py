"""A result as tables in a terminal, of 80 characters if need be. Reads only the result's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fedassay.documents import figures
from fedassay.documents.sheet import Cell, Document, Notice, Sheet
from fedassay.reports import budget, cohort, next_steps
from fedassay.reports.contents import contents, heading, is_good, verdict
from fedassay.reports.key_numbers import key_numbers, unknown
from fedassay.reports.study import is_study

_UNBROKEN = re.compile(r"\S+ to\b|\S+")
"""What a line should not end within: words, and the first half of an interval."""

_GAP = 2
"""Characters between two columns."""


def render(document: Document, console: Console) -> None:
    """Print a result: the verdict if there is one, warnings, tables, the run, what it guarantees.

    Of a study only the key numbers: its tables would fill many screens, and are in its report.
    """
    if is_study(document):
        _print_title(document, console)
    if verdict(document):
        console.print(_marked(document), highlight=False)
    for warning in document["warnings"]:
        console.print(f"[yellow]Warning:[/] {escape(warning)}", highlight=False)
    for piece in _study(document) if is_study(document) else contents(document):
        if isinstance(piece, Sheet):
            print_sheet(piece, console)
        elif isinstance(piece, Notice):
            console.print(f"{escape(piece.text)}\n", highlight=False)
    console.print(_run(document), highlight=False)
    console.print(Panel(escape(document["privacy"]["statement"]), title="Privacy", title_align="left"))
    if is_study(document):
        _print_next_steps(document, console)
        console.print("Tables and plots: report.html. Every number: result.json.", highlight=False)


def _print_title(document: Document, console: Console) -> None:
    model = document["parameters"].get("model")
    about = f": {escape(model)}" if model else ""
    console.print(f"[bold]{escape(heading(document))}[/]{about}", highlight=False)


def _print_next_steps(document: Document, console: Console) -> None:
    console.print(f"[bold]{next_steps.TITLE}[/]", highlight=False)
    for text, command in next_steps.steps(document):
        console.print(f"- {escape(text)}", highlight=False)
        if command:
            console.print(f"    {escape(command)}", highlight=False, soft_wrap=True)
    console.print()


def _study(document: Document) -> Iterator[Sheet]:
    yield Sheet(
        title="Key numbers",
        head=("", "value", "interval"),
        rows=tuple(
            (Cell(text=one.label), Cell(text=one.text), Cell(text=one.detail))
            for one in key_numbers(document)
        ),
        notes=tuple(filter(None, (unknown(document), budget.spent(document)))),
    )


def _marked(document: Document) -> str:
    """The verdict. That of a task has its first words in green or yellow; that of a study is a paragraph."""
    if is_study(document):
        return escape(verdict(document))
    word, colon, why = verdict(document).partition(":")
    colour = "green" if is_good(document) else "yellow"
    return f"[bold {colour}]{escape(word + colon)}[/]{escape(why)}"


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print a table and its notes. Columns wrap between words and are never cut as long as words fit."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, _GAP - 1),
    )
    widths = _widths(sheet, console.width)
    for place, (name, width) in enumerate(zip(sheet.head, widths, strict=True)):
        table.add_column(escape(name), justify="right" if place else "left", width=width, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(_markup(cell) for cell in row))
    console.print(f"[bold]{escape(sheet.title)}[/]", highlight=False)
    if sheet.rows:
        console.print(table)
    for note in sheet.notes:
        console.print(escape(note), highlight=False)
    console.print()


def _markup(cell: Cell) -> str:
    return escape(cell.text) + (f"\n[dim]{escape(cell.detail)}[/]" if cell.detail else "")


def _widths(sheet: Sheet, room: int) -> list[int]:
    """How wide each column is: as its longest line, or narrower down to its longest word, the widest first."""
    columns = [
        [name, *(text for row in sheet.rows for text in (row[place].text, row[place].detail))]
        for place, name in enumerate(sheet.head)
    ]
    widths = [max(len(text) for text in column) for column in columns]
    least = [
        max(len(word) for text in column for word in _UNBROKEN.findall(text) or [""]) for column in columns
    ]
    return narrowed(widths, least, room - _GAP * (len(columns) - 1))


def narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Take from the widest column that may lose something, until all fit.

    Examples
    --------
    >>> narrowed([12, 8, 8], [5, 8, 2], 24)
    [8, 8, 8]
    >>> narrowed([12, 8, 8], [5, 8, 2], 10)
    [5, 8, 2]
    """
    found = list(widths)
    while sum(found) > room:
        places = [place for place, width in enumerate(found) if width > least[place]]
        if not places:
            break
        found[max(places, key=lambda place: found[place])] -= 1
    return found


def _run(document: Document) -> str:
    clients, runtime = document["cohort"], document["runtime"]
    dropped = f", {clients['dropped']} lost on the way" if clients["dropped"] else ""
    truncated = f", {clients['truncated']:,} rows left out by the bound" if clients["truncated"] else ""
    truncated += f", {clients['missing']:,} left out as a value is missing" if clients.get("missing") else ""
    took = "" if runtime["seconds"] is None else f", {runtime['seconds']:.1f} s"
    opened = "".join(
        f"\n{said}" for said in dict.fromkeys(one["statement"] for one in clients.get("openings", ()))
    )
    return (
        f"{figures.counted(clients['clients'], 'client')}{dropped}, {cohort.rows(document)}{truncated}; "
        f"{runtime['name']} ({runtime['mode']}), {figures.counted(runtime['rounds'], 'round')}, "
        f"{runtime['bytes_per_client']:,} bytes per client{took}{opened}"
    )
