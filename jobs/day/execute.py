"""Execute a plan, of a new day or of a rebuilt one: staging, tasks and audit.

Relies on a plan and a pipeline. Arrow is imported only if there is something to settle: a run of a committed
day must end at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import structlog

from jobs import logs
from jobs.context import Pipeline
from jobs.day.plan import PlannedRun
from jobs.day.sizing import piece_rows, sample_is_useful, task_count
from jobs.lake.ledger import has_other_entry
from jobs.lake.names import STAGED_DAY
from jobs.stages import DayStages, Stage
from offsets import errors
from offsets.day_plan import DayPlan, Span
from offsets.kafka.recheck import prove_gaps, recheck, recheck_pending
from offsets.manifest import CauseCount, Gaps
from offsets.ranges import Offsets
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.day.audit import Audited, InvalidMessage
    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import TaskResult
    from jobs.task.task import TaskSpec

log = structlog.get_logger(__name__)


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


def require_retained(pipeline: Pipeline, spans: Sequence[Span]) -> None:
    """Check that Kafka still holds the offsets that recorded spans read.

    Raises:
        OffsetsLost: retention removed some of them.
    """
    log_offsets = pipeline.broker().log_offsets(pipeline.settings.topic, [span.partition for span in spans])
    for span in spans:
        log_start = log_offsets[span.partition].log_start
        if len(span.reads) and span.reads.first < log_start:
            raise errors.OffsetsLost(
                expected=f"partition {span.partition} from offset {span.reads.first} on",
                found=f"a log that starts at {log_start}",
                do="The old day stays: retention took what it was made of. Restore the day from a backup.",
                partition=span.partition,
                offset=span.from_offset,
                log_start=log_start,
            )


def run_tasks(pipeline: Pipeline, planned: PlannedRun, staged: str, stages: DayStages) -> TaskResult:
    """Run the tasks and join their results; a plan without offsets needs neither tasks nor Spark."""
    from jobs.day.stretches import run_around_stretches
    from jobs.task.classify import DayBounds
    from jobs.task.result import TaskResult, join_results
    from jobs.task.task import TaskSpec

    plan, settings = planned.plan, pipeline.settings
    if plan.offsets == 0:
        return TaskResult()
    spec = TaskSpec(
        rules=settings.rules,
        bounds=DayBounds.of(plan, settings.rules),
        lake=pipeline.lake,
        attempts=f"{staged}/attempts",
        files=file_options(pipeline, plan),
        columns=plan.columns,
    )
    with stages.observed(Stage.START_SPARK) as figures, ThreadPoolExecutor(1) as executor:
        # Spark takes seconds to start, and the sample is read meanwhile
        sampled = executor.submit(logs.inherited(_row_bytes), pipeline, planned, spec)
        engine = pipeline.engine()
        tasks = task_count(
            plan,
            sampled.result(),
            target=settings.lake.target_file_size,
            minimum=settings.lake.min_file_size,
            cores=engine.cores,
        )
        figures.update(tasks=tasks, staging=pipeline.lake.place(staged))
    progress = partial(stages.counted, Stage.TASKS)

    def run(reads: Mapping[int, Offsets]) -> list[TaskResult]:
        pipeline.broker().release()
        with _recheck_on_failure(pipeline, plan):
            return engine.run_tasks(
                plan.topic.name,
                reads,
                spec,
                tasks=tasks,
                piece=piece_rows(plan, tasks),
                batches=planned.batches,
                progress=progress,
            )

    with stages.observed(Stage.TASKS):
        results = run_around_stretches(run, pipeline.broker(), plan, spec, progress)
    return join_results(results)


@contextmanager
def _recheck_on_failure(pipeline: Pipeline, plan: DayPlan) -> Iterator[None]:
    """Check the topic if the job fails: the topic's error explains more than Spark's."""
    try:
        yield
    except errors.RunFailed:
        all_missing = [Gaps(partition=span.partition, offsets=span.reads) for span in plan.spans]
        recheck(pipeline.broker(), plan, all_missing, plan.consumed)
        raise


def _row_bytes(pipeline: Pipeline, planned: PlannedRun, spec: TaskSpec) -> float:
    """Return the size of a row, sampled from Kafka if that may change the number of tasks."""
    if not sample_is_useful(planned.plan, planned.row_bytes, minimum=pipeline.settings.lake.min_file_size):
        return planned.row_bytes
    from jobs.day.sampling import sampled_row_bytes

    row_bytes = sampled_row_bytes(pipeline.broker(), planned.plan, spec)
    log.info("sampled", day=str(planned.plan.day.date), row_bytes=row_bytes, guess=planned.row_bytes)
    return planned.row_bytes if row_bytes is None else row_bytes


def audit_day(
    pipeline: Pipeline, plan: DayPlan, result: TaskResult, staged: str, *, few_invalid: bool = True
) -> Audited:
    """Merge small files, audit plan, result and files, and check the topic once more.

    A day without rows gets a file without rows, so that readers of the day find one, and its columns.
    """
    from jobs.day.audit import audit, require_few_invalid
    from jobs.record.decode import day_schema
    from jobs.task.parquet_writer import read_back, write_empty
    from jobs.task.small_files import merge_small_files

    settings = pipeline.settings
    lake = pipeline.lake
    reader = pipeline.broker()
    options = file_options(pipeline, plan)
    if few_invalid:
        shown = partial(_invalid_message, pipeline, result)
        require_few_invalid(result, settings.invalid.limit, settings.invalid.floor, shown)
    files = merge_small_files(lake, result.files, f"{staged}/merged", options, settings.lake.min_file_size)
    if not any(file.verdict is Verdict.IN_DAY for file in files):
        files.append(
            write_empty(
                lake.create_file(f"{staged}/empty/0.parquet.part"), day_schema(settings.rules), options
            )
        )
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
    proved = prove_gaps(reader, plan.topic.name, audited.gaps, pipeline.run_id)
    # the topic may have been recreated during the probes: they must be of the topic that was read
    recheck(reader, plan, proved, audited.next)
    return replace(audited, gaps=proved)


def _invalid_message(pipeline: Pipeline, result: TaskResult, causes: Sequence[CauseCount]) -> InvalidMessage:
    """Return what the message of TooManyInvalid shows of the invalid records, which lie in staging."""
    from jobs.day.invalid_samples import describe, read_samples

    samples = read_samples(pipeline.lake, result.files, causes)
    return describe(causes, samples, pipeline.settings.rules, pipeline.settings.invalid.samples)


def file_options(pipeline: Pipeline, plan: DayPlan) -> FileOptions:
    """Return the options of the files, with the origin that their footers name."""
    from jobs.task.parquet_writer import FileOptions

    lake = pipeline.settings.lake
    origin = {"topic": plan.topic.name, "day": plan.day.date.isoformat(), "run": pipeline.run_id}
    return FileOptions(target_size=lake.target_file_size, compression=lake.compression, origin=origin)
