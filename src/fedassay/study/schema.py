"""The JSON Schema of study files, made from the dataclasses that read them.

It says what can be said without the data: which entries there are, of which types, with which words. What only the
values together decide (which columns a task needs, whether a budget suffices) `StudyFile` says.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Container, Mapping
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
from fedassay.study.tasks import NONE, RESERVED, TASK_NAME, TaskEntries, shared_entries
from fedassay.tasks.card import KINDS, PARAMETERS, TASKS
from fedassay.trust import TRUST_MODELS

SCHEMA_FILE = Path(__file__).parent / "schema.json"

_Schema = dict[str, Any]

_COLUMN: _Schema = {"type": "string", "minLength": 1}


def schema() -> _Schema:
    """The JSON Schema (draft 2020-12) of a study file."""
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
    """The JSON Schema as `study/schema.json` holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


# --- entries ----------------------------------------------------------------------------------------------------


def _properties(kind: type[Any], *, implied: Container[str] = ()) -> dict[str, _Schema]:
    """The entries that are parameters of a dataclass, each with its sentence, and its default if nothing implies it."""
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
    """A section whose entries are the parameters of a dataclass."""
    return {
        "description": summary_of(kind),
        "type": "object",
        "properties": _properties(kind),
        "required": [one.name for one in parameters(kind) if one.required],
        "additionalProperties": False,
    }


def summary_of(kind: type[Any]) -> str:
    """The first sentence of a docstring."""
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
    """What a task can turn out to be: where the columns are logits, one of classes."""
    return tuple(card.name for card in KINDS.values() if name in (card.name, card.asked_as))


def _named_task() -> _Schema:
    """A task of any name, which says what it is."""
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


# --- the reference page of study files ----------------------------------------------------------------------

_WORDS = {"boolean": "true or false", "integer": "whole number", "number": "number", "string": "text"}


def study_page() -> str:
    """The entries of every section as a page of the documentation."""
    whole = schema()
    sections: Mapping[str, _Schema] = whole["properties"]
    heading = {name: entry for name, entry in sections.items() if entry.get("type") == "string"}
    lines = [
        "# Entries of a study file",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date.",
        "[How to write a study](../how-to/study.md) explains the sections one by one. The same as JSON Schema, for",
        "editors, is `src/fedassay/study/schema.json`; `fedassay init --schema` puts it next to a study.",
        "",
        "## At the top",
        "",
        *_page_table(heading, whole["required"]),
        *_section("[data]", sections["data"], hidden=("columns",)),
        *_section("[data.columns]", sections["data"]["properties"]["columns"]),
        *_section("[privacy]", sections["privacy"], hidden=("parameters",)),
        *_section("[privacy.parameters]", sections["privacy"]["properties"]["parameters"]),
    ]
    for kind in sections["runtime"]["anyOf"]:
        name = kind["properties"]["name"]["const"]
        lines += _section(f'[runtime] with name = "{name}"', kind, hidden=("name",))
    lines += _section("[split]", sections["split"]) + _section("[expected]", sections["expected"])
    return "\n".join([*lines, *_task_sections(whole["$defs"])])


def _task_sections(kinds: Mapping[str, _Schema]) -> list[str]:
    lines = [
        "## Tasks",
        "",
        "A section is named like its task, `[tasks.evaluate]`, or says which one it is: `task`. Where the columns are",
        "`class` and `logits`, `evaluate` and `calibrate` are `evaluate-classes` and `calibrate-classes`. Every task",
        "can have a `share` of the budget; prediction sets (`conformal`) also `after`, the calibration that they build",
        f'on, or `"{NONE}"`.',
        "",
    ]
    for name, kind in kinds.items():
        if "properties" in kind:
            lines += _section(f"[tasks.{name}]", kind, hidden=("task", "share", "after"), level="###")
    return lines


def _section(title: str, section: _Schema, *, hidden: tuple[str, ...] = (), level: str = "##") -> list[str]:
    entries = {name: entry for name, entry in section["properties"].items() if name not in hidden}
    return [
        f"{level} `{title}`",
        "",
        section["description"],
        "",
        *_page_table(entries, section.get("required", ())),
    ]


def _page_table(entries: Mapping[str, _Schema], required: Any) -> list[str]:
    if not entries:
        return []
    lines = ["| entry | type | default | meaning |", "|---|---|---|---|"]
    for name, entry in entries.items():
        default = (
            "needed"
            if name in required
            else f"`{json.dumps(entry['default'])}`"
            if "default" in entry
            else ""
        )
        text = entry.get("description", "").replace("|", r"\|")
        lines.append(f"| `{name}` | {_type(entry)} | {default} | {text[:1].upper()}{text[1:]} |")
    return [*lines, ""]


def _type(entry: _Schema) -> str:
    if "enum" in entry:
        return ", ".join(f"`{one}`" if one else '`""`' for one in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(_type(one) for one in entry["anyOf"])
    if entry["type"] == "array":
        return f"list of {_WORDS[entry['items']['type']]}s"
    return _WORDS[entry["type"]]
