"""Remake damaged amendments of a day, by reading again the spans of the day that brought them.

Relies on that day's manifest for spans, bounds and contract, and on its digests: if the late rows are not the
same records, the file is lost. The bytes of the new file differ, so the new manifest records them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import reduce
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from jobs.context import Pipeline
from jobs.day.carry_over import Damaged, drop_offsets, find_intact, read_offsets
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
from offsets.manifest import DataFile, FileOffsets, Manifest
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
    """Remake what one run brought, each file with as many rows, and with the same edges."""
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
    everything = read_offsets(pipeline.lake, [written.path for written in late])
    intact, lost = _other_files(pipeline.lake, damaged, history.date)
    files = [*(amendment.file for amendment in damaged), *lost]
    shares = share_out(_without(everything, read_offsets(pipeline.lake, intact)), files)
    options = file_options(as_recorded, plan)
    for number, (amendment, share) in enumerate(zip(damaged, shares, strict=False)):
        others, folder = _without(everything, share), f"{staged}/late-{number}"
        needed = [written for written in late if _may_hold(written, share)]
        new = _write_one(pipeline.lake, amendment.file, needed, others, folder, options)
        yield _entry(amendment.file, new), new


def _other_files(
    lake: Lake, damaged: Sequence[Damaged], day: date
) -> tuple[tuple[str, ...], tuple[DataFile, ...]]:
    """Return the run's other files of the day: the intact ones, and the lost ones that were set aside."""
    manifest, late = damaged[0].manifest, damaged[0].manifest.files_of(Verdict.LATE)
    aside = [file for file in late if file.day == day and not file.target]
    refs = [find_intact(lake, manifest, file) for file in aside]
    lost = tuple(file for file, ref in zip(aside, refs, strict=True) if not ref)
    return (*damaged[0].intact, *filter(None, refs)), lost


def share_out(lost: Mapping[int, Offsets], files: Sequence[DataFile]) -> list[dict[int, Offsets]]:
    """Return the offsets of each lost file: its recorded edges, and as many between them as it held.

    If files lie between each other's edges, there may be several ways. All of them are as good: the files
    lie in one day, and together hold the same rows.
    """
    shares: list[dict[int, Offsets]] = [{} for _ in files]
    for partition, offsets in lost.items():
        parts = [
            (number, part)
            for number, file in enumerate(files)
            for part in file.offsets
            if part.partition == partition
        ]
        for number, share in _share_out_partition(offsets, parts):
            shares[number][partition] = share
    return shares


def _share_out_partition(
    lost: Offsets, parts: Sequence[tuple[int, FileOffsets]]
) -> Iterator[tuple[int, Offsets]]:
    """Yield the number of each part, and its offsets."""
    edges = {number: Offsets.holding({part.from_offset, part.until_offset - 1}) for number, part in parts}
    free = reduce(Offsets.__sub__, edges.values(), lost)
    # if the file that ends first takes the first offsets, enough are left for each of the others
    by_end = sorted(parts, key=lambda numbered: numbered[1].until_offset)
    for number, part in by_end[:-1]:
        between = free.within(part.from_offset, part.until_offset).least(part.rows - len(edges[number]))
        yield number, edges[number] | between
        free = free - between
    for number, _ in by_end[-1:]:  # it gets all that are left: with one too many it is refused
        yield number, edges[number] | free


def _may_hold(file: WrittenFile, offsets: Mapping[int, Offsets]) -> bool:
    return any(
        len(offsets.get(part.partition, Offsets()).within(part.from_offset, part.until_offset))
        for part in file.offsets
    )


def _without(offsets: Mapping[int, Offsets], taken: Mapping[int, Offsets]) -> dict[int, Offsets]:
    return {partition: held - taken.get(partition, Offsets()) for partition, held in offsets.items()}


def _write_one(
    lake: Lake,
    file: DataFile,
    late: Sequence[WrittenFile],
    others: dict[int, Offsets],
    folder: str,
    options: FileOptions,
) -> WrittenFile:
    """Write the late rows that are not of other files into one file.

    Raises:
        OffsetsLost: they are not as many as a lost file held, or have other edges.
    """
    from jobs.task.small_files import merge_small_files

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
