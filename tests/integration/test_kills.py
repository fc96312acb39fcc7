"""Kills and signals, at moments that nobody chose: a day is there whole or not at all, and a rerun is exact.

Each run here is a process of its own with a JVM of its own, since that is what dies.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from jobs.spark.engine import Engine
from tests.soak.kill_points import Step, Steps
from tests.soak.processes import Victim, all_of, kill_one
from tests.support import lake as lakes
from tests.support.engine import Child, Command, Configured
from tests.support.judged import SentRecord, assert_exact, night
from tests.support.killed import assert_lock_free, attempts
from tests.support.processes import command_of, descendants, jvm_of, lives, until
from tests.support.sampled import Record, drawn
from tests.support.two_days import DAYS

WAIT = 60.0
EXECUTOR = "CoarseGrainedExecutorBackend"
STEPS_DRAWN = 2


@pytest.mark.parametrize(
    "number, code, send",
    [(signal.SIGTERM, 143, os.kill), (signal.SIGINT, 130, os.kill), (signal.SIGINT, 130, os.killpg)],
    ids=["told to end", "interrupted", "Ctrl-C in a terminal"],
)
def test_a_signal_ends_a_run_with_its_code_and_one_paragraph_and_leaves_nothing_running(
    number: signal.Signals,
    code: int,
    send: Callable[[int, int], None],
    two_days: tuple[str, list[SentRecord]],
    configured: Configured,
    child: Child,
    command: Command,
    lake: Path,
) -> None:
    topic, words = two_days
    config = configured(topic)
    with child(config).started("run", "--date", str(DAYS[0])) as (driver, log):
        until(lambda: bool(attempts(lake)))
        family = descendants(driver.pid)
        kinds = " ".join(map(command_of, family))
        assert "java" in kinds
        assert "pyspark.daemon" in kinds
        send(driver.pid, number)
        assert driver.wait(WAIT) == code
        until(lambda: not any(map(lives, family)), seconds=30)
        text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if "Using incubator modules" not in line]
    assert [line["event"] for line in lines if line["level"] != "info"] == [lines[-1]["event"]], text
    assert "A day is committed whole or not at all" in lines[-1]["event"]
    assert not lakes.manifests(lake)
    assert not (lake / "_staging").exists()
    assert_whole_or_absent(lake)
    assert_lock_free(lake)
    assert command(config, "run", "--date", str(DAYS[0])).code == 0
    assert_exact(lake, words, [night(DAYS[0])])


def test_a_signal_while_spark_starts_leaves_nothing_running(
    two_days: tuple[str, list[SentRecord]], configured: Configured, child: Child, lake: Path
) -> None:
    with child(configured(two_days[0])).started("run", "--date", str(DAYS[0])) as (driver, log):
        until(lambda: any("java" in command_of(pid) for pid in descendants(driver.pid)))
        time.sleep(random.uniform(0, 1.0))
        family = descendants(driver.pid)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(WAIT) == 143, log.read_text()
        until(lambda: not any(map(lives, family)), seconds=30)
        assert "Traceback" not in log.read_text()
    assert_lock_free(lake)


def test_a_jvm_killed_in_a_task_is_named_as_what_ended_the_run(
    two_days: tuple[str, list[SentRecord]], configured: Configured, child: Child, lake: Path
) -> None:
    with child(configured(two_days[0])).started("run", "--date", str(DAYS[0])) as (driver, log):
        until(lambda: bool(attempts(lake)))
        assert kill_one(driver.pid, Victim.JVM, random.Random()) is Victim.JVM
        assert driver.wait(WAIT) == 15, log.read_text()
    text = log.read_text()
    assert "it was killed by signal 9 (SIGKILL)" in text
    assert "dmesg" in text
    assert "Connection refused" not in text
    assert "looking for timestamps" not in text
    assert not lakes.manifests(lake)


def test_a_jvm_killed_while_spark_starts_fails_the_run_and_the_rerun_is_exact(
    two_days: tuple[str, list[SentRecord]], configured: Configured, child: Child, command: Command, lake: Path
) -> None:
    topic, words = two_days
    config = configured(topic)
    with child(config).started("run", "--date", str(DAYS[0])) as (driver, log):
        until(lambda: any("SparkSubmit" in command_of(pid) for pid in descendants(driver.pid)))
        time.sleep(random.uniform(0, 2.0))
        assert kill_one(driver.pid, Victim.JVM, random.Random()) is Victim.JVM
        assert driver.wait(WAIT) == 15, log.read_text()
    assert "RunFailed" in log.read_text()
    assert not lakes.manifests(lake)
    assert_whole_or_absent(lake)
    assert command(config, "run", "--date", str(DAYS[0])).code == 0
    assert_exact(lake, words, [night(DAYS[0])])


def test_killed_workers_fail_the_run_and_the_rerun_is_exact(
    two_days: tuple[str, list[SentRecord]],
    engine: Engine,
    configured: Configured,
    command: Command,
    lake: Path,
) -> None:
    """Local mode does not retry."""
    topic, words = two_days
    config, jvm = configured(topic), jvm_of(engine)
    with killing_workers(lake, lambda: jvm) as killed:
        done = command(config, "run", "--date", str(DAYS[0]))
    assert killed
    assert done.code == 15, done.err
    assert "Python worker" in done.err
    assert "Traceback" not in done.err
    assert not lakes.manifests(lake)
    assert_whole_or_absent(lake)
    assert_lock_free(lake)
    assert command(config, "run", "--date", str(DAYS[0])).code == 0
    assert_exact(lake, words, [night(DAYS[0])])


def test_killed_workers_are_replaced_where_spark_may_and_the_day_is_exact(
    two_days: tuple[str, list[SentRecord]], configured: Configured, child: Child, lake: Path
) -> None:
    topic, words = two_days
    cli = child(configured(topic, {"spark": {"spark.master": "local[2,3]"}}))
    with cli.started("run", "--date", str(DAYS[0])) as (driver, log):
        with killing_workers(lake, lambda: driver.pid) as killed:
            code = driver.wait(WAIT * 2)
        assert code == 0, log.read_text()
    assert killed
    assert_exact(lake, words, [night(DAYS[0])])


@pytest.fixture
def cluster() -> Iterator[dict[str, dict[str, Any]]]:
    """A cluster of this machine's own processes: each executor is a JVM of its own."""
    short_lived = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    yield {"spark": {"spark.master": "local-cluster[2,1,1024]", **short_lived}, "lake": {"shared": True}}
    # executors leave their logs and jars below Spark's own folder, whatever they are told
    shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)


