"""The story of one day, from the ledger to the commit and the late rows.

    1 ledger   the manifests of all days, `date=D/_manifest.json`, alone know offsets; each goes on from the
               checkpoint of the one before. Is the day among them? then there is nothing to do. Of the chain
               only its end is read: the newest manifest records the bounds of all days before it
    2 lock     one run a lake; what the newest day still has to move is moved
    3 plan     the day is over once our clock is `day.grace` past its end. Then, per partition, what to read:
               what earlier days left pending, and all that is new up to the offset from which on Kafka
               stamped records past the day and its grace; an open transaction below it is waited for. Kafka's
               clock says only how far to read; to which day a record belongs, its event time says
    4-6        Spark's tasks read, judge each record, and write durable Parquet into the run's staging folder
    7 audit    plan, tasks and files, which are read back, must agree, offset by offset; what Kafka did not
               deliver is asked of a second client. Too many invalid records stop the run here. Makes the next
               checkpoint: its seen_until is where the reading ended, its pending what was judged LATER_DAY
    8 commit   files and manifest, with that checkpoint in it, become the day's folder by one rename
    9 publish  each late file is linked into its day, under the name that this day's manifest gives it, and
               then unlinked here; each is made durable before the next. A link fails where the name is taken:
               a move cut short is finished, and none is made twice. That day's own manifest stays as it was

A run that dies in 4 to 7, or in 8 before the rename, leaves a folder in staging that no reader looks into,
and the next run starts anew; `clean` removes it. After the rename the day is there, and the next run goes on
with 9. A day that is built again with `--force` does not come by here: `jobs/rebuild.py`.
This is the one place that sees everything: config, lake, broker and Spark. It decides nothing but whether
the day is committed already: each step is one call, and the next takes what it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING

from jobs.config import Late
from jobs.context import Pipeline
from jobs.day.execute import audit_day, lock_holder, run_stamp, run_tasks, staging
from jobs.day.plan import plan_patiently
from jobs.lake.late import finish_moves, has_unfinished_moves
from jobs.stages import DayStages, Stage
from offsets.commit_log import read_ledger, read_manifest
from offsets.manifest import Manifest

if TYPE_CHECKING:
    from jobs.day.audit import Audited


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one day; `seconds` are by step, and empty where the day was committed before.

    `amended` are the rows that closed days received in this run.
    """

    manifest: Manifest
    already: bool
    amended: Mapping[date, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def run_day(pipeline: Pipeline, day: date) -> Outcome:
    """Settle one day: all of it, or nothing.

    Raises:
        KafkaDailyError: one of its kinds, as `offsets.errors` lists them.
    """
    # 1 ledger: a committed day is done, without the lock; what was seen may not have been durable yet
    if (committed := read_manifest(pipeline.lake, day)) and not has_unfinished_moves(
        pipeline.lake, committed
    ):
        pipeline.lake.make_days_durable()
        return Outcome(manifest=committed, already=True)
    # 2 lock: from here on this run is the lake's one writer; what the last one left open comes first, so that
    # no day but the newest ever has an open move
    with pipeline.lake.lock(lock_holder(pipeline)):
        ledger = read_ledger(pipeline.lake)
        amended: Mapping[date, int] = finish_moves(pipeline.lake, ledger.newest) if ledger.newest else {}
        if ledger.holds(day) and (committed := read_manifest(pipeline.lake, day)):
            return Outcome(manifest=committed, already=True, amended=amended)
        stages = DayStages(day, pipeline.observers)
        # 3 plan
        with stages.observed(Stage.PLAN) as figures:
            planned = plan_patiently(pipeline, ledger, day)
            figures.update(offsets=planned.plan.offsets, partitions=len(planned.plan.spans))
        # 4-6 read, classify, write: in the tasks, into staging
        with staging(pipeline, day) as staged:
            started = pipeline.now()
            results = run_tasks(pipeline, planned, staged, stages)
            # 7 audit
            with stages.observed(Stage.AUDIT) as figures:
                audited = audit_day(pipeline, planned.plan, results, staged)
                figures.update(files=len(audited.files))
            # 8 commit
            with stages.observed(Stage.COMMIT) as figures:
                manifest = _commit(pipeline, staged, audited, started)
                figures.update(run=pipeline.run_id)
            # 9 publish: late rows reach the days that they belong to
            with stages.observed(Stage.PUBLISH) as figures:
                amended = Counter(amended) + Counter(finish_moves(pipeline.lake, manifest))
                figures.update(amended=sum(amended.values()))
        return Outcome(manifest=manifest, already=False, amended=amended, seconds=stages.seconds)


def _commit(pipeline: Pipeline, staged: str, audited: Audited, started: datetime) -> Manifest:
    from jobs.day.commit import commit

    amend = pipeline.settings.late is Late.AMEND
    return commit(pipeline.lake, staged, audited, run_stamp(pipeline, started), amend=amend)
