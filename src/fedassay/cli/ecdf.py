"""`fedassay ecdf` and `quantiles`: the distribution function of any scalar over many clients, and its quantiles."""

from __future__ import annotations

from typing import Annotated

from fedassay.cli import options
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.errors import ParameterError
from fedassay.protocol import Neighbours
from fedassay.tasks.distribution.parameters import EcdfParameters, SearchQuantilesParameters, check_range

Value = Annotated[str, Option(help="Column with the numbers.")]


@takes(options.run, OptionsOf("distribution", EcdfParameters, without=("labelled",)))
def ecdf(
    value: Value,
    label: Annotated[
        str | None,
        Option(help="Column with labels, 0 or 1: both distributions, ROC curve and AUC in one release."),
    ] = None,
    *,
    distribution: Given,
    run: options.Run,
) -> None:
    """Release the distribution function of a scalar: a curve with its band, and any quantile."""
    check_range(distribution)
    changes_nothing = label is not None and run.terms.protection.neighbours is Neighbours.ADD_REMOVE
    if "public_labels" in distribution and changes_nothing:
        raise ParameterError(
            "public_labels",
            "a row that is added or removed takes its label with it, so that this changes nothing; leave it out, or "
            'give `neighbours="replace-one"`.',
        )
    run.delivery.deliver(run.ask("ecdf", value=value, label=label, **distribution))


@takes(options.run, OptionsOf("search", SearchQuantilesParameters))
def quantiles(value: Value, *, search: Given, run: options.Run) -> None:
    """Search quantiles point by point, on servers that keep what clients sent: --privacy two-server."""
    run.delivery.deliver(run.ask("quantiles", value=value, **search))
