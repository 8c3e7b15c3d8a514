"""A site's policy as it is written down: `policy.toml`, or the section `[policy]` of the site's file.

```toml
tasks = ["evaluate", "calibrate"]       # every entry but trust_models may be left out: then there is no such rule
trust_models = ["secure-sum", "distributed-dp"]
askers = ["KEY-OF-COORDINATOR"]         # public keys, as in a roster
units = ["example"]
neighbours = ["add-remove"]
finest_resolution = 4096                # numbers per query
largest_epsilon = 1.0                   # per query
largest_delta = 1e-6
largest_local_epsilon = 8.0             # of one message that only a shuffler hides (default 8)
smallest_cohort = 5                     # default 3
smallest_cohort_difference = 3
same_set = true                         # exact totals only over the same clients; default false
changed_rows = false                    # exact totals over rows that have changed since; default false
smallest_collusion = 0.1                # default 0.1
largest_dropout = 0.2                   # default 0.2
smallest_noise_shares = 5               # honest ones, in every total that opens
trusted_members = ["hospital-b"]        # who may open totals where a study names them; default none
smallest_rows = 50
disclosure = "minimum-5"

[total]                                 # of all queries together; without it nothing that costs budget is answered
epsilon = 3.0
delta = 1e-6

[summaries.score-histogram]             # or summaries = ["score-histogram"]
height = { most = 10 }
transform = ["uniform"]
numbers = { most = 4096 }               # its length
```

What cannot be understood refuses everything: a rule that was mistyped must not be a rule that is not there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fedassay.errors import PolicyRefusal, UsageError
from fedassay.privacy.policy.disclosure import profile_named
from fedassay.privacy.policy.judgement import Policy, PolicyRequest
from fedassay.privacy.policy.rules import EPSILONS, SHARES, WHOLE_NUMBERS, Allowed, SitePolicy, SummaryRule
from fedassay.protocol.toml_places import key_places, nearest_place, toml_content
from fedassay.protocol.vocabulary import Budget, Neighbours, Unit

_NUMBERS = "numbers"
_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Names that a policy may use: an unknown name is a typing error, not a rule."""

    tasks: Collection[str]
    trust_models: Collection[str]
    summaries: Mapping[str, type[Any]]


class _Misunderstood(Exception):
    """An entry, as the path of its names, and what is wrong with it."""

    def __init__(self, entry: tuple[str, ...], wrong: str) -> None:
        super().__init__(wrong)
        self.entry = entry


