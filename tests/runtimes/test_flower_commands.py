"""`fedassay flower app`, `site` and `submit` as a user meets them, and the files that they write."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cyclopts.exceptions import MissingArgumentError

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")


import fedassay
from fedassay.cli import run_command
from fedassay.cli.commands import app
from fedassay.crypto.identity import Identity, key_to_text
from fedassay.data.sql import Database
from fedassay.errors import FedassayError, FederationError, ProtocolError, Refused, UsageError
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.randomness import SecureRandomness
from fedassay.runtimes import flower
from fedassay.runtimes.flower import server_app, submission
from fedassay.runtimes.flower import submission as events
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import Connection, submit


def call(*arguments: object) -> None:
    app(["flower", *map(str, arguments)])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with keys, a roster and some data."""
    lines = ["[roster]"]
    for name in ("coordinator", "hospital-a", "hospital-b", "hospital-c"):
        identity = Identity.draw(SecureRandomness())
        identity.save(tmp_path / f"{name}.key")
        lines.append(f'{name} = "{key_to_text(identity.public)}"')
    (tmp_path / "roster.toml").write_text("\n".join(lines) + "\n")
    np.savez(tmp_path / "data.npz", p=np.array([0.2, 0.7]), y=np.array([0, 1]))
    return tmp_path


def site_options(place: Path) -> list[object]:
    return [
        *("--out", place / "site.toml", "--name", "hospital-a", "--data", place / "data.npz"),
        *("--column", "score=p", "--column", "label=y", "--trust-model", "secure-sum"),
        *("--key", place / "hospital-a.key", "--roster", place / "roster.toml"),
    ]


def test_a_site_is_set_up_by_options(place: Path, capsys: Any) -> None:
    call("site", *site_options(place), "--epsilon", 3, "--superlink", "link:8443")
    file = SiteFile.read(place / "site.toml")
    assert (file.name, file.columns) == ("hospital-a", {"score": "p", "label": "y"})
    assert file.policy.trust_models == {"secure-sum"}
    assert file.budget is not None
    assert file.budget.epsilon == 3
    said = capsys.readouterr().out
    assert f"""--node-config 'site="{place / "site.toml"}"'""" in said
    assert "--superlink link:8443" in said


def test_a_site_may_have_its_rows_in_a_database(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    call("site", *site_options(place), "--data", "sqlite:///x/scores.db", "--query", "select * from t")
    file = SiteFile.read(place / "site.toml")
    assert isinstance(file.data, Database)
    assert (file.data.file, file.data.query) == (place.parent / "x" / "scores.db", "select * from t")
    assert file.dataset == "hospital-a/scores.db"


def test_a_site_is_set_up_by_questions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        "hospital-a",
        place / "data.npz",
        "p",
        "y",
        "",
        place / "hospital-a.key",
        place / "roster.toml",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, answers)) + "\n"))
    assert run_command(["flower", "site", "--out", str(place / "site.toml")]) == 0
    file = SiteFile.read(place / "site.toml")
    assert file.policy.trust_models == {"secure-sum"}
    assert file.budget is None


