"""One study, run by the coordinator: journal, ledger and results stay on its machine.

The coordinator's own file: its key, its folder, its budget, and the public keys of all sites.

Which file it is says the environment of the SuperLink's machine (`FEDASSAY_COORDINATOR`), and nobody else.

```toml
key = "coordinator.key"      # made by `fedassay keys`; paths are relative to this file
state = "state"              # folder: journals, ledger, results
# ledger = "postgresql://…"  # optional: a database that coordinators share, in the place of state/ledger.sqlite
helpers = []                 # names of the roster that help (second server) and hold no rows
# disclosure = "minimum-5"   # what is done to exact totals before anything is computed from them

[budget]                     # optional: what the coordinator may spend of the federation, in total
epsilon = 3.0

[roster]                     # the public keys of all sites (and helpers)
hospital-a = "…"
hospital-b = "…"
```
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.crypto.keys import KEY_BYTES, KeyPair, Secret
from fedassay.errors import FederationError, Refused, TooFewClients, UsageError
from fedassay.kernel.endpoint import Endpoint, write_durably
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.expected_cost import require_room
from fedassay.kernel.helper import Helper, ServerStore, forget_old
from fedassay.kernel.journal import FileJournal, Journal
from fedassay.kernel.run import FEDERATION, run
from fedassay.kernel.sites import read_ledger
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.policy.disclosure import Disclosure, profile_named
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.files import write_atomically
from fedassay.protocol.vocabulary import COORDINATOR, Budget, Setting
from fedassay.runtimes import disclosed
from fedassay.runtimes.flower.directory import Directory
from fedassay.runtimes.flower.nodes import read_roster, read_toml
from fedassay.runtimes.flower.post import Post
from fedassay.runtimes.flower.runtime import FlowerRuntime, Warn
from fedassay.runtimes.flower.study import Study
from fedassay.runtimes.flower.submission import to_toml
from fedassay.runtimes.released import released
from fedassay.runtimes.simulated import Progress

# --- the coordinator's own file -----------------------------------------------------------------------------

VARIABLE = "FEDASSAY_COORDINATOR"
"""The environment variable that names the coordinator's file where `flower-superlink` is started: Flower's
processes pass their environment on to the ServerApp, and a run configuration cannot change it."""

_KNOWN = {"key", "state", "ledger", "helpers", "budget", "disclosure", "roster"}


@dataclass(frozen=True, kw_only=True)
class CoordinatorFile:
    """What a coordinator's file says, checked."""

    clients: tuple[str, ...]
    helpers: tuple[str, ...]
    state: Path
    ledger: Path | str = field(repr=False)
    budget: Budget | None
    disclosure: Disclosure | None = None
    credentials: Credentials = field(repr=False)

    @classmethod
    def of_this_machine(cls) -> CoordinatorFile:
        """The file that this process's environment names; a submitted run has no say in it."""
        text = os.environ.get(VARIABLE, "")
        if not Path(text).is_absolute():
            got = f"got {text!r}" if text else "it is not set"
            raise UsageError(
                f"{VARIABLE}: {got}, expected the absolute path of the coordinator's file; export it where "
                "flower-superlink is started, and start the SuperLink again."
            )
        return cls.read(Path(text))

    @classmethod
    def read(cls, path: Path) -> CoordinatorFile:
        """Read a coordinator's file; anything unclear in it is an error."""
        content = read_toml(path)
        if not {"key", "state", "roster"} <= set(content) <= _KNOWN:
            raise UsageError(
                f"{path}: expected the entries key, state, roster, and perhaps ledger, helpers, budget, disclosure."
            )
        folder = path.absolute().parent
        roster = read_roster(path, content["roster"])
        helpers = content.get("helpers", [])
        if not isinstance(helpers, list) or not set(map(str, helpers)) <= set(roster):
            raise UsageError(f"{path}: helpers must be a list of names of the roster.")
        try:
            budget = Budget(**content["budget"]) if "budget" in content else None
        except TypeError as error:
            raise UsageError(f"{path}: the budget has entries epsilon and delta only ({error}).") from error
        return cls(
            clients=tuple(sorted(set(roster) - set(helpers) - {COORDINATOR})),
            helpers=tuple(helpers),
            state=folder / str(content["state"]),
            ledger=read_ledger(path, content, folder / str(content["state"])),
            budget=budget,
            disclosure=_profile(path, content.get("disclosure")),
            credentials=Credentials(identity=Identity.load(folder / str(content["key"])), roster=roster),
        )


