"""Secure sum: the server learns the total over the clients, exactly, and nothing else.

The protocol is double masking (K. Bonawitz et al., Practical secure aggregation for privacy-preserving
machine learning, CCS 2017, Figure 4) on a sparse graph (Bell et al., CCS 2020, see `secure_sum_graph`).
Client i holds the vector x_i and sends, modulo 2^64,

    y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(s_ij) − Σ_{j<i} PRG(s_ij)        over its neighbours j

where s_ij is a key that only i and j can compute and b_i is a seed that only i knows. In the sum over all
clients the s_ij cancel. Shares of b_i and of i's private mask key are dealt to i's neighbours beforehand, so
that afterwards t of them can open exactly one of the two: b_i if y_i arrived, the mask key if it did not.
(Without b_i, a y_i that arrives after its mask key was opened would be readable.)

Four legs; a client may fall silent at any of them:

0. *advertise keys*: each client sends two public keys, one for sealing, one for masks, signed if the clients
   have pinned each other's identities.
1. *share keys*: each client deals shares of its seed and of its mask key, sealed for each neighbour, with a
   commitment to every share, so that a false share is recognised and ignored on its own.
2. *masked input*: each client opens the shares dealt to it, measures, and sends y_i.
3. *unmask*: told who has survived, each client reveals one share per neighbour: of the seed of a survivor, of
   the mask key of a silent one. Never both.

Guarantees, assumptions and limits: `docs/explanation/secure-sum.md`. All keys are bound to a *session* (see
`secure_sum_keys`), state between legs is kept by the caller, and a state is good for one leg only.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from double_masking import messages
from double_masking.graph import Graph, parameters
from double_masking.keys import (
    KEY,
    SEED,
    SIGNED_KEYS,
    adds,
    channel,
    commit,
    pair_mask,
    question,
    seal_shares,
    self_mask,
    session_of,
    signed_words,
    unseal_shares,
)
from double_masking.masks import Words, add_masks
from double_masking.messages import Dealt, Keys, Revealed, readable, require
from double_masking.opening import Opening
from double_masking.shamir import SECRET_BYTES, split
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    SECOND_SERVER,
    Exchange,
    Measure,
    Message,
    Plan,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Vector,
)

_Near = dict[str, list[str]]
"""A client to its neighbours."""

LARGEST_TOTAL = 2**63 - 1
LARGEST_COHORT = 2**32
SMALLEST_COHORT = 3
"""With two clients, each would read the other's vector off the total."""


class _Terms(NamedTuple):
    """What all parties of a run agree on; `session` is a digest that contains the rest."""

    clients: int
    neighbours: int
    threshold: int
    session: bytes


