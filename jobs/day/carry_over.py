"""The files that a rebuilt day takes over from the old revision.

Late rows that this day's run brought to earlier days stay there, and the new manifest names them again, if
their files are intact; those of damaged files are written again. The amendments that later days brought to
this day are linked into the new folder; a damaged one is rebuilt by its owner, the day whose manifest names
it. Writes into staging only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

import structlog

from jobs.day.old_day import OldDay
from jobs.lake.files import is_link, numbered_files, sha256_and_size
from jobs.lake.names import DAY_PREFIX, day_of, in_day, last, late_source
from jobs.lake.port import Lake
from offsets.commit_log import first_kept, read_manifest
from offsets.contract import Accepted, Contract
from offsets.errors import AuditFailed, DayExists, LedgerBroken, StoreFailed
from offsets.instants import from_micros
from offsets.manifest import DataFile, FileOffsets, Manifest
from offsets.ranges import Offsets
from offsets.verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.task.parquet_writer import FileOptions
    from jobs.task.result import ReadBack, WrittenFile

log = structlog.get_logger(__name__)
DATING: Final = ("event_time", "decoder")
"""How changes of a contract begin that may date a record otherwise."""
UNKNOWN_DATES: Final = (
    "event_time of the late files that lie in earlier days: not known (the manifest was gone) -> not known"
)
"""What a manifest goes on to say of a day that was built again without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOver:
    """The files that the new revision takes over: `late` ones of its own, and `shared` ones, by new name.

    `settled` are the offsets of those late files, if the day may have further late rows. It is None if the
    old manifest shows that these files are all. `expired` are late files that went with the days to which
    they were brought: the new revision names them, and demands them no more. `again` are late files to be
    written again, None if no manifest names them; of these `lost` lie nowhere intact. `owners` are the days
    that brought amendments of which that is true, by target. `remade` are amendments that an older version
    rebuilt here.
    """

    revision: int
    late: tuple[DataFile, ...]
    expired: tuple[DataFile, ...]
    again: tuple[DataFile, ...] | None
    settled: dict[int, Offsets] | None
    lost: tuple[DataFile, ...]
    shared: Mapping[str, str]
    owners: Mapping[str, Manifest]
    remade: tuple[DataFile, ...]

    def with_unknown_dates(self, accepted: Accepted) -> Accepted:
        """Return what was accepted, and that nobody knows how late files were dated without a manifest."""
        if self.again is not None or not self.late or UNKNOWN_DATES in accepted.contract:
            return accepted
        return replace(accepted, contract=(*accepted.contract, UNKNOWN_DATES))

    def new_files(
        self,
        old: OldDay,
        contract: Contract,
        files: Sequence[WrittenFile],
        folder: str,
        options: FileOptions,
    ) -> tuple[tuple[WrittenFile, ...], CarriedOver]:
        """Return the written files, without late rows that lie in earlier days, or went with them.

        Which rows went is known by their dates alone. Where another rule may have dated them then, all rows
        that lie in no file are written again, those that went too, and none of them is carried over any more.
        """
        others = [file for file in files if file.verdict is not Verdict.LATE]
        if self.again == ():  # every late row is where the manifest says, by whatever rule it was dated
            return tuple(others), self
        late = [file for file in files if file.verdict is Verdict.LATE]
        if self.late and self.settled is not None:
            _require_still_late(old.lake, self.settled, late)
            late = [*drop_offsets(old.lake, late, self.settled, folder, options)]
        if self.expired and not _are_dated_alike(old, late, (*self.expired, *(self.again or ())), contract):
            log.warning(
                "late rows that went with expired days are written again: the event time may have been read "
                "by another rule when they came, so that they cannot be told from those that are gone",
                day=str(old.history.date),
                expired=sorted({str(file.day) for file in self.expired}),
            )
            return (*others, *late), replace(self, expired=())
        gone = {file.day for file in self.expired}
        return (*others, *(file for file in late if file.day not in gone)), self


