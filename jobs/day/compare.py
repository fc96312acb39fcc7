"""Compare what became of each offset now with what became of it when the day was committed.

Pure. Sets are compared, not counts: equal counts of other records mean that some are settled twice, or never.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.day.audit import Audited
from offsets.checkpoint import PartitionCheckpoint
from offsets.errors import AuditFailed, OffsetsLost, TopicChanged
from offsets.manifest import Gaps, Tally
from offsets.neighbours import RecordedDay
from offsets.verdict import Verdict

TRADING = (Verdict.IN_DAY, Verdict.INVALID)
"""Another contract may move records between these two; any other move would settle them twice or never."""


def require_same_verdicts(audited: Audited, recorded: RecordedDay) -> None:
    """Check that each offset met the same fate as then; another contract may move some within TRADING.

    Raises:
        OffsetsLost: compaction has taken records since.
        AuditFailed: an offset met another fate.
    """
    for part, then in zip(audited.next.partitions, recorded.next.partitions, strict=True):
        if (part.seen_until, part.pending) != (then.seen_until, then.pending):
            raise _failed(
                f"partition {part.partition} to leave pending {then.pending}", f"{part.pending}", recorded
            )
    if recorded.manifest is None:
        return
    for gap, before in zip(audited.gaps, recorded.manifest.gaps, strict=True):
        _hold_gaps(gap, before, compacted=audited.plan.compacted is not False)
    fates, before_fates = _fates(audited.tally), _fates(recorded.manifest.tally)
    for partition, verdict in sorted(fates.keys() | before_fates.keys()):
        if verdict in TRADING and audited.plan.contract != recorded.contract:
            continue
        now, old = fates.get((partition, verdict)), before_fates.get((partition, verdict))
        if now != old:
            raise _failed(
                f"the same records of partition {partition} to be {verdict}: {old[0] if old else 0:,}",
                f"{now[0] if now else 0:,}, or other ones",
                recorded,
            )


def with_recorded_anchors(audited: Audited, recorded: RecordedDay) -> Audited:
    """Return the day with its anchors as they were recorded, once they are of the same records.

    The day after goes on from just those; an older version recorded a stamp below zero otherwise.

    Raises:
        TopicChanged: another record is where one of them was.
    """
    pairs = zip(audited.next.partitions, recorded.next.partitions, strict=True)
    parts = tuple(_with_anchor(now, then) for now, then in pairs)
    return replace(audited, next=replace(audited.next, partitions=parts))


def _with_anchor(now: PartitionCheckpoint, then: PartitionCheckpoint) -> PartitionCheckpoint:
    same = then.anchor.is_same_record(now.anchor) if now.anchor and then.anchor else now.anchor == then.anchor
    if not same:
        raise TopicChanged(
            expected=f"partition {now.partition} to hold the record that the day ended with, {then.anchor}",
            found=f"{now.anchor}",
            do="The old day stays: the topic no longer holds what it was made of. Restore what is damaged of "
            "it from a backup.",
        )
    return replace(now, anchor=then.anchor)


def _hold_gaps(now: Gaps, before: Gaps, *, compacted: bool) -> None:
    grown, shrunk = now.offsets - before.offsets, before.offsets - now.offsets
    if len(grown):
        if not compacted:
            raise _failed(f"partition {now.partition} to deliver {grown} again", "nothing there")
        raise OffsetsLost(
            expected=f"partition {now.partition} to hold all that the day was made of",
            found=f"{len(grown)} records fewer, which compaction took",
            do="The old day stays: what it was made of is gone. Restore the day from a backup.",
        )
    if len(shrunk):
        raise _failed(f"nothing at {shrunk} of partition {now.partition}, as at the commit", "records")


def _fates(tally: tuple[Tally, ...]) -> dict[tuple[int, Verdict], tuple[int, str]]:
    return {(each.partition, each.verdict): (each.rows, each.digest) for each in tally}


def _failed(expected: str, found: str, judged: RecordedDay | None = None) -> AuditFailed:
    by = judged.manifest.versions.get("kafka-daily") if judged and judged.manifest else None
    return AuditFailed(
        expected=expected,
        found=found,
        do="The old day stays; staging is kept as evidence. A rebuild may move no record to another fate."
        + (f" If the day is damaged, restore it from a backup, or {_build_with(by)}." if by else ""),
    )


def _build_with(version: str) -> str:
    return f"build it again with kafka-daily {version}, which wrote it and may read a record otherwise"
