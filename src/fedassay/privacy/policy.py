"""What a site allows to be asked, whatever the budget: the policy has the word before the ledger.

A policy sees only the public side of a query. It either returns or raises `PolicyRefusal`; what it cannot
judge it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy import accounting
from fedassay.privacy.shuffling import cost_of
from fedassay.protocol import Budget, Neighbours, Noise, Plan, Sensitivity, Unit


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """One planned query, as a policy sees it.

    `clients` is the size of the cohort, as the server claims it and a secure sum then enforces it; `asker`
    is who the transport has authenticated, or None. Everything else the client has planned for itself.
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
    shuffled: Budget | None = None
    """What all messages cost together, where only shuffled ones are seen; noise and sensitivity are of one message."""
    sampled: float = 1.0
    """The probability that a client takes part, where it counts for the guarantee."""
    smallest_total: int | None = None
    """Over how few survivors the trust model would still release; None if it makes no promise."""
    collusion: float | None = None
    """The share of colluding clients that the trust model withstands; None if it does not depend on that."""
    asker: str | None = None

    @classmethod
    def of(cls, plan: Plan, *, study: str, cohort: int, asker: str | None = None) -> PolicyRequest:
        """The request that a planned query makes of a cohort of this size."""
        setting, query = plan.setting, plan.query
        return cls(
            study=study,
            trust_model=setting.trust.name,
            summary=query.of.name,
            resolution=query.of.length,
            budget=setting.budget,
            noise=plan.noise,
            sensitivity=plan.sensitivity,
            unit=setting.protection.unit,
            neighbours=setting.protection.neighbours,
            clients=min(cohort, setting.clients),
            shuffled=cost_of(plan),
            sampled=plan.sampled,
            smallest_total=getattr(setting.trust, "minimum_cohort", None),
            collusion=getattr(setting.trust, "collusion", None),
            asker=asker,
        )

    def epsilon(self, delta: float) -> float:
        """What this query alone costs at this delta; infinite without noise."""
        event = accounting.event(self.noise, self.sensitivity, self.shuffled, sampled=self.sampled)
        return accounting.spent([event], delta)

    @property
    def local_epsilon(self) -> float:
        """What one message costs by itself; infinite without noise."""
        return accounting.spent([accounting.event(self.noise, self.sensitivity)], 0.0)


class Policy(Protocol):
    """Says no, or nothing."""

    def check(self, request: PolicyRequest) -> None:
        """Return if the request is allowed; raise `PolicyRefusal` otherwise."""
        ...


@dataclass(frozen=True)
class AllowAll:
    """Allows everything: for simulations, where nothing is really released."""

    def check(self, request: PolicyRequest) -> None:
        """Allow the request."""


@dataclass(frozen=True, kw_only=True)
class SimplePolicy:
    """Lists of what is allowed and bounds on how much; None means no rule of that kind.

    A bound on epsilon or delta also refuses releases without noise: their epsilon is infinite. Epsilon is
    judged at the delta of the request if `largest_delta` allows that one, and at delta 0 if there is no such
    rule: otherwise a request could make its epsilon small by asking for a large delta.

    Examples
    --------
    >>> policy = SimplePolicy(trust_models=frozenset({"secure-sum"}), smallest_cohort=5)
    >>> SimplePolicy(largest_epsilon=float("nan"))
    Traceback (most recent call last):
    fedassay.errors.UsageError: policy: got a largest epsilon of nan, expected a number above 0.
    """

    trust_models: frozenset[str] | None = None
    summaries: frozenset[str] | None = None
    largest_epsilon: float | None = None
    largest_delta: float | None = None
    smallest_cohort: int = 3
    smallest_collusion: float = 0.1
    finest_resolution: int | None = None
    largest_local_epsilon: float = 8.0
    """Of one message that only a shuffler hides: what it would cost if the shuffler turned out to be none."""

    def __post_init__(self) -> None:
        for names in (self.trust_models, self.summaries):
            if names is not None and not isinstance(names, frozenset):
                raise UsageError(f"policy: got {names!r} as a list of names, expected a frozenset.")
        if self.largest_epsilon is not None and not self.largest_epsilon > 0:
            raise UsageError(
                f"policy: got a largest epsilon of {self.largest_epsilon:.3g}, expected a number above 0."
            )
        if self.largest_delta is not None and not 0 <= self.largest_delta < 1:
            raise UsageError(
                f"policy: got a largest delta of {self.largest_delta:.3g}, expected one in [0, 1)."
            )
        if not self.largest_local_epsilon > 0:
            raise UsageError(
                f"policy: got a largest local epsilon of {self.largest_local_epsilon:.3g}, expected a number above 0."
            )
        if self.smallest_cohort < 1:
            raise UsageError(f"policy: got a smallest cohort of {self.smallest_cohort}, expected at least 1.")
        if self.finest_resolution is not None and self.finest_resolution < 1:
            raise UsageError(
                f"policy: got a finest resolution of {self.finest_resolution}, expected at least 1."
            )

    def check(self, request: PolicyRequest) -> None:
        """Return if every rule allows the request; raise `PolicyRefusal` with the first that does not."""
        for refusal in (self._names(request), self._sizes(request), self._price(request)):
            if refusal is not None:
                raise PolicyRefusal(f"policy: {refusal}.")

    def _names(self, request: PolicyRequest) -> str | None:
        if self.trust_models is not None and request.trust_model not in self.trust_models:
            return f"got the trust model {request.trust_model}, expected {_one_of(self.trust_models)}"
        if self.summaries is not None and request.summary not in self.summaries:
            return f"got the summary {request.summary}, expected {_one_of(self.summaries)}"
        return None

    def _sizes(self, request: PolicyRequest) -> str | None:
        if not request.clients >= self.smallest_cohort:
            return f"got a cohort of {request.clients} clients, expected at least {self.smallest_cohort}"
        if request.smallest_total is not None and not request.smallest_total >= self.smallest_cohort:
            return (
                f"got a trust model that would release a total over {request.smallest_total} clients, expected "
                f"at least {self.smallest_cohort}"
            )
        if request.collusion is not None and not request.collusion >= self.smallest_collusion:
            return (
                f"got a trust model that withstands {request.collusion:.3g} colluding clients, expected at least "
                f"{self.smallest_collusion:.3g} of them"
            )
        if self.finest_resolution is not None and not request.resolution <= self.finest_resolution:
            return f"got {request.resolution} numbers per client, expected at most {self.finest_resolution}"
        return None

    def _price(self, request: PolicyRequest) -> str | None:
        if self.largest_delta is not None:
            if request.budget is None:
                return f"got no budget, expected delta of at most {self.largest_delta:.3g}"
            if not request.budget.delta <= self.largest_delta:
                return f"got delta {request.budget.delta:.3g}, expected at most {self.largest_delta:.3g}"
        if request.shuffled is not None and not request.local_epsilon <= self.largest_local_epsilon:
            return (
                f"got messages of epsilon {request.local_epsilon:.3g} that only shuffling hides, expected at most "
                f"{self.largest_local_epsilon:.3g}"
            )
        if self.largest_epsilon is not None:
            delta = 0.0 if self.largest_delta is None or request.budget is None else request.budget.delta
            price = request.epsilon(delta)
            if not price <= self.largest_epsilon:
                got = f"got epsilon {price:.3g} at delta {delta:.3g}"
                return f"{got}, expected at most {self.largest_epsilon:.3g} per query"
        return None


def _one_of(names: frozenset[str]) -> str:
    return "one of " + ", ".join(sorted(names)) if names else "none at all"
