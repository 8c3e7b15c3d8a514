"""What is planned once is not planned again, what is decoded once is not decoded again, what is loaded once stays.

Counted from outside: how often the search for a resolution, the decoder of letters and the loader of rows are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.data import federation
from fedassay.kernel import envelope
from fedassay.protocol.vocabulary import Protection, Setting
from fedassay.runtimes.file_drop import participant, runtime, study
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation import accuracy as resolution
from file_drop_town import Town


@dataclass
class Counted:
    """A function that counts its calls."""

    function: Callable[..., Any]
    calls: int = field(default=0, init=False)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*given, **named)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Counted:
    """Count the calls of what this module calls by this name."""
    counter = Counted(getattr(module, name))
    monkeypatch.setattr(module, name, counter)
    return counter


# --- planned once -----------------------------------------------------------------------------------------------

SCORES = np.random.default_rng(3).random(400)
BINARY = {"site": np.arange(400) % 4, "p": SCORES, "y": (np.arange(400) % 3 == 0).astype(int)}
BOUNDED = Protection(rows_per_client=100)


def candidates(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How many fan-outs and multipliers are compared."""
    return counted(monkeypatch, resolution, "mean_prefix_variance")


def of_one_search(task: Evaluate, setting: Setting) -> int:
    """How many are compared when a histogram is chosen once."""
    with pytest.MonkeyPatch.context() as patch:
        counter = candidates(patch)
        task.histogram(setting)
        return counter.calls


@pytest.mark.parametrize("trust", [fedassay.ServerDP(), fedassay.DistributedDP()], ids=lambda one: one.name)
def test_the_resolution_of_an_evaluation_is_searched_once(
    trust: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = fedassay.Budget(epsilon=1.0, delta=1e-5)
    once = of_one_search(Evaluate(), Setting(trust=trust, protection=BOUNDED, budget=budget, clients=4))
    counter = candidates(monkeypatch)
    given = {
        "privacy": trust,
        "budget": budget,
        "protection": BOUNDED,
        "simulation": fedassay.Simulation(seed=1),
    }
    fedassay.evaluate(BINARY, client="site", score="p", label="y", **given)
    assert counter.calls == once > 0


TWICE = """name = "{name}"
[data]
path = "rows.npz"
client = "site"
columns = {{ score = "p", label = "y" }}
[privacy]
privacy = "server-dp"
epsilon = 0.5
[ledger]
place = "ledger.sqlite"
epsilon = 5
[tasks.evaluate]
"""


def test_a_study_that_has_to_be_affordable_is_planned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "rows.npz", **BINARY)
    for name in ("first", "second"):
        (tmp_path / f"{name}.toml").write_text(TWICE.format(name=name), encoding="utf-8")
    fedassay.run_study(tmp_path / "first.toml")  # now the second has to look at what was spent
    budget = fedassay.Budget(epsilon=0.5)
    setting = Setting(trust=fedassay.ServerDP(), protection=Protection(), budget=budget, clients=4)
    once = of_one_search(Evaluate(), setting)
    counter = candidates(monkeypatch)
    fedassay.run_study(tmp_path / "second.toml")
    assert counter.calls == once > 0


# --- decoded once -----------------------------------------------------------------------------------------------


def test_a_study_by_files_is_planned_once_and_its_letters_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(tmp_path, names=("a", "b", "c"))
    with pytest.MonkeyPatch.context() as patch:
        compared = candidates(patch)
        assert town.begin("--privacy", "server-dp", "--epsilon", 1) == 0
    budget = fedassay.Budget(epsilon=1.0)
    setting = Setting(trust=fedassay.ServerDP(), protection=Protection(), budget=budget, clients=3)
    assert compared.calls == of_one_search(Evaluate(thresholds=(0.3, 0.5), height=6), setting) > 0
    announced = counted(monkeypatch, study, "open_letter")
    opened = counted(monkeypatch, participant, "open_letter")
    read = counted(monkeypatch, envelope, "open_request")
    town.contribute_all()
    assert (announced.calls, opened.calls, read.calls) == (3, 3, 3)  # at each site
    taken = counted(monkeypatch, runtime, "open_letter")
    assert town.aggregate("-q") == 0
    assert taken.calls == 3


# --- loaded once ------------------------------------------------------------------------------------------------

LOGITS = np.random.default_rng(1).normal(size=(400, 3))
CLASSES = {"site": np.arange(400) % 4, "y": np.random.default_rng(2).integers(0, 3, 400), "z": LOGITS}
TERMS: dict[str, Any] = {"client": "site", "label": "y", "simulation": fedassay.Simulation(seed=1)}


@pytest.mark.parametrize(
    "ask",
    [
        lambda: fedassay.evaluate(CLASSES, logits="z", **TERMS),
        lambda: fedassay.calibrate(CLASSES, logits="z", **TERMS),
        lambda: fedassay.conformal(CLASSES, logits="z", holdout=0.3, **TERMS),
        lambda: fedassay.conformal(CLASSES, logits="z", conditional="class", **TERMS),
    ],
    ids=["evaluate", "calibrate", "conformal", "conformal-by-class"],
)
def test_rows_of_several_classes_are_loaded_once(
    ask: Callable[[], fedassay.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = counted(monkeypatch, federation, "Gathered")  # every load gathers its columns once
    ask()
    assert loads.calls == 1


STUDY = """name = "classes"
[data]
path = "rows.npz"
client = "site"
columns = { class = "y", logits = "z" }
[runtime]
seed = 1
[tasks.evaluate]
[tasks.calibrate]
"""


def test_a_study_that_looks_its_classes_up_loads_its_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "rows.npz", **CLASSES)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    loads = counted(monkeypatch, federation, "Gathered")
    fedassay.run_study(tmp_path / "study.toml")
    assert loads.calls == 1
