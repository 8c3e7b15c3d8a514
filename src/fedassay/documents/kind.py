"""What a document shows of one kind of task: each kind's package has a subclass, which its card names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fedassay.documents.blocks import Document, DocumentBlock, KeyNumber, Results
from fedassay.protocol.cards import Catalogue
from fedassay.protocol.metrics import METRICS, MetricRecord

KINDS: Catalogue[Any] = Catalogue("fedassay.kinds", ("fedassay.tasks.*.card",), what="task")
"""The cards of kinds by name. Their class, `tasks.card.KindCard`, is declared above documents and not imported."""

NextStep = tuple[str, str]
"""A sentence, and a command or nothing. Commands name files of the study's folder, and never where that is."""

INDEPENDENT_ROWS = (
    "Rows are independent of each other; that rows of one client resemble each other is not modelled."
)
FROZEN_MODEL = "The model was frozen before, and was not trained on these rows."
ON_ALL_ROWS, ON_HELD_OUT_ROWS = "on all rows", "on held-out rows"


def card_of(document: Document) -> Any:
    """The card of a single task: of the kinds that are asked for under its name, the one whose columns it was given."""
    name, given = document["task"], set(document.get("parameters", ()))
    own = KINDS.named(name)
    alike = (card for card in KINDS.values() if card.asked_as == name)
    return next((card for card in (own, *alike) if given >= set(card.columns)), own)


class KindDocument(ABC):
    """Blocks, key numbers and sentences about the results of one kind of task, made from their JSON alone.

    Only `blocks` is required. The defaults of the others say nothing.
    """

    use: ClassVar[str] = ""
    """Kind of model in a model card; empty where results are not about a model."""

    metrics: ClassVar[Mapping[str, MetricRecord]] = METRICS
    """Records of the metrics that results may have."""

    @abstractmethod
    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Tables, curves and sentences, in reading order."""

    def verdict(self, document: Document) -> str:
        """The sentence before everything else, where the kind comes to a verdict."""
        return ""

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """The few numbers that stand before any table."""
        yield from ()

    def assumptions(self, results: Results) -> Iterator[str]:
        """Sentences about what a reader takes on trust."""
        yield from ()

    def sentences(self, results: Results) -> Iterator[str]:
        """Sentences for the verdict of a study."""
        yield from ()

    def next_steps(self, results: Results, file: str, name: str) -> Iterator[NextStep]:
        """Suggestions after a study; `file` is the artefact of the task, `name` the task's name."""
        yield from ()

    def missing_sections(self, document: Document, name: str) -> Iterator[tuple[str, str]]:
        """Headings of sections that a reader may look for, with the reason why they are missing."""
        yield from ()

    def held_out_metrics(self, results: Results) -> Mapping[str, Any]:
        """More metrics of held-out rows for programs, by name."""
        return {}

    def listed_metrics(self, results: Results) -> Iterator[tuple[str, float | None, Any]]:
        """Metrics that stand in lists, for programs: name, the threshold or share that each belongs to, and value."""
        yield from ()

    def plain_numbers(self, results: Results) -> Mapping[str, Any]:
        """Numbers without an interval for programs, by name; those that are no numbers are left out."""
        return {}

    def is_vacuous(self, results: Results) -> bool:
        """Whether the results promise nothing, so that measurements on held-out rows are noise."""
        return False

    def recommends(self, results: Results) -> bool | None:
        """Whether a calibrator is recommended; None for kinds that fit none."""
        return None

    def calibration_metrics(self, results: Results) -> tuple[Results, ...]:
        """Metrics that are 1 where probabilities are right; empty for kinds that measure none."""
        return ()
