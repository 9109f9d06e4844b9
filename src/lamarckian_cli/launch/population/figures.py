"""The figures of an evolution of agents, as plotly draws them.

Each kind of line is one trace, with gaps, however many individuals there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lamarckian_cli.launch.evolution.plots import spans
from lamarckian_cli.launch.population.descent import Individual, plain

OTHERS, BEST, FAILED, COPIES = "#9fb1c7", "#d9480f", "#c2255c", "#5f3dc4"  # colours
BLANK = "#ced4da"  # behind win rates, whose middle is white
ENV_STEPS = "env steps that the weights have learned from"
MOST_WRITTEN = 16  # players whose win rates are also written into the matrix


def hover_texts(people: Mapping[int, Individual], names: Sequence[str]) -> dict[int, str]:
    """What is told of each individual under the pointer, as the markup that plotly reads."""
    return {
        number: "<br>".join(escape(line, quote=False) for line in one.words(names))
        for number, one in people.items()
    }


def scores(
    people: Mapping[int, Individual],
    best: set[int],
    words: Mapping[int, str],
    names: Sequence[str],
    senses: Sequence[str],
) -> Any:
    figure = _panels(len(names), 340)
    for m, (name, sense) in enumerate(zip(names, senses, strict=True)):
        score = {number: one.score(m) for number, one in people.items()}
        for group, color, width in ((people.keys() - best, OTHERS, 1), (best, BEST, 3)):
            label = _label(color)
            scored = [i for i in people if i in group and score[i] is not None]
            joined = [i for i in scored if people[i].parent is not None]
            figure.add_scatter(
                x=_segments((people[i].start, people[i].end) for i in joined),
                y=_segments((score[_parent(people[i])], score[i]) for i in joined),
                **_line(label, color, width, m),
                hoverinfo="skip",
                row=m + 1,
                col=1,
            )
            figure.add_scatter(
                x=[people[i].end for i in scored],
                y=[score[i] for i in scored],
                **_dots(label, color, 3 + width, [words[i] for i in scored]),
                row=m + 1,
                col=1,
            )
        figure.add_scatter(**_lost(people, score, words, m), row=m + 1, col=1)
        better = "higher" if sense == "max" else "lower"
        figure.update_yaxes(title_text=f"{escape(name)} ({better} is better)", row=m + 1, col=1)
    figure.update_xaxes(title_text=ENV_STEPS, row=len(names), col=1)
    return figure


def _lost(
    people: Mapping[int, Individual], score: Mapping[int, float | None], words: Mapping[int, str], panel: int
) -> dict[str, Any]:
    """Who has no score stands where it began: at its parent's score, or at the lowest."""
    lowest = min((value for value in score.values() if value is not None), default=0.0)
    lost = [i for i in people if score[i] is None]
    begun = [score.get(_parent(people[i])) for i in lost]
    return {
        "x": [people[i].start for i in lost],
        "y": [lowest if value is None else value for value in begun],
        **_crosses([words[i] for i in lost], panel),
    }


def schedules(people: Mapping[int, Individual], best: set[int]) -> Any:
    keys = list(dict.fromkeys(key for one in people.values() for key in one.genome))
    figure = _panels(len(keys), 240)
    for row, key in enumerate(keys, start=1):
        kind, value = _values(people, key)
        for group, color, width in ((people.keys() - best, OTHERS, 1), (best, BEST, 3)):
            there = [i for i in value if i in group]
            figure.add_scatter(
                # A value holds during its stretch; an upright line shows what it was changed from.
                x=_segments((people[i].start, people[i].start, people[i].end) for i in there),
                y=_segments((value.get(_parent(people[i]), value[i]), value[i], value[i]) for i in there),
                **_line(_label(color), color, width, row - 1),
                customdata=_segments([i] * 3 for i in there),
                hovertemplate="individual %{customdata}<br>%{x:,} env steps<br>%{y}<extra></extra>",
                row=row,
                col=1,
            )
        lost = [i for i in value if people[i].error]
        figure.add_scatter(
            x=[people[i].start for i in lost],
            y=[value[i] for i in lost],
            **_crosses([f"individual {i} failed" for i in lost], row - 1),
            row=row,
            col=1,
        )
        figure.update_yaxes(title_text=escape(key), type=kind, row=row, col=1)
    figure.update_xaxes(title_text=ENV_STEPS, row=len(keys), col=1)
    return figure


def _values(people: Mapping[int, Individual], key: str) -> tuple[str, dict[int, Any]]:
    """The kind of axis that suits, and who has which value, of those who have one."""
    value: dict[int, Any] = {i: one.genome[key] for i, one in people.items() if key in one.genome}
    if not all(one.is_number(key) for one in people.values()):
        return "category", {i: escape(plain(v), quote=False) for i, v in value.items()}
    return "log" if spans(list(value.values())) else "linear", value


