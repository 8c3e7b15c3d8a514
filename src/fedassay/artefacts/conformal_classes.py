"""What a predictor of classes knows about its classes: how many there are, and what logits of them look like."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fedassay.artefacts.reading import Read
from fedassay.data.logits import looks_like_probabilities, probabilities_warning
from fedassay.data.numbered import FEWEST_CLASSES
from fedassay.data.schema import LARGEST_CLASS
from fedassay.errors import DataError, UsageError
from fedassay.summaries.quantities import QUANTITIES


def checked_classes(classes: object, *, score: str, by: str, parts: int) -> int | None:
    """How many classes there are; None for scores without classes, or where nobody said.

    Thresholds of classes say it too, and for ``binary`` there are always two.

    Examples
    --------
    >>> checked_classes(None, score="lac", by="class", parts=3), checked_classes(5, score="aps", by="", parts=1)
    (3, 5)
    """
    known = QUANTITIES[score]
    if not known.gives_sets:
        if by == "class" or classes is not None:
            what = "by class" if by == "class" else "classes"
            raise UsageError(
                f"{what}: the score {score} has no classes, expected one of lac, aps, raps, binary."
            )
        return None
    if classes is None:
        classes = known.classes
    if classes is None:
        return parts if by == "class" else None
    if known.classes not in (None, classes):
        raise UsageError(f"classes: the score {score} has {known.classes} of them, expected that or nothing.")
    if type(classes) is not int or not FEWEST_CLASSES <= classes <= LARGEST_CLASS + 1:
        raise UsageError(f"classes: expected a whole number of at least {FEWEST_CLASSES}, or nothing.")
    if by == "class" and classes != parts:
        raise UsageError(f"thresholds: got {parts} for {classes} classes, expected one for each.")
    return classes


def check_width(rows: Read, classes: int | None) -> None:
    """Refuse logits of another number of classes than that of the calibration."""
    if classes is None or "logits" not in rows.chunk.columns:
        return
    width = rows.chunk.columns["logits"].shape[1]
    if width != classes:
        raise DataError(
            f"{rows.table.label}, logits: got {width} classes, expected the {classes} that it was calibrated on; "
            "export the logits of the same classes, in the same order."
        )


def warn_of_probabilities(rows: Sequence[Read]) -> None:
    """A `UserWarning` to the caller of who calls this, if all rows have probabilities in the place of logits."""
    if rows and all(looks_like_probabilities(one.chunk.columns["logits"]) for one in rows):
        name = rows[0].columns.names["logits"]
        warnings.warn(probabilities_warning(rows[0].table.label, name).sentence(), UserWarning, stacklevel=3)
