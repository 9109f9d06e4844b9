"""The documentation does what it says: its commands run, its links lead somewhere, its keys exist."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from lamarckian_cli.config.catalogue import GROUPS, keys

_spec = importlib.util.spec_from_file_location("documentation_pages", Path(__file__).with_name("pages.py"))
assert _spec is not None
assert _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = pages
_spec.loader.exec_module(pages)

PAGE_TIMEOUT_S = 300
AT_ONCE = 2  # pages that run at a time
NAMES = [str(page.relative_to(pages.ROOT)) for page in pages.PAGES]


@dataclass
class Ran:
    """A page's commands after they have run, in the folder where they did."""

    status: int
    output: str
    folder: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ran]]]:
    """Every page, run in a folder of its own; the longest ones first."""
    runs = re.compile("lamarck (train|evolve) ")
    order = sorted(pages.PAGES, key=lambda page: -len(runs.findall(pages.script(page))))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            str(page.relative_to(pages.ROOT)): pool.submit(run_page, page, tmp_path_factory.mktemp(page.stem))
            for page in order
        }


def run_page(page: Path, folder: Path) -> Ran:
    """Run the page's commands with this interpreter's programs; nothing they start outlives them."""
    shutil.copytree(
        pages.ROOT / "docs" / "examples",
        folder / "docs" / "examples",
        ignore=shutil.ignore_patterns("__pycache__", "runs", "multirun"),
    )
    for block in pages.blocks(page):
        if block.directive.startswith("file "):
            path = folder / block.directive.removeprefix("file ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "LAMARCK_CONFIG_PATH", "LAMARCK_TRACEBACK"):
        environment.pop(name, None)
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            ["bash", "-c", pages.script(page)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(PAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it left in the background
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return Ran(status, output.read(), folder)


@pytest.mark.slow
@pytest.mark.timeout(2 * PAGE_TIMEOUT_S)
@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_a_page_runs(ran: dict[str, Future[Ran]], name: str) -> None:
    result = ran[name].result()
    assert result.status == 0, f"{name} ended with status {result.status}:\n{result.output[-4000:]}"
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.timeout(2 * PAGE_TIMEOUT_S)
def test_the_tables_of_a_run_folder_are_complete(ran: dict[str, Future[Ran]]) -> None:
    run = ran["docs/train.md"].result().folder / "runs" / "first"
    page = pages.ROOT / "docs" / "train.md"
    summary = json.loads((run / "summary.json").read_text())
    assert set(pages.names_in_tables(page, "name in summary.json")) == {*summary, "git"}
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    named = set(pages.names_in_tables(page, "name in metrics.jsonl"))
    assert set(row) <= named
    files = {name.rstrip("/") for name in pages.names_in_tables(page, "file")}
    assert {path.name for path in run.iterdir()} == files


@pytest.mark.slow
@pytest.mark.timeout(2 * PAGE_TIMEOUT_S)
def test_the_tables_of_an_evolution_are_complete(ran: dict[str, Future[Ran]]) -> None:
    run = ran["docs/evolve.md"].result().folder / "runs" / "first"
    page = pages.ROOT / "docs" / "evolve.md"
    summary = json.loads((run / "summary.json").read_text())
    named = set(pages.names_in_tables(page, "name in an evolution's summary.json"))
    # The first two are of a single objective, the third of an archive.
    assert named == {*summary, "git", "best", "optimum", "coverage"}
    files = {name.rstrip("/") for name in pages.names_in_tables(page, "file in an evolution")}
    assert {path.name for path in run.iterdir()} | {"errors.log"} == files


@pytest.mark.parametrize("page", pages.PAGES, ids=NAMES)
def test_only_a_few_reasons_excuse_a_block(page: Path) -> None:
    reasons = {block.skip_reason for block in pages.blocks(page)} - {None}
    assert reasons <= pages.SKIP_REASONS


@pytest.mark.parametrize("page", pages.PAGES, ids=NAMES)
def test_local_links_and_images_exist(page: Path) -> None:
    missing = [target for target in pages.local_links(page) if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", pages.PAGES, ids=NAMES)
def test_every_key_in_a_table_exists(page: Path) -> None:
    assert set(pages.names_in_tables(page, "key")) <= known_keys()


def test_every_key_is_in_a_table() -> None:
    named = {key for page in pages.PAGES for key in pages.names_in_tables(page, "key")}
    assert {key for key in known_keys() if not key.startswith("env.") and key != "opponent"} <= named


@pytest.mark.parametrize("page", pages.PAGES, ids=NAMES)
def test_every_option_named_in_text_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    options = {(g, o) for g, o in re.findall(r"\b([a-z]+)=([a-z][a-z_/]*)(?![\w:.])", text) if g in GROUPS}
    own = {("env", name) for name in ("mygame", "race", "remote")}
    own |= {("experiment", "slow"), ("problem", "beam")}
    for group, option in options - own:
        assert (pages.ROOT / "conf" / group / f"{option}.yaml").is_file(), f"{group}={option}"


@pytest.mark.parametrize("page", pages.PAGES, ids=NAMES)
def test_files_shown_are_the_files(page: Path) -> None:
    for block in pages.blocks(page):
        if block.directive.startswith("same as "):
            path = pages.ROOT / block.directive.removeprefix("same as ")
            assert block.text == path.read_text(encoding="utf-8")


def test_images_are_small() -> None:
    for image in (pages.ROOT / "docs" / "images").iterdir():
        assert image.stat().st_size < 500_000


def known_keys() -> set[str]:
    """Every key of conf/, as it is written on the command line."""
    conf = pages.ROOT / "conf"
    found = {key.name for name in ("config", "evolve") for key in keys(conf / f"{name}.yaml") if key.value}
    for path in conf.rglob("*.yaml"):
        group = path.relative_to(conf).parts[0]
        if group in GROUPS and group not in ("experiment", "tuned") and path.stem != "frozen":
            found |= {f"{group}.{key.name}" for key in keys(path) if not key.name.startswith("_")}
    return found
