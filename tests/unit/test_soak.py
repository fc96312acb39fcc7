"""The soak's eye and hand: where a run is by its log, which moments are drawn, and which process dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jobs.demo.moments import Mark, Moment, Pace, Step, Steps
from jobs.demo.soak import _require_lawful
from jobs.demo.victims import Victim, kill_one
from offsets.errors import VerifyFailed
from tests.processes import command_of, descendants, lives, until

SPARK = "org.apache.spark.deploy.SparkSubmit"
DAEMON = "pyspark.daemon"
TREE = """
import os, subprocess, sys, time
below = os.environ["BELOW"].split()
if below:
    environment = os.environ | {"BELOW": " ".join(below[1:])}
    subprocess.Popen([sys.executable, "-c", os.environ["TREE"], below[0]], env=environment)
elif sys.argv[1].endswith(".daemon"):
    os.fork()
time.sleep(60)
"""


def test_a_step_begins_with_its_line_and_with_no_half_of_one(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("")
    steps = Steps(log)
    assert steps.look() is Step.START
    line = json.dumps({"event": "planned"}) + "\n"
    with log.open("a") as file:
        file.write(f"WARNING: no JSON\n[]\n{line}" + line[:9])
    assert steps.look() is Step.SPARK
    assert steps.began(Step.SPARK, 0) is not None
    assert steps.began(Step.SPARK, 1) is None
    with log.open("a") as file:
        file.write(line[9:] + '{"event": "committed"}\n')
    assert steps.look() is Step.AMEND
    assert steps.began(Step.SPARK, 1) is not None
    assert Moment(step=Step.SPARK, nth=1, delay=0).reached(steps)
    assert not Moment(step=Step.SPARK, nth=1, delay=60).reached(steps)
    assert not Moment(step=Step.COMMIT, nth=0, delay=0).reached(steps)


def test_every_step_is_drawn_and_no_moment_beyond_the_run() -> None:
    """A run of two days: a second for the start, then six steps of a second a day."""
    day = [Step.SPARK, Step.TASKS, Step.AUDIT, Step.COMMIT, Step.AMEND, Step.NEXT]
    pace = Pace([Mark(step, at) for at, step in enumerate([Step.START, *day, *day])], ended=13)
    rng = random.Random(1)
    for days, length in ((1, 7), (2, 13)):
        drawn = [pace.draw(rng, days) for _ in range(2000)]
        uniform = [each.delay for each in drawn if each.step is Step.START and each.delay > 1]
        assert length - 1 < max(uniform) <= length
        assert {(each.step, each.nth) for each in drawn} == {
            (Step.START, 0), *((step, nth) for step in day for nth in range(days))
        }  # fmt: skip
        assert all(0 <= each.delay <= 1 for each in drawn if each.step is not Step.START)


@contextmanager
def family(*below: str) -> Iterator[tuple[int, list[int]]]:
    """Start processes below each other, with command lines as in a run; give the driver and the others."""
    environment = os.environ | {"TREE": TREE, "BELOW": " ".join(below)}
    with subprocess.Popen([sys.executable, "-c", TREE, "driver"], env=environment) as driver:
        count, others = len(below) + below.count(DAEMON), list[int]()
        try:
            until(lambda: len(descendants(driver.pid)) == count)
            until(lambda: all(each in " ".join(map(command_of, descendants(driver.pid))) for each in below))
            yield driver.pid, (others := sorted(descendants(driver.pid)))
        finally:
            for pid in {driver.pid, *descendants(driver.pid), *others}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victim, dies", [(Victim.JVM, 0), (Victim.WORKER, 2)])
def test_the_wanted_process_dies_and_no_other(victim: Victim, dies: int) -> None:
    with family(SPARK, DAEMON) as (driver, others):
        assert kill_one(driver, victim, random.Random(1)) is victim
        until(lambda: not lives(others[dies]))
        assert lives(driver)
        assert [lives(pid) for pid in others] == [number != dies for number in range(3)]


@pytest.mark.parametrize("victim", Victim)
def test_the_driver_dies_where_the_wanted_process_is_not_there(victim: Victim) -> None:
    with family() as (driver, _):
        assert kill_one(driver, victim, random.Random(1)) is Victim.DRIVER
        until(lambda: not lives(driver))


@pytest.mark.parametrize(
    "hit, code, lawful",
    [
        (None, 0, True), (None, 15, False), (None, -9, False),
        (Victim.DRIVER, -9, True), (Victim.DRIVER, 0, False),
        (Victim.WORKER, 0, True), (Victim.WORKER, 15, True), (Victim.WORKER, 70, False),
        (Victim.JVM, 15, True), (Victim.JVM, 23, False),
    ],
)  # fmt: skip
def test_a_run_may_end_only_as_its_kill_explains(
    hit: Victim | None, code: int, lawful: bool, tmp_path: Path
) -> None:
    (log := tmp_path / "run.log").write_text("the end\n")
    if lawful:
        _require_lawful(hit, code, log)
    else:
        with pytest.raises(VerifyFailed, match="the end"):
            _require_lawful(hit, code, log)
