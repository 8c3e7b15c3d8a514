"""`fedassay flower`: write the app, submit a study, set up a site. Flower itself is an extra."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from rich.console import Console
from rich.prompt import Prompt

from fedassay.cli import options, output
from fedassay.cli.aggregate import Wanted, wanted
from fedassay.cli.command import Argument, Option, command, takes
from fedassay.crypto.identity import Identity, fingerprint, key_to_text
from fedassay.data.schema import ROLES, Columns
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.errors import PolicyRefusal, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.sites import SiteFile, read_roster, read_toml
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.files import write_atomically
from fedassay.protocol.vocabulary import COORDINATOR, Setting
from fedassay.runtimes.flower.coordinator_file import VARIABLE, write_coordinator
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.flower.submission import Connection, to_toml, watched, write_app
from fedassay.tasks.card import DEFAULT, TASKS
from fedassay.trust import TRUST_MODELS


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
    output.say(
        Console(quiet=quiet),
        *(f"Written: {path}" for path in written),
        "Next, where the SuperLink is started (it takes the coordinator's file from there, never from a run):",
        f"  export {VARIABLE}={quote(str(coordinator.absolute()))}",
        "  flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key "
        "--enable-supernode-auth --disable-runtime-dependency-installation --database superlink.db",
        f"Then start the SuperNodes, and: fedassay flower submit {folder} --study NAME --address HOST:PORT "
        "--root-certificates ca.crt",
    )


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
    terms: Setting,
    no_seed: None,
    delivery: output.Delivery,
) -> None:
    """Run a study on a SuperLink, show how it goes, and bring the result back."""
    asked = FlowerStudy(
        name=study,
        agenda=Agenda.of(task, wanted.of(task)),
        trust=terms.trust,
        budget=terms.budget,
        protection=terms.protection,
        timeout=timeout,
        wait=wait,
    )
    reached = Connection(
        address=address, root_certificates=root_certificates, insecure=insecure, name=connection
    )
    with output.progress(quiet=delivery.quiet) as progress:
        result = watched(folder, asked, reached, progress=progress, warn=output.warning(quiet=delivery.quiet))
    delivery.deliver(result, out=wanted.out)


# --- `fedassay flower site` ---------------------------------------------------------------------------------


@command
def site(
    out: Annotated[Path, Option(help="The site's file to write.")] = Path("site.toml"),
    name: Annotated[str | None, Option(help="This site's name, as in the roster.")] = None,
    data: Annotated[str | None, Option(help="The data: .parquet, .csv or .npz, or a database URL.")] = None,
    query: Annotated[str | None, Option(help="With a database URL: the SELECT whose rows are used.")] = None,
    dataset: Annotated[
        str | None, Option(help="What the ledger calls these rows. Default: NAME/FILE.")
    ] = None,
    column: Annotated[
        list[str] | None,
        Option(help=f"ROLE=COLUMN, such as score=p; may be repeated. Roles: {', '.join(ROLES)}."),
    ] = None,
    trust_model: Annotated[
        list[str] | None, Option(help="A trust model that this site allows; may be repeated.")
    ] = None,
    smallest_cohort: Annotated[int, Option(help="The fewest sites with which this site adds up.")] = 3,
    epsilon: Annotated[
        float | None, Option(help="Privacy budget of these rows, in total; none: no noisy queries.")
    ] = None,
    delta: Annotated[float, Option(help="The delta of that budget.")] = 0.0,
    key: Annotated[Path | None, Option(help="This site's private key; made if it is not there.")] = None,
    state: Annotated[Path | None, Option(help="Private folder for the ledger and the state of runs.")] = None,
    roster: Annotated[
        Path | None, Option(help="Names and public keys of all (roster.toml), from the coordinator.")
    ] = None,
    superlink: Annotated[str, Option(help="The SuperLink, HOST:PORT, for the printed command.")] = (
        "SUPERLINK:8000"
    ),
) -> None:
    """Write a site's file: what it holds, what it allows, whom it believes. Asks for what is not given."""
    if out.exists():
        raise UsageError(f"{out}: exists already; a site's rules are not overwritten, give another file.")
    name = name or Prompt.ask("Name of this site, as in the roster")
    data = data or Prompt.ask("Data file (.parquet, .csv, .npz)")
    source = source_named(data, query)
    columns = _columns(column or _asked_columns())
    allowed = trust_model or [Prompt.ask("Trust model that this site allows", default="secure-sum")]
    key = key or Path(Prompt.ask("Private key (made if it is not there)", default=f"{name}.key"))
    roster = roster or Path(Prompt.ask("Roster with all public keys", default="roster.toml"))
    unknown = sorted(set(allowed) - set(TRUST_MODELS))
    if unknown:
        raise UsageError(f"trust model: got {unknown[0]!r}, expected one of {', '.join(TRUST_MODELS)}.")
    identity = _identity(key)
    keys = _roster(roster, name, identity)
    sections: dict[str, dict[str, Any]] = {
        "columns": columns,
        "policy": {"trust_models": list(allowed), "smallest_cohort": smallest_cohort},
        **({} if epsilon is None else {"policy.total": {"epsilon": epsilon, "delta": delta}}),
        "roster": {who: key_to_text(public) for who, public in keys.items()},
    }
    head = {
        "name": name,
        "dataset": dataset or f"{name}/{source.name}",
        **_where(source),
        "key": str(key.absolute()),
        "state": str((state or out.absolute().parent / f"{name}-state").absolute()),
    }
    write_atomically(out, _toml(head, sections))
    try:
        SiteFile.read(out).policy.now()  # refuses what `client_app` would refuse
    except PolicyRefusal as error:
        raise UsageError(str(error)) from error
    _next_steps(out, identity, superlink)


