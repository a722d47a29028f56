"""What commands print for people, on terminals of any width."""

import pytest
from rich.cells import cell_len

from deadq.cli.tables import print_block, print_pairs, print_points, print_rows

KEY = "tenant-9f8e7d6c:order:2026-11-30:4b1f0c2e-8a77-4c55-9d0e-0123456789ab"
WIDE = "注文-二〇二六-十一月-三十日-顧客-山田太郎-一七番"
ERROR = "ValueError: the card was declined by the bank: insufficient funds; code=51"
TASK = "send_a_confirmation_mail_to_the_customer_of_the_shop"
NAMES = ("key", "task", "state", "ended", "error")
ROWS = [(key, TASK, "failed", "2026-11-30 22:23:20", ERROR) for key in (KEY, WIDE, "order-17")]


@pytest.fixture
def printed(monkeypatch, capsys):
    def printed(columns, show, *args, **given):
        monkeypatch.setenv("COLUMNS", str(columns))
        show(*args, **given)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(cell_len, lines)) <= columns
        return lines

    return printed


def squeezed(text):
    return "".join(text.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_keys_and_errors_are_folded_and_a_tasks_name_ends_in_an_ellipsis(columns, printed):
    lines = printed(columns, print_rows, "dead", NAMES, ROWS, folded=("key", "error"))
    rows = [line for line in lines if "failed" in line]
    assert len(rows) == len(ROWS)
    assert all("…" in row and "2026-11-30 22:23:20" in row for row in rows)
    start = lines.index(rows[0])
    width = lines[start].index("send_a")
    first = lines[start : lines.index(rows[1])]
    assert squeezed("".join(line[:width] for line in first)) == KEY
    wrapped = "".join(line[rows[0].index("ValueError") :] for line in first)
    assert squeezed(wrapped) == squeezed(ERROR)


@pytest.mark.parametrize("columns", [20, 80, 120])
def test_nothing_is_wider_than_the_terminal(columns, printed):
    printed(columns, print_rows, "dead", NAMES, ROWS, folded=("key", "error"))
    printed(columns, print_pairs, "job", [(f"unit {TASK}", "done"), ("key", WIDE)])
    printed(columns, print_points, "queue", [("ok", "green", ERROR), ("", "", ERROR)])


def test_words_begin_below_each_other_and_numbers_end_so(printed):
    words = printed(80, print_pairs, "job", [("key", KEY * 2), ("state", "done")])
    start = words[1].index("tenant")
    assert words[2][:start].strip() == ""
    assert words[-1].index("done") == start
    numbers = printed(80, print_pairs, "queue", [("live", 7), ("ready", 1234)])
    assert len({len(line.rstrip()) for line in numbers[1:]}) == 1


def test_what_goes_on_stands_below_its_own_beginning(printed):
    lines = printed(40, print_points, "queue", [("FAULT", "bold white on red", ERROR)])
    start = lines[1].index("ValueError")
    assert len(lines) > 2
    assert all(line[:start].strip() == "" for line in lines[2:])


@pytest.mark.parametrize("columns", [20, 40, 79])
def test_where_a_table_has_no_room_each_row_is_shown_by_itself_and_whole(columns, printed):
    lines = printed(columns, print_rows, "dead", NAMES, ROWS, folded=("key", "error"))
    said = squeezed("".join(lines))
    for row in ROWS:
        assert f"key{row[0]}" in said
    assert "…" not in said
    assert "".join(line.removeprefix(" ") for line in lines).count("failed") == len(ROWS)


def test_without_rows_there_is_the_title_alone(printed):
    assert printed(80, print_rows, "queue x: none", NAMES, [], folded=("key",)) == ["queue x: none"]


def test_lines_of_a_block_stay_whole_and_steer_no_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_block("where", f"{ERROR}\n    \x1b[31mred")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["where", f"  {ERROR}", "      \\x1b[31mred"]


def test_no_line_ends_in_blanks(printed):
    lines = printed(80, print_pairs, "queue", [("live", 7), ("ready", 1234)])
    assert [line.rstrip() for line in lines] == lines


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_no_terminal_gets_each_row_in_one_line(terminal, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    print_rows("dead", NAMES, ROWS, folded=("key", "error"))
    print_pairs("job", [("key", KEY * 5)])
    print_points("check", [("FAULT", "", ERROR * 5)])
    lines = capsys.readouterr().out.splitlines()
    for words in ((KEY, TASK, ERROR), (WIDE, TASK, ERROR), (KEY * 5,), (ERROR * 5,)):
        whole = [line for line in lines if all(word in line for word in words)]
        assert len(whole) == (0 if terminal else 1)
    assert [line.rstrip() for line in lines] == lines
