"""Single promises of single strategies, against their definitions written out."""

from math import comb

import numpy as np
import pytest
from strategies import Workers, evaluated, evolve, make, task_of

from lamarckian_cli.ec.coding import Coding, Permutation, Real
from lamarckian_cli.errors import ConfigError, RunError
from lamarckian_cli.evolution.archive import Archive
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.cma_restarts import Restarts
from lamarckian_cli.evolution.cmaes import CMAESSettings
from lamarckian_cli.evolution.cso import CSOSettings
from lamarckian_cli.evolution.ga import GASettings
from lamarckian_cli.evolution.individuals import penalised, unknown
from lamarckian_cli.evolution.map_elites import MAPElitesSettings
from lamarckian_cli.evolution.nsga2 import NSGA2Settings
from lamarckian_cli.evolution.nsga3 import NSGA3Settings
from lamarckian_cli.evolution.openai_es import OpenAIESSettings
from lamarckian_cli.evolution.pbt import PBTSettings
from lamarckian_cli.evolution.pso import PSOSettings
from lamarckian_cli.evolution.strategy import Individuals, Task
from lamarckian_cli.problems.behaviour import Arm
from lamarckian_cli.problems.dtlz import DTLZ2
from lamarckian_cli.problems.evaluator import Description, Objective
from lamarckian_cli.problems.single import Sphere
from lamarckian_cli.problems.tsp import TSP
from lamarckian_cli.problems.zdt import ZDT1


def people_of(task: Task, objective, violation=None, measures=None) -> Individuals:
    """Individuals 0, 1, ... with these results."""
    people = unknown(task, len(objective))
    people.ids[:] = np.arange(len(objective))
    people.objectives[:, 0] = objective
    people.violation[:] = 0 if violation is None else violation
    if measures is not None:
        people.measures[:] = measures
    return people


# ------------------------------------------------------------------ counting


def test_a_barrier_asks_for_a_generation_and_waits_for_all_of_it():
    arrivals = Arrivals(first=5, each=2, limit=0)
    assert arrivals.allowed() == 5
    arrivals.ask(5)
    assert arrivals.allowed() == 0
    assert not arrivals.tell(np.zeros(4, np.int64))
    assert arrivals.allowed() == 0
    assert arrivals.tell(np.zeros(1, np.int64))
    assert (arrivals.generation, arrivals.allowed()) == (1, 2)


def test_results_that_nobody_asked_for_are_an_error():
    arrivals = Arrivals(first=5, each=2, limit=None)
    arrivals.ask(2)
    with pytest.raises(ValueError, match="3 results of generation 0 arrived, and 2 are out"):
        arrivals.tell(np.zeros(3, np.int64))


# ------------------------------------------------------------------ GA


def test_only_elites_outlive_enough_children():
    strategy = make(GASettings(population=10, elites=3), Sphere(dim=3))
    evolve(strategy, Sphere(dim=3), 10)
    old = strategy.population().ids
    evolve(strategy, Sphere(dim=3), 10)
    assert set(strategy.population().ids.tolist()) & set(old.tolist()) <= set(old[:3].tolist())
    assert len(strategy.population()) == 10


def test_the_better_of_parents_and_children_survive():
    strategy = make(GASettings(population=10), Sphere(dim=3))
    evolve(strategy, Sphere(dim=3), 10)
    before = strategy.population().objectives[:, 0]
    children = evaluated(strategy.ask(10), Sphere(dim=3))
    strategy.tell(children)
    expected = np.sort(np.concatenate((before, children.objectives[:, 0])))[:10]
    np.testing.assert_array_equal(strategy.population().objectives[:, 0], expected)


def test_an_early_worker_gets_a_child_of_who_is_there():
    strategy = make(NSGA2Settings(population=8), ZDT1(dim=3))
    first = strategy.ask(8)
    strategy.tell(evaluated(first, ZDT1(dim=3)).take(np.arange(3)))
    child = strategy.ask(1)
    assert set(child.parents.ravel().tolist()) <= {0, 1, 2}
    assert child.ids[0] == 8


# ------------------------------------------------------------------ NSGA-III


@pytest.mark.parametrize(
    ("objectives", "directions", "population"),
    [(3, 91, 92), (5, 210, 212), (8, 156, 156), (10, 275, 276), (15, 135, 136)],
)
def test_reference_directions_and_populations_are_the_published_ones(objectives, directions, population):
    strategy = make(NSGA3Settings(), DTLZ2(objectives=objectives))
    assert strategy.directions.shape == (directions, objectives)
    np.testing.assert_allclose(strategy.directions.sum(axis=1), 1)
    assert strategy.wanted() == population


