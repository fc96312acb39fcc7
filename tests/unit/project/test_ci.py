"""What .ci/run makes of the tests' end, with stand-ins for Docker's daemon and for run.sh."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import descendants, lives, until

ROOT = Path(__file__).parents[3]
DAEMON = """#!/bin/sh
exec "{python}" -c '
import pathlib, socket, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
listening = socket.socket(socket.AF_UNIX)
listening.bind(given["--host"].removeprefix("unix://"))
pathlib.Path(given["--pidfile"]).write_text("1")
time.sleep(300)' "$@"
"""
RUN = """#!/bin/bash
[[ $1 == test ]] || {{ mkdir -p .kafka-daily && : >.kafka-daily/setup.log && exec sleep {setup}; }}
trap 'touch "{said}/torn down"; exit 143' TERM INT
touch "{said}/begun"
{tests}
"""
WAITS = "sleep 300 & wait"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder whose path leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@contextmanager
def started(folder: Path, tests: str, setup: int) -> Iterator[subprocess.Popen[str]]:
    (folder / "bin").mkdir()
    (folder / "tmp").mkdir()
    (folder / "bin" / "dockerd").write_text(DAEMON.format(python=sys.executable))
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "run.sh").write_text(RUN.format(said=folder, tests=tests, setup=setup))
    for program in ("bin/dockerd", "run.sh"):
        (folder / program).chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    child = subprocess.Popen(
        ["env", "--default-signal=INT", folder / ".ci" / "run"],  # who runs the tests may ignore it
        env=os.environ | {"PATH": path, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        for pid in [*descendants(child.pid), child.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.communicate()


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_all_at_once_and_leaves_nothing(
    number: signal.Signals, code: int, folder: Path
) -> None:
    """It was heard only once the tests were over; who lost patience and killed it left a daemon behind."""
    with started(folder, WAITS, setup=300) as child:
        until((folder / "begun").exists)
        below = descendants(child.pid)
        child.send_signal(number)
        child.communicate(timeout=20)
    assert child.returncode == code
    assert (folder / "torn down").exists()
    assert len(below) >= 3
    until(lambda: not any(map(lives, below)), seconds=5)
    assert not list((folder / "tmp").iterdir())


@pytest.mark.parametrize(
    "tests, code",
    [
        ("exit 3", 3),
        ("exit 0", 1),
        ("echo kind=process passed=9 >$KAFKA_DAILY_TEST_REPORT", 1),
        ("echo kind=containers passed=0 >$KAFKA_DAILY_TEST_REPORT", 1),
    ],
    ids=["failed", "no report", "no container", "no test"],
)
def test_tests_that_failed_or_proved_nothing_are_not_passed(tests: str, code: int, folder: Path) -> None:
    with started(folder, tests, setup=300) as child:
        child.communicate(timeout=30)
    assert child.returncode == code
    assert not list((folder / "tmp").iterdir())


def test_another_python_than_the_newest_at_hand_proves_nothing(folder: Path) -> None:
    """run.sh passes over a Python that lacks a part, and the report said that the newest one had passed."""
    other = """bin=$KAFKA_DAILY_HOME/venv/bin; mkdir -p $bin
printf '#!/bin/sh\\necho 3.9\\n' >$bin/python; chmod +x $bin/python
echo kind=containers passed=9 >$KAFKA_DAILY_TEST_REPORT"""
    with started(folder, other, setup=300) as child:
        said = child.communicate(timeout=30)[0]
    assert child.returncode == 1
    assert "run.sh took another one" in said
