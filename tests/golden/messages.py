"""Requests, replies and refusals as bytes, made from fixed numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.kernel.envelope import Refusal, pack_refusal, pack_reply, pack_request
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Neighbours,
    Part,
    Points,
    Protection,
    Query,
    Request,
    Sample,
    Select,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.local_quantiles import QuantileLosses
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle.model import Shuffle
from fedassay.trust.two_server.model import TwoServer

STORED = Path(__file__).parents[1] / "vectors" / "envelope.json"

EXCHANGE = bytes(range(16))
REPLY_KEY = KeyPair.of(Secret(bytes(range(100, 132)))).public
CLIENTS = 40

HISTOGRAM = ScoreHistogram(transform="uniform", height=4)
LOSSES = QuantileLosses(quantity="value", rows=100, lower=0, upper=1, points=10, target=90)
VALUES = ValuePath(lower=0, upper=1, points=16)

BUDGET = Budget(epsilon=1.0, delta=1e-6)
BOUNDED = Protection(rows_per_client=100)
CLIENT = Protection(unit=Unit.CLIENT, neighbours=Neighbours.REPLACE_ONE, rows_per_client=10)

REQUESTS: Mapping[str, tuple[Query[Any], TrustModel, Protection, Budget | None]] = {
    "sum, plain": (Sum(of=HISTOGRAM), Plain(), Protection(), None),
    "sum, secure-sum": (Sum(of=HISTOGRAM, part=Part.FIT), SecureSum(), Protection(), None),
    "sum, distributed-dp": (Sum(of=HISTOGRAM, share=0.5), DistributedDP(), BOUNDED, BUDGET),
    "sum, server-dp, whole clients": (Sum(of=HISTOGRAM, cohort=Sample(rate=0.5)), ServerDP(), CLIENT, BUDGET),
    "sum, two-server": (Sum(of=HISTOGRAM), TwoServer(), BOUNDED, BUDGET),
    "sum, shuffle": (Sum(of=HISTOGRAM), Shuffle(), BOUNDED, BUDGET),
    "points, two-server": (Points(of=VALUES, at=(0, 5)), TwoServer(), BOUNDED, BUDGET),
    "collect, plain": (Collect(of=HISTOGRAM), Plain(), Protection(), None),
    "select, local-dp": (Select(of=LOSSES), LocalDP(), BOUNDED, Budget(epsilon=1.0)),
}


def request(name: str) -> bytes:
    """The first request of an exchange with this query under this trust model."""
    query, trust, protection, budget = REQUESTS[name]
    setting = Setting(trust=trust, protection=protection, budget=budget, clients=CLIENTS)
    asked = Request(
        exchange=EXCHANGE,
        plans=(trust.plan(query, setting),),
        cohort=CLIENTS,
        leg=0,
        recipient="a",
        message={"note": b"\0\1"},
    )
    return pack_request(study="demo", trust=trust, tasks=("evaluate",), request=asked, reply_key=REPLY_KEY)


def reply() -> bytes:
    return pack_reply(
        sender="a",
        exchange=EXCHANGE,
        leg=0,
        message={"vectors": [np.array([1, -2, 3], dtype=np.int64)]},
        prekeys=(b"prekey",),
    )


def vectors() -> dict[str, str]:
    """All messages in hexadecimal."""
    return {
        **{f"request: {name}": request(name).hex() for name in REQUESTS},
        "reply": reply().hex(),
        "refusal": pack_refusal(sender="a", code=Refusal.BUDGET).hex(),
    }
