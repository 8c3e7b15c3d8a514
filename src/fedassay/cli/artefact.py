"""Deliver a result of any task, and write what it leaves behind for `fedassay apply`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedassay.cli import output
from fedassay.documents.kind import card_of
from fedassay.errors import FedassayError, UsageError
from fedassay.result import Result
from fedassay.tasks.card import KINDS


def deliver(
    result: Result, delivery: output.Delivery, *, out: Path | None, also: Sequence[Path] = ()
) -> None:
    """Deliver; write the calibrator or predictor if there should be one, or say why there is none."""
    if out is None:
        delivery.deliver(result, also=also)
        return
    artefact = card_of(result.to_dict()).artefact
    if artefact is None:
        known = ", ".join(dict.fromkeys(card.asked_as for card in KINDS.values() if card.artefact))
        raise UsageError(f"--out: {result.task} writes no artefact, only {known} do; leave it out.")
    try:
        artefact.load()(result).save(out)
    except FedassayError:
        delivery.deliver(result)  # it has been paid for
        raise  # says why there is none
    delivery.deliver(result, also=[*also, out])
