"""Driver of tasks: queries of all tasks that wait are planned, charged and answered in one round trip.

The order is what protects people: every query is planned (an unsupported one is refused before a row is
read), then the journal records the exchange, then the ledger is charged, and only then does the first
message leave. A run that crashed is called again with the same journal.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from fedassay.crypto.prekeys import DAY
from fedassay.errors import ProtocolError, TooFewClients, UsageError
from fedassay.kernel import envelope, publication
from fedassay.kernel.journal import Journal, MemoryJournal
from fedassay.privacy.ledger.charges import Charge, Ledger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import require_secure
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    ATOMS,
    Cohort,
    Draw,
    Exchange,
    Message,
    Noise,
    Part,
    Plan,
    Points,
    Query,
    Randomness,
    Released,
    Sample,
    Setting,
    Step,
    Sum,
    Task,
    TrustModel,
)

FEDERATION = "federation"
"""Name of the rows of all clients in a coordinator's ledger, unless another is given."""

_DRAWS = 1000
"""Number of times that a cohort is drawn before the rate is reported as too small."""

DAYS_OPEN = 30
"""Days after the beginning of an exchange during which its members may be asked."""

Hear = Callable[[int, Sequence[str]], None]
"""Function that a runtime calls with a leg and who answered it, to be recorded."""


@dataclass(frozen=True, kw_only=True)
class Errand:
    """Exchange for a runtime to carry out."""

    study: str
    trust: TrustModel
    exchange: Exchange
    randomness: Randomness = field(repr=False)
    hear: Hear = field(repr=False)
    heard: Callable[[int], frozenset[str] | None] = field(default=lambda leg: None, repr=False)
    """Clients heard at a leg when this exchange was carried before; None if it was not, or did not come so far."""


