"""Options that name columns, where several commands read the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedassay.cli.command import Option

ClassifierLabel = Annotated[
    str, Option(help="Column with the true labels: 0 or 1, or with --logits 0, 1, 2, ..")
]
Score = Annotated[str | None, Option(help="Column with a binary model's probabilities, in [0, 1].")]
Logits = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="In the place of --score, for several classes: a column of lists, or how numbered columns begin.",
    ),
]
ArtefactFile = Annotated[
    Path | None, Option("--out", metavar="FILE.json", help="Write the artefact, for `fedassay apply`.")
]
