"""Pictures of an evolution: its front, and how it got there; as PNG, and as HTML to turn and zoom.

    front.png, front.html              two and three objectives as points, more as parallel coordinates
    convergence.png, convergence.html  over evaluations: the best value, or hypervolume and IGD

The HTML files share `plotly.min.js` beside them, so they need no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.evolution.strategy import Individuals
from lamarckian_cli.launch.checkpoint import atomic_file
from lamarckian_cli.launch.evolution.history import History
from lamarckian_cli.launch.evolution.quality import Quality
from lamarckian_cli.problems.evaluator import Description

FRONT, CONVERGENCE = "front", "convergence"
SIZE_INCHES, DPI = (6.4, 4.8), 120
MOST_REFERENCE = 1000  # points of the known front that are drawn


def plot(
    folder: Path, front: Individuals, description: Description, quality: Quality, history: History
) -> list[Path]:
    """Draw into `folder`; the files that were written. Nothing is drawn of what there is none."""
    drawings: list[tuple[str, Any, Any]] = []
    points = front.objectives[np.isfinite(front.objectives).all(axis=1)] * quality.signs
    if len(points) and not quality.single:
        known = None if quality.front is None else _thinned(quality.front * quality.signs)
        names = [f"{o.name} ({o.sense})" for o in description.objectives]
        drawings.append((FRONT, _draw_front(points, known, names), _front_page(points, known, names)))
    curves = _curves(quality, history)
    if curves:
        drawings.append((CONVERGENCE, _draw_curves(curves), _curves_page(curves)))
    written = []
    for name, figure, page in drawings:
        with atomic_file(folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=DPI)
        page.write_html(folder / f"{name}.html", include_plotlyjs="directory")
        written += [folder / f"{name}.png", folder / f"{name}.html"]
    return written


def _curves(quality: Quality, history: History) -> list[tuple[str, list[int], list[float]]]:
    """Name, evaluations and values of every curve that has at least one point."""
    rows = quality.curve(history)
    names = [("best", "best")] if quality.single else [("hypervolume", "hypervolume"), ("IGD", "igd")]
    curves = []
    for title, name in names:
        there = [(n, getattr(numbers, name)) for n, numbers in rows if getattr(numbers, name) is not None]
        if there:
            curves.append((title, [n for n, _ in there], [value for _, value in there]))
    return curves


def _figure() -> Any:
    # Without pyplot there is no global state, and no window system is looked for.
    from matplotlib.figure import Figure

    return Figure(figsize=SIZE_INCHES, layout="constrained")


def _draw_front(points: np.ndarray, known: np.ndarray | None, names: Sequence[str]) -> Any:
    figure = _figure()
    if len(names) > 3:
        axes = figure.subplots()
        low, high = points.min(axis=0), points.max(axis=0)
        scaled = (points - low) / np.where(high > low, high - low, 1.0)
        axes.plot(range(len(names)), scaled.T, color="tab:blue", alpha=0.4, linewidth=0.8)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel("scaled to the front's range")
        return figure
    axes = figure.add_subplot(projection="3d" if len(names) == 3 else None)
    if known is not None:
        axes.scatter(*known.T, s=2, color="lightgrey", label="known front")
    axes.scatter(*points.T, s=14, color="tab:blue", label="found")
    for setter, name in zip((axes.set_xlabel, axes.set_ylabel), names, strict=False):
        setter(name)
    if len(names) == 3:
        axes.set_zlabel(names[2])
    if known is not None:
        axes.legend()
    return figure


def _front_page(points: np.ndarray, known: np.ndarray | None, names: Sequence[str]) -> Any:
    import plotly.graph_objects as go

    if len(names) > 3:
        dimensions = [{"label": name, "values": points[:, i]} for i, name in enumerate(names)]
        return go.Figure(go.Parcoords(dimensions=dimensions))
    kind = go.Scatter3d if len(names) == 3 else go.Scatter
    axes = ("x", "y", "z")[: len(names)]

    def trace(values: np.ndarray, name: str, color: str, size: int) -> Any:
        columns = {axis: values[:, i] for i, axis in enumerate(axes)}
        return kind(**columns, mode="markers", name=name, marker={"size": size, "color": color})

    page = go.Figure()
    if known is not None:
        page.add_trace(trace(known, "known front", "lightgrey", 2))
    page.add_trace(trace(points, "found", "#1f77b4", 4 if len(names) == 3 else 7))
    titles = {f"{axis}axis": {"title": {"text": name}} for axis, name in zip(axes, names, strict=True)}
    page.update_layout(**({"scene": titles} if len(names) == 3 else titles))
    return page


def _draw_curves(curves: Sequence[tuple[str, list[int], list[float]]]) -> Any:
    figure = _figure()
    for axes, (title, evaluations, values) in zip(
        np.atleast_1d(figure.subplots(len(curves), sharex=True)), curves, strict=True
    ):
        axes.plot(evaluations, values)
        axes.set_ylabel(title)
        if spans(values):
            axes.set_yscale("log")
    axes.set_xlabel("evaluations")
    return figure


def _curves_page(curves: Sequence[tuple[str, list[int], list[float]]]) -> Any:
    from plotly.subplots import make_subplots

    page = make_subplots(rows=len(curves), shared_xaxes=True)
    for row, (title, evaluations, values) in enumerate(curves, start=1):
        page.add_scatter(x=evaluations, y=values, name=title, row=row, col=1)
        page.update_yaxes(title_text=title, type="log" if spans(values) else "linear", row=row, col=1)
    page.update_xaxes(title_text="evaluations", row=len(curves), col=1)
    return page


def spans(values: Sequence[float]) -> bool:
    """Whether values are spread over orders of magnitude, so that a logarithmic axis shows more."""
    return min(values) > 0 and max(values) > 100 * min(values)


def _thinned(points: np.ndarray) -> np.ndarray:
    return points[:: max(1, -(-len(points) // MOST_REFERENCE))]