@dataclass(frozen=True, kw_only=True)
class DoubleMasking:
    """Both halves of the protocol, without a driver: what trust models that sum under masks are built on.

    Guarantee: against the server and up to ⌊collusion·n⌋ of the n clients that help it, a run reveals the
    total over its survivors (at least `minimum_cohort`) and nothing else; it survives any ⌊dropout·n⌋ clients
    falling silent at any leg. The probabilities that the random graph breaks this are at most 2^-40 and 2^-20
    (`secure_sum_graph.parameters`).

    Assumption: the server hands on the clients' public keys unchanged (a server that replaced them could pose
    as the neighbours; clients with `credentials` sign their keys and believe only signed ones), draws the
    exchange id, from which every client finds its neighbours, at random, and tells all clients the same.
    A server that tells them different things about who survived never gets both secrets of a client, but may
    get the total over fewer clients than it showed to each. A client that lies about its own vector is not
    detected.
    """

    dropout: float = 0.2
    collusion: float = 0.1
    minimum_cohort: int = SMALLEST_COHORT

    def __post_init__(self) -> None:
        if not (self.dropout >= 0 and self.collusion >= 0 and 2 * self.dropout + self.collusion < 1):
            raise UsageError(
                f"dropout {self.dropout:.3g} with collusion {self.collusion:.3g}: "
                "expected 2 * dropout + collusion below 1."
            )
        if type(self.minimum_cohort) is not int or self.minimum_cohort < SMALLEST_COHORT:
            raise UsageError(
                f"smallest cohort of a secure sum: got {self.minimum_cohort}, expected at least "
                f"{SMALLEST_COHORT}; with two clients, each reads the other's vector off the total."
            )

    def check_cohort(self, clients: int) -> None:
        """Refuse a cohort that is too small, or for which no parameters exist."""
        if clients < self.minimum_cohort:
            raise TooFewClients(
                f"secure sum: got {clients} client{'s' * (clients != 1)}, expected at least {self.minimum_cohort}, "
                "because a total over fewer reveals too much of each."
            )
        parameters(clients, self.dropout, self.collusion)

    def fewest_survivors(self, clients: int) -> int:
        """A total over fewer of the clients is opened by nobody: honest clients refuse their shares."""
        return self.minimum_cohort

    def check_total(self, plan: Plan, clients: int) -> None:
        """Prove that the total over so many clients fits into 64 bits, or refuse the query."""
        summary = plan.query.of
        largest = clients * (summary.largest + self.largest_extra(plan))
        if largest > LARGEST_TOTAL:
            raise UnsupportedQuery(
                f"{summary.name}: a total over {clients:,} clients can reach {largest:.3g}, expected at most "
                "2^63 - 1, so that it cannot wrap; ask for a smaller bound or fewer clients."
            )

    def largest_extra(self, plan: Plan) -> int:
        """By how much an entry of `contribution` can exceed what was measured."""
        return 0

    def contribution(
        self, plans: Sequence[Plan], measure: Measure, clients: int, randomness: Randomness
    ) -> Vector:
        """What a client puts under its masks, all plans one behind the other; called once per exchange."""
        return measured(plans, measure)

    def agreed_numbers(self, clients: int) -> tuple[int, ...]:
        """What a total rests on besides the graph; clients that were told otherwise share no keys."""
        return (self.fewest_survivors(clients),)

    def _terms(self, exchange: bytes, asked: bytes, clients: int, names: Sequence[str]) -> _Terms:
        """What all clients arrive at by themselves."""
        k, t, _, _ = parameters(clients, self.dropout, self.collusion)
        numbers = (clients, k, t, *self.agreed_numbers(clients))
        session = session_of(exchange=exchange, asked=asked, numbers=numbers, names=names)
        return _Terms(clients=clients, neighbours=k, threshold=t, session=session)

    # --- the client half ------------------------------------------------------------------------------

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Answer one leg. `ProtocolError` for anything off; a client that refuses is simply missing."""
        expected = state.get("leg", 0)
        require(
            request.leg == expected <= 3 and state.get("exchange", request.exchange) == request.exchange,
            f"got leg {request.leg}, expected leg {expected} of the same exchange.",
        )
        if request.leg == 0:
            return self._advertise_keys(request, randomness)
        if request.leg == 1:
            return _share_keys(request, state, randomness)
        if request.leg == 2:
            return self._mask_input(request, state, measure, randomness)
        return self._reveal_shares(request, state)

    def _advertise_keys(self, request: Request, randomness: Randomness) -> tuple[Message, Message]:
        """Leg 0. The client works out the numbers itself and refuses others."""
        told = messages.told_terms(request.message, name=request.recipient)
        n, k, t, credentials = told.clients, told.neighbours, told.threshold, request.credentials
        require(n == request.cohort, f"got {n} clients, expected {request.cohort} as the request says.")
        require(
            self.minimum_cohort <= n <= LARGEST_COHORT,
            f"got {n} clients, expected at least {self.minimum_cohort}.",
        )
        require(
            credentials is None or all(one != SECOND_SERVER and credentials.knows(one) for one in told.names),
            "the cohort holds a client whose key is not pinned here.",
        )
        require(
            told.question == question(request.plans), "the server's question is not the one that was asked."
        )
        try:
            terms = self._terms(request.exchange, told.question, n, told.names)
        except UsageError as error:
            raise ProtocolError(str(error)) from error
        require(
            (k, t) == (terms.neighbours, terms.threshold),
            f"got {k} neighbours and threshold {t} for {n} clients, expected {terms.neighbours} and "
            f"{terms.threshold}.",
        )
        seal, mask = KeyPair.draw(randomness), KeyPair.draw(randomness)
        words = signed_words(terms.session, request.recipient, seal.public, mask.public)
        ring = _neighbours(told.names, request.exchange, k, request.recipient) if told.names else []
        signature = b"" if credentials is None else credentials.sign(SIGNED_KEYS, words)
        return {"seal_key": seal.public, "mask_key": mask.public, "signature": signature}, {
            "leg": 1,
            "exchange": request.exchange,
            **terms._asdict(),
            "ring": ring,
            "seal_private": seal.private.data,
            "mask_private": mask.private.data,
        }

    def _mask_input(
        self, request: Request, state: Message, measure: Measure, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Leg 2. Open the shares dealt to this client, measure, mask. The only leg that touches data.

        A dealer whose shares do not open is kept as a partner: its mask still cancels, and refusing would let one
        client silence all its neighbours. Should its shares be needed later, the server finds and names it.
        """
        name, session, mask_keys = request.recipient, state["session"], state["mask_keys"]
        sealed = messages.told_sealed(request.message, among=mask_keys, least=state["threshold"])
        opened = {
            j: unseal_shares(Secret(state["unseal_keys"][j]), sealed[j], session=session, route=(j, name))
            for j in sorted(sealed)
        }
        own = KeyPair.of(Secret(state["mask_private"]))
        masks = {j: pair_mask(session, own, name, j, mask_keys[j]) for j in opened}
        vector = self.contribution(request.plans, measure, state["clients"], randomness)
        masked = add_masks(
            vector.view(np.uint64),
            plus=[
                self_mask(session, Secret(state["seed"]), name),
                *(mask for j, mask in masks.items() if adds(name, j)),
            ],
            minus=[mask for j, mask in masks.items() if not adds(name, j)],
        )
        # What could open this client's own mask is forgotten here; what is left are shares for its neighbours.
        kept = {field: state[field] for field in ("exchange", "clients", "neighbours", "threshold")}
        return {"masked": masked}, {
            **kept,
            "leg": 3,
            "partners": list(opened),
            "seed_shares": {j: shares[0].data for j, shares in opened.items() if shares is not None},
            "key_shares": {j: shares[1].data for j, shares in opened.items() if shares is not None},
        }

    def _reveal_shares(self, request: Request, state: Message) -> tuple[Message, Message]:
        """Leg 3. One share per neighbour, and only if enough of them survive.

        The checks are what `parameters` builds on: an honest client that sees fewer than t live neighbours
        stays silent. The next state holds no share any more, so the other kind cannot be had later.
        """
        survivors = messages.told_survivors(
            request.message,
            among=state["partners"],
            least=state["threshold"],
            cohort=self.fewest_survivors(state["clients"]),
            clients=state["clients"],
            complete=state["neighbours"] == state["clients"] - 1,
        )
        seeds = {j: share for j, share in state["seed_shares"].items() if j in survivors}
        keys = {j: share for j, share in state["key_shares"].items() if j not in survivors}
        return {"seed_shares": seeds, "key_shares": keys}, {"leg": 4, "exchange": request.exchange}

    # --- the server half ------------------------------------------------------------------------------

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Ask the four legs, go on with those who answer, and return one exact total per plan."""
        cohort = exchange.cohort
        if len(set(cohort)) != len(cohort):
            raise UsageError("secure sum: two clients of the cohort have the same name.")
        self.check_cohort(len(cohort))
        for plan in exchange.plans:
            self.check_total(plan, len(cohort))
        lengths = [plan.query.of.length for plan in exchange.plans]
        asked = question(exchange.plans)
        k = parameters(len(cohort), self.dropout, self.collusion).neighbours
        names = () if k == len(cohort) - 1 else tuple(sorted(cohort))
        terms = self._terms(exchange.id, asked, len(cohort), names)
        graph = Graph.of(cohort, exchange=exchange.id, degree=terms.neighbours)

        keys, dealt, near = yield from self._collect_shares(terms, asked, graph, names)
        masked, alive, revealed = yield from self._collect_vectors(terms, dealt, near, sum(lengths))
        opening = Opening(
            session=terms.session,
            threshold=terms.threshold,
            keys=keys,
            dealt=dealt,
            alive=alive,
            revealed=revealed,
        )
        total = opening.unmask(masked).view(np.int64)
        pieces = np.split(total, list(accumulate(lengths))[:-1])
        return tuple(Released(value=piece, noise=NO_NOISE, clients=len(masked)) for piece in pieces)

    def _collect_shares(
        self, terms: _Terms, asked: bytes, graph: Graph, names: Sequence[str]
    ) -> Generator[Round, Replies, tuple[dict[str, Keys], dict[str, Dealt], _Near]]:
        """Legs 0 and 1: public keys and sealed shares, and who is left to go on with whom.

        A client with fewer than t neighbours left could never be unmasked. To go on without it does not help:
        its neighbours would then lack one more, and in simulated rings everybody was gone in the end.
        """
        n, k, t, _ = terms
        message: Message = {
            "clients": n,
            "neighbours": k,
            "threshold": t,
            "question": asked,
            "names": list(names),
        }
        replies = yield Round(requests={i: dict(message) for i in graph.ring})
        keys = readable(replies, graph.ring, lambda _, reply: messages.read_keys(reply))
        near = graph.among(keys.keys())
        self._check_left(len(keys), "advertised keys", near, terms)

        replies = yield Round(
            requests={
                i: {
                    "seal_keys": {j: keys[j].seal for j in neighbours},
                    "mask_keys": {j: keys[j].mask for j in neighbours},
                    "signatures": {j: keys[j].signature for j in neighbours},
                }
                for i, neighbours in near.items()
            }
        )
        dealt = readable(replies, near, lambda i, reply: messages.read_dealt(reply, near[i]))
        near = graph.among(dealt.keys())
        self._check_left(len(dealt), "shared keys", near, terms)
        return keys, dealt, near

    def _collect_vectors(
        self, terms: _Terms, dealt: Mapping[str, Dealt], near: _Near, length: int
    ) -> Generator[Round, Replies, tuple[dict[str, Words], _Near, dict[str, Revealed]]]:
        """Legs 2 and 3: masked vectors, and the shares that open what has not cancelled.

        From here on, whoever falls silent must be opened by its neighbours. Whether that can succeed is
        checked before anyone is asked to reveal a share.
        """
        replies = yield Round(
            requests={i: {"sealed": {j: dealt[j].sealed[i] for j in near[i]}} for i in near}
        )
        masked = readable(replies, near, lambda _, reply: messages.read_masked(reply, length))
        alive = {i: [j for j in near[i] if j in masked] for i in near}
        silent = {i: [j for j in near[i] if j not in masked] for i in near}
        opened = {i: left for i, left in alive.items() if i in masked or left}
        self._check_left(len(masked), "sent a masked vector", opened, terms)

        replies = yield Round(requests={i: {"survivors": alive[i], "count": len(masked)} for i in masked})
        revealed = readable(
            replies,
            masked,
            lambda i, reply: messages.read_revealed(reply, survivors=alive[i], silent=silent[i]),
        )
        return masked, alive, revealed

    def _check_left(self, count: int, did: str, near: _Near, terms: _Terms) -> None:
        """Refuse to go on if too few are left, or if somebody that must be opened lacks neighbours for it."""
        t = terms.threshold
        needed = max(self.fewest_survivors(terms.clients), t + 1)
        short = sum(len(neighbours) < t for neighbours in near.values())
        if count < needed or short:
            raise TooFewClients(
                f"secure sum: {count} of {terms.clients} clients {did} ({short} lack neighbours), expected "
                f"at least {needed}, each with {t} neighbours; nothing was revealed. Run again."
            )


# --- the client's leg 1, and what it measures -------------------------------------------------------------


def _share_keys(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """Leg 1. Deal shares of the seed and of the mask key to the neighbours that advertised keys."""
    name, session, t = request.recipient, state["session"], state["threshold"]
    credentials = request.credentials

    def signed(j: str, keys: Keys) -> bool:
        words = signed_words(session, j, keys.seal, keys.mask)
        if credentials is None:
            return True
        # The second server holds no rows: with it, two clients would pass for three.
        return j != SECOND_SERVER and credentials.verifies(j, SIGNED_KEYS, words, keys.signature)

    seal_keys, mask_keys = messages.told_keys(
        request.message,
        name=name,
        least=t,
        most=state["neighbours"],
        among=state["ring"],
        signed=signed,
    )
    own = KeyPair.of(Secret(state["seal_private"]))
    channels = {j: channel(session, own, name, j, seal_keys[j]) for j in seal_keys}

    # The holder in place x, by name, gets share x; the server sorts them in the same way.
    holders = sorted(seal_keys)
    seed, key = Secret(randomness.bytes(SECRET_BYTES)), Secret(state["mask_private"])
    seed_shares = split(seed, threshold=t, shares=len(holders), randomness=randomness)
    key_shares = split(key, threshold=t, shares=len(holders), randomness=randomness)
    reply: Message = {"sealed": {}, "seed_commitments": {}, "key_commitments": {}}
    for j, of_seed, of_key in zip(holders, seed_shares, key_shares, strict=True):
        reply["sealed"][j] = seal_shares(
            channels[j][0], (of_seed, of_key), session=session, route=(name, j), source=randomness
        )
        reply["seed_commitments"][j] = commit(session, SEED, name, j, of_seed)
        reply["key_commitments"][j] = commit(session, KEY, name, j, of_key)
    reply["seed_commitment"] = commit(session, SEED, name, "", seed)
    kept = {field: value for field, value in state.items() if field != "seal_private"}
    return reply, {
        **kept,
        "leg": 2,
        "seed": seed.data,
        "unseal_keys": {j: receiving.data for j, (_, receiving) in channels.items()},
        "mask_keys": mask_keys,
    }


@lru_cache(maxsize=4)
def _ring(names: tuple[str, ...], exchange: bytes, degree: int) -> Graph:
    return Graph.of(names, exchange=exchange, degree=degree)


def _neighbours(names: tuple[str, ...], exchange: bytes, degree: int, name: str) -> list[str]:
    """Who a client's neighbours are, found by itself: a server that arranges them otherwise is refused."""
    return list(_ring(names, exchange, degree).neighbours(name))


def measured(plans: Sequence[Plan], measure: Measure) -> Vector:
    """All vectors of the measurement, one behind the other."""
    vectors = measure()
    shapes = [(plan.query.of.length,) for plan in plans]
    require(
        [vector.shape for vector in vectors] == shapes and all(v.dtype == np.int64 for v in vectors),
        "expected one vector of whole numbers per query, as long as its summary says.",
    )
    return np.concatenate(vectors)
