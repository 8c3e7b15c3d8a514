"""The vocabulary that every other part of fedassay speaks.

A *task* (server side, pure) yields *queries*; a query names a *summary* (what a client may measure); a
*trust model* turns the measurements of many clients into one *released* value; a *runtime* carries the
messages. None of the three axes knows the others: this module is what they share.

Reading order: `Protection` and `Budget` (what is promised), `Summary` (what is measured), `Query`
(what is asked), `Released` (what comes back), `Task`, `Setting`, `TrustModel` (who does what).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from numbers import Real
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedassay.errors import ParameterError, UnsupportedQuery, UsageError

Vector = NDArray[np.int64]
"""What clients measure and what is summed: whole numbers, so that sums and noise are exact."""

Total = NDArray[np.int64 | np.float64]
"""What is released: a sum as it is, or, where answers were randomised one by one, an estimate of it."""

Message = dict[str, Any]
"""What travels: a mapping of strings to None, bool, int, float, str, bytes, arrays, lists and mappings."""

Batch = Mapping[str, NDArray[Any]]
"""Some rows of one client, as columns of equal length."""

Memory = Mapping[str, Any]
"""What a client remembers between the rounds of one task. It never leaves the client."""

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

LARGEST_ROWS_PER_CLIENT = 2**32
"""No client may hold more rows: the bound from which "sums cannot wrap" is proven."""

TOTAL_BITS = 59
"""Resolutions are chosen so that totals stay below 2^59: secure sums hold totals below 2^60, the rest is for noise."""

LARGEST_EPSILON = 10_000.0
"""A larger epsilon promises nothing: it is a mistake in the number."""


# --- what is promised ---------------------------------------------------------------------------------


class Unit(StrEnum):
    """What privacy protects: one example (row), or everything one client holds."""

    EXAMPLE = "example"
    CLIENT = "client"


class Neighbours(StrEnum):
    """Which data sets must look alike: with and without one unit, or with one unit replaced."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Part(StrEnum):
    """The rows a query may see. Each site splits its rows once, by a keyed hash of the unit.

    Fit rows have two halves, for studies in which one task builds on what another has fitted: a threshold for
    calibrated scores comes from rows that the calibrator has not seen.
    """

    ALL = "all"
    FIT = "fit"
    FIRST_FIT = "first-fit"
    SECOND_FIT = "second-fit"
    HELD_OUT = "held-out"

    @property
    def atoms(self) -> tuple[Part, ...]:
        """The parts that have no parts, of which this one consists: every unit is in exactly one of all atoms.

        Examples
        --------
        >>> [str(atom) for atom in Part.FIT.atoms], [str(atom) for atom in Part.HELD_OUT.atoms]
        (['first-fit', 'second-fit'], ['held-out'])
        """
        if self is Part.ALL:
            return ATOMS
        return ATOMS[:2] if self is Part.FIT else (self,)


ATOMS = (Part.FIRST_FIT, Part.SECOND_FIT, Part.HELD_OUT)
"""What releases on different rows are counted by: those on one atom add up, those on different ones do not."""


