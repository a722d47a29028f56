"""Where the embedded server's files are, and which program serves them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deadq.errors import StoreUnavailable
from deadq.store import embedded
from deadq.store.embedded import place
from tests.projects import Project, go, said_by
from tests.servers import binaries


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch, short_folder: Path) -> Callable[[Path | None], None]:
    """Take the wheel away and leave one program, or none, on PATH."""

    def leave(program: Path | None) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setenv("PATH", str(short_folder / "bin"))
        (short_folder / "bin").mkdir()
        if program is not None:
            (short_folder / "bin" / "redis-server").symlink_to(program)

    return leave


def pretend_server(folder: Path, version: str) -> Path:
    program = folder / "pretend-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    program.chmod(0o755)
    return program


# ---- places


def test_each_project_has_a_folder_of_its_own(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(short_folder / "data"))
    inner = short_folder / "a shop" / "src" / "pages"
    inner.mkdir(parents=True)

    def folder_at(where: Path) -> Path:
        monkeypatch.chdir(where)
        return embedded.status().folder

    assert folder_at(inner) != folder_at(short_folder / "a shop")
    (short_folder / "a shop" / "pyproject.toml").touch()
    assert folder_at(inner) == folder_at(short_folder / "a shop")
    assert folder_at(inner).parent == short_folder / "data" / "deadq"
    assert folder_at(inner).name.startswith("a_shop-")
    (inner.parent / ".git").mkdir()
    assert folder_at(inner).name.startswith("src-")
    assert embedded.status(short_folder / "a shop").folder.name.startswith("a_shop-")

    monkeypatch.setenv("XDG_DATA_HOME", "relative/paths/do/not/count")
    monkeypatch.setenv("HOME", str(short_folder))
    assert folder_at(inner).parent == short_folder / ".local" / "share" / "deadq"
    monkeypatch.setenv("DEADQ_DATA_DIR", str(short_folder / "mine"))
    assert folder_at(inner) == short_folder / "mine"
    assert embedded.status(data_dir=short_folder / "other").folder == short_folder / "other"
    assert not (short_folder / "data").exists(), "looking creates nothing"


@pytest.mark.parametrize("name", ["x" * 200, "latin-\udce4"], ids=["too long", "not UTF-8"])
def test_where_no_socket_can_be_it_goes_to_a_private_runtime_folder(
    project: Project, short_folder: Path, name: str
) -> None:
    project.data = short_folder / name
    with project.client() as client:
        assert client.ping()
    runtime = short_folder / f"deadq-{os.geteuid()}"
    assert [path.suffix for path in runtime.iterdir()] == [".sock"]
    assert runtime.stat().st_mode & 0o777 == 0o700

    # a process with other settings, under cron say, meets the same server
    other = project.process("print(embedded.ensure(data_dir=data))", TMPDIR="/nowhere")
    go(other)
    assert said_by(other) == (f"{project.status().url}\n", "")


@pytest.mark.parametrize("trap", ["symlink", "another user's"])
def test_a_runtime_folder_planted_by_somebody_else_is_not_used(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    planted = short_folder / f"deadq-{os.geteuid()}"
    if trap == "symlink":
        (short_folder / "elsewhere").mkdir()
        planted.symlink_to(short_folder / "elsewhere")
    elif os.geteuid() == 0:
        planted.mkdir()
        os.chown(planted, 12345, -1)
    else:
        pytest.skip("only root can make a folder for another user")
    (short_folder / "good").mkdir()
    monkeypatch.setattr(place, "_runtime_bases", lambda: [short_folder, short_folder / "good"])
    found = place.socket_path(short_folder / ("x" * 200))
    assert found.parent == short_folder / "good" / planted.name

    monkeypatch.setattr(place, "_runtime_bases", lambda: [short_folder])
    with pytest.raises(StoreUnavailable, match="no place for a socket"):
        place.socket_path(short_folder / ("x" * 200))
    assert list(planted.iterdir()) == []


@pytest.mark.parametrize("name", ['it\'s "mine"', "50% of #1?", "gr\u00fc\u00dfe", "--port 1"])
def test_a_folder_may_have_any_name(project: Project, short_folder: Path, name: str) -> None:
    project.data = short_folder / name
    with project.client() as client:
        assert client.config_get("dir") == {"dir": str(project.data)}
        assert client.config_get("port") == {"port": "0"}


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(project: Project) -> None:
    project.data.mkdir(mode=0o755)
    (project.data / "holiday.jpg").touch()
    with pytest.raises(StoreUnavailable, match="holds other files: give deadq a data folder"):
        project.ensure()
    assert project.data.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in project.data.iterdir()] == ["holiday.jpg"]


def test_an_empty_folder_of_ours_is_closed_to_others(project: Project) -> None:
    project.data.mkdir()
    project.data.chmod(0o777)
    project.ensure()
    assert project.data.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.data.mkdir()
    with monkeypatch.context() as as_somebody_else:
        as_somebody_else.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(StoreUnavailable, match=f"belongs to another user .uid {os.getuid()}."):
            project.ensure()


def test_a_folder_that_cannot_be_made_is_a_plain_error(
    project: Project, short_folder: Path
) -> None:
    (short_folder / "file").touch()
    project.data = short_folder / "file" / "data"
    with pytest.raises(StoreUnavailable, match="set DEADQ_DATA_DIR to a local folder of yours"):
        project.ensure()
    project.data = short_folder


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(StoreUnavailable, match=r"home directory.*set DEADQ_DATA_DIR"):
        embedded.ensure()


def test_a_long_log_begins_a_new_volume(project: Project) -> None:
    project.ensure()
    project.stop()
    with (project.data / "server.log").open("ab") as log:
        log.truncate(2 << 20)
    project.ensure()
    assert (project.data / "server.log.1").stat().st_size == 2 << 20
    assert "Ready to accept connections" in (project.data / "server.log").read_text()


# ---- programs


def test_the_systems_server_serves_where_there_is_no_wheel(
    project: Project, no_wheel: Callable[[Path | None], None]
) -> None:
    no_wheel(binaries().get("redis62") or binaries()["valkey9"])
    with project.client() as client:
        version = client.info()["redis_version"]
    assert project.said[0].startswith("deadq: started a private ")
    if "redis62" in binaries():
        assert f" Redis {version} " in project.said[0]


def test_without_any_server_the_error_names_the_remedy(
    project: Project, no_wheel: Callable[[Path | None], None]
) -> None:
    no_wheel(None)
    with pytest.raises(StoreUnavailable, match=r"pip install 'deadq\[server\]'"):
        project.ensure()
    assert not project.status().running


def test_a_server_that_is_too_old_is_named(
    project: Project, no_wheel: Callable[[Path | None], None], short_folder: Path
) -> None:
    no_wheel(pretend_server(short_folder, "6.0.16"))
    with pytest.raises(StoreUnavailable, match=r"redis-server is older than 6\.2"):
        project.ensure()


def test_a_program_that_does_not_run_is_passed_over(
    project: Project, no_wheel: Callable[[Path | None], None], short_folder: Path
) -> None:
    broken = short_folder / "broken"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    no_wheel(broken)
    (short_folder / "bin" / "redis-server").rename(short_folder / "bin" / "valkey-server")
    with pytest.raises(StoreUnavailable, match="valkey-server does not run here"):
        project.ensure()
    (short_folder / "bin" / "redis-server").symlink_to(binaries()["valkey9"])
    project.ensure()


def test_data_is_never_ignored_by_an_older_server(
    project: Project, no_wheel: Callable[[Path | None], None], short_folder: Path
) -> None:
    project.ensure()
    project.stop()
    no_wheel(pretend_server(short_folder, "6.2.14"))
    with pytest.raises(StoreUnavailable, match="is too old for the data in"):
        project.ensure()


def test_a_server_that_will_not_start_leaves_its_reason(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_OPTIONS", (*embedded._OPTIONS, "--no-such-option", "1"))
    with pytest.raises(StoreUnavailable, match=r"could not start \(.*valkey-server, exit 1\): .+"):
        project.ensure()
    assert not project.status().running
