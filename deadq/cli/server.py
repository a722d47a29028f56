"""``deadq server``: the embedded server of the project in the current folder."""

from __future__ import annotations

import sys
from dataclasses import asdict

from ..store import embedded
from .printing import print_json


def start(*, as_json: bool) -> None:
    """Start the server, or find that it runs.

    Raises:
        StoreUnavailable: it cannot be started, or does not answer.
    """
    said: list[str] = []
    url = embedded.ensure(announce=said.append)
    if as_json:
        print_json({"url": url, "started": bool(said)})
        return
    for line in said or [f"deadq: the server of this project runs at {url} already"]:
        sys.stdout.write(f"{line}\n")


def status(*, as_json: bool) -> int:
    """Say how the server is; the exit code is 1 when none runs."""
    found = embedded.status()
    if as_json:
        print_json({**asdict(found), "folder": str(found.folder)})
    elif not found.running:
        sys.stdout.write(
            f"deadq: no server runs for {found.folder}; 'deadq server start' does it\n"
        )
    elif found.url is None:
        sys.stdout.write(f"deadq: the server (pid {found.pid}) in {found.folder} is silent\n")
    else:
        sys.stdout.write(
            f"deadq: {found.version} (pid {found.pid}) serves {found.folder} at {found.url}\n"
        )
    return 0 if found.running else 1


def stop(*, as_json: bool) -> None:
    """Stop the server; its data stays.

    Raises:
        StoreUnavailable: it does not go.
    """
    stopped = embedded.stop()
    if as_json:
        print_json({"stopped": stopped})
    else:
        sys.stdout.write("deadq: stopped\n" if stopped else "deadq: no server was running\n")
