"""Settle one day, from the ledger to the commit and the late rows.

    1 ledger   only the manifests, `date=D/_manifest.json`, hold offsets; each continues from the checkpoint
               of the one before. A day with a manifest is committed, and there is nothing to do. Only the
               last manifests are read: the newest one records the bounds of all days before it
    2 lock     one run a lake; what the last run did not publish is finished: entries in `_ledger`, and
               moves of the newest day's late files
    3 plan     the day is over once our clock is `day.grace` past its end. Then the plan names, per partition,
               what to read: the pending offsets of earlier days, and all new offsets up to the one from which
               on Kafka stamped records past the day and its grace. The run waits for open transactions below
               it, up to twice `kafka.timeout`, then stops (BrokerBehind). Kafka's clock decides only how far
               to read; the event time decides a record's day
    4-6        Spark's tasks read, judge each record, and write durable Parquet into the run's staging folder
    7 audit    plan, results of the tasks and files, which are read back, must agree, offset by offset. A
               second client looks for the offsets that Kafka did not deliver: for all, or for a sample beyond
               1,000 ranges of a partition. Too many invalid records stop the run here. The audit makes the
               next checkpoint: seen_until is where the reading ended, pending are the offsets that were
               judged LATER_DAY: their events are of later days
    8 commit   in one step the lake makes the day of the files and the manifest, which holds that
               checkpoint. In a folder on disk that step is one rename
    9 publish  the manifest is entered in `_ledger` too, which shows later whether a day was lost. It names
               the earlier day of each late file: the lake brings the file there. In
               a folder on disk it is linked there, and then unlinked here, each durable before the next; a
               link fails if the name is taken, so an interrupted move is finished, and none is made twice.
               The earlier day's manifest is not changed. Last, `_schema.json` gets the columns of all days

A run that dies in 4 to 7, or in 8 before the rename, leaves a folder in staging, which no reader opens; the
next run starts anew, and `clean` removes the folder. After the rename the day is committed, and the next run
continues with 9. `jobs/rebuild.py` builds a day again with `--force`.
Config, lake, broker and Spark come with the `Pipeline` of `jobs/context.py`. This module decides only whether
the day is committed already, and by the config whether late rows are brought: each step is one call, and
takes what the step before returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date

from jobs.context import Pipeline
from jobs.day.columns import current_columns
from jobs.day.execute import Execution, staging
from jobs.day.plan import plan_with_retries
from jobs.day.schema_file import is_behind, write_schema
from jobs.lake.expiry import expire
from jobs.lake.late import finish_moves, has_unfinished_moves
from jobs.lake.ledger import enter_days
from jobs.lake.port import Lake
from jobs.lake.refusals import not_published
from jobs.lake.roll_forward import finish_last_run
from jobs.stages import DayStages, Stage
from offsets.commit_log import read_ledger, read_manifest
from offsets.days import ONE_DAY
from offsets.errors import LedgerBroken, NotPublished, VerifyFailed
from offsets.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did with one day; `seconds` are by step, and empty if the day was committed before.

    `amended` are the rows that earlier days received in this run, `expired` the days that `lake.keep`
    removed. `also` are the revisions of other days that were built again for this one.
    """

    manifest: Manifest
    already: bool
    amended: Mapping[date, int] = field(default_factory=dict)
    expired: tuple[date, ...] = ()
    also: Mapping[date, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def run_day(pipeline: Pipeline, day: date) -> Outcome:
    """Settle one day: all of it, or nothing.

    Raises:
        KafkaDailyError: one of its kinds, as `offsets.errors` lists them.
    """
    # 1 ledger: a committed day needs no lock, but the rename that was seen may not be durable yet
    if (committed := read_manifest(pipeline.lake, day)) and _is_published(pipeline.lake, committed):
        pipeline.lake.make_days_durable()
        return Outcome(manifest=committed, already=True)
    # 2 lock: from here on this run is the lake's one writer; it first finishes the moves of the last run, so
    # that only the newest day ever has unfinished moves
    with pipeline.lock_lake():
        ledger, amended = finish_last_run(pipeline.lake, pipeline.run_id)
        # another run may have committed it since; taking the lock made that durable
        committed = read_manifest(pipeline.lake, day) if ledger.holds(day) else None
        if ledger.newest:
            with suppress(NotPublished):  # no day depends on it
                write_schema(pipeline.lake, ledger.newest, current_columns(pipeline.lake, ledger.newest))
        if committed:
            with not_published(f"{day} to be finished"):
                pipeline.lake.finish(day)  # an older one, which is not looked at before it is asked for
            return Outcome(manifest=committed, already=True, amended=amended)
        stages = DayStages(day, pipeline.observers)
        # 3 plan
        with stages.observed(Stage.PLAN) as figures:
            planned = plan_with_retries(pipeline, ledger, day)
            figures.update(offsets=planned.plan.offsets, partitions=len(planned.plan.spans))
        # 4-6 read, classify, write: in the tasks, into staging
        with staging(pipeline, day) as staged:
            execution = Execution.begin(pipeline, planned, staged, stages)
            result = execution.run_tasks()
            # 7 audit
            with stages.observed(Stage.AUDIT) as figures:
                audited = execution.audit(result)
                figures.update(files=len(audited.files))
            # 8 commit
            with stages.observed(Stage.COMMIT) as figures:
                manifest = execution.commit(audited)
                figures.update(run=pipeline.run_id)
            # 9 publish: the ledger has the manifest too, and late rows reach the days that they belong to
            with stages.observed(Stage.PUBLISH) as figures:
                enter_days(pipeline.lake, [day])
                amended = Counter(amended) + Counter(finish_moves(pipeline.lake, manifest))
                write_schema(pipeline.lake, manifest, manifest.columns)
                expired = _expire(pipeline, day)
                figures.update(amended=sum(amended.values()), expired=len(expired))
        return Outcome(
            manifest=manifest, already=False, amended=amended, expired=expired, seconds=stages.seconds
        )


def _expire(pipeline: Pipeline, newest: date) -> tuple[date, ...]:
    """Remove the days that `lake.keep` no longer keeps.

    Raises:
        NotPublished: the store refused; the day is committed.
        LedgerBroken: an older or newer version wrote an old day's manifest; the day is committed.
        VerifyFailed: an old day's folder holds files of somebody else; the day is committed.
    """
    lake, keep = pipeline.lake, pipeline.settings.lake.keep
    if keep is None:
        return ()
    reason = f"lake.keep: {keep.days}d"
    before, run_id = newest + ONE_DAY - keep, pipeline.run_id
    unfinished = f"the days that {reason} keeps no longer to be removed"
    try:
        with not_published(unfinished, do="Mend the store; the next run goes on."):
            left = expire(lake, read_ledger(lake), before, pipeline.now(), run_id, reason)
    except (LedgerBroken, VerifyFailed) as stopped:
        do = f"{newest} is committed; old days wait to be removed ({reason}). {stopped.do}"
        raise type(stopped)(
            expected=stopped.expected, found=stopped.found, do=do, **stopped.facts
        ) from stopped
    return tuple(expiring.date for expiring in left)


def _is_published(lake: Lake, committed: Manifest) -> bool:
    """Return whether nothing is left to do after the commit of a day."""
    entered = lake.is_entered(committed.day.date) and not is_behind(lake, committed)
    return entered and not has_unfinished_moves(lake, committed)