def _profile(path: Path, name: object) -> Disclosure | None:
    try:
        return None if name is None else profile_named(name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def write_coordinator(path: Path, *, key: Path, roster: Path) -> None:
    """Write a coordinator's file from its key and a roster file; what `read` would refuse is refused here."""
    if path.exists():
        raise UsageError(f"{path}: exists already; change it by hand, or give another file.")
    identity = Identity.load(key)
    keys = read_roster(roster, read_toml(roster).get("roster"))
    if keys.pop(COORDINATOR, identity.public) != identity.public:
        raise UsageError(f"{roster}: the key of {COORDINATOR} is not the one given; correct one of them.")
    lines = [
        f"key = {to_toml(str(key.absolute()))}",
        f"state = {to_toml(str(path.absolute().parent / 'coordinator-state'))}",
        "",
        "[roster]",
        *(f"{to_toml(name)} = {to_toml(key_to_text(public))}" for name, public in keys.items()),
        "",
    ]
    write_atomically(path, "\n".join(lines))


# --- one study ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Coordinator:
    """Runs studies over the sites of its file."""

    file: CoordinatorFile

    def runtime(
        self, grid: Grid, study: Study, *, local: Endpoint | None = None, progress: Progress, warn: Warn
    ) -> FlowerRuntime:
        """The runtime that asks this coordinator's sites, and with `local` as first server two servers."""
        post = Post(grid=grid, credentials=self.file.credentials)
        directory = Directory(
            post=post,
            expected=(*self.file.clients, *self.file.helpers),
            randomness=SecureRandomness(),
            wait=study.wait,
            timeout=study.timeout,
            credentials=self.file.credentials,
        )
        return FlowerRuntime(
            clients=self.file.clients,
            directory=directory,
            reply_pair=self._reply_pair(study.name),
            asker=key_to_text(self.file.credentials.identity.public),
            simulated=False,
            local=local,
            helpers=self.file.helpers,
            timeout=study.timeout,
            progress=progress,
            warn=warn,
        )

    def release(self, study: Study, grid: Grid, *, progress: Progress, warn: Warn) -> tuple[str, Path]:
        """Run a study, or go on with one that was cut off; the result document, and where it now lies.

        Guarantee: a study of the same name asks and spends nothing twice, whatever crashed in between: what
        was released is in its journal, and a finished study gives the same document again, byte for byte.
        Seeds do not exist here.
        """
        started = time.perf_counter()
        setting, receipts = study.setting(clients=len(self.file.clients)), dict[str | bytes, Charge]()
        path = self.file.state / "results" / f"{study.name}.json"
        with self._opened(study.name) as journal, self._first_server(study, setting) as local:
            runtime = self.runtime(grid, study, local=local, progress=progress, warn=warn)
            outcome = self._run(setting, runtime, study, journal, receipts)
            if runtime.refusals:
                warn(f"refused: {_who_refused(runtime.refusals)}.")
            if runtime.traffic.rounds == 0 and path.exists():
                return path.read_text(encoding="utf-8"), path
            result = released(
                study.name,
                study.agenda,
                setting,
                outcome,
                runtime=runtime,
                journal=journal,
                receipts=receipts,
                seconds=time.perf_counter() - started,
                profile=self._profile(setting),
            )
            result.save(path)
        return result.to_json(), path

    def _reply_pair(self, study: str) -> KeyPair:
        """The key for the replies of a study: the same one when it is taken up again."""
        path = self.file.state / "journals" / f"{study}.key"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_durably(path, SecureRandomness().bytes(KEY_BYTES))
        return KeyPair.of(Secret(path.read_bytes()))

    def _profile(self, setting: Setting) -> Disclosure | None:
        """What is done to totals before they are read: nothing where noise protects them."""
        return None if setting.trust.private else self.file.disclosure

    def _run(
        self,
        setting: Setting,
        runtime: FlowerRuntime,
        study: Study,
        journal: Journal,
        receipts: dict[str | bytes, Charge],
    ) -> dict[str, Any]:
        anchor = self.file.state / "ledger.head"
        ledger = DatabaseLedger(self.file.ledger, self.file.budget, allow_exact=True, anchor=anchor)
        profile = self._profile(setting)
        if profile is not None:
            disclosed.require(profile, setting.trust, study.agenda.rehearse(setting))
        disclosed.settled(journal, profile)
        own = frozenset(one["exchange"].hex() for one in journal.entries() if one["kind"] == "begun")
        on_these = [one for one in ledger.charges if one.dataset == FEDERATION]
        require_room(study.agenda, setting, on_these, self.file.budget, own=own)
        try:
            return run(
                study.agenda.jobs(setting),
                runtime=disclosed.published(runtime, profile),
                ledger=ledger,
                randomness=SecureRandomness(),
                study=study.name,
                journal=journal,
                receipts=receipts,
            )
        except TooFewClients as error:
            raise _explained(error, runtime.refusals) from error

    @contextmanager
    def _first_server(self, study: Study, setting: Setting) -> Iterator[Endpoint | None]:
        """This machine's own server, for trust models that have two: a store for each study.

        Studies may run at the same time, and nobody may ever open the store of a finished one again: what is old is
        deleted from all of them.
        """
        if not setting.trust.helpers_needed:
            yield None
            return
        folder = self.file.state / "first-server"
        store = ServerStore(folder / study.name)
        for other in filter(Path.is_dir, folder.iterdir()):
            forget_old(other)
        try:
            yield Helper(
                COORDINATOR, randomness=SecureRandomness(), store=store, credentials=self.file.credentials
            )
        finally:
            store.close()

    @contextmanager
    def _opened(self, study: str) -> Iterator[Journal]:
        """The journal of a study, for this process alone."""
        for folder in ("journals", "results"):
            (self.file.state / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = FileJournal(self.file.state / "journals" / f"{study}.journal")
        try:
            yield journal
        finally:
            journal.close()


def _explained(error: TooFewClients, refusals: dict[str, Refusal]) -> FederationError | Refused:
    """The same error with who refused and why; a refusal, if all who said something refused by their rules."""
    who = _who_refused(refusals)
    text = (
        f"{error}{f' Refused: {who}.' if who else ''} Submit the study again under the same name when enough sites are "
        "there and willing: it goes on where it stopped."
    )
    by_rules = bool(refusals) and set(refusals.values()) <= {Refusal.POLICY, Refusal.BUDGET}
    return Refused(text) if by_rules else TooFewClients(text)


def _who_refused(refusals: dict[str, Refusal]) -> str:
    return ", ".join(f"{name} ({code})" for name, code in sorted(refusals.items()))
