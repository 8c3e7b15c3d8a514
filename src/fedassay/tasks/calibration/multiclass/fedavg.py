"""Federated averaging of calibrators: in each round clients fit from the common parameters, which move to the mean.

    theta <- theta + Σ w_k u_k / Σ w_k,   u_k = the fit of client k's rows from theta, less theta

With weights of one this is the published method; weighted by rows it is closer to the pooled optimum, which
`fit_exact` finds and this method does not: the mean of optima is not the optimum of the mean.

Under noise the sum is of clipped updates, and the divisor of unweighted updates is the *expected* number of clients,
p·K: a count of those that took part would have to be private too, and would gain nothing. Weighted by rows, the noisy
sum of weights is the divisor, part of the same release.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedassay.errors import ParameterError, UnsupportedQuery, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import (
    TOTAL_BITS,
    All,
    Budget,
    Noise,
    Part,
    Released,
    Sample,
    Setting,
    Step,
    Sum,
)
from fedassay.summaries.multiclass.calibrator_sums import ClippedUpdates, UpdateSums, UpdateWeights
from fedassay.summaries.multiclass.local_fits import AVERAGED, LARGEST_UPDATE, RIDGE, Averaged
from fedassay.summaries.scored import whole
from fedassay.tasks.calibration.multiclass.exact import Fit

CLIP = 0.5
"""Default clip of updates under noise: the published choice."""

MOST_ROUNDS = 10_000
NOISIEST = 2.0
"""Length of noise in a mean update, in clips, beyond which a fit is useless: no update is longer than 1."""

_LARGEST_EPSILON = 32.0
"""Largest recommended epsilon: a larger epsilon gives no protection and is slow to plan with sampling."""


@dataclass(frozen=True, kw_only=True)
class FederatedAveraging:
    """Fit by federated averaging: the map after some rounds, from the identity map.

    Guarantee: without noise and clip, one round with all clients is the mean of the fits of single clients
    (`local_fit`), to 2^-20 in each parameter. Under noise each round is one release of a sum of updates that clients
    clip, for an equal share of the budget. Parameters stay within the bounds of the method: temperatures within
    [0.05, 20], factors of order-preserving scaling at least 1e-6.

    Edge cases: a round in which no client has rows changes nothing; if there is no other, the result is the identity
    map and has a reason.

    Parameters
    ----------
    method : ``temperature``, ``vector``, ``matrix``, ``order-preserving`` or ``fedcal``.
    participation : p, the probability that a client takes part in a round.
    clip : the L2 norm of an update beyond which it is shortened; None for none without noise, and 0.5 under noise.
    weights : ``clients``, all weigh the same, or ``rows``. Under noise, ``rows`` needs a bound on the rows of a client:
        weights are parts of it.
    ridge : penalty of the local fits, per row.
    expected_clients : K, the public number of clients with rows in this part; all of the setting, by default.
        Only used under noise.
    noisiest : largest length, in clips, of the noise in the mean of one round. Beyond it a fit is refused, as a
        `UsageError` that names a sufficient number of rounds and epsilon; infinite for none.
    noisy : True if the answers of clients are made for noise: clipped, with weights that can be released.

    Reference: McMahan, Ramage, Talwar and Zhang, Learning Differentially Private Recurrent Language Models, 2018,
    Algorithm 1, with the estimator of a fixed denominator (Section 2, f_f).
    """

    method: str
    classes: int
    setting: Setting
    rounds: int
    participation: float = 1.0
    clip: float | None = None
    weights: UpdateWeights = "clients"
    ridge: float = RIDGE
    expected_clients: float | None = None
    noisiest: float = NOISIEST
    part: Part = Part.FIT
    noisy: bool = False

    def __post_init__(self) -> None:
        if self.method not in AVERAGED:
            raise UsageError(f"method: got {self.method!r}, expected one of {', '.join(AVERAGED)}.")
        if self.weights not in ("clients", "rows"):
            raise UsageError(f"weights: got {self.weights!r}, expected clients or rows.")
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip: got {self.clip:.3g}, expected a number above 0.")
        whole(self.rounds, what="rounds", least=1, most=MOST_ROUNDS)
        Sample(rate=self.participation)  # refuses what is no rate
        for what, number, most in (
            ("expected clients", self.clients, 2.0**40),
            ("noisiest", self.noisiest, math.inf),
        ):
            if not 0 < number <= most:
                raise UsageError(f"{what}: got {number:.3g}, expected a number above 0, up to {most:.3g}.")

    @property
    def averaged(self) -> Averaged:
        """Family of maps."""
        return AVERAGED[self.method]

    @property
    def clients(self) -> float:
        """K, the number of clients that are expected to have rows."""
        return float(max(1, self.setting.clients) if self.expected_clients is None else self.expected_clients)

    @property
    def longest(self) -> float:
        """The clip of updates; 0 for none."""
        return self.clip or (CLIP if self.noisy else 0.0)

    @property
    def _most_rows(self) -> int:
        """The most rows that a client can weigh; 0 where clients weigh the same."""
        bound = self.setting.protection.rows_per_client
        if self.weights == "clients":
            return 0
        if not self.noisy:
            # Without a bound, more rows weigh no more than what keeps the largest total below 2^60.
            room: int = 2**TOTAL_BITS // int(LARGEST_UPDATE * 2**20 * max(1, self.setting.clients))
            return min(bound or 2**32, max(1, min(2**32, room)))
        if bound is None:
            raise ParameterError(
                "averaging",
                "got rows under noise, but the rows of a client have no bound; expected `rows_per_client`, or "
                "averages of clients.",
            )
        return bound

    @property
    def prepared(self) -> FederatedAveraging:
        """The same averaging, made for noise where there is noise."""
        return replace(self, noisy=replace(self, noisy=True, weights="clients").noise.variance > 0)

    def summary(self, theta: Floats) -> ClippedUpdates:
        """Return the summary that clients measure in one round."""
        return ClippedUpdates(
            method=self.method,
            classes=self.classes,
            theta=tuple(theta.tolist()),
            clip=self.longest,
            weights="fixed" if self.noisy and self.weights == "clients" else self.weights,
            most_rows=self._most_rows,
            ridge=self.ridge,
        )

    def query(self, theta: Floats) -> Sum[UpdateSums]:
        """Return the query for the sum of one round."""
        cohort = All() if self.participation == 1 else Sample(rate=self.participation)
        return Sum(of=self.summary(theta), share=1 / self.rounds, cohort=cohort, part=self.part)

    @property
    def start(self) -> Floats:
        """The parameters of the identity map."""
        return self.averaged.identity(self.classes)

    @cached_property
    def noise(self) -> Noise:
        """Noise of a round's sum."""
        return self.setting.noise(self.query(self.start))

    @property
    def spread(self) -> float:
        """The standard deviation of the noise in each parameter of the mean update (if all weigh most)."""
        unit = self.longest / self.summary(self.start).radius
        return unit * math.sqrt(self.noise.variance) / (self.participation * self.clients)

    @property
    def drowned(self) -> float:
        """Ratio of the length of noise in the mean of a round to the largest allowed; infinite if refused."""
        try:
            length = self.spread * math.sqrt(self.averaged.size(self.classes))
        except (UsageError, UnsupportedQuery):
            return math.inf
        return length / (self.noisiest * self.longest)

    @property
    def bearable_rounds(self) -> int:
        """Number of the rounds that a budget allows: the noise in a mean update is at most half as long as a clip.

        At least one, even if the budget does not allow it.
        """
        fit = replace(self, noisy=True, weights="clients", noisiest=0.5)
        return self.rounds if fit.drowned <= 1 else max(1, _most_rounds(fit))

    def moved(self, theta: Floats, released: Released[UpdateSums]) -> Floats:
        """Return the parameters after a round, within the bounds of the method."""
        sums = released.value
        if sums.weight is None:
            divisor = self.participation * self.clients
        else:
            # A sum of weights that hardly exceeds its noise is meaningless: it must not make updates long.
            least = 2 * sums.weight_resolution * math.sqrt(released.noise.variance)
            divisor = max(sums.weight, least)
        return self.averaged.within(theta + sums.total / divisor) if divisor > 0 else theta

    def fit(self) -> Generator[Step, Released[UpdateSums], Fit]:
        """Run all rounds. Tasks `yield from` it; refused where noise would dominate."""
        fit = self.prepared
        if fit.noisy and 1 < (drowned := fit.drowned) < math.inf:
            raise UsageError(_too_noisy(fit, drowned))
        theta, clients, anybody = fit.start, 0, fit.noisy
        for _ in range(fit.rounds):
            released = yield fit.query(theta)
            theta = fit.moved(theta, released)
            clients = max(clients, released.clients)
            anybody = anybody or bool(released.value.weight)
        return Fit(
            map=fit.averaged.map(theta, fit.classes),
            clients=clients,
            sums=fit.rounds,
            reason="" if anybody else "no client that took part has rows",
            noise=_described(fit) if fit.noisy else {},
        )


