"""Training over a real Ray cluster of several machines, each with its own network, that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from raynodes import WATCHFUL, RayNodes

from lamarckian_cli.bench.hosts import Host, Hosts, available
from lamarckian_cli.launch.runfolder import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(available()), reason=f"no hosts can be made here: {available()}"),
    pytest.mark.usefixtures("no_children_left"),
]

# Ray takes a machine for dead after 20 s without a sign of it, not 3: a cut link is to be survived.
PATIENT = WATCHFUL | {"RAY_health_check_failure_threshold": "40"}
PONG = (
    "env=pong",
    "cluster=auto",
    "cluster.start_timeout_s=240",
    "cluster.matches=16",
    "algo.batch_size=2048",
    "algo.minibatch_size=2048",
    "algo.unroll=32",
    "budget.stop_win_rate=null",
    "budget.env_steps=null",
    "budget.seconds=3600",
    "run.log_every_s=0.5",
)


class Run:
    """`lamarck train` on the first host, and what it writes."""

    def __init__(self, nodes: RayNodes, folder: Path, *overrides: str, cwd: str | None = None) -> None:
        self.folder = folder
        self._log = (folder.parent / "stderr.txt").open("w+")
        self.process = nodes.hosts[0].popen(
            lamarck("train", *PONG, f"cluster.address={nodes.address}", f"run.dir={folder}", *overrides),
            env=nodes.environment(0),
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )

    def said(self) -> str:
        return Path(self._log.name).read_text()

    def metrics(self) -> dict[str, Any]:
        """The newest line; empty before there is one."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        newest: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return newest

    def wait_until(self, holds: Any, timeout_s: float = 120.0) -> dict[str, Any]:
        deadline, pause = time.monotonic() + timeout_s, threading.Event()
        while not (metrics := self.metrics()) or not holds(metrics):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, f"it took too long: {metrics}\n{self.said()}"
            pause.wait(0.2)
        return metrics

    def learns_on(self) -> None:
        """Ten more batches are learned from."""
        goal = self.metrics()["env_steps"] + 10 * 2048
        self.wait_until(lambda m: m["env_steps"] >= goal)

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._log.close()


