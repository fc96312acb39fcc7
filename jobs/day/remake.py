"""Remake damaged amendments of a day, by reading again the spans of the day that brought them.

Relies on that day's manifest for spans, bounds and contract, and on its digests: if the late rows are not the
same records, the file is lost. The bytes of the new file differ, so the new manifest records them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from jobs.context import Pipeline
from jobs.day.carry_over import Damaged, drop_offsets, read_offsets
from jobs.day.compare import require_same_verdicts
from jobs.day.execute import audit_day, file_options, require_retained, run_tasks
from jobs.day.plan import PlannedRun
from jobs.day.sizing import bytes_per_row
from jobs.lake.port import Lake
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
    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import WrittenFile


def remake(
    pipeline: Pipeline, history: History, damaged: Sequence[Damaged], staged: str
) -> Iterator[tuple[DataFile, WrittenFile]]:
    """Remake damaged amendments; yield the manifest's entry for each, and the new file.

    Raises:
        OffsetsLost: Kafka no longer holds the records, or other ones than the file held are late now.
        AuditFailed: the records that are late now are not those that were late then.
    """
    by_run = groupby(damaged, key=lambda amendment: amendment.manifest.day.date)
    for number, (_, amendments) in enumerate(by_run):
        yield from _remake_of_run(pipeline, history, list(amendments), f"{staged}/remade-{number}")


def _remake_of_run(
    pipeline: Pipeline, history: History, damaged: Sequence[Damaged], staged: str
) -> Iterator[tuple[DataFile, WrittenFile]]:
    """Remake what one run brought, the narrowest file first: another file's rows may surround its rows."""
    manifest = damaged[0].manifest
    as_recorded = replace(pipeline, settings=replace(pipeline.settings, rules=_recorded_rules(manifest)))
    require_retained(pipeline, manifest.spans)
    recorded = RecordedDay.of(manifest)
    plan = recorded.plan(
        earlier=_days_before(history, manifest),
        contract=manifest.contract,
        accepted=manifest.accepted,
        cleanup_policy=after_compaction(manifest.cleanup_policy, history.policy),
    )
    planned = PlannedRun(plan=plan, row_bytes=bytes_per_row(manifest, None))
    results = run_tasks(as_recorded, planned, staged, DayStages(manifest.day.date))
    audited = audit_day(as_recorded, plan, results, staged, few_invalid=False)
    require_same_verdicts(audited, recorded)
    late = [
        written
        for written in audited.files
        if written.verdict is Verdict.LATE and written.day == history.date
    ]
    options, intact = file_options(as_recorded, plan), list(damaged[0].intact)
    for number, file in enumerate(sorted((amendment.file for amendment in damaged), key=_width)):
        new = _write_one(pipeline.lake, file, late, intact, f"{staged}/late-{number}", options)
        intact.append(new.path)
        yield _entry(file, new), new


def _width(file: DataFile) -> int:
    return sum(part.until_offset - part.from_offset for part in file.offsets)


def _write_one(
    lake: Lake,
    file: DataFile,
    late: Sequence[WrittenFile],
    intact: Sequence[str],
    folder: str,
    options: FileOptions,
) -> WrittenFile:
    """Write into one file the late rows within the bounds of a lost one that lie in no other file.

    Raises:
        OffsetsLost: they are not those that it held.
    """
    from jobs.task.small_files import merge_small_files

    elsewhere, nothing = read_offsets(lake, intact), Offsets()
    bounds = {part.partition: Offsets.between(part.from_offset, part.until_offset) for part in file.offsets}
    others = {
        partition: (offsets - bounds.get(partition, nothing)) | elsewhere.get(partition, nothing)
        for partition, offsets in read_offsets(lake, [written.path for written in late]).items()
    }
    pieces = drop_offsets(lake, late, others, folder, options)
    # today's sizes and number of tasks may differ from those of the run that brought the file
    unlimited = replace(options, target_size=sys.maxsize)
    merged = merge_small_files(lake, pieces, f"{folder}/whole", unlimited, sys.maxsize)
    if len(merged) != 1 or merged[0].offsets != file.offsets:
        raise OffsetsLost(
            expected=f"{file.target} to be made again with {file.rows:,} rows",
            found=f"{len(merged)} file(s) with {sum(new.rows for new in merged):,} rows, or other ones",
            do="The old day stays. Restore that file from a backup, then build the day again.",
        )
    return merged[0]


def _entry(file: DataFile, new: WrittenFile) -> DataFile:
    return replace(
        file,
        bytes=new.bytes,
        sha256=new.sha256,
        event_time_min=from_micros(new.event_time_min),
        event_time_max=from_micros(new.event_time_max),
    )


def _recorded_rules(manifest: Manifest) -> Rules:
    try:
        return rules_of(manifest.contract)
    except ValueError as error:
        raise OffsetsLost(
            expected=f"the contract of {manifest.day.date}, to make a late file of its run again",
            found=str(error),
            do="The old day stays. Restore that file from a backup, then build the day again.",
        ) from None


def _days_before(history: History, manifest: Manifest) -> tuple[Day, ...]:
    if manifest.earlier is not None:
        return days_of(manifest.earlier)
    after = (later_day for later_day in history.later if later_day.date < manifest.day.date)
    return tuple(_with_lost_days((*history.earlier, history.recorded().day, *after, manifest.day)))


def _with_lost_days(days: Sequence[Day]) -> Iterator[Day]:
    """Yield all days but the last, and each day between them whose manifest is lost, bounded by neighbours.

    Raises:
        LedgerBroken: two days in a row are lost.
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
