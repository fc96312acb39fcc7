"""Make today's manifest of a day, and put its new folder together; the day must be as it was committed.

Writes into staging only, and there no data but a file without rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from jobs.config import LakeSettings
from jobs.lake.earlier_formats import with_todays_name
from jobs.lake.files import is_link, sha256_and_size, unnamed_files
from jobs.lake.names import SUCCESS_NAME, day_ref, in_day, last, part_name
from jobs.lake.port import DayContents, Lake
from jobs.record.layout import file_schema
from jobs.upgrade.chain import Recorded
from offsets.columns import columns_on
from offsets.errors import VerifyFailed
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, texts_of
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.task.result import WrittenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedDay:
    """A committed day on its way to today's format.

    `received` are the late files that later days brought to it, by the targets that manifests name by now.
    `remade` are amendments that older versions wrote again, in any day, by target.
    """

    lake: Lake
    settings: LakeSettings
    old: Manifest
    recorded: Recorded
    received: Mapping[str, DataFile]
    remade: Mapping[str | None, DataFile]
    kept_from: date

    @property
    def folder(self) -> str:
        """The reference of the day."""
        return day_ref(self.old.day.date)

    def intact_files(self) -> Iterator[DataFile]:
        """Yield the day's files under the names of today, each after it was compared with the manifest.

        Raises:
            VerifyFailed: a file is gone, or not the one that was committed.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield from map(with_todays_name, pool.map(self._intact, self.old.files))

    def manifest(self, files: tuple[DataFile, ...]) -> Manifest:
        """Return today's manifest of the day.

        Raises:
            VerifyFailed: nothing records the day's columns.
        """
        if not columns_on(self.recorded.columns, self.old.day.date):
            raise _other(self.lake.manifest_place(self.old.day.date), "a contract of another decoder")
        return replace(
            self.old,
            revision=self.old.revision + 1,
            earlier=self.recorded.earlier,
            columns=self.recorded.columns,
            cleanup_policy=self.recorded.cleanup_policy,
            files=files,
            remade=tuple(file for file in self.old.remade if self._needs_remade(file)),
        )

    def require_ours(self) -> None:
        """Check that the folder holds our own files alone: others would go with the old folder.

        Raises:
            VerifyFailed: it holds another one, or a symbolic link.
        """
        for place in self.unknown_files(self.folder):
            raise _other(place, "a file that no manifest names; move it out of the day's folder")
        for ref in self.received:
            if is_link(self.lake, ref):
                raise _other(self.lake.place(ref), "a symbolic link")

    def unknown_files(self, folder: str) -> list[str]:
        """List the files that no manifest names in the day's folder, which may have been moved."""
        named = {
            MANIFEST_NAME,
            LISTS_NAME,
            *(file.path for file in self.old.files),
            *map(last, self.received),
        }
        refs = unnamed_files(self.lake, folder, self.lake.files_below(folder), named)
        return [self.lake.place(ref) for ref in refs]

    def file_without_rows(self, new: Manifest, staged: str) -> tuple[DataFile, str]:
        """Write the file of a day without rows, and return it with its reference."""
        from jobs.task.parquet_writer import FileOptions, write_empty

        origin = {"topic": new.topic.name, "day": new.day.date.isoformat(), "run": new.run_id}
        options = FileOptions(
            target_size=self.settings.target_file_size, compression=self.settings.compression, origin=origin
        )
        schema = file_schema(columns_on(new.columns, new.day.date))
        written = write_empty(self.lake.create_file(f"{staged}/empty/0.parquet.part"), schema, options)
        return _file_without_rows(part_name(new.run_id, len(new.files)), written), written.path

    def contents(self, new: Manifest, moved: Mapping[str, str]) -> DayContents:
        """Return the contents of the new folder: those of the old one, and late files to be renamed."""
        received = {last(ref): ref for ref in self.received if self.lake.stat(ref)}
        own = {
            renamed.path: self._place(file)
            for file, renamed in ((file, with_todays_name(file)) for file in self.old.files)
            if not self._is_expired(file) and (not file.target or file.target != renamed.target)
        }
        success = self.settings.success_file or self.lake.stat(f"{self.folder}/{SUCCESS_NAME}")
        texts = {**({SUCCESS_NAME: b""} if success else {}), **texts_of(new)}
        return DayContents(moved=moved, shared={**received, **own}, texts=texts)

    def _intact(self, file: DataFile) -> DataFile:
        """Return a file as it was last written: by its own day, or as `remade` by the one that it amends."""
        if self._is_expired(file):
            return file
        ref = self._place(file)
        if is_link(self.lake, ref):
            raise _other(self.lake.place(ref), "a symbolic link")
        try:
            with self.lake.open_file(ref) as opened:
                digest, size = sha256_and_size(opened)
        except OSError as error:
            raise _other(self.lake.place(ref), error.strerror or str(error)) from error
        for entry in (file, self.remade.get(file.target)):
            if entry and (entry.sha256, entry.bytes) == (digest, size):
                return replace(entry, path=file.path)
        raise _other(self.lake.place(ref), f"{size:,} bytes that are not those of its manifest")

    def _place(self, file: DataFile) -> str:
        return file.target or in_day(self.old.day.date, file.path)

    def _is_expired(self, file: DataFile) -> bool:
        """Return whether a late file went with the day to which it was brought."""
        return bool(file.target and file.day and file.day < self.kept_from)

    def _needs_remade(self, file: DataFile) -> bool:
        """Return whether an amendment's owner still records how it was before it was written again."""
        owned = self.received.get(file.target or "")
        return bool(owned and owned.sha256 != file.sha256)


def _file_without_rows(path: str, written: WrittenFile) -> DataFile:
    return DataFile(
        path=path, verdict=Verdict.IN_DAY, rows=0, bytes=written.bytes, sha256=written.sha256, offsets=()
    )


def _other(place: str, found: str) -> VerifyFailed:
    return VerifyFailed(expected=place, found=found, do="")