@pytest.mark.parametrize(("objectives", "population"), [(2, 50), (3, 100), (3, 200), (4, 60)])
def test_a_given_population_has_as_many_directions_as_fit(objectives, population):
    strategy = make(NSGA3Settings(population=population), DTLZ2(objectives=objectives))
    fitting = [
        comb(objectives - 1 + p, p) for p in range(1, population) if comb(objectives - 1 + p, p) <= population
    ]
    assert len(strategy.directions) == max(fitting)


# ------------------------------------------------------------------ swarms


def test_a_particle_moves_by_the_published_equation():
    settings = PSOSettings(population=6, topology="ring")
    strategy, evaluator = make(settings, Sphere(dim=4)), Sphere(dim=4)
    x, v, best, value = None, np.zeros((6, 4)), None, np.full(6, np.inf)
    for _ in range(5):
        rng = np.random.default_rng()
        rng.bit_generator.state = strategy.state()["rng"]
        candidates = strategy.ask(6)
        if x is not None:
            own, other = rng.random((2, 6, 4))
            for i in range(6):
                near = min(((i - 1) % 6, i, (i + 1) % 6), key=lambda j: value[j])
                for d in range(4):
                    v[i, d] = (
                        settings.inertia * v[i, d]
                        + settings.cognitive * own[i, d] * (best[i, d] - x[i, d])
                        + settings.social * other[i, d] * (best[near, d] - x[i, d])
                    )
                    x[i, d] += v[i, d]
                    if not -5 <= x[i, d] <= 5:
                        x[i, d], v[i, d] = min(max(x[i, d], -5), 5), -0.5 * v[i, d]
            np.testing.assert_allclose(candidates.genomes["x"], x, rtol=1e-12)
        x = candidates.genomes["x"].copy()
        told = evaluated(candidates, evaluator)
        strategy.tell(told)
        now = told.objectives[:, 0]
        best = x.copy() if best is None else np.where((now < value)[:, None], x, best)
        value = np.minimum(value, now)


def test_few_workers_take_turns_among_all_particles():
    strategy = make(PSOSettings(population=12), Sphere(dim=3))
    workers = Workers(strategy, Sphere(dim=3), slots=3)
    for _ in range(60):
        workers.step()
    asked = strategy.state()["own"]["members"]["asked"]
    assert asked.max() - asked.min() <= 2


def test_losers_learn_from_the_winners_they_met_and_winners_stay():
    strategy, evaluator = make(CSOSettings(population=10, phi=0.1), Sphere(dim=3)), Sphere(dim=3)
    evolve(strategy, evaluator, 10)
    before = strategy.state()["own"]
    ids, values = before["current"]["ids"], before["current"]["objectives"][:, 0]
    rng = np.random.default_rng()
    rng.bit_generator.state = strategy.state()["rng"]
    candidates = strategy.ask(5)
    assert set(candidates.parents.ravel().tolist()) == set(ids.tolist())  # everybody met once
    rng.permutation(10)
    r1, r2, r3 = rng.random((3, 5, 3))
    places = {identity: i for i, identity in enumerate(ids.tolist())}
    for k, (loser, winner) in enumerate(candidates.parents.tolist()):
        lost, won = places[loser], places[winner]
        assert values[won] <= values[lost]
        x, mean = before["x"], before["x"].mean(axis=0)
        v = r1[k] * before["v"][lost] + r2[k] * (x[won] - x[lost]) + 0.1 * r3[k] * (mean - x[lost])
        np.testing.assert_allclose(candidates.genomes["x"][k], np.clip(x[lost] + v, -5, 5), rtol=1e-12)


# ------------------------------------------------------------------ evolution strategies


def test_openai_es_steps_down_the_published_gradient():
    settings = OpenAIESSettings(population=8, sigma=0.01, lr=0.02)
    strategy, evaluator = make(settings, Sphere(dim=3)), Sphere(dim=3)
    candidates = strategy.ask(8)
    x = candidates.genomes["x"]
    mean = x.reshape(4, 2, 3).mean(axis=1)  # of opposite noise
    np.testing.assert_allclose(mean, np.tile(mean[0], (4, 1)), atol=1e-12)
    noise = (x - mean[0]) / (0.01 * 10)
    told = evaluated(candidates, evaluator)
    rank = np.argsort(np.argsort(told.objectives[:, 0]))
    gradient = sum((rank[i] / 7 - 0.5) * noise[i] for i in range(8)) / (8 * 0.01)
    strategy.tell(told)
    # The first step of Adam: the gradient over its size, in every number.
    expected = mean[0] - 0.02 * 10 * np.sign(gradient)
    moved = strategy.ask(8).genomes["x"].reshape(4, 2, 3).mean(axis=1)
    np.testing.assert_allclose(moved[0], expected, atol=1e-6)


