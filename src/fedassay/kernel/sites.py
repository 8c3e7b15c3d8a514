"""A real site from its own file: data, columns, policy, ledger, keys. The basis of a deployed client.

```toml
name = "hospital-a"
dataset = "hospital-a/admissions-2026"   # what the ledger calls these rows
data = "scores.parquet"                  # paths are relative to this file; or a database URL, then also
# query = "select p, y from scores"      # the rows of the database that are used
key = "hospital-a.key"                   # made by `fedassay keys`
state = "state"                          # folder: store, ledger, split key; nothing in it may be shared
# ledger = "postgresql://…"              # optional: a database in the place of the file state/ledger.sqlite

[columns]                                # by role
score = "p"
label = "y"
# class = "species"                      # of several classes, 0, 1, .. in the order of the
# logits = "z"                           # logits: a column of lists, or z_0, z_1, ..

[policy]                                 # what may be asked; or, above: policy = "policy.toml", a file of its own
trust_models = ["secure-sum"]            # all entries are in `fedassay.privacy.policy.file`
smallest_cohort = 3

[policy.total]                           # of all queries together; without it no noisy query is answered
epsilon = 3.0

[roster]                                 # the public keys that this site believes, its own included
coordinator = "…"
hospital-a = "…"
hospital-b = "…"
```
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedassay.crypto.identity import Credentials, Identity, key_from_text
from fedassay.data.federation import load
from fedassay.data.findings import raise_first
from fedassay.data.schema import Columns
from fedassay.data.sources import files_with_rows, source_named
from fedassay.data.sql import Database
from fedassay.data.stores import Holdings, take_stock
from fedassay.errors import DataError, PolicyRefusal, UsageError
from fedassay.kernel.client import Client, Site
from fedassay.kernel.endpoint import FileStore, kept_secret, write_durably
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.place import Place
from fedassay.privacy.ledger.refusals import DatabaseRecords
from fedassay.privacy.policy.file import PolicyFile, RefuseAll, Vocabulary, policy_of
from fedassay.privacy.policy.judgement import Policy
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.toml_places import toml_content
from fedassay.protocol.vocabulary import COORDINATOR, SECOND_SERVER, Budget, Rows
from fedassay.summaries import CATALOGUE
from fedassay.tasks.card import TASKS
from fedassay.tasks.shared_parameters import HOLDOUT
from fedassay.trust import TRUST_MODELS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KNOWN = {"name", "dataset", "data", "query", "key", "state", "ledger", "columns", "policy", "roster"}

VOCABULARY = Vocabulary(tasks=TASKS, trust_models=TRUST_MODELS, summaries=CATALOGUE)
"""Names that a policy may use."""


@dataclass(frozen=True, kw_only=True)
class SiteFile:
    """Content of a site's file, checked."""

    name: str
    dataset: str
    data: Path | Database
    state: Path
    columns: dict[str, str]
    ledger: Path | str = field(repr=False)
    policy: Policy
    credentials: Credentials = field(repr=False)
    prekeys: Path

    @classmethod
    def read(cls, path: Path) -> SiteFile:
        """Read a site's file; anything unclear in it is an error, so that nothing is answered by accident.

        Only a policy that is not understood is no error here: the site runs, and refuses everything.
        """
        content = read_toml(path)
        if "budget" in content:
            raise UsageError(
                f"{path}: the budget belongs to the policy; write [policy.total] for [budget], or [total] in its file."
            )
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
        roster, table = keys_of(path, _table(path, content, "roster")), _table(path, content, "columns")
        with named_in_errors(path):
            columns = dict(Columns(names=table).names)
        return cls(
            name=content["name"],
            dataset=content["dataset"],
            data=_data(path, content, folder),
            state=folder / content["state"],
            ledger=read_ledger(path, content, folder / content["state"]),
            columns=columns,
            policy=_policy(path, content.get("policy"), folder),
            credentials=Credentials(identity=Identity.load(folder / content["key"]), roster=roster),
            prekeys=prekeys_of(folder / content["key"]),
        )

    @property
    def budget(self) -> Budget | None:
        """Total budget of this data set; None if the policy names no total, or is not understood."""
        try:
            return self.policy.now().total
        except PolicyRefusal:
            return None

    def offer(self, count: int, *, asker: str) -> list[bytes]:
        """Issue fresh prekeys for a coordinator (its public key as text), without opening the site."""
        made = MemberStore(self.prekeys).issue(
            count, coordinator=asker, credentials=self.credentials, randomness=SecureRandomness()
        )
        return [prekey.packed() for prekey in made]

    def open(self, *, rehearsal: bool = False) -> Client:
        """Open the client that answers for this site; its state is on the disk before a reply leaves.

        In a rehearsal prekeys are used on a copy.
        """
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = FileStore(self.state / "store")  # first: its lock also guards what follows
        prekeys = MemberStore(self.prekeys)
        key = kept_secret(self.state / "split.key", 32)  # decides which rows are fit and held-out
        anchor = self.state / "ledger.head"

        def rows() -> Rows:
            try:
                federation = load(self.data, columns=self.columns, empty_is_fine=True)
            except UsageError as error:  # that a file is not there is not the asker's fault
                raise DataError(str(error)) from error
            raise_first(list(federation.not_read))  # in a release missing rows are an error, not a warning
            return federation.pooled()

        # Which rows are held out depends on the site's name, too: another one is another split of the same rows.
        whose = hashlib.blake2b(f"{self.name} {HOLDOUT}".encode(), key=key, person=b"fedassay split")

        def holdings() -> Holdings:
            stamp = _stamp(self.data, self.columns, self.name)
            return _known(self.state / "holdings.json", stamp, lambda: take_stock(rows(), key=whose.digest()))

        site = Site(
            name=self.name,
            dataset=self.dataset,
            rows=rows,
            policy=self.policy,
            ledger=DatabaseLedger(self.ledger, self.budget, allow_exact=True, anchor=anchor),
            randomness=SecureRandomness(),
            split_key=key,
            roles=frozenset(self.columns),
            holdings=holdings,
            records=DatabaseRecords(self.ledger),
            prekeys=prekeys.copied() if rehearsal else prekeys,
            # Among peers the coordinator does not count: with it, two clients would pass for three.
            credentials=self.credentials.among(set(self.credentials.roster) - {COORDINATOR}),
        )
        return Client(site, store=store)