@dataclass(frozen=True, kw_only=True)
class Protection:
    """The unit that is protected and the bound on it that `client.py` enforces.

    Sensitivities are derived from this object, and the same object tells the client how many rows it
    may use: there is no second parameter that could disagree.

    Examples
    --------
    >>> Protection(unit=Unit.CLIENT, rows_per_client=5).rows_per_unit
    5
    >>> Protection().rows_per_unit
    1
    """

    unit: Unit = Unit.EXAMPLE
    """What privacy protects: one example, or one client."""
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    """Which data sets must look alike: with and without one unit, or with one replaced."""
    rows_per_client: Annotated[int, Interval(ge=1, le=LARGEST_ROWS_PER_CLIENT)] | None = None
    """Bound on the rows of one client (required for unit client); excess rows are left out."""

    def __post_init__(self) -> None:
        for name, kind in (("unit", Unit), ("neighbours", Neighbours)):
            if getattr(self, name) not in list(kind):
                raise ParameterError(name, f"got {getattr(self, name)!r}, expected {' or '.join(kind)}.")
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.rows_per_client is not None and not 1 <= self.rows_per_client <= LARGEST_ROWS_PER_CLIENT:
            raise ParameterError(
                "rows_per_client", f"got {self.rows_per_client}, expected a whole number from 1."
            )
        if self.unit is Unit.CLIENT and self.rows_per_client is None:
            raise ParameterError(
                "unit",
                "got client, but the rows of one client are unbounded, so no finite noise hides them; give "
                "`rows_per_client` (excess rows are left out at random).",
            )

    @property
    def rows_per_unit(self) -> int:
        """The most rows that one protected unit can own."""
        if self.unit is Unit.EXAMPLE:
            return 1
        assert self.rows_per_client is not None
        return self.rows_per_client

    @property
    def moves_both_ways(self) -> bool:
        """Whether one unit's change can take some rows away and put others in their place.

        True for replace-one, and for the unit example with a bound on the rows of a client: in a client that
        has reached the bound, adding a row can push another one out.
        """
        bounded = self.unit is Unit.EXAMPLE and self.rows_per_client is not None
        return bounded or self.neighbours is Neighbours.REPLACE_ONE


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A privacy budget (epsilon, delta); delta = 0 is pure differential privacy."""

    epsilon: Annotated[float, Interval(gt=0, le=LARGEST_EPSILON)]
    """Privacy budget; required by trust models that add noise."""
    delta: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Failure probability of the privacy guarantee; 0 is pure."""

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ParameterError(name, f"got {value!r}, expected a number.")
            object.__setattr__(self, name, float(value))
        if not 0 < self.epsilon <= LARGEST_EPSILON:
            raise ParameterError(
                "epsilon",
                # All digits: with three, 10,001 would be 1e+04, which is allowed.
                f"got {self.epsilon:,.10g}, expected a number above 0, at most {LARGEST_EPSILON:,.0f} (a larger one "
                "promises nothing).",
            )
        if not 0 <= self.delta < 1:
            raise ParameterError("delta", f"got {self.delta:.3g}, expected a number in [0, 1).")


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How far one protected unit can move a measured total, in the L1 and L2 norms.

    Where noise is spread (`Summary.spread`), how far it moves the draws: the norms of whole numbers w with
    spread(w) equal to the move, both of the same w.
    """

    l1: float
    l2: float

    @classmethod
    def of_counts(cls, protection: Protection, *, multipliers: Sequence[int]) -> Sensitivity:
        """Rows that each add these numbers to as many cells (one cell per level of a tree, say).

        Guarantee: exact. Adding or removing a unit of r rows that all fall into the same cells moves the
        total by r·(m_1, .., m_c). Where rows can also be replaced by r rows in other cells
        (`Protection.moves_both_ways`), twice as many cells move by as much.

        Examples
        --------
        >>> Sensitivity.of_counts(Protection(), multipliers=(1, 1, 1, 1))
        Sensitivity(l1=4.0, l2=2.0)
        """
        rows = protection.rows_per_unit
        times = 2 if protection.moves_both_ways else 1
        squares = sum(m * m for m in multipliers)
        return cls(l1=float(rows * times * sum(multipliers)), l2=float(rows * np.sqrt(times * squares)))


UNBOUNDED = Sensitivity(l1=2.0**70, l2=2.0**70)
"""Of what one unit can move as far as numbers go: more than any noise covers, so that it is never asked under noise."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The law of the noise in each coordinate of a released vector (independent, mean zero).

    Where the summary spreads its noise (`Summary.spread`), the law of the draws before that.

    Parameters
    ----------
    law : one of ``none``, ``discrete-laplace`` (P(x) ∝ exp(-|x|/b)), ``discrete-gaussian``
        (P(x) ∝ exp(-x²/2σ²)), ``skellam`` (the difference of two Poisson draws of mean σ²/2), ``unary``
        (answers randomised bit by bit) and ``choice`` (a candidate with probability ∝ exp(-loss/b)).
    scale : b, σ, or for ``unary`` 1/ε. Law and scale are what the privacy guarantee rests on.
    variance : of a coordinate, exactly; for ``unary`` of one that no row falls into, if equally many clients
        report on every partition of the summary; for ``choice`` that of discrete Laplace noise of this scale.
    copies : how many such draws the noise of a coordinate amounts to. Not whole where clients add shares of
        a draw and more of them stayed than were needed.
    reporting : where each client reports on one partition of the summary only (`Summary.partitions`), the
        part of the clients that reported on each.
    """

    law: str
    scale: float
    variance: float
    copies: float = 1.0
    reporting: tuple[float, ...] = ()

    def to_message(self) -> Message:
        """As plain values, for journals and results."""
        return {**asdict(self), "reporting": list(self.reporting)}

    @classmethod
    def from_message(cls, message: Message) -> Noise:
        """What `to_message` was made from."""
        return cls(**{**message, "reporting": tuple(message["reporting"])})


NO_NOISE = Noise(law="none", scale=0.0, variance=0.0)


# --- what is measured ---------------------------------------------------------------------------------


class Rows(Protocol):
    """One client's validated, bounded rows, as a stream that can be read more than once."""

    def batches(self) -> Iterator[Batch]:
        """The rows in batches of columns."""
        ...


