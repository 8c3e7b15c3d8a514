"""One study, run by the coordinator: journal, ledger and results stay on its machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedassay.crypto.identity import key_to_text
from fedassay.crypto.keys import KEY_BYTES, KeyPair, Secret
from fedassay.errors import FederationError, Refused, TooFewClients
from fedassay.kernel.endpoint import Endpoint, write_durably
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.expected_cost import require_room
from fedassay.kernel.helper import Helper, ServerStore, forget_old
from fedassay.kernel.journal import FileJournal, Journal
from fedassay.kernel.run import FEDERATION, run
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import COORDINATOR, Setting
from fedassay.runtimes import disclosed
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.runtimes.flower.directory import Directory
from fedassay.runtimes.flower.post import Post
from fedassay.runtimes.flower.runtime import FlowerRuntime, Warn
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.released import released
from fedassay.runtimes.simulated import Progress


@dataclass(frozen=True, kw_only=True)
class Coordinator:
    """Runs studies over the sites of its file."""

    file: CoordinatorFile

    def runtime(
        self, grid: Grid, study: FlowerStudy, *, local: Endpoint | None = None, progress: Progress, warn: Warn
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

    def release(self, study: FlowerStudy, grid: Grid, *, progress: Progress, warn: Warn) -> tuple[str, Path]:
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
        study: FlowerStudy,
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
    def _first_server(self, study: FlowerStudy, setting: Setting) -> Iterator[Endpoint | None]:
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
