"""A result as one self-contained page: plots, tables, privacy statement. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fedassay.reports import calibration, comparisons, figures, forest, plots

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
.interval { color: #555; } figure { margin: 1rem 0; overflow-x: auto; }
blockquote { border-left: 4px solid #2166ac; margin: 1rem 0; padding: .2rem 1rem; }
"""


def page(document: Mapping[str, Any]) -> str:
    """The page as HTML text."""
    body = _calibration(document) if document["task"] == "calibrate" else _evaluation(document)
    body += [
        "<h2>Privacy</h2>",
        f"<blockquote>{escape(document['privacy']['statement'])}</blockquote>",
        f"<p>Made with fedassay {escape(document['fedassay'])}.</p>",
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>fedassay: {escape(document['task'])}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _calibration(document: Mapping[str, Any]) -> list[str]:
    return [
        "<h1>Calibration of a binary classifier</h1>",
        f"<p>{escape(_summary(document))}</p>",
        f"<figure role='img' aria-label='{escape(calibration.alternative(document), quote=True)}'>"
        f"{plots.as_svg(calibration.overview(document))}</figure>",
        *_sheet(calibration.sheet(document)),
    ]


def _evaluation(document: Mapping[str, Any]) -> list[str]:
    results = document["results"]
    return [
        "<h1>Evaluation of a binary classifier</h1>",
        f"<p>{escape(_summary(document))}</p>",
        f"<figure role='img' aria-label='{escape(_alternative(results), quote=True)}'>"
        f"{plots.as_svg(plots.overview(document))}</figure>",
        "<h2>Overall</h2>",
        _table(
            ["metric", "value", f"{results['roc_auc']['level']:.0%} interval"],
            ([figures.TITLES[name], *_cells(results[name])] for name in figures.OVERALL),
        ),
        "<h2>At thresholds</h2>",
        _table(
            ["threshold", *(figures.TITLES[name] for name in figures.AT_THRESHOLD)],
            (
                [f"{row['applied']:.6g}", *(" ".join(_cells(row[name])) for name in figures.AT_THRESHOLD)]
                for row in results["thresholds"]
            ),
        ),
        *_comparisons(results),
    ]


def _comparisons(results: Mapping[str, Any]) -> Iterator[str]:
    """Groups, sites and a second model, each with its table; one forest plot for the first two."""
    chart = forest.forest(results)
    if chart is not None:
        yield f"<figure role='img' aria-label='Forest plot'>{plots.as_svg(chart)}</figure>"
    for sheet in comparisons.sheets(results):
        yield from _sheet(sheet)


def _sheet(sheet: comparisons.Sheet) -> Iterator[str]:
    yield f"<h2>{escape(sheet.title)}</h2>"
    yield _table(list(sheet.head), ([_joined(cell) for cell in row] for row in sheet.rows))
    yield from (f"<p>{escape(note)}</p>" for note in sheet.notes)


def _joined(cell: comparisons.Cell) -> str:
    return f"{cell.text} ({cell.detail})" if cell.detail else cell.text


def _summary(document: Mapping[str, Any]) -> str:
    cohort, privacy = document["cohort"], document["privacy"]
    rows = "an unknown number of" if cohort["rows"] is None else f"{cohort['rows']:,.0f}"
    return f"{cohort['clients']:,} clients with {rows} rows, under {privacy['trust_model']}."


def _alternative(results: Mapping[str, Any]) -> str:
    auc, ece = results["roc_auc"], results["expected_calibration_error"]
    return f"ROC curve, AUC {figures.value(auc)}; reliability diagram, ECE {figures.value(ece)}"


def _cells(metric: Mapping[str, Any]) -> tuple[str, str]:
    if metric["value"] is None:
        return "-", metric["reason"]
    ends = figures.interval(metric)
    return figures.value(metric), f"({ends})" if ends else ""


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"
