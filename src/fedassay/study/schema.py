"""The JSON Schema of study files, made from the dataclasses that read them.

It says what can be said without the data: which entries there are, of which types, with which words. What only the
values together decide (which columns a task needs, whether a budget suffices) `StudyFile` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

from fedassay.agenda import MOST_ITEMS
from fedassay.data.schema import FEATURES, ROLES
from fedassay.study.asked import (
    AFTER,
    CLASSES_OF,
    DEFAULTS,
    NONE,
    RESERVED,
    TASK_NAME,
    parameter_types,
    shared_entries,
)
from fedassay.study.choices import SECTION_CHOICES, TASK_CHOICES
from fedassay.study.described import parameter_texts, summary_of
from fedassay.study.entries import field_types, has_default, plain
from fedassay.study.runtimes import RUNTIMES, InProcess
from fedassay.study.sections import (
    NAME,
    DataSection,
    ExpectedSection,
    Heading,
    LedgerSection,
    PrivacySection,
    SplitSection,
)
from fedassay.tasks.catalogue import TASKS
from fedassay.trust import TRUST_MODELS

SCHEMA_FILE = Path(__file__).parent / "schema.json"

Schema = dict[str, Any]

_TYPES: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}
_COLUMN: Schema = {"type": "string", "minLength": 1}


def schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a study file."""
    releases = [name for name, kind in RUNTIMES.items() if not kind.simulated]
    heading = _table(Heading, {})
    heading["properties"]["name"]["pattern"] = f"^{NAME.pattern}$"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:fedassay:study",
        "title": "A study of fedassay",
        "description": "Several tasks over one federation under one budget: study.toml.",
        **heading,
        "properties": {
            **heading["properties"],
            "data": _data(),
            "privacy": _privacy(),
            "runtime": _runtime(),
            "ledger": _table(LedgerSection, {}),
            "split": _table(SplitSection, {}),
            "expected": _table(ExpectedSection, {}),
            "tasks": _tasks(),
        },
        "required": [*heading["required"], "tasks"],
        # Sites of a release hold their own rows, and decide how they are split.
        "if": {
            "properties": {"runtime": {"properties": {"name": {"enum": releases}}, "required": ["name"]}},
            "required": ["runtime"],
        },
        "then": {"properties": {"data": False, "split": False}},
        "else": {"required": ["data"]},
        "$defs": {name: _task(name) for name in TASKS} | {"named-task": _named_task()},
    }


