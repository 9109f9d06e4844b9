"""Population based training by Ray Tune and RLlib's PPO on CartPole, as a program that is asked for rates."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

from lamarckian_cli.bench.local_machine import guarded_folder
from lamarckian_cli.bench.program import questions

ENVIRONMENTS = 8  # of each runner: the best that was found for RLlib on CartPole
LEARNING_RATES = (1e-5, 0.1)
ENTROPY_WEIGHTS = (1e-4, 0.1)
ENV = "CartPole-v1"


class Watch:
    """When results came, and of how many env steps: from when all slots have reported on, for `seconds`.

    Tune asks it as a Stopper, result by result.
    """

    def __init__(
        self, at_once: int, batch: int, seconds: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.env_steps, self.seconds = 0, 0.0
        self._at_once, self._batch, self._wanted_s, self._clock = at_once, batch, seconds, clock
        self._reported: set[str] = set()
        self._began: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """One batch was sampled and learned from by a member; it goes on."""
        now = self._clock()
        if self._began is not None:
            self.env_steps += self._batch
            self.seconds = now - self._began
            return False
        self._reported.add(trial_id)
        if len(self._reported) >= self._at_once:
            self._began = now
        return False

    def stop_all(self) -> bool:
        return self.seconds >= self._wanted_s


def tune(question: dict[str, Any], folder: str) -> dict[str, Any]:
    """Train a population until its rate is known."""
    from ray import tune as ray_tune
    from ray.tune.schedulers import PopulationBasedTraining
    from ray.tune.stopper import Stopper

    at_once, batch = question["at_once"], question["batch"]
    stopper = type("WatchStopper", (Watch, Stopper), {})
    watch = stopper(at_once, batch, question["seconds"])
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=question["interval"],
        quantile_fraction=0.25,
        resample_probability=0.0,
        hyperparam_mutations={
            "lr": ray_tune.loguniform(*LEARNING_RATES),
            "entropy_coeff": ray_tune.loguniform(*ENTROPY_WEIGHTS),
        },
    )
    ray_tune.Tuner(
        "PPO",
        param_space=ppo(question).to_dict(),
        tune_config=ray_tune.TuneConfig(
            metric="env_runners/episode_return_mean",
            mode="max",
            scheduler=scheduler,
            num_samples=question["population"],
            max_concurrent_trials=at_once,
        ),
        run_config=ray_tune.RunConfig(stop=watch, storage_path=folder, verbose=0),
    ).fit()
    return {"env_steps": watch.env_steps, "seconds": watch.seconds}


def ppo(question: dict[str, Any]) -> Any:
    """PPO of our settings. Members share the cores; one that has several has a runner on each."""
    from ray import tune as ray_tune
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    share = question["cores"] // question["at_once"]
    return (
        PPOConfig()
        .environment(ENV)
        .env_runners(
            num_env_runners=share if share > 1 else 0,
            num_envs_per_env_runner=ENVIRONMENTS,
            rollout_fragment_length="auto",
        )
        .resources(num_cpus_for_main_process=max(1, share))
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[256, 128], fcnet_activation="relu", vf_share_layers=True
            )
        )
        .training(
            lr=ray_tune.loguniform(*LEARNING_RATES),
            entropy_coeff=ray_tune.loguniform(*ENTROPY_WEIGHTS),
            gamma=0.99,
            lambda_=0.95,
            grad_clip=0.5,
            train_batch_size_per_learner=question["batch"],
            minibatch_size=None,  # the whole batch, which is a little longer: each episode has its last value
            num_epochs=1,
        )
    )


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """On a cluster of its own, which is ended; what went wrong as `error`."""
    from lamarckian_cli.launch import ray_calls, ray_cluster

    os.environ.setdefault("RAY_worker_niceness", "0")  # else it would yield to everything
    # Members are held apart by `at_once`; to Ray, there is room for all.
    ray_cluster.start(2 * question["population"] * question["cores"])
    try:
        with guarded_folder() as folder:
            return tune(question, folder)
    except Exception as error:  # whatever it is, it is theirs
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    finally:
        ray_calls.ray().shutdown()


def missing() -> str | None:
    """Why it cannot be imported."""
    try:
        for module in ("ray.tune", "ray.rllib.algorithms.ppo"):
            importlib.import_module(module)
    except ImportError as error:
        return str(error).splitlines()[0]
    return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends this program
    answers = os.fdopen(os.dup(1), "w")
    for stream in (1, 2):  # what Tune and RLlib print and log is not for whoever measures
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    warnings.simplefilter("ignore")
    print(json.dumps({"missing": missing()}), file=answers, flush=True)
    with contextlib.suppress(BrokenPipeError):
        for question in questions():
            print(json.dumps(answer(question)), file=answers, flush=True)


if __name__ == "__main__":
    main()
