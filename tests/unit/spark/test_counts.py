"""Tests of the counts that tasks write into the driver's memory."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.spark.counts import Place, ReadCounts, counted


def batches(*rows: int) -> Iterator[pa.RecordBatch]:
    for each in rows:
        yield pa.record_batch({"offset": pa.array(range(each))})


def test_the_counts_of_two_tasks_are_added_while_they_run() -> None:
    with ReadCounts() as counts:
        assert counts.total() == 0
        first = counted(batches(300, 5), counts.place, 1)
        second = counted(batches(40), counts.place, 0)
        assert [batch.num_rows for batch in (next(first), next(first), *second)] == [300, 5, 40]
        assert counts.total() == 340
        assert list(first) == []
        assert counts.total() == 345


def test_a_task_that_is_tried_again_begins_anew() -> None:
    with ReadCounts() as counts:
        assert len(list(counted(batches(300, 300), counts.place, 2))) == 2
        assert len(list(counted(batches(7), counts.place, 2))) == 1
        assert counts.total() == 7


def test_a_task_on_another_machine_takes_its_batches_and_counts_nothing() -> None:
    assert sum(batch.num_rows for batch in counted(batches(3, 4), Place("/proc/0/fd/3", "none"), 0)) == 7


def test_a_task_that_outlives_its_run_writes_into_no_other_file(tmp_path: Path) -> None:
    with ReadCounts() as counts:
        place = counts.place
    with (tmp_path / "other").open("wb") as other:
        assert place.path.endswith(f"/fd/{other.fileno()}")
        assert len(list(counted(batches(300), place, 0))) == 1
    assert (tmp_path / "other").read_bytes() == b""


def test_a_task_on_another_machine_opens_no_pipe_that_is_open_there(tmp_path: Path) -> None:
    """To open a pipe that nobody reads waits for ever, and with it waited the task."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opening = threading.Thread(target=Place(str(pipe), "none").open, daemon=True)
    opening.start()
    opening.join(5)
    assert not opening.is_alive()


def test_a_system_that_refuses_the_memory_stops_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each night ended as if Spark's job had failed, for a progress line."""

    def refused(name: str) -> int:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", refused)
    with ReadCounts() as counts:
        assert sum(batch.num_rows for batch in counted(batches(3, 4), counts.place, 0)) == 7
        assert counts.total() == 0


def test_a_python_without_such_memory_stops_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was built against an old C library has no `memfd_create`: no day was committed with it."""
    monkeypatch.delattr(os, "memfd_create")
    with ReadCounts() as counts:
        assert sum(batch.num_rows for batch in counted(batches(3, 4), counts.place, 0)) == 7
        assert counts.total() == 0


def test_no_file_stays_open() -> None:
    before = {*Path("/proc/self/fd").iterdir()}
    with ReadCounts() as counts:
        list(counted(batches(1), counts.place, 0))
    assert {*Path("/proc/self/fd").iterdir()} == before