def test_a_killed_executor_is_replaced_and_the_day_is_exact(
    two_days: tuple[str, list[SentRecord]],
    configured: Configured,
    child: Child,
    lake: Path,
    cluster: dict[str, dict[str, Any]],
) -> None:
    topic, words = two_days
    cli = child(configured(topic, cluster))
    with cli.started("run", "--date", str(DAYS[0])) as (driver, log):
        until(lambda: bool(attempts(lake)) or driver.poll() is not None, seconds=2 * WAIT)
        executor = next(pid for pid in descendants(driver.pid) if EXECUTOR in command_of(pid))
        os.kill(executor, signal.SIGKILL)
        family = descendants(driver.pid)
        assert driver.wait(WAIT * 2) == 0, log.read_text()
        until(lambda: not any(map(lives, family)), seconds=30)
    assert "ExecutorLostFailure" in log.read_text()
    assert_whole_or_absent(lake)
    assert_exact(lake, words, [night(DAYS[0])])


def test_a_driver_killed_at_each_step_that_its_log_names_leaves_what_a_rerun_makes_exact(
    two_days: tuple[str, list[SentRecord]],
    configured: Configured,
    child: Child,
    command: Command,
    lake: Path,
    record_property: Record,
) -> None:
    """At some of them, drawn by a seed; the proof kills at each."""
    topic, words = two_days
    config, last = configured(topic), ("run", "--date", str(DAYS[1]))
    cli = child(config)
    assert command(config, "run", "--date", str(DAYS[0])).code == 0
    shutil.copytree(lake, one_day := lake.with_name("one-day"))
    committed: dict[Step, set[int]] = {
        Step.SPARK: {1},
        Step.TASKS: {1},
        Step.AUDIT: {1},
        Step.COMMIT: {1, 2},
        Step.AMEND: {2},
    }
    for step in drawn([*committed], STEPS_DRAWN, record_property):
        shutil.rmtree(lake)
        shutil.copytree(one_day, lake)
        with cli.started(*last) as (driver, log):
            steps = Steps(log)
            until(partial(_reached, driver, steps, step))
            driver.kill()
            assert driver.wait() == -signal.SIGKILL, log.read_text()
            assert_whole_or_absent(lake)
            assert_lock_free(lake)
            # it may have come a step further before the kill reached it
            assert len(lakes.manifests(lake)) in (committed | {Step.NEXT: {2}})[steps.look()], step
            # what the driver left behind may still be at work
            assert command(config, *last).code == 0
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        assert not list(lake.glob("date=*/_late/**/*.rows"))
        assert list(lake.glob(f"date={DAYS[0]}/part-late-{DAYS[1]}-*.parquet"))
        assert_exact(lake, words, [night(day) for day in DAYS])


