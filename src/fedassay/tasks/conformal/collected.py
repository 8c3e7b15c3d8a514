"""Thresholds from one local quantile of each client, each of which may be seen: QQ, FedCP-Avg, and each client alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedassay.coverage import CoverageLaw, UnequalLaw, best_server_rank
from fedassay.coverage.law import split_rows
from fedassay.summaries.local_quantile import LocalScores
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.request import Request

RULES = {"qq": ("spread",), "qq-paper": ("paper", "split"), "average": ("split",), "local": ("split",)}
"""Which ranks clients are asked for. The published method has one rule for equal and one for different numbers of rows."""

AVERAGE = "the mean of local quantiles has no proven coverage (FedCP-Avg, Lu and Kalpathy-Cramer 2021)"
ALONE = "each client has a threshold of its own"


def found_from(request: Request, method: str, clients: Sequence[LocalScores]) -> Found:
    """The threshold that these clients' local quantiles give, by one of the methods of `RULES`."""
    if method == "average":
        return _average(clients)
    if method == "local":
        return _alone(request, clients)
    rows = [client.rows for client in clients]
    rule = RULES[method][0] if len(set(rows)) == 1 else RULES[method][-1]
    return quantile_of_quantiles(
        request,
        rows,
        [client.ranks[rule] for client in clients],
        [client.scores[rule] for client in clients],
        rule="paper" if method == "qq-paper" else "spread",
    )


def quantile_of_quantiles(
    request: Request,
    rows: Sequence[int],
    ranks: Sequence[int],
    scores: Sequence[float],
    *,
    rule: Any,
    exact: bool = True,
) -> Found:
    """The k-th smallest of the local quantiles, with the best k that the clients who answered allow.

    Raises `DataError` if there is no valid k: too few rows in all.
    """
    law: CoverageLaw | UnequalLaw = best_server_rank(
        rows, ranks, request.level, rule=rule, confidence=request.confidence
    )
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


def sites_of(method: str, clients: Sequence[LocalScores]) -> list[dict[str, Any]]:
    """What each client said: its rows, the rank of the score that it sent, and the score."""
    entries = []
    rule = RULES[method][0]
    for number, client in enumerate(clients):
        score = client.scores[rule]
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


def _average(clients: Sequence[LocalScores]) -> Found:
    """The plain mean, as published; clients that have too few rows for a quantile have no say."""
    finite = [score for client in clients if math.isfinite(score := client.scores["split"])]
    return Found(
        threshold=math.fsum(finite) / len(finite) if finite else math.inf,
        reason=AVERAGE if finite else f"no client has rows enough for a quantile, and {AVERAGE}",
        rows=float(sum(client.rows for client in clients)),
        clients=len(clients),
        details={"without_a_quantile": len(clients) - len(finite)},
    )


def _alone(request: Request, clients: Sequence[LocalScores]) -> Found:
    """No common threshold; what is promised is the least that any client's own has."""
    laws = [
        CoverageLaw(clients=1, rows=client.rows, local_rank=client.ranks["split"], server_rank=1)
        for client in clients
        if client.ranks["split"] <= client.rows
    ]
    return Found(
        threshold=None if laws else math.inf,
        promised=min((law.mean for law in laws), default=None),
        reason=ALONE
        if laws
        else f"no client has {split_rows(request.level)} rows, so that all sets hold everything",
        rows=float(sum(client.rows for client in clients)),
        clients=len(clients),
        assumption="rows are exchangeable within each client, whose threshold is used for its own new rows only",
        details={"without_a_quantile": len(clients) - len(laws)},
    )