class Summary(ABC, Generic[S]):
    """A public recipe for what a client may measure.

    Subclasses are frozen dataclasses with a `name`: their fields travel and can be shown to anyone;
    private rows arrive only as an argument of `measure`. Fields may be of any type that `Message` allows
    (tuples become lists on the wire and are restored).
    """

    name: ClassVar[str]
    """The key in the catalogue of summaries. No code ever travels, only this name and the fields."""

    columns: ClassVar[tuple[str, ...]]
    """The roles of the columns that it reads, such as ``("score", "label")``."""

    additive: ClassVar[bool] = True
    """Whether measuring the union of two clients' rows equals the sum of their measurements."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The length of the measured vector."""

    @property
    def largest(self) -> int:
        """The largest absolute value of an entry that one client may send; enforced by `client.py`."""
        return LARGEST_ROWS_PER_CLIENT

    @property
    def partitions(self) -> tuple[NDArray[np.int64], ...]:
        """Sets of cells in each of which every row adds one to exactly one cell, such as a tree's levels.

        The finest first; the cells of each other one join equally many consecutive cells of it. Empty if the
        summary is not made of such counts. Local randomisers need it: a client with one row then says which
        cell of one partition it is in.
        """
        return ()

    @property
    def leaves(self) -> Summary[Any] | None:
        """The summary that only counts rows in the finest cells, each row in one of them; None if there is none.

        Its totals determine those of this one, see `from_leaves`. Trust models in which each row is encoded by
        itself need it: clients then measure the leaves, and the rest is computed from shares of them.
        """
        return None

    def from_leaves(self, counts: Vector) -> Vector:
        """The total that belongs to these totals of the `leaves`: linear, in whole numbers."""
        raise NotImplementedError(f"{self.name} has no leaves")

    @property
    def draws(self) -> int:
        """How many independent draws of noise a noisy total has: one for each entry, unless they are spread."""
        return self.length

    def spread(self, draws: Vector) -> Vector:
        """What these draws add to a total: linear, in whole numbers. The draws themselves, by default."""
        return draws

    cumulative: ClassVar[bool] = False
    """Whether entry i counts the rows in the leaves up to i, so that it can be computed alone (see `Points`)."""

    def draws_of(self, place: int) -> tuple[int, ...]:
        """The draws whose sum `spread` adds to the entry at this place; only where it is a sum of single draws."""
        return (place,)

    @property
    def overlap(self) -> int:
        """The most draws that one entry gets, counted with their factors in `spread`."""
        return 1

    @abstractmethod
    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Client side: bound every contribution, count, and return the vector and what to remember."""

    @abstractmethod
    def sensitivity(self, protection: Protection) -> Sensitivity:
        """How far one unit can move the total, from the bounds that `measure` and `client.py` enforce."""

    def loss_range(self, protection: Protection) -> float:
        """Of losses (see `Select`): the length of an interval in which all changes lie that one unit makes to them.

        What matters for a choice is how losses move relative to each other: a change of all by the same amount
        changes nothing. At most twice the largest change, and less where losses move together.
        """
        raise UnsupportedQuery(
            f"Select of {self.name}: it measures no losses, so that there is nothing to choose among."
        )

    @abstractmethod
    def read(self, total: Total) -> S:
        """Server side, after the release: give the vector its meaning."""


# --- what is asked ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class All:
    """Every client is asked."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Each client takes part with this probability, independently (Poisson sampling).

    Either the server asks only those whom it has drawn, and nothing is claimed for that, or everybody is asked and
    each client draws for itself (`TrustModel.clients_sample`).
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise UsageError(f"sampling rate: got {self.rate:.3g}, expected a number in (0, 1].")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """So many clients, drawn by the server without replacement, anew for every query.

    Who is asked is known to it, and nothing is claimed for it: only trust models without noise take it.
    """

    clients: int

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise UsageError(f"participation: got {self.clients} clients, expected at least 1.")


