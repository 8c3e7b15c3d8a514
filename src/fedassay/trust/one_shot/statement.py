"""What the statements of secure sums say of members, dropouts and colluders."""

from __future__ import annotations

from fedassay.trust.one_shot.sizes import Sizes


def described(found: Sizes | None, *, named: bool, private: bool) -> str:
    """Who opens the total, who may be missing, who may collude, and what is assumed; ends with a blank.

    The numbers are left out while it is not known how many sites there are.
    """
    numbers = "" if found is None else _numbers(found, named=named, private=private)
    return (
        f"{numbers}This holds against a coordinator that tells sites different things, and against everyone who reads "
        "the network. Assumed: sites have pinned each other's keys, and delete the key of an answer once it is given. "
    )


def attendance(found: Sizes) -> str:
    """How many may be missing, and how probable it is that a sum comes through all the same."""
    odds = f"if each site misses one pass in ten, a sum comes through with probability {found.chance():.2f}"
    if not found.silent_clients and not found.silent_members:
        return f"Every one of the {found.clients:,} sites must answer both passes of a sum; {odds}."
    return (
        f"{_sites(found.silent_clients)} of {found.clients:,} may miss the first pass of a sum, and "
        f"{found.silent_members:,} of {found.members:,} members the second; {odds}."
    )


def _numbers(found: Sizes, *, named: bool, private: bool) -> str:
    n = found.clients
    noise = f"Every total that opens holds the noise of {found.honest:,} honest sites. " if private else ""
    if found.silent_members:
        absent = (
            f"The sum still works without {_sites(found.silent_clients)} of {n:,} in the first round and without "
            f"{_sites(found.silent_members)} of the {found.members:,} that open it in the second. "
        )
    else:
        absent = f"With so few sites, each of the {found.members:,} that open the total must answer. "
    if not found.colluders:
        collusion = "No site may collude with the coordinator. "
    elif named or found.members < n:
        collusion = (
            f"Up to {_sites(found.colluders)}, and at most {found.colluding_members:,} of the named members, may "
            "collude with a lying coordinator. "
        )
    else:
        collusion = f"Up to {_sites(found.colluders)} may collude with a lying coordinator. "
    pooled = (
        f"{found.threshold + 1:,} members who pooled their keys before they delete them could read the messages of "
        "that exchange. "
    )
    return f"A total over fewer than {found.least:,} of {n:,} sites is never opened. {noise}{absent}{collusion}{pooled}"


def _sites(count: int) -> str:
    return f"{count:,} site{'s' * (count != 1)}"
