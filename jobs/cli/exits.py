"""How a command ends: each error, each signal and wrong usage has its exit code.

A KafkaDailyError ends with its own code and one paragraph. Never handles a bug: that is an exception of
another kind, and `main` in jobs/cli/commands.py has its code.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from types import FrameType
from typing import Any, Final

import typer
from typer.core import TyperGroup

from jobs import logs
from offsets.errors import ConfigError, Interrupted, KafkaDailyError, Terminated

_USAGE_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""UsageError: typer takes it from click, or from its own copy of click."""
_WHOLE: Final = {
    "expected": "to run to the end",
    "do": "A day is committed whole or not at all: see `status`, and run it again.",
}
_A_MOMENT: Final = 2.0
"""Seconds in which one more signal is of the same cause: a terminal that closes sends two."""


class Signalled(KeyboardInterrupt):
    """A signal that ends the run.

    Not an Exception: py4j takes an Exception that is raised while it waits for the JVM for a broken
    connection (exit 70). After a KeyboardInterrupt it does not use its connection again.
    """

    def __init__(self, error: KafkaDailyError) -> None:
        """Keep the error that the signal means."""
        super().__init__()
        self.error = error


def error_of(ended: KafkaDailyError | Signalled) -> KafkaDailyError:
    """Return the error that ends a run, also where a signal ends it."""
    return ended.error if isinstance(ended, Signalled) else ended


@contextmanager
def exit_codes(as_json: bool) -> Iterator[None]:
    """Set up logs and signals; turn each known error into its message and its exit code."""
    from jobs.cli import console

    logs.configure()
    handler = _Handler()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
            signal.signal(number, handler)
    try:
        yield
    except (KafkaDailyError, Signalled) as ended:
        handler.stopped = ended  # before any call: in one, a signal that waits is handled
        handler.until = time.monotonic() + _A_MOMENT
        error = error_of(ended)
        console.failure(error, as_json=as_json)
        handler.until = 0.0  # in case a thread does not end
        raise typer.Exit(error.exit_code) from None


@dataclass(slots=True)
class _Handler:
    """Handle a signal: stop the run; once it has stopped, end the process with the same code.

    For a moment after the stop a signal changes nothing, so that the message is printed.
    """

    stopped: KafkaDailyError | Signalled | None = None
    until: float = inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.stopped is None:
            raise Signalled(_meaning(number))
        if time.monotonic() >= self.until:  # nobody reads the message, or all is said
            os._exit(error_of(self.stopped).exit_code)


def _meaning(number: int) -> KafkaDailyError:
    if number == signal.SIGINT:
        return Interrupted(**_WHOLE, found="Ctrl-C")
    return Terminated(**_WHOLE, found=signal.Signals(number).name)


class CommandGroup(TyperGroup):
    """The commands; wrong usage ends like any other error."""

    # typer names click's options one by one; they are passed on as they are
    def main(self, args: Sequence[str] | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Run a command, and exit with its code."""
        arguments = sys.argv[1:] if args is None else list(args)
        if not arguments:  # without any, typer shows the help
            return super().main(arguments, **options)
        try:
            sys.exit(super().main(arguments, **(options | {"standalone_mode": False})))
        except _USAGE_ERROR as error:
            from jobs.cli import console

            logs.configure()
            command = next((argument for argument in arguments if argument in self.commands), None)
            program = " ".join(filter(None, [options.get("prog_name") or "kafka-daily", command]))
            console.failure(_usage_problem(error, program), as_json="--json" in arguments)
            sys.exit(ConfigError.exit_code)


def _usage_problem(error: Any, program: str) -> ConfigError:
    # click's parser sets no ctx where an option lacks its value, or has one too many
    program = error.ctx.command_path if error.ctx else program
    usage = error.ctx.get_usage().removeprefix("Usage: ") if error.ctx else f"{program} [OPTIONS]"
    return ConfigError(
        expected=f"`{' '.join(usage.split())}`",
        found=error.format_message().rstrip("."),
        do=f"See `{program} --help`.",
    )
