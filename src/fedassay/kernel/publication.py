"""Publication under a disclosure profile: exact totals are protected before a task reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedassay.errors import UsageError
from fedassay.kernel.journal import Journal
from fedassay.privacy.policy.disclosure import Disclosure, profile_named
from fedassay.protocol.vocabulary import Part, Plan, Query, Released, TrustModel

_KIND = "disclosure"


def protected(
    profile: Disclosure, plans: Sequence[Plan], released: Sequence[Released[Any]]
) -> tuple[Released[Any], ...]:
    """Protect what an exchange has released, before a journal records it or a task reads it.

    Guarantee: everything that a task computes is a function of the protected counts. The server itself has seen the
    exact totals.
    """
    return tuple(_protected(profile, plan, one) for plan, one in zip(plans, released, strict=True))


def _protected(profile: Disclosure, plan: Plan, released: Released[Any]) -> Released[Any]:
    value = released.value
    if isinstance(value, tuple):
        return released.with_value(tuple(profile.publish(plan.query, each) for each in value))
    return released.with_value(profile.publish(plan.query, value))


def require(profile: Disclosure, trust: TrustModel, queries: Iterable[Query[Any]]) -> None:
    """Refuse, before any client is asked, what a profile must not or cannot be applied to."""
    if trust.private:
        raise UsageError(
            f"disclosure profile {profile.name}: {trust.name} adds noise, which protects more, and hiding noisy counts "
            "would only bias them; leave the profile out."
        )
    queries = list(queries)
    for query in queries:
        profile.require_published(query)
    parts = {query.part for query in queries}
    if Part.ALL in parts and len(parts) > 1:
        raise UsageError(
            f"disclosure profile {profile.name}: got tasks about all rows and tasks that fit on a part of them, whose "
            "hidden small counts could be subtracted; run them as studies of their own."
        )


def settled(journal: Journal, profile: Disclosure | None) -> None:
    """Note the profile of a run in its journal before anything else; one that goes on with another is refused."""
    begun = profile_of(journal)
    if begun is None and profile is not None and not journal.entries():
        journal.append({"kind": _KIND, "profile": profile.name})
    elif begun != profile:
        names = [one.name if one else "none" for one in (profile, begun)]
        raise UsageError(
            f"disclosure profile: got {names[0]}, but this study began with {names[1]}, and what was released before "
            "would not fit; go on as it began."
        )


def profile_of(journal: Journal) -> Disclosure | None:
    """Return the profile that a run began with."""
    noted = journal.find(_KIND)
    return None if noted is None or noted["profile"] is None else profile_named(noted["profile"])


def stated(privacy: Mapping[str, Any], profile: Disclosure | None) -> dict[str, Any]:
    """Return the `privacy` part of a result that states the profile."""
    if profile is None:
        return dict(privacy)
    words = (
        f"Before anything was computed from them, {profile.words}, in the finest cells (disclosure profile)."
    )
    return {**privacy, "disclosure": profile.name, "statement": f"{privacy['statement']} {words}"}


def warnings(profile: Disclosure | None) -> tuple[str, ...]:
    """Return the warnings that a reader of the result must see."""
    if profile is None:
        return ()
    return (
        f"disclosure profile {profile.name}: {profile.words}, so that every number here is biased; neither intervals "
        "nor errors allow for that. Ask for fewer, larger cells if much was hidden.",
    )
