"""What every runtime must do: inherit `WholeContract` (or `RuntimeContract`, if a leg is dear) and say how to play.

All scenarios are played once for a class, in one started federation; the tests only look at what came of them.
What is expected is computed here from the rows of all clients, without any federation.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scenarios import PROGRAMMES, ROWS, SCENARIOS, THRESHOLD, TOP, Outcome, Scenario, pooled

import fedassay

Rows = Mapping[str, tuple[int, ...]]
Story = list[list[int]]

LEGS = {"plain": 1, "secure-sum": 2, "two-shares": 2}
NOISY_LEGS = {"distributed-dp": 2, "local-dp": 1}
WITHOUT_C = {name: values for name, values in ROWS.items() if name != "c"}


def counts_of(rows: Rows) -> dict[str, Any]:
    values = [min(value, TOP) for of_client in rows.values() for value in of_client]
    return {"value": [values.count(k) for k in range(TOP + 1)], "clients": len(rows)}


def story_of(cohorts: Sequence[Sequence[str]]) -> Story:
    """What `ThreeRounds` returns if these clients are asked, and each remembers only what it was asked."""
    guess, story = 0, []
    remembered, asked = dict.fromkeys(ROWS, 0), dict.fromkeys(ROWS, 0)
    for cohort in cohorts:
        above = {name: sum(value > guess for value in ROWS[name]) for name in cohort}
        new = sum(above[name] - remembered[name] for name in cohort)
        remembered.update(above)
        asked.update({name: asked[name] + 1 for name in cohort})
        story.append([guess, new, sum(asked[name] for name in cohort)])
        guess += 1 + new % 3
    return story


def possible_stories() -> list[Story]:
    cohorts = [cohort for size in range(1, len(ROWS) + 1) for cohort in itertools.combinations(ROWS, size)]
    return [story_of(three) for three in itertools.product(cohorts, repeat=3)]


def evaluation_in_process() -> dict[str, Any]:
    result = fedassay.evaluate(pooled(), client="site", score="score", label="label", thresholds=[THRESHOLD])
    results: dict[str, Any] = json.loads(result.to_json())["results"]
    return results


class RuntimeContract(ABC):
    """Each shape of task once, in as few legs as can be."""

    programme: ClassVar[str] = "fewest-legs"

    @classmethod
    @abstractmethod
    def play(cls, scenarios: Sequence[Scenario], folder: Path) -> dict[str, Outcome]:
        """What comes of each scenario, by name. `folder` is empty and nobody else's."""

    @pytest.fixture(scope="class")
    @classmethod
    def played(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
        """The folder and the outcomes; played once even if several processes share the tests of a class."""
        shared = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            shared = shared.parent  # each process has a folder of its own in there
        kept = shared / f"{cls.__name__}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                folder = tmp_path_factory.mktemp("contract")
                outcomes = cls.play([SCENARIOS[name] for name in PROGRAMMES[cls.programme]], folder)
                plain = {name: asdict(outcome) for name, outcome in outcomes.items()}
                kept.write_text(json.dumps({"folder": str(folder), "outcomes": plain}))
        found: dict[str, Any] = json.loads(kept.read_text())
        return found

    @pytest.fixture
    def outcomes(self, played: dict[str, Any]) -> dict[str, Outcome]:
        return {name: Outcome(**outcome) for name, outcome in played["outcomes"].items()}

    @pytest.fixture
    def folder(self, played: dict[str, Any]) -> Path:
        """What `play` left there."""
        return Path(played["folder"])

    def check_three_rounds(self, outcome: Outcome, trust: str) -> None:
        assert outcome.answers["three"] == story_of([list(ROWS)] * 3)
        assert outcome.rounds == 3 * LEGS[trust]  # the other tasks cost no round trip of their own

    def check_one_step(self, outcome: Outcome) -> None:
        assert outcome.answers["counts"] == counts_of(ROWS)
        assert outcome.answers["evaluate"] == evaluation_in_process()

    def check_dropout(self, outcome: Outcome, trust: str) -> None:
        assert outcome.answers["counts"] == counts_of(WITHOUT_C)
        assert outcome.rounds == {**LEGS, **NOISY_LEGS}[trust]

    def test_three_rounds_with_memory_in_lockstep_with_others(self, outcomes: dict[str, Outcome]) -> None:
        self.check_three_rounds(outcomes["three-rounds-plain"], "plain")

    def test_a_sum_and_the_evaluation_in_one_step(self, outcomes: dict[str, Outcome]) -> None:
        self.check_one_step(outcomes["three-rounds-plain"])

    def test_a_collect_brings_one_reading_per_client(self, outcomes: dict[str, Outcome]) -> None:
        largest = outcomes["three-rounds-plain"].answers["largest"]
        assert sorted(largest["value"]) == sorted(max(values) for values in ROWS.values())
        assert largest["clients"] == len(ROWS)

    def test_a_select_lets_each_client_choose(self, outcomes: dict[str, Outcome]) -> None:
        median = outcomes["three-rounds-plain"].answers["median"]
        assert sorted(median["value"]) == [2, 2, 2, 3]

    def test_a_helper_adds_up_what_is_left_after_a_dropout(self, outcomes: dict[str, Outcome]) -> None:
        self.check_dropout(outcomes["dropout-two-shares"], "two-shares")


class WholeContract(RuntimeContract):
    """Each shape of task with each trust model that can do it."""

    programme: ClassVar[str] = "everything"

    @pytest.mark.parametrize("trust", LEGS)
    def test_one_step_alone(self, outcomes: dict[str, Outcome], trust: str) -> None:
        self.check_one_step(outcomes[f"one-step-{trust}"])
        assert outcomes[f"one-step-{trust}"].rounds == LEGS[trust]

    @pytest.mark.parametrize("trust", ["secure-sum", "two-shares"])
    def test_three_rounds_of_several_legs(self, outcomes: dict[str, Outcome], trust: str) -> None:
        self.check_three_rounds(outcomes[f"three-rounds-{trust}"], trust)
        self.check_one_step(outcomes[f"three-rounds-{trust}"])

    @pytest.mark.parametrize("trust", ["plain", "secure-sum", *NOISY_LEGS])
    def test_a_dropout_leaves_the_sum_of_those_who_answered(
        self, outcomes: dict[str, Outcome], trust: str
    ) -> None:
        self.check_dropout(outcomes[f"dropout-{trust}"], trust)

    def test_too_few_answers_fail_loudly(self, outcomes: dict[str, Outcome]) -> None:
        assert outcomes["too-few"].failed
        assert not outcomes["too-few"].answers

    def test_sampled_cohorts_remember_only_what_they_were_asked(self, outcomes: dict[str, Outcome]) -> None:
        assert outcomes["sampled"].answers["three"] in possible_stories()
        assert outcomes["sampled"].rounds == 3
