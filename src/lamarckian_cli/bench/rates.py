"""What the parts of a training could do alone, each on one thread: stepping, forward, update.

The same environment objects, network, batch sizes and precision as in the training that
they are compared with. Measured on every core at once, since a core beside a busy one is
slower than one beside an idle one; each measures in a process of its own:

    python -m lamarckian_cli.bench.rates    # JSON lines: overrides in, then seconds in, rates out
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lamarckian_cli.actor.players import random_action
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.assembly import build_learners, build_rollout, message_unrolls
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.learner.batch import to_batch
from lamarckian_cli.mdp.football.match import agents_of
from lamarckian_cli.mdp.football.mdp import Football
from lamarckian_cli.mdp.gymnasium_adapter import GymnasiumMDP, make_env
from lamarckian_cli.mdp.interface import MDP

ACTIONS = 512  # drawn ahead, so that drawing them costs the stepping loop nothing
FOOTBALL_ACTIONS = 32  # fewer of a game whose step takes milliseconds


class Rates:
    """Measures the three rates of a job, env steps per second each; `measure` may be repeated."""

    def __init__(self, job: Job) -> None:
        self.job = job
        keep_memory()
        limit_threads(1)
        self.mdp = job.env.make_mdp()
        self.cast = cast_players(job, self.mdp.describe())
        self.learner = next(iter(build_learners(job, self.cast).values()))
        self.rollout = build_rollout(job, self.mdp, self.cast, actor=0)
        self.policy = self.rollout.policies[0]
        self.policy.load(self.learner.weights())
        self._batch = self._ready_made_batch(self.rollout)

    def measure(self, seconds: float) -> dict[str, float]:
        """Each of the three for `seconds`."""
        return {
            "step_rate": self._stepping(seconds),
            "forward_rate": self._forward(seconds),
            "update_rate": self._update(seconds),
        }

    def close(self) -> None:
        self.rollout.close()

    def _stepping(self, seconds: float) -> float:
        if isinstance(self.mdp, GymnasiumMDP):
            return gymnasium_stepping(self.mdp, seconds)
        if isinstance(self.mdp, Football):
            return football_stepping(self.mdp, self.cast.driven, seconds)
        return mdp_stepping(self.mdp, self.cast.driven, seconds)

    def _forward(self, seconds: float) -> float:
        count = self.job.cluster.matches
        inputs = tuple(x[:count].numpy() for x in self._batch.inputs)
        masks = tuple(None if mask is None else mask[:count].numpy() for mask in self._batch.masks)
        inference, sampler = self.policy.inference, self.policy.sampler
        rng = np.random.default_rng(0)

        def forward() -> int:
            sampler.sample(inference(inputs), masks, rng)
            return count

        return rate_of(forward, seconds)

    def _update(self, seconds: float) -> float:
        def update() -> int:
            self.learner.learn(self._batch)
            return self._batch.steps

        return rate_of(update, seconds)

    def _ready_made_batch(self, rollout: Rollout) -> Any:
        minimum = message_unrolls(self.job, self.cast)
        while not self.learner.ready():
            rollout.step()
            for unrolls in rollout.take(minimum):
                if unrolls.policy == self.learner.policy:
                    self.learner.put(unrolls)
        return to_batch(self.learner.take(), "cpu")


class RatesOnEveryCore:
    """As many processes as `cores`, each of which measures the rates of the job of `overrides`.

    Raises RunError where one of them ends.
    """

    def __init__(self, overrides: Sequence[str], cores: int) -> None:
        command = [sys.executable, "-m", "lamarckian_cli.bench.rates"]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(cores)
        ]
        try:
            self.precision: str = self._ask(list(overrides))[0]["precision"]
        except BaseException:
            self.close()
            raise

    def measure(self, seconds: float) -> dict[str, float]:
        """Each rate for `seconds`, on all cores at once; what one thread does, on the mean."""
        answers = self._ask(seconds)
        return {name: statistics.mean(answer[name] for answer in answers) for name in answers[0]}

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def _ask(self, question: Any) -> list[dict[str, Any]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        return [self._answer(process) for process in self._processes]

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RunError(f"the process that measures rates ended with status {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def rate_of(work: Callable[[], int], seconds: float) -> float:
    """Units of `work` per second, the first call left out."""
    work()
    done, began = 0, time.perf_counter()
    while True:
        done += work()
        elapsed = time.perf_counter() - began
        if elapsed >= seconds:
            return done / elapsed


def gymnasium_stepping(mdp: GymnasiumMDP, seconds: float) -> float:
    """`env.step` with random actions and resets, and nothing around it."""
    env = make_env(mdp.id, mdp.kwargs)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]

    def step() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return ACTIONS

    try:
        return rate_of(step, seconds)
    finally:
        env.close()


def football_stepping(mdp: Football, seats: tuple[int, ...], seconds: float) -> float:
    """The engine's step with random orders and new matches, in this process; nobody looks at the field.

    Counts env steps of all `seats`. The rules around the engine take some 15 us of a step.
    """
    _, agents, driven = agents_of(mdp, seats)
    game = mdp.new_game()
    rng = np.random.default_rng(0)
    orders = rng.integers(0, 19, (FOOTBALL_ACTIONS, len(driven)), np.uint8)
    matches = itertools.count()
    game.reset(next(matches), agents, driven)

    def step() -> int:
        for order in orders:
            if game.advance(order.tobytes()):
                game.reset(next(matches), agents, driven)
        return FOOTBALL_ACTIONS * len(driven)

    return rate_of(step, seconds)


def mdp_stepping(mdp: MDP, seats: tuple[int, ...], seconds: float) -> float:
    """Controllers of one seat driven with random actions, without scheduler or policy.

    Counts env steps of one controller; with several seats every player's coroutine is
    resumed in turn, as the game demands.
    """
    spec = mdp.describe()
    rng = np.random.default_rng(0)
    matches = itertools.count()
    match = mdp.reset(seats[:1], next(matches))
    state = match.controllers[0].state()
    actions = [random_action(spec.seats[seats[0]], state, rng) for _ in range(ACTIONS)]

    def step() -> int:
        nonlocal match
        controller = match.controllers[0]
        for action in actions:
            outcome = _run(controller.act(action))
            controller.reward()
            controller.state()
            if outcome.terminated or outcome.truncated:
                match.close()
                match = mdp.reset(seats[:1], next(matches))
                controller = match.controllers[0]
                controller.state()
        return ACTIONS

    try:
        return rate_of(step, seconds)
    finally:
        match.close()


def _run(awaitable: Any) -> Any:
    """The result of an awaitable that does not suspend."""
    try:
        awaitable.__await__().__next__()
    except StopIteration as end:
        return end.value
    raise RuntimeError("this game waits for others; its stepping rate cannot be told alone")


def main() -> None:
    """Answer the questions of a RatesOnEveryCore until it closes standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a game may print
    rates = Rates(job_of(json.loads(sys.stdin.readline())))
    print(json.dumps({"precision": "bf16" if rates.learner.bf16 else "fp32"}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(rates.measure(json.loads(line))), file=answers, flush=True)
    rates.close()


if __name__ == "__main__":
    main()
