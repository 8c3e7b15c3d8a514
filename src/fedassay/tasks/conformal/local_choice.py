"""QQ under local differential privacy: each client chooses one of the public points, near its local quantile.

How the choices are made is fixed by public numbers before anybody is asked (`coverage.best_choice`, or
`coverage.published_choice` for FedCP²-QQ as published); the server's rank is worked out again for the clients who
answered. Where no ranks give the coverage, nobody is asked and nothing is spent: the set holds everything, and the
answer says how many rows or which epsilon would be enough.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.best_choice import best_choice
from fedassay.estimation.coverage.choice import ChoiceLaw
from fedassay.estimation.coverage.law import largest_miss
from fedassay.estimation.coverage.pairs import told
from fedassay.estimation.coverage.published_choice import published_choice
from fedassay.protocol.vocabulary import Noise, Select, Setting
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.tasks.conformal.threshold import CoverageRequest, Found

CANDIDATES = 100
"""Points that clients choose among unless another number is asked for."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What clients are asked to choose: the point that holds their `rank`-th smallest score, and how losses grow."""

    rank: int = 1
    below: int = 1
    above: int = 1
    server_rank: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PrivateQuantile:
    """The public side of private choices: m clients of n rows each, B candidates, and the pure epsilon of a choice.

    `epsilon` is what can be spent for each row, where a protected unit has several (`rows_per_unit`).
    """

    request: CoverageRequest
    method: str
    clients: int
    rows: int
    candidates: int
    epsilon: float
    rows_per_unit: int = 1

    @classmethod
    def of(
        cls, request: CoverageRequest, method: str, setting: Setting, *, candidates: int
    ) -> PrivateQuantile:
        """As this setting has it; `clients` is 0 as long as their number is not known."""
        rows = setting.protection.rows_per_client
        if rows is None:
            raise UsageError(
                f"{method}: where clients choose in private, all must use the same public number of rows; give "
                "`rows_per_client` (clients with more leave some out at random, those with fewer fill up with scores "
                "that are infinite)."
            )
        probe = Select(
            of=losses_of("conformity", (), 0.0, 1.0, rows=rows, candidates=candidates, target=Target())
        )
        plan = setting.plan(probe)
        return cls(
            request=request,
            method=method,
            clients=setting.clients,
            rows=rows,
            candidates=candidates,
            # One row moves the losses by what `loss_range` says of it; a unit's rows by at most so many times that.
            epsilon=plan.sensitivity.l1 / plan.noise.scale / setting.protection.rows_per_unit,
            rows_per_unit=setting.protection.rows_per_unit,
        )

    def target(self) -> Target | Found:
        """What to ask for, or the answer if nobody needs to be asked."""
        if self.clients == 0:
            return Target()
        try:
            return self._published() if self.method == "qq-paper" else self._best()
        except DataError as error:
            several = f" (ε is what is left for each of {self.rows_per_unit} rows)" * (self.rows_per_unit > 1)
            return Found.everything(
                str(error).removesuffix(".") + several,
                rows=None,
                clients=self.clients,
                notes=(
                    "Nobody was asked and nothing was spent: no choice of ranks could have given the coverage.",
                ),
            )

    def _best(self) -> Target:
        found = best_choice(
            self.clients,
            self.rows,
            self.request.level,
            epsilon=self.epsilon,
            candidates=self.candidates,
            confidence=self.request.confidence,
        )
        return Target(rank=found.target, below=found.below, above=found.above)

    def _published(self) -> Target:
        found = published_choice(
            self.clients, self.rows, self.request.level, epsilon=self.epsilon, candidates=self.candidates
        )
        # Losses of the published shape, with slopes in the ratio q : 1-q.
        target = Target(
            rank=found.target,
            below=found.target,
            above=max(1, self.rows - found.target),
            server_rank=found.server_rank,
            details={"gamma": found.gamma, "correction": found.correction},
        )
        rate = self.epsilon * target.below / (target.below + target.above)
        if not self._valid(self._law(self.clients, target, self.clients, rate)):
            raise DataError(
                f"{told(self.request.level, self.request.confidence)}: the published ranks, which know no confidence, "
                "do not reach it, expected a lower one; use `method='qq'`."
            )
        return target

    def found(self, target: Target, chosen: Sequence[float], noise: Noise) -> Found:
        """The threshold from the choices of those who answered."""
        m = len(chosen)
        rate = target.below / noise.scale
        # The coverage grows with k: valid are those from some number on, and the first has the smallest sets.
        best = 1 + bisect_left(
            range(1, m + 1), 1, key=lambda k: int(self._valid(self._law(m, target, k, rate)))
        )
        if best > m:
            return Found.everything(
                f"{told(self.request.level, self.request.confidence)}: got answers of {m} of {self.clients} clients, "
                "expected more; the ranks were chosen for all of them; ask again, with fewer clients in mind",
                rows=None,
                clients=m,
            )
        if m == self.clients and target.server_rank is not None:
            best = max(best, target.server_rank)
        law = self._law(m, target, best, rate)
        threshold = float(np.sort(np.asarray(chosen))[best - 1])
        return Found(
            threshold=threshold,
            law=law,
            exact=False,
            pair=law.pair,
            rows=None,
            clients=m,
            reason=None if math.isfinite(threshold) else self._beyond,
            details={
                "server_rank": best,
                "rows_per_client": self.rows,
                "candidates": self.candidates,
                "slopes": [target.below, target.above],
                **target.details,
            },
        )

    def _valid(self, law: ChoiceLaw) -> bool:
        level, confidence = self.request.level, self.request.confidence
        if law.miss > largest_miss(level):
            return False
        return confidence is None or 1 - law.probability_at_least(level) <= largest_miss(confidence)

    @property
    def _beyond(self) -> str:
        return (
            "the clients chose the point above the range: either scores are there (--score-range), or clients have "
            f"fewer than {self.rows} rows, and what is missing counts as infinite (--rows-per-client)"
        )

    def _law(self, clients: int, target: Target, server_rank: int, rate: float) -> ChoiceLaw:
        return ChoiceLaw(
            clients=clients,
            rows=self.rows,
            target=target.rank,
            server_rank=server_rank,
            candidates=self.candidates,
            rate=rate,
        )


def losses_of(
    quantity: str,
    parameters: tuple[float, ...],
    lower: float,
    upper: float,
    *,
    rows: int,
    candidates: int,
    target: Target,
) -> QuantileLosses:
    """The losses that a client measures for each candidate."""
    return QuantileLosses(
        quantity=quantity,
        parameters=parameters,
        rows=rows,
        lower=lower,
        upper=upper,
        points=candidates,
        target=target.rank,
        below=target.below,
        above=target.above,
    )
