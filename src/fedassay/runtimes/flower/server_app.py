"""The ServerApp of a deployment: runs one study next to the SuperLink and reports its progress to the submitter.

Journal, ledger and results stay on the coordinator's machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedassay.crypto.identity import key_to_text
from fedassay.crypto.keys import KEY_BYTES, KeyPair, Secret
from fedassay.errors import FedassayError, FederationError, Refused, TooFewClients
from fedassay.kernel import publication
from fedassay.kernel.endpoint import Endpoint, kept_secret
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.expected_cost import require_room
from fedassay.kernel.helper import Helper, ServerStore, forget_old
from fedassay.kernel.journal import FileJournal, Journal
from fedassay.kernel.run import FEDERATION
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import COORDINATOR, Setting
from fedassay.runtimes.flower import submission
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.runtimes.flower.post import Post
from fedassay.runtimes.flower.runtime import Directory, FlowerRuntime, Warn
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.released import release
from fedassay.runtimes.simulated import Progress


@dataclass(frozen=True, kw_only=True)
class Coordinator:
    """Coordinator that runs studies over the sites of its file."""

    file: CoordinatorFile

    def runtime(
        self, grid: Grid, study: FlowerStudy, *, local: Endpoint | None = None, progress: Progress, warn: Warn
    ) -> FlowerRuntime:
        """Return the runtime that asks this coordinator's sites, and with `local` as first server two servers."""
        post = Post(grid=grid, credentials=self.file.credentials)
        directory = Directory(
            post=post,
            expected=(*self.file.clients, *self.file.helpers),
            randomness=SecureRandomness(),
            wait=study.wait,
            timeout=study.timeout,
        )
        return FlowerRuntime(
            clients=self.file.clients,
            directory=directory,
            # The same one when the study is taken up again.
            reply_pair=KeyPair.of(Secret(kept_secret(self._journals / f"{study.name}.key", KEY_BYTES))),
            asker=key_to_text(self.file.credentials.identity.public),
            simulated=False,
            local=local,
            helpers=self.file.helpers,
            progress=progress,
            warn=warn,
        )

    def release(self, study: FlowerStudy, grid: Grid, *, progress: Progress, warn: Warn) -> tuple[str, Path]:
        """Run a study, or go on with one that was cut off; the result document, and where it now lies.

        Guarantee: a study of the same name asks and spends nothing twice, whatever crashed in between: what
        was released is in its journal, and a finished study gives the same document again, byte for byte.
        Seeds do not exist here.
        """
        setting = study.setting(clients=len(self.file.clients))
        path = self.file.state / "results" / f"{study.name}.json"
        for folder in (self._journals, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            closing(FileJournal(self._journals / f"{study.name}.journal")) as journal,
            self._first_server(study, setting) as local,
        ):
            runtime = self.runtime(grid, study, local=local, progress=progress, warn=warn)
            result = self._result(setting, runtime, study, journal)
            if runtime.refusals:
                warn(f"refused: {_who_refused(runtime.refusals)}.")
            if runtime.traffic.rounds == 0 and path.exists():
                return path.read_text(encoding="utf-8"), path
            result.save(path)
        return result.to_json(), path

    @property
    def _journals(self) -> Path:
        return self.file.state / "journals"

    def _result(
        self, setting: Setting, runtime: FlowerRuntime, study: FlowerStudy, journal: Journal
    ) -> Result:
        started = time.perf_counter()
        anchor = self.file.state / "ledger.head"
        ledger = DatabaseLedger(self.file.ledger, self.file.budget, allow_exact=True, anchor=anchor)
        # Nothing is done to totals that noise protects.
        profile = None if setting.trust.private else self.file.disclosure
        if profile is not None:
            publication.require(profile, setting.trust, study.agenda.rehearse(setting))
        publication.settled(journal, profile)
        own = frozenset(entry["exchange"].hex() for entry in journal.entries("begun"))
        on_these = [one for one in ledger.charges if one.dataset == FEDERATION]
        require_room(study.agenda, setting, on_these, self.file.budget, own=own)
        try:
            return release(
                study.name,
                study.agenda,
                setting,
                runtime=runtime,
                ledger=ledger,
                journal=journal,
                seconds=lambda: time.perf_counter() - started,
                profile=profile,
            )
        except TooFewClients as error:
            raise _explained(error, runtime.refusals) from error

    @contextmanager
    def _first_server(self, study: FlowerStudy, setting: Setting) -> Iterator[Endpoint | None]:
        """Open this machine's own server, for trust models that have two: a store for each study.

        Studies may run at the same time, and the store of a finished one may never be opened again: what is old is
        deleted from all of them.
        """
        if not setting.trust.helpers_needed:
            yield None
            return
        folder = self.file.state / "first-server"
        store = ServerStore(folder / study.name)
        for other in filter(Path.is_dir, folder.iterdir()):
            forget_old(other)
        with closing(store):
            yield Helper(
                COORDINATOR, randomness=SecureRandomness(), store=store, credentials=self.file.credentials
            )


def _explained(error: TooFewClients, refusals: dict[str, Refusal]) -> FederationError | Refused:
    """Return the error with who refused and why; a refusal, if all that answered refused by their rules."""
    who = _who_refused(refusals)
    text = (
        f"{error}{f' Refused: {who}.' if who else ''} Submit the study again under the same name when enough sites are "
        "there and willing: it goes on where it stopped."
    )
    by_rules = bool(refusals) and set(refusals.values()) <= {Refusal.POLICY, Refusal.BUDGET}
    return Refused(text) if by_rules else TooFewClients(text)


def _who_refused(refusals: dict[str, Refusal]) -> str:
    return ", ".join(f"{name} ({code})" for name, code in sorted(refusals.items()))


# --- the ServerApp ------------------------------------------------------------------------------------------


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study of the run configuration; its result goes to a file and, in parts, to the log."""
    try:
        study = FlowerStudy.from_config(context.run_config)
        _say(submission.line("started", study=study.name))
        coordinator = Coordinator(file=CoordinatorFile.of_this_machine())
        document, written = coordinator.release(study, grid, progress=_progress, warn=_warn)
    except FedassayError as error:
        _say(submission.line("failed", code=error.exit_code, message=str(error)))
        raise
    except Exception:
        _say(
            submission.line("failed", code=1, message="internal error; the SuperLink's log has the details.")
        )
        raise
    for text in submission.result_lines(document, path=str(written)):
        _say(text)


def _progress(leg: int, done: int, total: int) -> None:
    _say(submission.line("progress", leg=leg, done=done, total=total))


def _warn(message: str) -> None:
    _say(submission.line("warning", message=message))


def _say(text: str) -> None:
    print(text, flush=True)
