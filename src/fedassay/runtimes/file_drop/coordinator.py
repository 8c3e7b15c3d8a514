"""The coordinator's calls: announce a study by files, go on with it, and report what is missing on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedassay.crypto.identity import Identity, key_from_text
from fedassay.crypto.prekeys import Prekey
from fedassay.errors import TooFewClients, UsageError
from fedassay.kernel import publication
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.run import FEDERATION
from fedassay.kernel.sites import read_toml
from fedassay.privacy.ledger.charges import Ledger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.card import FileDrop
from fedassay.runtimes.file_drop.participant import announcement_fingerprint
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.file_drop.study import Announcement, FileDropStudy
from fedassay.runtimes.released import Proposal, StudyRun, release
from fedassay.tasks.card import TASKS

Say = Callable[[str], None]


def carry(parameters: FileDrop, study: StudyRun) -> Result | None:
    """Announce the study, or go on with it; its result, or None while replies are missing."""
    require_folder(parameters.drop)
    coordinator = FileCoordinator(
        drop=parameters.drop,
        home=parameters.home,
        identity=Identity.load(parameters.key),
        roster=parameters.roster,
        say=study.say,
        again=study.again,
        close=study.options.close,
        before=study.require_affordable,
        name=study.name,
    )
    return coordinator.call(study, lambda: study.ledger, dataset=study.dataset)


@dataclass(frozen=True, kw_only=True)
class FileCoordinator:
    """Coordinator that runs a study by files, one call after the other.

    Parameters
    ----------
    drop, home : the folder that carries the files, and the coordinator's own.
    roster : the file with the sites' names and public keys; None if the study was announced before.
    say, again : tells the person at the terminal, and the command that goes on.
    close : go on without the sites that have not answered the open pass.
    profile : the profile given in this call: a study keeps the one that it began with.
    before : called with the number of sites before anything is announced; it may refuse.
    name : required name of the announced study; None for any.
    """

    drop: Path
    home: Path
    identity: Identity
    roster: Path | None
    say: Say
    again: str
    close: bool = False
    profile: Disclosure | None = None
    before: Callable[[int], None] | None = None
    name: str | None = None

    def call(
        self, proposal: Proposal | None, ledger: Callable[[], Ledger], *, dataset: str = FEDERATION
    ) -> Result | None:
        """Announce the study, or go on with it; its result, or None while replies are missing.

        Parameters
        ----------
        proposal : study to announce; None goes on with the announced study.
        ledger : opens the ledger once this process is alone with its folder.
        """
        with letters.locked(self.home):
            begun = self._opened_study(proposal)
            # A suffix makes the name of a study unlike all others.
            if self.name is not None and begun.announcement.study.rpartition("-")[0] != self.name:
                raise UsageError(
                    f"{self.drop}: holds the study {begun.announcement.study}, expected {self.name}; give each study a "
                    "drop of its own."
                )
            with closing(FileDropRuntime(begun, close=self.close)) as runtime:
                try:
                    result = self._result(begun, runtime, ledger(), dataset)
                    runtime.finish()
                except Waiting as waiting:
                    self._say_waiting(waiting, runtime)
                    return None
        self._say_refusals(runtime)
        return result

    def _opened_study(self, proposal: Proposal | None) -> FileDropStudy:
        """Open the study of this folder, announced now if there is none."""
        study = FileDropStudy.resume(self.drop, state=self.home, identity=self.identity)
        keys, cards = (None, {}) if self.roster is None else read_roster(self.roster, self.identity)
        if study is not None:
            if proposal is not None:
                _require_same(proposal, study.announcement)
            if keys is not None and keys != study.announcement.roster:
                raise UsageError(
                    f"{self.roster}: is not the roster of the study in {self.drop}; leave it out."
                )
            study.keep_cards(cards)
            return study
        if proposal is None or keys is None:
            raise UsageError(
                f"{self.drop}: holds no study yet; the first call needs a task and the sites: "
                f"fedassay aggregate {self.drop} {next(iter(TASKS))} --key KEY --roster roster.toml"
            )
        if self.before is not None:
            self.before(len(keys))
        # What cannot be answered, or published, is refused before anything is written.
        first = proposal.agenda.rehearse(proposal.setting(len(keys)))
        if self.profile is not None:
            publication.require(self.profile, proposal.trust, first)
        study = FileDropStudy.begin(
            self.drop,
            state=self.home,
            identity=self.identity,
            proposal=proposal,
            roster=keys,
            cards=cards,
            randomness=SecureRandomness(),
        )
        self._say_announced(study)
        return study

    def _result(self, study: FileDropStudy, runtime: FileDropRuntime, ledger: Ledger, dataset: str) -> Result:
        """Run the study as far as its replies allow: its result, or `Waiting`."""
        announced = study.announcement
        with closing(FileJournal(study.home / "journal")) as journal:
            if self.profile is not None:
                publication.settled(journal, self.profile)
            begun = _first_time(journal, "opened")
            try:
                return release(
                    announced.study,
                    announced.agenda,
                    announced.setting,
                    runtime=runtime,
                    ledger=ledger,
                    dataset=dataset,
                    journal=journal,
                    seconds=lambda: _first_time(journal, "ended") - begun,
                    profile=publication.profile_of(journal),
                )
            except TooFewClients as error:
                raise TooFewClients(f"{error} {_how_to_go_on(runtime)}") from error

    def _say_announced(self, study: FileDropStudy) -> None:
        announcement = study.announcement
        self.say(f"Announced the study {announcement.study} to {', '.join(announcement.roster)}.")
        self.say(f"Fingerprint of the announcement: {announcement_fingerprint(announcement)}")
        attendance = announcement.trust.attendance(len(announcement.roster))
        if attendance:
            self.say(attendance)
        self.say(f"Private state, to be kept until the result is there: {study.home}")

    def _say_waiting(self, state: Waiting, runtime: FileDropRuntime) -> None:
        self._say_refusals(runtime)
        total = len(state.answered) + len(state.missing)
        answered = f" (answered: {', '.join(state.answered)})" if state.answered else ""
        self.say(
            f"Pass {state.number}: {len(state.answered)} of {total} replies are there{answered}; waiting for "
            f"{', '.join(state.missing)}."
        )
        self.say(
            f"Next: bring {self.drop} to these sites; each runs `fedassay contribute DROP --site site.toml`. "
            f"Then run here `{self.again}`; with --close it goes on without those who are missing."
        )

    def _say_refusals(self, runtime: FileDropRuntime) -> None:
        """Name the files and sites that do not count."""
        for note in runtime.notes:
            self.say(f"Refused: {note}")
        for name, code in runtime.refusals.items():
            self.say(f"{name} did not answer: {code}.")


def _require_same(proposal: Proposal, announced: Announcement) -> None:
    """Refuse options that differ from what was announced: a study cannot change."""
    mine = (proposal.agenda, proposal.trust, proposal.protection, proposal.budget)
    theirs = (announced.agenda, announced.trust, announced.protection, announced.budget)
    if mine != theirs:
        raise UsageError(
            f"study {announced.study}: it was announced with other options, and they cannot change; leave "
            "the task and its options out, or begin a new study in another folder."
        )


def read_roster(path: Path, identity: Identity) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Read the sites of a roster file, a section [roster] of names and cards: public keys, and prekeys."""
    content = read_toml(path)
    if set(content) != {"roster"} or not isinstance(content["roster"], dict):
        raise UsageError(f"{path}: expected one section, [roster], with names and public keys.")
    keys = {name: key_from_text(text, whose=name) for name, text in content["roster"].items()}
    if keys.pop(COORDINATOR, identity.public) != identity.public:
        raise UsageError(
            f"{path}: the key of {COORDINATOR} is not the one given as --key; correct one of them."
        )
    if identity.public in keys.values():
        raise UsageError(f"{path}: a site has the key of the coordinator; each needs its own.")
    cards = {
        name: Prekey.from_text(text.partition(" ")[2], whose=name).packed()
        for name, text in content["roster"].items()
        if name in keys and " " in text
    }
    return keys, cards


def require_folder(drop: Path) -> None:
    """Refuse what is no folder."""
    if not drop.is_dir():
        raise UsageError(f"{drop}: is not a folder; create it, or mount what carries the files.")


def _how_to_go_on(runtime: FileDropRuntime) -> str:
    """Describe what to do when too few have answered: the pass is still open."""
    refused = [f"{name} ({code})" for name, code in sorted(runtime.refusals.items())]
    who = f"Refused: {', '.join(refused)}. " if refused else ""
    return (
        f"{who}The pass stays open for sites that have not replied; without them, begin a new study in another "
        "folder."
    )


def _first_time(journal: FileJournal, kind: str) -> float:
    """Return the time at which this was first noted: now, or in an earlier call."""
    noted = journal.find(kind)
    if noted is None:
        noted = {"kind": kind, "time": time.time()}
        journal.append(noted)
    return float(noted["time"])
