"""Thresholds from one local quantile of each client, which may be seen: QQ, FedCP-Avg, and each client alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedassay.errors import DataError
from fedassay.estimation.coverage import CoverageLaw, Rule, UnequalLaw, best_server_rank, scores_needed
from fedassay.summaries.local_quantiles import LocalRule, LocalScores
from fedassay.tasks.conformal.threshold import CoverageRequest, Found

AVERAGE = "the mean of local quantiles has no proven coverage (FedCP-Avg, Lu and Kalpathy-Cramer 2021)"
NOBODY = "there are no rows"
ALONE = "each client has a threshold of its own"
OWN_ROWS = "rows are exchangeable within each client, whose threshold is used for its own new rows only"


def rules_of(method: str, request: CoverageRequest) -> tuple[LocalRule, ...]:
    """By which rules clients are asked for a score.

    The published method has one rule for equal numbers of rows and one for others. A client alone takes the best pair
    of a federation of one, which without a confidence is the rank of split conformal prediction.
    """
    if method == "qq-paper":
        return ("paper", "split")
    return ("spread",) if method == "qq" or request.confidence is not None else ("split",)


def found_from(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> Found:
    """The threshold that these clients' local quantiles give, by one of the methods."""
    if method == "average":
        return _average(clients)
    if method == "local":
        return _alone(request, clients)
    rule = _rule_used(request, method, clients)
    return quantile_of_quantiles(
        request,
        [client.rows for client in clients],
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
    """The k-th smallest of the local quantiles, with the best k that the clients who answered allow.

    Edge case: with too few rows for any k the set holds everything.
    """
    if not sum(rows):
        return Found.everything(NOBODY, rows=0.0, clients=len(rows))
    law: CoverageLaw | UnequalLaw
    try:
        law = best_server_rank(rows, ranks, request.level, rule=rule, confidence=request.confidence)
    except DataError as problem:
        return Found.everything(str(problem), rows=float(sum(rows)), clients=len(rows))
    pair = None
    if len(set(rows)) == 1 and len(set(ranks)) == 1:
        law = CoverageLaw(clients=len(rows), rows=rows[0], local_rank=ranks[0], server_rank=law.server_rank)
        pair = law.pair
    threshold = float(np.sort(np.asarray(scores))[law.server_rank - 1])
    silent = sum(rank > n for rank, n in zip(ranks, rows, strict=True))
    return Found(
        threshold=threshold,
        law=law,
        exact=exact,
        pair=pair,
        rows=float(sum(rows)),
        clients=len(rows),
        reason=None if math.isfinite(threshold) else "the scores at this rank are beyond the range",
        details={"server_rank": law.server_rank, "without_a_quantile": silent},
    )


def sites_of(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> list[dict[str, Any]]:
    """What each client said: its rows, the rank of the score that it sent, and the score."""
    entries, rule = [], _rule_used(request, method, clients)
    for number, client in enumerate(clients):
        score = own_threshold(request, client) if method == "local" else client.scores[rule]
        entry: dict[str, Any] = {
            "site": f"site {number + 1}",
            "rows": client.rows,
            "rank": client.ranks[rule],
            "score": score if math.isfinite(score) else None,
        }
        if method == "local":
            entry |= {"threshold": entry["score"], "infinite": not math.isfinite(score)}
        entries.append(entry)
    return entries


def _rule_used(request: CoverageRequest, method: str, clients: Sequence[LocalScores]) -> str:
    rules, equal = rules_of(method, request), len({client.rows for client in clients}) == 1
    return rules[0] if equal else rules[-1]


def own_threshold(request: CoverageRequest, client: LocalScores) -> float:
    """What one client has for itself; infinite if it has too few rows."""
    (rule,) = client.scores
    enough = client.rows >= scores_needed(request.level, confidence=request.confidence)
    return client.scores[rule] if enough else math.inf


def _average(clients: Sequence[LocalScores]) -> Found:
    """The plain mean, as published; clients that have too few rows for a quantile have no say."""
    finite = [score for client in clients if math.isfinite(score := client.scores["split"])]
    rows, silent = float(sum(client.rows for client in clients)), len(clients) - len(finite)
    if not finite:
        return Found.everything("no client has rows enough for a quantile", rows=rows, clients=len(clients))
    return Found(
        threshold=math.fsum(finite) / len(finite),
        reason=AVERAGE,
        rows=rows,
        clients=len(clients),
        details={"without_a_quantile": silent},
    )


def _alone(request: CoverageRequest, clients: Sequence[LocalScores]) -> Found:
    """No common threshold; what is promised is the least that any client's own has."""
    laws = [
        CoverageLaw(clients=1, rows=client.rows, local_rank=next(iter(client.ranks.values())), server_rank=1)
        for client in clients
        if math.isfinite(own_threshold(request, client))
    ]
    rows, silent = float(sum(client.rows for client in clients)), len(clients) - len(laws)
    if not laws:
        needed = scores_needed(request.level, confidence=request.confidence)
        return Found.everything(f"no client has {needed} rows", rows=rows, clients=len(clients))
    return Found(
        threshold=None,
        promised=min(law.mean for law in laws),
        reached=min(law.probability_at_least(request.level) for law in laws),
        reason=ALONE,
        rows=rows,
        clients=len(clients),
        assumption=OWN_ROWS,
        details={"without_a_quantile": silent},
    )
