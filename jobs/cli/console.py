"""The consoles: results go to stdout, all else to stderr.

Relies on rich, which writes no colours where nobody looks. A program gets JSON by jobs/cli/json_documents.py.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import structlog
from rich.console import Console
from rich.markup import escape

from jobs import logs
from jobs.cli.json_documents import print_document
from offsets.errors import KafkaDailyError

WIDE: Final = 10_000
"""The width of tables where stdout is no terminal, and COLUMNS names none: every column has room."""

_narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
out = Console(highlight=False, soft_wrap=True, width=None if _narrow else WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def failure(error: KafkaDailyError, *, as_json: bool, about: str = "") -> None:
    """Print why a run stopped: a paragraph on a terminal, else one line of the log that holds it.

    `about` names the topic where there are several.
    """
    if as_json:
        print_document(error.document())
    name, code = type(error).__name__, error.exit_code
    if logs.for_people():
        with err.capture() as paragraph:
            err.print(f"{escape(about)}{about and ': '}[bold red]{name}[/] (exit {code})", end=" ")
            err.print(str(error), markup=False)
        sys.stderr.write(paragraph.get())  # as all that is logged: above a progress line
    else:
        line = " ".join(str(error).split())
        structlog.get_logger().error(f"{name} (exit {code}) {line}", error=name, exit_code=code)
