"""`fedassay calibrate`: a calibrator for a classifier's scores or logits, judged on held-out rows."""

from __future__ import annotations

from fedassay.cli import options, output
from fedassay.cli.columns import ArtefactFile, ClassifierLabel, Logits, Score
from fedassay.cli.command import Given, OptionsOf, takes
from fedassay.tasks.calibration.parameters import CalibrateMulticlassParameters, CalibrateParameters

calibration = OptionsOf(
    "calibration",
    {"scores": CalibrateParameters, "logits": CalibrateMulticlassParameters},
    panels={"logits": "Calibration of logits"},
    without=("classes",),
)


@takes(options.run, calibration)
def calibrate(
    label: ClassifierLabel,
    score: Score = None,
    logits: Logits = None,
    out: ArtefactFile = None,
    *,
    calibration: Given,
    run: options.Run,
) -> None:
    """Fit a calibrator to a part of the rows and judge it on the others, with intervals."""
    from fedassay.cli.artefact import deliver

    output.check_writable(out)
    result = run.ask("calibrate", label=label, score=score, logits=logits, **calibration)
    deliver(result, run.delivery, out=out)
