"""Writer for a terminal, of 80 characters if need be. Reads only the result's JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from fedassay.documents import budget, figures, report
from fedassay.documents.blocks import Cell, Document, SentenceBlock, TableBlock, table
from fedassay.protocol.texts import printable

_UNBROKEN = re.compile(r"\S+ to\b|\S+")
"""Texts within which a line should not break: words, and the first half of an interval."""

_GAP = 2
"""Number of characters between two columns."""


def render(document: Document, console: Console) -> None:
    """Print a result: the verdict if there is one, warnings, tables, the run, its guarantees.

    A study has only its key numbers: its tables would fill many screens, and are in its report.
    """
    is_study = report.is_study(document)

    def say(text: str, *, soft_wrap: bool = False) -> None:
        console.print(text, highlight=False, soft_wrap=soft_wrap)

    if is_study:
        model = document["parameters"].get("model")
        say(f"[bold]{printable(report.heading(document))}[/]{f': {printable(model)}' if model else ''}")
    if report.verdict(document).text:
        say(_verdict(document))
    for warning in document["warnings"]:
        say(f"[yellow]Warning:[/] {printable(warning)}")
    if is_study:
        print_table(_key_numbers(document), console)
    for section in () if is_study else report.sections(document):
        for block in section.blocks:
            if isinstance(block, TableBlock):
                print_table(block, console)
            elif isinstance(block, SentenceBlock):
                say(f"{printable(block.text)}\n")
    say(_run(document))
    console.print(Panel(printable(document["privacy"]["statement"]), title="Privacy", title_align="left"))
    if is_study:
        say(f"[bold]{report.NEXT_STEPS}[/]")
        for text, command in report.next_steps(document):
            say(f"- {printable(text)}")
            if command:
                say(f"    {printable(command)}", soft_wrap=True)
        say("\nTables and plots: report.html. Every number: result.json.")


def _key_numbers(document: Document) -> TableBlock:
    rows = ((one.label, one.text, one.detail) for one in report.key_numbers(document))
    notes = (report.unknown(document), budget.spent(document))
    return table("Key numbers", ("", "value", "interval"), rows, notes=notes)


def _verdict(document: Document) -> str:
    """Return the verdict: of a task with its first words in green or yellow, of a study as a paragraph."""
    verdict = report.verdict(document)
    if report.is_study(document):
        return printable(verdict.text)
    word, colon, why = verdict.text.partition(":")
    return f"[bold {'green' if verdict.is_good else 'yellow'}]{printable(word + colon)}[/]{printable(why)}"


def print_table(block: TableBlock, console: Console) -> None:
    """Print a table and its notes. Columns wrap between words and are not cut if all words fit."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, _GAP - 1))
    for place, (name, width) in enumerate(zip(block.head, _widths(block, console.width), strict=True)):
        made.add_column(printable(name), justify="right" if place else "left", width=width, overflow="fold")
    for row in block.rows:
        made.add_row(*(_markup(cell) for cell in row))
    console.print(f"[bold]{printable(block.title)}[/]", highlight=False)
    if block.rows:
        console.print(made)
    for note in block.notes:
        console.print(printable(note), highlight=False)
    console.print()


def _markup(cell: Cell) -> str:
    return printable(cell.text) + (f"\n[dim]{printable(cell.detail)}[/]" if cell.detail else "")


def _widths(block: TableBlock, room: int) -> list[int]:
    """Return the width of each column: its longest line, or less, down to its longest word, the widest first."""
    columns = [
        [name, *(text for row in block.rows for text in (row[place].text, row[place].detail))]
        for place, name in enumerate(block.head)
    ]
    widths = [max(map(len, column)) for column in columns]
    words = ([word for text in column for word in _UNBROKEN.findall(text)] for column in columns)
    least = [max(map(len, column), default=0) for column in words]
    return narrowed(widths, least, room - _GAP * (len(columns) - 1))


def narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Narrow the widest column that may still shrink, until all fit.

    Examples
    --------
    >>> narrowed([12, 8, 8], [5, 8, 2], 24)
    [8, 8, 8]
    >>> narrowed([12, 8, 8], [5, 8, 2], 10)
    [5, 8, 2]
    """
    left = list(widths)
    while sum(left) > room:
        places = [place for place, width in enumerate(left) if width > least[place]]
        if not places:
            break
        left[max(places, key=lambda place: left[place])] -= 1
    return left


def _run(document: Document) -> str:
    clients, runtime = document["cohort"], document["runtime"]
    dropped = f", {clients['dropped']} lost on the way" if clients["dropped"] else ""
    truncated = f", {clients['truncated']:,} rows left out by the bound" if clients["truncated"] else ""
    truncated += f", {clients['missing']:,} left out as a value is missing" if clients.get("missing") else ""
    took = "" if runtime["seconds"] is None else f", {runtime['seconds']:.1f} s"
    opened = "".join(f"\n{statement}" for statement in report.openings(document))
    return (
        f"{figures.counted(clients['clients'], 'client')}{dropped}, {report.rows(document)}{truncated}; "
        f"{runtime['name']} ({runtime['mode']}), {figures.counted(runtime['rounds'], 'round')}, "
        f"{runtime['bytes_per_client']:,} bytes per client{took}{opened}"
    )
