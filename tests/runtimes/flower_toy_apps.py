"""The apps of the contract in a Flower deployment: the real ones, with the toys' catalogues and scenarios.

Messages, signatures, node files, the coordinator's file and the log lines are those of the real apps; only the
parties behind the nodes, and what the coordinator asks, are the toys'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flower_toys import toy_client, toy_helper
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from scenarios import HELPER, PROGRAMMES, SCENARIOS, play

from fedassay.kernel.endpoint import Endpoint, FileStore
from fedassay.kernel.member_store import MemberStore
from fedassay.kernel.sites import COORDINATOR, SiteFile
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.runtimes.flower import submission
from fedassay.runtimes.flower.client_app import Node, app_of, read_node
from fedassay.runtimes.flower.coordinator_file import CoordinatorFile
from fedassay.runtimes.flower.server_app import Coordinator
from fedassay.runtimes.flower.study import FlowerStudy

COMPONENTS = {"serverapp": "flower_toy_apps:server", "clientapp": "flower_toy_apps:client"}


def read_toy(config: Mapping[str, Any]) -> Node:
    """The node's party as its file says, but with toy rows, toy catalogues and a state of its own."""
    node = read_node(config)
    state = node.state / "toys"

    def opened() -> Endpoint:
        toy: Endpoint
        if node.name == HELPER:
            toy = toy_helper(SecureRandomness(), node.credentials)
        else:
            ledger = DatabaseLedger(state / "ledger.sqlite", None, allow_exact=True)
            credentials = node.credentials.among(set(node.credentials.roster) - {COORDINATOR})
            toy = toy_client(
                node.name,
                randomness=SecureRandomness(),
                ledger=ledger,
                credentials=credentials,
                prekeys=MemberStore(SiteFile.read(Path(config["site"])).prekeys),
            )
        toy.store = FileStore(state / "store")
        return toy

    return replace(node, state=state, open=opened)


client = app_of(read_toy)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Play the programme that the study is named after; the outcomes go to the log as a result does."""
    try:
        study = FlowerStudy.from_config(context.run_config)
        coordinator = Coordinator(file=CoordinatorFile.of_this_machine())
        runtime = coordinator.runtime(grid, study, progress=_progress, warn=_warn)
        outcomes = {
            name: asdict(play(SCENARIOS[name], runtime, SecureRandomness()))
            for name in PROGRAMMES[study.name]
        }
    except Exception as error:
        print(submission.line("failed", code=4, message=repr(error)), flush=True)
        raise
    for text in submission.result_lines(json.dumps(outcomes), path=""):
        print(text, flush=True)


def _progress(leg: int, done: int, total: int) -> None:
    print(submission.line("progress", leg=leg, done=done, total=total), flush=True)


def _warn(message: str) -> None:
    print(submission.line("warning", message=message), flush=True)
