"""The manifests of a lake: each by itself, and each as it goes on from the one before.

Relies on the ledger's own rules, but goes on where the ledger stops: what cannot be read is a problem
with a sentence, and the other days are still looked at.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from jobs.storage import Lake
from offsets.days import ONE_DAY, days_of
from offsets.errors import DayTaken, LedgerBroken, StoreFailed
from offsets.ledger import check_first, check_link, read_manifest
from offsets.manifest import require_lists
from offsets.model import IN_FILES, DataFile, Manifest, Span, Verdict
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The manifests that can be read, and why the others cannot; `broken` may hold day folders of others.

    `days` have a folder, and are in order. `brought` are the names of the late files that manifests bring to
    a day's folder, by its name. `refused` are those of `broken` that the store refused to read.
    """

    manifests: Mapping[date, Manifest]
    broken: Mapping[date, str]
    days: tuple[date, ...]
    brought: Mapping[str, frozenset[str]]
    refused: Mapping[date, str]

    @property
    def first(self) -> date | None:
        """The lake's first day, as the oldest manifest that can be read tells; else the oldest folder."""
        oldest = next((self.manifests[day] for day in self.days if day in self.manifests), None)
        named = oldest.contract.first_day if oldest else None
        return min([*self.days[:1], *([named] if named else [])], default=None)

    def as_it_is(self, file: DataFile) -> DataFile:
        """Give a file as it was written last: a rebuild may have made an amendment of its day again."""
        there = self.manifests.get(file.day) if file.target and file.day else None
        remade = there.remade if there else ()
        return next((each for each in remade if each.target == file.target), file)

    @property
    def newest(self) -> date | None:
        """The last day that has a folder."""
        return self.days[-1] if self.days else None


def read_chain(lake: Lake) -> Chain:
    """Read all manifests that can be read."""
    manifests, broken, refused = dict[date, Manifest](), dict[date, str](), dict[date, str]()
    for day in lake.days():
        try:
            if manifest := read_manifest(lake, day):
                manifests[day] = manifest
        except (LedgerBroken, DayTaken, StoreFailed) as error:
            broken[day] = str(error)
            if is_refusal(error.__cause__):
                refused[day] = broken[day]
    return Chain(
        manifests=manifests,
        broken=broken,
        days=tuple(sorted([*manifests, *broken])),
        brought=_brought(manifests.values()),
        refused=refused,
    )


def is_refusal(error: BaseException | None) -> bool:
    """Return whether the store refused a read, apart from a file that has just gone: runs remove some."""
    return isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def _brought(manifests: Iterable[Manifest]) -> dict[str, frozenset[str]]:
    names: dict[str, set[str]] = {}
    for target in (file.target for manifest in manifests for file in manifest.files if file.target):
        folder, _, name = target.partition("/")
        names.setdefault(folder, set()).add(name)
    return {folder: frozenset(each) for folder, each in names.items()}


def day_problems(chain: Chain, day: date) -> Iterator[str]:
    """Tell why a day's manifest cannot be trusted, or does not go on from the one before."""
    if day in chain.broken:
        yield chain.broken[day]
    older = chain.days[: bisect_left(chain.days, day)][-1:]
    if older:
        yield from _link_problems(chain, older[-1], day)
        yield from _bounds_problems(chain, older[-1], day)
    else:
        yield from _start_problems(chain)


def _start_problems(chain: Chain) -> Iterator[str]:
    """Check that the oldest folder is the lake's first day, as the manifests' contracts name it."""
    readable = [chain.manifests[day] for day in chain.days if day in chain.manifests]
    if not readable:
        return
    oldest = readable[0]
    try:
        if chain.first not in chain.days or chain.days[0] == oldest.day.date:
            check_first(oldest)
    except LedgerBroken as broken:
        yield str(broken)


def _link_problems(chain: Chain, before: date, after: date) -> Iterator[str]:
    if before in chain.manifests and after in chain.manifests:
        try:
            check_link(chain.manifests[before], chain.manifests[after])
        except (LedgerBroken, StoreFailed) as broken:
            yield str(broken)
    elif after != before + ONE_DAY:
        yield f"{before + ONE_DAY} is missing between {before} and {after}"


def _bounds_problems(chain: Chain, before: date, day: date) -> Iterator[str]:
    """Compare the bounds that a manifest records of earlier days with theirs; `check_link` did the others."""
    own, linked = chain.manifests.get(day), chain.manifests.get(before)
    if own is None or own.earlier is None or (linked and linked.earlier is not None):
        return
    for each in days_of(own.earlier):
        there = chain.manifests.get(each.date)
        if there and (there.day.start, there.day.end) != (each.start, each.end):
            yield f"{day}: it records other bounds of {each.date} than that day's own manifest"


def shape_problems(manifest: Manifest) -> Iterator[str]:
    """Check that a manifest's own parts go together; where they do not, nothing can be counted from it."""
    day = manifest.day.date
    spans, consumed, next_ = manifest.spans, manifest.consumed.partitions, manifest.next.partitions
    parts = [span.partition for span in spans]
    try:
        require_lists(manifest)
    except (LedgerBroken, StoreFailed) as broken:
        yield f"{day}: {broken}"
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
    """Give each span with how many of the offsets that it read are neither counted nor gaps."""
    gaps = {gap.partition: gap.offsets for gap in manifest.gaps}
    for span in manifest.spans:
        counted = sum(each.rows for each in manifest.tally if each.partition == span.partition)
        yield span, len(span.reads) - counted - len(gaps.get(span.partition, Offsets()))
