"""The steps that a new day and a rebuilt one share: staging, the tasks, the audit, and who does it.

Relies on a plan and a desk. Arrow is imported only where there is something to settle: a committed day must
be done at once.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from jobs.config import Late
from jobs.day.plan import Desk, PlannedRun, tasks_of
from jobs.day.sizing import piece_rows, worth_a_sample
from jobs.lake.posix import LockHolder, make_folder
from offsets import errors
from offsets.kafka.recheck import prove_gaps, recheck
from offsets.model import DayPlan, Gaps, Span
from offsets.ranges import Offsets

if TYPE_CHECKING:
    from jobs.day.audit import Audited
    from jobs.day.commit import RunStamp
    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import TaskResult
    from jobs.task.task import TaskSpec

log = structlog.get_logger(__name__)


@contextmanager
def staging(desk: Desk, day: date, keep: Callable[[Path], bool] = lambda _: False) -> Iterator[Path]:
    """Make the run's staging folder, and remove it on every way out but an AuditFailed: then it is evidence.

    What a full disk or a signal cut short would fill the disk further. Committed files no longer lie there.
    `keep` is asked at a good end whether somebody else's files do.
    """
    staged = desk.lake.stage(day, desk.run_id)
    try:
        if desk.settings.late is Late.AMEND:
            desk.lake.require_links(staged)
        yield staged
    except errors.AuditFailed:
        raise
    except BaseException:
        if not _holds_old_day(desk, day, staged):
            desk.lake.discard_staging(staged)
        raise
    if not keep(staged):
        desk.lake.discard_staging(staged)


def _holds_old_day(desk: Desk, day: date, staged: Path) -> bool:
    """Tell whether a rebuild stopped just after its exchange, which may not be durable yet.

    A loss of power would bring the old day back: its files must still be there then.
    """
    if not (staged / "day").exists():
        return False
    try:
        return desk.run_id.encode() in (desk.lake.manifest_text(day) or b"")
    except errors.StoreFailed:
        return True


def require_retained(desk: Desk, spans: Sequence[Span]) -> None:
    """Check that Kafka still holds what spans read once.

    Raises:
        OffsetsLost: retention took some of it.
    """
    edges = desk.broker().watermarks(desk.settings.topic, [span.partition for span in spans])
    for span in spans:
        log_start = edges[span.partition].log_start
        if len(span.reads) and span.reads.first < log_start:
            raise errors.OffsetsLost(
                expected=f"partition {span.partition} from offset {span.reads.first} on",
                found=f"a log that starts at {log_start}",
                do="The old day stays: retention took what it was made of. Restore the day from a backup.",
                partition=span.partition,
                offset=span.from_offset,
                log_start=log_start,
            )


def run_tasks(desk: Desk, planned: PlannedRun, staged: Path, steps: StageTimer) -> list[TaskResult]:
    """Run the tasks; a plan without offsets needs none, and no Spark."""
    plan, settings = planned.plan, desk.settings
    if plan.offsets == 0:
        return []
    from jobs.day.stretches import OVERFLOW, find_stretches, rest_of, settle_stretches
    from jobs.task.classify import DayBounds
    from jobs.task.task import TaskSpec

    order = TaskSpec(
        rules=settings.rules,
        bounds=DayBounds.of(plan, settings.rules),
        attempts=str(staged / "attempts"),
        files=file_options(desk, plan),
    )
    make_folder(staged / "attempts")
    with ThreadPoolExecutor(1) as beside:
        # Spark takes seconds to start: by then the sample is there
        sized = beside.submit(_sized, desk, planned, order)
        engine = desk.engine()
        cores = engine.cores
        planned = sized.result()
    tasks = tasks_of(desk, planned, cores)
    steps.end("start_spark")
    log.info("settling", day=str(plan.day.date), tasks=tasks, staging=str(staged))

    def run(reads: Mapping[int, Offsets]) -> list[TaskResult]:
        desk.broker().rest()
        with _topic_asked_first(desk, plan):
            return engine.run_tasks(
                plan.topic.name,
                reads,
                order,
                tasks=tasks,
                piece=piece_rows(plan, tasks),
                batches=planned.batches,
                progress=desk.progress,
            )

    try:
        reports = run({span.partition: span.reads for span in plan.spans})
    except errors.RunFailed as failed:
        # a search reads the whole day again: only the one error that such records cause is worth it
        overflow = OVERFLOW in failed.found
        stretches = find_stretches(desk.broker(), plan, desk.progress) if overflow else {}
        if not stretches:
            raise
        rest = rest_of(plan, stretches)
        reports = run(rest) if any(map(len, rest.values())) else []
        reports.append(settle_stretches(desk.broker(), plan, stretches, order))
    for report in reports:
        if report.failure:
            raise report.failure
    return reports


@contextmanager
def _topic_asked_first(desk: Desk, plan: DayPlan) -> Iterator[None]:
    """Look at the topic where the job fails: it may tell better than Spark what went wrong."""
    try:
        yield
    except errors.RunFailed:
        nothing = [Gaps(partition=span.partition, offsets=span.reads) for span in plan.spans]
        recheck(desk.broker(), plan, nothing, plan.consumed)
        raise


def _sized(desk: Desk, planned: PlannedRun, order: TaskSpec) -> PlannedRun:
    """Learn from the day's own records what a row takes, where that may change the number of tasks."""
    if not worth_a_sample(planned.plan, planned.row_bytes, minimum=desk.settings.lake.min_file_size):
        return planned
    from jobs.day.sampling import sampled_row_bytes

    found = sampled_row_bytes(desk.broker(), planned.plan, order)
    log.info("sampled", day=str(planned.plan.day.date), row_bytes=found, guess=planned.row_bytes)
    return planned if found is None else replace(planned, row_bytes=found)


