"""Show one record, the verdict that it gets, and the run that gives it.

Relies on the decoder and the verdict rule of the tasks, on the lake's manifests, and on the broker for the
record and for how far a run reads. Changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final

from jobs.config import Late
from jobs.context import Pipeline
from jobs.day.plan import due_days, require_same_first
from jobs.day.stretches import batch_of
from jobs.first_look.record import read_record
from jobs.record.decode import Decoder
from jobs.record.hints import hint_of
from jobs.record.rules import Rules, rules_of
from jobs.record.text import BytesText, text_of
from jobs.task.classify import VERDICTS, DayBounds
from jobs.task.task import Batch, judge
from offsets.checkpoint import Checkpoint
from offsets.commit_log import Ledger, read_ledger, read_manifest, read_twice
from offsets.days import ONE_DAY, Day, date_in
from offsets.instants import from_micros, from_stamp, millis
from offsets.kafka.offset_lookup import find_end
from offsets.kafka.reader import FullRecord, TopicReader, look_together
from offsets.manifest import Manifest
from offsets.plan import bounds, day_behind
from offsets.verdict import Verdict

NOT_READ: Final = "not_read"
"""The verdict of no run: the lake begins behind the record."""
FAR: Final = timedelta(days=3660)
"""How far ahead of our clock the day of a pending record, or of a run that reads it, is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHeader:
    """One header of a record; the value is None where the header has none."""

    key: str
    value: BytesText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """One record and what becomes of it.

    `verdict` is that of `run`, the day whose run settled the record (`settled`) or reads it next; it is
    NOT_READ, without a run, for a record before the first offset that the lake read. `day` is the record's
    own day.
    """

    topic: str
    partition: int
    offset: int
    kafka_timestamp: datetime | None
    key: BytesText | None
    value: BytesText | None
    headers: tuple[ShownHeader, ...]
    event_time: datetime | None
    day: date | None
    verdict: str
    settled: bool
    run: date | None
    outcome: str
    cause: str | None
    hint: str | None


