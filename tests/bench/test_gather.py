"""`lamarck bench gather`: every message arrives, and the rates are of what was sent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.bench import gather, gather_process
from lamarckian_cli.bench.gather import ChannelGather, Plan, sample_of
from lamarckian_cli.bench.gather_process import WARM_UP_S, Sample, Tally
from lamarckian_cli.errors import ConfigError

KEYS = {
    "what",
    "env",
    "actors",
    "unrolls_per_s",
    "env_steps_per_s",
    "mb_per_s",
    "message_bytes",
    "of_ray",
}
MEASURE = """
import json
from lamarckian_cli.bench.gather import Plan, measure_gather
print(json.dumps(measure_gather(Plan(actors=2, seconds=0.5, repeat=1, envs=("pong",)))))
"""


@pytest.fixture
def folder() -> Iterator[str]:
    made = tempfile.mkdtemp(prefix="lamarck-")  # short: a socket's path is limited
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.usefixtures("no_children_left")
def test_three_ways_are_measured() -> None:
    before = set(Path("/dev/shm").glob("lamarck-*"))
    # As from the command line, in a process of its own: Ray starts once in each.
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "gather"
    assert [row["what"] for row in document["results"]] == ["node-agent", "direct", "ray-calls"]
    for row in document["results"]:
        assert set(row) == KEYS
        assert row["unrolls_per_s"] > 0
        assert row["env_steps_per_s"] == pytest.approx(64 * row["unrolls_per_s"])
        assert row["mb_per_s"] > 0
    assert document["results"][2]["of_ray"] == 1
    assert set(Path("/dev/shm").glob("lamarck-*")) == before


class FakeWay:
    def __init__(self, what: str) -> None:
        self.what = what

    def rate(self, sample: Sample, seconds: float) -> float:
        return 10.0


def test_progress_is_told_over_all_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def fakes(actors: int, folder: str) -> Iterator[list[FakeWay]]:
        yield [FakeWay(what) for what in gather.WAYS]

    sample = Sample(path="", overrides=(), sizes=(4,), unrolls=2, length=3)
    monkeypatch.setattr(gather, "ways_of", fakes)
    monkeypatch.setattr(gather, "sample_of", lambda env, folder: sample)
    told: list[tuple[str, float]] = []
    plan = Plan(repeat=2)
    gather.measure_gather(plan, lambda *what: told.append(what))
    measuring = [what for what in told if " of " in what[0]]
    assert measuring[0] == ("1 of 12: pong, node-agent", 0.0)
    assert measuring[-1] == ("12 of 12: pong_image, ray-calls", pytest.approx(11 / 12))
    assert [share for _, share in measuring] == pytest.approx([i / 12 for i in range(12)])


@pytest.mark.usefixtures("no_children_left")
@pytest.mark.parametrize("what", ["node-agent", "direct"])
def test_all_that_is_sent_is_taken(what: str, folder: str) -> None:
    sample = sample_of("pong", folder)
    with closing(ChannelGather(what, folder, 2)) as ours:
        assert ours.rate(sample, 0.2) > 0  # it raises where a message is missing
        assert ours.rate(sample, 0.2) > 0


def test_a_sample_is_a_message_as_an_actor_sends_it(folder: str) -> None:
    sample = sample_of("pong", folder)
    assert sample.message_bytes == Path(sample.path).stat().st_size
    message = Sample(**sample.as_dict()).load()
    assert message.kind == "unrolls"
    inputs = message.arrays[0]
    assert inputs.shape[:2] == (sample.unrolls, sample.length + 1)
    assert np.isfinite(inputs).all()


def test_rates_leave_out_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(gather_process.time, "monotonic", lambda: now)
    tally = Tally()
    assert tally.rate(1.0) == 0
    for _ in range(50):  # all at once
        tally.add()
    now += WARM_UP_S
    for _ in range(20):
        tally.add()
        now += 0.25
    assert tally.rate(2.0) == pytest.approx(4.0)
    assert tally.await_count(70, 0.0) == 70


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"actors": 0}, "--actors is 0; it must be from 1"),
        ({"seconds": -1.0}, r"--seconds is -1\.0; it must be above 0"),
        ({"repeat": 0}, "--repeat is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(**values)
