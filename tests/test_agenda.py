"""What a study asks: shares by atom, who builds on whom, and what becomes of it on the way to somebody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import FedassayError, UsageError
from fedassay.kernel.agenda import MOST_ITEMS, Agenda, Alone, Item
from fedassay.kernel.envelope import kind_of
from fedassay.kernel.run import Purse
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import ATOMS, Budget, Part, Protection, Setting, Sum
from fedassay.summaries.maps import Sigmoid
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.server_dp import ServerDP

BINARY = {"sets": "binary", "classes": 2, "holdout": 0.3}
SETTING = Setting(
    trust=ServerDP(), protection=Protection(), budget=Budget(epsilon=2.0, delta=1e-6), clients=5
)


def item(
    task: str, share: float = 0.3, *, name: str | None = None, after: str | None = None, **more: Any
) -> Item:
    given = {**(BINARY if task == "conformal" else {}), **more}
    return Item(name=name or task, task=task, parameters=given, share=share, after=after)


STUDY = Agenda(
    items=(
        item("evaluate"),
        item("calibrate"),
        item("conformal", after="calibrate"),
        item("conformal", 0.1, name="strict", level=0.95),
    )
)


# --- shares ---------------------------------------------------------------------------------------------------


def test_shares_add_up_within_an_atom_and_not_across() -> None:
    first, second, held = (STUDY.spent()[atom] for atom in ATOMS)
    assert (first, second, held) == pytest.approx((0.3 + 0.3 + 0.1, 0.3 + 0.3 + 0.1, 1.0))


def test_each_task_asks_its_own_rows() -> None:
    parts = {one.name: STUDY.parts(one) for one in STUDY.items}
    assert parts == {
        "evaluate": (Part.ALL,),
        "calibrate": (Part.FIRST_FIT, Part.HELD_OUT),
        "conformal": (Part.SECOND_FIT, Part.HELD_OUT),
        "strict": (Part.FIT, Part.HELD_OUT),
    }


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(UsageError, match=r"tasks that ask about the first-fit rows add up to 1.1, expected"):
        Agenda(items=(item("evaluate", 0.6), item("calibrate", 0.5)))
    Agenda(
        items=(item("evaluate", 0.1), *(item("ecdf", 0.1, name=f"ecdf-{i}") for i in range(9)))
    )  # rounding


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan"), float("inf"), True])
def test_a_share_is_a_part_of_one(share: Any) -> None:
    with pytest.raises(UsageError, match="share of evaluate: got"):
        item("evaluate", share)


# --- who builds on whom -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((item("conformal", after="calibrate"),), "builds on 'calibrate', expected a calibration before it"),
        (
            (item("conformal", after="calibrate"), item("calibrate")),
            "builds on 'calibrate', expected a calibration before it",
        ),
        ((item("evaluate"), item("conformal", after="evaluate")), "expected a calibration before it"),
        ((item("calibrate"), item("ecdf", after="calibrate")), "it builds on no other task"),
        (
            (item("calibrate"), item("conformal", after="calibrate", holdout=0.0)),
            "only prediction sets of a binary classifier",
        ),
        (
            (item("calibrate"), item("conformal", after="calibrate", score_parameters=[2, 1.5, 0.5, 0.1])),
            "its scores have a calibrator of their own",
        ),
        ((item("evaluate"), item("evaluate")), "with different names"),
        ((), "expected 1 to 32"),
        (tuple(item("ecdf", 0.01, name=f"e{i}") for i in range(MOST_ITEMS + 1)), "expected 1 to 32"),
    ],
)
def test_what_cannot_be_built_is_refused(items: tuple[Item, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Agenda(items=items)


def test_jobs_have_their_share_and_their_rows() -> None:
    jobs = STUDY.jobs(SETTING)
    assert [(job.name, job.label, job.after) for job in jobs] == [
        ("evaluate", "evaluate", None),
        ("calibrate", "calibrate", None),
        ("conformal", "conformal", "calibrate"),
        ("strict", "conformal:strict", None),
    ]
    assert [(job.setting.share, job.setting.fits_on) for job in jobs] == [
        (0.3, Part.FIT),
        (0.3, Part.FIRST_FIT),
        (0.3, Part.SECOND_FIT),
        (0.1, Part.FIT),
    ]
    assert {kind_of(label) for label in STUDY.labels} == {"evaluate", "calibrate", "conformal"}


@pytest.mark.parametrize("recommended", [True, False])
def test_scores_go_through_a_calibrator_that_is_recommended(recommended: bool) -> None:
    job = STUDY.jobs(SETTING)[2]
    calibrator = Sigmoid(a=0.5, b=0.5, c=0.1).to_json()
    assert job.informed is not None
    task = job.informed({"recommended": recommended, "calibrator": calibrator if recommended else None})
    assert bool(task.score_parameters) == recommended


def test_a_single_task_is_no_study() -> None:
    alone = Agenda.of("evaluate", {"thresholds": [0.2]})
    assert (alone.name, alone.study, alone.items[0].share) == ("evaluate", False, 1.0)
    assert alone.parameters["thresholds"] == [0.2]
    assert STUDY.name == "study"
    (job,) = Alone(name="mine", task=Evaluate()).jobs(SETTING)
    assert job.label == "evaluate"


# --- to somebody else -------------------------------------------------------------------------------------------


def test_what_travels_comes_back() -> None:
    for agenda in (STUDY, Agenda.of("calibrate", {"method": "platt"})):
        message = agenda.to_message()
        assert Agenda.from_message(json.loads(json.dumps(message))) == agenda
        assert Agenda.from_message(wire.decode(wire.encode(message))) == agenda


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.data())
def test_whatever_else_arrives_is_refused_with_a_sentence(data: st.DataObject) -> None:
    """Anything in the place of one entry, at any depth; what is still an agenda says what was sent."""
    message = json.loads(json.dumps(STUDY.to_message()))
    target: Any = message
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not (isinstance(target[key], dict | list) and target[key]):
            break
        target = target[key]
    target[key] = data.draw(PLAIN)
    try:
        found = Agenda.from_message(message)
    except FedassayError:
        return
    assert [one.name for one in found.items] == [one["name"] for one in message["items"]]
    assert [one.share for one in found.items] == [one["share"] for one in message["items"]]


@pytest.mark.parametrize("content", [None, [], "study", {}, {"study": True}, {"study": 1, "items": []}])
def test_no_agenda_at_all(content: object) -> None:
    with pytest.raises(UsageError, match="tasks: expected"):
        Agenda.from_message(content)


def test_a_lonely_task_among_several_is_refused() -> None:
    with pytest.raises(UsageError, match="or one that is no study"):
        Agenda.from_message({**STUDY.to_message(), "study": False})


# --- what is asked for a share ----------------------------------------------------------------------------------

QUERY = Sum(of=ScoreHistogram(transform="uniform", height=3), share=0.5, part=Part.FIT)


def test_a_task_asks_for_its_share_about_its_rows() -> None:
    setting = STUDY.jobs(SETTING)[1].setting
    asked = setting.asked(QUERY)
    assert (asked.share, asked.part) == (0.15, Part.FIRST_FIT)
    assert setting.asked(Sum(of=QUERY.of, part=Part.HELD_OUT)).part is Part.HELD_OUT
    assert setting.whole == SETTING
    plan = setting.plan(QUERY)
    assert plan.query == asked
    assert plan.setting == SETTING
    assert plan.noise == SETTING.plan(asked).noise == setting.noise(QUERY)
    assert plan.noise.variance > SETTING.noise(QUERY).variance


@pytest.mark.parametrize("fits_on", [Part.ALL, Part.HELD_OUT])
def test_nothing_is_fitted_to_rows_that_judge(fits_on: Part) -> None:
    with pytest.raises(UsageError, match="rows to fit on: got"):
        Setting(trust=ServerDP(), protection=Protection(), budget=None, clients=1, fits_on=fits_on)


# --- the purse ----------------------------------------------------------------------------------------------------


def spend(purse: Purse, share: float, part: Part) -> None:
    purse.spend("task", [SETTING.plan(Sum(of=QUERY.of, share=share, part=part))])


@given(st.lists(st.tuples(st.floats(0.01, 0.4), st.sampled_from(list(Part))), min_size=1, max_size=6))
def test_a_purse_has_one_compartment_for_each_atom(asked: list[tuple[float, Part]]) -> None:
    purse, wanted = Purse(), dict.fromkeys(ATOMS, 0.0)
    for share, part in asked:
        wanted = {atom: wanted[atom] + share * (atom in part.atoms) for atom in ATOMS}
        if max(wanted.values()) > 1 + 1e-9:
            with pytest.raises(UsageError, match="of the budget are asked for"):
                spend(purse, share, part)
            return
        spend(purse, share, part)
    assert purse.spent == pytest.approx(wanted)


@pytest.mark.parametrize("part", Part)
def test_beside_the_whole_budget_there_is_nothing(part: Part) -> None:
    purse = Purse()
    for atom in ATOMS:
        spend(purse, 1.0, atom)
    with pytest.raises(UsageError):
        spend(purse, 1e-10, part)