def audit_day(
    desk: Desk, plan: DayPlan, reports: list[TaskResult], staged: Path, *, few_invalid: bool = True
) -> Audited:
    """Join small pieces, hold everything against everything, and look at the topic once more."""
    from jobs.day.audit import audit, require_few_invalid
    from jobs.task.parquet_writer import read_back
    from jobs.task.small_files import merge_small_files

    settings = desk.settings
    if few_invalid:
        require_few_invalid(reports, settings.invalid_limit, settings.invalid_floor)
    written = [file for report in reports for file in report.files]
    options = file_options(desk, plan)
    files = merge_small_files(written, staged / "merged", options, settings.lake.min_file_size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        back = {file.path: pool.submit(read_back, Path(file.path)) for file in files}
        try:
            audited = audit(plan, reports, files, lambda file: back[file.path].result())
        except errors.AuditFailed:
            _require_pending_retained(desk, plan, reports)
            raise
    recheck(desk.broker(), plan, audited.gaps, audited.next)
    if not any(len(gap.offsets) for gap in audited.gaps):
        return audited
    proved = prove_gaps(desk.broker(), plan.topic.name, audited.gaps, desk.run_id)
    # what was proved must be true of the topic that was read, and not of one made in its place meanwhile
    recheck(desk.broker(), plan, proved, audited.next)
    return replace(audited, gaps=proved)


def _require_pending_retained(desk: Desk, plan: DayPlan, reports: list[TaskResult]) -> None:
    """Check that the topic does not tell better why pending offsets did not come."""
    from jobs.task.result import joined_by_partition

    with suppress(ValueError, errors.BrokerUnavailable):
        delivered = joined_by_partition(report.delivered for report in reports)
        missing = [
            Gaps(partition=part.partition, offsets=part.pending - delivered.get(part.partition, Offsets()))
            for part in plan.consumed.partitions
        ]
        if any(len(each.offsets) for each in missing):
            recheck(desk.broker(), plan, missing, plan.consumed)


def run_stamp(desk: Desk, started: datetime) -> RunStamp:
    """Say which run writes a manifest, now that its audit held."""
    from jobs.day.commit import RunStamp

    return RunStamp(run_id=desk.run_id, started=started, audited=desk.now(), versions=_versions())


def file_options(desk: Desk, plan: DayPlan) -> FileOptions:
    """Say how files are written, and what their footers tell of where they come from."""
    from jobs.task.parquet_writer import FileOptions

    lake = desk.settings.lake
    origin = {"topic": plan.topic.name, "day": plan.day.date.isoformat(), "run": desk.run_id}
    return FileOptions(target_size=lake.target_file_size, compression=lake.compression, origin=origin)


def lock_holder(desk: Desk) -> LockHolder:
    """Name this run, for those who find the lake locked."""
    return LockHolder(run_id=desk.run_id, host=socket.gethostname(), pid=os.getpid(), since=desk.now())


def _versions() -> dict[str, str]:
    packages = ("kafka-daily", "pyspark", "pyarrow", "msgspec", "confluent-kafka")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


class StageTimer:
    """A stopwatch: how long each step of a day took."""

    def __init__(self) -> None:
        """Start now."""
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, step: str) -> None:
        """Note the seconds since the last step ended."""
        now = time.monotonic()
        self.seconds[step] = round(now - self._last, 3)
        self._last = now
