"""Run a whole study from its file: look up what a simulation may, share the budget, query, and report."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedassay.api.classifier import look_up
from fedassay.api.terms import EntryTerms, Roles
from fedassay.artefacts.verified import ANY_KEY, Verified, check
from fedassay.crypto.identity import Identity, key_from_text
from fedassay.data.inventory import feature_names
from fedassay.data.partition import Partition
from fedassay.data.sources import files_with_rows
from fedassay.data.sql import Database
from fedassay.errors import FedassayError, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.journal import FileJournal, Journal, MemoryJournal
from fedassay.planning import recommended_shares
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Setting
from fedassay.runtimes.card import SimulationParameters
from fedassay.runtimes.simulated import Progress
from fedassay.study.file import StudyFile
from fedassay.study.folder import JOURNAL, folder_of, prepare, write_folder
from fedassay.study.pre_flight import opened_books, require_affordable, require_writable
from fedassay.study.simulation import Simulation
from fedassay.tasks.card import KINDS

FINISHED = "finished"
"""Kind of the last entry of a study's journal."""

_OF_THE_RUN = ("cohort", "runtime")


def run_study(
    study: StudyFile | str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a simulated study: all its tasks over one federation, under one budget.

    Parameters
    ----------
    study : the file, or its content as a `StudyFile`.
    folder : where its journal and, at the end, all its artefacts are written, as by `fedassay run`. A run that broke
        off goes on from there when it is called again: nothing is asked, or charged, twice. Without one, everything is
        in memory.
    key : the file of a private key that signs the certificate; by default a key is made for this study.
    progress : called with the leg, the clients done and the clients in all.

    Returns
    -------
    A `Result` of the task ``study``: ``result["tasks"]`` has the results of each task under its name,
    ``result["verdict"]`` and ``result["budget"]`` their verdict and their cost together.

    Raises
    ------
    UsageError
        If the study runs between real sites, which `fedassay run` does.
    Refused
        Before the first message, if the ledger of the study would refuse its cost.
    """
    file = study if isinstance(study, StudyFile) else StudyFile.read(Path(study))
    if file.data is None:
        raise UsageError(
            f"{file.path}: it runs on {file.runtime.name}, between sites; use the command fedassay run."
        )
    if folder is None:
        return _conduct(file, MemoryJournal(), progress, None)
    identity = None if key is None else Identity.load(Path(key))
    out = folder_of(file, Path(folder))
    prepare(out)
    result = conduct(file, out, progress=progress)
    write_folder(out, result, file, identity=identity, ledger_head=opened_books(file).head)
    return result


def verify(folder: str | os.PathLike[str], *, key: str | None = None, any_key: bool = False) -> Verified:
    """Check the certificate of a study's folder: signature, files, and whether what was spent adds up.

    Parameters
    ----------
    key : the public key that must have signed, as `fedassay keys` prints it. Without one the signer is unchecked, and
        the folder does not hold.
    any_key : accept any signer, a stranger included: that files belong together and are unchanged is enough.

    Returns
    -------
    A `Verified`: ``holds``; ``wrong`` with the failed checks; ``unchecked``, True if the signer was not checked.
    """
    if any_key and key is not None:
        raise UsageError("any_key: got it together with key, expected one of them; leave one out.")
    signer = None if key is None else key_from_text(key, whose="key")
    return check(Path(folder), key=ANY_KEY if any_key else signer)


def conduct(file: StudyFile, folder: Path, *, progress: Progress | None = None) -> Result:
    """Run a simulated study with its journal in this folder, or go on with it; nothing else is written."""
    with closing(FileJournal(folder / JOURNAL)) as journal:
        result = _conduct(file, journal, progress, folder)
        noted = journal.find(FINISHED)
        if noted is None:
            journal.append(
                {
                    "kind": FINISHED,
                    "time": datetime.now(UTC).isoformat(timespec="seconds"),
                    **{name: dict(getattr(result, name)) for name in _OF_THE_RUN},
                    "warnings": list(result.warnings),
                }
            )
            return result
        # Facts that are known only during the queries are kept from then.
        kept = {name: noted[name] for name in _OF_THE_RUN}
        return replace(result, **kept, warnings=tuple(noted["warnings"]))


def finished_on(folder: Path) -> str | None:
    """Return the time in UTC at which the study in this folder was finished; None if it was not."""
    if not (folder / JOURNAL).exists():
        return None
    with closing(FileJournal(folder / JOURNAL)) as journal:
        noted = journal.find(FINISHED)
        return None if noted is None else str(noted["time"])


def _conduct(file: StudyFile, journal: Journal, progress: Progress | None, folder: Path | None) -> Result:
    assert file.data is not None
    key = _settled(file, journal)
    assert isinstance(file.runtime, SimulationParameters)
    simulation = Simulation(
        runtime=file.runtime,
        holdout=file.holdout,
        split_key=key,
        progress=progress,
        missing=file.data.missing,
    )
    terms = EntryTerms.of(file.trust, file.budget, file.protection, simulation)
    columns = terms.roles(_dealt(file.data.owner, simulation, key), **file.data.columns)
    agenda = file.agenda(shares=shares_of(file))
    books = opened_books(file)
    if any(task.looked_up for task in file.tasks):
        # Refusals that need no rows come before the rows are opened.
        file.agenda(known=file.expected_parameters(classes=2)).rehearse(terms.setting)
    data, known, warnings = _looked_up(file, terms, columns)
    agenda = file.agenda(shares={item.name: item.share for item in agenda.items}, known=known)

    def before(setting: Setting) -> None:
        require_affordable(file, agenda, books, setting, own=_begun(journal))
        if folder is not None and not journal.exchanged():
            require_writable(file, agenda, folder)

    result = terms.simulated(
        agenda,
        data,
        columns,
        file.described,
        journal=journal,
        ledger=books.ledger,
        dataset=books.dataset,
        name=file.name,
        before=before,
    )
    return finished(result, agenda, more=warnings)


def _dealt(owner: str | Partition | None, simulation: Simulation, key: bytes) -> str | Partition | None:
    """Return the rule that assigns rows to clients; without a seed it uses the split key, so that runs can resume."""
    if not isinstance(owner, Partition) or simulation.seed is not None:
        return owner
    return owner.seeded(int.from_bytes(hashlib.sha256(b"partition" + key).digest()[:8]))


def _begun(journal: Journal) -> frozenset[str]:
    """Return the exchanges of this study that the ledger may have charged already, as charges name them."""
    return frozenset(entry["exchange"].hex() for entry in journal.exchanged() if entry["kind"] == "begun")


def _settled(file: StudyFile, journal: Journal) -> bytes:
    """Return the key that splits rows, the same when a run goes on; refuse a journal of another study.

    A study whose file has changed before the first query, after a refusal say, begins anew.
    """
    data = _fingerprint(file.source)
    settled = [entry for entry in journal.entries() if entry["kind"] == "study"]
    begun = settled[-1] if settled else None
    asked = bool(journal.exchanged())
    if begun is None and asked:
        raise UsageError("journal: it does not belong to a study; give another folder.")
    if begun is None or (begun["digest"] != file.digest and not asked):
        assert isinstance(file.runtime, SimulationParameters)
        seed = file.runtime.seed
        key = SecureRandomness().bytes(32) if seed is None else Simulation(seed=seed).key_of_split()
        begun = {"kind": "study", "digest": file.digest, "split": key, "data": data}
        journal.append(begun)
    if begun["digest"] != file.digest:
        raise UsageError(
            f"{file.path}: the folder holds a run of this study as it was before the file changed; give another "
            "folder, or begin anew with `fedassay run --fresh` (which asks, and spends, again)."
        )
    if begun["data"] != data:
        raise UsageError(
            f"{file.path}: the data have changed since this study was run; bring the old ones back, give another "
            "folder, or begin anew with `fedassay run --fresh` (which asks, and spends, again)."
        )
    split: bytes = begun["split"]
    return split


def _fingerprint(source: Path | Database | None) -> bytes | None:
    """Return the hash of the files of a simulation; None for a database, whose rows are not read for this."""
    if not isinstance(source, Path):
        return None
    found = hashlib.sha256()
    for path in files_with_rows(source):
        if path.is_file():
            found.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.digest()


def shares_of(file: StudyFile) -> dict[str, float] | None:
    """Return the shares that the planner recommends for a file without shares; None if nothing depends on them.

    Also None if the file does not state the expected data; shares are then equal. Raise if it states too little.
    """
    if file.gives_shares or file.expected is None or not file.trust.private:
        return None
    try:
        study = file.planned()
        return recommended_shares(
            file.agenda(known=file.expected_parameters(study.expectation.classes)), study
        )
    except FedassayError as error:
        raise file.problem(("expected",), f"no shares follow from it: {error}") from error


def _looked_up(
    file: StudyFile, terms: EntryTerms, columns: Roles
) -> tuple[Any, dict[str, dict[str, Any]], tuple[str, ...]]:
    """Return the data, loaded if needed; public values that were not stated, by task; and warnings about them."""
    wanted = {name for task in file.tasks for name in task.looked_up}
    found: dict[str, Any] = {}
    source = data = terms.rows(file.source, columns)
    warnings: tuple[str, ...] = ()
    if "classes" in wanted:
        classes = look_up(source, columns)
        data, found["classes"], warnings = classes.federation, classes.classes, classes.warnings(terms.trust)
    if "features" in wanted:
        found["features"] = list(feature_names(columns.names["features"], source))
    known = {task.name: {name: found[name] for name in task.looked_up} for task in file.tasks}
    return data, known, warnings


def finished(result: Result, agenda: Agenda, *, more: tuple[str, ...] = ()) -> Result:
    """Add the notes and warnings of its tasks to the result."""
    found: dict[str, None] = dict.fromkeys((*result.warnings, *more))
    for item in agenda.items:
        results = _results(result, agenda, item.name)
        found |= dict.fromkeys(str(note) for note in results.get("notes", ()))
        warnings = KINDS[item.task].study_rules.warnings(item.made, results)
        found |= dict.fromkeys(f"{item.name}: {text}" for text in warnings)
    return replace(result, warnings=tuple(found))


def _results(result: Result, agenda: Agenda, name: str) -> Mapping[str, Any]:
    if result.task == agenda.items[0].task:
        return result.results
    results: Mapping[str, Any] = result.results["tasks"][name]["results"]
    return results
