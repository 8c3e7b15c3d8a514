"""Folders of finished studies: the result, artefacts, pages to read, and a certificate.

Everything is written into a temporary folder first, where a full disk does no harm. Then it is moved in an order in
which nothing is ever wrong: the certificate goes first if there is an old one, and comes last.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate import CERTIFICATE, RESULT, Certificate, certify
from fedassay.artefacts.stored import LARGEST, content_of, hashed
from fedassay.crypto.identity import Identity, key_to_text
from fedassay.documents.blocks import Document
from fedassay.documents.model_card import model_card
from fedassay.documents.page import page
from fedassay.errors import DataError, UsageError
from fedassay.kernel.journal import lock_of
from fedassay.protocol.files import Lock, unwritable, write_atomically
from fedassay.protocol.result import Result
from fedassay.study.file import StudyFile
from fedassay.tasks.card import KINDS

REPORT, CARD, STUDY = "report.html", "model_card.md", "study.toml"
FILES = (RESULT, REPORT, CARD, STUDY, CERTIFICATE)
"""Files that are written for every study; artefacts have names of their own."""

JOURNAL = "journal"
"""Private file with all questions and answers, and the key of the split. No artefact."""

_ASIDE = ".unfinished"
"""Folder in which artefacts are written; it exists only as long as they are."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Files of a study, and the reasons why artefacts are missing.

    Parameters
    ----------
    key : the public key that the certificate is signed with, as `fedassay verify --key` takes it.
    """

    folder: Path
    files: tuple[str, ...]
    missing: tuple[str, ...]
    key: str

    @property
    def report(self) -> Path:
        """Page to look at."""
        return self.folder / REPORT


def folder_of(file: StudyFile, out: Path | None = None) -> Path:
    """Return the folder of a study's results: `out`, or by default one with the study's name next to its file.

    Raises
    ------
    UsageError
        If it is the folder of the study's data: each file there counts as a site.
    """
    folder = file.path.absolute().parent / file.name if out is None else out
    source = file.source
    if isinstance(source, Path) and source.is_dir() and source.resolve() == folder.resolve():
        raise UsageError(
            f"{folder}: holds the study's data, expected another folder for its results; give the study another name "
            "or its results another folder."
        )
    return folder


def prepare(folder: Path, *, fresh: bool = False) -> None:
    """Make the folder of a study; `fresh` forgets an earlier run in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created ({error.strerror}); give another folder.") from error
    if fresh:
        lock = Lock(lock_of(folder / JOURNAL))  # not while another process continues it
        (folder / JOURNAL).unlink(missing_ok=True)
        lock.close()


def write_folder(
    folder: Path,
    result: Result,
    study: StudyFile,
    *,
    identity: Identity | None = None,
    ledger_head: str | None = None,
    write_page: Callable[[Document], str] | None = None,
) -> Written:
    """Write all artefacts of a study; its certificate has the head of the ledger, and is signed by `identity`.

    Guarantee: a certificate in the folder is always that of the files next to it: an old one is removed before the
    first of them changes, and so is what it covered, as an old calibrator could be taken for one of this study. If
    something cannot be written (`UsageError`), the folder is as it was before.
    """
    with _aside(folder) as aside:
        result.save(aside / RESULT)
        document = result.to_dict()
        write_atomically(aside / STUDY, study.text)
        write_atomically(aside / REPORT, (write_page or page)(document))
        write_atomically(aside / CARD, model_card(document))
        usable, missing = _usable(aside, result)
        files = (RESULT, REPORT, CARD, STUDY, *usable)
        certificate = certify(
            aside, result, files=files, identity=identity, ledger_head=ledger_head, training=study.training
        )
        key = key_to_text(Certificate.of(certificate.read_bytes()).public)
        _forget(folder)
        for name in missing:
            (folder / name).unlink(missing_ok=True)
        for name in (*files, CERTIFICATE):
            (aside / name).replace(folder / name)
    reasons = tuple(f"{name}: {why}" for name, why in missing.items())
    return Written(folder=folder, files=(*files, CERTIFICATE), missing=reasons, key=key)


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """Make an empty folder inside `folder` for the duration of a block."""
    aside = folder / _ASIDE
    try:
        shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
        aside.mkdir()
        yield aside
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _forget(folder: Path) -> None:
    """Remove an earlier certificate and the files as it lists them, which this study might not write again."""
    try:
        earlier = Certificate.of(content_of(folder, CERTIFICATE, largest=LARGEST)).files
    except UsageError:
        earlier = ()
    (folder / CERTIFICATE).unlink(missing_ok=True)
    for file in earlier:
        with suppress(UsageError):
            if file.name not in (RESULT, REPORT, CARD, STUDY) and hashed(folder, file.name) == file:
                (folder / file.name).unlink(missing_ok=True)


def _usable(folder: Path, result: Result) -> tuple[list[str], dict[str, str]]:
    """Write calibrators and conformal predictors; return the names of their files, and why others are missing."""
    written: list[str] = []
    missing: dict[str, str] = {}
    for name, entry in result.results["tasks"].items():
        card = KINDS[entry["task"]]
        if card.artefact is None:
            continue
        file = card.file_of(name)
        try:
            artefact = card.artefact.load()(_alone(result, entry))
        except DataError as error:
            missing[file] = str(error)
            continue
        artefact.save(folder / file)
        written.append(file)
    return written, missing


def _alone(result: Result, entry: Mapping[str, Any]) -> Result:
    """Return a task's own result, with the columns that it was about."""
    columns = dict(result.parameters["columns"])
    if "class" in columns:
        columns.setdefault("label", columns["class"])
    client = (result.parameters.get("data") or {}).get("client")
    return Result(
        task=KINDS[entry["task"]].asked_as,
        parameters={**entry["parameters"], "client": client, **columns},
        results=entry["results"],
        privacy=result.privacy,
        cohort=result.cohort,
        runtime=result.runtime,
    )
