"""The rules of a site: lists of what is allowed, and bounds on how much.

How they are written down is in `policy_file`; what each of them does and does not stop is in `docs/how-to/policy.md`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.policy.judgement import Policy, PolicyRequest
from fedassay.protocol.vocabulary import LARGEST_ROWS_PER_CLIENT, Budget, Neighbours, Part, Unit


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """The values that a parameter of a summary may have: from `least` to `most`, or one of `values`.

    Of a parameter that is a list, each entry must be allowed, or the list as a whole be one of `values`. What is not a
    number is in no range, and not-a-number is neither.

    Examples
    --------
    >>> Allowed(most=10).allows(10), Allowed(most=10).allows(10.5), Allowed(least=0, most=1).allows((0.2, 0.7))
    (True, False, True)
    >>> Allowed(values=("uniform",)).allows("logit"), Allowed(values=(0.2, 0.5)).allows((0.5,))
    (False, True)
    """

    least: float | None = None
    most: float | None = None
    values: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is not None and (self.least is not None or self.most is not None):
            raise UsageError("range: got values and an end, expected one or the other.")
        for end in (self.least, self.most):
            if end is not None and (not _is_number(end) or math.isnan(end)):
                raise UsageError(f"range: got {end!r}, expected a number.")

    def allows(self, value: Any) -> bool:
        """Whether the parameter may have this value."""
        if self.values is not None and any(_same(value, one) for one in self.values):
            return True
        if isinstance(value, tuple | list):
            # An empty list has no entry that could be wrong, and is another question: it has to be listed itself.
            return bool(value) and all(self.allows(entry) for entry in value)
        if self.values is not None or not _is_number(value):
            return False
        # Written so that NaN fails.
        above = self.least is None or value >= self.least
        return bool(above and (self.most is None or value <= self.most))

    def __str__(self) -> str:
        """As a sentence goes on after "expected"."""
        if self.values is not None:
            return "one of " + ", ".join(map(repr, self.values)) if self.values else "none at all"
        ends = [
            f"{word} {end:g}"
            for word, end in (("at least", self.least), ("at most", self.most))
            if end is not None
        ]
        return " and ".join(ends) or "a number"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, tuple | list) and isinstance(other, tuple | list):
        return len(value) == len(other) and all(map(_same, value, other))
    # True is not 1: only numbers compare across types.
    alike = type(value) is type(other) or (_is_number(value) and _is_number(other))
    return bool(alike and value == other)


@dataclass(frozen=True, kw_only=True)
class SummaryRule:
    """How one summary may be asked for: the range of each parameter that is named, and of its length (`numbers`)."""

    parameters: Mapping[str, Allowed] = field(default_factory=dict)
    numbers: Allowed = Allowed()

    def refusal(self, request: PolicyRequest) -> str | None:
        """Why the request is not allowed; None if it is."""
        if not self.numbers.allows(request.resolution):
            return f"got {request.resolution} numbers of {request.summary}, expected {self.numbers}"
        for name, allowed in self.parameters.items():
            if name not in request.parameters:
                return f"got {request.summary} without a {name}, expected one that is {allowed}"
            if not allowed.allows(request.parameters[name]):
                return f"got {request.summary} with {name} {request.parameters[name]!r}, expected {allowed}"
        return None


_Names = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class SitePolicy(Policy):
    """Lists of what is allowed and bounds on how much; None means no rule of that kind.

    `total` is the exception: without one, nothing that would spend a budget is allowed.

    A bound on epsilon or delta also refuses releases without noise: their epsilon is infinite. Epsilon is
    judged at the delta of the request if `largest_delta` allows that one, and at delta 0 if there is no such
    rule: otherwise a request could make its epsilon small by asking for a large delta.

    Examples
    --------
    >>> policy = SitePolicy(trust_models=frozenset({"secure-sum"}), smallest_cohort=5)
    >>> SitePolicy(largest_epsilon=float("nan"))
    Traceback (most recent call last):
    fedassay.errors.UsageError: largest_epsilon: got nan, expected a number above 0.
    """

    tasks: _Names | None = None
    trust_models: _Names | None = None
    summaries: Mapping[str, SummaryRule] | _Names | None = None
    finest_resolution: int | None = None
    largest_epsilon: float | None = None
    largest_delta: float | None = None
    total: Budget | None = None
    units: frozenset[Unit] | None = None
    neighbours: frozenset[Neighbours] | None = None
    smallest_cohort: int = 3
    smallest_cohort_difference: int | None = None
    same_set: bool = False
    changed_rows: bool = False
    smallest_collusion: float = 0.1
    largest_dropout: float = 0.2
    smallest_noise_shares: int | None = None
    trusted_members: _Names | None = None
    """Sites that are believed to open totals where a study names who does; None if only all sites together may."""
    smallest_rows: int | None = None
    largest_local_epsilon: float = 8.0
    """Of one message that only a shuffler hides: what it would cost if the shuffler turned out to be none."""
    askers: _Names | None = None
    """Public keys, as rosters have them."""
    disclosure: Disclosure | None = None

    def __post_init__(self) -> None:
        for name in ("tasks", "trust_models", "units", "neighbours", "askers", "trusted_members"):
            names = getattr(self, name)
            if names is not None and not isinstance(names, frozenset):
                raise UsageError(f"{name}: got {names!r}, expected a frozenset of names.")
        if isinstance(self.summaries, frozenset):
            object.__setattr__(self, "summaries", dict.fromkeys(self.summaries, SummaryRule()))
        if self.summaries is not None:
            if not isinstance(self.summaries, Mapping):
                raise UsageError(f"summaries: got {self.summaries!r}, expected a frozenset or rules by name.")
            object.__setattr__(self, "summaries", MappingProxyType(dict(self.summaries)))
        for name in (
            *("finest_resolution", "smallest_cohort", "smallest_rows", "smallest_cohort_difference"),
            "smallest_noise_shares",
        ):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and number >= 1):
                raise UsageError(f"{name}: got {number!r}, expected a whole number of at least 1.")
        for name in ("largest_epsilon", "largest_local_epsilon"):
            number = getattr(self, name)
            if number is not None and not (_is_number(number) and number > 0):
                raise UsageError(f"{name}: got {number!r}, expected a number above 0.")
        for name in ("largest_delta", "smallest_collusion", "largest_dropout"):
            number = getattr(self, name)
            if number is not None and not (_is_number(number) and 0 <= number < 1):
                raise UsageError(f"{name}: got {number!r}, expected a number in [0, 1).")

    def check(self, request: PolicyRequest) -> None:
        """Return if every rule allows the request; raise `PolicyRefusal` with the first that does not.

        The number of rows is looked at last, when nothing else stands against the request.
        """
        rules = (
            self._names,
            self._summary,
            self._sizes,
            self._committee,
            self._price,
            self._whole,
            self._disclosed,
            self._rows,
        )
        for rule in rules:
            refusal = rule(request)
            if refusal is not None:
                raise PolicyRefusal(f"policy: {refusal}.")

    def _names(self, request: PolicyRequest) -> str | None:
        for title, allowed, got in (
            ("asker", self.askers, request.asker),
            ("task", self.tasks, request.task),
            ("trust model", self.trust_models, request.trust_model),
            ("unit", self.units, request.unit),
            ("neighbours", self.neighbours, request.neighbours),
        ):
            if allowed is not None and got not in allowed:
                return f"got the {title} {got or 'none'}, expected {_one_of(allowed)}"
        return None

    def _summary(self, request: PolicyRequest) -> str | None:
        if self.finest_resolution is not None and not request.resolution <= self.finest_resolution:
            return f"got {request.resolution} numbers per client, expected at most {self.finest_resolution}"
        if self.summaries is None:
            return None
        assert isinstance(self.summaries, Mapping)
        if request.summary not in self.summaries:
            return f"got the summary {request.summary}, expected {_one_of(self.summaries)}"
        return self.summaries[request.summary].refusal(request)

    def _sizes(self, request: PolicyRequest) -> str | None:
        if not request.clients >= self.smallest_cohort:
            return f"got a cohort of {request.clients} clients, expected at least {self.smallest_cohort}"
        if request.smallest_total is not None and not request.smallest_total >= self.smallest_cohort:
            return (
                f"got a trust model that would release a total over {request.smallest_total} clients, expected "
                f"at least {self.smallest_cohort} (`minimum_cohort={self.smallest_cohort}`)"
            )
        if request.collusion is not None and not request.collusion >= self.smallest_collusion:
            return (
                f"got a trust model that withstands {request.collusion:.3g} colluding clients, expected at least "
                f"{self.smallest_collusion:.3g} of them"
            )
        return None

    def _committee(self, request: PolicyRequest) -> str | None:
        """Who may be silent, who opens totals, and what is agreed about totals over other clients."""
        if request.dropout is not None and not request.dropout <= self.largest_dropout:
            return (
                f"got a trust model in which {request.dropout:.3g} of the clients may fall silent, expected at most "
                f"{self.largest_dropout:.3g} (`dropout={self.largest_dropout:.3g}`)"
            )
        strangers = sorted(set(request.members) - (self.trusted_members or frozenset()))
        if request.members and self.trusted_members is None:
            return "got a study that names who opens its totals, expected trusted_members here, or that all sites do"
        if len(strangers) > request.colluding_members:
            return (
                f"got totals that {', '.join(strangers)} would open, expected at most {request.colluding_members} who "
                "are not among trusted_members"
            )
        fewest = self.smallest_noise_shares
        if fewest is not None and request.honest_shares is not None and not request.honest_shares >= fewest:
            return f"got totals with the noise of {request.honest_shares} honest clients, expected at least {fewest}"
        return self._apart(request)

    def _apart(self, request: PolicyRequest) -> str | None:
        """An exact total must be opened under terms that keep it apart from others: every member enforces them."""
        if not request.exact or request.cohort_difference is None:
            return None
        if self.same_set and not request.same_set:
            return "got exact totals over any clients, expected all over the same ones (`same_set`)"
        if self.smallest_cohort_difference is not None and not request.same_set:
            # Colluders can stand in for clients on either side.
            needed = self.smallest_cohort_difference + request.colluders
            if not request.cohort_difference >= needed:
                return (
                    f"got exact totals over sets of clients that may differ by {request.cohort_difference or 1}, "
                    f"expected none or at least {needed}: {request.colluders} colluders and "
                    f"{self.smallest_cohort_difference} others (`cohort_difference={needed}`, or `same_set`)"
                )
        return None

    def _price(self, request: PolicyRequest) -> str | None:
        if self.total is None and request.budget is not None:
            return f"got {request.trust_model}, which spends a budget, expected none, because no total is named here"
        if self.largest_delta is not None:
            if request.budget is None:
                return f"got no budget, expected delta of at most {self.largest_delta:.3g}"
            if not request.budget.delta <= self.largest_delta:
                return f"got delta {request.budget.delta:.3g}, expected at most {self.largest_delta:.3g}"
        if request.shuffled is not None and not request.local_epsilon <= self.largest_local_epsilon:
            return (
                f"got messages of epsilon {request.local_epsilon:.3g} that only shuffling hides, expected at most "
                f"{self.largest_local_epsilon:.3g}"
            )
        if self.largest_epsilon is not None:
            delta = 0.0 if self.largest_delta is None or request.budget is None else request.budget.delta
            price = request.epsilon(delta)
            if not price <= self.largest_epsilon:
                got = f"got epsilon {price:.3g} at delta {delta:.3g}"
                return f"{got}, expected at most {self.largest_epsilon:.3g} per query"
        return None

    def _whole(self, request: PolicyRequest) -> str | None:
        """An exact total is over all rows of all clients, whatever the policy says: less of it could be subtracted."""
        if not request.exact:
            return None
        if request.unit is Unit.CLIENT and request.part is not Part.ALL:
            return (
                f"got an exact total over a part of the clients ({request.part}), which may be a single one, expected "
                "one over all, noise, or the unit example"
            )
        bound = request.rows_per_client
        if bound is not None and bound < LARGEST_ROWS_PER_CLIENT:
            return (
                f"got an exact total over at most {bound} rows of each client, which another total may differ from by "
                "one row, expected one over all rows, or noise"
            )
        return None

    def _disclosed(self, request: PolicyRequest) -> str | None:
        """Where the server sees a client's own numbers, they must be counts, and must not get noise afterwards."""
        if self.disclosure is None or not request.seen:
            return None
        profile = self.disclosure.name
        if not request.exact:
            return (
                f"got {request.trust_model} with the disclosure profile {profile}, expected distributed-dp or "
                "local-dp, because a hidden count moves further than its noise covers"
            )
        if not request.countable:
            return (
                f"got {request.summary} in the clear, which is not made of counts, expected counts that the disclosure "
                f"profile {profile} can protect, or secure-sum"
            )
        return None

    def _rows(self, request: PolicyRequest) -> str | None:
        if self.smallest_rows is None:
            return None
        if request.rows is None:
            return f"got a site that does not know its rows, expected at least {self.smallest_rows}"
        rows = request.rows()
        # In the clear, few rows that are used are as readable as few rows that are there.
        bounded = request.rows_per_client is not None and (request.exact or request.seen)
        used = min(rows, request.rows_per_client or rows) if bounded else rows
        if not used >= self.smallest_rows:
            return f"got {used} rows that would be used, expected at least {self.smallest_rows}"
        return None


def _one_of(names: Collection[str]) -> str:
    return "one of " + ", ".join(sorted(names)) if names else "none at all"
