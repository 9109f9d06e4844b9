"""The learner's process, here in ours: it goes on receiving while an update is under way."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import wait_until

from lamarckian_cli.launch.actor_host import ActorHost
from lamarckian_cli.launch.assembly import build_rollout, message_unrolls, trained_policies
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.learner_host import LearnerHost
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.transport.channel import connect_gather, connect_weights
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.packing import pack_unrolls, unpack_weights

DEADLINE_S = 30.0
SMALL = (
    "env=pong",
    "cluster.matches=8",
    "algo.batch_size=128",
    "algo.minibatch_size=null",
    "algo.unroll=16",
    "algo.reuse=1",
)


@pytest.fixture
def folder() -> Iterator[str]:
    made = tempfile.mkdtemp(prefix="lamarck-")
    yield made
    shutil.rmtree(made)


class Feeder:
    """Plays an actor: samples with the weights that it is given, and sends."""

    def __init__(self, job: Any, uri: str, keys: JobKeys | None = None) -> None:
        mdp = job.env.make_mdp()
        cast = cast_players(job, mdp.describe())
        self.rollout = build_rollout(job, mdp, cast, actor=0)
        self.minimum = message_unrolls(job, cast)
        self.policy = trained_policies(self.rollout)["main"]
        self.sender = connect_gather(uri, keys=keys, capacity=1, timeout_s=DEADLINE_S)

    def send(self, timeout_s: float = DEADLINE_S) -> bool:
        while not (made := self.rollout.take(self.minimum)):
            self.rollout.step()
        (unrolls,) = made
        return bool(self.sender.send(pack_unrolls(unrolls, self.rollout.pop_results()), timeout_s))

    def close(self) -> None:
        self.rollout.close()
        self.sender.close()


def test_a_batch_is_prepared_while_another_is_learned_from(folder: str, monkeypatch: Any) -> None:
    host = LearnerHost(job_of([*SMALL, "run.dir=unused"]), folder, 1, "cpu", None, "127.0.0.1")
    learner = host.learners["main"]
    learning, go_on = threading.Event(), threading.Event()
    learn = learner.learn

    def slow(batch: Any) -> Any:
        learning.set()
        assert go_on.wait(DEADLINE_S)
        return learn(batch)

    monkeypatch.setattr(learner, "learn", slow)
    host.start()
    feeder = Feeder(host.job, host.describe()["channels"]["unrolls"])
    try:
        weights = connect_weights(host.describe()["channels"]["weights"], timeout_s=DEADLINE_S)
        feeder.policy.load(unpack_weights(weights.wait(DEADLINE_S)[0]))
        assert feeder.send()
        assert learning.wait(DEADLINE_S)
        # The next one is taken in and made ready; the one after that waits with the actor.
        assert feeder.send()
        assert feeder.send()
        wait_until(host._batches.full)
        go_on.set()
        version = 0
        while version < 2:
            version = max([version, *(m.header["version"] for m in weights.wait(DEADLINE_S))])
        weights.close()
    finally:
        go_on.set()
        feeder.close()
        host.stop()
    assert host.progress()["counters"]["batches"] >= 2


def test_an_actor_stands_in_for_those_whose_share_is_missing(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that share in a batch one never comes: waiting for weights in vain stays the exception."""
    host = LearnerHost(job_of([*SMALL, "run.dir=unused"]), folder, 1, "cpu", None, "127.0.0.1")
    host.start()
    actor = ActorHost(host.job, 0, host.describe()["channels"], actors=2)
    vain = []
    stand_in = actor._stand_in
    monkeypatch.setattr(actor, "_stand_in", lambda: (vain.append(1), stand_in()))
    monkeypatch.setattr(actor, "_patience_s", lambda: 2.0)
    sampling = threading.Thread(target=actor.run)
    sampling.start()
    try:
        wait_until(lambda: host.progress()["counters"]["batches"] >= 20, DEADLINE_S)
        assert 1 <= len(vain) <= 3
    finally:
        actor.stop()
        sampling.join(DEADLINE_S)
        host.stop()


def test_it_serves_its_own_machine_and_others_at_once(folder: str) -> None:
    """Unrolls by ipc and by tcp come into the same batches; weights go both ways out, halved on the wire."""
    keys = JobKeys.make()
    job = job_of(
        [*SMALL, "cluster=auto", "cluster.half_precision=true", "algo.batch_size=256", "run.dir=unused"]
    )
    host = LearnerHost(job, folder, 1, "cpu", keys.to_dict(), "127.0.0.1")
    host.start()
    facts = host.describe()
    near = Feeder(job, facts["channels"]["unrolls"])
    far = Feeder(job, facts["unrolls"], keys)
    here = connect_weights(facts["channels"]["weights"], timeout_s=DEADLINE_S)
    there = connect_weights(facts["weights"], keys=keys, timeout_s=DEADLINE_S)
    try:
        whole, half = here.wait(DEADLINE_S)[0], there.wait(DEADLINE_S)[0]
        assert (len(whole.arrays), len(half.arrays)) == (1, 2)
        near.policy.load(unpack_weights(whole))
        far.policy.load(unpack_weights(half))
        assert near.send()
        assert far.send()
        assert here.wait(DEADLINE_S)[0].header["version"] == 1
        assert there.wait(DEADLINE_S)[0].header["version"] == 1
        progress = host.progress()
        assert progress["counters"]["env_steps"] == 256
        assert progress["dropped_messages"] == {}
        assert 0 < progress["sent_bytes"] < 2 * facts["vector_bytes"] * 0.6
    finally:
        for end in (near, far, here, there):
            end.close()
        host.stop()
