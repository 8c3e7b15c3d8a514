"""A result as one self-contained page, of a study or of a single task. Reads only the result's JSON.

The page asks nothing of any network: style, script, plots and numbers are in it, and its content security policy
forbids the rest. It can be read without its script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib import resources

from fedassay.documents import explorer, markup
from fedassay.documents.palette import DARK, LIGHT
from fedassay.documents.sheet import Document, Explorer, Figure, Notice, Sheet
from fedassay.reports import assumptions, budget, facts, next_steps
from fedassay.reports.contents import contents, document_of, heading, is_good, section, verdict
from fedassay.reports.key_numbers import key_numbers, unknown
from fedassay.reports.study import Part, is_study, parts

Block = tuple[str, str, str]
"""The anchor of a section, its heading, and what is below it."""


def page(document: Document, *, draw: markup.Draw = markup.figure) -> str:
    """The page as HTML text; `draw` makes the markup of a plot."""
    blocks = list(_blocks(document, draw))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_policy()}\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<link rel='icon' href='data:,'>"
        f"<title>{escape(heading(document))} - fedassay</title><style>{_style()}</style></head>\n"
        "<body><a class='skip' href='#content'>Skip to the results</a>\n"
        + "\n".join(_top(document, blocks))
        + "\n<main id='content'>\n"
        + "\n".join(_section(*block) for block in blocks)
        + f"\n</main>\n<footer>Made with fedassay {escape(document['fedassay'])} from result.json alone.</footer>"
        f"\n<script type='text/javascript'>{_script()}</script></body></html>\n"
    )


# --- what is in every page --------------------------------------------------------------------------------------------


@cache
def _file(name: str) -> str:
    return (resources.files("fedassay.reports") / name).read_text(encoding="utf-8")


def _script() -> str:
    return _file("explorer.js")


def _style() -> str:
    """The style sheet, with the colours of plots for both schemes; the light ones where a browser knows no other."""
    plain = "".join(f"{name}:{colour};" for name, colour in LIGHT.items())
    both = "".join(f"{name}:light-dark({colour},{DARK[name]});" for name, colour in LIGHT.items())
    return f"{_file('style.css')}:root{{{plain}}}@supports (color:light-dark(#000,#fff)){{:root{{{both}}}}}"


def _policy() -> str:
    """Nothing may be loaded, and no script run but ours: not even one that found its way into a text."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


# --- the top ----------------------------------------------------------------------------------------------------------


def _top(document: Document, blocks: list[Block]) -> Iterator[str]:
    yield "<header><div class='top'><div>"
    yield f"<h1>{escape(heading(document))}</h1>"
    model = document["parameters"].get("model") if is_study(document) else None
    if model:
        yield markup.paragraph(f"Model: {model}")
    yield markup.paragraph(facts.summary(document), kind="about")
    yield "</div><button type='button' data-theme-button hidden>Dark colours</button></div>"
    yield _verdict(document)
    yield markup.tiles(key_numbers(document))
    if unknown(document):
        yield markup.paragraph(unknown(document), kind="missing")
    for warning in document["warnings"]:
        yield markup.paragraph(warning, kind="warning")
    links = "".join(f"<li><a href='#{anchor}'>{escape(title)}</a></li>" for anchor, title, _ in blocks)
    yield f"<nav aria-label='Contents'><ul>{links}</ul></nav></header>"


def _verdict(document: Document) -> str:
    """A study's is a paragraph; that of a task begins with a word that says it all."""
    text = verdict(document)
    if not text:
        return ""
    if is_study(document):
        return markup.paragraph(text, kind="good verdict" if is_good(document) else "verdict")
    word, colon, why = text.partition(":")
    kind_of = "good" if is_good(document) else "warning"
    return f"<p class='{kind_of}'><strong>{escape(word + colon)}</strong>{escape(why)}</p>"


# --- sections ---------------------------------------------------------------------------------------------------------


def _section(anchor: str, title: str, inside: str) -> str:
    return (
        f"<section id='{anchor}' class='{'task' if anchor.startswith('task') else 'about-it'}' "
        f"aria-labelledby='{anchor}-title'><h2 id='{anchor}-title'>{escape(title)}</h2>{inside}</section>"
    )


def _blocks(document: Document, draw: markup.Draw) -> Iterator[Block]:
    for part in parts(document):
        anchor = markup.anchor("task", part.name or part.document["task"])
        yield anchor, section(part), "\n".join(_task(part, anchor, draw))
    if is_study(document):
        yield "budget", "Privacy budget", _budget(document, draw)
    yield "assumptions", "What was assumed", _assumptions(document)
    yield "privacy", "Privacy", f"<blockquote>{escape(document['privacy']['statement'])}</blockquote>"
    yield "run", "The run", markup.facts(facts.run(document))
    if is_study(document):
        yield "next", next_steps.TITLE, markup.steps(next_steps.steps(document))


def _task(part: Part, place: str, draw: markup.Draw) -> Iterator[str]:
    """The tables and plots of one task; a threshold explorer comes where its contents have it."""
    document = part.document
    waiting: list[Sheet | Figure | Notice] = []
    for piece in contents(document):
        if isinstance(piece, Explorer):
            yield markup.body(waiting, place=f"{place}-curves", draw=draw)
            yield explorer.explorer(piece.points, place=f"{place}-explorer")
            waiting = []
        else:
            waiting.append(piece)
    yield markup.body(waiting, place=place, draw=draw)
    meanings = list(_meanings(document))
    if meanings:
        yield f"<details><summary>What the metrics mean</summary>{markup.facts(meanings)}</details>"
    for title, why in document_of(document).missing_sections(document, part.name):
        yield f"<h3>{escape(title)}</h3>{markup.paragraph(why, kind='note')}"


def _meanings(document: Document) -> Iterator[tuple[str, str]]:
    """The metrics of a task that have a value, each with its sentence."""
    results = document["results"]
    for record in document_of(document).metrics.values():
        metric = results.get(record.name)
        if isinstance(metric, Mapping) and metric.get("value") is not None:
            yield record.title, record.sentence


def _budget(document: Document, draw: markup.Draw) -> str:
    return (
        markup.paragraph(budget.spent(document))
        + markup.body(budget.contents(document), place="budget-by-task", draw=draw)
        + "<details><summary>Every release, as the ledger has it</summary>"
        + markup.sheet(budget.charges(document), name="budget-releases")
        + "</details>"
    )


def _assumptions(document: Document) -> str:
    """Tasks with their sentences; whom one has to trust is in the privacy statement."""
    found = list(assumptions.assumptions(document))
    said = "".join(
        (f"<h3>{escape(title)}</h3>" if is_study(document) else "")
        + f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in sentences)}</ul>"
        for title, sentences in found
    )
    return said + "<p>Whom one has to trust, and with what, is said under <a href='#privacy'>Privacy</a>.</p>"
