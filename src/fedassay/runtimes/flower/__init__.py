"""Flower carries the messages: simulated on Ray, or deployed between machines (extra `flower`).

The parts, from the outside in: `submission` (what the coordinator's person starts), `server_app` (runs a study next
to the SuperLink), `client_app` (runs at a site), `simulation` (both in one process, on Ray). Under them are `runtime`
(what `fedassay.kernel.run` drives, and which node is which site) and `post` (signed messages out, replies back).

Nothing else of fedassay imports this package unless Flower is asked for. Flower and Ray report usage over the
network unless it is switched off before they are imported, so it is switched off here.
"""

from __future__ import annotations

import importlib.util
import os

from fedassay.errors import UsageError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns about a change in its next version
}
"""No telemetry, no look for updates: a federation's machines communicate only with each other."""

for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)


def require(*modules: str) -> None:
    """Raise a `UsageError` that names what to install if a module of the extra is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UsageError(
                f"flower: the package {module} is not installed; run `pip install 'fedassay[flower]'`."
            )
