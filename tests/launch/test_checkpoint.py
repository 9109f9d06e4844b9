"""Checkpoints: what goes in comes out, damage is refused, a kill leaves the old one readable."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as hnp

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch import checkpoint

DTYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=20), ARRAYS
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    """Equal to the bit and of equal types; NaN equals itself."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(tree=TREES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_saved_is_loaded(tree: object, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    checkpoint.save(path, tree)
    assert same(checkpoint.load(path), tree)


def test_a_generators_state_of_128_bits_survives(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    checkpoint.save(tmp_path / "a.ckpt", rng.bit_generator.state)
    other = np.random.default_rng(8)
    other.bit_generator.state = checkpoint.load(tmp_path / "a.ckpt")
    assert rng.random() == other.random()


def test_tuples_scalars_and_strided_arrays_come_back_plain(tmp_path: Path) -> None:
    strided = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    checkpoint.save(tmp_path / "a.ckpt", {"t": (1, (2,)), "s": np.float32(0.5), "a": strided})
    tree = checkpoint.load(tmp_path / "a.ckpt")
    assert tree["t"] == [1, [2]]
    assert tree["s"] == 0.5
    assert tree["a"].tolist() == strided.tolist()
    tree["a"][0, 0] = 9  # writable


@pytest.mark.parametrize(
    "tree", [object(), {1: 2}, {"a": {3, 4}}, np.array(["text"]), np.array([object()]), [lambda: None]]
)
def test_what_cannot_be_kept_is_refused_and_nothing_written(tree: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a checkpoint cannot hold"):
        checkpoint.save(tmp_path / "a.ckpt", tree)
    assert list(tmp_path.iterdir()) == []


def small_file(folder: Path) -> tuple[Path, bytes]:
    path = folder / "000000000020.ckpt"
    checkpoint.save(path, {"w": np.arange(3, dtype=np.float32), "n": 2**100, "s": ["x", None]})
    return path, path.read_bytes()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path, content = small_file(tmp_path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match=r"000000000020\.ckpt"):
            checkpoint.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(RunError):
        checkpoint.load(path)


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path, content = small_file(tmp_path)
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(RunError, match=r"000000000020\.ckpt"):
                checkpoint.load(path)


@given(content=st.binary(max_size=200))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strange_bytes_under_a_valid_checksum_are_refused(content: bytes, tmp_path: Path) -> None:
    import hashlib

    body = struct.pack("<8sIQ", b"LAMARCKP", 1, len(content)) + content
    path = tmp_path / "a.ckpt"
    path.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(RunError):
        checkpoint.load(path)


def test_messages_name_fault_and_remedy(tmp_path: Path) -> None:
    path, content = small_file(tmp_path)
    older = tmp_path / "000000000010.ckpt"
    older.write_bytes(content)
    path.write_bytes(content[:-5] + b"wrong")
    with pytest.raises(RunError, match=r"damaged.*000000000010\.ckpt, remove this one: rm .*20\.ckpt"):
        checkpoint.load(path)
    older.write_bytes(b"PK\x03\x04 some zip file")
    with pytest.raises(RunError, match="is no checkpoint; there is no older one"):
        checkpoint.load(older)
    (tmp_path / "best.ckpt").write_bytes(content)
    with pytest.raises(RunError, match=r"to use the best one in its place: cp .*best\.ckpt .*10\.ckpt"):
        checkpoint.load(older)
    path.write_bytes(content[:8] + struct.pack("<I", 2) + content[12:])
    with pytest.raises(RunError, match=r"format 2.*reads 1; update"):
        checkpoint.load(path)
    with pytest.raises(RunError, match="No such file"):
        checkpoint.load(tmp_path / "other.ckpt")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = small_file(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot be written \(No space left"):
        checkpoint.save(path, {"n": 1})
    assert checkpoint.load(path)["n"] == 2**100
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        checkpoint.save(tmp_path / "nowhere" / "a.ckpt", 1)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from lamarckian_cli.launch import checkpoint
path, n = Path(sys.argv[1]), 0
while True:
    n += 1
    checkpoint.save(path, {"n": n, "w": np.full(200_000, n)})
    print(n, flush=True)
"""


@pytest.mark.parametrize("saves", [1, 3])
def test_a_kill_in_the_middle_leaves_a_whole_checkpoint(saves: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        done = 0
        for _ in range(saves):
            done = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    tree = checkpoint.load(path)
    assert tree["n"] >= done
    assert (tree["w"] == tree["n"]).all()


def test_a_kill_between_writing_and_renaming_leaves_the_old_one(tmp_path: Path) -> None:
    path, _ = small_file(tmp_path)
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from lamarckian_cli.launch import checkpoint\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "checkpoint.save(Path(sys.argv[1]), {'n': 1})\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert checkpoint.load(path)["n"] == 2**100
