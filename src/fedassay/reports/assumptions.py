"""What a reader takes on trust when believing the numbers, task by task. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents.sheet import Document
from fedassay.reports.contents import document_of, section
from fedassay.reports.study import parts


def assumptions(document: Document) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each task its heading and sentences; each sentence once, where it first matters."""
    said: set[str] = set()
    for part in parts(document):
        found = document_of(part.document).assumptions(part.document["results"])
        sentences = tuple(dict.fromkeys(text for text in found if text not in said))
        said.update(sentences)
        if sentences:
            yield section(part), sentences
