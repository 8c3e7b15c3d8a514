"""The contract of every trust model of this repository, as people read it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from trust_contract import TrustContract, answers_under, certificate_of

from fedassay.trust import TRUST_MODELS

COHORT: dict[str, Any] = {
    "dropout": 1.5,
    "collusion": 1.5,
    "minimum_cohort": 0,
    "members": ["a", "a"],
    "same_set": "maybe",
    "cohort_difference": -1,
}


class TestPlain(TrustContract):
    trust = "plain"
    attacked = False


class TestSecureSum(TrustContract):
    trust = "secure-sum"
    wrong = COHORT


class TestDistributedDp(TrustContract):
    trust = "distributed-dp"
    wrong = COHORT


class TestLocalDp(TrustContract):
    trust = "local-dp"
    wrong: ClassVar = {"encoding": "magic"}


class TestServerDp(TrustContract):
    trust = "server-dp"


class TestTwoServer(TrustContract):
    trust = "two-server"


class TestShuffle(TrustContract):
    trust = "shuffle"
    wrong: ClassVar = {"dropout": 1.5, "collusion": 1.5, "minimum_cohort": 0, "encoding": "magic"}


def test_every_trust_model_of_this_repository_has_a_contract() -> None:
    ours = {name for name, kind in TRUST_MODELS.items() if kind.__module__.startswith("fedassay.")}
    assert {contract.trust for contract in globals().values() if _is_contract(contract)} == ours


def test_no_two_trust_models_trust_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    names = [contract.trust for contract in globals().values() if _is_contract(contract)]
    sentences = {
        certificate_of(answers_under(name, tmp_path_factory))["privacy"]["trusted"] for name in names
    }
    assert len(sentences) == len(names)


def _is_contract(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, TrustContract) and value.__name__.startswith("Test")
