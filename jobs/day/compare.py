"""Compare the verdicts of a rebuilt day with those that were recorded when it was committed.

Pure. Sets of offsets are compared, not counts: with equal counts of other records, some would be settled
twice, and some never.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.day.audit import Audited
from offsets.checkpoint import PartitionCheckpoint
from offsets.errors import AuditFailed, OffsetsLost, TopicChanged
from offsets.manifest import Gaps, Tally
from offsets.neighbours import RecordedDay
from offsets.verdict import Verdict

INTERCHANGEABLE = (Verdict.IN_DAY, Verdict.INVALID)
"""Another contract may move records between these; any other move would settle a record twice or never."""


def require_same_verdicts(audited: Audited, recorded: RecordedDay) -> None:
    """Check that each offset has its recorded verdict; a new contract may move some within INTERCHANGEABLE.

    Of a day of format 1, which kept no digests, counts and edges are compared, under its own contract alone.

    Raises:
        OffsetsLost: compaction removed records since.
        AuditFailed: an offset has another verdict.
    """
    for part, recorded_part in zip(audited.next.partitions, recorded.next.partitions, strict=True):
        if (part.seen_until, part.pending) != (recorded_part.seen_until, recorded_part.pending):
            raise _failed(
                f"partition {part.partition} to leave pending {recorded_part.pending}",
                f"{part.pending}",
                recorded,
            )
    if recorded.manifest is None:
        return
    for gap, before in zip(audited.gaps, recorded.manifest.gaps, strict=True):
        _require_same_gaps(gap, before, compacted=audited.plan.compacted is not False)
    fates, before_fates = _fates(audited.tally), _fates(recorded.manifest.tally)
    for partition, verdict in sorted(fates.keys() | before_fates.keys()):
        if verdict in INTERCHANGEABLE and audited.plan.contract != recorded.plan.contract:
            continue
        now, old = fates.get((partition, verdict)), before_fates.get((partition, verdict))
        if now and old and not old.digest and audited.plan.contract == recorded.plan.contract:
            now = replace(now, digest="")  # of a day of format 1: only another contract could choose others
        if now != old:
            raise _failed(
                f"the same records of partition {partition} to be {verdict}: {old.rows if old else 0:,}",
                f"{now.rows if now else 0:,}, or other ones",
                recorded,
            )


def with_recorded_anchors(audited: Audited, recorded: RecordedDay) -> Audited:
    """Return the day with its anchors as they were recorded, after checking that the records are the same.

    The next day's manifest holds exactly the recorded ones; an older version recorded stamps below zero
    differently.

    Raises:
        TopicChanged: another record is at the place of an anchor.
    """
    pairs = zip(audited.next.partitions, recorded.next.partitions, strict=True)
    parts = tuple(_with_anchor(rebuilt, old) for rebuilt, old in pairs)
    return replace(audited, next=replace(audited.next, partitions=parts))


def _with_anchor(rebuilt: PartitionCheckpoint, recorded: PartitionCheckpoint) -> PartitionCheckpoint:
    old, new = recorded.anchor, rebuilt.anchor
    same = old.is_same_record(new) if old and new else old == new
    if not same:
        raise TopicChanged(
            expected=f"partition {rebuilt.partition} to hold the record that the day ended with, "
            f"{recorded.anchor}",
            found=f"{rebuilt.anchor}",
            do="The old day stays: the topic no longer holds what it was made of. Restore what is damaged of "
            "it from a backup.",
        )
    return replace(rebuilt, anchor=recorded.anchor)


def _require_same_gaps(rebuilt: Gaps, recorded: Gaps, *, compacted: bool) -> None:
    grown, shrunk = rebuilt.offsets - recorded.offsets, recorded.offsets - rebuilt.offsets
    if len(grown):
        if not compacted:
            raise _failed(f"partition {rebuilt.partition} to deliver {grown} again", "nothing there")
        raise OffsetsLost(
            expected=f"partition {rebuilt.partition} to hold all that the day was made of",
            found=f"{len(grown)} records fewer, which compaction took",
            do="The old day stays: what it was made of is gone. Restore the day from a backup.",
        )
    if len(shrunk):
        raise _failed(f"nothing at {shrunk} of partition {rebuilt.partition}, as at the commit", "records")


def _fates(tally: tuple[Tally, ...]) -> dict[tuple[int, Verdict], Tally]:
    return {(entry.partition, entry.verdict): entry for entry in tally}


def _failed(expected: str, found: str, recorded: RecordedDay | None = None) -> AuditFailed:
    do = "The old day stays; staging is kept as evidence. A rebuild may move no record to another fate."
    version = recorded.manifest.versions.get("kafka-daily") if recorded and recorded.manifest else None
    if version:
        do += (
            " If the day is damaged, restore it from a backup, or build it again with kafka-daily "
            f"{version}, which wrote it and may read a record otherwise."
        )
    return AuditFailed(expected=expected, found=found, do=do)
