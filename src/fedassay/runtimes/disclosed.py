"""What a coordinator publishes under a disclosure profile: exact totals are protected before a task reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedassay.errors import UsageError
from fedassay.kernel.journal import Journal
from fedassay.kernel.run import Errand, Runtime
from fedassay.privacy.policy.disclosure import Disclosure, profile_named
from fedassay.protocol.vocabulary import Part, Plan, Query, Released, TrustModel

_KIND = "disclosure"


class Disclosed:
    """A runtime whose releases are protected by a profile.

    Guarantee: everything that a task computes, and a journal records, is a function of the protected counts. What the
    profile cannot protect is refused before anybody is asked. The server itself has seen the exact totals.
    """

    def __init__(self, runtime: Runtime, profile: Disclosure) -> None:
        self._runtime = runtime
        self._profile = profile

    @property
    def simulated(self) -> bool:
        """See `run.Runtime`."""
        return self._runtime.simulated

    @property
    def clients(self) -> Sequence[str]:
        """See `run.Runtime`."""
        return self._runtime.clients

    @property
    def helpers(self) -> Sequence[str]:
        """See `run.Runtime`."""
        return self._runtime.helpers

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes] | None:
        """See `run.Runtime`."""
        return self._runtime.prekeys(names)

    def renewed(self, prekeys: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """See `run.Runtime`."""
        return self._runtime.renewed(prekeys)

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Carry one exchange out, and protect what comes back."""
        plans = errand.exchange.plans
        require(self._profile, errand.trust, (plan.query for plan in plans))
        released = self._runtime.carry(errand)
        return tuple(self._protected(plan, one) for plan, one in zip(plans, released, strict=True))

    def _protected(self, plan: Plan, released: Released[Any]) -> Released[Any]:
        value = released.value
        if isinstance(value, tuple):
            return released.with_value(tuple(self._profile.publish(plan.query, each) for each in value))
        return released.with_value(self._profile.publish(plan.query, value))


def published(runtime: Runtime, profile: Disclosure | None) -> Runtime:
    """The runtime under this profile, or as it is without one."""
    return runtime if profile is None else Disclosed(runtime, profile)


def require(profile: Disclosure, trust: TrustModel, queries: Iterable[Query[Any]]) -> None:
    """Refuse what a profile must not or cannot be applied to, before anybody is asked."""
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
    """The profile that a run began with."""
    noted = journal.find(_KIND)
    return None if noted is None or noted["profile"] is None else profile_named(noted["profile"])


def stated(privacy: Mapping[str, Any], profile: Disclosure | None) -> dict[str, Any]:
    """The `privacy` part of a result that says so."""
    if profile is None:
        return dict(privacy)
    words = (
        f"Before anything was computed from them, {profile.words}, in the finest cells (disclosure profile)."
    )
    return {**privacy, "disclosure": profile.name, "statement": f"{privacy['statement']} {words}"}


def warnings(profile: Disclosure | None) -> tuple[str, ...]:
    """What a reader of the result must know."""
    if profile is None:
        return ()
    return (
        f"disclosure profile {profile.name}: {profile.words}, so that every number here is biased; neither intervals "
        "nor errors allow for that. Ask for fewer, larger cells if much was hidden.",
    )
