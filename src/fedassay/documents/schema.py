"""The part of a result's JSON Schema that is about metrics, made from their records.

`result.schema.json` is written by hand but for these definitions, which `make docs` writes anew. They require the
metrics that are installed where they are written; those of other packages are allowed beside them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

from fedassay.metrics import CLASS_METRICS, METRICS, MetricRecord, compared, of_part

SCHEMA_FILE = Path(__file__).parent / "result.schema.json"


def schema_text() -> str:
    """The file of the schema, with the definitions of metrics made anew."""
    text = SCHEMA_FILE.read_text(encoding="utf-8")
    for name, definition in _definitions():
        found = re.search(rf'^    "{name}": \{{\n.*?^    \}}', text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"the schema of results has no definition {name}"
        text = f'{text[: found.start()]}    "{name}": {definition}{text[found.end() :]}'
    return text


def _definitions() -> Iterable[tuple[str, str]]:
    yield "metricsOfRows", _required("Over all rows.", of_part("rows"))
    yield "metricsAtThreshold", _required("Of the decision at one threshold.", of_part("threshold"))
    yield (
        "metricsAtOperatingPoints",
        _required("Of the decision at many thresholds.", of_part("operating-point"), kind="overThresholds"),
    )
    yield (
        "metricsCompared",
        _required("Pooled over sites.", [METRICS[name] for name in compared()], kind="pooled"),
    )
    yield "metricsOfClasses", _required("Of a model with several classes.", CLASS_METRICS.values())


def _required(description: str, records: Iterable[MetricRecord], *, kind: str = "metric") -> str:
    """An object that has these metrics, each on a line."""
    known = tuple(records)
    names = ", ".join(json.dumps(record.name) for record in known)
    properties = ",\n".join(
        f"        {json.dumps(record.name)}: {_property(record, kind)}" for record in known
    )
    return (
        "{\n"
        f'      "description": {json.dumps(f"{description} Made from the records of metrics (`make docs`).")},\n'
        '      "type": "object",\n'
        f'      "required": [{names}],\n'
        f'      "properties": {{\n{properties}\n      }}\n'
        "    }"
    )


def _property(record: MetricRecord, kind: str) -> str:
    kind = "test" if record.test else kind
    sentence = json.dumps(record.sentence, ensure_ascii=False)
    limits = "" if kind == "overThresholds" else _limits(record)
    return f'{{ "$ref": "#/$defs/{kind}",{limits} "description": {sentence} }}'


def _limits(record: MetricRecord) -> str:
    """The range of the value, as far as it ends somewhere."""
    ends = dict(zip(("minimum", "maximum"), record.range, strict=True))
    finite = {name: end for name, end in ends.items() if math.isfinite(end)}
    return f' "properties": {json.dumps({"value": finite})},' if finite else ""
