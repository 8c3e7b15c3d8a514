"""Tracer tests in this process: what a run refuses, records and repeats, through serialised bytes.

That every shape of task gives the right answer is in the contract of runtimes, `tests/runtimes/contract.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.kernel.client import Client
from fedassay.kernel.helper import Helper
from fedassay.kernel.journal import FileJournal, MemoryJournal
from fedassay.kernel.run import Errand, Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Collect, Part, Protection, Select, Setting, Sum, TrustModel
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust import TRUST_MODELS
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from simulated_clients import open_site
from toys import (
    TOY_SUMMARIES,
    CountsUpTo,
    InMemory,
    LargestValue,
    Once,
    Surprise,
    ThreeRounds,
    TwoShares,
    shared,
)

ROWS = {"a": (1, 2, 3), "b": (2, 2), "c": (5, 0, 1, 2), "d": (3,)}
TRUSTED = {**TRUST_MODELS, TwoShares.name: TwoShares}
SUMMING = [Plain(), SecureSum(), TwoShares()]


@dataclass
class House:
    """A federation in this process, with everything the tests look at afterwards."""

    runtime: Faithful
    ledger: MemoryLedger
    clients: list[Client]


def house(rows: dict[str, tuple[int, ...]] = ROWS, **options: Any) -> House:
    source = SimulatedRandomness(7)
    clients = [
        Client(
            open_site(name, lambda values=values: InMemory(values), source.child(name)),
            summaries=TOY_SUMMARIES,
            trust_models=TRUSTED,
        )
        for name, values in rows.items()
    ]
    helper = Helper(
        "helper", randomness=source.child("helper"), summaries=TOY_SUMMARIES, trust_models=TRUSTED
    )
    return House(Faithful(clients, helpers=[helper], **options), MemoryLedger(None), clients)


def job(task: Any, trust: TrustModel, name: str = "task") -> Job:
    return Job(
        name=name,
        task=task,
        setting=Setting(trust=trust, protection=Protection(), budget=None, clients=len(ROWS)),
    )


def go(place: House, *jobs: Job, **options: Any) -> dict[str, Any]:
    return run(
        shared(jobs),
        runtime=place.runtime,
        ledger=place.ledger,
        randomness=SimulatedRandomness(1),
        study="tracer",
        **options,
    )


@pytest.mark.parametrize("trust", [SecureSum(), TwoShares()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("kind", [Collect, Select])
def test_an_unsupported_cell_is_refused_before_a_row_is_read(trust: TrustModel, kind: Any) -> None:
    place = house()
    with pytest.raises(UnsupportedQuery):
        go(place, job(Once(query=kind(of=LargestValue())), trust))
    assert place.runtime.traffic.rounds == 0
    assert not place.ledger.charges


def test_a_sampled_cohort_asks_only_its_members() -> None:
    rows = {f"client{i}": (i, i + 1) for i in range(40)}
    place = house(rows)
    go(place, job(ThreeRounds(rate=0.5), Plain()))
    rounds = [len(client.store.conversations) for client in place.clients]
    assert set(rounds) == {0, 1, 2, 3}
    assert 30 < sum(rounds) < 90  # Binomial(120, 1/2): five standard deviations are 27


def test_one_task_may_ask_several_things_at_once() -> None:
    class Both:
        def steps(self, setting: Setting) -> Any:
            fit, held_out = yield (
                Sum(of=CountsUpTo(top=4), part=Part.FIT),
                Sum(of=CountsUpTo(top=4), part=Part.HELD_OUT),
            )
            return fit.value + held_out.value

    place = house()
    assert go(place, job(Both(), SecureSum()))["task"].tolist() == [1, 2, 4, 2, 1]
    assert place.runtime.traffic.rounds == 2


def test_a_task_cannot_overspend_its_budget() -> None:
    class Greedy:
        def steps(self, setting: Setting) -> Any:
            yield Sum(of=CountsUpTo(top=1), share=0.7)
            yield Sum(of=CountsUpTo(top=1), share=0.4, part=Part.FIT)

    with pytest.raises(UsageError, match=r"1\.1 of the budget"):
        go(house(), job(Greedy(), Plain()))


class Crash(Exception):
    """The server dies."""


@pytest.mark.parametrize("trust", SUMMING, ids=lambda trust: trust.name)
@pytest.mark.parametrize("dies_in_round", range(6))
def test_replay_after_a_crash_asks_and_spends_nothing_twice(
    trust: TrustModel, dies_in_round: int, tmp_path: Any
) -> None:
    expected = go(house(), job(ThreeRounds(), trust))["task"]
    place = house()
    ask, answered = place.runtime.ask, [0]

    def dying(to: Any, requests: Any, leg: int) -> Any:
        replies = list(ask(to, requests, leg))  # the clients have answered, and then the server dies
        answered[0] += 1
        if answered[0] == dies_in_round + 1:
            raise Crash
        return replies

    place.runtime.ask = dying  # type: ignore[method-assign]
    path = tmp_path / "journal"
    try:
        first = go(place, job(ThreeRounds(), trust), journal=FileJournal(path))["task"]
        assert first == expected
        return  # this trust model needs fewer rounds than that
    except Crash:
        pass
    second = go(place, job(ThreeRounds(), trust), journal=FileJournal(path))["task"]
    assert second == expected  # the clients' memories did not advance twice
    assert len(place.ledger.charges) == 3
    assert all(len(client.site.ledger.charges) == 3 for client in place.clients)  # type: ignore[attr-defined]
    third = go(place, job(ThreeRounds(), trust), journal=FileJournal(path))["task"]
    assert third == expected


def test_a_cut_journal_goes_on_and_a_changed_one_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "journal"
    place = house()
    go(place, job(ThreeRounds(), Plain()), journal=FileJournal(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert len(FileJournal(path).entries()) == 8  # three entries a step, the last one lost
    for place in (0, 3, 7, 20, 60, 100, len(whole) // 2, len(whole) - 1):  # lengths, checks and bytes
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ProtocolError, match="has been changed"):
            FileJournal(path)


def test_a_journal_belongs_to_one_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that went on from the same journal would draw two noises for one charge."""
    monkeypatch.setattr("fedassay.protocol.files.PATIENCE", 0.1)
    first = FileJournal(tmp_path / "journal")
    with pytest.raises(UsageError, match="another process"):
        FileJournal(tmp_path / "journal")
    first.close()
    FileJournal(tmp_path / "journal").close()


