"""A conformal threshold as tables: what it is, and what is promised of it. Reads only the result's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from fedassay.documents import figures
from fedassay.documents.kind import ON_HELD_OUT_ROWS, KindDocument, Results, Step
from fedassay.documents.sheet import (
    Cell,
    Document,
    Figure,
    KeyNumber,
    Notice,
    Piece,
    Sheet,
    metric_number,
    reasons,
)
from fedassay.tasks.conformal import document_held_out as conformal_seen
from fedassay.tasks.conformal import document_plots as drawn
from fedassay.tasks.conformal import document_words as conformal_words
from fedassay.tasks.conformal.document_held_out import threshold
from fedassay.tasks.conformal.document_plots import Entry, group_entries, laws

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
"""Scores in words, and what a set then is."""

_AT_LEAST = "≥\N{NO-BREAK SPACE}"
_ANY_SET = "everything whose score is at most the threshold"

PROMISED = {0.9: "9 of 10", 0.95: "19 of 20"}
"""The probabilities with which a coverage is said to be reached, and how often that is."""

_DETAILS = {
    "server_rank": "rank among the clients' values",
    "rank": "rank among all rows",
    "margin": "raised for noise, in rows",
    "step": "distance of the public points",
    "candidates": "public points",
    "without_a_quantile": "clients with too few rows for a quantile",
}
"""What the numbers of a method are called where people read them."""

_INNER = ("server_rank", "rank", "margin", "step", "candidates")
"""Those that say how a threshold was found, and not what it is good for."""

_KNOWN = frozenset(
    {
        *("method", "level", "score", "conditional", "threshold", "infinite", "reason", "guarantee", "pair"),
        *("coverage_law", "rows", "clients", "groups", "sites", "held_out", "heterogeneity", "comparison"),
        *("notes", "text"),
    }
)


def contents(document: Document) -> Iterator[Sheet | Figure | Notice]:
    """First what is promised of whom, and measured; then law, groups, held-out rows, other methods, sites.

    Of sets that hold everything there is one sentence, and what other methods would have done.
    """
    results = document["results"]
    if conformal_words.holds_everything(results):
        yield Notice(text=conformal_words.why_everything(results))
        yield from conformal_seen.beside(results)
        return
    yield Notice(text=results["text"])
    if laws(results):
        yield Figure(draw=partial(drawn.law_plot, results), alternative=drawn.law_alternative(results))
    yield promise(results)
    if results.get("groups"):
        yield groups(results)
        yield Figure(draw=partial(drawn.groups_plot, results), alternative=drawn.groups_alternative(results))
    yield from conformal_seen.contents(document)


def promise(results: Entry) -> Sheet:
    """The threshold, and the law of what it covers."""
    rows: list[tuple[str, str]] = []
    if not results.get("groups"):
        rows += [("threshold", threshold(results)), *_law(results)]
        known = {"rows": "rows that it was found on", "clients": "clients"}
        rows += [
            (name, f"{results[what]:,.0f}") for what, name in known.items() if results.get(what) is not None
        ]
    details = _details(results)
    rows += [
        (_DETAILS.get(name, name.replace("_", " ")), text) for name, text in details if name not in _INNER
    ]
    inner = [*_ranks(results), *((_DETAILS[name], text) for name, text in details if name in _INNER)]
    guarantee, notes = results.get("guarantee"), tuple(results.get("notes", ()))
    if guarantee is not None:
        notes = (guarantee["text"], *notes)
    said = bool(results.get("groups"))  # each group says its own
    if "reason" in results and not said and (guarantee is None or results["reason"] not in guarantee["text"]):
        notes = (results["reason"], *notes)
    meaning = f"A set is {SCORES.get(results['score']['name'], ('', _ANY_SET))[1]}."
    if conformal_words.are_intervals(results):
        notes = (*notes, conformal_words.NO_ERROR)
    return Sheet(
        title=f"Sets that cover {results['level']:g}: {results['method']}, by {score(results)}",
        head=("", "value"),
        rows=_cells(rows),
        notes=(meaning, *notes),
        inner=_cells(inner),
    )


def _cells(rows: Sequence[tuple[str, str]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple((Cell(text=name), Cell(text=text)) for name, text in rows)


def score(results: Entry) -> str:
    """The conformity score in words, with its parameters.

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


