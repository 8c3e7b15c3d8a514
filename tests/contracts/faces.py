"""The public faces of fedassay, asked as their users do: the command line, Python functions, and study files."""

from __future__ import annotations

import csv
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

import fedassay
from fedassay import Budget, Protection
from fedassay.protocol.parameters import Parameter, parameters
from fedassay.protocol.vocabulary import TrustModel
from fedassay.trust import TRUST_MODELS
from golden.runner import call

ROWS = "rows.csv"
STUDY = "s"
"""The name of every study, and of its folder: no parameter has it."""

TRACEBACK = "Traceback (most recent call last)"
NO_WORDS = re.compile(r"\b(?:nan|NaN|Infinity)\b|(?<![\w.])[-+]?inf\b|\bNone\b(?! of\b)")
"""What a number without a value looks like where nobody thought of it."""

Rows = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command output: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def works(self) -> bool:
        """Whether it ended with success; what went wrong stands in the assertion of a test."""
        return self.code == 0 and TRACEBACK not in self.err and "Error:" not in self.err


def command(*words: object) -> Output:
    """Run a command in this process; an exception that nothing has caught is a traceback on standard error."""
    code, out, err = call(*words)
    return Output(code=code, out=out, err=err)


# --- terms --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Terms:
    """A trust model, with the budget and the bound on rows that it needs."""

    trust: TrustModel
    budget: Budget | None
    protection: Protection

    @classmethod
    def of(cls, name: str, *, epsilon: float, rows_per_client: int) -> Terms:
        """The usual terms of a trust model: a budget and a bound only where noise is added."""
        kind = TRUST_MODELS[name]
        return cls(
            trust=kind(),
            budget=Budget(epsilon=epsilon, delta=1e-6) if kind.private else None,
            protection=Protection(rows_per_client=rows_per_client if kind.private else None),
        )

    @property
    def keywords(self) -> dict[str, Any]:
        """As the Python functions take them."""
        return {"privacy": self.trust, "budget": self.budget, "protection": self.protection}

    @property
    def options(self) -> list[str]:
        """As commands take them."""
        return [
            word
            for name, value in {"privacy": self.trust.name, **self._numbers}.items()
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]

    @property
    def section(self) -> dict[str, Any]:
        """As the section [privacy] of a study has them."""
        return {"privacy": self.trust.name, **self._numbers}

    @property
    def _numbers(self) -> dict[str, Any]:
        if self.budget is None:
            return {}
        rows = self.protection.rows_per_client
        return {"epsilon": self.budget.epsilon, "delta": self.budget.delta, "rows_per_client": rows}


# --- parameters ---------------------------------------------------------------------------------------------------


def option_of(parameter: Parameter) -> str:
    """The option of a parameter: its name, in the singular where it may be repeated, negated for a switch."""
    name = parameter.name.replace("_", "-")
    if parameter.several and not is_listed(parameter):
        name = name.removesuffix("s")
    return f"--no-{name}" if parameter.default is True else f"--{name}"


def is_listed(parameter: Parameter) -> bool:
    """Whether the command line takes the list as one word with commas."""
    return parameter.listed is not None or parameter.name == "grid"


def option_words(parameter: Parameter, value: Any) -> list[str]:
    """The words that give a value to a parameter on the command line."""
    option = option_of(parameter)
    if value is (parameter.default is not True):
        return [option]
    if isinstance(value, bool):
        return []
    if parameter.item is bool:
        return [f"{option}={value}"]
    values = list(value) if isinstance(value, list | tuple) else [value]
    if is_listed(parameter):
        return [option, ",".join(map(str, values))]
    return [word for item in values for word in (option, str(item))]


def all_option_words(kind: type[Any], values: Mapping[str, Any]) -> list[str]:
    """The words of several parameters of a dataclass; None is left out."""
    known = {parameter.name: parameter for parameter in parameters(kind)}
    return [word for name, value in set_in(values).items() for word in option_words(known[name], value)]


def set_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in values.items() if value is not None}


# --- files --------------------------------------------------------------------------------------------------------


def write_rows(path: Path, rows: Rows) -> Path:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(rows)
        lines.writerows(zip(*rows.values(), strict=True))
    return path


