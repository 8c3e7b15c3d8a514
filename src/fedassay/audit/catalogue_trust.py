"""The same histogram under every trust model and noise law, and the continual count."""

from __future__ import annotations

from fedassay.audit.cases import (
    MIXED,
    PURE,
    Case,
    StreamCase,
    attack,
    joined,
    repeated,
    scored,
    valued,
    without,
)
from fedassay.privacy.continual_noise import ContinualMechanism, Factorised, PathMechanism, TreeMechanism
from fedassay.protocol.vocabulary import Budget, Neighbours, Points, Protection, Select, Sum, Unit
from fedassay.summaries.distribution.path import LARGEST_MULTIPLIER, ValuePath
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import TRUST_MODELS, DistributedDP, LocalDP, Shuffle, TwoServer

TREE = ScoreHistogram(transform="uniform", height=2, widths=(1, 2))
FLAT = ScoreHistogram(transform="uniform", height=2)
TALL = ScoreHistogram(transform="uniform", height=5, widths=(1, 2, 4, 8, 16))
HALVES = (Sum(of=TREE, share=0.5),) * 2
"""Two questions that share a budget: with a delta, each is answered under a part of zCDP."""

LOW, HIGH = scored((0.1, 0)), scored((0.9, 1))
NOBODY = without(LOW)

REPLACED = Protection(neighbours=Neighbours.REPLACE_ONE)
ONE_EACH = Protection(unit=Unit.CLIENT, rows_per_client=1)
FIVE_EACH = Protection(unit=Unit.CLIENT, rows_per_client=5)

TINY = Budget(epsilon=2.0**-51.9)
"""Noise of a scale near 2^52, the largest there is: a tenth of the draws are beyond 2^53, where floats have no odd
numbers."""

SMALL_CROWD = Shuffle(dropout=0.0, collusion=0.0)
SHARED = DistributedDP(dropout=0.2, collusion=0.2)
"""Of five clients one may fall silent and one collude: three shares of the noise are left."""

PAIRED = DistributedDP(dropout=0.0, collusion=0.33)
"""Of three clients one may collude: the noise is that of two clients, and each share matters."""


def _server() -> list[Case]:
    return [
        attack(
            "server-dp/laplace",
            "score histogram, two levels",
            TREE,
            (LOW, NOBODY),
            neighbours="one row, or none",
        ),
        attack(
            "server-dp/gaussian",
            "score histogram, two levels, asked twice",
            HALVES,
            (LOW, HIGH),
            neighbours="another score and label",
            budget=MIXED,
            protection=REPLACED,
        ),
        attack(
            "server-dp/laplace-shares",
            "score histogram, two levels, asked twice",
            HALVES,
            (LOW, NOBODY),
            neighbours="one row, or none",
        ),
        attack(
            "server-dp/client",
            "score histogram, two levels",
            TREE,
            (repeated(LOW, 5), NOBODY),
            neighbours="all five rows of one of three clients, or none",
            protection=FIVE_EACH,
            clients=3,
        ),
        attack(
            "server-dp/full-client",
            "score histogram, flat, 20 rows per client",
            FLAT,
            (repeated(LOW, 20), joined(repeated(LOW, 20), HIGH)),
            neighbours="one row more, which pushes another out",
            protection=Protection(rows_per_client=20),
        ),
        attack(
            "server-dp/low-bits",
            "score histogram, flat, noise of scale 2^51.9",
            FLAT,
            (LOW, NOBODY),
            neighbours="one row, or none",
            budget=TINY,
        ),
    ]


def _shared() -> list[Case]:
    worst = "one row, or none; one of five clients silent, one colluding"
    return [
        attack(
            "distributed-dp/polya",
            "score histogram, flat",
            FLAT,
            (LOW, NOBODY),
            neighbours="one row, or none; one of three clients colluding",
            trust=PAIRED,
            budget=Budget(epsilon=1.0),
            clients=3,
            silent=1,
        ),
        attack(
            "distributed-dp/skellam",
            "score histogram, five levels, asked twice",
            (Sum(of=TALL, share=0.5),) * 2,
            (LOW, NOBODY),
            neighbours=worst,
            trust=SHARED,
            budget=MIXED,
            clients=5,
            silent=1,
            lost=1,
        ),
    ]


