"""The demo's live view: it fits, it shows what it should, and its colours suit any background."""

import io
import re

import pytest
from rich.console import Console

from deadq.demo.chart import Chart
from deadq.demo.load import Answer, Order
from deadq.demo.scenes import timed
from deadq.demo.tally import Tally
from deadq.demo.view import View, can_draw
from deadq.store.scripts import Stats

PLAN = timed(50.0)
STATS = Stats(
    live=55,
    ready=43,
    suspects=0,
    later=0,
    strange=0,
    unfinished=55,
    workers=3,
    slots=12,
    dead=0,
    counters={},
)


def halfway():
    """A tally of the first 27 s: two thirds of the orders refused when there were too many."""
    tally = Tally()
    for part in PLAN[:3]:
        for number in range(round(part.seconds * part.scene.load * 50)):
            at = part.begins + number / (part.scene.load * 50)
            if at > 27:
                break
            order = Order(part.scene.name, at, f"order-{number}", str(number), 1, 3_000)
            tally.sent(order)
            surplus = part.scene.load > 1 and number % 3
            reason = "full" if number % 2 else "unmeetable"
            if surplus:
                tally.answered(Answer(order, at + 0.01, 503, 0.01, reason=reason))
            else:
                tally.answered(Answer(order, at + 0.25, 200, 0.25, job=str(number)))
    return tally


@pytest.fixture
def view():
    made = View(PLAN, 50.0, halfway(), "3 workers with 4 slots each: 50 orders a second")
    made.update(22.0, STATS)
    made.tell("worker 1 is killed with -9")
    made.update(27.2, STATS)
    return made


def drawn(view, width, height, **options):
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, **options
    )
    console.print(view.drawn(width, height))
    return console.file.getvalue().removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    "size", [(80, 24), (120, 40), (60, 20), (200, 60), (30, 10), (10, 5), (1, 1)]
)
def test_it_fits_the_terminal(view, size):
    width, height = size
    lines = drawn(view, width, height, color_system=None)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_it_shows_what_goes_on(view, size):
    lines = drawn(view, *size, color_system=None)
    said = "\n".join(line.rstrip() for line in lines)
    assert lines[0].rstrip().endswith("0:27 of 0:50")
    assert "3 workers with 4 slots each: 50 orders a second" in lines[0]
    assert lines[1].rstrip() == "━" * round(27.2 / 50 * size[0]) + "─" * round(22.8 / 50 * size[0])
    assert re.search(r"^✓ calm 0\.5x +175 +175 +0 +175 +0$", said, re.MULTILINE)
    assert re.search(r"^✓ overload 3x +1,500 +500 +1,000 +500 +0$", said, re.MULTILINE)
    assert re.search(r"^▶ killed 0\.5x ", said, re.MULTILINE)
    assert re.search(r"^  recovery 0\.5x( +0){5}$", said, re.MULTILINE)
    assert "a second   offered 25  accepted 25  on time 25" in said
    assert "refused    full 0  unmeetable 0" in said
    assert "queue      43 waiting  12 running  12 slots alive" in said
    assert "can do 50 ┤" in said
    assert re.search(r"^ +calm +overload +killed +slow +recovery$", said, re.MULTILINE)
    assert "0:22  worker 1 is killed with -9" in said


def test_a_larger_terminal_has_a_larger_chart(view):
    def size(width, height):
        bars = [line for line in drawn(view, width, height, color_system=None) if "█" in line]
        return len(bars), max(line.count("█") for line in bars)

    (small_rows, small_columns), (rows, columns) = size(80, 24), size(120, 40)
    assert rows > small_rows
    assert columns == 2 * small_columns


def test_its_colours_can_be_read_on_dark_and_on_light(view):
    said = "\n".join(drawn(view, 80, 24, color_system="standard"))
    codes = {
        int(n) for codes in re.findall(r"\x1b\[([\d;]*)m", said) for n in codes.split(";") if n
    }
    bold, foregrounds = 1, {31, 32, 35, 36}  # red, green, magenta, cyan
    assert codes <= {0, bold, 39, 22} | foregrounds  # no background, no white, black or yellow
    assert {32, 35, 36} <= codes


def test_before_the_first_order_and_without_a_server_it_says_so(view):
    view.update(0.0, None)
    assert "queue      starting" in "\n".join(drawn(view, 80, 24, color_system=None))
    view.update(3.0, None)
    assert "the server does not answer" in "\n".join(drawn(view, 80, 24, color_system=None))


def test_a_narrow_chart_gathers_seconds():
    chart = Chart(50.0, 12 + 25)
    (row,) = chart.bars("done", [50, 0, 60, 60], 50.0, 1, "green")
    assert row.plain.startswith(" can do 50 ┤▃█┄")
    wide = Chart(50.0, 12 + 100)
    assert wide.profile("done", [2, 4], "green").plain == "      done ┤▄▄██"
    assert wide.axis({"a": 0.0, "b": 3.0}).plain == " " * 12 + "a     b"


def test_a_pipe_gets_no_drawing(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not can_draw(Console(file=io.StringIO()))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_draw(Console(file=io.StringIO(), force_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    assert can_draw(Console(file=io.StringIO(), force_terminal=True))


def test_a_terminal_without_the_signs_gets_no_drawing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert not can_draw(Console(file=latin, force_terminal=True))
