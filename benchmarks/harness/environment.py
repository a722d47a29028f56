"""What the figures depend on, and how busy everything was."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .server import PrivateServer


class Environment:
    """The environment block: versions, protocol, processors, load; begun before all else.

    A benchmark that talks to no server, such as a simulation, gives none.
    """

    def __init__(self, server: PrivateServer | None = None, **more: Any) -> None:
        self._busy = share_of(machine_busy_seconds)
        self._block: dict[str, Any] = {
            "deadq": _version("deadq") or _checkout(),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            **(_talk(server) if server else {}),
            "system": platform.platform(),
            "processors": os.cpu_count(),
            **more,
            "load_before": round(os.getloadavg()[0], 2),
        }

    def block(self) -> dict[str, Any]:
        """The block, with what came about since: ``busy`` counts processors, others' work too."""
        busy = self._busy()
        return {
            **self._block,
            "load_after": round(os.getloadavg()[0], 2),
            "busy": round(busy, 2) if busy == busy else None,  # noqa: PLR0124  NaN: not known
        }


def _talk(server: PrivateServer) -> dict[str, Any]:
    """Client, server, and what they speak."""
    said = server.info("server")
    name = str(said.get("server_name", "redis"))
    with server.client() as client:
        protocol = client.client_info().get("resp", "2")
    return {
        "redis-py": _version("redis"),
        "hiredis": _version("hiredis"),
        "server": f"{name} {said.get(f'{name}_version', said['redis_version'])}",
        "protocol": f"RESP{protocol}",
    }


def _checkout() -> str | None:
    """The commit that is checked out here, where deadq is not installed."""
    here = Path(__file__).parent
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607  whichever git there is
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def share_of(cpu_seconds: Callable[[], float]) -> Callable[[], float]:
    """Begin to measure; the function returned says what share of one processor was used since."""
    wall, cpu = time.monotonic(), cpu_seconds()
    return lambda: (cpu_seconds() - cpu) / max(1e-9, time.monotonic() - wall)


def machine_busy_seconds() -> float:
    """Processor seconds that the whole machine, others included, has spent since its start.

    NaN where the system does not say (no ``/proc``).
    """
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
    except OSError:
        return float("nan")
    user, nice, system, _, _, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
