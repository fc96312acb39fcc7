"""Run the command line: `python -m jobs`, and the program `kafka-daily`."""

import signal


def main() -> None:
    """Load the commands, which takes a moment, and run one."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in that moment is no traceback
    from jobs.cli.commands import main as run_command

    run_command()


if __name__ == "__main__":
    main()
