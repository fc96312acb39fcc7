"""The real command line as child processes, which end when we do.

Relies on a session of its own for each child: Ctrl-C is ours to handle, and a child's JVM is in its group.
Never ends a process that it did not start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jobs
from offsets.errors import RunFailed

GRACE_SECONDS: Final = 10.0
TAIL_LINES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended; `out` is what it printed."""

    exit_code: int
    seconds: float
    out: str


class CommandLine:
    """Runs `kafka-daily` with one config; what a command writes to stderr is kept in a folder of logs."""

    def __init__(self, config: Path, logs: Path, *, width: int) -> None:
        """Take the config and the width that tables may have."""
        self._folder, self._logs, self._number = config.parent, logs, 0
        self._environment = {
            "KAFKA_DAILY_CONFIG": str(config),
            "PYTHONPATH": _package_path(),
            "COLUMNS": str(width),
        }
        logs.mkdir(exist_ok=True)

    def run(self, *arguments: str) -> Ended:
        """Run one command to its end.

        Raises:
            RunFailed: its exit code is not 0.
        """
        started = time.monotonic()
        with self.started(*arguments) as (child, log):
            code = child.wait()
        seconds = time.monotonic() - started
        out = log.with_suffix(".out").read_text()
        if code:
            tail = "\n".join(log.read_text().splitlines()[-TAIL_LINES:])
            raise RunFailed(
                expected=f"`kafka-daily {' '.join(arguments)}` to succeed",
                found=f"exit code {code}; it ended with:\n{out}{tail}\n",
                do="This is the demo's own broker and lake: look at the message above.",
            )
        return Ended(exit_code=code, seconds=seconds, out=out)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Start one command; when the block is left, it has ended, with all its children."""
        self._number += 1
        log = self._logs / f"{self._number:02d}-{arguments[0]}.log"
        with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "jobs", *arguments],
                cwd=self._folder,
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            yield child, log
        finally:
            _end(child)


def _package_path() -> str:
    """Return the import path by which a child finds this very package, installed or not."""
    here = str(Path(jobs.__file__).resolve().parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a command as a crash would: its driver alone, without a warning."""
    child.send_signal(signal.SIGKILL)
    child.wait()


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    deadline = time.monotonic() + GRACE_SECONDS
    while _group_lives(child.pid) and time.monotonic() < deadline:
        child.poll()
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
