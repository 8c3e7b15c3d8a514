"""Promises of secure sums against a coordinator that lies: one total over enough honest clients, or nothing.

Two lines of defence are attacked apart. Members refuse sets that are too small (`least`); and whatever sets they
accept, answers to different ones do not combine (the threshold). So each attack is also made on members that accept any
set, where one total may open and no other; and on members whose threshold is one lower, where more than that must open:
an attack that breaks nothing would show nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.audit.equivocation import (
    Liar,
    LiarsExchange,
    SiteNames,
    WeighedAnswers,
    is_one_total,
    liar_among,
    three_blocks,
)
from fedassay.protocol.vocabulary import Budget, Plan, Protection, Randomness, Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust import DistributedDP, SecureSum
from fedassay.trust.one_shot.sizes import Sizes

SITES = 8
FEW, MANY = 6, 40
"""Sizes of a cohort that the coordinator chooses, and of the roster, of which a tenth may collude."""

SUMMARY = ScoreHistogram(transform="uniform", height=2)

Attack = Callable[[Liar], Iterator[LiarsExchange]]


class _AnySet:
    """Members that accept any set of clients, however small."""

    lower: ClassVar[int] = 0

    def sizes(self, *arguments: Any, **options: Any) -> Sizes:
        """Return the sizes as shipped, but for the smallest set, and a threshold that may be lower."""
        found: Sizes = super().sizes(*arguments, **options)  # type: ignore[misc]
        return replace(found, least=found.colluders + 1, packed=found.packed + self.lower)


class _SumOfAnySet(_AnySet, SecureSum):
    """See `_AnySet`."""


class _NoiseOfAnySet(_AnySet, DistributedDP):
    """See `_AnySet`."""


class _SumOneLower(_SumOfAnySet):
    """Secure sum of any set, with a threshold that is one lower."""

    lower = 1


class _NoiseOneLower(_NoiseOfAnySet):
    """Distributed noise of any set, with a threshold that is one lower."""

    lower = 1


@dataclass(frozen=True, kw_only=True)
class SecrecyCase:
    """A promise about what a lying coordinator opens, and one attack on it.

    Parameters
    ----------
    attack : in words.
    trust : what the sites run; `sites` of them, the last `colluding` of which collude.
    honest : the number of honest clients that every total that opens must be over.
    broken : True for a deliberately weakened variant, in which the attack must succeed.
    claimed : the number of clients that the coordinator states; by default the true number.
    """

    name: str
    attack: str
    trust: Any
    carry_out: Attack = field(repr=False)
    honest: int
    broken: bool = False
    sites: int = SITES
    colluding: int = 1
    claimed: int | None = None
    one_set: bool = False
    """True if all exchanges together may open one total only, and not each of them."""

    @property
    def statement(self) -> str:
        """Claim of the case."""
        return f"one total over at least {self.honest} honest clients, or nothing"


@dataclass(frozen=True, kw_only=True)
class Secrecy:
    """Totals that an attack has opened in each of its exchanges, and the number of refusals of sites."""

    case: SecrecyCase
    opened: tuple[tuple[WeighedAnswers, ...], ...]
    colluding: SiteNames
    refused: int
    seconds: float

    @property
    def opened_more(self) -> bool:
        """True if more than the claim has opened."""
        together = [tuple(one for found in self.opened for one in found)]
        fewest = min((len(one.clients - self.colluding) for one in together[0]), default=self.case.honest)
        exchanges = together if self.case.one_set else self.opened
        return fewest < self.case.honest or not all(map(is_one_total, exchanges))

    @property
    def violated(self) -> bool:
        """True if the claim is wrong; of a weakened variant, True if the attack does not even break that."""
        return self.opened_more != self.case.broken

    @property
    def words(self) -> str:
        """Description of the totals that were opened."""
        found = [one for exchange in self.opened for one in exchange]
        sizes = sorted({len(one.clients) for one in found if one.is_total}, reverse=True)
        totals = [f"a total over {size}" for size in sizes]
        others = ["a combination of several"] if any(not one.is_total for one in found) else []
        return ", ".join(totals + others) or "nothing"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "case": self.case.name,
            "attack": self.case.attack,
            "trust_model": self.case.trust.name,
            "claimed": self.case.statement,
            "weakened": self.case.broken,
            "opened": self.words,
            "refusals": self.refused,
            "violated": self.violated,
            "seconds": round(self.seconds, 1),
        }


def tried(case: SecrecyCase, *, randomness: Randomness) -> Secrecy:
    """Carry the attack out against sites that run what the case names."""
    started = time.perf_counter()
    liar = met(case, randomness)
    with _expected_refusals():
        opened = tuple(tuple(liar.learned(exchange)) for exchange in case.carry_out(liar))
    return Secrecy(
        case=case,
        opened=opened,
        colluding=liar.colluding,
        refused=len(liar.refusals),
        seconds=time.perf_counter() - started,
    )


@contextmanager
def _expected_refusals() -> Iterator[None]:
    """Silence the warnings of sites about refused requests: these are counted, and hundreds are meant to be refused."""
    log = logging.getLogger("fedassay.kernel.endpoint")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def met(case: SecrecyCase, randomness: Randomness) -> Liar:
    """Return the liar of a case, among sites with rows of their own."""
    rows = {
        f"site-{number:02}": {
            "score": np.full(3 + number, (number + 0.5) / case.sites),
            "label": np.arange(3 + number) % 2,
        }
        for number in range(case.sites)
    }
    return liar_among(
        rows,
        _plan(case.trust, case.claimed or case.sites),
        randomness=randomness,
        colluding=case.colluding,
        trust_model=type(case.trust),
    )


def _plan(trust: Any, clients: int) -> Plan:
    budget = Budget(epsilon=1.0) if trust.private else None
    setting = Setting(trust=trust, protection=Protection(), budget=budget, clients=clients)
    plan: Plan = trust.plan(Sum(of=SUMMARY), setting)
    return plan


# --- attacks --------------------------------------------------------------------------------------------------


def two_sets(liar: Liar) -> Iterator[LiarsExchange]:
    """Name other sets to other members of one exchange, in every way to cut them into three blocks."""
    honest = [name for name in sorted(liar.sites) if name not in liar.colluding]
    for told in three_blocks(honest, honest):
        yield liar.name(liar.begin(), told)


def first_leak(liar: Liar) -> Iterator[LiarsExchange]:
    """Name two sets as `two_sets` does, until more than one total opens."""
    for exchange in two_sets(liar):
        if not is_one_total(liar.learned(exchange)):
            yield exchange
            return


def fewer_silent(liar: Liar) -> Iterator[LiarsExchange]:
    """Name to each member another site as silent, so that each set is large enough by itself."""
    names = sorted(liar.sites)
    everybody = frozenset(names)
    told = {name: everybody - {names[(place + 1) % len(names)]} for place, name in enumerate(names)}
    yield liar.name(liar.begin(), told)


def one_small_set(liar: Liar) -> Iterator[LiarsExchange]:
    """Name the same small set to all, as if the others were silent: hardly more than the colluding sites."""
    yield liar.name_to_all(liar.begin(), [*sorted(liar.sites)[:2], *liar.colluding])


def two_cohorts(liar: Liar) -> Iterator[LiarsExchange]:
    """Lie in the first leg: some sites hear of other sites than the rest, and all are named together."""
    names = sorted(liar.sites)
    first, second = names[: SITES // 2 + 1], names[SITES // 2 - 1 :]
    for alone in (second[0], first[-1]):  # both are in both cohorts, and hear of the second
        exchange = liar.begin({name: first if name < alone else second for name in names})
        yield liar.name_to_all(exchange, exchange.spoken)


def two_exchanges(liar: Liar) -> Iterator[LiarsExchange]:
    """Ask the same question twice, the second time without one site: the difference would be its table."""
    names = sorted(liar.sites)
    yield liar.name_to_all(liar.begin(), names)
    yield liar.name_to_all(liar.begin(), names[1:])


def a_rule_that_comes_later(liar: Liar) -> Iterator[LiarsExchange]:
    """Open a total over all sites but one without a rule about sets, and then one over all under the rule."""
    names = sorted(liar.sites)
    free = replace(liar, plan=_plan(SecureSum(), len(names)))
    yield free.name_to_all(free.begin(), names[1:])
    yield liar.name_to_all(liar.begin(), names)


def a_smaller_roster(liar: Liar) -> Iterator[LiarsExchange]:
    """Claim that fewer sites than are pinned exist, so that fewer colluders would be reckoned with."""
    names = sorted(liar.sites)[-FEW:]
    yield liar.name_to_all(liar.begin(dict.fromkeys(names, names)), names[1:])


def _cases() -> Iterator[SecrecyCase]:
    sums: list[tuple[str, Any, Any, Any]] = [
        ("secure-sum", SecureSum(), _SumOfAnySet(), _SumOneLower()),
        ("distributed-dp", DistributedDP(), _NoiseOfAnySet(), _NoiseOneLower()),
    ]
    said = "each member is told another set of clients"
    for name, shipped, any_set, lower in sums:
        case = partial(SecrecyCase, trust=shipped, honest=shipped.sizes(SITES).honest)
        weakened = partial(SecrecyCase, honest=1)
        yield case(name=f"{name}/sets-1", attack=said, carry_out=two_sets)
        yield case(name=f"{name}/sets-2", attack=said, carry_out=fewer_silent)
        yield weakened(
            name=f"{name}/any-set", attack=f"{said}; members accept any", trust=any_set, carry_out=two_sets
        )
        yield weakened(
            name=f"{name}/one-lower",
            attack=f"{said}; members accept any, and the threshold is one lower",
            trust=lower,
            carry_out=first_leak,
            broken=True,
        )
        yield case(
            name=f"{name}/small-set",
            attack="all members are told that nearly all clients were silent",
            carry_out=one_small_set,
        )
        yield case(
            name=f"{name}/cohorts",
            attack="clients are told of different cohorts, and named together",
            carry_out=two_cohorts,
        )
        yield case(
            name=f"{name}/roster",
            attack=f"{FEW} of {MANY} pinned sites are said to be all, four of which collude",
            carry_out=a_smaller_roster,
            honest=shipped.sizes(FEW, roster=MANY, members=FEW).honest,
            sites=MANY,
            colluding=4,
            claimed=FEW,
        )
    again = partial(SecrecyCase, honest=SecureSum().sizes(SITES).honest, one_set=True)
    asked = "the same question over all sites and over all but one;"
    yield again(
        name="secure-sum/same-set",
        attack=f"{asked} the second time with a rule about sets",
        trust=SecureSum(same_set=True),
        carry_out=a_rule_that_comes_later,
    )
    yield again(
        name="secure-sum/two-exchanges",
        attack=f"{asked} no rule about sets",
        trust=SecureSum(same_set=False),
        carry_out=two_exchanges,
        broken=True,
    )


@lru_cache(maxsize=1)
def secrecy_cases() -> Mapping[str, SecrecyCase]:
    """Map names to cases."""
    return MappingProxyType({case.name: case for case in _cases()})
