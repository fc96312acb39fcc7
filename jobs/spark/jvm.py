"""Spark's JVM as a process: what it writes to stderr, and how it ended.

Knows nothing of Spark. The JVM writes into a pipe, and its lines are passed on to our stderr. So its last
words are known when it cannot answer any more, and a run that a signal ends can drop the rest.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from jobs import logs

KEPT: Final = 1 << 16
"""How many bytes of its last words are kept."""
HELD_BACK: Final = 0.1
"""Seconds until lines are passed on: they may come of a signal that this process gets in the meantime."""
A_MOMENT: Final = 2.0
"""Seconds in which a process ends whose connections are closed."""
FATAL: Final = re.compile(
    r"Error: |Error occurred |Exception in thread |JAVA_HOME |.*No such file or directory"
)
"""Lines of Java, or of the scripts that start it, when it ends before anything runs."""
NOISE: Final = re.compile(
    r"Error: Could not create the Java |Error: A fatal exception |Error occurred during initialization "
    r"|WARNING: |(NOTE: )?Picked up |Run with --help|\d{4}-\d\d-|at |Caused by: |$"
)
"""Lines that do not hold the cause."""
SHORT: Final = re.compile(
    r"insufficient memory|Cannot allocate|OutOfMemory|temporarily unavailable|No space left|Too many open"
)
"""What the machine lacks now and may have later."""


class Jvm:
    """A JVM, from before it starts until it has ended."""

    def __init__(self) -> None:
        """Start nothing."""
        self.process: subprocess.Popen[bytes] | None = None
        self._words = bytearray()
        self._silent = threading.Event()
        self._listener: threading.Thread | None = None

    @contextmanager
    def launching(self) -> Iterator[dict[str, object]]:
        """Yield arguments for Popen: the JVM's stderr is a pipe whose lines are passed on."""
        from_jvm, to_us = os.pipe()
        self._listener = threading.Thread(target=self._pass_on, args=(from_jvm,), daemon=True)
        self._listener.start()
        try:
            yield {"stderr": to_us}
        finally:
            os.close(to_us)

    def _pass_on(self, from_jvm: int) -> None:
        while some := os.read(from_jvm, KEPT):
            self._words = (self._words + some)[-KEPT:]
            if not self._silent.wait(HELD_BACK):
                _write(some)
        os.close(from_jvm)

    def silence(self) -> None:
        """Pass on no more lines."""
        self._silent.set()

    def complaint(self) -> str | None:
        """Return why a JVM could not start, from its stderr; None where its options are not at fault."""
        lines = self.last_words()
        if not any(map(FATAL.match, lines)):
            return None
        cause = next((line for line in lines if not NOISE.match(line)), None)
        return cause and cause.removeprefix('Exception in thread "main" ').removeprefix("Error: ")

    def last_words(self) -> list[str]:
        """List the last lines of a JVM that has ended; none where the machine may have what it lacked."""
        self._await_last_words()
        lines = [line.strip() for line in self._words.decode(errors="replace").splitlines()]
        return [] if any(map(SHORT.search, lines)) else lines

    def death(self) -> str | None:
        """Return how the JVM died; None where it lives."""
        if self.process is None:
            return None
        try:
            code = self.process.wait(A_MOMENT)
        except subprocess.TimeoutExpired:
            return None
        if code >= 0:
            return f"it ended by itself with exit code {code}"
        with suppress(ValueError):
            return f"it was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"it was killed by signal {-code}"

    def end(self, patience: float) -> int | None:
        """End the JVM: close its stdin, which it watches; kill it after `patience`. Return its exit code."""
        if self.process is None:
            return None
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._await_last_words()
        return code

    def _await_last_words(self) -> None:
        """Wait until the pipe is read; a Python worker may keep it open a little longer than the JVM."""
        if self._listener is not None:
            self._listener.join(A_MOMENT)


def _write(some: bytes) -> None:
    """Write to stderr; on a terminal by Python's stream, which keeps a progress line below the log."""
    with suppress(OSError):
        if logs.for_people():
            sys.stderr.write(some.decode(errors="replace"))
        else:
            while some:
                some = some[os.write(2, some) :]
