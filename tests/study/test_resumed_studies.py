"""A study that broke off goes on where it was: the same answers, each paid for once, by clients of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fedassay.data import selection
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import ATOMS, Part
from fedassay.runtimes.in_process.runtime import Faithful
from study_runs import LEDGER, charges, conducted, journal_of, place, rows, study_text, unrehearsed, watched

TASKS: dict[str, dict[str, Any]] = {
    "evaluate": {"height": 5},
    "calibrate": {"method": "platt"},
    "conformal": {"level": 0.8},
    "infer": {"method": "newton"},
}


class Stopped(Exception):
    """Somebody pulled the plug."""


def stop_at(number: int) -> Callable[[int, int, int], None]:
    """A progress that stops the run when so many clients have been asked."""
    left = [number]

    def asked(leg: int, done: int, total: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped

    return asked


def exact(folder: Path, *, trust: str = "plain", **runtime: Any) -> Path:
    text = study_text(
        TASKS,
        {
            "privacy": {"privacy": trust},
            "runtime": {"mode": "faithful", **runtime},
            "ledger": {"place": LEDGER, "dataset": "d"},
        },
    )
    return place(folder, text, rows(4, 40))


def results(path: Path, out: Path | None = None, **options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(conducted(path, out, **options).to_json())
    for one in document["results"]["budget"]["charges"]:
        one.pop("id")
    document["runtime"] = None
    return document


@pytest.mark.parametrize("trust", ["plain", "secure-sum"])
def test_wherever_it_breaks_off_the_result_is_the_same(tmp_path: Path, trust: str) -> None:
    path = exact(tmp_path, trust=trust, seed=3)
    wanted = results(path)
    total = 4 * (3 if trust == "plain" else 6)
    for number in np.linspace(0, total - 1, 5).astype(int):
        (tmp_path / LEDGER).unlink(missing_ok=True)
        (tmp_path / "ledger.head").unlink(missing_ok=True)
        out = tmp_path / f"{trust} {number}"
        with pytest.raises(Stopped):
            results(path, out, progress=stop_at(int(number)))
        assert results(path, out) == wanted
        ids = [one.id for one in charges(tmp_path)]
        assert len(set(ids)) == len(ids) == len(wanted["results"]["budget"]["charges"])


def test_a_study_that_has_ended_asks_nobody_again(tmp_path: Path) -> None:
    path = exact(tmp_path, seed=3)
    wanted = results(path, tmp_path / "out")
    paid = charges(tmp_path)
    with watched() as asked:
        assert results(path, tmp_path / "out") == wanted
    assert not asked.plans
    assert charges(tmp_path) == paid


def test_another_study_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    path = exact(tmp_path, seed=3)
    conducted(path, tmp_path / "out")
    path.write_text(path.read_text() + "# a remark changes nothing\n")
    conducted(path, tmp_path / "out")
    path.write_text(path.read_text().replace("level = 0.8", "level = 0.9"))
    with pytest.raises(
        UsageError, match=r"study.toml: the folder holds a run of this study as it was before the"
    ):
        conducted(path, tmp_path / "out")


# --- without a seed ---------------------------------------------------------------------------------------


def memberships(path: Path, out: Path, progress: Any = None) -> dict[str, dict[Part, list[float]]]:
    """The scores that each client measured, by part."""
    seen: dict[str, dict[Part, list[float]]] = {}
    select = selection.select_part

    def noted(given: Any, part: Part, **options: Any) -> Any:
        chosen = select(given, part, **options)
        scores = np.concatenate([batch["score"] for batch in chosen.batches()])
        seen.setdefault(options["client"], {})[part] = sorted(float(one) for one in scores)
        return chosen

    with unrehearsed(), mock.patch.object(selection, "select_part", noted):
        try:
            conducted(path, out, progress)
        except Stopped:
            pass
    return seen


def split_of(*looks: dict[str, dict[Part, list[float]]]) -> dict[Part, set[float]]:
    """Every row that was measured as one of a part, whichever client measured it, and when."""
    return {
        part: {score for look in looks for found in look.values() for score in found.get(part, ())}
        for part in ATOMS
    }


def together(split: dict[Part, set[float]]) -> set[float]:
    """Rows that were in two parts."""
    first, second, held = (split[part] for part in ATOMS)
    return first & second | first & held | second & held


def test_rows_stay_where_they_were_dealt_and_split(tmp_path: Path) -> None:
    """Nobody chose a seed: the key that splits rows, and deals them to clients, is kept in the journal."""
    tasks = {name: TASKS[name] for name in ("evaluate", "calibrate", "conformal")}
    text = study_text(tasks, {"privacy": {"privacy": "plain"}, "runtime": {"mode": "faithful"}})
    dealt = text.replace('client = "site"', 'partition = "iid"\nclients = 4')
    path = place(tmp_path, dealt, rows(4, 40))
    split = split_of(
        memberships(path, tmp_path / "out", stop_at(6)),  # in the second exchange of four
        memberships(path, tmp_path / "out"),
    )
    assert all(len(split[part]) > 20 for part in ATOMS)
    assert not together(split)
    assert len(set().union(*split.values())) == 160
    with mock.patch("fedassay.api.study._dealt", lambda owner, runtime, key: owner):
        broken = split_of(
            memberships(path, tmp_path / "broken", stop_at(6)), memberships(path, tmp_path / "broken")
        )
    assert together(broken)


# --- noise --------------------------------------------------------------------------------------------------


def test_clients_that_go_on_draw_anew(tmp_path: Path) -> None:
    """A seed repeats a run; it must not repeat, after a break, the noise that was drawn before it."""
    streams: list[tuple[str, bytes]] = []
    build = Faithful.__init__

    def noted(self: Faithful, clients: Any, **options: Any) -> None:
        clients = list(clients)
        for client in clients:
            source = client.site.randomness
            assert isinstance(source, SimulatedRandomness)
            streams.append((client.name, source.child("look").bytes(16)))
        build(self, clients, **options)

    path = exact(tmp_path, seed=3)
    with unrehearsed(), mock.patch.object(Faithful, "__init__", noted):
        conducted(path)
        conducted(path)
        assert len(set(streams)) == 4  # the same again
        with pytest.raises(Stopped):
            conducted(path, tmp_path / "out", stop_at(9))
        assert len(set(streams)) == 4
        conducted(path, tmp_path / "out")
    assert len(set(streams)) == 8


def test_a_folder_is_made_for_whoever_names_one(tmp_path: Path) -> None:
    path = exact(tmp_path, seed=3)
    conducted(path, tmp_path / "new" / "out")
    with journal_of(tmp_path / "new" / "out") as journal:
        assert journal.exchanged()


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    path = exact(tmp_path, seed=3)
    (tmp_path / "out").mkdir()
    with journal_of(tmp_path / "out") as journal:
        journal.append({"kind": "begun", "key": "0", "exchange": b"", "cohort": None, "queries": b""})
    with pytest.raises(UsageError, match="it does not belong to a study; give another folder"):
        conducted(path, tmp_path / "out")
