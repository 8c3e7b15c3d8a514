"""The trust model `secure-sum`: exact totals that hide every single client's vector.

The protocol is in `one_shot`; here is what it answers and what it promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import NO_NOISE, Plan, Query, Randomness, Released, Setting, Vector
from fedassay.trust.one_shot.exchange import OneShot


@dataclass(frozen=True, kw_only=True)
class SecureSum(OneShot):
    """Sums under pads, released exactly.

    Guarantee and assumptions: those of `OneShot`. This is secrecy, not differential privacy: the total
    carries no noise, and no budget is spent.

    Examples
    --------
    >>> SecureSum(dropout=0.1).fewest_survivors(40)
    36
    >>> SecureSum(dropout=0.3, collusion=0.3)
    Traceback (most recent call last):
    fedassay.errors.ParameterError: dropout: got 0.3 with `collusion=0.3`, expected 3 * dropout + \
collusion below 1.
    """

    name: ClassVar[str] = "secure-sum"
    private: ClassVar[bool] = False
    shows_measurements: ClassVar[bool] = False

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Plan sums only, without a budget, whose total provably fits into 64 bits.

        `setting.clients` of 0 stands for a number that is not known yet.
        """
        self.require_sum(query)
        if setting.budget is not None:
            raise UsageError(
                f"epsilon: got {setting.budget.epsilon:.3g}, but secure-sum adds no noise and could not keep "
                "it; leave it out, or use distributed-dp."
            )
        self.check_planned(setting.clients)
        plan = Plan(query=query, setting=setting, sensitivity=query.of.sensitivity(setting.protection))
        self.check_total(plan, setting.clients)
        return plan

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Return the totals: the protocol is exact, so there is nothing to draw."""
        self.check_cohort(clients)
        return tuple(Released(value=total.copy(), noise=NO_NOISE, clients=clients) for total in totals)

    def statement(self, setting: Setting) -> str:
        """State what holds, against whom, and under which assumptions."""
        return (
            "The server learns the exact total over the clients that took part and nothing else about any single one: "
            "each vector is hidden by pads that only the sites together can remove, once. "
            f"{self.described(setting.clients)}"
            "The total itself carries no noise: it is not differentially private, so two totals that differ in one "
            "client or row reveal the difference. A client that lies about its own values is not detected."
        )
