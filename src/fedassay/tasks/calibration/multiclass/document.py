"""Document of a multiclass calibration: verdict, before and after, the worst classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fedassay.documents import figures
from fedassay.documents.blocks import (
    Cell,
    Document,
    DocumentBlock,
    Results,
    TableBlock,
    alike,
    metric_cell,
    reasons,
    table,
)
from fedassay.documents.reliability import BEFORE_AFTER
from fedassay.protocol.metrics import CLASS_METRICS, MetricRecord
from fedassay.tasks.calibration.document import CalibrationDocument, held_out_table
from fedassay.tasks.calibration.multiclass import document_plots as plots
from fedassay.tasks.evaluation.document import doubtful

SHOWN = ("classwise_calibration_error", "expected_calibration_error", "log_loss", "brier_score", "accuracy")

WORST = 5
"""Number of classes in the table; the plot has more of them, the JSON all."""

METHODS: Mapping[str, str] = {
    "temperature": "a temperature",
    "vector": "a slope and a shift for each class (vector)",
    "matrix": "a linear map of all logits (matrix)",
    "order-preserving": "a map that keeps the order of classes",
    "fedcal": "a small network (FedCal)",
    "histogram": "histogram binning of each class",
    "bbq": "Bayesian binning of each class (BBQ)",
    "isotonic": "isotonic regression of each class",
}
SOLVERS: Mapping[str, str] = {
    "exact": "fitted to sums over all clients",
    "fedavg": "averaged over what clients fitted",
    "one-shot": "found in one round",
    "counts": "fitted to counts of all clients",
}
"""Methods, and how they were fitted, in plain words."""

_CLOSE = 0.02
"""Distance from 1 within which a temperature has no visible effect: 2 %."""


class ClassCalibrationDocument(CalibrationDocument):
    """Calibration of a classifier with several classes."""

    use: ClassVar[str] = "Classification, calibrated"
    metrics: ClassVar[Mapping[str, MetricRecord]] = CLASS_METRICS
    shown_metric: ClassVar[str] = "expected_calibration_error"

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield the reliability of the most probable class before and after, metrics, classes and steps."""
        results = document["results"]
        if any(results["reliability_curve"][part]["mean_score"] for part in BEFORE_AFTER):
            yield from (plots.reliability(results, part) for part in BEFORE_AFTER)
        yield before_and_after(document)
        if plots.ranked(results["classes"]) and not _drowned(document):
            yield classes(results)
            yield plots.errors(results["classes"])
        if plots.stepped(results):
            yield plots.steps(results)

    def verdict(self, document: Document) -> str:
        """Return the recommendation for or against the calibrator, and its reason."""
        return str(document["results"]["reason"])


# --- before and after -----------------------------------------------------------------------------------


def before_and_after(document: Document) -> TableBlock:
    """Build the table of held-out metrics before and after, with paired changes, without unknown ones."""
    results, shown = document["results"], [CLASS_METRICS[name] for name in SHOWN]
    return held_out_table(title(results), results, shown, notes=_notes(document), cell=_cell)


def _cell(metric: Results, part: str) -> Cell:
    """Show a metric; a rise has its sign, and an impossible change is 0 without an interval."""
    if "note" in metric:
        return Cell(figures.number(metric["value"]))
    cell = metric_cell(metric)
    rises = part == "difference" and metric["value"] is not None and metric["value"] > 0
    return Cell(f"+{cell.text}", cell.detail) if rises else cell


def title(results: Results) -> str:
    """Return a title such as ``Calibration of 10 classes by a temperature of 1.77, found in one round``."""
    method = METHODS.get(results["method"], results["method"])
    if results["method"] == "temperature" and results.get("temperature", {}).get("value") is not None:
        method = f"a temperature of {results['temperature']['value']:.3g}"
    how = SOLVERS.get(results["solver"], f"fitted by {results['solver']}")
    return f"Calibration of {len(results['classes'])} classes by {method}, {how}"


