"""The story of one day, from the ledger to the commit.

The one place that sees everything: config, lake, broker and Spark. The numbers are those of the protocol
(docs/PROTOCOL.md). It decides nothing itself: each step is one call, and the next takes what it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from jobs.amend import finish_moves, moves_open
from jobs.config import Late
from jobs.planning import Desk, plan_patiently
from jobs.steps import Steps, audit_day, lock_holder, run_stamp, settle_plan, staging
from jobs.storage import sync_folder
from offsets.ledger import read_ledger, read_manifest
from offsets.model import Manifest

if TYPE_CHECKING:
    from jobs.audit import Audited

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
    with desk.lake.lock(lock_holder(desk)):
        sync_folder(desk.lake.root)
        ledger = read_ledger(desk.lake)
        amended: Mapping[date, int] = finish_moves(desk.lake, ledger.newest) if ledger.newest else {}
        if committed := ledger.of(day):
            return Outcome(manifest=committed, already=True, amended=amended)
        steps = Steps()
        # 3 plan
        planned = plan_patiently(desk, ledger, day)
        plan = planned.plan
        steps.end("plan")
        log.info("planned", day=str(day), offsets=plan.offsets, partitions=len(plan.spans))
        # 4-6 read, settle, write: in the tasks
        with staging(desk, day) as staged:
            started = desk.now()
            reports = settle_plan(desk, planned, staged, steps)
            steps.end("read_settle_write")
            log.info("settled", day=str(day), tasks=len(reports))
            # 7 audit
            audited = audit_day(desk, plan, reports, staged)
            steps.end("audit")
            log.info("audited", day=str(day), files=len(audited.files))
            # 8 commit
            manifest = _commit(desk, staged, audited, started)
            steps.end("commit")
            log.info("committed", day=str(day), run=desk.run_id)
            # 9 publish: late rows reach the days that they belong to
            amended = Counter(amended) + Counter(finish_moves(desk.lake, manifest))
            steps.end("publish")
            log.info("published", day=str(day), amended=sum(amended.values()))
        return Outcome(manifest=manifest, already=False, amended=amended, seconds=steps.seconds)


def _commit(desk: Desk, staged: Path, audited: Audited, started: datetime) -> Manifest:
    from jobs.commit import commit

    amend = desk.settings.late is Late.AMEND
    return commit(desk.lake, staged, audited, run_stamp(desk, started), amend=amend)
