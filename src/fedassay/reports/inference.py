"""The coefficients of a regression as tables, as statisticians print them. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fedassay.reports import figures
from fedassay.reports import inference_plots as drawn
from fedassay.reports.sheet import Cell, Document, Figure, Sheet

Entry = Mapping[str, Any]

LETTERS = {"Normal": "z", "StudentT": "t", "RandomScaling": "ratio"}
"""What a coefficient in standard errors is called, by the law that it follows."""

_ERRORS: Mapping[str, str] = {
    "robust": "robust (sandwich)",
    "model": "of the model",
    "clients": "robust, by clients (clusters)",
}


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """How it was fitted, the coefficients, odds ratios, contrasts, and how intervals shrank."""
    results = document["results"]
    yield fitted(document)
    yield coefficients(results)
    if has_odds(results):
        yield odds_ratios(results)
        yield Figure(draw=partial(drawn.odds_plot, results), alternative=drawn.odds_alternative(results))
    if not has_odds(results) or drawn.scales_differ(results):
        yield Figure(draw=partial(drawn.forest_plot, results), alternative=drawn.forest_alternative(results))
    if results["contrasts"]:
        yield contrasts(results)
    if len(results["path"]) > 1:
        yield Figure(draw=partial(drawn.path_plot, results), alternative=drawn.path_alternative(results))


def fitted(document: Document) -> Sheet:
    """What was fitted to what, and how."""
    fit, parameters = document["results"]["fit"], document["parameters"]
    clients = [] if fit["clients"] is None else [("clients", f"{fit['clients']:,}")]
    rows = [
        ("model", fit["model"]),
        ("method", fit["method"]),
        *([] if fit["rows"] is None else [("rows used", f"{fit['rows']:,.0f}")]),
        *clients,
        *_how(fit),
    ]
    target = f" of {parameters['target']}" if parameters.get("target") else ""
    return Sheet(
        title=f"{fit['model'].capitalize()} regression{target}",
        head=("", "value"),
        rows=tuple((Cell(text=name), Cell(text=text)) for name, text in rows),
    )


def _how(fit: Entry) -> list[tuple[str, str]]:
    if fit["errors"] is not None:
        found: list[tuple[str, str]] = [
            ("sums", f"{fit['rounds']:,}"),
            ("standard errors", _ERRORS.get(fit["errors"], "")),
        ]
        return [*found, ("mean loss of a row", figures.amount(fit["loss"]))]
    shown = {
        "rounds": f"{fit['rounds']:,}",
        "participation": f"{fit['participation']:g}",
        "local steps of a client in a round": f"{fit['local_steps']:.3g}" if "local_steps" in fit else "",
        "step sizes": f"{fit['step']:.3g}/t^{fit['decay']:g}" if "step" in fit else "",
        "norm of a client's gradient that counts": f"{fit['clip']:.3g}" if "clip" in fit else "",
    }
    return [(name, text) for name, text in shown.items() if text]


def coefficients(results: Entry) -> Sheet:
    """One line per coefficient."""
    entries = results["coefficients"]
    return Sheet(
        title="Coefficients",
        head=_head(results, "coef"),
        rows=tuple(_line(entry["name"], entry) for entry in entries),
        notes=(*_together(entries), *results["notes"]),
    )


def _head(results: Entry, value: str) -> tuple[str, ...]:
    letter, level = LETTERS.get(results["law"], "ratio"), results["coefficients"][0]["level"]
    return ("", value, "std err", letter, f"P>|{letter}|", *ends(level))


def ends(level: float) -> tuple[str, str]:
    """How the ends of an interval are headed.

    Examples
    --------
    >>> ends(0.95)
    ('[0.025', '0.975]')
    """
    return f"[{(1 - level) / 2:.4g}", f"{(1 + level) / 2:.4g}]"


def _line(name: str, entry: Entry) -> tuple[Cell, ...]:
    low, high = entry["interval"]
    width = (high - low) / 10  # as many digits as the standard error has
    statistic = entry["statistic"]
    shown = (
        name,
        figures.amount(entry["value"], width=width),
        f"{entry['standard_error']:.3g}",
        "-" if statistic is None else f"{statistic:,.2f}",
        figures.p_value(entry["p_value"]),
        figures.amount(low, width=width),
        figures.amount(high, width=width),
    )
    return tuple(Cell(text=text) for text in shown)


def _together(entries: list[Entry]) -> tuple[str, ...]:
    """By how much wider intervals are that hold for all coefficients at once."""
    for entry in entries:
        (low, high), (first, last) = entry["interval"], entry["simultaneous_interval"]
        if len(entries) > 1 and high > low:
            factor = (last - first) / (high - low)
            return (
                f"Each interval holds with probability {entry['level']:g} by itself; all {len(entries)} together if "
                f"they are {factor:.2f} times as wide.",
            )
    return ()


def has_odds(results: Entry) -> bool:
    """Whether any feature has an odds ratio."""
    return bool(drawn.odds(results))


def odds_ratios(results: Entry) -> Sheet:
    """By what factor the odds change with one unit of a feature."""
    entries = drawn.odds(results)
    return Sheet(
        title="Odds ratios",
        head=("", "odds ratio", *ends(entries[0]["level"])),
        rows=tuple(
            tuple(Cell(text=text) for text in (entry["name"], *_odds(entry["odds_ratio"])))
            for entry in entries
        ),
        notes=("For one unit more of a feature, the others being as they are.",),
    )


def _odds(ratio: Entry) -> tuple[str, str, str]:
    low, high = ratio["interval"]
    width = None if low is None or high is None else (high - low) / 10
    too_large = "beyond 1e308"
    return tuple(  # type: ignore[return-value]
        too_large if one is None else figures.amount(one, width=width) for one in (ratio["value"], low, high)
    )


def contrasts(results: Entry) -> Sheet:
    """One line per contrast."""
    entries = results["contrasts"]
    return Sheet(
        title="Contrasts",
        head=_head(results, "value"),
        rows=tuple(_line(entry["contrast"], entry) for entry in entries),
    )
