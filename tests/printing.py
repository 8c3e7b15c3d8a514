"""Results as a terminal prints them, and as blocks: what the tests of reports have in common."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from io import StringIO
from typing import Any

from rich.console import Console

import fedassay
from fedassay.documents.blocks import CurveBlock, TableBlock
from fedassay.documents.page import page
from fedassay.documents.terminal import render
from study_documents import blocks


def simulated(ask: Callable[..., fedassay.Result], data: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The document of a simulation of clients by the column `site`, with labels in `y`."""
    result = ask(data, client="site", label="y", simulation=fedassay.Simulation(seed=1), **options)
    return json.loads(result.to_json())  # type: ignore[no-any-return]


def printed(content: dict[str, Any], *, width: int = 160) -> str:
    console = Console(file=StringIO(), width=width)
    render(content, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def said(content: dict[str, Any]) -> str:
    """What the terminal says, on one line."""
    return " ".join(printed(content).split())


def assert_it_fits_a_narrow_terminal(content: dict[str, Any]) -> None:
    """80 characters hold the same words as many, but for where lines and boxes break."""
    narrow = printed(content, width=80)
    assert "…" not in narrow
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert _words(narrow) == _words(printed(content, width=300))


def _words(text: str) -> list[str]:
    return sorted(word for word in text.split() if any(character.isalnum() for character in word))


def readable_page(content: dict[str, Any]) -> str:
    """The page of one task, as a terminal holds it too: every table and plot in it, no number that is none."""
    before = copy.deepcopy(content)
    html = page(content)
    assert html.startswith("<!doctype html>")
    assert html.rstrip().endswith("</html>")
    assert "NaN" not in html
    assert "None" not in html
    curves = [part for part in blocks(content) if isinstance(part, CurveBlock)]
    assert html.count("<svg") == len(curves)
    assert all(curve.alternative for curve in curves)
    for part in blocks(content):
        rows = (*part.rows, *part.inner) if isinstance(part, TableBlock) else ()
        assert all(len(row) == len(part.head) for row in rows)
    assert_it_fits_a_narrow_terminal(content)
    assert content == before
    return html


def parts(content: dict[str, Any]) -> tuple[dict[str, TableBlock], list[CurveBlock]]:
    """Its tables by their title, and its curves."""
    made = blocks(content)
    sheets = {part.title: part for part in made if isinstance(part, TableBlock)}
    return sheets, [part for part in made if isinstance(part, CurveBlock)]
