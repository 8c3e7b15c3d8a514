"""The contract of runtimes by files: each side is made anew for every pass, as separate commands would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime_contract import WholeContract
from scenarios import (
    HELPER,
    ROWS,
    SCENARIOS,
    SUMMARIES,
    TRUSTED,
    Outcome,
    Scenario,
    ToyRows,
    counts,
    in_plain_values,
)

from fedassay.crypto.identity import Credentials, Identity
from fedassay.errors import TooFewClients, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import Endpoint
from fedassay.kernel.helper import Helper
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.member_store import MemberStore
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Protection
from fedassay.runtimes.file_drop.participant import CheckedRequest, Participant
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.file_drop.study import FileDropStudy
from fedassay.runtimes.released import Proposal
from fedassay.trust.plain import Plain
from simulated_clients import open_site

SECURE = SecureRandomness()


class Village:
    """Parties that share a folder, with one study; the client `lost` never contributes."""

    def __init__(self, root: Path, job: Job, *, lost: str | None = None) -> None:
        self.root, self.job, self.lost = root, replace(job, label="evaluate"), lost
        self.identities = {name: Identity.draw(SECURE) for name in ("coordinator", HELPER, *ROWS)}
        self.endpoints: dict[str, Endpoint] = {name: self.client(name) for name in ROWS}
        self.endpoints[HELPER] = Helper(
            HELPER,
            randomness=SECURE,
            summaries=SUMMARIES,
            trust_models=TRUSTED,
            credentials=self.credentials(HELPER, *ROWS),
        )
        (root / "drop").mkdir(parents=True)
        self.ledger = MemoryLedger(None)
        self.study = FileDropStudy.begin(
            root / "drop",
            state=root / "state",
            identity=self.identities["coordinator"],
            proposal=Proposal(
                name="toys",
                agenda=Agenda.of("evaluate", {}),
                trust=job.setting.trust,
                protection=Protection(),
                budget=job.setting.budget,
            ),
            roster={name: self.identities[name].public for name in ROWS},
            helpers={HELPER: self.identities[HELPER].public}
            if job.setting.trust.name == "two-shares"
            else {},
            cards={
                name: MemberStore(root / name / "prekeys").card(self.credentials(name), SECURE).packed()
                for name in ROWS
            },
            randomness=SECURE,
        )

    def credentials(self, name: str, *believed: str) -> Credentials:
        roster = {one: self.identities[one].public for one in believed}
        return Credentials(identity=self.identities[name], roster=roster)

    def client(self, name: str) -> Client:
        site = open_site(
            name,
            lambda: ToyRows(ROWS[name]),
            SECURE,
            credentials=self.credentials(name, *ROWS),
            prekeys=MemberStore(self.root / name / "prekeys"),
        )
        return Client(site, summaries=SUMMARIES, trust_models=TRUSTED)

    def aggregate(self, *, close: bool = False, randomness: Any = SECURE) -> Any:
        study = FileDropStudy.resume(
            self.root / "drop",
            state=self.root / "state",
            identity=self.identities["coordinator"],
            trust_models=TRUSTED,
        )
        assert study is not None
        runtime, journal = FileDropRuntime(study, close=close), FileJournal(study.home / "journal")
        try:
            return run(
                [replace(self.job, setting=study.announcement.setting)],
                runtime=runtime,
                ledger=self.ledger,
                randomness=randomness,
                study=study.announcement.study,
                journal=journal,
            )[self.job.name]
        finally:
            runtime.close()
            journal.close()

    def contribute(self, name: str) -> bool:
        participant = Participant(
            drop=self.root / "drop",
            name=name,
            credentials=self.credentials(name, *self.identities),
            state=self.root / name,
            summaries=SUMMARIES,
            trust_models=TRUSTED,
        )
        asked = participant.asked()
        if not isinstance(asked, CheckedRequest) or asked.answered is not None:
            return False
        participant.send(asked, participant.answer(asked, self.endpoints[name]))
        return True

    def go(self) -> tuple[Any, int]:
        """The result, and how many passes it took."""
        for passes in range(100):
            try:
                return self.aggregate(close=self.lost is not None), passes
            except Waiting as waiting:
                missing = [name for name in waiting.missing if name != self.lost]
            assert missing
            assert [name for name in missing if self.contribute(name)] == missing
        raise AssertionError("the study does not end")


class TestFileDrop(WholeContract):
    """A study by files has one task: the tasks of a scenario are studies side by side.

    They take as many passes as the longest of them.
    """

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        return {one.name: by_files(one, folder / one.name) for one in scenarios}


def by_files(scenario: Scenario, folder: Path) -> Outcome:
    answers, passes = {}, 0
    try:
        for job in scenario.jobs:
            answer, taken = Village(folder / job.name, job, lost=scenario.lost).go()
            answers[job.name], passes = in_plain_values(answer), max(passes, taken)
    except TooFewClients:
        return Outcome(failed=True)
    return Outcome(answers=answers, rounds=passes)


@pytest.mark.parametrize("name", ["three-rounds-plain", "three-rounds-secure-sum", "three-rounds-two-shares"])
def test_a_finished_study_is_charged_once_and_says_the_same_again(tmp_path: Path, name: str) -> None:
    village = Village(tmp_path, SCENARIOS[name].jobs[0])
    story, _ = village.go()
    assert len(village.ledger.charges) == 3
    assert village.aggregate() == story


def test_a_seed_is_refused(tmp_path: Path) -> None:
    village = Village(tmp_path, counts(Plain()))
    with pytest.raises(UsageError, match="leave the seed out"):
        village.aggregate(randomness=SimulatedRandomness(1))
