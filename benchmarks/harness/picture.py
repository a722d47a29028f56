"""A benchmark's picture: a plotly figure in a web page that needs nothing else.

plotly comes with the extra ``dashboard``, and is imported only when a picture is asked for. A
benchmark sets a title that says what is seen, and a title with the unit on each axis; the page
sets the rest: text and ground follow the reader's light or dark, the lines below come from
``COLOURS``, which are legible on both.
"""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, Final

COLOURS: Final = ("#2878c8", "#d55e00", "#009068", "#a85fd0", "#7f7f7f")
"""For up to five lines: their contrast to white and to ``DARK`` is 3 at least."""
DARK: Final = "#14171a"
"""The ground of the dark page."""
_FAINT: Final = "rgba(127,127,127,0.35)"

_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
  :root { color-scheme: light dark; --text: #202428; --ground: #ffffff; }
  @media (prefers-color-scheme: dark) { :root { --text: #e4e6e8; --ground: $dark; } }
  body { margin: 0 auto; padding: 1rem; max-width: 80rem; font: 14px system-ui, sans-serif;
         color: var(--text); background: var(--ground); }
  .main-svg text { fill: var(--text) !important; }
  .hoverlayer text { fill: #ffffff !important; }
  footer { opacity: 0.75; font-size: 12px; }
</style>
$figure
<footer>$environment</footer>
</html>
""")


def obstacle(path: Path) -> str | None:
    """What stands against a picture there, with the remedy; None: nothing."""
    if importlib.util.find_spec("plotly") is None:
        return "it takes plotly, which is not installed: pip install 'deadq[dashboard]'"
    if path.suffix.lower() not in {".html", ".htm"}:
        return f"{path} would be a web page: give it a name that ends in .html"
    if path.is_dir():
        return f"{path} is a folder: name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: make it first"
    return None


def save(figure: Any, path: Path, environment: Mapping[str, Any]) -> None:
    """Write the figure as a page; the same figure gives the same page."""
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=COLOURS,
        font={"family": "system-ui, sans-serif", "size": 13},
        hoverlabel={"font": {"color": "#ffffff"}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": COLOURS[-1], "activecolor": COLOURS[0]},
        title={"x": 0.5, "xanchor": "center"},
    )
    axis = {
        "gridcolor": _FAINT,
        "linecolor": _FAINT,
        "zerolinecolor": _FAINT,
        "tickcolor": _FAINT,
        "automargin": True,
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=True, div_id="picture", config={"displaylogo": False}
    )
    said = "; ".join(f"{name}: {value}" for name, value in environment.items())
    page = _PAGE.substitute(
        title=html.escape(figure.layout.title.text or "benchmark"),
        dark=DARK,
        figure=drawn,
        environment=html.escape(said),
    )
    path.write_text(page, encoding="utf-8")
