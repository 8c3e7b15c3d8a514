"""Coverage of prediction sets before any score is seen: pure mathematics that clients and server share.

A client works out its own rank from public numbers, the server works out what the ranks of all clients guarantee:
both from here, which is why it is below summaries and tasks.
"""

from __future__ import annotations

from fedassay.estimation.coverage.best_choice import ClientChoice, best_choice
from fedassay.estimation.coverage.choice import ChoiceLaw
from fedassay.estimation.coverage.law import CoverageLaw
from fedassay.estimation.coverage.noise_tail import NoiseTail
from fedassay.estimation.coverage.pairs import Rule, best_pair, scores_needed
from fedassay.estimation.coverage.pooled import PooledLaw, fewest_rows, pooled_margin
from fedassay.estimation.coverage.published_choice import PublishedChoice, published_choice
from fedassay.estimation.coverage.unequal import UnequalLaw, best_ranks, best_server_rank, split_ranks

__all__ = [
    "ChoiceLaw",
    "ClientChoice",
    "CoverageLaw",
    "NoiseTail",
    "PooledLaw",
    "PublishedChoice",
    "Rule",
    "UnequalLaw",
    "best_choice",
    "best_pair",
    "best_ranks",
    "best_server_rank",
    "fewest_rows",
    "pooled_margin",
    "published_choice",
    "scores_needed",
    "split_ranks",
]
