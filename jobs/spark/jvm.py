"""Spark's JVM as a process: what it writes to stderr, and how it ended.

Knows nothing of Spark. The JVM writes into a pipe, and its lines are passed on to our stderr: so its last
words are known where it cannot answer any more, and nothing is heard of it once a signal ends the run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

KEPT: Final = 1 << 16
"""So many bytes of its last words are kept."""
HELD_BACK: Final = 0.1
"""Lines are passed on after so many seconds: a signal that we get too may be what they complain of."""
A_MOMENT: Final = 2.0
"""A process whose connections are closed has ended by then."""
FATAL: Final = re.compile(
    r"Error: |Error occurred |Exception in thread |JAVA_HOME |.*No such file or directory"
)
"""By these Java, and the scripts that start it, end before anything runs."""
NOISE: Final = re.compile(
    r"Error: Could not create the Java |Error: A fatal exception |Error occurred during initialization "
    r"|WARNING: |(NOTE: )?Picked up |Run with --help|\d{4}-\d\d-|at |Caused by: |$"
)
"""Lines beside the one that says what is wrong."""
SHORT: Final = re.compile(
    r"insufficient memory|Cannot allocate|OutOfMemory|temporarily unavailable|No space left|Too many open"
)
"""What the machine may have again later."""


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
        """Return the arguments of Popen by which the JVM's stderr is ours to pass on."""
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
                with suppress(OSError):
                    while some:
                        some = some[os.write(2, some) :]
        os.close(from_jvm)

    def silence(self) -> None:
        """Pass nothing on any more."""
        self._silent.set()

    def complaint(self) -> str | None:
        """Return the line by which a JVM that could not start says that its options are at fault."""
        lines = self.last_words()
        if not any(map(FATAL.match, lines)):
            return None
        told = next((line for line in lines if not NOISE.match(line)), None)
        return told and told.removeprefix('Exception in thread "main" ').removeprefix("Error: ")

    def last_words(self) -> list[str]:
        """List what a JVM that has ended wrote last; nothing where it lacked what may be there later."""
        self._heard_out()
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
        """See the JVM off: close its input, which it watches, then insist; gives its exit code."""
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
        self._heard_out()
        return code

    def _heard_out(self) -> None:
        """Wait for the last words; a worker of its own may keep the pipe open a little longer."""
        if self._listener is not None:
            self._listener.join(A_MOMENT)
