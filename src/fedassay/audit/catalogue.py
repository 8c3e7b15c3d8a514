"""Every attack that is shipped: all private trust models, all noise laws, all summaries that can be asked under noise.

A test compares it with the catalogues of trust models and summaries: a new one fails it until it is attacked. Rows are
chosen as an attacker would: in a leaf that all levels count, with labels, groups or whole clients that change, at the
bounds to which contributions are cut. Budgets are larger than most would grant (epsilon 1 to 3, delta 0 or 0.05): what
some thousand runs can show of a smaller one is next to nothing.

Here are the attacks on trust models and noise laws, by the same histogram, and on the continual count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType

from fedassay.audit.cases import (
    MIXED,
    PURE,
    REPLACED,
    Case,
    StreamCase,
    attack,
    repeated,
    scored,
    twice,
    valued,
    without,
)
from fedassay.audit.catalogue_summaries import SHARED, summary_cases
from fedassay.privacy.continual_noise import ContinualMechanism, Factorised, PathMechanism, TreeMechanism
from fedassay.protocol.vocabulary import Budget, Neighbours, Points, Protection, Select, Unit
from fedassay.summaries.distribution.path import LARGEST_MULTIPLIER, ValuePath
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import TRUST_MODELS, DistributedDP, LocalDP, Shuffle, TwoServer

TREE = ScoreHistogram(transform="uniform", height=2, widths=(1, 2))
FLAT = ScoreHistogram(transform="uniform", height=2)
TALL = ScoreHistogram(transform="uniform", height=5, widths=(1, 2, 4, 8, 16))

LOW, HIGH = scored((0.1, 0)), scored((0.9, 1))
ADDED = LOW, without(LOW)
CHANGED = LOW, HIGH

ONE_EACH = Protection(unit=Unit.CLIENT, rows_per_client=1)

TINY = Budget(epsilon=2.0**-51.9)
"""Budget for noise of a scale near 2^52, the largest there is: a tenth of the draws are beyond 2^53, where floats have
no odd numbers."""

PAIRED = DistributedDP(dropout=0.0, collusion=0.33)
"""Trust model in which one of three clients may collude: the noise is that of two, and each share matters."""

_FLAT, _LEVELS = "score histogram, flat", "score histogram, two levels"

_added = partial(attack, pair=ADDED, neighbours="one row, or none")


@lru_cache(maxsize=1)
def cases() -> Mapping[str, Case]:
    """Map names to cases."""
    own = (*_server(), *_shared(), *_local(), *_shuffled(), *_two_servers(), *_streams(), *summary_cases())
    return MappingProxyType({case.name: case for case in (*own, *_of_other_packages(own))})


def _of_other_packages(own: Sequence[Case]) -> list[Case]:
    """Return cases of private trust models that have no attack of their own: one row among three clients."""
    attacked = {case.trust_model for case in own}
    return [
        _added(
            f"{name}/row", f"{_LEVELS}, one of three clients", TREE, trust=model(), budget=MIXED, clients=3
        )
        for name, model in TRUST_MODELS.items()
        if model.private and name not in attacked
    ]


def matches(case: str, name: str) -> bool:
    """Return whether a case is meant by this name: its own, or the first part of it.

    Examples
    --------
    >>> [matches("local-dp/unary", name) for name in ("local-dp/unary", "local-dp", "local")]
    [True, True, False]
    """
    return case == name or case.startswith(f"{name}/")


def _server() -> list[Case]:
    full = [(0.1, 0)] * 20
    return [
        _added("server-dp/laplace", _LEVELS, TREE),
        attack(
            "server-dp/gaussian",
            f"{_LEVELS}, asked twice",
            twice(TREE),
            CHANGED,
            neighbours="another score and label",
            protection=REPLACED,
        ),
        _added("server-dp/laplace-shares", f"{_LEVELS}, asked twice", twice(TREE), budget=PURE),
        attack(
            "server-dp/client",
            _LEVELS,
            TREE,
            (repeated(LOW, 5), without(LOW)),
            neighbours="all five rows of one of three clients, or none",
            protection=Protection(unit=Unit.CLIENT, rows_per_client=5),
            clients=3,
        ),
        attack(
            "server-dp/full-client",
            f"{_FLAT}, 20 rows per client",
            FLAT,
            (scored(*full), scored(*full, (0.9, 1))),
            neighbours="one row more, which pushes another out",
            protection=Protection(rows_per_client=20),
        ),
        _added("server-dp/low-bits", f"{_FLAT}, noise of scale 2^51.9", FLAT, budget=TINY),
    ]


def _shared() -> list[Case]:
    return [
        _added(
            "distributed-dp/polya",
            _FLAT,
            FLAT,
            neighbours="one row, or none; one of three clients colluding",
            trust=PAIRED,
            budget=Budget(epsilon=1.0),
            clients=3,
            silent=1,
        ),
        _added(
            "distributed-dp/skellam",
            "score histogram, five levels, asked twice",
            twice(TALL),
            neighbours="one row, or none; one of five clients silent, one colluding",
            trust=SHARED,
            clients=5,
            silent=1,
            lost=1,
        ),
    ]


def _local() -> list[Case]:
    losses = QuantileLosses(quantity="value", rows=3, lower=0.0, upper=1.0, points=5, target=2)
    few, many, two = valued(0.1, 0.1, 0.9), valued(0.1, 0.9, 0.9), valued(0.1, 0.9)
    bits = partial(attack, trust=LocalDP(), protection=ONE_EACH, clients=2)
    noise = partial(attack, trust=LocalDP(encoding="noise"))
    choice = partial(
        attack,
        mechanism="quantile losses, one of five candidates chosen",
        asked=(Select(of=losses),),
        trust=LocalDP(),
    )
    bounded = Protection(rows_per_client=3)
    replaced = Protection(neighbours=Neighbours.REPLACE_ONE, rows_per_client=3)
    return [
        bits("local-dp/unary", f"{_LEVELS}, as bits", TREE, CHANGED, neighbours="another row"),
        bits("local-dp/unary-empty", f"{_FLAT}, as bits", FLAT, ADDED, neighbours="one row, or none"),
        noise(
            "local-dp/laplace",
            _LEVELS,
            TREE,
            (repeated(LOW, 3), repeated(LOW, 4)),
            neighbours="three rows, or four",
        ),
        noise(
            "local-dp/gaussian", f"{_LEVELS}, asked twice", twice(TREE), ADDED, neighbours="one row, or none"
        ),
        choice("local-dp/choice", pair=(few, many), neighbours="another value", protection=replaced),
        choice(
            "local-dp/choice-added", pair=(few, two), neighbours="three values, or two", protection=bounded
        ),
    ]


def _shuffled() -> list[Case]:
    crowd = f"{_FLAT}, four clients"
    return [
        attack(
            "shuffle/unary",
            crowd,
            FLAT,
            CHANGED,
            neighbours="another row, among three others",
            trust=Shuffle(dropout=0.0, collusion=0.0),
            budget=MIXED,
            protection=ONE_EACH,
            clients=4,
        ),
        _added(
            "shuffle/laplace",
            f"{crowd}, no amplification claimed",
            FLAT,
            trust=Shuffle(dropout=0.0, collusion=0.0, encoding="noise"),
            clients=4,
        ),
    ]


def _two_servers() -> list[Case]:
    points = ValuePath(lower=0.0, upper=1.0, points=4)
    curious = partial(
        attack,
        neighbours="one row, or none; one server curious",
        trust=TwoServer(),
        protection=ONE_EACH,
        clients=2,
    )
    return [
        curious("two-server/laplace", _LEVELS, TREE, ADDED),
        curious("two-server/gaussian", f"{_LEVELS}, asked twice", twice(TREE), ADDED),
        curious(
            "two-server/points",
            "all points of a value path",
            (Points(of=points, at=(0, 1, 2, 3)),),
            (valued(0.3), valued()),
        ),
    ]


def _streams() -> list[Case]:
    """Return cases in which the event is at the step that moves most draws."""
    path, tree = partial(PathMechanism, unit_events=1), partial(TreeMechanism, unit_events=1, fan_out=2)
    streams: list[tuple[str, ContinualMechanism, int]] = [
        ("tree", tree(horizon=8, budget=PURE), 0),
        ("path", path(horizon=8, budget=PURE), 1),
        ("factorised", Factorised(horizon=8, budget=PURE, unit_events=1), 0),
        ("tree-gaussian", tree(horizon=16, budget=MIXED), 0),
        ("path-gaussian", path(horizon=8, budget=MIXED, multiplier=LARGEST_MULTIPLIER), 1),
        ("factorised-gaussian", Factorised(horizon=8, budget=MIXED, unit_events=1), 0),
    ]
    return [
        StreamCase(
            name=f"continual/{name}",
            mechanism=f"a count after each of {stream.horizon} steps",
            neighbours=f"an event at step {at + 1}, or none",
            budget=stream.budget,
            stream=stream,
            at=at,
        )
        for name, stream, at in streams
    ]
