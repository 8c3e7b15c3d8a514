"""A study that its ledger cannot pay is refused before anybody is asked, with a change that makes it one it can pay."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import BudgetExceeded
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Part, Unit
from ledgers import charge
from study_runs import LEDGER, charges, conducted, journal_of, place, rows, study_text, watched

TASKS: dict[str, dict[str, Any]] = {
    "evaluate": {"height": 5},
    "calibrate": {"method": "platt"},
    "conformal": {"level": 0.8},
    "hosmer-lemeshow": {"method": "corrected", "groups": 4},
    "ecdf": {"lower": 0.0, "upper": 1.0, "points": 16},
}
"""Some of them ask once, some in two steps, some of all rows and some of parts."""

EPSILON = re.compile(r"epsilon = (\S+) instead of \S+ in \[privacy\]")
LEAVE_OUT = re.compile(r"leave out \[tasks\.([a-z-]+)\]")
TOTAL = re.compile(r"a total of (\S+) in \[ledger\]")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A study over rows on which something was spent before."""

    tasks: dict[str, dict[str, Any]]
    trust: str
    epsilon: float
    delta: float
    total: float
    before: tuple[Charge, ...]

    def text(self, **changes: Any) -> str:
        found = {"tasks": self.tasks, "epsilon": self.epsilon, "total": self.total, **changes}
        sections = {
            "privacy": {"privacy": self.trust, "epsilon": found["epsilon"], "delta": self.delta},
            "runtime": {"mode": "aggregate"},
            "ledger": {"place": LEDGER, "dataset": "rows", "epsilon": found["total"], "delta": self.delta},
        }
        return study_text(found["tasks"], sections)


@st.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    names = draw(st.lists(st.sampled_from(list(TASKS)), min_size=1, max_size=3, unique=True))
    names.sort(key=list(TASKS).index)
    tasks = {name: dict(TASKS[name]) for name in names}
    if draw(st.booleans()):
        for entries in tasks.values():
            entries["share"] = draw(st.sampled_from((0.1, 0.25)))
    delta = draw(st.sampled_from((0.0, 1e-6)))
    total = draw(st.sampled_from((4.0, 10.0)))
    before = tuple(
        charge(
            f"earlier {number}",
            # Of epsilon = total/8 each by itself, if delta is 0.
            law=LAPLACE if delta == 0 or draw(st.booleans()) else GAUSSIAN,
            scale=8 / total,
            part=draw(st.sampled_from((Part.ALL, Part.FIT, Part.HELD_OUT))),
        )
        for number in range(draw(st.integers(0, 6)))
    )
    return Case(
        tasks=tasks,
        trust=draw(st.sampled_from(("server-dp", "distributed-dp"))),
        epsilon=draw(st.sampled_from((0.7, 1.0, 1.7))) * total,
        delta=delta,
        total=total,
        before=before,
    )


def prepared(case: Case, folder: Path) -> None:
    place(folder, case.text(), rows(6, 40))
    (folder / LEDGER).unlink(missing_ok=True)
    (folder / "ledger.head").unlink(missing_ok=True)
    DatabaseLedger(folder / LEDGER, None).charge(case.before)


def refusal(case: Case, folder: Path, **changes: Any) -> str | None:
    """Why the study with these changes is refused, if it is; then nobody was asked and nothing was spent."""
    prepared(case, folder)
    path = place(folder, case.text(**changes))
    with watched() as asked:
        try:
            conducted(path, folder / "out" / f"{len(list(folder.glob('out/*')))}")
        except BudgetExceeded as error:
            why = str(error)
        else:
            books, delta = charges(folder), case.delta
            assert compose(books, delta) <= changes.get("total", case.total)
            assert len(books) > len(case.before)
            return None
    assert not asked.plans, "refused too late"
    assert charges(folder) == case.before
    return why


def hold(case: Case, folder: Path) -> str:
    """Every change that a refusal proposes makes the study run; a little less of it does not. How it ended."""
    why = refusal(case, folder)
    if why is None:
        return "affordable"
    assert "cannot be afforded, and no site was asked" in why
    less, fewer, more = EPSILON.search(why), LEAVE_OUT.search(why), TOTAL.search(why)
    assert more is not None
    total = float(more[1].rstrip("."))
    assert refusal(case, folder, total=total) is None
    assert refusal(case, folder, total=0.98 * total) is not None
    if less is not None:
        assert why.index(less[0]) == why.index("Cheapest change: ") + len("Cheapest change: ")
        assert refusal(case, folder, epsilon=float(less[1])) is None
        assert refusal(case, folder, epsilon=1.05 * float(less[1])) is not None
    if fewer is not None:
        left = {name: entries for name, entries in case.tasks.items() if name != fewer[1]}
        assert refusal(case, folder, tasks=left) is None
    return "less, fewer" if less and fewer else "less" if less else "only a larger total"


def endings(examples: int, folder: Path) -> list[str]:
    """How so many random studies ended."""
    ended: list[str] = []

    @settings(max_examples=examples, database=None)
    @given(cases())
    def every(case: Case) -> None:
        ended.append(hold(case, folder / str(len(list(folder.iterdir())))))

    every()
    return ended


def test_what_a_refusal_proposes_can_be_afforded(tmp_path: Path) -> None:
    assert {"affordable", "less"} <= set(endings(4, tmp_path))


@pytest.mark.full
def test_what_many_refusals_propose_can_be_afforded(tmp_path: Path) -> None:
    ended = endings(150, tmp_path)
    assert sum(how != "affordable" for how in ended) >= 50
    assert {"affordable", "less", "less, fewer"} <= set(ended)


# --- single cases -----------------------------------------------------------------------------------------

