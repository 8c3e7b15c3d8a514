"""Cohorts that the server draws: how many, with which probability, and that nobody else's rows count."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fedassay.data.federation import load
from fedassay.errors import UsageError
from fedassay.kernel import envelope
from fedassay.kernel.client import Client
from fedassay.kernel.journal import FileJournal, Journal, MemoryJournal
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import All, Budget, Draw, Protection, Sample, Setting, Sum, TrustModel, Unit
from fedassay.runtimes.in_process.runtime import Aggregate, Faithful
from fedassay.summaries import CATALOGUE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import TRUST_MODELS
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from simulated_clients import open_site
from toys import TOY_SUMMARIES, CountsUpTo, Once, Surprise

CLIENTS = 5
NAMES = [f"client{i}" for i in range(CLIENTS)]
# Client i has one row of value i: a count says who was asked.
FEDERATION = load({"site": NAMES, "x": np.arange(CLIENTS)}, client="site", columns={"value": "x"})
WHO = CountsUpTo(top=CLIENTS - 1)


@dataclass(frozen=True, kw_only=True)
class Often:
    """The same query, so often."""

    query: Sum[Any]
    times: int

    def steps(self, setting: Setting) -> Any:
        found = []
        for _ in range(self.times):
            found.append((yield self.query))
        return found


def faithful(seed: int) -> Faithful:
    source = SimulatedRandomness(seed)
    return Faithful(
        Client(
            open_site(name, lambda name=name: FEDERATION.rows_of(name), source.child(name)),
            summaries={**CATALOGUE, **TOY_SUMMARIES},
        )
        for name in NAMES
    )


def aggregate(seed: int) -> Aggregate:
    return Aggregate(FEDERATION, randomness=SimulatedRandomness(seed), split_key=bytes(32))


MODES: dict[str, Callable[[int], Any]] = {"faithful": faithful, "aggregate": aggregate}
each_mode = pytest.mark.parametrize("mode", sorted(MODES))


def go(
    task: Any,
    *,
    mode: str = "aggregate",
    trust: TrustModel | None = None,
    seed: int = 1,
    journal: Journal | None = None,
    randomness: Any = None,
    runtime: Any = None,
) -> Any:
    trust = trust or Plain()
    budget = Budget(epsilon=1.0, delta=1e-6) if trust.private else None
    protection = Protection(unit=Unit.CLIENT, rows_per_client=1) if trust.private else Protection()
    setting = Setting(trust=trust, protection=protection, budget=budget, clients=CLIENTS)
    return run(
        [Job(name="one", task=task, setting=setting)],
        runtime=runtime or MODES[mode](seed),
        ledger=MemoryLedger(budget),
        randomness=randomness or SimulatedRandomness(seed),
        study="drawn",
        journal=journal,
    )["one"]


def drawn(clients: int, times: int) -> Often:
    return Often(query=Sum(of=WHO, cohort=Draw(clients=clients), share=1 / (times + 1)), times=times)


# --- how many and who --------------------------------------------------------------------------------------


@each_mode
@pytest.mark.parametrize("clients", [1, 3, CLIENTS])
def test_so_many_different_clients_are_drawn_and_only_they_are_summed(mode: str, clients: int) -> None:
    found = go(drawn(clients, 20), mode=mode)
    for released in found:
        assert set(released.value.tolist()) <= {0, 1}  # nobody twice
        assert released.value.sum() == clients
        assert released.clients == clients
    if clients < CLIENTS:
        assert len({tuple(one.value.tolist()) for one in found}) > 1  # anew for every query


@each_mode
def test_both_modes_draw_the_same(mode: str) -> None:
    found = [one.value.tolist() for one in go(drawn(2, 8), mode=mode, seed=4)]
    assert found == [one.value.tolist() for one in go(drawn(2, 8), mode="faithful", seed=4)]


def test_only_those_who_were_drawn_are_asked_and_remember() -> None:
    """Rounds that clients remember: as many as they were drawn for, in either mode."""
    rounds = {}
    for mode in MODES:
        query = Sum(of=Surprise(guess=0), cohort=Draw(clients=2), share=0.1)
        rounds[mode] = [one.value[1] for one in go(Often(query=query, times=9), mode=mode, seed=2)]
    assert rounds["faithful"] == rounds["aggregate"]
    assert rounds["faithful"][0] == 2  # two clients, each in its first round
    assert max(rounds["faithful"]) > 2
    runtime = faithful(3)
    ask, asked = runtime.ask, []

    def noting(to: Any, requests: Any, leg: int) -> Any:
        asked.append(sorted(requests))
        return ask(to, requests, leg)

    runtime.ask = noting  # type: ignore[method-assign]
    found = go(drawn(2, 9), runtime=runtime)
    assert asked == [[NAMES[i] for i in np.flatnonzero(one.value)] for one in found]


def test_under_a_secure_sum() -> None:
    for released in go(drawn(3, 3), mode="faithful", trust=SecureSum()):
        assert sorted(released.value.tolist()) == [0, 0, 1, 1, 1]
        assert released.clients == 3


def surprise(found: list[Any], size: int) -> float:
    """Pearson's statistic of how often each set was drawn."""
    sets = list(itertools.combinations(range(CLIENTS), size))
    counts = dict.fromkeys(sets, 0)
    for released in found:
        counts[tuple(np.flatnonzero(released.value).tolist())] += 1
    expected = len(found) / len(sets)
    return sum((count - expected) ** 2 / expected for count in counts.values())