def prekeys_of(key: Path) -> Path:
    """Return the file of a party's prekeys: next to its private key, under the same name."""
    return key.with_suffix(".prekeys")


def read_ledger(path: Path, content: dict[str, Any], state: Path) -> Path | str:
    """Return the place of a ledger: the URL or file that a configuration names, by default a file in `state`."""
    named = content.get("ledger", "")
    if not isinstance(named, str):
        raise UsageError(f"{path}: ledger must be a text in quotes, a file or a database URL.")
    with named_in_errors(path):
        place = Place.of(named or state / "ledger.sqlite", folder=path.absolute().parent)
    return named if place.file is None else place.file


def _data(path: Path, content: dict[str, Any], folder: Path) -> Path | Database:
    query = content.get("query")
    if query is not None and not isinstance(query, str):
        raise UsageError(f"{path}: query must be a text in quotes.")
    with named_in_errors(path):
        return source_named(content["data"], query, folder=folder)


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Let the sentence of a wrong usage begin with the file that it stands in."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read the content of a TOML file, or raise a `UsageError`."""
    try:
        return toml_content(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct the line it names.") from error


def keys_of(path: Path, table: Mapping[str, Any]) -> dict[str, bytes]:
    """Read the public keys in a section [roster], by name; each party has its own."""
    roster = {str(name): key_from_text(text, whose=str(name)) for name, text in table.items()}
    if len(set(roster.values())) != len(roster):
        raise UsageError(f"{path}: two parties of the roster have the same key; each needs its own.")
    return roster


def read_roster(path: Path, table: object) -> dict[str, bytes]:
    """Read the public keys in a roster, by name."""
    if not isinstance(table, dict) or not table:
        raise UsageError(f"{path}: roster must be a section ([roster]) with a public key for each name.")
    return keys_of(path, table)


def _table(path: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} must be a section ([{name}]).")
    return table


def policy_file(path: Path) -> PolicyFile:
    """Return the policy in a file of its own."""
    return PolicyFile(path, VOCABULARY)


def _policy(path: Path, entry: object, folder: Path) -> Policy:
    """Read the policy that a site's file names or holds; without one, nothing is allowed."""
    if isinstance(entry, str):
        return policy_file(folder / entry)
    if not isinstance(entry, dict):
        wrong = 'is missing; expected policy = "policy.toml", or a section [policy] with trust_models'
        return RefuseAll(
            reason=f"policy: {path}: the policy {wrong}; everything is refused until there is one."
        )
    text = path.read_text(encoding="utf-8")
    return policy_of(entry, VOCABULARY, where=str(path), text=text, section=("policy",))


def _stamp(data: Path | Database, columns: dict[str, str], name: str) -> str | None:
    """Return a text that changes when the files do, without reading them; None for a database, which has none."""
    if isinstance(data, Database):
        return None
    try:
        facts = [(str(file), *(_facts(file.stat()))) for file in files_with_rows(data)]
    except OSError:
        return None  # the reader of the rows will report what is wrong
    return hashlib.sha256(json.dumps([facts, sorted(columns.items()), name]).encode()).hexdigest()


def _facts(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _known(path: Path, stamp: str | None, take: Callable[[], Holdings]) -> Holdings:
    """Return what was counted when the files had this stamp; otherwise count now and keep the result."""
    try:
        kept = json.loads(path.read_bytes())
        if stamp is not None and kept.pop("stamp") == stamp:
            return Holdings(**kept)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # whatever it is, it can be counted again
    holdings = take()
    if stamp is not None:
        write_durably(path, json.dumps({"stamp": stamp, **asdict(holdings)}).encode())
    return holdings
