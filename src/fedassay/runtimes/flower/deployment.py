"""A study on a SuperLink: submitted, watched, and brought back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedassay.result import Result
from fedassay.runtimes.flower.events import Event
from fedassay.runtimes.flower.parameters import FlowerDeployment
from fedassay.runtimes.flower.study import Study
from fedassay.runtimes.flower.submission import Connection, submit
from fedassay.runtimes.progress import Progress
from fedassay.runtimes.study_run import StudyRun


def carry(parameters: FlowerDeployment, study: StudyRun) -> Result:
    """Submit the study and bring its result back; the same name goes on with what broke off."""
    asked = Study.under(
        study.name,
        study.agenda,
        study.setting(clients=0),
        timeout=parameters.timeout,
        wait=parameters.wait,
    )
    connection = Connection(
        address=parameters.address,
        root_certificates=parameters.root_certificates,
        insecure=parameters.insecure,
        name=parameters.connection,
    )
    with study.progress() as progress:
        return watched(parameters.app, asked, connection, progress=progress, warn=study.warn)


def watched(
    app: Path, study: Study, connection: Connection, *, progress: Progress, warn: Callable[[str], None]
) -> Result:
    """Submit a study, tell how it goes, and read the document that comes back."""

    def heard(event: Event) -> None:
        if event["event"] == "progress":
            progress(int(event["leg"]), int(event["done"]), int(event["total"]))
        elif event["event"] == "warning":
            warn(str(event.get("message")))

    return Result.from_json(submit(app, study, connection, heard=heard))
