"""Self-contained page of a result, of a study or of a single task. Reads only the result's JSON.

The page loads nothing from any network: style, script, plots and numbers are in it, and its content security policy
forbids the rest. It can be read without its script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib import resources

from fedassay.documents import budget, explorer, markup, report
from fedassay.documents.blocks import Document, DocumentBlock, ExplorerBlock
from fedassay.documents.palette import DARK, LIGHT
from fedassay.protocol.glossary import words_in

PageSection = tuple[str, str, str]
"""Anchor of a section, its heading, and its content."""


def page(document: Document, *, draw: markup.DrawCurve = markup.figure) -> str:
    """Return the page as HTML text; `draw` makes the markup of a plot."""
    sections = list(_sections(document, draw))
    words = words_in(" ".join(inside for _, _, inside in sections))
    last = len(sections) - int(report.is_study(document))  # the next steps stay last
    sections.insert(last, ("words", "What the words mean", markup.facts(list(words.items()))))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_policy()}\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<link rel='icon' href='data:,'>"
        f"<title>{escape(report.heading(document))} - fedassay</title><style>{_style()}</style></head>\n"
        "<body><a class='skip' href='#content'>Skip to the results</a>\n"
        + "\n".join(_top(document, sections))
        + "\n<main id='content'>\n"
        + "\n".join(_section(*section) for section in sections)
        + f"\n</main>\n<footer>Made with fedassay {escape(document['fedassay'])} from result.json alone.</footer>"
        f"\n<script type='text/javascript'>{_file('explorer.js')}</script></body></html>\n"
    )


# --- parts of every page ----------------------------------------------------------------------------------------------


@cache
def _file(name: str) -> str:
    return (resources.files("fedassay.documents") / name).read_text(encoding="utf-8")


def _style() -> str:
    """Return the style sheet, with the colours of plots for both schemes; light is the default of old browsers."""
    plain = "".join(f"{name}:{colour};" for name, colour in LIGHT.items())
    both = "".join(f"{name}:light-dark({colour},{DARK[name]});" for name, colour in LIGHT.items())
    return f"{_file('style.css')}:root{{{plain}}}@supports (color:light-dark(#000,#fff)){{:root{{{both}}}}}"


def _policy() -> str:
    """Return a policy under which nothing is loaded, and no script but ours runs, not even a script in a text."""
    digest = base64.b64encode(hashlib.sha256(_file("explorer.js").encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


# --- the top ----------------------------------------------------------------------------------------------------------


def _top(document: Document, sections: list[PageSection]) -> Iterator[str]:
    yield "<header><div class='top'><div>"
    yield f"<h1>{escape(report.heading(document))}</h1>"
    model = document["parameters"].get("model") if report.is_study(document) else None
    if model:
        yield markup.paragraph(f"Model: {model}")
    yield markup.paragraph(report.summary(document), kind="about")
    yield "</div><button type='button' data-theme-button hidden>Dark colours</button></div>"
    yield _verdict(document)
    yield markup.tiles(report.key_numbers(document))
    if report.unknown(document):
        yield markup.paragraph(report.unknown(document), kind="missing")
    for warning in document["warnings"]:
        yield markup.paragraph(warning, kind="warning")
    links = "".join(f"<li><a href='#{anchor}'>{escape(title)}</a></li>" for anchor, title, _ in sections)
    yield f"<nav aria-label='Contents'><ul>{links}</ul></nav></header>"


def _verdict(document: Document) -> str:
    """Return the verdict: a paragraph for a study, an emphasised first word and its reason for a task."""
    verdict = report.verdict(document)
    if not verdict.text:
        return ""
    if report.is_study(document):
        return markup.paragraph(verdict.text, kind="good verdict" if verdict.is_good else "verdict")
    word, colon, why = verdict.text.partition(":")
    kind = "good" if verdict.is_good else "warning"
    return f"<p class='{kind}'><strong>{escape(word + colon)}</strong>{escape(why)}</p>"


# --- sections ---------------------------------------------------------------------------------------------------------


def _section(anchor: str, title: str, inside: str) -> str:
    return (
        f"<section id='{anchor}' class='{'task' if anchor.startswith('task') else 'about-it'}' "
        f"aria-labelledby='{anchor}-title'><h2 id='{anchor}-title'>{escape(title)}</h2>{inside}</section>"
    )


def _sections(document: Document, draw: markup.DrawCurve) -> Iterator[PageSection]:
    for task in report.sections(document):
        anchor = markup.anchor("task", task.name or task.document["task"])
        yield anchor, task.title, "\n".join(_task(task, anchor, draw))
    if report.is_study(document):
        yield "budget", "Privacy budget", _budget(document, draw)
    yield "assumptions", "What was assumed", _assumptions(document)
    yield "privacy", "Privacy", f"<blockquote>{escape(document['privacy']['statement'])}</blockquote>"
    yield "run", "The run", markup.facts(report.facts(document))
    if report.is_study(document):
        yield "next", report.NEXT_STEPS, markup.steps(report.next_steps(document))


def _task(task: report.TaskSection, place: str, draw: markup.DrawCurve) -> Iterator[str]:
    """Yield the blocks of a task; a threshold explorer keeps its place among them."""
    waiting: list[DocumentBlock] = []
    for block in task.blocks:
        if isinstance(block, ExplorerBlock):
            yield markup.body(waiting, place=f"{place}-curves", draw=draw)
            yield explorer.explorer(block.points, place=f"{place}-explorer")
            waiting = []
        else:
            waiting.append(block)
    yield markup.body(waiting, place=place, draw=draw)
    meanings = list(_meanings(task))
    if meanings:
        yield f"<details><summary>What the metrics mean</summary>{markup.facts(meanings)}</details>"
    for title, why in task.kind.missing_sections(task.document, task.name):
        yield f"<h3>{escape(title)}</h3>{markup.paragraph(why, kind='note')}"


def _meanings(task: report.TaskSection) -> Iterator[tuple[str, str]]:
    """Yield the metrics of a task that have a value, each with its sentence."""
    for record in task.kind.metrics.values():
        metric = task.results.get(record.name)
        if isinstance(metric, Mapping) and metric.get("value") is not None:
            yield record.title, record.sentence


def _budget(document: Document, draw: markup.DrawCurve) -> str:
    results = document["results"]
    return (
        markup.paragraph(budget.spent(document))
        + markup.body(budget.budget_blocks(results), place="budget-by-task", draw=draw)
        + "<details><summary>Every release, as the ledger has it</summary>"
        + markup.titled_table(budget.charges(results), name="budget-releases")
        + "</details>"
    )


def _assumptions(document: Document) -> str:
    """Return tasks with their sentences; the privacy statement names the trusted parties."""
    said = "".join(
        (f"<h3>{escape(title)}</h3>" if report.is_study(document) else "")
        + f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in sentences)}</ul>"
        for title, sentences in report.assumptions(document)
    )
    return said + "<p>Whom one has to trust, and with what, is said under <a href='#privacy'>Privacy</a>.</p>"
