"""What a user of the example plug-in does, in a process in which it is installed; prints what came of it as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd

import fedassay
from fedassay.cli import run_command
from fedassay.cli.commands import functions
from file_drop_town import Town

STUDY = """
name = "drift"
model = "risk 2.1"
[data]
path = "rows.csv"
client = "site"
[data.columns]
score = "p"
label = "recent"
[privacy]
privacy = "{privacy}"
{budget}
[expected]
rows = 2400
clients = 6
prevalence = 0.5
auc = 0.6
[tasks.stability]
height = 3
[tasks.evaluate]
height = 6
"""


PUBLISHED = resources.files("fedassay") / "documents" / "result.schema.json"
SCHEMA = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def rows() -> pd.DataFrame:
    """Six sites; scores of the current period are higher."""
    random = np.random.default_rng(5)
    recent = random.integers(0, 2, 2400)
    score = 1 / (1 + np.exp(-random.normal(0.6 * recent, 1.0)))
    return pd.DataFrame({"p": score, "recent": recent, "site": np.arange(2400) % 6})


def called(*words: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def under_every_trust_model() -> dict[str, Any]:
    found = {}
    for name in ("plain", "secure-sum", "distributed-dp", "local-dp", "server-dp", "two-server", "shuffle"):
        noisy = name not in ("plain", "secure-sum")
        result = fedassay.run_task(
            "stability",
            rows(),
            columns={"score": "p", "label": "recent"},
            client="site",
            privacy=name,
            budget=fedassay.Budget(epsilon=8.0, delta=1e-6) if noisy else None,
            protection=fedassay.Protection(rows_per_client=400) if noisy else None,
            simulation=fedassay.Simulation(seed=1),
            height=3,
        )
        SCHEMA.validate(json.loads(result.to_json()))
        found[name] = result["stability_index"]
    return found


def studied(folder: Path, privacy: str, budget: str) -> dict[str, Any]:
    folder.mkdir()
    rows().to_csv(folder / "rows.csv", index=False)
    study = folder / "study.toml"
    study.write_text(STUDY.format(privacy=privacy, budget=budget))
    planned = called("plan", "study", study, "--json", folder / "plan.json", "-q")
    ran = called("run", study, "--anyway")
    out = folder / "drift"
    checked = called("verify", out, "--any-key")
    read = {path.name: path.read_text() for path in out.iterdir() if path.suffix in (".html", ".md")}
    SCHEMA.validate(json.loads((out / "result.json").read_text()))
    return {
        "plan": [planned, json.loads((folder / "plan.json").read_text())["tasks"]],
        "run": ran,
        "verify": checked,
        "result": json.loads((out / "result.json").read_text())["results"],
        "certificate": json.loads((out / "certificate.json").read_text())["tasks"],
        **read,
    }


def without_drift() -> list[Any]:
    """What releases with little budget say of periods that are alike: the index, its interval, and the bins."""
    found = []
    for seed in range(60):
        alike = rows().assign(p=np.random.default_rng(seed).uniform(size=2400))
        results = fedassay.run_task(
            "stability",
            alike,
            columns={"score": "p", "label": "recent"},
            client="site",
            privacy="server-dp",
            budget=fedassay.Budget(epsilon=0.3),
            simulation=fedassay.Simulation(seed=seed, mode="aggregate"),
            height=3,
        ).results
        index = results["stability_index"]
        found.append([index["value"], index["interval"], results["bins"]])
    return found


def by_files(root: Path) -> dict[str, Any]:
    root.mkdir()
    town = Town(root)
    roster = town.root / "coordinator" / "roster.toml"
    assert town.aggregate("stability", "--roster", roster, "--height", 2, "-q") == 0
    document = town.finish(passes=2)
    SCHEMA.validate(document)
    return {"task": document["task"], "results": document["results"], "privacy": document["privacy"]}


def main(folder: Path) -> None:
    rows().to_csv(folder / "all.csv", index=False)
    columns = ("--client", "site", "--score", "p", "--label", "recent")
    found = {
        "models": under_every_trust_model(),
        "command": called("stability", folder / "all.csv", *columns, "--json", "-", "-q"),
        "wrong": called("stability", folder / "all.csv", *columns, "--height", 60),
        "planned": called("plan", "stability", "--rows", 2400, "--clients", 6, "--json", "-", "-q"),
        "help": called("--help"),
        "helps": {name: called(*name.split()[1:], "--help") for name, _ in functions()},
        "study": studied(folder / "exact", "secure-sum", ""),
        "noisy": studied(folder / "noisy", "distributed-dp", "epsilon = 2.0\ndelta = 1e-6"),
        "files": by_files(folder / "files"),
        "alike": without_drift(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