def _local() -> list[Case]:
    losses = QuantileLosses(quantity="value", rows=3, lower=0.0, upper=1.0, points=5, target=2)
    few, many = valued(0.1, 0.1, 0.9), valued(0.1, 0.9, 0.9)
    bounded = Protection(rows_per_client=3)
    return [
        attack(
            "local-dp/unary",
            "score histogram, two levels, as bits",
            TREE,
            (LOW, HIGH),
            neighbours="another row",
            trust=LocalDP(),
            protection=ONE_EACH,
            clients=2,
        ),
        attack(
            "local-dp/unary-empty",
            "score histogram, flat, as bits",
            FLAT,
            (LOW, NOBODY),
            neighbours="one row, or none",
            trust=LocalDP(),
            protection=ONE_EACH,
            clients=2,
        ),
        attack(
            "local-dp/laplace",
            "score histogram, two levels",
            TREE,
            (repeated(LOW, 3), joined(repeated(LOW, 3), LOW)),
            neighbours="three rows, or four",
            trust=LocalDP(encoding="noise"),
        ),
        attack(
            "local-dp/gaussian",
            "score histogram, two levels, asked twice",
            HALVES,
            (LOW, NOBODY),
            neighbours="one row, or none",
            trust=LocalDP(encoding="noise"),
            budget=MIXED,
        ),
        attack(
            "local-dp/choice",
            "quantile losses, one of five candidates chosen",
            (Select(of=losses),),
            (few, many),
            neighbours="another value",
            trust=LocalDP(),
            protection=Protection(neighbours=Neighbours.REPLACE_ONE, rows_per_client=3),
        ),
        attack(
            "local-dp/choice-added",
            "quantile losses, one of five candidates chosen",
            (Select(of=losses),),
            (few, valued(0.1, 0.9)),
            neighbours="three values, or two",
            trust=LocalDP(),
            protection=bounded,
        ),
    ]


def _two_servers() -> list[Case]:
    points = ValuePath(lower=0.0, upper=1.0, points=4)
    return [
        attack(
            "shuffle/unary",
            "score histogram, flat, four clients",
            FLAT,
            (LOW, HIGH),
            neighbours="another row, among three others",
            trust=SMALL_CROWD,
            budget=MIXED,
            protection=ONE_EACH,
            clients=4,
        ),
        attack(
            "shuffle/laplace",
            "score histogram, flat, four clients, no amplification claimed",
            FLAT,
            (LOW, NOBODY),
            neighbours="one row, or none",
            trust=Shuffle(dropout=0.0, collusion=0.0, encoding="noise"),
            clients=4,
        ),
        attack(
            "two-server/laplace",
            "score histogram, two levels",
            TREE,
            (LOW, NOBODY),
            neighbours="one row, or none; one server curious",
            trust=TwoServer(),
            protection=ONE_EACH,
            clients=2,
        ),
        attack(
            "two-server/gaussian",
            "score histogram, two levels, asked twice",
            HALVES,
            (LOW, NOBODY),
            neighbours="one row, or none; one server curious",
            trust=TwoServer(),
            budget=MIXED,
            protection=ONE_EACH,
            clients=2,
        ),
        attack(
            "two-server/points",
            "all points of a value path",
            (Points(of=points, at=(0, 1, 2, 3)),),
            (valued(0.3), valued()),
            neighbours="one row, or none; one server curious",
            trust=TwoServer(),
            protection=ONE_EACH,
            clients=2,
        ),
    ]


def _streams() -> list[Case]:
    """The event is at the step that moves most draws."""
    streams: list[tuple[str, ContinualMechanism, int]] = [
        ("tree", TreeMechanism(horizon=8, budget=PURE, unit_events=1, fan_out=2), 0),
        ("path", PathMechanism(horizon=8, budget=PURE, unit_events=1), 1),
        ("factorised", Factorised(horizon=8, budget=PURE, unit_events=1), 0),
        ("tree-gaussian", TreeMechanism(horizon=16, budget=MIXED, unit_events=1, fan_out=2), 0),
        (
            "path-gaussian",
            PathMechanism(horizon=8, budget=MIXED, unit_events=1, multiplier=LARGEST_MULTIPLIER),
            1,
        ),
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


def trust_cases() -> list[Case]:
    """Attacks on every trust model that promises differential privacy.

    One without attacks of its own, of another package say, is asked for one row among three clients.
    """
    own = [*_server(), *_shared(), *_local(), *_two_servers(), *_streams()]
    attacked = {case.trust_model for case in own}
    others = (model for name, model in TRUST_MODELS.items() if model.private and name not in attacked)
    return own + [
        attack(
            f"{model.name}/row",
            "score histogram, two levels",
            TREE,
            (LOW, NOBODY),
            neighbours="one row, or none; one of three clients",
            trust=model(),
            budget=MIXED,
            clients=3,
        )
        for model in others
    ]
