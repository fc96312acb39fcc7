"""Kills and signals, at moments that nobody chose: a day is there whole or not at all, and a rerun is exact.

Each run here is a process of its own with a JVM of its own, since that is what dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.demo.children import CommandLine
from jobs.source import Engine
from tests import lake as lakes
from tests.brokers import Broker, MakeTopic
from tests.engine import FIRST, Child, Command, Configured
from tests.oracle import Said, assert_exact, midnight, night, said
from tests.processes import command_of, descendants, jvm_of, lives, parent_of, until
from tests.produce import Record, order, send

DAYS = [FIRST, FIRST + timedelta(days=1)]
ROWS = 30_000
"""So many records a partition that tasks write for a while."""
WAIT = 60.0


@pytest.fixture
def two_days(broker: Broker, topic: MakeTopic) -> tuple[str, list[Said]]:
    """Two days of orders over two partitions; every ninth is an hour behind its stamp."""
    name, start = topic(partitions=2), midnight(DAYS[0])
    records: list[Record] = []
    for number in range(ROWS):
        stamp = start + timedelta(hours=47) * number / ROWS
        at = stamp - timedelta(hours=1) if number % 9 == 0 else stamp
        records += [order(at, partition, stamp=stamp, n=number) for partition in range(2)]
    offsets = send(broker.bootstrap_servers, name, records)
    words = said(records, offsets)
    late = timedelta(hours=1)
    return name, [
        Said(
            partition=each.partition,
            offset=each.offset,
            stamp=each.stamp,
            happened=each.happened - late if number // 2 % 9 == 0 and each.happened else each.happened,
        )
        for number, each in enumerate(words)
    ]


def test_after_kills_at_three_random_moments_a_rerun_is_exact(
    two_days: tuple[str, list[Said]], configured: Configured, child: Child, lake: Path
) -> None:
    topic, words = two_days
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}")  # pytest shows it when the test fails
    cli = child(configured(topic))
    moments: list[Callable[[], bool]] = [
        lambda: bool(attempts(lake)),  # while tasks write
        lambda: any((lake / "_staging").glob("*/day/*")),  # around the commit
        lambda: True,  # wherever the run is
    ]
    rng.shuffle(moments)
    for reached in moments:
        committed = len(lakes.manifests(lake))
        _kill_at(cli, rng, reached)
        assert_whole_or_absent(lake)
        assert len(lakes.manifests(lake)) >= committed
        assert_lock_free(lake)
    for _ in range(2):
        with cli.started("run", "--from", str(DAYS[0]), "--to", str(DAYS[1])) as (driver, log):
            assert driver.wait(WAIT * 2) == 0, log.read_text()
    assert_exact(lake, words, [night(day) for day in DAYS])


def _kill_at(cli: CommandLine, rng: random.Random, reached: Callable[[], bool]) -> None:
    """Kill a driver a little after a moment; one that is reached at once means any time of the run."""
    with cli.started("run", "--from", str(DAYS[0]), "--to", str(DAYS[1])) as (driver, _):
        longest = 8.0 if reached() else 0.4
        until(lambda: reached() or driver.poll() is not None)
        time.sleep(rng.uniform(0, longest))
        family = descendants(driver.pid)
        driver.kill()
        driver.wait()
        until(lambda: not any(map(lives, family)))


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_with_its_code_and_leaves_nothing_running(
    number: signal.Signals,
    code: int,
    two_days: tuple[str, list[Said]],
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
        driver.send_signal(number)
        assert driver.wait(WAIT) == code
        until(lambda: not any(map(lives, family)), seconds=30)
        text = log.read_text()
    assert "Traceback" not in text, text
    assert "A day is committed whole or not at all" in text
    assert not lakes.manifests(lake)
    assert_whole_or_absent(lake)
    assert_lock_free(lake)
    assert command(config, "run", "--date", str(DAYS[0])).code == 0
    assert_exact(lake, words, [night(DAYS[0])])


def test_a_signal_while_spark_starts_leaves_nothing_running(
    two_days: tuple[str, list[Said]], configured: Configured, child: Child, lake: Path
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


def test_a_killed_worker_fails_the_run_and_the_rerun_is_exact(
    two_days: tuple[str, list[Said]], engine: Engine, configured: Configured, command: Command, lake: Path
) -> None:
    """Local mode does not retry."""
    topic, words = two_days
    config, jvm = configured(topic), jvm_of(engine)
    with killing_a_worker(lake, lambda: jvm) as killed:
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


def test_a_killed_worker_is_retried_where_spark_may_and_the_day_is_exact(
    two_days: tuple[str, list[Said]], configured: Configured, child: Child, lake: Path
) -> None:
    topic, words = two_days
    cli = child(configured(topic, {"spark": {"spark.master": "local[2,3]"}}))
    with cli.started("run", "--date", str(DAYS[0])) as (driver, log):
        with killing_a_worker(lake, lambda: driver.pid) as killed:
            code = driver.wait(WAIT * 2)
        assert code == 0, log.read_text()
    assert killed
    assert_exact(lake, words, [night(DAYS[0])])


def test_of_two_runs_at_once_one_commits(
    two_days: tuple[str, list[Said]], configured: Configured, child: Child, lake: Path
) -> None:
    topic, words = two_days
    cli = child(configured(topic))
    command = ("run", "--date", str(DAYS[0]), "--json")
    with cli.started(*command) as (one, log), cli.started(*command) as (two, other):
        codes = {one.wait(WAIT * 2): log, two.wait(WAIT * 2): other}
    assert 0 in codes, log.read_text()
    assert set(codes) <= {0, 11}
    if 11 in codes:
        refusal = json.loads(codes[11].with_suffix(".out").read_text())
        assert refusal["error"] == "LakeLocked"
    assert len(lakes.manifests(lake)) == 1
    assert_exact(lake, words, [night(DAYS[0])])


def attempts(lake: Path) -> list[Path]:
    """Find the files that tasks are writing."""
    return list((lake / "_staging").glob("*/attempts/*/*.part"))


def assert_whole_or_absent(lake: Path) -> None:
    """Every day folder holds what its manifest names; all else lies in staging."""
    for folder in lake.glob("date=*"):
        document = json.loads((folder / "_manifest.json").read_bytes())
        named = {file["path"]: file["bytes"] for file in document["files"]}
        lie = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*.parquet")}
        assert lie == named
    others = {path.name for path in lake.iterdir() if not path.name.startswith("date=")}
    assert others <= {"_staging", "_lock"}


def assert_lock_free(lake: Path) -> None:
    """The kernel has freed the lock of whoever died."""
    with (lake / "_lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class killing_a_worker:
    """Kill one Python worker below a driver or JVM, once a task writes; the list then holds its pid."""

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
            if not attempts(self._lake):
                continue
            for pid in descendants(self._root()):
                if "pyspark.daemon" in command_of(pid) and "pyspark.daemon" in command_of(parent_of(pid)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self._killed.append(pid)
                        return
