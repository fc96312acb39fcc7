"""What a run works with, and the plan that it will execute.

Relies on the config, the lake's ledger and the broker's answers; touches none of them, and needs neither
Spark nor Arrow, so that a plan is there at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import structlog
import tenacity

from jobs.config import Settings
from jobs.sizing import WEIGHED, BatchLimit, batch_limit, bytes_per_row, file_count, task_count
from jobs.storage import Lake
from offsets.errors import BrokerBehind, LedgerBroken
from offsets.ledger import Ledger, read_ledger
from offsets.model import DayPlan, LostOffsets
from offsets.plan import Terms, bounds, plan_day, require_over
from offsets.survey import Survey, survey
from offsets.topic import TopicReader

if TYPE_CHECKING:
    from jobs.report import TaskReport
    from jobs.sink import TaskOrder

log = structlog.get_logger(__name__)


class Engine(Protocol):
    """What a day needs of Spark."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def settle(
        self,
        plan: DayPlan,
        order: TaskOrder,
        *,
        tasks: int,
        piece: int,
        batches: BatchLimit,
        progress: Callable[[int, int], None],
    ) -> list[TaskReport]:
        """Run one job over the plan's spans."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """What the command line accepts for this run."""

    contract: bool = False
    start: bool = False
    loss: tuple[LostOffsets, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and what was seen while it was made."""

    plan: DayPlan
    row_bytes: float
    batches: BatchLimit = WEIGHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """All that a run works with."""

    settings: Settings
    lake: Lake
    broker: Callable[[], TopicReader]
    engine: Callable[[], Engine]
    run_id: str
    accept: Accept = field(default_factory=Accept)
    progress: Callable[[int, int], None] = lambda done, total: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def due_days(desk: Desk) -> list[date]:
    """List the days that are over and not committed, in order."""
    day, due_at = next_due(desk)
    due = []
    while due_at <= desk.now():
        due.append(day)
        day += timedelta(days=1)
        due_at = bounds(day, desk.settings.zone, None).end + desk.settings.grace
    return due


def next_due(desk: Desk) -> tuple[date, datetime]:
    """Name the next day and the instant from which it can be settled."""
    ledger = read_ledger(desk.lake)
    day = ledger.next_day(desk.settings.first)
    return day, bounds(day, desk.settings.zone, ledger.newest).end + desk.settings.grace


def make_plan(desk: Desk, ledger: Ledger, day: date) -> Planned:
    """Plan one day from the ledger and the broker, touching neither."""
    settings = desk.settings
    ledger.admit(day, settings.first)
    require_unamended(desk.lake, day)
    instants = bounds(day, settings.zone, ledger.newest)
    require_over(instants, settings.grace, desk.now())
    known = ledger.newest.next if ledger.newest else None
    future = settings.rules.future
    found = survey(desk.broker(), settings.topic, instants, settings.grace, future, known)
    first = ledger.days[0].date if ledger.days else settings.first
    terms = Terms(
        zone=settings.zone,
        grace=settings.grace,
        headroom=settings.headroom,
        future=future,
        contract=settings.rules.contract(settings.zone, first),
        accept_contract=desk.accept.contract,
        accept_start=desk.accept.start,
        accept_loss=desk.accept.loss,
    )
    plan = plan_day(day=instants, ledger=ledger, found=found, terms=terms, now=desk.now())
    if first != settings.first:
        said = f"day.first says {settings.first}, but the lake's first day is {first}, and stays so"
        plan = replace(plan, risks=(*plan.risks, said))
    sizes = _record_sizes(found)
    return Planned(
        plan=plan,
        row_bytes=bytes_per_row(ledger.newest, statistics.median(sizes) if sizes else None),
        batches=batch_limit(found.topic.largest_message, sizes),
    )


def require_unamended(lake: Lake, day: date) -> None:
    """Check that no run of a day brought late rows to other days, where the day is said not to be committed.

    Raises:
        LedgerBroken: it was committed once; to run it as if it had not been would double those rows.
    """
    if left := lake.amended_by(day):
        raise LedgerBroken(
            expected=f"no late rows of {day} in earlier days, since it is not committed",
            found=f"{len(left)} file(s), such as {left[0]}: the day was committed, and then removed",
            do="Restore the day's folder from a backup.",
        )


def expected_files(desk: Desk, planned: Planned, cores: int) -> int:
    """Return about how many files a plan makes."""
    expected = planned.plan.offsets * planned.row_bytes
    tasks = tasks_of(desk, planned, cores)
    return file_count(expected, tasks, target=desk.settings.lake.target_file_size)


def tasks_of(desk: Desk, planned: Planned, cores: int) -> int:
    """Return how many tasks a plan is cut into."""
    lake = desk.settings.lake
    sizes = {"target": lake.target_file_size, "minimum": lake.min_file_size}
    return task_count(planned.plan, planned.row_bytes, **sizes, cores=cores)


def plan_patiently(desk: Desk, ledger: Ledger, day: date) -> Planned:
    """Plan, and wait up to twice `kafka.timeout` (a minute by default) for an open transaction to end."""
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BrokerBehind),
        wait=tenacity.wait_exponential(multiplier=0.5, max=5),
        stop=tenacity.stop_after_delay(2 * desk.settings.kafka.timeout),
        before_sleep=lambda _: log.warning("waiting for an open transaction to end", day=str(day)),
        reraise=True,
    )
    return tries(make_plan, desk, ledger, day)


def _record_sizes(found: Survey) -> list[int]:
    return [record.size for look in found.partitions.values() for record in look.first]
