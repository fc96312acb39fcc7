"""The story of one day, from the ledger to the commit.

The one place that sees everything: config, lake, broker and Spark. The numbers are those of the protocol
(docs/PROTOCOL.md). It decides nothing itself: each step is one call, and the next takes what it returns.
Arrow is imported only where there is something to settle: a committed day must be done at once.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from jobs.amend import finish_moves, moves_open
from jobs.config import Late
from jobs.planning import Desk, Planned, expected_files, plan_patiently
from jobs.sizing import piece_rows
from jobs.storage import LockHolder, sync_folder
from offsets import errors
from offsets.ledger import read_ledger, read_manifest
from offsets.model import DayPlan, Gaps, Manifest
from offsets.recheck import prove_gaps, recheck

if TYPE_CHECKING:
    from jobs.audit import Audited
    from jobs.parquet import FileOptions
    from jobs.report import TaskReport

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one day; `seconds` are by step, and empty where the day was committed before.

    `amended` are the rows that closed days received in this run.
    """

    manifest: Manifest
    already: bool
    amended: Mapping[date, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def run_day(desk: Desk, day: date) -> Outcome:
    """Settle one day: all of it, or nothing.

    Raises:
        DayStopped: one of its kinds, as `offsets.errors` lists them.
    """
    # 1 ledger: a committed day is done, without the lock
    if (committed := read_manifest(desk.lake, day)) and not moves_open(desk.lake, committed):
        sync_folder(desk.lake.root)
        return Outcome(manifest=committed, already=True)
    # 2 lock: from here on this run is the lake's one writer; what the last one left open comes first
    with desk.lake.lock(_holder(desk)):
        sync_folder(desk.lake.root)
        ledger = read_ledger(desk.lake)
        amended = finish_moves(desk.lake, ledger.newest) if ledger.newest else {}
        if committed := ledger.of(day):
            return Outcome(manifest=committed, already=True, amended=amended)
        steps = _Steps()
        # 3 plan
        planned = plan_patiently(desk, ledger, day)
        plan = planned.plan
        steps.end("plan")
        log.info("planned", day=str(day), offsets=plan.offsets, partitions=len(plan.spans))
        # 4-6 read, settle, write: in the tasks
        with _staging(desk, day) as staged:
            started = desk.now()
            reports = _settle(desk, planned, staged, steps)
            steps.end("read_settle_write")
            log.info("settled", day=str(day), tasks=len(reports))
            # 7 audit
            audited = _audit(desk, plan, reports, staged)
            steps.end("audit")
            log.info("audited", day=str(day), files=len(audited.files))
            # 8 commit
            manifest = _commit(desk, staged, audited, started)
            steps.end("commit")
            log.info("committed", day=str(day), run=desk.run_id)
            # 9 publish: late rows reach the days that they belong to
            amended = finish_moves(desk.lake, manifest)
            steps.end("publish")
            log.info("published", day=str(day), amended=sum(amended.values()))
        return Outcome(manifest=manifest, already=False, amended=amended, seconds=steps.seconds)


@contextmanager
def _staging(desk: Desk, day: date) -> Iterator[Path]:
    """Give the run's staging folder; it goes when the outcome is known, and stays where it is evidence."""
    if desk.settings.late is Late.AMEND:
        desk.lake.require_links()
    staged = desk.lake.stage(day, desk.run_id)
    try:
        yield staged
    except (errors.AuditFailed, errors.StoreFailed):
        raise
    except errors.DayStopped:
        desk.lake.discard_staging(staged)
        raise
    desk.lake.discard_staging(staged)


def _settle(desk: Desk, planned: Planned, staged: Path, steps: _Steps) -> list[TaskReport]:
    """Run the tasks; a plan without offsets needs none, and no Spark."""
    plan, settings = planned.plan, desk.settings
    if plan.offsets == 0:
        return []
    from jobs.settle import Bounds
    from jobs.sink import TaskOrder

    engine = desk.engine()
    tasks = expected_files(desk, planned, engine.cores)
    steps.end("start_spark")
    order = TaskOrder(
        rules=settings.rules,
        bounds=Bounds.of(plan, settings.rules),
        attempts=str(staged / "attempts"),
        files=_file_options(desk, plan),
    )
    log.info("settling", day=str(plan.day.date), tasks=tasks, staging=str(staged))
    try:
        reports = engine.settle(
            plan, order, tasks=tasks, piece=piece_rows(plan, tasks), progress=desk.progress
        )
    except errors.RunFailed:
        # the topic may tell better than Spark what went wrong
        nothing = [Gaps(partition=span.partition, offsets=span.reads) for span in plan.spans]
        recheck(desk.broker(), plan, nothing, plan.consumed)
        raise
    for report in reports:
        if report.failure:
            raise errors.revived(report.failure)
    return reports


def _audit(desk: Desk, plan: DayPlan, reports: list[TaskReport], staged: Path) -> Audited:
    """Join small pieces, hold everything against everything, and look at the topic once more."""
    from jobs.audit import audit, require_few_invalid
    from jobs.merge import merge_small
    from jobs.parquet import read_back

    settings = desk.settings
    require_few_invalid(reports, settings.invalid_limit)
    written = [file for report in reports for file in report.files]
    options = _file_options(desk, plan)
    files = merge_small(written, staged / "merged", options, settings.lake.min_file_size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        back = {file.path: pool.submit(read_back, Path(file.path)) for file in files}
        audited = audit(plan, reports, files, lambda file: back[file.path].result())
    recheck(desk.broker(), plan, audited.gaps, audited.next)
    return replace(audited, gaps=prove_gaps(desk.broker(), plan.topic.name, audited.gaps, desk.run_id))


def _commit(desk: Desk, staged: Path, audited: Audited, started: datetime) -> Manifest:
    from jobs.commit import RunStamp, commit

    stamp = RunStamp(run_id=desk.run_id, started=started, audited=desk.now(), versions=_versions())
    return commit(desk.lake, staged, audited, stamp, amend=desk.settings.late is Late.AMEND)


def _file_options(desk: Desk, plan: DayPlan) -> FileOptions:
    from jobs.parquet import FileOptions

    lake = desk.settings.lake
    origin = {"topic": plan.topic.name, "day": plan.day.date.isoformat(), "run": desk.run_id}
    return FileOptions(target_size=lake.target_file_size, compression=lake.compression, origin=origin)


def _holder(desk: Desk) -> LockHolder:
    return LockHolder(run_id=desk.run_id, host=socket.gethostname(), pid=os.getpid(), since=desk.now())


def _versions() -> dict[str, str]:
    packages = ("kafka-daily", "pyspark", "pyarrow", "msgspec", "confluent-kafka")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


class _Steps:
    """A stopwatch: how long each step of a day took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, step: str) -> None:
        now = time.monotonic()
        self.seconds[step] = round(now - self._last, 3)
        self._last = now
