"""What ``deadq work tests.depot_served:queue`` serves: the depot that the environment describes.

The points outside of the handlers are reached by wrapping the runtime's own functions, in this
process alone.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadq.job import Claim
from deadq.runtime.loop import settler
from deadq.runtime.loop.async_runner import AsyncRunner
from deadq.runtime.process import exchange
from tests.depot import SERVED, Depot

_given = json.loads(os.environ[SERVED])
depot = Depot(None, Path(_given.pop("folder")), **_given)
queue = depot.queue

_claims: dict[str, Claim] = {}


def _halt(point: str, job: str) -> None:
    claim = _claims.get(job)
    if claim is not None:
        depot.block(point, claim.key, claim.attempt, claim.fence)


def _claimed(answer: Any) -> None:
    for claim in answer.claims:
        _claims[claim.id] = claim
        _halt("claimed", claim.id)


def _returned(settlement: Any) -> None:
    if settlement is not None:
        _halt("returned", settlement.id)


def _before(owner: Any, name: str, halt: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **named: Any) -> Any:
        halt(*args)
        return original(*args, **named)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, halt: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **named: Any) -> Any:
        value = original(*args, **named)
        halt(*args)
        return value

    setattr(owner, name, wrapped)


def _held(here: Any, run: Any) -> None:
    if run is not None:
        _halt("taken", run.claim.id)


_before(settler.Settler, "claimed", lambda here, child, number, answer, *_: _claimed(answer))
_before(AsyncRunner, "start", lambda runner, claim, *_: _halt("taken", claim.id))
_before(settler.Settler, "settle", lambda here, settlement: _returned(settlement))

_before(exchange.Exchange, "_claimed", lambda here, answer, *_: _claimed(answer))
_after(exchange.Exchange, "hold", _held)
_before(exchange.Exchange, "next", lambda here, report: _returned(report))

for module in (settler, exchange):
    _after(module, "say_finished", lambda report, *_: _halt("finished", report.id))