class Runtime(Protocol):
    """Carrier of messages: in this process, by files, or on Flower."""

    simulated: bool
    """True if one process holds all rows, so that nothing is really protected."""
    clients: Sequence[str]
    """The names of all clients."""
    helpers: Sequence[str]
    """Names of the servers in addition to this one, the one on the same machine first; empty if there are none."""

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes] | None:
        """Return a prekey of each of these clients that has offered one, for one exchange; None if no messages pass."""

    def renewed(self, prekeys: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the prekeys of an exchange taken up again; fresh ones replace those of simulated clients now gone."""

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Carry one exchange out; one release of vectors per plan."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task with the setting that it runs in: its share of the budget, the rows that it fits on.

    Parameters
    ----------
    name : name under which its result is found; unlike that of other jobs.
    label : text that clients receive about the asker (`envelope.kind_of`); the name by default.
    after, informed : the job that must have ended before, and what makes the task from its result. Until then `task`
        stands for it: it asks for as much.
    """

    name: str
    task: Task[Any]
    setting: Setting
    label: str = ""
    after: str | None = None
    informed: Callable[[Any], Task[Any]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)

    def steps(self, results: Mapping[str, Any]) -> Generator[Step, Any, Any]:
        """Yield the steps of the task, given the results of the jobs that have ended."""
        informed = self.informed is not None and self.after is not None
        task = self.informed(results[self.after]) if informed else self.task  # type: ignore[misc,index]
        return task.steps(self.setting)


@dataclass(kw_only=True)
class _Running:
    """A task that has been started: its generator, and the step it waits for."""

    job: Job
    flow: Generator[Step, Any, Any]
    step: Step = ()

    def advance(self, answer: Any, results: dict[str, Any]) -> bool:
        """Go on to the next step, the first one without an answer; false, with the result noted, if it has ended."""
        try:
            self.step = self.flow.send(answer)
        except StopIteration as finished:
            results[self.job.name] = finished.value
            return False
        return True

    @property
    def queries(self) -> tuple[Query[Any], ...]:
        """Queries of this step, for the task's share of the budget and about its rows."""
        step = self.step if isinstance(self.step, tuple) else (self.step,)
        return tuple(self.job.setting.asked(query) for query in step)


@dataclass(kw_only=True)
class Purse:
    """The shares of one budget that queries have asked for: those about the same rows must not exceed 1.

    Rows of different atoms are different units, so their shares do not add up (`Part.atoms`).
    """

    spent: dict[Part, float] = field(default_factory=lambda: dict.fromkeys(ATOMS, 0.0))
    _kept: set[str] = field(default_factory=set)
    """Keys that servers keep and answer more points of, at no cost (`Points`)."""
    _composed: dict[Part, tuple[float, float]] = field(default_factory=dict)
    """Composition of the shares of each atom: the sampling that counts, and the share of each release under it."""

    def spend(self, task: str, plans: Sequence[Plan]) -> None:
        """Count the shares of these queries of a task, or raise if they are too many."""
        overspent = False
        for plan in plans:
            query = plan.query
            if isinstance(query, Points):
                if _kept(task, query) in self._kept:
                    continue
                self._kept.add(_kept(task, query))
            for atom in query.part.atoms:
                # In addition to a whole share there is nothing left, not even what rounding could explain.
                allowed = 1.0 if 1.0 in (query.share, self.spent[atom]) else 1 + 1e-9
                self.spent[atom] += query.share
                overspent = overspent or self.spent[atom] > allowed
                kind = (plan.sampled, query.share if plan.sampled < 1 else 0.0)
                if self._composed.setdefault(atom, kind) != kind:
                    raise UsageError(
                        f"task {task}: queries are sampled differently, so that their shares of the budget do not add "
                        "up; sample all of them alike, or none."
                    )
        if overspent:
            raise UsageError(
                f"task {task}: with its queries {max(self.spent.values()):.3g} of the budget are asked for, expected "
                "at most 1 in total."
            )


def run(
    jobs: Sequence[Job],
    *,
    runtime: Runtime,
    ledger: Ledger,
    randomness: Randomness,
    study: str,
    dataset: str = FEDERATION,
    journal: Journal | None = None,
    receipts: dict[str | bytes, Charge] | None = None,
    profile: Disclosure | None = None,
) -> dict[str, Any]:
    """Run the tasks in lockstep and return their results by name.

    Parameters
    ----------
    jobs : share one trust model, one protection and one budget; each begins as soon as the one has ended that it
        builds on.
    ledger : charged once per query, before its first message; may refuse.
    randomness : the server's. A runtime that is not a simulation refuses a seeded one.
    journal : give the journal of a crashed run to go on from where it stopped.
    receipts : mapping to which charges are added by id, in order, also those of an earlier call with this journal.
    profile : protects exact totals before they are recorded or read; what it cannot protect is not asked.
    """
    if not runtime.simulated:
        require_secure(randomness)
    _check_jobs(jobs)
    _check_helpers(jobs[0].setting.trust, runtime)
    driver = _Driver(
        runtime=runtime,
        ledger=ledger,
        randomness=randomness,
        study=study,
        dataset=dataset,
        journal=journal if journal is not None else MemoryJournal(),
        receipts={} if receipts is None else receipts,
        profile=profile,
    )
    results: dict[str, Any] = {}
    coming, waiting, number = list(jobs), list[_Running](), 0
    while coming or waiting:
        for job in [job for job in coming if job.after is None or job.after in results]:
            coming.remove(job)
            task = _Running(job=job, flow=job.steps(results))
            if task.advance(None, results):
                waiting.append(task)
        if waiting:
            answers = driver.answer(waiting, number)
            each = zip(waiting, answers, strict=True)
            waiting = [task for task, answer in each if task.advance(answer, results)]
            number += 1
    return results


def _check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse jobs that do not belong into one run."""
    names = [job.name for job in jobs]
    if not jobs or len(set(names)) != len(names) or len({job.setting.whole for job in jobs}) != 1:
        raise UsageError(
            "run: expected jobs with different names that share one trust model, one protection and one budget."
        )
    for place, job in enumerate(jobs):
        if job.after is not None and job.after not in names[:place]:
            raise UsageError(f"run: the job {job.name} builds on {job.after!r}, expected a job before it.")


def _check_helpers(trust: TrustModel, runtime: Runtime) -> None:
    if len(runtime.helpers) < trust.helpers_needed:
        raise UsageError(
            f"{trust.name}: it needs {trust.helpers_needed} servers, got {len(runtime.helpers)} on this runtime; "
            "name a second server (helper) in the coordinator's file, or use another trust model."
        )


def rehearse(task: Task[Any], setting: Setting) -> tuple[Query[Any], ...]:
    """Plan the first step of a task, as a run would before it reads a row; raise what it would raise.

    The queries of that step; none of a task that can tell, from what is public, that asking is of no use.
    """
    step = next(task.steps(setting), ())
    queries = step if isinstance(step, tuple) else (step,)
    for query in queries:
        setting.plan(query)
    return queries


@dataclass(frozen=True, kw_only=True)
class _Driver:
    runtime: Runtime
    ledger: Ledger
    randomness: Randomness
    study: str
    dataset: str
    journal: Journal
    receipts: dict[str | bytes, Charge] = field(repr=False)
    profile: Disclosure | None
    purse: Purse = field(default_factory=Purse)

    def answer(self, waiting: Sequence[_Running], number: int) -> list[Any]:
        """Answer one step of every waiting task: a `Released`, or a tuple of them, for each."""
        asked = [(task, query) for task in waiting for query in task.queries]
        plans = [task.job.setting.trust.plan(query, task.job.setting.whole) for task, query in asked]
        for task in waiting:
            mine = [plan for plan, (owner, _) in zip(plans, asked, strict=True) if owner is task]
            self.purse.spend(task.job.label, mine)
        released: list[Released[Any] | None] = [None] * len(asked)
        for i, (task, query) in enumerate(asked):
            if isinstance(query, Points):
                released[i] = self._answer_points(plans[i], query, task.job.label)
        together = [i for i, (_, query) in enumerate(asked) if not isinstance(query, Points)]
        for cohort in dict.fromkeys(asked[i][1].cohort for i in together):
            places = [i for i in together if asked[i][1].cohort == cohort]
            key, labels = f"{number}/{cohort}", tuple(asked[i][0].job.label for i in places)
            exchange = self._begin(tuple(plans[i] for i in places), labels, cohort=cohort, key=key)
            for place, answer in zip(places, self._released(exchange, key=key, heard_as=key), strict=True):
                released[place] = answer
        each = iter(released)
        return [
            tuple(next(each) for _ in task.queries) if isinstance(task.step, tuple) else next(each)
            for task in waiting
        ]

    def _answer_points(self, plan: Plan, query: Points[Any], task: str) -> Released[Any]:
        """Release more points of what the servers keep; the first time, clients are asked and the ledger is charged.

        The journal records answers by what was asked, not when: a run with the same journal may ask for other points
        than the one before, and gets those that were known already without asking.
        """
        kept = _kept(task, query)
        exchange = self._begin((plan,), (task,), cohort=query.cohort, key=kept)
        key = f"{kept}/{hashlib.sha256(wire.encode({'at': list(query.at)})).hexdigest()}"
        again = self.journal.find("continued", key=key)
        if again is None:
            legs = [entry["leg"] for entry in self.journal.entries("heard") if entry["key"] == kept]
            again = {"kind": "continued", "key": key, "leg": max(legs, default=-1) + 1}
            self.journal.append(again)
        (released,) = self._released(replace(exchange, first_leg=again["leg"]), key=key, heard_as=kept)
        return released

    def _released(self, exchange: Exchange, *, key: str, heard_as: str) -> list[Released[Any]]:
        """Return what is recorded for this key, or what the runtime brings back, charged for before."""
        plans, trust = exchange.plans, exchange.plans[0].setting.trust
        recorded = self.journal.find("released", key=key)
        charges = [
            # Clients, whose ids end otherwise, may share the ledger.
            Charge.of(
                plan,
                id=f"{exchange.id.hex()}/{i}/coordinator",
                dataset=self.dataset,
                study=self.study,
                task=task,
            )
            for i, (plan, task) in enumerate(zip(plans, exchange.tasks, strict=True))
        ]
        self.receipts.update({charge.id: charge for charge in charges})
        if recorded is None:
            if self.profile is not None:
                publication.require(self.profile, trust, (plan.query for plan in plans))
            self.ledger.charge(charges)
            released = self.runtime.carry(
                Errand(
                    study=self.study,
                    trust=trust,
                    exchange=exchange,
                    randomness=self.randomness,
                    hear=lambda leg, who: self._hear(heard_as, leg, who),
                    heard=lambda leg: self._heard(heard_as, leg),
                )
            )
            if self.profile is not None:
                released = publication.protected(self.profile, plans, released)
            recorded = {"kind": "released", "key": key, "values": [_to_message(one) for one in released]}
            self.journal.append(recorded)
        return [
            _read(plan, _from_message(value)) for plan, value in zip(plans, recorded["values"], strict=True)
        ]

    def _begin(
        self, plans: tuple[Plan, ...], tasks: tuple[str, ...], *, cohort: Cohort, key: str
    ) -> Exchange:
        begun, digest = self.journal.find("begun", key=key), _digest(plans, tasks)
        trust = plans[0].setting.trust
        if begun is None:
            begun = {
                "kind": "begun",
                "key": key,
                "queries": digest,
                # Hashed with its place in the run, so that even a repeated seed never repeats an identity.
                "exchange": hashlib.sha256(self.randomness.bytes(16) + key.encode()).digest()[:16],
                **self._whom(cohort, trust, plans[0].setting.clients),
            }
            self.journal.append(begun)
        elif (renewed := self.runtime.renewed(begun["prekeys"])) != begun["prekeys"]:
            begun = {**begun, "prekeys": renewed, "deadline": int(time.time()) + DAYS_OPEN * DAY}
        if begun["queries"] != digest:
            raise ProtocolError("journal: it belongs to a run that asked something else; use a new journal.")
        names = self.runtime.clients if begun["cohort"] is None else begun["cohort"]
        return Exchange(
            id=begun["exchange"],
            plans=plans,
            cohort=tuple(names),
            tasks=tasks,
            helpers=tuple(self.runtime.helpers),
            prekeys=begun["prekeys"],
            deadline=begun["deadline"],
        )

    def _whom(self, cohort: Cohort, trust: TrustModel, roster: int) -> Message:
        """Choose who is asked, as the journal keeps it: none of this may change when a run is taken up again.

        Where members are needed, those who have offered no prekey cannot be among them. Unless members are named, every
        client is a member, so that such a client is not in the cohort either: it is missing from the beginning.
        """
        asked = self._asked(cohort, trust)
        found: Message = {"cohort": asked, "drawn": asked is not None, "prekeys": {}, "deadline": 0}
        if trust.member_leg is None or self.runtime.prekeys(()) is None:
            return found
        members = trust.committee(self.runtime.clients)
        offered = self.runtime.prekeys(members) or {}
        missing = [name for name in members if name not in offered]
        names = self.runtime.clients if asked is None else asked
        if missing and trust.committee(()):
            raise TooFewClients(
                f"{trust.name}: there is no prekey of {', '.join(missing)}, who shall open the totals; expected one "
                "that is valid (`fedassay keys` prints a card with it)."
            )
        if missing:
            names = [name for name in names if name in offered]
            found["cohort"] = names
        trust.require_cohort(len(names), roster=roster, members=len(offered))
        found["prekeys"] = {name: offered[name] for name in members if name in offered}
        found["deadline"] = int(time.time()) + DAYS_OPEN * DAY
        return found

    def _asked(self, cohort: Cohort, trust: TrustModel) -> list[str] | None:
        """Return whom the server asks; None for all clients."""
        if isinstance(cohort, Draw):
            return self._draw(cohort.clients, trust)
        if isinstance(cohort, Sample) and not trust.clients_sample:
            return self._sample(cohort.rate, trust)
        return None

    def _draw(self, size: int, trust: TrustModel) -> list[str]:
        """Draw `size` clients, each set of them as probable as any other (up to ties of 64-bit words)."""
        names, least = self.runtime.clients, max(1, getattr(trust, "minimum_cohort", 1))
        if trust.private:
            raise UsageError(
                f"{trust.name}: it takes no cohort that the server draws; expected a sampling rate."
            )
        if not least <= size <= len(names):
            raise UsageError(
                f"participation: got {size} of {len(names):,} clients in a round, expected {least} to {len(names):,} "
                f"({trust.name}); change `participation`."
            )
        chosen = set(np.argsort(self.randomness.words(len(names)))[:size].tolist())
        return [name for place, name in enumerate(names) if place in chosen]

    def _sample(self, rate: float, trust: TrustModel) -> list[str]:
        """Draw a cohort, again if it is too small for the trust model: nothing is claimed for it."""
        names, least = self.runtime.clients, max(1, getattr(trust, "minimum_cohort", 1))
        for _ in range(_DRAWS):
            # P(word < rate·2^64) = rate up to 2^-64; the cohort is public, so no exactness is needed here.
            chosen = self.randomness.words(len(names)) < rate * 2.0**64
            if np.count_nonzero(chosen) >= least:
                return [name for name, is_in in zip(names, chosen, strict=True) if is_in]
        raise UsageError(
            f"participation: got {rate:.3g} of {len(names):,} clients, expected a rate that gives cohorts of at least "
            f"{least} now and then; ask for more."
        )

    def _heard(self, key: str, leg: int) -> frozenset[str] | None:
        heard = self.journal.find("heard", key=key, leg=leg)
        return None if heard is None else frozenset(heard["from"])

    def _hear(self, key: str, leg: int, who: Sequence[str]) -> None:
        if self._heard(key, leg) is None:
            self.journal.append({"kind": "heard", "key": key, "leg": leg, "from": sorted(who)})


def _kept(task: str, query: Points[Any]) -> str:
    """Return the name of the keys that servers hold: the same for all points of one summary."""
    described = {"of": envelope.describe(query.of), "share": query.share, "part": str(query.part)}
    return f"kept/{task}/{query.cohort}/{hashlib.sha256(wire.encode(described)).hexdigest()}"


def _digest(plans: Sequence[Plan], tasks: Sequence[str]) -> bytes:
    described = {
        "trust": envelope.describe(plans[0].setting.trust),
        "plans": [envelope.describe_plan(plan) for plan in plans],
        "tasks": list(tasks),
    }
    return hashlib.sha256(wire.encode(described)).digest()


def _read(plan: Plan, released: Released[Any]) -> Released[Any]:
    """Give the released vectors their meaning."""
    summary = plan.query.of
    if isinstance(plan.query, Points):
        return released
    if isinstance(plan.query, Sum):
        return released.with_value(summary.read(released.value))
    return released.with_value(tuple(summary.read(vector) for vector in released.value))


def _to_message(released: Released[Any]) -> Message:
    return {
        "value": list(released.value) if isinstance(released.value, tuple) else released.value,
        "noise": released.noise.to_message(),
        "clients": released.clients,
        "opening": released.opening,
    }


def _from_message(message: Message) -> Released[Any]:
    value = message["value"]
    return Released(
        value=tuple(value) if isinstance(value, list) else value,
        noise=Noise.from_message(message["noise"]),
        clients=message["clients"],
        opening=message["opening"],
    )
