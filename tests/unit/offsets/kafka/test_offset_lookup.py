"""The survey finds a day's edges in topics with strays, markers, holes and disorder, and changes nothing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from offsets.checkpoint import Anchor, Checkpoint
from offsets.day_plan import EndFrom, LogOffsets
from offsets.days import day_in
from offsets.errors import OffsetsLost
from offsets.kafka.offset_lookup import NARROW, SAMPLE, TRIES, FoundEnd, find_end, last_before, survey
from offsets.kafka.reader import Look, Stretch, look_together, retention_of
from tests.support.manifests import checkpoint
from tests.support.memory_topic import MemoryTopic, Transaction

DAY = day_in("UTC", date(2026, 5, 2))
FUTURE, GRACE = timedelta(days=1), timedelta(hours=1)
OVER = int((DAY.end + GRACE).timestamp() * 1000)
FAR = datetime(2099, 1, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return DAY.start + timedelta(hours=hours)


def fill(
    topic: MemoryTopic, hours: range, per_hour: int = 10, transaction: Transaction | None = None
) -> None:
    for hour in hours:
        for step in range(per_hour):
            topic.produce(0, b"v", at(hour + step / per_hour), transaction=transaction)


def end_of(topic: MemoryTopic) -> FoundEnd:
    log_offsets = topic.log_offsets("orders", [0])[0]
    found = topic.offsets_at("orders", {0: OVER})[0]
    look = find_end(log_offsets, found, log_offsets.last_stable, OVER)
    return look_together(topic, "orders", {0: look})[0]


def test_the_end_is_the_first_record_stamped_past_the_day_and_its_grace() -> None:
    topic = MemoryTopic()
    fill(topic, range(48))
    assert end_of(topic) == FoundEnd(
        offset=250, how=EndFrom.STAMPED_PAST, detail="offset 250 is stamped past it"
    )


@pytest.mark.parametrize("records", [0, 1, 500])
def test_an_idle_partition_ends_at_its_high_watermark(records: int) -> None:
    topic = MemoryTopic()
    for _ in range(records):
        topic.produce(0, b"v", at(3))
    end = end_of(topic)
    assert (end.offset, end.how) == (records, EndFrom.IDLE)


def hang(topic: MemoryTopic, hours: float) -> None:
    """Open a transaction that holds a record, and leave it open."""
    topic.produce(0, b"v", at(hours), transaction=Transaction())


@pytest.mark.parametrize("before", ["nothing", "a marker", "a stray stamp"])
def test_an_idle_partition_ends_behind_what_an_open_transaction_holds(before: str) -> None:
    """It may be of the day: the end lies above the last stable offset, so that the plan waits for it."""
    topic = MemoryTopic()
    fill(topic, range(3))
    if before == "a marker":
        topic.marker(0, FAR)
    elif before == "a stray stamp":
        topic.produce(0, b"v", FAR)
        fill(topic, range(3, 6))
    hang(topic, 7)
    end = end_of(topic)
    assert (end.offset, end.how) == (topic.logs[0].high, EndFrom.IDLE)
    assert end.offset > topic.logs[0].last_stable


@pytest.mark.parametrize("past, ends", [(SAMPLE // 2, False), (SAMPLE // 2 + 1, True)])
def test_the_day_ends_where_most_of_the_records_that_follow_are_past_it(past: int, ends: bool) -> None:
    topic = MemoryTopic()
    fill(topic, range(3))
    for number in range(SAMPLE):
        topic.produce(0, b"v", at(26 if number < past else 20))
    for _ in range(SAMPLE):
        topic.produce(0, b"v", at(30))
    found = 30
    end = end_of(topic)
    assert end.how is (EndFrom.STAMPED_PAST if ends else EndFrom.BISECTED)
    assert end.offset == found + SAMPLE


@pytest.mark.parametrize("stray", [0, 1, 57, 200])
def test_one_stamp_from_the_future_does_not_end_the_day(stray: int) -> None:
    topic = MemoryTopic()
    fill(topic, range(stray // 10))
    topic.produce(0, b"v", FAR)
    fill(topic, range(stray // 10, 48))
    end = end_of(topic)
    assert (end.offset, end.how) == (251, EndFrom.BISECTED)


def test_a_stray_stamp_without_records_past_the_day_reads_to_the_end() -> None:
    topic = MemoryTopic()
    fill(topic, range(3))
    topic.produce(0, b"v", FAR)
    fill(topic, range(3, 20))
    end = end_of(topic)
    assert (end.offset, end.how) == (201, EndFrom.IDLE)


@pytest.mark.parametrize("size", [1, 7, SAMPLE, 3 * SAMPLE])
def test_markers_with_the_brokers_clock_do_not_pin_the_end(size: int) -> None:
    """A replay of old events in transactions: its first marker is stamped today."""
    topic = MemoryTopic()
    stamps = [at(48 * step / 900) for step in range(900)]
    for start in range(0, 900, size):
        replayed = Transaction()
        for stamp in stamps[start : start + size]:
            topic.produce(0, b"v", stamp, transaction=replayed)
        topic.end(replayed, commit=True, at=FAR)
    end = end_of(topic)
    day = [each.offset for each in topic.logs[0].visible(0, 10**6) if each.timestamp < OVER]
    assert max(day) < end.offset <= max(day) + SAMPLE + 2
    assert end.how is EndFrom.BISECTED


def test_a_marker_that_nothing_follows_ends_the_day_behind_it() -> None:
    topic = MemoryTopic()
    old = Transaction()
    fill(topic, range(3), transaction=old)
    topic.end(old, commit=True, at=FAR)
    end = end_of(topic)
    assert (end.offset, end.how) == (31, EndFrom.IDLE)


def test_disorder_around_the_end_moves_it_by_little_and_never_below_the_look_up() -> None:
    topic = MemoryTopic()
    for minute in range(48 * 60):
        shift = 40 if minute % 7 == 0 else -25 if minute % 5 == 0 else 0
        topic.produce(0, b"v", at(minute / 60) + timedelta(minutes=shift))
    found = topic.offsets_at("orders", {0: OVER})[0]
    end = end_of(topic)
    assert found is not None
    assert found <= end.offset <= 25 * 60 + SAMPLE


def test_an_aborted_tail_is_not_mistaken_for_the_next_day() -> None:
    topic = MemoryTopic()
    topic.marker(0, FAR)
    fill(topic, range(10))
    dropped = Transaction()
    fill(topic, range(30, 40), transaction=dropped)
    topic.end(dropped, commit=False, at=FAR)
    assert end_of(topic).offset == topic.logs[0].high


def test_an_end_beyond_the_last_stable_offset_is_reported_as_found() -> None:
    topic = MemoryTopic()
    fill(topic, range(3))
    hanging = Transaction()
    fill(topic, range(3, 30), transaction=hanging)
    end = end_of(topic)
    assert (end.offset, end.how) == (250, EndFrom.STAMPED_PAST)


def test_the_last_stable_offset_of_a_start_is_read_before_the_look_up() -> None:
    """Records that arrive in between may be of the first day: an LSO read later would skip them."""
    topic = MemoryTopic()
    topic.produce(0, b"old", at(-40))

    def arrive(question: str) -> None:
        if question == "log_offsets" and topic.asked.count("log_offsets") == 2:
            topic.produce(0, b"new", at(1))

    topic.before = arrive
    found = survey(topic, "orders", DAY, GRACE, FUTURE, None).partitions[0]
    assert found.start is not None
    assert found.start.offset == 1
    assert found.start.anchor is not None
    assert found.start.anchor.offset == 0


def test_records_committed_between_two_answers_are_no_gap_before_the_first_start() -> None:
    """The anchor is the last record before the start as it is when the day begins, not a moment earlier."""
    topic = MemoryTopic()
    topic.produce(0, b"old", at(-40))
    slow = Transaction()
    topic.produce(0, b"slow", at(-40), transaction=slow)
    fill(topic, range(3))

    def commit(question: str) -> None:
        if question == "offsets_at":
            topic.before = lambda question: None
            topic.end(slow, commit=True, at=at(3))

    topic.before = commit
    start = survey(topic, "orders", DAY, GRACE, FUTURE, None).partitions[0].start
    assert start is not None
    assert (start.offset, start.anchor and start.anchor.offset) == (2, 1)


def test_the_first_start_is_the_look_up_of_the_earliest_lawful_stamp() -> None:
    topic = MemoryTopic()
    for hours in (-30, -24.001, -24, -23, 1):
        topic.produce(0, b"v", at(hours))
    start = survey(topic, "orders", DAY, GRACE, FUTURE, None).partitions[0].start
    assert start is not None
    assert (start.offset, start.anchor and start.anchor.offset) == (2, 1)


def test_the_anchor_of_a_first_start_is_found_far_back() -> None:
    topic = MemoryTopic()
    topic.produce(0, b"last", at(-40))
    for _ in range(500):
        topic.marker(0, at(-39))
    topic.produce(0, b"v", at(1))
    start = survey(topic, "orders", DAY, GRACE, FUTURE, None).partitions[0].start
    assert start is not None
    assert (start.offset, start.anchor and start.anchor.offset) == (501, 0)


@pytest.mark.parametrize("aborted", [0, 1, 99, 5_000, 12_345])
def test_the_anchor_behind_a_long_invisible_tail_is_found_by_few_records(aborted: int) -> None:
    """The window in which it lay was read whole: ten times the tail, as records in memory."""
    topic = MemoryTopic()
    fill(topic, range(1), per_hour=20_000)
    dropped = Transaction()
    for _ in range(aborted):
        topic.produce(0, b"v", at(1), transaction=dropped)
    if aborted:
        topic.end(dropped, commit=False, at=at(1))
    log_offsets = topic.log_offsets("orders", [0])[0]
    asked: list[Stretch] = []

    def look() -> Look[Anchor | None]:
        steps, found = last_before(log_offsets, log_offsets.high), None
        try:
            stretch = next(steps)
            while True:
                asked.append(stretch)
                found = yield stretch
                stretch = steps.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    anchor = look_together(topic, "orders", {0: look()})[0]
    assert anchor is not None
    assert anchor.offset == 19_999
    assert max(stretch.limit for stretch in asked) <= NARROW


def test_a_new_partition_starts_at_its_beginning_whatever_its_stamps_say() -> None:
    topic = MemoryTopic(2)
    for partition in (0, 1):
        topic.produce(partition, b"v", at(-99))
    looked = survey(topic, "orders", DAY, GRACE, FUTURE, checkpoint(0)).partitions
    assert looked[0].start is None
    assert looked[1].start is not None
    assert looked[1].start.offset == 0


def test_a_log_start_that_moved_is_never_read_below() -> None:
    topic = MemoryTopic()
    fill(topic, range(20))
    seen: Checkpoint = checkpoint(30)
    topic.retain_from(0, 100)
    looked = survey(topic, "orders", DAY, GRACE, FUTURE, seen).partitions[0]
    assert looked.log_offsets.log_start == 100
    assert looked.after_anchor == ()


def test_retention_between_two_answers_begins_the_survey_anew() -> None:
    """The broker answers "offset out of range", which was a bug of ours (exit 70)."""
    topic = MemoryTopic(2)
    fill(topic, range(48))
    strikes = iter((10, 20, 30))

    def strike(question: str) -> None:
        if question == "records":
            topic.retain_from(0, next(strikes, 30))

    topic.before = strike
    found = survey(topic, "orders", DAY, GRACE, FUTURE, None)
    assert found.partitions[0].log_offsets.log_start == 30
    assert topic.asked.count("describe") == 4


def test_a_survey_that_retention_overtakes_each_time_ends() -> None:
    topic = MemoryTopic()
    fill(topic, range(48))

    def strike(question: str) -> None:
        if question == "records":
            topic.retain_from(0, topic.logs[0].log_start + 1)

    topic.before = strike
    with pytest.raises(OffsetsLost):
        survey(topic, "orders", DAY, GRACE, FUTURE, None)
    assert topic.asked.count("describe") == TRIES


def test_many_partitions_are_asked_together() -> None:
    """Three or four questions a partition, one after the other, took minutes."""
    topic = MemoryTopic(300)
    for partition in range(300):
        for hour in range(0, 48, 6):
            topic.produce(partition, b"v", at(hour))
    survey(topic, "orders", DAY, GRACE, FUTURE, None)
    assert len(topic.asked) < 15


def test_a_survey_reads_little_of_a_long_topic() -> None:
    topic = MemoryTopic()
    topic.produce(0, b"v", FAR)
    fill(topic, range(48), per_hour=200)
    survey(topic, "orders", DAY, GRACE, FUTURE, None)
    assert topic.asked.count("records") < 25


def test_an_empty_topic_has_an_empty_survey() -> None:
    looked = survey(MemoryTopic(), "orders", DAY, GRACE, FUTURE, None).partitions[0]
    assert looked.log_offsets == LogOffsets(partition=0, log_start=0, last_stable=0, high=0)
    assert (looked.end.offset, looked.first, looked.start and looked.start.offset) == (0, (), 0)


@pytest.mark.parametrize(
    "milliseconds, kept",
    [
        (None, None),
        ("-1", None),
        ("0", timedelta()),
        ("604800000", timedelta(days=7)),
        ("31536000000000", timedelta(days=365_000)),
        ("31536000000001", None),
        ("86400000000000001", None),
        (str(2**63 - 1), None),
    ],
)
def test_retention_beyond_any_calendar_is_endless(milliseconds: str | None, kept: timedelta | None) -> None:
    assert retention_of(milliseconds) == kept
