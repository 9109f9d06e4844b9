"""The pages of the documentation, taken apart: code blocks, directives, links, tables of keys.

A block is run as the page says it, but short: `lamarck train` gets the overrides of SHORT.
A comment above a block directs the test:

    <!-- test: skip REASON -->   not run; REASON is one of SKIP_REASONS
    <!-- test: ray -->           over Ray, with one actor; the others run in process
    <!-- test: fails -->         must end with status 2
    <!-- test: file PATH -->     written to PATH before the page runs
    <!-- test: same as PATH -->  must be what that file of the repository holds
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SKIP_REASONS = {
    "installs everything",
    "installs a package",
    "needs a shell",
    "names the run that make train printed",
    "needs other machines",
    "takes minutes",
    "run in another page",
}
SHORT = (
    "budget.env_steps=1024",
    "algo.batch_size=512",
    "algo.minibatch_size=null",
    "algo.unroll=16",
    "algo.reuse=1",
    "cluster.matches=8",
    "evaluation.episodes=5",
)
RESUMED = ("budget.env_steps=2048",)
SHORT_EVOLUTION = "evo.evaluations=400"
RESUMED_EVOLUTION = "evo.evaluations=800"
NO_RUN = ("--cfg", "-sc", "--help")

_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<directive>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    directive: str
    line: int

    @property
    def is_shell(self) -> bool:
        return self.language in ("bash", "console", "sh", "shell")

    @property
    def skip_reason(self) -> str | None:
        return self.directive.removeprefix("skip ") if self.directive.startswith("skip ") else None


def blocks(page: Path) -> Iterator[Block]:
    """The page's fenced blocks in their order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Block(
            language=match["language"], text=match["text"], directive=match["directive"] or "", line=line
        )


def script(page: Path) -> str:
    """All of the page's commands as one shell script, so that what one block leaves the next one has."""
    parts = ["set -euo pipefail"]
    for block in blocks(page):
        if not block.is_shell or block.skip_reason is not None:
            continue
        commands = "".join(
            shortened(line, ray=block.directive == "ray") + "\n" for line in block.text.splitlines()
        )
        parts.append(f"echo '--- {page.name}, line {block.line}' >&2")
        if block.directive == "fails":
            commands = f'status=0; (\n{commands}) || status=$?; test "$status" = 2\n'
        parts.append(commands)
    return "\n".join(parts)


def shortened(line: str, *, ray: bool = False) -> str:
    """The line, with a `lamarck train` or `lamarck evolve` in it made short."""
    if line.startswith("lamarck evolve "):
        return _shortened_evolution(line, ray=ray)
    if not line.startswith("lamarck train ") or any(flag in line.split() for flag in NO_RUN):
        return line
    if "resume=" in line:
        return shlex.join([*shlex.split(line), *RESUMED])
    words = shlex.split(line)
    where = ["cluster.actors=1"] if ray else [] if "cluster=inproc" in words else ["cluster=inproc"]
    return shlex.join([*words, *where, *SHORT])


def _shortened_evolution(line: str, *, ray: bool) -> str:
    """Its budget cut, and drawn only where the page names the run folder, which is looked at.

    The line may go on in the next one, so what is added stands in front.
    """
    budget = RESUMED_EVOLUTION if "resume=" in line else SHORT_EVOLUTION
    if "evo.evaluations=" in line:
        return re.sub(r"evo\.evaluations=\S+", budget, line)
    added = [budget]
    if "run.dir=" not in line:
        added.append("run.plots=false")
    if ray:
        added.append("cluster.actors=1")
    return line.replace("lamarck evolve ", f"lamarck evolve {' '.join(added)} ", 1)


def local_links(page: Path) -> Iterator[str]:
    """Links and images that point into the repository, outside code."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(prose):
        if not target.startswith(("http://", "https://", "mailto:", "#")):
            yield target.partition("#")[0]


def names_in_tables(page: Path, heading: str) -> list[str]:
    """What stands in backquotes in the first column of tables whose first heading is `heading`."""
    found: list[str] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        first = line.split("|")[1].strip()
        if first == heading:
            inside = True
        elif inside:
            found += re.findall(r"`([^`]+)`", first)
    return found
