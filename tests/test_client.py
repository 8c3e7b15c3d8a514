"""The site's boundary: policy, ledger, one answer per question, fixed codes, and order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedassay import envelope, wire
from fedassay.client import Client, Site
from fedassay.endpoint import KEPT_EXCHANGES, FileStore, Store
from fedassay.envelope import Refusal
from fedassay.errors import BudgetExceeded, DataError, PolicyRefusal, ProtocolError, UsageError
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.policy import AllowAll, SimplePolicy
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Batch, Budget, Message, Part, Protection, Request, Setting, Sum, Unit
from fedassay.trust import TRUST_MODELS
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP
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
    return envelope.pack_request(
        study="s",
        trust=setting.trust,
        tasks=("t",),
        request=Request(
            exchange=exchange, plans=(plan,), cohort=5, leg=leg, recipient="a", message=message or {}
        ),
    )


def refusal(reply: bytes) -> str | None:
    code = wire.decode(reply).get("refusal")
    return None if code is None else str(code)


def test_policy_then_ledger_then_rows() -> None:
    log: list[str] = []
    assert refusal(client(log).answer(request())) is None
    assert log == ["policy", "ledger", "rows"]


def test_a_refused_policy_charges_nothing_and_reads_nothing() -> None:
    log: list[str] = []
    assert refusal(client(log, policy_refuses=True).answer(request())) == Refusal.POLICY
    assert log == ["policy"]


@pytest.mark.parametrize("values", [(), (1, 2, 3)])
def test_a_column_that_the_site_has_not_named_is_refused_with_and_without_rows(
    values: tuple[int, ...],
) -> None:
    """Before anything else: a refusal that came of reading would say whether there are rows."""
    log: list[str] = []
    asked = {"rows": lambda: Watched(log, values), "ledger": WatchedLedger(log)}
    assert refusal(client(log, roles=frozenset({"score"}), **asked).answer(request())) == Refusal.DATA
    assert log == []
    assert refusal(client(log, roles=frozenset({"value"}), **asked).answer(request())) is None
    assert log == ["policy", "ledger", "rows"]


def test_a_refused_charge_reads_nothing() -> None:
    log: list[str] = []
    assert refusal(client(log, ledger_refuses=True).answer(request())) == Refusal.BUDGET
    assert log == ["policy", "ledger"]


@pytest.mark.parametrize("cause", ["policy_refuses", "ledger_refuses"])
def test_no_text_of_an_error_leaves_the_site(cause: str) -> None:
    reply = wire.decode(client([], **{cause: True}).answer(request()))
    assert set(reply) == {"version", "sender", "refusal"}


def test_an_unexpected_error_leaves_as_a_code_and_is_logged_at_the_site(caplog: Any) -> None:
    def broken() -> Any:
        raise RuntimeError("row 17 of patient Smith")

    with caplog.at_level(logging.WARNING):
        reply = client([], rows=broken).answer(request())
    assert refusal(reply) == Refusal.INTERNAL
    assert b"Smith" not in reply
    assert "Smith" in caplog.text


def test_bad_data_leave_as_a_code() -> None:
    def bad() -> Any:
        raise DataError("score: row 3")

    assert refusal(client([], rows=bad).answer(request())) == Refusal.DATA


def test_the_same_question_gets_the_same_bytes_and_is_charged_once() -> None:
    log: list[str] = []
    one = client(log)
    assert one.answer(request()) == one.answer(request())
    assert log == ["policy", "ledger", "rows"]


def test_another_question_under_the_same_name_is_refused() -> None:
    one = client([])
    one.answer(request())
    assert refusal(one.answer(request(top=3))) == Refusal.CHANGED
    assert refusal(one.answer(request(message={"again": True}))) == Refusal.CHANGED


def test_an_old_exchange_is_over() -> None:
    one = client([])
    for number in range(KEPT_EXCHANGES + 1):
        one.answer(request(exchange=bytes([number] * 16)))
    assert refusal(one.answer(request(exchange=bytes(16)))) == Refusal.OUT_OF_TURN


def test_an_exchange_begins_with_its_first_leg_and_nothing_is_charged_otherwise() -> None:
    log: list[str] = []
    assert refusal(client(log).answer(request(leg=5))) == Refusal.OUT_OF_TURN
    assert log == []


def test_what_could_not_be_saved_is_not_said_later_either() -> None:
    class FullDisk(Store):
        def save(self) -> None:
            raise OSError("no space left on device")

    one = client([])
    one.store = FullDisk()
    assert refusal(one.answer(request())) == Refusal.INTERNAL
    assert refusal(one.answer(request())) == Refusal.INTERNAL


def test_a_charge_without_its_answer_is_refused_and_not_answered_anew() -> None:
    """The ledger survived and the store did not: a second answer would be one that nobody has paid for."""
    log: list[str] = []
    one = client(log)
    one.answer(request())
    one.store = Store()
    assert refusal(one.answer(request())) == Refusal.MALFORMED
    assert log.count("rows") == 1


def test_a_small_message_cannot_ask_for_boundless_work() -> None:
    log: list[str] = []
    outer = wire.decode(request())
    outer["plans"] = outer["plans"] * 100
    outer["tasks"] = outer["tasks"] * 100
    assert refusal(client(log).answer(wire.encode(outer))) == Refusal.MALFORMED
    assert log == []


@pytest.mark.parametrize("field", ["version", "sender", "exchange", "leg", "refusal", "message"])
def test_a_reply_with_an_array_in_the_place_of_a_word_is_malformed(field: str) -> None:
    reply = {"version": 1, "sender": "a", "exchange": EXCHANGE, "leg": 0, "message": {}}
    data = wire.encode({**reply, field: np.array([1, 2])})
    with pytest.raises(ProtocolError):
        envelope.open_reply(data, sender="a", exchange=EXCHANGE, leg=0)


def test_a_policy_judges_the_cohort_that_is_asked_not_the_one_that_is_claimed() -> None:
    one = client([], policy=SimplePolicy(smallest_cohort=50))
    assert refusal(one.answer(request(clients=1000))) == Refusal.POLICY  # the request says a cohort of 5


def test_a_store_belongs_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.files.PATIENCE", 0.1)
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
    assert refusal(other.answer(request(message={"again": True}))) == Refusal.CHANGED


def test_a_request_for_somebody_else_is_refused() -> None:
    outer = wire.decode(request())
    assert refusal(client([]).answer(wire.encode({**outer, "recipient": "b"}))) == Refusal.MALFORMED


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
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
    assert refusal(client(log).answer(wire.encode(outer))) in (Refusal.MALFORMED, Refusal.INTERNAL)
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
    assert refusal(client([]).answer(wire.encode(outer))) == Refusal.UNSUPPORTED


def test_rows_per_client_is_enforced_and_counted() -> None:
    one = client([], rows=lambda: InMemory(tuple([1] * 50)))
    reply = wire.decode(one.answer(request(protection=Protection(unit=Unit.CLIENT, rows_per_client=7))))
    (values,) = [v for v in reply["message"].values() if hasattr(v, "sum") or isinstance(v, list)]
    total = sum(int(v.sum()) for v in values) if isinstance(values, list) else int(values.sum())
    assert total == 7
    assert one.truncated == 43


def test_parts_are_disjoint_and_stable() -> None:
    rows = tuple(range(1000))
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=5)

    def measured(part: Part, number: int) -> list[int]:
        plan = Plain().plan(replace(Sum(of=CountsUpTo(top=999)), part=part), setting)
        data = envelope.pack_request(
            study="s",
            trust=Plain(),
            tasks=("t",),
            request=Request(
                exchange=bytes([number] * 16), plans=(plan,), cohort=5, leg=0, recipient="a", message={}
            ),
        )
        one = client([], rows=lambda: InMemory(rows))
        opened = envelope.open_request(data, summaries=TOY_SUMMARIES, trust_models=TRUST_MODELS)
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
