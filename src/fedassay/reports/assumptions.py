"""What a reader takes on trust when believing the numbers, task by task. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fedassay.reports.contents import kind, section
from fedassay.reports.sheet import Document
from fedassay.reports.study import parts

Results = Mapping[str, Any]

_ROWS = "Rows are independent of each other; that rows of one client resemble each other is not modelled."
_FROZEN = "The model was frozen before, and was not trained on these rows."


def assumptions(document: Document) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each task its heading and sentences; each sentence once, where it first matters."""
    said: set[str] = set()
    for part in parts(document):
        found = _KINDS.get(kind(part.document), _nothing)(part.document["results"])
        sentences = tuple(dict.fromkeys(text for text in found if text not in said))
        said.update(sentences)
        if sentences:
            yield section(part), sentences


def _nothing(results: Results) -> Iterator[str]:
    yield from ()


def _evaluated(results: Results) -> Iterator[str]:
    yield _ROWS
    yield _FROZEN
    yield "Every row counts the same: a metric speaks of all rows together, so that large clients weigh more."
    if results.get("sites") is not None:
        yield "Between sites: rows are independent within a site, and sites are exchangeable."


def _calibrated(results: Results) -> Iterator[str]:
    yield _ROWS
    yield "Rows that were held out, and rows to come, are like those that the calibrator was fitted to."


def _conformal(results: Results) -> Iterator[str]:
    guarantees = [results.get("guarantee"), *((one or {}).get("guarantee") for one in _groups(results))]
    for guarantee in guarantees:
        if guarantee and guarantee.get("assumption"):
            text = str(guarantee["assumption"])
            yield f"{text[0].upper()}{text[1:]}."


def _groups(results: Results) -> list[Results]:
    return list((results.get("groups") or {}).values())


def _fitted(results: Results) -> Iterator[str]:
    errors = results["fit"].get("errors")
    if errors == "clients":
        yield "Clients are independent of each other; rows of one client need not be."
    elif errors == "model":
        yield _ROWS
        yield "The regression model is right: standard errors are those that it implies."
    else:
        yield _ROWS
    yield "Coefficients describe the best fit of this model to these clients' rows; they are no causal effects."


def _distributed(results: Results) -> Iterator[str]:
    yield "Rows are independent draws from one population; nothing else is assumed of the values."


def _tested(results: Results) -> Iterator[str]:
    yield _ROWS
    yield _FROZEN


_KINDS: Mapping[str, Callable[[Results], Iterator[str]]] = MappingProxyType(
    {
        "evaluate": _evaluated,
        "evaluate-classes": _evaluated,
        "calibrate": _calibrated,
        "calibrate-classes": _calibrated,
        "conformal": _conformal,
        "infer": _fitted,
        "ecdf": _distributed,
        "quantiles": _distributed,
        "hosmer-lemeshow": _tested,
    }
)
