"""`report.html`: how the agents of an evolution came about, to look at in a browser without a network.

    scores       objectives over the env steps that an individual's weights have learned from
    schedules    hyperparameters over the same env steps
    lineage      who went on from whom, on which member
    self-play    win rates and ratings, where there is a pool

All of it is read from the run folder: `lineage.jsonl` and the newest checkpoint. The page shares
`plotly.min.js` beside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from lamarckian_cli.config.build import build_as
from lamarckian_cli.launch.checkpoint import atomic_file
from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.pool_table import saved_pool, table_of
from lamarckian_cli.launch.population import figures
from lamarckian_cli.launch.population.descent import Individual, ancestry, descent, plain
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.selfplay.settings import SelfPlay

REPORT, PLOTLY = "report.html", "plotly.min.js"
MOST_BEST = 10  # of a front that the head of the page lists
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #212529; }
body { max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin: 2em 0 0; }
th, td { text-align: left; vertical-align: top; padding: .15em 1.5em .15em 0; } th { font-weight: 600; }
pre { background: #f1f3f5; padding: .6em .8em; border-radius: 4px; white-space: pre-wrap; margin: .3em 0; }
p { color: #495057; margin: .2em 0; }
"""


def write_report(folder: RunFolder) -> Path:
    """Write the report of an evolution of trainings into its folder, in place of an earlier one.

    Raises RunError where there is no checkpoint yet, or the file cannot be written.
    """
    from plotly.offline import get_plotlyjs

    state = folder.load_checkpoint("latest")
    page = _page(folder, state).encode(errors="backslashreplace")  # a path need not be text
    if not (folder.path / PLOTLY).exists():
        with atomic_file(folder.path / PLOTLY) as file:
            file.write(get_plotlyjs().encode())
    with atomic_file(folder.path / REPORT) as file:
        file.write(page)
    return folder.path / REPORT


def sections(
    people: Mapping[int, Individual], front: Mapping[str, Any], pool: Mapping[str, Any] | None
) -> list[tuple[str, str, Any]]:
    """Title, a line on it, and figure of each part; `front` and `pool` as checkpoint and table have them."""
    best = ancestry(people, [int(i) for i in front["ids"]])
    names, words = list(front["names"]), figures.hover_texts(people, front["names"])
    found: list[tuple[str, str, Any]] = []
    if people:
        told = "Each line leads from an individual to one that went on with its weights; bold: "
        told += "how the best came about." if len(names) == 1 else "how the front came about."
        found.append(("Scores", told, figures.scores(people, best, words, names, front["sense"])))
    if any(one.genome for one in people.values()):
        told = "What each stretch of training was trained by."
        found.append(("Hyperparameter schedules", told, figures.schedules(people, best)))
    if people:
        told = "From the first to arrive, at the top, to the last; a copy is a member that went on "
        found.append(("Lineage", told + "from another's weights.", figures.tree(people, best, words, names)))
    if pool is not None:
        told = "Of the row against the column; newer matches count more. Grey: they have not met."
        found.append(("Win rates", told, figures.matrix(pool)))
        told = "Bars: one standard deviation." if pool["rating"] == "bayes" else "Elo knows no uncertainty."
        found.append(("Ratings", told, figures.ratings(pool)))
    return found


# ------------------------------------------------------------------ the page


def _page(folder: RunFolder, state: Mapping[str, Any]) -> str:
    people, front, config = descent(read_lineage(folder.path)), state["front"], folder.config()
    saved = saved_pool(state)
    pool = None if saved is None else table_of(build_as(SelfPlay, config["selfplay"], "selfplay"), saved)
    parts = [
        f"<h2>{title}</h2>\n<p>{text}</p>\n" + _div(figure, f"figure{i}")
        for i, (title, text, figure) in enumerate(sections(people, front, pool))
    ]
    title = escape(f"Evolution of agents: {folder.path.name}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<style>{STYLE}</style>\n<script src="{PLOTLY}"></script>\n</head>\n<body>\n<h1>{title}</h1>\n'
        f"{_head(folder, state, people, config)}\n{''.join(parts)}</body>\n</html>\n"
    )


def _div(figure: Any, name: str) -> str:
    figure.update_layout(
        template="plotly_white",
        margin={"t": 40, "r": 20},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom"},
    )
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        default_height=f"{figure.layout.height}px",
        config={"responsive": True, "displaylogo": False},
    )
    return html + "\n"


def _head(
    folder: RunFolder, state: Mapping[str, Any], people: Mapping[int, Individual], config: Mapping[str, Any]
) -> str:
    """Facts, the best, and what to type next."""
    front, evaluations = state["front"], int(state["collector"]["evaluations"])
    failed = sum(bool(one.error) for one in people.values())
    facts = [
        ("command", _pre(folder.commands())),
        ("seed", escape(str(config["seed"]))),
        ("evaluations", f"{evaluations:,}" + (f", {failed:,} of them failed" if failed else "")),
        ("seconds", f"{float(state['seconds']):,.1f}"),
    ]
    ids = [int(i) for i in front["ids"]]
    for number in [i for i in ids if i in people][:MOST_BEST]:
        one = people[number]
        scores = ", ".join(
            f"{n} {s:.6g}" for n, s in zip(front["names"], one.scores, strict=False) if s is not None
        )
        told = f"{scores}: individual {number}, {one.end:,.0f} env steps"
        words = [f"{key}={plain(value)}" for key, value in one.genome.items()]
        facts.append(("best" if len(ids) == 1 else "of the front", escape(told) + _pre([shlex.join(words)])))
    if len(ids) > MOST_BEST:
        facts.append(("", f"{len(ids) - MOST_BEST} more: lamarck front"))
    run = str(folder.path)
    on = [["lamarck", "evolve", f"resume={run}", f"evo.evaluations={2 * evaluations}"]]
    if ids:
        which = ["--best"] if len(ids) == len(front["names"]) == 1 else ["--individual", str(ids[0])]
        on = [["lamarck", "eval", f"{run}/best"], ["lamarck", "replay", run, *which], *on]
    facts.append(("to go on", _pre(shlex.join(words) for words in on)))
    return "<table>" + "\n".join(f"<tr><th>{a}</th><td>{b}</td></tr>" for a, b in facts) + "</table>"


def _pre(lines: Iterable[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
