"""A calibration of a multiclass model: verdict, before and after, the worst classes. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fedassay.reports import class_error_plots, figures
from fedassay.reports.multiclass import TITLES, doubtful, excesses
from fedassay.reports.sheet import Cell, Document, Figure, Sheet, metric_cell, reasons

SHOWN = (
    "classwise_calibration_error",
    "expected_calibration_error",
    "log_loss",
    "brier_score",
    "accuracy",
)

WORST = 5
"""Classes in the table; the plot has more of them, the JSON all."""

_PARTS = ("before", "after")
_CLOSE = 0.02
"""A temperature within 2 % of 1 changes nothing that anybody would notice."""

Results = Mapping[str, Any]


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """The reliability of the most probable class before and after, all metrics, the classes, what was fitted."""
    results = document["results"]
    if any(results["reliability_curve"][part]["mean_score"] for part in _PARTS):
        for part in _PARTS:
            draw = partial(class_error_plots.reliability, results, part)
            yield Figure(draw=draw, alternative=class_error_plots.reliability_alternative(results, part))
    yield judged(document)
    if class_error_plots.ranked(results["classes"]):
        draw = partial(class_error_plots.errors, results["classes"])
        yield Figure(draw=draw, alternative=class_error_plots.errors_alternative(results["classes"]))
        yield classes(results)
    if class_error_plots.stepped(results):
        draw = partial(class_error_plots.steps, results)
        yield Figure(draw=draw, alternative=class_error_plots.steps_alternative(results))


def verdict(document: Document) -> str:
    """Whether to use it, and why."""
    return str(document["results"]["reason"])


# --- before and after -----------------------------------------------------------------------------------


def judged(document: Document) -> Sheet:
    """Metrics on held-out rows before and after with the paired changes; columns without a number are left out."""
    results = document["results"]
    level = results["difference"]["log_loss"]["level"]
    columns = {
        name: column
        for name, column in (
            *((part, {name: metric_cell(results[part][name]) for name in SHOWN}) for part in _PARTS),
            (f"change, {level:.0%} interval", _changes(results)),
        )
        if any(cell.text not in ("", "-") for cell in column.values())
    }
    rows = tuple(
        (Cell(text=TITLES[name]), *(column[name] for column in columns.values()))
        for name in SHOWN
        if any(column[name].text not in ("", "-") for column in columns.values())
    )
    return Sheet(
        title=title(results), head=("on held-out rows", *columns), rows=rows, notes=tuple(_notes(document))
    )


def _changes(results: Results) -> dict[str, Cell]:
    """After less before: a rise has its sign, and a change that cannot be is 0 without an interval."""
    return {name: _change(results["difference"].get(name)) for name in SHOWN}


def _change(metric: Mapping[str, Any] | None) -> Cell:
    if metric is None:
        return Cell(text="")
    if "note" in metric:
        return Cell(text=figures.number(metric["value"]))
    cell = metric_cell(metric)
    return (
        cell
        if metric["value"] is None or metric["value"] <= 0
        else Cell(text=f"+{cell.text}", detail=cell.detail)
    )


def title(results: Results) -> str:
    """What was fitted, such as ``Calibration of 10 classes by temperature (solver exact; temperature 1.77)``."""
    how = f"solver {results['solver']}"
    if results.get("temperature", {}).get("value") is not None:
        how += f"; temperature {results['temperature']['value']:.3g}"
    return f"Calibration of {len(results['classes'])} classes by {results['method']} ({how})"


def _notes(document: Document) -> Iterator[str]:
    """What the numbers mean, how they came about, and what is not there: each thing once on the page."""
    results = document["results"]
    if "temperature" in results:
        yield meaning(results["temperature"]["value"])
    yield _made(document)
    if document["privacy"]["epsilon"] is not None and results["before"]["log_loss"]["value"] is not None:
        yield "Before and after have noise of their own; the change is of the same rows and more precise."
    for name, metric in results["difference"].items():
        if "note" in metric:
            yield f"{TITLES[name]}: {metric['note']}."
    yield from excesses((f"{TITLES[name]}, {part}", results[part][name]) for part in _PARTS for name in SHOWN)
    said = (results["reason"], *document["warnings"])
    for note in (*results["notes"], *_missing(results)):
        if not any(note in one or note.partition(": ")[2] in one for one in said):
            yield note


def _missing(results: Results) -> tuple[str, ...]:
    """Why there is no number, each reason once."""
    named = [(TITLES[name], results[part][name]) for part in _PARTS for name in SHOWN]
    changes = [(f"change of {TITLES[name]}", metric) for name, metric in results["difference"].items()]
    return reasons((*named, *changes))


def meaning(temperature: float | None) -> str:
    """What a temperature says about the model.

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
    """Such as ``Fitted to 7,020 rows of 20 clients (asked 5 times); judged on 2,980 held-out rows.``"""
    results, fit = document["results"], document["results"]["fit"]
    about = "" if document["privacy"]["epsilon"] is None else "about "
    rows = "rows" if fit["rows"] is None else f"{about}{figures.counted(fit['rows'], 'row')}"
    settings = ", ".join((f"asked {figures.counted(fit['sums'], 'time')}", *_settings(results["parameters"])))
    return (
        f"Fitted to {rows} of {figures.counted(fit['clients'], 'client')} ({settings}){_noise(fit['noise'])}; "
        f"judged on {about}{figures.counted(results['rows'], 'held-out row')}."
    )


