"""What a study leaves behind: one folder with the result, what can be used, what can be read, and a certificate.

Written in an order in which nothing is ever wrong: the certificate goes first if there is an old one, and comes last.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.artefacts.calibrators import calibrator_of
from fedassay.artefacts.certificate import CERTIFICATE, RESULT, certify
from fedassay.artefacts.certificate_reading import Certificate
from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.artefacts.hashed import content_of, hashed
from fedassay.artefacts.stored import LARGEST
from fedassay.crypto.identity import Identity
from fedassay.errors import DataError, UsageError
from fedassay.files import Lock, write_atomically
from fedassay.journal import lock_of
from fedassay.protocol import Budget
from fedassay.reports.model_card import model_card
from fedassay.reports.next_steps import artefact_name
from fedassay.reports.page import page
from fedassay.result import Result

REPORT, CARD, STUDY = "report.html", "model_card.md", "study.toml"
JOURNAL = "journal"
"""Private: what has been asked and answered, and the key of the split. No artefact."""


@dataclass(frozen=True, kw_only=True)
class Signed:
    """What a certificate says besides the result: who signs, the head of the ledger, the cost of training."""

    identity: Identity | None = None
    ledger_head: str | None = None
    training: Budget | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a study, and why an artefact is missing that one might look for."""

    folder: Path
    files: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.folder / REPORT


def prepare(folder: Path, *, fresh: bool = False) -> None:
    """Make the folder of a study; `fresh` forgets an earlier run in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be created ({error.strerror}); give another with --out."
        ) from error
    if fresh:
        lock = Lock(lock_of(folder / JOURNAL))  # not while somebody goes on with it
        (folder / JOURNAL).unlink(missing_ok=True)
        lock.close()


def write_folder(folder: Path, result: Result, *, study_text: str, signed: Signed) -> Written:
    """Write all artefacts of a study.

    Guarantee: a certificate in the folder is always that of the files beside it: an old one is removed before the
    first of them changes, and so is what it covered, as an old calibrator could be taken for one of this study.
    """
    _forget(folder)
    result.save(folder / RESULT)
    document = result.to_dict()
    write_atomically(folder / STUDY, study_text)
    write_atomically(folder / REPORT, page(document))
    write_atomically(folder / CARD, model_card(document))
    usable, missing = _usable(folder, result)
    files = (RESULT, REPORT, CARD, STUDY, *usable)
    certify(
        folder,
        result,
        files=files,
        identity=signed.identity,
        ledger_head=signed.ledger_head,
        training=signed.training,
    )
    return Written(folder=folder, files=(*files, CERTIFICATE), missing=tuple(missing))


def _forget(folder: Path) -> None:
    """Remove an earlier certificate, and the files still as it says that this study might not write again."""
    try:
        earlier = Certificate.of(content_of(folder, CERTIFICATE, largest=LARGEST)).files
    except UsageError:
        earlier = ()
    (folder / CERTIFICATE).unlink(missing_ok=True)
    for file in earlier:
        with suppress(UsageError):
            if file.name not in (RESULT, REPORT, CARD, STUDY) and hashed(folder, file.name) == file:
                (folder / file.name).unlink(missing_ok=True)


def _usable(folder: Path, result: Result) -> tuple[list[str], list[str]]:
    """Write calibrators and conformal predictors; the names of their files, and why others are not there."""
    written, missing = [], []
    for name, entry in result.results["tasks"].items():
        if entry["task"] not in ("calibrate", "calibrate-classes", "conformal"):
            continue
        file = artefact_name(name, entry["task"])
        (folder / file).unlink(missing_ok=True)
        try:
            alone = _alone(result, entry)
            artefact = ConformalPredictor.of(alone) if entry["task"] == "conformal" else calibrator_of(alone)
        except DataError as error:
            missing.append(f"{file}: {error}")
            continue
        artefact.save(folder / file)
        written.append(file)
    return written, missing


def _alone(result: Result, entry: Mapping[str, Any]) -> Result:
    """A task's own result, with the columns that it was about."""
    columns = dict(result.parameters["columns"])
    if "class" in columns:
        columns.setdefault("label", columns["class"])
    client = (result.parameters.get("data") or {}).get("client")
    return Result(
        task=entry["task"].removesuffix("-classes"),
        parameters={**entry["parameters"], "client": client, **columns},
        results=entry["results"],
        privacy=result.privacy,
        cohort=result.cohort,
        runtime=result.runtime,
    )