SHARES = {name: {**TASKS[name], "share": 0.3} for name in ("evaluate", "calibrate", "conformal")}
SPENT = charge("earlier", law=GAUSSIAN, scale=2.0)


def study(tasks: dict[str, dict[str, Any]] = SHARES, *, ledger: dict[str, Any], **privacy: Any) -> str:
    found = {"privacy": "server-dp", "epsilon": 4.0, "delta": 1e-6, **privacy}
    return study_text(tasks, {"privacy": found, "ledger": {"place": LEDGER, "dataset": "rows", **ledger}})


def refused(folder: Path, text: str, said: str | None = None, before: Charge | None = SPENT) -> str:
    """Why this study is refused, on rows on which something was spent before."""
    place(folder, text)
    if before is not None:
        DatabaseLedger(folder / LEDGER, None).charge([before])
    with pytest.raises(BudgetExceeded, match=said) as refusal:
        conducted(folder / "study.toml", folder / "out")
    return str(refusal.value)


def test_the_folder_of_a_refused_study_takes_the_changed_file(tmp_path: Path) -> None:
    """Whoever does what the refusal proposes need not forget a run that never began."""
    whole = study(ledger={"epsilon": 4.0, "delta": 1e-6})
    why = refused(tmp_path, whole, r"study.toml, line 10: .*Cheapest change: epsilon = ")
    with journal_of(tmp_path / "out") as journal:
        assert [entry["kind"] for entry in journal.entries()] == ["study"]
    less = EPSILON.search(why)
    assert less is not None
    place(tmp_path, study(ledger={"epsilon": 4.0, "delta": 1e-6}, epsilon=float(less[1])))
    result = conducted(tmp_path / "study.toml", tmp_path / "out")
    assert result["budget"]["epsilon"] == float(less[1])


def test_where_shares_are_not_given_leaving_a_task_out_is_not_proposed(tmp_path: Path) -> None:
    """The others would get its share."""
    two = study({"evaluate": {}, "ecdf": TASKS["ecdf"]}, ledger={"epsilon": 4.0, "delta": 1e-6})
    assert "leave out" not in refused(tmp_path, two)


def test_a_calibration_that_others_name_is_not_left_out(tmp_path: Path) -> None:
    named = {**SHARES, "conformal": {**SHARES["conformal"], "after": "calibrate"}}
    for tasks, proposed in ((SHARES, "calibrate"), (named, "conformal")):
        small = {**tasks, proposed: {**tasks[proposed], "share": 0.29}}
        text = study(small, ledger={"epsilon": 4.2, "delta": 1e-6})
        refused(tmp_path, text, rf"leave out \[tasks\.{proposed}\]")


def test_a_total_without_delta_is_told_to_have_one(tmp_path: Path) -> None:
    said = r"more than any epsilon of 4 .*change: delta = 1e-06 in \[ledger\]"
    refused(tmp_path, study(ledger={"epsilon": 4.0}), said, before=None)
    place(tmp_path, study(ledger={"epsilon": 4.0, "delta": 1e-6}))
    assert conducted(tmp_path / "study.toml")["budget"]["spent"] <= 4


def test_what_was_spent_for_other_units_adds_up_with_nothing(tmp_path: Path) -> None:
    said = r"another dataset in \[ledger\], as on rows .* per client under"
    text = study(ledger={"epsilon": 9.0, "delta": 1e-6})
    refused(tmp_path, text, said, before=charge("earlier", unit=Unit.CLIENT))
    place(tmp_path, study(ledger={"epsilon": 9.0, "delta": 1e-6, "dataset": "others"}))
    assert conducted(tmp_path / "study.toml")["budget"]["spent"] <= 4


def test_where_each_row_is_a_client_two_studies_add_up(tmp_path: Path) -> None:
    """The unit that is protected then is more than the file asks for."""
    text = study(
        {"evaluate": {"height": 4}},
        ledger={"epsilon": 5.0, "delta": 0.0},
        privacy="local-dp",
        epsilon=2.0,
        delta=0.0,
    )
    place(tmp_path, text.replace('client = "site"\n', ""), rows(2, 20))
    for _ in range(2):
        conducted(tmp_path / "study.toml")
    assert {one.unit for one in charges(tmp_path)} == {Unit.CLIENT}
    with pytest.raises(BudgetExceeded, match=r"it would come to 6 of 5 .*epsilon = 1 instead of 2"):
        conducted(tmp_path / "study.toml")


class Stopped(Exception):
    """Somebody pulled the plug."""


def test_a_study_that_goes_on_does_not_pay_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The total has room for one such study: what it was charged before it broke off is its own."""
    place(tmp_path, study(ledger={"epsilon": 4.8, "delta": 1e-6}))
    DatabaseLedger(tmp_path / LEDGER, None).charge([SPENT])

    def stop(leg: int, done: int, total: int) -> None:
        if len(charges(tmp_path)) > 3:
            raise Stopped

    with pytest.raises(Stopped):
        conducted(tmp_path / "study.toml", tmp_path / "out", stop)
    paid = charges(tmp_path)
    assert len(paid) > 3
    with monkeypatch.context() as broken:
        broken.setattr("fedassay.api.study._begun", lambda journal: frozenset())
        with pytest.raises(BudgetExceeded):
            conducted(tmp_path / "study.toml", tmp_path / "out")
    result = conducted(tmp_path / "study.toml", tmp_path / "out")
    assert charges(tmp_path)[: len(paid)] == paid
    assert [one.id for one in charges(tmp_path)][1:] == [one["id"] for one in result["budget"]["charges"]]
    with pytest.raises(BudgetExceeded):  # another study does pay
        conducted(tmp_path / "study.toml")