class Favours(SimulatedRandomness):
    """The first client's word is half of what it should be: it is drawn more often."""

    def words(self, count: int) -> Any:
        words = super().words(count)
        return np.concatenate([words[:1] // np.uint64(2), words[1:]])


def test_every_set_of_clients_is_as_probable_as_any_other() -> None:
    # Ten pairs, 600 draws: the statistic is chi-square with 9 degrees of freedom, beyond this once in a million.
    limit = chi2.isf(1e-6, 9)
    assert surprise(go(drawn(2, 600)), 2) < limit
    # A word of half the size is found out.
    assert surprise(go(drawn(2, 600), randomness=Favours(1)), 2) > limit


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [CLIENTS + 1, 100])
def test_more_clients_than_there_are_are_refused(clients: int) -> None:
    with pytest.raises(
        UsageError, match=rf"participation: got {clients} of 5 clients in a round, expected 1 to 5"
    ):
        go(Once(query=Sum(of=WHO, cohort=Draw(clients=clients))))


def test_fewer_than_a_trust_model_needs_are_refused_before_anybody_is_asked() -> None:
    runtime = faithful(1)
    with pytest.raises(
        UsageError, match=r"participation: got 2 of 5 clients .* expected 3 to 5 \(secure-sum\)"
    ):
        go(Once(query=Sum(of=WHO, cohort=Draw(clients=2))), trust=SecureSum(), runtime=runtime)
    assert runtime.traffic.rounds == 0
    for clients in (0, -1):
        with pytest.raises(UsageError, match=f"participation: got {clients} clients, expected at least 1"):
            Draw(clients=clients)


@pytest.mark.parametrize("name", sorted(name for name, model in TRUST_MODELS.items() if model.private))
def test_no_private_trust_model_takes_a_cohort_that_the_server_draws(name: str) -> None:
    journal = MemoryJournal()
    of = ScoreHistogram(transform="uniform", height=3, widths=(1,))
    with pytest.raises(UsageError, match="no cohort that the server draws"):
        go(Once(query=Sum(of=of, cohort=Draw(clients=3))), trust=TRUST_MODELS[name](), journal=journal)
    assert not journal.entries()


# --- journals ----------------------------------------------------------------------------------------------


class Crash(Exception):
    """The server dies."""


@pytest.mark.parametrize("dies_in", range(5))
def test_a_replayed_journal_asks_the_same_clients(dies_in: int, tmp_path: Path) -> None:
    """With other random numbers: who was drawn is recorded before anybody is asked."""
    expected = [one.value.tolist() for one in go(drawn(2, 5), mode="faithful", seed=6)]
    runtime, path = faithful(6), tmp_path / "journal"
    ask, calls = runtime.ask, itertools.count()

    def dying(*arguments: Any) -> Any:
        replies = ask(*arguments)
        if next(calls) == dies_in:
            raise Crash
        return replies

    runtime.ask = dying  # type: ignore[method-assign]
    first = FileJournal(path)
    with pytest.raises(Crash):
        go(drawn(2, 5), runtime=runtime, seed=6, journal=first)
    first.close()
    second = FileJournal(path)
    begun = [entry["cohort"] for entry in second.entries() if entry["kind"] == "begun"]
    assert len(begun) == dies_in + 1
    found = [one.value.tolist() for one in go(drawn(2, 5), runtime=runtime, seed=99, journal=second)]
    assert found[: dies_in + 1] == expected[: dies_in + 1]
    again = [entry["cohort"] for entry in second.entries() if entry["kind"] == "begun"]
    assert again[: dies_in + 1] == begun
    assert [[NAMES[i] for i in np.flatnonzero(one)] for one in found] == again
    assert second.answered(len(NAMES)) == len(NAMES)  # who was not drawn is not missing
    second.close()


def test_a_cohort_is_no_part_of_what_clients_are_told() -> None:
    """The envelope of a drawn query is that of a query for everybody: who else is asked is the server's business."""
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=CLIENTS)
    plans = [
        Plain().plan(Sum(of=WHO, cohort=cohort), setting)
        for cohort in (All(), Draw(clients=2), Draw(clients=3), Sample(rate=0.5))
    ]
    described = [envelope.describe_plan(plan) for plan in plans]
    assert described[0] == described[1] == described[2] != described[3]
    digests = []
    for clients in (2, 3):
        journal = MemoryJournal()
        go(drawn(clients, 1), journal=journal)
        digests.append(next(entry["queries"] for entry in journal.entries() if entry["kind"] == "begun"))
    assert digests[0] == digests[1]


