"""Document of a kind of task: each kind's package has a subclass, which its card names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fedassay.documents.blocks import Document, DocumentBlock, KeyNumber, Results
from fedassay.protocol.cards import Catalogue
from fedassay.protocol.metrics import METRICS, MetricRecord

KINDS: Catalogue[Any] = Catalogue("fedassay.kinds", ("fedassay.tasks.*.card",), what="task")
"""Cards of kinds by name. Their class, `tasks.card.KindCard`, is declared above documents and not imported."""

NextStep = tuple[str, str]
"""Sentence, and a command or nothing. Commands name files of the study's folder, never the place of the folder."""

INDEPENDENT_ROWS = (
    "Rows are independent of each other; that rows of one client resemble each other is not modelled."
)
FROZEN_MODEL = "The model was frozen before, and was not trained on these rows."
ON_ALL_ROWS, ON_HELD_OUT_ROWS = "on all rows", "on held-out rows"


def card_of(document: Document) -> Any:
    """Return the card of a single task: of the kinds with its name, the kind whose columns it was given."""
    name, given = document["task"], set(document.get("parameters", ()))
    own = KINDS.named(name)
    alike = (card for card in KINDS.values() if card.asked_as == name)
    return next((card for card in (own, *alike) if given >= set(card.columns)), own)


class KindDocument(ABC):
    """Blocks, key numbers and sentences about the results of one kind of task, made from their JSON alone.

    Only `blocks` is required. The defaults of the others are empty.
    """

    use: ClassVar[str] = ""
    """Kind of model in a model card; empty where results are not about a model."""

    metrics: ClassVar[Mapping[str, MetricRecord]] = METRICS
    """Records of the metrics that results may have."""

    @abstractmethod
    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield tables, curves and sentences, in reading order."""

    def verdict(self, document: Document) -> str:
        """Return the first sentence of the document, if the kind comes to a verdict."""
        return ""

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the few numbers that stand before all tables."""
        yield from ()

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield sentences about the assumptions that a reader must trust."""
        yield from ()

    def sentences(self, results: Results) -> Iterator[str]:
        """Yield sentences for the verdict of a study."""
        yield from ()

    def next_steps(self, results: Results, file: str, name: str) -> Iterator[NextStep]:
        """Yield suggestions after a study; `file` is the artefact of the task, `name` the task's name."""
        yield from ()

    def missing_sections(self, document: Document, name: str) -> Iterator[tuple[str, str]]:
        """Yield headings of missing sections that a reader may look for, with the reason."""
        yield from ()

    def held_out_metrics(self, results: Results) -> Mapping[str, Any]:
        """Return more metrics of held-out rows for programs, by name."""
        return {}

    def listed_metrics(self, results: Results) -> Iterator[tuple[str, float | None, Any]]:
        """Yield metrics in lists, for programs: name, the threshold or share of each, and value."""
        yield from ()

    def plain_numbers(self, results: Results) -> Mapping[str, Any]:
        """Return numbers without an interval for programs, by name; other values are left out."""
        return {}

    def is_vacuous(self, results: Results) -> bool:
        """Return whether the results promise nothing, so that measurements on held-out rows are noise."""
        return False

    def recommends(self, results: Results) -> bool | None:
        """Return whether a calibrator is recommended; None for kinds that fit none."""
        return None

    def calibration_metrics(self, results: Results) -> tuple[Results, ...]:
        """Return metrics that are 1 if probabilities are right; empty for kinds that measure none."""
        return ()
