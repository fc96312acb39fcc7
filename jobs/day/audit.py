"""The check that plan, tally and files agree, offset by offset, before anything is committed.

Pure. Only `audit` returns an Audited and only the commit takes one, so a wrong order does not type-check.
The results of the tasks are compared with the files, which are read again, and both with the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa

from jobs.record.decode import NO_VALUE
from jobs.record.layout import file_schema
from jobs.record.schema import INVALID_SCHEMA
from jobs.task.result import ReadBack, TaskResult, WrittenFile, audit_failed, each_once, joined_by_partition
from offsets.checkpoint import Checkpoint
from offsets.columns import columns_on, joined_columns
from offsets.day_plan import DayPlan, Span
from offsets.errors import TooManyInvalid
from offsets.instants import micros
from offsets.manifest import CauseCount, Gaps, Tally, tally_by_partition
from offsets.plan import IF_COMPACTED, next_checkpoint
from offsets.ranges import Offsets
from offsets.verdict import Verdict

Fates = Mapping[Verdict, Offsets]
"""The offsets of one partition by verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A day that passed the audit and may be committed."""

    plan: DayPlan
    tally: tuple[Tally, ...]
    causes: tuple[CauseCount, ...]
    gaps: tuple[Gaps, ...]
    missing_pending: int
    files: tuple[WrittenFile, ...]
    next: Checkpoint

    @property
    def transactional(self) -> bool | None:
        """Whether gaps show transactions: a log that is not compacted has no other gaps; None if unknown."""
        if not any(len(gap.offsets) for gap in self.gaps):
            return False
        return True if self.plan.compacted is False else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidMessage:
    """What a message shows of invalid records: the causes with samples, where to look, and facts."""

    causes: str
    look: str
    facts: Mapping[str, object]


def audit(
    plan: DayPlan,
    result: TaskResult,
    files: Sequence[WrittenFile],
    read: Callable[[WrittenFile], ReadBack],
) -> Audited:
    """Check that plan, joined results and files agree; `read` reads a file again.

    Raises:
        AuditFailed: they do not agree.
    """
    verdicts = {**result.unfiled, **_offsets_in_files(plan, files, read)}
    gaps, missing, fates = [], 0, dict[int, Fates]()
    tally = tally_by_partition(result.tally)
    for span, checkpoint in zip(plan.spans, plan.consumed.partitions, strict=True):
        received = result.delivered.get(span.partition, Offsets())
        gaps.append(Gaps(partition=span.partition, offsets=span.reads - received))
        missing += _check_pending(plan, span, checkpoint.pending, received)
        settled = received.within(span.from_offset, span.seen_until) - checkpoint.pending
        fates[span.partition] = {
            Verdict.ALREADY_SETTLED: settled,
            **{verdict: held.get(span.partition, Offsets()) for verdict, held in verdicts.items()},
        }
        rows = {entry.verdict: entry.rows for entry in tally.get(span.partition, ())}
        _check_partition(span, delivered=received, fates=fates[span.partition], rows=rows)
    if unplanned := set(tally).union(result.delivered, *verdicts.values()) - fates.keys():
        raise audit_failed("only partitions of the plan", f"records of partitions {sorted(unplanned)}")
    return Audited(
        plan=plan,
        tally=tuple(
            replace(entry, digest=fates[entry.partition][entry.verdict].digest()) for entry in result.tally
        ),
        causes=result.causes,
        gaps=tuple(gaps),
        missing_pending=missing,
        files=tuple(files),
        next=next_checkpoint(plan, result.unfiled.get(Verdict.LATER_DAY, {}), result.last),
    )


def require_few_invalid(
    result: TaskResult,
    limit: float,
    floor: int,
    shown: Callable[[Sequence[CauseCount]], InvalidMessage],
) -> None:
    """Check, before the commit, that no more records are invalid than the limit allows.

    The floor allows a few invalid records in a small day. It does not allow most records to be invalid: then
    the config is wrong. `shown` makes what the message shows of the causes, the commonest first.

    Raises:
        TooManyInvalid: more are invalid than the limit, and than the floor or half of those with a value.
    """
    rows = Counter[Verdict]()
    for entry in result.tally:
        rows[entry.verdict] += entry.rows
    invalid, new = rows[Verdict.INVALID], rows.total() - rows[Verdict.ALREADY_SETTLED]
    empty = sum(cause.rows for cause in result.causes if cause.cause == NO_VALUE)
    judged = new - rows[Verdict.SKIPPED] - empty
    if invalid <= limit * new or (invalid <= floor and 2 * (invalid - empty) <= judged):
        return
    message = shown(result.causes)
    raise TooManyInvalid(
        expected=f"at most {limit:.4%} of {new:,} records to be invalid (invalid.limit), or {floor:,} "
        "(invalid.floor) if those are not most of them",
        found=f"{invalid:,}: {message.causes}",
        do=f"{message.look} Mend the config, or raise invalid.limit, and run the day again; "
        "to end this day with these records as invalid, set invalid.limit: 100% for one run.",
        invalid=invalid,
        records=new,
        **message.facts,
    )


def _check_pending(plan: DayPlan, span: Span, pending: Offsets, delivered: Offsets) -> int:
    """Check that all pending offsets were delivered; on a compacted topic, count those that were not."""
    missing = pending - delivered
    if len(missing) and not plan.compacted:
        raise audit_failed(
            f"partition {span.partition} to deliver its {len(pending):,} pending offsets",
            f"{len(missing):,} of them missing, from {missing.first} on",
            IF_COMPACTED,
        )
    return len(missing)


def _check_partition(span: Span, *, delivered: Offsets, fates: Fates, rows: Mapping[Verdict, int]) -> None:
    """Check that every delivered offset has exactly one fate, and that the tally counts the same offsets."""
    where = f"partition {span.partition}"
    outside = delivered - span.reads
    if len(outside):
        raise audit_failed(f"{where} to deliver what was asked for, {span.reads}", f"{outside} too")
    rest = delivered
    for verdict, offsets in fates.items():
        if len(offsets - rest):
            raise audit_failed(
                f"{where} to give each delivered record one fate", f"{verdict}: {offsets - rest} too many"
            )
        rest = rest - offsets
    for verdict in Verdict:
        expected, counted = len(fates.get(verdict, Offsets())), rows.get(verdict, 0)
        if counted != expected:
            raise audit_failed(f"{where} to have {expected:,} rows {verdict}", f"{counted:,} in the tally")
    if len(rest):
        raise audit_failed(f"{where} to give each delivered record a fate", f"none for {rest}")


def _offsets_in_files(
    plan: DayPlan, files: Sequence[WrittenFile], read: Callable[[WrittenFile], ReadBack]
) -> dict[Verdict, dict[int, Offsets]]:
    """Read all files again and return the offsets that they hold, by verdict and partition."""
    held: dict[Verdict, list[dict[int, Offsets]]] = {}
    for file in files:
        try:
            reread = read(file)
        except (OSError, ValueError, KeyError) as error:
            raise audit_failed(f"{file.path} to be readable", f"{type(error).__name__}: {error}") from error
        _check_file(plan, file, reread)
        held.setdefault(file.verdict, []).append(_check_coordinates(file, reread))
    with each_once("filed"):
        return {verdict: joined_by_partition(sets) for verdict, sets in held.items()}


def _check_file(plan: DayPlan, file: WrittenFile, reread: ReadBack) -> None:
    written = (file.rows, file.bytes, file.sha256, file.event_time_min, file.event_time_max)
    actual = (reread.rows, reread.bytes, reread.sha256, reread.event_time_min, reread.event_time_max)
    if written != actual:
        raise audit_failed(
            f"{file.path} to hold what was written, {written}", f"{actual} when it was read again"
        )
    _check_columns(plan, file, reread)
    if file.verdict is Verdict.INVALID or not file.rows:  # only the file of a day without rows has none
        return
    earlier = {day.date: day for day in plan.earlier}
    day = plan.day if file.verdict is Verdict.IN_DAY else earlier.get(file.day) if file.day else None
    if day is None:
        raise audit_failed(f"{file.path} to be of an earlier day", f"{file.day}")
    low, high = reread.event_time_min, reread.event_time_max
    if low is None or high is None or not micros(day.start) <= low <= high < micros(day.end):
        raise audit_failed(f"{file.path} to hold events of {day}", "event times outside it")


def _check_coordinates(file: WrittenFile, reread: ReadBack) -> dict[int, Offsets]:
    """Return the offsets that a file holds, which must be those that its manifest will name."""
    held = {partition: offsets for partition, offsets in reread.offsets.items() if offsets is not None}
    if twice := reread.offsets.keys() - held.keys():
        raise audit_failed(f"each offset once in {file.path}", f"one twice, of partition {min(twice)}")
    written = {part.partition: (part.rows, part.from_offset, part.until_offset) for part in file.offsets}
    actual = {partition: (len(offsets), offsets.first, offsets.until) for partition, offsets in held.items()}
    if written != actual:
        raise audit_failed(f"{file.path} to hold the offsets {written}", f"{actual} when it was read again")
    return held


def _check_columns(plan: DayPlan, file: WrittenFile, reread: ReadBack) -> None:
    """Check that a file has the columns of its day, or of both its days, in their order."""
    own = columns_on(plan.columns, plan.day.date)
    match file.verdict, file.day:
        case Verdict.INVALID, _:
            expected = INVALID_SCHEMA
        case Verdict.LATE, date() as day:
            expected = file_schema(joined_columns(columns_on(plan.columns, day), own))
        case _:
            expected = file_schema(own)
    if own and reread.schema is not None and not expected.equals(reread.schema):
        raise audit_failed(f"{file.path} to have the columns {_shown(expected)}", _shown(reread.schema))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
