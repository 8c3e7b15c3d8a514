"""Ledger and openings of a certificate: the releases of a study and the members who opened its totals.

Both are checked again. Releases must compose to the stated epsilon; members must have signed the set of clients. Each
opening holds the terms of an exchange as all its parties agreed on them. Their digest is the session that every member
has signed, and they hold a digest of the public keys that every site has pinned: no member signs for other keys than
its own site believes. The checks therefore rest on the statements of members, not on the maker of the certificate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedassay.artefacts.stored import entries, named_entries, number, words
from fedassay.crypto.identity import verifies
from fedassay.errors import FedassayError, UsageError
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import NO_NOISE, Neighbours, Part, Unit
from fedassay.tasks.card import KINDS
from fedassay.trust import TRUST_MODELS
from fedassay.trust.one_shot.messages import ANSWERED, answered_words, digest_of_keys
from fedassay.trust.one_shot.sizes import Sizes, opening_words

KEYS = ("budget", "delta", "spent", "remaining", "head", "entries")
ENTRY_KEYS = (
    *("id", "task", "summary", "part", "law", "scale", "l1", "l2", "trust_model", "unit", "neighbours"),
    *("shuffled_epsilon", "shuffled_delta", "sampled", "epsilon"),
)

TOLERANCE = 1e-6
"""Largest relative difference of an epsilon between two versions of the numerical libraries."""

_MOST = 100_000
"""Largest number of entries of one study; more are not read."""

_Plain = Mapping[str, Any]


def ledger_of(budget: _Plain, *, head: str | None) -> dict[str, Any]:
    """Return the ledger part, from `results.budget` of a study's document and the head of the coordinator's ledger."""
    return {
        "budget": budget["epsilon"],
        **{name: budget[name] for name in ("delta", "spent", "remaining")},
        "head": head,
        "entries": [dict(charge) for charge in budget["charges"]],
    }


def composed(ledger: _Plain) -> float:
    """Compute the epsilon of the entries together at the ledger's delta, anew from their noise laws.

    Raises `UsageError` if an entry is malformed. Infinite if an entry has no noise.
    """
    delta = 0.0 if ledger["delta"] is None else number(ledger["delta"], "delta")
    return _epsilon([charge_of_entry(entry) for entry in ledger["entries"]], delta)


def doubts(content: object, privacy: _Plain, tasks: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield a sentence for each error in a ledger part, compared with the privacy part of the same certificate.

    Any JSON is accepted; nothing is raised. With `tasks`, by name and kind, every release must belong to a task, and
    each task must have a release; prediction sets may be found without asking any site.
    """
    try:
        ledger = entries(content, KEYS, "ledger")
        charges = _charges(ledger)
    except UsageError as error:
        yield f"ledger: {error}"
        return
    if (ledger["budget"], ledger["delta"]) != (privacy["epsilon"], privacy["delta"]):
        yield "ledger: budget and delta are not the epsilon and delta of the privacy statement."
    yield from _strangers(charges, privacy)
    if tasks is not None:
        yield from _unknown(charges, tasks)
    if ledger["budget"] is None:
        yield from _without_noise(ledger, charges)
    else:
        yield from _with_noise(ledger, charges)


def charge_of_entry(content: object) -> Charge:
    """Return an entry as a charge of the accountant; refuse anything else with one sentence (`UsageError`).

    Examples
    --------
    >>> entry = dict.fromkeys(ENTRY_KEYS) | {"id": "1", "task": "evaluate", "summary": "score-histogram", "part": "all",
    ...     "law": "discrete-laplace", "scale": 4.0, "l1": 2.0, "l2": 2.0, "trust_model": "server-dp",
    ...     "unit": "example", "neighbours": "add-remove"}
    >>> round(compose([charge_of_entry(entry)], 0.0), 3)
    0.5
    """
    entry = entries(content, ENTRY_KEYS, "entries")
    missing = {"scale": 0.0, "l1": math.inf, "l2": math.inf} if entry["law"] == NO_NOISE.law else {}
    missing |= {"shuffled_epsilon": 0.0, "shuffled_delta": 0.0, "sampled": 1.0}
    numbers: dict[str, Any] = {
        name: missing[name] if entry[name] is None and name in missing else number(entry[name], name)
        for name in ("scale", "l1", "l2", "shuffled_epsilon", "shuffled_delta", "sampled")
    }
    texts: dict[str, Any] = {
        name: words(entry[name], name) for name in ("task", "summary", "law", "trust_model")
    }
    try:
        return Charge(
            id=words(entry["id"], "id"),
            dataset="",
            study="",
            part=Part(entry["part"]),
            unit=Unit(entry["unit"]),
            neighbours=Neighbours(entry["neighbours"]),
            **numbers,
            **texts,
        )
    except (FedassayError, ValueError, ArithmeticError) as error:
        raise UsageError(
            f"the entry {entry['id']!r} is not a release that fedassay could have made ({error})"
        ) from error


def _charges(ledger: _Plain) -> list[tuple[Charge, _Plain]]:
    """Return the entries as charges, each with its own text."""
    for name in ("budget", "delta", "spent", "remaining"):
        if ledger[name] is not None:
            number(ledger[name], name)
    if ledger["head"] is not None:
        words(ledger["head"], "head")
    found = ledger["entries"]
    if not isinstance(found, list) or len(found) > _MOST:
        raise UsageError(f"the entry 'entries' is no list of at most {_MOST:,} releases.")
    return [(charge_of_entry(one), named_entries(one, "entries")) for one in found]


