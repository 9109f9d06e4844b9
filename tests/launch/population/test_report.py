"""The report of an evolution of agents: its numbers are those of the lineage, the checkpoint and the pool."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.evolution.wiring import run_evolve
from lamarckian_cli.launch.pool_keeper import PoolKeeper
from lamarckian_cli.launch.population.report import REPORT, write_report
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.selfplay.league import League
from lamarckian_cli.selfplay.settings import SelfPlay

EVIL = "a loss of <b>no</b> number </script><script>alert(1)</script> & more"
LINE = "line of the best"


def row(number, parent, member, cost, objectives, lr, **more):
    return {
        "id": number,
        "parents": [] if parent is None else [parent, 0],  # of two parents the first hands weights down
        "born": 0,
        "generation": 0,
        "objectives": objectives,
        "constraints": [],
        "cost": cost,
        "worker": member,
        "seconds": 1.0,
        "attempts": 1,
        "error": None,
        "genome": {"algo.lr": lr, "algo.lr_schedule": "linear" if number % 2 else "constant"},
        **more,
    }


# In the order of arrival, which is not that of ids. Individual 4 copies another member's weights.
ROWS = [
    row(0, None, 0, 100.0, [1.0, 9.0], 1e-4),
    row(1, None, 1, 120.0, [2.0, 8.0], 1e-2),
    row(6, None, 2, None, None, 2e-2, error=EVIL),
    row(2, 0, 0, 100.0, [1.5, 7.0], 1e-4),
    row(4, 1, 0, 110.0, [3.0, 6.0], 2e-2),
    row(3, 1, 1, None, None, 5e-2, error=EVIL),
    row(5, 4, 1, 90.0, [2.5, 5.0], 3e-2),
    row(7, 4, 0, 95.0, [4.0, 4.0], 3e-2),
    row(8, 7, 0, 95.0, [3.5, 3.0], 3e-2),
]
SCORED = [r for r in ROWS if r["objectives"]]
JOINED = [r for r in SCORED if r["parents"]]


def by_id(number):
    return next(r for r in ROWS if r["id"] == number)


def env_steps(number):
    """By the definition: what it learned from, and what whoever it goes on from did."""
    one = by_id(number)
    return (one["cost"] or 0.0) + (env_steps(one["parents"][0]) if one["parents"] else 0.0)


def made(
    path, *, rows=ROWS, winners=(7,), names=("win",), selfplay=None, settings=None, command="lamarck evolve"
):
    """A run folder with this lineage, and what is made of it."""
    config = {"seed": 3, **({} if settings is None else {"selfplay": settings})}
    folder = RunFolder.create(path, config, command.split())
    cut = [{**r, "objectives": r["objectives"] and r["objectives"][: len(names)]} for r in rows]
    (path / "lineage.jsonl").write_text("".join(json.dumps(r) + "\n" for r in cut))
    front = {"ids": np.array(winners), "names": list(names), "sense": ["max"] * len(names)}
    members = {"kept": [], **({} if selfplay is None else {"selfplay": selfplay})}
    state = {
        "front": front,
        "collector": {"evaluations": len(rows)},
        "seconds": 12.5,
        "pool": {"trainer": {"members": members}},
    }
    folder.save_checkpoint(state, env_steps=len(rows), version=0)
    folder.close()
    return folder


class Page(HTMLParser):
    """What a browser would make of a page: figures, text outside of scripts, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.figures, self.text, self.loads, self._script = [], "", [], False
        self.tags = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._script = tag == "script"
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if not self._script:
            self.text += data if self.lasttag != "style" else ""
        elif "Plotly.newPlot(" in data:
            rest = data.split("Plotly.newPlot(", 1)[1]
            rest = rest[rest.index("[") :]
            traces, end = json.JSONDecoder().raw_decode(rest)
            layout, _ = json.JSONDecoder().raw_decode(rest[end:].lstrip(" ,\n"))
            self.figures.append((traces, layout))


def lines(trace):
    """The points of each stretch between gaps."""
    found, points = [], []
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if x is None:
            found.append(tuple(points))
            points = []
        else:
            points.append((x, y))
    assert points == []
    return found


def traces_of(figure, **wanted):
    return [t for t in figure[0] if all(t.get(key) == value for key, value in wanted.items())]


def test_scores_lie_over_the_env_steps_of_a_line_and_segments_join_parents_with_children(tmp_path):
    page = Page(write_report(made(tmp_path / "run")))
    scores = page.figures[0]
    segments = [line for t in traces_of(scores, mode="lines") for line in lines(t)]
    expected = [
        (
            (env_steps(r["parents"][0]), by_id(r["parents"][0])["objectives"][0]),
            (env_steps(r["id"]), r["objectives"][0]),
        )
        for r in JOINED
    ]
    assert sorted(segments) == sorted(expected)
    dots = [t for t in traces_of(scores, mode="markers") if t["name"] != "failed"]
    points = [point for t in dots for point in zip(t["x"], t["y"], strict=True)]
    assert sorted(points) == sorted((env_steps(r["id"]), r["objectives"][0]) for r in SCORED)
    assert env_steps(7) == 120 + 110 + 95


