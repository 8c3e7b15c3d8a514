"""Random studies: what the certificate says was spent is what the ledger says and what clients were asked for."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.api.study import run_study
from fedassay.artefacts.certificate import CERTIFICATE
from fedassay.artefacts.certificate_ledger import composed
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.errors import FedassayError, FederationError
from fedassay.kernel import agenda as agenda_module
from fedassay.kernel.run import Purse
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Part, Plan, Query, Setting
from fedassay.study import folder as folder_module
from fedassay.study.file import StudyFile
from stated import Verify
from study_runs import LEDGER, charges, journal_of, place, rows, study_text, watched

RESULTS, CERTIFICATES = (
    jsonschema.Draft202012Validator(json.loads((files("fedassay") / "documents" / name).read_text()))
    for name in ("result.schema.json", "certificate.schema.json")
)

KINDS: dict[str, dict[str, Any]] = {
    "evaluate": {},
    "calibrate": {"method": "platt"},
    "conformal": {"level": 0.8},
    "strict": {"task": "conformal", "level": 0.9, "after": "none"},
    "ecdf": {"lower": 0.0, "upper": 1.0, "points": 64},
    "quantiles": {"lower": 0.0, "upper": 1.0, "points": 64},
    "hosmer-lemeshow": {"groups": 4},
    "infer": {"method": "random-scaling", "rounds": 3, "scales": ["a=0:1", "b=0:1", "target=0:2"]},
}
EXACT = ("secure-sum", "plain")
PRIVATE = ("server-dp", "distributed-dp", "local-dp", "two-server", "shuffle")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One random study: its file and its rows."""

    text: str
    clients: int
    each: int


@st.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    trust = draw(st.sampled_from((*EXACT, *PRIVATE, *PRIVATE)))
    names = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4, unique=True))
    if trust not in ("two-server",):
        names = [name for name in names if name != "quantiles"] or ["evaluate"]
    if trust not in ("plain", "server-dp", "secure-sum"):
        names = [name for name in names if name != "infer"] or ["calibrate"]
    names.sort(key=list(KINDS).index)  # a calibration stands before what builds on it
    tasks = {name: dict(KINDS[name]) for name in names}
    if draw(st.booleans()):
        # At most 4 times 0.3: some of these ask for more than there is.
        for entries in tasks.values():
            entries["share"] = round(draw(st.floats(0.05, 0.3)), 3)
    privacy: dict[str, Any] = {"privacy": trust}
    unit = draw(st.sampled_from(("example", "example", "client")))
    if trust in PRIVATE:
        privacy |= {
            "epsilon": round(draw(st.floats(0.5, 12.0)), 3),
            "delta": draw(st.sampled_from((0.0, 1e-6, 1e-3))),
            "unit": unit,
            "neighbours": draw(st.sampled_from(("add-remove", "replace-one"))),
        }
    if unit == "client" or trust in ("two-server", "local-dp", "shuffle") or draw(st.booleans()):
        privacy["rows_per_client"] = draw(st.sampled_from((5, 30, 40)))
    return Case(
        text=study_text(tasks, _around(draw, privacy)),
        clients=draw(st.integers(3, 8)),
        each=draw(st.integers(20, 40)),
    )


