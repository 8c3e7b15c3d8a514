"""QQ where only sums are known: clients vote for the public point above their quantile, and k is found afterwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.summaries.quantile_votes import QuantileVotes, Votes
from fedassay.tasks.conformal.collected import quantile_of_quantiles
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.request import Request


def found_from(request: Request, summary: QuantileVotes, votes: Votes) -> Found:
    """The point that the k-th smallest vote is for; a client counts as one with the rows of its rung."""
    rows = np.repeat(votes.rungs, np.asarray(votes.rows, dtype=np.int64)).tolist()
    scores = np.repeat(votes.edges, np.asarray(votes.votes, dtype=np.int64))
    found = quantile_of_quantiles(
        request, rows, [summary.rank(n) for n in rows], scores.tolist(), rule="spread", exact=False
    )
    step = float(votes.edges[1] - votes.edges[0])
    return replace(found, details={**found.details, "step": step})
