"""The lanes of a test run: what they show, how they end, and that nothing outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from tests import lanes
from tests.support.inner_pytest import BARE, WAITS
from tests.support.processes import descendants, lives, until

PROGRAM = """
import os, sys
from tests import lanes
lanes.GRACE_SECONDS = float(os.environ.get("GRACE", 30))
pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra")
raise SystemExit(lanes.run([
    lanes.Lane(name="one", command=(*pytest, "test_one.py"), report=True),
    lanes.Lane(name="two", command=(*pytest, "test_two.py")),
]))
"""
PASSES = "def test_it(): pass\n"
FAILS = "def test_that_fails(): assert 1 == 2\n"
SKIPS = "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n"
REPORTS = """
import os
from pathlib import Path
def test_it(): Path("{name}").write_text(os.environ.get("KAFKA_DAILY_TEST_REPORT", "none"))
"""
HANGS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + WAITS


@contextmanager
def started(folder: Path, one: str, two: str, **extra: str) -> Iterator[subprocess.Popen[str]]:
    for name, text in (("one", one), ("two", two)):
        (folder / f"test_{name}.py").write_text(text.replace("{name}", name))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=os.environ | BARE | {"KAFKA_DAILY_TEST_REPORT": "report"} | extra,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.terminate()


def ended(folder: Path, one: str, two: str, **extra: str) -> tuple[int, list[str]]:
    with started(folder, one, two, **extra) as child:
        said = child.communicate()[0]
    return child.returncode, said.splitlines()


def test_lanes_that_pass_end_with_one_line(tmp_path: Path) -> None:
    code, said = ended(tmp_path, PASSES, PASSES + "def test_two(): pass\n")
    assert code == 0
    assert said[-1].startswith("passed in ")
    assert "one: passed, 1 passed in" in said[-1]
    assert "two: passed, 2 passed in" in said[-1]
    assert [line for line in said if line.startswith("== ")] == ["== one", "== two"]


def test_modules_are_compiled_once_whatever_the_environment_says(tmp_path: Path) -> None:
    """With the variable each of some hundred commands compiled all modules again."""
    one = "import sys\ndef test_it(): assert not sys.dont_write_bytecode\n"
    assert ended(tmp_path, one, PASSES, PYTHONDONTWRITEBYTECODE="1")[0] == 0


def test_colours_hide_neither_a_lane_that_passed_nor_a_failure(tmp_path: Path) -> None:
    """On a terminal pytest writes colours, and a lane that passed was taken for one without tests."""
    code, said = ended(tmp_path, PASSES, PASSES, FORCE_COLOR="1")
    assert any("\x1b[" in line for line in said)
    assert code == 0
    assert "two: passed, 1 passed in" in said[-1]
    code, said = ended(tmp_path, PASSES, FAILS, FORCE_COLOR="1")
    assert code == 1
    assert said[-2].startswith("FAILED test_two.py::test_that_fails")


@pytest.mark.parametrize("one, two", [(FAILS, PASSES), (PASSES, FAILS), (FAILS, FAILS)])
def test_a_failure_of_either_lane_is_shown_at_the_end_and_fails_both(
    one: str, two: str, tmp_path: Path
) -> None:
    code, said = ended(tmp_path, one, two)
    assert code == 1
    assert said[-1].startswith("FAILED in ")
    failed = [f"test_{name}.py" for name, text in (("one", one), ("two", two)) if text is FAILS]
    assert [line.split("::")[0] for line in said[-1 - len(failed) : -1]] == [f"FAILED {n}" for n in failed]
    assert [line.split() for line in said].count(["E", "assert", "1", "==", "2"]) == len(failed)


@pytest.mark.parametrize(
    "two", [SKIPS, "", "import nothing_of_that_name\n"], ids=["skipped", "none", "broken"]
)
def test_a_lane_in_which_no_test_passed_fails(two: str, tmp_path: Path) -> None:
    code, said = ended(tmp_path, PASSES, two)
    assert code != 0
    assert "one: passed" in said[-1]
    assert "two: FAILED" in said[-1]


def test_one_lane_alone_writes_the_report(tmp_path: Path) -> None:
    assert ended(tmp_path, REPORTS, REPORTS)[0] == 0
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["report", "none"]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_tears_both_lanes_down(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with started(tmp_path, WAITS, WAITS) as child:
        until(lambda: len(list(tmp_path.glob("* waits"))) == 2)
        below = descendants(child.pid)
        child.send_signal(number)
        said = child.communicate()[0].splitlines()
    assert child.returncode == code
    assert len(list(tmp_path.glob("torn down by *"))) == 2
    assert said[-1].startswith("FAILED in ")
    assert len(below) == 4
    assert not any(map(lives, below))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_test_run_without_lanes_is_torn_down_too(number: signal.Signals, tmp_path: Path) -> None:
    """`./run.sh test` with arguments is pytest alone, which left a broker in its container."""
    (tmp_path / "test_it.py").write_text(WAITS.replace("{name}", "it"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.support.signals",
        "test_it.py",
    ]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | BARE, stdout=subprocess.DEVNULL) as child:
        until((tmp_path / "it waits").exists)
        child.send_signal(number)
    assert child.returncode == pytest.ExitCode.INTERRUPTED
    assert (tmp_path / "torn down by it").exists()


def test_lanes_whose_parent_is_killed_are_torn_down(tmp_path: Path) -> None:
    """No handler hears SIGKILL: pytest went on, with its broker and its JVM."""
    with started(tmp_path, WAITS, WAITS) as child:
        until(lambda: len(list(tmp_path.glob("* waits"))) == 2)
        below = descendants(child.pid)
        child.kill()
        child.communicate()
    try:
        until(lambda: len(list(tmp_path.glob("torn down by *"))) == 2, seconds=10)
        until(lambda: not any(map(lives, below)), seconds=10)
    finally:
        for pid in filter(lives, below):
            os.kill(pid, signal.SIGKILL)
    assert len(below) == 4


def test_each_lane_is_one_process_that_hears_of_our_end() -> None:
    """A shell between us and mypy would die of it alone."""
    assert not [lane for lane in lanes.LANES if lane.command[0] == "sh"]


def test_each_test_is_in_one_lane() -> None:
    """By its folder, or else by its markers: one that is in none would never run."""
    commands = [lane.command for lane in lanes.LANES if lane.tests]
    folders = [command[-1] for command in commands if command[-2] != "-m"]
    by_markers = [command for command in commands if command[-2] == "-m"]
    for command in by_markers:
        assert command[len(lanes.PYTEST) : -2] == ("tests", *(f"--ignore={folder}" for folder in folders))
    for spark, alone in product((False, True), repeat=2):
        markers = {"spark": spark, "alone": alone}
        assert [eval(command[-1], {}, markers) for command in by_markers].count(True) == 1


NICENESS = (
    "import os, pathlib; print(os.nice(0), *(p.read_text() for p in [pathlib.Path('{path}')] if p.exists()))"
)


def test_the_lanes_that_wait_go_first(tmp_path: Path) -> None:
    """The last minutes were theirs alone, and in them the cores had little to do."""
    command = (sys.executable, "-S", "-c", NICENESS.format(path=lanes.AUTOGROUP))
    found = []
    for nice in (0, lanes.PATIENT):
        lane = lanes.Lane(name=f"nice {nice}", command=command, tests=False, nice=nice)
        with lanes.start(lane, tmp_path) as started:
            assert started.code() == 0, started.said()
        own, *session = started.said().split()
        assert session[2:] in ([], [str(nice)])
        found.append(int(own))
    assert found[1] == min(found[0] + lanes.PATIENT, 19)
    assert [lane.name for lane in lanes.LANES if not lane.nice] == ["brokers", "Spark"]


def test_a_lane_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    with started(tmp_path, PASSES, HANGS, GRACE="0.5") as child:
        until(lambda: (tmp_path / "two waits").exists())
        below = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        child.communicate()
    assert child.returncode == 143
    assert len(below) >= 2
    until(lambda: not any(map(lives, below)), seconds=5)
