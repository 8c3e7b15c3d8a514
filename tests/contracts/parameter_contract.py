"""What every parameter must do: it is an option, a keyword and an entry of the same name, and a wrong value is refused.

A refusal is one sentence that names the parameter as its reader writes it, with exit code 2, and in a study file with
the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import faces
import pytest
from faces import STUDY, Output, command

import fedassay
from fedassay.errors import FedassayError
from fedassay.protocol.parameters import Parameter, parameters

if TYPE_CHECKING:
    from answers import Answers

UNKNOWN = "no_such_parameter"
FACES = pytest.mark.parametrize("face", ["command", "python", "study"])


@dataclass(frozen=True, kw_only=True)
class WrongValue:
    """A wrong value of a parameter, and the others without which it would not be looked at; None leaves one out."""

    value: Any
    context: Mapping[str, Any] = field(default_factory=dict)


class ParameterContract:
    """Inherit, say whose parameters they are, and how each face is asked with some of them."""

    parameters: ClassVar[Mapping[str, Any]] = {}
    """With which it is asked, so that it is quick."""
    wrong: ClassVar[Mapping[str, Any]]
    """For every parameter a value that is refused; `WrongValue` where others must be given with it."""
    implied: ClassVar[Mapping[str, str]] = {}
    """Parameters that follow from columns on the command line and in Python, and from which."""
    internal: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no parameters."""
    holes: ClassVar[Mapping[str, str]] = {}
    """Tests that fail today, by name, and why."""

    @property
    def owner(self) -> type[Any]:
        """The dataclass with the parameters."""
        raise NotImplementedError

    def words(self, answers: Answers, values: Mapping[str, Any]) -> list[object]:
        """A command that takes the parameters, without those that have a value here."""
        raise NotImplementedError

    def in_python(self, values: Mapping[str, Any]) -> object:
        """Ask in Python with these parameters."""
        raise NotImplementedError

    def in_a_study(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The sections of a study with these parameters."""
        raise NotImplementedError

    # --- known holes ----------------------------------------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _hole(self, request: pytest.FixtureRequest) -> None:
        why = self.holes.get(request.node.name)
        if why is not None:
            request.applymarker(pytest.mark.xfail(strict=True, reason=why))

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Ask about every parameter."""
        if "parameter" in metafunc.fixturenames:
            metafunc.parametrize("parameter", self.listed, ids=lambda parameter: parameter.name)

    @property
    def listed(self) -> list[Parameter]:
        """The parameters, as they are declared."""
        return [parameter for parameter in parameters(self.owner) if parameter.name not in self.internal]

    def test_holes_are_of_tests(self) -> None:
        assert {name.partition("[")[0] for name in self.holes} <= set(dir(self))

    # --- wrong values ---------------------------------------------------------------------------------------------

    def test_every_parameter_has_a_wrong_value(self) -> None:
        assert set(self.wrong) == {parameter.name for parameter in self.listed}

    def test_every_parameter_has_a_sentence(self) -> None:
        assert [parameter.name for parameter in self.listed if not parameter.sentence.endswith(".")] == []

    @FACES
    def test_a_wrong_value_is_refused(self, answers: Answers, face: str, parameter: Parameter) -> None:
        assert self._objection(answers, face, parameter, self._wrong(parameter)) == ""

    @FACES
    def test_a_refusal_speaks_the_language_of_its_face(self, answers: Answers, face: str) -> None:
        objections = {
            parameter.name: self._objection(answers, face, parameter, self._wrong(parameter), exactly=True)
            for parameter in self.listed
        }
        assert {name: text for name, text in objections.items() if text} == {}

    @FACES
    def test_a_value_of_another_type_is_refused(self, answers: Answers, face: str) -> None:
        objections = {
            parameter.name: self._objection(answers, face, parameter, {parameter.name: _mistyped(face)})
            for parameter in self.listed
            if not (face == "command" and parameter.item is str)
        }
        assert {name: text for name, text in objections.items() if text} == {}

    @FACES
    def test_an_unknown_parameter_is_refused(self, answers: Answers, face: str) -> None:
        if face == "command":
            output = command(*self.words(answers, {}), "--no-such-parameter", "1")
            assert faces.command_objection(output, "--no-such-parameter", exactly=True) == ""
        elif face == "python":
            with pytest.raises((FedassayError, TypeError), match=UNKNOWN):
                self.in_python({UNKNOWN: 1})
        else:
            output, text = self._run(answers, {UNKNOWN: 1})
            assert faces.command_objection(output, UNKNOWN, exactly=True) == ""
            assert f"study.toml, line {faces.line_of(text, UNKNOWN)}: " in output.err

    @FACES
    def test_defaults_can_be_given(self, answers: Answers, face: str) -> None:
        values = {
            parameter.name: list(parameter.default)
            if isinstance(parameter.default, tuple)
            else parameter.default
            for parameter in self.listed
            if parameter.default not in (MISSING, None)
            and parameter.name not in {*self.parameters, *self.implied}
        }
        if face == "python":
            self.in_python(values)
        elif face == "study":
            fedassay.run_study(answers.study_file(self.in_a_study(values), "defaults"))
        else:
            values = {name: value for name, value in values.items() if value != []}
            output = command(*self.words(answers, values), *faces.all_option_words(self.owner, values))
            assert output.works, output.err

    def _wrong(self, parameter: Parameter) -> dict[str, Any]:
        wrong = self.wrong[parameter.name]
        if not isinstance(wrong, WrongValue):
            return {parameter.name: wrong}
        return {**wrong.context, parameter.name: wrong.value}

    def _objection(
        self,
        answers: Answers,
        face: str,
        parameter: Parameter,
        values: dict[str, Any],
        *,
        exactly: bool = False,
    ) -> str:
        """What is wrong with the refusal of a value on a face; empty if nothing, or if it has no such parameter."""
        if parameter.name in self.implied and face != "study":
            return ""
        output, line = answers.once(
            f"{face} {values}", lambda: self._refusal(answers, face, parameter, values)
        )
        name = faces.option_of(parameter) if face == "command" else parameter.name
        objection = faces.command_objection(output, name, exactly=exactly)
        if not objection and line and f"study.toml, line {line}: " not in output.err:
            return f"expected line {line}, got {output.err.strip()}"
        if not objection and exactly and face != "command" and "--" in output.err:
            return f"options belong to the command line: {output.err.strip()}"
        return objection

    def _refusal(
        self, answers: Answers, face: str, parameter: Parameter, values: dict[str, Any]
    ) -> tuple[Output, int | None]:
        """What a face says to a value, as the command line would, and the line of a study that has it."""
        if face == "command":
            return command(*self.words(answers, values), *faces.all_option_words(self.owner, values)), None
        if face == "study":
            output, text = self._run(answers, values)
            return output, faces.line_of(text, parameter.name)
        try:
            self.in_python(values)
        except FedassayError as refused:
            return Output(code=refused.exit_code, out="", err=f"Error: {refused}"), None
        except Exception as error:
            return Output(code=1, out="", err=f"{faces.TRACEBACK}: {type(error).__name__}: {error}"), None
        return Output(code=0, out="", err=""), None

    def _run(self, answers: Answers, values: dict[str, Any]) -> tuple[Output, str]:
        """What `fedassay run` says of a study with these parameters, and the text of its file."""
        path = answers.study_file(self.in_a_study(values), "wrong")
        output = command("run", path, "--anyway", "--fresh")
        short = output.err.replace(str(path), "study.toml").replace(str(path.parent / STUDY), STUDY)
        return Output(code=output.code, out=output.out, err=short), path.read_text(encoding="utf-8")

    # --- where they stand -----------------------------------------------------------------------------------------

    def options_wanted(self) -> list[str]:
        """The options that commands should have."""
        return [faces.option_of(parameter) for parameter in self.listed if parameter.name not in self.implied]

    def assert_help_has_options(self, *words: str) -> None:
        """The help of a command shows an option for each parameter."""
        output = command(*words, "--help")
        assert output.works, output.err
        missing = [flag for flag in self.options_wanted() if not re.search(rf"{flag}(?![\w-])", output.out)]
        assert missing == []


def _mistyped(face: str) -> object:
    """A value of a type that no parameter has, as far as the face can say it."""
    return "tall" if face == "command" else {} if face == "study" else object()