def test_a_late_sample_counts_with_its_own_noise():
    strategy, evaluator = make(OpenAIESSettings(population=4), Sphere(dim=3)), Sphere(dim=3)
    late = strategy.ask(2)
    noise = strategy.state()["own"]["key"]
    for _ in range(6):
        strategy.tell(evaluated(strategy.ask(1), evaluator))
    strategy.tell(evaluated(late, evaluator))
    assert strategy.state()["own"]["key"] == noise
    assert strategy.generation == 2


def test_bipop_gives_the_regime_with_fewer_evaluations_the_next_descent():
    restarts, rng = Restarts("bipop", 3, None), np.random.default_rng(1)
    plan, small, large, doubled = restarts.first(), 0, 0, 0
    population, is_large = 8, False
    while True:
        used = 100 * population
        small, large = (small, large + used) if is_large else (small + used, large)
        plan = restarts.after(population=population, evaluations=used, iterations=500.0, rng=rng)
        if plan is None:
            break
        is_large = small >= large
        if is_large:
            doubled += 1
            assert (plan.population, plan.sigma_factor, plan.iterations) == (8 * 2**doubled, 1.0, 500.0)
        else:
            assert 4 <= plan.population <= 4 * 2**doubled + 4
            assert 0.01 <= plan.sigma_factor <= 1
            assert plan.iterations <= 0.5 * large / plan.population
        population = plan.population
    assert doubled == 3


def test_results_of_an_earlier_descent_are_not_told_to_the_next():
    evaluator = Sphere(dim=2)
    strategy = make(CMAESSettings(restarts="ipop", sigma=1e-13), evaluator)
    workers = Workers(strategy, evaluator, slots=5, slow=lambda identity: identity in (0, 1))
    before = strategy.state()["own"]["descent"]["start"]["seed"]
    while strategy.state()["own"]["descent"]["start"]["seed"] == before:
        workers.step()
    left = [one for one in workers.out if one.ids[0] < strategy.state()["own"]["first_id"]]
    assert left
    expected = strategy.state()
    for one in left:
        strategy.tell(evaluated(one, evaluator))
    now = strategy.state()
    for state in (expected, now):
        state["own"].pop("best")
    np.testing.assert_equal(now, expected)


def test_cmaes_says_why_it_ends_and_takes_who_is_still_out():
    evaluator = Sphere(dim=2)
    strategy = make(CMAESSettings(sigma=1e-13), evaluator)
    late = strategy.ask(1)
    while not strategy.finished():
        strategy.tell(evaluated(strategy.ask(1), evaluator))
    assert "tolx" in strategy.finished() or "tolfun" in strategy.finished()
    assert strategy.wanted() == 0
    strategy.tell(evaluated(late, evaluator))
    assert len(strategy.ask(3)) == 0


def test_cmaes_that_cannot_be_rebuilt_says_so():
    evaluator = Sphere(dim=3)
    strategy = make(CMAESSettings(), evaluator)
    evolve(strategy, evaluator, 50)
    state = strategy.state()
    state["own"]["descent"]["mean"][0] += 1e-9
    with pytest.raises(RunError, match="Continue on the machine"):
        make(CMAESSettings(), evaluator).restore(state)


def test_a_number_that_cannot_move_stays():
    class Fixed(Sphere):
        def describe(self):
            part = Real(low=np.array([-1.0, 0.5, -1.0]), high=np.array([1.0, 0.5, 1.0]))
            return Description(coding=Coding({"x": part}), objectives=(Objective(name="f"),))

    strategy = make(CMAESSettings(), Fixed(dim=3))
    evolve(strategy, Fixed(dim=3), 300)
    assert (strategy.population().genomes["x"][:, 1] == 0.5).all()
    assert strategy.population().objectives[0, 0] == pytest.approx(0.25, abs=1e-6)


