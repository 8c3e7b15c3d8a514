"""What a document shows of a Hosmer-Lemeshow test."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents import figures, goodness
from fedassay.documents.blocks import Document, DocumentBlock, KeyNumber, Results
from fedassay.documents.kind import FROZEN_MODEL, INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument


class HosmerLemeshowDocument(KindDocument):
    """Hosmer-Lemeshow test of a binary classifier."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Observed beside expected rates, then the groups and what the test means."""
        return goodness.goodness_blocks(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """The p-value."""
        test = results["hosmer_lemeshow"]
        label = f"Hosmer-Lemeshow test {ON_ALL_ROWS}"
        if test["value"] is None or test["p_value"] is None:
            yield KeyNumber(label=label, text="", reason=str(test["reason"]))
            return
        detail = goodness.THIN if goodness.is_thin(test) else ""
        yield KeyNumber(label=label, text=figures.p_equals(test["p_value"]), detail=detail)

    def assumptions(self, results: Results) -> Iterator[str]:
        """Independent rows and a frozen model."""
        yield INDEPENDENT_ROWS
        yield FROZEN_MODEL