def tree(
    people: Mapping[int, Individual], best: set[int], words: Mapping[int, str], names: Sequence[str]
) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    at = {number: i for i, number in enumerate(people, start=1)}
    children = [one for one in people.values() if one.parent is not None]
    copied = {one.number for one in children if people[_parent(one)].member != one.member}
    for label, color, width, edges in (
        ("goes on", OTHERS, 1, [c for c in children if c.number not in copied]),
        (_label(BEST), BEST, 3, [c for c in children if c.number in best]),
        ("copy of another member's", COPIES, 1, [c for c in children if c.number in copied]),
    ):
        figure.add_scatter(
            x=_segments((people[_parent(c)].member, c.member) for c in edges),
            y=_segments((at[_parent(c)], at[c.number]) for c in edges),
            **_line(label, color, width, 0),
            hoverinfo="skip",
        )
    scored = [one for one in people.values() if one.score(0) is not None]
    lost = [one for one in people.values() if one.score(0) is None]
    bar = {"title": {"text": escape(names[0])}, "thickness": 12}
    figure.add_scatter(
        x=[one.member for one in scored],
        y=[at[one.number] for one in scored],
        **_dots("individuals", [one.score(0) for one in scored], 8, [words[one.number] for one in scored]),
        marker_colorscale="Viridis",
        marker_colorbar=bar,
        marker_showscale=True,
    )
    figure.add_scatter(
        x=[one.member for one in lost],
        y=[at[one.number] for one in lost],
        **_crosses([words[one.number] for one in lost], 0),
    )
    most = max(one.member for one in people.values())
    figure.update_xaxes(title_text="member", dtick=1 if most < 32 else None, zeroline=False)
    figure.update_yaxes(title_text="arrival", autorange="reversed", zeroline=False)
    figure.update_layout(height=min(1400, 300 + 10 * len(people)))
    return figure


# ------------------------------------------------------------------ self-play


def matrix(pool: Mapping[str, Any]) -> Any:
    import plotly.graph_objects as go

    names = [escape(player["name"]) for player in pool["players"]]
    rates = [
        [rate if met > 0 else None for rate, met in zip(*row, strict=True)]
        for row in zip(pool["win_rates"], pool["matches"], strict=True)
    ]
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=names,
            z=rates,
            zmin=0,
            zmax=1,
            colorscale="RdBu",
            customdata=pool["matches"],
            colorbar={"title": {"text": "win rate"}, "thickness": 12},
            texttemplate="%{z:.2f}" if len(names) <= MOST_WRITTEN else None,
            hoverongaps=False,
            hovertemplate=(
                "%{y} against %{x}<br>win rate %{z:.3f}<br>"
                "matches that count %{customdata:.1f}<extra></extra>"
            ),
        )
    )
    figure.update_xaxes(title_text="against", type="category", showgrid=False)
    figure.update_yaxes(title_text="player", type="category", autorange="reversed", showgrid=False)
    figure.update_layout(height=min(1100, 260 + 26 * len(names)), plot_bgcolor=BLANK)
    return figure


def ratings(pool: Mapping[str, Any]) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    learning = [player for player in pool["players"] if player["digest"] is None]
    frozen = [player for player in pool["players"] if player["digest"] is not None]
    for label, color, players in (("members", BEST, learning), ("snapshots", COPIES, frozen)):
        figure.add_scatter(
            x=[escape(player["name"]) for player in players],
            y=[player["rating"] for player in players],
            error_y={"type": "data", "array": [player["deviation"] for player in players]},
            customdata=[[player["deviation"], player["matches"], player["nash"]] for player in players],
            mode="markers",
            name=label,
            marker={"color": color, "size": 8},
            hovertemplate=(
                "%{x}<br>rating %{y:.2f} ± %{customdata[0]:.2f}<br>%{customdata[1]:,} matches<br>"
                "share of the Nash mixture %{customdata[2]:.3f}<extra></extra>"
            ),
        )
    figure.update_xaxes(title_text="player", type="category")
    figure.update_yaxes(title_text="rating (± standard deviation)")
    figure.update_layout(height=420)
    return figure


# ------------------------------------------------------------------ traces


def _panels(rows: int, height: int) -> Any:
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=rows, shared_xaxes=True, vertical_spacing=min(0.06, 0.3 / rows))
    figure.update_layout(height=120 + height * rows)
    return figure


def _segments(points: Iterable[Iterable[Any]]) -> list[Any]:
    """The coordinates of many lines as those of one, with a gap after each."""
    return [value for line in points for value in (*line, None)]


def _parent(one: Individual) -> int:
    return -1 if one.parent is None else one.parent


def _label(color: str) -> str:
    return "others" if color == OTHERS else "line of the best"


def _line(name: str, color: str, width: int, panel: int) -> dict[str, Any]:
    """Of several panels the first alone has a legend, which then switches all of them."""
    return {
        "mode": "lines",
        "name": name,
        "legendgroup": name,
        "showlegend": panel == 0,
        "line": {"color": color, "width": width},
    }


def _dots(name: str, color: Any, size: int, texts: Sequence[str]) -> dict[str, Any]:
    return {
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "showlegend": False,
        "marker": {"color": color, "size": size},
        "hovertext": texts,
        "hoverinfo": "text",
    }


def _crosses(texts: Sequence[str], panel: int) -> dict[str, Any]:
    marks = _dots("failed", FAILED, 9, texts)
    return {**marks, "marker": {**marks["marker"], "symbol": "x"}, "showlegend": panel == 0 and bool(texts)}
