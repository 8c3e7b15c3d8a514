"""Bytes that a client sends and gets for one question that is answered in the clear of the trust model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay import envelope
from fedassay.crypto.keys import KeyPair
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Plan, Request
from fedassay.sealing import Addressee, sealed
from fedassay.tasks.expectation import PlannedStudy

_ID = bytes(16)
_TASK = "calibrate"


def bytes_of(plans: Sequence[Plan], study: PlannedStudy) -> int:
    """The length of a request with these plans, and of its sealed reply.

    Secure sums add their keys and corrections, which are not counted here.
    """
    source = SimulatedRandomness(0)
    own = KeyPair.draw(source)
    request = Request(
        exchange=_ID,
        plans=tuple(plans),
        cohort=study.expectation.clients,
        leg=0,
        recipient="client",
        message={},
    )
    asked = envelope.pack_request(
        study=_TASK, trust=study.trust, tasks=(_TASK,) * len(plans), request=request, reply_key=own.public
    )
    vectors = {"vectors": [np.zeros(plan.measured.length, dtype=np.int64) for plan in plans]}
    reply = envelope.pack_reply(sender="client", exchange=_ID, leg=0, message=vectors)
    answered = sealed(
        reply, Addressee(own.public, asked), sender="client", credentials=None, randomness=source
    )
    return len(asked) + len(answered)
