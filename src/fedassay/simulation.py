"""Simulated federations: any task, from data to a `Result`, in this process or on Flower's simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from fedassay.agenda import Agenda, Alone, Run
from fedassay.client import Client, Site
from fedassay.data.federation import Federation, load
from fedassay.data.holdings import Holdings
from fedassay.data.partition import Partition
from fedassay.data.split import HELD_OUT
from fedassay.envelope import Refusal
from fedassay.errors import FederationError, Refused, TooFewClients, UsageError
from fedassay.helper import Helper
from fedassay.journal import Journal, MemoryJournal
from fedassay.privacy.disclosure import Disclosure
from fedassay.privacy.ledger import Charge, Ledger, MemoryLedger
from fedassay.privacy.policy import AllowAll, Policy
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.privacy.records import MemoryRecords
from fedassay.protocol import Budget, Protection, Rows, Setting, Sum, TrustModel
from fedassay.result import Result, describe_cohort, describe_privacy
from fedassay.run import run
from fedassay.runtimes import disclosed
from fedassay.runtimes.in_process import SERVERS, Aggregate, Faithful, Progress, require_sum

Mode = Literal["auto", "faithful", "aggregate"]
Carrier = Literal["in-process", "flower"]
T = TypeVar("T")

LARGEST_FAITHFUL = 250
"""With more clients than this, mode "auto" draws totals in aggregate."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """How a federation is simulated.

    Parameters
    ----------
    seed : makes a simulation repeatable. A release never takes one.
    mode : `faithful` passes every client's own message through bytes; `aggregate` draws the total from
        the same law; `auto` is faithful up to 250 clients, and wherever single clients are asked.
    held_out : the share of the units that tasks which fit something keep to judge it.
    split_key : decides which units are held out; made from the seed, or drawn, if it is not given.
    policy : what every client allows; None if everything is, as nothing is really released.
    asker : the public key that clients are to take for that of whoever asks; nobody signs in a simulation.
    disclosure : what is done to exact totals before anything is computed from them.
    again : above 0 for a run that goes on with what another has begun: all of it, clients included, then draws anew, as
        noise of releases before and after the break must have nothing to do with each other.
    """

    seed: int | None = None
    mode: Mode = "auto"
    carrier: Carrier = "in-process"
    held_out: float = HELD_OUT
    split_key: bytes | None = field(default=None, repr=False)
    progress: Progress | None = field(default=None, repr=False)
    policy: Policy | None = None
    asker: str | None = None
    disclosure: Disclosure | None = None
    again: int = 0

    def __post_init__(self) -> None:
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed: got {self.seed}, expected a whole number of at least 0.")
        if self.carrier == "flower" and self.mode == "aggregate":
            raise UsageError("mode aggregate: Flower passes every message; use the in-process runtime.")
        if self.policy is not None and (self.carrier == "flower" or self.mode == "aggregate"):
            raise UsageError(
                "policy: only the faithful mode of the in-process runtime has clients that remember what they have "
                "allowed; leave out --runtime flower and --mode aggregate."
            )
        if not 0 < self.held_out < 1:
            raise UsageError(f"holdout: got {self.held_out:.3g}, expected a number between 0 and 1.")

    def randomness(self) -> SecureRandomness | SimulatedRandomness:
        """The source of all randomness of this simulation."""
        if self.seed is None:
            return SecureRandomness()
        source = SimulatedRandomness(self.seed)
        return source if not self.again else source.child(f"again/{self.again}")

    def key_of_split(self) -> bytes:
        """The key that decides which units are held out; the same for a run that goes on."""
        if self.split_key is not None:
            return self.split_key
        return replace(self, again=0).randomness().child("split").bytes(32)

    def carry(
        self, federation: Federation, body: Callable[[Any], T], *, two_servers: bool, single: bool = False
    ) -> T:
        """Call `body` with a runtime for these clients, as long as it lives; `single`: they are asked one by one."""
        if self.carrier == "in-process":
            faithful = single and self.mode == "auto"
            return body((replace(self, mode="faithful") if faithful else self).runtime(federation))
        from fedassay.runtimes import flower  # an extra, imported only if asked for

        flower.require("flwr", "ray")
        from fedassay.runtimes.flower.simulation import simulate_federation

        return simulate_federation(
            federation,
            body,
            randomness=self.randomness(),
            split_key=self.key_of_split(),
            held_out=self.held_out,
            two_servers=two_servers,
            progress=self.progress,
        )

    def runtime(self, federation: Federation) -> Faithful | Aggregate:
        """The in-process runtime for these clients."""
        randomness = self.randomness()
        split_key = self.key_of_split()
        many = federation.client_count > LARGEST_FAITHFUL and self.policy is None
        if self.mode == "aggregate" or (self.mode == "auto" and many):
            return Aggregate(
                federation,
                randomness=randomness.child("limit"),
                split_key=split_key,
                held_out=self.held_out,
            )

        def site(name: str, count: int) -> Site:
            def rows() -> Rows:
                return federation.rows_of(name)

            return Site(
                name=name,
                dataset=name,
                rows=rows,
                policy=AllowAll() if self.policy is None else self.policy,
                ledger=MemoryLedger(None, allow_exact=True),
                randomness=randomness.child(f"client/{name}"),
                split_key=split_key,
                held_out=self.held_out,
                holdings=lambda: Holdings(rows=count),
                records=None if self.policy is None else MemoryRecords(),
            )

        counts = federation.rows_per_client.tolist()
        clients = (Client(site(*one)) for one in zip(federation.clients, counts, strict=True))
        helpers = [Helper(name, randomness=randomness.child(f"helper/{name}")) for name in SERVERS]
        return Faithful(clients, helpers=helpers, progress=self.progress, asker=self.asker)


def simulate(
    agenda: Agenda | Alone,
    data: Any,
    *,
    columns: Mapping[str, str],
    client: str | Partition | None,
    trust: TrustModel,
    budget: Budget | None,
    protection: Protection,
    parameters: Mapping[str, Any],
    simulation: Simulation,
    name: str | None = None,
    journal: Journal | None = None,
    ledger: Ledger | None = None,
    dataset: str = "federation",
    before: Callable[[Setting], None] | None = None,
) -> Result:
    """Run any tasks over simulated clients; the same for all of them.

    Parameters
    ----------
    name : of the study that clients and ledgers are told; that of the task, if nothing is said.
    journal : one that lasts lets a simulation that broke off go on; then nothing is asked, and charged, twice.
    ledger, dataset : where to record what is spent, and under which name; None keeps it in memory.
    before : called with the setting when everything is known that is public, and nobody was asked: it may refuse.
    """
    started = time.perf_counter()
    # What can be refused without looking at the data is refused before they are opened.
    likely = trust.with_one_row_each(protection) if client is None else protection
    first = agenda.rehearse(Setting(trust=trust, protection=likely, budget=budget, clients=0))
    profile = simulation.disclosure
    if profile is not None:
        disclosed.require(profile, trust, first)
    if simulation.mode == "aggregate":
        for query in first:
            require_sum(query)
    federation = load(data, client=client, columns=columns)
    protection = trust.with_one_row_each(protection) if federation.one_row_each else protection
    setting = Setting(trust=trust, protection=protection, budget=budget, clients=federation.client_count)
    if before is not None:
        before(setting)
    kept = MemoryJournal() if journal is None else journal
    receipts: dict[str | bytes, Charge] = {}
    simulation = replace(simulation, again=len(kept.exchanged()))
    randomness = simulation.randomness().child("server")

    def body(runtime: Any) -> tuple[Any, dict[str, Any]]:
        try:
            return runtime, run(
                agenda.jobs(setting),
                runtime=disclosed.published(runtime, profile),
                ledger=MemoryLedger(None) if ledger is None else ledger,
                randomness=randomness,
                study=name or agenda.name,
                dataset=dataset,
                journal=kept,
                receipts=receipts,
            )
        except TooFewClients as error:
            raise _explained(error, runtime) from error

    runtime, outcome = simulation.carry(
        federation,
        body,
        two_servers=trust.helpers_needed > 0,
        single=any(not isinstance(query, Sum) for query in first),
    )
    few = federation.client_count <= LARGEST_FAITHFUL
    results = agenda.results(
        outcome, Run(clients=federation.clients if few else (), budget=budget, receipts=receipts)
    )
    return Result(
        task=agenda.name,
        parameters=dict(parameters),
        results=results,
        privacy=disclosed.stated(describe_privacy(setting, simulated=runtime.simulated), profile),
        cohort=describe_cohort(
            results,
            asked=federation.client_count,
            answered=kept.answered(federation.client_count),
            truncated=runtime.truncated,
        ),
        runtime=_described(runtime, federation.client_count, time.perf_counter() - started),
        warnings=(*federation.warnings, *_refusals(runtime), *disclosed.warnings(profile)),
    )


def _described(runtime: Any, clients: int, seconds: float) -> dict[str, Any]:
    return {
        "name": runtime.name,
        "mode": runtime.mode,
        "rounds": runtime.traffic.rounds,
        "bytes_per_client": runtime.traffic.bytes_in_all // max(1, clients),
        "seconds": round(seconds, 3),
    }


def _refusals(runtime: Any) -> list[str]:
    """Who refused, and why: in a simulation the reasons are known."""
    reasons = runtime.reasons if isinstance(runtime, Faithful) else {}
    return [f"The client {name} refused: {reason}" for name, reason in reasons.items()]


def _explained(error: TooFewClients, runtime: Any) -> FederationError | Refused:
    """The same error with why clients refused; a refusal, if all who said something refused by their rules."""
    told = _refusals(runtime)
    if not told:
        return error
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    by_rules = set(runtime.refusals.values()) <= {Refusal.POLICY, Refusal.BUDGET}
    return (Refused if by_rules else TooFewClients)(f"{error} {told[0]}{more}")
