"""What is shown of an evolution: the live table, indicators, curves and pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lamarckian_cli.ec.coding import Coding, bounds
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.evolution.strategy import Individuals
from lamarckian_cli.launch.evolution.display import EvolutionDisplay, Standing
from lamarckian_cli.launch.evolution.history import MOST, History
from lamarckian_cli.launch.evolution.plots import plot
from lamarckian_cli.launch.evolution.quality import Numbers, Quality, feasible_front
from lamarckian_cli.problems.evaluator import Description, Objective


def described(*senses: str) -> Description:
    return Description(
        coding=Coding({"x": bounds(0, 1, 2)}),
        objectives=tuple(Objective(name=f"f{i}", sense=s) for i, s in enumerate(senses)),  # type: ignore[arg-type]
    )


def people(objectives: np.ndarray, violation: np.ndarray | None = None) -> Individuals:
    n = len(objectives)
    return Individuals(
        ids=np.arange(n),
        genomes={"x": np.zeros((n, 2))},
        parents=np.full((n, 2), -1),
        born=np.zeros(n, np.int64),
        objectives=objectives,
        violation=np.zeros(n) if violation is None else violation,
        measures=np.zeros((n, 0)),
    )


def standing(**numbers) -> Standing:
    return Standing(
        generation=12,
        evaluations=1200,
        evaluations_per_s=345.6,
        seconds=3.4,
        failed=2,
        numbers=Numbers(**numbers),
        workers=4,
        busy=3,
        staleness=0.25,
    )


def drawn(display: EvolutionDisplay) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(display)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_live_table() -> None:
    display = EvolutionDisplay(2400, None, console=Console(file=io.StringIO()))
    display.phase("starting Ray")
    assert "starting Ray" in drawn(display)
    display.show(standing(hypervolume=0.5, igd=0.01, front_size=40))
    text = drawn(display)
    for part in (
        "generation 12",
        "evaluations 1,200 of 2,400 (50%)",
        "evaluations/s 346",
        "hypervolume 0.5",
        "IGD 0.01",
        "front 40",
        "workers busy 3 of 4",
        "failed 2",
    ):
        assert part in text
    assert "best" not in text
    display.show(standing(best=1.25))
    assert "best 1.25" in drawn(display)
    assert "hypervolume" not in drawn(display)


def test_the_end_names_the_first_error_and_the_next_command() -> None:
    out = io.StringIO()
    display = EvolutionDisplay(100, None, console=Console(file=out, width=200))
    display.show(standing(best=2.0, front_size=1))
    display.end(Path("runs/a b"), interrupted=True, failure="ValueError: no")
    text = out.getvalue()
    assert "2 evaluations failed; the first: ValueError: no" in text
    assert "evolve 'resume=runs/a b'" in text
    assert "front 'runs/a b'" in text
    silent = EvolutionDisplay(100, None, enabled=False, console=Console(file=out))
    before = len(text)
    silent.end(Path("x"))
    assert len(out.getvalue()) == before


def test_senses_are_turned_back() -> None:
    quality = Quality(described("max"), None)
    assert quality.of(np.array([[-3.0], [-5.0]])) == Numbers(best=5.0, front_size=1)


def test_hypervolume_behind_the_known_front_is_the_area_by_hand() -> None:
    # Known front from (0, 1) to (1, 0): the reference is (1.1, 1.1).
    known = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    quality = Quality(described("min", "min"), known)
    numbers = quality.of(np.array([[0.2, 0.6], [0.6, 0.2], [0.7, 0.7], [np.inf, np.inf]]))
    assert numbers.hypervolume == pytest.approx(0.4 * 0.5 + 0.5 * 0.9)
    assert numbers.front_size == 2
    distances = [np.hypot(0.2, 0.4), np.hypot(0.3, 0.1), np.hypot(0.4, 0.2)]
    assert numbers.igd == pytest.approx(np.mean(distances))


def test_the_reference_stays_where_the_first_points_put_it() -> None:
    quality = Quality(described("min", "max"), None)
    first = quality.of(np.array([[1.0, -1.0], [3.0, -4.0]]))
    assert quality.reference == pytest.approx([3.2, -0.7])
    assert first.hypervolume == pytest.approx(2.2 * 0.3 + 0.2 * 3.0)
    quality.of(np.array([[9.0, 9.0]]))
    assert quality.reference == pytest.approx([3.2, -0.7])


def test_a_reference_is_given_in_the_objectives_own_senses() -> None:
    quality = Quality(described("min", "max"), None, reference=(2.0, 0.0))
    assert quality.of(np.array([[1.0, -3.0]])).hypervolume == pytest.approx(3.0)
    with pytest.raises(ConfigError, match=r"evo\.reference is \[1\.0\]; the problem has 2 objectives"):
        Quality(described("min", "max"), None, reference=(1.0,))
    with pytest.raises(ConfigError, match="for several objectives"):
        Quality(described("min"), None, reference=(1.0,))


def test_the_front_is_of_the_feasible_or_of_those_that_violate_least() -> None:
    some = people(np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 0.0]]), np.array([0.0, 0.0, 1.0]))
    assert feasible_front(some).ids.tolist() == [0, 1]
    nobody = people(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([2.0, 1.0]))
    assert feasible_front(nobody).ids.tolist() == [1]
    single = people(np.array([[1.0], [0.5], [0.5]]))
    assert feasible_front(single).ids.tolist() == [1]
    assert len(feasible_front(single.take(slice(0)))) == 0


class Generations:
    """What a history looks at: a population whose points tell the generation."""

    best = None

    def __init__(self) -> None:
        self.strategy = self
        self.number = 0

    def population(self) -> Individuals:
        return people(np.array([[float(self.number), 1.0], [0.0, -1.0]]), np.array([0.0, 1.0]))


def test_a_history_is_bounded_and_evenly_spread() -> None:
    history, collector = History(single=False), Generations()
    for number in range(1, 1001):
        collector.number = number
        history.add(10 * number, collector)  # type: ignore[arg-type]
        assert len(history.evaluations) <= MOST
    steps = np.diff(history.evaluations)
    assert len(set(steps.tolist())) == 1
    assert len(history.evaluations) >= MOST // 2 - 1
    for evaluations, points in zip(history.evaluations, history.objectives, strict=True):
        assert points.tolist() == [[evaluations / 10, 1.0]]  # the infeasible one is left out
    again = History(single=False)
    again.restore(history.state())
    assert again.evaluations == history.evaluations


@pytest.mark.parametrize("senses", [("min", "min"), ("min", "max", "min"), ("min",) * 5])
def test_fronts_of_any_number_of_objectives_are_drawn(senses: tuple[str, ...], tmp_path: Path) -> None:
    points = np.random.default_rng(0).random((20, len(senses)))
    description = described(*senses)
    history = History(single=False)
    for number in (1, 2):
        history.evaluations.append(number)
        history.objectives.append(points[: 10 * number])
    quality = Quality(description, points + 0.1 if len(senses) < 4 else None)
    written = plot(tmp_path, people(points), description, quality, history)
    assert {path.name for path in written} == {
        *("front.png", "front.html", "convergence.png", "convergence.html")
    }
    for path in written:
        assert path.stat().st_size > 1000
    html = (tmp_path / "front.html").read_text()
    kind = {2: '"scatter"', 3: '"scatter3d"', 5: '"parcoords"'}[len(senses)]
    assert kind in html
    assert f"f1 ({senses[1]})" in html


def test_of_one_objective_only_the_way_there_is_drawn(tmp_path: Path) -> None:
    history = History(single=True)
    history.evaluations, history.objectives = [10, 20], [np.array([[5.0]]), np.array([[0.001]])]
    description = described("min")
    written = plot(tmp_path, people(np.array([[0.001]])), description, Quality(description, None), history)
    assert {path.name for path in written} == {"convergence.png", "convergence.html"}
    assert '"log"' in (tmp_path / "convergence.html").read_text()
