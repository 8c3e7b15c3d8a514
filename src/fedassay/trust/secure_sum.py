"""The trust model `secure-sum`: exact totals that hide every single client's vector.

The protocol is in `secure_sum_protocol`; here is what it answers and what it promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol import NO_NOISE, Plan, Query, Randomness, Released, Setting, Sum, TrustModel, Vector
from fedassay.trust.secure_sum_graph import parameters, survivable, tolerated
from fedassay.trust.secure_sum_protocol import DoubleMasking
from fedassay.trust.words import refuse_points


@dataclass(frozen=True, kw_only=True)
class SecureSum(DoubleMasking, TrustModel):
    """Sums under masks, released exactly.

    Guarantee and assumptions: those of `DoubleMasking`. This is secrecy, not differential privacy: the total
    carries no noise, and no budget is spent.

    Examples
    --------
    >>> SecureSum(dropout=0.3)
    SecureSum(dropout=0.3, collusion=0.1, minimum_cohort=3)
    >>> SecureSum(dropout=0.4, collusion=0.3)
    Traceback (most recent call last):
    fedassay.errors.UsageError: dropout 0.4 with collusion 0.3: expected 2 * dropout + collusion below 1.
    """

    name: ClassVar[str] = "secure-sum"
    private: ClassVar[bool] = False

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Only sums, without a budget, whose total provably fits into 64 bits.

        `setting.clients` of 0 stands for a number that is not known yet.
        """
        refuse_points(query)
        if not isinstance(query, Sum):
            raise UnsupportedQuery(
                f"{type(query).__name__} of {query.of.name}: a secure sum hides who sent what, so it cannot "
                "return one answer per client; use plain or local-dp."
            )
        if setting.budget is not None:
            raise UsageError(
                f"epsilon: got {setting.budget.epsilon:.3g}, but secure-sum adds no noise and could not keep "
                "it; leave it out, or use distributed-dp."
            )
        if setting.clients > 0:
            self.check_cohort(setting.clients)
        plan = Plan(query=query, setting=setting, sensitivity=query.of.sensitivity(setting.protection))
        self.check_total(plan, setting.clients)
        return plan

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """The totals: the protocol is exact, so there is nothing to draw."""
        self.check_cohort(clients)
        return tuple(Released(value=total.copy(), noise=NO_NOISE, clients=clients) for total in totals)

    def statement(self, setting: Setting) -> str:
        """What holds, against whom, and under which assumptions."""
        n = setting.clients
        numbers = ""
        if n >= self.minimum_cohort:
            found = parameters(n, self.dropout, self.collusion)
            silent = min(survivable(n, self.dropout, found), n - self.minimum_cohort)
            numbers = (
                f"With {n:,} clients, each shares masks with {found.neighbours} others, {found.threshold} of "
                f"whom can remove them: {silent:,} client{'s' * (silent != 1)} may fall silent at any moment, and "
                f"{tolerated(n, self.collusion):,} may tell the server all they know. "
            )
        return (
            "The server learns the exact total over the clients that took part (at least "
            f"{self.minimum_cohort}) and nothing else about any one of them: each vector is hidden by masks "
            "that cancel only in that total. This holds against the server and everyone who reads the "
            "network, as long as the server hands on the clients' public keys unchanged and tells all "
            f"clients the same about who took part. {numbers}The total itself carries no noise: it is not "
            "differentially private, so two totals that differ in one client or row reveal the difference. "
            "A client that lies about its own values is not detected."
        )
