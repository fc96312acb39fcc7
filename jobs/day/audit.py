"""The check that plan, tally and files agree, offset by offset, before anything is committed.

Pure. Only `audit` returns an Audited and only the commit takes one, so a wrong order does not type-check.
The results of the tasks are compared with the files, which are read again, and both with the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa

from jobs.record.decode import NO_VALUE
from jobs.record.layout import file_schema
from jobs.record.schema import INVALID_SCHEMA
from jobs.task.result import (
    UNFILED,
    ReadBack,
    TaskResult,
    WrittenFile,
    joined_by_partition,
    summed,
    summed_causes,
)
from offsets.checkpoint import Anchor, Checkpoint
from offsets.columns import columns_on, joined_columns
from offsets.day_plan import DayPlan, Span
from offsets.errors import AuditFailed, TooManyInvalid
from offsets.instants import micros
from offsets.manifest import CauseCount, Gaps, Tally
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidMessage:
    """What a message shows of invalid records: the causes with samples, where to look, and facts."""

    causes: str
    look: str
    facts: Mapping[str, object]


def audit(
    plan: DayPlan,
    results: Sequence[TaskResult],
    files: Sequence[WrittenFile],
    read: Callable[[WrittenFile], ReadBack],
) -> Audited:
    """Check that plan, results and files agree; `read` reads a file again.

    Raises:
        AuditFailed: they do not agree.
    """
    delivered = _joined("delivered", [result.delivered for result in results])
    unfiled = {
        verdict: _joined(str(verdict), [result.unfiled.get(verdict, {}) for result in results])
        for verdict in UNFILED
    }
    tally = summed(entry for result in results for entry in result.tally)
    in_files = _offsets_in_files(plan, files, read)
    gaps, missing, fates = [], 0, dict[int, Fates]()
    for span, checkpoint in zip(plan.spans, plan.consumed.partitions, strict=True):
        received = delivered.pop(span.partition, Offsets())
        gaps.append(Gaps(partition=span.partition, offsets=span.reads - received))
        missing += _check_pending(plan, span, checkpoint.pending, received)
        settled = received.within(span.from_offset, span.seen_until) - checkpoint.pending
        fates[span.partition] = {
            Verdict.ALREADY_SETTLED: settled,
            **{
                verdict: by_partition.get(span.partition, Offsets())
                for verdict, by_partition in unfiled.items()
            },
            **in_files.get(span.partition, {}),
        }
        rows = {entry.verdict: entry.rows for entry in tally if entry.partition == span.partition}
        _check_partition(span, delivered=received, fates=fates[span.partition], rows=rows)
    planned = {span.partition for span in plan.spans}
    counted = {entry.partition for entry in tally}
    named = {partition for by_partition in unfiled.values() for partition in by_partition}
    unplanned = (delivered.keys() | named | in_files.keys() | counted) - planned
    if unplanned:
        raise _failed("only partitions of the plan", f"records of partitions {sorted(unplanned)}")
    return Audited(
        plan=plan,
        tally=tuple(replace(entry, digest=fates[entry.partition][entry.verdict].digest()) for entry in tally),
        causes=summed_causes(cause for result in results for cause in result.causes),
        gaps=tuple(gaps),
        missing_pending=missing,
        files=tuple(files),
        next=next_checkpoint(plan, unfiled[Verdict.LATER_DAY], _last_anchors(results)),
    )


def require_few_invalid(
    results: Sequence[TaskResult],
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
    tally = [entry for result in results for entry in result.tally]
    invalid = _rows(tally, Verdict.INVALID)
    new = sum(entry.rows for entry in tally) - _rows(tally, Verdict.ALREADY_SETTLED)
    causes = summed_causes(cause for result in results for cause in result.causes)
    empty = sum(cause.rows for cause in causes if cause.cause == NO_VALUE)
    judged = new - _rows(tally, Verdict.SKIPPED) - empty
    if invalid <= limit * new or (invalid <= floor and 2 * (invalid - empty) <= judged):
        return
    message = shown(causes)
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


def _rows(tally: Iterable[Tally], verdict: Verdict) -> int:
    return sum(entry.rows for entry in tally if entry.verdict is verdict)


def _joined(what: str, sets: Iterable[Mapping[int, Offsets]]) -> dict[int, Offsets]:
    try:
        return joined_by_partition(sets)
    except ValueError as error:
        raise _failed(f"each offset to be {what} once", str(error)) from None


def _check_pending(plan: DayPlan, span: Span, pending: Offsets, delivered: Offsets) -> int:
    """Check that all pending offsets were delivered; on a compacted topic, count those that were not."""
    missing = pending - delivered
    if len(missing) and not plan.compacted:
        raise _failed(
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
        raise _failed(f"{where} to deliver what was asked for, {span.reads}", f"{outside} too")
    rest = delivered
    for verdict, offsets in fates.items():
        if len(offsets - rest):
            raise _failed(
                f"{where} to give each delivered record one fate", f"{verdict}: {offsets - rest} too many"
            )
        rest = rest - offsets
    for verdict in Verdict:
        expected, counted = len(fates.get(verdict, Offsets())), rows.get(verdict, 0)
        if counted != expected:
            raise _failed(f"{where} to have {expected:,} rows {verdict}", f"{counted:,} in the tally")
    if len(rest):
        raise _failed(f"{where} to give each delivered record a fate", f"none for {rest}")


def _offsets_in_files(
    plan: DayPlan, files: Sequence[WrittenFile], read: Callable[[WrittenFile], ReadBack]
) -> dict[int, dict[Verdict, Offsets]]:
    """Read all files again and return the offsets that they hold, by partition and verdict."""
    held: dict[int, dict[Verdict, list[Offsets]]] = {}
    for file in files:
        try:
            reread = read(file)
        except (OSError, ValueError, KeyError) as error:
            raise _failed(f"{file.path} to be readable", f"{type(error).__name__}: {error}") from error
        _check_file(plan, file, reread)
        for partition, offsets in reread.offsets.items():
            held.setdefault(partition, {}).setdefault(file.verdict, []).append(offsets or Offsets())
    return {
        partition: {
            verdict: _joined("filed", [{partition: offsets} for offsets in sets])[partition]
            for verdict, sets in by_verdict.items()
        }
        for partition, by_verdict in held.items()
    }


def _check_file(plan: DayPlan, file: WrittenFile, reread: ReadBack) -> None:
    written = (file.rows, file.bytes, file.sha256, file.event_time_min, file.event_time_max)
    actual = (reread.rows, reread.bytes, reread.sha256, reread.event_time_min, reread.event_time_max)
    if written != actual:
        raise _failed(f"{file.path} to hold what was written, {written}", f"{actual} when it was read again")
    _check_coordinates(file, reread)
    _check_columns(plan, file, reread)
    if file.verdict is Verdict.INVALID or not file.rows:  # only the file of a day without rows has none
        return
    earlier = {day.date: day for day in plan.earlier}
    day = plan.day if file.verdict is Verdict.IN_DAY else earlier.get(file.day) if file.day else None
    if day is None:
        raise _failed(f"{file.path} to be of an earlier day", f"{file.day}")
    low, high = reread.event_time_min, reread.event_time_max
    if low is None or high is None or not micros(day.start) <= low <= high < micros(day.end):
        raise _failed(f"{file.path} to hold events of {day}", "event times outside it")


def _check_coordinates(file: WrittenFile, reread: ReadBack) -> None:
    """Check that a file holds the offsets that its manifest will name."""
    written = {part.partition: (part.rows, part.from_offset, part.until_offset) for part in file.offsets}
    actual = {}
    for partition, offsets in reread.offsets.items():
        if offsets is None:
            raise _failed(f"each offset once in {file.path}", f"one twice, of partition {partition}")
        actual[partition] = (len(offsets), offsets.first, offsets.until)
    if written != actual:
        raise _failed(f"{file.path} to hold the offsets {written}", f"{actual} when it was read again")


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
        raise _failed(f"{file.path} to have the columns {_shown(expected)}", _shown(reread.schema))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _last_anchors(results: Sequence[TaskResult]) -> dict[int, Anchor]:
    last: dict[int, Anchor] = {}
    for result in results:
        for partition, anchor in result.last.items():
            if partition not in last or last[partition].offset < anchor.offset:
                last[partition] = anchor
    return last


def _failed(expected: str, found: str, recurs: str = "") -> AuditFailed:
    return AuditFailed(
        expected=expected,
        found=found,
        do="Nothing was committed; staging is kept as evidence. Run the day again; "
        + (f"if it recurs: {recurs}" if recurs else "report it if it recurs."),
    )
