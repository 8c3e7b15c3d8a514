"""Who answers at a node: the site, or the helper, whose file the node's own configuration names.

A SuperNode is started with `--node-config 'site="/etc/fedassay/site.toml"'`. Data, policy, ledger and keys come
from that file and from nowhere else: nothing that a run sends can name a path or change a limit.
"""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedassay.crypto.identity import Credentials, Identity, key_from_text
from fedassay.errors import UsageError
from fedassay.kernel.endpoint import Endpoint, FileStore
from fedassay.kernel.envelope import MOST_PREKEYS
from fedassay.kernel.helper import Helper, ServerStore
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.randomness import SecureRandomness

_HELPER_ENTRIES = {"name", "key", "state", "roster"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """A party at a node, before its state is opened."""

    name: str
    state: Path
    credentials: Credentials = field(repr=False)
    open: Callable[[], Endpoint] = field(repr=False)
    offer: Callable[[str], Sequence[bytes]] = field(default=lambda asker: (), repr=False)
    """Makes prekeys for a coordinator, of which the public key is given as text."""

    @contextmanager
    def opened(self) -> Iterator[Endpoint]:
        """The party with its state, alone: each message runs in a process of its own, and runs may overlap."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits as long as it takes; the store's own lock does not
            endpoint = self.open()
            try:
                yield endpoint
            finally:
                if isinstance(endpoint.store, FileStore | ServerStore):
                    endpoint.store.close()
        finally:
            os.close(descriptor)


def read_node(config: Mapping[str, Any]) -> Node:
    """The party that a node's configuration names by `site` or `helper`; exactly one of them."""
    named = [role for role in ("site", "helper") if role in config]
    if len(named) != 1:
        raise UsageError("node-config: expected either site or helper, the absolute path of its file.")
    path = Path(str(config[named[0]]))
    if not path.is_absolute():
        raise UsageError(f"node-config: got {path}, expected an absolute path.")
    return _site(path) if named == ["site"] else _helper(path)


def _site(path: Path) -> Node:
    site = SiteFile.read(path)
    return Node(
        name=site.name,
        state=site.state,
        credentials=site.credentials,
        open=site.open,
        offer=lambda asker: site.offer(MOST_PREKEYS, asker=asker),
    )


def _helper(path: Path) -> Node:
    """A helper's file has the entries name, key, state and roster of a site's file, and nothing else."""
    content = read_toml(path)
    if set(content) != _HELPER_ENTRIES:
        raise UsageError(f"{path}: expected exactly the entries {', '.join(sorted(_HELPER_ENTRIES))}.")
    folder, name = path.parent, str(content["name"])
    state = folder / str(content["state"])

    credentials = Credentials(
        identity=Identity.load(folder / str(content["key"])), roster=read_roster(path, content["roster"])
    )

    def opened() -> Endpoint:
        return Helper(
            name,
            randomness=SecureRandomness(),
            store=ServerStore(state / "exchanges"),
            credentials=credentials,
        )

    return Node(name=name, state=state, credentials=credentials, open=opened)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or a `UsageError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct the line it names.") from error


def read_roster(path: Path, table: object) -> dict[str, bytes]:
    """The public keys in a roster, by name."""
    if not isinstance(table, dict) or not table:
        raise UsageError(f"{path}: roster must be a section ([roster]) with a public key for each name.")
    roster = {str(name): key_from_text(text, whose=str(name)) for name, text in table.items()}
    if len(set(roster.values())) != len(roster):
        raise UsageError(f"{path}: two parties of the roster have the same key; each needs its own.")
    return roster
