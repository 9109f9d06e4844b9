"""Population based training: who copies whom, at which age, and what a copy is."""

import numpy as np
import pytest
from strategies import evaluated, make

from lamarckian_cli.ec.coding import Coding, Integer, NetworkWeights, Real
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.evolution.pbt import PBTSettings
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results


class Rate(Evaluator):
    """Training adds each member's rate to its only weight, which is its score."""

    def describe(self):
        parts = {
            "rate": Real(low=np.zeros(1), high=np.ones(1)),
            "n": Integer(low=np.ones(1, np.int64), high=np.array([9])),
            "w": NetworkWeights(layers=(1,)),
        }
        return Description(coding=Coding(parts), objectives=(Objective(name="w", sense="max"),))

    def initialize(self, n, rng):
        return {**super().initialize(n, rng), "w": np.zeros((n, 1), np.float32)}

    def evaluate(self, genomes, seeds):
        w = genomes["w"] + genomes["rate"].astype(np.float32)
        return Results(objectives=w.astype(np.float64), genomes={**genomes, "w": w})


def test_a_copy_is_all_of_one_donor_but_for_explored_hyperparameters_in_bounds():
    settings = PBTSettings(population=10, factors=(0.5, 3.0))
    strategy, trained, copies = make(settings, Rate()), {}, 0
    for _ in range(12):
        candidates = strategy.ask(10)
        strategy_parents = candidates.parents[:, 0].tolist()
        for row, parent in enumerate(strategy_parents):
            if parent < 0:
                continue
            donor = trained[parent]
            assert candidates.genomes["w"][row] == donor["w"]
            if strategy_parents.count(parent) > 1 and candidates.genomes["rate"][row] != donor["rate"]:
                copies += 1
                moved = np.clip(donor["rate"] * np.array([0.5, 3.0]), 0, 1)
                assert np.isclose(candidates.genomes["rate"][row], moved).any()
                whole = {
                    max(1, round(donor["n"] * 0.5)),
                    min(9, donor["n"] * 3),
                    max(1, donor["n"] - 1),
                    min(9, donor["n"] + 1),
                }
                assert int(candidates.genomes["n"][row, 0]) in whole
        told = evaluated(candidates, Rate())
        for row, identity in enumerate(told.ids.tolist()):
            trained[identity] = {name: values[row, 0] for name, values in told.genomes.items()}
        strategy.tell(told)
    assert copies > 10


def test_the_worst_fifth_copies_the_best_fifth_at_equal_age():
    strategy = make(PBTSettings(population=10), Rate())
    told = evaluated(strategy.ask(10), Rate())
    strategy.tell(told)
    order = told.ids[np.argsort(told.objectives[:, 0])]
    again = strategy.ask(10)
    copied = {int(c) for c in again.parents[:, 0] if (again.parents[:, 0] == c).sum() > 1}
    assert copied <= set(order[:2].tolist())
    gone = set(told.ids.tolist()) - set(again.parents[:, 0].tolist())
    assert gone == set(order[-2:].tolist())


def test_a_member_that_is_ahead_does_not_make_younger_ones_look_bad():
    class Stairs(Rate):
        def initialize(self, n, rng):
            return {**super().initialize(n, rng), "rate": np.linspace(0.8, 0.2, n)[:, None]}

    strategy = make(PBTSettings(population=4, fraction=0.5), Stairs())
    told = evaluated(strategy.ask(4), Stairs())
    strategy.tell(told.take(np.array([3])))  # the worst, which then trains on while the others are out
    for _ in range(5):
        one = strategy.ask(1)
        assert one.parents[0, 0] >= 0
        strategy.tell(evaluated(one, Stairs()))
    strategy.tell(told.take(np.arange(3)))
    assert 1 in strategy.ask(3).parents[:, 0]  # second of four at its age, it goes on as it is


def test_a_failed_member_is_replaced_by_a_copy_of_a_donor():
    strategy = make(PBTSettings(population=5), Rate())
    told = evaluated(strategy.ask(5), Rate(), np.array([True, False, False, False, False]))
    strategy.tell(told)
    assert 0 not in strategy.population().ids
    again = strategy.ask(5)
    best = int(told.ids[np.argmin(told.objectives[:, 0])])
    assert (again.parents[:, 0] == best).sum() >= 2
    assert 0 not in again.parents[:, 0]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("lr",), "evo.hyperparameters has 'lr'"), (("w",), "which are a network's weights")],
)
def test_hyperparameters_that_cannot_be_explored_are_refused(names, message):
    with pytest.raises(ConfigError, match=message):
        make(PBTSettings(hyperparameters=names), Rate())
