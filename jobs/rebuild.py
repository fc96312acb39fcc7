"""A committed day built again, beside the old one, and put in its place in one step.

For a damaged day, and to decode it again under an accepted contract. It reads the recorded spans under the
recorded bounds and moves nothing: each offset must meet the fate that it met before, as sets, or the old day
stays. The amendments that the day has received are kept, by link.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from jobs.amend import finish_moves
from jobs.daily import Outcome
from jobs.hold import hold_against
from jobs.kept import Kept, kept_of
from jobs.planning import Desk, Planned
from jobs.remake import remake
from jobs.sizing import bytes_per_row
from jobs.steps import (
    Steps,
    audit_day,
    file_options,
    lock_holder,
    require_retained,
    run_stamp,
    settle_plan,
    staging,
)
from offsets.errors import ContractChanged, OffsetsLost, TopicChanged
from offsets.history import History, Recorded, read_history
from offsets.model import Accepted, Contract, DataFile, DayPlan, Manifest, after_compaction, is_compacted

if TYPE_CHECKING:
    from jobs.audit import Audited
    from jobs.report import WrittenFile

log = structlog.get_logger(__name__)


def rebuild_day(desk: Desk, day: date) -> Outcome:
    """Build a committed day again and exchange it for the old one: all of it, or nothing.

    Raises:
        DayStopped: one of its kinds, as `offsets.errors` lists them.
    """
    with desk.lake.lock(lock_holder(desk)):
        history = read_history(desk.lake, day)
        if history.newest:
            finish_moves(desk.lake, history.newest, rebuilt=day)
        steps = Steps()
        recorded = history.recorded()
        plan = _plan(desk, history, recorded)
        kept = kept_of(desk.lake, history)
        steps.end("plan")
        log.info("rebuilding", day=str(day), offsets=plan.offsets, revision=kept.revision)
        with staging(desk, day) as staged:
            if desk.lake.day_folder(day).exists():
                desk.lake.require_exchange(staged)
            started = desk.now()
            planned = Planned(plan=plan, row_bytes=bytes_per_row(recorded.manifest, None))
            reports = settle_plan(desk, planned, staged, steps)
            steps.end("read_settle_write")
            audited = audit_day(desk, plan, reports, staged, few_invalid=bool(plan.accepted.contract))
            hold_against(audited, recorded)
            remade = tuple(remake(desk, history, kept.damaged, staged))
            steps.end("audit")
            manifest = _exchange(desk, staged, audited, kept, remade, started)
            steps.end("commit")
            log.info("rebuilt", day=str(day), run=desk.run_id, revision=manifest.revision)
        if history.newest:
            finish_moves(desk.lake, manifest if history.newest is history.own else history.newest)
        return Outcome(manifest=manifest, already=False, seconds=steps.seconds)


def _plan(desk: Desk, history: History, recorded: Recorded) -> DayPlan:
    """Plan to read again what was read then."""
    described = desk.broker().describe(desk.settings.topic)
    topic = recorded.consumed.topic
    if described.identity != topic:
        raise TopicChanged(
            expected=f"topic {topic.name} with id {topic.topic_id} in cluster {topic.cluster_id}",
            found=f"id {described.identity.topic_id} in cluster {described.identity.cluster_id}",
            do="The old day stays. What the old topic held cannot be read again: restore it from a backup.",
        )
    policy = after_compaction(
        described.cleanup_policy, history.newest.cleanup_policy if history.newest else None
    )
    if recorded.manifest is None and is_compacted(policy) is not False:
        raise OffsetsLost(
            expected="a topic that is not compacted, to settle again a day whose manifest is gone",
            found=f"cleanup.policy {policy or 'that the broker does not show'}",
            do="Nobody can say what compaction has taken since: restore the day's folder from a backup.",
        )
    require_retained(desk, recorded.spans)
    earlier = history.earlier
    old = recorded.manifest.accepted if recorded.manifest else Accepted()
    contract = desk.settings.rules.contract(desk.settings.zone, (earlier or (recorded.day,))[0].date)
    return recorded.plan(
        earlier=earlier,
        contract=contract,
        accepted=Accepted(contract=_changes(desk, contract, recorded), start=old.start, loss=old.loss),
        cleanup_policy=policy,
    )


def _changes(desk: Desk, now: Contract, recorded: Recorded) -> tuple[str, ...]:
    changes = now.changes_from(recorded.contract)
    if changes and not desk.accept.contract:
        raise ContractChanged(
            expected=f"the contract of {recorded.day.date}",
            found="; ".join(changes),
            do="Undo the change, or decode the day again under the new contract with --accept-contract.",
            changes=list(changes),
        )
    return changes


def _exchange(
    desk: Desk,
    staged: Path,
    audited: Audited,
    kept: Kept,
    remade: Sequence[tuple[DataFile, WrittenFile]],
    started: datetime,
) -> Manifest:
    from jobs.commit import recommit

    files = kept.to_place(audited.files, staged / "kept", file_options(desk, audited.plan))
    return recommit(desk.lake, staged, audited, files, kept, remade, run_stamp(desk, started))