def test_a_journal_of_another_run_is_refused() -> None:
    journal = MemoryJournal()
    go(house(), job(Once(query=Sum(of=CountsUpTo(top=4))), Plain()), journal=journal)
    with pytest.raises(ProtocolError, match="asked something else"):
        go(house(), job(Once(query=Sum(of=CountsUpTo(top=3))), Plain()), journal=journal)


def test_a_lost_helper_fails_loudly() -> None:
    place = house(drops=lambda name, leg: name == "helper")
    with pytest.raises(TooFewClients):
        go(place, job(Once(query=Sum(of=CountsUpTo(top=4))), TwoShares()))


def test_a_seed_cannot_reach_a_release() -> None:
    class Release(Faithful):
        @property
        def simulated(self) -> bool:
            return False

        def carry(self, errand: Errand) -> Any:
            return super().carry(errand)

    place = house()
    release = Release(place.clients)
    one = job(Once(query=Sum(of=CountsUpTo(top=4))), Plain())
    with pytest.raises(UsageError, match="seed"):
        run([one], runtime=release, ledger=MemoryLedger(None), randomness=SimulatedRandomness(1), study="s")
    released = run(
        [one], runtime=release, ledger=MemoryLedger(None), randomness=SecureRandomness(), study="s"
    )["task"]
    assert released.value.tolist() == [1, 2, 4, 2, 1]


def test_the_surprise_summary_is_bounded_by_the_client() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Liar(Surprise):
        @property
        def largest(self) -> int:
            return 0

    place = house()
    for client in place.clients:
        client._summaries = {**TOY_SUMMARIES, "surprise": Liar}
    # Cut, not refused: a refusal would tell the server that something exceeded a bound of its choice.
    released = go(place, job(Once(query=Sum(of=Surprise(guess=0))), Plain()))
    assert not np.any(released["task"].value)
    assert not place.runtime.refusals


def test_what_is_learned_from_one_part_stays_out_of_answers_about_the_other() -> None:
    class Both:
        def steps(self, setting: Setting) -> Any:
            yield Sum(of=Surprise(guess=0), part=Part.FIT)
            yield Sum(of=Surprise(guess=0), part=Part.HELD_OUT)

    place = house()
    go(place, job(Both(), Plain()))
    for client in place.clients:
        assert {part for _, _, part in client.store.memories} == {Part.FIT, Part.HELD_OUT}


def test_every_byte_is_serialised() -> None:
    place = house()
    go(place, job(Once(query=Sum(of=CountsUpTo(top=4))), Plain()))
    traffic = place.runtime.traffic
    assert traffic.bytes_to_clients > 4 * 100
    assert traffic.bytes_from_clients > 4 * 5 * np.dtype(np.int64).itemsize
