"""The contract of every trust model of this repository, as people read it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from trust_contract import TrustContract, answers_under, certificate_of

from fedassay.trust import TRUST_MODELS

LANGUAGE = "test_a_refusal_speaks_the_language_of_its_face"
WRONG = "test_a_wrong_value_is_refused"
PLAIN = "test_its_statement_is_plain"

COHORT: dict[str, Any] = {
    "dropout": 1.5,
    "collusion": 1.5,
    "minimum_cohort": 0,
    "members": ["a", "a"],
    "same_set": "maybe",
    "cohort_difference": -1,
}

COHORT_HOLES: dict[str, str] = {
    **{
        f"{WRONG}[minimum_cohort-{face}]": "the sentence names the smallest cohort"
        for face in ("command", "python", "study")
    },
    f"{WRONG}[collusion-study]": "dropout and collusion have no ranges of their own: the line is that of the section",
    f"{LANGUAGE}[command]": "sentences about sums of parameters name fields, and the smallest cohort",
    f"{LANGUAGE}[python]": "the sentence names the smallest cohort",
    f"{LANGUAGE}[study]": "the sentence names the smallest cohort, or two entries at once",
}
STATEMENT_HOLES = {PLAIN: "the statement says that a site may tell a coordinator all they know"}


class TestPlain(TrustContract):
    trust = "plain"
    attacked = False


class TestSecureSum(TrustContract):
    trust = "secure-sum"
    wrong = COHORT
    holes: ClassVar = {
        **COHORT_HOLES,
        **STATEMENT_HOLES,
    }


class TestDistributedDp(TrustContract):
    trust = "distributed-dp"
    wrong = COHORT
    holes: ClassVar = {**COHORT_HOLES, **STATEMENT_HOLES}


class TestLocalDp(TrustContract):
    trust = "local-dp"
    wrong: ClassVar = {"encoding": "magic"}
    holes: ClassVar = {PLAIN: "the statement says that nobody is trusted"}


class TestServerDp(TrustContract):
    trust = "server-dp"


class TestTwoServer(TrustContract):
    trust = "two-server"
    holes: ClassVar = {PLAIN: "a sentence of the statement is 32 words long"}


class TestShuffle(TrustContract):
    trust = "shuffle"
    wrong: ClassVar = {"dropout": 1.5, "collusion": 1.5, "minimum_cohort": 0, "encoding": "magic"}
    holes: ClassVar = {
        **COHORT_HOLES,
        PLAIN: "the statement says that nobody is trusted, in sentences of up to 30 words",
    }


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
