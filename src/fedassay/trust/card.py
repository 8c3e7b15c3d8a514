"""Card of a trust model: who learns what, and the assumptions behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol.cards import Catalogue, Named
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    Budget,
    Neighbours,
    Points,
    Protection,
    Query,
    Setting,
    Sum,
    TrustModel,
    Unit,
)

DEFAULT_TRUST = "secure-sum"
"""Trust model where none is named."""

# --- parameters of trust models -----------------------------------------------------------------------------

Encoding = Literal["auto", "unary", "noise"]
"""``auto``: unary where clients have one row (``rows_per_client=1``) and the summary has partitions, else noise."""

_Share = Annotated[float, Interval(ge=0, lt=1)]

SMALLEST_COHORT = 3
"""Smallest number of clients in a sum: of two, each would read the other's vector off the total."""


SMALLEST_SHUFFLE = 2
"""Smallest number of messages to shuffle: a single message cannot be hidden."""


@dataclass(frozen=True, kw_only=True)
class CohortParameters(Checked):
    """Parameters of trust models in which clients hide each other."""

    dropout: _Share = 0.2
    """Share of the clients (of a secure sum: and of the members) that may fall silent."""
    collusion: _Share = 0.1
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

    dropout: _Share = 0.1
    minimum_cohort: Annotated[int, Interval(ge=SMALLEST_SHUFFLE)] = SMALLEST_COHORT


# --- words that the statements of several trust models share ------------------------------------------------


def refuse_points(query: Query[Any]) -> None:
    """Refuse to go on with points later: the messages of clients are not kept."""
    if isinstance(query, Points):
        raise UnsupportedQuery(
            f"Points of {query.of.name}: only two servers keep what clients have sent, so that points can be asked for "
            "later; use two-server, or ask for the whole curve at once (ecdf)."
        )


def budget_of(setting: Setting, trust: str) -> Budget:
    """Return the budget, which a trust model with noise requires."""
    if setting.budget is None:
        raise UsageError(f"{trust}: got no privacy budget, expected one; give `epsilon` (and `delta`).")
    return setting.budget


def require_sum(query: Query[Any]) -> None:
    """Refuse to draw single messages from the totals of a simulation."""
    if not isinstance(query, Sum):
        raise UnsupportedQuery(
            f"{type(query).__name__}: totals do not show single clients; use the faithful mode."
        )


def protected(protection: Protection) -> str:
    """Describe who is protected, and which data sets look alike.

    Examples
    --------
    >>> protected(Protection())
    'one example (row): it is nearly as likely with and without it (add-remove)'
    """
    whom = {
        Unit.EXAMPLE: "one example (row)",
        Unit.CLIENT: f"everything that one client contributes (at most {protection.rows_per_unit} rows)",
    }[protection.unit]
    neighbours = {
        Neighbours.ADD_REMOVE: "with and without it",
        Neighbours.REPLACE_ONE: "with it and with another in its place",
    }[protection.neighbours]
    return f"{whom}: it is nearly as likely {neighbours} ({protection.neighbours})"


def exactly(number: float) -> str:
    """Write a number as it is: rounding an epsilon down would promise more than holds.

    Examples
    --------
    >>> exactly(1.0), exactly(1e-6)
    ('1', '1e-06')
    """
    return str(number).removesuffix(".0")


# --- the card of a trust model ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrustCard:
    """Description of a trust model for the faces.

    Parameters
    ----------
    name : in options, study files, requests and results.
    order : place in tables and help.
    model : the trust model itself.
    parameters : the frozen dataclass that it inherits its parameters from, in a module that imports little; None where
        it has none.
    server_learns, readers_learn, rests_on : knowledge of each party and its reasons, as in the planner's table.
    rounds : number of times that a client has to answer for one release.
    learnt : the knowledge gained, in one clause, for a comparison of runs.
    trusted : the parties that are trusted, and with what, for the certificate.
    overheard : reads the messages of single clients, which the attacker of an audit then sees (`audit.world`); None
        where the attacker sees what is released.
    """

    name: str
    order: int
    model: Named[type[TrustModel]]
    parameters: Named[type[Any]] | None = None
    server_learns: str
    readers_learn: str
    rests_on: str
    rounds: int
    learnt: str
    trusted: str
    overheard: Named[Callable[..., Any]] | None = None


TRUST_CARDS: Catalogue[TrustCard] = Catalogue(
    "fedassay.trust_models",
    ("fedassay.trust.*_card", "fedassay.trust.*.card"),
    what="trust model",
)
"""Trust models that are installed."""
