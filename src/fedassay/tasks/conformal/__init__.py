"""Prediction sets with guaranteed coverage after one message from each client.

What is here so far is the coverage calculus: what a quantile of quantiles guarantees, before any score is seen.
"""

from __future__ import annotations

from fedassay.tasks.conformal.coverage import CoverageLaw
from fedassay.tasks.conformal.pairs import Rule, best_pair, scores_needed
from fedassay.tasks.conformal.ranks import best_ranks, best_server_rank
from fedassay.tasks.conformal.unequal import TooSmall, UnequalLaw, split_ranks, too_small

__all__ = [
    "CoverageLaw",
    "Rule",
    "TooSmall",
    "UnequalLaw",
    "best_pair",
    "best_ranks",
    "best_server_rank",
    "scores_needed",
    "split_ranks",
    "too_small",
]
