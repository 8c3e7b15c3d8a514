"""Rules of a site about what may be asked, whatever the budget: the policy decides before the ledger.

A policy sees the public side of a query, who asks, and how many rows the site has. It either returns or raises
`PolicyRefusal`; what it cannot judge it refuses. The rules that a site writes down are in `site_policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fedassay.privacy import accounting
from fedassay.privacy.amplification import cost_of
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Noise, Plan, Sensitivity, Summary

CountRows = Callable[[], int]
"""Function that counts the rows of a site. Called only by rules that need the number, after all others have passed."""


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """Planned query, as a policy sees it.

    The asker only *claims* `task`, `study`, and `cohort`, the number of clients that are asked, which a secure sum then
    enforces. `asker` is the public key whose signature the transport has checked, or None. `plan` the client has
    made for itself from the summary's fields, which are what it will measure.
    """

    plan: Plan
    study: str
    cohort: int
    task: str = ""
    """Kind of task that asks, by its name in the catalogue, as the asker states it."""
    asker: str | None = None
    rows: CountRows | None = field(default=None, repr=False, compare=False)
    """Function that counts the rows of the site; None if the number is unknown."""

    @property
    def trust(self) -> Any:
        """The trust model, whose public parameters differ from kind to kind."""
        return self.plan.setting.trust

    @property
    def summary(self) -> Summary[Any]:
        """Summary that is measured."""
        return self.plan.query.of

    @property
    def resolution(self) -> int:
        """The length of the measured vector."""
        return max(self.summary.length, self.plan.measured.length)

    @property
    def clients(self) -> int:
        """Number of clients that are asked, of those that are planned with."""
        return min(self.cohort, self.plan.setting.clients)

    @property
    def smallest_total(self) -> int | None:
        """Fewest survivors over which the trust model would still release; None if it makes no promise."""
        survivors = getattr(self.trust, "fewest_survivors", None)
        return (
            getattr(self.trust, "minimum_cohort", None) if survivors is None else int(survivors(self.clients))
        )

    @property
    def sizes(self) -> Any:
        """Number of members who open totals, and number of possible colluders; None where no member opens any."""
        if self.trust.member_leg is None:
            return None
        return self.trust.sizes(self.clients, roster=self.plan.setting.clients)

    @property
    def seen(self) -> bool:
        """True if the server sees this client's measurement as it is, neither masked nor shared nor under noise."""
        return bool(self.trust.shows_measurements)

    @property
    def exact(self) -> bool:
        """True if the release carries no noise."""
        return self.plan.noise.law == NO_NOISE.law

    @property
    def shuffled(self) -> Budget | None:
        """Joint cost of all messages, where only shuffled ones are seen; noise is then that of one message."""
        return cost_of(self.plan)

    def epsilon(self, delta: float) -> float:
        """Return the cost of this query alone at this delta; infinite without noise."""
        return _price(self.plan.noise, self.plan.sensitivity, self.shuffled, self.plan.sampled, delta)

    @property
    def local_epsilon(self) -> float:
        """Cost of one message by itself; infinite without noise."""
        return _price(self.plan.noise, self.plan.sensitivity, None, 1.0, 0.0)


@lru_cache(maxsize=256)
def _price(
    noise: Noise, sensitivity: Sensitivity, shuffled: Budget | None, sampled: float, delta: float
) -> float:
    # Kept, because every leg of an exchange is judged again.
    return accounting.spent([accounting.event(noise, sensitivity, shuffled, sampled=sampled)], delta)


class Policy(ABC):
    """Judge of requests, which refuses or stays silent, and sets conditions for answering what is allowed."""

    total: Budget | None = None
    """Cost that all noisy releases of a data set may have together; None leaves it to the ledger."""

    disclosure: Disclosure | None = None
    """Treatment of counts that the server sees one by one; None for none."""

    smallest_cohort_difference: int | None = None
    """Least difference of two sets of clients with opened exact totals, unless they are the same; None for any."""

    same_set: bool = False
    """True if all exact totals of a data set must be over the same clients."""

    changed_rows: bool = True
    """True if exact totals may be over rows that have changed since an earlier one."""

    @abstractmethod
    def check(self, request: PolicyRequest) -> None:
        """Return if the request is allowed; raise `PolicyRefusal` otherwise."""

    def now(self) -> Policy:
        """Return the rules as they stand: called once per message, so that one message is judged by one set of rules.

        Raises `PolicyRefusal` if the rules cannot be known.
        """
        return self


class AllowAll(Policy):
    """Policy that allows everything: for simulations, where nothing is really released."""

    def check(self, request: PolicyRequest) -> None:
        """Allow the request."""
