"""The commands that run something, or look at what runs: their arguments and their help. What they
do stands in modules of their own, each imported by its command alone: a worker that starts anew
after a crash has no time for the others'.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .words import Json, Url, help_unless_told, runners, shells

commands = typer.Typer()
server = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
commands.add_typer(server, name="server")


@server.callback()
def server_root(context: typer.Context) -> None:
    """Start, look at or stop this project's embedded server.

    Example: deadq server status
    """
    help_unless_told(context)


@commands.command()
def work(
    targets: Annotated[list[str], typer.Argument(metavar="MODULE:QUEUE")],
    concurrency: Annotated[
        int | None,
        typer.Option(help="Jobs at a time; default: 64, or the CPUs for plain handlers."),
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds for running jobs at a stop.")] = 30.0,
    runner: Annotated[
        str,
        typer.Option(help="async, process (plain handlers), or auto.", autocompletion=runners),
    ] = "auto",
    children: Annotated[
        int | None, typer.Option(help="Processes that share the slots (async runner).")
    ] = None,
    max_jobs: Annotated[
        int | None, typer.Option(help="Jobs after which a process is replaced.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Memory above which a process is replaced: 400MB, 1.5G.")
    ] = None,
    health_file: Annotated[
        Path | None, typer.Option(help="A file to keep fresh while the worker is ready.")
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer GET /health there: 200 or 503."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a Python file here changes.")
    ] = False,
    url: Url = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Log decisions to stderr."
        ),
    ] = 0,
) -> None:
    """Run the jobs of a queue, or of several, until stopped.

    At SIGTERM or Ctrl-C nothing more is started; what runs may end within the grace, the rest is
    given back. A second signal hastens that. Several queues share the concurrency by weight, as
    in shop.jobs:orders=3 shop.jobs:mails=1.

    Example: deadq work shop.jobs:queue --concurrency 16
    """
    if reload:
        from .reload import run_reloading

        argv = [word for word in sys.argv[1:] if word != "--reload"]
        raise typer.Exit(run_reloading(argv, Path.cwd(), grace))
    from .work import chosen
    from .work import work as run_worker

    config = chosen(concurrency, grace, runner, children, max_jobs, max_memory)
    run_worker(targets, config, health_file=health_file, health=health, url=url, verbose=verbose)


@commands.command()
def health(
    where: Annotated[str, typer.Argument(metavar="FILE|[HOST:]PORT")],
    max_age: Annotated[
        float, typer.Option(help="Seconds after which what a file says counts no more.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Ask a worker whether it is ready.

    By the file of its --health-file, or at the address of its --health. The exit code is 1 when
    it is not ready, or there is no such worker. A file whose name is a number is ./8080.

    Example: deadq health /run/shop/health
    """
    from .health import health as ask_health

    raise typer.Exit(ask_health(where, max_age=max_age, as_json=as_json))


@commands.command()
def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Leave it running afterwards, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
    seconds: Annotated[
        float, typer.Option(hidden=True, min=2.0, max=600.0, help="Length of the load.")
    ] = 50.0,
) -> None:
    """See it work, and go wrong: in about a minute.

    A web app, a bank, three workers, and orders with deadlines and keys that come whether or not
    there is room. At first all is calm; then come three times as many orders as can be done, a
    worker is killed with -9 and another one freezes, the bank gets slow. The exit code is 1 if an
    accepted order had no outcome, or two, or was paid twice. It has a server and a folder of its
    own, and leaves nothing behind.

    Example: deadq demo
    """
    from .demo import demo as run_demo

    raise typer.Exit(run_demo(seconds=seconds, as_json=as_json, serve=serve))


@commands.command()
def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", autocompletion=shells)],
) -> None:
    """Print what makes a shell complete command lines.

    Load it in the shell's start-up file, or keep it where the shell looks for completions:
    zsh, a file _deadq in a folder of $fpath; fish, ~/.config/fish/completions/deadq.fish.

    Example: deadq completion bash >> ~/.bashrc
    """
    from .completion import print_script

    print_script(shell)


@server.command()
def start(as_json: Json = False) -> None:
    """Start the server, unless it runs.

    Example: deadq server start
    """
    from . import server as server_commands

    server_commands.start(as_json=as_json)


@server.command()
def status(as_json: Json = False) -> None:
    """Say whether the server runs, and where.

    The exit code is 1 when it does not.

    Example: deadq server status --json
    """
    from . import server as server_commands

    raise typer.Exit(server_commands.status(as_json=as_json))


@server.command()
def stop(as_json: Json = False) -> None:
    """Stop the server; its data stays.

    Example: deadq server stop
    """
    from . import server as server_commands

    server_commands.stop(as_json=as_json)