def test_the_line_of_the_best_is_bold_in_every_figure(tmp_path):
    page = Page(write_report(made(tmp_path / "run")))
    scores, schedules, tree = page.figures
    [bold] = traces_of(scores, mode="lines", name=LINE)
    assert lines(bold) == [((120, 2.0), (230, 3.0)), ((230, 3.0), (325, 4.0))]  # 1, 4, 7
    lr, schedule = traces_of(schedules, mode="lines", name=LINE)
    assert lines(lr) == [
        ((0, 1e-2), (0, 1e-2), (120, 1e-2)),
        ((120, 1e-2), (120, 2e-2), (230, 2e-2)),
        ((230, 2e-2), (230, 3e-2), (325, 3e-2)),
    ]
    assert [line[-1][1] for line in lines(schedule)] == ["linear", "constant", "linear"]
    [bold] = traces_of(tree, name=LINE)
    assert lines(bold) == [((1, 2), (0, 5)), ((0, 5), (0, 8))]
    for figure in page.figures:
        widths = {t["name"]: t["line"]["width"] for t in traces_of(figure, mode="lines")}
        assert widths.pop(LINE) > max(widths.values())


def test_schedules_have_a_panel_a_key_and_a_logarithmic_axis_where_it_shows_more(tmp_path):
    page = Page(write_report(made(tmp_path / "run")))
    traces, layout = page.figures[1]
    assert layout["yaxis"]["title"]["text"] == "algo.lr"
    assert layout["yaxis"]["type"] == "log"  # 1e-4 to 5e-2
    assert layout["yaxis2"]["title"]["text"] == "algo.lr_schedule"
    assert layout["yaxis2"]["type"] == "category"
    ends = {line[-1] for t in traces if t["mode"] == "lines" and t["yaxis"] == "y" for line in lines(t)}
    assert ends == {(env_steps(r["id"]), r["genome"]["algo.lr"]) for r in ROWS}


def test_the_tree_marks_copies_and_those_who_failed(tmp_path):
    tree = Page(write_report(made(tmp_path / "run"))).figures[2]
    arrival = {r["id"]: i for i, r in enumerate(ROWS, start=1)}
    edges = {}
    for name in ("goes on", "copy of another member's"):
        [trace] = traces_of(tree, name=name)
        edges[name] = sorted((a[1], b[1]) for a, b in lines(trace))
    copies = [(1, 4), (4, 5)]  # parent, child
    stays = [(0, 2), (1, 3), (4, 7), (7, 8)]
    assert edges["copy of another member's"] == sorted((arrival[a], arrival[b]) for a, b in copies)
    assert edges["goes on"] == sorted((arrival[a], arrival[b]) for a, b in stays)
    [failed] = traces_of(tree, name="failed")
    assert sorted(zip(failed["x"], failed["y"], strict=True)) == [(1, arrival[3]), (2, arrival[6])]
    [dots] = [t for t in traces_of(tree, mode="markers") if t["name"] != "failed"]
    assert dots["marker"]["color"] == [r["objectives"][0] for r in SCORED]
    told = dots["hovertext"][dots["y"].index(arrival[4])]
    for part in ("individual 4", "goes on from 1", "230 env steps", "win 3", "algo.lr 0.02"):
        assert part in told


def test_who_failed_stands_where_it_began(tmp_path):
    page = Page(write_report(made(tmp_path / "run")))
    [failed] = traces_of(page.figures[0], name="failed")
    assert failed["marker"]["symbol"] == "x"
    # 3 at its parent; 6 had none, and stands at the lowest score.
    assert sorted(zip(failed["x"], failed["y"], strict=True)) == [(0, 1.0), (120, 2.0)]
    assert "9, 2 of them failed" in page.text


def test_several_objectives_have_a_panel_each_and_the_front_its_lines(tmp_path):
    page = Page(write_report(made(tmp_path / "run", names=("win", "moves"), winners=(2, 7))))
    _, layout = page.figures[0]
    assert [layout[f"yaxis{i}"]["title"]["text"].split()[0] for i in ("", 2)] == ["win", "moves"]
    for axis, m in (("y", 0), ("y2", 1)):
        [bold] = traces_of(page.figures[0], mode="lines", name=LINE, yaxis=axis)
        ends = [line[-1] for line in lines(bold)]
        assert ends == [(env_steps(i), by_id(i)["objectives"][m]) for i in (2, 4, 7)]
    assert "--individual 2" in page.text
    assert "--best" not in page.text


def test_the_head_says_what_was_run_and_what_to_type_next(tmp_path):
    folder = made(tmp_path / "run", command="lamarck evolve evo=pbt problem.search.algo.lr={low:<1}")
    page = Page(write_report(folder))
    for part in (
        "lamarck evolve evo=pbt",
        "{low:<1}",
        "win 4: individual 7, 325 env steps",
        "algo.lr=0.03 algo.lr_schedule=linear",
        f"lamarck eval {folder.path}/best",
        f"lamarck replay {folder.path} --best",
        "12.5",
    ):
        assert part in page.text


