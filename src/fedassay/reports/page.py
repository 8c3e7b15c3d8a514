"""A result as one self-contained page: plots, tables, privacy statement. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fedassay.reports import figures, plots
from fedassay.reports.contents import contents, heading, verdict
from fedassay.reports.sheet import Cell, Document, Figure, Sheet

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
td small { display: block; color: #555; white-space: nowrap; }
figure { display: inline-block; vertical-align: top; max-width: 100%; margin: 1rem 1rem 1rem 0; overflow-x: auto; }
blockquote { border-left: 4px solid #2166ac; margin: 1rem 0; padding: .2rem 1rem; }
.warning { border-left: 4px solid #b8860b; padding: .2rem 1rem; }
.good { border-left: 4px solid #1b7837; padding: .2rem 1rem; }
@media (max-width: 36rem) { table { font-size: .85rem; } th, td { padding: .3rem; } td small { white-space: normal; } }
"""


def page(document: Document) -> str:
    """The page as HTML text."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>fedassay: {escape(document['task'])}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(_body(document))
        + "\n</body></html>\n"
    )


def _body(document: Document) -> Iterator[str]:
    yield f"<h1>{escape(heading(document))}</h1>"
    if verdict(document):
        kind = "good" if document["results"]["recommended"] else "warning"
        word, colon, why = verdict(document).partition(":")
        yield f"<p class='{kind}'><strong>{escape(word + colon)}</strong>{escape(why)}</p>"
    yield f"<p>{escape(_summary(document))}</p>"
    for warning in document["warnings"]:
        yield f"<p class='warning'>{escape(warning)}</p>"
    for part in contents(document):
        yield _figure(part) if isinstance(part, Figure) else _sheet(part)
    yield "<h2>Privacy</h2>"
    yield f"<blockquote>{escape(document['privacy']['statement'])}</blockquote>"
    yield f"<p>Made with fedassay {escape(document['fedassay'])}.</p>"


def _figure(figure: Figure) -> str:
    label = escape(figure.alternative, quote=True)
    return f"<figure role='img' aria-label='{label}'>{plots.as_svg(figure.draw())}</figure>"


def _sheet(sheet: Sheet) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in sheet.head)
    rows = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in sheet.rows)
    notes = "".join(f"<p>{escape(note)}</p>" for note in sheet.notes)
    table = f"<div class='wide'><table><tr>{head}</tr>{rows}</table></div>" if sheet.rows else ""
    return f"<h2>{escape(sheet.title)}</h2>{table}{notes}"


def _cell(cell: Cell) -> str:
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f"<td>{escape(cell.text)}{detail}</td>"


def _summary(document: Document) -> str:
    cohort, privacy = document["cohort"], document["privacy"]
    rows = figures.rows(document)
    terms = "" if privacy["epsilon"] is None else f" (ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g})"
    clients = figures.counted(cohort["clients"], "client")
    return f"{clients} with {rows}, under {privacy['trust_model']}{terms}."
