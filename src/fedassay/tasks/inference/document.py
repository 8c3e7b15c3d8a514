"""Document of a regression: its coefficients as tables, as statisticians print them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedassay.documents import figures
from fedassay.documents.blocks import Document, DocumentBlock, KeyNumber, Results, TableBlock, table
from fedassay.documents.display import Display, DisplayedEntry
from fedassay.documents.kind import INDEPENDENT_ROWS, KindDocument
from fedassay.tasks.inference import document_plots
from fedassay.tasks.inference import document_plots as plots

LETTERS = {"Normal": "z", "StudentT": "t", "RandomScaling": "ratio"}
"""Name of a coefficient in standard errors, by the law that it follows."""

_VARIANCES = {"row": "robust (sandwich)", "model": "of the model", "site": "robust, by sites (clusters)"}


class RegressionDocument(KindDocument):
    """Coefficients of a regression."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield how it was fitted, the coefficients, odds ratios, contrasts, and how intervals shrank."""
        results = document["results"]
        yield fitted(document)
        yield coefficients(results)
        if has_odds(results):
            yield odds_ratios(results)
            yield plots.odds_ratios(results)
        if not withheld(results) and (not has_odds(results) or plots.scales_differ(results)):
            yield plots.coefficients(results)
        if results["contrasts"]:
            yield contrasts(results)
        if len(results["path"]) > 1:
            yield plots.path(results)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the number of features that matter beyond chance; the coefficients themselves belong in a table."""
        entries = [entry for entry in results["coefficients"] if entry["name"] != "intercept"]
        label = "coefficients away from 0"
        if entries and withheld(results):
            yield KeyNumber(label=label, text="", reason=withheld(results))
        elif entries:
            away = sum(not entry["interval"][0] <= 0 <= entry["interval"][1] for entry in entries)
            detail = f"by their {100 * entries[0]['level']:g}% intervals"
            yield KeyNumber(label=label, text=f"{away} of {len(entries)}", detail=detail)

    def listed_metrics(self, results: Results) -> Iterator[tuple[str, float | None, Any]]:
        """Yield the coefficients."""
        yield from ((f"coefficient_{entry['name']}", None, entry) for entry in results["coefficients"])

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield what standard errors rest on, and that coefficients are no causal effects."""
        variance = results["fit"].get("variance")
        if variance == "site":
            yield "Clients are independent of each other; rows of one client need not be."
        else:
            yield INDEPENDENT_ROWS
        if variance == "model":
            yield "The regression model is right: standard errors are those that it implies."
        yield "Coefficients describe the best fit of this model to these clients' rows; they are no causal effects."


def fitted(document: Document) -> TableBlock:
    """Tabulate what was fitted to what, and how."""
    fit, target = document["results"]["fit"], document["parameters"].get("target")
    rows = {
        "model": fit["model"],
        "method": fit["method"],
        "rows used": "" if fit["rows"] is None else f"{fit['rows']:,.0f}",
        "clients": "" if fit["clients"] is None else f"{fit['clients']:,}",
        **_how(fit),
    }
    title = f"{fit['model'].capitalize()} regression{f' of {target}' if target else ''}"
    return table(title, ("", "value"), ((name, text) for name, text in rows.items() if text))


def _how(fit: Results) -> dict[str, str]:
    if fit["variance"] is not None:
        return {
            "sums": f"{fit['rounds']:,}",
            "standard errors": _VARIANCES.get(fit["variance"], ""),
            "mean loss of a row": figures.amount(fit["loss"]),
        }
    return {
        "rounds": f"{fit['rounds']:,}",
        "participation": f"{fit['participation']:g}",
        "local steps of a client in a round": f"{fit['local_steps']:.3g}" if "local_steps" in fit else "",
        "step sizes": f"{fit['step']:.3g}/t^{fit['decay']:g}" if "step" in fit else "",
        "norm of a client's gradient that counts": f"{fit['clip']:.3g}" if "clip" in fit else "",
    }


def coefficients(results: Results) -> TableBlock:
    """Tabulate the coefficients, one line each."""
    entries = results["coefficients"]
    rows = (_line(entry["name"], entry) for entry in entries)
    return table("Coefficients", _head(results, "coef"), rows, notes=(_together(entries), *results["notes"]))


