"""`fedassay flower`: write the app, submit a study, set up a site. Flower itself is an extra."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

from rich.console import Console

from fedassay.agenda import Agenda
from fedassay.cli import options, output
from fedassay.cli.command import Argument, Option, command, takes
from fedassay.cli.study import Wanted, wanted
from fedassay.errors import UsageError
from fedassay.protocol import Setting
from fedassay.runtimes.flower.app_bundle import write_app
from fedassay.runtimes.flower.coordinator_file import VARIABLE, write_coordinator
from fedassay.runtimes.flower.deployment import watched
from fedassay.runtimes.flower.study import Study
from fedassay.runtimes.flower.submission import Connection
from fedassay.tasks.catalogue import DEFAULT, TASKS


@command
def app_command(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder for the app.")],
    coordinator: Annotated[
        Path, Option(help="The coordinator's file, which lies on the SuperLink's machine.")
    ] = Path("coordinator.toml"),
    key: Annotated[
        Path | None, Option(help="The coordinator's private key: writes the coordinator's file too.")
    ] = None,
    roster: Annotated[
        Path | None, Option(help="With --key: the sites' names and public keys (roster.toml).")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Write the Flower app (one pyproject.toml, no code) and, with --key and --roster, the coordinator's file."""
    if (key is None) != (roster is None):
        raise UsageError("--key and --roster: they go together; give both or neither.")
    written = []
    if key is not None and roster is not None:
        write_coordinator(coordinator, key=key, roster=roster)
        written.append(coordinator)
    written.append(write_app(folder))
    console = Console(quiet=quiet)
    for text in (
        *(f"Written: {path}" for path in written),
        "Next, where the SuperLink is started (it takes the coordinator's file from there, never from a run):",
        f"  export {VARIABLE}={quote(str(coordinator.absolute()))}",
        "  flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key "
        "--enable-supernode-auth --disable-runtime-dependency-installation --database superlink.db",
        f"Then start the SuperNodes, and: fedassay flower submit {folder} --study NAME --address HOST:PORT "
        "--root-certificates ca.crt",
    ):
        console.print(text, highlight=False, soft_wrap=True, markup=False)


@takes(wanted, options.terms, options.no_seed, output.delivery)
def submit_command(
    folder: Annotated[Path, Argument(metavar="DIR", help="The app's folder.")],
    study: Annotated[
        str, Option(help="A name for the study. The same name goes on with a run that broke off.")
    ],
    address: Annotated[str | None, Option(help="The SuperLink, HOST:PORT.")] = None,
    root_certificates: Annotated[
        Path | None, Option(help="The certificate by which the SuperLink is recognised.")
    ] = None,
    insecure: Annotated[bool, Option("--insecure", help="Without TLS: for a test on one machine.")] = False,
    connection: Annotated[
        str | None, Option(help="Instead of an address: a connection in Flower's own settings.")
    ] = None,
    task: Annotated[str, Option(help="What to run: " + ", ".join(TASKS) + ".")] = DEFAULT,
    timeout: Annotated[float, Option(help="Seconds that a site has for each leg.")] = 120.0,
    wait: Annotated[float, Option(help="Seconds to wait for sites that are not there yet.")] = 60.0,
    *,
    wanted: Wanted,
    terms: options.Terms,
    no_seed: None,
    delivery: output.Delivery,
) -> None:
    """Run a study on a SuperLink, show how it goes, and bring the result back."""
    setting = Setting(trust=terms.trust, protection=terms.protection, budget=terms.budget, clients=0)
    asked = Study.under(study, Agenda.of(task, wanted.of(task)), setting, timeout=timeout, wait=wait)
    reached = Connection(
        address=address, root_certificates=root_certificates, insecure=insecure, name=connection
    )
    with delivery.progress() as progress:
        result = watched(folder, asked, reached, progress=progress, warn=output.warning(quiet=delivery.quiet))
    wanted.deliver(result, delivery)