def find_carried_over(old: OldDay) -> CarriedOver:
    """Find the files that a rebuild of a day must take over.

    Raises:
        LedgerBroken: a late file that the day brought to another cannot be read, or does not belong there.
        StoreFailed: such a file is a symbolic link, or lies behind one.
    """
    lake, own = old.lake, old.history.own
    remade = {file.target: file for file in own.remade} if own else {}
    shared, owners, still_remade = dict[str, str](), dict[str, Manifest](), list[DataFile]()
    for manifest, file, target in old.received():
        refs = (target, in_day(manifest.day.date, file.path))
        if intact := _find_intact(lake, refs, file, remade.get(target)):
            ref, entry = intact
            shared[last(target)] = ref
            still_remade += [entry] if entry is not file else []
        else:
            owners[target] = manifest
    if own:
        expired, mixed = _expired_late_files(lake, own)
        gone = {file.day for file in expired} | mixed
        kept = tuple(file for file in own.files_of(Verdict.LATE) if file.day not in gone)
        late, settled, lost, set_aside = _own_late_files(lake, own, kept, all_late=not mixed)
        named = {(file.target or file.path) for file in (*late, *expired)}
        again = tuple(file for file in own.files_of(Verdict.LATE) if (file.target or file.path) not in named)
        shared |= set_aside
    else:
        brought = old.brought()
        late = tuple(_describe_late_file(old, ref) for ref in brought)
        settled, lost, expired, again = read_offsets(lake, brought), (), (), None
    return CarriedOver(
        revision=own.revision + 1 if own else 2,
        late=late,
        expired=expired,
        again=again,
        settled=settled,
        lost=lost,
        shared=shared,
        owners=owners,
        remade=tuple(still_remade),
    )


def _expired_late_files(lake: Lake, own: Manifest) -> tuple[tuple[DataFile, ...], set[date | None]]:
    """Return a day's late files that went with the days to which they were brought, and mixed days.

    Of late rows of a mixed day some went with it, and others were set aside. Nothing records which rows went,
    so that all of them are written again, and set aside.
    """
    kept_from = first_kept(lake)
    late = [file for file in own.files_of(Verdict.LATE) if file.day and file.day < kept_from]
    mixed = {file.day for file in late if file.target} & {file.day for file in late if not file.target}
    return tuple(file for file in late if file.target and file.day not in mixed), mixed


def _own_late_files(
    lake: Lake, own: Manifest, late: tuple[DataFile, ...], *, all_late: bool
) -> tuple[tuple[DataFile, ...], dict[int, Offsets] | None, tuple[DataFile, ...], dict[str, str]]:
    """Return a day's late files that are intact, their offsets if there are others, and those that are lost.

    Where all were set aside, the day writes them again like its other files. Where some were, which older
    versions left, an intact one is linked into the new folder, and returned last.
    """
    if not any(file.target for file in own.files_of(Verdict.LATE)):
        return (), None, (), {}
    refs = {file: file.target or in_day(own.day.date, file.path) for file in late}
    found = {file: _find_intact(lake, [ref], file) for file, ref in refs.items()}
    others = [file for file in late if not found[file]]
    remade = {file.target: file for day in {file.day for file in others} for file in _remade_in(lake, day)}
    found |= {file: _find_intact(lake, [refs[file]], remade.get(file.target)) for file in others}
    intact = dict(filter(None, found.values()))
    settled = None if all_late and len(intact) == len(late) else read_offsets(lake, list(intact))
    lost = tuple(file for file in others if file.target and not found[file])
    set_aside = {entry.path: ref for ref, entry in intact.items() if not entry.target}
    return tuple(intact.values()), settled, lost, set_aside


