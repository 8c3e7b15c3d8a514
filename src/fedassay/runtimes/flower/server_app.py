"""The ServerApp of a deployment: runs one study next to the SuperLink and tells the submitter how it goes."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedassay.errors import FedassayError
from fedassay.runtimes.flower import submission
from fedassay.runtimes.flower.coordinator import Coordinator
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.runtimes.flower.study import FlowerStudy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study of the run configuration; its result goes to a file and, in parts, to the log."""
    try:
        study = FlowerStudy.from_config(context.run_config)
        _say(submission.line("started", study=study.name))
        coordinator = Coordinator(file=CoordinatorFile.of_this_machine())
        document, written = coordinator.release(study, grid, progress=_progress, warn=_warn)
    except FedassayError as error:
        _say(submission.line("failed", code=error.exit_code, message=str(error)))
        raise
    except Exception:
        _say(
            submission.line("failed", code=1, message="internal error; the SuperLink's log has the details.")
        )
        raise
    for text in submission.result_lines(document, path=str(written)):
        _say(text)


def _progress(leg: int, done: int, total: int) -> None:
    _say(submission.line("progress", leg=leg, done=done, total=total))


def _warn(message: str) -> None:
    _say(submission.line("warning", message=message))


def _say(text: str) -> None:
    print(text, flush=True)
