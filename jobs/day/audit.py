"""The check that plan, tally and files agree, offset by offset, before anything is committed.

Pure. Only `audit` makes an Audited and only the commit takes one, so a wrong order does not type-check.
What the tasks report is compared with what the files hold when they are read again, and both with the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.record.decode import NO_VALUE
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
from offsets.day_plan import DayPlan, Span
from offsets.errors import AuditFailed, TooManyInvalid
from offsets.instants import micros
from offsets.manifest import CauseCount, Gaps, Tally
from offsets.plan import IF_COMPACTED, next_checkpoint
from offsets.ranges import Offsets
from offsets.verdict import Verdict

Fates = Mapping[Verdict, Offsets]
"""The offsets of one partition, by what became of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A day that adds up and may be committed."""

    plan: DayPlan
    tally: tuple[Tally, ...]
    causes: tuple[CauseCount, ...]
    gaps: tuple[Gaps, ...]
    missing_pending: int
    files: tuple[WrittenFile, ...]
    next: Checkpoint


def audit(
    plan: DayPlan,
    reports: Sequence[TaskResult],
    files: Sequence[WrittenFile],
    read: Callable[[WrittenFile], ReadBack],
) -> Audited:
    """Check that plan, reports and files agree; `read` reads a file again.

    Raises:
        AuditFailed: they do not agree.
    """
    delivered = _joined("delivered", [report.delivered for report in reports])
    unfiled = {
        verdict: _joined(str(verdict), [report.unfiled.get(verdict, {}) for report in reports])
        for verdict in UNFILED
    }
    tally = summed(each for report in reports for each in report.tally)
    in_files = _files_as_read(plan, files, read)
    gaps, missing, fates = [], 0, dict[int, Fates]()
    for span, known in zip(plan.spans, plan.consumed.partitions, strict=True):
        got = delivered.pop(span.partition, Offsets())
        gaps.append(Gaps(partition=span.partition, offsets=span.reads - got))
        missing += _check_pending(plan, span, known.pending, got)
        settled = got.within(span.from_offset, span.seen_until) - known.pending
        fates[span.partition] = {
            Verdict.ALREADY_SETTLED: settled,
            **{verdict: each.get(span.partition, Offsets()) for verdict, each in unfiled.items()},
            **in_files.get(span.partition, {}),
        }
        rows = {each.verdict: each.rows for each in tally if each.partition == span.partition}
        _check_partition(span, delivered=got, fates=fates[span.partition], rows=rows)
    planned = {span.partition for span in plan.spans}
    counted = {each.partition for each in tally}
    named = {partition for each in unfiled.values() for partition in each}
    strangers = (delivered.keys() | named | in_files.keys() | counted) - planned
    if strangers:
        raise _failed("only partitions of the plan", f"records of partitions {sorted(strangers)}")
    return Audited(
        plan=plan,
        tally=tuple(replace(each, digest=fates[each.partition][each.verdict].digest()) for each in tally),
        causes=summed_causes(each for report in reports for each in report.causes),
        gaps=tuple(gaps),
        missing_pending=missing,
        files=tuple(files),
        next=next_checkpoint(plan, unfiled[Verdict.LATER_DAY], _last(reports)),
    )


def require_few_invalid(reports: Sequence[TaskResult], limit: float, floor: int) -> None:
    """Check, before the commit, that no more records are invalid than the limit allows.

    The floor allows a few bad records in a small day. It does not allow most of them to be bad: that is a
    config that does not fit.

    Raises:
        TooManyInvalid: more than the limit are, and more than the floor or than half of those with a value.
    """
    tally = [each for report in reports for each in report.tally]
    invalid = _rows(tally, Verdict.INVALID)
    new = sum(each.rows for each in tally) - _rows(tally, Verdict.ALREADY_SETTLED)
    causes = summed_causes(each for report in reports for each in report.causes)
    empty = sum(each.rows for each in causes if each.cause == NO_VALUE)
    judged = new - _rows(tally, Verdict.SKIPPED) - empty
    if invalid <= limit * new or (invalid <= floor and 2 * (invalid - empty) <= judged):
        return
    raise TooManyInvalid(
        expected=f"at most {limit:.4%} of {new:,} records to be invalid (invalid.limit), or {floor:,} "
        "(invalid.floor) if those are not most of them",
        found=f"{invalid:,}: {_commonest(causes)}",
        do="Look at those records. Mend the config, or raise invalid.limit, and run the day again; "
        "to end this day with these records as invalid, set invalid.limit: 100% for one run.",
        invalid=invalid,
        records=new,
        causes=[
            {"cause": c.cause, "rows": c.rows, "partition": c.partition, "offset": c.offset}
            for c in causes[:3]
        ],
    )


def _rows(tally: Iterable[Tally], verdict: Verdict) -> int:
    return sum(each.rows for each in tally if each.verdict is verdict)


def _commonest(causes: Sequence[CauseCount]) -> str:
    return "; ".join(
        f"{each.rows:,} x {each.cause} (for example partition {each.partition} offset {each.offset})"
        for each in causes[:3]
    )


def _joined(what: str, sets: Iterable[Mapping[int, Offsets]]) -> dict[int, Offsets]:
    try:
        return joined_by_partition(sets)
    except ValueError as error:
        raise _failed(f"each offset to be {what} once", str(error)) from None


def _check_pending(plan: DayPlan, span: Span, pending: Offsets, delivered: Offsets) -> int:
    """Check that all pending offsets came; on a compacted topic, count those that vanished."""
    missing = pending - delivered
    if len(missing) and not plan.compacted:
        raise _failed(
            f"partition {span.partition} to deliver its {len(pending):,} pending offsets",
            f"{len(missing):,} of them missing, from {missing.first} on",
            IF_COMPACTED,
        )
    return len(missing)


def _check_partition(span: Span, *, delivered: Offsets, fates: Fates, rows: Mapping[Verdict, int]) -> None:
    """Check that every delivered offset has one fate, and that the tally counts just these."""
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


def _files_as_read(
    plan: DayPlan, files: Sequence[WrittenFile], read: Callable[[WrittenFile], ReadBack]
) -> dict[int, dict[Verdict, Offsets]]:
    """Read all files again and return the offsets that they hold, by partition and verdict."""
    held: dict[int, dict[Verdict, list[Offsets]]] = {}
    for file in files:
        try:
            back = read(file)
        except (OSError, ValueError, KeyError) as error:
            raise _failed(f"{file.path} to be readable", f"{type(error).__name__}: {error}") from error
        _check_file(plan, file, back)
        for partition, offsets in back.offsets.items():
            held.setdefault(partition, {}).setdefault(file.verdict, []).append(offsets or Offsets())
    return {
        partition: {
            verdict: _joined("filed", [{partition: one} for one in sets])[partition]
            for verdict, sets in each.items()
        }
        for partition, each in held.items()
    }


def _check_file(plan: DayPlan, file: WrittenFile, back: ReadBack) -> None:
    written = (file.rows, file.bytes, file.sha256, file.event_time_min, file.event_time_max)
    found = (back.rows, back.bytes, back.sha256, back.event_time_min, back.event_time_max)
    if written != found:
        raise _failed(f"{file.path} to hold what was written, {written}", f"{found} when it was read again")
    _check_coordinates(file, back)
    if file.verdict is Verdict.INVALID:
        return
    earlier = {day.date: day for day in plan.earlier}
    day = plan.day if file.verdict is Verdict.IN_DAY else earlier.get(file.day) if file.day else None
    if day is None:
        raise _failed(f"{file.path} to be of an earlier day", f"{file.day}")
    low, high = back.event_time_min, back.event_time_max
    if low is None or high is None or not micros(day.start) <= low <= high < micros(day.end):
        raise _failed(f"{file.path} to hold events of {day}", "event times outside it")


def _check_coordinates(file: WrittenFile, back: ReadBack) -> None:
    """Check that a file holds the offsets that the manifest will say it holds."""
    written = {each.partition: (each.rows, each.from_offset, each.until_offset) for each in file.offsets}
    found = {}
    for partition, offsets in back.offsets.items():
        if offsets is None:
            raise _failed(f"each offset once in {file.path}", f"one twice, of partition {partition}")
        found[partition] = (len(offsets), offsets.first, offsets.until)
    if written != found:
        raise _failed(f"{file.path} to hold the offsets {written}", f"{found} when it was read again")


def _last(reports: Sequence[TaskResult]) -> dict[int, Anchor]:
    last: dict[int, Anchor] = {}
    for report in reports:
        for partition, anchor in report.last.items():
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