Cohort = All | Sample | Draw


@dataclass(frozen=True, kw_only=True)
class Query(Generic[S]):
    """What a task asks: `of` names the summary, `share` the part of the task's budget it may spend."""

    of: Summary[S]
    share: float = 1.0
    cohort: Cohort = All()
    part: Part = Part.ALL

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share of the budget: got {self.share:.3g}, expected a number in (0, 1].")


@dataclass(frozen=True, kw_only=True)
class Sum(Query[S]):
    """One total over all clients. `Released.value` is what the summary reads from it."""


@dataclass(frozen=True, kw_only=True)
class Collect(Query[S]):
    """One message per client. `Released.value` is a tuple with one reading per client."""


@dataclass(frozen=True, kw_only=True)
class Select(Query[S]):
    """Each client chooses one candidate: the summary measures a loss for each, the smallest is best.

    `Released.value` is a tuple with one reading per client, of a vector that is one at the choice.
    """


@dataclass(frozen=True, kw_only=True)
class Points(Query[S]):
    """Some entries of a total, of which more can be asked later, without the clients and for nothing.

    The first such query of a task is charged for the whole total. Those that follow, with other places but the
    same summary, share and part, are answered from what the servers have kept: the noise of an entry is drawn
    once, and an entry that is asked for again is the same again. Only a `cumulative` summary can be asked so.
    `Released.value` is an array of the entries at these places.
    """

    at: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "at", tuple(self.at))
        if not self.at or not all(type(place) is int and place >= 0 for place in self.at):
            raise UsageError("points: expected at least one place, whole numbers from 0.")


@dataclass(frozen=True, kw_only=True)
class Released(Generic[S]):
    """The only thing that ever comes back from rows: a value, its noise, and how many clients it covers."""

    value: S
    noise: Noise
    clients: int
    opening: Message | None = None
    """Who opened it and how many answers were spare, as plain values; None where nothing has to be opened."""

    def with_value(self, value: Any) -> Released[Any]:
        """The same release, read as something else."""
        return replace(self, value=value)


# --- who does what ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a task may know: everything public about the run.

    `noise(query)` predicts the noise that a query would get, so that a task can choose its own
    resolution by exact variance without knowing which trust model answers.

    Parameters
    ----------
    budget : that of all tasks of the run together.
    share : the part of it that this task may spend: a task speaks of shares of its own, which add up to 1.
    fits_on : what this task gets where it asks for `Part.FIT`.
    """

    trust: TrustModel
    protection: Protection
    budget: Budget | None
    clients: int
    share: float = 1.0
    fits_on: Part = Part.FIT

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share of the budget: got {self.share:.3g}, expected a number in (0, 1].")
        if self.fits_on not in (Part.FIT, *Part.FIT.atoms):
            raise UsageError(f"rows to fit on: got {self.fits_on}, expected the fit rows or a half of them.")

    @property
    def whole(self) -> Setting:
        """The setting of the whole run: what clients are told."""
        return replace(self, share=1.0, fits_on=Part.FIT)

    def asked(self, query: Query[Any]) -> Query[Any]:
        """What is asked when this task asks: for its share of the budget, about its rows."""
        part = self.fits_on if query.part is Part.FIT else query.part
        return replace(query, share=query.share * self.share, part=part)

    def plan(self, query: Query[Any]) -> Plan:
        """How this task's query would be answered, or `UnsupportedQuery`."""
        return self.trust.plan(self.asked(query), self.whole)

    def noise(self, query: Query[Any]) -> Noise:
        """The noise law of the answer to `query`."""
        return self.plan(query).noise


Step = Query[Any] | tuple[Query[Any], ...]
"""One step of a task: a query, or several to be answered in the same round trip."""


