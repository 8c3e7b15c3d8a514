"""Deliver a result of any task, and write what it leaves behind for `fedassay apply`."""

from __future__ import annotations

from pathlib import Path

from fedassay.artefacts.calibrators import calibrator_of
from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.cli import output
from fedassay.errors import FedassayError, UsageError
from fedassay.result import Result


def deliver(result: Result, delivery: output.Delivery, *, out: Path | None) -> None:
    """Deliver; write the calibrator or predictor if there should be one, or say why there is none."""
    if out is None:
        delivery.deliver(result)
        return
    if result.task not in ("calibrate", "calibrate-classes", "conformal"):
        raise UsageError(
            f"--out: only calibrate and conformal write an artefact, not {result.task}; leave it out."
        )
    try:
        artefact = ConformalPredictor.of(result) if result.task == "conformal" else calibrator_of(result)
        artefact.save(out)
    except FedassayError:
        delivery.deliver(result)  # it has been paid for
        raise  # says why there is none
    delivery.deliver(result, also=[out])