def lamarck(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lamarckian_cli.cli", *arguments]


def leftovers(host: Host) -> list[str]:
    """What of a job is still on a host, after some time to go: processes, folders in shared memory."""
    script = """
import os, pathlib, time
deadline = time.monotonic() + 20
while True:
    files = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if p.parent.name != str(os.getpid())]
    commands = [file.read_bytes().decode(errors="replace") for file in files]
    left = [c for c in commands if c.startswith("ray::Process") or "launch/guardian.py" in c]
    left += [str(path) for path in pathlib.Path("/dev/shm").glob("lamarck-*")]
    if not left or time.monotonic() > deadline:
        break
    time.sleep(0.1)
print("\\n".join(left))
"""
    done = host.run([sys.executable, "-c", script], timeout_s=60)
    return [line for line in done.stdout.splitlines() if line]


def test_training_goes_on_while_machines_are_cut_off_killed_and_return(tmp_path: Path) -> None:
    """Pong on four machines: one is cut off and mended, another killed and started anew."""
    with (
        Hosts(4, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, environment=PATIENT) as nodes,
    ):
        run = Run(nodes, tmp_path / "run", "cluster.silence_s=4")
        try:
            # Two cores a machine, and the learner keeps one of its own.
            first = run.wait_until(lambda m: m["env_steps"] > 20_000)
            assert (first["actors"], first["machines"], first["dropped_messages"]) == (7, 3, 0)

            hosts[1].cut()
            run.wait_until(lambda m: m["machines"] == 2 and m["actors"] == 5)
            assert "host2 (10.77.0.2) has not answered for 4 s" in run.said()
            run.learns_on()
            hosts[1].mend()
            run.wait_until(lambda m: m["machines"] == 3 and m["actors"] == 7)
            assert "host2 (10.77.0.2) answers again" in run.said()
            run.learns_on()

            nodes.kill(2)
            run.wait_until(lambda m: m["machines"] == 2 and m["actors"] == 5)
            run.learns_on()
            nodes.restart(2)
            after = run.wait_until(lambda m: m["machines"] == 3 and m["actors"] == 7)
            run.learns_on()

            assert after["actor_restarts"] == 0  # nobody's fault, so nobody's restart
            assert after["tree_changes"] >= 2
            assert run.interrupt() == 130
            assert RunFolder.open(run.folder).state == "interrupted"
            assert [leftovers(host) for host in hosts] == [[]] * 4
        finally:
            run.close()


def test_pong_is_learned_over_four_machines(tmp_path: Path) -> None:
    """To a 90 % win rate, weights at half precision, the fan-out by measured links."""
    with (
        Hosts(4, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, environment=WATCHFUL) as nodes,
    ):
        options = ("budget.stop_win_rate=0.9", "cluster.fanout=auto", "cluster.half_precision=true")
        run = Run(nodes, tmp_path / "run", *options)
        try:
            assert run.process.wait(240) == 0, run.said()
            assert run.metrics()["win"] >= 0.9
            # What leaves the learner is what its children in the tree get, at half the size.
            versions = run.metrics()["version"]
            weights = 4 * len(
                RunFolder.open(run.folder).load_checkpoint("latest")["learners"]["main"]["vector"]
            )
            assert run.metrics()["sent_bytes"] <= 2 * versions * 0.6 * weights
        finally:
            run.close()


def test_a_killed_driver_leaves_nothing_on_any_machine(tmp_path: Path) -> None:
    """Neither processes nor shared memory, on a cluster that goes on without the job."""
    with (
        Hosts(2, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, tls=False, environment=WATCHFUL) as nodes,
    ):
        run = Run(nodes, tmp_path / "run")
        try:
            run.wait_until(lambda m: m["env_steps"] > 10_000)
            run.process.kill()
            run.process.wait(20)
            assert [leftovers(host) for host in hosts] == [[], []]
        finally:
            run.close()


def test_what_is_missing_is_said_with_the_command_that_runs(tmp_path: Path) -> None:
    """A named cluster on too few machines: both numbers, no run folder; with shrink it goes on."""
    with (
        Hosts(2, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, token=True, tls=False, environment=WATCHFUL) as nodes,
    ):
        folder = tmp_path / "run"
        there = (f"cluster.address={nodes.address}", f"run.dir={folder}")
        few = hosts[0].run(
            lamarck("train", "env=pong", "cluster=10cores", *there),
            timeout_s=100,
            env=nodes.environment(0),
        )
        assert (few.returncode, few.stdout, few.stderr.count("\n")) == (2, "", 1)
        assert "cluster.cores is 10 (1 machine of 40), but 2 machines give 3 cores for actors" in few.stderr
        assert f"lamarck train env=pong {' '.join(there)} cluster=auto cluster.actors=3" in few.stderr
        assert not folder.exists()

        without_token = nodes.environment(0) | {"RAY_AUTH_MODE": "disabled"}
        refused = hosts[0].run(
            lamarck("train", "env=pong", "cluster=auto", *there), timeout_s=100, env=without_token
        )
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "it wants a token" in refused.stderr
        assert "RAY_AUTH_TOKEN_PATH" in refused.stderr

        run = Run(nodes, folder, "cluster=10cores", "cluster.on_shortage=shrink", "budget.seconds=2")
        try:
            assert run.process.wait(120) == 0, run.said()
            assert (
                "2 machines give 3 cores for actors (of their 4 cores the learner keeps one): going"
                in run.said()
            )
            assert "2 machines give 0 GPUs" in run.said()
            assert run.metrics()["actors"] == 3
        finally:
            run.close()


def test_a_machine_that_is_not_fit_costs_its_own_actors_alone_until_it_is(tmp_path: Path) -> None:
    """Its shared memory is full: the job says so, goes on without it, and takes it in once there is room."""
    with (
        Hosts(3, mbit_per_s=1000, keep=[tmp_path], shm_bytes=512 << 20) as hosts,
        RayNodes(hosts, tmp_path, tls=False, environment=WATCHFUL) as nodes,
    ):
        fill = "fallocate -l $(($(df --output=avail -B1 /dev/shm | tail -1) - 4194304)) /dev/shm/full"
        filled = hosts[2].run(["sh", "-c", fill], timeout_s=20)
        assert filled.returncode == 0, filled.stderr
        run = Run(nodes, tmp_path / "run")
        try:
            first = run.wait_until(lambda m: m["env_steps"] > 10_000)
            assert (first["actors"], first["machines"]) == (3, 1)
            why = "host3 (10.77.0.3) is not used: host3 has 4 MiB of shared memory left in /dev/shm"
            assert run.said().count("is not used") == run.said().count(why) == 1
            hosts[2].run(["rm", "/dev/shm/full"], timeout_s=20)
            run.wait_until(lambda m: m["machines"] == 2 and m["actors"] == 5)  # it is tried after 30 s
            assert "host3 (10.77.0.3) is used from now on" in run.said()
            run.learns_on()
            assert run.interrupt() == 130
            assert leftovers(hosts[2]) == []
        finally:
            run.close()


OWN_GAME = """
from lamarckian_cli.mdp.pong import Pong
class Game(Pong):
    pass
"""


def test_a_firewall_between_machines_and_a_game_that_only_one_of_them_has(tmp_path: Path) -> None:
    """No relay can be reached, so all hang under the learner; the game travels with the job."""
    with (
        Hosts(3, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, tls=False, environment=WATCHFUL) as nodes,
    ):
        for host in hosts[1], hosts[2]:
            host.block(7777)
        script = f"mkdir /tmp/game; cat > /tmp/game/owngame.py <<END{OWN_GAME}END"
        assert hosts[0].run(["sh", "-c", script], timeout_s=20).returncode == 0
        options = ("cluster.port=7777", "cluster.fanout=1", "cluster.silence_s=30", "budget.seconds=3")
        own = ("env._target_=owngame.Game", "cluster.working_dir=/tmp/game")
        run = Run(nodes, tmp_path / "run", *options, *own, cwd="/tmp/game")
        try:
            assert run.process.wait(150) == 0, run.said()
            assert "cannot reach the node agent of" in run.said()
            assert "cluster.port=N" in run.said()
            assert (run.metrics()["machines"], run.metrics()["actors"]) == (2, 5)
            assert run.metrics()["relay_bytes"] == 0
        finally:
            run.close()
