"""`fedassay flower`: write the app, submit a study, set up a site. Flower itself is an extra."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from fedassay.agenda import Agenda
from fedassay.cli import options, output
from fedassay.cli.flower_site import site
from fedassay.cli.study import Wanted, wanted
from fedassay.errors import UsageError
from fedassay.protocol import Setting
from fedassay.result import Result
from fedassay.runtimes.flower.app_bundle import write_app
from fedassay.runtimes.flower.coordinator_file import VARIABLE, write_coordinator
from fedassay.runtimes.flower.events import Event
from fedassay.runtimes.flower.study import Study
from fedassay.runtimes.flower.submission import Connection, submit
from fedassay.tasks.catalogue import TASKS

flower_app = typer.Typer(
    name="flower", help="Run between machines on Flower: app, submit, site.", no_args_is_help=True
)
flower_app.command()(site)


@flower_app.command("app")
def app_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the app.")],
    coordinator: Annotated[
        Path, typer.Option(help="The coordinator's file, which lies on the SuperLink's machine.")
    ] = Path("coordinator.toml"),
    key: Annotated[
        Path | None, typer.Option(help="The coordinator's private key: writes the coordinator's file too.")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="With --key: the sites' names and public keys (roster.toml).")
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


@flower_app.command("submit")
@options.takes(wanted, options.terms, options.no_seed, output.delivery)
def submit_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app's folder.")],
    study: Annotated[
        str, typer.Option(help="A name for the study. The same name goes on with a run that broke off.")
    ],
    address: Annotated[str | None, typer.Option(help="The SuperLink, HOST:PORT.")] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="The certificate by which the SuperLink is recognised.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS: for a test on one machine.")
    ] = False,
    connection: Annotated[
        str | None, typer.Option(help="Instead of an address: a connection in Flower's own settings.")
    ] = None,
    task: Annotated[str, typer.Option(help="What to run: " + ", ".join(TASKS) + ".")] = "evaluate",
    timeout: Annotated[float, typer.Option(help="Seconds that a site has for each leg.")] = 120.0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for sites that are not there yet.")] = 60.0,
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
    document = submitted(folder, asked, reached, quiet=delivery.quiet)
    wanted.deliver(Result.from_json(document), delivery)


def submitted(folder: Path, asked: Study, reached: Connection, *, quiet: bool) -> str:
    """Submit a study and show how it goes; the document that comes back."""
    with output.progress(quiet=quiet) as advance:

        def heard(event: Event) -> None:
            if event["event"] == "progress":
                advance(int(event["leg"]), int(event["done"]), int(event["total"]))
            elif event["event"] == "warning" and not quiet:
                print(f"Warning: {event.get('message')}", file=sys.stderr)

        return submit(folder, asked, reached, heard=heard)
