"""Execute a plan, of a new day or of a rebuilt one: staging, tasks, audit, and the commit of a new one.

Relies on a plan and a pipeline. Arrow is imported only if there is something to settle: a run of a committed
day must end at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from jobs import logs
from jobs.context import Pipeline
from jobs.day.plan import PlannedRun
from jobs.day.sizing import piece_rows, sample_is_useful, task_count
from jobs.lake.ledger import has_other_entry
from jobs.lake.names import STAGED_DAY
from jobs.stages import DayStages, Stage
from jobs.task.batch_limit import LACK_OF_MEMORY, WEIGHED, BatchLimit
from offsets import errors
from offsets.day_plan import DayPlan
from offsets.kafka.recheck import prove_gaps, recheck, recheck_pending
from offsets.manifest import CauseCount, Gaps, Manifest
from offsets.ranges import Offsets
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.day.audit import Audited, InvalidMessage
    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import TaskResult, WrittenFile
    from jobs.task.task import TaskSpec

log = structlog.get_logger(__name__)
MEMORY: Final = re.compile(f"{LACK_OF_MEMORY}|MemoryError")
"""Names of exceptions where a batch is too large, for the JVM or for Python."""


@contextmanager
def staging(pipeline: Pipeline, day: date, keep: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
    """Make the run's staging folder, and remove it at the end, except after AuditFailed: then it is evidence.

    It is removed after other errors too: files of a run that a full disk stopped would keep the disk full.
    Committed files no longer lie there. After success, `keep` decides whether it holds somebody else's files.
    """
    staged = pipeline.lake.stage(day, pipeline.run_id)
    try:
        if pipeline.amends:
            pipeline.lake.require_late_moves(staged)
        yield staged
    except errors.AuditFailed:
        raise
    except BaseException:
        if not _holds_old_day(pipeline, day, staged):
            pipeline.lake.discard(staged)
        raise
    if not keep(staged):
        pipeline.lake.discard(staged)


def _holds_old_day(pipeline: Pipeline, day: date, staged: str) -> bool:
    """Return whether a rebuild stopped just after its exchange, which may not be durable yet.

    A loss of power could bring the old day back, so its files must not be removed. Nor may the name that
    shows the next run that the ledger's entry is of the old day.
    """
    try:
        old_day = pipeline.lake.stat(f"{staged}/{STAGED_DAY}")
        if not old_day and not has_other_entry(pipeline.lake, day):
            return False
        return pipeline.run_id.encode() in (pipeline.lake.manifest_text(day) or b"")
    except errors.StoreFailed:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A plan that is carried out: with which pipeline, in which staging folder, and since when."""

    pipeline: Pipeline
    planned: PlannedRun
    staged: str
    stages: DayStages
    started: datetime

    @classmethod
    def begin(cls, pipeline: Pipeline, planned: PlannedRun, staged: str, stages: DayStages) -> Execution:
        """Begin to carry out a plan."""
        return cls(pipeline=pipeline, planned=planned, staged=staged, stages=stages, started=pipeline.now())

    @property
    def plan(self) -> DayPlan:
        """What is carried out."""
        return self.planned.plan

    def file_options(self) -> FileOptions:
        """Return the options of the files, with the origin that their footers name."""
        from jobs.task.parquet_writer import FileOptions

        lake, plan = self.pipeline.settings.lake, self.plan
        origin = {"topic": plan.topic.name, "day": plan.day.date.isoformat(), "run": self.pipeline.run_id}
        return FileOptions(target_size=lake.target_file_size, compression=lake.compression, origin=origin)

    def run_tasks(self) -> TaskResult:
        """Run the tasks and join their results; a plan without offsets needs neither tasks nor Spark."""
        from jobs.day.stretches import run_around_stretches
        from jobs.task.result import TaskResult, join_results

        if self.plan.offsets == 0:
            return TaskResult()
        spec, observed = self._task_spec(), self.stages.observed
        with observed(Stage.START_SPARK) as figures, ThreadPoolExecutor(1) as executor:
            # Spark takes seconds to start, and the sample is read meanwhile
            sampled = executor.submit(logs.inherited(self._row_bytes), spec)
            engine = self.pipeline.engine()
            lake = self.pipeline.settings.lake
            tasks = task_count(
                self.plan,
                sampled.result(),
                target=lake.target_file_size,
                minimum=lake.min_file_size,
                cores=engine.cores,
            )
            figures.update(tasks=tasks, staging=self.pipeline.lake.place(self.staged))
        progress = partial(self.stages.counted, Stage.TASKS)

        def run_job(reads: Mapping[int, Offsets], batches: BatchLimit) -> list[TaskResult]:
            self.pipeline.broker().release()
            try:
                return engine.run_tasks(
                    self.plan.topic.name,
                    reads,
                    spec,
                    tasks=tasks,
                    piece=piece_rows(self.plan, tasks),
                    batches=batches,
                    progress=progress,
                )
            except errors.RunFailed:  # the topic's error explains more than Spark's
                unread = [Gaps(partition=span.partition, offsets=span.reads) for span in self.plan.spans]
                recheck(self.pipeline.broker(), self.plan, unread, self.plan.consumed)
                raise

        def run(reads: Mapping[int, Offsets]) -> list[TaskResult]:
            return _run_again_weighed(partial(run_job, reads), self.planned.batches)

        with observed(Stage.TASKS):
            results = run_around_stretches(run, self.pipeline.broker(), self.plan, spec, progress)
        return join_results(results)

    def _task_spec(self) -> TaskSpec:
        from jobs.task.classify import DayBounds
        from jobs.task.task import TaskSpec

        rules = self.pipeline.settings.rules
        return TaskSpec(
            rules=rules,
            bounds=DayBounds.of(self.plan, rules),
            lake=self.pipeline.lake,
            attempts=f"{self.staged}/attempts",
            files=self.file_options(),
            columns=self.plan.columns,
        )

    def _row_bytes(self, spec: TaskSpec) -> float:
        """Return the size of a row, sampled from Kafka if that may change the number of tasks."""
        guess = self.planned.row_bytes
        if not sample_is_useful(self.plan, guess, minimum=self.pipeline.settings.lake.min_file_size):
            return guess
        from jobs.day.sampling import sampled_row_bytes

        row_bytes = sampled_row_bytes(self.pipeline.broker(), self.plan, spec)
        log.info("sampled", day=str(self.plan.day.date), row_bytes=row_bytes, guess=guess)
        return guess if row_bytes is None else row_bytes

    def audit(self, result: TaskResult, *, few_invalid: bool = True) -> Audited:
        """Merge small files, audit plan, result and files, and check the topic once more."""
        from jobs.day.audit import audit, require_few_invalid
        from jobs.task.parquet_writer import read_back

        plan, lake, reader = self.plan, self.pipeline.lake, self.pipeline.broker()
        if few_invalid:
            invalid = self.pipeline.settings.invalid
            require_few_invalid(result, invalid.limit, invalid.floor, partial(self._invalid_message, result))
        files = self._merged_files(result)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            reread = {file.path: pool.submit(read_back, lake, file.path) for file in files}
            try:
                audited = audit(plan, result, files, lambda file: reread[file.path].result())
            except errors.AuditFailed:
                recheck_pending(reader, plan, result.delivered)
                raise
        recheck(reader, plan, audited.gaps, audited.next)
        if not any(len(gap.offsets) for gap in audited.gaps):
            return audited
        proved = prove_gaps(reader, plan, audited.gaps, self.pipeline.run_id)
        # the topic may have been recreated during the probes: they must be of the topic that was read. No gap
        # needs to be there any more, since it was looked into, or the sample was drawn while it was there
        recheck(reader, plan, (), audited.next)
        return replace(audited, gaps=proved)

    def _merged_files(self, result: TaskResult) -> list[WrittenFile]:
        """Return the files of the day, of which small ones are joined.

        A day without rows gets a file without rows, so that readers of the day find one, and its columns.
        """
        from jobs.record.decode import day_schema
        from jobs.task.parquet_writer import write_empty
        from jobs.task.small_files import merge_small_files

        lake, settings, options = self.pipeline.lake, self.pipeline.settings, self.file_options()
        minimum = settings.lake.min_file_size
        files = merge_small_files(lake, result.files, f"{self.staged}/merged", options, minimum)
        if not any(file.verdict is Verdict.IN_DAY for file in files):
            empty = lake.create_file(f"{self.staged}/empty/0.parquet.part")
            files.append(write_empty(empty, day_schema(settings.rules), options))
        return files

    def commit(self, audited: Audited) -> Manifest:
        """Commit the day; where late rows are amended, its manifest names their move to their days."""
        from jobs.day.commit import commit

        pipeline, success_file = self.pipeline, self.pipeline.settings.lake.success_file
        stamp = pipeline.stamp(self.started)
        return commit(
            pipeline.lake, self.staged, audited, stamp, amend=pipeline.amends, success_file=success_file
        )

    def _invalid_message(self, result: TaskResult, causes: Sequence[CauseCount]) -> InvalidMessage:
        """Return what the message of TooManyInvalid shows of the invalid records, which lie in staging."""
        from jobs.day.invalid_samples import describe, read_samples

        samples = read_samples(self.pipeline.lake, result.files, causes)
        return describe(causes, samples, self.pipeline.settings.rules, self.pipeline.settings.invalid.samples)


def _run_again_weighed(
    run: Callable[[BatchLimit], list[TaskResult]], batches: BatchLimit
) -> list[TaskResult]:
    """Run the job; once more, weighed, where a batch whose bytes nobody counted took too much memory."""
    try:
        return run(batches)
    except errors.RunFailed as failed:
        if batches == WEIGHED or not MEMORY.search(failed.found):
            raise
        log.warning(
            "a batch of records took too much memory: run once more with batches bounded in bytes",
            found=failed.found,
        )
    return run(WEIGHED)
