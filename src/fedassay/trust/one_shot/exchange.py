"""Secure sum in two legs: every client speaks once, members answer once, and one exact total opens.

A client's vector is cut into columns, and each column is shared among k members by a polynomial (`crypto.packed`). No
share is sent: member j's *pad*, which only client i and member j can compute, is its share for j ≤ t, and hides the
correction from pad to share for the others.

0. *Speak* (all clients; rows are measured here): a fresh public key e_i, and the corrections. The client forgets the
   private half.
1. *Answer* (members): given the set U of clients that were heard, a member adds up its pads with them, records the
   answer, deletes its prekey, and replies.

Any r members' answers and the corrections open Σ_{i∈U} x_i. Pads are one-time: they are derived (X25519, HKDF-SHA256,
AES-256-GCM) from a fresh key of the client and a prekey of the member, for one session, which is a digest of all that
was agreed. Guarantees, proof and limits: `docs/explanation/secure-sum.md`. Sizes: `one_shot_sizes`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from fedassay.crypto import field61
from fedassay.crypto.field61 import Elements
from fedassay.crypto.keys import KeyPair, Secret, is_usable
from fedassay.crypto.prekeys import PAD_KEY_BYTES, UNFOLDED, expand, pad, total
from fedassay.errors import ParameterError, ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    TOTAL_BITS,
    Exchange,
    Measure,
    Message,
    Opened,
    PartyKeys,
    Plan,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Sum,
    TrustModel,
    Vector,
)
from fedassay.trust.card import OneShotParameters, refuse_points
from fedassay.trust.one_shot import messages
from fedassay.trust.one_shot.messages import NamedSet, Spoken, Terms, require
from fedassay.trust.one_shot.sizes import (
    LARGEST_COMMITTEE,
    NAMED,
    Sizes,
    attendance,
    described,
    opening_words,
    sizes,
)

LARGEST_TOTAL = 2 ** (TOTAL_BITS + 1) - 1
LARGEST_COHORT = 2**32


@dataclass(frozen=True, kw_only=True)
class OneShot(OneShotParameters, TrustModel):
    """Both halves of the protocol, without a driver: base of the trust models that add up under pads.

    Guarantee: against a coordinator that says whatever it likes to each party, and up to ⌈collusion·N⌉ of the N sites
    of the roster that help it, an exchange reveals the total over one set of at least `Sizes.honest` honest clients,
    or nothing. Against a coordinator that follows the protocol, any t members may help it. It survives ⌊dropout·n⌋
    clients that do not speak and `Sizes.silent_members` members that do not answer.

    Assumption: sites have pinned each other's keys; who colludes is settled beforehand; with `members`, no more of
    these collude than the same share. A client that lies about its own vector is not detected.

    """

    member_leg: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if 3 * self.dropout + self.collusion >= 1:
            raise ParameterError(
                "dropout",
                f"got {self.dropout:.3g} with `collusion={self.collusion:.3g}`, expected 3 * dropout + "
                "collusion below 1.",
            )
        if len(set(self.members)) != len(self.members):
            raise ParameterError("members", "expected the names of sites, each once.")

    # --- sizes --------------------------------------------------------------------------------------------

    def committee(self, cohort: Sequence[str]) -> tuple[str, ...]:
        """Return the members that are named, or all clients."""
        if self.members:
            return self.members
        if len(cohort) > LARGEST_COMMITTEE:
            raise UsageError(
                f"secure sum of {len(cohort):,} clients: expected at most {LARGEST_COMMITTEE:,} where all of them open "
                f"the total; name some sites that do (`members`, {NAMED} of them, say)."
            )
        return tuple(sorted(cohort))

    def sizes(self, clients: int, *, roster: int | None = None, members: int | None = None) -> Sizes:
        """Return the numbers for a cohort of `clients` out of `roster` sites (no others by default).

        All of the roster are members, unless their number is given. Where members would have to be named and are not,
        as in a plan without names, sixteen are assumed.
        """
        everybody = clients if roster is None else roster
        named = bool(self.members) or (members is None and everybody > LARGEST_COMMITTEE)
        count = members if members is not None else len(self.members) or (NAMED if named else everybody)
        return sizes(
            clients=clients,
            roster=everybody,
            members=count,
            dropout=self.dropout,
            collusion=self.collusion,
            smallest=self.minimum_cohort,
            named=named,
            everybody=self.same_set,
        )

    def sizes_of(self, exchange: Exchange) -> Sizes:
        """Return the numbers of an exchange."""
        roster, members = exchange.plans[0].setting.clients, len(exchange.prekeys)
        return self.sizes(len(exchange.cohort), roster=roster, members=members)

    def check_cohort(self, clients: int) -> None:
        """Refuse a cohort that is too small, or of which no total would be safe."""
        if clients < self.minimum_cohort:
            raise TooFewClients(
                f"secure sum: got {clients} client{'s' * (clients != 1)}, expected at least {self.minimum_cohort}, "
                "because a total over fewer reveals too much of each; add clients, or use another trust model "
                "(`privacy='plain'`)."
            )
        self.sizes(clients)

    def check_planned(self, clients: int) -> None:
        """Check a cohort before anything is asked; 0 stands for a number that is not known yet."""
        if clients > 0:
            self.check_cohort(clients)

    def with_members(self, names: Sequence[str]) -> Any:
        """Name the first sixteen members, if none are named; see `TrustModel`."""
        return self if self.members else replace(self, members=tuple(names[:NAMED]))

    def require_cohort(self, clients: int, *, roster: int, members: int) -> None:
        """See `TrustModel`."""
        self.check_cohort(clients)
        self.sizes(clients, roster=roster, members=members)

    def fewest_survivors(self, clients: int) -> int:
        """Return the fewest clients over which an honest member opens a total."""
        return self.sizes(clients).least

    def attendance(self, clients: int) -> str:
        """See `TrustModel`."""
        return attendance(self.sizes(clients))

    def described(self, clients: int) -> str:
        """Describe members, dropouts and colluders for statements; `clients` of 0 are not known yet."""
        found = self.sizes(clients) if clients >= self.minimum_cohort else None
        return described(found, named=bool(self.members), private=self.private)

    def require_sum(self, query: Query[Any]) -> None:
        """Refuse what is no sum."""
        refuse_points(query)
        if not isinstance(query, Sum):
            raise UnsupportedQuery(
                f"{type(query).__name__} of {query.of.name}: a secure sum hides who sent what, so it cannot "
                "return one answer per client; use plain or local-dp."
            )

    def check_total(self, plan: Plan, clients: int) -> None:
        """Prove that the total over `clients` clients is below 2^60, or refuse the query."""
        summary = plan.query.of
        largest = clients * (summary.largest + self.largest_extra(plan))
        if largest > LARGEST_TOTAL:
            raise UnsupportedQuery(
                f"{summary.name}: a total over {clients:,} clients can reach {largest:.3g}, expected at most "
                "2^60 - 1, so that it cannot wrap; ask for a smaller bound or fewer clients."
            )

    def largest_extra(self, plan: Plan) -> int:
        """Return a bound on how far an entry of `contribution` can exceed what was measured."""
        return 0

    def contribution(
        self, plans: Sequence[Plan], measure: Measure, numbers: Sizes, randomness: Randomness
    ) -> Vector:
        """Return the vector that a client hides with its pads, one plan after the other; called once per exchange."""
        return measured(plans, measure)

    def largest_reply(self, exchange: Exchange) -> int:
        """Return a bound that no honest reply reaches, in bytes."""
        length = sum(plan.query.of.length for plan in exchange.plans)
        found = self.sizes_of(exchange)
        size = (1 << 16) + 8 * found.packing.corrected * found.packing.columns(length)
        if size > wire.LARGEST_MESSAGE:
            raise UnsupportedQuery(
                f"secure sum of {length:,} numbers: each client would send {size:,} bytes, expected at most "
                f"{wire.LARGEST_MESSAGE:,}; ask for fewer numbers, or name fewer members."
            )
        return size

    # --- the client half ----------------------------------------------------------------------------------

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Speak, or answer as a member. `ProtocolError` for anything off; a client that refuses is simply missing."""
        require(request.leg in (0, 1), f"got leg {request.leg}, expected leg 0 or 1.")
        terms = self._told_terms(request)
        if request.leg == 0:
            require(request.recipient in terms.cohort, "this client is not in the cohort.")
            return self._speak(terms, request, measure, randomness), {}
        return self._answer(terms, request), {}

    def _told_terms(self, request: Request) -> Terms:
        """Return the terms of a request, with every number computed here."""
        asked = messages.told(request)
        n, N, names = len(asked.cohort), request.plans[0].setting.clients, tuple(asked.prekeys)
        require(
            self.minimum_cohort <= n <= N <= LARGEST_COHORT
            and all(plan.setting.clients == N for plan in request.plans),
            f"got {n} clients of {N}, expected at least {self.minimum_cohort}.",
        )
        if self.members:
            require(names == self.members, "got other members than the study names.")
        else:
            require(names == tuple(sorted(names)), "the members are not in order.")
            require(set(asked.cohort) <= set(names), "a client of the cohort is no member.")
        try:
            terms = self._terms(asked)
        except TooFewClients as error:
            raise ProtocolError(str(error)) from error
        messages.require_pinned(terms, request, self)
        return terms

    def _speak(self, terms: Terms, request: Request, measure: Measure, randomness: Randomness) -> Message:
        """Measure, and send the corrections under pads that nothing here can make again (leg 0)."""
        name, packing, own = request.recipient, terms.sizes.packing, KeyPair.draw(randomness)
        rows = packing.rows(self.contribution(request.plans, measure, terms.sizes, randomness))
        while True:
            keys = [
                terms.pad_key(own, key.public, (name, member, own.public)) for member, key in terms.members
            ]
            corrections = packing.corrections(rows, expand(keys, terms.columns, packing.at_once))
            if corrections is not None:
                break
            own = KeyPair.draw(randomness)
        words = terms.spoken(name, own.public)
        signature = b"" if request.credentials is None else request.credentials.sign(messages.SPOKEN, words)
        return {"public": own.public, "corrections": corrections, "signature": signature}

    def _answer(self, terms: Terms, request: Request) -> Message:
        """Add up the pads with the named clients, once (leg 1); rows are not touched."""
        name, membership = request.recipient, request.membership
        public = dict(terms.members).get(name)
        if public is None or membership is None:
            raise ProtocolError("secure sum: this site is no member.")
        named = messages.told_set(request, terms)

        def compute(own: KeyPair) -> bytes:
            keys = [
                terms.pad_key(own, spoken.public, (client, name, spoken.public))
                for client, spoken in named.clients.items()
            ]
            answer = total(keys, terms.columns)
            credentials, words = request.credentials, terms.answered(named)
            signature = b"" if credentials is None else credentials.sign(messages.ANSWERED, words)
            return wire.encode({"answer": answer, "signature": signature})

        opened = Opened(
            clients=frozenset(named.clients),
            exact=any(plan.noise.law == NO_NOISE.law for plan in request.plans),
            same_set=self.same_set,
            difference=self.cohort_difference,
        )
        reply = membership.answer(
            public.public, session=terms.session, digest=named.digest, opened=opened, compute=compute
        )
        return wire.decode(reply)

    # --- the server half ----------------------------------------------------------------------------------

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Ask all clients once and the members once, and return one exact total per plan."""
        if len(set(exchange.cohort)) != len(exchange.cohort):
            raise UsageError("secure sum: two clients of the cohort have the same name.")
        self.check_cohort(len(exchange.cohort))
        for plan in exchange.plans:
            self.check_total(plan, len(exchange.cohort))
        terms = self._terms(exchange)
        heard = _Heard(terms, exchange.credentials)
        message = terms.to_message()
        replies = yield Round(requests=dict.fromkeys(terms.cohort, message), take=heard.take)
        least = terms.sizes.least
        if len(replies) < least:
            raise TooFewClients(
                f"secure sum: {len(replies)} of {len(terms.cohort)} clients spoke, expected at least {least}; nothing "
                "was revealed."
            )
        named = NamedSet.of(terms, {name: Spoken(**reply) for name, reply in replies.items()})
        message = {**message, "named": named.to_message(terms)}
        replies = yield Round(requests=dict.fromkeys(dict(terms.members), message))
        opened, opening = self._open(terms, named, field61.reduce(heard.corrections), replies, exchange)
        ends = accumulate(plan.query.of.length for plan in exchange.plans)
        return tuple(
            Released(value=piece, noise=NO_NOISE, clients=len(named.clients), opening=opening)
            for piece in np.split(opened, list(ends)[:-1])
        )

    def _terms(self, exchange: Exchange) -> Terms:
        return Terms.of(self, exchange, self.sizes_of(exchange))

    def _open(
        self, terms: Terms, named: NamedSet, corrections: Elements, replies: Replies, exchange: Exchange
    ) -> tuple[Vector, Message]:
        """Open the total, from the answers that are there; return it with who gave them."""
        packing, needed = terms.sizes.packing, terms.sizes.needed
        words, credentials = terms.answered(named), exchange.credentials
        answers = {
            name: read
            for name, _ in terms.members
            if (read := messages.read_answer(replies.get(name), terms)) is not None
            and (credentials is None or credentials.verifies(name, messages.ANSWERED, words, read[1]))
        }
        if len(answers) < needed:
            raise TooFewClients(
                f"secure sum: {len(answers)} of {len(terms.members)} members answered, expected at least {needed}; the "
                "total stays hidden."
            )
        shares = {
            place: packing.share(place, answers[name][0], corrections)
            for place, (name, _) in enumerate(terms.members)
            if name in answers
        }
        # Always from the secure source: what is drawn later, such as the next cohort, does not depend on this check.
        check = pad(Secret(SecureRandomness().bytes(PAD_KEY_BYTES)), terms.columns)
        if not packing.consistent(shares, check):
            raise ProtocolError(
                "secure sum: the answers do not fit together: at least one client or member sent something false. The "
                "total stays hidden, and who it was cannot be told. Only a new study can go on."
            )
        keys = messages.keys_of([*terms.cohort, *dict(terms.members)], credentials)
        opening: Message = {
            "exchange": exchange.id.hex(),
            "terms": terms.agreed.hex(),
            "keys": {name: key.hex() for name, key in keys.items()},
            "clients": list(named.clients),
            "set": named.digest.hex(),
            "members": {name: signature.hex() for name, (_, signature) in sorted(answers.items())},
            "asked": len(terms.members),
            "needed": needed,
            "statement": opening_words(len(answers), asked=len(terms.members), needed=needed),
        }
        return packing.read(packing.open(shares), terms.length), opening


class _Heard:
    """Receiver of the coordinator in leg 0: checks messages as members will, and keeps a folded sum of corrections."""

    def __init__(self, terms: Terms, credentials: PartyKeys | None) -> None:
        self._terms, self._credentials, self._publics = terms, credentials, set[bytes]()
        self.corrections: Elements = np.zeros((terms.sizes.packing.corrected, terms.columns), np.uint64)

    def take(self, name: str, reply: Message) -> Message | None:
        """Return the part of a message that is kept; None for one that members would refuse, which would stop all."""
        found = messages.read_spoken(reply, self._terms)
        if found is None:
            return None
        spoken, corrections = found
        signed = messages.is_spoken_by(name, spoken, self._terms, self._credentials)
        if not signed or spoken.public in self._publics or not is_usable(spoken.public):
            return None
        self._publics.add(spoken.public)
        self.corrections += corrections
        if len(self._publics) % UNFOLDED == 0:
            self.corrections = field61.fold(self.corrections)
        return spoken._asdict()


def measured(plans: Sequence[Plan], measure: Measure) -> Vector:
    """Measure all vectors, one behind the other."""
    vectors = measure()
    shapes = [(plan.query.of.length,) for plan in plans]
    require(
        [vector.shape for vector in vectors] == shapes and all(v.dtype == np.int64 for v in vectors),
        "expected one vector of whole numbers per query, as long as its summary says.",
    )
    return np.concatenate(vectors) if len(vectors) > 1 else vectors[0]
