"""Where a display gets its numbers: from a result, its document, or the file of it; of a study, from one task."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.documents.sheet import Document
from fedassay.errors import UsageError
from fedassay.reports.study import Part, is_study, parts, sub_document
from fedassay.result import Result

Source = Result | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a display shows.

    Parameters
    ----------
    what : in words.
    entry : the name of the entry of a task's results without which there is nothing to show.
    tasks : those that may have it. Of a study with several of them, the first kind that is there is shown.
    """

    what: str
    entry: str
    tasks: tuple[str, ...]


def document_of(source: Source) -> Document:
    """The document of a result, whatever is given."""
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


def part_of(source: Source, *, task: str | None, wanted: Wanted) -> Part:
    """The task that has what is wanted; that of a single task has no name."""
    document = document_of(source)
    if task is not None and not is_study(document):
        raise UsageError(
            f"task: got {task!r}, but the result is that of one task, {document['task']}; leave `task` out."
        )
    named = (
        list(parts(document)) if task is None else [Part(name=task, document=sub_document(document, task))]
    )
    able = [part for part in named if part.document["results"].get(wanted.entry) is not None]
    for kind in wanted.tasks:
        found = [part for part in able if part.document["task"] in (kind, f"{kind}-classes")]
        if len(found) > 1:
            names = ", ".join(part.name for part in found)
            raise UsageError(
                f"{wanted.what}: several tasks of the study have one; give task, one of {names}."
            )
        if found:
            return found[0]
    got = ", ".join(dict.fromkeys(part.document["task"] for part in named))
    raise UsageError(
        f"{wanted.what}: got a result of {got or 'no task'}, which has none; expected one of "
        f"{' or '.join(wanted.tasks)} with '{wanted.entry}'."
    )
