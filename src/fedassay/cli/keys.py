"""`fedassay keys`: a key pair for a site or a coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedassay.crypto.identity import Identity, fingerprint, key_to_text
from fedassay.privacy.randomness import SecureRandomness


def keys(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The private key's file, such as hospital-a.key.")
    ],
) -> None:
    """Make a key pair (or show the one that is there) and print the public key for the others' rosters."""
    there = file.exists()
    identity = Identity.load(file) if there else Identity.draw(SecureRandomness())
    if not there:
        identity.save(file)
    typer.echo(
        f"Private key:  {file} ({'it was there already' if there else 'new'}; it never leaves this machine)"
    )
    typer.echo(f'Public key:   {file.stem} = "{key_to_text(identity.public)}"')
    typer.echo(f"Fingerprint:  {fingerprint(identity.public)}")
    typer.echo(
        "Next: send the line of the public key to everybody, and read the fingerprint to them by telephone."
    )
