"""Simulated federations: any task, from data to a `Result`, on any runtime that simulates clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

from fedassay.data.federation import Federation, load
from fedassay.data.partition import Partition
from fedassay.data.sources import CompleteRows, Missing
from fedassay.errors import FederationError, ParameterError, Refused, TooFewClients
from fedassay.kernel import publication
from fedassay.kernel.agenda import Agenda, Alone
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.journal import Journal, MemoryJournal
from fedassay.kernel.run import run
from fedassay.privacy.ledger.charges import Charge, Ledger, MemoryLedger
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.policy.judgement import Policy
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.parameters import Fraction, Parameter, made
from fedassay.protocol.result import Result, describe_cohort, describe_privacy
from fedassay.protocol.vocabulary import Budget, Protection, Setting, Sum, TrustModel
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS, RuntimeCard, SimulationParameters, simulation_named
from fedassay.runtimes.in_process.card import LARGEST_FAITHFUL, Mode
from fedassay.runtimes.simulated import Progress, SimulatedFederation, SimulatedRuntime, silent
from fedassay.tasks.card import rows_of
from fedassay.tasks.shared_parameters import HOLDOUT


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """How a federation is simulated.

    Parameters
    ----------
    seed : makes a simulation repeatable. A release never takes one.
    mode : of the in-process runtime: `faithful` passes every client's own message through bytes; `aggregate` draws the
        total from the same law; `auto` is faithful up to 250 clients, and wherever single clients are asked.
    runtime : the carrier of the messages: the name of a runtime that simulates clients, such as ``in-process`` or
        ``flower``, or its parameters as an object, seed and mode among them.
    holdout : the share of the units that tasks which fit something keep to judge it.
    split_key : decides which units are held out; made from the seed, or drawn, if it is not given.
    policy : the policy of every client; None allows everything, as nothing is really released.
    asker : the public key that clients take for that of the asking party; in a simulation nothing is signed.
    disclosure : the treatment of exact totals before anything is computed from them.
    missing : `report` leaves rows in which a value is missing out and counts them in ``result.cohort["missing"]``;
        `refuse` makes them an error.
    again : above 0 for a run that goes on with what another has begun: all of it, clients included, then draws anew, as
        noise of releases before and after the break must have nothing to do with each other.
    """

    seed: int | None = None
    mode: Mode = "auto"
    runtime: str | SimulationParameters = DEFAULT
    holdout: float = HOLDOUT
    split_key: bytes | None = field(default=None, repr=False)
    progress: Progress | None = field(default=None, repr=False)
    policy: Policy | None = None
    asker: str | None = None
    disclosure: Disclosure | None = None
    missing: Missing = "refuse"
    again: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", self.parameters.seed)
        if self.policy is not None and not self.parameters.tries_policies:
            raise ParameterError(
                "policy",
                f"only the faithful mode of the {DEFAULT} runtime has clients that remember what they have allowed; "
                "leave out `runtime` and `mode`.",
            )
        if self.missing not in get_args(Missing):
            raise ParameterError("missing", f"got {self.missing!r}, expected refuse or report.")
        known = Parameter(name="holdout", annotation=Fraction, default=HOLDOUT, sentence="")
        object.__setattr__(self, "holdout", known.check(self.holdout))

    @cached_property
    def parameters(self) -> SimulationParameters:
        """Parameters of the runtime, checked."""
        if isinstance(self.runtime, SimulationParameters):
            if self.seed not in (None, self.runtime.seed) or self.mode != "auto":
                raise ParameterError(
                    "runtime", "got seed or mode besides its parameters, which have them; leave them out."
                )
            return self.runtime
        given = {"seed": self.seed, "mode": self.mode if self.mode != "auto" else None}
        given = {name: value for name, value in given.items() if value is not None}
        return made(simulation_named(self.runtime), given, of=self.runtime)

    @property
    def card(self) -> RuntimeCard:
        """Card of the runtime."""
        return RUNTIME_CARDS[self.parameters.name]

    def randomness(self) -> SecureRandomness | SimulatedRandomness:
        """Return the source of all randomness of this simulation."""
        if self.seed is None:
            return SecureRandomness()
        source = SimulatedRandomness(self.seed)
        return source if not self.again else source.child(f"again/{self.again}")

    def key_of_split(self) -> bytes:
        """Return the key that decides which units are held out; the same for a run that goes on."""
        if self.split_key is not None:
            return self.split_key
        return replace(self, again=0).randomness().child("split").bytes(32)

    def passes_messages(self, federation: Federation) -> bool:
        """Return whether every client's own message is passed; otherwise totals are drawn in aggregate."""
        return self.parameters.passes_messages(federation.client_count, policy=self.policy is not None)

    def rows(self, data: Any, columns: Mapping[str, str]) -> Any:
        """Return the data, without the rows in which a value is missing if these are left out."""
        if self.missing == "refuse" or isinstance(data, Federation):
            return data
        return CompleteRows(data=data, columns=columns)

    def start(
        self, federation: Federation, *, helpers: int = 0, single: bool = False
    ) -> AbstractContextManager[SimulatedRuntime]:
        """Start these clients: a context in which the runtime that asks them lives.

        Parameters
        ----------
        helpers : the number of servers that the trust model needs in addition to the coordinator's own.
        single : whether clients are asked one by one.
        """
        start = self.card.start
        assert start is not None
        return start.load()(
            self.parameters,
            SimulatedFederation(
                rows=federation,
                randomness=self.randomness(),
                split_key=self.key_of_split(),
                holdout=self.holdout,
                helpers=helpers,
                single=single,
                policy=self.policy,
                asker=self.asker,
                progress=self.progress or silent,
            ),
        )


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
    """Run any tasks over simulated clients, in the same way for all of them.

    Parameters
    ----------
    data : as `load` takes them, or the `Federation` that was loaded from them by these columns.
    name : of the study, as clients and ledgers know it; that of the task by default.
    journal : one that lasts lets a simulation that broke off go on; then nothing is asked, and charged, twice.
    ledger, dataset : the place and the name under which expenses are recorded; None keeps them in memory.
    before : called with the setting when everything is known that is public, and no client was asked: it may refuse.
    """
    started = time.perf_counter()
    # What can be refused without looking at the data is refused before they are opened.
    likely = trust.with_one_row_each(protection) if client is None else protection
    first = agenda.rehearse(Setting(trust=trust, protection=likely, budget=budget, clients=0))
    profile = simulation.disclosure
    if profile is not None:
        publication.require(profile, trust, first)
    simulation.parameters.require(first)
    federation = data if isinstance(data, Federation) else load(data, client=client, columns=columns)
    protection = trust.with_one_row_each(protection) if federation.one_row_each else protection
    if federation.client_count > LARGEST_FAITHFUL and simulation.passes_messages(federation):
        trust = trust.with_members(sorted(federation.clients))
    setting = Setting(trust=trust, protection=protection, budget=budget, clients=federation.client_count)
    if before is not None:
        before(setting)
    kept = MemoryJournal() if journal is None else journal
    receipts: dict[str | bytes, Charge] = {}
    simulation = replace(simulation, again=len(kept.exchanged()))
    randomness = simulation.randomness().child("server")

    single = any(not isinstance(query, Sum) for query in first)
    with simulation.start(federation, helpers=trust.helpers_needed, single=single) as runtime:
        try:
            outcome = run(
                agenda.jobs(setting),
                runtime=runtime,
                ledger=MemoryLedger(None) if ledger is None else ledger,
                randomness=randomness,
                study=name or agenda.name,
                dataset=dataset,
                journal=kept,
                receipts=receipts,
                profile=profile,
            )
        except TooFewClients as error:
            raise _explained(error, runtime) from error
        truncated = runtime.truncated
    few = federation.client_count <= LARGEST_FAITHFUL
    results = agenda.results(
        outcome, clients=federation.clients if few else (), budget=budget, charges=receipts.values()
    )
    return Result(
        task=agenda.name,
        parameters=dict(parameters),
        results=results,
        privacy=publication.stated(describe_privacy(setting, simulated=runtime.simulated), profile),
        cohort=describe_cohort(
            rows=rows_of(agenda.name, results),
            asked=federation.client_count,
            answered=kept.answered(federation.client_count),
            truncated=truncated,
            missing=federation.missing,
        ),
        runtime=_described(runtime, federation.client_count, time.perf_counter() - started),
        warnings=(*federation.warnings, *_refusals(runtime), *publication.warnings(profile)),
    )


def _described(runtime: SimulatedRuntime, clients: int, seconds: float) -> dict[str, Any]:
    return {
        "name": runtime.name,
        "mode": runtime.mode,
        "rounds": runtime.traffic.rounds,
        "bytes_per_client": runtime.traffic.bytes_in_all // max(1, clients),
        "seconds": round(seconds, 3),
    }


def _refusals(runtime: SimulatedRuntime) -> list[str]:
    """Return which clients refused, and why: in a simulation the reasons may be known."""
    return [f"The client {name} refused: {reason}" for name, reason in runtime.reasons.items()]


def _explained(error: TooFewClients, runtime: SimulatedRuntime) -> FederationError | Refused:
    """Add the reasons of clients to an error; make it a refusal if all who gave a reason refused by their rules."""
    told = _refusals(runtime)
    if not told:
        return error
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    by_rules = set(runtime.refusals.values()) <= {Refusal.POLICY, Refusal.BUDGET}
    return (Refused if by_rules else TooFewClients)(f"{error} {told[0]}{more}")
