"""The one sentence that bad data get, from everything that could say it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from data_forms import COLUMNS

from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.findings import Finding
from fedassay.errors import DataError, UsageError


def kind_of(value: object) -> str:
    """An id that is the same in every process."""
    return value if isinstance(value, str) else re.sub(r"0x[0-9a-fA-F]+", "somewhere", repr(value))[:60]


def sentence(data: Any, *, client: str | None = None, columns: dict[str, str] | None = None) -> str:
    """What `load` says; `check` must find the same thing, and both modes of `load` must agree."""
    said = set()
    for limit in (0, 2**30):
        with pytest.raises((DataError, UsageError)) as caught:
            load(data, client=client, columns=columns or COLUMNS, memory_limit=limit)
        said.add(str(caught.value))
    (text,) = said
    assert "\n" not in text
    assert re.search(r": got .*, expected ", text), text
    assert Finding.of_sentence(text).sentence() == text
    report = check(data, client=client, columns=columns or COLUMNS)
    assert not report.ok
    assert text in [finding.sentence() for finding in report.findings]
    return text