def _around(draw: Callable[[Any], Any], privacy: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The sections that are not about tasks."""
    sections = {"privacy": privacy, "split": {"holdout": round(draw(st.floats(0.1, 0.6)), 2)}}
    runtime: dict[str, Any] = {"mode": draw(st.sampled_from(("auto", "aggregate", "faithful")))}
    if draw(st.booleans()):
        runtime["seed"] = draw(st.integers(0, 99))
    sections["runtime"] = runtime
    kept = draw(st.sampled_from(("none", "recorded", "capped")))
    if kept != "none":
        sections["ledger"] = {"place": LEDGER, "dataset": "d"}
    if kept == "capped":
        # A third of what most studies need, up to more than any of them does.
        sections["ledger"] |= {
            "epsilon": draw(st.sampled_from((0.5, 3.0, 13.0))),
            "delta": privacy.get("delta", 0.0),
        }
    return sections


# --- what must hold ---------------------------------------------------------------------------------------


def assay(case: Case, folder: Path) -> str:
    """Run a study into a clean folder and hold it to all that is promised; how it ended."""
    shutil.rmtree(folder, ignore_errors=True)
    path = place(folder, case.text, rows(case.clients, case.each))
    out = folder / "out"
    try:
        file = StudyFile.read(path)
    except FedassayError:
        return "not a study"
    with watched() as asked:
        result = _result(file, out)
    if not isinstance(result, Result):
        assert not asked.plans, f"refused after clients were asked: {result}"
        assert not charges(folder)
        assert not (out / CERTIFICATE).exists()
        with journal_of(out) as journal:
            assert not journal.exchanged()
        return f"refused: {type(result).__name__}"
    _hold(file, folder, out, asked)
    return "ran"


def _result(file: StudyFile, out: Path) -> Result | FedassayError:
    """The result, or why it was refused; a federation that fails is no refusal."""
    try:
        return run_study(file, folder=out)
    except FederationError:
        raise
    except FedassayError as error:
        return error


def _hold(file: StudyFile, folder: Path, out: Path, asked: Any) -> None:
    document, certificate = (json.loads((out / name).read_text()) for name in ("result.json", CERTIFICATE))
    RESULTS.validate(document)
    CERTIFICATES.validate(certificate)
    verified = check(out, key=ANY_KEY)
    assert verified.holds, verified.wrong
    ledger, budget = certificate["ledger"], file.budget
    assert len(ledger["entries"]) == len(asked.plans)
    assert {entry["id"].rpartition("/")[0] for entry in ledger["entries"]} == {
        f"{exchange}/{place}" for exchange, place in asked.plans
    }
    books = charges(folder)
    if file.ledger.place is not None:
        assert Counter(charge.id for charge in books) == Counter(entry["id"] for entry in ledger["entries"])
        assert {charge.dataset for charge in books} == {"d"}
    for share in asked.shares().values():
        assert share <= 1 + 1e-9
    for name, task in document["results"]["tasks"].items():
        mine = [
            plan.query for key, plan in asked.plans.items() if asked.tasks[key].rpartition(":")[2] == name
        ]
        for atom in (Part.FIRST_FIT, Part.SECOND_FIT, Part.HELD_OUT):
            assert sum(one.share for one in mine if atom in one.part.atoms) <= task["share"] * (1 + 1e-9)
    if budget is None:
        assert ledger["spent"] is None
        assert all(charge.exact for charge in books)
        return
    spent = asked.spent(budget.delta)
    assert 0 < ledger["spent"] <= budget.epsilon
    assert math.isclose(ledger["spent"], spent, rel_tol=1e-9)
    assert math.isclose(composed(ledger), spent, rel_tol=1e-9)
    if file.ledger.place is not None:
        assert math.isclose(compose(books, budget.delta), spent, rel_tol=1e-9)
        cap = file.ledger.cap
        assert cap is None or compose(books, cap.delta) <= cap.epsilon


@pytest.fixture
def plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have tests of their own, and take longer than everything else."""
    monkeypatch.setattr(
        folder_module, "page", lambda document: f"<!doctype html><title>{document['task']}</title>\n"
    )


def test_ten_random_studies(tmp_path: Path, plain_page: None) -> None:
    ended: Counter[str] = Counter()

    @settings(max_examples=10, database=None)
    @given(cases())
    def every(case: Case) -> None:
        ended[assay(case, tmp_path / "study")] += 1

    every()
    assert ended["ran"] >= 5, ended


@pytest.mark.full
def test_two_hundred_random_studies(tmp_path: Path, plain_page: None, verify: Verify) -> None:
    ended: Counter[str] = Counter()

    @settings(max_examples=400, database=None)
    @given(cases())
    def every(case: Case) -> None:
        ended[assay(case, tmp_path / "study")] += 1

    every()
    assert ended["ran"] >= 200, ended
    others = ", ".join(f"{count} {how}" for how, count in sorted(ended.items()) if how != "ran")
    verify(
        "epsilon of the certificate = the ledger's = that of what clients were asked, within the budget: 200 random "
        "studies",
        f"{ended['ran']} ran ({others}), none differed",
    )


# --- the same checks see what is wrong --------------------------------------------------------------------

SOUND = Case(
    text=study_text(
        {name: {**KINDS[name], "share": 0.3} for name in ("evaluate", "calibrate", "conformal")},
        {
            "privacy": {"privacy": "server-dp", "epsilon": 4.0, "delta": 1e-6},
            "runtime": {"seed": 1},
            "ledger": {"place": LEDGER, "dataset": "d"},
        },
    ),
    clients=4,
    each=30,
)


def test_the_study_that_is_broken_below_is_sound(tmp_path: Path, plain_page: None) -> None:
    assert assay(SOUND, tmp_path / "study") == "ran"


def _whole_share(self: Setting, query: Query[Any]) -> Query[Any]:
    part = self.fits_on if query.part is Part.FIT else query.part
    return replace(query, part=part)


def test_a_share_that_is_ignored_is_seen_twice(tmp_path: Path, plain_page: None) -> None:
    """By whoever counts shares while they are asked for; and without that by the certificate."""
    with mock.patch.object(Setting, "asked", _whole_share):
        assert assay(SOUND, tmp_path / "study") == "refused: UsageError"
        with (
            mock.patch.object(Purse, "spend", return_value=None),
            pytest.raises(AssertionError, match="more than the budget of 4"),
        ):
            assay(SOUND, tmp_path / "study")


def test_a_release_that_is_charged_for_other_rows_is_seen(tmp_path: Path, plain_page: None) -> None:
    """What is asked of all rows is booked under a half of the fit rows, where it meets less."""
    right = Charge.of

    def wrong(plan: Plan, **names: Any) -> Charge:
        charge = right(plan, **names)
        return replace(charge, part=Part.FIRST_FIT) if charge.part is Part.ALL else charge

    with mock.patch.object(Charge, "of", wrong), pytest.raises(AssertionError, match="isclose"):
        assay(SOUND, tmp_path / "study")


@contextmanager
def _lost(count: int) -> Iterator[None]:
    """The first receipts of every run are lost."""
    right = agenda_module.spending

    def wrong(found: Any, budget: Any) -> dict[str, Any]:
        return right(list(found)[count:], budget)

    with mock.patch.object(agenda_module, "spending", wrong):
        yield


def test_a_receipt_that_is_lost_is_seen(tmp_path: Path, plain_page: None) -> None:
    with _lost(1), pytest.raises(AssertionError):
        assay(SOUND, tmp_path / "study")


def test_a_release_that_nobody_charged_is_seen(tmp_path: Path, plain_page: None) -> None:
    charge = DatabaseLedger.charge
    with (
        mock.patch.object(DatabaseLedger, "charge", lambda self, new: charge(self, list(new)[:-1])),
        pytest.raises(AssertionError),
    ):
        assay(SOUND, tmp_path / "study")


def test_a_study_that_is_refused_too_late_is_seen(tmp_path: Path, plain_page: None) -> None:
    """Without a look ahead the ledger refuses in the middle, when clients were asked already."""
    capped = replace(
        SOUND, text=SOUND.text.replace('dataset = "d"', 'dataset = "d"\nepsilon = 3.4\ndelta = 1e-6')
    )
    assert assay(capped, tmp_path / "study") == "refused: BudgetExceeded"
    with (
        mock.patch("fedassay.api.study.require_affordable", return_value=None),
        pytest.raises(AssertionError, match="refused after clients were asked"),
    ):
        assay(capped, tmp_path / "study")
