"""Who opened the totals of a study: members' signatures over the set of clients, checked again.

Each entry holds the terms of an exchange as all its parties agreed on them. Their digest is the session that every
member has signed, and they hold a digest of the public keys that every site has pinned: no member signs for other keys
than its own site believes. So what is checked here is what members have said, whoever made the certificate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedassay.artefacts.stored import entries
from fedassay.crypto.identity import verifies
from fedassay.errors import FedassayError, UsageError
from fedassay.protocol import wire
from fedassay.trust import TRUST_MODELS
from fedassay.trust.one_shot.messages import ANSWERED, answered_words, digest_of_keys
from fedassay.trust.one_shot.sizes import Sizes, opening_words

KEYS = ("exchange", "terms", "keys", "clients", "set", "members", "asked", "needed", "statement")

_Plain = Mapping[str, Any]


def doubts(content: object, ledger: object, privacy: _Plain) -> Iterator[str]:
    """Everything that is wrong with the openings of a certificate: a sentence each. Any JSON may come.

    Guarantee: if there is none, every release of a trust model whose totals members open belongs to an exchange in
    which as many members as its terms need have signed that they answered for this set of clients, and no other.
    """
    openings = content if isinstance(content, list) else [None]
    found = []
    for number, one in enumerate(openings, start=1):
        try:
            found.append(_exchange(one))
        except (FedassayError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            reason = str(error).rstrip(".") if isinstance(error, UsageError) else "it is malformed"
            yield f"opening {number}: {reason}."
    released = _exchanges(ledger)
    if released is None or privacy["simulated"] or not _opened(privacy["trust_model"]):
        if openings:
            yield "openings: got some, expected none: no member had to open these totals."
        return
    if sorted(found) != sorted(released):
        yield "openings: expected one for each exchange of the ledger, and no other."


def _exchange(content: object) -> str:
    """The exchange that members have opened, as an id; `UsageError` if they have not."""
    opening = entries(content, KEYS, "openings")
    raw = bytes.fromhex(opening["terms"])
    terms, session = wire.decode(raw), hashlib.sha256(raw).digest()
    keys = {name: bytes.fromhex(key) for name, key in opening["keys"].items()}
    if not keys or digest_of_keys(keys) != terms["roster"]:
        raise UsageError("its keys are not those that the sites have pinned")
    sizes, committee = Sizes.from_list(terms["sizes"]), [name for name, _ in terms["members"]]
    clients, members = opening["clients"], opening["members"]
    if len(set(committee)) != sizes.members or opening["exchange"] != terms["exchange"].hex():
        raise UsageError("it is not about the exchange that its terms are about")
    if (
        clients != sorted(set(clients))
        or not sizes.least <= len(clients)
        or not set(clients) <= set(terms["cohort"])
    ):
        raise UsageError(f"it is over {len(clients)} clients, expected at least {sizes.least} of its cohort")
    if not set(members) <= set(committee) or len(members) < sizes.needed:
        raise UsageError(f"{len(members)} members have answered, expected {sizes.needed} of its committee")
    words = answered_words(session, clients, bytes.fromhex(opening["set"]))
    for name, signature in members.items():
        if not verifies(keys[name], ANSWERED, words, bytes.fromhex(signature)):
            raise UsageError(f"{name} has not signed that it answered for this set of clients")
    said = (opening["asked"], opening["needed"], opening["statement"])
    counted = opening_words(len(members), asked=sizes.members, needed=sizes.needed)
    if said != (sizes.members, sizes.needed, counted):
        raise UsageError("how many answers were needed, and spare, is not what its terms say")
    return str(opening["exchange"])


def _opened(trust_model: str) -> bool:
    """Whether members open the totals of this trust model."""
    kind = TRUST_MODELS.get(trust_model)
    return kind is not None and kind.member_leg is not None


def _exchanges(ledger: object) -> set[str] | None:
    """The exchanges of the releases in a ledger part; None if it cannot be read, which is told elsewhere."""
    try:
        return {str(one["id"]).partition("/")[0] for one in ledger["entries"]}  # type: ignore[index]
    except (TypeError, KeyError):
        return None


def in_words(openings: Sequence[_Plain]) -> str:
    """What holds of openings without a doubt."""
    fewest = min((len(one["members"]) - one["needed"] for one in openings), default=math.inf)
    spare = "false rows were checked for" if fewest > 0 else "of some, false rows could not be noticed"
    return f"{len(openings)} sets of clients, each signed by enough of the members that opened its totals; {spare}."
