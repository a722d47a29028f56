"""The embedded server, with real processes: who starts it, who joins it, what it survives."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deadq.errors import StoreUnavailable
from deadq.store import embedded
from deadq.store.embedded.home import Answer, Home
from tests.projects import Project, go, said_by
from tests.servers import wait_until

# ---- starting and joining


def test_the_first_call_starts_a_server_and_says_so_and_the_next_joins_it(project: Project) -> None:
    url = project.ensure()
    first = project.status()

    assert project.ensure() == url
    assert project.pid() == first.pid
    assert first.running
    assert first.url == url
    assert first.folder == project.data
    (line,) = project.said
    assert line == (
        f"deadq: started a private {first.version} in {project.data}"
        f" (socket {project.data}/server.sock); stop it with 'deadq server stop'"
    )
    assert str(first.version).startswith("Valkey 9.")


def test_announcing_goes_to_stderr_unless_told_otherwise(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded.ensure(project.folder, data_dir=project.data)
    assert capsys.readouterr().err.startswith("deadq: started a private Valkey 9.")
    project.stop()
    embedded.ensure(project.folder, data_dir=project.data, announce=None)
    assert capsys.readouterr().err == ""


def test_the_server_is_durable_private_and_evicts_nothing(project: Project) -> None:
    with project.client() as client:
        got = client.config_get("*")
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "maxmemory-policy": "noeviction",
        "port": "0",
        "save": "",
        "unixsocketperm": "700",
    }
    assert {name: got[name] for name in wanted} == wanted
    assert project.data.stat().st_mode & 0o777 == 0o700
    assert (project.data / "server.sock").stat().st_mode & 0o777 == 0o700


@pytest.mark.race
def test_eight_processes_that_start_it_at_once_share_one_server(project: Project) -> None:
    code = """
        url = embedded.ensure(data_dir=data)
        print(embedded.status(data_dir=data).pid, url)
    """
    children = [project.process(code) for _ in range(8)]
    for child in children:
        go(child)
    said = [said_by(child) for child in children]

    assert {out for out, _ in said} == {f"{project.pid()} {project.status().url}\n"}
    assert sum(err.count("deadq: started") for _, err in said) == 1


def test_its_starter_has_no_child_process_to_care_for(project: Project) -> None:
    child = project.process("""
        embedded.ensure(data_dir=data, announce=None)
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("no child")
    """)
    go(child)
    assert said_by(child) == ("no child\n", "")


# ---- outliving


def test_it_outlives_a_killed_starter_and_is_joined(project: Project) -> None:
    starter = project.process("""
        embedded.ensure(data_dir=data)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    go(starter)
    said_by(starter)
    assert starter.returncode == -signal.SIGKILL

    pid = project.pid()
    with project.client() as client:
        assert client.info()["process_id"] == pid
    assert project.said == []


def test_it_outlives_ctrl_c_in_its_starters_terminal(project: Project) -> None:
    starter = project.process("""
        embedded.ensure(data_dir=data)
        print("started", flush=True)
        while True:
            time.sleep(0.05)  # a pause() would miss a signal that comes just before it
    """)
    go(starter)
    assert starter.stdout is not None
    assert starter.stdout.readline() == "started\n"
    pid = project.pid()
    os.killpg(starter.pid, signal.SIGINT)
    said_by(starter)
    assert starter.returncode == -signal.SIGINT

    with project.client() as client:
        assert client.info()["process_id"] == pid


@pytest.mark.parametrize(
    ("killed_in", "found_running"),
    [("server_binary", False), ("_start", True)],
    ids=["before the server exists", "before the server answers"],
)
def test_a_starter_killed_half_way_leaves_nothing_in_the_way(
    project: Project, killed_in: str, found_running: bool
) -> None:
    starter = project.process(f"""
        real = embedded.{killed_in}
        def killed(*args):
            if {found_running}:
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        embedded.{killed_in} = killed
        embedded.ensure(data_dir=data)
    """)
    go(starter)
    said_by(starter)
    assert starter.returncode == -signal.SIGKILL
    assert project.status().running is found_running

    with project.client() as client:
        assert client.ping()
    assert len(project.said) == (0 if found_running else 1)


def test_after_a_kill_the_next_call_starts_it_again_with_its_data(project: Project) -> None:
    with project.client() as client:
        client.set("order", "17")
        client.execute_command("WAITAOF", 1, 0, 5000)
    killed = project.pid()
    project.killed()
    assert (project.data / "server.sock").is_socket(), "the stale socket is part of the case"
    assert (project.data / "server.pid").exists(), "so is the stale pid"

    with project.client() as client:
        assert client.get("order") == "17"
    assert project.pid() != killed
    assert len(project.said) == 2