def _where(source: Path | Database) -> dict[str, str]:
    if not isinstance(source, Database):
        return {"data": str(source.absolute())}
    place = source.url if source.file is None else f"sqlite:///{source.file}"
    return {"data": place, "query": source.query}


def _toml(head: dict[str, Any], sections: dict[str, dict[str, Any]]) -> str:
    lines = ["# This site's own rules. Nothing that a study sends can change or read them."]
    lines += [f"{entry} = {to_toml(value)}" for entry, value in head.items()]
    for section, table in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{to_toml(entry)} = {to_toml(value)}" for entry, value in table.items()]
    return "\n".join(lines) + "\n"


def _asked_columns() -> list[str]:
    score = Prompt.ask("Column with the model's probabilities")
    label = Prompt.ask("Column with the true labels")
    return [f"score={score}", f"label={label}"]


def _columns(given: list[str]) -> dict[str, str]:
    columns = {}
    for text in given:
        role, equals, column = text.partition("=")
        if not (role and equals and column):
            raise UsageError(f"--column: got {text!r}, expected ROLE=COLUMN, such as score=p.")
        if role in columns:
            raise UsageError(f"--column: got {role} twice, expected one column for each role; leave one out.")
        columns[role] = column
    return dict(Columns(names=columns).names)  # refuses what cannot be read before anything is written


def _identity(key: Path) -> Identity:
    if key.exists():
        return Identity.load(key)
    identity = Identity.draw(SecureRandomness())
    identity.save(key)
    return identity


def _roster(path: Path, name: str, identity: Identity) -> dict[str, bytes]:
    """Read all public keys; this site's own and the coordinator's must be among them."""
    own = f'{name} = "{key_to_text(identity.public)}"'
    try:
        keys = read_roster(path, read_toml(path).get("roster"))
    except UsageError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        reason = error.__cause__.strerror
        raise UsageError(
            f"{path}: cannot be read ({reason}); the coordinator sends the roster. This site's line in it is {own}."
        ) from error
    if keys.get(name) != identity.public:
        raise UsageError(f"{path}: does not have this site's key; its line must be {own}.")
    if COORDINATOR not in keys:
        raise UsageError(f"{path}: does not have the key of {COORDINATOR}, whom this site is to answer.")
    return keys


def _next_steps(out: Path, identity: Identity, superlink: str) -> None:
    config = f"site={to_toml(str(out.absolute()))}"
    output.say(
        Console(),
        f"Written: {out}",
        f"Fingerprint of this site's key, to be read to the others: {fingerprint(identity.public)}",
        "Next: check the data with fedassay check, then start the node:",
        f"  flower-supernode --superlink {superlink} --root-certificates ca.crt "
        f"--auth-supernode-private-key node.pem --node-config '{config}'",
        "Whoever may submit runs to that SuperLink can run programs on this machine: see docs/how-to/flower.md.",
    )
