"""A Hosmer-Lemeshow test in a report. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents import figures, goodness
from fedassay.documents.kind import FROZEN_MODEL, INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument, Results
from fedassay.documents.sheet import Document, KeyNumber, Piece


class HosmerLemeshowDocument(KindDocument):
    """Hosmer-Lemeshow test of a binary classifier."""

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return goodness.contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """The p-value."""
        test = results["hosmer_lemeshow"]
        label = f"Hosmer-Lemeshow test {ON_ALL_ROWS}"
        if test["value"] is None or test["p_value"] is None:
            yield KeyNumber(label=label, text="", reason=str(test["reason"]))
            return
        yield KeyNumber(
            label=label,
            text=figures.p_equals(test["p_value"]),
            detail=goodness.THIN if goodness.is_thin(test) else "",
        )

    def assumptions(self, results: Results) -> Iterator[str]:
        """Independent rows and a frozen model."""
        yield INDEPENDENT_ROWS
        yield FROZEN_MODEL
