"""Two servers that do not collude: each holds one half of every row, and neither half reveals anything.

The pieces, in reading order: `two_server_layout` (rows as keys), `two_server_client`, `two_server_relay` (the order of
messages), `two_server_helper` (what a server does), `two_server_check` (why a client cannot count twice, and what a
server that lies can learn), `two_server_answers` (noise). `docs/explanation/two-server.md` has the whole argument.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fedassay.crypto.keys import KeyPair
from fedassay.errors import ProtocolError, UnsupportedQuery, UsageError
from fedassay.privacy import accounting
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Exchange,
    Measure,
    Message,
    Plan,
    Points,
    Protection,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Unit,
    Vector,
)
from fedassay.trust import plain
from fedassay.trust.card import budget_of, exactly, protected
from fedassay.trust.local_reports import reach, several, spread
from fedassay.trust.two_server.deposits import LIMIT, make
from fedassay.trust.two_server.helper import assist
from fedassay.trust.two_server.layout import Layout
from fedassay.trust.two_server.messages import (
    MOST_PLACES,
    WORDS,
    DepositRoute,
    require,
    session_of,
)
from fedassay.trust.two_server.relay import relay

# --- the client half of `two-server` ------------------------------------------------------------------------

CLIENT_LEG = 1
"""Leg in which clients are asked, once, after both servers have drawn their keys for this exchange."""


def deposit(request: Request, measure: Measure, randomness: Randomness) -> Message:
    """Return the reply: for each server a sealed text per query."""
    require(request.leg == CLIENT_LEG, f"got leg {request.leg}, expected only leg {CLIENT_LEG}.")
    servers = WORDS.told_servers(request.message)
    session = session_of(exchange=request.exchange, plans=request.plans, servers=servers.names)
    WORDS.check_servers(servers, session, request.credentials)
    own = KeyPair.draw(randomness)
    sealed: tuple[list[bytes], list[bytes]] = ([], [])
    for place, (plan, counts) in enumerate(zip(request.plans, measure(), strict=True)):
        layout = Layout.of(plan.query, plan.setting)
        for party, text in enumerate(make(counts, layout, randomness, place=place)):
            route = DepositRoute(
                session=session,
                client=request.recipient,
                place=place,
                party=party,
                servers=servers.keys,
            )
            sealed[party].append(route.seal(own, text, randomness))
    return {"public": own.public, "sealed": list(sealed)}


# --- two servers that do not collude ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TwoServer(TrustModel):
    """Rows as pairs of comparison keys, one key to each of two servers; each server adds full noise of its own.

    Guarantee: what is published, together with all that *one* of the two servers sees, is (epsilon, delta)-
    differentially private for the stated unit and neighbours, for all queries of a task together, regardless of
    the other clients. To a holder of neither server, or of one, a client's messages are computationally independent of
    its rows (128 bits). A client counts each of its rows exactly once, or is left out (up to a probability of 2^-58).

    Assumption: the two servers do not collude, and clients know their keys. Both follow the protocol: one that does not
    can make the result wrong, and can test guesses about rows, however little epsilon is spent. With an exchange the
    first server can test one (the second one, a guess about each client); a wrong guess is in the other server's books,
    which begins nothing new after `doubts.MOST_DOUBTS` of them. The details are in `two_server_check`.

    What counts as public: who is in the cohort, who answered and was accepted, and how many keys each client sends:
    exactly R with ``rows_per_client=R``, else as many as it has rows.

    Answers: `Sum` of summaries that have `leaves`, and `Points` of cumulative ones. For `Points` the servers keep what
    clients have sent and answer later questions by themselves, from the same noise.

    Edge cases: a client whose message is malformed or does not open is a dropout, and so is one that does not pass the
    check; if more than one does not pass, there is no release. A server that falls silent or answers anything else than
    it should ends the exchange.
    """

    name: ClassVar[str] = "two-server"
    private: ClassVar[bool] = True
    shows_measurements: ClassVar[bool] = False
    helpers_needed: ClassVar[int] = 2
    first_client_leg: ClassVar[int] = CLIENT_LEG

    def with_one_row_each(self, protection: Protection) -> Protection:
        """Return the unit client, of one row: each client sends one key, so that sizes need not be stated."""
        if protection.rows_per_client not in (None, 1):
            return protection
        return Protection(unit=Unit.CLIENT, neighbours=protection.neighbours, rows_per_client=1)

    def measured(self, summary: Summary[Any]) -> Summary[Any]:
        """Return the leaves, each row in one of them; the servers compute the rest from shares."""
        return summary if summary.leaves is None else summary.leaves

    # --- plan -----------------------------------------------------------------------------------------------

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Choose the noise of each server as `server-dp` would; refuse what cannot be computed from shares."""
        budget = budget_of(setting, self.name)
        if not isinstance(query, Sum | Points):
            raise UnsupportedQuery(
                f"{type(query).__name__}: under two-server only totals get noise, and no server sees the message of a "
                "single client; use local-dp."
            )
        Layout.of(query, setting)
        if isinstance(query, Points):
            _check_points(query)
        sensitivity = query.of.sensitivity(setting.protection)
        one = accounting.calibrate(budget, sensitivity, query.share)
        both = several(one, 2)
        plan = Plan(query=query, setting=setting, sensitivity=sensitivity, noise=both)
        plain.check_no_wrap(query, setting, limit=_room(plan))
        return plan

    # --- the halves -----------------------------------------------------------------------------------------

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the relay: it adds up the two servers' answers."""
        return relay(exchange)

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Run the client half: each row as a pair of keys, sealed for the two servers. Nothing is kept."""
        return deposit(request, measure, randomness), {}

    def assist(self, request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
        """Run the server half, the same for both."""
        return assist(request, state, randomness)

    def largest_reply(self, exchange: Exchange) -> int:
        """Return the size of a client's sealed keys for both servers; or of a server's word for each key or entry."""
        largest = 1 << 16
        for plan in exchange.plans:
            layout = Layout.of(plan.query, plan.setting)
            per_client = 2 * layout.client_bytes + 4096
            per_server = 8 * layout.most_rows * len(exchange.cohort) + 16 * plan.query.of.length
            largest += per_client + per_server + 1024 * len(exchange.cohort)
        return min(largest, wire.LARGEST_MESSAGE)

    # --- simulation and words -------------------------------------------------------------------------------

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Add the noise of both servers to exact totals. Whole totals only: points would need noise that is kept."""
        released = []
        for plan, total in zip(plans, totals, strict=True):
            summary = plan.query.of
            if not isinstance(plan.query, Sum):
                raise UnsupportedQuery(
                    f"{type(plan.query).__name__}: later points have the noise of earlier ones, which only servers "
                    "that run can keep; use the faithful mode."
                )
            if total.size and max(int(total.max()), -int(total.min())) >= _room(plan):
                raise ProtocolError(f"{summary.name}: the total exceeds the bound of its plan.")
            draws = [accounting.draw(plan.noise, summary.draws, randomness) for _ in range(2)]
            value = total + spread(summary, draws[0]) + spread(summary, draws[1])
            released.append(Released(value=value, noise=plan.noise, clients=clients))
        return tuple(released)

    def statement(self, setting: Setting) -> str:
        """State who is protected, against whom, what must be assumed, and what is public."""
        budget, rows = budget_of(setting, self.name), setting.protection.rows_per_client
        sizes = (
            "How many rows each client has is public"
            if rows is None
            else f"Each client sends {rows:,} encoded rows, dummies included: no server sees how many it has"
        )
        mechanism = "discrete Laplace" if budget.delta == 0 else "discrete Laplace or discrete Gaussian"
        return (
            "What is published, together with everything that one of the two servers sees, is differentially "
            f"private for {protected(setting.protection)}, with epsilon = {exactly(budget.epsilon)} and delta = "
            f"{exactly(budget.delta)}. This rests on the two servers not colluding: together they can read every "
            "row. Each server holds one half of every encoded row, which says nothing by itself (128-bit security). "
            f"Each adds {mechanism} noise of its own, drawn exactly and in full; what is published carries the noise "
            "of both. The servers check that every client counts each row exactly once, and leave out who does not. "
            "Both are assumed to follow the protocol: a server that does not can falsify the result, and can test "
            "guesses about rows, however small its epsilon: the coordinator's one with each exchange, the other one a "
            "guess about each client; a guess that is right does not show, and after a few that are wrong the server "
            "that is honest begins nothing new. "
            f"{sizes}. Which clients took part, and which were left out, is known to both servers."
        )


def _room(plan: Plan) -> int:
    """Return the bound below which totals, in absolute value, do not wrap modulo p with both servers' noise."""
    return LIMIT - 2 * plan.query.of.overlap * reach(plan.noise)


def _check_points(query: Points[Any]) -> None:
    summary = query.of
    if not summary.cumulative or not _counts_up_to(summary):
        raise UnsupportedQuery(
            f"{summary.name}: single points can be asked only of a summary whose entries count all rows up to a cell, "
            "once; ask for the whole total."
        )
    if len(query.at) > MOST_PLACES or max(query.at) >= summary.length:
        raise UsageError(
            f"points: got {len(query.at):,} places up to {max(query.at):,}, expected at most {MOST_PLACES:,} places "
            f"below {summary.length:,}."
        )


@lru_cache(maxsize=64)
def _counts_up_to(summary: Summary[Any]) -> bool:
    """Return whether entry i is the number of rows in the leaves 0 .. i; two classes in one vector, say, are not."""
    probe = np.arange(1, summary.length + 1)
    leaves = summary.leaves
    return (
        leaves is not None
        and leaves.length == summary.length
        and np.array_equal(summary.from_leaves(probe), np.cumsum(probe))
    )