class PolicyFile(Policy):
    """The policy in a file of its own. It is read again for every message, so that a change counts at once.

    Guarantee: a file that is missing, unreadable or not understood refuses everything; the reason, with file and line,
    is in the refusal, which stays at the site.
    """

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        self.path = path
        self._vocabulary = vocabulary
        self._read: tuple[bytes, Policy] | None = None

    def now(self) -> Policy:
        """Return the rules that the file holds now."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise PolicyRefusal(_refuses_all(f"{self.path}: cannot be read ({error.strerror})")) from error
        if self._read is None or self._read[0] != data:
            self._read = (data, parsed(data, self._vocabulary, where=str(self.path)))
        return self._read[1].now()

    def check(self, request: PolicyRequest) -> None:
        """See `Policy`."""
        self.now().check(request)


@dataclass(frozen=True, kw_only=True)
class RefuseAll(Policy):
    """Policy that stands in for a policy that was not understood."""

    reason: str

    def check(self, request: PolicyRequest) -> None:
        """Refuse."""
        raise PolicyRefusal(self.reason)

    def now(self) -> Policy:
        """Raise, as there are no rules to answer by."""
        raise PolicyRefusal(self.reason)


def parsed(data: bytes, vocabulary: Vocabulary, *, where: str) -> Policy:
    """Return the policy in the text of a file, or one that refuses everything and says why."""
    try:
        text = data.decode("utf-8")
        content = toml_content(text)
    except ValueError as error:
        return RefuseAll(reason=_refuses_all(f"{where}: is not TOML ({error})"))
    return policy_of(content, vocabulary, where=where, text=text)


def policy_of(
    content: Mapping[str, Any],
    vocabulary: Vocabulary,
    *,
    where: str,
    text: str = "",
    section: tuple[str, ...] = (),
) -> Policy:
    """Return the policy that these entries make, or one that refuses everything and says why.

    `text` is what they were read from, and `section` where in it, to name the line.
    """
    try:
        if "trust_models" not in content:
            raise _Misunderstood((), 'trust_models is missing; expected a list such as ["secure-sum"]')
        rules = {name: _rule(name, value, vocabulary) for name, value in content.items()}
        try:
            return SitePolicy(**rules)
        except UsageError as error:
            raise _Misunderstood((str(error).partition(":")[0],), str(error).rstrip(".")) from error
    except _Misunderstood as error:
        place = nearest_place((*section, *error.entry), key_places(text))
        return RefuseAll(reason=_refuses_all(f"{where}{f', line {place[0]}' if place else ''}: {error}"))


def _refuses_all(wrong: str) -> str:
    end = "" if wrong.endswith("?") else "."
    return f"policy: {wrong}{end} Everything is refused until this is corrected."


# --- entries ----------------------------------------------------------------------------------------------


def _rule(name: str, value: Any, vocabulary: Vocabulary) -> Any:
    if name not in _ENTRIES:
        close = get_close_matches(name, _ENTRIES, n=1)
        expected = f"did you mean {close[0]!r}?" if close else f"expected only {', '.join(sorted(_ENTRIES))}"
        raise _Misunderstood((name,), f"unknown entry {name!r}; {expected}")
    return _ENTRIES[name](name, value, vocabulary)


def _names(name: str, value: Any, known: Collection[str]) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _Misunderstood((name,), f"{name} must be a list of names in quotes")
    for one in value:
        if one not in known:
            raise _Misunderstood((name,), f"{name}: got {one!r}, {_nearest(one, known)}")
    return frozenset(value)


def _nearest(name: str, known: Collection[str]) -> str:
    """Suggest a known name for an unknown one."""
    close = get_close_matches(name.replace("_", "-"), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"expected some of {', '.join(sorted(known))}"


def _askers(name: str, value: Any, _: Vocabulary) -> frozenset[str]:
    if not isinstance(value, list) or not all(map(_is_key, value)):
        raise _Misunderstood((name,), "askers must be a list of public keys, as `fedassay keys` prints them")
    return frozenset(value)


def _is_key(text: object) -> bool:
    try:
        return isinstance(text, str) and len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except ValueError:
        return False


def _sites(name: str, value: Any, _: Vocabulary) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise _Misunderstood((name,), f"{name} must be a list of names of sites in quotes")
    return frozenset(value)


def _flag(name: str, value: Any, _: Vocabulary) -> bool:
    if type(value) is not bool:
        raise _Misunderstood((name,), f"{name}: got {value!r}, expected true or false")
    return value


def _total(name: str, value: Any, _: Vocabulary) -> Budget:
    if not isinstance(value, dict) or "epsilon" not in value:
        raise _Misunderstood((name,), "total must be a section ([total]) with epsilon, and perhaps delta")
    for entry, number in value.items():
        if entry not in ("epsilon", "delta") or type(number) not in (int, float):
            raise _Misunderstood(
                (name, entry), "total has the entries epsilon and delta only, which are numbers"
            )
    try:
        return Budget(**value)
    except UsageError as error:
        raise _Misunderstood((name, str(error).partition(":")[0]), f"total {error}".rstrip(".")) from error


def _profile(name: str, value: Any, _: Vocabulary) -> Any:
    try:
        return profile_named(value)
    except UsageError as error:
        raise _Misunderstood((name,), str(error).rstrip(".")) from error


def _summaries(name: str, value: Any, vocabulary: Vocabulary) -> dict[str, SummaryRule]:
    if not isinstance(value, dict):
        return dict.fromkeys(_names(name, value, vocabulary.summaries), SummaryRule())
    rules = {}
    for summary, entries in value.items():
        if summary not in vocabulary.summaries:
            wrong = f"summaries: got {summary!r}, {_nearest(summary, vocabulary.summaries)}"
            raise _Misunderstood((name, summary), wrong)
        if not isinstance(entries, dict):
            raise _Misunderstood((name, summary), f"{summary} must be a section ([summaries.{summary}])")
        has = {entry.name for entry in fields(vocabulary.summaries[summary])}
        for entry in entries:
            if entry not in has | {_NUMBERS}:
                expected = ", ".join(sorted(has | {_NUMBERS}))
                raise _Misunderstood(
                    (name, summary, entry), f"{summary} has no {entry!r}; expected some of {expected}"
                )
        ranges = {entry: _allowed((name, summary, entry), wanted) for entry, wanted in entries.items()}
        rules[summary] = SummaryRule(numbers=ranges.pop(_NUMBERS, Allowed()), parameters=ranges)
    return rules


def _allowed(path: tuple[str, ...], wanted: Any) -> Allowed:
    """Read a range ({least, most}), a list of values, or the only value."""
    if not isinstance(wanted, dict):
        return Allowed(values=tuple(wanted) if isinstance(wanted, list) else (wanted,))
    ends = {"least", "most"}
    if not wanted or not set(wanted) <= ends or any(type(end) not in (int, float) for end in wanted.values()):
        raise _Misunderstood(
            path, f"{path[-1]}: got {wanted!r}, expected least, most, or both, which are numbers"
        )
    try:
        return Allowed(**wanted)
    except UsageError as error:
        raise _Misunderstood(path, f"{path[-1]}: {error}".rstrip(".")) from error


# Numbers are checked by `SitePolicy`.
_ENTRIES: Mapping[str, Callable[[str, Any, Vocabulary], Any]] = {
    "tasks": lambda name, value, known: _names(name, value, known.tasks),
    "trust_models": lambda name, value, known: _names(name, value, known.trust_models),
    "units": lambda name, value, _: frozenset(map(Unit, _names(name, value, list(Unit)))),
    "neighbours": lambda name, value, _: frozenset(map(Neighbours, _names(name, value, list(Neighbours)))),
    "askers": _askers,
    "summaries": _summaries,
    "disclosure": _profile,
    "total": _total,
    **dict.fromkeys(WHOLE_NUMBERS, lambda name, value, _: value),
    **dict.fromkeys(
        (*EPSILONS, *SHARES), lambda name, value, _: float(value) if type(value) is int else value
    ),
    **dict.fromkeys(("same_set", "changed_rows"), _flag),
    "trusted_members": _sites,
}
