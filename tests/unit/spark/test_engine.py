"""What the JVM is told, as far as it needs no JVM to see it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from jobs.config.spark_keys import local_cores
from jobs.spark.engine import Engine, _signals_wait, collector


@pytest.mark.parametrize(
    "given, cores, options",
    [
        ("", 1, ["-XX:+UseParallelGC", "-Xmn192m"]),
        ("-XX:TieredStopAtLevel=1", 4, ["-XX:+UseParallelGC", "-Xmn384m"]),
        ("", 64, ["-XX:+UseParallelGC", "-Xmn672m"]),
        ("-Xmn1g", 2, ["-XX:+UseParallelGC"]),
        ("-XX:+UseG1GC", 2, []),
    ],
)
def test_the_young_generation_does_not_grow_with_the_day(given: str, cores: int, options: list[str]) -> None:
    assert collector(given, cores) == options


@pytest.mark.parametrize(
    "master, cores", [("local", 1), ("local[3]", 3), (" local[ 4 , 2 ] ", 4), ("spark://host:7077", 1)]
)
def test_a_local_master_says_how_many_tasks_run_at_once(master: str, cores: int) -> None:
    assert local_cores(master) == cores
    assert local_cores("local[*]") == (os.cpu_count() or 1)


def test_a_jvm_behind_nohup_outlives_its_terminal() -> None:
    """What is started while signals wait must ignore what we ignore: a handler of ours is no child's."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _signals_wait():
            child = subprocess.run(
                ["sh", "-c", "kill -HUP $$; echo lives"], stdout=subprocess.PIPE, check=False
            )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert child.stdout == b"lives\n"


def test_a_job_that_found_too_little_memory_asks_for_more() -> None:
    """It said to run the day again, which failed alike."""
    error = RuntimeError("most recent failure: Lost task: java.lang.OutOfMemoryError: Java heap space")
    assert "Raise spark.driver.memory" in str(Engine({}, {})._failure(error, starting=False))
    assert "Look at the log" in str(Engine({}, {})._failure(RuntimeError("another"), starting=False))
