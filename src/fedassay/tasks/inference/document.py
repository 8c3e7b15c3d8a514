"""The coefficients of a regression as tables, as statisticians print them. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fedassay.documents import figures
from fedassay.documents.kind import INDEPENDENT_ROWS, KindDocument, Results
from fedassay.documents.sheet import Cell, Document, Figure, KeyNumber, Piece, Sheet
from fedassay.tasks.inference import document_plots as drawn

Entry = Mapping[str, Any]

LETTERS = {"Normal": "z", "StudentT": "t", "RandomScaling": "ratio"}
"""What a coefficient in standard errors is called, by the law that it follows."""

_VARIANCES: Mapping[str, str] = {
    "row": "robust (sandwich)",
    "model": "of the model",
    "site": "robust, by sites (clusters)",
}


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """How it was fitted, the coefficients, odds ratios, contrasts, and how intervals shrank."""
    results = document["results"]
    yield fitted(document)
    yield coefficients(results)
    if has_odds(results):
        yield odds_ratios(results)
        yield Figure(draw=partial(drawn.odds_plot, results), alternative=drawn.odds_alternative(results))
    if not withheld(results) and (not has_odds(results) or drawn.scales_differ(results)):
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
    if fit["variance"] is not None:
        found: list[tuple[str, str]] = [
            ("sums", f"{fit['rounds']:,}"),
            ("standard errors", _VARIANCES.get(fit["variance"], "")),
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


def withheld(results: Entry) -> str:
    """Why there are values only, because rounds have not arrived; empty if there are intervals."""
    first = results["coefficients"][0]
    return "" if first["interval"] is not None else str(first["reason"])


def _line(name: str, entry: Entry) -> tuple[Cell, ...]:
    if entry["interval"] is None:
        return tuple(Cell(text=text) for text in (name, figures.amount(entry["value"]), *5 * ("-",)))
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
    for entry in entries if entries[0]["interval"] is not None else ():
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


class RegressionDocument(KindDocument):
    """Coefficients of a regression."""

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """How many features matter beyond chance: the coefficients themselves belong into a table."""
        entries = [entry for entry in results["coefficients"] if entry["name"] != "intercept"]
        label = "coefficients away from 0"
        if entries and withheld(results):
            yield KeyNumber(label=label, text="", reason=withheld(results))
            return
        away = sum(not entry["interval"][0] <= 0 <= entry["interval"][1] for entry in entries)
        if entries:
            yield KeyNumber(
                label=label,
                text=f"{away} of {len(entries)}",
                detail=f"by their {100 * entries[0]['level']:g}% intervals",
            )

    def assumptions(self, results: Results) -> Iterator[str]:
        """What standard errors rest on, and that coefficients are no causal effects."""
        variance = results["fit"].get("variance")
        if variance == "site":
            yield "Clients are independent of each other; rows of one client need not be."
        else:
            yield INDEPENDENT_ROWS
        if variance == "model":
            yield "The regression model is right: standard errors are those that it implies."
        yield "Coefficients describe the best fit of this model to these clients' rows; they are no causal effects."
