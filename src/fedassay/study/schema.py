"""The JSON Schema of study files, made from the dataclasses that read them.

It states what can be stated without the data: which entries there are, of which types, with which words. What only the
values together decide (which columns a task needs, whether a budget suffices) `StudyFile` says.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

from fedassay.data.schema import FEATURES, ROLES
from fedassay.kernel.agenda import MOST_ITEMS
from fedassay.protocol.parameters import parameters
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS
from fedassay.study.sections import (
    NAME,
    DataSection,
    ExpectedSection,
    Heading,
    LedgerSection,
    PrivacySection,
    SplitSection,
)
from fedassay.study.tasks import RESERVED, TASK_NAME, TaskEntries, shared_entries
from fedassay.tasks.card import KINDS, PARAMETERS, TASKS
from fedassay.trust import TRUST_MODELS

SCHEMA_FILE = Path(__file__).parent / "schema.json"

_Schema = dict[str, Any]

_COLUMN: _Schema = {"type": "string", "minLength": 1}


def schema() -> _Schema:
    """Return the JSON Schema (draft 2020-12) of a study file."""
    releases = [name for name, card in RUNTIME_CARDS.items() if not card.simulated]
    heading = _table(Heading)
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
            "ledger": _table(LedgerSection),
            "split": _table(SplitSection),
            "expected": _table(ExpectedSection),
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
        "$defs": {name: _task(name) for name in KINDS} | {"named-task": _named_task()},
    }


def schema_text() -> str:
    """Return the JSON Schema as `study/schema.json` holds it."""
    return json.dumps(_plain(schema()), indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Write whole numbers as such: of equal bounds of types, `typing` keeps the one that it has met first."""
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [_plain(inside) for inside in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- entries ----------------------------------------------------------------------------------------------------


def _properties(kind: type[Any], *, implied: Container[str] = ()) -> dict[str, _Schema]:
    """Return the entries that are parameters of a dataclass: their sentences, and defaults if nothing implies them."""
    found = {}
    for one in parameters(kind):
        entry = dict(one.schema)
        if one.item is Path:
            entry["minLength"] = 1
        default = one.shown_default
        if default is not None and one.name not in implied:
            entry["default"] = (
                list(default) if isinstance(default, tuple) else getattr(default, "value", default)
            )
        found[one.name] = {**entry, "description": one.sentence}
    return found


def _table(kind: type[Any]) -> _Schema:
    """Return the schema of a section whose entries are the parameters of a dataclass."""
    return {
        "description": summary_of(kind),
        "type": "object",
        "properties": _properties(kind),
        "required": [one.name for one in parameters(kind) if one.required],
        "additionalProperties": False,
    }


def summary_of(kind: type[Any]) -> str:
    """Return the first sentence of a docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")


# --- sections ---------------------------------------------------------------------------------------------------


def _data() -> _Schema:
    section = _table(DataSection)
    roles: dict[str, _Schema] = {
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


def _privacy() -> _Schema:
    section = _table(PrivacySection)
    section["properties"]["privacy"]["enum"] = list(TRUST_MODELS)
    known: dict[str, _Schema] = {}
    for kind in TRUST_MODELS.values():
        # Without defaults: trust models have their own.
        known |= {one.name: {**one.schema, "description": one.sentence} for one in parameters(kind)}
    section["properties"]["parameters"] = {
        "description": "Parameters of the trust model.",
        "type": "object",
        "properties": known,
        "additionalProperties": False,
    }
    noisy = [name for name, kind in TRUST_MODELS.items() if kind.private]
    section["if"] = {"properties": {"privacy": {"enum": noisy}}, "required": ["privacy"]}
    section["then"] = {"required": ["epsilon"]}
    section["else"] = {"properties": {"epsilon": False, "delta": False}}
    return section


def _runtime() -> _Schema:
    kinds = []
    for name, card in RUNTIME_CARDS.items():
        table = _table(card.parameters)
        table["properties"] = {"name": {"const": name}, **table["properties"]}
        if name != DEFAULT:
            table["required"] = ["name", *table["required"]]
        kinds.append(table)
    return {"description": "What carries the messages.", "anyOf": kinds}


def _tasks() -> _Schema:
    named = {"$ref": "#/$defs/named-task"}
    known = {
        name: {"anyOf": [*({"$ref": f"#/$defs/{one}"} for one in _kinds(name)), named]} for name in KINDS
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
    """Return the kinds that a task can be: where the columns are logits, one of classes."""
    return tuple(card.name for card in KINDS.values() if name in (card.name, card.asked_as))


def _named_task() -> _Schema:
    """Return the schema of a task of any name, whose entry states its kind."""
    return {"anyOf": [{"$ref": f"#/$defs/{name}", "required": ["task"]} for name in KINDS]}


def _task(name: str) -> _Schema:
    kind = PARAMETERS[name]
    shared = _properties(TaskEntries)
    shared["task"]["enum"] = [one for one in KINDS if name in _kinds(one)]
    own = _properties(kind, implied=KINDS[name].study_rules.implied_names)
    return {
        "description": summary_of(TASKS[name]),
        "type": "object",
        "properties": {**{one.name: shared[one.name] for one in shared_entries(name)}, **own},
        "additionalProperties": False,
    }