def _reached(driver: subprocess.Popen[bytes], steps: Steps, step: Step) -> bool:
    assert driver.poll() is None, f"it ended before {step}"
    steps.look()
    return steps.began(step, 0) is not None


def test_of_a_zombie_attempt_that_writes_on_through_the_commit_nothing_is_seen(
    two_days: tuple[str, list[SentRecord]], configured: Configured, command: Command, lake: Path
) -> None:
    topic, words = two_days
    config, context = configured(topic), multiprocessing.get_context("spawn")
    ready, over, told = context.Event(), context.Event(), context.SimpleQueue()
    zombie = context.Process(target=_write_on, args=(lake, ready, over, told), daemon=True)
    zombie.start()
    try:
        assert ready.wait(WAIT)
        for day in DAYS:
            assert command(config, "run", "--date", str(day)).code == 0
    finally:
        over.set()
        runs = told.get()
        zombie.join(WAIT)
    assert sorted(run[:10] for run in runs) == list(map(str, DAYS))
    assert all(before > 0 and refused > 0 for before, refused in runs.values()), runs
    assert_whole_or_absent(lake)
    assert_exact(lake, words, [night(day) for day in DAYS])


def _write_on(lake: Path, ready: Event, over: Event, told: SimpleQueue[dict[str, tuple[int, int]]]) -> None:
    """Write rows that were settled elsewhere into an attempt of each run, for as long as it takes them.

    Tells for each run how many files it took, and how often it refused one.
    """
    row = pa.table({"kafka_partition": pa.array([0], pa.int32()), "kafka_offset": pa.array([0], pa.int64())})
    counts: dict[str, tuple[int, int]] = {}
    folders: dict[str, Path] = {}
    ready.set()
    try:
        while not over.wait(0.001):
            with suppress(OSError):  # folders come and go while they are looked for
                for attempts in (lake / "_staging").glob("20*/attempts"):
                    if attempts.parent.name not in folders:
                        (attempts / "0-zombie").mkdir()
                        folders[attempts.parent.name] = attempts / "0-zombie"
            for run, folder in folders.items():
                took, refused = counts.get(run, (0, 0))
                try:
                    pq.write_table(row, folder / f"part-{took:05d}.parquet.part")
                    counts[run] = took + 1, refused
                except OSError:
                    counts[run] = took, refused + 1
    finally:
        told.put(counts)


def assert_whole_or_absent(lake: Path) -> None:
    """Every day holds what its manifest names, late files here or where they go; all else lies in staging."""
    lie = {path.relative_to(lake).as_posix(): path for path in lakes.parquet_files(lake)}
    for document in lakes.manifests(lake):
        for file in document["files"]:
            source = lie.pop(f"date={document['day']['date']}/{file['path']}", None)
            target = lie.pop(file["target"], None)
            found = [path for path in (source, target) if path]
            assert [path.stat().st_size for path in found[:1]] == [file["bytes"]]
            assert found[0].samefile(found[-1])
    assert not lie
    assert len(list(lake.glob("date=*"))) == len(lakes.manifests(lake))
    others = {path.name for path in lake.iterdir() if not path.name.startswith("date=")}
    assert others <= {"_staging", "_lock", "_ledger", "_schema.json"}


class killing_workers:
    """Kill all Python workers below a driver or JVM, once a task has begun; the list then holds their pids.

    All, since one may be idle; and at once, since a warm task is over within moments.
    """

    def __init__(self, lake: Path, root: Callable[[], int]) -> None:
        self._lake, self._root, self._over = lake, root, threading.Event()
        self._killed: list[int] = []
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self) -> list[int]:
        self._thread.start()
        return self._killed

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _kill(self) -> None:
        while not self._over.wait(0.002):
            if lakes.begun(self._lake) and self._hit():
                return

    def _hit(self) -> list[int]:
        for pid in all_of(self._root(), Victim.WORKER):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._killed.append(pid)
        return self._killed