def _strangers(charges: list[tuple[Charge, _Plain]], privacy: _Plain) -> Iterator[str]:
    promised = tuple(privacy[name] for name in ("trust_model", "unit", "neighbours"))
    for charge, _ in charges:
        if (charge.trust_model, str(charge.unit), str(charge.neighbours)) != promised:
            yield (
                f"ledger: the entry {charge.id!r} has another trust model, unit or neighbours than the privacy "
                "statement."
            )
    if len({charge.id for charge, _ in charges}) < len(charges):
        yield "ledger: two entries have the same id, and every release has one of its own."


def _unknown(charges: list[tuple[Charge, _Plain]], tasks: Mapping[str, str]) -> Iterator[str]:
    """Yield releases of unknown tasks, and tasks without a release: leaving one out understates the cost."""
    released = {charge.task for charge, _ in charges}
    for name in sorted(released.difference(tasks)):
        yield f"ledger: it has a release of {name!r}, which is no task of the study."
    for name, kind in sorted(tasks.items()):
        if name not in released and (kind not in KINDS or KINDS[kind].always_releases):
            yield f"ledger: it has no release of the task {name!r}."


def _without_noise(ledger: _Plain, charges: list[tuple[Charge, _Plain]]) -> Iterator[str]:
    if any(ledger[name] is not None for name in ("spent", "remaining")):
        yield "ledger: got an epsilon that was spent although there is no budget, expected none."
    for charge, entry in charges:
        if not charge.exact or entry["epsilon"] is not None:
            yield f"ledger: the entry {charge.id!r} has noise or an epsilon although the study has none."


def _with_noise(ledger: _Plain, charges: list[tuple[Charge, _Plain]]) -> Iterator[str]:
    budget, delta, spent, remaining = (ledger[name] for name in ("budget", "delta", "spent", "remaining"))
    if None in (delta, spent, remaining):
        yield "ledger: got a budget without delta, spent and remaining, expected all of them."
        return
    if spent > budget:
        yield f"ledger: got epsilon {spent:.6g} spent, more than the budget of {budget:.6g}."
    if not _agree(budget - spent, remaining, size=budget):
        yield f"ledger: {remaining:.6g} is said to remain, but {budget:.6g} less {spent:.6g} is not that."
    total = _epsilon([charge for charge, _ in charges], delta)
    if not _agree(total, spent, size=spent):
        yield f"ledger: epsilon {spent:.6g} is said to be spent, but the entries compose to {total:.6g}."
    alone: dict[Charge, float] = {}
    for charge, entry in charges:
        if charge.kind not in alone:
            alone[charge.kind] = _epsilon([charge], delta)
        said = entry["epsilon"]
        if not isinstance(said, float) or not _agree(alone[charge.kind], said, size=alone[charge.kind]):
            yield f"ledger: the entry {charge.id!r} has another epsilon than its noise has."


def _epsilon(charges: list[Charge], delta: float) -> float:
    """Compute the epsilon of charges together; infinite, as for a release without noise, if that is impossible."""
    try:
        return compose(charges, delta)
    except (FedassayError, ValueError, ArithmeticError):
        return math.inf


def _agree(one: float, other: float, *, size: float) -> bool:
    return math.isclose(one, other, rel_tol=0.0, abs_tol=TOLERANCE * abs(size))


# --- openings of totals --------------------------------------------------------------------------------------

OPENING_KEYS = ("exchange", "terms", "keys", "clients", "set", "members", "asked", "needed", "statement")


def opening_doubts(content: object, ledger: object, privacy: _Plain) -> Iterator[str]:
    """Yield a sentence for each error in the openings of a certificate. Any JSON is accepted.

    Guarantee: if there is none, every release of a trust model whose totals members open belongs to an exchange in
    which as many members as its terms need have signed that they answered for this set of clients, and no other.
    """
    openings = content if isinstance(content, list) else [None]
    found = []
    for place, one in enumerate(openings, start=1):
        try:
            found.append(_exchange(one))
        except (FedassayError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            reason = str(error).rstrip(".") if isinstance(error, UsageError) else "it is malformed"
            yield f"opening {place}: {reason}."
    released = _exchanges(ledger)
    if released is None or privacy["simulated"] or not _opened(privacy["trust_model"]):
        if openings:
            yield "openings: got some, expected none: no member had to open these totals."
        return
    if sorted(found) != sorted(released):
        yield "openings: expected one for each exchange of the ledger, and no other."


def _exchange(content: object) -> str:
    """Return the id of the exchange that members have opened; raise `UsageError` if they have not."""
    opening = entries(content, OPENING_KEYS, "openings")
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
    """Return whether members open the totals of this trust model."""
    kind = TRUST_MODELS.get(trust_model)
    return kind is not None and kind.member_leg is not None


def _exchanges(ledger: object) -> set[str] | None:
    """Return the exchanges of the releases in a ledger part; None if it cannot be read, which `doubts` reports."""
    try:
        return {str(one["id"]).partition("/")[0] for one in ledger["entries"]}  # type: ignore[index]
    except (TypeError, KeyError):
        return None


def openings_in_words(openings: Sequence[_Plain]) -> str:
    """Describe openings in which no error was found."""
    fewest = min((len(one["members"]) - one["needed"] for one in openings), default=math.inf)
    spare = "false rows were checked for" if fewest > 0 else "of some, false rows could not be noticed"
    return f"{len(openings)} sets of clients, each signed by enough of the members that opened its totals; {spare}."
