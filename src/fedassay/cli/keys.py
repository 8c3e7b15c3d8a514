"""`fedassay keys`: a key pair for a site or a coordinator."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from fedassay.cli.command import Argument, command
from fedassay.crypto.identity import Credentials, Identity, fingerprint, key_to_text
from fedassay.crypto.prekeys import DAY, DAYS_NAMED
from fedassay.kernel.member_store import MemberStore
from fedassay.kernel.sites import prekeys_of
from fedassay.privacy.randomness import SecureRandomness


@command
def keys(
    file: Annotated[Path, Argument(metavar="FILE", help="The private key's file, such as hospital-a.key.")],
) -> None:
    """Make a key pair (or show the one that is there) and print the public key for the others' rosters."""
    there = file.exists()
    identity = Identity.load(file) if there else Identity.draw(SecureRandomness())
    if not there:
        identity.save(file)
    print(
        f"Private key:  {file} ({'it was there already' if there else 'new'}; it never leaves this machine)"
    )
    card = MemberStore(prekeys_of(file)).card(Credentials(identity=identity, roster={}), SecureRandomness())
    until = datetime.fromtimestamp(card.issued + DAYS_NAMED * DAY, UTC).date()
    print(f"Prekeys:      {prekeys_of(file)} (never in a backup: an old copy of it is worth nothing)")
    print(f'Card:         {file.stem} = "{key_to_text(identity.public)} {card.to_text()}"')
    print(f"Fingerprint:  {fingerprint(identity.public)}")
    print(
        "Next: send the line of the card to all parties, for their rosters, and read them the fingerprint by "
        f"telephone. A study can begin with this card until {until}; for a later one, send the coordinator a new one."
    )
