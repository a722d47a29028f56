"""``deadq server``: the embedded server of the project in the current folder."""

from __future__ import annotations

from dataclasses import asdict

from ..store import embedded
from .printing import print_json, say


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
        say(line.removeprefix("deadq: "))


def status(*, as_json: bool) -> int:
    """Say how the server is; the exit code is 1 when none runs."""
    found = embedded.status()
    if as_json:
        print_json({**asdict(found), "folder": str(found.folder)})
    elif not found.running:
        say(none_runs(found))
    elif found.url is None:
        say(f"the server (pid {found.pid}) in {found.folder} is silent")
    else:
        say(f"{found.version} (pid {found.pid}) serves {found.folder} at {found.url}")
    return 0 if found.running else 1


def none_runs(found: embedded.ServerStatus) -> str:
    """What to say of a project without a server."""
    return f"no server runs for {found.folder}; 'deadq server start' does it"


def stop(*, as_json: bool) -> None:
    """Stop the server; its data stays.

    Raises:
        StoreUnavailable: it does not go.
    """
    stopped = embedded.stop()
    if as_json:
        print_json({"stopped": stopped})
    else:
        say("stopped" if stopped else "no server was running")
