"""Displays of results in Python, as in scikit-learn: made from a result, described, saved, shown in a notebook."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import altair as alt

from fedassay.documents import plots
from fedassay.documents.blocks import CurveBlock, Document, Results
from fedassay.documents.report import TaskSection, is_study, sections, sub_document
from fedassay.errors import UsageError
from fedassay.protocol.result import Result

ResultSource = Result | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class DisplayedEntry:
    """Entry of a result that a display shows.

    Parameters
    ----------
    what : the entry in words.
    entry : the name of the required entry of a task's results.
    tasks : the kinds of tasks that may have it. In a study with several of them, the first kind present is shown.
    """

    what: str
    entry: str
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Display:
    """Plot of a result, with the plotted numbers as attributes.

    Make it with `from_result`. `chart` is an Altair chart, which Altair can change or combine; `alternative`
    describes the plot in words.
    """

    wanted: ClassVar[DisplayedEntry]
    """Entry that the display shows."""

    make: ClassVar[Callable[[Results], CurveBlock]]
    """Function that makes the plot from the results of a task."""

    main: ClassVar[tuple[str, ...]] = ()
    """Names of the one to three most important attributes."""

    results: Mapping[str, Any]
    """The ``results`` of the task, as in its JSON."""

    task: str = ""
    """Name of the task within a study."""

    @classmethod
    def from_result(cls, result: ResultSource, task: str | None = None) -> Self:
        """Return the display of a result.

        Parameters
        ----------
        result : a `Result`, its document (``json.load`` of the file), or the path of the file.
        task : the name of the task within a study; by default the task that has the displayed entry.

        A result without this entry raises `UsageError`. An undefined entry (too few rows, too much noise) is shown as
        an empty plot with the reason.
        """
        section = section_of(result, task=task, wanted=cls.wanted)
        return cls(results=section.results, task=section.name)

    def __repr__(self) -> str:
        """Return the task of a study, and the most important numbers."""
        named = {"task": self.task} if self.task else {}
        shown = ", ".join(f"{name}={_short(value)}" for name, value in {**named, **self._main()}.items())
        return f"{type(self).__name__}({shown})"

    def _main(self) -> Mapping[str, Any]:
        """Return the most important numbers, by name."""
        return {name: getattr(self, name) for name in self.main}

    @property
    def block(self) -> CurveBlock:
        """Plot as a block of documents: its drawing function and its text."""
        return type(self).make(self.results)

    def draw(self) -> alt.TopLevelMixin:
        """Draw the plot without the common theme."""
        return self.block.draw()

    @property
    def alternative(self) -> str:
        """Plot in words, with the important numbers."""
        return self.block.alternative

    @property
    def chart(self) -> alt.TopLevelMixin:
        """Plot as an Altair chart."""
        return plots.framed(self.draw().properties(description=self.alternative))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot to a file that stands alone: ``.png``, ``.svg`` or ``.pdf``."""
        plots.save(self.chart, path)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: drawn here, so that nothing has to be loaded, and on a white background."""
        words = escape(self.alternative, quote=True)
        style = "background:#fff;display:inline-block;max-width:100%;overflow-x:auto;margin:0;padding:8px"
        return f'<figure role="img" aria-label="{words}" style="{style}">{plots.as_svg(self.chart)}</figure>'

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return HTML for notebooks, and text for notebooks without pictures."""
        bundle = {"text/html": self._repr_html_(), "text/plain": f"{type(self).__name__}: {self.alternative}"}
        wanted = set(bundle) if include is None else set(include)
        return {kind: text for kind, text in bundle.items() if kind in wanted - set(exclude or ())}


def listed(name: str, doc: str) -> Any:
    """Return a property for a list in the wanted entry of the results; some of its numbers may be None."""
    return property(lambda self: tuple(self.results[self.wanted.entry][name]), doc=doc)


def number(entry: str, name: str, doc: str) -> Any:
    """Return a property for a number in an entry of the results; None if it is undefined."""
    return property(lambda self: self.results[entry][name], doc=doc)


def _short(value: object) -> str:
    """Format a number with few digits, alone, in a list or by name."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_short(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_short(one) for one in value)}]"
    return repr(value)


# --- source of the numbers --------------------------------------------------------------------------------------------


def document_of(source: ResultSource) -> Document:
    """Return the document of a result, from any of its forms."""
    if isinstance(source, Result):
        return source.to_dict()
    document = source if isinstance(source, Mapping) else _read(Path(source))
    if not isinstance(document, Mapping) or not {"task", "results"} <= set(document):
        raise UsageError("result: got something without 'task' and 'results', expected the JSON of a result.")
    return document


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); give the result.json of a run."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON ({error}); give the result.json of a run.") from error


def section_of(source: ResultSource, *, task: str | None, wanted: DisplayedEntry) -> TaskSection:
    """Return the task that has the wanted entry; a single task has no name."""
    document = document_of(source)
    if task is not None and not is_study(document):
        raise UsageError(
            f"task: got {task!r}, but the result is that of one task, {document['task']}; leave `task` out."
        )
    every = (
        list(sections(document))
        if task is None
        else [TaskSection(name=task, document=sub_document(document, task))]
    )
    able = [section for section in every if section.results.get(wanted.entry) is not None]
    for kind in wanted.tasks:
        found = [section for section in able if kind in (section.document["task"], section.card.asked_as)]
        if len(found) > 1:
            names = ", ".join(section.name for section in found)
            raise UsageError(
                f"{wanted.what}: several tasks of the study have one; give task, one of {names}."
            )
        if found:
            return found[0]
    got = ", ".join(dict.fromkeys(str(section.document["task"]) for section in every))
    raise UsageError(
        f"{wanted.what}: got a result of {got or 'no task'}, which has none; expected one of "
        f"{' or '.join(wanted.tasks)} with '{wanted.entry}'."
    )
