"""Exchanges that may have served to test a guess about somebody's rows: how a server half marks them, and how many.

A server half (`TrustModel.assist`) puts a sentence under `DOUBT` into its state for as long as there is reason to ask
what went on. Whoever drives it counts such exchanges, and begins no other one once there are `MOST_DOUBTS` of them,
until somebody has looked into it.
"""

from __future__ import annotations

DOUBT = "doubt"
"""The entry of a state; absent if all is well."""

MOST_DOUBTS = 3
"""Few, as each may have told a server that lies something; more than none, as machines fail and clients cheat."""
