"""The toys of the tracer tests by files: rounds with memory, tasks in lockstep, a helper, sampled cohorts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedassay.client import Client, Site
from fedassay.crypto.identity import Credentials, Identity
from fedassay.endpoint import Endpoint
from fedassay.errors import UsageError
from fedassay.helper import Helper
from fedassay.journal import FileJournal
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.policy import AllowAll
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol import Collect, Protection, Select, Sum, TrustModel
from fedassay.run import Job, run
from fedassay.runtimes.file_drop import Asked, FileDropRuntime, Participant, Study, Waiting
from fedassay.trust import TRUST_MODELS
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from toys import (
    TOY_SUMMARIES,
    CountsUpTo,
    DistanceToMedian,
    InMemory,
    LargestValue,
    Once,
    ThreeRounds,
    TwoShares,
)

ROWS = {"a": (1, 2, 3), "b": (2, 2), "c": (5, 0, 1, 2), "d": (3,)}
TRUSTED = {**TRUST_MODELS, TwoShares.name: TwoShares}
SECURE = SecureRandomness()


class Village:
    """Parties that share a folder; each side is made anew for every call, as separate commands would."""

    def __init__(self, root: Path, trust: TrustModel, task: Any) -> None:
        self.root, self.task = root, task
        self.identities = {name: Identity.draw(SECURE) for name in ("coordinator", "helper", *ROWS)}
        self.endpoints: dict[str, Endpoint] = {name: self.client(name) for name in ROWS}
        self.endpoints["helper"] = Helper(
            "helper", randomness=SECURE, summaries=TOY_SUMMARIES, trust_models=TRUSTED
        )
        (root / "drop").mkdir()
        self.ledger = MemoryLedger(None)
        self.study = Study.begin(
            root / "drop",
            state=root / "state",
            identity=self.identities["coordinator"],
            name="toys",
            task="task",
            parameters={},
            trust=trust,
            protection=Protection(),
            budget=None,
            roster={name: self.identities[name].public for name in ROWS},
            helpers={"helper": self.identities["helper"].public} if trust.name == "two-shares" else {},
            randomness=SECURE,
        )

    def client(self, name: str) -> Client:
        site = Site(
            name=name,
            dataset=name,
            rows=lambda: InMemory(ROWS[name]),
            policy=AllowAll(),
            ledger=MemoryLedger(None),
            randomness=SECURE,
            split_key=bytes(32),
        )
        return Client(site, summaries=TOY_SUMMARIES, trust_models=TRUSTED)

    def aggregate(self, *, close: bool = False, randomness: Any = SECURE) -> Any:
        study = Study.resume(
            self.root / "drop",
            state=self.root / "state",
            identity=self.identities["coordinator"],
            trust_models=TRUSTED,
        )
        assert study is not None
        runtime, journal = FileDropRuntime(study, close=close), FileJournal(study.home / "journal")
        try:
            return run(
                [Job(name="task", task=self.task, setting=study.announcement.setting)],
                runtime=runtime,
                ledger=self.ledger,
                randomness=randomness,
                study=study.announcement.study,
                journal=journal,
            )["task"]
        finally:
            runtime.close()
            journal.close()

    def contribute(self, name: str) -> bool:
        roster = {party: identity.public for party, identity in self.identities.items()}
        participant = Participant(
            drop=self.root / "drop",
            name=name,
            credentials=Credentials(identity=self.identities[name], roster=roster),
            state=self.root / name,
            summaries=TOY_SUMMARIES,
            trust_models=TRUSTED,
        )
        asked = participant.asked()
        if not isinstance(asked, Asked) or asked.answered is not None:
            return False
        participant.send(asked, participant.answer(asked, self.endpoints[name]), SECURE)
        return True

    def go(self) -> tuple[Any, int]:
        """The result, and how many passes it took."""
        for passes in range(100):
            try:
                return self.aggregate(), passes
            except Waiting as waiting:
                missing = waiting.missing
            assert missing
            assert [name for name in missing if self.contribute(name)] == list(missing)
        raise AssertionError("the study does not end")


@pytest.mark.parametrize(
    ("trust", "passes"), [(Plain(), 1), (SecureSum(), 4), (TwoShares(), 2)], ids=["plain", "secure", "shares"]
)
def test_a_sum_in_one_step(tmp_path: Path, trust: TrustModel, passes: int) -> None:
    released, taken = Village(tmp_path, trust, Once(query=Sum(of=CountsUpTo(top=4)))).go()
    assert released.value.tolist() == [1, 2, 4, 2, 1]
    assert released.clients == 4
    assert taken == passes


@pytest.mark.parametrize(
    ("trust", "passes"),
    [(Plain(), 3), (SecureSum(), 12), (TwoShares(), 6)],
    ids=["plain", "secure", "shares"],
)
def test_three_rounds_with_memory(tmp_path: Path, trust: TrustModel, passes: int) -> None:
    village = Village(tmp_path, trust, ThreeRounds())
    story, taken = village.go()
    guesses = [guess for guess, _, _ in story]
    above = [sum(value > guess for values in ROWS.values() for value in values) for guess in guesses]
    assert [new for _, new, _ in story] == [above[0], above[1] - above[0], above[2] - above[1]]
    assert [rounds for _, _, rounds in story] == [4, 8, 12]  # every client remembered its rounds, once
    assert taken == passes
    assert len(village.ledger.charges) == 3
    assert village.aggregate() == story


def test_a_collect_and_a_select(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    collected, _ = Village(tmp_path / "1", Plain(), Once(query=Collect(of=LargestValue()))).go()
    assert sorted(collected.value) == [2, 3, 3, 5]
    query = Select(of=DistanceToMedian(candidates=(0, 2, 3)))
    selected, _ = Village(tmp_path / "2", Plain(), Once(query=query)).go()
    assert sorted(selected.value) == [2, 2, 2, 3]


def test_sampled_cohorts_stay_what_they_were(tmp_path: Path) -> None:
    """A pass asks only its cohort, drawn once; later passes count on from there."""
    village = Village(tmp_path, Plain(), ThreeRounds(rate=0.999))
    story, taken = village.go()
    assert taken == 3
    assert len(story) == 3


def test_a_seed_is_refused(tmp_path: Path) -> None:
    village = Village(tmp_path, Plain(), Once(query=Sum(of=CountsUpTo(top=4))))
    with pytest.raises(UsageError, match="leave the seed out"):
        village.aggregate(randomness=SimulatedRandomness(1))
