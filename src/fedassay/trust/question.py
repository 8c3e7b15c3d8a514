"""Digest of what is asked in an exchange, which all parties of it must share.

Exchanges that may have served to test a guess about a person's rows: how a server half marks them, and how many.

A server half (`TrustModel.assist`) puts a sentence under `DOUBT` into its state for as long as there is reason to ask
what went on. The party that drives it counts such exchanges. Once there are `MOST_DOUBTS` of them, it begins no other
exchange until an operator has looked into it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedassay.crypto.keys import context
from fedassay.protocol.vocabulary import Plan


def question(plans: Sequence[Plan]) -> bytes:
    """Return a digest of what is asked: queries, summaries with all their fields, protection and budget.

    The cohort is left out, for a client does not learn how it was chosen.
    """
    asked = [
        (
            type(plan.query).__name__,
            (plan.query.of.name, plan.query.of),
            float(plan.query.share),
            plan.query.part,
            plan.setting.protection,
            plan.setting.budget,
        )
        for plan in plans
    ]
    return hashlib.sha256(canonical(asked)).digest()


def canonical(value: Any) -> bytes:
    """Encode a value as bytes, the same before and after it has travelled (where tuples become lists, say)."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return context("array", little.dtype.str, str(value.shape), little.tobytes())
    if isinstance(value, Mapping):
        items = sorted((str(key), item) for key, item in value.items())
        return context("mapping", *(part for key, item in items for part in (key, canonical(item))))
    if isinstance(value, list | tuple):
        return context("list", *map(canonical, value))
    if isinstance(value, str):
        return context("text", str(value))
    if isinstance(value, np.generic):
        value = value.item()
    return context(type(value).__name__, value if isinstance(value, bytes) else repr(value))


# --- exchanges that may have served to test a guess about a person's rows -------------------------------------

DOUBT = "doubt"
"""Key of the entry in a state; absent if all is well."""

MOST_DOUBTS = 3
"""Few, as each may have revealed something to a server that lies; above 0, as machines fail and clients cheat."""
