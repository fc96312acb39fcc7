"""Make the plan of a run, or a preview of it.

Relies on the config, the lake's ledger and the broker; changes nothing there, and imports neither Spark nor
Arrow, so that it is fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

import structlog
import tenacity

from jobs.context import Pipeline
from jobs.day.columns import with_columns
from jobs.day.contract import NextContract, changes_since, next_contract, warn_of_changes
from jobs.day.sizing import bytes_per_row, file_count, task_count
from jobs.lake.late import unfinished_moves
from jobs.lake.names import brought_by
from jobs.lake.port import Lake
from jobs.record.changes import Change
from jobs.task.batch_limit import WEIGHED, BatchLimit, batch_limit
from offsets.commit_log import Ledger, read_ledger, read_manifest, read_twice
from offsets.day_plan import DayPlan
from offsets.days import ONE_DAY
from offsets.errors import BrokerBehind, ConfigError, DayNotOver, LedgerBroken
from offsets.kafka.offset_lookup import survey
from offsets.manifest import Manifest
from offsets.plan import Terms, bounds, plan_day, require_over

log = structlog.get_logger(__name__)

CLOCKS: Final = timedelta(days=1)
"""A clock may be set back by this much from one run to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A plan, with the sizes of records that were seen while it was made.

    `changes` are those of the contract since the day before; `warnings` are what a person
    should know before the run. `endless` is whether retention takes no record of the topic.
    """

    plan: DayPlan
    row_bytes: float
    batches: BatchLimit = WEIGHED
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    endless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a run would do: `planned` is the requested day, or the first that is due.

    `committed` is the manifest of the requested day if it is committed: a run would only finish its
    `unfinished_moves` of late rows. `contract` is what the config means for the next day, where none is due.
    """

    due: tuple[date, ...]
    next_day: date
    due_at: datetime
    planned: PlannedRun | None = None
    committed: Manifest | None = None
    unfinished_moves: tuple[str, ...] = ()
    contract: NextContract = field(default_factory=NextContract)


@read_twice
def preview(pipeline: Pipeline, day: date | None) -> Preview:
    """Return what a run of one day would do, or of the first due day if none is named; changes nothing."""
    ledger = read_ledger(pipeline.lake)
    next_day, due_at = _next_due(pipeline, ledger)
    result = Preview(due=tuple(due_days(pipeline, next_day, due_at)), next_day=next_day, due_at=due_at)
    if day and ledger.holds(day) and (committed := read_manifest(pipeline.lake, day)):
        newest = day + ONE_DAY == next_day
        moves = unfinished_moves(pipeline.lake, committed) if newest else ()
        return replace(result, committed=committed, unfinished_moves=tuple(moves))
    wanted = day or next(iter(result.due), None)
    if wanted is None:
        return replace(result, contract=next_contract(pipeline, ledger.newest))
    try:
        return replace(result, planned=make_plan(pipeline, ledger, wanted, brief=True))
    except DayNotOver as early:
        raise _with_contract(early, next_contract(pipeline, ledger.newest)) from None


def _with_contract(early: DayNotOver, contract: NextContract) -> DayNotOver:
    """Return the error with what the config means for the next day; the same error if that is nothing."""
    if not (lines := contract.lines()):
        return early
    facts = {
        "contract_changes": contract.changes,
        "will_fail": contract.error.document() if contract.error else None,
    }
    return DayNotOver(
        expected=early.expected, found=early.found, do="\n".join((early.do, *lines)), **early.facts, **facts
    )


@read_twice
def next_due(pipeline: Pipeline) -> tuple[date, datetime]:
    """Return the next day and the instant from which it can be settled."""
    return _next_due(pipeline, read_ledger(pipeline.lake))


def due_days(pipeline: Pipeline, day: date, due_at: datetime) -> list[date]:
    """List the days that are over and not committed, in order, from the next one on."""
    due = []
    while due_at <= pipeline.now():
        due.append(day)
        day += ONE_DAY
        due_at = bounds(day, pipeline.settings.day.zone, None).end + pipeline.settings.day.grace
    return due


def _next_due(pipeline: Pipeline, ledger: Ledger) -> tuple[date, datetime]:
    require_same_first(ledger, pipeline.settings.day.first)
    day = ledger.next_day(pipeline.settings.day.first)
    return day, bounds(day, pipeline.settings.day.zone, ledger.newest).end + pipeline.settings.day.grace


