"""`fedassay verify`: check that a study's folder still agrees with its certificate."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console

from fedassay.artefacts.certificate import CERTIFICATE
from fedassay.artefacts.verified import ANY_KEY, Outcome, Verified, check
from fedassay.cli import options, output
from fedassay.cli.command import Argument, Option, command
from fedassay.crypto.identity import key_from_text
from fedassay.errors import UsageError
from fedassay.protocol.texts import printable

DOES_NOT_HOLD = 5
"""Exit code if something does not hold, or the signer is unchecked; as of an audit that has found something."""

_LONGEST_KEY_FILE = 10_000
_COLOURS = {
    Outcome.HOLDS: "green",
    Outcome.WRONG: "bold red",
    Outcome.UNCHECKED: "bold yellow",
    Outcome.NOTE: "yellow",
}
_KEY = r"[A-Za-z0-9+/]{43}="
_LINE = re.compile(rf'\s*(?:({_KEY})|[^="]*=\s*"({_KEY})(?: [A-Za-z0-9+/=]+)?")\s*')
"""Pattern of a public key, or of the line with a card that `fedassay keys` prints."""


@command
def verify(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="What `fedassay run` has left.")],
    key: Annotated[
        str | None,
        Option(
            metavar="KEY|FILE",
            help="The public key that must have signed: as `fedassay keys` prints it, or a file with it.",
        ),
    ] = None,
    any_key: Annotated[
        bool, Option("--any-key", help="Accept any signer: that files belong together is enough.")
    ] = False,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Check a study's certificate: signature, files, and whether what was spent adds up.

    Ends with exit code 5 if something does not hold, or if nothing is wrong but the signer was not checked: give --key,
    or --any-key to accept any signer.
    """
    if any_key and key is not None:
        raise UsageError("--any-key: got it together with --key, expected one of them; leave one out.")
    output.check_writable(json)
    if folder.name == CERTIFICATE and not folder.is_dir():
        folder = folder.parent
    found = check(folder, key=ANY_KEY if any_key else None if key is None else public_key(key))
    output.write_json(found.to_dict(), json)
    _render(found, output.console_beside(json, quiet=quiet))
    if not found.holds:
        sys.exit(DOES_NOT_HOLD)


def public_key(text: str) -> bytes:
    """Return a public key, from its text or a file that holds it (or the line that `fedassay keys` prints)."""
    given = text
    if _LINE.fullmatch(text) is None:
        try:
            with Path(text).open(encoding="ascii") as file:
                given = file.read(_LONGEST_KEY_FILE)
        except (OSError, ValueError):
            given = ""
    if given.startswith("fedassay private key"):
        raise UsageError(
            f"--key {text}: got a private key, expected a public one; do not give that file away."
        )
    found = _LINE.fullmatch(given)
    if found is None:
        raise UsageError(
            f"--key {text}: expected a public key as `fedassay keys` prints it, or a file with that line only."
        )
    return key_from_text(found[1] or found[2], whose="--key")


def _render(found: Verified, console: Console) -> None:
    table = output.titled(printable(found.study or found.folder), "what", "outcome", "why")
    table.columns[1].no_wrap = True
    for one in found.checks:
        colour = _COLOURS[one.outcome]
        table.add_row(printable(one.what), f"[{colour}]{one.outcome}[/]", printable(one.text))
    console.print(table)
    if found.holds:
        text = f"[green]Everything holds[/] in {printable(found.folder)}."
    elif not found.wrong:
        text = (
            "[bold yellow]The signer was not checked:[/] nothing else is wrong, but a stranger could have changed and "
            "signed everything. Give --key with the public key that you expect, or --any-key to accept any."
        )
    else:
        names = ", ".join(dict.fromkeys(one.what for one in found.wrong))
        text = f"[bold red]Does not hold:[/] {printable(names)}"
    output.say(console, text, markup=True)