def test_queries_of_two_cohorts_in_one_step_are_two_exchanges() -> None:
    class Both:
        def steps(self, setting: Setting) -> Any:
            asked = [
                Sum(of=WHO, share=0.2, cohort=cohort) for cohort in (Draw(clients=2), All(), Draw(clients=2))
            ]
            first, everybody, second = yield tuple(asked)
            return first, everybody, second

    first, everybody, second = go(Both())
    assert everybody.value.tolist() == [1] * CLIENTS
    assert (everybody.clients, first.clients) == (CLIENTS, 2)
    assert first.value.tolist() == second.value.tolist()  # one step, one cohort


ENTRIES: list[dict[str, Any]] = [
    {"kind": "begun", "key": "0/a", "cohort": None},
    {"kind": "heard", "key": "0/a", "leg": 0, "from": ["x"]},
    {"kind": "heard", "key": "0/a", "leg": 1, "from": ["y"]},
    {"kind": "begun", "key": "0/b", "cohort": ["x"]},
    {"kind": "heard", "key": "0/b", "leg": 0, "from": ["z"]},
    {"kind": "heard", "key": "0/b", "leg": 0, "from": ["later"]},
    {"kind": "note", "text": "without a key"},
]


def written(journal: Journal) -> Journal:
    for entry in ENTRIES:
        journal.append(entry)
    return journal


@pytest.mark.parametrize("kept", ["memory", "file", "reopened"])
def test_entries_are_found_as_by_a_search_through_all(kept: str, tmp_path: Path) -> None:
    journal = written(MemoryJournal() if kept == "memory" else FileJournal(tmp_path / "journal"))
    if kept == "reopened":
        journal.close()  # type: ignore[attr-defined]
        journal = FileJournal(tmp_path / "journal")
    assert journal.entries() == ENTRIES
    for kind in ("begun", "heard", "note", "released"):
        for key in ({}, {"key": "0/a"}, {"key": "0/b"}, {"key": "1/a"}, {"key": None}):
            for more in ({}, {"leg": 0}, {"leg": 1}):
                wanted = {"kind": kind, **key, **more}
                expected = next(
                    (one for one in ENTRIES if all(one.get(k) == v for k, v in wanted.items())), None
                )
                assert journal.find(kind, **key, **more) == expected


def test_an_entry_is_found_without_a_search_through_all() -> None:
    """A thousand rounds ask several times each: looking at every entry would take as many squared."""

    class Untouchable(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("a search through all entries")

    journal = written(MemoryJournal())
    journal._entries = Untouchable()
    assert journal.find("heard", key="0/b", leg=0) == ENTRIES[4]
    assert journal.find("heard", key="0/c", leg=0) is None
    with pytest.raises(AssertionError, match="a search"):
        journal.find("note")


def test_what_is_handed_out_cannot_change_a_journal() -> None:
    journal = written(MemoryJournal())
    journal.entries().clear()
    assert len(journal.entries()) == len(ENTRIES)
