"""What people call the server that a queue is on."""

from __future__ import annotations

from typing import Any

from redis.connection import parse_url

from .connect import Backend


def server_of(backend: Backend) -> str:
    """Its URL without what is secret, the folder of the private server, or what is known of the
    user's own client. Where no server is named, the private one is started.

    Raises:
        StoreUnavailable: the private server cannot be started.
        ValueError: ``$DEADQ_URL`` is odd.
    """
    if backend.given is not None:
        return _of_client(backend.given)
    if backend.private:
        from . import embedded  # late, as in embedded_url()

        return f"the private server in {embedded.status().folder}"
    scheme, _, _ = backend.url.partition("://")
    return _address(scheme, parse_url(backend.url))  # type: ignore[no-untyped-call]


def _of_client(client: Any) -> str:
    pool = getattr(client, "connection_pool", None)
    known = getattr(pool, "connection_kwargs", {})
    if "path" in known or "host" in known:
        return _address("redis", known)
    return f"a {type(client).__name__} client"


def _address(scheme: str, settings: dict[str, Any]) -> str:
    db = f"{settings.get('db') or 0}"
    if settings.get("path"):
        return f"unix://{settings['path']}{'' if db == '0' else f'?db={db}'}"
    host = settings.get("host") or "localhost"
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{settings.get('port') or 6379}/{db}"
