"""Rebuild a committed day beside the old one, and exchange both in one step.

This repairs a damaged day, or decodes it again under an accepted contract. It reads the recorded spans under
the recorded bounds. Each offset must get its recorded verdict again, or the old day stays. A file is rebuilt
by the day whose manifest names it. So a day writes its damaged late files again too, and brings them to their
days; and for damaged amendments that it received, the days that brought them are rebuilt as well. If the
newest day's manifest is gone, no manifest records where the day ended, and none continues from there: it is
planned like a new day, and its late rows in earlier days stay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import structlog

from jobs.context import Pipeline
from jobs.daily import Outcome
from jobs.day.carry_over import CarriedOver, find_carried_over
from jobs.day.columns import current_columns
from jobs.day.compare import require_same_verdicts, with_recorded_anchors
from jobs.day.execute import Execution, staging
from jobs.day.old_day import OldDay
from jobs.day.owners import find_owners, require_owners_known
from jobs.day.plan_again import plan_again
from jobs.day.schema_file import write_schema
from jobs.lake.expiry import finish_expiry
from jobs.lake.late import finish_moves, unfinished_moves
from jobs.lake.ledger import enter_days, enter_missing
from jobs.lake.names import STAGED_DAY
from jobs.lake.port import Lake
from jobs.stages import DayStages, Stage
from offsets.commit_log import read_manifest
from offsets.contract import Contract
from offsets.errors import ConfigError, LedgerBroken, StoreFailed
from offsets.manifest import Manifest
from offsets.neighbours import History
from offsets.plan import Accept

if TYPE_CHECKING:
    from jobs.day.audit import Audited
    from jobs.task.result import TaskResult

log = structlog.get_logger(__name__)


def rebuild_day(pipeline: Pipeline, day: date) -> Outcome:
    """Rebuild a committed day and exchange it for the old one: all of it, or nothing.

    Raises:
        KafkaDailyError: one of its kinds, as `offsets.errors` lists them.
    """
    with pipeline.lock_lake():
        finish_expiry(pipeline.lake, pipeline.run_id)
        return _Rebuild(pipeline=pipeline, day=day).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rebuild:
    """One day that is built again, under today's contract or under a recorded one."""

    pipeline: Pipeline
    day: date
    contract: Contract | None = None

    def run(self) -> Outcome:
        """Build the day again; the steps are those of `run_day`."""
        lake, stages = self.pipeline.lake, DayStages(self.day, self.pipeline.observers)
        also: dict[date, int] = {}
        # ledger: what is recorded of the day; moves that were interrupted are finished first
        lake.settle(self.day)
        old = self._read_old_day()
        enter_missing(lake, [manifest.day.date for manifest in old.history.manifests])
        self._require_nothing_accepted(old.history)
        amended = _finish_moves(lake, old.history.manifests)
        old.require_no_unknown_files()
        old.require_brought_files_named()
        # plan: the recorded offsets again, and what the new revision takes over of the old one
        with stages.observed(Stage.PLAN) as figures:
            planned = plan_again(self.pipeline, old, self.contract)
            carried_over = find_carried_over(old)
            figures.update(offsets=planned.plan.offsets, revision=carried_over.revision)
        # days that brought damaged amendments bring them anew: now, if this day is there, or else at the end
        if old.history.own and carried_over.owners:
            amended += self._rebuild_owners(carried_over.owners, also)
            old = self._read_old_day()
            carried_over = find_carried_over(old)
            _require_intact(lake, carried_over.owners)
        require_owners_known(self.pipeline, carried_over.owners, self.day)
        # read, classify, write; audit; exchange old and new day; publish
        with staging(self.pipeline, self.day, partial(_holds_unknown_files, old)) as staged:
            if lake.has_day(self.day) or carried_over.owners:
                lake.require_replace(staged)
            execution = Execution.begin(self.pipeline, planned, staged, stages)
            result = execution.run_tasks()
            with stages.observed(Stage.AUDIT) as figures:
                audited = _audit(execution, result, old)
                figures.update(files=len(audited.files))
            with stages.observed(Stage.COMMIT) as figures:
                manifest = _exchange(execution, audited, old, carried_over)
                figures.update(run=self.pipeline.run_id, revision=manifest.revision)
            enter_days(lake, [self.day])  # as long as staging shows that the day was replaced
        with stages.observed(Stage.PUBLISH) as figures:
            amended += self._rebuild_owners(carried_over.owners, also)
            amended += _finish_moves(lake, (manifest, *old.history.after))
            lake.finish(self.day)
            newest = (manifest, *old.history.after)[-1]
            if carried_over.owners:  # the newest day may be one of them, and has another manifest by now
                newest = read_manifest(lake, newest.day.date) or newest
            write_schema(lake, newest, current_columns(lake, newest))
            figures.update(amended=amended.total())
        return Outcome(manifest=manifest, already=False, amended=amended, also=also, seconds=stages.seconds)

    def _read_old_day(self) -> OldDay:
        return OldDay.read(self.pipeline.lake, self.pipeline.settings.topic, self.day)

    def _require_nothing_accepted(self, history: History) -> None:
        """Check that no loss or start is accepted: a rebuild reads exactly the recorded offsets again."""
        accept = self.pipeline.accept
        options = [f"--accept-loss {lost}" for lost in accept.loss]
        if history.known and accept.start:
            options.append("--accept-start")
        if options:
            raise ConfigError(
                expected="--force alone, or with --accept-contract: a day is built again of what it was made "
                "of",
                found=" ".join(options),
                do="Leave the option out: what the day's own run accepted holds still.",
            )

    def _rebuild_owners(self, owned: Mapping[str, Manifest], also: dict[date, int]) -> Counter[date]:
        """Rebuild the days that brought amendments which the day lost, each under its recorded contract.

        They write these files again and bring them, so this may precede the day's own rebuild, or follow it.
        Their revisions are entered in `also`.
        """
        amended, pipeline = Counter[date](), self.pipeline
        for owner in find_owners(pipeline, owned, self.day):
            current = read_manifest(pipeline.lake, owner.day)
            if current and current.run_id == pipeline.run_id:  # this run rebuilt it, as an owner of another
                continue
            into = str(owner.into)
            log.info("rebuilding the day that brought damaged late rows", day=str(owner.day), into=into)
            with owner.named():
                settings = replace(pipeline.settings, rules=owner.rules())
                as_recorded = replace(pipeline, settings=settings, accept=Accept())
                contract = owner.manifest.contract
                rebuilt = _Rebuild(pipeline=as_recorded, day=owner.day, contract=contract).run()
                amended.update(rebuilt.amended)
                also.update({**rebuilt.also, owner.day: rebuilt.manifest.revision})
        return amended


