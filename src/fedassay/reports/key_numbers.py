"""The few numbers of each task that are shown before any table. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fedassay.reports import conformal_words, figures, goodness, multiclass
from fedassay.reports.contents import kind, says_more
from fedassay.reports.sheet import Document, KeyNumber, reasons
from fedassay.reports.study import is_study, parts

Results = Mapping[str, Any]

_ALL, _HELD_OUT = "on all rows", "on held-out rows"


def key_numbers(document: Document) -> tuple[KeyNumber, ...]:
    """Those that are known, of all tasks in reading order, and of a study what it has spent.

    Each says of which rows it is: the slope of a model over all rows is not that on held-out rows.
    """
    found = [number for number in _all(document) if not number.reason]
    if is_study(document):
        found += _budget(document["results"]["budget"])
    return tuple(found)


def unknown(document: Document) -> str:
    """Which key numbers are not known, and why, each reason once; empty if all are."""
    missing = [(one.label, {"value": None, "reason": one.reason}) for one in _all(document) if one.reason]
    return f"Not known: {'. '.join(reasons(missing))}." if missing else ""


def _all(document: Document) -> Iterator[KeyNumber]:
    """A task whose name is not its kind puts it in front: a study may hold two of one kind."""
    for part in parts(document):
        for number in _KINDS.get(kind(part.document), _nothing)(part.document["results"]):
            label = f"{part.name}: {number.label}" if says_more(part) else number.label
            yield replace(number, label=label)


def metric_number(label: str, metric: Results) -> KeyNumber:
    """A metric with its interval and level; one without a value with the reason.

    Examples
    --------
    >>> found = metric_number("AUC", {"value": 0.8123, "interval": [0.79, 0.83], "level": 0.95})
    >>> found.text, found.detail
    ('0.812', '0.790 to 0.830 (95%)')
    >>> metric_number("AUC", {"value": None, "reason": "one class only"}).reason
    'one class only'
    """
    if metric["value"] is None:
        return KeyNumber(label=label, text="", reason=str(metric["reason"]))
    return KeyNumber(label=label, text=figures.value(metric), detail=_interval(metric))


def _interval(metric: Results) -> str:
    return f"{figures.interval(metric)} ({100 * metric['level']:g}%)" if metric.get("interval") else ""


def _nothing(results: Results) -> Iterator[KeyNumber]:
    yield from ()


def _evaluated(results: Results) -> Iterator[KeyNumber]:
    for name in ("roc_auc", "average_precision", "calibration_slope"):
        yield metric_number(f"{figures.TITLES[name]} {_ALL}", results[name])


def _evaluated_classes(results: Results) -> Iterator[KeyNumber]:
    for name in ("accuracy", "roc_auc", "expected_calibration_error"):
        yield metric_number(f"{multiclass.TITLES[name]} {_ALL}", results[name])


def _calibrated(results: Results) -> Iterator[KeyNumber]:
    yield _before_and_after(figures.TITLES["calibration_slope"], results, "calibration_slope")


def _calibrated_classes(results: Results) -> Iterator[KeyNumber]:
    name = "expected_calibration_error"
    yield _before_and_after(multiclass.TITLES[name], results, name)


def _before_and_after(label: str, results: Results, name: str) -> KeyNumber:
    """Such as ``0.68 → 1.05``; the interval is that of what one would use afterwards."""
    label = f"{label} {_HELD_OUT}"
    nothing = {"value": None, "reason": "nobody measured it"}
    before, after = (results[part].get(name) or nothing for part in ("before", "after"))
    if after["value"] is None:
        return metric_number(f"{label} before calibration", before)
    text = f"{figures.value(before)} → {figures.value(after)}"
    return KeyNumber(
        label=f"{label} before and after calibration", text=text, detail=f"after: {_interval(after)}"
    )


def _conformal(results: Results) -> Iterator[KeyNumber]:
    """Nothing where sets hold everything: what was counted is noise, and a sentence elsewhere says it."""
    if conformal_words.holds_everything(results):
        return
    level, seen = f"{100 * results['level']:g}%", results.get("held_out") or {}
    covered = seen.get("coverage")
    if covered is not None and covered["value"] is not None:
        number = metric_number(f"coverage {_HELD_OUT}; asked: {level}", covered)
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
            yield metric_number(f"{name} {_HELD_OUT}", size)


def _fitted(results: Results) -> Iterator[KeyNumber]:
    """How many features matter beyond chance: the coefficients themselves belong into a table."""
    entries = [one for one in results["coefficients"] if one["name"] != "intercept"]
    away = sum(not one["interval"][0] <= 0 <= one["interval"][1] for one in entries)
    if entries:
        level = f"{100 * entries[0]['level']:g}%"
        yield KeyNumber(
            label="coefficients away from 0",
            text=f"{away} of {len(entries)}",
            detail=f"by their {level} intervals",
        )


def _tested(results: Results) -> Iterator[KeyNumber]:
    test = results["hosmer_lemeshow"]
    label = f"Hosmer-Lemeshow test {_ALL}"
    if test["value"] is None or test["p_value"] is None:
        yield KeyNumber(label=label, text="", reason=str(test["reason"]))
        return
    thin = goodness.THIN if goodness.is_thin(test) else ""
    yield KeyNumber(label=label, text=figures.p_equals(test["p_value"]), detail=thin)


_MOST_QUANTILES = 3


def _distributed(results: Results) -> Iterator[KeyNumber]:
    for entry in results["quantiles"][:_MOST_QUANTILES]:
        if entry["value"] is None:
            reason = str(entry.get("reason", "there is none"))
            yield KeyNumber(label=f"quantile {entry['quantile']:g}", text="", reason=reason)
            continue
        low, high = entry["interval"] or (None, None)
        width = None if low is None or high is None else high - low
        ends = (
            ""
            if width is None
            else f"{figures.amount(low, width=width)} to {figures.amount(high, width=width)}"
        )
        value = figures.amount(entry["value"], width=width)
        yield KeyNumber(label=f"quantile {entry['quantile']:g}", text=value, detail=ends)


def _budget(budget: Results) -> Iterator[KeyNumber]:
    if budget["epsilon"] is None:
        yield KeyNumber(label="privacy budget", text="none", detail="exact totals, no noise")
        return
    left = f"{figures.left(budget['remaining'], budget['epsilon'])} left"
    yield KeyNumber(
        label="privacy budget spent (ε)",
        text=f"{budget['spent']:.3g} of {budget['epsilon']:g}",
        detail=f"at δ = {budget['delta']:g}; {left}",
    )


_KINDS: Mapping[str, Callable[[Results], Iterator[KeyNumber]]] = MappingProxyType(
    {
        "evaluate": _evaluated,
        "evaluate-classes": _evaluated_classes,
        "calibrate": _calibrated,
        "calibrate-classes": _calibrated_classes,
        "conformal": _conformal,
        "infer": _fitted,
        "hosmer-lemeshow": _tested,
        "ecdf": _distributed,
        "quantiles": _distributed,
    }
)
