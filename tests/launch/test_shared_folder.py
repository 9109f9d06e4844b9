"""A job's folder in shared memory: the next job removes what one left that was killed with its guardian."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from lamarckian_cli.launch.shared_folder import make_folder

HOLDER = """
import sys
from pathlib import Path
from lamarckian_cli.launch.shared_folder import make_folder
print(make_folder(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_what_nobody_lives_in_any_more_is_removed_and_nothing_else(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        living, dead = (Path(holder.stdout.readline().strip()) for holder in holders)
        (dead / "weights").write_bytes(bytes(1000))
        foreign = tmp_path / "lamarck-of-another-kind"
        foreign.mkdir()
        holders[1].kill()
        holders[1].wait()
        own = Path(make_folder(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} == {living.name, foreign.name, own.name}
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert Path(make_folder(tmp_path)).exists()
        assert own.exists()  # by a lock of this very process
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
