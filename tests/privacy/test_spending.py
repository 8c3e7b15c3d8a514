"""What a result says of its budget: what the charges compose to, of all tasks and of each."""

from __future__ import annotations

import pytest

from fedassay.kernel.agenda import spending
from fedassay.privacy.accounting import GAUSSIAN
from fedassay.privacy.ledger.charges import compose
from fedassay.protocol.vocabulary import Budget, Part
from ledgers import charge, exact

PURE, APPROXIMATE = Budget(epsilon=1.0), Budget(epsilon=4.0, delta=1e-6)


def test_tasks_add_up_on_the_same_rows_only() -> None:
    charges = [
        charge("1", task="evaluate"),
        charge("2", task="calibrate", part=Part.FIRST_FIT),
        charge("3", task="calibrate", part=Part.HELD_OUT),
        charge("4", task="conformal:wide", part=Part.SECOND_FIT),
    ]
    found = spending(charges, PURE)
    assert found["by_task"] == pytest.approx({"evaluate": 0.25, "calibrate": 0.25, "wide": 0.25})
    assert (found["spent"], found["remaining"]) == pytest.approx((0.5, 0.5))
    assert [one["task"] for one in found["charges"]] == ["evaluate", "calibrate", "calibrate", "wide"]


def test_releases_of_one_task_compose_as_those_of_all_do() -> None:
    noise = {"law": GAUSSIAN, "scale": 4.0}
    charges = [charge(str(number), task=task, **noise) for number, task in enumerate("aabbbb")]
    found = spending(charges, APPROXIMATE)
    assert found["by_task"] == {
        name: compose(charges[:count], 1e-6) for name, count in {"a": 2, "b": 4}.items()
    }
    alone = charges[0], compose(charges[:1], 1e-6)
    assert found["charges"][0]["epsilon"] == alone[1]
    assert found["by_task"]["b"] < 4 * alone[1]  # not added up
    assert max(found["by_task"].values()) < found["spent"] < sum(found["by_task"].values())


def test_without_a_budget_nothing_is_said_of_epsilon() -> None:
    found = spending([exact(task="evaluate")], None)
    assert {name for name, value in found.items() if value is not None} == {"charges"}
    (entry,) = found["charges"]
    assert entry["epsilon"] is entry["scale"] is entry["l1"] is None
