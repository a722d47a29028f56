"""The picture: which share of the requests takes longer than so much, with and without hedging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .fleet import SERVERS, Seen

NAMES: Final = {
    "unhedged": "one call each",
    "fixed": "a second call after 10 ms",
    "p95": "a second call after the measured p95",
}
_POINTS: Final = 400


def picture(found: Mapping[str, Seen]) -> Any:
    """Complementary distributions, both axes logarithmic."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for way, seen in found.items():
        shares, ms = beyond(seen.taken_s)
        figure.add_trace(go.Scatter(x=ms, y=shares, name=NAMES[way], line_shape="hv"))
    figure.add_hline(
        y=0.001, line_dash="dot", line_color="gray", annotation_text="one request in 1,000 (p99.9)"
    )
    figure.update_xaxes(title_text="request takes longer than (ms), logarithmic", type="log")
    figure.update_yaxes(
        title_text="share of the requests, logarithmic", type="log", exponentformat="power"
    )
    cut = ", ".join(f"{NAMES[way]}: {seen.p(0.999) * 1000:,.0f} ms" for way, seen in found.items())
    figure.update_layout(title_text=f"p99.9 of requests to {SERVERS} servers<br>{cut}", height=720)
    return figure


def beyond(taken_s: Sequence[float]) -> tuple[list[float], list[float]]:
    """Shares, and the milliseconds that such a share exceeds; dense where the shares are small."""
    ranked = sorted(taken_s, reverse=True)
    count = len(ranked)
    ranks = sorted({round(count ** (i / _POINTS)) for i in range(_POINTS + 1)}, reverse=True)
    return [rank / count for rank in ranks], [ranked[rank - 1] * 1000 for rank in ranks]