def _too_noisy(fit: FederatedAveraging, drowned: float) -> str:
    budget, size = fit.setting.budget, fit.averaged.size(fit.classes)
    assert budget is not None
    parameters = "1 parameter" if size == 1 else f"{size:,} parameters"
    fewer, enough = _most_rounds(fit), _least_epsilon(fit, budget)
    ways = [
        *([f"at most {fewer} round{'s' if fewer > 1 else ''}"] if fewer else []),
        *([] if enough is None else [f"an epsilon of at least {enough:.3g}"]),
        "more clients" if size == 1 else "more clients, or a method with fewer parameters",
    ]
    return (
        f"epsilon: got {budget.epsilon:.3g} for {fit.rounds} round{'s' if fit.rounds > 1 else ''} that "
        f"average {parameters} over {fit.participation * fit.clients:,.0f} clients; the noise in the mean of one "
        f"round would be {fit.noisiest * drowned:.3g} times as long as the longest update, expected at most "
        f"{fit.noisiest:g}; give {', or '.join(ways)}."
    )


def _most_rounds(fit: FederatedAveraging) -> int:
    """Find the largest number of rounds that are not too noisy; 0 if there is none."""
    good, bad = 0, fit.rounds
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if replace(fit, rounds=middle).drowned <= 1 else (good, middle)
    return good


def _least_epsilon(fit: FederatedAveraging, budget: Budget) -> float | None:
    """Find the smallest sufficient epsilon up to 32, or None, to 5 % and rounded up to two digits."""

    def drowned(epsilon: float) -> float:
        setting = replace(fit.setting, budget=replace(budget, epsilon=epsilon))
        return replace(fit, setting=setting).drowned

    # Planning a sampled release takes a second: noise falls about as 1/epsilon, which needs few tries.
    low = high = budget.epsilon
    times = drowned(high)
    while times > 1:
        low, high = high, high * min(1.02 * times, 10.0)
        if high > _LARGEST_EPSILON:
            return None
        times = drowned(high)
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if drowned(middle) <= 1 else (middle, high)
    digit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return math.ceil(high / digit) * digit


def _described(fit: FederatedAveraging) -> dict[str, Any]:
    """Describe the noise in the data of the fit, for the result."""
    return {
        "law": fit.noise.law,
        "rounds": fit.rounds,
        "clip": fit.longest,
        "weights": fit.weights,
        "divisor": None if fit.weights == "rows" else fit.participation * fit.clients,
        "standard_deviation": fit.spread,
    }
