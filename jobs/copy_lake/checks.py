"""Look whether a lake can be copied, and whether the new place can take it; reads alone, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from jobs.lake.earlier_formats import is_of_today
from jobs.lake.late import has_unfinished_moves
from jobs.lake.ledger import not_entered
from jobs.lake.names import day_ref, in_day
from jobs.lake.port import Lake
from jobs.lake.refusals import in_short
from offsets.commit_log import kept_days, read_chain, read_expired
from offsets.days import ONE_DAY
from offsets.errors import ConfigError, DayExists, NotPublished
from offsets.expired import ExpiredDay
from offsets.manifest import FORMAT_VERSION, DataFile, Manifest
from offsets.manifest_text import format_of


@dataclass(slots=True, kw_only=True)
class Source:
    """What is copied: the days in order, the entries of those that expired, and how many files there are."""

    days: list[date]
    expired: Mapping[date, bytes]
    kept_from: date
    files: int = 0
    bytes: int = 0
    brings_late: bool = False


def examined(source: Lake) -> Source:
    """Read all manifests of the old lake: a whole chain, of today's format, with nothing left to do.

    Raises:
        ConfigError: it is of an earlier format.
        NotPublished: a run has left something to do.
        DayExists, LedgerBroken: the chain is broken.
    """
    days, expired = kept_days(source)
    found = Source(days=days, expired=dict(_expired(source, expired)), kept_from=_kept_from(expired))
    newest: Manifest | None = None
    earlier: list[str] = []
    for manifest in read_chain(source):
        text = source.manifest_text(manifest.day.date) or b""
        if format_of(text) != FORMAT_VERSION or not is_of_today(manifest):
            earlier.append(str(manifest.day.date))
        named = list(kept_files(manifest, found.kept_from))
        found.files += len(named)
        found.bytes += sum(file.bytes for file in named)
        found.brings_late |= any(file.target for file in named)
        newest = manifest
    if earlier:
        raise ConfigError(
            expected="all days to be of today's manifest format and names",
            found=f"days of an earlier one: {in_short(earlier)}",
            do="Run `upgrade --execute` for the old lake first. Nothing was written.",
        )
    undone = [day for day in source.days() if day < found.kept_from] or not_entered(source, days)
    if undone or (newest and has_unfinished_moves(source, newest)):
        raise NotPublished(
            expected=f"nothing left to do in {source.place('')}",
            found="a run died there before its late rows, files or entries were in place",
            do="Run `run` for the old lake first; it finishes that. Nothing was written.",
        )
    return found


def _expired(source: Lake, last: ExpiredDay | None) -> Iterator[tuple[date, bytes]]:
    """Yield the entry of each day that expired."""
    for day in source.entries() if last else ():
        if last and day <= last.day.date and read_expired(source, day):
            yield day, source.entry_text(day) or b""


def _kept_from(expired: ExpiredDay | None) -> date:
    return expired.day.date + ONE_DAY if expired else date.min


def kept_files(manifest: Manifest, kept_from: date) -> Iterator[DataFile]:
    """Yield the files that a manifest names, but for late ones that went with the day that they came to."""
    for file in manifest.files:
        if not (file.target and file.day and file.day < kept_from):
            yield file


def place_of(manifest: Manifest, file: DataFile) -> str:
    """Return where a file of a day lies, once nothing is left to do for the day."""
    return file.target or in_day(manifest.day.date, file.path)


def require_place(source: Lake, target: Lake, from_: Source) -> None:
    """Check that the new place is empty, or holds the first days of this lake and nothing else.

    Raises:
        ConfigError: it cannot keep this lake, or it holds another one.
        DayExists: it holds the folder of a day that is not committed there.
    """
    if from_.expired:
        try:
            target.require_removal()
        except ConfigError as refused:
            raise ConfigError(
                expected=f"a lake in a folder as --to, since {len(from_.expired)} days of {source.place('')} "
                "have expired",
                found=f"{target.place('')}, which cannot keep their entries",
                do="Keep this lake in a folder. Nothing was written.",
            ) from refused
    there = target.days()
    for day in sorted({*there, *target.entries()}):
        entry = source.manifest_text(day) if day >= from_.kept_from else from_.expired.get(day)
        held = target.manifest_text(day) if day in there else target.entry_text(day)
        if entry is None or held != entry:
            raise _other_lake(target, f"{day}, which is not that of {source.place('')}")
    if there != from_.days[: len(there)]:
        raise _other_lake(target, f"{there[-1]}, and not all days before it")
    if unknown := sorted({*target.day_names()} - {*map(day_ref, there)}):
        raise DayExists(
            expected=f"no days in {target.place('')} but those that `copy-lake` has put there",
            found=in_short(unknown),
            do="Move them away, or take another place. Nothing was written.",
        )


def _other_lake(target: Lake, found: str) -> ConfigError:
    return ConfigError(
        expected=f"an empty place at {target.place('')}, or the beginning of a copy of this lake",
        found=found,
        do="Name another place as `lake.path` of --to. Nothing was written.",
    )
