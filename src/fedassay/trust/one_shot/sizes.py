"""Sizes of a secure sum: its members, how many of them may fall silent or collude, and the packing of entries.

Notation: N sites in the roster, n clients in the cohort, k members. C of all sites and c of the members may work for
the coordinator; D₀ clients and D₁ members may fall silent. Shares of t members reveal nothing, r = t + l open all.

**Rule: 3(t + 1) > 2k + c.** Then, whatever sets of clients a coordinator names to whichever member, it learns the total
over one set of honest clients, or nothing (proof in `docs/explanation/secure-sum.md`). With t = k − D₁ − l the rule
reads k ≥ 3D₁ + c + 3l − 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from scipy.special import bdtr

from fedassay.crypto.packed import Packing
from fedassay.errors import ProtocolError, TooFewClients

LARGEST_COMMITTEE = 1000
"""Largest roster whose sites are all members if none are named; beyond, sites would agree on keys with thousands."""

NAMED = 16
"""Number of members that plans and simulations assume where some have to be named."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of one exchange, computed by every party for itself."""

    clients: int
    members: int
    colluders: int
    """C: number of sites of the roster that may work for the coordinator."""
    colluding_members: int
    silent_clients: int
    silent_members: int
    packed: int
    least: int
    """Fewest clients over which an honest member opens a total."""

    @classmethod
    def from_list(cls, numbers: Sequence[object]) -> Sizes:
        """Read the numbers in the order of the fields, from a stranger; `ProtocolError` if they are none."""
        if len(numbers) != len(fields(cls)) or not all(type(one) is int and one >= 0 for one in numbers):
            raise ProtocolError("sizes: expected whole numbers.")
        found = cls(**{field.name: one for field, one in zip(fields(cls), numbers, strict=True)})  # type: ignore[arg-type]
        found.require_rule()
        return found

    def require_rule(self) -> None:
        """Refuse numbers by which more than one total could open."""
        k, c = self.members, self.colluding_members
        if not (3 * (self.threshold + 1) > 2 * k + c and c <= self.threshold and self.packed >= 1):
            raise ProtocolError("sizes: by these numbers, more than one total could open.")

    @property
    def threshold(self) -> int:
        """t: number of members whose shares reveal nothing."""
        return self.members - self.silent_members - self.packed

    @property
    def needed(self) -> int:
        """r: number of members that must answer."""
        return self.members - self.silent_members

    @property
    def honest(self) -> int:
        """M: number of honest clients in every total that opens."""
        return self.least - self.colluders

    def chance(self, missed: float = 0.1) -> float:
        """Compute the probability that a total opens, if each site misses each pass with probability `missed`.

        Examples
        --------
        >>> fractions = {"dropout": 0.2, "collusion": 0.1, "smallest": 3}
        >>> [round(sizes(clients=n, roster=n, members=n, **fractions).chance(), 2) for n in (3, 10, 40)]
        [0.53, 0.86, 0.97]
        """
        spoke = bdtr(self.silent_clients, self.clients, missed)
        return float(spoke * bdtr(self.silent_members, self.members, missed))

    @property
    def packing(self) -> Packing:
        """The sharing with these numbers."""
        return Packing(members=self.members, threshold=self.threshold, packed=self.packed)


def share_of(fraction: float, count: int) -> Fraction:
    """Return the exact product: 0.29 is 29/100, not the double nearest to it.

    Examples
    --------
    >>> share_of(0.29, 100)
    Fraction(29, 1)
    """
    return Fraction(repr(float(fraction))) * count


def tolerated(count: int, fraction: float) -> int:
    """Return the largest number of parties that make up at most this fraction of `count`.

    Examples
    --------
    >>> tolerated(100, 0.29), tolerated(4, 0.2)
    (29, 0)
    """
    return floor(share_of(fraction, count))


def colluders_of(count: int, collusion: float) -> int:
    """Return the number of colluders assumed among `count` sites: rounded up, so that 0 needs a collusion of 0.

    Examples
    --------
    >>> colluders_of(4, 0.1), colluders_of(40, 0.1), colluders_of(4, 0.0)
    (1, 4, 0)
    """
    return ceil(share_of(collusion, count))


def opening_words(answered: int, *, asked: int, needed: int) -> str:
    """Describe how many answers were spare when a total was opened, and what that means.

    Examples
    --------
    >>> opening_words(9, asked=10, needed=8)
    '9 of 10 members answered, 8 were needed: 1 spare. False rows were checked for.'
    >>> opening_words(3, asked=3, needed=3)
    '3 of 3 members answered, 3 were needed: none spare. False rows could not be noticed.'
    """
    spare = answered - needed
    checked = "were checked for" if spare else "could not be noticed"
    return (
        f"{answered:,} of {asked:,} members answered, {needed:,} were needed: {spare or 'none'} spare. "
        f"False rows {checked}."
    )


@lru_cache(maxsize=1024)
def sizes(
    *,
    clients: int,
    roster: int,
    members: int,
    dropout: float,
    collusion: float,
    smallest: int,
    named: bool = False,
    everybody: bool = False,
) -> Sizes:
    """Compute the numbers for a cohort of `clients` out of `roster` sites, with `members` members.

    Guarantee: the rule of this module holds, for c = min(k, C) colluding members, or ⌈collusion·k⌉ if the members were
    `named` and so are believed to have no more. With `everybody` no client may be silent. Of all choices that survive
    D₁ = ⌊dropout·k⌋ silent members (fewer if the rule leaves no room for them), entries are packed as far as
    possible.

    Examples
    --------
    >>> found = sizes(clients=10, roster=10, members=10, dropout=0.2, collusion=0.1, smallest=3)
    >>> found.threshold, found.needed, found.packed, found.least, found.honest
    (7, 8, 1, 8, 7)
    >>> sizes(clients=3, roster=3, members=3, dropout=0.2, collusion=0.1, smallest=3).silent_members
    0
    """
    C = colluders_of(roster, collusion)
    c = colluders_of(members, collusion) if named else min(members, C)
    silent = tolerated(members, dropout)
    while silent > 0 and members <= 3 * silent + c:
        silent -= 1
    packed = (members - 3 * silent - c + 2) // 3
    least = max(smallest, C + 2, clients - (0 if everybody else tolerated(clients, dropout)))
    if packed < 1 or least > clients:
        raise TooFewClients(
            f"secure sum of {clients:,} clients with {members:,} members: {C:,} of {roster:,} sites are assumed to "
            f"collude (collusion {collusion:.3g}), which needs a total over at least {max(smallest, C + 2):,} clients; "
            "ask more sites, or lower `collusion`."
        )
    found = Sizes(
        clients=clients,
        members=members,
        colluders=C,
        colluding_members=c,
        silent_clients=clients - least,
        silent_members=silent,
        packed=packed,
        least=least,
    )
    found.require_rule()
    return found


# --- the sizes in sentences -----------------------------------------------------------------------------------


def described(found: Sizes | None, *, named: bool, private: bool) -> str:
    """Describe who opens the total, who may be missing, who may collude, and what is assumed; ends with a blank.

    The numbers are left out while it is not known how many sites there are.
    """
    numbers = "" if found is None else _numbers(found, named=named, private=private)
    return (
        f"{numbers}This holds against a coordinator that tells sites different things, and against everyone who reads "
        "the network. Assumed: sites have pinned each other's keys, and delete the key of an answer once it is given. "
    )


def attendance(found: Sizes) -> str:
    """Describe how many sites may be missing, and how probable it is that a sum comes through all the same."""
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
