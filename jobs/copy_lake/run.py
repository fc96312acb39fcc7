"""Copy a lake to another place: from a folder to a bucket, back, or between two of a kind.

Relies on the port alone: it does not know of which kind a lake is. Each day is committed at the new place as
a run would: its files first, hashed on the way, then its manifest, byte for byte. So a copy that stops
half-way goes on when it is called again. The old place is only read, under its lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from itertools import count
from typing import Final

import structlog

from jobs.copy_lake.checks import Source, examined, kept_files, place_of, require_place
from jobs.day.schema_file import SCHEMA_NAME, read_schema
from jobs.lake.files import is_success_file, sha256_and_size
from jobs.lake.late import finish_moves
from jobs.lake.ledger import enter_days
from jobs.lake.names import (
    DAY_ROWS,
    STAGED_DAY,
    STAGING_NAME,
    SUCCESS_NAME,
    day_of,
    day_ref,
    entry_ref,
    in_day,
)
from jobs.lake.port import DayContents, Lake, LockHolder
from jobs.lake.refusals import advising, store_errors
from offsets.commit_log import read_chain, read_manifest
from offsets.errors import ConfigError, LedgerBroken, VerifyFailed
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, require_lists

log = structlog.get_logger(__name__)
AT_ONCE: Final = 4
"""How many files are copied at once: between two places one alone mostly waits."""
CHUNK: Final = 8 << 20
GO_ON: Final = "The old lake is as it was. Mend the store, then run `copy-lake` again: it goes on."
WHOLE: Final = ".whole"
"""The end of the name of an empty file beside one in staging that is durable: only such a one counts."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The lake at the new place, and how many of its days, files and bytes this call copied.

    `bytes` are those of its data files.
    """

    days: int
    first: date
    last: date
    files: int
    bytes: int
    copied_days: int
    copied_files: int
    copied_bytes: int


@dataclass(slots=True)
class _Counts:
    """What this call has copied so far."""

    days: int = 0
    files: int = 0
    bytes: int = 0


def copy_lake(
    source: Lake,
    target: Lake,
    holder: LockHolder,
    *,
    success_file: bool = False,
    progress: Progress = lambda done, total: None,
) -> Copied:
    """Copy all days of a lake to a place that is empty, or that an earlier call began to fill.

    With `success_file` each day of a folder gets an empty `_SUCCESS`; a day that has one keeps it.

    Raises:
        ConfigError: the lake cannot be kept there, or another lake is there; nothing was written.
        NotPublished: a run has left something to do in the old lake, or the new place refused.
        VerifyFailed: a file of the old lake is not the one that was committed.
        KafkaDailyError: one of its other kinds; called again, it goes on.
    """
    if not source.days():  # a lock would make the folder
        raise ConfigError(
            expected=f"a lake with committed days at {source.place('')}",
            found="none",
            do="Correct `lake.path` of --config.",
        )
    with source.lock(holder):
        from_ = examined(source)
        require_place(source, target, from_)
        with target.lock(holder), advising(GO_ON):
            require_place(source, target, from_)  # nobody else writes there by now
            return _Copying(source, target, from_, holder.run_id, success_file, progress).run()


class _Copying:
    """A running copy."""

    def __init__(
        self,
        source: Lake,
        target: Lake,
        from_: Source,
        run_id: str,
        success_file: bool,
        progress: Progress,
    ) -> None:
        self._source, self._target, self._from, self._run_id = source, target, from_, run_id
        self._success_file, self._progress, self._counts = success_file, progress, _Counts()
        self._passed = 0

    def run(self) -> Copied:
        """Copy what is not there yet, then look whether all is there."""
        done = self._target.days()
        if self._from.brings_late and len(done) < len(self._from.days):
            self._require_late_moves(self._from.days[len(done)])
        for day, entry in self._from.expired.items():
            if self._target.entry_text(day) is None:
                self._target.put(entry_ref(day), entry)
        for day in self._from.days:
            if manifest := read_manifest(self._source, day):
                if day not in done:
                    self._copy(manifest)
                    self._publish(manifest)
                else:
                    self._pass(len(list(kept_files(manifest, self._from.kept_from))))
                    if day == done[-1] or not self._target.is_entered(day):
                        self._publish(manifest)
                self._leave_staging(manifest)
        schema = read_schema(self._source)
        if schema is not None and schema != read_schema(self._target):
            self._target.put(SCHEMA_NAME, schema)
        self._require_whole()
        return self._copied()

    def _pass(self, files: int) -> None:
        self._passed += files
        self._progress(self._passed, self._from.files)

    def _require_late_moves(self, day: date) -> None:
        """Check that late files can be brought to their days there, before anything is copied in vain."""
        staged = self._target.stage(day, self._run_id)
        try:
            self._target.require_late_moves(staged)
        finally:
            self._target.discard(staged)

    def _copy(self, manifest: Manifest) -> None:
        """Copy a day's files, and commit it by its manifest's own text."""
        day = manifest.day.date
        require_lists(manifest)
        staged = f"{STAGING_NAME}/{_staged_name(manifest)}"
        if self._was_put_together(staged):
            self._target.discard(staged)
        staged = self._target.stage(day, manifest.run_id)  # it brings the files from there after the commit
        files = list(kept_files(manifest, self._from.kept_from))

        def copied(number: int, file: DataFile) -> str:
            return self._staged_file(f"{staged}/{number:05d}", place_of(manifest, file), file)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            refs = []
            for ref in pool.map(copied, range(len(files)), files):
                refs.append(ref)
                self._pass(1)
        moved = {file.path: ref for file, ref in zip(files, refs, strict=True)}
        self._target.commit(staged, day, DayContents(moved=moved, shared={}, texts=self._texts(day)))
        self._counts.days += 1
        self._counts.files += len(files)
        self._counts.bytes += sum(file.bytes for file in files)
        log.info("copied", day=str(day), files=len(files))

    def _was_put_together(self, staged: str) -> bool:
        """Return whether a dead copy had begun to put the day's folder together: that begins anew."""
        return self._target.stat(f"{staged}/{STAGED_DAY}") is not None or any(
            ref.endswith(DAY_ROWS) for ref in self._target.files_below(staged)
        )

    def _staged_file(self, name: str, place: str, file: DataFile) -> str:
        """Return a file in the new place's staging that is as the manifest says: left there, or copied."""
        for attempt in count():
            ref = f"{name}.{attempt}.parquet.part"
            names = (self._target.stat(ref), self._target.stat(f"{ref}{WHOLE}"))
            if not any(names):  # a loss of power may take either
                break
            if all(names) and self._is_intact(ref, file):
                return ref
        with store_errors(f"read {self._source.place(place)}"), self._source.open_file(place) as opened:
            new = self._target.create_file(ref)
            while chunk := opened.read(CHUNK):
                new.write(chunk)
            found = (new.make_durable(), new.size)
        if found != (file.sha256, file.bytes):
            raise VerifyFailed(
                expected=f"{self._source.place(place)} of {file.bytes:,} bytes with SHA-256 {file.sha256}",
                found=f"{found[1]:,} bytes with SHA-256 {found[0]}",
                do="See what `verify` says of the old lake, build that day again or restore the file, then "
                "run `copy-lake` again: it goes on.",
            )
        self._target.create_file(f"{ref}{WHOLE}").make_durable()
        return ref

    def _is_intact(self, ref: str, file: DataFile) -> bool:
        with store_errors(f"read {self._target.place(ref)}"), self._target.open_file(ref) as opened:
            return sha256_and_size(opened) == (file.sha256, file.bytes)

    def _texts(self, day: date) -> dict[str, bytes]:
        """Return the small files of a day as they are, with the manifest last."""
        texts: dict[str, bytes] = {}
        success = in_day(day, SUCCESS_NAME)
        had_one = self._source.stat(success) and is_success_file(self._source, success, day_ref(day))
        if self._success_file or had_one:
            texts[SUCCESS_NAME] = b""
        lists = in_day(day, LISTS_NAME)
        if self._source.stat(lists):
            with store_errors(f"read {self._source.place(lists)}"), self._source.open_file(lists) as opened:
                texts[LISTS_NAME] = opened.read()
        return {**texts, MANIFEST_NAME: self._source.manifest_text(day) or b""}

    def _publish(self, manifest: Manifest) -> None:
        """Do what follows a commit; may be repeated."""
        enter_days(self._target, [manifest.day.date])
        finish_moves(self._target, manifest, kept_from=self._from.kept_from)

    def _leave_staging(self, manifest: Manifest) -> None:
        if _staged_name(manifest) in self._target.staged_names():
            self._target.discard(f"{STAGING_NAME}/{_staged_name(manifest)}")

    def _require_whole(self) -> None:
        """Check that the new lake's chain is this one, and that each file is at its place.

        Raises:
            LedgerBroken: it is not.
        """
        there: dict[str, set[str]] = {}
        for manifest in read_chain(self._target):
            day = manifest.day.date
            require_lists(manifest)
            if self._target.manifest_text(day) != self._source.manifest_text(day):
                raise _not_whole(self._target.manifest_place(day), "another manifest")
            for file in kept_files(manifest, self._from.kept_from):
                ref = place_of(manifest, file)
                folder = day_ref(day_of(ref))
                if folder not in there:
                    there[folder] = {*self._target.files_below(folder)}
                if ref not in there[folder]:
                    raise _not_whole(self._target.place(ref), "no such file")
        if self._target.days() != self._from.days:
            raise _not_whole(f"{len(self._from.days)} days", f"{len(self._target.days())}")

    def _copied(self) -> Copied:
        return Copied(
            days=len(self._from.days),
            first=self._from.days[0],
            last=self._from.days[-1],
            files=self._from.files,
            bytes=self._from.bytes,
            copied_days=self._counts.days,
            copied_files=self._counts.files,
            copied_bytes=self._counts.bytes,
        )


def _staged_name(manifest: Manifest) -> str:
    return f"{manifest.day.date}.{manifest.run_id}"


def _not_whole(expected: str, found: str) -> LedgerBroken:
    return LedgerBroken(
        expected=expected,
        found=found,
        do="The new place is not whole: somebody else changed it. Empty it, and run `copy-lake` again. The "
        "old lake is as it was.",
    )
