"""What every display can do: be drawn, be told, be saved, be shown in a notebook."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar, Self

import altair as alt

from fedassay.documents import plots
from fedassay.reports.displays.source import Source, Wanted, part_of


@dataclass(frozen=True, kw_only=True, repr=False)
class Display(ABC):
    """A plot of a result, and the numbers that it is drawn from, as attributes.

    Make one with `from_result`. `chart` is an Altair chart, to be changed or combined by its means; `alternative`
    says in words what can be seen.
    """

    wanted: ClassVar[Wanted]

    results: Mapping[str, Any]
    """The ``results`` of the task, as its JSON has them."""

    task: str = ""
    """The name of the task within a study."""

    @classmethod
    def from_result(cls, result: Source, task: str | None = None) -> Self:
        """The display of a result.

        Parameters
        ----------
        result : a `Result`, its document (``json.load`` of the file), or the path of the file.
        task : the name of the task within a study; by default the one that has what is shown.

        A result that has no such thing is a `UsageError`. What is there but undefined (too few rows, too much noise) is
        shown as an empty plot with the reason.
        """
        part = part_of(result, task=task, wanted=cls.wanted)
        return cls(results=part.document["results"], task=part.name)

    def __repr__(self) -> str:
        """The task of a study, and the numbers that matter most."""
        named = {"task": self.task} if self.task else {}
        said = ", ".join(f"{name}={_short(value)}" for name, value in {**named, **self._main()}.items())
        return f"{type(self).__name__}({said})"

    def _main(self) -> Mapping[str, Any]:
        """The one to three numbers that matter most, by name."""
        return {}

    @abstractmethod
    def draw(self) -> alt.TopLevelMixin:
        """The plot, without the look of all plots."""

    @property
    @abstractmethod
    def alternative(self) -> str:
        """The plot in words, with the numbers that matter."""

    @property
    def chart(self) -> alt.TopLevelMixin:
        """The plot as an Altair chart."""
        return plots.framed(self.draw().properties(description=self.alternative))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot to a file that stands alone: ``.png``, ``.svg`` or ``.pdf``."""
        plots.save(self.chart, path)

    def _repr_html_(self) -> str:
        """For notebooks: drawn here, so that nothing has to be loaded; on white paper, whatever surrounds it."""
        words = escape(self.alternative, quote=True)
        style = "background:#fff;display:inline-block;max-width:100%;overflow-x:auto;margin:0;padding:8px"
        return f'<figure role="img" aria-label="{words}" style="{style}">{plots.as_svg(self.chart)}</figure>'

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """The same, and in words where a notebook has no pictures."""
        bundle = {"text/html": self._repr_html_(), "text/plain": f"{type(self).__name__}: {self.alternative}"}
        wanted = set(bundle) if include is None else set(include)
        return {kind: text for kind, text in bundle.items() if kind in wanted - set(exclude or ())}


def _short(value: object) -> str:
    """A number with few digits, alone, in a list or by name."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_short(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_short(one) for one in value)}]"
    return repr(value)


def numbers(curve: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """A list of a curve; some of its entries may be None."""
    return tuple(curve[name])
