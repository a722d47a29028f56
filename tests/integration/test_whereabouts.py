"""What people call the server that a queue is on: without passwords."""

import pytest
import redis
import redis.asyncio
from redis.cluster import ClusterNode, RedisCluster

from deadq.store.connect import Backend
from deadq.store.whereabouts import server_of

SECRET = "s3cret"


def backend(url=None, client=None):
    return Backend("shop", url, client, allow_eviction=False)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        (f"redis://:{SECRET}@cache.example:6380/3", "redis://cache.example:6380/3"),
        (f"rediss://user:{SECRET}@[::1]:6380", "rediss://[::1]:6380/0"),
        (f"redis://cache.example?password={SECRET}&db=2", "redis://cache.example:6379/2"),
        (f"unix://user:{SECRET}@/run/valkey.sock?db=1", "unix:///run/valkey.sock?db=1"),
        ("valkey://cache.example", "redis://cache.example:6379/0"),
    ],
)
def test_a_url_is_shown_without_its_password(url, says, monkeypatch):
    assert server_of(backend(url)) == says
    monkeypatch.setenv("DEADQ_URL", url)
    assert server_of(backend()) == says


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_a_client_of_the_users_own_is_shown_by_its_address(kind):
    assert server_of(backend(client=kind(host="h", password=SECRET, db=4))) == "redis://h:6379/4"
    assert server_of(backend(client=kind(unix_socket_path="/s"))) == "unix:///s"


class Cluster(RedisCluster):
    """One that looks for no node."""

    def __init__(self):
        self.nodes = [ClusterNode("h", 1)]


def test_of_any_other_client_its_kind_is_shown():
    assert server_of(backend(client=Cluster())) == "a Cluster client"


def test_with_no_server_named_it_is_the_private_one(project, monkeypatch):
    monkeypatch.setenv("DEADQ_DATA_DIR", str(project.data))
    made = backend()
    assert made.private
    for _ in range(2):
        assert server_of(made) == f"the private server in {project.data}"
        assert made.url == project.ensure()  # once it is known, it is private all the same
