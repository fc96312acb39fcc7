"""The plan that a run will carry out.

Relies on the config, the lake's ledger and the broker's answers; touches none of them, and needs neither
Spark nor Arrow, so that a plan is there at once.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final

import structlog
import tenacity

from jobs.context import Pipeline
from jobs.day.sizing import bytes_per_row, file_count, task_count
from jobs.lake.late import unfinished_moves
from jobs.lake.names import brought_by
from jobs.lake.port import Lake
from jobs.task.batch_limit import WEIGHED, BatchLimit, batch_limit
from offsets.commit_log import Ledger, read_ledger, read_manifest, read_twice
from offsets.day_plan import DayPlan
from offsets.days import ONE_DAY
from offsets.errors import BrokerBehind, ConfigError, LedgerBroken
from offsets.kafka.offset_lookup import Survey, survey
from offsets.manifest import Manifest
from offsets.plan import Terms, bounds, plan_day, require_over

log = structlog.get_logger(__name__)

CLOCKS: Final = timedelta(days=1)
"""By so much a clock may be set back from one run to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A plan, and what was seen while it was made."""

    plan: DayPlan
    row_bytes: float
    batches: BatchLimit = WEIGHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a run would do: `planned` is the day that was asked for, or the first that is due.

    `committed` is the manifest of the day that was asked for, which a run would leave as it is, but for the
    late rows that are still to be brought to `unfinished_moves`.
    """

    due: tuple[date, ...]
    next_day: date
    due_at: datetime
    planned: PlannedRun | None = None
    committed: Manifest | None = None
    unfinished_moves: tuple[str, ...] = ()


def preview(pipeline: Pipeline, day: date | None) -> Preview:
    """Foresee what a run does with one day, or without one with the first that is due; touches nothing."""
    return read_twice(lambda: _preview(pipeline, day))


def _preview(pipeline: Pipeline, day: date | None) -> Preview:
    ledger = read_ledger(pipeline.lake)
    next_day, due_at = _next_due(pipeline, ledger)
    seen = Preview(due=tuple(due_days(pipeline, next_day, due_at)), next_day=next_day, due_at=due_at)
    if day and ledger.holds(day) and (committed := read_manifest(pipeline.lake, day)):
        newest = day + ONE_DAY == next_day
        moves = unfinished_moves(pipeline.lake, committed) if newest else ()
        return replace(seen, committed=committed, unfinished_moves=tuple(moves))
    wanted = day or next(iter(seen.due), None)
    return replace(seen, planned=make_plan(pipeline, ledger, wanted)) if wanted else seen


def next_due(pipeline: Pipeline) -> tuple[date, datetime]:
    """Name the next day and the instant from which it can be settled."""
    return read_twice(lambda: _next_due(pipeline, read_ledger(pipeline.lake)))


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


def make_plan(pipeline: Pipeline, ledger: Ledger, day: date, *, again: bool = False) -> PlannedRun:
    """Plan one day from the ledger and the broker, touching neither.

    `again` is for a day whose manifest is gone: of its late rows, some lie in earlier days already.
    """
    settings = pipeline.settings
    require_same_first(ledger, settings.day.first)
    instants = bounds(day, settings.day.zone, ledger.newest)
    if day >= ledger.next_day(settings.day.first):
        # a day that is not over must be waited for, whatever is missing
        require_over(instants, settings.day.grace, pipeline.now())
    ledger.require_next(day, settings.day.first)
    require_unamended(pipeline.lake, ledger, day, again=again)
    known = ledger.newest.next if ledger.newest else None
    future = settings.rules.future
    found = survey(pipeline.broker(), settings.topic, instants, settings.day.grace, future, known)
    terms = Terms(
        zone=settings.day.zone,
        grace=settings.day.grace,
        headroom=settings.day.headroom,
        future=future,
        contract=settings.rules.contract(settings.day.zone, settings.day.first),
        accept=pipeline.accept,
    )
    plan = plan_day(day=instants, ledger=ledger, survey=found, terms=terms, now=pipeline.now())
    sizes = _record_sizes(found)
    return PlannedRun(
        plan=plan,
        row_bytes=bytes_per_row(ledger.newest, statistics.median(sizes) if sizes else None),
        batches=batch_limit(found.topic.largest_message, sizes),
    )


