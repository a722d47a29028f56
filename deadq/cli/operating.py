"""The commands that look at a queue and steer it: their arguments and their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .faults import Fault
from .words import Json, Limit, Target, Url, open_states

commands = typer.Typer()

QueueTarget = Annotated[str, typer.Argument(metavar="MODULE:QUEUE")]
"""Where a queue's own settings are needed."""

Job = Annotated[str, typer.Argument(metavar="JOB", help="Its id, or its key.")]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="Their ids, or their keys.")]


@commands.command()
def stats(
    target: Target,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Print a queue's depths and counters.

    Example: deadq stats checkout --json
    """
    from .stats import stats as print_stats

    print_stats(target, url=url, as_json=as_json)


@commands.command()
def check(
    target: Annotated[str | None, typer.Argument(metavar="MODULE:QUEUE")] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Jobs a second to plan for.", show_default="measured for a second"),
    ] = None,
    size: Annotated[
        float | None,
        typer.Option("--bytes", help="What a job takes.", show_default="that of some jobs there"),
    ] = None,
    chain: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Check a chain of calls instead (TOML or JSON): no queue needed."
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Check a database's table of units instead (postgresql:// or sqlite:///FILE).",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="With --sql: make the table, if there is none.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Say whether queue and server are fit, and what to change.

    Version, eviction, persistence, clock, rights, tasks, capacity, and memory for the rate. With
    --chain: the longest wait and the most calls that timeouts and tries add up to. With --sql: the
    table in which a unit is recorded together with its effect. The exit code is 1 when something
    is at fault.

    Example: deadq check shop.jobs:queue --rate 200
    """
    if sql is not None:
        from .sql import check_sql

        if [target, rate, size, chain, url] != [None] * 5:
            raise Fault("--sql URL stands alone: without MODULE:QUEUE and the other options")
        raise typer.Exit(check_sql(sql, create=create, as_json=as_json))
    if create:
        raise Fault("--create needs --sql URL: the database in which to make the table")
    if chain is not None:
        from .chain import check_chain

        if [target, rate, size, url] != [None] * 4:
            raise Fault("--chain FILE stands alone: without MODULE:QUEUE, --rate, --bytes or --url")
        raise typer.Exit(check_chain(chain, as_json=as_json))
    if target is None:
        raise Fault("name what to check: give MODULE:QUEUE, --chain FILE or --sql URL")
    from .check import check as check_all

    raise typer.Exit(check_all(target, rate=rate, size=size, url=url, as_json=as_json))


@commands.command()
def jobs(
    target: Target,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only those ready, running, later, suspect or strange.", autocompletion=open_states
        ),
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """List the unfinished jobs of a queue, the most urgent first.

    Those of one state as they wait there.

    Example: deadq jobs checkout --state running
    """
    from .jobs import jobs as list_jobs

    list_jobs(target, state=state, limit=limit, url=url, as_json=as_json)


@commands.command()
def show(target: Target, job: Job, as_json: Json = False, url: Url = None) -> None:
    """Show all that is known of one job, and where it failed.

    Example: deadq show checkout order-17
    """
    from .jobs import show as show_job

    show_job(target, job, url=url, as_json=as_json)


@commands.command()
def cancel(target: QueueTarget, jobs: Jobs, as_json: Json = False, url: Url = None) -> None:
    """Cancel jobs, whoever waits for them.

    One that waits never starts; one that runs is interrupted outside its units. The exit code is 1
    when one had ended by itself.

    Example: deadq cancel shop.jobs:queue order-17 order-18
    """
    from .steer import cancel as cancel_jobs

    raise typer.Exit(cancel_jobs(target, jobs, url=url, as_json=as_json))


@commands.command()
def dead(target: Target, limit: Limit = 50, as_json: Json = False, url: Url = None) -> None:
    """List the jobs that failed for good, the newest first.

    Example: deadq dead checkout --json
    """
    from .jobs import dead as list_dead

    list_dead(target, limit=limit, url=url, as_json=as_json)


@commands.command()
def requeue(
    target: QueueTarget,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB...]", help="Their ids, or their keys.")
    ] = None,
    within: Annotated[float, typer.Option(help="Seconds that each job gets.")] = 60.0,
    everything: Annotated[bool, typer.Option("--all", help="All dead jobs.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Submit dead jobs once more, with a new deadline.

    An admission like any other: the same arguments, under the same key, recorded units kept. The
    exit code is 1 when one was refused.

    Example: deadq requeue shop.jobs:queue --all --within 30
    """
    from .steer import requeue as requeue_jobs

    raise typer.Exit(
        requeue_jobs(
            target, jobs or [], everything=everything, within=within, url=url, as_json=as_json
        )
    )


@commands.command()
def pause(target: Target, as_json: Json = False, url: Url = None) -> None:
    """Refuse new jobs as "paused"; what was accepted goes on.

    Example: deadq pause checkout
    """
    from .steer import pause as pause_queue

    pause_queue(target, paused=True, url=url, as_json=as_json)


@commands.command()
def resume(target: Target, as_json: Json = False, url: Url = None) -> None:
    """Take new jobs again.

    Example: deadq resume checkout
    """
    from .steer import pause as pause_queue

    pause_queue(target, paused=False, url=url, as_json=as_json)


@commands.command()
def drain(
    target: Target,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most.", show_default="no end")
    ] = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Pause a queue, and wait until all that was accepted has ended.

    The exit code is 1 when that took longer than the timeout.

    Example: deadq drain checkout --timeout 60
    """
    from .steer import drain as drain_queue

    raise typer.Exit(drain_queue(target, timeout=timeout, url=url, as_json=as_json))
