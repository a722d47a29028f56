"""From a description of a chain, as TOML and JSON have it, to the chain: checked, field by field.

::

    budget_s = 3.0                  # how long whoever calls the edge waits

    [tiers.web]                     # the edge: the one tier that no other calls
    work_s = 0.1                    # what it needs beside its calls (default 0)
    calls = [                       # one after the other ...
      "session",
      ["stock", "prices"],          # ... and those in a list of their own at the same time
      { tier = "payment", times = 2, timeout_s = 0.5 },
    ]

    [tiers.payment]                 # how it is called, where a call does not say it:
    timeout_s = 1.0                 # how long its callers wait for one try
    tries = 2                       # how often they try in all (default 1)
    backoff_s = 0.1                 # how long they pause at most before another try (default 0)
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..deadline import seconds
from ..errors import shown
from .chain import Call, Chain, Step, Tier

_GRANTS: Final = ("timeout_s", "tries", "backoff_s")
_OF_CHAIN: Final = ("budget_s", "tiers")
_OF_TIER: Final = (*_GRANTS, "work_s", "calls")
_OF_CALL: Final = ("tier", "times", *_GRANTS)

_MOST_TIERS, _MOST_TRIES, _MOST_TIMES = 100, 100, 1_000
_YEAR_S: Final = 366 * 86_400.0
_NAME_LENGTH: Final = 60

Table = Mapping[str, Any]


class _Group(NamedTuple):
    """Calls as they are described: several at the same time, or one."""

    at_once: bool
    calls: list[Table]


def chain_of(description: object) -> Chain:
    """The chain that is described.

    Raises:
        ValueError: in one line the tier, the field and what to do about it.
    """
    whole = _table(description, "the description", _OF_CHAIN)
    budget_s = _time(whole, "budget_s", "", "say how long whoever calls the edge waits (s)")
    tables = _tables(whole)
    groups = {name: _groups(name, table, tables) for name, table in tables.items()}
    order = _from_the_edge_down(groups)
    _check_edge(order[0], tables[order[0]])
    return Chain(budget_s, {name: _tier(name, groups[name], tables) for name in order})


def _from_the_edge_down(groups: Mapping[str, Sequence[_Group]]) -> list[str]:
    callers: dict[str, list[str]] = {name: [] for name in groups}
    for name, called in groups.items():
        for call in (call for group in called for call in group.calls):
            callers[call["tier"]].append(name)
    try:
        order = list(graphlib.TopologicalSorter(callers).static_order())
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ValueError(
            f"tiers call each other in a circle, {circle}: leave one of these calls out"
        ) from None
    edges = [name for name in order if not callers[name]]
    if len(edges) > 1:
        raise ValueError(
            f"no tier calls {' or '.join(edges[:5])}, and one alone can be the edge: leave the "
            "others out, or write down who calls them"
        )
    return order


def _tables(whole: Table) -> dict[str, Table]:
    if "tiers" not in whole:
        raise ValueError("tiers is missing: describe each in a table of its own, [tiers.NAME]")
    tiers = whole["tiers"]
    if not isinstance(tiers, Mapping) or not tiers:
        raise ValueError(f"tiers must be tables, [tiers.NAME], not {shown(tiers)}")
    if len(tiers) > _MOST_TIERS:
        raise ValueError(f"{len(tiers)} tiers are too many: describe {_MOST_TIERS} at most")
    for name in tiers:
        if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= _NAME_LENGTH):
            raise ValueError(
                f"a tier's name must be 1 to {_NAME_LENGTH} printable characters, not {shown(name)}"
            )
    return {name: _table(table, f"tier {name}", _OF_TIER) for name, table in tiers.items()}


def _check_edge(name: str, table: Table) -> None:
    for field in _GRANTS:
        if field in table:
            raise ValueError(
                f"tier {name}: {field} says how a tier is called, and no tier calls this one: "
                "leave it out, what the edge has is budget_s"
            )


def _groups(name: str, table: Table, tables: Mapping[str, Table]) -> list[_Group]:
    """What a tier calls, each with the tier's own name checked."""
    calls = table.get("calls", [])
    if not isinstance(calls, list | tuple):
        msg = f'tier {name}: calls must be a list, such as ["payment"], not {shown(calls)}'
        raise ValueError(msg)  # noqa: TRY004  every fault of a description is of one kind
    groups = []
    for given in calls:
        at_once = isinstance(given, list | tuple)
        if at_once and not given:
            raise ValueError(f"tier {name}: calls holds an empty list: leave it out")
        group = [_named(name, call, tables) for call in (given if at_once else [given])]
        groups.append(_Group(at_once, group))
    return groups


def _named(caller: str, given: object, tables: Mapping[str, Table]) -> Table:
    if isinstance(given, str):
        given = {"tier": given}
    call = _table(given, f"tier {caller}: a call", _OF_CALL)
    if "tier" not in call:
        raise ValueError(f"tier {caller}: a call's tier is missing: name the tier that is called")
    callee = call["tier"]
    if not isinstance(callee, str) or callee not in tables:
        known = ", ".join([name for name in tables if name != caller][:20]) or "none yet"
        raise ValueError(
            f"tier {caller}: calls names the unknown tier {shown(callee)}: describe it, or name "
            f"one of those described ({known})"
        )
    return call


def _tier(name: str, groups: Sequence[_Group], tables: Mapping[str, Table]) -> Tier:
    table, where = tables[name], f"tier {name}: "
    # looked at even where each call has its own
    if "timeout_s" in table:
        _time(table, "timeout_s", where)
    _number(table, "tries", where, _MOST_TRIES)
    _time(table, "backoff_s", where, default=0.0)
    steps = (
        Step(tuple(_call(name, call, tables) for call in group.calls), group.at_once)
        for group in groups
    )
    return Tier(name, _time(table, "work_s", where, default=0.0), tuple(steps))


def _call(caller: str, call: Table, tables: Mapping[str, Table]) -> Call:
    callee = call["tier"]
    place = f"tier {caller}: its call of {callee}: "

    def given(field: str) -> tuple[Table, str, str]:
        """Where it stands: the call's own comes first."""
        if field in call:
            return call, field, place
        return tables[callee], field, f"tier {callee}: "

    missing = f"say how long {caller} waits for one try of it (s)"
    return Call(
        callee,
        _number(call, "times", place, _MOST_TIMES),
        _time(*given("timeout_s"), missing),
        _number(*given("tries"), _MOST_TRIES),
        _time(*given("backoff_s"), default=0.0),
    )


def _table(given: object, what: str, fields: Sequence[str]) -> Table:
    if not isinstance(given, Mapping):
        msg = f"{what} must be a table of {', '.join(fields)}, not {shown(given)}"
        raise ValueError(msg)  # noqa: TRY004  as above
    for field in given:
        if field not in fields:
            raise ValueError(f"{what}: unknown field {shown(field)}: it takes {', '.join(fields)}")
    return given


def _time(
    table: Table, field: str, where: str, missing: str = "", *, default: float | None = None
) -> float:
    """Seconds; more than 0 where there is no default."""
    if field not in table:
        if default is None:
            raise ValueError(f"{where}{field} is missing: {missing}")
        return default
    number = seconds(table[field], where + field, positive=default is None)
    if number > _YEAR_S:
        raise ValueError(f"{where}{field} {number:g} s is longer than a year: give seconds")
    return number


def _number(table: Table, field: str, where: str, most: int) -> int:
    number = table.get(field, 1)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ValueError(
            f"{where}{field} must be a whole number from 1 to {most:,}, not {shown(number)}"
        )
    return number
