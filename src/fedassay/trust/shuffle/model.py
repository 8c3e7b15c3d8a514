"""Shuffling: every message is private by itself, and a second server hands on all of them without their senders.

The pieces, in reading order: `privacy.shuffling` (why that is worth more than local privacy, and how much),
`local_reports` and `shuffle_texts` (a client's report), `shuffle_keys` and `shuffle_client` (a letter in an envelope),
`shuffle_relay` (the order of messages), `shuffle_helper` (what the shuffler and the analyst do).
`docs/explanation/shuffle.md` has the whole argument, and who is trusted with what.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from fedassay.crypto.keys import KeyPair
from fedassay.errors import ParameterError, TooFewClients, UnsupportedQuery
from fedassay.privacy.amplification import ShuffledPlan, local_epsilon_for
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Exchange,
    Measure,
    Message,
    Neighbours,
    Plan,
    Protection,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Sample,
    Select,
    Setting,
    Sum,
    TrustModel,
    Unit,
    Vector,
)
from fedassay.trust.card import ShuffleParameters, budget_of, exactly, protected, refuse_points
from fedassay.trust.local_dp import LocalDP, check_parts_are_clients
from fedassay.trust.local_reports import Question
from fedassay.trust.one_shot.sizes import tolerated
from fedassay.trust.shuffle.messages import (
    SIGNED_ENVELOPES,
    WORDS,
    LetterRoute,
    drawn_text,
    session_of,
    signed_words,
)
from fedassay.trust.shuffle.servers import assist, envelope_bytes, relay

# --- the client half of `shuffle` ---------------------------------------------------------------------------

CLIENT_LEG = 1
"""Leg in which clients are asked, once, after both servers have drawn their keys for this exchange."""


def post(request: Request, measure: Measure, numbers: Sequence[int], randomness: Randomness) -> Message:
    """Return the reply: an envelope for each query, with a letter in it; always, whatever was measured."""
    WORDS.require(request.leg == CLIENT_LEG, f"got leg {request.leg}, expected only leg {CLIENT_LEG}.")
    servers = WORDS.told_servers(request.message)
    session = session_of(
        exchange=request.exchange, plans=request.plans, numbers=numbers, servers=servers.names
    )
    WORDS.check_servers(servers, session, request.credentials)
    own, client, sealed = KeyPair.draw(randomness), request.recipient, []
    for place, (plan, vector) in enumerate(zip(request.plans, measure(), strict=True)):
        route = LetterRoute(session=session, place=place, servers=servers.keys)
        letter = route.letter(drawn_text(Question.of(plan), vector, randomness), randomness)
        sealed.append(route.envelope(letter, own, client, randomness))
    words = signed_words(session, client, own.public, sealed)
    credentials = request.credentials
    signature = b"" if credentials is None else credentials.sign(SIGNED_ENVELOPES, words)
    return {"public": own.public, "sealed": sealed, "signature": signature}


# --- shuffling ----------------------------------------------------------------------------------------------

_HEADROOM = 1 - Fraction(1, 2**29)
"""Headroom: shares of a budget are rounded down by more than their sum can be rounded up."""


MOST_CLIENTS = 10**9
"""Largest number of clients that is believed: the larger the crowd, the less noise a message has."""


@dataclass(frozen=True, kw_only=True)
class Shuffle(ShuffleParameters, TrustModel):
    """Private messages in random order: the server learns what was said, and not who said it.

    Guarantee, where clients have one row (or the encoding is `unary`) and delta is above 0: what the server and up to
    ⌊collusion·n⌋ clients learn together is (epsilon, delta)-differentially private for everything that any other client
    holds, for all queries of a task together. Each query has its share of epsilon and of delta, each is shuffled by
    itself, and shares add up (basic composition). Against the server and the shuffler together a message is
    differentially private by itself, with the local epsilon of its plan, and delta 0.

    Guarantee elsewhere: that of `local-dp`, and not more, though only the shuffler knows who sent which message:
    amplification needs messages that hide all that a client holds, not one of its rows.

    Assumptions: the shuffler does not work together with the server, follows the protocol, and knows the clients' keys.
    Clients draw their coins from a secure source. The cryptography is that of `crypto.keys` (128 bits).

    What counts as public: who is in the cohort, and who answered.

    Edge cases: a client whose message is malformed or does not open is a dropout, and its share of the others' cover is
    among `dropout`. A server that falls silent or answers anything else than it should ends the exchange.

    Examples
    --------
    >>> Shuffle().fewest_survivors(10_000), Shuffle().fewest_honest(10_000)
    (9000, 8000)
    """

    name: ClassVar[str] = "shuffle"
    private: ClassVar[bool] = True
    shows_measurements: ClassVar[bool] = False
    helpers_needed: ClassVar[int] = 2
    first_client_leg: ClassVar[int] = CLIENT_LEG

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout + self.collusion >= 1:
            raise ParameterError(
                "dropout",
                f"got {self.dropout:.3g} with `collusion={self.collusion:.3g}`, expected their sum below 1.",
            )

    @property
    def _local(self) -> LocalDP:
        """Trust model of the messages, if they were not shuffled."""
        return LocalDP(encoding=self.encoding)

    def with_one_row_each(self, protection: Protection) -> Protection:
        """Return the protection for one row each, as under local-dp."""
        return self._local.with_one_row_each(protection)

    # --- how many hide a client -----------------------------------------------------------------------------

    def fewest_survivors(self, clients: int) -> int:
        """Return the number of messages below which none is opened."""
        return max(self.minimum_cohort, clients - tolerated(clients, self.dropout))

    def fewest_honest(self, clients: int) -> int:
        """Return the number of opened messages about which the server knows nothing else, with the protected one."""
        return max(1, self.fewest_survivors(clients) - tolerated(clients, self.collusion))

    def numbers(self, plans: Sequence[Plan]) -> tuple[int, int]:
        """Return the fewest survivors of an exchange and, of those, the fewest honest: all parties agree on both."""
        clients = max(plan.setting.clients for plan in plans)
        return self.fewest_survivors(clients), self.fewest_honest(clients)

    # --- plan -----------------------------------------------------------------------------------------------

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Plan a query as under local-dp, with the larger epsilon that shuffling allows where it does.

        `Plan.noise` is that of single messages, at the local epsilon; a `ShuffledPlan` has what they cost shuffled.
        `setting.clients` of 0 stands for a number that is not known yet: then no message is hidden among others.
        """
        refuse_points(query)
        budget = budget_of(setting, self.name)
        if not isinstance(query, Sum | Collect | Select):
            raise UnsupportedQuery(f"{type(query).__name__}: shuffle answers Sum, Collect and Select.")
        if isinstance(query.cohort, Sample):
            raise UnsupportedQuery(
                f"{type(query).__name__} of {query.of.name}: shuffle asks all clients, because a client hides among "
                "those who are asked; use local-dp to ask a sample."
            )
        if setting.clients > MOST_CLIENTS:
            raise UnsupportedQuery(
                f"shuffle: got {setting.clients:,} clients, expected at most {MOST_CLIENTS:,}."
            )
        if 0 < setting.clients < self.minimum_cohort:
            raise TooFewClients(
                f"shuffle: got {setting.clients} clients, expected at least {self.minimum_cohort}."
            )
        if not self._amplifies(setting):
            return self._local.plan(query, setting)
        check_parts_are_clients(query, setting)
        cost = _share(budget, query.share)
        hidden = setting.clients > 0
        allowed = local_epsilon_for(cost, self.fewest_honest(setting.clients)) if hidden else cost.epsilon
        # Clones need any two inputs to be alike, and a randomiser of a pure epsilon.
        terms = replace(
            setting,
            protection=replace(setting.protection, neighbours=Neighbours.REPLACE_ONE),
            budget=Budget(epsilon=allowed),
        )
        amplified = self._local.plan(replace(query, share=1.0), terms)
        return ShuffledPlan(
            query=query,
            setting=setting,
            sensitivity=amplified.sensitivity,
            noise=amplified.noise,
            cost=cost,
        )

    def _amplifies(self, setting: Setting) -> bool:
        """Return whether messages hide everything that a client holds, and some delta may be spent."""
        whole = setting.protection.rows_per_client == 1 or self.encoding == "unary"
        return whole and budget_of(setting, self.name).delta > 0

    # --- the halves -----------------------------------------------------------------------------------------

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the relay, which reads the shuffled messages."""
        return relay(exchange, fewest=self.numbers(exchange.plans)[0])

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Run the client half: a private report on each query, sealed twice. Nothing is kept."""
        return post(request, measure, self.numbers(request.plans), randomness), {}

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        """Run the server half: the analyst, who is the first server, or the shuffler, who is the second."""
        return assist(request, state, self.numbers(request.plans), randomness)

    def largest_reply(self, exchange: Exchange) -> int:
        """Return the size of the longest reply: all letters at once."""
        each = sum(envelope_bytes([Question.of(plan) for plan in exchange.plans]))
        return min((1 << 16) + (each + 64) * max(1, len(exchange.cohort)), wire.LARGEST_MESSAGE)

    # --- simulation and words -------------------------------------------------------------------------------

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Simulate sums only, as under local-dp: a sum does not depend on the order of the messages."""
        return self._local.aggregate(plans, totals, clients, randomness)

    def statement(self, setting: Setting) -> str:
        """State both guarantees: against the server, and against the server and the shuffler together."""
        budget = budget_of(setting, self.name)
        if not self._amplifies(setting):
            return f"{self._local.statement(setting)} {self._why_not(setting)}"
        local = local_epsilon_for(_share(budget, 1.0), self.fewest_honest(setting.clients))
        n, hidden = setting.clients, ""
        if n >= self.minimum_cohort:
            hidden = (
                f"With {n:,} clients, messages of fewer than {self.fewest_survivors(n):,} of them are not opened, and "
                f"{self.fewest_honest(n):,} honest ones among them are enough: {tolerated(n, self.collusion):,} "
                "clients may collude with the server. "
            )
        return (
            "What the server learns, and what is published, is differentially private for everything that a client "
            f"holds, with epsilon = {exactly(budget.epsilon)} and delta = {exactly(budget.delta)}. Each client "
            "randomises what it says, and a second server, the shuffler, hands on the messages of all clients in "
            "random order and without names; the random order makes them more private than each is by itself "
            f"(amplification by shuffling, computed exactly). {hidden}The shuffler cannot read messages. Server and "
            "shuffler together know who sent what: against both, every single message is differentially private by "
            f"itself, with a local epsilon of at most {exactly(local)} and delta 0; a client sends one for each "
            "question. Assumed: the shuffler does not work together with the server and follows the protocol. Clients "
            "without rows answer like any other. Who took part is public. A client that lies about its own rows is "
            "not detected."
        )

    def _why_not(self, setting: Setting) -> str:
        """Explain why shuffling is given no credit."""
        if setting.protection.rows_per_client == 1 or self.encoding == "unary":
            reason = "that needs a delta above 0, and delta is 0"
        elif setting.protection.unit is Unit.CLIENT:
            reason = "that is computed for clients of one row, and here a client may have more"
        else:
            reason = (
                "that needs messages that hide everything a client holds, and these hide "
                f"{protected(setting.protection).partition(':')[0]}"
            )
        return (
            "A second server, the shuffler, hands the messages on in random order and without names. The server "
            "then does not know who sent which, unless the two work together. The numbers above do not rest on it: "
            f"there is no amplification by shuffling, because {reason}."
        )


def _share(budget: Budget, share: float) -> Budget:
    """Return a query's part of epsilon and of delta; parts that add up to 1 cost no more than the budget."""
    part = Fraction(share) * _HEADROOM
    return Budget(epsilon=float(part * Fraction(budget.epsilon)), delta=float(part * Fraction(budget.delta)))
