"""Writer for the JSON Schema of results, from the declarations of their parts and the records of metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from fedassay.documents.kind import KINDS
from fedassay.protocol.metrics import CLASS_METRICS, METRICS, MetricRecord, compared, of_part
from fedassay.protocol.result import STUDY
from fedassay.protocol.result_parts import ResultPart, StudyParameters, StudyResults

SCHEMA_FILE = Path(__file__).parent / "result.schema.json"

_Schema = dict[str, Any]


class _Untitled(GenerateJsonSchema):
    """Generator without titles of entries: a title would repeat their name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


_METRICS: Mapping[str, Callable[[], Iterable[MetricRecord]]] = {
    "rows": lambda: of_part("rows"),
    "threshold": lambda: of_part("threshold"),
    "operating-point": lambda: of_part("operating-point"),
    "compared": lambda: [METRICS[name] for name in compared()],
    "classes": CLASS_METRICS.values,
}


def schema() -> _Schema:
    """Return the JSON Schema (draft 2020-12) of a result, with the installed kinds and metrics."""
    config = ConfigDict(use_attribute_docstrings=True, extra="forbid")
    kinds = {name: card.results.load() for name, card in KINDS.items() if card.results is not None}
    parts = {**kinds, "whole": ResultPart, "study": StudyResults, "parameters": StudyParameters}
    every: Any = tuple[tuple(parts.values())]  # type: ignore[misc]  # config holds for parts without their own
    made = TypeAdapter(every, config=config).json_schema(schema_generator=_Untitled)
    of = dict(zip(parts, made["prefixItems"], strict=True))
    defined: dict[str, _Schema] = {name: _with_metrics(part) for name, part in made["$defs"].items()}
    whole = defined.pop(ResultPart.__name__)
    study = {"properties": {"parameters": of["parameters"], "results": of["study"]}}
    whole["allOf"] = [_OF_TASK, {"if": _is_task(STUDY), "then": study}]
    defined["TaskOfStudy"]["allOf"] = [_OF_TASK, {"not": _is_task(STUDY)}]
    defined["OfTask"] = {
        "description": "What `results` holds for each `task`: of a whole document, and of each task of a study.",
        "allOf": [
            {
                "if": _is_task(name),
                "then": {"properties": {"results": {"anyOf": [of[kind] for kind in alike]}}},
            }
            for name in KINDS
            if (alike := [kind for kind in kinds if name in (kind, KINDS[kind].asked_as)])
        ],
    }
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": "fedassay result", **whole, "$defs": dict(sorted(defined.items()))}


def schema_text() -> str:
    """Return the text of the schema file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


_OF_TASK = {"$ref": "#/$defs/OfTask"}


def _is_task(name: str) -> _Schema:
    return {"properties": {"task": {"const": name}}}


def _with_metrics(part: _Schema) -> _Schema:
    """Add to a part the metrics that it declares; metrics of other packages are allowed too."""
    part.pop("title", None)
    if "metrics" in part:
        records = [record for name in part.pop("metrics") for record in _METRICS[name]()]
        one, properties = part["additionalProperties"], part.setdefault("properties", {})
        for record in records:
            reference = {"$ref": "#/$defs/StatisticPart"} if record.test else one
            limits = {} if one["$ref"].endswith("OverThresholds") else _limits(record)
            properties[record.name] = {**reference, **limits, "description": record.sentence}
        names = (record.name for record in records)
        part["required"] = list(dict.fromkeys([*part.get("required", ()), *names]))
    return part


def _limits(record: MetricRecord) -> _Schema:
    """Return the finite ends of the range of the value."""
    ends = dict(zip(("minimum", "maximum"), record.range, strict=True))
    finite = {name: end for name, end in ends.items() if math.isfinite(end)}
    return {"properties": {"value": finite}} if finite else {}
