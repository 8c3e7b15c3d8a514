"""What every kind of task must do on every public face: inherit `KindContract` and say what is specific.

The members are a few rows, the columns, the parameters, and for each parameter one wrong value. Everything is asked
once for a class and looked at by several tests. A hole that is known stands in `holes`: its test is expected to fail,
and is an error as soon as it does not.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import faces
import pytest
from answers import Answers
from faces import ROWS, Terms, command
from parameter_contract import ParameterContract, WrongValue

import fedassay
from fedassay import Result, Simulation
from fedassay.api.cells import default_task, task_cell
from fedassay.errors import FedassayError
from fedassay.study.schema import schema as study_schema
from fedassay.tasks.card import TASKS
from fedassay.trust import TRUST_MODELS

__all__ = ["Case", "KindContract", "WrongValue"]

SEED = 1
SITES = 4
ALWAYS = {
    *("certificate.json", "journal", "journal.lock", "model_card.md"),
    *("report.html", "result.json", "study.toml"),
}
"""The files that every study leaves behind."""

COLUMN_NAMES: Mapping[str, str] = {"class": "label", "group": "by"}
"""Roles of a study's columns that the command line and Python call otherwise."""

NOWHERE = "no-such-rows.csv"
"""A file that is not there: an attempt to open it would say so."""

