"""Document of a conformal task: the threshold and its guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fedassay.documents import figures
from fedassay.documents.blocks import (
    Document,
    DocumentBlock,
    KeyNumber,
    Results,
    SentenceBlock,
    TableBlock,
    metric_number,
    reasons,
    table,
    why,
)
from fedassay.documents.kind import ON_HELD_OUT_ROWS, KindDocument, NextStep
from fedassay.tasks.conformal import document_plots as plots
from fedassay.tasks.conformal import document_sets as sets
from fedassay.tasks.conformal.document_held_out import held_out_blocks, method_tables, threshold

SCORES: Mapping[str, tuple[str, str]] = {
    "absolute": ("absolute residual", "the prediction, plus and minus the threshold"),
    "normalised": ("normalised residual", "the prediction, plus and minus the threshold times the scale"),
    "cqr": ("CQR", "from the lower end minus the threshold to the upper end plus the threshold"),
    "binary": ("class probability", "each of 0 and 1 whose probability is at least 1 minus the threshold"),
    "lac": ("LAC", "all classes whose probability is at least 1 minus the threshold"),
    "aps": (
        "APS",
        "the most probable classes until their probability passes the threshold, with the one that passes it",
    ),
    "raps": (
        "RAPS",
        "the most probable classes until their probability, with a penalty for late ranks, passes the threshold",
    ),
}
"""Names of the scores, and the form of a set for each."""

_AT_LEAST = "≥\N{NO-BREAK SPACE}"
_ANY_SET = "everything whose score is at most the threshold"

PROMISED = {0.9: "9 of 10", 0.95: "19 of 20"}
"""Probabilities with which a coverage is reported to be reached, and their frequencies in words."""

_DETAILS = {
    "server_rank": "rank among the clients' values",
    "rank": "rank among all rows",
    "margin": "raised for noise, in rows",
    "step": "distance of the public points",
    "candidates": "public points",
    "without_a_quantile": "clients with too few rows for a quantile",
}
"""Names of the numbers of a method, for readers."""

_INNER = ("server_rank", "rank", "margin", "step", "candidates")
"""Numbers that describe how a threshold was found, and not what it is good for."""

_KNOWN = frozenset(
    {
        *("method", "level", "score", "conditional", "threshold", "infinite", "reason", "guarantee", "pair"),
        *("coverage_law", "rows", "clients", "groups", "sites", "held_out", "heterogeneity", "comparison"),
        *("notes", "text"),
    }
)


class ConformalDocument(KindDocument):
    """Prediction sets."""

    use: ClassVar[str] = "Prediction sets"

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield what is promised for which rows, and measured; then law, groups, held-out rows, other methods, sites.

        For sets that hold everything, yield one sentence and the results of other methods.
        """
        results = document["results"]
        if sets.holds_everything(results):
            yield SentenceBlock(text=why_everything(results))
            yield from method_tables(results)
            return
        yield SentenceBlock(text=results["text"])
        if plots.laws(results):
            yield plots.coverage_laws(results)
        yield promise(results)
        if results.get("groups"):
            yield groups(results)
            yield plots.thresholds(results)
        yield from held_out_blocks(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield coverage and size; nothing where sets hold everything: counts are noise, and a sentence says so."""
        if self.is_vacuous(results):
            return
        level, held_out = f"{100 * results['level']:g}%", results.get("held_out") or {}
        covered, law = held_out.get("coverage"), results.get("coverage_law")
        asked = level if results.get("conditional") == "class" else f"{level} over all"
        by_class = sets.coverage_of_classes(results)
        for name, coverage in by_class:
            yield metric_number(f"held-out coverage {name}; asked: {asked}", coverage)
        if not by_class and results.get("conditional") is None and self._gives_classes(results):
            tell = (
                "it cannot be told from the held-out rows" if held_out else "no rows were held out (holdout)"
            )
            yield KeyNumber(label="coverage of each class", text="", reason=tell)
        if covered is not None and covered["value"] is not None:
            number = metric_number(f"coverage {ON_HELD_OUT_ROWS}; asked: {level}", covered)
            yield replace(number, detail="; ".join(filter(None, (number.detail, sets.by_chance(results)))))
        elif law:
            text = f"{'' if law['exact'] else '≥ '}{law['mean']:.3f}"
            yield KeyNumber(label=f"coverage to expect; asked: {level}", text=text)
        size, name = held_out.get("mean_size"), sets.size_name(results)
        if size is not None and size["value"] is not None:
            if sets.is_exact(size):
                yield KeyNumber(label=name, text=sets.size(size))
            else:
                yield metric_number(f"{name} {ON_HELD_OUT_ROWS}", size)

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield the assumptions of the guarantees, of all rows and of groups."""
        entries = [results, *(one or {} for one in (results.get("groups") or {}).values())]
        for guarantee in (entry.get("guarantee") for entry in entries):
            if guarantee and guarantee.get("assumption"):
                text = str(guarantee["assumption"])
                yield f"{text[0].upper()}{text[1:]}."

    def sentences(self, results: Results) -> Iterator[str]:
        """Yield what is promised for which rows, and what held-out rows of each class show."""
        yield str(results["text"])

    def held_out_metrics(self, results: Results) -> Mapping[str, Any]:
        """Return the coverage of each of two classes, or of the worst of more."""
        found = {} if self.is_vacuous(results) else sets.classes(results)
        if len(found) <= sets.FEW_CLASSES:
            return {f"coverage_class_{name}": entry["coverage"] for name, entry in found.items()}
        return {"coverage_worst_class": (results["held_out"]["worst_class"] or {}).get("coverage")}

    def plain_numbers(self, results: Results) -> Mapping[str, Any]:
        """Return the threshold of all rows, or of each class or group."""
        parts = (results.get("groups") or {}).items()
        return {
            "threshold": results.get("threshold"),
            **{f"threshold_{results['conditional']}_{part}": entry["threshold"] for part, entry in parts},
        }

    def next_steps(self, results: Results, file: str, name: str) -> Iterator[NextStep]:
        """Yield the next step: predict sets for new rows."""
        has_threshold = results.get("groups") or results.get("sites") or results.get("threshold") is not None
        if self.is_vacuous(results) or not has_threshold:
            return
        what = "intervals" if sets.are_intervals(results) else "sets"
        calibrated = results["score"].get("calibrated")
        own = "; give it the model's own scores, the calibrator is in it" if calibrated else ""
        yield (
            f"Predict {what} for new rows that cover {results['level']:g}, with {file}{own}:",
            f"fedassay apply {file} NEW.csv --out {name}.parquet",
        )

    def is_vacuous(self, results: Results) -> bool:
        """Return whether every set holds everything."""
        return sets.holds_everything(results)

    @staticmethod
    def _gives_classes(results: Results) -> bool:
        return results["score"]["name"] in SCORES and not sets.are_intervals(results)


# --- the promise ------------------------------------------------------------------------------------------------------


def why_everything(results: Results) -> str:
    """Return one sentence in place of a law, sizes and coverage.

    Examples
    --------
    >>> why_everything({"level": 0.9, "infinite": True, "reason": "there are too few rows"})
    'There are no sets of the level 0.9 to speak of: every set would hold everything, because there are too few rows.'
    """
    given = [results, *(results.get("groups") or {}).values()]
    reason = why({"value": None, "reason": entry["reason"]} for entry in given if entry.get("reason"))
    because = f", because {reason or 'the threshold is infinite'}"
    return f"There are no sets of the level {results['level']:g} to speak of: every set would hold everything{because}."


def promise(results: Results) -> TableBlock:
    """Return the threshold and the law of its coverage; with groups, each group states its own."""
    rows: list[tuple[str, str]] = []
    notes = list(results.get("notes", ()))
    guarantee = results.get("guarantee")
    if guarantee is not None:
        notes.insert(0, guarantee["text"])
    if not results.get("groups"):
        rows += [("threshold", threshold(results)), *_law(results)]
        counted = {"rows": "rows that it was found on", "clients": "clients"}
        rows += [(name, f"{results[of]:,.0f}") for of, name in counted.items() if results.get(of) is not None]
        if "reason" in results and (guarantee is None or results["reason"] not in guarantee["text"]):
            notes.insert(0, results["reason"])
    details = [(name, _DETAILS.get(name, name.replace("_", " ")), text) for name, text in _details(results)]
    rows += [(title, text) for name, title, text in details if name not in _INNER]
    inner = [(title, text) for name, title, text in details if name in _INNER]
    if results.get("pair") is not None:
        local, server = results["pair"]
        inner.insert(0, ("ranks: of a client's scores, of the clients' values", f"{local:,}, {server:,}"))
    meaning = f"A set is {SCORES.get(results['score']['name'], ('', _ANY_SET))[1]}."
    return table(
        f"Sets that cover {results['level']:g}: {results['method']}, by {score(results)}",
        ("", "value"),
        rows,
        notes=(meaning, *notes, sets.NO_ERROR if sets.are_intervals(results) else ""),
        inner=inner,
    )


def score(results: Results) -> str:
    """Return the conformity score in words, with its parameters.

    Examples
    --------
    >>> score({"score": {"name": "raps", "parameters": [0.01, 5.0]}})
    'RAPS (0.01, 5)'
    >>> score({"score": {"name": "binary", "parameters": [2.0, 1.0, 1.0, 0.5], "calibrated": True}})
    'calibrated class probability'
    """
    name, parameters = results["score"]["name"], results["score"].get("parameters", ())
    if results["score"].get("calibrated"):
        return f"calibrated {SCORES[name][0]}"
    words = SCORES.get(name, (f"{name} scores",))[0]
    return f"{words} ({', '.join(f'{one:g}' for one in parameters)})" if parameters else words


def _law(results: Results) -> list[tuple[str, str]]:
    """Return mean, spread, and the coverage that is reached with each probability."""
    law, guarantee = results.get("coverage_law"), results.get("guarantee") or {}
    promised, probability = guarantee.get("coverage"), guarantee.get("probability")
    if law is None:
        return [] if promised is None else [("coverage that is promised", f"{_AT_LEAST}{promised:.4f}")]
    # For a bound, the promise also allows for what noise hides; it is not rounded up.
    mean = law["mean"] if law["exact"] or promised is None else math.floor(promised * 1e4 + 1e-9) / 1e4
    rows = [
        ("coverage to expect" if law["exact"] else "coverage, at least", _coverage(law, mean)),
        (f"its standard deviation{'' if law['exact'] else ' (of the bound)'}", _spread(law)),
        *((f"coverage exceeded in {often} calibrations", _reached(law, p)) for p, often in PROMISED.items()),
    ]
    if probability is not None:
        at_least = "" if law["exact"] else _AT_LEAST
        rows.append((f"probability to cover at least {results['level']:g}", f"{at_least}{probability:.3f}"))
    return rows


def _coverage(law: Results, value: float) -> str:
    return f"{'' if law['exact'] else _AT_LEAST}{value:.4f}"


def _spread(law: Results) -> str:
    return figures.error(law["standard_deviation"])


def _reached(law: Results, probability: float) -> str:
    """Return the coverage that is reached with this probability: a quantile from the lower end."""
    reached = (
        one["coverage"] for one in law["quantiles"] if abs(1 - one["probability"] - probability) < 1e-9
    )
    coverage = next(reached, None)
    return "-" if coverage is None else _coverage(law, coverage)


def _details(results: Results) -> Iterator[tuple[str, str]]:
    """Yield all other single numbers or words that a method reports, by their names in the result."""
    for name, value in results.items():
        if not value or name in _KNOWN or (name == "server_rank" and results.get("pair") is not None):
            continue
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            yield name, value if isinstance(value, str) else figures.amount(value)


# --- groups -----------------------------------------------------------------------------------------------------------


def groups(results: Results) -> TableBlock:
    """Return one line per class or group: its threshold and its guarantee."""
    entries, by = sets.group_entries(results), results["conditional"]
    without = [entry for entry in entries if "reason" in entry]
    missing = reasons((entry["group"], {"value": None, "reason": entry["reason"]}) for entry in without)
    often = (f"in {often}" for often in PROMISED.values())
    return table(
        f"By {by}",
        (by, "threshold", "rows", "coverage", "its sd", *often),
        (_group(entry) for entry in entries),
        notes=(*_guarantees(entries), *missing),
    )


def _group(entry: Results) -> tuple[str, ...]:
    law, number = entry.get("coverage_law"), entry.get("rows")
    promised = ("-",) * (2 + len(PROMISED))
    if law is not None:
        promised = (_coverage(law, law["mean"]), _spread(law), *(_reached(law, p) for p in PROMISED))
    rows = "-" if number is None else f"{number:,.0f}"
    return (entry["group"], threshold(entry), rows, *promised)


def _guarantees(entries: Sequence[Results]) -> tuple[str, ...]:
    """Return the guarantee of each group, if it is not the same for all."""
    named = [
        (entry["group"], {"value": None, "reason": _guarantee(entry["guarantee"])})
        for entry in entries
        if entry.get("guarantee") is not None
    ]
    return () if len({entry["reason"] for _, entry in named}) <= 1 else reasons(named)


def _guarantee(guarantee: Results) -> str:
    if guarantee["kind"] == "none":
        return "no coverage is guaranteed"
    text = f"coverage of at least {guarantee['level']:g} ({guarantee['kind']}"
    if guarantee.get("confidence") is not None:
        text += f", with confidence {guarantee['confidence']:g}"
    assumed = guarantee["assumption"]
    return "everything is covered" if assumed is None else f"{text}), if {assumed}"
