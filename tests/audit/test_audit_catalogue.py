"""Nothing is forgotten: every private trust model, every law, every summary with a finite sensitivity is attacked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "summaries"))

from test_nothing_refuses import WITHOUT_A_BOUND

from fedassay.audit.cases import FederatedCase
from fedassay.audit.catalogue import cases
from fedassay.audit.findings import attacked
from fedassay.privacy import accounting
from fedassay.privacy.continual_noise import MECHANISMS
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Neighbours, Unit
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS

SOMETIMES = {"clipped-updates", "loss-curves", "quantile-losses"}
"""They have a bound if one is asked for, or clients choose by them."""

SLOW = ("distributed-dp", "shuffle", "two-server")
QUICK = [
    name
    for name, case in cases().items()
    if case.trust_model not in SLOW
    or name in ("distributed-dp/polya", "shuffle/laplace", "two-server/laplace")
]


def test_every_private_trust_model_is_attacked() -> None:
    private = {name for name, model in TRUST_MODELS.items() if model.private}
    assert private <= {case.trust_model for case in cases().values()}


def test_every_summary_that_can_be_asked_under_noise_is_attacked() -> None:
    """A new summary is attacked, or is listed among those that have no finite sensitivity."""
    attacked = {name for case in cases().values() for name in case.summaries}
    assert attacked == (set(CATALOGUE) - set(WITHOUT_A_BOUND)) | SOMETIMES


def test_every_law_is_attacked() -> None:
    laws = {accounting.LAPLACE, accounting.GAUSSIAN, accounting.SKELLAM, accounting.UNARY, accounting.CHOICE}
    assert laws == {law for case in cases().values() for law in case.laws}


def test_every_continual_mechanism_is_attacked() -> None:
    assert {f"continual/{name}" for name in MECHANISMS} <= set(cases())


def test_units_neighbours_shares_sampling_and_dropouts_are_attacked() -> None:
    federated = [case for case in cases().values() if isinstance(case, FederatedCase)]
    assert {case.protection.unit for case in federated} == set(Unit)
    assert {case.protection.neighbours for case in federated} == set(Neighbours)
    assert any(len(case.queries) > 1 for case in federated)
    assert any(plan.sampled < 1 for case in federated for plan in case.plans)
    assert any(case.lost and case.silent for case in federated)
    assert any(type(plan).__name__ == "ShuffledPlan" for case in federated for plan in case.plans)


@pytest.mark.parametrize("name", list(cases()))
def test_worlds_are_as_far_apart_as_is_allowed(name: str) -> None:
    """Never further; and mostly that far, so that the attack is one on the claim itself."""
    exceptions = {"site-sums": 0.05, "scaling-sums": 0.15, "loss-curves/row": 0.5, "map-changes": 0.85}
    assert exceptions.get(name, 0.9) <= cases()[name].moved <= 1 + 1e-9


@pytest.mark.parametrize("name", QUICK)
def test_little_is_found_with_few_runs(name: str) -> None:
    """Seeds are fixed; the error rate would be 1e-6 for each."""
    found = attacked(
        cases()[name], samples=100, confidence=1 - 1e-6, randomness=SimulatedRandomness(11, name)
    )
    assert not found.violated
    assert found.runs == 200
