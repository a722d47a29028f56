"""The picture of the races: how the calls come in waves, and what the work is by the clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..harness.picture import COLOURS
from .cells import WINDOW_S, Cell
from .reference import Reference

SHOWN_S: Final = 8.0
"""How much of the waves is shown: after that the calls are few, or look the same."""
SECONDS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
"""Marks on the logarithmic axis."""


def picture(cells: Sequence[Cell], waves_of: int, reference: Reference) -> Any:
    """Waves of ``waves_of`` clients, a panel for each algorithm; below them calls and time.

    ``cells`` come in the order of their clients.
    """
    from plotly.subplots import make_subplots

    shown = [cell for cell in cells if cell.clients == waves_of]
    rows, last = len(shown), len(shown) + 2
    figure = make_subplots(
        rows=last,
        cols=2,
        # the row between leaves room for a title
        specs=[*[[{"colspan": 2}, None]] * rows, [None, None], [{}, {}]],
        row_heights=[1.0] * rows + [0.3, 3.0],
        vertical_spacing=0.03,
        subplot_titles=[
            *(f"{cell.kind}: {cell.calls:,.0f} calls in {cell.ms / 1000:.1f} s" for cell in shown),
            "Calls until all are done (circles: reference)",
            "Time until all are done (circles: reference)",
        ],
    )
    highest = max(max(cell.waves) for cell in shown)
    for row, (cell, colour) in enumerate(zip(shown, COLOURS, strict=True), 1):
        figure.add_trace(_wave(cell, colour), row=row, col=1)
        figure.update_xaxes(range=[0, SHOWN_S], showticklabels=row == rows, row=row, col=1)
        figure.update_yaxes(range=[0, 1.05 * highest], row=row, col=1)
        mine = [other for other in cells if other.kind == cell.kind]
        for column in (1, 2):
            for line in _curve(mine, reference, colour, seconds=column == 2):
                figure.add_trace(line, row=last, col=column)
    per = f"calls per {WINDOW_S * 1000:.0f} ms"
    figure.update_yaxes(title_text=per, row=(rows + 1) // 2, col=1)
    figure.update_xaxes(title_text="time since the start (s)", row=rows, col=1)
    figure.update_xaxes(title_text="clients", rangemode="tozero", row=last)
    figure.update_yaxes(title_text="calls", rangemode="tozero", row=last, col=1)
    figure.update_yaxes(
        title_text="time (s), logarithmic", type="log", tickvals=SECONDS, row=last, col=2
    )
    title = f"{waves_of} clients update one row: without jitter their retries come in waves"
    figure.update_layout(title_text=title, height=1280, legend_title_text="backoff")
    return figure


def _wave(cell: Cell, colour: str) -> Any:
    from plotly.graph_objects import Bar

    shown = cell.waves[: round(SHOWN_S / WINDOW_S)]
    return Bar(
        x=[round((number + 0.5) * WINDOW_S, 3) for number in range(len(shown))],
        y=[round(calls, 3) for calls in shown],
        width=WINDOW_S,
        marker={"color": colour, "line": {"width": 0}},
        showlegend=False,
        hovertemplate="%{y:.1f} calls at %{x:.2f} s<extra>" + cell.kind + "</extra>",
    )


def _curve(
    cells: Sequence[Cell],
    reference: Reference,
    colour: str,
    *,
    seconds: bool,
) -> tuple[Any, Any]:
    """What was simulated, and the points of the reference: calls or seconds by the clients."""
    from plotly.graph_objects import Scatter

    kind = cells[0].kind
    known = [cell.clients for cell in cells if (kind, cell.clients) in reference]
    points = [reference[kind, clients] for clients in known]
    hover = "%{y:.2f} s, %{x} clients" if seconds else "%{y:,.0f} calls, %{x} clients"
    return (
        Scatter(
            x=[cell.clients for cell in cells],
            y=[cell.ms / 1000 if seconds else cell.calls for cell in cells],
            name=kind,
            legendgroup=kind,
            showlegend=not seconds,
            mode="lines",
            # equal and full jitter take the same number of calls: dots let both be seen
            line={"color": colour, "width": 2.5, "dash": "dot" if kind == "full" else "solid"},
            hovertemplate=hover,
        ),
        Scatter(
            x=known,
            y=[point.ms / 1000 if seconds else point.calls for point in points],
            name=f"{kind}, reference",
            legendgroup=kind,
            showlegend=False,
            mode="markers",
            marker={"color": colour, "symbol": "circle-open", "size": 9},
            hovertemplate=hover,
        ),
    )
