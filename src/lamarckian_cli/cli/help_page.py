"""The help of `lamarck train` and `evolve`: groups with options, keys with comments, Hydra's flags."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamarckian_cli.config.catalogue import groups_of, keys
from lamarckian_cli.config.flags import FLAGS
from lamarckian_cli.config.folders import conf_dir, config_dir_of, open_user_code


@dataclass(frozen=True)
class Page:
    """What is told of one command."""

    command: str
    file: str  # its primary file
    usage: str
    note: str  # that follows on the title of its keys
    sections: tuple[tuple[str, str], ...]  # group and file whose keys are told


TRAIN_USAGE = """\
Usage: lamarck train [GROUP=OPTION]... [KEY=VALUE]... [FLAGS]

Trains an agent: composes the configuration, runs it, says where the run is.

    lamarck train                                      PPO on the built-in Pong
    lamarck train env=cartpole algo=impala seed=1
    lamarck train env=gym env.id=Acrobot-v1 budget.seconds=120
    lamarck train -m algo.lr=1e-3,3e-4 seed=0,1,2      one job for each combination
    lamarck train resume=RUN budget.env_steps=4e6      continue a run
"""
EVOLVE_USAGE = """\
Usage: lamarck evolve [GROUP=OPTION]... [KEY=VALUE]... [FLAGS]

Evolves solutions of a problem: composes the configuration, runs it, says where the run is.

    lamarck evolve                                     NSGA-II on ZDT1
    lamarck evolve evo=nsga2 problem=dtlz2 evo.population=92 evo.evaluations=25000
    lamarck evolve evo=cmaes problem=rastrigin problem.dim=20
    lamarck evolve problem=function problem.function=my_module.f problem.low=0 problem.high=1 problem.dim=5
    lamarck evolve -m evo=ga,pso problem=sphere,rosenbrock seed=0,1    one job for each combination
    lamarck evolve resume=RUN evo.evaluations=50000    continue a run
"""
PAGES = {
    "train": Page(
        "train",
        "config",
        TRAIN_USAGE,
        "an environment's tuned values may differ",
        (("algo", "base/actor_critic"), ("model", "mlp"), ("cluster", "local"), ("players", "auto")),
    ),
    "evolve": Page(
        "evolve",
        "evolve",
        EVOLVE_USAGE,
        "each strategy and problem has keys of its own, which --cfg job shows",
        (("cluster", "local"),),
    ),
}
OWN_FLAGS = (
    ("--json", "One JSON document on standard output, no live display"),
    ("-h, --help", "This page"),
)


def print_help(arguments: Sequence[str], command: str = "train") -> None:
    """Print the page, with the groups of `--config-dir` where one is given."""
    page = PAGES[command]
    width = min(shutil.get_terminal_size().columns, 120)
    config_dir = config_dir_of(arguments)
    open_user_code(config_dir)
    print(page.usage)
    print("Groups (GROUP=OPTION):")
    for group, options in groups_of(command, config_dir).items():
        print(f"\n  {group}")
        _print_rows(((option.name, option.description) for option in options), width, indent=4)
    print(f"\nKeys (KEY=VALUE), with their defaults; {page.note}:\n")
    _print_rows(_all_keys(page), width, indent=2)
    print("\nFlags:\n")
    _print_rows(_all_flags(), width, indent=2)
    print(f"\n`lamarck {command} --cfg job OVERRIDES` prints what a command line composes.")


def _all_keys(page: Page) -> Iterator[tuple[str, str]]:
    root = conf_dir()
    for key in keys(root / f"{page.file}.yaml"):
        if key.value:
            yield f"{key.name}={_short(key.value)}", key.comment
    for group, file in page.sections:
        for key in keys(root / group / f"{file}.yaml"):
            if not key.name.startswith("_"):
                yield f"{group}.{key.name}={_short(key.value)}", key.comment


def _all_flags() -> Iterator[tuple[str, str]]:
    for flag in FLAGS:
        names = ", ".join(n for n in (flag.short, flag.long) if n)
        takes = f" {'|'.join(flag.choices) or flag.takes}" if flag.takes else ""
        yield names + takes, flag.help
    yield from OWN_FLAGS


def _short(value: str, limit: int = 24) -> str:
    return value if len(value) <= limit else "..."


def _print_rows(rows: Iterator[tuple[str, str]], width: int, *, indent: int) -> None:
    column = 30
    for name, text in rows:
        lines = textwrap.wrap(text, max(width - column - indent - 2, 30)) or [""]
        if len(name) > column:
            print(" " * indent + name)
            name = ""
        for line in lines:
            print(f"{' ' * indent}{name:<{column}}  {line}".rstrip())
            name = ""
