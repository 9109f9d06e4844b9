"""scripts/install_football.sh: what it refuses, what it keeps, and that nothing half-made is taken for whole.

Nothing here compiles or downloads: pip, the compiler and the build tools are small scripts on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import football
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "install_football.sh"
RELEASE = "2.10.2+lamarckian." + re.findall(r"^readonly RECIPE=(\d+)", SCRIPT.read_text(), re.MULTILINE)[0]
TAG = "cp{0}{1}-cp{0}{1}".format(*sys.version_info)
PROGRAMS = (
    "bash",
    "awk",
    "cat",
    "dirname",
    "flock",
    "grep",
    "gzip",
    "head",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "nproc",
)
PROGRAMS += ("rm", "sleep", "tail", "tar", "env")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the engine is built for Linux")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Machine:
    """A PATH of its own with what is named, a cache, and a Python whose pip and libraries are played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.cache = folder / "cache"
        self.said = folder / "said"  # what the played programs were called with
        self.bin.mkdir()
        self.said.touch()
        for name in PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not here"))
        self.python = self.program("python", PLAYED_PYTHON)

    def program(self, name: str, text: str) -> Path:
        """A program of the machine; `$SAID` is where it notes its arguments."""
        path = self.bin / name
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
        path.chmod(0o755)
        return path

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.folder),
            "FOOTBALL_CACHE": str(self.cache),
            "SAID": str(self.said),
            "REAL": sys.executable,
            "INSTALLED": str(self.folder / "installed"),
            **more,
        }

    def install(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(SCRIPT), *(arguments or [str(self.python)])]
        return subprocess.run(
            command,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def wheels(self) -> list[Path]:
        return list(self.cache.rglob("*.whl"))

    def calls(self, word: str) -> int:
        return sum(word in line for line in self.said.read_text().splitlines())


# A Python that is the real one but for three things: pip notes what it is asked and makes what the
# script takes from it, the system's libraries are all there unless MISSING names some, and the engine
# loads once its wheel has been installed.
PLAYED_PYTHON = r"""
    #!/bin/bash
    case "$*" in
        "-m pip --version") exit 0 ;;
        "-m pip download"*)
            echo "pip $*" >>"$SAID"
            while [ "$1" != --dest ]; do shift; done
            mkdir -p "$2" && cat "$HOME/gfootball-2.10.2.tar.gz" >"$2/gfootball-2.10.2.tar.gz" ;;
        "-m pip install"*"--target"*)
            echo "pip $*" >>"$SAID"
            while [ "$1" != --target ]; do shift; done
            mkdir -p "$2/cmeel.prefix/lib" "$2/cmake/data/bin" "$2/ninja/data/bin"
            for tool in cmake ninja; do cat "$HOME/$tool" >"$2/$tool/data/bin/$tool"; done
            chmod() { "$REAL" -c "import os, sys; [os.chmod(p, 0o755) for p in sys.argv[1:]]" "$@"; }
            chmod "$2/cmake/data/bin/cmake" "$2/ninja/data/bin/ninja" ;;
        "-m pip install"*) echo "pip $*" >>"$SAID"; echo "$*" >"$INSTALLED" ;;
        "-c "*importlib.metadata*) [ -e "$INSTALLED" ] ;;
        *"football_wheel.py play "*) exit 0 ;;
        "-c "*Python.h*) exit 0 ;;
        "- "* | -)
            program=$(cat)
            case $program in
                *ctypes*) for package in ${MISSING:-}; do echo "$package"; done ;;
                *) "$REAL" -c "$program" ;;
            esac ;;
        *) exec "$REAL" "$@" ;;
    esac
"""


def test_shellcheck_has_nothing_to_say() -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    checker = str(beside) if beside.exists() else shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed: make setup-dev")
    done = subprocess.run([checker, SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- what it refuses, before anything is made --------------------------------------------


def test_without_a_compiler_and_apt_it_names_the_command(machine: Machine) -> None:
    done = machine.install(MISSING="libegl1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "System packages that the engine is built with are missing" in done.stderr
    assert "apt-get install --yes --no-install-recommends libegl1 g++ libsdl2-dev" in done.stderr
    assert "make football" in done.stderr
    assert not machine.wheels()
    assert machine.calls("pip") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="for root; others are not asked for a password either")
def test_apt_is_left_alone_where_it_is_told_so(machine: Machine) -> None:
    machine.program("apt-get", 'echo "apt-get $*" >>"$SAID"')
    assert machine.install(FOOTBALL_SYSTEM="no").returncode == 3
    assert machine.calls("apt-get") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root, or sudo without a password, may install")
def test_root_installs_what_is_missing_and_says_when_that_fails(machine: Machine) -> None:
    machine.program("apt-get", '#!/bin/bash\necho "apt-get $*" >>"$SAID"\necho no network; [ "$1" = update ]')
    done = machine.install()
    assert done.returncode == 3
    assert "no network" in done.stderr
    assert machine.calls("apt-get install --yes --no-install-recommends g++") == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("CPython 3 10 linux-x86_64", "is Python 3.10; 3.11 to 3.13 is needed"),
        ("CPython 3 14 linux-x86_64", "is Python 3.14; 3.11 to 3.13 is needed"),
        ("CPythont 3 13 linux-x86_64", "the engine is for CPython with its lock"),
        ("PyPy 3 11 linux-x86_64", "is PyPy"),
        ("CPython 3 12 macosx-14-arm64", "This is macosx-14-arm64"),
    ],
)
def test_a_python_that_will_not_do_is_refused(machine: Machine, answer: str, said: str) -> None:
    python = machine.program("other", f"#!/bin/bash\necho {answer}\n")
    done = machine.install(str(python))
    assert done.returncode == 2
    assert said in done.stderr
    assert not machine.cache.exists()


def test_a_python_that_is_not_there_is_refused(machine: Machine) -> None:
    done = machine.install("./no/python")
    assert done.returncode == 2
    assert "./no/python does not run" in done.stderr


def test_a_check_names_what_an_administrator_must_install_and_installs_nothing(machine: Machine) -> None:
    machine.program("apt-get", 'echo "apt-get $*" >>"$SAID"')
    machine.program("g++", "#!/bin/bash\nexit 0\n")
    done = machine.install("--check", str(machine.python), MISSING="libegl1 libsdl2-2.0-0")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith(
        "apt-get install --yes --no-install-recommends libegl1 libsdl2-2.0-0"
    )
    ready = machine.install("--check", str(machine.python))
    assert (ready.returncode, ready.stdout) == (0, "The football engine can be installed: make football\n")
    assert machine.said.read_text() == ""
    assert not machine.cache.exists()


def test_a_skipped_test_names_the_administrators_command(machine: Machine, monkeypatch) -> None:
    monkeypatch.setattr(football, "_why_not", lambda: "the football engine is not here")
    for name, value in machine.environment(MISSING="libegl1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", str(machine.python))
    monkeypatch.delenv("CI", raising=False)
    machine.program("apt-get", "#!/bin/bash\nexit 1\n")
    reason = football.missing.__wrapped__()
    assert re.search(r"apt-get install \S+ \S+ libegl1 .*&& make football$", reason)
    machine.program("g++", "#!/bin/bash\nexit 0\n")
    monkeypatch.delenv("MISSING")
    assert football.missing.__wrapped__() == "the football engine is not here: make football"
    if os.geteuid() == 0:  # CI as root may install everything, so nothing is skipped
        monkeypatch.setenv("CI", "true")
        assert football.missing.__wrapped__() == ""


# --- as a part of make setup-dev ---------------------------------------------------------

# Makes a .venv of itself, has torch, and leaves pip's work undone.
SETUP_PYTHON = r"""
    #!/bin/bash
    case "$*" in
        "-m venv --clear .venv") mkdir -p .venv/bin && >.venv/pyvenv.cfg && ln -s "$0" .venv/bin/python ;;
        "-m pip "* | *torch*) exit 0 ;;
        *) exec "$REAL" "$@" ;;
    esac
"""


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}], ids=["a person's", "CI"])
def test_setup_for_tests_installs_the_engine_and_goes_on_without_it(machine, environment) -> None:
    checkout = machine.folder / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    for name in ("setup.sh", "pip_progress.py"):
        shutil.copy(ROOT / "scripts" / name, checkout / "scripts")
    installer = machine.program("installer", '#!/bin/bash\necho "$FOOTBALL_SYSTEM $*" >>"$SAID"; exit 3\n')
    installer.rename(checkout / "scripts" / "install_football.sh")
    python = machine.program("python3", SETUP_PYTHON)
    for name in ("ip", "tc", "sshd", "apt-get", "ln", "touch"):
        real = shutil.which(name)
        if name in ("ln", "touch"):
            (machine.bin / name).symlink_to(str(real))
        else:
            machine.program(name, "#!/bin/bash\nexit 0\n")
    done = subprocess.run(
        ["bash", str(checkout / "scripts" / "setup.sh"), "dev"],
        env=machine.environment(PYTHON=str(python), **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests of football are skipped" in done.stdout
    system = "yes" if environment and os.geteuid() == 0 else "no"
    assert machine.said.read_text() == f"{system} .venv/bin/python\n"


# --- what it keeps -----------------------------------------------------------------------


@pytest.fixture
def builder(machine: Machine) -> Machine:
    """A machine that can build: a source of a few bytes, and build tools that play theirs."""
    source = machine.folder / "gfootball-2.10.2"
    engine = source / "third_party" / "gfootball_engine"
    for folder in (source / "gfootball" / "scenarios", engine / "data", source / "third_party" / "fonts"):
        folder.mkdir(parents=True)
    (source / "LICENSE").write_text("a license")
    (source / "gfootball" / "scenarios" / "__init__.py").write_text("")
    (engine / "__init__.py").write_text("")
    (engine / "data" / "grass").write_text("green")
    cmake = "find_package(Python COMPONENTS Development REQUIRED)\ninclude(sources.cmake)\n"
    (engine / "CMakeLists.txt").write_text(cmake)
    bindings = '\n  PyObject* get_state_python(\n.def("get_info", &GameEnv_Python::get_info)\n'
    (engine / "ai.cpp").write_text(bindings)
    tar = ["tar", "-czf", "gfootball-2.10.2.tar.gz", "gfootball-2.10.2"]
    subprocess.run(tar, cwd=machine.folder, check=True, timeout=60)
    # cmake notes the build folder; ninja makes the library there, or waits to be interrupted.
    (machine.folder / "cmake").write_text(
        '#!/bin/bash\nwhile [ "$1" != -B ]; do shift; done\nmkdir -p "$2"; >"$2/build.ninja"\n'
    )
    (machine.folder / "ninja").write_text(
        '#!/bin/bash\necho "ninja $*" >>"$SAID"; echo "[1/2] half" >"$2/object"\n'
        '[ -z "${SLOW:-}" ] || { >"$HOME/compiling"; exec sleep 60; }\n'
        'echo "[2/2] whole"; echo engine >"$2/libgame.so"\n'
    )
    linked = "$LD_LIBRARY_PATH/libboost_python{}{}.so".format(*sys.version_info)
    machine.program("ldd", f'#!/bin/bash\n>"{linked}"\necho "x => {linked} (0x0)"')
    machine.program("g++", "#!/bin/bash\nexit 0\n")
    return machine


def test_the_engine_is_built_once_and_then_taken_from_the_cache(builder: Machine) -> None:
    first = builder.install()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "to compile on" in first.stdout
    assert "\r" not in first.stdout  # no terminal, no progress line
    (wheel,) = builder.wheels()
    assert wheel.name.startswith(f"gfootball-{RELEASE}-{TAG}-linux_")
    assert "boost1.87" in wheel.parent.name
    # What it was built in is gone.
    assert {path.name for path in builder.cache.iterdir()} == {wheel.parent.name, "pip.log"}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"gfootball-{RELEASE}.dist-info/METADATA").decode()
        record = archive.read(f"gfootball-{RELEASE}.dist-info/RECORD").decode()
    assert {"gfootball_engine/_gameplayfootball.so", "gfootball_engine/data/grass"} <= names
    assert "gfootball/scenarios/__init__.py" in names
    assert any("libboost_python" in name for name in names)
    assert "Requires-Dist" not in metadata
    assert {line.split(",")[0] for line in record.splitlines()} == names

    again = builder.install()
    assert again.returncode == 0
    assert "is installed" in again.stdout
    (builder.folder / "installed").unlink()  # another environment
    other = builder.install()
    assert other.returncode == 0, other.stdout + other.stderr
    assert "that was built before" in other.stdout
    assert builder.calls("ninja -C") == 1
    assert builder.calls("pip -m pip download") == 1
    assert builder.calls(f"--no-deps --no-index --force-reinstall {wheel}") == 2


def test_an_interrupted_compilation_leaves_no_wheel_and_goes_on(builder: Machine) -> None:
    process = subprocess.Popen(
        ["bash", str(SCRIPT), str(builder.python)],
        env=builder.environment(SLOW="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not (builder.folder / "compiling").exists():
        assert time.monotonic() < deadline, "it never came to compiling"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Run the same command again to go on from here" in said
    assert not builder.wheels()
    assert not (builder.folder / "installed").exists()

    done = builder.install()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Going on with the football engine where the last run stopped" in done.stdout
    assert builder.calls("pip -m pip download") == 1  # not a second time
    assert len(builder.wheels()) == 1


@pytest.mark.parametrize(("step", "said"), [("ninja", "Compiling failed"), ("source", "not once")])
def test_what_fails_leaves_no_wheel_and_says_where_to_look(builder: Machine, step: str, said: str) -> None:
    if step == "ninja":
        (builder.folder / "ninja").write_text("#!/bin/bash\necho 'match.cpp:1: error: no'; exit 1\n")
    else:
        tar = builder.folder / "gfootball-2.10.2.tar.gz"
        shutil.rmtree(builder.folder / "gfootball-2.10.2" / "gfootball")
        (builder.folder / "gfootball-2.10.2/third_party/gfootball_engine/CMakeLists.txt").write_text("other")
        subprocess.run(["tar", "-czf", tar, "gfootball-2.10.2"], cwd=builder.folder, check=True, timeout=60)
    done = builder.install()
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(builder.cache.rglob("*.whl*"))
    assert not (builder.folder / "installed").exists()


# --- the real one ------------------------------------------------------------------------


@pytest.mark.skipif(bool(football.missing()), reason=football.missing())
def test_the_engine_plays_without_the_packages_of_its_wrappers() -> None:
    code = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "scripts")!r})
        import football_wheel
        football_wheel.play(Path("/nowhere"))
        unwanted = {{"gym", "absl", "six", "cv2", "pygame", "gfootball"}} & set(sys.modules)
        assert not unwanted, unwanted
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