def _remade_in(lake: Lake, day: date | None) -> tuple[DataFile, ...]:
    """Return the amendments that an older version rebuilt in a day; none if its manifest cannot be read."""
    with suppress(DayExists, LedgerBroken):
        manifest = read_manifest(lake, day) if day else None
        return manifest.remade if manifest else ()
    return ()


def _find_intact(lake: Lake, refs: Iterable[str], *entries: DataFile | None) -> tuple[str, DataFile] | None:
    """Return the first reference at which the contents lie that a manifest's entry records, and the entry."""
    for ref in refs:
        digest = _digest(lake, ref)
        for entry in filter(None, entries):
            if entry.sha256 == digest:
                return ref, entry
    return None


def _require_still_late(lake: Lake, settled: dict[int, Offsets], late: Sequence[WrittenFile]) -> None:
    """Check that rows in earlier days are late under today's rules too, so that none is filed twice."""
    late_now = read_offsets(lake, [file.path for file in late])
    for partition, offsets in settled.items():
        if len(lost := offsets - late_now.get(partition, Offsets())):
            raise AuditFailed(
                expected=f"{lost} of partition {partition}, which lie in earlier days, to be late",
                found="another fate for them",
                do="The old day stays; staging is kept as evidence. Rebuild under the day's old contract.",
            )


def _are_dated_alike(
    old: OldDay, late: Sequence[WrittenFile], named: Sequence[DataFile], contract: Contract
) -> bool:
    """Return whether late rows are dated now as when the named files were written, of which some expired.

    The rule of that time is the recorded one if one run wrote files and manifest, or if no run of the day
    accepted another: each revision goes on naming what earlier ones accepted.
    """
    own = old.history.own
    if own is None or _late_parts(late) != _late_parts(named):
        return False
    if any(now.startswith(DATING) for now in contract.changes_from(own.contract)):
        return False
    wrote_all = all(own.run_id in file.path for file in named)
    return wrote_all or not any(change.startswith(DATING) for change in own.accepted.contract)


def _late_parts(
    files: Iterable[WrittenFile | DataFile],
) -> dict[tuple[date | None, int], tuple[int, int, int]]:
    """Return rows, first offset and end of the files, by day and partition."""
    parts: dict[tuple[date | None, int], tuple[int, int, int]] = {}
    for file in files:
        for part in file.offsets:
            at = (file.day, part.partition)
            rows, from_, until = parts.get(at, (0, part.from_offset, part.until_offset))
            parts[at] = (rows + part.rows, min(from_, part.from_offset), max(until, part.until_offset))
    return parts


def _digest(lake: Lake, ref: str) -> str | None:
    """Return a file's SHA-256; None if it cannot be read, or lies behind a link."""
    try:
        if is_link(lake, ref):
            return None
        with lake.open_file(ref) as file:
            return sha256_and_size(file)[0]
    except (OSError, StoreFailed):
        return None


def _describe_late_file(old: OldDay, ref: str) -> DataFile:
    """Describe a late file whose manifest is gone."""
    from jobs.task.parquet_writer import UNREADABLE

    lake = old.lake
    lake.require_no_link(ref)
    try:
        back, offsets = _read_back(lake, ref)
        times = from_micros(back.event_time_min), from_micros(back.event_time_max)
        _read_whole(lake, ref)
    except UNREADABLE as error:
        raise LedgerBroken(
            expected=f"{lake.place(ref)}, which the day brought there, to be readable",
            found=str(error),
            do="Restore that file from a backup, or move it out of the lake, then build the day again: its "
            "rows are then settled again.",
        ) from error
    _require_belongs(old, ref, times)
    return DataFile(
        path=late_source(ref),
        verdict=Verdict.LATE,
        rows=back.rows,
        bytes=back.bytes,
        sha256=back.sha256,
        offsets=tuple(
            FileOffsets(partition=partition, rows=len(held), from_offset=held.first, until_offset=held.until)
            for partition, held in sorted(offsets.items())
        ),
        event_time_min=times[0],
        event_time_max=times[1],
        day=day_of(ref),
        target=ref,
    )


