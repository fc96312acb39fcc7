"""A day without Spark: tasks that run in this process, on a topic in memory, and a pipeline for them.

Relies on `run_task`, which Spark's workers call as well. Specs and results are pickled, as in Spark. A test
asks for faults by the number of the task or of the batch.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.config import Evolve, KafkaSettings, LakeSettings, Late, Settings
from jobs.config.schema import DaySection, InvalidSection, Samples
from jobs.context import Pipeline
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store, System
from jobs.record.columns import Column, Kind, Scalar
from jobs.record.rules import EventTimeRule, RecordFormat, Rules, Tombstones
from jobs.record.schema import HEADERS, INSTANT
from jobs.record.time_format import TimeFormat
from jobs.task.batch_limit import BatchLimit
from jobs.task.result import TaskResult
from jobs.task.task import TaskSpec, run_task
from offsets.errors import RunFailed
from offsets.instants import micros, millis
from offsets.plan import Accept
from offsets.ranges import Offsets
from tests.support.memory_topic import MemoryTopic, Record

Batches = Iterator[pa.RecordBatch]

RULES = Rules(
    format=RecordFormat.JSON,
    columns=(Column("id", Scalar(Kind.STRING)), Column("n", Scalar(Kind.BIGINT))),
    kafka_columns=frozenset({"key"}),
    event_time=EventTimeRule(path=("at",), format=TimeFormat.EPOCH_US, zone="UTC"),
    past=timedelta(days=30),
    future=timedelta(days=1),
    tombstones=Tombstones.QUARANTINE,
)
ZONE = "Europe/Amsterdam"
BEFORE_1900 = millis(datetime(1900, 1, 1, tzinfo=UTC))


class Crash(Exception):
    """What a planted crash raises; no code of ours knows it."""


def order(event_time: datetime | int, id: str = "o", n: int = 0) -> bytes:
    """Make a valid payload under RULES; an int is microseconds."""
    at = event_time if isinstance(event_time, int) else micros(event_time)
    return b'{"id":"%s","n":%d,"at":%d}' % (id.encode(), n, at)


def rows_of(partition: int, records: list[Record], *, headers: bool = False) -> pa.RecordBatch:
    """Make a batch as Spark's Kafka source delivers it.

    Raises:
        RunFailed: Spark's arithmetic overflows on a stamp.
    """
    stamps = [_spark_stamp(record.timestamp) for record in records]
    columns = {
        "partition": pa.array([partition] * len(records), pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array(stamps, pa.int64()).cast(INSTANT),
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
    }
    if headers:
        columns["headers"] = pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in records], HEADERS
        )
    return pa.RecordBatch.from_pydict(columns)


def _spark_stamp(stamp: int) -> int:
    """Return a stamp in microseconds; Spark moves what is before 1900 to another calendar."""
    micros = stamp * 1000
    if abs(micros) >= 1 << 63:
        raise RunFailed(expected="the job to end well", found="long overflow", do="Run the day again.")
    return micros if stamp >= BEFORE_1900 else max(micros - 2 * 86_400_000_000, -(1 << 63))


@dataclass
class LocalEngine:
    """Cuts spans into tasks and batches and runs them; implements `jobs.day.plan.Engine`."""

    topic: MemoryTopic
    cores: int = 2
    batch_rows: int = 7
    failing_tasks: set[int] = field(default_factory=set)
    """Tasks whose first attempt dies after its first batch; a second one is made, as Spark would."""
    dropped: set[int] = field(default_factory=set)
    """Batches, counted over all tasks, that never reach a task."""
    doubled: set[int] = field(default_factory=set)
    """Batches that reach a task twice."""
    least_tasks: int = 1
    """The least number of tasks, whatever the sizes are."""
    dies: bool = False
    """Whether the job fails for good, after all tasks have run."""
    between: Callable[[], None] = lambda: None
    """Called after the tasks have run, before their results come back."""
    jobs: int = 0
    tasks: int = 0

    def run_tasks(
        self,
        topic: str,
        reads: Mapping[int, Offsets],
        spec: TaskSpec,
        *,
        tasks: int,
        piece: int,
        batches: BatchLimit,
        progress: Callable[[int, int], None],
    ) -> list[TaskResult]:
        """Run one job over these offsets of each partition."""
        assert topic == self.topic.name
        self.jobs += 1
        if tasks < self.least_tasks:
            offsets = sum(map(len, reads.values()))
            tasks, piece = self.least_tasks, max(offsets // (self.least_tasks * 2), 1)
        numbers = count()
        reports = []
        done_rows, all_rows = 0, sum(map(len, reads.values()))
        for number, pieces in enumerate(self._cut(reads, tasks, piece)):
            self.tasks += 1
            sent: TaskSpec = pickle.loads(pickle.dumps(spec))
            headers = "headers" in spec.rules.kafka_columns
            if number in self.failing_tasks:
                with suppress(Crash):
                    run_task(sent, f"{self.tasks}-failed", _dying(self._read(pieces, headers, count())))
            done = run_task(sent, f"{self.tasks}-a", self._read(pieces, headers, numbers))
            report: TaskResult = pickle.loads(pickle.dumps(done))
            if isinstance(report.failure, RunFailed):
                raise report.failure  # what the source raises fails Spark's job
            reports.append(report)
            done_rows += sum(until - from_ for _, from_, until in pieces)
            progress(done_rows, all_rows)
        self.between()
        if self.dies:
            raise RunFailed(expected="the job to end well", found="it did not", do="Run the day again.")
        return reports

    def _cut(self, reads: Mapping[int, Offsets], tasks: int, piece: int) -> list[list[tuple[int, int, int]]]:
        pieces = [
            (partition, at, min(at + piece, range_[1]))
            for ranges in zip_longest(*reads.values())
            for partition, range_ in zip(reads, ranges, strict=True)
            if range_
            for at in range(range_[0], range_[1], piece)
        ]
        share = max(math.ceil(len(pieces) / tasks), 1)
        return [pieces[at : at + share] for at in range(0, len(pieces), share)]

    def _read(self, pieces: list[tuple[int, int, int]], headers: bool, numbers: Iterator[int]) -> Batches:
        for partition, from_, until in pieces:
            log = self.topic.logs[partition]
            if from_ < log.log_start or until > log.last_stable:
                raise RunFailed(expected=f"offsets [{from_}, {until})", found="data loss", do="Look.")
            records = log.visible(from_, until)
            for at in range(0, len(records), self.batch_rows):
                batch = rows_of(partition, records[at : at + self.batch_rows], headers=headers)
                number = next(numbers)
                times = 0 if number in self.dropped else 2 if number in self.doubled else 1
                yield from [batch] * times


def _dying(batches: Batches) -> Batches:
    yield from islice(batches, 1)
    raise Crash("the first attempt of a task")


def settings(lake: Path, **changed: Any) -> Settings:
    """Make settings for a lake; the keys are those of Settings, and of the sections in it."""

    def taken(**usual: Any) -> dict[str, Any]:
        return usual | {key: changed.pop(key) for key in usual if key in changed}

    sizes = taken(target_file_size=1 << 20, min_file_size=1 << 16, keep=None, success_file=False)
    day = taken(zone=ZONE, first=date(2026, 3, 28), grace=timedelta(hours=1), headroom=timedelta(hours=24))
    # a few records made to be odd are most of a day
    invalid: dict[str, Any] = {
        "limit": changed.pop("invalid_limit", 1.0),
        "floor": changed.pop("invalid_floor", 100),
    }
    invalid["samples"] = changed.pop("invalid_samples", Samples.COORDINATES)
    terms: dict[str, Any] = {
        "path": lake.parent / "orders.yaml",
        "topic": "orders",
        "kafka": KafkaSettings(bootstrap_servers="localhost:1", timeout=timedelta(), client={}, spark={}),
        "day": DaySection.model_construct(**day),
        "rules": RULES,
        "lake": LakeSettings(path=lake, compression="zstd", shared=False, **sizes),
        "invalid": InvalidSection.model_construct(**invalid),
        "late": Late.SET_ASIDE,
        "evolve": Evolve.ASK,
        "spark": {},
    }
    return Settings(**(terms | changed))


_RUNS = count(1)


def pipeline(
    lake: Path,
    topic: MemoryTopic,
    *,
    now: datetime = datetime(2027, 1, 1, tzinfo=UTC),
    engine: LocalEngine | None = None,
    accept: Accept | None = None,
    system: System | None = None,
    **changed: Any,
) -> Pipeline:
    """Make a pipeline over a lake and a topic in memory, with a clock that stands still."""
    used = engine or LocalEngine(topic)
    return Pipeline(
        settings=settings(lake, **changed),
        lake=PosixLake(lake, Store(system)),
        broker=lambda: topic,
        engine=lambda: used,
        run_id=f"20260401T000000-{next(_RUNS):06x}",
        accept=accept or Accept(),
        now=lambda: now,
    )


def days(first: date, last: date) -> Iterable[date]:
    """List the dates from one to another, both included."""
    return [first + timedelta(days=step) for step in range((last - first).days + 1)]