def test_penalised_puts_every_infeasible_one_behind_every_feasible_one():
    task = Task(coding=Coding({"p": Permutation(size=2)}), objectives=1)
    people = people_of(task, [5.0, -1.0, -7.0, -9.0, np.inf], [0, 0, 0.5, 2.0, np.inf])
    np.testing.assert_array_equal(penalised(people), [5.0, -1.0, 5.5, 7.0, 7.0])
    assert penalised(people.take(slice(4, None))) is None


# ------------------------------------------------------------------ MAP-Elites


def test_an_archive_keeps_the_best_of_every_cell_in_whatever_order():
    task = Task(coding=Coding({"p": Permutation(size=2)}), objectives=1, measures=((0.0, 1.0), (-1.0, 1.0)))
    rng = np.random.default_rng(0)
    objective = rng.integers(0, 6, 200).astype(float)  # with ties
    measures = rng.uniform(-0.2, 1.2, (200, 2))
    people = people_of(task, objective, rng.integers(0, 2, 200), measures)
    best = {}
    for i in range(200):
        x = min(max(int(np.floor(measures[i, 0] * 4)), 0), 3)
        y = min(max(int(np.floor((measures[i, 1] + 1) / 2 * 3)), 0), 2)
        merit = (people.violation[i], objective[i], i)
        best[x, y] = min(best.get((x, y), merit), merit)
    expected = [identity for _, (_, _, identity) in sorted(best.items())]
    for order in (np.arange(200), rng.permutation(200)):
        archive = Archive(task, (4, 3))
        for few in np.array_split(order, 23):
            archive.add(people.take(few))
        assert archive.elites().ids.tolist() == expected
        assert archive.ids(np.array([[0, 2]])).tolist() == [[expected[0], expected[2]]]


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("make_settings", "message"),
    [
        (lambda: GASettings(population=1), "evo.population is 1"),
        (lambda: GASettings(elites=101), "evo.elites is 101"),
        (lambda: GASettings(offspring=0), "evo.offspring is 0"),
        (lambda: NSGA2Settings(max_staleness=-1), "evo.max_staleness is -1"),
        (lambda: NSGA3Settings(partitions=(3, 2, 1)), r"evo.partitions is \[3, 2, 1\]"),
        (lambda: OpenAIESSettings(population=5), "evo.population is 5; it must be even"),
        (lambda: CMAESSettings(restarts="often"), "evo.restarts is 'often'; choose none, ipop or bipop"),
        (lambda: CMAESSettings(sampling="x"), "evo.sampling is 'x'"),
        (lambda: PSOSettings(topology="star"), "evo.topology is 'star'"),
        (lambda: PSOSettings(population=4, neighbours=3), "evo.neighbours is 3"),
        (lambda: CSOSettings(phi=-1.0), "evo.phi is -1.0"),
        (lambda: PBTSettings(fraction=0.7), "evo.fraction is 0.7"),
        (lambda: PBTSettings(factors=(0.0,)), r"evo.factors is \[0.0\]"),
        (lambda: MAPElitesSettings(cells=0), "evo.cells is 0"),
    ],
)
def test_bad_values_are_named(make_settings, message):
    with pytest.raises(ConfigError, match=message):
        make_settings()


@pytest.mark.parametrize(
    ("settings", "evaluator", "message"),
    [
        (GASettings(), ZDT1(), "evo is ga, which takes one objective, and the problem has 2"),
        (NSGA3Settings(), Sphere(), "evo is nsga3"),
        (NSGA3Settings(population=4), DTLZ2(objectives=5), "evo.population is 4"),
        (CMAESSettings(), TSP(), "of the problem's genomes is Permutation"),
        (CMAESSettings(), Sphere(dim=1), "needs two numbers"),
        (PSOSettings(), TSP(), "evo is pso"),
        (MAPElitesSettings(), Sphere(), "needs measures"),
        (MAPElitesSettings(cells=(3, 3, 3)), Arm(), r"evo.cells is \[3, 3, 3\]"),
    ],
)
def test_problems_that_a_strategy_cannot_solve_are_refused(settings, evaluator, message):
    with pytest.raises(ConfigError, match=message):
        make(settings, evaluator)


def test_first_genomes_that_break_the_coding_are_refused():
    strategy = GASettings(population=4).make(
        task_of(Sphere(dim=2)), lambda n, rng: {"x": np.full((n, 2), 99.0)}, np.random.default_rng(0)
    )
    with pytest.raises(ConfigError, match="outside of its coding"):
        strategy.ask(4)
