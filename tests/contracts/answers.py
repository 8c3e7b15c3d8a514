"""What a kind of task, or a trust model, says on every face: asked when it is first looked at, and kept."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import faces
from faces import ROWS, STUDY, Output, command
from rich.console import Console

from fedassay.documents.page import page
from fedassay.documents.terminal import render

if TYPE_CHECKING:
    import pytest
    from kind_contract import Case, KindContract

T = TypeVar("T")

Document = Mapping[str, Any]
Sections = Mapping[str, Mapping[str, Any]]


@dataclass(kw_only=True)
class Answers:
    """Everything that one contract asks, in a folder of its own."""

    contract: KindContract
    folder: Path
    _kept: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is made, or the error that was raised instead, each time alike."""
        if name not in self._kept:
            try:
                self._kept[name] = make()
            except Exception as error:
                self._kept[name] = error
        if isinstance(self._kept[name], Exception):
            raise self._kept[name]
        answer: T = self._kept[name]
        return answer

    # --- single tasks ---------------------------------------------------------------------------------------------

    def document(self, case: Case) -> Any:
        """The result of a case, from Python, as its JSON has it."""
        rows = self.contract.rows() if case.rows is None else case.rows
        return self.once(f"{case}", lambda: json.loads(self.contract.ask(case, rows).to_json()))

    @property
    def command_result(self) -> tuple[Output, Document]:
        """The usual values, from the command line, with the result that it wrote."""
        return self.once("command", self._commanded)

    def _commanded(self) -> tuple[Output, Document]:
        out, report = self.folder / "command.json", self.folder / "command.html"
        words = self.contract.options(self.contract.case("values"))
        output = command(self.contract.command, self.rows_file(), *words, "--json", out, "--report", report)
        assert not out.exists() or report.exists()
        return output, json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}

    # --- plans ----------------------------------------------------------------------------------------------------

    def plan_alone(self, case: str) -> tuple[Output, Document]:
        """The plan of the task, as the terminal shows it, and its JSON."""
        out = self.folder / f"plan-{case}.json"
        expected = [
            word for name, value in self.contract.expected.items() for word in (f"--{name}", str(value))
        ]
        terms = self.contract.terms(self.contract.case(case)).options
        words = ("plan", self.contract.command, *expected, *self.contract.planned, *terms, "--json", out)
        return self.once(f"plan {case}", lambda: _with_json(command(*words), out))

    def plan_in_study(self, case: str) -> tuple[Output, Document]:
        """The plan of a study of the task alone."""

        def plan() -> tuple[Output, Document]:
            path = self.study_file(self.contract.sections(self.contract.case(case)), f"plan-{case}")
            out = path.parent / "plan.json"
            return _with_json(command("plan", "study", path, "--json", out), out)

        return self.once(f"plan study {case}", plan)

    # --- studies --------------------------------------------------------------------------------------------------

    def study(self, case: str) -> tuple[Output, Path]:
        """A study of the task alone, and its folder."""

        def run() -> tuple[Output, Path]:
            question = self.contract.case(case)
            path = self.study_file(self.contract.sections(question), case, question.rows)
            return command("run", path, "--anyway", "--key", self.key), path.parent / STUDY

        return self.once(f"study {case}", run)

    def run(self, sections: Sections) -> Output:
        """Run a study of which nothing is kept."""
        return command("run", self.study_file(sections, "other"), "--anyway", "--fresh")

    def study_file(self, sections: Sections, name: str, rows: faces.Rows | None = None) -> Path:
        """A study file beside its rows."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        faces.write_rows(folder / ROWS, self.contract.rows() if rows is None else rows)
        path = folder / "study.toml"
        path.write_text(faces.study_text(sections), encoding="utf-8")
        return path

    def rows_file(self) -> Path:
        """The usual rows."""
        path = self.folder / ROWS
        return path if path.exists() else faces.write_rows(path, self.contract.rows())

    @property
    def key(self) -> Path:
        """The private key that signs."""
        path = self.folder / "coordinator.key"
        self.once("key", lambda: command("keys", path))
        return path

    @property
    def public_key(self) -> str:
        """The public one, as `fedassay keys` prints it."""
        card = re.search(r'= "(\S+)', self.once("public key", lambda: command("keys", self.key).out))
        assert card is not None
        return card[1]

    # --- pages ----------------------------------------------------------------------------------------------------

    def document_on(self, face: str, case: str) -> Document:
        """The JSON that a face shows."""
        if not face.startswith("study-"):
            return self.document(self.contract.case(case))
        folder = self.study(case)[1]
        document: Document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return document

    def text_on(self, face: str, case: str) -> str:
        """The text that a reader of a face sees."""
        if face.startswith("study-"):
            output, folder = self.study(case)
            assert output.works, output.err
            if face == "study-terminal":
                return output.out
            name = "report.html" if face == "study-html" else "model_card.md"
            text = (folder / name).read_text(encoding="utf-8")
            return faces.page_text(text) if face == "study-html" else text
        document = self.document(self.contract.case(case))
        if face == "html":
            return self.once(f"page {case}", lambda: faces.page_text(page(document)))
        console = Console(file=io.StringIO(), width=100)
        render(document, console)
        return console.file.getvalue()  # type: ignore[attr-defined]


def _with_json(output: Output, path: Path) -> tuple[Output, Document]:
    return output, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


_SHARED: dict[str, Answers] = {}


def shared(name: str, make: Callable[[], KindContract], factory: pytest.TempPathFactory) -> Answers:
    """What several contracts look at, asked once in a process."""
    if name not in _SHARED:
        _SHARED[name] = Answers(contract=make(), folder=factory.mktemp("contract"))
    return _SHARED[name]
