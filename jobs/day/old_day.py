"""A day that is to be built again, as it is: what manifests record of it, and what lies in its folder.

Where its own manifest is gone, the footers of its files say what it held. Changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from jobs.lake.files import is_link, unnamed_files
from jobs.lake.late import amended_by
from jobs.lake.names import OURS, RUN, below, day_of, day_ref, earlier_name, last
from jobs.lake.port import Lake
from jobs.lake.refusals import in_short
from offsets.errors import OffsetsLost, VerifyFailed
from offsets.manifest import DataFile, Gaps, Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME
from offsets.neighbours import History, read_history
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class OldDay:
    """A committed day of a topic, by its history and by what its lake holds."""

    lake: Lake
    topic: str
    history: History

    @classmethod
    def read(cls, lake: Lake, topic: str, day: date) -> OldDay:
        """Read what is recorded of a day that was committed, even if its folder is gone.

        Raises:
            ConfigError, DayExists, LedgerBroken: as `read_history` does.
        """
        removed = not lake.has_manifest(day) and (
            day in lake.entries() or bool(amended_by(lake, day, lake.days()))
        )
        return cls(lake=lake, topic=topic, history=read_history(lake, day, removed=removed))

    @property
    def folder(self) -> str:
        """The reference of the day's folder."""
        return day_ref(self.history.date)

    def received(self) -> Iterator[tuple[Manifest, DataFile, str]]:
        """Yield each amendment that the day received, with the manifest that names it, and its target."""
        for manifest in self.history.after:
            for file in manifest.files:
                if file.target and file.day == self.history.date:
                    yield manifest, file, file.target

    def brought(self) -> list[str]:
        """List the late files that the day's run brought to earlier days."""
        return amended_by(self.lake, self.history.date, self.lake.days())

    def require_no_unknown_files(self) -> None:
        """Check that the day's folder holds only our own files: others would be removed with it.

        Raises:
            VerifyFailed: the folder holds other files.
            StoreFailed: a folder in it cannot be listed.
        """
        if unknown := self.unknown_files(self.folder):
            raise VerifyFailed(
                expected=f"{self.lake.place(self.folder)} to hold what manifests name alone, since a rebuild "
                "replaces it",
                found=in_short(unknown),
                do="Nothing was changed. Move these files out of the day's folder, then build the day again.",
                files=unknown,
            )

    def require_brought_files_named(self) -> None:
        """Check that the day's manifest names all late files of its run in the days that it brought some to.

        It would bring the rows of others once more: those of another revision, where a backup of the day
        alone was put back. A revision brings rows to the same days as another.

        Raises:
            VerifyFailed: an earlier day has one that it does not name.
            StoreFailed: a day's folder cannot be listed.
        """
        if not self.history.own:
            return  # nothing is known of them: the new manifest names what is there
        day, targets = self.history.date, {file.target for file in self.history.own.files if file.target}
        named = targets | set(map(earlier_name, targets))
        there = amended_by(self.lake, day, set(map(day_of, targets)))
        unnamed = [self.lake.place(ref) for ref in there if ref not in named]
        if unnamed:
            raise VerifyFailed(
                expected=f"{self.lake.manifest_place(day)} to name each late file of {day} in earlier days",
                found=in_short(unnamed),
                do="Nothing was changed. Where a backup of this day alone was put back, put back the whole "
                "lake. Or move these files out of the lake, then build the day again, as long as Kafka holds "
                "its records: it writes these rows anew.",
                files=unnamed,
            )

    def unknown_files(self, folder: str) -> list[str]:
        """List the files that are not ours in the day's folder, which may have been moved to `folder`.

        Raises:
            StoreFailed: a folder in it cannot be listed.
        """
        refs = unnamed_files(self.lake, folder, self.lake.files_below(folder), set(self._names()))
        unnamed = ((ref, below(ref, folder)) for ref in refs)
        return sorted(name for ref, name in unnamed if self.history.own or not self._is_ours(ref, name))

    def _names(self) -> Iterator[str]:
        """Yield the paths below the day's folder that manifests name."""
        yield from (MANIFEST_NAME, LISTS_NAME)
        yield from (file.path for file in (self.history.own.files if self.history.own else ()))
        yield from (last(target) for _, _, target in self.received())

    def _is_ours(self, ref: str, name: str) -> bool:
        """Return whether a file that no manifest names was written by a run of the day."""
        if is_link(self.lake, ref) or not OURS.fullmatch(name):
            return False
        origin = self._read_origin(ref)
        return bool(RUN.search(name)) if origin is None else self._is_from(origin)

    def wrote(self, ref: str) -> bool:
        """Return whether a file's footer says that a run of the day wrote it."""
        return self._is_from(self._read_origin(ref) or {})

    def _is_from(self, metadata: Mapping[bytes, bytes]) -> bool:
        origin = metadata.get(b"kafka_daily.topic"), metadata.get(b"kafka_daily.day")
        return origin == (self.topic.encode(), self.history.date.isoformat().encode())

    def _read_origin(self, ref: str) -> Mapping[bytes, bytes] | None:
        """Read the metadata of a file's footer, which names its origin; None if it cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.lake.open_file(ref) as file:
                return pq.read_metadata(file).metadata or {}
        except (OSError, ValueError, pa.ArrowException):
            return None

    def offset_bounds(self) -> dict[int, tuple[int, int]]:
        """Return the range of offsets, by partition, that footers of a day without a manifest name.

        A footer that cannot be read is skipped.
        """
        edges: dict[int, tuple[int, int]] = {}
        for ref in (*self.lake.files_below(self.folder), *self.brought()):
            origin = self._read_origin(ref) or {}
            with suppress(ValueError, KeyError, TypeError):
                if self._is_from(origin):
                    for part, from_, until in json.loads(origin[b"kafka_daily.offsets"]):
                        low, high = edges.get(part, (from_, until))
                        edges[part] = min(low, from_), max(high, until)
        return edges

    def require_delivered_again(self, gaps: Sequence[Gaps]) -> None:
        """Check that Kafka delivered again all records in the files of a day without a manifest.

        Raises:
            OffsetsLost: it did not, so that only the old folder holds them.
        """
        from jobs.task.parquet_writer import UNREADABLE, read_back

        if self.history.own:
            return
        refs = self.lake.files_below(self.folder)
        for ref in sorted(ref for ref in refs if OURS.fullmatch(below(ref, self.folder))):
            with suppress(*UNREADABLE):
                offsets = read_back(self.lake, ref).offsets
                for gap in gaps:
                    if lost := (offsets.get(gap.partition) or Offsets()) & gap.offsets:
                        raise OffsetsLost(
                            expected=f"Kafka to hold what {self.lake.place(ref)} does",
                            found=f"nothing at {lost} of partition {gap.partition}",
                            do="The old folder stays: it alone holds these records. Restore its manifest "
                            "from a backup.",
                        )
