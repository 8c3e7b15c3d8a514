"""Thresholds from one local quantile of each client: QQ, FedCP-Avg, each client alone, and QQ from private choices.

Under local differential privacy each client chooses one of the public points, near its local quantile. How the choices
are made is fixed by public numbers before a client is asked (`coverage.best_choice`, or `coverage.published_choice` for
FedCP²-QQ as published); the server's rank is worked out again for the clients who answered. Where no ranks give the
coverage, no client is asked and nothing is spent: the set holds everything, and the answer says how many rows or which
epsilon would be enough.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import CoverageLaw, Rule, UnequalLaw, best_server_rank, scores_needed
from fedassay.estimation.coverage.best_choice import best_choice
from fedassay.estimation.coverage.choice import ChoiceLaw
from fedassay.estimation.coverage.law import largest_miss
from fedassay.estimation.coverage.pairs import told
from fedassay.estimation.coverage.published_choice import published_choice
from fedassay.protocol.vocabulary import Noise, Select, Setting
from fedassay.summaries.local_quantiles import LocalRule, LocalScores, QuantileLosses
from fedassay.tasks.conformal.threshold import CoverageRequest, Found

AVERAGE = "the mean of local quantiles has no proven coverage (FedCP-Avg, Lu and Kalpathy-Cramer 2021)"
NOBODY = "there are no rows"
ALONE = "each client has a threshold of its own"
OWN_ROWS = "rows are exchangeable within each client, whose threshold is used for its own new rows only"


def rules_of(method: str, request: CoverageRequest) -> tuple[LocalRule, ...]:
    """Return the rules by which clients are asked for a score.

    The published method has one rule for equal numbers of rows and one for others. A client alone takes the best pair
    of a federation of one, which without a confidence is the rank of split conformal prediction.
    """
    if method == "qq-paper":
        return ("paper", "split")
    return ("spread",) if method == "qq" or request.confidence is not None else ("split",)


def found_from(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> Found:
    """Return the threshold that these clients' local quantiles give, by this method."""
    rows = [client.rows for client in clients]
    if method in ("average", "local"):
        found = _average(clients) if method == "average" else _alone(request, clients)
        return replace(found, rows=float(sum(rows)), clients=len(rows))
    rule = _rule_used(request, method, clients)
    return quantile_of_quantiles(
        request,
        rows,
        [client.ranks[rule] for client in clients],
        [client.scores[rule] for client in clients],
        rule="paper" if method == "qq-paper" else "spread",
    )


def quantile_of_quantiles(
    request: CoverageRequest,
    rows: Sequence[int],
    ranks: Sequence[int],
    scores: Sequence[float],
    *,
    rule: Rule,
    exact: bool = True,
) -> Found:
    """Return the k-th smallest of the local quantiles, with the best k that the clients that answered allow.

    Edge case: with too few rows for any k the set holds everything.
    """
    found = _at_best_rank(request, rows, ranks, scores, rule) if sum(rows) else Found.everything(NOBODY)
    return replace(found, exact=exact and found.exact, rows=float(sum(rows)), clients=len(rows))


def _at_best_rank(
    request: CoverageRequest, rows: Sequence[int], ranks: Sequence[int], scores: Sequence[float], rule: Rule
) -> Found:
    law: CoverageLaw | UnequalLaw
    try:
        law = best_server_rank(rows, ranks, request.level, rule=rule, confidence=request.confidence)
    except DataError as problem:
        return Found.everything(str(problem))
    pair = None
    if len(set(rows)) == 1 and len(set(ranks)) == 1:
        law = CoverageLaw(clients=len(rows), rows=rows[0], local_rank=ranks[0], server_rank=law.server_rank)
        pair = law.pair
    threshold = float(np.sort(np.asarray(scores))[law.server_rank - 1])
    silent = sum(rank > n for rank, n in zip(ranks, rows, strict=True))
    return Found(
        threshold=threshold,
        law=law,
        pair=pair,
        reason=None if math.isfinite(threshold) else "the scores at this rank are beyond the range",
        details={"server_rank": law.server_rank, "without_a_quantile": silent},
    )


