"""The coordinator's own file: its key, its folder, its budget, and the public keys of all sites.

Only the environment of the SuperLink's machine (`FEDASSAY_COORDINATOR`) determines which file it is.

```toml
key = "coordinator.key"      # made by `fedassay keys`; paths are relative to this file
state = "state"              # folder: journals, ledger, results
# ledger = "postgresql://…"  # optional: a database that coordinators share, in the place of state/ledger.sqlite
helpers = []                 # names of the roster that help (second server) and hold no rows
# disclosure = "minimum-5"   # what is done to exact totals before anything is computed from them

[budget]                     # optional: what the coordinator may spend of the federation, in total
epsilon = 3.0

[roster]                     # the public keys of all sites (and helpers)
hospital-a = "…"
hospital-b = "…"
```
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.errors import UsageError
from fedassay.kernel.sites import named_in_errors, read_ledger, read_roster, read_toml
from fedassay.privacy.policy.disclosure import Disclosure, profile_named
from fedassay.protocol.files import write_atomically
from fedassay.protocol.vocabulary import COORDINATOR, Budget
from fedassay.runtimes.flower.submission import to_toml

VARIABLE = "FEDASSAY_COORDINATOR"
"""Environment variable that names the coordinator's file where `flower-superlink` is started: Flower's
processes pass their environment on to the ServerApp, and a run configuration cannot change it."""

_KNOWN = {"key", "state", "ledger", "helpers", "budget", "disclosure", "roster"}


@dataclass(frozen=True, kw_only=True)
class CoordinatorFile:
    """Content of a coordinator's file, checked."""

    clients: tuple[str, ...]
    helpers: tuple[str, ...]
    state: Path
    ledger: Path | str = field(repr=False)
    budget: Budget | None
    disclosure: Disclosure | None = None
    credentials: Credentials = field(repr=False)

    @classmethod
    def of_this_machine(cls) -> CoordinatorFile:
        """Read the file that this process's environment names; a submitted run has no influence on it."""
        text = os.environ.get(VARIABLE, "")
        if not Path(text).is_absolute():
            got = f"got {text!r}" if text else "it is not set"
            raise UsageError(
                f"{VARIABLE}: {got}, expected the absolute path of the coordinator's file; export it where "
                "flower-superlink is started, and start the SuperLink again."
            )
        return cls.read(Path(text))

    @classmethod
    def read(cls, path: Path) -> CoordinatorFile:
        """Read a coordinator's file; anything unclear in it is an error."""
        content = read_toml(path)
        if not {"key", "state", "roster"} <= set(content) <= _KNOWN:
            raise UsageError(
                f"{path}: expected the entries key, state, roster, and perhaps ledger, helpers, budget, disclosure."
            )
        folder = path.absolute().parent
        roster = read_roster(path, content["roster"])
        helpers = content.get("helpers", [])
        if not isinstance(helpers, list) or not set(map(str, helpers)) <= set(roster):
            raise UsageError(f"{path}: helpers must be a list of names of the roster.")
        try:
            budget = Budget(**content["budget"]) if "budget" in content else None
        except TypeError as error:
            raise UsageError(f"{path}: the budget has entries epsilon and delta only ({error}).") from error
        named = content.get("disclosure")
        with named_in_errors(path):
            disclosure = None if named is None else profile_named(named)
        return cls(
            clients=tuple(sorted(set(roster) - set(helpers) - {COORDINATOR})),
            helpers=tuple(helpers),
            state=folder / str(content["state"]),
            ledger=read_ledger(path, content, folder / str(content["state"])),
            budget=budget,
            disclosure=disclosure,
            credentials=Credentials(identity=Identity.load(folder / str(content["key"])), roster=roster),
        )


def write_coordinator(path: Path, *, key: Path, roster: Path) -> None:
    """Write a coordinator's file from its key and a roster file; what `read` would refuse is refused here."""
    if path.exists():
        raise UsageError(f"{path}: exists already; change it by hand, or give another file.")
    identity = Identity.load(key)
    keys = read_roster(roster, read_toml(roster).get("roster"))
    if keys.pop(COORDINATOR, identity.public) != identity.public:
        raise UsageError(f"{roster}: the key of {COORDINATOR} is not the one given; correct one of them.")
    lines = [
        f"key = {to_toml(str(key.absolute()))}",
        f"state = {to_toml(str(path.absolute().parent / 'coordinator-state'))}",
        "",
        "[roster]",
        *(f"{to_toml(name)} = {to_toml(key_to_text(public))}" for name, public in keys.items()),
        "",
    ]
    write_atomically(path, "\n".join(lines))
