"""``deadq``, the command: outside of the package, as importing that takes a moment, in which Ctrl-C
is to end the command as quietly as later."""

import signal


def main() -> None:
    """Run the command line of this process, and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is not ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from deadq.cli import main as run

    run()


if __name__ == "__main__":
    main()
