"""`lamarck evolve` over agents that learn: the whole command, in process and over Ray."""

import json
import signal
import subprocess
import sys
import time

import pytest

SMALL = (
    "evo=pbt",
    "evo.population=2",
    "problem.env_steps=512",
    "problem.matches=1",
    "algo.batch_size=256",
    "algo.unroll=16",
    "env.max_steps=40",
    "cluster.matches=4",
)
PROGRAM = [sys.executable, "-m", "lamarckian_cli.cli"]


def lamarck(*words, cwd, status=0):
    done = subprocess.run([*PROGRAM, *words], cwd=cwd, capture_output=True, text=True, timeout=240)
    assert done.returncode == status, done.stderr
    return done


def lineage(run):
    return [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]


def test_pbt_leaves_its_lineage_and_an_agent_that_eval_takes(tmp_path):
    done = lamarck(
        "evolve", *SMALL, "evo.evaluations=6", "cluster=inproc", "run.dir=runs/p", "--json", cwd=tmp_path
    )
    summary = json.loads(done.stdout)
    assert summary["evaluations"] == 6
    rows = lineage(tmp_path / "runs/p")
    *_, last = (tmp_path / "runs/p/metrics.jsonl").read_text().splitlines()
    assert json.loads(last)["learned_env_steps"] >= 6 * 512
    assert [row["cost"] for row in rows] == [512.0] * 6
    by_id = {row["id"]: row for row in rows}
    for row in rows:
        for parent in row["parents"]:
            own, earlier = row["genome"], by_id[parent]["genome"]
            assert own == earlier or all(1e-5 <= own["algo.lr"] <= 0.1 for _ in own)
    assert sum(bool(row["parents"]) for row in rows) == 4
    evaluated = json.loads(lamarck("eval", "runs/p/best", "--episodes", "2", "--json", cwd=tmp_path).stdout)
    assert evaluated["episodes"] == 2
    front = json.loads(lamarck("front", "runs/p", "--json", cwd=tmp_path).stdout)
    assert front["sense"] == ["max"]
    assert front["objectives"][0][0] == max(row["objectives"][0] for row in rows)


def test_several_objectives_with_another_strategy(tmp_path):
    words = ("evo=nsga2", "problem=training", "problem.objectives=[win,moves]", "problem.apart=true")
    done = lamarck(
        "evolve",
        *words,
        *[w for w in SMALL if w != "evo=pbt"],
        "evo.evaluations=7",
        "cluster=inproc",
        "run.dir=runs/n",
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["evaluations"] == 7
    assert all(len(row["objectives"]) == 2 for row in lineage(tmp_path / "runs/n"))


@pytest.mark.parametrize("cluster", ["inproc", "local"])
def test_a_killed_population_goes_on_with_all_of_its_members(tmp_path, cluster):
    words = [
        *SMALL,
        "evo.evaluations=1000",
        f"cluster={cluster}",
        "run.dir=runs/k",
        "run.checkpoint_every_s=0.2",
    ]
    if cluster == "local":
        words.append("cluster.actors=1")
    process = subprocess.Popen([*PROGRAM, "evolve", *words], cwd=tmp_path, stderr=subprocess.PIPE)
    run = tmp_path / "runs/k"
    deadline = time.monotonic() + 200
    while len(list(run.glob("checkpoints/*.ckpt"))) < 2:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    before = len(lineage(run))
    lamarck("evolve", "resume=runs/k", f"evo.evaluations={before + 6}", "--json", cwd=tmp_path)
    rows = lineage(run)
    assert len(rows) == before + 6
    assert [row["id"] for row in rows if row["error"]] == []
    known = {row["id"] for row in rows}
    assert len(known) == len(rows)
    assert all(set(row["parents"]) <= known for row in rows)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("~problem.search.algo", "problem.search is {}; name at least one key"),
        ("problem.objectives=[fame]", "problem.objectives has 'fame'; matches of pong report return"),
        ("problem.env_steps=0", "problem.env_steps is 0; it must be at least 1"),
        ("problem.search.algo.speed={low: 0, high: 1}", "problem.search has algo.speed; it can have"),
        ("problem.search.algo.lr.high=1e3", "problem.search.algo.lr reaches 1000.0: algo.lr is 1000.0"),
        ("problem.search.algo.lr.low=0", "problem.search.algo.lr.low is 0.0; on a logarithmic scale"),
    ],
)
def test_bad_input_gets_one_message_and_leaves_nothing(tmp_path, word, message):
    done = lamarck("evolve", *SMALL, word, "cluster=inproc", "run.dir=runs/b", cwd=tmp_path, status=2)
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()