def make_plan(
    pipeline: Pipeline, ledger: Ledger, day: date, *, again: bool = False, brief: bool = False
) -> PlannedRun:
    """Return the plan of one day, from the ledger and the broker.

    `again` is for a day whose manifest is gone: some of its late rows may already lie in earlier days.
    A `brief` plan samples no records where fewer follow its end than it reads.
    """
    settings = pipeline.settings
    require_same_first(ledger, settings.day.first)
    instants = bounds(day, settings.day.zone, ledger.newest)
    if day >= ledger.next_day(settings.day.first):
        # checked before what follows: a day that is not over must be waited for, whatever else is wrong
        require_over(instants, settings.day.grace, pipeline.now())
    ledger.require_next(day, settings.day.first)
    require_unamended(pipeline.lake, ledger, day, again=again)
    contract = settings.rules.contract(settings.day.zone, settings.day.first)
    changes = changes_since(pipeline, ledger.newest)
    checkpoint = ledger.newest.next if ledger.newest else None
    future = settings.rules.future
    topic_survey = survey(pipeline.broker(), settings.topic, instants, settings.day.grace, future, checkpoint)
    terms = Terms(
        zone=settings.day.zone,
        grace=settings.day.grace,
        headroom=settings.day.headroom,
        future=future,
        contract=contract,
        changes=tuple(change.text for change in changes),
        accept=pipeline.accept,
    )
    plan = plan_day(day=instants, ledger=ledger, survey=topic_survey, terms=terms, now=pipeline.now())
    plan = with_columns(plan, pipeline.lake, ledger.newest, settings.rules)
    stable = {part: surveyed.stable_after for part, surveyed in topic_survey.partitions.items()}
    sizes = [record.size for part in topic_survey.partitions.values() for record in part.first]
    return PlannedRun(
        plan=plan,
        row_bytes=bytes_per_row(ledger.newest, statistics.median(sizes) if sizes else None),
        batches=batch_limit(topic_survey.topic.largest_message, sizes),
        changes=changes,
        warnings=_warnings(pipeline, plan, stable, brief=brief),
        endless=topic_survey.topic.keeps_all,
    )


def _warnings(
    pipeline: Pipeline, plan: DayPlan, stable: Mapping[int, int], *, brief: bool
) -> tuple[str, ...]:
    behind = sum(max(stable[span.partition] - span.until_offset, 0) for span in plan.spans)
    if brief and behind <= plan.offsets > 0:
        return ()
    from jobs.day.stamps import warnings  # imports Arrow, which `plan` seldom needs

    return warnings(pipeline.broker(), plan, stable, pipeline.settings)


def require_same_first(ledger: Ledger, first: date) -> None:
    """Check that the config names the lake's own first day.

    An error, not a warning: whoever changed it expects other days, and nobody reads warnings at night.

    Raises:
        ConfigError: the config names another day.
    """
    if ledger.days and ledger.days[0].date != first:
        raise ConfigError(
            expected=f"day.first: {ledger.days[0].date}, the first day of this lake",
            found=f"{first}",
            do="A lake's first day stays: write it back. Another first day needs another lake (lake.path).",
        )


def require_unamended(lake: Lake, ledger: Ledger, day: date, *, again: bool) -> None:
    """Check that no run of a day, or of a later one, brought late rows to committed days.

    A day that is settled `again` handles its own late rows.

    Raises:
        LedgerBroken: the day was committed before; a new run would settle those rows twice.
    """
    dates = [committed.date for committed in ledger.days]
    by = day + ONE_DAY if again else day
    if late_files := lake.late_files(dates, by, _no_late_rows_before(lake, ledger.newest)):
        own = any(brought_by(ref) == day for ref in late_files)
        raise LedgerBroken(
            expected=f"no late rows of {by} or later in earlier days, since it is not committed",
            found=f"{len(late_files)} file(s), such as {lake.place(late_files[0])}: the day was committed, "
            "and then removed",
            do=f"Build the day again (`run --date {day} --force`), or restore its folder from a backup."
            if own
            else "Restore the removed days from a backup, or move these files out of the lake: their rows "
            "are then settled again.",
        )


def _no_late_rows_before(lake: Lake, newest: Manifest | None) -> datetime | None:
    """Return an instant before which no day after the newest brought late rows; None if unknown."""
    # When the newest day's run planned it, under the lock, no folder held such a row: each run checks for
    # late rows of its own day and of all later days. A row that was brought afterwards changed its folder
    # after that day's audit, unless a person put it there while that run was going on.
    # If the newest day was rebuilt, its manifest holds the time of the rebuild: a later day may have been
    # committed, and removed, before that. Then the manifest of the day before is used in the same way.
    # Unknown: versions that wrote formats 1 and 2 checked only for rows of their own day.
    # Clocks: those of the run and the store may differ, so the earlier time counts. Only if both clocks are
    # set back by more than CLOCKS from one run to the next can a folder seem older than it is.
    manifest = newest
    if newest and newest.revision > 1:
        manifest = read_manifest(lake, newest.day.date - ONE_DAY)
    if manifest is None or manifest.earlier is None or manifest.revision > 1:
        return None
    written = lake.manifest_written(manifest.day.date)
    return min(manifest.audited, written) - CLOCKS if written else None


def expected_files(pipeline: Pipeline, planned: PlannedRun, cores: int) -> int:
    """Estimate how many files a plan makes."""
    expected = planned.plan.offsets * planned.row_bytes
    target, minimum = pipeline.settings.lake.target_file_size, pipeline.settings.lake.min_file_size
    tasks = task_count(planned.plan, planned.row_bytes, target=target, minimum=minimum, cores=cores)
    return file_count(expected, tasks, target=target)


def plan_with_retries(pipeline: Pipeline, ledger: Ledger, day: date, *, again: bool = False) -> PlannedRun:
    """Return a plan; wait up to twice `kafka.timeout` (a minute by default) for open transactions to end."""
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BrokerBehind),
        wait=tenacity.wait_exponential(multiplier=0.5, max=5),
        stop=tenacity.stop_after_delay(2 * pipeline.settings.kafka.timeout),
        before_sleep=lambda _: log.warning("waiting for an open transaction to end", day=str(day)),
        reraise=True,
    )
    planned = tries(make_plan, pipeline, ledger, day, again=again)
    warn_of_changes(planned.changes, day)
    for warning in planned.warnings:
        log.warning(warning, day=str(day))
    return planned
