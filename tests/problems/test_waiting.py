"""The problem that takes its time: durations as drawn, faults with their share, marks that end them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamarckian_cli.problems import waiting
from lamarckian_cli.problems.single import Sphere
from lamarckian_cli.problems.waiting import Waiting

SEEDS = range(4000)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Durations that were asked for; nobody sleeps. A nap is the end, for it would go on forever."""
    durations: list[float] = []

    def sleep(duration_s: float) -> None:
        durations.append(duration_s)
        if duration_s == waiting.NAP_S:
            raise TimeoutError

    monkeypatch.setattr(waiting.time, "sleep", sleep)
    return durations


def test_results_are_those_of_the_inner_problem(slept: list[float]) -> None:
    inner = Sphere(dim=3)
    problem = Waiting(inner=inner, mean_s=0.5)
    genomes = problem.initialize(4, np.random.default_rng(0))
    results = problem.evaluate(genomes, np.arange(4))
    np.testing.assert_array_equal(results.objectives, inner.values(genomes["x"]))
    assert problem.describe() is inner.describe()
    assert problem.optimum() == 0.0
    assert slept == [problem.fate(seed)[0] for seed in range(4)]


def test_times_are_log_normal_with_that_mean_and_sigma() -> None:
    problem = Waiting(inner=Sphere(), mean_s=0.2, sigma=0.8)
    logs = np.log([problem.fate(seed)[0] for seed in SEEDS])
    # Standard errors: sigma / sqrt(n) = 0.013 of the mean, sigma / sqrt(2 n) = 0.009 of the deviation.
    assert logs.mean() == pytest.approx(np.log(0.2) - 0.5 * 0.8**2, abs=0.05)
    assert logs.std() == pytest.approx(0.8, abs=0.04)
    assert Waiting(inner=Sphere(), mean_s=0.2, sigma=0.0).fate(5)[0] == pytest.approx(0.2)


def test_faults_have_their_shares_and_follow_from_the_seed() -> None:
    problem = Waiting(inner=Sphere(), raises=0.1, hangs=0.2, kills=0.3)
    faults = [problem.fate(seed)[1] for seed in SEEDS]
    for name, share in (("raises", 0.1), ("hangs", 0.2), ("kills", 0.3), ("", 0.4)):
        assert faults.count(name) / len(faults) == pytest.approx(share, abs=0.03)
    assert faults[:50] == [
        Waiting(inner=Sphere(), raises=0.1, hangs=0.2, kills=0.3).fate(s)[1] for s in range(50)
    ]
    assert {Waiting(inner=Sphere()).fate(seed)[1] for seed in SEEDS} == {""}


@pytest.mark.usefixtures("slept")
def test_without_marks_each_try_fails_alike() -> None:
    problem = Waiting(inner=Sphere(), raises=1.0)
    genomes = problem.initialize(1, np.random.default_rng(0))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the evaluation of seed 7 fails"):
            problem.evaluate(genomes, np.array([7]))


@pytest.mark.usefixtures("slept")
def test_with_marks_the_next_try_goes_well(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    problem = Waiting(inner=Sphere(), raises=1.0, marks=str(marks))
    genomes = problem.initialize(1, np.random.default_rng(0))
    with pytest.raises(RuntimeError):
        problem.evaluate(genomes, np.array([7]))
    elsewhere = Waiting(inner=Sphere(), raises=1.0, marks=str(marks))
    assert elsewhere.evaluate(genomes, np.array([7])).objectives.shape == (1, 1)
    with pytest.raises(RuntimeError):
        elsewhere.evaluate(genomes, np.array([8]))


def test_it_hangs(slept: list[float]) -> None:
    problem = Waiting(inner=Sphere(), hangs=1.0)
    with pytest.raises(TimeoutError):
        problem.evaluate(problem.initialize(1, np.random.default_rng(0)), np.array([1]))
    assert slept[-1] == waiting.NAP_S


def test_it_ends_its_process() -> None:
    code = (
        "import numpy as np\n"
        "from lamarckian_cli.problems.single import Sphere\n"
        "from lamarckian_cli.problems.waiting import Waiting\n"
        "problem = Waiting(inner=Sphere(), mean_s=0.0, kills=1.0)\n"
        "problem.evaluate(problem.initialize(1, np.random.default_rng(0)), np.array([1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
