"""How many rows a result is about. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.documents import figures
from fedassay.documents.sheet import Document
from fedassay.reports.study import is_study, parts

_HALVES = ("first-fit", "second-fit")


def rows(document: Document) -> str:
    """Such as ``266 rows``, or ``186 rows to fit on and 80 held out`` where no task has counted all of them at once.

    Under noise numbers are about right.
    """
    number = document["cohort"]["rows"]
    if number is None:
        return "an unknown number of rows"
    about = "" if document["privacy"]["epsilon"] is None else "about "
    apart = _apart(document)
    if apart is None:
        return f"{about}{figures.counted(number, 'row')}"
    fitted, held_out = (max(0.0, count) for count in apart)
    return f"{about}{figures.counted(fitted, 'row')} to fit on and {about}{held_out:,.0f} held out"


def _apart(document: Document) -> tuple[float, float] | None:
    """Fit rows and held-out rows, if the result knows both and no task was about all rows."""
    fitted: dict[str, float] = {}
    held_out: float | None = None
    for part in parts(document):
        found = _counted(part.document["results"])
        if found is None:
            return None
        fitted[_part_of(document, part.name)] = found[0]
        held_out = found[1]
    if held_out is None:
        return None
    if set(_HALVES) <= set(fitted):
        return sum(fitted[half] for half in _HALVES), held_out
    return (fitted["fit"], held_out) if "fit" in fitted else None


def _counted(results: Mapping[str, Any]) -> tuple[float, float] | None:
    """What a single task has counted: of a conformal threshold, and of a calibration of several classes."""
    fit = (results.get("fit") or {}).get("rows") if "calibrator" in results else results.get("rows")
    held_out = results.get("rows") if "calibrator" in results else (results.get("held_out") or {}).get("rows")
    return None if fit is None or held_out is None else (fit, held_out)


def _part_of(document: Document, name: str) -> str:
    """The rows that a task was fitted to: all fit rows, or one half of them where two tasks need rows of their own."""
    if not is_study(document):
        return "fit"
    asked = [one["part"] for one in document["results"]["budget"]["charges"] if one["task"] == name]
    return next((part for part in asked if part in _HALVES), "fit")
