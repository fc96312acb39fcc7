"""Runs the types' checks and all tests at once, in lanes that take about as long.

Each lane is one command; the tests' four are plain pytest, so that one of them has the one session of Spark.
The two that wait for brokers and for JVMs go first; the two that only calculate take what these leave.
One lane is shown at a time, as it goes, and the failures of all again at the end. A signal reaches every lane
as Ctrl-C would, SIGKILL of this process too. Never leaves a process behind: a lane that hangs is killed with
all that it started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from jobs.demo.children import bound_to
from offsets.errors import KafkaDailyError
from tests.support.processes import descendants

POLL_SECONDS: Final = 0.1
GRACE_SECONDS: Final = 30.0
"""How long a lane may take to end. It is asked twice: a test may take the first signal as its own."""
REPORT: Final = "KAFKA_DAILY_TEST_REPORT"
UNCOMPILED: Final = "PYTHONDONTWRITEBYTECODE"
"""With it every lane, and each of some hundred commands that tests start, compiles all modules again."""
FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) \S+\.py\b.*", re.MULTILINE)
RESULT: Final = re.compile(r"^=*\s*(\d+ \w+.* in \d[\d.]*s\b.*?)\s*=*$", re.MULTILINE)
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
MODULE: Final = (sys.executable, "-m")
PYTEST: Final = (*MODULE, "pytest")
OTHERS: Final = ("tests", "--ignore=tests/unit", "--ignore=tests/faults")
BIN: Final = Path(sys.executable).parent
AUTOGROUP: Final = Path("/proc/self/autogroup")
"""Linux shares the cores between sessions first: niceness counts within one, and each has its own here."""
PATIENT: Final = 5
"""The niceness of a lane that never waits: a third of the share of one that does, where both want a core."""
LAST: Final = 10
"""The niceness of what is made for tests that come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A command. One of tests fails where none of them passed; one alone writes the report about brokers.

    `nice` is how far it stands back behind the others.
    """

    name: str
    command: Sequence[str]
    tests: bool = True
    report: bool = False
    nice: int = 0


LANES: Final = (
    # no shell before them: it would take the signal of our death for itself
    Lane(name="types", command=(str(BIN / "mypy"),), tests=False, nice=PATIENT),
    Lane(name="imports", command=(str(BIN / "lint-imports"),), tests=False, nice=PATIENT),
    # each test is in one of the four, by its folder or else by its markers, so that none is forgotten
    Lane(name="unit", command=(*PYTEST, "tests/unit"), nice=PATIENT),
    Lane(name="faults", command=(*PYTEST, "tests/faults"), nice=PATIENT),
    Lane(name="brokers", command=(*PYTEST, *OTHERS, "-m", "not spark or alone")),
    Lane(name="Spark", command=(*PYTEST, *OTHERS, "-m", "spark and not alone"), report=True),
    # once for a set-up; the tests that need one come last in their lane, and wait for it
    Lane(name="stores", command=(*MODULE, "tests.support.object_servers"), tests=False, nice=LAST),
)


@dataclass(slots=True, kw_only=True)
class Started:
    """A lane that runs, or ran, and what it wrote."""

    lane: Lane
    process: subprocess.Popen[bytes]
    log: Path
    shown: int = 0

    def show(self) -> None:
        """Write to stdout what came since it was last asked."""
        with self.log.open("rb") as file:
            file.seek(self.shown)
            sys.stdout.buffer.write(new := file.read())
            sys.stdout.buffer.flush()
        self.shown += len(new)

    def said(self) -> str:
        """Return all that it wrote, without the colours in which a terminal shows it."""
        return COLOUR.sub("", self.log.read_text(errors="replace"))

    def result(self) -> str:
        """Return pytest's last word; "" where it had none."""
        found = list(RESULT.finditer(self.said()))
        return found[-1].group(1) if found else ""

    def code(self) -> int:
        """Return the exit code; tests of which none passed, since all were skipped, prove nothing."""
        code = self.process.wait()
        return 1 if code == 0 and self.lane.tests and " passed" not in f" {self.result()}" else code

    def verdict(self) -> str:
        """Return how it ended, in a few words."""
        ended = "passed" if self.code() == 0 else f"FAILED with {self.code()}"
        return f"{self.lane.name}: " + ", ".join(filter(None, [ended, self.result()]))


