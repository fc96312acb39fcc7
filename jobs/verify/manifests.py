"""Check the manifests of a lake: each by itself, and each with the one before, which it must continue.

Relies on the ledger's own rules, but does not stop at the first error: a manifest that cannot be read is
reported as a problem, and the other days are still checked.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from jobs.day.columns import was_written_after
from jobs.lake.port import Lake
from jobs.lake.status import Amended, amendments
from offsets.columns import Columns, columns_on
from offsets.commit_log import check_link, kept_days, read_manifest, require_first
from offsets.day_plan import Span, is_compacted
from offsets.days import ONE_DAY, Day, days_of
from offsets.errors import DayExists, LedgerBroken, StoreFailed
from offsets.expired import ExpiredDay
from offsets.manifest import DataFile, Manifest, tally_by_partition
from offsets.manifest_text import require_lists
from offsets.ranges import Offsets
from offsets.verdict import IN_FILES, Verdict

UNREADABLE = (LedgerBroken, DayExists, StoreFailed)


class RefusedRead(str):
    """A problem that is reported even if the next look does not find it: the store refused to read."""

    __slots__ = ()


def as_problem(error: BaseException, problem: str) -> str:
    """Return a problem, marked as RefusedRead if the store refused to read."""
    return RefusedRead(problem) if is_refusal(error) or is_refusal(error.__cause__) else problem


def is_refusal(error: BaseException | None) -> bool:
    """Return whether the store refused a read; a missing file is no refusal, since runs remove files."""
    return isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The part of a manifest that is kept in memory, since all manifests together may take gigabytes.

    `first_day` is the lake's first day, as the contract names it. `files` is the number of its files.
    `columns` are those of its own day, none in an older format.
    """

    run_id: str
    day: Day
    first_day: date | None
    files: int
    remade: tuple[DataFile, ...]
    compacted: bool
    columns: Columns

    @classmethod
    def of(cls, manifest: Manifest) -> Summary:
        """Return the summary of a manifest."""
        return cls(
            run_id=manifest.run_id,
            day=manifest.day,
            first_day=manifest.contract.first_day,
            files=len(manifest.files),
            remade=manifest.remade,
            compacted=bool(is_compacted(manifest.cleanup_policy)),
            columns=columns_on(manifest.columns, manifest.day.date),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Summaries of the manifests that can be read, and the reason why each other cannot (`broken`).

    `broken` may name folders that somebody else made. `days` are all days with a folder, in order. `brought`
    are the names of the late files that manifests bring to a day, by its folder's name. `amended` counts
    their rows. `expired` is the last day that expired; `unreadable` says why the ledger does not tell.
    """

    known: Mapping[date, Summary]
    broken: Mapping[date, str]
    days: tuple[date, ...]
    brought: Mapping[str, frozenset[str]]
    amended: Mapping[date, tuple[Amended, ...]]
    expired: ExpiredDay | None = None
    unreadable: str | None = None

    @property
    def first(self) -> date | None:
        """The first day that should be there: the lake's first, or the one after those that expired.

        The oldest readable manifest names the lake's first, or else it is the oldest folder.
        """
        if self.expired:
            return self.expired.day.date + ONE_DAY
        named = self.named_first
        return min([*self.days[:1], *([named] if named else [])], default=None)

    @property
    def named_first(self) -> date | None:
        """The first day that should be there, as the ledger or the oldest readable manifest names it."""
        if self.expired:
            return self.expired.day.date + ONE_DAY
        oldest = next((self.known[day] for day in self.days if day in self.known), None)
        return oldest.first_day if oldest else None

    def has_expired(self, day: date) -> bool:
        """Return whether a day has expired by policy."""
        return self.expired is not None and day <= self.expired.day.date

    def as_last_written(self, file: DataFile) -> DataFile:
        """Return a file as it was last written: a rebuild of its day may have remade an amendment."""
        summary = self.known.get(file.day) if file.target and file.day else None
        remade = summary.remade if summary else ()
        return next((file_remade for file_remade in remade if file_remade.target == file.target), file)

    def previous_day(self, day: date) -> date | None:
        """Return the last earlier day that has a folder, which may not be the calendar's previous day."""
        at = bisect_left(self.days, day)
        return self.days[at - 1] if at else None

    @property
    def newest(self) -> date | None:
        """The last day that has a folder."""
        return self.days[-1] if self.days else None


def read_chain(lake: Lake) -> Chain:
    """Read all readable manifests, one by one, and keep a summary of each."""
    known, broken = dict[date, Summary](), dict[date, str]()
    try:
        days, expired, unreadable = *kept_days(lake), None
    except UNREADABLE as error:
        days, expired, unreadable = lake.days(), None, as_problem(error, str(error))
    brought: dict[str, set[str]] = {}

    def readable() -> Iterator[Manifest]:
        for day in days:
            try:
                manifest = read_manifest(lake, day)
            except UNREADABLE as error:
                broken[day] = as_problem(error, str(error))
                continue
            if manifest:
                known[day] = Summary.of(manifest)
                _add_brought(brought, manifest)
                yield manifest

    amended = amendments(readable())
    return Chain(
        known=known,
        broken=broken,
        days=tuple(sorted([*known, *broken])),
        brought={folder: frozenset(names) for folder, names in brought.items()},
        amended=amended,
        expired=expired,
        unreadable=unreadable,
    )


def _add_brought(names: dict[str, set[str]], manifest: Manifest) -> None:
    for target in (file.target for file in manifest.files if file.target):
        folder, _, name = target.partition("/")
        names.setdefault(folder, set()).add(name)


def read_again(lake: Lake, chain: Chain, day: date) -> Manifest | str:
    """Return the manifest of a day whose summary is known, or a problem if it has changed since."""
    try:
        manifest = read_manifest(lake, day)
    except UNREADABLE as error:
        return as_problem(error, str(error))
    if manifest is None or manifest.run_id != chain.known[day].run_id:
        return f"{day}: its manifest was {'exchanged' if manifest else 'removed'} while it was looked at"
    return manifest


def day_problems(chain: Chain, own: Manifest | None, before: Manifest | None, day: date) -> Iterator[str]:
    """Yield the reasons why a day's manifest cannot be trusted, or does not continue the one before.

    Either manifest is None if it cannot be read.
    """
    if day in chain.broken:
        yield chain.broken[day]
    if previous_day := chain.previous_day(day):
        yield from _link_problems(own, before, previous_day, day)
        yield from _bounds_problems(chain, own, before)
    else:
        yield from _start_problems(chain, own)


def _start_problems(chain: Chain, own: Manifest | None) -> Iterator[str]:
    """Check that the oldest folder is the lake's first day, as contracts name it, or follows expired ones."""
    oldest = next((chain.known[day] for day in chain.days if day in chain.known), None)
    if oldest is None:
        return
    try:
        if chain.first not in chain.days or chain.days[0] == oldest.day.date:
            require_first(oldest.day.date, oldest.first_day, chain.expired)
        if chain.expired and own:
            check_link(chain.expired, own)
    except LedgerBroken as broken:
        yield str(broken)


def _link_problems(
    own: Manifest | None, before: Manifest | None, previous_day: date, day: date
) -> Iterator[str]:
    if own and before:
        try:
            check_link(before, own)
        except UNREADABLE as broken:
            yield as_problem(broken, str(broken))
    elif day != previous_day + ONE_DAY:
        yield f"{previous_day + ONE_DAY} is missing between {previous_day} and {day}"


def _bounds_problems(chain: Chain, own: Manifest | None, linked: Manifest | None) -> Iterator[str]:
    """Compare the recorded bounds of earlier days with their own manifests, unless `check_link` did."""
    if own is None or own.earlier is None or (linked and linked.earlier is not None):
        return
    for earlier_day in days_of(own.earlier):
        summary = chain.known.get(earlier_day.date)
        if summary and (summary.day.start, summary.day.end) != (earlier_day.start, earlier_day.end):
            date_ = earlier_day.date
            yield f"{own.day.date}: it records other bounds of {date_} than that day's own manifest"


def column_problems(lake: Lake, chain: Chain, newest: Manifest) -> Iterator[str]:
    """Compare the columns that the newest manifest records of earlier days with their own manifests'.

    A day that was built again since may have others: the next run records them.
    """
    since = lake.manifest_written(newest.day.date)
    for day, summary in chain.known.items():
        known = summary.columns and columns_on(newest.columns, day)
        if known and known != summary.columns and not was_written_after(lake, day, since):
            again = f"build {day} again, so that the next run learns them (`run --date {day} --force`)"
            yield (
                f"{newest.day.date}: it records other columns of {day} than that day's own manifest; {again}"
            )


def shape_problems(manifest: Manifest) -> Iterator[str]:
    """Check that the parts of a manifest agree; if they do not, its offsets cannot be counted."""
    day = manifest.day.date
    spans, consumed, next_ = manifest.spans, manifest.consumed.partitions, manifest.next.partitions
    parts = [span.partition for span in spans]
    try:
        require_lists(manifest)
    except UNREADABLE as broken:
        yield as_problem(broken, f"{day}: {broken}")
        return
    if [(span.partition, span.from_offset, span.seen_until) for span in spans] != [
        (part.partition, part.next_from_offset, part.seen_until) for part in consumed
    ]:
        yield f"{day}: its spans do not start from the checkpoint that it consumed"
    if [(span.partition, span.until_offset) for span in spans] != [
        (part.partition, part.seen_until) for part in next_
    ]:
        yield f"{day}: its next checkpoint does not go on where its spans end"
    if parts != [gap.partition for gap in manifest.gaps] or parts != [part.partition for part in consumed]:
        yield f"{day}: its gaps, spans and checkpoint are not of the same partitions"
        return
    if unplanned := {entry.partition for entry in manifest.tally} - set(parts):
        yield f"{day}: its tally counts partitions that it did not read, {sorted(unplanned)}"
    for lost in manifest.accepted.loss:
        checkpoint = manifest.consumed.of(lost.partition)
        range_ = Offsets.between(lost.from_offset, lost.until_offset)
        if checkpoint is None or checkpoint.seen_until < lost.until_offset or checkpoint.pending & range_:
            yield f"{day}: the checkpoint that it consumed does not do without {lost}, accepted as lost"
    for span, gap, part in zip(spans, manifest.gaps, consumed, strict=True):
        for what, offsets in (("gaps", gap.offsets), ("pending offsets", part.pending)):
            if len(offsets - span.reads):
                yield f"{day}: partition {span.partition} has {what} outside of what was read"


def sum_problems(manifest: Manifest) -> Iterator[str]:
    """Check that a manifest's figures add up."""
    day = manifest.day.date
    for verdict in IN_FILES:
        in_files = sum(file.rows for file in manifest.files_of(verdict))
        if in_files != manifest.rows(verdict):
            yield f"{day}: {manifest.rows(verdict)} rows {verdict} counted, {in_files} in files"
    for span, lost in uncounted(manifest):
        if lost:
            yield f"{day}: {lost} offsets of partition {span.partition} have no fate"
    tally = tally_by_partition(manifest.tally)
    for part in manifest.next.partitions:
        entries = tally.get(part.partition, ())
        counted = sum(entry.rows for entry in entries if entry.verdict is Verdict.LATER_DAY)
        if counted != (pending := len(part.pending)):
            yield f"{day}: {counted} rows later_day of partition {part.partition}, {pending} pending"


def uncounted(manifest: Manifest) -> Iterator[tuple[Span, int]]:
    """Yield each span with the number of its offsets that are neither counted nor gaps."""
    gaps = {gap.partition: gap.offsets for gap in manifest.gaps}
    tally = tally_by_partition(manifest.tally)
    for span in manifest.spans:
        counted = sum(entry.rows for entry in tally.get(span.partition, ()))
        yield span, len(span.reads) - counted - len(gaps.get(span.partition, Offsets()))
