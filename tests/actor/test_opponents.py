"""Opponents of self-play: drawn by their chances, one for a whole match, answered by their own weights."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.opponents import Opponents
from lamarckian_cli.actor.players import Player
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.mdp.pong import Pong
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import RUNNING, TERMINATED, MDPSpec, Pairings, State, Weights, place_name

SEAT = Pong().describe().seats[0]
ARCHITECTURE = Architecture(policy=(16, 8), critic=(8,))
SIZE = FlatParameters(Network(SEAT, ARCHITECTURE), bf16=False).vector.numel()
MATCHES, T = 12, 5
CHI_SQUARE = 13.8  # what two degrees of freedom stay below in 999 of 1000 cases


class Doubles:
    """Two sides of two; matches of 3 to 12 steps, so that they overlap in every way."""

    external = False

    def describe(self):
        return MDPSpec(name="doubles", seats=(SEAT,) * 4, results=("win",))

    def reset(self, seats, seed):
        return DoublesMatch(seats, 3 + seed % 10)

    def close(self):
        pass


class DoublesMatch:
    ticks = ()

    def __init__(self, seats, steps):
        self.controllers = [DoublesController(seat, steps) for seat in seats]

    def close(self):
        pass


class DoublesController:
    def __init__(self, seat, steps):
        self.seat, self.left = seat, steps

    def state(self):
        view = np.linspace(-1, 1, SEAT.inputs[0].shape[0]) * (1 + self.seat) / (1 + self.left)
        return State(inputs=(view.astype(np.float32),))

    async def act(self, action):
        self.left -= 1
        return RUNNING if self.left else TERMINATED

    def reward(self):
        return (0.0,)

    def result(self):
        return {"win": 0.5}


class Watched(Opponents):
    """Writes down who answered whom; players come to wait in any order, and not all at once."""

    def answer(self):
        np.random.default_rng(len(self.waiting)).shuffle(self.waiting)
        late = [self.waiting.pop()] if len(self.waiting) > 1 else []
        super().answer()
        self.waiting = late

    def _logits(self, players, inputs):
        logits, numbers = super()._logits(players, inputs)
        self.answers = getattr(self, "answers", [])
        for i, player in enumerate(players):
            self.answers.append((player, int(numbers[i]), inputs[0][i].copy(), logits[i].copy()))
        return logits, numbers


def vector(number):
    return 0.5 * np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)


def weights(place, number):
    return Weights(policy=place_name(place), version=number, vector=vector(number))


def pairings(numbers, chances, learner="main", version=1):
    names = tuple("" if number < 0 else f"main#{number}" for number in numbers)
    return Pairings(
        version=version,
        opponents=names,
        numbers=tuple(numbers),
        learners=("other", learner),
        chances=np.array([np.roll(chances, 1), chances], np.float64),
    )


def opponents(places, slots=1, made=Opponents):
    return made(places, SEAT, ARCHITECTURE, slots=slots, seed=0)


def rollout(mdp, foes, ours=(0,), theirs=(1,)):
    slots = MATCHES * len(ours)
    main = Policy("main", SEAT, ARCHITECTURE, seed=1, buffer=UnrollBuffer("main", SEAT, slots, T))
    main.load(Weights(policy="main", version=7, vector=vector(100)))
    seats = {**dict.fromkeys(ours, main), **dict.fromkeys(theirs, foes)}
    return Rollout(mdp, seats, matches=MATCHES, seed=0, opponents=foes)


def play(game, rounds):
    results = []
    for _ in range(rounds):
        game.step()
        game.take(1)
        results += game.pop_results()
    return results


def test_opponents_are_drawn_by_their_chances():
    foes = opponents(4)
    for place, number in ((0, 0), (1, 4), (3, 2)):
        foes.load(weights(place, number))
    foes.pair(pairings((0, 4, -1, 2), (0.5, 0.3, 0.0, 0.2)))
    player, rng, draws = Player(1, foes, 0), np.random.default_rng(5), 3000
    met = Counter()
    for _ in range(draws):
        met[foes.meet([player], "main", rng)] += 1
        foes.part([player])
    expected = {"main#0": 0.5 * draws, "main#4": 0.3 * draws, "main#2": 0.2 * draws}
    assert met.keys() == expected.keys()
    assert sum((met[name] - n) ** 2 / n for name, n in expected.items()) < CHI_SQUARE


def test_a_chance_of_who_is_not_here_yet_goes_to_the_others():
    foes = opponents(2)
    foes.load(weights(0, 0))
    foes.pair(pairings((0, 1), (0.1, 0.9)))
    assert foes.meet([Player(1, foes, 0)], "main", np.random.default_rng(0)) == "main#0"


@pytest.mark.parametrize("pairings_first", [False, True])
def test_weights_and_pairings_may_come_in_either_order(pairings_first):
    foes = opponents(2)
    news = [lambda: foes.load(weights(1, 3)), lambda: foes.pair(pairings((-1, 3), (0.0, 1.0)))]
    for tell in reversed(news) if pairings_first else news:
        assert not foes.ready
        tell()
    assert foes.ready
    player = Player(1, foes, 0)
    assert foes.meet([player], "main", np.random.default_rng(0)) == "main#3"
    assert foes.identity(player) == ("main#3", 3)
    # Another takes the place: until both weights and pairings are here, 3 is met, by its own name.
    news = [lambda: foes.load(weights(1, 8)), lambda: foes.pair(pairings((-1, 8), (0.0, 1.0)))]
    for tell in reversed(news) if pairings_first else news:
        foes.part([player])
        assert foes.meet([player], "main", np.random.default_rng(0)) == "main#3"
        tell()
    foes.part([player])
    assert foes.meet([player], "main", np.random.default_rng(0)) == "main#8"


@pytest.mark.parametrize("others", [1, 3])
def test_pairings_of_another_number_of_places_are_refused(others):
    with pytest.raises(ValueError, match=f"pairings of {others} places; there are 2"):
        opponents(2).pair(pairings((0,) * others, (1.0,) * others))


def test_an_opponent_stays_for_its_match_though_its_place_is_given_away():
    foes = opponents(1, MATCHES, Watched)
    game = rollout(Pong(rounds=1, max_steps=60), foes)
    foes.load(weights(0, 0))
    foes.pair(pairings((0,), (1.0,)))
    play(game, 10)
    foes.load(weights(0, 1))
    foes.pair(pairings((1,), (1.0,), version=2))
    under_way = [(slot, slot.match) for slot in game._slots]
    assert {slot.opponent for slot in game._slots} == {"main#0"}
    foes.answers.clear()
    for _ in range(60):
        play(game, 1)
        assert all(slot.opponent == "main#0" for slot, match in under_way if slot.match is match)
        assert all(slot.opponent == "main#1" for slot, match in under_way if slot.match is not match)
    assert not any(slot.match is match for slot, match in under_way), "all of them came to their end"
    for slot in range(MATCHES):
        numbers = [number for player, number, _, _ in foes.answers if player.slot == slot]
        assert 1 in numbers
        assert numbers == sorted(numbers), "one change, at a match's end"


def test_the_newest_gets_its_turn_among_many_matches_that_overlap():
    foes = opponents(1, MATCHES)
    game = rollout(Pong(rounds=2, max_steps=90), foes)
    for number in range(4):  # faster than matches end
        foes.load(weights(0, number))
        foes.pair(pairings((number,), (1.0,), version=number + 1))
        play(game, 15)
    play(game, 200)
    last = [result.opponent for result in play(game, 100) if result.opponent]
    assert len(last) >= MATCHES
    assert set(last) == {"main#3"}


def test_matches_that_are_given_up_free_their_opponents():
    foes = opponents(1, MATCHES)
    game = rollout(Doubles(), foes)
    for number in (0, 1):
        foes.load(weights(0, number))
        foes.pair(pairings((number,), (1.0,), version=number + 1))
        play(game, 4)
    assert {slot.opponent for slot in game._slots} == {"main#0", "main#1"}
    foes.load(weights(0, 2))
    foes.pair(pairings((2,), (1.0,), version=3))
    assert 2 not in foes._versions, "there is no room while both are in matches"
    game.restart(1)
    play(game, 1)
    assert {slot.opponent for slot in game._slots} == {"main#2"}


def test_all_seats_of_the_pool_have_the_same_opponent_and_a_match_is_told_of_once():
    foes = opponents(3, 2 * MATCHES, Watched)
    game = rollout(Doubles(), foes, ours=(0, 3), theirs=(1, 2))
    for place in range(3):
        foes.load(weights(place, place))
    foes.pair(pairings((0, 1, 2), (0.4, 0.3, 0.3)))
    results = []
    for _ in range(80):
        game.step()
        game.take(1)
        results += game.pop_results()
        for slot in game._slots:
            identities = {foes.identity(p) for p in slot.players if p.policy is foes}
            assert identities == {(slot.opponent, int(slot.opponent.removeprefix("main#")))}
    named = [r for r in results if r.opponent]
    assert {(r.policy, r.seat) for r in named} == {("main", 0)}, "the first seat that trains"
    assert len(results) == 4 * len(named)
    assert {r.opponent for r in named} == {"main#0", "main#1", "main#2"}
    assert {r.policy for r in results if r.seat in (1, 2)} == {"main#0", "main#1", "main#2"}


def test_each_player_is_answered_by_the_weights_of_its_own_opponent():
    foes = opponents(3, MATCHES, Watched)
    game = rollout(Pong(rounds=2, max_steps=40), foes)
    for place, number in enumerate((5, 2, 9)):
        foes.load(weights(place, number))
    foes.pair(pairings((5, 2, 9), (0.3, 0.3, 0.4)))
    play(game, 100)
    assert {number for _, number, _, _ in foes.answers} == {5, 2, 9}
    for number in (5, 2, 9):
        alone = Policy("alone", SEAT, ARCHITECTURE, seed=0)
        alone.load(Weights(policy="alone", version=0, vector=vector(number)))
        answers = [a for a in foes.answers if a[1] == number]
        expected = alone.inference((np.stack([a[2] for a in answers]),))
        np.testing.assert_allclose([a[3] for a in answers], expected, rtol=1e-4, atol=1e-5)