def schema_text() -> str:
    """The JSON Schema as `study/schema.json` holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


# --- entries ----------------------------------------------------------------------------------------------------


def _entry(kind: Any, choices: Iterable[str] = ()) -> Schema:
    """The schema of a value of this type."""
    kind = plain(kind)
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _entry(get_args(kind)[0])}
    found: Schema = {"type": _TYPES[kind]}
    if choices:
        found["enum"] = [str(one) for one in choices]
    elif kind is Path:
        found["minLength"] = 1
    return found


def _properties(
    kind: type[Any], types: Mapping[str, Any], choices: Mapping[str, Iterable[str]]
) -> dict[str, Schema]:
    """The entries that are fields of a dataclass, each with its default and what the docstring says about it."""
    texts, found = parameter_texts(kind), {}
    for one in fields(kind):
        if one.name not in types:
            continue
        entry = _entry(types[one.name], choices.get(one.name, ()))
        if one.default is not MISSING and one.default is not None:
            default = one.default.value if isinstance(one.default, StrEnum) else one.default
            entry["default"] = list(default) if isinstance(default, tuple) else default
        if one.name in texts:
            entry["description"] = texts[one.name]
        found[one.name] = entry
    return found


def _table(kind: type[Any], choices: Mapping[str, Iterable[str]]) -> Schema:
    """A section whose entries are the fields of a dataclass."""
    types = field_types(kind)
    needed = [one.name for one in fields(kind) if one.name in types and not has_default(one)]
    return {
        "description": summary_of(kind),
        "type": "object",
        "properties": _properties(kind, types, choices),
        "required": needed,
        "additionalProperties": False,
    }


# --- sections ---------------------------------------------------------------------------------------------------


def _data() -> Schema:
    section = _table(DataSection, {})
    roles: dict[str, Schema] = {
        name: {**_COLUMN, "description": f"Column with {role.expected}."} for name, role in ROLES.items()
    }
    several = {"type": "array", "items": _COLUMN, "minItems": 1}
    roles[FEATURES] = {
        "anyOf": [_COLUMN, several],
        "description": "Columns with the features of a regression.",
    }
    section["properties"]["columns"] = {
        "description": "Which column plays which role.",
        "type": "object",
        "properties": roles,
        "minProperties": 1,
        "additionalProperties": False,
        "dependentRequired": {"logits": ["class"]},
    }
    section["required"] = [*section["required"], "columns"]
    return section


def _privacy() -> Schema:
    section = _table(PrivacySection, SECTION_CHOICES["privacy"])
    known: dict[str, Schema] = {}
    for kind in TRUST_MODELS.values():
        known = _properties(kind, field_types(kind), SECTION_CHOICES["privacy.parameters"]) | known
    for entry in known.values():
        entry.pop("default", None)  # trust models have defaults of their own
    section["properties"]["parameters"] = {
        "description": "Parameters of the trust model.",
        "type": "object",
        "properties": known,
        "additionalProperties": False,
    }
    noisy = [name for name, kind in TRUST_MODELS.items() if kind.private]
    section["if"] = {"properties": {"trust": {"enum": noisy}}, "required": ["trust"]}
    section["then"] = {"required": ["epsilon"]}
    section["else"] = {"properties": {"epsilon": False, "delta": False}}
    return section


def _runtime() -> Schema:
    kinds = []
    for name, kind in RUNTIMES.items():
        table = _table(kind, SECTION_CHOICES["runtime"])
        table["properties"] = {"name": {"const": name}, **table["properties"]}
        if kind is not InProcess:
            table["required"] = ["name", *table["required"]]
        kinds.append(table)
    return {"description": "What carries the messages.", "anyOf": kinds}


def _tasks() -> Schema:
    named = {"$ref": "#/$defs/named-task"}
    known = {
        name: {"anyOf": [*({"$ref": f"#/$defs/{one}"} for one in _kinds(name)), named]} for name in TASKS
    }
    return {
        "description": "What is asked. A section is named like its task, or says which one it is (task).",
        "type": "object",
        "properties": known,
        "additionalProperties": named,
        "propertyNames": {"pattern": f"^{TASK_NAME.pattern}$", "not": {"enum": sorted(RESERVED)}},
        "minProperties": 1,
        "maxProperties": MOST_ITEMS,
    }


def _kinds(name: str) -> tuple[str, ...]:
    """What a task can turn out to be: where the columns are logits, one of classes."""
    return (name, CLASSES_OF[name]) if name in CLASSES_OF else (name,)


def _named_task() -> Schema:
    """A task of any name, which says what it is."""
    return {"anyOf": [{"$ref": f"#/$defs/{name}", "required": ["task"]} for name in TASKS]}


def _task(name: str) -> Schema:
    kind = TASKS[name]
    shared: dict[str, Schema] = {
        "task": {
            "enum": [one for one in TASKS if name in _kinds(one)],
            "description": "Which task it is, if the section is not named like it.",
        },
        "share": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "The part of the study's budget that it may spend: for all tasks, or for none.",
        },
        AFTER: {
            "type": "string",
            "description": f"The calibration that they build on, or {NONE}. Default: the calibration, if there is one.",
        },
    }
    own = _properties(kind, parameter_types(name), TASK_CHOICES[name])
    for entry, default in DEFAULTS.get(name, {}).items():
        own[entry]["default"] = default
    if name == "conformal":
        del own["quantity"]["default"]  # columns say which it is
    return {
        "description": summary_of(kind),
        "type": "object",
        "properties": {**{entry: shared[entry] for entry in shared_entries(name)}, **own},
        "additionalProperties": False,
    }