def sites_of(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> list[dict[str, Any]]:
    """Return what each client reported: its rows, the rank of the score that it sent, and the score."""
    entries: list[dict[str, Any]] = []
    rule = _rule_used(request, method, clients)
    for number, client in enumerate(clients, start=1):
        score = own_threshold(request, client) if method == "local" else client.scores[rule]
        sent = score if math.isfinite(score) else None
        own = {"threshold": sent, "infinite": sent is None} if method == "local" else {}
        entry = {"site": f"site {number}", "rows": client.rows, "rank": client.ranks[rule], "score": sent}
        entries.append({**entry, **own})
    return entries


def _rule_used(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> str:
    rules, equal = rules_of(method, request), len({client.rows for client in clients}) == 1
    return rules[0] if equal else rules[-1]


def own_threshold(request: CoverageRequest, client: LocalScores) -> float:
    """Return a client's own threshold; infinite if it has too few rows."""
    (rule,) = client.scores
    enough = client.rows >= scores_needed(request.level, confidence=request.confidence)
    return client.scores[rule] if enough else math.inf


def _average(clients: Sequence[LocalScores]) -> Found:
    """Return the plain mean, as published; clients with too few rows for a quantile are left out."""
    finite = [score for client in clients if math.isfinite(score := client.scores["split"])]
    if not finite:
        return Found.everything("no client has rows enough for a quantile")
    return Found(
        threshold=math.fsum(finite) / len(finite),
        reason=AVERAGE,
        details={"without_a_quantile": len(clients) - len(finite)},
    )


def _alone(request: CoverageRequest, clients: Sequence[LocalScores]) -> Found:
    """Return no common threshold, with the smallest guarantee of the clients' own thresholds."""
    laws = [
        CoverageLaw(clients=1, rows=client.rows, local_rank=next(iter(client.ranks.values())), server_rank=1)
        for client in clients
        if math.isfinite(own_threshold(request, client))
    ]
    if not laws:
        needed = scores_needed(request.level, confidence=request.confidence)
        return Found.everything(f"no client has {needed} rows")
    return Found(
        threshold=None,
        promised=min(law.mean for law in laws),
        reached=min(law.probability_at_least(request.level) for law in laws),
        reason=ALONE,
        assumption=OWN_ROWS,
        details={"without_a_quantile": len(clients) - len(laws)},
    )


# --- private choices ---------------------------------------------------------------------------------------

CANDIDATES = 100
"""Default number of points that clients choose among."""


def probe(*, rows: int, candidates: int) -> Select[float]:
    """Return a choice of this size, to find out what it would cost."""
    return Select(
        of=QuantileLosses(quantity="conformity", rows=rows, lower=0.0, upper=1.0, points=candidates, target=1)
    )


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target of the clients' choices: the point that holds the `rank`-th smallest score, and how losses grow."""

    rank: int = 1
    below: int = 1
    above: int = 1
    server_rank: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PrivateQuantile:
    """Public side of private choices among `candidates` points, in this setting.

    The number of clients is 0 as long as it is not known.
    """

    request: CoverageRequest
    method: str
    setting: Setting
    candidates: int

    @property
    def clients(self) -> int:
        """Number of clients, M."""
        return self.setting.clients

    @property
    def rows(self) -> int:
        """Number of rows, n, the same for all clients."""
        rows = self.setting.protection.rows_per_client
        if rows is None:
            raise UsageError(
                f"{self.method}: where clients choose in private, all must use the same public number of rows; give "
                "`rows_per_client` (clients with more leave some out at random, those with fewer fill up with scores "
                "that are infinite)."
            )
        return rows

    @cached_property
    def epsilon(self) -> float:
        """Epsilon that can be spent for each row, where a protected unit has several."""
        plan = self.setting.plan(probe(rows=self.rows, candidates=self.candidates))
        # One row moves the losses by what `loss_range` states; a unit's rows by at most `rows_per_unit` times that.
        return plan.sensitivity.l1 / plan.noise.scale / self.setting.protection.rows_per_unit

    def losses(self, target: Target) -> dict[str, int]:
        """Return the fields of the losses that a client measures for each candidate."""
        return {
            "rows": self.rows,
            "points": self.candidates,
            "target": target.rank,
            "below": target.below,
            "above": target.above,
        }

    def target(self) -> Target | Found:
        """Return what to ask for, or the answer if no client needs to be asked."""
        if self.clients == 0:
            return Target()
        try:
            return self._published() if self.method == "qq-paper" else self._best()
        except DataError as error:
            rows = self.setting.protection.rows_per_unit
            several = f" (ε is what is left for each of {rows} rows)" if rows > 1 else ""
            return Found.everything(
                str(error).removesuffix(".") + several,
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
        """Return the threshold from the choices of the clients that answered."""
        m = len(chosen)
        rate = target.below / noise.scale
        # The coverage grows with k: all k from some number on are valid, and the first has the smallest sets.
        best = 1 + bisect_left(
            range(1, m + 1), 1, key=lambda k: int(self._valid(self._law(m, target, k, rate)))
        )
        if best > m:
            return Found.everything(
                f"{told(self.request.level, self.request.confidence)}: got answers of {m} of {self.clients} clients, "
                "expected more; the ranks were chosen for all of them; ask again, with fewer clients in mind",
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
