"""A real site from its own file: data, columns, policy, ledger, keys. What a deployed client is made of.

```toml
name = "hospital-a"
dataset = "hospital-a/admissions-2026"   # what the ledger calls these rows
data = "scores.parquet"                  # paths are relative to this file; or a database URL, then also
# query = "select p, y from scores"      # the rows of the database that are used
key = "hospital-a.key"                   # made by `fedassay keys`
state = "state"                          # folder: store, ledger, split key; nothing in it may be shared

[columns]                                # by role
score = "p"
label = "y"
# class = "species"                      # of several classes, 0, 1, .. in the order of the
# logits = "z"                           # logits: a column of lists, or z_0, z_1, ..

[policy]                                 # what is not listed is refused; trust_models is required
trust_models = ["secure-sum"]
smallest_cohort = 3

[budget]                                 # in total, for this data set; without it no noisy query is answered
epsilon = 3.0

[roster]                                 # the public keys that this site believes, its own included
coordinator = "…"
hospital-a = "…"
hospital-b = "…"
```
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedassay.client import Client, Site
from fedassay.crypto.identity import Credentials, Identity, key_from_text
from fedassay.data.federation import load
from fedassay.data.schema import Columns
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.endpoint import FileStore
from fedassay.errors import UsageError
from fedassay.files import sync_folder
from fedassay.privacy.file_ledger import FileLedger
from fedassay.privacy.policy import SimplePolicy
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import SECOND_SERVER, Budget, Rows
from fedassay.trust import TRUST_MODELS

COORDINATOR = "coordinator"
"""The name under which a roster lists the coordinator's key."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KNOWN = {"name", "dataset", "data", "query", "key", "state", "columns", "policy", "budget", "roster"}


@dataclass(frozen=True, kw_only=True)
class SiteFile:
    """What a site's file says, checked."""

    name: str
    dataset: str
    data: Path | Database
    state: Path
    columns: dict[str, str]
    policy: SimplePolicy
    budget: Budget | None
    credentials: Credentials = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> SiteFile:
        """Read a site's file; anything unclear in it is an error, so that nothing is answered by accident."""
        content = _toml(path)
        unknown = sorted(set(content) - _KNOWN)
        if unknown:
            raise UsageError(
                f"{path}: unknown entry {unknown[0]!r}; expected only {', '.join(sorted(_KNOWN))}."
            )
        for entry in ("name", "dataset", "data", "key", "state"):
            if not isinstance(content.get(entry), str) or not content[entry]:
                raise UsageError(f"{path}: {entry} is missing; expected a text in quotes.")
        if not _NAME.fullmatch(content["name"]) or content["name"] in (COORDINATOR, SECOND_SERVER):
            raise UsageError(
                f"{path}: the name {content['name']!r} cannot be used; expected letters, digits, dots, dashes and "
                f"underscores, at most 64, and not {COORDINATOR!r} or {SECOND_SERVER!r}."
            )
        folder = path.absolute().parent
        roster = {
            name: key_from_text(text, whose=name) for name, text in _table(path, content, "roster").items()
        }
        if len(set(roster.values())) != len(roster):
            raise UsageError(f"{path}: two parties of the roster have the same key; each needs its own.")
        budget = _table(path, content, "budget")
        policy = _policy(path, _table(path, content, "policy"))
        return cls(
            name=content["name"],
            dataset=content["dataset"],
            data=_data(path, content, folder),
            state=folder / content["state"],
            columns=_columns(path, _table(path, content, "columns")),
            policy=policy if budget else _without_noise(policy),
            budget=_budget(path, budget) if budget else None,
            credentials=Credentials(identity=Identity.load(folder / content["key"]), roster=roster),
        )

    def open(self) -> Client:
        """The client that answers for this site; its state is on the disk before a reply leaves."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = FileStore(self.state / "store")  # first: its lock also guards what follows

        def rows() -> Rows:
            return load(self.data, columns=self.columns, empty_is_fine=True).pooled()

        site = Site(
            name=self.name,
            dataset=self.dataset,
            rows=rows,
            policy=self.policy,
            ledger=FileLedger(self.state / "ledger.jsonl", self.budget, allow_exact=True),
            randomness=SecureRandomness(),
            split_key=_split_key(self.state / "split.key"),
            roles=frozenset(self.columns),
            # Among peers the coordinator is nobody: with it, two clients would pass for three.
            credentials=self.credentials.among(set(self.credentials.roster) - {COORDINATOR}),
        )
        return Client(site, store=store)


def _data(path: Path, content: dict[str, Any], folder: Path) -> Path | Database:
    query = content.get("query")
    if query is not None and not isinstance(query, str):
        raise UsageError(f"{path}: query must be a text in quotes.")
    try:
        return source_named(content["data"], query, folder=folder)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _columns(path: Path, table: dict[str, Any]) -> dict[str, str]:
    try:
        return dict(Columns(names=table).names)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct the line it names.") from error


def _table(path: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} must be a section ([{name}]).")
    return table


def _policy(path: Path, table: dict[str, Any]) -> SimplePolicy:
    if not isinstance(table.get("trust_models"), list):
        raise UsageError(f'{path}: the policy needs trust_models, a list such as ["secure-sum"].')
    try:
        return SimplePolicy(**{key: _policy_value(key, value) for key, value in table.items()})
    except TypeError as error:
        raise UsageError(f"{path}: the policy has an entry that cannot be used ({error}).") from error


def _policy_value(key: str, value: Any) -> Any:
    if key not in ("trust_models", "summaries"):
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{key} must be a list of names in quotes")
    return frozenset(value)


def _without_noise(policy: SimplePolicy) -> SimplePolicy:
    """A site that names no budget has none to spend: trust models that would spend one are not allowed."""
    allowed = policy.trust_models or frozenset()
    return replace(
        policy,
        trust_models=frozenset(n for n in allowed if n in TRUST_MODELS and not TRUST_MODELS[n].private),
    )


def _budget(path: Path, table: dict[str, Any]) -> Budget:
    try:
        return Budget(**table)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: the budget has entries epsilon and delta only ({error}).") from error


def _split_key(path: Path) -> bytes:
    """The site's secret for the split into fit and held-out rows: made once, kept for ever."""
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(SecureRandomness().bytes(32))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    return path.read_bytes()
