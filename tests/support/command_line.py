"""The command line, called in this process, and the document that it prints."""

from __future__ import annotations

import json
import signal
from typing import Any

from typer.testing import CliRunner

from jobs.cli.commands import app

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def invoke(*arguments: object) -> tuple[int, str, str]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    for number, handler in handlers.items():  # those of a command that failed end this process
        signal.signal(number, handler)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def document(*arguments: object) -> tuple[int, dict[str, Any]]:
    code, stdout, _ = invoke(*arguments, "--json")
    return code, json.loads(stdout)
