"""The reference page of study files, made from their JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedassay.study.schema import schema
from fedassay.study.tasks import NONE

_Schema = dict[str, Any]

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
