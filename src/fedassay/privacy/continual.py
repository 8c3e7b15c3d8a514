"""Continual release of a count: the number of events so far, published after every step of a stream.

A building block for monitoring: alerts, complaints, admissions per day. The mechanisms are in `continual_noise.py`, the
argument and measurements in docs/explanation/continual-counts.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.privacy import accounting
from fedassay.privacy.continual_noise import LONGEST_FACTORISED, MECHANISMS, ContinualMechanism, candidates
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    Budget,
    Message,
    Noise,
    Randomness,
    Sensitivity,
)

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Values that may be published after a step.

    Parameters
    ----------
    step : number of steps that have been observed.
    total : events so far, with noise.
    variance : its exact variance. A non-decreasing total is the largest of the noisy ones so far; this is then the
        variance of the last of them.
    simulated : True if any of the noise came from a seed. Such a total is not private.
    """

    step: int
    total: float
    variance: float
    simulated: bool


class ContinualCount:
    """The number of events so far, after each of up to `horizon` steps, for one budget.

    Guarantee: all totals together are (epsilon, delta)-differentially private for adding or removing what one unit
    contributes, up to `unit_events` events at any steps. It holds for streams that react to what has been published,
    but for ``path`` with delta > 0 only for those that do not (``auto`` never chooses that).

    Assumptions: the aggregator is trusted with exact counts and draws from a secure source; steps follow a clock, not
    the events; no unit has more events than stated; the caller charges the budget, once.

    Save `to_dict()` before a total is published: a step that is observed a second time gets new noise, and both totals
    together say more. What is saved holds exact counts and noise, and is as secret as the events.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> monitor = ContinualCount.begin(horizon=365, budget=Budget(epsilon=1.0))
    >>> first = monitor.observe(12, SecureRandomness())
    >>> first.step, round(first.variance, 1), monitor
    (1, 7.8, ContinualCount(tree, step 1 of 365))
    """

    def __init__(self, mechanism: ContinualMechanism, *, non_decreasing: bool) -> None:
        self.mechanism = mechanism
        self.non_decreasing = non_decreasing
        self._state = mechanism.start()
        self._latest = Observation(step=0, total=0.0, variance=0.0, simulated=False)

    @classmethod
    def begin(
        cls,
        *,
        horizon: int,
        budget: Budget,
        unit_events: int = 1,
        mechanism: str = "auto",
        non_decreasing: bool = False,
    ) -> ContinualCount:
        """Begin a count, with nothing observed yet.

        Parameters
        ----------
        mechanism : ``path``, ``tree``, ``factorised``, or ``auto``: the one with the least mean variance over all
            steps. Parameters, such as a tree's fan-out, are chosen in the same way.
        non_decreasing : totals begin at 0 and never fall. This is computed from what is private already.
        """
        able = [
            one
            for one in candidates(horizon=horizon, budget=budget, unit_events=unit_events)
            if mechanism == one.name or (mechanism == "auto" and one.survives_reactions)
        ]
        if not able:
            raise UsageError(
                f"mechanism: got {mechanism!r} for {horizon:,} steps, expected auto, path, tree, or for up to "
                f"{LONGEST_FACTORISED:,} steps factorised."
            )
        steps = np.arange(1, horizon + 1)
        best = min(able, key=lambda one: one.noise.variance * float(one.factors(steps).mean()))
        return cls(best, non_decreasing=non_decreasing)

    def observe(self, count: int, randomness: Randomness) -> Observation:
        """Add the events of the next step; what may be published after it."""
        step, horizon = self._latest.step + 1, self.mechanism.horizon
        if step > horizon:
            raise UsageError(
                f"step: got {step:,}, expected at most {horizon:,}, the horizon; begin a new count."
            )
        if (
            isinstance(count, bool)
            or not isinstance(count, int | np.integer)
            or not 0 <= count <= LARGEST_ROWS_PER_CLIENT
        ):
            raise UsageError(f"count: got {count!r}, expected a whole number from 0 to 2^32.")

        def draw(size: int) -> list[int]:
            return [int(one) for one in accounting.draw(self.noise, size, randomness)]

        total, self._state = self.mechanism.advance(step, self._state, int(count), draw)
        self._latest = Observation(
            step=step,
            total=max(total, self._latest.total) if self.non_decreasing else total,
            variance=self.variance(step),
            simulated=self._latest.simulated or randomness.simulated,
        )
        return self._latest

    @property
    def latest(self) -> Observation | None:
        """Result of the last step, to be published again if need be; None before the first."""
        return self._latest if self._latest.step else None

    @property
    def noise(self) -> Noise:
        """The law of one draw. With `sensitivity`, what a ledger needs to know."""
        return self.mechanism.noise

    @property
    def sensitivity(self) -> Sensitivity:
        """Bounds on how far one unit moves the values to which the draws are added."""
        return self.mechanism.sensitivity

    def variance(self, step: int) -> float:
        """Return the variance of the total after a step; known before the first."""
        return self.noise.variance * float(self.mechanism.factors(np.array([step]))[0])

    def to_dict(self) -> Message:
        """Return everything that is needed to go on, for JSON. Secret."""
        return {
            "version": _VERSION,
            "mechanism": self.mechanism.name,
            "parameters": asdict(self.mechanism),
            "scale": self.noise.scale,
            "non_decreasing": self.non_decreasing,
            "latest": asdict(self._latest),
            "state": self._state,
        }

    @classmethod
    def from_dict(cls, saved: Message) -> ContinualCount:
        """Restore the count from which `to_dict` was made: it goes on with the same noise.

        Refused if the noise would have another scale now, or if the state does not fit the mechanism.
        """
        try:
            parameters = {**saved["parameters"], "budget": Budget(**saved["parameters"]["budget"])}
            again = cls(MECHANISMS[saved["mechanism"]](**parameters), non_decreasing=saved["non_decreasing"])
            again._latest = Observation(**saved["latest"])
            same = (saved["version"], saved["scale"]) == (_VERSION, again.noise.scale)
            same = same and _fits(again._state, saved["state"], again._latest.step)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError("state: got something else, expected what to_dict has made.") from error
        if not same:
            raise UsageError(
                "state: got one that does not fit its mechanism, expected what to_dict has made."
            )
        again._state = saved["state"]
        return again

    def __repr__(self) -> str:
        name, horizon = self.mechanism.name, self.mechanism.horizon
        return f"ContinualCount({name}, step {self._latest.step:,} of {horizon:,})"


def _fits(start: Message, state: Any, step: int) -> bool:
    """Return whether a state has the fields, the lengths and the kinds of numbers of a fresh one."""
    if set(start) != set(state):
        return False
    for key, value in start.items():
        wanted, given = ([value], [state[key]]) if not isinstance(value, list) else (value, state[key])
        kind = type(wanted[0]) if wanted else int
        if len(given) != (len(wanted) or step) or not all(type(one) is kind for one in given):
            return False
    return True
