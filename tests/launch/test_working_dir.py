"""`cluster.working_dir` is looked at before anything starts, on every kind of cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of

KINDS = ["inproc", "local", "auto"]


@pytest.mark.parametrize("value", ["''", "'  '"])
def test_no_name_is_no_folder(value: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster.working_dir is ' *'; give the folder that has your game"):
        job_of(["env=pong", "run.dir=unused", f"cluster.working_dir={value}"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_folder_is_told_and_nothing_is_written(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "file").write_text("")
    run = tmp_path / "run"
    job = job_of(
        ["env=pong", f"cluster={kind}", f"run.dir={run}", f"cluster.working_dir={tmp_path / name}"]
        + ["cluster.actors=1"] * (kind == "inproc")
    )
    with pytest.raises(ConfigError, match=rf"cluster.working_dir is '.*{name}'; it must be a folder"):
        train(job, json_output=True)
    assert not run.exists()


def test_a_folder_that_is_there_is_fine(tmp_path: Path) -> None:
    job_of(["env=pong", "run.dir=unused", f"cluster.working_dir={tmp_path}"]).cluster.check_here()
