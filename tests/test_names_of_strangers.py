"""Names in requests are short and printable; a request with others is refused before it is planned or logged raw."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fedassay.protocol import wire
from fedassay.protocol.texts import LONGEST_NAME
from fedassay.protocol.vocabulary import Budget
from fedassay.trust.server_dp import ServerDP
from policy_sites import Ask, Sites, close

HOSTILE = {
    "too long": "x" * (LONGEST_NAME + 1),
    "a screen": "spring\x1b[2J\x1b[H",
    "a line": "spring\nWARNING a answers",
    "a direction": "spring\u202esuoiluceridir",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("field", ["study", "tasks"])
def test_a_request_with_a_hostile_name_is_refused_and_leaves_no_trace_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, name: str
) -> None:
    sites = Sites(tmp_path, ("a",))
    sites.allow("a", "smallest_cohort = 1\n[total]\nepsilon = 1.0\n", trust_models=("server-dp",))
    ask = Ask(trust=ServerDP(), budget=Budget(epsilon=0.5))
    body = wire.decode(ask.body("a"))
    client = sites.open("a")
    try:
        with caplog.at_level(logging.WARNING):
            hostile = wire.encode({**body, field: [name] if field == "tasks" else name})
            assert wire.decode(client.answer(hostile, asker=sites.asker))["refusal"] == "malformed"
        assert client.site.ledger.spent("a/rows", 0.0) == 0
        assert "\x1b" not in caplog.text
        assert name not in caplog.text
    finally:
        close(client)
    (refused,) = sites.refusals("a")
    assert name not in (refused.study, refused.reason)


def test_a_name_as_long_as_may_be_is_no_reason_to_refuse(tmp_path: Path) -> None:
    sites = Sites(tmp_path, ("a",))
    sites.allow("a", "[total]\nepsilon = 1.0\n", trust_models=("server-dp",))
    body = wire.decode(Ask(trust=ServerDP(), budget=Budget(epsilon=0.5)).body("a"))
    client = sites.open("a")
    try:
        client.answer(wire.encode({**body, "study": "é" * LONGEST_NAME}), asker=sites.asker)
        assert client.site.ledger.spent("a/rows", 0.0) > 0
    finally:
        close(client)