def _finish_moves(lake: Lake, manifests: Sequence[Manifest]) -> Counter[date]:
    """Finish the moves of the last day, and of others whose rebuild was killed before it moved all."""
    amended = Counter[date]()
    for manifest in manifests:
        if manifest is manifests[-1] or any(unfinished_moves(lake, manifest)):
            amended.update(finish_moves(lake, manifest, rebuilding=True))
    return amended


def _require_intact(lake: Lake, owners: Mapping[str, Manifest]) -> None:
    for target, owner in owners.items():
        raise LedgerBroken(
            expected=f"{lake.place(target)} as {owner.day.date} has just brought it",
            found="another file, or none",
            do="The old day stays. Look at the disk, then build the day again.",
        )


def _holds_unknown_files(old: OldDay, staged: str) -> bool:
    """Return whether somebody wrote into the old folder just before the exchange, and log the files."""
    folder = f"{staged}/{STAGED_DAY}"
    try:
        unknown = [old.lake.place(f"{folder}/{name}") for name in old.unknown_files(folder)]
    except StoreFailed as refused:  # the day is committed; a folder that cannot be listed is kept
        unknown = [f"{refused.found} when trying {refused.expected}"]
    if unknown:
        log.warning(
            "files of somebody else came into the day while it was exchanged: they are kept in staging, "
            "where `clean --execute` would remove them",
            files=unknown,
        )
    return bool(unknown)


def _audit(execution: Execution, result: TaskResult, old: OldDay) -> Audited:
    """Audit the rebuilt day, and compare it with what is recorded or left of the old one."""
    recorded = old.history.recorded() if old.history.known else None
    few_invalid = recorded is None or execution.plan.contract != recorded.plan.contract
    audited = execution.audit(result, few_invalid=few_invalid)
    if recorded:
        require_same_verdicts(audited, recorded)
        audited = with_recorded_anchors(audited, recorded)
    old.require_delivered_again(audited.gaps)
    return audited


def _exchange(execution: Execution, audited: Audited, old: OldDay, carried_over: CarriedOver) -> Manifest:
    """Exchange the old day for the rebuilt one, with what that takes over."""
    from jobs.day.commit import recommit

    pipeline, staged = execution.pipeline, execution.staged
    old.require_no_unknown_files()
    contract, options = execution.plan.contract, execution.file_options()
    files, carried_over = carried_over.new_files(old, contract, audited.files, f"{staged}/kept", options)
    amend = bool(carried_over.lost) or (not old.history.known and pipeline.amends)
    stamp, success_file = pipeline.stamp(execution.started), pipeline.settings.lake.success_file
    return recommit(
        pipeline.lake, staged, audited, files, carried_over, stamp, amend=amend, success_file=success_file
    )
