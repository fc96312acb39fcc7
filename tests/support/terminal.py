"""A terminal of a size: what a command writes to it, as it came and as lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parents[2]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\")
ERASED = re.compile(r"\r\n|\r|\x1b\[2K")
"""Where the cursor goes to the begin of a line, or a line is emptied."""


def on_terminal(
    program: str, *arguments: object, columns: int = 80, stdout: int | None = None, **environ: str
) -> tuple[int, str]:
    """Run a Python program on a terminal; return its exit code and all that came there.

    With `stdout`, only stdin and stderr are the terminal.
    """
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, columns))
    usual = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=its,
        stdout=its if stdout is None else stdout,
        stderr=its,
        cwd=HERE,
        env=usual | {"TERM": "xterm-256color"} | environ,
    )
    os.close(its)
    came = bytearray()
    with suppress(OSError):  # the terminal closes with its last program
        while some := os.read(ours, 1 << 16):
            came += some
    os.close(ours)
    return child.wait(), came.decode()


def lines(came: str) -> list[str]:
    """List what stood in a line at any time, without its colours."""
    return [CONTROL.sub("", part).rstrip() for part in ERASED.split(came)]