def _require_belongs(old: OldDay, ref: str, times: Sequence[datetime | None]) -> None:
    """Check that a late file was written by the day's run, and that its events belong to the day it lies in.

    Raises:
        LedgerBroken: another run wrote it, or somebody moved it there.
    """
    day = day_of(ref)
    ours = old.wrote(ref)
    dated = [
        earlier_day.date
        for earlier_day in old.history.earlier
        if all(at and earlier_day.start <= at < earlier_day.end for at in times)
    ]
    if not ours or dated != [day]:
        alternative = f", or into {DAY_PREFIX}{dated[0]}" if ours and dated else ""
        raise LedgerBroken(
            expected=f"{old.lake.place(ref)} to hold late rows of {day}, brought by the run of "
            f"{old.history.date}",
            found=f"events from {times[0]} to {times[1]}" if ours else "a file of another topic or run",
            do=f"Move that file out of the lake{alternative}, then build the day again: rows that lie "
            "nowhere are then settled again.",
        )


def _read_back(lake: Lake, ref: str) -> tuple[ReadBack, dict[int, Offsets]]:
    """Read a file's coordinates; an offset that it holds twice, or a negative one, is a ValueError."""
    from jobs.task.parquet_writer import read_back

    back = read_back(lake, ref)
    offsets = {partition: held for partition, held in back.offsets.items() if held is not None}
    if repeated := sorted(back.offsets.keys() - offsets.keys()):
        raise ValueError(f"offsets of partition {repeated[0]} twice, or below zero")
    return back, offsets


def _read_whole(lake: Lake, ref: str) -> None:
    """Read every value of a file whose recorded hash is gone.

    Raises:
        OSError, ValueError: a page of it is damaged.
    """
    import pyarrow.parquet as pq

    with lake.open_file(ref) as file:
        source = pq.ParquetFile(file)
        for group in range(source.num_row_groups):
            source.read_row_group(group, columns=source.schema_arrow.names, use_threads=False)


def read_offsets(lake: Lake, refs: Sequence[str]) -> dict[int, Offsets]:
    """Read the offsets of all files, by partition.

    Raises:
        LedgerBroken: a file cannot be read, or two hold the same offset.
    """
    from jobs.task.parquet_writer import UNREADABLE
    from jobs.task.result import joined_by_partition

    sets: list[Mapping[int, Offsets]] = []
    for ref in refs:
        try:
            sets.append(_read_back(lake, ref)[1])
        except UNREADABLE as error:
            raise LedgerBroken(
                expected=f"{lake.place(ref)} to be readable",
                found=str(error),
                do="Build the day that it lies in again first, or restore it from a backup.",
            ) from error
    try:
        return joined_by_partition(sets)
    except ValueError as error:
        raise LedgerBroken(
            expected=f"each row once in {', '.join(map(lake.place, refs))}",
            found=str(error),
            do="Move the copy out of the lake, then build the day again.",
        ) from None


def drop_offsets(
    lake: Lake, files: Sequence[WrittenFile], settled: dict[int, Offsets], folder: str, options: FileOptions
) -> Iterator[WrittenFile]:
    """Write late files again without the rows that are settled already."""
    from jobs.task.parquet_writer import RollingWriter, batches_of

    new_file = numbered_files(lake, folder)
    for file in files:
        writer = None
        for batch in batches_of(lake, file):
            writer = writer or RollingWriter(new_file, batch.schema, file.verdict, file.day, options)
            writer.add(_drop_settled(batch, settled))
        yield from writer.close() if writer else ()


def _drop_settled(rows: pa.RecordBatch, settled: dict[int, Offsets]) -> pa.RecordBatch:
    import pyarrow as pa

    coordinates = zip(rows["kafka_partition"].to_pylist(), rows["kafka_offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([offset not in settled.get(part, Offsets()) for part, offset in coordinates]))
