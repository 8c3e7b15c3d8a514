"""The few numbers of each task that are shown before any table. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fedassay.reports import figures, multiclass
from fedassay.reports.contents import kind
from fedassay.reports.sheet import Document, KeyNumber
from fedassay.reports.study import Part, is_study, parts

Results = Mapping[str, Any]


def key_numbers(document: Document) -> tuple[KeyNumber, ...]:
    """Those of all tasks in reading order, and of a study what it has spent. Each thing once.

    A calibration knows the slope before and after; an evaluation beside it need not say it again.
    """
    kinds = {kind(part.document) for part in parts(document)}
    again = figures.TITLES["calibration_slope"] if "calibrate" in kinds else None
    found = [number for part in parts(document) for number in _of_part(part) if number.label != again]
    if is_study(document):
        found += _budget(document["results"]["budget"])
    return tuple(found)


def _of_part(part: Part) -> Iterator[KeyNumber]:
    """A task whose name is not its kind puts it in front: a study may hold two of one kind."""
    named = part.name not in ("", kind(part.document), part.document["task"])
    for number in _KINDS.get(kind(part.document), _nothing)(part.document["results"]):
        label = f"{part.name}: {number.label}" if named else number.label
        yield KeyNumber(label=label, text=number.text, detail=number.detail)


def metric_number(label: str, metric: Results) -> KeyNumber:
    """A metric with its interval and level; one without a value with the reason.

    Examples
    --------
    >>> metric_number("AUC", {"value": 0.8123, "interval": [0.79, 0.83], "level": 0.95})
    KeyNumber(label='AUC', text='0.812', detail='0.790 to 0.830 (95%)')
    >>> metric_number("AUC", {"value": None, "reason": "one class only"}).detail
    'one class only'
    """
    if metric["value"] is None:
        return KeyNumber(label=label, text="-", detail=str(metric["reason"]))
    return KeyNumber(label=label, text=figures.value(metric), detail=_interval(metric))


def _interval(metric: Results) -> str:
    return f"{figures.interval(metric)} ({100 * metric['level']:g}%)" if metric.get("interval") else ""


def _nothing(results: Results) -> Iterator[KeyNumber]:
    yield from ()


def _evaluated(results: Results) -> Iterator[KeyNumber]:
    for name in ("roc_auc", "average_precision", "calibration_slope"):
        yield metric_number(figures.TITLES[name], results[name])


def _evaluated_classes(results: Results) -> Iterator[KeyNumber]:
    for name in ("accuracy", "roc_auc", "expected_calibration_error"):
        yield metric_number(multiclass.TITLES[name], results[name])


def _calibrated(results: Results) -> Iterator[KeyNumber]:
    yield _before_and_after(figures.TITLES["calibration_slope"], results, "calibration_slope")


def _calibrated_classes(results: Results) -> Iterator[KeyNumber]:
    name = "expected_calibration_error"
    yield _before_and_after(multiclass.TITLES[name], results, name)


def _before_and_after(label: str, results: Results, name: str) -> KeyNumber:
    """Such as ``0.68 → 1.05``; the interval is that of what one would use afterwards."""
    before, after = (results[part].get(name) or {"value": None, "reason": ""} for part in ("before", "after"))
    if after["value"] is None:
        return metric_number(f"{label}, before calibration", before)
    text = f"{figures.value(before)} → {figures.value(after)}"
    return KeyNumber(
        label=f"{label}, before and after calibration", text=text, detail=f"after: {_interval(after)}"
    )


def _conformal(results: Results) -> Iterator[KeyNumber]:
    level, seen = f"{100 * results['level']:g}%", results.get("held_out") or {}
    covered = seen.get("coverage")
    if covered is not None and covered["value"] is not None:
        yield metric_number(f"coverage on held-out rows; asked: {level}", covered)
    elif results.get("coverage_law"):
        law = results["coverage_law"]
        text = f"{'' if law['exact'] else '≥ '}{law['mean']:.3f}"
        yield KeyNumber(label=f"coverage to expect; asked: {level}", text=text)
    size = seen.get("mean_size")
    if size is not None and size["value"] is not None:
        yield metric_number("mean size of the sets", size)


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
    if test["value"] is None or test["p_value"] is None:
        yield KeyNumber(label="Hosmer-Lemeshow test", text="-", detail=str(test["reason"]))
        return
    yield KeyNumber(label="Hosmer-Lemeshow test", text=figures.p_equals(test["p_value"]))


_MOST_QUANTILES = 3


def _distributed(results: Results) -> Iterator[KeyNumber]:
    for entry in results["quantiles"][:_MOST_QUANTILES]:
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
