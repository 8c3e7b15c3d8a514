"""The options with which a command runs under a trust model."""

from __future__ import annotations

from fedassay.trust import TRUST_MODELS


def terms(trust: str, *, epsilon: float, rows_per_client: int) -> list[str]:
    """The trust model, its budget if it needs one, and a bound if the number of rows must be public."""
    kind = TRUST_MODELS[trust]
    budget = ["--epsilon", str(epsilon)] if kind.private else []
    bound = ["--rows-per-client", str(rows_per_client)] if kind.helpers_needed else []
    return ["--privacy", trust, *budget, *bound]