class Signals:
    """Whether somebody asked for an end: the lanes are asked too, and once more, and then killed."""

    def __init__(self) -> None:
        """Listen, also where a shell that started this in the background ignores Ctrl-C."""
        self.number, self._left, self._due = 0, [signal.SIGINT, signal.SIGINT, signal.SIGKILL], 0.0
        heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in heard}

    def restore(self) -> None:
        """Listen no more: who called us hears again as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number

    def pass_on(self, started: Sequence[Started]) -> None:
        """Send the lanes what is due by now."""
        if not self.number or not self._left or time.monotonic() < self._due:
            return
        number, self._due = self._left.pop(0), time.monotonic() + GRACE_SECONDS
        for each in started:
            end(each.process, number)


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a lane that still runs; SIGKILL to all below it, in whatever session."""
    if process.poll() is not None:
        return
    if number is not signal.SIGKILL:
        os.killpg(process.pid, number)
        return
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def nice_and_bound_to(parent: int, nice: int) -> Callable[[], None]:
    """Return what a new process calls first: it is nice, and is asked to end if its parent is killed."""
    bind = bound_to(parent, signal.SIGINT)

    def begin() -> None:
        if nice:
            os.nice(nice)
            with suppress(OSError):  # a kernel without it, or one whose /proc is read-only
                AUTOGROUP.write_text(str(nice))
        bind()

    return begin


@contextmanager
def start(lane: Lane, folder: Path) -> Iterator[Started]:
    """Start a lane in a session of its own, and make sure that it is over when the block is left."""
    log = folder / f"{lane.name}.log"
    without = {UNCOMPILED} | ({REPORT} if not lane.report else set())
    environment = {key: text for key, text in os.environ.items() if key not in without}
    environment |= {"FORCE_COLOR": "1"} if sys.stdout.isatty() else {}
    with (
        log.open("wb") as file,
        subprocess.Popen(
            lane.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=nice_and_bound_to(os.getpid(), lane.nice),
        ) as process,
    ):
        try:
            yield Started(lane=lane, process=process, log=log)
        finally:
            end(process, signal.SIGKILL)


def run(lanes: Sequence[Lane]) -> int:
    """Run all lanes at once, and return a signal's exit code, else that of the first lane that failed."""
    began, signals = time.monotonic(), Signals()
    with ExitStack() as held:
        held.callback(signals.restore)
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="kafka-daily-lanes-")))
        started = [held.enter_context(start(lane, folder)) for lane in lanes]
        for each in started:
            print(f"\n== {each.lane.name}", flush=True)
            while each.process.poll() is None:
                signals.pass_on(started)
                each.show()
                time.sleep(POLL_SECONDS)
            each.show()
        failed = [code for each in started if (code := each.code())]
        _sum_up(started, time.monotonic() - began, failed=bool(failed or signals.number))
    return 128 + signals.number if signals.number else next((abs(code) for code in failed), 0)


def _sum_up(started: Sequence[Started], seconds: float, *, failed: bool) -> None:
    """Repeat the failures of all lanes, and end with one line."""
    print()
    for each in started:
        print(*(f"{line}\n" for line in FAILURE.findall(each.said())), sep="", end="")
    verdicts = "; ".join(each.verdict() for each in started)
    print(f"{'FAILED' if failed else 'passed'} in {seconds:.0f} s: {verdicts}", flush=True)


def main() -> None:
    """Make what lets brokers start sooner, and run all lanes."""
    from tests.support.broker_classes import make_class_archive  # lanes alone need no client of Kafka

    try:
        make_class_archive()
    except (KafkaDailyError, OSError) as failed:
        print(f"brokers start some seconds later, without an archive of their classes: {failed}", flush=True)
    raise SystemExit(run(LANES))


if __name__ == "__main__":
    main()