def _notes(document: Document) -> Iterator[str]:
    """Yield notes on the meaning, the origin and the gaps of the numbers, each once on the page."""
    results = document["results"]
    if "temperature" in results:
        yield meaning(results["temperature"]["value"])
    yield _made(document)
    yield from _weights(results["calibrator"])
    if _noisy(document) and results["before"]["brier_score"]["value"] is not None:
        yield "Before and after have noise of their own; the change is of the same rows and more precise."
    if _drowned(document):
        yield "Noise alone could make up most of the errors of single classes; they are in the JSON."
    yield from _excess(results)
    said = (results["reason"], *document["warnings"])
    yield from (note for note in results["notes"] if note not in said)
    kept = [
        f"{CLASS_METRICS[name].title}: {one['note']}."
        for name, one in results["difference"].items()
        if "note" in one
    ]
    for note in (*kept, *_missing(results)):
        if not any(alike(note.partition(": ")[2]) in alike(one) for one in said):
            yield note


def _noisy(document: Document) -> bool:
    return document["privacy"]["epsilon"] is not None


def _drowned(document: Document) -> bool:
    """Return whether noise alone could make up most of the errors of all single classes."""
    known = plots.ranked(document["results"]["classes"])
    return (
        _noisy(document)
        and bool(known)
        and all(doubtful(one[part]) for one in known for part in BEFORE_AFTER)
    )


def _excess(results: Results) -> Iterator[str]:
    """Yield a sentence on calibration errors that may be due to chance alone."""
    listed = []
    for name in SHOWN:
        parts = [part for part in BEFORE_AFTER if doubtful(results[part][name])]
        if parts:
            sizes = (f"{figures.error(results[part][name]['excess'])} {part}" for part in parts)
            listed.append(f"{CLASS_METRICS[name].title}, up to {' and '.join(sizes)}")
    if listed:
        yield f"What sampling and noise alone would show makes up most of: {'; '.join(listed)}."


def _missing(results: Results) -> tuple[str, ...]:
    """Return the reasons for missing numbers, each once."""
    named = []
    for name in SHOWN:
        same = len({results[part][name].get("reason") for part in BEFORE_AFTER}) == 1
        title = CLASS_METRICS[name].title
        named += [(title if same else f"{title}, {part}", results[part][name]) for part in BEFORE_AFTER]
    changes = results["difference"].items()
    return reasons((*named, *((f"change of {CLASS_METRICS[name].title}", one) for name, one in changes)))


def meaning(temperature: float | None) -> str:
    """Explain the meaning of a temperature for the model.

    Examples
    --------
    >>> meaning(1.77)
    'Temperature 1.77, above 1: logits are divided by it; by the fit rows the model is over-confident.'
    >>> meaning(0.8)
    'Temperature 0.8, below 1: logits are divided by it; by the fit rows the model is under-confident.'
    >>> meaning(1.004)
    'Temperature 1, about 1: probabilities stay nearly as they are.'
    """
    if temperature is None:
        return "The temperature is infinite: by the fit rows the logits say nothing, all classes get the same share."
    shown = f"Temperature {temperature:.3g}"
    if temperature < 0:
        return f"{shown}, below 0: by the fit rows the most probable class is the least frequent; check the columns."
    if abs(temperature - 1) < _CLOSE:
        return f"{shown}, about 1: probabilities stay nearly as they are."
    where, how = ("above", "over") if temperature > 1 else ("below", "under")
    return f"{shown}, {where} 1: logits are divided by it; by the fit rows the model is {how}-confident."


def _made(document: Document) -> str:
    """Describe the data of the fit and of the judgement.

    Such as ``Fitted to 20 rows of the 3 clients that answered (asked 5 times); judged on 9 held-out rows.``
    """
    results, fit = document["results"], document["results"]["fit"]
    about = "about " if _noisy(document) else ""
    rows = "rows" if fit["rows"] is None else f"{about}{figures.counted(fit['rows'], 'row')}"
    settings = ", ".join((f"asked {_times(fit['sums'])}", *_settings(results)))
    return (
        f"Fitted to {rows} of {_asked(document)} ({settings}){_noise(fit['noise'])}; "
        f"judged on {about}{figures.counted(results['rows'], 'held-out row')}."
    )


