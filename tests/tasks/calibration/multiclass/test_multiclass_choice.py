"""Whatever is asked for is settled or refused with a sentence, and nothing that is given is ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformal_drive import setting_of
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import Part, Sample, Setting, Unit
from fedassay.tasks.calibration.multiclass.calibrate import (
    BINNINGS,
    COUNTED,
    METHODS,
    ROUNDS,
    SOLVERS,
    CalibratorChoice,
)
from fedassay.tasks.calibration.multiclass.fedavg import CLIP
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP

CLASSES = 4
WHOLE_CLIENTS: dict[str, Any] = {"unit": Unit.CLIENT, "rows_per_client": 50}
SETTINGS = {
    "plain": setting_of(Plain(), clients=2_000),
    "examples": setting_of(ServerDP(), clients=2_000, epsilon=1.0, delta=1e-5),
    "clients": setting_of(ServerDP(), clients=2_000, epsilon=1.0, delta=1e-5, **WHOLE_CLIENTS),
}

NOT_EXACT = "under differential privacy, but exact sums carry no noise; expected"
FROM_COUNTS = "which is computed from counts; leave out `solver`"
AT_ONCE = "expected it for temperature or vector"
FOR_CLIENTS = "which is for noise that protects clients of more than 10 rows"
NO_OPTIMUM = "expected fedavg: a network's loss has no one optimum"
NO_SOLVER = "expected auto, exact, fedavg or one-shot"

SCALED = ("matrix", "order-preserving")
TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("auto", "auto"): ("isotonic counts", "temperature one-shot", "vector one-shot"),
    ("auto", "exact"): ("temperature exact", NOT_EXACT),
    ("auto", "fedavg"): ("temperature fedavg", "temperature fedavg"),
    ("auto", "one-shot"): ("temperature one-shot", "temperature one-shot", "vector one-shot"),
    ("temperature", "auto"): ("temperature exact", "temperature one-shot"),
    ("temperature", "exact"): ("temperature exact", NOT_EXACT + " one-shot or fedavg"),
    ("temperature", "fedavg"): ("temperature fedavg", "temperature fedavg"),
    ("temperature", "one-shot"): ("temperature one-shot", "temperature one-shot"),
    ("vector", "auto"): ("vector exact", "vector fedavg", "vector fedavg"),
    ("vector", "exact"): (
        *(
            "vector exact",
            NOT_EXACT + " fedavg, or the method temperature",
            NOT_EXACT + " one-shot or fedavg",
        ),
    ),
    ("vector", "one-shot"): (FOR_CLIENTS, FOR_CLIENTS, "vector one-shot"),
    **{(one, "auto"): (f"{one} exact", f"{one} fedavg") for one in SCALED},
    **{(one, "exact"): (f"{one} exact", NOT_EXACT + " fedavg, or the method temperature") for one in SCALED},
    **{(one, "fedavg"): (f"{one} fedavg", f"{one} fedavg") for one in ("vector", "fedcal", *SCALED)},
    **{(one, "one-shot"): (AT_ONCE, AT_ONCE) for one in SCALED},
    ("fedcal", "auto"): ("fedcal fedavg", "fedcal fedavg"),
    ("fedcal", "exact"): (NO_OPTIMUM, NO_OPTIMUM),
    ("fedcal", "one-shot"): (NO_OPTIMUM, NO_OPTIMUM),
    **{(one, way): (f"{one} counts", f"{one} counts") for one in BINNINGS for way in ("auto", "counts")},
    **{
        ("isotonic", way): ("isotonic counts", "expected temperature, or a binning")
        for way in ("auto", "counts")
    },
    **{
        (one, way): (FROM_COUNTS, FROM_COUNTS)
        for one in (*BINNINGS, "isotonic")
        for way in ("exact", "fedavg", "one-shot")
    },
    **{
        (one, "counts"): (NO_SOLVER, NO_SOLVER)
        for one in ("auto", "temperature", "vector", "fedcal", *SCALED)
    },
}
"""Method and solver to what is done without noise, and under noise that protects examples, and clients (if that is
otherwise); or the words with which it is refused."""


def done(method: str, solver: str, where: str) -> str:
    """What the table says."""
    ways = TABLE[method, solver]
    return ways[min(list(SETTINGS).index(where), len(ways) - 1)]


def first_queries(choice: CalibratorChoice, setting: Setting) -> tuple[Any, ...]:
    """What the flow asks first, planned as a run would."""
    step = next(choice.fit(setting))
    queries = step if isinstance(step, tuple) else (step,)
    for query in queries:
        setting.trust.plan(query, setting)
    return queries


def test_the_table_has_every_combination() -> None:
    assert set(TABLE) == {(method, solver) for method in METHODS for solver in (*SOLVERS, COUNTED)}


@pytest.mark.parametrize("where", list(SETTINGS))
@pytest.mark.parametrize(("method", "solver"), list(TABLE), ids="-".join)
def test_every_combination_is_settled_or_refused_with_a_sentence(
    method: str, solver: str, where: str
) -> None:
    setting = SETTINGS[where]
    wanted = done(method, solver, where)
    if wanted.count(" ") == 1:
        choice = CalibratorChoice(classes=CLASSES, method=method, solver=solver).settled(setting)
        assert f"{choice.method} {choice.solver}" == wanted
        assert choice.settled(setting) == choice
        queries = first_queries(choice, setting)
        assert sum(query.share for query in queries) <= 1
        assert {query.part for query in queries} == {Part.FIT}
        return
    with pytest.raises(UsageError) as refused:
        first_queries(
            CalibratorChoice(classes=CLASSES, method=method, solver=solver).settled(setting), setting
        )
    said = str(refused.value)
    assert wanted in said
    assert said.endswith(".")
    assert said.count(". ") == 0
    assert "\n" not in said


OPTIONS: dict[str, Any] = {
    "rounds": 3,
    "participation": 0.5,
    "clip": 1.5,
    "negative_clip": 20.0,
    "clipping": "separate",
    "weighting": "changed",
    "averaging": "rows",
    "height": 5,
}


def settled_or_refused(fields: dict[str, Any], setting: Setting) -> tuple[CalibratorChoice | None, str]:
    try:
        choice = CalibratorChoice(**fields).settled(setting)
        first_queries(choice, setting)
    except UsageError as refused:
        return None, str(refused)
    return choice, ""


@pytest.mark.parametrize("where", list(SETTINGS))
@pytest.mark.parametrize("option", list(OPTIONS))
def test_what_is_given_is_used_or_refused(option: str, where: str) -> None:
    """Either the settled choice says that it uses the option, with this value, or the refusal names the option."""
    setting = SETTINGS[where]
    used = 0
    for method, solver in TABLE:
        if done(method, solver, where).count(" ") != 1:
            continue
        fields = {"classes": CLASSES, "method": method, "solver": solver, option: OPTIONS[option]}
        if option == "participation" and where == "clients":
            fields["rounds"] = (
                2  # planning for rounds that are sampled takes a second for each number of them
            )
        choice, said = settled_or_refused(fields, setting)
        if choice is None:
            # Weights of rows under noise need a bound on the rows, which is said where they are weighed.
            named = {option, *(["rounds"] if "rounds" in fields else [])}
            assert said.split(":")[0] in named
            assert "leave out" in said or "rows_per_client" in said
            continue
        assert choice.described[option] == OPTIONS[option], (method, solver)
        used += 1
    clips = option in ("negative_clip", "clipping")
    rows = option == "averaging" and where == "examples"
    assert (used > 0) == (not rows and (not clips or where == "clients"))


def test_options_reach_the_questions() -> None:
    """Described, and also done: what is asked changes with each of them."""
    setting = SETTINGS["clients"]
    for method, solver in (("bbq", "auto"), ("vector", "fedavg")):
        usual = first_queries(
            CalibratorChoice(classes=CLASSES, method=method, solver=solver).settled(setting), setting
        )
        for option in OPTIONS:
            try:
                changed = CalibratorChoice(
                    classes=CLASSES, method=method, solver=solver, **{option: OPTIONS[option]}
                )
            except UsageError:
                continue
            if option == "weighting":  # what is done with the counts
                continue
            assert first_queries(changed.settled(setting), setting) != usual, option
    choice = CalibratorChoice(classes=CLASSES, method="bbq", rounds=4, participation=0.25).settled(setting)
    (query,) = first_queries(choice, setting)
    assert (query.share, query.cohort) == (0.25, Sample(rate=0.25))


@pytest.mark.parametrize("unit", [{}, WHOLE_CLIENTS], ids=["example", "client"])
@pytest.mark.parametrize("trust", sorted(TRUST_MODELS))
def test_auto_under_every_trust_model(trust: str, unit: dict[str, Any]) -> None:
    kind = TRUST_MODELS[trust]
    budget = {"epsilon": 1.0, "delta": 1e-5} if kind.private else {}
    setting = setting_of(kind(), clients=200, **budget, **{"rows_per_client": 50, **unit})
    choice = CalibratorChoice(classes=CLASSES).settled(setting)
    noisy = ("vector" if unit else "temperature", "one-shot")
    wanted = noisy if kind.private else ("isotonic", "counts")
    assert (choice.method, choice.solver) == wanted
    if trust == "two-server":  # only what is counted can be shared between two servers
        with pytest.raises(UnsupportedQuery, match=r"(loss-curves|client-profiles).*\.$"):
            first_queries(choice, setting)
    else:
        assert first_queries(choice, setting)


# --- what is left open ----------------------------------------------------------------------------------


def settled(where: str = "plain", **fields: Any) -> CalibratorChoice:
    return CalibratorChoice(classes=CLASSES, **fields).settled(SETTINGS[where])


def test_binnings_clip_where_clients_are_protected() -> None:
    assert settled(method="bbq").described == {
        "rounds": 1,
        "participation": 1.0,
        "height": 7,
        "weighting": "all",
    }
    assert settled("examples", method="histogram") == settled(method="histogram")
    assert settled("clients", method="bbq").described == {
        **settled(method="bbq").described,
        **{"clip": 10.0, "negative_clip": 50.0, "clipping": "joint"},
    }


def test_averaging_is_what_options_of_averaging_ask_for() -> None:
    for fields in ({"rounds": 3}, {"participation": 0.5}, {"clip": 1.0}, {"averaging": "rows"}):
        for where in ("plain", "clients"):
            choice = settled(where, method="temperature", **fields)
            assert choice.solver == "fedavg"
    assert settled(method="temperature", clip=1.0).described == {
        "rounds": ROUNDS,
        "participation": 1.0,
        "clip": 1.0,
        "averaging": "clients",
    }
    assert settled("clients", method="matrix").described["clip"] == CLIP
    assert settled(method="matrix", solver="fedavg").described["clip"] is None


@pytest.mark.parametrize(
    ("where", "method", "given", "said"),
    [
        ("plain", "temperature", {"clip": 1.0}, ("--clip", "exact", "it")),
        ("examples", "temperature", {"rounds": 2}, ("--rounds", "one-shot", "it")),
        ("clients", "temperature", {"participation": 0.5}, ("--participation", "one-shot", "it")),
        (
            "plain",
            "matrix",
            {"rounds": 2, "averaging": "rows"},
            ("--rounds and --averaging", "exact", "them"),
        ),
    ],
)
def test_options_that_change_the_solver_say_so(
    where: str, method: str, given: dict[str, Any], said: tuple[str, str, str]
) -> None:
    choice = CalibratorChoice(classes=CLASSES, method=method, **given)
    options, other, them = said
    assert choice.why_averaged(SETTINGS[where]) == (
        f"The solver is fedavg, as only federated averaging has a use for {options}; leave {them} out for {other}."
    )
    assert choice._solver(method, private=where != "plain", profiles=where == "clients") == "fedavg"
    # Asked for by its name, it is no surprise.
    assert replace(choice, solver="fedavg").why_averaged(SETTINGS[where]) == ""


def test_options_that_change_no_solver_are_not_mentioned() -> None:
    for method, given in (("fedcal", {"rounds": 2}), ("bbq", {"rounds": 2}), ("temperature", {})):
        for setting in SETTINGS.values():
            assert CalibratorChoice(classes=CLASSES, method=method, **given).why_averaged(setting) == ""
    assert (
        CalibratorChoice(classes=CLASSES, method="matrix", rounds=2).why_averaged(SETTINGS["clients"]) == ""
    )


def test_rounds_are_what_the_budget_bears() -> None:
    def rounds(epsilon: float, clients: int, trust: Any = None) -> int | None:
        setting = setting_of(
            trust or ServerDP(), clients=clients, epsilon=epsilon, delta=1e-5, **WHOLE_CLIENTS
        )
        return CalibratorChoice(classes=CLASSES, method="matrix").settled(setting).rounds

    assert rounds(1.0, 10_000) == rounds(20.0, 1_000) == ROUNDS
    assert rounds(0.1, 100) == 1
    middle = rounds(1.0, 100)
    assert middle is not None
    assert 1 <= middle <= (rounds(4.0, 100) or 0) <= ROUNDS
    assert (rounds(1.0, 100, DistributedDP()) or 0) <= middle
    assert rounds(1.0, 0) == 1  # a rehearsal does not know how many clients there are


def test_clients_of_the_fit_part() -> None:
    assert settled("clients", holdout=0.4).clients(SETTINGS["clients"]) == pytest.approx(1_200)
    assert settled("examples", holdout=0.4).clients(SETTINGS["examples"]) == 2_000
    assert settled("clients").clients(replace(SETTINGS["clients"], clients=0)) == 1


def test_an_epsilon_too_small_for_the_rounds_asked() -> None:
    setting = setting_of(ServerDP(), clients=100, epsilon=0.1, delta=1e-5, **WHOLE_CLIENTS)
    choice = CalibratorChoice(classes=CLASSES, method="vector", rounds=12).settled(setting)
    assert choice.rounds == 12
    with pytest.raises(UsageError, match=r"epsilon: got 0.1 for 12 rounds .* an epsilon of at least"):
        first_queries(choice, setting)
    # Whether it is too small depends on the clients, whose number a rehearsal does not know.
    assert first_queries(choice, replace(setting, clients=0))
