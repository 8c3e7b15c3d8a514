"""A coordinator that sends sites different messages: what it learns of a secure sum, through the shipped clients.

The liar drives the clients' endpoints itself, with requests that its own key signs. It may name another set of clients
to each member, other cohorts to other clients, sets that are too small, or other sets in another exchange; a site that
colludes passes on all it knows. From the answers it computes everything that follows: each answer, with the public
corrections, is one equation in the polynomials of the clients, and a combination in which no random value is left is a
total that is open. The claim is that this is one total, over at least M honest clients, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.audit.world import open_site
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.crypto.keys import KeyPair
from fedassay.crypto.packed import Packing
from fedassay.crypto.prekeys import DAY, total
from fedassay.kernel import envelope
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import Endpoint
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import COORDINATOR, Message, Plan, Randomness, Request
from fedassay.protocol.vocabulary import Exchange as Asked
from fedassay.tasks.card import DEFAULT
from fedassay.trust import TRUST_MODELS
from fedassay.trust.one_shot.messages import NamedSet, Spoken, Terms, read_answer, read_spoken

SiteNames = frozenset[str]
Told = Mapping[str, SiteNames]
"""Member to the set of clients that is named to it."""


@dataclass(frozen=True, kw_only=True)
class WeighedAnswers:
    """Consequence of some answers: the weights of the entries of each client, and the numbers that come out.

    One total over a set of clients is a combination that weighs all of these alike, and no others.
    """

    weights: Mapping[str, tuple[int, ...]]
    numbers: tuple[int, ...]

    @property
    def clients(self) -> SiteNames:
        """Clients whose entries it is made of."""
        return frozenset(name for name, weights in self.weights.items() if any(weights))

    @property
    def is_total(self) -> bool:
        """True if all of these count alike."""
        return len({self.weights[name] for name in self.clients}) == 1


@dataclass(frozen=True, kw_only=True)
class LiarsExchange:
    """One exchange of the liar: its terms, the messages of the clients that spoke, and the answers."""

    terms: Terms
    message: Message
    spoken: Mapping[str, tuple[Spoken, NDArray[np.uint64]]] = field(repr=False)
    told: Told = field(default_factory=dict)
    answers: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Liar:
    """A coordinator with a key that the sites have pinned, and no other scruple.

    Parameters
    ----------
    sites : the endpoints, by name.
    plan : the plan of the query, for all sites.
    identity : the coordinator's.
    colluding : sites that pass everything on to it, of which `pairs` gives the key pair of a prekey.
    """

    sites: Mapping[str, Endpoint]
    plan: Plan
    identity: Identity = field(repr=False)
    roster: Mapping[str, bytes] = field(repr=False)
    colluding: SiteNames = frozenset()
    pairs: Callable[[str, bytes], KeyPair | None] = field(default=lambda name, public: None, repr=False)
    reply_pair: KeyPair = field(default_factory=lambda: KeyPair.draw(SecureRandomness()), repr=False)
    refusals: list[str] = field(default_factory=list)
    """Refusals of sites, in order."""

    @property
    def asker(self) -> str:
        """Public key of the liar, as sites see it."""
        return key_to_text(self.identity.public)

    def begin(
        self, cohorts: Mapping[str, Sequence[str]] | None = None, *, study: str = "audit"
    ) -> LiarsExchange:
        """Ask the sites to speak; `cohorts` has the cohort that each site hears of, if these differ.

        Members are then asked under the terms of the first of these; the messages of others are kept all the same.
        """
        trust: Any = self.plan.setting.trust
        told = cohorts or dict.fromkeys(self.sites, tuple(sorted(self.sites)))
        members = sorted({name for cohort in told.values() for name in cohort})
        prekeys = {name: self.sites[name].offer(1, asker=self.asker)[0] for name in members}
        identifier, deadline = SecureRandomness().bytes(16), int(time.time()) + DAY
        first: LiarsExchange | None = None
        spoken = {}
        for name, cohort in told.items():
            message = {
                "cohort": sorted(cohort),
                "members": [[member, prekey] for member, prekey in prekeys.items()],
                "deadline": deadline,
            }
            asked = Asked(
                id=identifier,
                plans=(self.plan,),
                cohort=tuple(cohort),
                prekeys=prekeys,
                deadline=deadline,
                asker=self.asker,
                credentials=Credentials(identity=self.identity, roster=self.roster),
            )
            terms = Terms.of(trust, asked, trust.sizes_of(asked))
            first = first or LiarsExchange(terms=terms, message=message, spoken={})
            reply = self._ask(name, 0, message, terms, study)
            said = None if reply is None else read_spoken(reply, terms)
            if said is not None:
                spoken[name] = said
        assert first is not None
        return replace(first, spoken=spoken)

    def name(self, exchange: LiarsExchange, told: Told, *, study: str = "audit") -> LiarsExchange:
        """Name to each member its set, and keep the answers that come. Those that collude need not be asked."""
        answers, seen = {}, {}
        for member, clients in told.items():
            if member in self.colluding:
                continue
            named = NamedSet.of(
                exchange.terms, {name: exchange.spoken[name][0] for name in clients & exchange.spoken.keys()}
            )
            seen[member] = frozenset(named.clients)
            message = {**exchange.message, "named": named.to_message(exchange.terms)}
            reply = self._ask(member, 1, message, exchange.terms, study)
            read = None if reply is None else read_answer(reply, exchange.terms)
            if read is not None:
                answers[member] = read[0]
        return replace(exchange, told=seen, answers=answers)

    def name_to_all(self, exchange: LiarsExchange, clients: Iterable[str]) -> LiarsExchange:
        """Name the same set to every member of the exchange."""
        members = [name for name, _ in exchange.terms.members]
        return self.name(exchange, dict.fromkeys(members, frozenset(clients)))

    def _ask(self, name: str, leg: int, message: Message, terms: Terms, study: str) -> Message | None:
        trust = self.plan.setting.trust
        data = envelope.pack_request(
            study=study,
            trust=trust,
            tasks=(DEFAULT,),
            request=Request(
                exchange=terms.exchange,
                plans=(self.plan,),
                cohort=len(terms.cohort),
                leg=leg,
                recipient=name,
                message=message,
            ),
            reply_key=self.reply_pair.public,
        )
        reply = self.sites[name].answer(data, asker=self.asker)
        believed = Credentials(identity=self.identity, roster=self.roster)
        inner = envelope.opened(reply, self.reply_pair, request=data, sender=name, credentials=believed)
        said = envelope.open_reply(inner, sender=name, exchange=terms.exchange, leg=leg)
        if isinstance(said, envelope.Refusal):
            self.refusals.append(name)
            return None
        return said.message

    # --- what follows -------------------------------------------------------------------------------------

    def learned(self, exchange: LiarsExchange) -> list[WeighedAnswers]:
        """Return everything that follows from the answers, as independent combinations."""
        terms = exchange.terms
        packing, places = terms.sizes.packing, {name: j for j, (name, _) in enumerate(terms.members)}
        groups = _groups(exchange)
        equations = [
            _Equation(
                place=places[member],
                groups=tuple(member in seen for seen in groups.values()),
                shares=self._share(exchange, places[member], exchange.answers[member], exchange.told[member]),
            )
            for member in exchange.answers
        ]
        for member in self.colluding & places.keys():
            for place, clients in enumerate(groups):
                alone = tuple(number == place for number in range(len(groups)))
                pads = self._pads(exchange, member, clients)
                shares = self._share(exchange, places[member], pads, clients)
                equations.append(_Equation(place=places[member], groups=alone, shares=shares))
        packed = packing.packed
        return [
            WeighedAnswers(
                weights={
                    name: weights[place * packed : (place + 1) * packed]
                    for place, clients in enumerate(groups)
                    for name in clients
                },
                numbers=numbers,
            )
            for weights, numbers in _combinations(packing, equations, len(groups))
        ]

    def _pads(self, exchange: LiarsExchange, member: str, clients: SiteNames) -> NDArray[np.uint64]:
        """Return the sum of the pads that a colluding member shares with these clients."""
        own = self.pairs(member, dict(exchange.terms.members)[member].public)
        assert own is not None
        publics = {client: exchange.spoken[client][0].public for client in clients}
        keys = [exchange.terms.pad_key(own, key, (client, member, key)) for client, key in publics.items()]
        return total(keys, exchange.terms.columns)

    def _share(
        self, exchange: LiarsExchange, place: int, pads: NDArray[np.uint64], clients: SiteNames
    ) -> tuple[int, ...]:
        """Compute the matrix from draws to totals, from a stream without events in which one draw is not zero."""
        row = place - exchange.terms.sizes.threshold
        total = [int(one) for one in pads]
        if row >= 0:
            for client in clients:
                corrections = exchange.spoken[client][1][row]
                total = [(a + int(b)) % PRIME for a, b in zip(total, corrections, strict=True)]
        return tuple(total)


@dataclass(frozen=True, kw_only=True)
class _Equation:
    """A share of the sum of some groups of clients."""

    place: int
    groups: tuple[bool, ...]
    shares: tuple[int, ...]


def _groups(exchange: LiarsExchange) -> dict[SiteNames, SiteNames]:
    """Group the clients that were named to the same members, with these members: only sums can be separated."""
    found: dict[SiteNames, SiteNames] = {}
    for client in exchange.spoken:
        seen = frozenset(m for m in exchange.answers if client in exchange.told[m])
        found[seen] = found.get(seen, frozenset()) | {client}
    return {clients: seen for seen, clients in found.items()}


def _combinations(
    packing: Packing, equations: Sequence[_Equation], groups: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield combinations of the equations without random values: weights of the entries, and the results.

    A polynomial is its values at the entries' points and at t others, which are random.
    """
    rows = []
    for equation in equations:
        weights = _evaluation(packing, equation.place)
        random = [one * weight for one in equation.groups for weight in weights[packing.packed :]]
        entries = [one * weight for one in equation.groups for weight in weights[: packing.packed]]
        rows.append([*random, *entries, *equation.shares])
    free, known = groups * packing.threshold, groups * packing.packed
    done = 0
    for column in range(free):
        pivot = next((r for r in range(done, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        inverse = pow(rows[done][column], -1, PRIME)
        for r in range(done + 1, len(rows)):
            factor = rows[r][column] * inverse % PRIME
            if factor:
                rows[r] = [(a - factor * b) % PRIME for a, b in zip(rows[r], rows[done], strict=True)]
        done += 1
    for rest in rows[done:]:
        of_entries = tuple(rest[free : free + known])
        if any(of_entries):
            yield of_entries, tuple(rest[free + known :])


def _evaluation(packing: Packing, place: int) -> list[int]:
    """Return a member's share as a combination of a column's entries and of t values at other points."""
    known = [*range(1, packing.packed + 1), *range(-1, -packing.threshold - 1, -1)]
    x, weights = packing.packed + 1 + place, []
    for point in known:
        weight = 1
        for other in known:
            if other != point:
                weight = weight * (x - other) * pow(point - other, -1, PRIME) % PRIME
        weights.append(weight)
    return weights


# --- sites that a liar meets ----------------------------------------------------------------------------------


def liar_among(
    rows: Mapping[str, Mapping[str, NDArray[Any]]],
    plan: Plan,
    *,
    randomness: Randomness,
    colluding: int = 0,
    trust_model: type[Any] | None = None,
) -> Liar:
    """Make a liar, and sites with these rows that have pinned each other's keys; the last few collude.

    Parameters
    ----------
    trust_model : what the sites run in the place of the shipped code of that name.
    """
    identities = {name: Identity.draw(randomness) for name in (*rows, COORDINATOR)}
    roster = {name: identity.public for name, identity in identities.items()}
    catalogue = TRUST_MODELS if trust_model is None else {**TRUST_MODELS, trust_model.name: trust_model}
    clients = {}
    for name, columns in rows.items():
        believed = {other: key for other, key in roster.items() if other != COORDINATOR}
        credentials = Credentials(identity=identities[name], roster=believed)
        clients[name] = Client(open_site(name, columns, randomness, credentials), trust_models=catalogue)
    return Liar(
        sites=clients,
        plan=plan,
        identity=identities[COORDINATOR],
        roster=roster,
        colluding=frozenset(sorted(rows)[len(rows) - colluding :]),
        pairs=lambda name, public: clients[name].site.prekeys.pair(public),
    )


def is_one_total(opened: Sequence[WeighedAnswers]) -> bool:
    """Return whether these are one total over one set of clients, or nothing."""
    return all(one.is_total for one in opened) and len({one.clients for one in opened}) <= 1


def three_blocks(members: Sequence[str], clients: Sequence[str]) -> Iterator[Told]:
    """Yield what leaks first where a threshold is too low: G, G and G', and G', named to three blocks of members."""
    half = len(clients) // 2
    first, second = frozenset(clients[:half]), frozenset(clients[half:])
    for one, other in combinations(range(1, len(members)), 2):
        yield {
            **dict.fromkeys(members[:one], first),
            **dict.fromkeys(members[one:other], first | second),
            **dict.fromkeys(members[other:], second),
        }