def _asked(document: Document) -> str:
    """Name the clients of the fit, as far as known: without held-out clients and those not drawn."""
    clients = figures.counted(document["results"]["fit"]["clients"], "client")
    if document["privacy"]["unit"] == "client":
        return f"those of {clients} who are not held out"
    drawn = document["results"]["parameters"].get("participation", 1.0) < 1
    return f"cohorts of up to {clients}" if drawn else f"the {clients} that answered"


def _weights(calibrator: Mapping[str, Any]) -> Iterator[str]:
    """Yield the weights of the step functions of a map, unless all weights are 1."""
    if "values" not in calibrator or min(calibrator["weights"]) == 1:
        return
    ends = {f"{end(calibrator['weights']):.2g}": None for end in (min, max)}
    said = f"The steps of classes weigh {' to '.join(ends)}"
    if calibrator["kind"] == "isotonic":
        s = calibrator["inverse_temperature"]
        yield f"{said}, the rest is {f'a temperature of {1 / s:.3g}' if s else 'an infinite temperature'}."
    elif calibrator["kind"] == "binned-changed":
        yield f"{said} where they change the most probable class, 1 elsewhere; the rest is the model's own probability."
    else:
        yield f"{said}, the rest is the model's own probability."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _settings(results: Results) -> Iterator[str]:
    """Yield the unusual settings of the fit; the numbers of the map itself are no settings."""
    usual = {"rounds": results["fit"]["sums"], "participation": 1}
    clipped = results["parameters"].get("clip") is not None
    for name, value in results["parameters"].items():
        if isinstance(value, str) and (name != "clipping" or clipped):
            yield f"{name} {value}"
        elif isinstance(value, int | float) and name != "inverse_temperature" and usual.get(name) != value:
            yield f"{name.replace('_', ' ')} {value:g}"


def _noise(noise: Mapping[str, Any]) -> str:
    """Describe the size of the privacy noise in the fit; the ways of fitting measure it differently."""
    if "positives" in noise:
        sizes = [figures.error(noise[name]) for name in ("positives", "negatives")]
        return f", with noise of standard deviation {sizes[0]} (positives) and {sizes[1]} (negatives) in each count"
    if "standard_deviation" in noise:
        size = figures.error(noise["standard_deviation"])
        return f", with noise of standard deviation {size} in each parameter and round"
    if "relative" in noise:
        return f", with noise of {noise['relative']:.2g} times what clients that all agree would amount to"
    return ""


# --- classes --------------------------------------------------------------------------------------------


def classes(results: Results) -> TableBlock:
    """Build the table of the classes with the largest calibration errors, before or after."""
    entries = plots.ranked(results["classes"])
    level = results["before"]["log_loss"]["level"]
    some = f"the {WORST} largest of {len(results['classes'])}" if len(entries) > WORST else ""
    return table(
        f"Calibration errors of single classes{', ' + some if some else ''}",
        ("class", "held-out rows", f"before, {level:.0%} interval", "after"),
        (
            (str(one["class"]), f"{one['rows']:,.0f}", *(metric_cell(one[part]) for part in BEFORE_AFTER))
            for one in entries[:WORST]
        ),
        notes=_about_classes(results),
    )


def _about_classes(results: Results) -> Iterator[str]:
    entries = results["classes"]
    both = [entry for entry in entries if all(entry[part]["value"] is not None for part in BEFORE_AFTER)]
    if both:
        better = sum(entry["after"]["value"] < entry["before"]["value"] for entry in both)
        yield f"The error is smaller after than before for {better} of {len(both)} classes."
        chance = sum(doubtful(entry["after"]) for entry in both)
        if chance:
            yield f"What sampling and noise alone would show makes up most of it for {chance} of them after."
    yield from reasons(
        (f"class {entry['class']}, {part}", entry[part])
        for entry in entries
        for part in BEFORE_AFTER
        if entry[part].get("reason") != results[part]["classwise_calibration_error"].get("reason")
    )