def test_a_key_that_is_not_there_is_made_and_its_line_for_the_roster_is_told(place: Path) -> None:
    options = [
        place / "new.key" if option == place / "hospital-a.key" else option for option in site_options(place)
    ]
    with pytest.raises(UsageError, match='its line must be hospital-a = "') as failure:
        call("site", *options)
    assert key_to_text(Identity.load(place / "new.key").public) in str(failure.value)
    assert not (place / "site.toml").exists()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--column", "score", "expected ROLE=COLUMN"),
        ("--trust-model", "trust-me", "got 'trust-me'"),
        ("--roster", "nowhere.toml", "the coordinator sends the roster"),
    ],
)
def test_a_wrong_answer_is_named(place: Path, option: str, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call("site", *site_options(place), option, value)


def test_rules_are_not_overwritten(place: Path) -> None:
    call("site", *site_options(place))
    with pytest.raises(UsageError, match="not overwritten"):
        call("site", *site_options(place))


def coordinator_options(place: Path) -> list[object]:
    return ["--key", place / "coordinator.key", "--roster", place / "roster.toml", "-q"]


def test_the_app_is_one_file_without_code(place: Path) -> None:
    options = coordinator_options(place)
    call("app", place / "app", "--coordinator", place / "coordinator.toml", *options)
    assert [path.name for path in (place / "app").iterdir()] == ["pyproject.toml"]
    app = tomllib.loads((place / "app" / "pyproject.toml").read_text())
    assert app["project"]["dependencies"] == []
    assert app["tool"]["flwr"]["app"]["config"] == {
        **FlowerStudy(name="study").to_config(),
        "privacy-parameters": "{}",
    }
    assert str(place) not in (place / "app" / "pyproject.toml").read_text()
    coordinator = CoordinatorFile.read(place / "coordinator.toml")
    assert coordinator.clients == ("hospital-a", "hospital-b", "hospital-c")
    with pytest.raises(UsageError, match="exists already"):
        call("app", place / "app", "--coordinator", place / "coordinator.toml", *options)
    call("app", place / "app", "--coordinator", place / "coordinator.toml", "-q")


def test_where_the_coordinators_file_is_named_is_told(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    call("app", place / "app", "--coordinator", "our file.toml")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "export" in line)
    assert line.strip() == f"export FEDASSAY_COORDINATOR='{place}/our file.toml'"


def test_somebody_elses_project_is_not_overwritten(place: Path) -> None:
    (place / "pyproject.toml").write_text("[project]\nname = 'thesis'\n")
    with pytest.raises(UsageError, match="not an app of fedassay"):
        call("app", place, "--coordinator", place / "coordinator.toml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seed", 1], "this is a release"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--epsilon", 1], "leave them out"),
        (["--threshold", 1.5], "threshold"),
        (["--study", "../../etc"], "letters, digits"),
        (["--timeout", 0], "seconds"),
        (["--root-certificates", "nowhere.crt"], "expected the root certificate"),
        (["--connection", "lab"], "either an address or"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_sent(place: Path, options: list[Any], words: str) -> None:
    call("app", place / "app", "--coordinator", place / "coordinator.toml", "-q")
    with pytest.raises(UsageError, match=words):
        call("submit", place / "app", "--study", "s", "--address", "127.0.0.1:1", "--insecure", *options)


def test_a_submission_without_certificate_is_refused(place: Path) -> None:
    call("app", place / "app", "--coordinator", place / "coordinator.toml", "-q")
    with pytest.raises(UsageError, match="root certificate"):
        call("submit", place / "app", "--study", "s", "--address", "127.0.0.1:1")
    with pytest.raises(UsageError, match="there is no app"):
        call("submit", place, "--study", "s", "--address", "127.0.0.1:1", "--insecure")
    with pytest.raises(MissingArgumentError):
        call("submit", place / "app")


# --- what comes back ------------------------------------------------------------------------------------


def fake_flwr(place: Path, lines: list[str]) -> str:
    """A command that says these lines instead of running anything."""
    path = place / "flwr"
    (place / "lines.txt").write_text("\n".join(lines) + "\n")
    path.write_text(f"#!/bin/sh\ncat {place / 'lines.txt'}\n")
    path.chmod(0o700)
    return str(path)


def submitted(place: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> str:
    monkeypatch.setattr(submission, "_flwr", lambda: fake_flwr(place, lines))
    call("app", place / "app", "--coordinator", place / "coordinator.toml", "-q")
    return submit(place / "app", FlowerStudy(name="s"), Connection(address="127.0.0.1:1", insecure=True))


def test_the_result_comes_back_through_the_log(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.dumps({"numbers": list(range(50_000))})
    lines = ["INFO: starting", *events.result_lines(document, path="/there"), "INFO: stopping"]
    assert len(lines) > 4
    assert submitted(place, monkeypatch, lines) == document


@pytest.mark.parametrize("loss", [1, 2, 3])
def test_a_result_that_lost_a_line_or_a_byte_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, loss: int
) -> None:
    document = json.dumps({"numbers": list(range(50_000))})
    lines = list(events.result_lines(document, path="/there"))
    spoiled = [*lines[: loss - 1], *lines[loss:]]
    with pytest.raises(ProtocolError, match="fetch /there"):
        submitted(place, monkeypatch, spoiled)
    swapped = [*lines[:-1], lines[-1].replace('"sha256": "', '"sha256": "0')]
    with pytest.raises(ProtocolError, match="is not what was written"):
        submitted(place, monkeypatch, swapped)


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (3, Refused), (4, FederationError)])
def test_a_failure_keeps_its_exit_code(
    place: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[FedassayError]
) -> None:
    with pytest.raises(kind, match="because") as failure:
        submitted(place, monkeypatch, [events.line("failed", code=code, message="because")])
    assert failure.value.exit_code == code


def test_a_run_that_ends_in_silence_says_how_to_go_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FederationError, match="submit the same study again"):
        submitted(place, monkeypatch, [events.line("started", study="s"), "connection lost"])
    with pytest.raises(FederationError, match="could not be started. Flower said: no such link"):
        submitted(place, monkeypatch, ["no such link"])


