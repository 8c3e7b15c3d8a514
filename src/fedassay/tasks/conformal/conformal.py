"""The task: a threshold for prediction sets after one message from each client, and how it does on held-out rows."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any


from fedassay.coverage.law import checked_level
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol import Collect, Part, Query, Released, Select, Setting, Step, Sum
from fedassay.summaries.local_quantile import LocalQuantile, LocalScores
from fedassay.summaries.quantile_votes import QuantileVotes, Votes
from fedassay.summaries.quantities import QUANTITIES, checked_quantity, public_range
from fedassay.summaries.scored import EVERYONE, checked_condition, condition_names
from fedassay.summaries.value_grid import power_of_two
from fedassay.summaries.values import Distribution
from fedassay.tasks.conformal import choice, collected, judged, pooled, voted
from fedassay.tasks.conformal.found import Found
from fedassay.tasks.conformal.request import Request
from fedassay.tasks.distribution.mechanisms import chosen
from fedassay.tasks.distribution.stored import Release

AUTO = "auto"
METHODS = (AUTO, "qq", "qq-paper", "average", "pooled", "weighted", "local")
GUARANTEES = ("marginal", "training-conditional")
MOST_CLIENTS = 10**5
MOST_POINTS = 1 << 20

Answer = tuple[dict[str, Found], list[dict[str, Any]] | None]
"""The threshold of each part of the rows, and what single clients said, if they may be seen."""


@dataclass(frozen=True, kw_only=True)
class Conformal:
    """A threshold such that the set of all values that score at most it covers a new row with the wanted probability.

    Parameters
    ----------
    method : ``qq``, a quantile of the clients' quantiles, at the pair of ranks with the smallest spread of coverage;
        ``qq-paper``, the same at the published ranks; ``average``, the mean of the clients' quantiles, which promises
        nothing; ``pooled``, the quantile of all scores, from one release of their distribution; ``weighted``, the same
        for clients with distributions of their own; ``local``, each client's own. ``auto`` is qq where single
        clients answer, pooled where only sums are known or each client has one row.
    quantity, parameters : the conformity score (`summaries.quantities`).
    level : the coverage.
    guarantee, confidence : ``marginal`` is on average over calibration rows; ``training-conditional`` holds with this
        confidence for the calibration rows that were used.
    score_range : between which numbers scores lie, where only public points are used; scores above make the set hold
        everything. Known for the scores of classes, and needed for others.
    bins : how many public points.
    by, groups : a threshold for each ``class`` or each declared ``group``, with the guarantee for each.
    classes : how many classes there are, for sets of classes.
    held_out : whether a part of the rows is kept to measure coverage and size of the sets.
    report_level : the confidence level of intervals.

    Guarantee: that of `results["guarantee"]`, exactly or from below, for whatever distribution the scores have.

    Reference: Humbert, Le Bars, Bellet and Arlot (2023); docs/explanation/conformal-coverage.md and
    private-conformal.md have the formulas and proofs.
    """

    method: str = AUTO
    quantity: str = "conformity"
    parameters: tuple[float, ...] = ()
    level: float = 0.9
    guarantee: str = "marginal"
    confidence: float = 0.9
    score_range: tuple[float, ...] = ()
    bins: int | None = None
    by: str = ""
    groups: tuple[str, ...] = ()
    classes: int | None = None
    held_out: bool = False
    report_level: float = 0.95

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("guarantee", self.guarantee, GUARANTEES),
        ):
            if value not in known:
                raise UsageError(f"{name}: got {value!r}, expected one of {', '.join(known)}.")
        checked_level(self.level)
        checked_level(self.confidence, what="confidence")
        checked_level(self.report_level, what="level of intervals")
        object.__setattr__(self, "parameters", checked_quantity(self.quantity, self.parameters))
        object.__setattr__(self, "score_range", _checked_range(self.score_range))
        object.__setattr__(self, "groups", checked_condition(self.by, self.groups))
        if self.bins is not None and (type(self.bins) is not int or not 2 <= self.bins <= MOST_POINTS):
            raise UsageError(f"bins: got {self.bins}, expected a whole number from 2 to 2^20.")
        if self.by == "class" and not QUANTITIES[self.quantity].is_softmax:
            raise UsageError(
                f"condition class: the score {self.quantity} knows no classes, expected one of class probabilities "
                "(lac, aps, raps); use a group."
            )

    @property
    def request(self) -> Request:
        """The coverage that is wanted."""
        return Request(level=self.level, confidence=None if self.guarantee == "marginal" else self.confidence)

    # --- steps ----------------------------------------------------------------------------------------------

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask once for what the threshold needs, and once more where held-out rows are to be judged."""
        method, way = self.way(setting)
        found, sites = yield from way(self, method, setting)
        results: dict[str, Any] = {
            "method": method,
            "level": self.level,
            "score": {"name": self.quantity, "parameters": list(self.parameters)},
            "by": self.by,
            **self._described(found),
            **({} if sites is None else {"sites": sites}),
            "notes": [note for one in found.values() for note in one.notes],
        }
        if self.held_out:
            results |= yield from judged.judge(self, setting, found, sites)
        return results

    def way(self, setting: Setting) -> tuple[str, Any]:
        """The method, and how it is carried out under this trust model."""
        single = self._collects(setting)
        if self.method == AUTO:
            one_row = setting.protection.rows_per_client == 1
            if single or (not one_row and not self.by and self._selects(setting)):
                return "qq", Conformal._collected if single else Conformal._selected
            return "pooled", Conformal._pooled
        if self.method in ("pooled", "weighted"):
            return self.method, Conformal._pooled
        if single:
            return self.method, Conformal._collected
        if self.method in ("average", "local"):
            raise UnsupportedQuery(
                f"{self.method}: {setting.trust.name} shows no single client, but this method needs the quantile of each; "
                "use --privacy plain, or --method pooled."
            )
        if self._selects(setting):
            if self.by:
                raise UnsupportedQuery(
                    f"{self.method} by {self.by}: a client would choose once for each of them, and how many rows it has of "
                    "each is a secret; use --method pooled."
                )
            return self.method, Conformal._selected
        if setting.trust.private:
            raise UnsupportedQuery(
                f"{self.method}: under {setting.trust.name} noise would be added to votes of clients, which one row can "
                "move as far as they go; use --method pooled."
            )
        if self.method == "qq-paper":
            raise UnsupportedQuery(
                f"qq-paper: {setting.trust.name} only knows sums of votes, which go with ranks of our own; use --method qq, "
                "or --privacy plain."
            )
        return self.method, Conformal._voted

    def needs_range(self, setting: Setting) -> bool:
        """Whether a range of scores has to be given, for what would be asked in this setting."""
        known = None not in public_range(self.quantity, self.parameters, classes=self.classes)
        return not self.score_range and not known and self.way(setting)[1] is not Conformal._collected

    def chooses(self, setting: Setting) -> bool:
        """Whether clients would choose among public points, each among the same number of rows."""
        return self.way(setting)[1] is Conformal._selected

    def _described(self, found: Mapping[str, Found]) -> dict[str, Any]:
        confidence = self.request.confidence
        described = {
            name: one.to_json(level=self.level, confidence=confidence) for name, one in found.items()
        }
        if not self.by:
            return described[EVERYONE]
        return {
            "threshold": None,
            "infinite": False,
            "reason": f"each {self.by} has a threshold of its own",
            "guarantee": _common(self.by, described),
            "pair": None,
            "coverage_law": None,
            "rows": sum(one.rows or 0.0 for one in found.values()),
            "clients": max((one.clients or 0 for one in found.values()), default=None),
            "groups": described,
        }

    # --- ways -----------------------------------------------------------------------------------------------

    @property
    def part(self) -> Part:
        """The rows that thresholds are computed from."""
        return Part.FIT if self.held_out else Part.ALL

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of the rows that have a threshold of their own."""
        return condition_names(self.by, self.groups)

    def _collected(self, method: str, setting: Setting) -> Generator[Step, Any, Answer]:
        released: Released[tuple[dict[str, LocalScores], ...]] = yield Collect(
            of=self._quantile(method, setting), part=self.part
        )
        found = {
            name: collected.found_from(self.request, method, [client[name] for client in released.value])
            for name in self.names
        }
        if self.by:
            return found, None
        return found, collected.sites_of(method, [client[EVERYONE] for client in released.value])

    def _voted(self, method: str, setting: Setting) -> Generator[Step, Any, Answer]:
        lower, upper = self._range()
        points = power_of_two(pooled.EXACT_POINTS if self.bins is None else self.bins)
        votes = QuantileVotes(
            quantity=self.quantity,
            parameters=self.parameters,
            level=self.level,
            clients=self._clients(setting),
            confidence=self.request.confidence,
            lower=lower,
            upper=pooled.stretched(lower, upper, points),
            points=points,
            by=self.by,
            groups=self.groups,
        )
        released: Released[dict[str, Votes]] = yield Sum(of=votes, part=self.part)
        return {
            name: voted.found_from(self.request, votes, one) for name, one in released.value.items()
        }, None

    def _selected(self, method: str, setting: Setting) -> Generator[Step, Any, Answer]:
        lower, upper = self._range()
        private = choice.PrivateQuantile.of(
            self.request, method, setting, candidates=choice.CANDIDATES if self.bins is None else self.bins
        )
        target = private.target()
        if isinstance(target, Found):
            return {EVERYONE: target}, None
        losses = choice.losses_of(
            self.quantity,
            self.parameters,
            lower,
            upper,
            rows=private.rows,
            candidates=private.candidates,
            target=target,
        )
        released: Released[tuple[float, ...]] = yield Select(of=losses, part=self.part)
        return {EVERYONE: private.found(target, released.value, released.noise)}, None

    def _pooled(self, method: str, setting: Setting) -> Generator[Step, Any, Answer]:
        lower, upper = self._range()
        coarse = self._leaves(lower, upper, pooled.NOISY_POINTS)
        noisy = setting.noise(Sum(of=coarse, part=self.part)).variance > 0
        leaves = coarse if noisy else self._leaves(lower, upper, pooled.EXACT_POINTS)
        summary = chosen(leaves, setting, mechanism="auto")
        released: Released[Distribution] = yield Sum(of=summary, part=self.part)
        release = Release.of(released.value, released.noise)
        reading = pooled.Pooled(
            request=self.request,
            test_points=released.clients if method == "weighted" else 1,
            clients=released.clients,
        )
        return {name: reading.found(release, place) for place, name in enumerate(self.names)}, None

    # --- what is asked --------------------------------------------------------------------------------------

    def _leaves(self, lower: float, upper: float, points: int) -> Any:
        return pooled.leaves_of(
            lower,
            upper,
            points if self.bins is None else self.bins,
            quantity=self.quantity,
            parameters=self.parameters,
            by=self.by,
            groups=self.groups,
        )

    def _quantile(self, method: str, setting: Setting) -> LocalQuantile:
        return LocalQuantile(
            quantity=self.quantity,
            parameters=self.parameters,
            level=self.level,
            rules=collected.RULES.get(method, ("split",)),
            clients=self._clients(setting),
            confidence=self.request.confidence,
            by=self.by,
            groups=self.groups,
        )

    def _clients(self, setting: Setting) -> int:
        """How many clients there are; one where that is not known yet."""
        if setting.clients > MOST_CLIENTS:
            raise UsageError(
                f"clients: got {setting.clients:,}, expected at most {MOST_CLIENTS:,} for a quantile of quantiles; use "
                "--method pooled."
            )
        return max(1, setting.clients)

    def _range(self) -> tuple[float, float]:
        """The range of the scores: given, or known to everyone."""
        if self.score_range:
            return self.score_range[0], self.score_range[1]
        lower, upper = public_range(self.quantity, self.parameters, classes=self.classes)
        if lower is None or upper is None:
            raise UsageError(
                f"score range: got none, expected one, public and not read from the data: the method only knows public "
                f"points between which {self.quantity} scores lie; give --score-range A,B."
            )
        return lower, upper

    def _collects(self, setting: Setting) -> bool:
        if setting.clients > MOST_CLIENTS:
            return False
        return _answers(Collect(of=self._quantile("local", setting), part=self.part), setting)

    def _selects(self, setting: Setting) -> bool:
        probe = choice.losses_of("conformity", (), 0.0, 1.0, rows=1, candidates=2, target=choice.Target())
        return _answers(Select(of=probe, part=self.part), setting)


def _answers(query: Query[Any], setting: Setting) -> bool:
    """Whether the trust model answers such queries; what else is missing is said when it is asked in earnest."""
    try:
        setting.trust.plan(query, setting)
    except UnsupportedQuery:
        return False
    except UsageError:
        return True
    return True


def _checked_range(given: tuple[float, ...]) -> tuple[float, ...]:
    numbers = tuple(float(number) for number in given)
    if numbers and not (len(numbers) == 2 and -float("inf") < numbers[0] < numbers[1] < float("inf")):
        raise UsageError(
            f"score range: got {','.join(f'{number:g}' for number in numbers)}, expected two numbers A,B with A below B."
        )
    return numbers


def _common(by: str, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is promised for every part: the least of them."""
    guarantees = [one["guarantee"] for one in described.values()]
    worst = min(guarantees, key=lambda one: (one["kind"] != "none", one["coverage"] or 0.0))
    if worst["kind"] == "none":
        return {**worst}
    return {**worst, "text": f"For each {by}: {worst['text']}"}
