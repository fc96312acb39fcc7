"""Late rows of twenty closed days; the run is killed around every link and unlink, and a reader looks on.

Each kill is a real SIGKILL of a real process, at a call that has not been made yet or has just been made.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.late import has_unfinished_moves
from jobs.lake.posix import PosixLake
from offsets.commit_log import read_ledger
from offsets.days import midnight
from offsets.verdict import Verdict
from tests.reference import Coordinate
from tests.support.lake import places
from tests.support.local_engine import ZONE, order, pipeline
from tests.support.memory_topic import MemoryTopic

CLOSED = 20
DAYS = [date(2026, 3, 1) + timedelta(days=step) for step in range(CLOSED + 1)]
NEWEST = DAYS[-1]


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    """One order a day, and on the newest day one late order for each of the twenty before."""
    topic = MemoryTopic()
    for day in DAYS:
        topic.produce(0, order(midnight(day, ZONE)), midnight(day, ZONE) + timedelta(hours=3))
    for day in DAYS[:-1]:
        topic.produce(0, order(midnight(day, ZONE)), midnight(NEWEST, ZONE) + timedelta(hours=5))
    return topic


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory, topic: MemoryTopic) -> Path:
    """All days committed, and no late row moved yet; copy it, never change it."""
    lake = tmp_path_factory.mktemp("twenty") / "lake"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PosixLake, "bring", lambda *_: False)
        for day in DAYS:
            run_day(pipeline(lake, topic, late=Late.AMEND, first=DAYS[0]), day)
    return lake


@pytest.fixture
def lake(tmp_path: Path, committed: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "lake"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_around(calls: int) -> None:
    """Kill this process before (edge 2n) or after (edge 2n + 1) the n-th link or unlink, from 0."""
    edges = iter(range(1 << 30))

    def edge() -> None:
        if next(edges) == calls:
            die()

    def around(call: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: object) -> None:
            edge()
            call(*arguments)
            edge()

        return watched

    os.link, os.unlink = around(os.link), around(os.unlink)


def killed(edge: int, run: Callable[[], object]) -> bool:
    """Run something in a process of its own that dies at an edge; return whether it did."""
    child = os.fork()
    if child == 0:
        try:
            killed_around(edge)
            run()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def visible(lake: Path) -> Counter[Coordinate]:
    """Count each coordinate that a reader of the promised glob sees."""
    seen: Counter[Coordinate] = Counter()
    for path in lake.glob("date=*/*.parquet"):
        rows = pq.ParquetFile(path).read(columns=["kafka_partition", "kafka_offset"])
        seen.update(zip(*rows.to_pydict().values(), strict=True))
    return seen


@contextmanager
def polled(lake: Path) -> Iterator[list[int]]:
    """Read the lake meanwhile; return the rows of each look, and fail where a row came twice."""
    looks: list[int] = []
    twice: list[Counter[Coordinate]] = []
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            seen = visible(lake)
            looks.append(len(seen))
            if seen.total() != len(seen):
                twice.append(seen)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        yield looks
    finally:
        done.set()
        reader.join()
    assert not twice


def test_late_rows_of_twenty_days_are_seen_once_though_each_step_was_killed(
    lake: Path, topic: MemoryTopic
) -> None:
    newest = read_ledger(PosixLake(lake)).newest
    assert newest is not None
    assert len(newest.files_of(Verdict.LATE)) == CLOSED
    kills = 0
    with polled(lake) as looks:
        while has_unfinished_moves(PosixLake(lake), newest):
            for edge in range(4):  # the first edges are those of the next file
                kills += killed(edge, lambda: run_day(pipeline(lake, topic, late=Late.AMEND), NEWEST))
                seen = visible(lake)
                assert seen.total() == len(seen)
        run_day(pipeline(lake, topic, late=Late.AMEND), NEWEST)
    assert kills >= 2 * CLOSED
    assert len(places(lake)) == 2 * CLOSED + 1
    assert visible(lake) == Counter({(0, offset): 1 for offset in range(2 * CLOSED + 1)})
    print(f"{kills} kills, {len(looks)} looks, which saw {min(looks)} to {max(looks)} rows")


@pytest.mark.parametrize("edge", range(4 * CLOSED))
def test_one_kill_at_any_edge_and_a_rerun(lake: Path, topic: MemoryTopic, edge: int) -> None:
    assert killed(edge, lambda: run_day(pipeline(lake, topic, late=Late.AMEND), NEWEST))
    seen = visible(lake)
    assert seen.total() == len(seen)
    run_day(pipeline(lake, topic, late=Late.AMEND), NEWEST)
    assert visible(lake) == Counter({(0, offset): 1 for offset in range(2 * CLOSED + 1)})
