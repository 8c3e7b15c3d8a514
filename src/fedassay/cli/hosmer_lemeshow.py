"""`fedassay hosmer-lemeshow`: are a model's probabilities right?"""

from __future__ import annotations

from typing import Annotated

from fedassay.cli import options
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.tasks.distribution.parameters import HosmerLemeshowParameters


@takes(options.run, OptionsOf("goodness", HosmerLemeshowParameters))
def hosmer_lemeshow(
    score: Annotated[str, Option(help="Column with the model's probabilities, in [0, 1].")],
    label: Annotated[str, Option(help="Column with the true labels, 0 or 1.")],
    *,
    goodness: Given,
    run: options.Run,
) -> None:
    """Test whether a model's probabilities are right: Hosmer-Lemeshow, with the noise in the p-value."""
    run.delivery.deliver(run.ask("hosmer_lemeshow", score=score, label=label, **goodness))
