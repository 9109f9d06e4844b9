"""Run folders: one writer, honest states, continuous curves, and no checkpoint lost that is needed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.runfolder import BEST, CHECKPOINTS, RunFolder
from lamarckian_cli.launch.runlock import LOCK, RunLock

CONFIG = {
    "seed": 1,
    "algo": {"_target_": "lamarckian_cli.learner.ppo.PPO", "lr": 1e-5, "note": "1e-3", "flag": "on"},
    "env": {"_target_": "lamarckian_cli.mdp.pong.Pong"},
    "run": {"dir": "runs/a", "layers": [1, 2]},
    "resume": None,
}


@pytest.fixture
def run(tmp_path: Path):  # type: ignore[no-untyped-def]
    folder = RunFolder.create(tmp_path / "runs" / "a", CONFIG, ["lamarck", "train", "run.dir=runs/a b"])
    yield folder
    folder.close()


def test_what_is_written_at_the_start_is_read_back(run: RunFolder) -> None:
    assert RunFolder.open(run.path).config() == CONFIG
    assert shlex.split(run.commands()[0]) == ["lamarck", "train", "run.dir=runs/a b"]
    assert run.state == "running"


def test_the_config_is_plain_yaml_that_resume_reads_the_same(run: RunFolder) -> None:
    from omegaconf import OmegaConf

    assert OmegaConf.to_container(OmegaConf.load(run.path / "config.yaml")) == CONFIG


def test_an_empty_folder_is_taken_and_a_full_one_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", CONFIG, ["lamarck"]).close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    for taken in ("empty", "full"):
        before = sorted((tmp_path / taken).rglob("*"))
        with pytest.raises(RunError, match=r"exists and is not empty.*resume="):
            RunFolder.create(tmp_path / taken, CONFIG, ["lamarck"])
        assert sorted((tmp_path / taken).rglob("*")) == before


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="give another run"):
        RunFolder.create(tmp_path / "file" / "run", CONFIG, ["lamarck"])
    with pytest.raises(RunError, match="not empty"):
        RunFolder.create(tmp_path / "file", CONFIG, ["lamarck"])


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="object"):
        RunFolder.create(tmp_path / "a", {"bad": object()}, ["lamarck"])
    assert not (tmp_path / "a").exists()


def test_runs_are_found_by_path_by_name_and_as_the_last(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolderClosing(RunFolder.create(Path("multirun/day/0-x"), CONFIG, ["lamarck"])) as newer:
        os.utime(run.path / "config.yaml", (1, 1))
        assert RunFolder.open("a").path == Path("runs/a")
        assert RunFolder.open("runs/a").path == Path("runs/a")
        assert RunFolder.open("last").path == newer.path
        with pytest.raises(RunError, match=r"it holds 1, such as multirun/day/0-x"):
            RunFolder.open("multirun/day")
    with pytest.raises(RunError, match=r"no run folder 'b'; `lamarck runs`"):
        RunFolder.open("b")
    with pytest.raises(RunError, match=r"has no config.yaml"):
        RunFolder.open(tmp_path / "runs" / "a" / CHECKPOINTS)


class RunFolderClosing:
    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def __enter__(self) -> RunFolder:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.folder.close()


def test_last_without_runs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="there is no run"):
        RunFolder.open("last")


# ------------------------------------------------------------------ state and lock


@pytest.mark.parametrize(("state", "reason"), [("finished", ""), ("interrupted", ""), ("failed", "no space")])
def test_states_are_kept_with_their_reason(run: RunFolder, state: str, reason: str) -> None:
    run.finish(state, reason)
    assert RunFolder.open(run.path).state_and_reason() == (state, reason)


def test_a_damaged_state_is_said_and_no_crash(run: RunFolder) -> None:
    (run.path / "state.json").write_text('{"state": "runn')
    assert run.state == "damaged"


def test_two_writers_are_kept_apart_by_name(run: RunFolder) -> None:
    with pytest.raises(RunError, match=f"written by process {os.getpid()}"):
        RunFolder.open(run.path, lock=True)
    run.close()
    again = RunFolder.open(run.path, lock=True, command=["lamarck", "train", "resume=x"])
    assert again.state == "running"
    assert len(again.commands()) == 2
    again.close()


CHILD = """
import sys, signal
from pathlib import Path
from lamarckian_cli.launch.runfolder import RunFolder
run = RunFolder.open(Path(sys.argv[1]), lock=True)
run.log({"env_steps": 1, "x": 0.5})
print("up", flush=True)
signal.pause()
"""


def test_a_killed_writer_is_seen_and_its_lock_taken_over(run: RunFolder) -> None:
    run.close()
    command = [sys.executable, "-c", CHILD, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert run.state == "running"
        with pytest.raises(RunError, match=f"written by process {child.pid}; .*kill -INT {child.pid}"):
            RunFolder.open(run.path, lock=True)
        child.send_signal(signal.SIGKILL)
    assert run.state == "killed"
    assert [row["x"] for row in run.rows()] == [0.5]
    RunFolder.open(run.path, lock=True).close()


def test_a_number_that_another_process_got_meanwhile_is_not_taken_for_the_writer(run: RunFolder) -> None:
    record = json.loads((run.path / LOCK).read_text())
    run.close()
    (run.path / LOCK).write_text(json.dumps({**record, "started": record["started"] - 1000}))
    assert run.state == "killed"
    (run.path / LOCK).write_text(json.dumps({**record, "host": "elsewhere"}))
    assert run.state == "running"  # it cannot be seen from here


def test_locks_are_released_twice_without_harm(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.release()
    lock.release()
    RunLock(tmp_path).release()


# ------------------------------------------------------------------ checkpoints


def names(run: RunFolder) -> list[str]:
    return sorted(path.name for path in (run.path / CHECKPOINTS).iterdir())


def test_the_newest_and_the_best_are_kept(run: RunFolder) -> None:
    for step, score in [(10, None), (20, 5.0), (30, 1.0), (40, 2.0), (50, 5.0)]:
        run.save_checkpoint({"step": step, "w": np.zeros(3)}, step, version=step // 10, score=score)
    assert names(run) == ["000000000030.ckpt", "000000000040.ckpt", "000000000050.ckpt", BEST]
    assert run.load_checkpoint()["step"] == 50
    assert run.load_checkpoint("best")["step"] == 20
    assert run.load_checkpoint(run.checkpoints()[2])["step"] == 30
    assert run.load_checkpoint("000000000040.ckpt")["step"] == 40


def test_the_best_is_remembered_over_a_resume(run: RunFolder) -> None:
    run.save_checkpoint({"step": 10}, 10, version=1, score=5.0)
    run.close()
    again = RunFolder.open(run.path, lock=True, keep_checkpoints=1)
    again.save_checkpoint({"step": 20}, 20, version=2, score=4.0)
    assert again.load_checkpoint("best")["step"] == 10
    again.save_checkpoint({"step": 30}, 30, version=3, score=6.0)
    assert again.load_checkpoint("best")["step"] == 30
    assert names(again) == ["000000000030.ckpt", BEST]
    again.close()


def test_the_best_stays_where_links_are_not_known(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    run.save_checkpoint({"step": 10}, 10, version=1, score=5.0)
    assert run.load_checkpoint("best")["step"] == 10


def test_missing_checkpoints_are_said(run: RunFolder) -> None:
    assert not run.has_checkpoint()
    with pytest.raises(RunError, match="no checkpoint yet"):
        run.load_checkpoint()
    with pytest.raises(RunError, match=r"no best checkpoint yet.*latest"):
        run.load_checkpoint("best")


def test_a_damaged_latest_names_the_older_one_and_does_not_fall_back(run: RunFolder) -> None:
    run.save_checkpoint({"step": 10}, 10, version=1)
    path = run.save_checkpoint({"step": 20}, 20, version=2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"damaged.*000000000010\.ckpt, remove this one: rm ") as refused:
        run.load_checkpoint()
    subprocess.run(shlex.split(str(refused.value).rpartition(": ")[2]), check=True)
    assert run.load_checkpoint()["step"] == 10


# ------------------------------------------------------------------ numbers


def test_the_curve_is_cut_at_the_checkpoint(run: RunFolder) -> None:
    for step in (10, 20, 30):
        run.log({"env_steps": step, "return": float(step), "bad": float("nan")})
        if step == 20:
            run.save_checkpoint({"step": step}, step, version=2, score=1.0)
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"env_steps": 40, "ret')  # the line that a kill cut short
    run.close()
    again = RunFolder.open(run.path, lock=True)
    again.rewind(20)
    again.log({"env_steps": 30, "return": 31.0})
    again.close()
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["return"] for line in lines] == [10.0, 20.0, 31.0]
    assert json.loads(lines[0])["bad"] is None


def test_a_best_of_the_future_is_forgotten(run: RunFolder) -> None:
    run.save_checkpoint({"step": 10}, 10, version=1, score=1.0)
    run.save_checkpoint({"step": 20}, 20, version=2, score=9.0).unlink()
    run.rewind(10)
    assert names(run) == ["000000000010.ckpt"]


def test_leftovers_of_a_kill_are_removed_on_resume(run: RunFolder) -> None:
    run.close()
    (run.path / CHECKPOINTS / ".000000000010.ckpt.1.partial").write_bytes(b"half")
    (run.path / ".summary.json.1.partial").write_bytes(b"half")
    RunFolder.open(run.path, lock=True).close()
    assert list(run.path.rglob("*.partial")) == []


def test_summaries_hold_no_nan(run: RunFolder) -> None:
    run.write_summary({"best_return": float("nan"), "seconds": np.float32(1.5), "nested": [float("inf")]})
    assert run.summary() == {"best_return": None, "seconds": 1.5, "nested": [None]}


def test_discard_removes_a_run_that_never_got_going(run: RunFolder) -> None:
    run.discard()
    assert not run.path.exists()
