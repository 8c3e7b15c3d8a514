"""Parameters of trust models. This module imports nothing else of ours: the command line reads it for its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedassay.parameters import Checked, Interval

Encoding = Literal["auto", "unary", "noise"]
"""``auto``: unary where clients have one row (``rows_per_client=1``) and the summary has partitions, else noise."""

Share = Annotated[float, Interval(ge=0, lt=1)]

SMALLEST_COHORT = 3
"""With two clients, each would read the other's vector off the total."""


SMALLEST_SHUFFLE = 2
"""One message cannot be hidden among none."""


@dataclass(frozen=True, kw_only=True)
class CohortParameters(Checked):
    """Parameters of trust models in which clients hide each other."""

    dropout: Share = 0.2
    """Share of the clients (of a secure sum: and of the members) that may fall silent."""
    collusion: Share = 0.1
    """Share of the sites that may work for the coordinator; a secure sum rounds up to whole sites."""
    minimum_cohort: Annotated[int, Interval(ge=SMALLEST_COHORT)] = SMALLEST_COHORT
    """Fewest clients over which there is a release."""


@dataclass(frozen=True, kw_only=True)
class OneShotParameters(CohortParameters):
    """Parameters of `SecureSum` and `DistributedDP`."""

    members: tuple[str, ...] = ()
    """Names of the sites that open totals. Default: all sites, up to 1,000."""
    same_set: bool = False
    """Open exact totals only over the same set of clients as all earlier ones; it waits for clients that are silent."""
    cohort_difference: Annotated[int, Interval(ge=0)] = 0
    """Open exact totals only over sets that equal each earlier one or differ by at least this many clients."""


@dataclass(frozen=True, kw_only=True)
class LocalParameters(Checked):
    """Parameters of `LocalDP`."""

    encoding: Encoding = "auto"
    """Encoding of messages: randomised bits (unary), noise on a vector, or what the number of rows allows."""


@dataclass(frozen=True, kw_only=True)
class ShuffleParameters(LocalParameters, CohortParameters):
    """Parameters of `Shuffle`."""

    dropout: Share = 0.1
    minimum_cohort: Annotated[int, Interval(ge=SMALLEST_SHUFFLE)] = SMALLEST_COHORT