def require_same_first(ledger: Ledger, first: date) -> None:
    """Check that the config names the first day that the lake has.

    Refused rather than warned of: whoever changed it wants other days, and a warning at night is not read.

    Raises:
        ConfigError: it names another one.
    """
    if ledger.days and ledger.days[0].date != first:
        raise ConfigError(
            expected=f"day.first: {ledger.days[0].date}, the first day of this lake",
            found=f"{first}",
            do="A lake's first day stays: write it back. Another first day needs another lake (lake.path).",
        )


def require_unamended(lake: Lake, ledger: Ledger, day: date, *, again: bool) -> None:
    """Check that no run of a day, or of a later one, brought late rows to the days that are committed.

    A day that is settled `again` knows of its own ones.

    Raises:
        LedgerBroken: it was committed once; to run it as if it had not been would double those rows.
    """
    dates = [each.date for each in ledger.days]
    by = day + ONE_DAY if again else day
    if left := lake.late_files(dates, by, _clean_until(lake, ledger.newest)):
        own = any(brought_by(ref) == day for ref in left)
        raise LedgerBroken(
            expected=f"no late rows of {by} or later in earlier days, since it is not committed",
            found=f"{len(left)} file(s), such as {lake.place(left[0])}: the day was committed, and then "
            "removed",
            do=f"Build the day again (`run --date {day} --force`), or restore its folder from a backup."
            if own
            else "Restore the removed days from a backup, or move these files out of the lake: their rows "
            "are then settled again.",
        )


def _clean_until(lake: Lake, newest: Manifest | None) -> datetime | None:
    """Return an instant before which no run of a day after the newest brought a late row; None if unknown."""
    # When the newest day's run planned it, under the lock, no folder held such a row: each run looks for rows
    # of all later days, not of its own alone, whichever of them were removed. What was brought afterwards has
    # changed its folder since that day's audit, but for what a person put there while that run went on.
    # A day that was built again says when that was: a later day may have been committed, and removed, before
    # it. Then the day before tells as well: no folder held such a row when that was planned.
    # Unknown: versions that wrote formats 1 and 2 looked for rows of their own day alone.
    # Clocks: the run's and the store's may differ, so the earlier one counts. Only where both are set back by
    # more than CLOCKS from one run to the next can a folder seem older than it is.
    told = newest
    if newest and newest.revision > 1:
        told = read_manifest(lake, newest.day.date - ONE_DAY)
    if told is None or told.earlier is None or told.revision > 1:
        return None
    written = lake.manifest_written(told.day.date)
    return min(told.audited, written) - CLOCKS if written else None


def expected_files(pipeline: Pipeline, planned: PlannedRun, cores: int) -> int:
    """Return about how many files a plan makes."""
    expected = planned.plan.offsets * planned.row_bytes
    tasks = tasks_of(pipeline, planned, cores)
    return file_count(expected, tasks, target=pipeline.settings.lake.target_file_size)


def tasks_of(pipeline: Pipeline, planned: PlannedRun, cores: int) -> int:
    """Return how many tasks a plan is cut into."""
    lake = pipeline.settings.lake
    sizes = {"target": lake.target_file_size, "minimum": lake.min_file_size}
    return task_count(planned.plan, planned.row_bytes, **sizes, cores=cores)


def plan_patiently(pipeline: Pipeline, ledger: Ledger, day: date, *, again: bool = False) -> PlannedRun:
    """Plan, and wait up to twice `kafka.timeout` (a minute by default) for an open transaction to end."""
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BrokerBehind),
        wait=tenacity.wait_exponential(multiplier=0.5, max=5),
        stop=tenacity.stop_after_delay(2 * pipeline.settings.kafka.timeout),
        before_sleep=lambda _: log.warning("waiting for an open transaction to end", day=str(day)),
        reraise=True,
    )
    return tries(make_plan, pipeline, ledger, day, again=again)


def _record_sizes(found: Survey) -> list[int]:
    return [record.size for look in found.partitions.values() for record in look.first]