def test_text_is_escaped_and_nothing_is_fetched(tmp_path):
    page = Page(write_report(made(tmp_path / "a <i>name", command="lamarck evolve run.dir='<i>'")))
    assert page.loads == ["plotly.min.js"]
    assert (tmp_path / "a <i>name/plotly.min.js").stat().st_size > 1_000_000
    assert {"b", "i"} & set(page.tags) == set()
    assert "a <i>name" in page.text
    assert "alert" not in page.text
    assert len(page.figures) == 3
    for figure in (page.figures[0], page.figures[2]):
        told = " ".join(traces_of(figure, name="failed")[0]["hovertext"])
        assert "&lt;b&gt;no&lt;/b&gt;" in told
        assert "<b>" not in told
        assert "&amp; more" in told.replace("<br>", " ")


def selfplay():
    """Two members and a snapshot of each; matches whose win rates are easily told."""
    settings = SelfPlay(matchmaking="pfsp", decay=1.0, prior=2.0)
    keeper = PoolKeeper(League(settings), ["member0", "member1"])
    for i in range(2):
        keeper.league.offer(f"member{i}", np.zeros(3, np.float32), version=0, env_steps=0)
    for score in (1, 1, 1, 0):
        keeper.league.record("member0", "member1#1", score)
    keeper.league.record("member1", "member0#0", 0.5)
    return keeper


def test_self_play_has_its_win_rates_and_ratings(tmp_path):
    keeper = selfplay()
    settings = {"matchmaking": "pfsp", "decay": 1.0, "prior": 2.0}
    folder = made(tmp_path / "run", selfplay=keeper.state(), settings=settings)
    *_, matrix, ratings = Page(write_report(folder)).figures
    [heat] = matrix[0]
    names = ["member0", "member1", "member0#0", "member1#1"]
    assert heat["x"] == heat["y"] == names
    rate = {(a, b): heat["z"][i][j] for i, a in enumerate(names) for j, b in enumerate(names)}
    played = {
        ("member0", "member1#1"): (3 + 2 / 2) / (4 + 2),  # of 4 matches, and 2 that the prior says were drawn
        ("member1#1", "member0"): (1 + 2 / 2) / (4 + 2),
        ("member1", "member0#0"): 0.5,
        ("member0#0", "member1"): 0.5,
    }
    for pair, value in rate.items():
        assert value == (pytest.approx(played[pair]) if pair in played else None)
    shown = {
        name: (rating, deviation)
        for t in ratings[0]
        for name, rating, deviation in zip(t["x"], t["y"], t["error_y"]["array"], strict=True)
    }
    own = keeper.league.ratings
    assert shown == {name: (own[name].mean, own[name].deviation) for name in names}


def test_a_later_report_takes_the_place_of_an_earlier_one(tmp_path):
    folder = made(tmp_path / "run", rows=ROWS[:2], winners=(1,))
    before = Page(write_report(folder))
    with (folder.path / "lineage.jsonl").open("a") as file:
        file.write(json.dumps({**ROWS[4], "objectives": [3.0]}) + "\n")
    after = Page(write_report(folder))
    counts = [sum(len(t["x"]) for t in traces_of(p.figures[2], mode="markers")) for p in (before, after)]
    assert counts == [2, 3]
    assert [p.name for p in folder.path.glob(".*partial")] == []


def test_without_a_checkpoint_there_is_one_message(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {"seed": 0}, ["lamarck"])
    with pytest.raises(RunError, match="checkpoint"):
        write_report(folder)
    assert not (folder.path / REPORT).exists()


def test_a_run_leaves_its_report_and_a_resumed_one_a_longer_one(tmp_path):
    small = ["evo=pbt", "evo.population=2", "problem.env_steps=512", "problem.matches=1", "env.max_steps=40"]
    small += ["algo.batch_size=256", "algo.unroll=16", "cluster=inproc", "cluster.matches=4"]

    def shown(run):
        tree = Page(tmp_path / run / REPORT).figures[2]
        return sum(len(t["x"]) for t in traces_of(tree, mode="markers"))

    run_evolve([*small, "evo.evaluations=4", f"run.dir={tmp_path / 'r'}"], json_output=True)
    assert shown("r") == 4
    run_evolve([f"resume={tmp_path / 'r'}", "evo.evaluations=6"], json_output=True)
    assert shown("r") == 6
    run_evolve(
        [*small, "evo.evaluations=2", f"run.dir={tmp_path / 'n'}", "run.plots=false"], json_output=True
    )
    assert not (tmp_path / "n" / REPORT).exists()
    run_evolve(
        ["problem=sphere", "evo=ga", "evo.evaluations=200", "cluster=inproc", f"run.dir={tmp_path / 's'}"],
        json_output=True,
    )
    assert (tmp_path / "s" / "convergence.html").exists()
    assert not (tmp_path / "s" / REPORT).exists()
