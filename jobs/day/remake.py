"""Late files that a day received and lost, made again from the spans of the day that brought them.

Relies on that day's manifest for spans, bounds and contract, and on its digests: the late rows must be the
very same records, or the file is given up as lost. Only their bytes differ, so the new manifest names them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from jobs.context import Pipeline
from jobs.day.carry_over import Damaged, drop_offsets, offsets_of
from jobs.day.compare import require_same_verdicts
from jobs.day.execute import audit_day, file_options, require_retained, run_tasks
from jobs.day.plan import PlannedRun
from jobs.day.sizing import bytes_per_row
from jobs.record.rules import Rules, rules_of
from jobs.stages import DayStages
from offsets.day_plan import after_compaction
from offsets.days import ONE_DAY, Day, days_of
from offsets.errors import LedgerBroken, OffsetsLost
from offsets.instants import from_micros
from offsets.manifest import DataFile, Manifest
from offsets.neighbours import History, RecordedDay
from offsets.ranges import Offsets
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.lake.port import Lake
    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import WrittenFile


def remake(
    pipeline: Pipeline, history: History, damaged: Sequence[Damaged], staged: str
) -> Iterator[tuple[DataFile, WrittenFile]]:
    """Make damaged amendments again; yield what the manifest is to say about each, and the new file.

    Raises:
        OffsetsLost: Kafka no longer holds the records, or no single file can hold them.
        AuditFailed: the records that are late now are not those that were late then.
    """
    by_run = groupby(damaged, key=lambda each: each.manifest.day.date)
    for number, (_, files) in enumerate(by_run):
        yield from _remade(pipeline, history, list(files), f"{staged}/remade-{number}")


def _remade(
    pipeline: Pipeline, history: History, damaged: Sequence[Damaged], staged: str
) -> Iterator[tuple[DataFile, WrittenFile]]:
    """Make again what one run brought, the narrowest file first: another's rows may surround its rows."""
    by = damaged[0].manifest
    there = replace(pipeline, settings=replace(pipeline.settings, rules=_rules(by)))
    require_retained(pipeline, by.spans)
    recorded = RecordedDay.of(by)
    plan = recorded.plan(
        earlier=_days_before(history, by),
        contract=by.contract,
        accepted=by.accepted,
        cleanup_policy=after_compaction(by.cleanup_policy, history.policy),
    )
    planned = PlannedRun(plan=plan, row_bytes=bytes_per_row(by, None))
    reports = run_tasks(there, planned, staged, DayStages(by.day.date))
    audited = audit_day(there, plan, reports, staged, few_invalid=False)
    require_same_verdicts(audited, recorded)
    late = [one for one in audited.files if one.verdict is Verdict.LATE and one.day == history.date]
    options, found = file_options(there, plan), list(damaged[0].intact)
    for number, file in enumerate(sorted((each.file for each in damaged), key=_width)):
        new = _made(pipeline.lake, file, late, found, f"{staged}/late-{number}", options)
        found.append(new.path)
        yield _as_made(file, new), new


def _width(file: DataFile) -> int:
    return sum(part.until_offset - part.from_offset for part in file.offsets)


def _made(
    lake: Lake,
    file: DataFile,
    late: Sequence[WrittenFile],
    found: Sequence[str],
    folder: str,
    options: FileOptions,
) -> WrittenFile:
    """Write the late rows between the edges of a file that lie in no other one, into one file.

    Raises:
        OffsetsLost: they are not those that it held.
    """
    from jobs.task.small_files import merge_small_files

    elsewhere, nothing = offsets_of(lake, found), Offsets()
    edges = {each.partition: Offsets.between(each.from_offset, each.until_offset) for each in file.offsets}
    others = {
        part: (offsets - edges.get(part, nothing)) | elsewhere.get(part, nothing)
        for part, offsets in offsets_of(lake, [each.path for each in late]).items()
    }
    pieces = drop_offsets(lake, late, others, folder, options)
    # today's sizes and tasks may be others than those of the run that brought it
    whole = replace(options, target_size=sys.maxsize)
    made = merge_small_files(lake, pieces, f"{folder}/whole", whole, sys.maxsize)
    if len(made) != 1 or made[0].offsets != file.offsets:
        raise OffsetsLost(
            expected=f"{file.target} to be made again with {file.rows:,} rows",
            found=f"{len(made)} file(s) with {sum(one.rows for one in made):,} rows, or other ones",
            do="The old day stays. Restore that file from a backup, then build the day again.",
        )
    return made[0]


def _as_made(file: DataFile, new: WrittenFile) -> DataFile:
    return replace(
        file,
        bytes=new.bytes,
        sha256=new.sha256,
        event_time_min=from_micros(new.event_time_min),
        event_time_max=from_micros(new.event_time_max),
    )


def _rules(by: Manifest) -> Rules:
    try:
        return rules_of(by.contract)
    except ValueError as error:
        raise OffsetsLost(
            expected=f"the contract of {by.day.date}, to make a late file of its run again",
            found=str(error),
            do="The old day stays. Restore that file from a backup, then build the day again.",
        ) from None


def _days_before(history: History, by: Manifest) -> tuple[Day, ...]:
    if by.earlier is not None:
        return days_of(by.earlier)
    after = (each for each in history.later if each.date < by.day.date)
    return tuple(_adjoining((*history.earlier, history.recorded().day, *after, by.day)))


def _adjoining(days: Sequence[Day]) -> Iterator[Day]:
    """Yield all days but the last, and those between whose manifests are lost: their neighbours tell bounds.

    Raises:
        LedgerBroken: two in a row are lost.
    """
    for before, after in pairwise(days):
        yield before
        lost = before.date + ONE_DAY
        if lost + ONE_DAY < after.date:
            raise LedgerBroken(
                expected=f"the days beside {lost} to record when it began and ended",
                found=f"no manifest that can be read between {before.date} and {after.date}",
                do=f"Restore the manifest of {lost} or of {lost + ONE_DAY} from a backup, then build the day "
                "again.",
            )
        if lost < after.date:
            yield Day(date=lost, zone=after.zone, start=before.end, end=after.start)
