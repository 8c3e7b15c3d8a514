"""What a site allows to be asked, whatever the budget: the policy has the word before the ledger.

A policy sees the public side of a query, who asks, and how many rows the site has. It either returns or raises
`PolicyRefusal`; what it cannot judge it refuses. The rules that a site writes down are in `site_policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from fedassay.privacy import accounting
from fedassay.privacy.amplification import cost_of
from fedassay.privacy.policy.disclosure import Disclosure, is_countable
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Neighbours,
    Noise,
    Part,
    Plan,
    Sensitivity,
    TrustModel,
    Unit,
)

CountRows = Callable[[], int]
"""How many rows a site has. Called only by rules that need it, after all others have passed."""


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """One planned query, as a policy sees it.

    What the asker only *claims*: `task`, `study`, and `clients`, the size of the cohort, which a secure sum then
    enforces. `asker` is the public key whose signature the transport has checked, or None. Everything else the client
    has planned for itself from the summary's fields, which are what it will measure.
    """

    study: str
    trust_model: str
    summary: str
    resolution: int
    """The length of the measured vector."""
    budget: Budget | None
    noise: Noise
    sensitivity: Sensitivity
    unit: Unit
    neighbours: Neighbours
    clients: int
    task: str = ""
    """The kind of task that asks, by its name in the catalogue, as the asker says."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the summary."""
    shuffled: Budget | None = None
    """What all messages cost together, where only shuffled ones are seen; noise and sensitivity are of one message."""
    sampled: float = 1.0
    """The probability that a client takes part, where it counts for the guarantee."""
    smallest_total: int | None = None
    """Over how few survivors the trust model would still release; None if it makes no promise."""
    collusion: float | None = None
    """The share of colluding clients that the trust model withstands; None if it does not depend on that."""
    dropout: float | None = None
    """The share of clients that may fall silent; None if the trust model has no such bound."""
    members: tuple[str, ...] = ()
    """The sites that the study names to open its totals; empty if all do."""
    colluding_members: int = 0
    """How many of those may collude."""
    honest_shares: int | None = None
    """How many honest shares of noise are in every total that opens; None where clients do not share the noise."""
    same_set: bool = False
    cohort_difference: int | None = None
    """The terms about exact totals over other sets of clients; None where the trust model has none."""
    colluders: int = 0
    part: Part = Part.ALL
    """Which part of the units is asked about."""
    rows_per_client: int | None = None
    """The most rows of a client that are used, as the asker wants it."""
    seen: bool = True
    """Whether the server sees this client's measurement as it is, neither masked nor shared nor under noise."""
    countable: bool = False
    """Whether the measurement is made of counts of rows (see `disclosure`)."""
    asker: str | None = None
    rows: CountRows | None = field(default=None, repr=False, compare=False)
    """None if nobody knows."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        study: str,
        cohort: int,
        asker: str | None = None,
        task: str = "",
        rows: CountRows | None = None,
    ) -> PolicyRequest:
        """The request that a planned query makes of a cohort of this size."""
        setting, summary = plan.setting, plan.query.of
        public: Any = summary
        return cls(
            study=study,
            task=task,
            trust_model=setting.trust.name,
            summary=summary.name,
            resolution=max(summary.length, plan.measured.length),
            parameters={entry.name: getattr(summary, entry.name) for entry in fields(public)},
            budget=setting.budget,
            noise=plan.noise,
            sensitivity=plan.sensitivity,
            unit=setting.protection.unit,
            neighbours=setting.protection.neighbours,
            clients=min(cohort, setting.clients),
            shuffled=cost_of(plan),
            sampled=plan.sampled,
            smallest_total=_fewest(setting.trust, min(cohort, setting.clients)),
            **_committee(setting.trust, min(cohort, setting.clients), setting.clients),
            part=plan.query.part,
            rows_per_client=setting.protection.rows_per_client,
            seen=setting.trust.shows_measurements,
            countable=is_countable(plan.query),
            asker=asker,
            rows=rows,
        )

    @property
    def exact(self) -> bool:
        """Whether what is released carries no noise."""
        return self.noise.law == NO_NOISE.law

    def epsilon(self, delta: float) -> float:
        """What this query alone costs at this delta; infinite without noise."""
        return _price(self.noise, self.sensitivity, self.shuffled, self.sampled, delta)

    @property
    def local_epsilon(self) -> float:
        """What one message costs by itself; infinite without noise."""
        return _price(self.noise, self.sensitivity, None, 1.0, 0.0)


def _fewest(trust: TrustModel, clients: int) -> int | None:
    """Over how few of so many clients a trust model would still release; None if it does not say."""
    survivors = getattr(trust, "fewest_survivors", None)
    return getattr(trust, "minimum_cohort", None) if survivors is None else int(survivors(clients))


@lru_cache(maxsize=256)
def _price(
    noise: Noise, sensitivity: Sensitivity, shuffled: Budget | None, sampled: float, delta: float
) -> float:
    # Kept, because every leg of an exchange is judged again.
    return accounting.spent([accounting.event(noise, sensitivity, shuffled, sampled=sampled)], delta)


def _committee(trust: TrustModel, clients: int, roster: int) -> dict[str, Any]:
    """What a trust model says of those who may be silent, collude, or open totals."""
    public: Any = trust
    found: dict[str, Any] = {
        name: getattr(trust, name)
        for name in ("collusion", "dropout", "members", "same_set", "cohort_difference")
        if hasattr(trust, name)
    }
    if trust.member_leg is not None:
        sizes = public.sizes(clients, roster=roster)
        found |= {"colluding_members": sizes.colluding_members, "colluders": sizes.colluders}
        found |= {"honest_shares": sizes.honest} if trust.private else {}
    return found


class Policy(ABC):
    """Says no, or nothing; and under which conditions a client answers what it has allowed."""

    total: Budget | None = None
    """What all noisy releases of a data set may cost together; None leaves it to the ledger."""

    disclosure: Disclosure | None = None
    """What is done to counts that the server sees one by one; None if nothing is."""

    smallest_cohort_difference: int | None = None
    """Two sets of clients whose exact totals are opened are the same, or differ by as many; None if they need not."""

    same_set: bool = False
    """Whether all exact totals of a data set must be over the same clients."""

    changed_rows: bool = True
    """Whether exact totals may be over rows that have changed since an earlier one."""

    @abstractmethod
    def check(self, request: PolicyRequest) -> None:
        """Return if the request is allowed; raise `PolicyRefusal` otherwise."""

    def now(self) -> Policy:
        """The rules as they stand: asked for once per message, so that one message is judged by one set of rules.

        Raises `PolicyRefusal` if nobody can tell what the rules are.
        """
        return self


class AllowAll(Policy):
    """Allows everything: for simulations, where nothing is really released."""

    def check(self, request: PolicyRequest) -> None:
        """Allow the request."""
