"""One line of progress from pip's many: `pip ... --progress-bar raw 2>&1 | python pip_progress.py LOG`.

Everything pip says goes to LOG. On a terminal one line is redrawn; elsewhere one line is
printed for each large file and each stage, so that a log of CI stays short.
"""

import re
import sys
from pathlib import Path
from typing import TextIO

LARGE_BYTES = 20_000_000
MANY_FILES = 10  # below this, a stage is over before it is read
FILE = re.compile(r"^\s*(?:Downloading|Using cached|Processing) (?:\S*/)?(?P<name>\S+)")
BYTES = re.compile(r"^\s*Progress (?P<done>\d+) of (?P<total>\d+)")
STAGE = re.compile(r"^(?P<stage>Building wheels?|Installing collected packages)")
UNWANTED = ("Requirement already satisfied",)


def main(log_path: Path) -> None:
    progress = Progress(sys.stdout, redraw=sys.stdout.isatty())
    with log_path.open("a", encoding="utf-8") as log:
        for line in sys.stdin:
            if not BYTES.match(line) and not line.startswith(UNWANTED):
                log.write(line)
                log.flush()
            progress.take(line)
    progress.end()


class Progress:
    """What pip is doing, from the lines it prints."""

    def __init__(self, out: TextIO, *, redraw: bool) -> None:
        self.out, self.redraw = out, redraw
        self.name, self.files = "", 0
        self.said: set[str] = set()

    def take(self, line: str) -> None:
        if found := FILE.match(line):
            self.name, self.files = short_name(found["name"]), self.files + 1
            self._show(f"{self.name} ({self.files} packages so far)")
        elif found := BYTES.match(line):
            done, total = int(found["done"]), int(found["total"])
            self._show(f"downloading {self.name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
            if total >= LARGE_BYTES:
                self._say_once(f"downloading {self.name} ({total / 1e6:.0f} MB)")
        elif (found := STAGE.match(line)) and self.files >= MANY_FILES:
            text = found["stage"].replace("collected packages", "the packages (a minute or two)")
            self._show(text)
            self._say_once(text)

    def end(self) -> None:
        if self.redraw:
            self.out.write("\r\033[K")
            self.out.flush()

    def _show(self, text: str) -> None:
        if self.redraw:
            self.out.write(f"\r\033[K  {text[:76]}")
            self.out.flush()

    def _say_once(self, text: str) -> None:
        if not self.redraw and text not in self.said:
            self.said.add(text)
            print(f"  {text}", file=self.out, flush=True)


def short_name(filename: str) -> str:
    """`torch-2.13.0-cp311-...whl` -> `torch 2.13.0`."""
    return " ".join(filename.removesuffix(".metadata").split("-")[:2])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
