"""Metrics files that survive a kill, events that TensorBoard reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from lamarckian_cli.metrics import EventsFile, MetricsFile, finite, last_row, read_rows


def test_finite_leaves_nothing_that_json_cannot_say() -> None:
    value = {
        "a": float("nan"),
        "b": [np.float64("inf"), np.int64(3)],
        "c": (True, None, "x"),
        4: np.bool_(True),
    }
    assert finite(value) == {"a": None, "b": [None, 3], "c": [True, None, "x"], "4": True}
    json.dumps(finite(value), allow_nan=False)


def test_rows_are_on_disk_at_once_and_a_partial_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert list(read_rows(path)) == []
    assert last_row(path) == {}
    file = MetricsFile(path)
    for step in range(3):
        file.append({"env_steps": step, "x": float("nan")})
    assert [row["env_steps"] for row in read_rows(path)] == [0, 1, 2]  # the file is still open
    with path.open("ab") as raw:
        raw.write(b'{"env_steps": 3}')  # whole, but its line end is not there
    assert [row["env_steps"] for row in read_rows(path)] == [0, 1, 2]
    assert last_row(path) == {"env_steps": 2, "x": None}
    file.close()
    file.close()


def test_the_last_row_of_a_long_file_is_found_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"env_steps": n, "pad": "x" * 50}) + "\n" for n in range(1000)))
    assert last_row(path, tail_bytes=200)["env_steps"] == 999


def test_tensorboard_reads_the_events_and_forgets_what_was_cut(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = EventsFile(tmp_path / "tensorboard")
    assert not (tmp_path / "tensorboard").exists()  # nothing before the first row
    for step in (10, 20, 30):
        other = {"state": "text", "bad": float("nan"), "none": None}
        first.append({"env_steps": step, "main/return": step + 0.5, **other})
    first.close()
    second = EventsFile(tmp_path / "tensorboard", purge_env_steps=21)
    second.append({"env_steps": 25, "main/return": 1.0})
    second.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["main/return"]
    assert [(e.step, e.value) for e in events.Scalars("main/return")] == [
        (10, 10.5),
        (20, 20.5),
        (25, 1.0),
    ]