class Task(Protocol[R_co]):
    """A method, written once: a generator of queries that receives released values and returns a result.

    It does no I/O, holds no randomness and no clock: given the same released values it asks the same
    questions, which is what makes a crashed run replayable.
    """

    def steps(self, setting: Setting) -> Generator[Step, Any, R_co]:
        """Yield queries, receive `Released` (or a tuple of them), return the result."""
        ...


class Randomness(Protocol):
    """A source of random bits: a secure one for releases, a seeded one for simulations."""

    @property
    def simulated(self) -> bool:
        """Whether the bits could be known to somebody else. A release refuses such a source."""
        ...

    def bytes(self, count: int) -> bytes:
        """Uniform bytes."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one query will be answered, fixed before any row is read. A trust model may extend it."""

    query: Query[Any]
    setting: Setting
    sensitivity: Sensitivity
    noise: Noise = NO_NOISE
    sampled: float = 1.0
    """The probability that a client takes part, where that it does so in secret counts for the guarantee; else 1."""

    @property
    def measured(self) -> Summary[Any]:
        """What clients measure: the summary that is asked for, or what it can be computed from."""
        return self.setting.trust.measured(self.query.of)


COORDINATOR = "coordinator"
"""The name under which rosters list whoever asks. No client may have it."""

SECOND_SERVER = "helper"
"""The name under which rosters list the second server, of trust models that have two. No client may have it."""


class Party(StrEnum):
    """Whom a round of messages is for."""

    CLIENTS = "clients"
    HELPER = "helper"


@dataclass(frozen=True, kw_only=True)
class Round:
    """Messages that the server half wants carried: recipient to message. Missing replies are dropouts.

    `take` is called with each reply as it arrives and returns what is kept of it; None is a dropout. It keeps long
    replies from piling up.
    """

    to: Party = Party.CLIENTS
    requests: Mapping[str, Message]
    take: Callable[[str, Message], Message | None] = field(default=lambda name, message: message, repr=False)


Replies = Mapping[str, Message]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One batch of planned queries over one cohort, answered together.

    `id` is drawn once, from a secure source, and recorded before the first message: a resumed run
    repeats it, so that clients recognise a question they have answered. `tasks` names, for each plan, the
    task that asked: a client keeps one memory per task. `helpers` are the servers that a trust model may use
    besides the one that drives it; the first sits on the same machine. `first_leg` is above zero if the
    exchange goes on from an earlier answer (`Points`). `prekeys` are signed statements by member, for trust models that
    need them (`TrustModel.members`), and `deadline` is until when their members may be asked (seconds since 1970).
    `asker` is the public key of the coordinator as text, and `credentials` what it signs and checks with.
    """

    id: bytes
    plans: tuple[Plan, ...]
    cohort: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    first_leg: int = 0
    prekeys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    deadline: int = 0
    asker: str = ""
    credentials: PartyKeys | None = field(default=None, repr=False)


Measure = Callable[[], tuple[Vector, ...]]
"""Measures the rows when called: one vector per plan. The only way for a trust model to touch data."""


class PartyKeys(Protocol):
    """A party's signing key and the public keys that it believes (its roster)."""

    @property
    def sites(self) -> Mapping[str, bytes]:
        """The sites of the roster and their public keys: neither coordinator nor second server."""
        ...

    @property
    def pinned(self) -> int:
        """How many sites this party has pinned, those of other studies included."""
        ...

    def knows(self, name: str) -> bool:
        """Whether the party of this name is in the roster."""
        ...

    def sign(self, purpose: str, data: bytes) -> bytes:
        """Sign as oneself."""
        ...

    def verifies(self, name: str, purpose: str, data: bytes, signature: object) -> bool:
        """Whether the party of this name signed this; false for anyone who is not in the roster."""
        ...