def contrasts(results: Results) -> TableBlock:
    """Tabulate the contrasts, one line each."""
    rows = (_line(entry["contrast"], entry) for entry in results["contrasts"])
    return table("Contrasts", _head(results, "value"), rows)


def _head(results: Results, value: str) -> tuple[str, ...]:
    letter, level = LETTERS.get(results["law"], "ratio"), results["coefficients"][0]["level"]
    return ("", value, "std err", letter, f"P>|{letter}|", *ends(level))


def ends(level: float) -> tuple[str, str]:
    """Return the headings of the ends of an interval.

    Examples
    --------
    >>> ends(0.95)
    ('[0.025', '0.975]')
    """
    return f"[{(1 - level) / 2:.4g}", f"{(1 + level) / 2:.4g}]"


def withheld(results: Results) -> str:
    """Return why there are values only, because rounds have not arrived; empty if there are intervals."""
    first = results["coefficients"][0]
    return "" if first["interval"] is not None else str(first["reason"])


def _line(name: str, entry: Results) -> tuple[str, ...]:
    if entry["interval"] is None:
        return (name, figures.amount(entry["value"]), *5 * ("-",))
    low, high = entry["interval"]
    width = (high - low) / 10  # as many digits as the standard error has
    value, low, high = (figures.amount(number, width=width) for number in (entry["value"], low, high))
    statistic = "-" if entry["statistic"] is None else f"{entry['statistic']:,.2f}"
    return (
        name,
        value,
        f"{entry['standard_error']:.3g}",
        statistic,
        figures.p_value(entry["p_value"]),
        low,
        high,
    )


def _together(entries: Sequence[Results]) -> str:
    """Return a note on how much wider intervals are that hold for all coefficients at once."""
    for entry in entries if len(entries) > 1 and entries[0]["interval"] is not None else ():
        (low, high), (first, last) = entry["interval"], entry["simultaneous_interval"]
        if high > low:
            return (
                f"Each interval holds with probability {entry['level']:g} by itself; all {len(entries)} together if "
                f"they are {(last - first) / (high - low):.2f} times as wide."
            )
    return ""


def has_odds(results: Results) -> bool:
    """Return whether any feature has an odds ratio."""
    return bool(plots.odds(results))


def odds_ratios(results: Results) -> TableBlock:
    """Tabulate the factors by which the odds change with one unit of a feature."""
    entries = plots.odds(results)
    return table(
        "Odds ratios",
        ("", "odds ratio", *ends(entries[0]["level"])),
        ((entry["name"], *_odds(entry["odds_ratio"])) for entry in entries),
        notes=("For one unit more of a feature, the others being as they are.",),
    )


def _odds(ratio: Results) -> Iterator[str]:
    low, high = ratio["interval"]
    width = None if low is None or high is None else (high - low) / 10
    for number in (ratio["value"], low, high):
        yield "beyond 1e308" if number is None else figures.amount(number, width=width)


# --- the display of the coefficients of a regression --------------------------------------------------------


def _column(name: str, doc: str) -> Any:
    return property(lambda self: tuple(entry[name] for entry in self.results["coefficients"]), doc=doc)


@dataclass(frozen=True, kw_only=True, repr=False)
class CoefficientsDisplay(Display):
    """The coefficients of a regression with their intervals.

    Attributes: `names`, `values`, `standard_errors`, `intervals`, `p_values`, `level`; where rounds have not arrived
    errors, intervals and p-values are None. The plot leaves out the intercept, and all but the first 40; where scales
    differ much, it shows coefficients in their standard errors.
    """

    wanted = DisplayedEntry("coefficients", "coefficients", ("infer",))
    make = document_plots.coefficients

    names = _column("name", "Of the features, and the intercept.")
    values = _column("value", "Estimates.")
    standard_errors = _column("standard_error", "Their standard errors.")
    p_values = _column("p_value", "Of the hypothesis that a coefficient is 0.")

    @property
    def intervals(self) -> tuple[tuple[float, float] | None, ...]:
        """Confidence intervals of the coefficients."""
        ends = (entry["interval"] for entry in self.results["coefficients"])
        return tuple(None if pair is None else (pair[0], pair[1]) for pair in ends)

    @property
    def level(self) -> float:
        """Confidence level of the intervals."""
        return float(self.results["coefficients"][0]["level"])

    def _main(self) -> Mapping[str, Any]:
        return {"coefficients": len(self.names), "level": self.level}