def study_text(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """A study file with these sections."""
    lines = [f'name = "{STUDY}"']
    for section, entries in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {_toml(value)}" for name, value in entries.items()]
    text = "\n".join([*lines, ""])
    tomllib.loads(text)
    return text


def _toml(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "{}" if isinstance(value, Mapping) else json.dumps(value)


def line_of(text: str, entry: str) -> int:
    """The number of the line that begins with an entry; the last one, which is that of the task."""
    return max(
        number for number, line in enumerate(text.splitlines(), start=1) if line.startswith(f"{entry} =")
    )


# --- sentences ----------------------------------------------------------------------------------------------------


def objection(sentence: str, name: str = "", *, exactly: bool = False) -> str:
    """What a refusal lacks to be one sentence that names something; empty if nothing.

    A name is recognised with spaces or hyphens and in the singular too, unless it must stand there exactly.
    """
    text = sentence.strip()
    if not text or "\n" in text:
        return f"expected one line, got {text!r}"
    words = re.escape(name)
    if not exactly:
        stem = re.sub(r"^--(?:no-)?", "", name).removesuffix("s")
        words = "(?:--(?:no-)?)?" + re.sub("[_-]", "[ _-]", stem) + "s?"
    if re.search(rf"(?<![\w-]){words}(?![\w-])", text) is None:
        return f"expected a sentence that names {name}, got {text!r}"
    return ""


def command_objection(output: Output, name: str = "", *, exactly: bool = False) -> str:
    """What a refusal on the command line lacks: exit code 2, and one sentence."""
    if TRACEBACK in output.err:
        return f"a traceback: {output.err.strip().splitlines()[-1]}"
    if output.code != 2:
        return f"expected exit code 2, got {output.code}: {output.err.strip() or 'it was accepted'}"
    if not output.err.startswith("Error: "):
        return f"expected 'Error: ', got {output.err!r}"
    return objection(output.err.removeprefix("Error: "), name, exactly=exactly)


# --- texts --------------------------------------------------------------------------------------------------------


def page_text(page: str) -> str:
    """The text of an HTML page as a reader sees it, that of its plots included; no style and no script."""
    parser = _Text()
    parser.feed(page)
    return " ".join(" ".join(parser.parts).split())


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        # Coordinates of a plot are numbers too.
        self.parts += [
            value for name, value in attrs if value and name in ("d", "points", "transform", "aria-label")
        ]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def strange_words(text: str) -> list[str]:
    """Words that stand for a number without a value, with their surroundings."""
    return [text[max(0, word.start() - 40) : word.end() + 40].strip() for word in NO_WORDS.finditer(text)]


# --- documents ----------------------------------------------------------------------------------------------------


@cache
def schema(name: str) -> Any:
    """A published JSON Schema, by the name of its file."""
    return json.loads((files("fedassay") / "documents" / f"{name}.schema.json").read_text(encoding="utf-8"))


def objects(document: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a JSON document, at any depth."""
    if isinstance(document, Mapping):
        yield document
    below: Iterable[Any] = document.values() if isinstance(document, Mapping) else document
    for part in below if isinstance(document, Mapping | list | tuple) else ():
        yield from objects(part)


def reasons(document: Any) -> list[str]:
    """Why things have no value, in the order of a JSON document."""
    return [str(entry["reason"]) for entry in objects(document) if entry.get("reason")]


def described(document: Mapping[str, Any]) -> set[str]:
    """The entries of `results` that the published schema of results describes for this document."""
    return {
        name
        for whole in _applying(schema("result"), document)
        if "results" in whole.get("properties", ())
        for part in _applying(whole["properties"]["results"], document["results"])
        for name in part.get("properties", ())
    }


def _applying(part: Mapping[str, Any], instance: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and all those inside it that apply to an instance."""
    yield part
    if "$ref" in part:
        yield from _applying(schema("result")["$defs"][part["$ref"].rpartition("/")[2]], instance)
    for inner in part.get("allOf", ()):
        yield from _applying(inner, instance)
    for inner in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        if is_valid(inner, instance):
            yield from _applying(inner, instance)
    if "if" in part:
        chosen = "then" if is_valid(part["if"], instance) else "else"
        yield from _applying(part.get(chosen, {}), instance)


def is_valid(part: Mapping[str, Any], instance: Any) -> bool:
    """Whether an instance is valid by a part of the schema of results."""
    return validator({**part, "$defs": schema("result")["$defs"]}).is_valid(instance)


def validator(whole: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
    """What checks documents by a schema."""
    return jsonschema.Draft202012Validator(whole)


def python_function(name: str) -> Any:
    """The Python function of a command."""
    return getattr(fedassay, name.replace("-", "_"))
