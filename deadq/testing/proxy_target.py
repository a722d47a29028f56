"""Where a proxy leads to, and how a client names the target when it goes through the proxy."""

import os
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

Place = str | tuple[str, int] | os.PathLike[str]

_PORTS = {
    "redis": 6379,
    "rediss": 6379,
    "valkey": 6379,
    "valkeys": 6379,
    "http": 80,
    "https": 443,
    "postgres": 5432,
    "postgresql": 5432,
}
_FORMS = "give ('host', port), 'host:port', a URL, or the path of a unix socket"


@dataclass(frozen=True, slots=True)
class Target:
    """An address to connect to: a host and port, or the path of a unix socket."""

    host: str
    port: int
    path: str
    url: SplitResult | None

    @classmethod
    def parse(cls, place: Place) -> "Target":
        """Read what a test may give. Raises ``ValueError`` or ``TypeError`` naming the fault."""
        if isinstance(place, os.PathLike):
            return cls("", 0, os.fspath(place), None)
        if isinstance(place, tuple):
            if len(place) != 2 or not isinstance(place[0], str):
                raise TypeError(f"proxy target {place!r} is no address: {_FORMS}")
            return cls(place[0], _port(place[1], place), "", None)
        if not isinstance(place, str):
            raise TypeError(f"proxy target {place!r} is no address: {_FORMS}")
        if "://" in place:
            return cls._of_url(urlsplit(place), place)
        if "/" in place:
            return cls("", 0, place, None)
        host, _, port = place.rpartition(":")
        return cls(host.strip("[]"), _port(port, place), "", None)

    @classmethod
    def _of_url(cls, url: SplitResult, place: str) -> "Target":
        if url.scheme == "unix":
            if not url.path:
                raise ValueError(f"proxy target {place!r} names no socket: {_FORMS}")
            return cls("", 0, unquote(url.path), url)
        # .port raises ValueError by itself for what is no port
        port = _PORTS.get(url.scheme) if url.port is None else url.port
        if not url.hostname or port is None:
            raise ValueError(f"proxy target {place!r} lacks a host or a port: {_FORMS}")
        return cls(url.hostname, _port(port, place), "", url)

    def url_through(self, address: str, *, unix: bool) -> str:
        """The target's URL with ``address`` (``"host:port"``, or a path) in the target's place.

        Credentials, database and options stay. A target that was not given as a URL has the
        scheme ``tcp`` or ``unix``.
        """
        if unix:
            address = quote(address)
        if self.url is None:
            return f"unix://{address}" if unix else f"tcp://{address}"
        user, at, _ = self.url.netloc.rpartition("@")
        if self.url.scheme != "unix" and not unix:
            return self.url._replace(netloc=f"{user}{at}{address}").geturl()
        query = dict(parse_qsl(self.url.query))
        database = self.url.path.strip("/")
        if self.url.scheme != "unix" and database:
            query["db"] = database
        options = f"?{urlencode(query)}" if query else ""
        scheme, path = ("unix", "") if unix else ("redis", "/")
        return f"{scheme}://{user}{at}{address}{path}{options}"


def _port(port: object, place: object) -> int:
    if isinstance(port, str) and port.isascii() and port.isdecimal():
        port = int(port)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65_536:
        raise ValueError(f"proxy target {place!r} has no port from 1 to 65535: {_FORMS}")
    return port