def _ranks(results: Entry) -> list[tuple[str, str]]:
    if results.get("pair") is None:
        return []
    local, server = results["pair"]
    return [("ranks: of a client's scores, of the clients' values", f"{local:,}, {server:,}")]


def _law(results: Entry) -> list[tuple[str, str]]:
    """Mean, spread, and what is reached with which probability."""
    law = results.get("coverage_law")
    if law is None:
        promised = (results.get("guarantee") or {}).get("coverage")
        return [] if promised is None else [("coverage that is promised", f"{_AT_LEAST}{promised:.4f}")]
    rows = [
        ("coverage to expect" if law["exact"] else "coverage, at least", _mean(results, law)),
        ("its standard deviation" + ("" if law["exact"] else " (of the bound)"), _spread(law)),
        *((f"coverage exceeded in {often} calibrations", _reached(law, p)) for p, often in PROMISED.items()),
    ]
    probability = (results.get("guarantee") or {}).get("probability")
    if probability is not None:
        at_least = "" if law["exact"] else _AT_LEAST
        rows.append((f"probability to cover at least {results['level']:g}", f"{at_least}{probability:.3f}"))
    return rows


def _mean(results: Entry, law: Entry) -> str:
    """The mean of an exact law; of a bound what is promised, which allows for what noise hides too. Not rounded up."""
    promised = (results.get("guarantee") or {}).get("coverage")
    if law["exact"] or promised is None:
        return _coverage(law, law["mean"])
    return _coverage(law, math.floor(promised * 1e4 + 1e-9) / 1e4)


def _coverage(law: Entry, value: float) -> str:
    return f"{'' if law['exact'] else _AT_LEAST}{value:.4f}"


def _spread(law: Entry) -> str:
    return figures.error(law["standard_deviation"])


def _reached(law: Entry, probability: float) -> str:
    """The coverage that is reached with this probability: a quantile from the lower end."""
    for one in law["quantiles"]:
        if abs(1 - one["probability"] - probability) < 1e-9:
            return _coverage(law, one["coverage"])
    return "-"


def _details(results: Entry) -> list[tuple[str, str]]:
    """Whatever else a method says of itself in single numbers or words, by its name in the result."""
    found = []
    for name, value in results.items():
        if not value or (name == "server_rank" and results.get("pair") is not None):
            continue
        if name not in _KNOWN and isinstance(value, int | float | str) and not isinstance(value, bool):
            text = value if isinstance(value, str) else figures.amount(value)
            found.append((name, text))
    return found


def groups(results: Entry) -> Sheet:
    """One line per class or group: its threshold, and what is promised of it."""
    entries = group_entries(results)
    names = {"threshold": "threshold", "rows": "rows", "mean": "coverage", "spread": "its sd"}
    named = [
        (entry["group"], {"value": None, "reason": entry["reason"]}) for entry in entries if "reason" in entry
    ]
    return Sheet(
        title=f"By {results['conditional']}",
        head=(results["conditional"], *names.values(), *(f"in {often}" for often in PROMISED.values())),
        rows=tuple(_group(entry) for entry in entries),
        notes=(*_guarantees(entries), *reasons(named)),
    )


def _group(entry: Entry) -> tuple[Cell, ...]:
    law, number = entry.get("coverage_law"), entry.get("rows")
    said = ("-",) * (2 + len(PROMISED))
    if law is not None:
        said = (_coverage(law, law["mean"]), _spread(law), *(_reached(law, p) for p in PROMISED))
    rows = "-" if number is None else f"{number:,.0f}"
    return tuple(Cell(text=text) for text in (entry["group"], threshold(entry), rows, *said))


