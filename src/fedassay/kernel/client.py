"""The only code that sees rows: policy, ledger, bounds, measurement, then the trust model's client half."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np

from fedassay.crypto.keys import KeyPair
from fedassay.crypto.prekeys import Prekey
from fedassay.data.selection import measured_rows
from fedassay.data.stores import Holdings
from fedassay.errors import AnswerLost, DataError, PolicyRefusal, ProtocolError
from fedassay.kernel.endpoint import Endpoint, EndpointStore, Memories
from fedassay.kernel.envelope import Envelope, Refusal, Summaries, TrustModels, kind_of
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.ledger.charges import Charge, Ledger
from fedassay.privacy.ledger.refusals import RefusedRequest, SiteRecords
from fedassay.privacy.policy.judgement import Policy, PolicyRequest
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import (
    Batch,
    Memory,
    Message,
    Opened,
    Part,
    PartyKeys,
    Plan,
    Randomness,
    Rows,
    Sample,
    Vector,
)
from fedassay.summaries import CATALOGUE
from fedassay.tasks.shared_parameters import HOLDOUT
from fedassay.trust import TRUST_MODELS


@dataclass(frozen=True, kw_only=True)
class Site:
    """Rows and rules of a client. Nothing in here ever leaves.

    `rows` opens the validated rows (called only when a measurement is due); `split_key` decides which rows
    are held out, the same ones in every run.
    """

    name: str
    dataset: str
    rows: Callable[[], Rows] = field(repr=False)
    policy: Policy
    ledger: Ledger
    randomness: Randomness = field(repr=False)
    split_key: bytes = field(repr=False)
    holdout: float = HOLDOUT
    roles: frozenset[str] | None = None
    """Columns that the site has named, by role; None if every existing column may be asked for."""
    credentials: PartyKeys | None = field(default=None, repr=False)
    holdings: Callable[[], Holdings] | None = field(default=None, repr=False)
    """Function that returns the number of rows and their fingerprint; None if not tracked, as in a simulation."""
    records: SiteRecords | None = field(default=None, repr=False)
    """Log of refusals; None if they are not noted."""
    prekeys: MemberStore = field(default_factory=lambda: MemberStore(None), repr=False)
    """Prekeys with which the site answers as a member, and the exact totals that it has helped to open."""


@dataclass(frozen=True, kw_only=True)
class _Seat:
    """Place of a site in a committee: its prekeys, and its rules about sets of clients (`protocol.Membership`)."""

    prekeys: MemberStore
    dataset: str
    asker: str
    policy: Policy

    def require_fresh(self, prekeys: Sequence[tuple[str, Prekey]], *, until: int) -> None:
        """Require fresh prekeys; see `Membership`."""
        self.prekeys.require_fresh(prekeys, coordinator=self.asker, until=until)

    def answer(
        self,
        public: bytes,
        *,
        session: bytes,
        digest: bytes,
        opened: Opened,
        compute: Callable[[KeyPair], bytes],
    ) -> bytes:
        """Answer as a member; see `Membership`. An answer is repeated, whatever the rules are by then."""
        known = self.prekeys.answered(session, digest)
        if known is not None:
            return known
        pair = self.prekeys.pair(public)
        if pair is None:
            raise ProtocolError("secure sum: the prekey was used or has expired.")
        return self.prekeys.answer(
            compute(pair),
            session=session,
            digest=digest,
            public=public,
            opened=(self.dataset, opened.clients) if opened.exact else None,
            rule=lambda earlier: self._require_apart(opened, earlier),
        )

    def _require_apart(self, opened: Opened, earlier: Sequence[frozenset[str]]) -> None:
        """Refuse to help with a total that could be subtracted from an earlier one, by the stricter rule of the two."""
        least = max(opened.difference, self.policy.smallest_cohort_difference or 0)
        for clients in earlier:
            apart = sorted(clients ^ opened.clients)
            if apart and (opened.same_set or self.policy.same_set or len(apart) < least):
                raise PolicyRefusal(
                    f"policy: got an exact total over clients who differ from those of an earlier one by {len(apart)} "
                    f"({', '.join(apart)}), expected "
                    + (
                        "the same ones"
                        if opened.same_set or self.policy.same_set
                        else f"none or at least {least}"
                    )
                    + ": the two could be subtracted."
                )


class Client(Endpoint):
    """One client of a federation.

    Guarantee: before the first byte of an exchange leaves, the site's policy has allowed every query of it
    and the site's ledger has been charged for all of them. Before each later message the policy, as it stands then, has
    allowed them again. What a policy cannot judge is refused, and so is everything if the policy itself fails.
    """

    def __init__(
        self,
        site: Site,
        *,
        store: EndpointStore | None = None,
        summaries: Summaries = CATALOGUE,
        trust_models: TrustModels = TRUST_MODELS,
    ) -> None:
        super().__init__(
            site.name,
            store=store if store is not None else EndpointStore(),
            credentials=site.credentials,
            summaries=summaries,
            trust_models=trust_models,
        )
        self.site = site
        self._rules: Policy = site.policy
        """The policy as it stands for the message in hand."""
        self._left_out: dict[Part, int] = {}

    @property
    def truncated(self) -> int:
        """Rows left out by the bound on rows per client, in the latest measurement. Stays at the site."""
        return sum(self._left_out.values())

    def begins(self, opened: Envelope) -> bool:
        """Return whether rows are measured at this leg, or members asked, who need not have rows in the exchange."""
        return opened.request.leg in (opened.trust.first_client_leg, opened.trust.member_leg)

    def allow(self, opened: Envelope) -> None:
        """Ask the site's policy about every query; an error inside a policy is a refusal too."""
        request = opened.request
        try:
            self._rules = self.site.policy.now()
            for task, plan in (*zip(opened.tasks, request.plans, strict=True), *opened.announced):
                self._rules.check(
                    PolicyRequest(
                        plan=plan,
                        study=opened.study,
                        task=kind_of(task),
                        cohort=request.cohort,
                        asker=opened.asker,
                        rows=self._row_count if self.site.holdings is not None else None,
                    )
                )
        except (PolicyRefusal, DataError):
            raise
        except Exception as error:
            raise PolicyRefusal(f"policy: it failed ({error!r}), so that everything is refused.") from error
        self._require_apart(request.plans)
        for plan in request.plans:
            self._require_roles(plan)

    def _require_apart(self, plans: tuple[Plan, ...]) -> None:
        """Refuse what would undo a disclosure profile: hidden counts of a part are those of all rows less the rest."""
        parts = {plan.query.part for plan in plans if plan.setting.trust.shows_measurements}
        if self._rules.disclosure is not None and Part.ALL in parts and len(parts) > 1:
            raise PolicyRefusal(
                "policy: got questions about all rows and about parts of them, whose hidden small counts could be "
                "subtracted; expected one or the other, in studies of their own."
            )

    def agree(self, opened: Envelope) -> None:
        """Charge the site's ledger, within what the policy allows in total; it may refuse, and then nothing is sent.

        A member that did not speak is charged nothing: no row of its own is in what it helps to open.
        """
        if opened.request.leg != opened.trust.first_client_leg:
            return
        plans, exchange = opened.request.plans, opened.request.exchange
        fingerprint = "" if self.site.holdings is None else self.site.holdings().fingerprint
        charges = [
            Charge.of(
                plan,
                id=self._charge_id(exchange, index),
                dataset=self.site.dataset,
                study=opened.study,
                fingerprint=fingerprint,
                task=task,
                asker=opened.asker or "",
            )
            for index, (plan, task) in enumerate(zip(plans, opened.tasks, strict=True))
        ]
        charges = self._widened(charges)
        self._require_same_rows(charges)
        # A charge that is known belongs to an answer that this client has lost: another one is not paid for.
        if any(self.site.ledger.has(charge.id) for charge in charges):
            raise AnswerLost(
                "request: it was charged before, and what was answered then is lost. This site sits this question out: "
                "another answer would not be paid for."
            )
        if self._rules.total is not None:
            self.site.ledger.budget = self._rules.total
        self.site.ledger.charge(charges)

    def _require_same_rows(self, charges: Sequence[Charge]) -> None:
        """Refuse an exact total over other rows than those of an earlier one: the two could be subtracted."""
        if self._rules.changed_rows or not any(charge.exact and charge.fingerprint for charge in charges):
            return
        now = charges[0].fingerprint
        known = (one for one in self.site.ledger.charges if one.exact and one.dataset == self.site.dataset)
        if any(one.fingerprint not in ("", now) for one in known):
            raise PolicyRefusal(
                "policy: got an exact total over rows that have changed since an earlier one, which could be "
                "subtracted; expected the rows of then, noise, a data set of another name, or changed_rows = true."
            )

    def _charge_id(self, exchange: bytes, index: int) -> str:
        """Return the id of a charge, with the client's name: several sites and their coordinator may share a ledger."""
        return f"{exchange.hex()}/{index}/client {self.name}"

    def _require_charged_rows(self, exchange: bytes) -> None:
        """Refuse to measure what was not charged for, or other rows than were: days may pass between the two."""
        charged = self.site.ledger.find(self._charge_id(exchange, 0))
        if charged is None:
            raise ProtocolError(
                "request: this exchange began with a leg that costs nothing, and was not charged."
            )
        if self.site.holdings is not None and charged.fingerprint != self.site.holdings().fingerprint:
            raise DataError(
                "rows: they have changed since this study was charged for them, so that they are not used; bring the "
                "old ones back, or begin a new study."
            )

    def _widened(self, charges: list[Charge]) -> list[Charge]:
        """Return the charges, widened from a part to all rows if the rows are not those that were first split.

        Why this is enough: what remains recorded for one part only was all measured on rows with one fingerprint, so on
        the same rows in the same places, with one split; each of their units was in one of its parts. Everything else
        counts for all rows, whatever units it held. So no unit meets more than the ledger counts for the worst atom.
        """
        if all(charge.part is Part.ALL for charge in charges):
            return charges
        first = self.site.ledger.split_fingerprint(self.site.dataset)
        return [
            charge if first in (None, charge.fingerprint) else replace(charge, part=Part.ALL)
            for charge in charges
        ]

    def note_refusal(
        self, opened: Envelope | None, asker: str | None, code: Refusal, error: Exception
    ) -> None:
        """Keep the refusal and its reason in the site's own log."""
        if self.site.records is not None:
            self.site.records.refused(
                RefusedRequest(
                    time=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    exchange="" if opened is None else opened.request.exchange.hex(),
                    study="" if opened is None else opened.study,
                    asker=asker,
                    code=str(code),
                    reason=str(error) or type(error).__name__,
                )
            )

    def _row_count(self) -> int:
        assert self.site.holdings is not None
        return self.site.holdings().rows

    def _require_roles(self, plan: Plan) -> None:
        """Refuse, before rows are looked at, what needs columns that the site has not named: with or without rows."""
        missing = [] if self.site.roles is None else sorted(set(plan.measured.columns) - self.site.roles)
        if missing:
            raise DataError(
                f"{plan.measured.name}: it needs the column {missing[0]}, which this site has not named; name it too."
            )

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """Run the trust model's client half; rows are read only if it asks for the measurement."""
        learned: Memories = {}
        request = replace(
            opened.request,
            credentials=self.site.credentials,
            membership=_Seat(
                prekeys=self.site.prekeys,
                dataset=self.site.dataset,
                asker=opened.request.asker,
                policy=self._rules,
            ),
        )
        answered = opened.trust.respond(
            request, lambda: self._measure(opened, learned), state, self.site.randomness
        )
        self.store.memories.update(learned)
        return answered

    def offer(self, count: int, *, asker: str) -> tuple[bytes, ...]:
        """Issue fresh prekeys; see `Endpoint`."""
        prekeys = self.site.prekeys.issue(
            count, coordinator=asker, credentials=self.site.credentials, randomness=SecureRandomness()
        )
        return tuple(prekey.packed() for prekey in prekeys)

    def _measure(self, opened: Envelope, learned: Memories) -> tuple[Vector, ...]:
        self._require_charged_rows(opened.request.exchange)
        vectors = []
        self._left_out = {}
        for plan, task in zip(opened.request.plans, opened.tasks, strict=True):
            # What was learned from some rows must not speak in an answer about others, which are paid for apart.
            key = (opened.study, task, plan.query.part)
            memory = learned.get(key, self.store.memories.get(key, {}))
            if takes_part(plan, self.site.randomness):
                vector, learned[key] = self._measured(plan, self._bounded_rows(plan), memory)
            else:  # nor must what it remembers speak
                vector, _ = self._measured(plan, EmptyRows(), {})
            vectors.append(bounded(vector, plan))
        return tuple(vectors)

    def _measured(self, plan: Plan, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Measure the rows with the summary, as far as the result may be seen."""
        profile = self._rules.disclosure
        if profile is None or not plan.setting.trust.shows_measurements:
            return plan.measured.measure(rows, memory)
        return profile.measure(plan.measured, rows, memory)

    def _bounded_rows(self, plan: Plan) -> Rows:
        rows, self._left_out[plan.query.part] = measured_rows(
            self.site.rows(),
            plan,
            key=self.site.split_key,
            client=self.site.name,
            holdout=self.site.holdout,
            randomness=self.site.randomness,
        )
        return rows


class EmptyRows:
    """The rows of a client that has none, or does not take part."""

    def batches(self) -> Iterator[Batch]:
        """Return no batches."""
        return iter(())


def takes_part(plan: Plan, randomness: Randomness) -> bool:
    """Toss the secret coin of a client, where it decides for itself; True elsewhere.

    It comes up with a probability that is the stated one rounded down to a multiple of 2^-64.
    """
    cohort = plan.query.cohort
    if not (plan.setting.trust.clients_sample and isinstance(cohort, Sample)):
        return True
    return int(randomness.words(1)[0]) < int(Fraction(cohort.rate) * 2**64)


def bounded(vector: Vector, plan: Plan) -> Vector:
    """Return the vector as the plan's proofs (no wrap, sensitivity) assume it: entries beyond the bound are cut.

    Cut, not refused: whether a client refuses is seen by the server, and a bound that the server chose would
    then tell it what was measured. Cutting each entry moves no two vectors further apart, entry by entry; summaries
    that spread their noise see to it themselves that nothing is cut.
    """
    summary = plan.measured
    if vector.dtype != np.int64 or vector.shape != (summary.length,):
        raise DataError(f"{summary.name}: the measured vector is not {summary.length} whole numbers.")
    return np.clip(vector, -summary.largest, summary.largest)