def test_a_truncated_tail_of_its_file_costs_only_the_tail(project: Project) -> None:
    with project.client() as client:
        client.set("order", "17")
    project.stop()
    (written,) = (project.data / "appendonlydir").glob("*.incr.aof")
    with written.open("ab") as aof:
        aof.write(b"*3\r\n$3\r\nSET\r\n$5\r\nother\r\n$100\r\nhalf a val")

    with project.client() as client:
        assert client.keys() == ["order"]


def test_a_damaged_file_is_a_plain_error_that_names_the_log(project: Project) -> None:
    project.ensure()
    project.stop()
    (written,) = (project.data / "appendonlydir").glob("*.incr.aof")
    written.write_bytes(b"this is no append-only file\n")

    with pytest.raises(StoreUnavailable) as caught:
        project.ensure()
    assert "Bad file format reading the append only file" in str(caught.value)
    assert str(project.data / "server.log") in str(caught.value)
    assert not project.status().running


# ---- slow and silent servers


@pytest.fixture
def slow_to_load(project: Project, monkeypatch: pytest.MonkeyPatch) -> list[Answer | None]:
    """A killed server whose next start takes about 0.6 s to load; gives what it then answers."""
    with project.client() as client:
        client.mset({f"key:{n}": n for n in range(2000)})
        client.bgrewriteaof()
        wait_until(
            lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the AOF rewrite"
        )
    project.stop()
    # microseconds for each key; the server looks after its clients as often as it can meanwhile
    slowly = ("--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024")
    monkeypatch.setattr(embedded, "_OPTIONS", (*embedded._OPTIONS, *slowly))
    answers: list[Answer | None] = []

    def heard(home: Home, real: Callable[[Home], Answer | None] = Home.ask) -> Answer | None:
        answers.append(real(home))
        return answers[-1]

    monkeypatch.setattr(Home, "ask", heard)
    return answers


def test_a_server_that_is_still_loading_is_waited_for(
    project: Project, slow_to_load: list[Answer | None]
) -> None:
    with project.client() as client:
        assert client.dbsize() == 2000
    assert any(answer is not None and answer.loading for answer in slow_to_load)


def test_the_wait_for_a_loading_server_has_an_end(
    project: Project, slow_to_load: list[Answer | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hasty:
        hasty.setattr(embedded, "_LOAD_WITHIN_S", 0.1)
        with pytest.raises(StoreUnavailable, match="still loading its data; try again"):
            project.ensure()
    with project.client() as client:
        assert client.dbsize() == 2000
    assert project.said == project.said[:1], "it was joined, not started a second time"


def test_a_frozen_server_is_an_error_and_never_a_reason_for_a_second(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.ensure()
    pid = project.pid()
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as hasty:
        hasty.setattr(embedded, "_ANSWER_WITHIN_S", 0.1)
        with pytest.raises(StoreUnavailable, match=f"pid {pid}.* does not answer"):
            project.ensure()
    assert project.status() == embedded.ServerStatus(True, pid, None, project.data, None)
    os.kill(pid, signal.SIGCONT)

    project.ensure()
    assert project.pid() == pid
    assert len(project.said) == 1


# ---- stopping


def test_stop_ends_it_for_everybody_and_keeps_the_data(project: Project) -> None:
    assert project.stop() is False
    assert not project.data.exists(), "looking creates nothing"
    with project.client() as client:
        client.set("order", "17")

    assert project.stop() is True
    assert project.status() == embedded.ServerStatus(False, None, None, project.data, None)
    assert project.stop() is False
    with project.client() as client:
        assert client.get("order") == "17"


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc to be sure of a pid")
def test_a_server_whose_socket_was_deleted_can_still_be_stopped(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.client() as client:
        client.set("order", "17")
    (project.data / "server.sock").unlink()
    with monkeypatch.context() as hasty:
        hasty.setattr(embedded, "_ANSWER_WITHIN_S", 0.1)
        with pytest.raises(StoreUnavailable, match="run 'deadq server stop' and try again"):
            project.ensure()

    assert project.stop() is True
    with project.client() as client:
        assert client.get("order") == "17"


def test_stop_never_signals_a_process_that_merely_has_the_old_pid(project: Project) -> None:
    project.ensure()
    project.killed()
    bystander = project.process("")
    (project.data / "server.pid").write_text(f"{bystander.pid}\n")

    assert project.stop() is False
    Home(project.data).ask_to_leave(bystander.pid)
    go(bystander)
    assert said_by(bystander) == ("", "")
    assert bystander.returncode == 0
