"""What every metric must do on every public face: inherit `MetricContract` and say what it is called and may be.

Values are looked at in the evaluation of 300 rows: exactly, under noise, and where there is nothing to evaluate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import ClassVar

import faces
import pytest
from answers import Answers, shared
from faces import command
from kind_contract import KindContract
from own_kinds import Logits, Scores

from fedassay.protocol.metrics import CLASS_METRICS, METRICS, MetricRecord

KINDS: Mapping[str, type[KindContract]] = {contract.kind: contract for contract in (Scores, Logits)}
RECORDS: Mapping[str, Mapping[str, MetricRecord]] = {"evaluate": METRICS, "evaluate-classes": CLASS_METRICS}
CASES = pytest.mark.parametrize("case", ["values", "noisy", "undefined"])


class MetricContract:
    """Inherit, and say what the metric is."""

    name: ClassVar[str]
    """In JSON; as in scikit-learn, where it is known there."""
    title: ClassVar[str]
    """On pages."""
    kind: ClassVar[str] = "evaluate"
    """The task that has it."""
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    """What it can be."""
    interval: ClassVar[bool] = True
    """Whether its value has an interval."""

    @pytest.fixture
    def answers(self, tmp_path_factory: pytest.TempPathFactory) -> Answers:
        """The evaluation, shared by all metrics."""
        return answers_of(self.kind, tmp_path_factory)

    # --- JSON -----------------------------------------------------------------------------------------------------

    @CASES
    def test_it_is_in_the_result(self, answers: Answers, case: str) -> None:
        metric = answers.document(answers.contract.case(case))["results"][self.name]
        if metric["value"] is None:
            assert metric["reason"]
            assert metric["interval"] is None
            return
        ends = metric["interval"] if self.interval else []
        assert all(self._within(number) for number in (metric["value"], *ends))
        assert not self.interval or ends[0] <= metric["value"] <= ends[1]
        assert set(metric["error"]) == {"sampling", "privacy", "discretisation"}

    def test_it_has_a_value(self, answers: Answers) -> None:
        assert answers.document(answers.contract.case("values"))["results"][self.name]["value"] is not None

    def test_the_schema_describes_it(self, answers: Answers) -> None:
        document = answers.document(answers.contract.case("values"))
        assert self.name in faces.described(document)
        results = {name: entry for name, entry in document["results"].items() if name != self.name}
        assert not faces.validator(faces.schema("result")).is_valid({**document, "results": results})

    def test_the_schema_knows_its_range(self, answers: Answers) -> None:
        document = answers.document(answers.contract.case("values"))
        metric = document["results"][self.name]
        for end, beyond in ((self.low, -1.0), (self.high, 1.0)):
            value = beyond + (end if math.isfinite(end) else 0.0)
            wrong = {**document["results"], self.name: {**metric, "value": value}}
            valid = faces.validator(faces.schema("result")).is_valid({**document, "results": wrong})
            assert valid == math.isinf(end)

    # --- pages ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("face", ["terminal", "html", "study-html", "study-markdown"])
    def test_its_title_is_shown(self, answers: Answers, face: str) -> None:
        text = " ".join(
            answers.text_on(face, "values")
            .translate({ord(sign): " " for sign in "│┃"})
            .replace("\\", "")
            .split()
        )
        assert self.title in text

    # --- plans ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("case", ["values", "noisy"])
    def test_it_is_planned(self, answers: Answers, case: str) -> None:
        metrics = answers.plan_in_study(case)[1]["tasks"][self.kind]["metrics"]
        assert (self.name in metrics) == self.interval
        assert not self.interval or metrics[self.name]["width"] is not None or metrics[self.name]["reason"]

    def test_it_can_be_a_target(self, answers: Answers) -> None:
        path = answers.study_file(answers.contract.sections(answers.contract.case("values")), "target")
        output = command("plan", "study", path, "--quiet", "--target", f"{self.kind}.{self.name}=0.2")
        assert output.code == (0 if self.interval else 2), output.err

    # --- its record -----------------------------------------------------------------------------------------------

    @property
    def record(self) -> MetricRecord:
        """What the catalogue of metrics has of it."""
        return RECORDS[self.kind][self.name]

    def test_it_is_one_record(self) -> None:
        assert (self.record.name, self.record.title) == (self.name, self.title)
        assert self.record.range == (self.low, self.high)
        assert self.record.sentence

    def test_its_sentence_is_in_the_schema(self) -> None:
        assert self.record.sentence in json.dumps(faces.schema("result"), ensure_ascii=False)

    def test_its_sentence_is_on_the_page(self, answers: Answers) -> None:
        assert self.record.sentence in answers.text_on("html", "values")

    def _within(self, number: float) -> bool:
        rounding = 1e-9
        return self.low - rounding <= number <= self.high + rounding


def answers_of(kind: str, factory: pytest.TempPathFactory) -> Answers:
    """One of the evaluations, on every face."""
    return shared(kind, KINDS[kind], factory)
