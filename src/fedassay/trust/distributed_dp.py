"""Distributed differential privacy: every client adds a share of the noise, and a secure sum hides the shares.

No single party adds the noise: each client draws a small share under its pads, and only the total, where the shares
have become noise enough, is ever opened. Shares are made for the fewest honest clients that can be in a total
that is opened,

    M = least - ⌈collusion·N⌉,        least = max(minimum_cohort, ⌈collusion·N⌉ + 2, n - ⌊dropout·n⌋),

so that those who fall silent, or tell the server their share, leave no release with too little noise. With S
survivors the total holds S/M of the noise that the guarantee needs; `Noise.copies` states it.

* pure epsilon: Pólya shares. The difference of two negative binomial draws of index 1/M is the M-th part of a
  discrete Laplace draw (Cormode and Markov 2023, Section 2.2, who scale for all clients and so for no dropout).
* (epsilon, delta): the same, or Skellam shares (differences of Poisson draws), whichever has less variance.

Below M shares privacy would decay fast, so no honest member helps to open a total over fewer than `least` clients. A
coordinator that names different sets to different members still opens one total over one set, of at least `least`
clients, or nothing (`one_shot`): every total that opens holds the noise of M honest clients.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from fedassay.privacy import accounting
from fedassay.protocol.vocabulary import (
    Exchange,
    Measure,
    Noise,
    Plan,
    Query,
    Randomness,
    Released,
    Replies,
    Round,
    Setting,
    Vector,
)
from fedassay.trust.card import budget_of, exactly, protected
from fedassay.trust.local_reports import spread
from fedassay.trust.one_shot.exchange import OneShot, measured
from fedassay.trust.one_shot.messages import require
from fedassay.trust.one_shot.sizes import Sizes


@dataclass(frozen=True, kw_only=True)
class DistributedDP(OneShot):
    """Sums under pads whose noise the clients add together; no server is trusted with it.

    Guarantee: what the server and up to ⌈collusion·N⌉ of the N sites learn together is (epsilon, delta)-differentially
    private for the stated unit of the other clients, for all queries of a task together: it is a total whose
    honest survivors, at least M, have added at least the noise of `accounting.calibrate_shared`. More noise
    than that, independent of it, is post-processing.

    Assumptions: those of `OneShot`. Honest clients draw their share from a secure source.

    What counts as public: who is in the cohort, and who answered (as in `server-dp`).

    All of a sampled cohort are asked, so that shares are made for all clients and no party chooses among whom
    colluders are; each client decides by a secret coin whether it takes part, and otherwise sends its share of the
    noise alone. The coins count for nothing: every release is charged as if all clients took part.

    Examples
    --------
    >>> DistributedDP().fewest_survivors(100), DistributedDP().sizes(100).honest
    (80, 70)
    """

    name: ClassVar[str] = "distributed-dp"
    private: ClassVar[bool] = True
    shows_measurements: ClassVar[bool] = False
    clients_add_noise: ClassVar[bool] = True
    clients_sample: ClassVar[bool] = True

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Plan sums only, for a budget, whose total with all noise provably fits into 64 bits.

        `Plan.noise` is what a total over all clients would carry. `setting.clients` of 0 stands for a number
        that is not known yet.
        """
        self.require_sum(query)
        sensitivity = query.of.sensitivity(setting.protection)
        noise = accounting.calibrate_shared(budget_of(setting, self.name), sensitivity, query.share)
        self.check_planned(setting.clients)
        if setting.clients > 0:
            honest = self.sizes(setting.clients).honest
            noise = self._noise(noise, honest=honest, survivors=setting.clients)
        plan = Plan(query=query, setting=setting, sensitivity=sensitivity, noise=noise)
        self.check_total(plan, setting.clients)
        return plan

    def largest_extra(self, plan: Plan) -> int:
        """Return the largest share of noise, for the proof that totals do not wrap."""
        return plan.query.of.overlap * accounting.largest_share(plan.noise)

    def contribution(
        self, plans: Sequence[Plan], measure: Measure, numbers: Sizes, randomness: Randomness
    ) -> Vector:
        """Return the measured vectors, each with this client's share of its noise."""
        shares = [_drawn(plan, Fraction(1, numbers.honest), randomness) for plan in plans]
        for plan, share in zip(plans, shares, strict=True):
            require(
                share.size == 0 or int(np.abs(share).max()) <= self.largest_extra(plan),
                "the share of the noise is larger than was planned for.",
            )
        return measured(plans, measure) + np.concatenate(shares)

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the secure sum; what it opens carries the survivors' noise."""
        totals = yield from super().exchange(exchange, randomness)
        honest = self.sizes_of(exchange).honest
        return tuple(
            replace(total, noise=self._noise(plan.noise, honest=honest, survivors=total.clients))
            for plan, total in zip(exchange.plans, totals, strict=True)
        )

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Simulate the noise: the shares of all clients add up to one draw with as many parts."""
        self.check_cohort(clients)
        honest = self.sizes(clients, roster=plans[0].setting.clients or clients).honest
        return tuple(
            Released(
                value=total + _drawn(plan, Fraction(clients, honest), randomness),
                noise=self._noise(plan.noise, honest=honest, survivors=clients),
                clients=clients,
            )
            for plan, total in zip(plans, totals, strict=True)
        )

    def _noise(self, noise: Noise, *, honest: int, survivors: int) -> Noise:
        """Return the noise in a total over `survivors` clients."""
        copies = survivors / honest
        return replace(noise, variance=noise.variance / noise.copies * copies, copies=copies)

    def statement(self, setting: Setting) -> str:
        """State what holds, against whom, and what is assumed."""
        budget = budget_of(setting, self.name)
        return (
            f"What the server learns, and what is published, is differentially private for "
            f"{protected(setting.protection)}, with epsilon = {exactly(budget.epsilon)} and delta = "
            f"{exactly(budget.delta)}. No server is trusted with exact numbers: each client adds a share of the "
            "noise under the pads of a secure sum, of which only the noisy total is opened. "
            f"{self.described(setting.clients)}"
            "Who took part is public. A client that lies about its own values is not detected."
        )


def _drawn(plan: Plan, parts: Fraction, randomness: Randomness) -> Vector:
    """Draw `parts` parts of the noise of a query, on its entries."""
    summary = plan.query.of
    return spread(summary, accounting.draw_parts(plan.noise, summary.draws, parts, randomness))