def _guarantees(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What is promised of each group, if it is not the same for all."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        guarantee = entry.get("guarantee")
        if guarantee is not None:
            found.setdefault(_guarantee(guarantee), []).append(entry["group"])
    if len(found) <= 1:
        return ()
    return reasons((name, {"value": None, "reason": text}) for text, names in found.items() for name in names)


def _guarantee(guarantee: Entry) -> str:
    if guarantee["kind"] == "none":
        return "no coverage is guaranteed"
    text = f"coverage of at least {guarantee['level']:g} ({guarantee['kind']}"
    if guarantee.get("confidence") is not None:
        text += f", with confidence {guarantee['confidence']:g}"
    assumed = guarantee["assumption"]
    return "everything is covered" if assumed is None else f"{text}), if {assumed}"


class ConformalDocument(KindDocument):
    """Prediction sets."""

    use: ClassVar[str] = "Prediction sets"

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Coverage and size; nothing where sets hold everything: what was counted is noise, and a sentence says it."""
        if self.is_vacuous(results):
            return
        level, seen = f"{100 * results['level']:g}%", results.get("held_out") or {}
        covered = seen.get("coverage")
        asked = level if results.get("conditional") == "class" else f"{level} over all"
        for name, coverage in conformal_words.coverage_of_classes(results):
            yield metric_number(f"held-out coverage {name}; asked: {asked}", coverage)
        if covered is not None and covered["value"] is not None:
            number = metric_number(f"coverage {ON_HELD_OUT_ROWS}; asked: {level}", covered)
            details = (number.detail, conformal_words.by_chance(results))
            yield replace(number, detail="; ".join(filter(None, details)))
        elif results.get("coverage_law"):
            law = results["coverage_law"]
            text = f"{'' if law['exact'] else '≥ '}{law['mean']:.3f}"
            yield KeyNumber(label=f"coverage to expect; asked: {level}", text=text)
        size = seen.get("mean_size")
        if size is not None and size["value"] is not None:
            name, alike = conformal_words.size_name(results), conformal_words.is_exact(size)
            if alike:
                yield KeyNumber(label=name, text=conformal_words.size(size))
            else:
                yield metric_number(f"{name} {ON_HELD_OUT_ROWS}", size)

    def assumptions(self, results: Results) -> Iterator[str]:
        """Those of the guarantees, of all rows and of groups."""
        entries = [results, *(one or {} for one in (results.get("groups") or {}).values())]
        for guarantee in (entry.get("guarantee") for entry in entries):
            if guarantee and guarantee.get("assumption"):
                text = str(guarantee["assumption"])
                yield f"{text[0].upper()}{text[1:]}."

    def sentences(self, results: Results) -> Iterator[str]:
        """What is promised of whom, and what held-out rows of each class show."""
        yield str(results["text"])

    def held_out_metrics(self, results: Results) -> Mapping[str, Any]:
        """The coverage of each of two classes, or of the worst of more."""
        found = {} if self.is_vacuous(results) else conformal_words.classes(results)
        if len(found) <= conformal_words.FEW_CLASSES:
            return {f"coverage_class_{name}": entry["coverage"] for name, entry in found.items()}
        return {"coverage_worst_class": (results["held_out"]["worst_class"] or {}).get("coverage")}

    def thresholds(self, results: Results) -> Mapping[str, Any]:
        """The threshold of all rows, or of each class or group."""
        parts = (results.get("groups") or {}).items()
        return {
            "threshold": results.get("threshold"),
            **{f"threshold_{results['conditional']}_{part}": entry["threshold"] for part, entry in parts},
        }

    def next_steps(self, results: Results, file: str, name: str) -> Iterator[Step]:
        """Predict sets for new rows."""
        has_threshold = results.get("groups") or results.get("sites") or results.get("threshold") is not None
        if self.is_vacuous(results) or not has_threshold:
            return
        what = "intervals" if conformal_words.are_intervals(results) else "sets"
        own = ""
        if results["score"].get("calibrated"):
            own = "; give it the model's own scores, the calibrator is in it"
        yield (
            f"Predict {what} for new rows that cover {results['level']:g}, with {file}{own}:",
            f"fedassay apply {file} NEW.csv --out {name}.parquet",
        )

    def is_vacuous(self, results: Results) -> bool:
        """Whether every set holds everything."""
        return conformal_words.holds_everything(results)
