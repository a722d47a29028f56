"""Servers that stand together: the nodes of a Cluster, or a primary, its replica and a Sentinel."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from deadq.store import keys
from tests.servers import Server, wait_until
from tests.tls import TlsFiles

SERVICE = "shop"
"""The name that the Sentinel knows the primary by."""

_SLOTS = 16_384


class Cluster:
    """As many primaries as ``servers``, each with its part of the slots."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        for number, server in enumerate(servers):
            first, end = (_SLOTS * n // len(servers) for n in (number, number + 1))
            with server.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
                # an epoch for each, before they meet: they need not settle who is the older one
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            for other in servers[:number]:
                with other.client() as client:
                    bus = server.config["cluster-port"]
                    client.execute_command("CLUSTER MEET", "127.0.0.1", server.port, bus)
        self.whole()

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers if server.port is not None]

    def whole(self) -> None:
        """Wait until every node sees all of it."""
        wait_until(lambda: all(map(self._sees_all, self.servers)), "the cluster to be whole")

    def holder(self, queue: str) -> Server:
        """The server that holds the queue."""
        slot = self._slot(queue)
        with self.servers[0].client(decode_responses=True) as client:
            for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= slot <= last:
                    return self.servers[self.ports.index(port)]
        raise AssertionError(f"nobody holds slot {slot}")

    def move(self, queue: str) -> None:
        """Move the queue's slot to another server, in one piece as Valkey 9 does it."""
        slot, source = self._slot(queue), self.holder(queue)
        target = next(server for server in self.servers if server is not source)
        with source.client() as old, target.client() as new:
            there = ("SLOTSRANGE", slot, slot, "NODE", new.execute_command("CLUSTER MYID"))
            old.execute_command("CLUSTER MIGRATESLOTS", *there)
        wait_until(lambda: self.holder(queue) is target, "the slot to move")

    def _slot(self, queue: str) -> int:
        with self.servers[0].client() as client:
            slot: int = client.execute_command("CLUSTER KEYSLOT", keys.prefix(queue))
        return slot

    def _sees_all(self, server: Server) -> bool:
        with server.client(decode_responses=True) as client:
            told = client.execute_command("CLUSTER INFO")
        known = int(told["cluster_known_nodes"])
        return told["cluster_state"] == "ok" and known == len(self.servers)


@contextmanager
def cluster(binary: Path, nodes: int, tls: TlsFiles | None = None) -> Iterator[Cluster]:
    """A Cluster that is there until the block ends; its nodes keep what they hold."""
    with ExitStack() as stack:
        yield Cluster([stack.enter_context(_node(binary, tls)) for _ in range(nodes)])


def _node(binary: Path, tls: TlsFiles | None) -> Server:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bus = probe.getsockname()[1]
    settings = {"cluster-enabled": "yes", "cluster-port": str(bus), "cluster-node-timeout": "2000"}
    if tls is not None:
        settings["tls-cluster"] = "yes"
    return Server(binary, port=0, tls=tls, aof=True, config=settings)


class Watched(NamedTuple):
    """A primary and its replica, and the Sentinel that knows which is which."""

    primary: Server
    replica: Server
    sentinel: Server

    def promoted(self) -> None:
        """Wait until the replica has taken the primary's place."""

        def known() -> bool:
            with self.sentinel.client() as client:
                _, port = client.sentinel_get_master_addr_by_name(SERVICE)
                return int(port) == self.replica.port

        wait_until(known, "the replica to be promoted", 30.0)


@contextmanager
def watched(binary: Path) -> Iterator[Watched]:
    """Until the block ends; the Sentinel knows of the replica."""
    with ExitStack() as stack:
        primary = stack.enter_context(Server(binary, port=0))
        follows = {"replicaof": f"127.0.0.1 {primary.port}", "repl-diskless-sync-delay": "0"}
        replica = stack.enter_context(Server(binary, port=0, config=follows))
        sentinel = stack.enter_context(_Sentinel(binary, port=0, config={"of": str(primary.port)}))

        def settled() -> bool:
            with sentinel.client(decode_responses=True) as asked, replica.client() as client:
                (known,) = asked.sentinel_masters().values()
                return known["num-slaves"] == 1 and client.info()["master_link_status"] == "up"

        wait_until(settled, "the sentinel to know the replica", 30.0)
        yield Watched(primary, replica, sentinel)


class _Sentinel(Server):
    """It has no socket but its port, and is told what to do by a file that it changes."""

    @property
    def url(self) -> str:
        return self.tcp_url

    def _command(self) -> list[str]:
        told = self.folder / "sentinel.conf"
        told.write_text(
            f"port {self.port}\nbind 127.0.0.1\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.config['of']} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 5000\n"
        )
        return [str(self.binary), str(told), "--sentinel"]
