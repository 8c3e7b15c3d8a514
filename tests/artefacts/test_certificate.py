"""A certificate says what the result says, and is not written for a result that contradicts itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artefact_files import with_entry
from certified_folders import (
    OWNER,
    certified,
    content_of_certificate,
    document,
    entry,
    exact_document,
    written,
)
from fedassay.artefacts import privacy_statement as privacy_words
from fedassay.artefacts.certificate import KEY_OF_SOMEBODY, KEY_OF_THE_STUDY, certify
from fedassay.artefacts.certificate_ledger import composed
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.crypto.identity import key_to_text
from fedassay.errors import UsageError
from fedassay.privacy import accounting
from fedassay.protocol.vocabulary import NO_NOISE, Budget, Neighbours, Part, Unit
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import TRUST_CARDS
from stated import Verify
from study_documents import study_document

SCHEMA = json.loads(
    (package_files("fedassay.documents") / "certificate.schema.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("noise", [True, False])
def test_a_real_study_is_certified_and_holds(tmp_path: Path, noise: bool) -> None:
    folder = certified(tmp_path / "study", study_document(noise=noise))
    found = check(folder, key=OWNER.public)
    assert found.holds, found.wrong
    assert found.study == "readmission-spring"
    content = content_of_certificate(folder)
    jsonschema.validate(content, SCHEMA)
    budget = study_document(noise=noise)["results"]["budget"]
    assert content["ledger"]["entries"] == budget["charges"]
    assert content["ledger"]["spent"] == budget["spent"]
    assert content["privacy"]["statement"] == study_document(noise=noise)["privacy"]["statement"]


@pytest.mark.parametrize("made", [document, exact_document])
@pytest.mark.parametrize("training", [None, Budget(epsilon=3.0, delta=1e-6)])
def test_it_has_the_published_form(
    tmp_path: Path, made: Callable[[], dict[str, Any]], training: Budget | None
) -> None:
    folder = certified(tmp_path / "study", made(), training=training, ledger_head="0" * 64)
    content = content_of_certificate(folder)
    jsonschema.validate(content, SCHEMA)
    assert content["ledger"]["head"] == "0" * 64
    assert content["key"]["public"] == key_to_text(OWNER.public)
    assert content["key"]["meaning"] == KEY_OF_SOMEBODY
    training_is_open = any("training" in text for text in content["privacy"]["not_covered"])
    assert training_is_open == (training is None)
    if training is not None:
        stated = content["privacy"]["training"]
        assert (stated["epsilon"], stated["delta"]) == (3.0, 1e-6)
        assert content["privacy"]["epsilon"] == made()["privacy"]["epsilon"]  # it is not added


def test_the_schema_refuses_what_is_none(tmp_path: Path) -> None:
    content = content_of_certificate(certified(tmp_path / "study"))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid(content)
    for name in content:
        assert not validator.is_valid({key: value for key, value in content.items() if key != name}), name


def test_without_a_key_one_is_made_and_the_certificate_says_what_that_means(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study", identity=None)
    other = certified(tmp_path / "other", identity=None)
    key = content_of_certificate(folder)["key"]
    assert key["made_for_this_study"] is True
    assert key["meaning"] == KEY_OF_THE_STUDY
    assert key["public"] != content_of_certificate(other)["key"]["public"]
    assert check(folder, key=ANY_KEY).holds
    assert any(one.text == KEY_OF_THE_STUDY for one in check(folder).checks)


def test_mechanisms_are_those_of_the_releases(tmp_path: Path) -> None:
    entries = [entry(1), entry(2, task="calibrate", part="fit"), entry(3, scale=9.0)]
    mechanisms = content_of_certificate(certified(tmp_path / "study", document(entries, epsilon=2.0)))[
        "privacy"
    ]["mechanisms"]
    assert [(one["scale"], one["releases"], one["tasks"], one["parts"]) for one in mechanisms] == [
        (4.0, 2, ["evaluate", "calibrate"], ["all", "fit"]),
        (9.0, 1, ["evaluate"], ["all"]),
    ]


def test_every_word_of_the_vocabulary_has_a_meaning() -> None:
    assert set(TRUST_CARDS) == set(TRUST_MODELS)
    assert all(card.trusted.endswith(".") for card in TRUST_CARDS.values())
    assert set(privacy_words.UNITS) == set(Unit)
    assert set(privacy_words.NEIGHBOURS) == set(Neighbours)
    laws = {getattr(accounting, name) for name in ("LAPLACE", "GAUSSIAN", "SKELLAM", "UNARY", "CHOICE")}
    assert set(privacy_words.LAWS) == {NO_NOISE.law, *laws}
    defined = SCHEMA["$defs"]
    assert set(defined["law"]["enum"]) == set(privacy_words.LAWS)
    assert set(defined["part"]["enum"]) == set(Part)
    allowed = defined["privacy"]["properties"]["trust_model"]["pattern"]
    assert all(re.fullmatch(allowed, name) for name in TRUST_MODELS)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("results.budget.spent", 0.9, "the entries compose to 1"),
        ("results.budget.epsilon", 1.6, "epsilon and delta of the privacy statement"),
        ("results.budget.remaining", 0.4, "said to remain"),
        ("results.budget.charges.0.scale", 2.0, "compose to 1.5"),
        ("results.budget.charges.0.epsilon", 0.1, "another epsilon than its noise"),
        ("results.budget.charges.0.unit", "client", "another trust model, unit or neighbours"),
        ("results.budget.charges.0.law", "none", "not a release that fedassay could have made"),
        ("results.budget.charges.0.law", "gauss", "not a release that fedassay could have made"),
        ("results.budget.charges.1.id", "release-1", "same id"),
    ],
)
def test_a_result_that_does_not_add_up_gets_none(tmp_path: Path, path: str, value: Any, words: str) -> None:
    content = with_entry(document(), path, value)
    with pytest.raises(UsageError, match=words):
        certified(tmp_path / "study", content)
    assert not (tmp_path / "study" / "certificate.json").exists()


def test_a_result_that_overspent_gets_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 spent, more than the budget of 0.9"):
        certified(tmp_path / "study", document(epsilon=0.9))


def test_only_the_result_of_a_study_that_lies_in_the_folder_is_certified(tmp_path: Path) -> None:
    content = document()
    names = written(tmp_path / "study", content)
    with pytest.raises(UsageError, match="expected a study"):
        certify(tmp_path / "study", {**content, "task": "evaluate"}, files=names)
    with pytest.raises(UsageError, match="is not the result that was given"):
        certify(tmp_path / "study", with_entry(content, "cohort.rows", 99), files=names)
    (tmp_path / "study" / "result.json").write_text("no JSON")
    with pytest.raises(UsageError, match="is not the result that was given"):
        certify(tmp_path / "study", content, files=names)


@pytest.mark.parametrize(
    "files",
    [
        ["report.html"],
        ["result.json", "certificate.json"],
        ["result.json", "report.html", "report.html"],
        ["result.json", "../outside"],
        ["result.json", "absent.json"],
        ["result.json", "link.json"],
        ["result.json", "folder"],
    ],
)
def test_files_must_be_ordinary_ones_of_the_folder(tmp_path: Path, files: list[str]) -> None:
    content = document()
    written(tmp_path / "study", content)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "study" / "link.json").symlink_to(tmp_path / "outside")
    (tmp_path / "study" / "folder").mkdir()
    with pytest.raises(UsageError):
        certify(tmp_path / "study", content, files=files)
    assert not (tmp_path / "study" / "certificate.json").exists()


LAWS = st.sampled_from(
    [
        {"law": "discrete-gaussian", "scale": 20.0},
        {"law": "discrete-gaussian", "scale": 55.5},
        {"law": "skellam", "scale": 30.0},
    ]
)
PARTS = st.sampled_from([str(part) for part in Part])


STUDIES = {
    "releases": st.lists(st.tuples(LAWS, PARTS), min_size=2, max_size=8),
    "slack": st.floats(0.0, 1.0),
    "delta": st.sampled_from([1e-9, 1e-6, 1e-3]),
}


def certify_at_the_edge(
    folder: Path, releases: list[tuple[dict[str, Any], str]], slack: float, delta: float
) -> None:
    """The certified epsilon is the composed one; a budget that is a little too small gets no certificate."""
    entries = [
        entry(number, **law, part=part, task=("evaluate", "calibrate")[number % 2])
        for number, (law, part) in enumerate(releases)
    ]
    spent = document(entries, epsilon=1e6, delta=delta)["results"]["budget"]["spent"]
    content = document(entries, epsilon=spent * (1 + slack) + 1e-12, delta=delta)
    ledger = content_of_certificate(certified(folder / "study", content))["ledger"]
    assert ledger["spent"] == composed(ledger) <= ledger["budget"]
    assert check(folder / "study", key=ANY_KEY).holds
    if spent > 0:
        with pytest.raises(UsageError, match="more than the budget"):
            certified(folder / "other", document(entries, epsilon=spent * 0.999, delta=delta))


@settings(max_examples=15)
@given(**STUDIES)
def test_the_certified_epsilon_is_the_composed_one_and_within_the_budget(
    tmp_path_factory: pytest.TempPathFactory, **study: Any
) -> None:
    certify_at_the_edge(tmp_path_factory.mktemp("studies"), **study)


@pytest.mark.full
def test_of_200_random_studies_the_certified_epsilon_is_the_composed_one(
    tmp_path_factory: pytest.TempPathFactory, verify: Verify
) -> None:
    tried = 0

    @settings(max_examples=200)
    @given(**STUDIES)
    def certified_each(**study: Any) -> None:
        nonlocal tried
        certify_at_the_edge(tmp_path_factory.mktemp("studies"), **study)
        tried += 1

    certified_each()
    assert tried >= 200
    verify(
        "the epsilon in a certificate is what its entries compose to and within the budget, for random ledgers",
        f"{tried} ledgers, no exception",
    )


def test_nothing_we_write_claims_compliance() -> None:
    """Evidence for an evaluation is all that software can give."""
    repository = Path(__file__).resolve().parents[2]
    texts = [
        path
        for folder in ("src", "docs", "examples")
        for pattern in ("*.py", "*.json", "*.md", "*.js", "*.html", "*.toml")
        for path in (repository / folder).rglob(pattern)
    ]
    assert len(texts) > 300
    claims = re.compile(r"\bcomplian|\bcomplies\b|\bcertified (by|to)\b", re.IGNORECASE)
    assert [str(path) for path in texts if claims.search(path.read_text(encoding="utf-8"))] == []
