"""What is computed and said is what the golden files have; how they are written anew, the package says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.kernel.envelope import Refusal, open_reply, open_request
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS
from golden import cells, commands, documents, messages, study, usages
from golden.documents import FOLDER, differences, summarised, text_differences

USAGES = documents.read(FOLDER / "usage.json")


@pytest.mark.parametrize("name", cells.NAMES)
def test_the_result_of_a_cell_has_not_moved(name: str) -> None:
    stored = documents.read(FOLDER / "cells" / f"{name}.json")
    assert list(differences(stored, cells.run(name), relative=cells.relative(name))) == []


def test_every_trust_model_has_cells_and_every_file_belongs_to_something() -> None:
    assert set(TRUST_MODELS) <= {name.partition("--")[2] for name in cells.NAMES}
    assert {path.stem for path in (FOLDER / "cells").iterdir()} == set(cells.NAMES)
    assert {path.name for path in (FOLDER / "help").iterdir()} == set(
        map(commands.file_name, commands.commands())
    )
    assert list(USAGES) == list(usages.USAGES)


@pytest.mark.parametrize("command", commands.commands())
def test_the_help_has_not_changed(command: str) -> None:
    assert commands.help_of(command) == (FOLDER / "help" / commands.file_name(command)).read_text("utf-8")


def test_names_types_and_defaults_of_options_have_not_changed() -> None:
    assert commands.options() == documents.read(FOLDER / "options.json")


def test_page_model_card_and_terminal_say_what_they_said(tmp_path: Path) -> None:
    texts = study.run(tmp_path)
    assert {path.name for path in (FOLDER / "report").iterdir()} == set(texts)
    for name, text in texts.items():
        assert list(text_differences((FOLDER / "report" / name).read_text("utf-8"), text)) == [], name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("usages")
    usages.make_files(folder)
    return folder


@pytest.mark.parametrize("name", usages.USAGES)
def test_a_wrong_usage_ends_with_its_sentence_and_destroys_nothing(name: str, files: Path) -> None:
    before = usages.contents(files)
    now, stored = usages.ask(name, files), USAGES[name]
    assert before.items() <= usages.contents(files).items()
    assert now["arguments"] == stored["arguments"]
    assert not (now["says"] or "").startswith("Traceback")
    assert now["exit"] == stored["exit"]
    assert now["says"] == stored["says"]


def test_the_bytes_of_requests_and_replies_have_not_changed() -> None:
    assert messages.vectors() == documents.read(messages.STORED)


@pytest.mark.parametrize("name", messages.REQUESTS)
def test_stored_requests_are_read_back(name: str) -> None:
    data = bytes.fromhex(documents.read(messages.STORED)[f"request: {name}"])
    found = open_request(data, summaries=CATALOGUE, trust_models=TRUST_MODELS)
    query, trust, protection, budget = messages.REQUESTS[name]
    (plan,) = found.request.plans
    assert (found.study, found.trust, found.tasks) == ("demo", trust, ("evaluate",))
    assert (plan.query.of, plan.query.share, plan.query.part, plan.query.cohort) == (
        *(query.of, query.share, query.part, query.cohort),
    )
    assert (plan.setting.protection, plan.setting.budget) == (protection, budget)


def test_stored_replies_are_read_back() -> None:
    stored = documents.read(messages.STORED)
    expected = {"sender": "a", "exchange": messages.EXCHANGE, "leg": 0}
    found = open_reply(bytes.fromhex(stored["reply"]), **expected)
    assert not isinstance(found, Refusal)
    assert found.prekeys == (b"prekey",)
    np.testing.assert_array_equal(found.message["vectors"][0], [1, -2, 3])
    assert open_reply(bytes.fromhex(stored["refusal"]), **expected) is Refusal.BUDGET


# --- the comparison itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(more=1),
        lambda document: document.pop("text"),
        lambda document: document.update(text="other"),
        lambda document: document.update(whole=8),
        lambda document: document.update(whole=True),
        lambda document: document.update(number=0.10001),
        lambda document: document.update(number=None),
        lambda document: document["short"].append(1),
        lambda document: document["long"].append(0.0),
        lambda document: document["long"].__setitem__(5, 0.51),
        lambda document: document["nested"][1].update(a=2.5),
    ],
)
def test_what_moves_is_seen(change: Callable[[dict[str, Any]], object]) -> None:
    document = {
        **{"text": "words", "whole": 7, "number": 0.1, "short": [1, 2], "long": [k / 10 for k in range(20)]},
        "nested": [{"a": 1.5}, {"a": 2.0}, {"a": 3.0}, {"a": 4.0}],
    }
    changed = json.loads(json.dumps(document))
    change(changed)
    assert list(differences(summarised(document), summarised(document))) == []
    assert list(differences(summarised(document), summarised(changed)))


def test_the_rounding_of_another_processor_is_not_seen() -> None:
    stored = {"number": 0.1, "long": [(-1) ** k / 3 for k in range(20)]}
    other = {"number": 0.1 * (1 + 1e-9), "long": [value * (1 + 1e-12) for value in stored["long"]]}  # type: ignore
    assert list(differences(summarised(stored), summarised(other))) == []
    assert list(text_differences("lower: 0.2057664", "lower: 0.2057665")) == []
    assert list(text_differences("lower: 0.2057664", "lower: 0.2067664"))
    assert list(text_differences("0.21", "0.22"))
    assert list(text_differences("one\ntwo", "one"))
