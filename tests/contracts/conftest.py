"""Contracts say what is wrong like tests do; the package of strangers is found by processes of its own only."""

from __future__ import annotations

import pytest

collect_ignore = ["strangers"]

pytest.register_assert_rewrite(
    "answers", "kind_contract", "metric_contract", "parameter_contract", "trust_contract"
)


@pytest.fixture(scope="module", autouse=True)
def rehearsals() -> None:
    """Every kind is rehearsed here, as for its users."""
