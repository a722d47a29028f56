"""Each benchmark can draw a picture, which needs nothing else and is legible in light and dark."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import shed, spell, throughput
from benchmarks.harness import picture, report
from benchmarks.harness.environment import Environment
from benchmarks.harness.report import Options, Report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _signals_as_they_were():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def figure(title="What is seen"):
    from plotly.graph_objects import Figure, Scatter

    return Figure(Scatter(x=[1, 2], y=[3, 4])).update_layout(
        title_text=title, xaxis_title="time (s)", yaxis_title="calls"
    )


def options(**given):
    defaults = {"json": True, "quick": True, "check": False, "free": False, "seed": 1}
    return Options(**{**defaults, **given})


# The page.


def test_the_page_needs_nothing_else(tmp_path):
    path = tmp_path / "p.html"
    picture.save(figure("1 < 2 & 3"), path, {"system": "<b>x</b>", "seed": 7})
    page = path.read_text(encoding="utf-8")
    assert "<title>1 &lt; 2 &amp; 3</title>" in page
    assert "system: &lt;b&gt;x&lt;/b&gt;; seed: 7" in page
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", page)
    assert "Plotly.newPlot" in page
    assert len(page) > 1_000_000, "plotly.js itself has to be in it"


def test_the_page_follows_the_readers_light_or_dark(tmp_path):
    path = tmp_path / "p.html"
    picture.save(figure(), path, {})
    page = path.read_text(encoding="utf-8")
    assert '<meta name="color-scheme" content="light dark">' in page
    assert "prefers-color-scheme: dark" in page
    assert picture.DARK in page
    assert '"paper_bgcolor":"rgba(0,0,0,0)"' in page


def test_the_same_figure_gives_the_same_page(tmp_path):
    for name in ("a.html", "b.html"):
        picture.save(figure(), tmp_path / name, {"seed": 1})
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", picture.DARK])
@pytest.mark.parametrize("colour", picture.COLOURS)
def test_lines_stand_out_from_light_and_dark(colour, ground):
    low, high = sorted([luminance(colour), luminance(ground)])
    assert (high + 0.05) / (low + 0.05) >= 3


# Asking for one.


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("p.png", "ends in .html"),
        ("absent/p.html", "make it first"),
        ("folder.html", "name a file in it"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_runs(
    name, said, tmp_path, capsys
):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(SystemExit) as stopped:
        report.options("", ["--picture", str(tmp_path / name)])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_without_plotly_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(SystemExit) as stopped:
        report.options("", ["--picture", str(tmp_path / "p.html")])
    assert stopped.value.code == 2
    assert "pip install 'deadq[dashboard]'" in capsys.readouterr().err


def test_plotly_is_imported_only_for_a_picture():
    program = (
        "import sys\n"
        "from benchmarks import jitter, shed, spell, throughput\n"
        "sys.exit('plotly' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_the_figure_is_made_only_when_asked_for(tmp_path, capsys):
    made = []

    def build():
        made.append(1)
        return figure()

    shown = Report(Environment(), {"a": 1.0}, picture=build)
    assert shown.emit(options(), {}) == 0
    assert not made
    path = tmp_path / "p.html"
    assert shown.emit(options(picture=path), {}) == 0
    assert made
    assert "What is seen" in path.read_text(encoding="utf-8")
    assert f"drawn: {path}" in capsys.readouterr().err


def test_a_benchmark_without_a_picture_says_so_after_its_figures(tmp_path, capsys):
    path = tmp_path / "p.html"
    assert Report(Environment(), {"a": 1.0}).emit(options(picture=path), {}) == 2
    shown = capsys.readouterr()
    assert '"a": 1.0' in shown.out
    assert "draws no picture" in shown.err
    assert not path.exists()


# Benchmarks that need no server.


@pytest.fixture
def no_server(monkeypatch):
    def absent():
        raise FileNotFoundError("no server")

    monkeypatch.setattr(report, "find_server", absent)


def test_a_simulation_asks_for_no_server(no_server, capsys):
    given = report.options("", ["--seed", "4", "--json"], server=False)
    assert (given.seed, given.json, given.free, given.picture) == (4, True, False, None)
    for refused in (["--server", "x"], ["--free"]):
        with pytest.raises(SystemExit):
            report.options("", refused, server=False)
        assert "unrecognized arguments" in capsys.readouterr().err


def test_others_take_the_server_named_or_the_one_found(no_server):
    assert report.options("", ["--server", "/a/valkey-server"]).server == Path("/a/valkey-server")
    with pytest.raises(FileNotFoundError):
        _ = report.options("", []).server


def test_an_environment_without_a_server_names_none():
    block = Environment(seed=3).block()
    assert block["seed"] == 3
    assert {"deadq", "python", "system", "processors", "load_before", "load_after", "busy"} <= {
        *block
    }
    assert not {"server", "protocol", "redis-py", "hiredis"} & set(block)


# What each draws.


def titles_of(drawn):
    axes = (*drawn.select_xaxes(), *drawn.select_yaxes())
    return drawn.layout.title.text, [axis.title.text for axis in axes]


def test_shed_draws_the_goodput_of_each_policy():
    names = [
        f"{one}_{service}_{load}x"
        for one in ("goodput", "cap_only", "fifo_expiry")
        for service in shed.SERVICES
        for load in shed.LOADS
    ]
    drawn = shed.picture({name: number / 100 for number, name in enumerate(names)})
    assert [bar.name for bar in drawn.data] == ["deadq", "a mere cap", "first in, first out"]
    assert [y for bar in drawn.data for y in bar.y] == [n / 100 for n in range(len(names))]
    assert all((titles_of(drawn)[0], *titles_of(drawn)[1]))


def test_spell_draws_the_mean_share_of_the_seeds_and_the_spell():
    seeds = [{"shares": [1.0, 0.5, 0.0]}, {"shares": [0.5, 0.5]}]
    drawn = spell.picture({name: seeds for name, *_ in spell.CASES}, spell.QUICK)
    assert len(drawn.data) == len(spell.CASES)
    for line in drawn.data:
        assert list(line.y) == [0.75, 0.5]
        assert list(line.x) == [spell.WINDOW_S / 2, spell.WINDOW_S * 1.5]
    (shaded,) = drawn.layout.shapes
    assert (shaded.x0, shaded.x1) == spell.QUICK.spell
    assert all((titles_of(drawn)[0], *titles_of(drawn)[1]))


def test_throughput_draws_every_ratio_beside_its_bar():
    ratios = [name for name in throughput.BARS if "_vs_" in name]
    drawn = throughput.picture(dict.fromkeys(throughput.BARS, 1.0))
    measured, least, most = drawn.data
    assert sorted(measured.y) == sorted(ratios)
    assert sorted([*least.y, *most.y]) == sorted(ratios)
    for points in (least, most):
        for name, limit in zip(points.y, points.x, strict=True):
            bar = throughput.BARS[name]
            assert limit in {bar.least, bar.most}
    assert all((titles_of(drawn)[0], *titles_of(drawn)[1]))