def _settings(parameters: Mapping[str, Any]) -> Iterator[str]:
    """How it was fitted; lists and the temperature are the map, not settings."""
    for name, value in parameters.items():
        if isinstance(value, str):
            yield f"{name} {value}"
        elif isinstance(value, int | float) and name != "inverse_temperature":
            yield f"{name.replace('_', ' ')} {value:g}"


def _noise(noise: Mapping[str, Any]) -> str:
    """How large privacy noise is in what the map was computed from; the ways of fitting measure it differently."""
    if "positives" in noise:
        sizes = (
            f"{figures.error(noise['positives'])} positives, {figures.error(noise['negatives'])} negatives"
        )
        return f", with noise of standard deviation {sizes} in each count"
    if "standard_deviation" in noise:
        return f", with noise of standard deviation {figures.error(noise['standard_deviation'])} in each parameter and round"
    if "relative" in noise:
        return f", with noise of {noise['relative']:.2g} where all clients agreeing would be 1"
    return ""


# --- classes --------------------------------------------------------------------------------------------


def classes(results: Results) -> Sheet:
    """The classes with the largest calibration errors, before or after."""
    entries = class_error_plots.ranked(results["classes"])
    level = results["before"]["log_loss"]["level"]
    worst = entries[:WORST]
    some = f"the {WORST} largest of {len(results['classes'])}" if len(entries) > WORST else ""
    rows = tuple(
        (
            Cell(text=str(entry["class"])),
            Cell(text=f"{entry['rows']:,.0f}"),
            *(metric_cell(entry[part]) for part in _PARTS),
        )
        for entry in worst
    )
    return Sheet(
        title=f"Calibration errors of single classes{', ' + some if some else ''}",
        head=("class", "held-out rows", f"before, {level:.0%} interval", "after"),
        rows=rows,
        notes=tuple(_about_classes(results)),
    )


def _about_classes(results: Results) -> Iterator[str]:
    entries = results["classes"]
    both = [entry for entry in entries if all(entry[part]["value"] is not None for part in _PARTS)]
    if both:
        better = sum(entry["after"]["value"] < entry["before"]["value"] for entry in both)
        yield f"The error is smaller after than before for {better} of {len(both)} classes."
        chance = sum(doubtful(entry["after"]) for entry in both)
        if chance:
            yield f"After calibration, sampling and noise alone could make up most of it for {chance} of them."
    yield from reasons(
        (f"class {entry['class']}, {part}", entry[part])
        for entry in entries
        for part in _PARTS
        if entry[part].get("reason") != results[part]["classwise_calibration_error"].get("reason")
    )
