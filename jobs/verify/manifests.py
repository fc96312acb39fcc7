"""The manifests of a lake: each by itself, and each with the one before, from which it must go on.

Relies on the ledger's own rules, but goes on where the ledger stops: what cannot be read is a problem
with a sentence, and the other days are still checked.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from jobs.lake.port import Lake
from jobs.lake.status import Amended, amendments
from offsets.commit_log import check_link, read_manifest, require_first
from offsets.day_plan import Span, is_compacted
from offsets.days import ONE_DAY, Day, days_of
from offsets.errors import DayExists, LedgerBroken, StoreFailed
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import require_lists
from offsets.ranges import Offsets
from offsets.verdict import IN_FILES, Verdict

UNREADABLE = (LedgerBroken, DayExists, StoreFailed)


class Refused(str):
    """A problem that is reported even if the next look does not show it: the store refused to read."""

    __slots__ = ()


def told(error: BaseException, problem: str) -> str:
    """Return a problem, marked where the store refused to read."""
    return Refused(problem) if is_refusal(error) or is_refusal(error.__cause__) else problem


def is_refusal(error: BaseException | None) -> bool:
    """Return whether the store refused a read; a file that is gone does not count, since runs remove some."""
    return isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is kept of a manifest: the manifests of all days together may take gigabytes.

    `first_day` is the lake's first day, as the contract names it; `files` counts those that it names.
    """

    run_id: str
    day: Day
    first_day: date | None
    files: int
    remade: tuple[DataFile, ...]
    compacted: bool

    @classmethod
    def of(cls, manifest: Manifest) -> Summary:
        """Make it of what other days are compared with."""
        return cls(
            run_id=manifest.run_id,
            day=manifest.day,
            first_day=manifest.contract.first_day,
            files=len(manifest.files),
            remade=manifest.remade,
            compacted=bool(is_compacted(manifest.cleanup_policy)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Summaries of the manifests that can be read, and why the others cannot.

    `broken` may name folders of others. `days` have a folder, and are in order. `brought` are the names
    of the late files that manifests bring to a day's folder, by its name; `amended` are their rows.
    """

    known: Mapping[date, Summary]
    broken: Mapping[date, str]
    days: tuple[date, ...]
    brought: Mapping[str, frozenset[str]]
    amended: Mapping[date, tuple[Amended, ...]]

    @property
    def first(self) -> date | None:
        """The lake's first day, as the oldest manifest that can be read names it; else the oldest folder."""
        oldest = next((self.known[day] for day in self.days if day in self.known), None)
        named = oldest.first_day if oldest else None
        return min([*self.days[:1], *([named] if named else [])], default=None)

    def as_it_is(self, file: DataFile) -> DataFile:
        """Return a file as it was written last: a rebuild may have made an amendment of its day again."""
        there = self.known.get(file.day) if file.target and file.day else None
        remade = there.remade if there else ()
        return next((each for each in remade if each.target == file.target), file)

    def older(self, day: date) -> date | None:
        """Return the day before that has a folder, which need not be the calendar's."""
        at = bisect_left(self.days, day)
        return self.days[at - 1] if at else None

    @property
    def newest(self) -> date | None:
        """The last day that has a folder."""
        return self.days[-1] if self.days else None


def read_chain(lake: Lake) -> Chain:
    """Read all manifests that can be read, one by one, and keep of each what others are compared with."""
    known, broken = dict[date, Summary](), dict[date, str]()
    brought: dict[str, set[str]] = {}

    def readable() -> Iterator[Manifest]:
        for day in lake.days():
            try:
                manifest = read_manifest(lake, day)
            except UNREADABLE as error:
                broken[day] = told(error, str(error))
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
    )


def _add_brought(names: dict[str, set[str]], manifest: Manifest) -> None:
    for target in (file.target for file in manifest.files if file.target):
        folder, _, name = target.partition("/")
        names.setdefault(folder, set()).add(name)


def read_again(lake: Lake, chain: Chain, day: date) -> Manifest | str:
    """Read the manifest of a day whose summary is known, or return why it is not that one any more."""
    try:
        manifest = read_manifest(lake, day)
    except UNREADABLE as error:
        return told(error, str(error))
    if manifest is None or manifest.run_id != chain.known[day].run_id:
        return f"{day}: its manifest was {'exchanged' if manifest else 'removed'} while it was looked at"
    return manifest


def day_problems(chain: Chain, own: Manifest | None, before: Manifest | None, day: date) -> Iterator[str]:
    """Yield why a day's manifest cannot be trusted, or does not go on from the one of the day before.

    Either manifest is None where it cannot be read.
    """
    if day in chain.broken:
        yield chain.broken[day]
    if older := chain.older(day):
        yield from _link_problems(own, before, older, day)
        yield from _bounds_problems(chain, own, before)
    else:
        yield from _start_problems(chain)


def _start_problems(chain: Chain) -> Iterator[str]:
    """Check that the oldest folder is the lake's first day, as the manifests' contracts name it."""
    oldest = next((chain.known[day] for day in chain.days if day in chain.known), None)
    if oldest is None:
        return
    try:
        if chain.first not in chain.days or chain.days[0] == oldest.day.date:
            require_first(oldest.day.date, oldest.first_day)
    except LedgerBroken as broken:
        yield str(broken)


def _link_problems(own: Manifest | None, before: Manifest | None, older: date, day: date) -> Iterator[str]:
    if own and before:
        try:
            check_link(before, own)
        except UNREADABLE as broken:
            yield told(broken, str(broken))
    elif day != older + ONE_DAY:
        yield f"{older + ONE_DAY} is missing between {older} and {day}"


def _bounds_problems(chain: Chain, own: Manifest | None, linked: Manifest | None) -> Iterator[str]:
    """Compare the bounds that a manifest records of earlier days with their own, unless `check_link` did."""
    if own is None or own.earlier is None or (linked and linked.earlier is not None):
        return
    for each in days_of(own.earlier):
        there = chain.known.get(each.date)
        if there and (there.day.start, there.day.end) != (each.start, each.end):
            yield f"{own.day.date}: it records other bounds of {each.date} than that day's own manifest"


def shape_problems(manifest: Manifest) -> Iterator[str]:
    """Check that a manifest's own parts agree; where they do not, nothing can be counted from it."""
    day = manifest.day.date
    spans, consumed, next_ = manifest.spans, manifest.consumed.partitions, manifest.next.partitions
    parts = [span.partition for span in spans]
    try:
        require_lists(manifest)
    except UNREADABLE as broken:
        yield told(broken, f"{day}: {broken}")
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
    if strangers := {each.partition for each in manifest.tally} - set(parts):
        yield f"{day}: its tally counts partitions that it did not read, {sorted(strangers)}"
    for lost in manifest.accepted.loss:
        left = manifest.consumed.of(lost.partition)
        range_ = Offsets.between(lost.from_offset, lost.until_offset)
        if left is None or left.seen_until < lost.until_offset or left.pending & range_:
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
    for part in manifest.next.partitions:
        counted = sum(
            each.rows
            for each in manifest.tally
            if (each.partition, each.verdict) == (part.partition, Verdict.LATER_DAY)
        )
        if counted != (pending := len(part.pending)):
            yield f"{day}: {counted} rows later_day of partition {part.partition}, {pending} pending"


def uncounted(manifest: Manifest) -> Iterator[tuple[Span, int]]:
    """Yield each span with how many of the offsets that it read are neither counted nor gaps."""
    gaps = {gap.partition: gap.offsets for gap in manifest.gaps}
    for span in manifest.spans:
        counted = sum(each.rows for each in manifest.tally if each.partition == span.partition)
        yield span, len(span.reads) - counted - len(gaps.get(span.partition, Offsets()))
