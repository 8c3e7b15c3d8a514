"""What holds for the card of every runtime."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedassay
from fedassay.errors import ParameterError
from fedassay.protocol.cards import Named
from fedassay.protocol.parameters import made, parameters
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS, RuntimeCard, SimulationParameters, simulations
from fedassay.runtimes.file_drop.card import FileDrop
from fedassay.runtimes.in_process.card import IN_PROCESS, InProcess

SOURCE = Path(fedassay.__file__).parent
each = pytest.mark.parametrize("card", RUNTIME_CARDS.values(), ids=lambda card: card.name)


@each
def test_every_parameter_has_a_sentence(card: RuntimeCard) -> None:
    for one in parameters(card.parameters):
        assert one.sentence.endswith("."), one.name


@each
def test_a_simulation_takes_a_seed_and_a_release_does_not(card: RuntimeCard) -> None:
    assert card.simulated == ("seed" in {one.name for one in parameters(card.parameters)})
    assert card.simulated == (card.name in simulations())


@each
def test_its_heavy_part_is_where_the_card_says(card: RuntimeCard) -> None:
    begins = card.start or card.carry
    assert begins is not None
    assert callable(begins.load())


def test_a_card_that_does_not_fit_its_parameters_is_refused() -> None:
    for wrong in (
        {"parameters": InProcess},
        {"parameters": InProcess, "carry": Named("a:b")},
        {"parameters": FileDrop, "start": Named("a:b")},
    ):
        with pytest.raises(TypeError, match="expected `start` with SimulationParameters"):
            RuntimeCard(order=1, **wrong)  # type: ignore[arg-type]


def test_cards_are_light() -> None:
    """Faces read all of them at every start."""
    code = (
        "import sys; from fedassay.runtimes.card import RUNTIME_CARDS; list(RUNTIME_CARDS); "
        "print(sum(name.startswith('fedassay') for name in sys.modules), "
        "sorted({'numpy', 'flwr', 'ray', 'pydantic', 'cryptography', 'sqlalchemy'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    count, heavy = said.stdout.split(" ", 1)
    assert heavy.strip() == "[]"
    assert int(count) < 20


def test_no_face_knows_a_runtime_by_its_name() -> None:
    named = {
        (str(path.relative_to(SOURCE)), node.value)
        for path in SOURCE.rglob("*.py")
        if "runtimes" not in path.relative_to(SOURCE).parts[:1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in RUNTIME_CARDS
    }
    assert named == {("cli/commands.py", "flower")}  # a group of commands


def test_python_takes_a_name_or_an_object() -> None:
    assert fedassay.Simulation(seed=1, mode="faithful").parameters == InProcess(seed=1, mode="faithful")
    simulation = fedassay.Simulation(runtime=InProcess(seed=5, mode="aggregate"))
    assert (simulation.seed, simulation.card) == (5, IN_PROCESS)
    assert fedassay.Simulation().card.name == DEFAULT
    for given, words in (
        ({"runtime": "pigeon"}, f"runtime: got 'pigeon'; expected {', '.join(simulations())}"),
        ({"runtime": "file-drop"}, f"runtime: got 'file-drop'; expected {', '.join(simulations())}"),
        ({"runtime": "flower", "mode": "aggregate"}, "mode: unknown parameter of flower; expected seed"),
        ({"runtime": InProcess(), "seed": 1}, "runtime: got seed or mode besides its parameters"),
        ({"runtime": InProcess(seed=2), "mode": "faithful"}, "runtime: got seed or mode besides"),
        ({"seed": -1}, "seed: got -1, expected a whole number from 0"),
        ({"mode": "fast"}, "mode: got 'fast', expected auto, faithful or aggregate"),
    ):
        with pytest.raises(ParameterError, match=words):
            fedassay.Simulation(**given)  # type: ignore[arg-type]


def test_simulations_say_what_their_messages_are() -> None:
    few, many = 250, 251
    for parameters_, passes in (
        (InProcess(), [True, False]),
        (InProcess(mode="faithful"), [True, True]),
        (InProcess(mode="aggregate"), [False, False]),
        (made(simulations()["flower"], {}), [True, True]),
    ):
        assert isinstance(parameters_, SimulationParameters)
        assert [parameters_.passes_messages(one, policy=False) for one in (few, many)] == passes
    assert InProcess().passes_messages(many, policy=True)
