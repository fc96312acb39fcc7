"""Manifests for tests: one that uses every field, and a chain of days without records."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from offsets.checkpoint import Anchor, Checkpoint, LostOffsets, PartitionCheckpoint, TopicIdentity
from offsets.columns import ColumnRun, FileColumn
from offsets.contract import Accepted, Contract
from offsets.day_plan import EndFrom, Evidence, PartitionStart, Span, StartFrom
from offsets.days import ONE_DAY, day_in, runs_of, with_next
from offsets.manifest import CauseCount, DataFile, FileOffsets, Gaps, Manifest, Tally
from offsets.ranges import Offsets
from offsets.verdict import Verdict

TOPIC = TopicIdentity(name="orders", topic_id="bG9zdA", cluster_id="MkU3OEVB")
DAY = date(2026, 3, 29)
CONTRACT = Contract(
    {"decoder": 1, "day": {"zone": "Europe/Amsterdam", "first": "2026-03-28"}, "möglich": None}
)
COLUMNS = (
    FileColumn(name="event_time", type="timestamp"),
    FileColumn(name="Betrag in €", type="decimal(10,2)"),
)
DIGEST = "ab" * 32


def full() -> Manifest:
    """Make a manifest in which no field is empty."""
    started = datetime(2026, 3, 30, 1, 2, 3, 4, tzinfo=UTC)
    consumed = PartitionCheckpoint(
        partition=0,
        seen_until=20,
        pending=Offsets([(10, 12), (15, 16)]),
        anchor=Anchor(offset=19, timestamp=1774738800000, digest=DIGEST),
    )
    span = Span(
        partition=0,
        from_offset=10,
        seen_until=20,
        until_offset=30,
        reads=Offsets([(10, 12), (15, 16), (20, 30)]),
        evidence=Evidence(
            start=StartFrom.CHECKPOINT,
            start_detail="the checkpoint, with 3 pending",
            end=EndFrom.STAMPED_PAST,
            end_detail="offset 30 is stamped past it",
        ),
    )
    day_file = DataFile(
        path="part-r1-00000.parquet",
        verdict=Verdict.IN_DAY,
        rows=6,
        bytes=1234,
        sha256=DIGEST,
        offsets=(FileOffsets(partition=0, rows=6, from_offset=10, until_offset=26),),
        event_time_min=day_in("Europe/Amsterdam", DAY).start,
        event_time_max=day_in("Europe/Amsterdam", DAY).end - timedelta(microseconds=1),
    )
    late_file = replace(
        day_file,
        path="_late/date=2026-03-28/late-2026-03-29-r1-00001.parquet",
        verdict=Verdict.LATE,
        rows=1,
        offsets=(FileOffsets(partition=0, rows=1, from_offset=26, until_offset=27),),
        event_time_min=started - timedelta(days=2),
        event_time_max=started - timedelta(days=2),
        day=date(2026, 3, 28),
        target="date=2026-03-28/late-2026-03-29-r1-1.parquet",
    )
    invalid_file = DataFile(
        path="_invalid/invalid-r1-00002.parquet",
        verdict=Verdict.INVALID,
        rows=1,
        bytes=99,
        sha256=DIGEST,
        offsets=(FileOffsets(partition=0, rows=1, from_offset=27, until_offset=28),),
    )
    tally = {Verdict.IN_DAY: (6, 10, 26), Verdict.LATE: (1, 26, 27), Verdict.INVALID: (1, 27, 28)}
    return Manifest(
        run_id="r1",
        revision=1,
        day=day_in("Europe/Amsterdam", DAY),
        earlier=runs_of([day_in("Europe/Amsterdam", DAY - ONE_DAY)]),
        topic=TOPIC,
        contract=CONTRACT,
        columns=(
            ColumnRun(from_date=DAY - ONE_DAY, columns=COLUMNS[:1]),
            ColumnRun(from_date=DAY, columns=COLUMNS),
        ),
        accepted=Accepted(
            contract=("day.zone: a -> b",),
            start=("partition 0 begins at its log start 7",),
            loss=(LostOffsets(partition=0, from_offset=8, until_offset=10, unsettled=1),),
        ),
        consumed=Checkpoint(topic=TOPIC, partitions=(consumed,)),
        first_offsets=(PartitionStart(partition=0, offset=7),),
        spans=(span,),
        cleanup_policy="delete",
        transactional=True,
        gaps=(Gaps(partition=0, offsets=Offsets([(15, 16), (20, 22)]), probed=2),),
        missing_pending=1,
        tally=tuple(
            Tally(
                partition=0,
                verdict=verdict,
                rows=rows,
                from_offset=from_,
                until_offset=until,
                digest=DIGEST,
            )
            for verdict, (rows, from_, until) in tally.items()
        ),
        late_expired=0,
        causes=(CauseCount(cause="Malformed JSON: “truncated”", rows=1, partition=0, offset=27),),
        files=(day_file, late_file, invalid_file),
        remade=(replace(late_file, path="_late/date=2026-03-29/late-2026-03-30-r2-00001.parquet"),),
        next=Checkpoint(
            topic=TOPIC,
            partitions=(
                replace(consumed, seen_until=30, pending=Offsets([(28, 30)]), anchor=consumed.anchor),
            ),
        ),
        started=started,
        audited=started + timedelta(minutes=3),
        versions={"kafka-daily": "0.1.0", "python": "3.11"},
    )


def empty(day: date, before: Manifest | None = None, *, seen_until: int = 0) -> Manifest:
    """Make the manifest of a day without records, which goes on from the one before."""
    old = before.next if before else checkpoint(seen_until)
    spans = tuple(
        Span(
            partition=part.partition,
            from_offset=part.next_from_offset,
            seen_until=part.seen_until,
            until_offset=part.seen_until,
            reads=part.pending,
            evidence=full().spans[0].evidence,
        )
        for part in old.partitions
    )
    return replace(
        full(),
        day=replace(day_in("Europe/Amsterdam", day), start=before.day.end)
        if before
        else day_in("Europe/Amsterdam", day),
        earlier=with_next(before.earlier or (), before.day) if before else (),
        columns=before.columns if before else (ColumnRun(from_date=day, columns=COLUMNS),),
        consumed=old,
        spans=spans,
        gaps=tuple(Gaps(partition=span.partition, offsets=Offsets()) for span in spans),
        missing_pending=0,
        accepted=Accepted(),
        tally=(),
        causes=(),
        files=(),
        remade=(),
        next=old,
    )


def checkpoint(
    seen_until: int, pending: Offsets | None = None, anchor: Anchor | None = None, partitions: int = 1
) -> Checkpoint:
    """Make a checkpoint with all partitions alike."""
    return Checkpoint(
        topic=TOPIC,
        partitions=tuple(
            PartitionCheckpoint(
                partition=partition, seen_until=seen_until, pending=pending or Offsets(), anchor=anchor
            )
            for partition in range(partitions)
        ),
    )
