"""Runtimes of another package, `examples/runtime_plugin`, work everywhere without an edit of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runtime_contract import WholeContract
from scenarios import Outcome, Scenario, play
from test_contract_in_process import federation

import fedassay
from fedassay.crypto.identity import key_to_text
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.trust.secure_sum import SecureSum
from file_drop_town import Town
from pages import DOCS

PACKAGE = DOCS.parent / "examples" / "runtime_plugin"


SCRIPT = """
import contextlib, io, json, sys
from fedassay.cli import run_command
said = []
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(command)
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Installed:
    """A Python that finds the package and its entry points as if pip had installed it."""

    site: Path

    def __call__(self, code: str, *arguments: str) -> str:
        path = os.pathsep.join([str(self.site), str(PACKAGE), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commands(self, *commands: Sequence[object]) -> list[tuple[int, str, str]]:
        """Exit code, standard output and standard error of each command, in one process."""
        words = [list(map(str, command)) for command in commands]
        return [tuple(one) for one in json.loads(self(SCRIPT, json.dumps(words)))]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    info = site / "fedassay_desk-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return Installed(site)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    score = rng.random(300)
    frame = pd.DataFrame({"site": rng.integers(0, 5, 300), "p": score, "y": (rng.random(300) < score) * 1})
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


def test_data_commands_take_a_simulation_by_its_name_with_its_options(python: Installed, rows: Path) -> None:
    arguments = ["evaluate", rows, "--client", "site", "--score", "p", "--label", "y", "--height", 6]
    terms = ["--privacy", "distributed-dp", "--epsilon", 1, "--seed", 3, "-q", "--json", "-"]
    asked, helped, *refused = python.commands(
        [*arguments, *terms, "--runtime", "lossy", "--loss", 0],
        ["evaluate", "--help"],
        [*arguments, "--loss", 0.5],
        [*arguments, "--runtime", "lossy", "--loss", 1],
        [*arguments, "--runtime", "site-files"],
    )
    document = json.loads(asked[1])
    assert (document["runtime"]["name"], document["runtime"]["mode"]) == ("lossy", "faithful")
    assert document["privacy"]["simulated"] is True
    # Where nobody is lost it is the in-process runtime under another name.
    same = fedassay.evaluate(
        rows,
        client="site",
        score="p",
        label="y",
        height=6,
        privacy="distributed-dp",
        budget=fedassay.Budget(epsilon=1.0),
        simulation=fedassay.Simulation(seed=3, mode="faithful"),
    )
    assert document["results"] == json.loads(same.to_json())["results"]
    assert "Lossy: the chance that a client is lost at a leg." in helped[1]
    assert [code for code, _, _ in refused] == [2, 2, 2]
    for (_, _, said), words in zip(
        refused,
        (
            "--loss: unknown parameter of in-process",
            "--loss: got 1.0, expected a number from 0 and below 1",
            "--runtime: got 'site-files'; expected in-process, flower, lossy.",
        ),
        strict=True,
    ):
        assert words in said


STUDY = """name = "spring"
[data]
path = "{rows}"
client = "site"
columns = {{ score = "p", label = "y" }}
[privacy]
privacy = "plain"
[runtime]
name = "lossy"
loss = {loss}
seed = 1
[tasks.evaluate]
height = 6
[tasks.calibrate]
"""


def test_a_study_on_a_simulation_ends_with_its_certificate(
    python: Installed, rows: Path, tmp_path: Path
) -> None:
    study, wrong = tmp_path / "study.toml", tmp_path / "wrong.toml"
    study.write_text(STUDY.format(rows=rows, loss=0.4))
    wrong.write_text(STUDY.format(rows=rows, loss=-0.1))
    folder = tmp_path / "spring"
    ran, verified, refused = python.commands(
        ["run", study, "-q"], ["verify", folder, "--any-key"], ["run", wrong, "--out", tmp_path / "other"]
    )
    assert ran[0] == verified[0] == 0, ran[2] + verified[1]
    result = json.loads((folder / "result.json").read_text())
    assert result["runtime"]["name"] == "lossy"
    assert 0 < result["cohort"]["dropped"] < 5
    assert {"report.html", "certificate.json", "calibrator.json"} <= {one.name for one in folder.iterdir()}
    assert refused[0] == 2
    assert "line 10: [runtime] loss: got -0.1, expected a number from 0 and below 1." in refused[2]


RELEASE = """name = "autumn"
[privacy]
privacy = "secure-sum"
[runtime]
name = "site-files"
sites = "."
key = "coordinator/coordinator.key"
[ledger]
place = "coordinator/ledger.sqlite"
[tasks.evaluate]
thresholds = [0.3, 0.5]
height = 6
"""


def test_a_study_between_sites_charges_them_and_goes_on_from_its_journal(
    python: Installed, tmp_path: Path
) -> None:
    town = Town(tmp_path)
    study, seeded = tmp_path / "study.toml", tmp_path / "seeded.toml"
    study.write_text(RELEASE)
    seeded.write_text(RELEASE.replace("[ledger]", "seed = 1\n[ledger]"))
    coordinator = key_to_text(town.identities["coordinator"].public)
    ran, verified, repeated, closed, predictable = python.commands(
        ["run", study, "-q"],
        ["verify", tmp_path / "autumn", "--key", coordinator],
        ["run", study, "-q", "--out", tmp_path / "again"],
        ["run", study, "--close"],
        ["run", seeded],
    )
    assert ran[0] == verified[0] == repeated[0] == 0, ran[2] + verified[1] + repeated[2]
    result = json.loads((tmp_path / "autumn" / "result.json").read_text())
    expected = town.expected(SecureSum())["results"]
    assert result["results"]["tasks"]["evaluate"]["results"] == expected
    assert result["privacy"]["simulated"] is False
    assert result["runtime"]["name"] == "site-files"
    for name in town.names:
        (charge,) = DatabaseLedger(town.root / name / "state" / "ledger.sqlite", None).charges
        assert charge.exact
    again = json.loads((tmp_path / "again" / "result.json").read_text())
    assert (again["results"], again["runtime"]["rounds"]) == (result["results"], 0)
    assert "--close: it is for studies on file-drop, this one runs on site-files" in closed[2]
    assert "seed: site-files is a release" in predictable[2]


def test_schema_and_reference_have_both(python: Installed) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); from study_page import study_page; "
        "from fedassay.study.schema import schema_text; print(schema_text(), study_page())"
    )
    said = python(code)
    for name in ("lossy", "site-files"):
        assert f'"const": "{name}"' in said
        assert f'## `[runtime] with name = "{name}"`' in said


# --- the contract ---------------------------------------------------------------------------------------------


class TestLossy(WholeContract):
    """A new set of clients for each scenario, of whom the right one is lost."""

    @classmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(PACKAGE))
            from fedassay_desk.lossy import LossyRuntime

            source = SimulatedRandomness(1)
            return {
                one.name: play(one, federation(one.lost, kind=LossyRuntime), source.child(one.name))
                for one in scenarios
            }
