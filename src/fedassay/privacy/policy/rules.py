"""The rules of a site: lists of what is allowed, and bounds on how much.

How they are written down is in `policy_file`; what each of them does and does not stop is in `docs/how-to/policy.md`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.policy.disclosure import Disclosure, is_countable
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
        """Return whether the parameter may have this value."""
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
        """Continue a sentence after "expected"."""
        if self.values is not None:
            return "one of " + ", ".join(map(repr, self.values)) if self.values else "none at all"
        least = [] if self.least is None else [f"at least {self.least:g}"]
        most = [] if self.most is None else [f"at most {self.most:g}"]
        return " and ".join(least + most) or "a number"


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
    """Rule for one summary: the range of each parameter that is named, and of its length (`numbers`)."""

    parameters: Mapping[str, Allowed] = field(default_factory=dict)
    numbers: Allowed = Allowed()

    def refusal(self, request: PolicyRequest) -> str | None:
        """Return the reason why the request is not allowed; None if it is."""
        summary: Any = request.summary
        if not self.numbers.allows(request.resolution):
            return f"got {request.resolution} numbers of {summary.name}, expected {self.numbers}"
        public = {entry.name for entry in fields(summary)}
        for name, allowed in self.parameters.items():
            if name not in public:
                return f"got {summary.name} without a {name}, expected one that is {allowed}"
            if not allowed.allows(value := getattr(summary, name)):
                return f"got {summary.name} with {name} {value!r}, expected {allowed}"
        return None


_Names = frozenset[str]

WHOLE_NUMBERS = (
    *("finest_resolution", "smallest_cohort", "smallest_cohort_difference", "smallest_rows"),
    "smallest_noise_shares",
)
EPSILONS = ("largest_epsilon", "largest_local_epsilon")
SHARES = ("largest_delta", "smallest_collusion", "largest_dropout")
"""Rules by their kind of number."""


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
    """Largest epsilon of one message that only a shuffler hides: its cost if the shuffler turned out to be none."""
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
        for names, expected, allows in (
            (WHOLE_NUMBERS, "a whole number of at least 1", lambda n: type(n) is int and n >= 1),
            (EPSILONS, "a number above 0", lambda n: _is_number(n) and n > 0),
            (SHARES, "a number in [0, 1)", lambda n: _is_number(n) and 0 <= n < 1),
        ):
            for name in names:
                number = getattr(self, name)
                if number is not None and not allows(number):
                    raise UsageError(f"{name}: got {number!r}, expected {expected}.")

    def check(self, request: PolicyRequest) -> None:
        """Return if every rule allows the request; raise `PolicyRefusal` with the first that does not.

        The number of rows is looked at last, when nothing else stands against the request.
        """
        rules = (self._names, self._summary, self._sizes, self._committee)
        for rule in (*rules, self._price, self._whole, self._disclosed, self._rows):
            refusal = rule(request)
            if refusal is not None:
                raise PolicyRefusal(f"policy: {refusal}.")

    def _names(self, request: PolicyRequest) -> str | None:
        for title, allowed, got in (
            ("asker", self.askers, request.asker),
            ("task", self.tasks, request.task),
            ("trust model", self.trust_models, request.trust.name),
            ("unit", self.units, request.plan.setting.protection.unit),
            ("neighbours", self.neighbours, request.plan.setting.protection.neighbours),
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
        if request.summary.name not in self.summaries:
            return f"got the summary {request.summary.name}, expected {_one_of(self.summaries)}"
        return self.summaries[request.summary.name].refusal(request)

    def _sizes(self, request: PolicyRequest) -> str | None:
        if not request.clients >= self.smallest_cohort:
            return f"got a cohort of {request.clients} clients, expected at least {self.smallest_cohort}"
        smallest, collusion = request.smallest_total, getattr(request.trust, "collusion", None)
        if smallest is not None and not smallest >= self.smallest_cohort:
            return (
                f"got a trust model that would release a total over {smallest} clients, expected "
                f"at least {self.smallest_cohort} (`minimum_cohort={self.smallest_cohort}`)"
            )
        if collusion is not None and not collusion >= self.smallest_collusion:
            return (
                f"got a trust model that withstands {collusion:.3g} colluding clients, expected at least "
                f"{self.smallest_collusion:.3g} of them"
            )
        return None

    def _committee(self, request: PolicyRequest) -> str | None:
        """Check who may be silent, who opens totals, and what is agreed about totals over other clients."""
        dropout, members = getattr(request.trust, "dropout", None), getattr(request.trust, "members", ())
        if dropout is not None and not dropout <= self.largest_dropout:
            return (
                f"got a trust model in which {dropout:.3g} of the clients may fall silent, expected at most "
                f"{self.largest_dropout:.3g} (`dropout={self.largest_dropout:.3g}`)"
            )
        strangers = sorted(set(members) - (self.trusted_members or frozenset()))
        if members and self.trusted_members is None:
            return "got a study that names who opens its totals, expected trusted_members here, or that all sites do"
        sizes = request.sizes
        colluding = 0 if sizes is None else sizes.colluding_members
        if len(strangers) > colluding:
            return (
                f"got totals that {', '.join(strangers)} would open, expected at most {colluding} who "
                "are not among trusted_members"
            )
        fewest = self.smallest_noise_shares
        if fewest is not None and sizes is not None and request.trust.private and not sizes.honest >= fewest:
            return f"got totals with the noise of {sizes.honest} honest clients, expected at least {fewest}"
        return self._apart(request)

    def _apart(self, request: PolicyRequest) -> str | None:
        """Check that an exact total opens under terms that keep it apart from others; every member enforces them."""
        difference = getattr(request.trust, "cohort_difference", None)
        if not request.exact or difference is None:
            return None
        same_set = getattr(request.trust, "same_set", False)
        if self.same_set and not same_set:
            return "got exact totals over any clients, expected all over the same ones (`same_set`)"
        if self.smallest_cohort_difference is not None and not same_set:
            # Colluders can stand in for clients on either side.
            colluders = request.sizes.colluders
            needed = self.smallest_cohort_difference + colluders
            if not difference >= needed:
                return (
                    f"got exact totals over sets of clients that may differ by {difference or 1}, "
                    f"expected none or at least {needed}: {colluders} colluders and "
                    f"{self.smallest_cohort_difference} others (`cohort_difference={needed}`, or `same_set`)"
                )
        return None

    def _price(self, request: PolicyRequest) -> str | None:
        budget = request.plan.setting.budget
        if self.total is None and budget is not None:
            return f"got {request.trust.name}, which spends a budget, expected none, because no total is named here"
        if self.largest_delta is not None:
            if budget is None:
                return f"got no budget, expected delta of at most {self.largest_delta:.3g}"
            if not budget.delta <= self.largest_delta:
                return f"got delta {budget.delta:.3g}, expected at most {self.largest_delta:.3g}"
        if request.shuffled is not None and not request.local_epsilon <= self.largest_local_epsilon:
            return (
                f"got messages of epsilon {request.local_epsilon:.3g} that only shuffling hides, expected at most "
                f"{self.largest_local_epsilon:.3g}"
            )
        if self.largest_epsilon is not None:
            delta = 0.0 if self.largest_delta is None or budget is None else budget.delta
            price = request.epsilon(delta)
            if not price <= self.largest_epsilon:
                got = f"got epsilon {price:.3g} at delta {delta:.3g}"
                return f"{got}, expected at most {self.largest_epsilon:.3g} per query"
        return None

    def _whole(self, request: PolicyRequest) -> str | None:
        """Check that an exact total is over all rows of all clients, whatever the policy; less could be subtracted."""
        if not request.exact:
            return None
        protection, part = request.plan.setting.protection, request.plan.query.part
        if protection.unit is Unit.CLIENT and part is not Part.ALL:
            return (
                f"got an exact total over a part of the clients ({part}), which may be a single one, expected "
                "one over all, noise, or the unit example"
            )
        bound = protection.rows_per_client
        if bound is not None and bound < LARGEST_ROWS_PER_CLIENT:
            return (
                f"got an exact total over at most {bound} rows of each client, which another total may differ from by "
                "one row, expected one over all rows, or noise"
            )
        return None

    def _disclosed(self, request: PolicyRequest) -> str | None:
        """Check that single clients' numbers that the server sees are counts, and get no noise afterwards."""
        if self.disclosure is None or not request.seen:
            return None
        profile = self.disclosure.name
        if not request.exact:
            return (
                f"got {request.trust.name} with the disclosure profile {profile}, expected distributed-dp or "
                "local-dp, because a hidden count moves further than its noise covers"
            )
        if not is_countable(request.plan.query):
            return (
                f"got {request.summary.name} in the clear, which is not made of counts, expected counts that the "
                f"disclosure profile {profile} can protect, or secure-sum"
            )
        return None

    def _rows(self, request: PolicyRequest) -> str | None:
        if self.smallest_rows is None:
            return None
        if request.rows is None:
            return f"got a site that does not know its rows, expected at least {self.smallest_rows}"
        rows = request.rows()
        # In the clear, few rows that are used are as readable as few rows that are there.
        bound = request.plan.setting.protection.rows_per_client
        used = min(rows, bound) if bound is not None and (request.exact or request.seen) else rows
        if not used >= self.smallest_rows:
            return f"got {used} rows that would be used, expected at least {self.smallest_rows}"
        return None


def _one_of(names: Collection[str]) -> str:
    return "one of " + ", ".join(sorted(names)) if names else "none at all"
