"""The calibrator in a file, of scores or of logits: whichever it is."""

from __future__ import annotations

import os

from fedassay.artefacts.calibrator import Calibrator
from fedassay.artefacts.class_calibrator import ClassCalibrator
from fedassay.artefacts.stored import load_artefact


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator | ClassCalibrator:
    """The calibrator in a file that `fedassay calibrate --out` or `save` has written.

    A `Calibrator` if it is one of scores, a `ClassCalibrator` if it is one of logits. Anything else is refused with
    one sentence (`UsageError`).
    """
    return load_artefact(path, calibrator_from_json)


def calibrator_from_json(content: object) -> Calibrator | ClassCalibrator:
    """What `to_json` was called on; anything else is refused."""
    if isinstance(content, dict) and content.get("artefact") == ClassCalibrator.artefact:
        return ClassCalibrator.from_json(content)
    return Calibrator.from_json(content)