@pytest.mark.parametrize("quiet", [False, True])
def test_a_site_that_was_lost_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, quiet: bool
) -> None:
    rows = {"client": list("abcd"), "p": [0.1, 0.4, 0.6, 0.9], "y": [0, 1, 0, 1]}
    document = fedassay.evaluate(rows, client="client", score="p", label="y").to_json()
    lines = [
        events.line("warning", message="leg 1: nobody is e."),
        *events.result_lines(document, path="/there"),
    ]
    monkeypatch.setattr(submission, "_flwr", lambda: fake_flwr(place, lines))
    call("app", place / "app", "-q")
    options = ["--study", "s", "--address", "127.0.0.1:1", "--insecure", *(["-q"] if quiet else [])]
    call("submit", place / "app", *options, "--json", place / "result.json")
    said = capsys.readouterr().err
    assert ("Warning: leg 1: nobody is e." in said) is not quiet
    assert (place / "result.json").read_text() == document


@pytest.mark.parametrize("text", ["", "FEDASSAY", "FEDASSAY {", "FEDASSAY []", 'FEDASSAY {"event": 1}'])
def test_lines_that_are_no_events(text: str) -> None:
    assert events.event_in(text) is None


def asked(task: str, parameters: dict[str, Any], **more: Any) -> str:
    """The tasks of a run configuration, whether they make sense or not."""
    item = {"name": task, "task": task, "parameters": parameters, "share": 1.0, "after": None}
    return json.dumps([{**item, **more}])


@pytest.mark.parametrize(
    "change",
    [
        {"study": "../x"},
        {"tasks": "[]"},
        {"tasks": "{}"},
        {"tasks": '[{"name": "evaluate"}]'},
        {"tasks": asked("rm", {})},
        {"tasks": asked("evaluate", {"code": 1})},
        {"tasks": asked("evaluate", {"buckets": "many"})},
        {"tasks": asked("evaluate", {}, share=2.0)},
        {"tasks": asked("evaluate", {}, after="calibrate")},
        {"privacy": "trust-me"},
        {"privacy-parameters": '{"dropout": 0.9}'},
        {"privacy-parameters": "{"},
        {"epsilon": "much"},
        {"epsilon": -1.0},
        {"unit": "hospital"},
        {"rows-per-client": -3},
        {"timeout": -1.0},
    ],
)
def test_a_run_configuration_is_checked_again_at_the_server(change: dict[str, Any]) -> None:
    config = {**FlowerStudy(name="s").to_config(), **change}
    with pytest.raises(UsageError):
        FlowerStudy.from_config(config)
    with pytest.raises(UsageError):
        FlowerStudy.from_config({key: value for key, value in config.items() if key not in change})


# --- the coordinator's file -----------------------------------------------------------------------------


def run_configuration(**more: str) -> Any:
    return SimpleNamespace(run_config={**FlowerStudy(name="s").to_config(), **more})


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "it is not set"), ("", "it is not set"), ("coordinator.toml", "got 'coordinator.toml'")],
)
def test_the_superlinks_machine_must_name_the_coordinators_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, value: str | None, words: str
) -> None:
    """Even if the run configuration does."""
    call("app", place / "app", "--coordinator", place / "coordinator.toml", *coordinator_options(place))
    monkeypatch.chdir(place)
    monkeypatch.delenv("FEDASSAY_COORDINATOR", raising=False)
    if value is not None:
        monkeypatch.setenv("FEDASSAY_COORDINATOR", value)
    submitted = run_configuration(coordinator=str(place / "coordinator.toml"))
    with pytest.raises(UsageError, match=f"FEDASSAY_COORDINATOR: {words}, expected the absolute path"):
        server_app.main(None, submitted)
    *_, said = filter(None, map(events.event_in, capsys.readouterr().out.splitlines()))
    assert said["event"] == "failed"
    assert said["code"] == 2


def test_a_run_configuration_cannot_name_another_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "theirs.toml").write_text("this is read only if a run can name it")
    monkeypatch.setenv("FEDASSAY_COORDINATOR", str(place / "ours.toml"))
    with pytest.raises(UsageError, match=r"ours\.toml: cannot be read"):
        server_app.main(None, run_configuration(coordinator=str(place / "theirs.toml")))


def test_nothing_imports_flower_before_it_is_asked_for() -> None:
    code = (
        "import sys, fedassay, fedassay.cli, fedassay.cli.flower; print({'flwr', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'fedassay\[flower\]'"):
        flower.require("flwr")
