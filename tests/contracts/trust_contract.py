"""What every trust model must do on every public face: inherit `TrustContract` and say which model it is.

What its messages must do, `tests/trust/contract.py` says. Here is what people read of it: the certificate, the privacy
statement, the planner's table, the audit, a site's policy, and its parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import faces
import pytest
from answers import Answers, Document, shared
from faces import Output, command
from kind_contract import Case
from own_kinds import Scores
from parameter_contract import ParameterContract

from fedassay.audit.catalogue import cases
from fedassay.audit.secrecy import secrecy_cases
from fedassay.trust import TRUST_MODELS

LONGEST_SENTENCE = 25
"""Words of a sentence that a reader follows."""

DIALECT = re.compile(r"\b(?:nobody|whoever|so many|all they know)\b", re.IGNORECASE)
"""Words that stand for a noun of the field."""


class TrustContract(ParameterContract):
    """Inherit, and name the trust model."""

    trust: ClassVar[str]
    attacked: ClassVar[bool] = True
    """Whether it claims to hide something, so that there must be an attack on the claim."""
    wrong: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def answers(cls, tmp_path_factory: pytest.TempPathFactory) -> Answers:
        """The evaluation of a classifier under it."""
        return answers_under(cls.trust, tmp_path_factory)

    # --- what people read -----------------------------------------------------------------------------------------

    def test_its_statement_says_what_is_promised(self, answers: Answers) -> None:
        privacy = answers.document(answers.contract.case("values"))["privacy"]
        assert privacy["trust_model"] == self.trust
        assert re.search(r"\b(?:server|coordinator)\b", privacy["statement"])
        assert faces.strange_words(privacy["statement"]) == []
        if TRUST_MODELS[self.trust].private:
            assert f"epsilon = {privacy['epsilon']:.3g}" in privacy["statement"]
            assert f"delta = {privacy['delta']:.3g}" in privacy["statement"]

    def test_its_statement_is_plain(self, answers: Answers) -> None:
        statement = answers.document(answers.contract.case("values"))["privacy"]["statement"]
        own = statement.partition(" This run was a simulation")[0]
        lengths = {sentence: len(sentence.split()) for sentence in re.split(r"(?<=[.:;]) ", own)}
        assert [text for text, length in lengths.items() if length > LONGEST_SENTENCE] == []
        assert DIALECT.findall(own) == []

    @pytest.mark.parametrize("face", ["terminal", "html", "study-terminal", "study-html", "study-markdown"])
    def test_its_statement_is_shown(self, answers: Answers, face: str) -> None:
        statement = answers.document_on(face, "values")["privacy"]["statement"]
        assert _letters(statement) in _letters(answers.text_on(face, "values"))

    def test_its_certificate_says_who_is_trusted(self, answers: Answers) -> None:
        certificate = certificate_of(answers)
        faces.validator(faces.schema("certificate")).validate(certificate)
        privacy = certificate["privacy"]
        assert privacy["trust_model"] == self.trust
        assert privacy["trusted"].endswith(".")
        assert all(mechanism["meaning"] for mechanism in privacy["mechanisms"])
        assert privacy["mechanisms"]
        folder = answers.study("values")[1]
        assert command("verify", folder, "--key", answers.public_key, "--quiet").code == 0

    def test_the_planner_has_a_row(self, answers: Answers) -> None:
        output, plan = answers.plan_in_study("values")
        assert output.works, output.err
        row = next(row for row in plan["trust_models"] if row["trust_model"] == self.trust)
        assert row["chosen"]
        assert row["possible"]
        assert all(row[name] for name in ("server_learns", "readers_learn", "rests_on"))
        assert row["needs"]["clients"] >= 1
        assert row["needs"]["servers"] == max(1, TRUST_MODELS[self.trust].helpers_needed)
        assert row["needs"]["rounds"] >= 1
        assert self.trust in output.out

    def test_it_is_attacked(self) -> None:
        attacks = [name for name, case in cases().items() if case.trust_model == self.trust]
        attacks += [name for name in secrecy_cases() if name.startswith(f"{self.trust}/")]
        assert bool(attacks) == self.attacked
        listed = audit_list().out
        assert all(name in listed for name in attacks)

    @pytest.mark.parametrize("allowed", [True, False])
    def test_a_site_can_allow_it_or_not(self, answers: Answers, allowed: bool) -> None:
        policy = answers.folder / f"policy-{allowed}.toml"
        others = [name for name in TRUST_MODELS if name != self.trust]
        policy.write_text(f"trust_models = {json.dumps([self.trust] if allowed else others)}\n" + POLICY)
        output = command(*self.words(answers, {}), "--policy", policy, "--quiet")
        assert output.code == (0 if allowed else 3), output.err
        assert allowed or self.trust in output.err

    # --- parameters -----------------------------------------------------------------------------------------------

    @property
    def owner(self) -> type[Any]:
        """The trust model."""
        return TRUST_MODELS[self.trust]

    def words(self, answers: Answers, values: Mapping[str, Any]) -> list[object]:
        """An evaluation under it."""
        contract = answers.contract
        return [contract.command, answers.rows_file(), *contract.options(contract.case("values"))]

    def in_python(self, values: Mapping[str, Any]) -> object:
        """The trust model itself."""
        return self.owner(**values)

    def in_a_study(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """An evaluation under it."""
        contract = _under(self.trust)
        sections = contract.sections(contract.case("values"))
        tasks = sections.pop("tasks.evaluate")
        return {**sections, "privacy.parameters": dict(values), "tasks.evaluate": tasks}

    def test_help_has_an_option_for_each_parameter(self) -> None:
        self.assert_help_has_options("evaluate")


POLICY = "[total]\nepsilon = 100.0\ndelta = 1e-3\n"


class _Under(Scores):
    """The evaluation of a classifier, with one trust model for all cases."""

    def __init__(self, trust: str) -> None:
        self.only = trust

    def case(self, name: str) -> Case:
        return Case(trust=self.only, epsilon=self.epsilon)


def _under(trust: str) -> Scores:
    return _Under(trust)


def _letters(text: str) -> str:
    """Letters and digits alone: pages break and mark texts up in their own ways."""
    return re.sub(r"[^\w=]+", "", text)


def answers_under(trust: str, factory: pytest.TempPathFactory) -> Answers:
    """The evaluation of a classifier under a trust model, on every face."""
    return shared(trust, lambda: _under(trust), factory)


def certificate_of(answers: Answers) -> Document:
    """The certificate of the study with the usual values."""
    output, folder = answers.study("values")
    assert output.works, output.err
    certificate: Document = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    return certificate


@cache
def audit_list() -> Output:
    """The attacks that are shipped."""
    return command("audit", "--list")
