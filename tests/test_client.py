"""The site's boundary: policy, ledger, one answer per question, fixed codes, and order."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sealed_requests
from fedassay.errors import BudgetExceeded, DataError, PolicyRefusal, ProtocolError, TooFewClients, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.client import Client, Site
from fedassay.kernel.endpoint import KEPT_EXCHANGES, EndpointStore, FileStore
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.run import Errand
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.ledger.refusals import SiteRecords
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Batch,
    Budget,
    Exchange,
    Message,
    Part,
    Protection,
    Request,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from sealed_requests import refused
from toys import TOY_SUMMARIES, CountsUpTo, InMemory

EXCHANGE = bytes(range(16))


class Watched:
    """Rows that tell when they are read."""

    def __init__(self, log: list[str], values: tuple[int, ...] = (1, 2, 3)) -> None:
        self.log, self.values = log, values

    def batches(self) -> Iterator[Batch]:
        self.log.append("rows")
        return InMemory(self.values).batches()


class WatchedPolicy(AllowAll):
    def __init__(self, log: list[str], refuse: bool = False) -> None:
        self.log, self.refuse = log, refuse

    def check(self, request: Any) -> None:
        self.log.append("policy")
        if self.refuse:
            raise PolicyRefusal("the ethics board said: patient 17 must not be counted")


class WatchedLedger(MemoryLedger):
    def __init__(self, log: list[str], refuse: bool = False) -> None:
        super().__init__(None)
        self.log, self.refuse = log, refuse

    def charge(self, charges: Any) -> None:
        self.log.append("ledger")
        if self.refuse:
            raise BudgetExceeded("secret: 3.2 left")
        super().charge(charges)


def client(
    log: list[str], *, policy_refuses: bool = False, ledger_refuses: bool = False, **site: Any
) -> Client:
    return Client(
        Site(
            **{
                "name": "a",
                "dataset": "a",
                "rows": lambda: Watched(log),
                "policy": WatchedPolicy(log, policy_refuses),
                "ledger": WatchedLedger(log, ledger_refuses),
                "randomness": SimulatedRandomness(1),
                "split_key": bytes(32),
                **site,
            }
        ),
        summaries=TOY_SUMMARIES,
        trust_models=TRUST_MODELS,
    )


def request(
    *, leg: int = 0, exchange: bytes = EXCHANGE, top: int = 4, message: Message | None = None, **options: Any
) -> bytes:
    setting = Setting(
        **{"trust": Plain(), "protection": Protection(), "budget": None, "clients": 5, **options}
    )
    plan = setting.trust.plan(Sum(of=CountsUpTo(top=top)), setting)
    return sealed_requests.packed(
        study="s",
        trust=setting.trust,
        tasks=("t",),
        request=Request(
            exchange=exchange, plans=(plan,), cohort=5, leg=leg, recipient="a", message=message or {}
        ),
    )


def test_policy_then_ledger_then_rows() -> None:
    log: list[str] = []
    assert refused(client(log), request()) is None
    assert log == ["policy", "ledger", "rows"]


def test_a_refused_policy_charges_nothing_and_reads_nothing() -> None:
    log: list[str] = []
    assert refused(client(log, policy_refuses=True), request()) == Refusal.POLICY
    assert log == ["policy"]


@pytest.mark.parametrize("values", [(), (1, 2, 3)])
def test_a_column_that_the_site_has_not_named_is_refused_with_and_without_rows(
    values: tuple[int, ...],
) -> None:
    """Before anything is charged or read: a refusal that came of reading would say whether there are rows."""
    log: list[str] = []
    asked = {"rows": lambda: Watched(log, values), "ledger": WatchedLedger(log)}
    assert refused(client(log, roles=frozenset({"score"}), **asked), request()) == Refusal.DATA
    assert log == ["policy"]
    log.clear()
    assert refused(client(log, roles=frozenset({"value"}), **asked), request()) is None
    assert log == ["policy", "ledger", "rows"]


def test_a_refused_charge_reads_nothing() -> None:
    log: list[str] = []
    assert refused(client(log, ledger_refuses=True), request()) == Refusal.BUDGET
    assert log == ["policy", "ledger"]


@pytest.mark.parametrize("cause", ["policy_refuses", "ledger_refuses"])
def test_no_text_of_an_error_leaves_the_site(cause: str) -> None:
    reply = sealed_requests.answer(client([], **{cause: True}), request())
    assert set(reply) == {"version", "sender", "refusal"}


def test_an_unexpected_error_leaves_as_a_code_and_is_logged_at_the_site(caplog: Any) -> None:
    def broken() -> Any:
        raise RuntimeError("row 17 of patient Smith")

    with caplog.at_level(logging.WARNING):
        reply = sealed_requests.answer(client([], rows=broken), request())
    assert reply == {"version": envelope.VERSION, "sender": "a", "refusal": "internal"}
    assert "Smith" in caplog.text


def test_bad_data_leave_as_a_code() -> None:
    def bad() -> Any:
        raise DataError("score: row 3")

    assert refused(client([], rows=bad), request()) == Refusal.DATA


def test_the_same_question_gets_the_same_bytes_and_is_charged_once() -> None:
    log: list[str] = []
    one = client(log)
    assert one.answer(request()) == one.answer(request())
    assert log == ["policy", "ledger", "rows"]


def test_another_question_under_the_same_name_is_refused() -> None:
    one = client([])
    one.answer(request())
    assert refused(one, request(top=3)) == Refusal.CHANGED
    assert refused(one, request(message={"again": True})) == Refusal.CHANGED


def test_an_old_exchange_is_over() -> None:
    one = client([])
    for number in range(KEPT_EXCHANGES + 1):
        one.answer(request(exchange=bytes([number] * 16)))
    assert refused(one, request(exchange=bytes(16))) == Refusal.OUT_OF_TURN


def test_an_exchange_begins_with_its_first_leg_and_nothing_is_charged_otherwise() -> None:
    log: list[str] = []
    assert refused(client(log), request(leg=5)) == Refusal.OUT_OF_TURN
    assert log == []


def test_what_could_not_be_saved_is_not_said_later_either() -> None:
    class FullDisk(EndpointStore):
        def save(self) -> None:
            raise OSError("no space left on device")

    one = client([])
    one.store = FullDisk()
    assert refused(one, request()) == Refusal.INTERNAL
    assert refused(one, request()) == Refusal.INTERNAL


def test_a_charge_without_its_answer_is_refused_and_not_answered_anew() -> None:
    """The ledger survived and the store did not: a second answer would be one that nobody has paid for."""
    log: list[str] = []
    one = client(log)
    one.answer(request())
    one.store = EndpointStore()
    assert refused(one, request()) == Refusal.LOST
    assert log.count("rows") == 1


def test_a_small_message_cannot_ask_for_boundless_work() -> None:
    log: list[str] = []
    outer = wire.decode(request())
    outer["plans"] = outer["plans"] * 100
    outer["tasks"] = outer["tasks"] * 100
    assert refused(client(log), wire.encode(outer)) == Refusal.MALFORMED
    assert log == []


@pytest.mark.parametrize("field", ["version", "sender", "exchange", "leg", "refusal", "message", "prekeys"])
def test_a_reply_with_an_array_in_the_place_of_a_word_is_malformed(field: str) -> None:
    reply = {
        **{"version": envelope.VERSION, "sender": "a", "exchange": EXCHANGE, "leg": 0},
        **{"message": {}, "prekeys": []},
    }
    assert envelope.open_reply(wire.encode(reply), sender="a", exchange=EXCHANGE, leg=0)
    data = wire.encode({**reply, field: np.array([1, 2])})
    with pytest.raises(ProtocolError):
        envelope.open_reply(data, sender="a", exchange=EXCHANGE, leg=0)


def test_a_policy_judges_the_cohort_that_is_asked_not_the_one_that_is_claimed() -> None:
    one = client([], policy=SitePolicy(smallest_cohort=50))
    assert refused(one, request(clients=1000)) == Refusal.POLICY  # the request says a cohort of 5


def test_a_store_belongs_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.protocol.files.PATIENCE", 0.1)
    first = FileStore(tmp_path / "store")
    with pytest.raises(UsageError, match="another process"):
        FileStore(tmp_path / "store")
    first.close()
    FileStore(tmp_path / "store").close()


def test_a_store_on_the_disk_answers_as_if_nothing_had_happened(tmp_path: Path) -> None:
    one = client([])
    one.store = FileStore(tmp_path / "store")
    reply = one.answer(request())
    one.store.close()
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o600
    other = client([])
    other.store = FileStore(tmp_path / "store")
    assert other.answer(request()) == reply
    assert refused(other, request(message={"again": True})) == Refusal.CHANGED


def test_a_request_for_somebody_else_is_refused() -> None:
    outer = wire.decode(request())
    assert refused(client([]), wire.encode({**outer, "recipient": "b"})) == Refusal.MALFORMED


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("reply_key",), None),
        (("reply_key",), bytes(32)),  # of small order: everybody could open what is sealed for it
        (("trust", "name"), "pickle"),
        (("trust",), {"name": "plain", "extra": 1}),
        (("plans", 0, "summary", "name"), "rows"),
        (("plans", 0, "summary", "top"), "many"),
        (("plans", 0, "summary", "top"), -10),
        (("plans", 0, "query"), "steal"),
        (("plans", 0, "share"), float("nan")),
        (("plans", 0, "unit"), "client"),  # without a bound on its rows
        (("plans", 0, "clients"), None),
        (("plans",), []),
        (("tasks",), []),
        (("exchange",), b"short"),
        (("leg",), -1),
        (("message",), None),
    ],
)
def test_a_request_that_is_not_sound_is_refused_before_anything(path: tuple[Any, ...], value: Any) -> None:
    log: list[str] = []
    outer = wire.decode(request())
    inner: Any = outer
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert refused(client(log), wire.encode(outer)) in (Refusal.MALFORMED, Refusal.INTERNAL)
    assert "rows" not in log


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_can_crash_a_client_or_make_it_read_rows_unasked(data: st.DataObject) -> None:
    log: list[str] = []
    raw = bytearray(request())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    wire.decode(client(log).answer(bytes(raw)))
    assert log[:2] == ["policy", "ledger"][: len(log)]  # whatever happened, it happened in this order
    assert set(log[2:]) <= {"rows"}


def test_a_client_plans_for_itself() -> None:
    dp = ServerDP()
    good = request(trust=dp, budget=Budget(epsilon=1.0))
    outer = wire.decode(good)
    outer["plans"][0]["epsilon"] = None  # the server "forgets" the budget
    assert refused(client([]), wire.encode(outer)) == Refusal.UNSUPPORTED


def test_rows_per_client_is_enforced_and_counted() -> None:
    one = client([], rows=lambda: InMemory(tuple([1] * 50)))
    reply = sealed_requests.answer(one, request(protection=Protection(unit=Unit.CLIENT, rows_per_client=7)))
    (values,) = [v for v in reply["message"].values() if hasattr(v, "sum") or isinstance(v, list)]
    total = sum(int(v.sum()) for v in values) if isinstance(values, list) else int(values.sum())
    assert total == 7
    assert one.truncated == 43


def test_parts_are_disjoint_and_stable() -> None:
    rows = tuple(range(1000))
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=5)

    def measured(part: Part, number: int) -> list[int]:
        plan = Plain().plan(replace(Sum(of=CountsUpTo(top=999)), part=part), setting)
        data = sealed_requests.packed(
            study="s",
            trust=Plain(),
            tasks=("t",),
            request=Request(
                exchange=bytes([number] * 16), plans=(plan,), cohort=5, leg=0, recipient="a", message={}
            ),
        )
        one = client([], rows=lambda: InMemory(rows))
        opened = envelope.open_request(data, summaries=TOY_SUMMARIES, trust_models=TRUST_MODELS)
        one.agree(opened)
        return one._measure(opened, {})[0].tolist()

    fit, held_out, everything = (
        measured(part, i) for i, part in enumerate((Part.FIT, Part.HELD_OUT, Part.ALL))
    )
    assert [a + b for a, b in zip(fit, held_out, strict=True)] == everything
    assert 230 < sum(held_out) < 370  # Binomial(1000, 0.3): five standard deviations are 72
    assert measured(Part.HELD_OUT, 9) == held_out


def test_nothing_private_is_in_a_repr() -> None:
    one = client([], split_key=b"K" * 32)
    one.answer(request())
    shown = repr(one.site) + repr(one.store) + repr(one.store.conversations)
    assert "KKKK" not in shown
    assert "rows" not in shown


# --- the policy in every leg, and what a site remembers --------------------------------------------------------


class Changing(AllowAll):
    """A policy that says no from a certain message on, or breaks."""

    def __init__(self, *, after: int, error: Exception) -> None:
        self.left, self.error = after, error

    def check(self, request: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error


def village(names: str = "abcdefg", **site: Any) -> dict[str, Client]:
    """Clients that can add up, each with a memory of its own."""
    return {
        name: client(
            [],
            **{
                "name": name,
                "dataset": name,
                "randomness": SimulatedRandomness(ord(name)),
                "records": SiteRecords(),
                "policy": SitePolicy(smallest_cohort_difference=2),
                "ledger": MemoryLedger(None),
                **{key: value(name) if callable(value) else value for key, value in site.items()},
            },
        )
        for name in names
    }


APART = SecureSum(cohort_difference=3)
"""What the rule of the village asks for: two sites, and as many as may collude."""


def summed(
    clients: dict[str, Client],
    number: int,
    *,
    who: str = "",
    drops: Callable[[str, int], bool] = lambda name, leg: False,
    trust: TrustModel = APART,
) -> dict[str, str]:
    """Drive one exchange over some of the clients, as if there were no others: who refused, and how."""
    chosen = {name: clients[name] for name in who or clients}
    setting = Setting(
        trust=trust,
        protection=Protection(),
        budget=Budget(epsilon=1.0) if trust.private else None,
        clients=len(chosen),
    )
    runtime = Faithful(chosen.values(), drops=drops)
    errand = Errand(
        study="s",
        trust=trust,
        exchange=Exchange(
            id=bytes([number] * 16),
            plans=(trust.plan(Sum(of=CountsUpTo(top=4)), setting),),
            cohort=tuple(chosen),
            tasks=("t",),
            prekeys=runtime.prekeys(sorted(chosen)),
            deadline=2**40,
        ),
        randomness=SimulatedRandomness(number),
        hear=lambda leg, who: None,
    )
    with contextlib.suppress(TooFewClients):
        runtime.carry(errand)
    return {name: str(code) for name, code in runtime.refusals.items()}


def opened(one: Client) -> list[str]:
    """The sets of clients whose exact totals a member has helped to open."""
    return ["".join(sorted(clients)) for clients in one.site.prekeys.sets(one.site.dataset)]


@pytest.mark.parametrize(("after", "counted"), [(0, "bcdefg"), (1, "abcdefg")])
def test_a_policy_that_changes_between_legs_counts_from_the_next_message_on(after: int, counted: str) -> None:
    policies = {name: AllowAll() for name in "bcdefg"}
    stricter = Changing(after=after, error=PolicyRefusal("policy: not any more."))
    clients = village(policy=lambda name: policies.get(name, stricter))
    assert summed(clients, 1, trust=SecureSum()) == {"a": "policy"}
    assert [one.reason is None for one in clients.values()] == [False] + [True] * 6
    # Before it has spoken, it is simply not in the total; afterwards it helps no more to open it.
    assert opened(clients["a"]) == []
    assert opened(clients["b"]) == [counted]


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), UsageError("of its own"), KeyError("x"), ZeroDivisionError()]
)
def test_an_error_inside_a_policy_is_a_refusal_by_policy(error: Exception) -> None:
    records = SiteRecords()
    one = client([], policy=Changing(after=0, error=error), records=records)
    assert refused(one, request(), asker="somebody") == Refusal.POLICY
    (noted,) = records.refusals()
    assert (noted.code, noted.asker, noted.study) == ("policy", "somebody", "s")
    assert noted.exchange == EXCHANGE.hex()
    assert noted.reason == f"policy: it failed ({error!r}), so that everything is refused."


def test_every_refusal_is_noted_whatever_its_kind_and_nothing_else() -> None:
    records, log = SiteRecords(), list[str]()
    one = client(log, records=records, ledger_refuses=True)
    one.answer(b"nonsense")
    one.answer(request(leg=5))
    one.answer(request())
    assert [(noted.code, noted.exchange != "") for noted in records.refusals()] == [
        ("malformed", False),
        ("out-of-turn", True),
        ("budget", True),
    ]
    assert records.refusals()[-1].reason == "secret: 3.2 left"
    fine = client(log, records=records)
    fine.answer(request())
    fine.answer(request())
    assert len(records.refusals()) == 3


def test_a_refusal_that_cannot_be_noted_is_still_only_a_code(caplog: Any) -> None:
    class Full(SiteRecords):
        def refused(self, refusal: Any) -> None:
            raise OSError("no space left")

    assert refused(client([], records=Full(), policy_refuses=True), request()) == "policy"
    assert "could not be recorded" in caplog.text


def test_totals_over_clients_that_differ_by_too_few_are_not_helped_to_be_opened() -> None:
    clients = village()
    assert summed(clients, 1) == {}
    assert [opened(one) for one in clients.values()] == [["abcdefg"]] * 7
    assert summed(clients, 2, who="abcdef") == dict.fromkeys("abcdef", "policy")
    assert summed(clients, 3) == {}
    assert summed(clients, 4, who="abcd") == {}  # three fewer
    assert opened(clients["a"]) == ["abcdefg", "abcd"]


def test_terms_that_allow_closer_sets_are_refused_by_a_site_with_the_rule() -> None:
    """Colluders can stand in for sites on either side, so that the terms must say more than the rule."""
    for trust in (SecureSum(), SecureSum(cohort_difference=2)):
        clients = village(policy=lambda name: SitePolicy(smallest_cohort_difference=2))
        assert set(summed(clients, 1, trust=trust).values()) == {"policy"}
        assert "expected none or at least 3: 1 colluders and 2 others" in str(clients["a"].reason)
    assert summed(village(), 1, trust=SecureSum(same_set=True)) == {}


def test_who_is_silent_is_not_subtracted_either() -> None:
    """It did not speak; the members are told of those who did, and refuse to open what is left."""
    clients = village()
    assert summed(clients, 1) == {}
    assert summed(clients, 2, drops=without_g) == dict.fromkeys("abcdefg", "policy")
    assert all(opened(one) == ["abcdefg"] for one in clients.values())
    fresh = village()
    assert summed(fresh, 1, drops=without_g) == {}  # nothing was opened before
    assert opened(fresh["a"]) == ["abcdef"]
    assert opened(fresh["g"]) == ["abcdef"]  # as a member it has helped, although its rows are not in it
    assert summed(fresh, 2) == dict.fromkeys("abcdefg", "policy")


def without_g(name: str, leg: int) -> bool:
    """It does not speak; as a member it answers."""
    return name == "g" and leg == 0


def test_two_exchanges_at_once_are_not_both_opened() -> None:
    """Both look harmless while nothing is opened: what counts is what a member has on record when it answers."""
    clients, other = village(), list[dict[str, str]]()

    def meanwhile(name: str, leg: int) -> bool:
        if leg == 1 and not other:
            other.append({})
            other[0] = summed(clients, 2, who="abcdef")
        return False

    assert summed(clients, 1, drops=meanwhile) == dict.fromkeys("abcdef", "policy")
    assert other == [{}]
    assert opened(clients["a"]) == ["abcdef"]


def test_without_the_rule_sets_are_remembered_and_nothing_is_refused() -> None:
    clients = village(policy=SitePolicy())
    for number, who in enumerate(("abcdefg", "abcdef", "abcdef", "abc")):
        assert summed(clients, number, who=who, trust=SecureSum()) == {}
    assert opened(clients["a"]) == ["abcdefg", "abcdef", "abc"]
    assert opened(clients["d"]) == ["abcdefg", "abcdef"]


def test_a_rule_that_is_added_later_knows_what_was_opened_before() -> None:
    clients = village(policy=SitePolicy())
    assert summed(clients, 1, who="abcdef", trust=SecureSum()) == {}
    for one in clients.values():
        one.site = replace(one.site, policy=SitePolicy(same_set=True))
    refusals = summed(clients, 2, trust=SecureSum(same_set=True))
    assert refusals == dict.fromkeys("abcdef", "policy")


def test_noise_needs_no_rule_about_sets() -> None:
    rules = SitePolicy(smallest_cohort_difference=2, same_set=True, total=Budget(epsilon=9.0))
    clients = village(policy=rules)
    for number, who in enumerate(("abcdefg", "abcdef")):
        assert summed(clients, number, who=who, trust=DistributedDP()) == {}
    assert opened(clients["a"]) == []


def test_a_member_that_did_not_speak_is_charged_nothing() -> None:
    clients = village(policy=SitePolicy())
    assert summed(clients, 1, drops=without_g, trust=SecureSum()) == {}
    assert [len(one.site.ledger.charges) for one in clients.values()] == [1] * 6 + [0]
