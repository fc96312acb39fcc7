"""What a rebuilt day takes over from the lake around it.

Late rows that this day's run brought to earlier days stay there, and the new manifest goes on naming them;
the amendments that later days brought here are linked into the new folder. Writes into staging only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.storage import DAY_PREFIX, Lake, make_folder
from offsets.errors import LedgerBroken, OffsetsLost
from offsets.history import History
from offsets.model import DataFile, FileOffsets, Verdict, from_micros
from offsets.ranges import Offsets, Range

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.parquet import FileOptions
    from jobs.report import WrittenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the new revision takes over: `late` files that lie in earlier days, `amendments` to link.

    `settled` are the offsets of those late files where the old manifest is gone; None where it says that they
    are all of the day's late rows.
    """

    revision: int
    late: tuple[DataFile, ...]
    settled: dict[int, Offsets] | None
    amendments: tuple[Path, ...]

    def to_place(
        self, files: Sequence[WrittenFile], folder: Path, options: FileOptions
    ) -> tuple[WrittenFile, ...]:
        """Choose the new files: all, but for late rows that lie in earlier days already."""
        if not self.late:
            return tuple(files)
        others = [file for file in files if file.verdict is not Verdict.LATE]
        if self.settled is None:
            return tuple(others)
        late = [file for file in files if file.verdict is Verdict.LATE]
        return (*others, *_without(late, self.settled, folder, options))


def kept_of(lake: Lake, history: History) -> Kept:
    """Find what a rebuild of a day must take over.

    Raises:
        OffsetsLost: an amendment of the day is damaged or gone, and so is where it came from.
        LedgerBroken: a late file that the day brought elsewhere cannot be read.
    """
    amendments = tuple(_amendments(lake, history))
    if own := history.own:
        late = tuple(file for file in own.files if file.target)
        return Kept(revision=own.revision + 1, late=late, settled=None, amendments=amendments)
    late = tuple(_described(lake, path) for path in lake.amended_by(history.date))
    return Kept(revision=2, late=late, settled=_settled(lake, late), amendments=amendments)


def _amendments(lake: Lake, history: History) -> Iterator[Path]:
    """Give the files that later days brought here, each with the contents that its manifest names."""
    for manifest in history.after:
        for file in manifest.files:
            if file.target is None or file.day != history.date:
                continue
            places = (lake.root / file.target, lake.day_folder(manifest.day.date) / file.path)
            intact = [path for path in places if _digest(path) == file.sha256]
            if not intact:
                raise OffsetsLost(
                    expected=f"{places[0]} as run {manifest.run_id} of {manifest.day.date} wrote it",
                    found="it is damaged" if places[0].exists() else "it is gone",
                    do="The old day stays. Restore that file from a backup, then build the day again.",
                )
            yield intact[0]


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _described(lake: Lake, path: Path) -> DataFile:
    """Describe a late file again whose manifest is gone."""
    from jobs.parquet import read_back

    try:
        back = read_back(path)
        offsets = {partition: each for partition, each in back.offsets.items() if each is not None}
    except (OSError, ValueError) as error:
        raise LedgerBroken(
            expected=f"{path}, which the day brought there, to be readable",
            found=str(error),
            do="Restore that file from a backup, then build the day again.",
        ) from error
    day = date.fromisoformat(path.parent.name.removeprefix(DAY_PREFIX))
    return DataFile(
        path=f"_late/{path.parent.name}/{path.name}",
        verdict=Verdict.LATE,
        rows=back.rows,
        bytes=back.bytes,
        sha256=back.sha256,
        offsets=tuple(
            FileOffsets(
                partition=partition,
                rows=len(each),
                from_offset=each.ranges[0][0],
                until_offset=each.ranges[-1][1],
            )
            for partition, each in sorted(offsets.items())
        ),
        event_time_min=from_micros(back.event_time_min),
        event_time_max=from_micros(back.event_time_max),
        day=day,
        target=path.relative_to(lake.root).as_posix(),
    )


def _settled(lake: Lake, late: Sequence[DataFile]) -> dict[int, Offsets]:
    from jobs.parquet import read_back

    found: dict[int, list[Range]] = {}
    for file in late:
        for partition, offsets in read_back(lake.root / str(file.target)).offsets.items():
            found.setdefault(partition, []).extend(offsets or ())
    return {partition: Offsets.of(ranges) for partition, ranges in found.items()}


def _without(
    files: Sequence[WrittenFile], settled: dict[int, Offsets], folder: Path, options: FileOptions
) -> Iterator[WrittenFile]:
    """Write late files again without the rows that lie elsewhere."""
    import pyarrow.parquet as pq

    from jobs.parquet import RollingWriter

    make_folder(folder)
    names = (folder / f"{number:05d}.parquet.part" for number in count())
    for file in files:
        source = pq.ParquetFile(file.path)
        schema = source.schema_arrow.remove_metadata()
        writer = RollingWriter(lambda: next(names), schema, file.verdict, file.day, options)
        for group in range(source.num_row_groups):
            for batch in source.iter_batches(row_groups=[group]):
                writer.add(_left(batch.cast(schema), settled))
        yield from writer.close()


def _left(rows: pa.RecordBatch, settled: dict[int, Offsets]) -> pa.RecordBatch:
    import pyarrow as pa

    coordinates = zip(rows["kafka_partition"].to_pylist(), rows["kafka_offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([offset not in settled.get(part, Offsets()) for part, offset in coordinates]))
