"""A queue with a client of the user's own: the supervisor makes connections like its, and loads
the module only where it cannot.
"""

import contextlib
import json
import os
import signal

import pytest
import redis
import redis.asyncio
from redis.credentials import UsernamePasswordCredentialProvider
from redis.sentinel import Sentinel

from deadq import Queue
from deadq.runtime.lease.heartbeat import renewing_store
from deadq.store.likeness import like, likeness
from tests.commands import started
from tests.servers import Server, binaries, wait_until

JOBS = """
import os, pathlib, time
import redis, redis.asyncio
from redis.credentials import UsernamePasswordCredentialProvider
from deadq import Queue

class Own(redis.Redis): ...

URL = os.environ["SERVER_URL"]
queue = Queue("own", capacity=50, lease=1.5, client={client})
with open("loaded", "a") as file:
    file.write(f"{{os.getpid()}}\\n")

@queue.task(within=20.0)
{kind} lives(seconds: float) -> int:
    {sleep}(seconds)
    return os.getpid()
"""
PLAIN = {"kind": "def", "sleep": "time.sleep"}
ON_A_LOOP = {"kind": "async def", "sleep": "import asyncio; await asyncio.sleep"}

BLOCKING = "redis.Redis.from_url(URL)"
ASYNCIO = "redis.asyncio.Redis.from_url(URL, decode_responses=True)"
PAIR = f"({BLOCKING}, {ASYNCIO})"
OWN = "Own.from_url(URL)"


class Site:
    """A worker on such a queue, and the test's own view of it."""

    def __init__(self, folder, server, client, handlers):
        (folder / "jobs.py").write_text(JOBS.format(client=client, **handlers))
        self._loaded = folder / "loaded"
        with server.client() as emptied:
            emptied.flushall()
        self.queue = Queue("own", capacity=50, url=server.url)
        self.lives = self.queue.task(within=20.0, name="lives")(lambda seconds: None)
        self.worker = started(
            *("work", "jobs:queue", "--concurrency=1"), cwd=folder, SERVER_URL=server.url
        )

    def loaded_in_the_supervisor(self):
        return str(self.worker.pid) in self._loaded.read_text().split()

    def survives(self):
        """A job longer than its lease is renewed, and one whose child dies comes back at once."""
        child = self.lives.call(0.0)
        long = self.lives.enqueue(2.0)
        assert long.result() == child
        lost = self.lives.enqueue(1.0)
        wait_until(lambda: lost.state() == "running", "it to start")
        os.kill(child, signal.SIGKILL)
        assert lost.result() not in {child, self.worker.pid}

    def stop(self):
        self.worker.terminate()
        _, said = self.worker.communicate(timeout=20)
        assert self.worker.returncode == 0, said
        return said

    def close(self):
        if self.worker.poll() is None:
            os.killpg(self.worker.pid, signal.SIGKILL)
            self.worker.communicate(timeout=10)
        self.queue.close()


@pytest.fixture
def site(tmp_path, valkey_server, client, handlers):
    made = Site(tmp_path, valkey_server, client, handlers)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "handlers"), [(BLOCKING, PLAIN), (ASYNCIO, ON_A_LOOP), (PAIR, PLAIN)]
)
def test_the_supervisor_makes_connections_like_a_plain_clients_and_loads_nothing(site):
    site.survives()
    assert not site.loaded_in_the_supervisor()
    assert "only your own code can make" not in site.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("client", "handlers"), [(OWN, PLAIN), (OWN, ON_A_LOOP)])
def test_what_it_cannot_make_itself_the_module_makes_there_too_and_a_warning_says_so(site):
    site.survives()
    assert site.loaded_in_the_supervisor()
    assert site.stop().count("queue own has a client that only your own code can make: ") == 1


# Which are plain.


def _sent(client):
    """As it comes to the supervisor."""
    return json.loads(json.dumps(likeness(client)))


def test_a_plain_client_s_likeness_reaches_the_same_database_as_the_same_user():
    with Server(binaries()["valkey9"], port=0) as server:
        with server.client() as client:
            client.acl_setuser(
                "anna", enabled=True, passwords=["+annas"], keys=["*"], categories=["+@all"]
            )
        account = {"username": "anna", "password": "annas", "db": 3, "protocol": 3}
        for place in ({"port": server.port}, {"unix_socket_path": str(server.socket)}):
            for made in (redis.Redis, redis.asyncio.Redis):
                alike = like(_sent(made(**place, **account, client_name="shop")), 1.0)
                info = alike.client_info()
                assert (info["user"], info["db"], info["name"]) == ("anna", 3, "shop")
                alike.connection_pool.disconnect()
        pool = redis.BlockingConnectionPool.from_url(f"{server.tcp_url}/3")
        alike = like(_sent(redis.Redis(connection_pool=pool)), 1.0)
        assert alike.client_info()["db"] == 3
        alike.connection_pool.disconnect()


def test_a_plain_client_s_likeness_speaks_tls_by_the_same_files(tls_files, tls_server):
    port = int(tls_server.tcp_url.rpartition(":")[2])
    for checks in ("required", "none", None):
        with_ca = {"ssl_ca_certs": str(tls_files.ca)} if checks == "required" else {}
        settings = {"port": port, "ssl": True, "ssl_cert_reqs": checks, **with_ca}
        for made in (redis.Redis, redis.asyncio.Redis):
            alike = like(_sent(made(**settings, ssl_check_hostname=bool(with_ca))), 1.0)
            assert alike.ping()
            alike.connection_pool.disconnect()
    alike = like(_sent(redis.Redis(port=port, ssl=True)), 1.0)
    with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        alike.ping()


class OfAKind(redis.Redis):
    pass


class Connecting(redis.Connection):
    pass


class Pooling(redis.ConnectionPool):
    pass


@pytest.mark.parametrize(
    "client",
    [
        None,
        OfAKind(),
        redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Connecting)),
        redis.Redis(connection_pool=Pooling()),
        redis.Redis(credential_provider=UsernamePasswordCredentialProvider("anna", "annas")),
        redis.Redis(redis_connect_func=print),
        redis.Redis(password=b"\xff"),
        Sentinel([("127.0.0.1", 1)]).master_for("shop"),
    ],
    ids=lambda client: type(client).__name__,
)
def test_nothing_else_is_plain(client):
    assert likeness(client) is None


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_leases_are_renewed_with_short_waits_whatever_those_of_a_plain_client(kind):
    """Also where no supervisor does it, but the child's own process."""
    queue = Queue("own", capacity=1, client=kind(host="shop", socket_timeout=60.0))
    with contextlib.closing(renewing_store(queue, 2.0)) as store:
        settings = store.client.get_connection_kwargs()
    assert settings["host"] == "shop"
    assert (settings["socket_timeout"], settings["socket_connect_timeout"]) == (0.5, 0.5)


def test_leases_are_renewed_on_the_own_client_where_plain_values_do_not_say_it():
    client = OfAKind()
    with contextlib.closing(renewing_store(Queue("own", capacity=1, client=client), 2.0)) as store:
        assert store.client is client
