"""The type of the `verify` fixture, for tests that measure a stated number."""

from __future__ import annotations

from collections.abc import Callable

Verify = Callable[[str, str], None]
"""Called with a claim and what was measured; both end up in `docs/verification.md`."""