def show(pipeline: Pipeline, partition: int, offset: int, limit: int) -> ShownRecord:
    """Return the record at an offset, with at most `limit` characters of its value, and its verdict.

    Raises:
        ConfigError: there is no such record.
        BrokerBehind: an open transaction hides it.
    """
    settings, reader = pipeline.settings, pipeline.broker()
    ledger = read_twice(read_ledger)(pipeline.lake)
    require_same_first(ledger, settings.day.first)
    record = read_record(reader, settings.topic, partition, offset)
    run = _run_of(pipeline, ledger, partition, record)
    judged = _judge(partition, record, run.days, run.rules)
    verdict = NOT_READ if run.day is None else str(judged.verdict)
    return ShownRecord(
        topic=settings.topic,
        partition=partition,
        offset=offset,
        kafka_timestamp=None if record.timestamp == -1 else from_stamp(record.timestamp),
        key=None if record.key is None else text_of(record.key, limit),
        value=None if record.value is None else text_of(record.value, limit),
        headers=tuple(
            ShownHeader(key=key, value=None if value is None else text_of(value, limit))
            for key, value in record.headers
        ),
        event_time=judged.event_time,
        day=judged.day,
        verdict=verdict,
        settled=run.settled,
        run=run.day,
        outcome=_outcome(pipeline, judged, run),
        cause=judged.cause,
        hint=hint_of(record.value, record.timestamp, run.rules) if judged.cause else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The run that judges a record, with the lake's days up to its own; `day` is None if no run does."""

    day: date | None
    days: tuple[Day, ...]
    rules: Rules
    settled: bool
    expired: date | None = None
    """The last day that expired, if the run that settled the record was of such a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    verdict: Verdict
    cause: str | None
    event_time: datetime | None
    day: date | None


def _run_of(pipeline: Pipeline, ledger: Ledger, partition: int, record: FullRecord) -> _Run:
    """Find the run that settled a record, or the next that reads it."""
    settings = pipeline.settings
    newest = ledger.newest
    following = bounds(ledger.next_day(settings.day.first), settings.day.zone, ledger.newest)
    unread = _Run(day=None, days=(*ledger.days, following), rules=settings.rules, settled=False)
    if newest is None:
        start = millis(following.start - settings.rules.future)
        first = pipeline.broker().offsets_at(settings.topic, {partition: start})[partition]
        if first is None or record.offset < first:
            return unread
    elif record.offset < next((p.offset for p in newest.first_offsets if p.partition == partition), 0):
        return unread
    elif manifest := _settled_by(pipeline, newest, partition, record.offset):
        expired = _is_expired(ledger, manifest, partition, record.offset)
        day = manifest.day.date - ONE_DAY * expired
        days, rules = tuple(known for known in ledger.days if known.date <= day), rules_of(manifest.contract)
        return _Run(day=day, days=days, rules=rules, settled=True, expired=day if expired else None)
    days = _days_until_read(pipeline, ledger, following, partition, record)
    return replace(unread, day=days[-1].date, days=days)


def _settled_by(pipeline: Pipeline, newest: Manifest, partition: int, offset: int) -> Manifest | None:
    """Return the manifest of the run that settled an offset, or None."""
    found, at = None, newest
    settled = _is_settled(newest.next, partition, offset)
    while settled:
        found = at
        settled = _is_settled(at.consumed, partition, offset)
        earlier = read_manifest(pipeline.lake, at.day.date - ONE_DAY) if settled else None
        if earlier is None:
            return found
        at = earlier
    return found


def _is_expired(ledger: Ledger, manifest: Manifest, partition: int, offset: int) -> bool:
    """Return whether a record was settled before the first day that has not expired."""
    oldest = ledger.expired and manifest.day.date == ledger.kept[0]
    return bool(oldest) and _is_settled(manifest.consumed, partition, offset)


def _is_settled(by: Checkpoint, partition: int, offset: int) -> bool:
    return any(part.partition == partition and part.has_settled(offset) for part in by.partitions)


def _days_until_read(
    pipeline: Pipeline, ledger: Ledger, following: Day, partition: int, record: FullRecord
) -> tuple[Day, ...]:
    """Return the lake's days up to the first, not yet committed, whose run reads a record."""
    settings = pipeline.settings
    pending = ledger.newest and any(
        part.partition == partition and record.offset in part.pending
        for part in ledger.newest.next.partitions
    )
    if pending:
        return (*ledger.days, following)
    days = [following]
    for day in due_days(pipeline, following.date, following.end + settings.day.grace)[1:]:
        days.append(_after(days[-1], day))
    reads = _Reads(pipeline.broker(), settings.topic, partition, settings.day.grace)
    at = bisect_left(days, True, key=lambda day: reads.until(day) > record.offset)
    if at < len(days):
        return (*ledger.days, *days[: at + 1])
    # no day that is over: the first whose end and grace come after the record's stamp
    limit = pipeline.now() + FAR
    days.append(_after(days[-1], days[-1].date + ONE_DAY))
    while millis(days[-1].end + settings.day.grace) <= record.timestamp and days[-1].end < limit:
        days.append(_after(days[-1], days[-1].date + ONE_DAY))
    return (*ledger.days, *days)


def _after(before: Day, day: date) -> Day:
    return day_behind(before.end, day, before.zone)


@dataclass(frozen=True, slots=True)
class _Reads:
    """How far the run of a day would read a partition by now."""

    reader: TopicReader
    topic: str
    partition: int
    grace: timedelta

    def until(self, day: Day) -> int:
        over = millis(day.end + self.grace)
        part = self.partition
        ends = self.reader.log_offsets(self.topic, [part])[part]
        looked_up = self.reader.offsets_at(self.topic, {part: over})[part]
        look = find_end(ends, looked_up, ends.last_stable, over)
        return look_together(self.reader, self.topic, {part: look})[part].offset


def _judge(partition: int, record: FullRecord, days: Sequence[Day], rules: Rules) -> _Judged:
    """Decode and classify a record as a task of the last day's run does."""
    batch = Batch.of(batch_of(partition, [record], headers=False))
    decoded, classified = judge(batch, Decoder(rules), DayBounds.through(days, rules))
    verdict, happened = VERDICTS[int(classified.code[0])], from_micros(decoded.event_time[0].as_py())
    return _Judged(
        verdict=verdict,
        cause=classified.cause[0].as_py() if verdict is Verdict.INVALID else None,
        event_time=happened,
        day=_day_of(happened, days) if happened and verdict is not Verdict.SKIPPED else None,
    )


def _day_of(happened: datetime, days: Sequence[Day]) -> date:
    """Return the day of an instant: by the recorded bounds, else by today's zone rules."""
    for day in reversed(days):
        if day.start <= happened < day.end:
            return day.date
    return date_in(days[-1].zone, happened)


def _outcome(pipeline: Pipeline, judged: _Judged, run: _Run) -> str:
    """Describe what became of a record, or what will."""
    if run.day is None:
        return "the lake began to read this partition behind it: no run reads it"
    if run.expired:
        return (
            f"the run for {run.expired}, or for a day before it, settled it: that day has expired by policy"
        )
    does = f"the run for {run.day} " + ("settled it: " if run.settled else "will read it: ")
    return does + _fate(pipeline, judged, run)


def _fate(pipeline: Pipeline, judged: _Judged, run: _Run) -> str:
    first = run.days[0].date
    match judged.verdict:
        case Verdict.IN_DAY:
            return f"a row of {judged.day}"
        case Verdict.LATE if pipeline.settings.late is Late.AMEND:
            return f"its day was closed before, so its row is brought into {judged.day} (late: amend)"
        case Verdict.LATE:
            return f"a late row of {judged.day}, kept in _late/ of {run.day} (late: set_aside)"
        case Verdict.LATER_DAY:
            return f"it stays pending in Kafka until the run for {judged.day}, which makes it a row"
        case Verdict.INVALID:
            return f"an invalid record of {run.day}, kept with its cause and not as a row"
        case Verdict.BEFORE_FIRST:
            return f"counted, not written: it is dated before the lake's first day, {first}"
        case Verdict.SKIPPED:
            return "counted, not written: it has no value (tombstones: skip)"
        case _:
            return str(judged.verdict)
