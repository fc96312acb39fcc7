"""A day on its way to the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobs.day.audit import Audited, audit
from jobs.task.classify import DayBounds
from jobs.task.parquet_writer import FileOptions, read_back
from jobs.task.result import ReadBack, TaskResult, WrittenFile, join_results
from jobs.task.task import TaskSpec, run_task
from offsets.checkpoint import Anchor, Checkpoint, PartitionCheckpoint
from offsets.contract import Accepted, Contract
from offsets.day_plan import DayPlan
from offsets.errors import AuditFailed
from offsets.ranges import Offsets
from tests.support.bounds import DAY, DAYS
from tests.support.local_engine import RULES, order, rows_of
from tests.support.manifests import TOPIC
from tests.support.memory_topic import Record
from tests.support.plain_files import FILES
from tests.support.spans import span

NOON = DAY.start + timedelta(hours=12)
STAMP = int(NOON.timestamp() * 1000)
PENDING = Offsets([(2, 4), (6, 7)])
TIMES: dict[int, list[datetime | None]] = {
    0: [NOON, None, DAYS[1].start, DAY.end, DAYS[0].start - timedelta(hours=1), NOON],
    1: [NOON, NOON, NOON, NOON],
}
"""The records of partition 0 from offset 10 on; below that only the pending offsets are not settled."""


@dataclass
class Case:
    """A day on its way to the audit; each test spoils one thing."""

    plan: DayPlan
    reports: list[TaskResult]
    files: list[WrittenFile]
    read: Callable[[WrittenFile], ReadBack] = lambda file: read_back(FILES, file.path)

    def audit(self) -> Audited:
        return audit(self.plan, join_results(self.reports), self.files, self.read)

    def fails(self, words: str) -> None:
        with pytest.raises(AuditFailed, match=words) as stopped:
            self.audit()
        assert "Nothing was committed" in str(stopped.value)


def plan(*, compacted: bool = False) -> DayPlan:
    parts = (
        PartitionCheckpoint(
            partition=0, seen_until=10, pending=PENDING, anchor=Anchor(offset=9, timestamp=1, digest="old")
        ),
        PartitionCheckpoint(partition=1, seen_until=0, pending=Offsets(), anchor=None),
    )
    return DayPlan(
        day=DAY,
        topic=TOPIC,
        contract=Contract({}),
        accepted=Accepted(),
        consumed=Checkpoint(topic=TOPIC, partitions=parts),
        earlier=tuple(DAYS[:-1]),
        spans=(span(2, 10, 18), span(0, 0, 4, partition=1)),
        first_offsets=(),
        cleanup_policy="compact" if compacted else "delete",
        headroom_hours=None,
        risks=(),
    )


def record(offset: int, partition: int) -> Record:
    when = TIMES[partition][offset - 10] if partition == 0 and offset >= 10 else NOON
    return Record(offset=offset, timestamp=STAMP, key=None, value=b"[]" if when is None else order(when))


def made(folder: Path, *, compacted: bool = False, without: frozenset[int] = frozenset()) -> Case:
    folder.mkdir(exist_ok=True)
    day = plan(compacted=compacted)
    options = FileOptions(target_size=1 << 20, compression="zstd", origin={"topic": "orders"})
    task = TaskSpec(
        rules=RULES, bounds=DayBounds.of(day, RULES), lake=FILES, attempts=str(folder), files=options
    )
    first = [record(at, 0) for at in range(2, 16) if at not in without]
    second = [record(at, 1) for at in range(4)]
    reports = [
        run_task(task, "0", iter([rows_of(0, first[:5]), rows_of(0, first[5:])])),
        run_task(task, "1", iter([rows_of(1, second)])),
    ]
    return Case(day, reports, [file for report in reports for file in report.files])