class Membership(Protocol):
    """What a client brings as a member of the committee that opens sums: its prekeys and what it has answered."""

    def require_fresh(self, prekeys: Sequence[tuple[str, Any]], *, until: int) -> None:
        """Refuse other members' prekeys that are out of date; raise `ProtocolError`."""
        ...

    def answer(
        self,
        public: bytes,
        *,
        session: bytes,
        digest: bytes,
        opened: Opened,
        compute: Callable[[Any], bytes],
    ) -> bytes:
        """The one answer of a session, made from the private half of a prekey, or the one that was given already."""
        ...


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A total that a member helps to open: over which clients, whether it is exact, and what was agreed about others.

    `same_set` and `difference` are the terms of the exchange about exact totals over other sets of clients.
    """

    clients: frozenset[str]
    exact: bool
    same_set: bool
    difference: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """What reaches a client's (or helper's) half of a trust model.

    `cohort` is the number of clients that the server says it asks: a site's policy judges it, and the client
    half holds the server to it. `credentials` is None in a simulation; a site that has pinned the keys of the
    others puts its own here, and the client half then believes nothing that is not signed. `asker` is the public key
    whose signature the transport has checked, as text; empty if there is none.
    """

    exchange: bytes
    plans: tuple[Plan, ...]
    cohort: int
    leg: int
    recipient: str
    message: Message
    asker: str = ""
    credentials: PartyKeys | None = None
    membership: Membership | None = None


class TrustModel(ABC):
    """Decides how the answers of many clients become one released value.

    Subclasses are frozen dataclasses whose fields are public parameters. Client half (`respond`), server
    half (`exchange`) and helper half (`assist`) live in one file. All halves are transport-free: state
    that must survive between messages is a `Message`, kept by whoever drives the half.
    """

    name: ClassVar[str]
    private: ClassVar[bool]
    """Whether what it releases is differentially private, that is, whether it needs a budget."""

    helpers_needed: ClassVar[int] = 0
    """How many servers besides the one that drives it must take part."""

    first_client_leg: ClassVar[int] = 0
    """The leg at which rows are measured, and charged for; later ones of an exchange that is not known are refused."""

    member_leg: ClassVar[int | None] = None
    """The leg at which members answer, whether or not they know the exchange; it touches no rows."""

    shows_measurements: ClassVar[bool] = True
    """Whether the server sees each client's measurement: it does, unless that is masked, shared or noisy on leaving."""

    clients_add_noise: ClassVar[bool] = False
    """Whether the noise of a release is made of shares that clients add."""

    clients_sample: ClassVar[bool] = False
    """Whether of a sampled cohort everybody is asked: each client decides by a secret coin whether it takes part, and
    otherwise answers as a client without rows does."""

    def with_one_row_each(self, protection: Protection) -> Protection:
        """What to protect where each client holds one row: more than was asked, if that costs nothing."""
        return protection

    def measured(self, summary: Summary[Any]) -> Summary[Any]:
        """What clients measure when this summary is asked for."""
        return summary

    @abstractmethod
    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Fix how the query will be answered, or raise `UnsupportedQuery` with the reason.

        Deterministic: the server plans before it charges anything, and each client plans again for
        itself instead of believing the server's plan.
        """

    @abstractmethod
    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Server half: yield rounds, receive replies, return one release of vectors per plan.

        `Released.value` is a `Total` for a `Sum` and a tuple of totals for `Collect` and `Select`.
        Replies come from strangers: a malformed one is a dropout, never a crash.
        """

    @abstractmethod
    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Client half: the reply, and the state for this exchange's next leg."""

    def committee(self, cohort: Sequence[str]) -> tuple[str, ...]:
        """The clients whose prekeys an exchange over this cohort needs, in an order that all parties arrive at."""
        return ()

    def with_members(self, names: Sequence[str]) -> TrustModel:
        """The same for a simulation of so many clients that only some of these open totals; else itself."""
        return self

    def attendance(self, clients: int) -> str:
        """How many of so many clients may miss a pass, and how probable it is that enough do not; empty if any may."""
        return ""

    def require_cohort(self, clients: int, *, roster: int, members: int) -> None:  # noqa: B027
        """Refuse, before anything is recorded, a cohort that is too small: `clients` of `roster`, so many members."""

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        """Helper half, for trust models with a second server: the reply and the next state."""
        raise NotImplementedError(f"{self.name} has no helper role")

    def largest_reply(self, exchange: Exchange) -> int:
        """More bytes than any honest reply has: its numbers, and something for each client it may speak of."""
        numbers = sum(plan.measured.length for plan in exchange.plans)
        return (1 << 16) + 16 * numbers + 1024 * len(exchange.cohort)

    @abstractmethod
    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Simulation only: draw the releases from the law of the protocol, given the exact totals."""

    @abstractmethod
    def statement(self, setting: Setting) -> str:
        """What is guaranteed, against whom, and under which assumptions, in plain English."""