CASES = pytest.mark.parametrize("case", ["values", "noisy", "undefined"])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task that is asked: its terms, and what differs from the contract in rows, columns and parameters."""

    trust: str
    epsilon: float = 8.0
    rows: faces.Rows | None = None
    columns: Mapping[str, str] | None = None
    parameters: Mapping[str, Any] | None = None
    declarations: Mapping[str, Any] = field(default_factory=dict)
    """What only a study has to declare."""


class KindContract(ParameterContract):
    """Inherit, name the kind, and give a value to what has none here."""

    kind: ClassVar[str]
    """Its name in the catalogue."""
    command: ClassVar[str]
    """Its command, and with underscores its function in Python."""
    columns: ClassVar[Mapping[str, str]]
    """By role, the columns of the rows, as a study names them."""
    undefined: ClassVar[Case]
    """A case in which something has no value."""

    exact: ClassVar[str] = "secure-sum"
    noisy: ClassVar[str] = "server-dp"
    """Trust models that can answer it, without and with noise."""
    epsilon: ClassVar[float] = 8.0
    """Enough for values with noise."""
    expected: ClassVar[Mapping[str, Any]] = {"rows": 1000, "clients": SITES}
    """What a plan expects of the data."""
    planned: ClassVar[Sequence[str]] = ()
    """Options with which its plan is quick."""

    artefact: ClassVar[str | None] = None
    """The file that a study leaves for `fedassay apply`."""
    load: ClassVar[Callable[[Path], Any] | None] = None
    """The public function that reads it."""
    applied: ClassVar[Sequence[str]] = ()
    """The columns that applying it adds."""

    def rows(self) -> faces.Rows:
        """About 300 rows of 4 sites, which the column `site` names."""
        raise NotImplementedError

    # --- how it is asked ------------------------------------------------------------------------------------------

    def case(self, name: str) -> Case:
        """Values without noise, values with noise, or no value."""
        if name == "undefined":
            return self.undefined
        return Case(trust=self.exact if name == "values" else self.noisy, epsilon=self.epsilon)

    def terms(self, case: Case) -> Terms:
        """The terms of a case; a site has about 75 rows."""
        return Terms.of(case.trust, epsilon=case.epsilon, rows_per_client=80)

    def ask(self, case: Case, data: Any) -> Result:
        """Ask in Python."""
        result: Result = faces.python_function(self.command)(
            data,
            client="site",
            **self.columns_by_keyword(case),
            **self.parameters_of(case),
            **self.terms(case).keywords,
            simulation=Simulation(seed=SEED),
        )
        return result

    def options(self, case: Case) -> list[str]:
        """The words that ask on the command line, after the data."""
        columns = {"client": "site", **self.columns_by_keyword(case)}
        return [
            *(word for name, column in columns.items() for word in (f"--{name}", column)),
            *faces.all_option_words(self.owner, self.parameters_of(case)),
            *self.terms(case).options,
            *("--seed", str(SEED)),
        ]

    def sections(self, case: Case, path: str = ROWS) -> dict[str, dict[str, Any]]:
        """The sections of a study of this task alone."""
        return {
            "data": {"path": path, "client": "site"},
            "data.columns": dict(self.columns if case.columns is None else case.columns),
            "privacy": self.terms(case).section,
            "runtime": {"seed": SEED},
            "expected": dict(self.expected),
            f"tasks.{self.kind}": {**self.parameters_of(case), **case.declarations},
        }

    def columns_by_keyword(self, case: Case) -> dict[str, str]:
        """The columns as the command line and Python name them."""
        columns = self.columns if case.columns is None else case.columns
        return {COLUMN_NAMES.get(role, role): name for role, name in columns.items()}

    def parameters_of(self, case: Case) -> Mapping[str, Any]:
        """The parameters of a case."""
        return self.parameters if case.parameters is None else case.parameters

    def cell(self, trust: str) -> str | None:
        """None if the trust model can answer the task, else the reason why not."""
        return task_cell(default_task(self.kind), TRUST_MODELS[trust]())

    # --- parameters -----------------------------------------------------------------------------------------------

    @property
    def owner(self) -> type[Any]:
        """The task."""
        return TASKS[self.kind]

    def words(self, answers: Answers, values: Mapping[str, Any]) -> list[object]:
        """The command of the task."""
        return [self.command, answers.rows_file(), *self.options(self._without(values))]

    def in_python(self, values: Mapping[str, Any]) -> object:
        """The function of the task."""
        case = self._without(values)
        both = Case(
            trust=case.trust,
            epsilon=case.epsilon,
            parameters={**(case.parameters or {}), **faces.set_in(values)},
        )
        return self.ask(both, self.rows())

    def in_a_study(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """A study of the task alone."""
        sections = self.sections(self._without(values))
        sections[f"tasks.{self.kind}"] |= faces.set_in(values)
        return sections

    def _without(self, values: Mapping[str, Any]) -> Case:
        """The usual case without the parameters that have other values."""
        usual = {name: value for name, value in self.parameters.items() if name not in values}
        return Case(trust=self.exact, epsilon=self.epsilon, parameters=usual)

    def test_help_has_an_option_for_each_parameter(self) -> None:
        self.assert_help_has_options(self.command)

    def test_a_plan_has_an_option_for_each_parameter(self) -> None:
        self.assert_help_has_options("plan", self.command)

    def test_the_study_schema_has_an_entry_for_each_parameter(self) -> None:
        entries = study_schema()["$defs"][self.kind]["properties"]
        for parameter in self.listed:
            assert entries[parameter.name]["description"], parameter.name

    # --- shared ---------------------------------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def answers(cls, tmp_path_factory: pytest.TempPathFactory) -> Answers:
        """All that is asked of this kind, when it is first looked at."""
        return Answers(contract=cls(), folder=tmp_path_factory.mktemp("contract"))

    # --- every trust model ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("trust", TRUST_MODELS)
    def test_every_trust_model_answers_or_says_why_not(self, answers: Answers, trust: str) -> None:
        if self.cell(trust) is None:
            document = answers.document(Case(trust=trust, epsilon=self.epsilon))
            assert document["privacy"]["trust_model"] == trust
            assert document["cohort"]["clients"] == SITES
            assert (document["privacy"]["epsilon"] is None) == (not TRUST_MODELS[trust].private)
            faces.validator(faces.schema("result")).validate(document)
            return
        with pytest.raises(FedassayError) as refused:
            self.ask(Case(trust=trust, epsilon=self.epsilon), NOWHERE)
        assert NOWHERE not in str(refused.value), "the rows were looked for first"
        assert (refused.value.exit_code, faces.objection(str(refused.value))) == (2, "")

    @pytest.mark.parametrize("face", ["command", "study"])
    def test_an_impossible_cell_is_refused_before_any_row_is_read(self, answers: Answers, face: str) -> None:
        for trust in TRUST_MODELS:
            if self.cell(trust) is not None:
                case = Case(trust=trust, epsilon=self.epsilon)
                by_command = (self.command, NOWHERE, *self.options(case))
                study = self.sections(case, path=NOWHERE)
                output = command(*by_command) if face == "command" else answers.run(study)
                assert faces.command_objection(output) == ""
                assert NOWHERE not in output.err, "the rows were looked for first"

    def test_the_command_says_what_python_says(self, answers: Answers) -> None:
        output, document = answers.command_result
        assert output.works, output.err
        assert document["results"] == answers.document(self.case("values"))["results"]

    # --- plans ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("case", ["values", "noisy"])
    def test_planned_alone(self, answers: Answers, case: str) -> None:
        output, document = answers.plan_alone(case)
        assert output.works, output.err
        assert document["verdict"]
        assert faces.strange_words(output.out) == []

    @pytest.mark.parametrize("case", ["values", "noisy"])
    def test_planned_as_a_study_of_one(self, answers: Answers, case: str) -> None:
        output, document = answers.plan_in_study(case)
        assert output.works, output.err
        task = document["tasks"][self.kind]
        assert document["verdict"]
        assert task["decisive"]
        assert set(task["decisive"]) <= set(task["metrics"])
        assert faces.strange_words(output.out) == []

    def test_a_plan_of_one_task_is_that_of_a_study_of_one(self, answers: Answers) -> None:
        alone, study = answers.plan_alone("values")[1], answers.plan_in_study("values")[1]
        assert alone["metrics"] == study["tasks"][self.kind]["metrics"]

    def test_the_planner_knows_which_trust_models_cannot(self, answers: Answers) -> None:
        rows = {row["trust_model"]: row for row in answers.plan_in_study("values")[1]["trust_models"]}
        assert list(rows) == list(TRUST_MODELS)
        for trust, row in rows.items():
            assert row["possible"] or row["reason"], trust
            assert self.cell(trust) is None or not row["possible"], trust

    # --- a study --------------------------------------------------------------------------------------------------

    @CASES
    def test_a_study_leaves_everything_behind(self, answers: Answers, case: str) -> None:
        output, folder = answers.study(case)
        assert output.works, output.err
        artefact = {self.artefact} if self.artefact else set()
        names = {path.name for path in folder.iterdir()}
        assert names - artefact == ALWAYS
        assert case == "undefined" or artefact <= names

    @CASES
    def test_its_certificate_is_verified(self, answers: Answers, case: str) -> None:
        folder = answers.study(case)[1]
        assert command("verify", folder, "--key", answers.public_key, "--quiet").code == 0
        certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
        faces.validator(faces.schema("certificate")).validate(certificate)
        assert certificate["tasks"][self.kind]["task"] == self.kind
        assert fedassay.verify(folder, key=answers.public_key).holds

    @CASES
    def test_the_result_of_a_study_is_valid(self, answers: Answers, case: str) -> None:
        document = json.loads((answers.study(case)[1] / "result.json").read_text(encoding="utf-8"))
        faces.validator(faces.schema("result")).validate(document)
        assert Result.from_json(json.dumps(document)).task_result(self.kind).task == self.kind

    def test_python_runs_the_same_study(self, answers: Answers) -> None:
        folder = answers.study("values")[1]
        result = fedassay.run_study(answers.study_file(self.sections(self.case("values")), "python"))
        stored = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        assert json.loads(result.to_json())["results"]["tasks"] == stored["results"]["tasks"]

    # --- JSON -----------------------------------------------------------------------------------------------------

    def test_the_schema_describes_every_entry(self, answers: Answers) -> None:
        document = answers.document(self.case("values"))
        assert set(document["results"]) - faces.described(document) == set()
        assert not faces.validator(faces.schema("result")).is_valid({**document, "results": {}})

    def test_the_result_says_what_was_asked(self, answers: Answers) -> None:
        stated = answers.document(self.case("values"))["parameters"]
        assert {parameter.name for parameter in self.listed} - set(stated) == set()
        assert {name: stated[name] for name in self.parameters} == json.loads(json.dumps(self.parameters))

    def test_what_has_no_value_has_a_reason(self, answers: Answers) -> None:
        results = answers.document(self.undefined)["results"]
        assert [
            entry for entry in faces.objects(results) if entry.get("value", 0) is None and not entry["reason"]
        ] == []
        assert faces.reasons(results)

    # --- pages ----------------------------------------------------------------------------------------------------

    @CASES
    @pytest.mark.parametrize("face", ["terminal", "html", "study-terminal", "study-html", "study-markdown"])
    def test_rendered_without_strange_words(self, answers: Answers, face: str, case: str) -> None:
        text = answers.text_on(face, case)
        assert len(text) > 200
        assert faces.strange_words(text) == []

    @pytest.mark.parametrize("face", ["terminal", "html", "study-html", "study-markdown"])
    def test_a_reader_sees_why_there_is_no_value(self, answers: Answers, face: str) -> None:
        text = " ".join(answers.text_on(face, "undefined").replace("\\", "").split())
        reasons = faces.reasons(answers.document_on(face, "undefined")["results"])
        assert any(reason.rpartition(": ")[2].strip(" .") in text for reason in reasons), reasons

    # --- its artefact ---------------------------------------------------------------------------------------------

    def test_its_artefact_is_applied(self, answers: Answers) -> None:
        if self.artefact is None:
            return
        artefact, out = answers.study("values")[1] / self.artefact, answers.folder / "applied.csv"
        output = command("apply", artefact, answers.rows_file(), "--out", out)
        assert output.works, output.err
        text = out.read_text(encoding="utf-8")
        header, *lines = csv.reader(text.splitlines())
        assert set(self.applied) <= set(header)
        assert len(lines) == len(self.rows()["site"])
        assert faces.strange_words(text) == []

    def test_its_artefact_is_json(self, answers: Answers) -> None:
        if self.artefact is None:
            return
        assert self.load is not None
        artefact, again = answers.study("values")[1] / self.artefact, answers.folder / "again.json"
        self.load(artefact).save(again)
        assert json.loads(again.read_text("utf-8")) == json.loads(artefact.read_text("utf-8"))
