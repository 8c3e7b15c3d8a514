"""Sections of a study file that are more than the fields of one dataclass."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import Any

from fedassay.data.schema import FEATURES, ROLES
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.errors import UsageError
from fedassay.parameters import Parameter, parameters
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS
from fedassay.runtimes.parameters import ReleaseParameters, RuntimeParameters
from fedassay.study.entries import Section
from fedassay.study.sections import DataSection, LedgerSection, PrivacySection
from fedassay.trust import TRUST_MODELS


def read_runtime(section: Section) -> RuntimeParameters:
    """What carries the messages."""
    name = section.entries.get("name", DEFAULT)
    if not isinstance(name, str) or name not in RUNTIME_CARDS:
        raise section.problem("name", f"name: got {name!r}, expected one of {', '.join(RUNTIME_CARDS)}.")
    card = RUNTIME_CARDS[name]
    if not card.simulated and "seed" in section:
        raise section.problem(
            "seed", f"seed: {name} is a release, whose noise nobody may know; leave the seed out."
        )
    return section.made(card.parameters, besides=("name",))


def read_privacy(section: Section) -> PrivacySection:
    """Who is trusted with what; parameters of the trust model have a section of their own."""
    name = section.entries.get("privacy", PrivacySection.privacy)
    chosen = section.section("parameters")
    given: dict[str, Any] = {}
    if isinstance(name, str) and name in TRUST_MODELS:  # else the section says what is wrong
        kind = TRUST_MODELS[name]
        for entry in chosen.entries if not parameters(kind) else ():
            raise chosen.problem(entry, f"has no {entry!r}: {name} has no parameters; leave it out.")
        given = chosen.given(parameters(kind))
        try:
            kind(**given)
        except UsageError as error:
            raise chosen.located(error) from error
    return section.made(PrivacySection, besides=("parameters",), parameters=given)


def read_data(root: Section, runtime: RuntimeParameters) -> DataSection | None:
    """The rows of a simulation, None in a release, which has none of its own."""
    if not runtime.simulated:
        if "data" in root:
            raise root.problem(
                "data",
                f"[data] is for simulations; with {runtime.name} sites hold their own rows, leave it out.",
            )
        return None
    if "data" not in root:
        raise root.problem(
            "runtime", f"a study needs [data] with a path: {runtime.name} simulates clients on rows of yours."
        )
    section = root.section("data")
    columns = section.section("columns")
    columns.only(ROLES)
    if not columns.entries:
        raise section.problem(
            None, 'needs [data.columns] with the roles, such as score = "p" and label = "y".'
        )
    if "logits" in columns and "class" not in columns:
        raise columns.problem(
            "logits", 'logits: they go with class, a column of 0, 1, ..; give class = "COLUMN".'
        )
    names = {role: _column(columns, role) for role in columns.entries}
    data = section.made(DataSection, besides=("columns",), columns=names)
    try:
        source_of(data, root.document.path)
    except UsageError as error:
        raise section.problem("path", str(error)) from error
    return data


def read_ledger(root: Section, runtime: RuntimeParameters) -> LedgerSection:
    """Where what is spent is recorded."""
    section = root.section("ledger")
    if section.entries and isinstance(runtime, ReleaseParameters) and runtime.home is None:
        raise root.problem(
            "ledger", f"[ledger]: with {runtime.name} the coordinator's file says which; leave it out."
        )
    ledger = section.made(LedgerSection)
    if section.entries and ledger.place is None and runtime.simulated:
        raise section.problem(None, 'needs place, a file such as "ledger.sqlite".')
    return ledger


def _column(columns: Section, role: str) -> str:
    """The column of a role; features may be a list."""
    if role != FEATURES or isinstance(columns.entries[role], str):
        return str(columns.value(_entry(role, str)))
    names = columns.value(_entry(role, tuple[str, ...]))
    if not names or not all(name and "," not in name for name in names):
        raise columns.problem(role, f"{role}: expected names of columns, without commas in them.")
    return ",".join(names)


def _entry(name: str, annotation: Any) -> Parameter:
    return Parameter(name=name, annotation=annotation, default=MISSING, sentence="")


def source_of(data: DataSection, path: Path) -> Path | Database:
    """Where the rows are, relative to the study file."""
    return source_named(data.path, data.query, folder=path.absolute().parent)
