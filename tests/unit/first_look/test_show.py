"""`show`: one record, the verdict that its run gives it, and advice where no record is there."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.first_look.record import read_record
from jobs.first_look.show import show
from jobs.record.rules import Tombstones
from jobs.record.text import printable, text_of
from offsets.errors import BrokerBehind, ConfigError
from offsets.verdict import Verdict
from tests.support.local_engine import RULES, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.three_days import FIRST, SECOND, THIRD, at, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_every_record_is_shown_with_the_verdict_that_its_run_gave_it(lake: Path) -> None:
    """What `show` foretells on an empty lake is what each run then does, and what it reports after that."""
    topic = MemoryTopic(2)
    three_days(topic)
    visible = [(part, record.offset) for part, log in topic.logs.items() for record in log.visible(0, 99)]
    foretold = {place: show(pipeline(lake, topic), *place, 99) for place in visible}
    for day in (FIRST, SECOND, THIRD):
        manifest = run_day(pipeline(lake, topic), day).manifest
        mine = [shown for shown in foretold.values() if shown.run == day]
        for verdict in (Verdict.IN_DAY, Verdict.INVALID, Verdict.LATE, Verdict.BEFORE_FIRST):
            of_run = [shown for shown in mine if shown.verdict == verdict]
            pending = [s for s in foretold.values() if s.verdict == Verdict.LATER_DAY and s.day == day]
            expected = len(of_run) + (len(pending) if verdict is Verdict.IN_DAY else 0)
            assert manifest.rows(verdict) == expected, (day, verdict)
    for place, before in foretold.items():
        after = show(pipeline(lake, topic), *place, 99)
        if before.verdict == Verdict.LATER_DAY:
            assert (after.run, after.day) == (before.day, before.day)
            assert after.settled == (before.day in (FIRST, SECOND, THIRD))
        else:
            assert (after.verdict, after.run, after.settled) == (before.verdict, before.run, True)


def test_a_record_is_shown_with_all_that_it_holds(lake: Path) -> None:
    topic = MemoryTopic()
    when = at(FIRST, 3)
    topic.produce(0, order(when, "é", 7), when, key=b"k", headers=[("trace", b"\xff"), ("empty", None)])
    shown = show(pipeline(lake, topic), 0, 0, 6)
    assert (shown.partition, shown.offset, shown.kafka_timestamp, shown.event_time) == (0, 0, when, when)
    assert shown.key is not None
    assert shown.value is not None
    assert (shown.key.text, shown.value.text, shown.value.cut) == ("k", '{"id":', True)
    assert [(header.key, header.value and header.value.text) for header in shown.headers] == [
        ("trace", "ff"),
        ("empty", None),
    ]
    assert (shown.verdict, shown.day, shown.run, shown.settled) == ("in_day", FIRST, FIRST, False)
    assert shown.cause is shown.hint is None


def test_an_invalid_record_is_shown_with_its_cause_and_a_hint(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, gzip.compress(b"{}"), at(FIRST, 3))
    shown = show(pipeline(lake, topic), 0, 0, 99)
    assert (shown.verdict, shown.cause, shown.event_time) == ("invalid", "Not valid UTF-8", None)
    assert "gzip" in (shown.hint or "")


def test_a_record_of_another_day_says_what_becomes_of_it(lake: Path) -> None:
    topic = MemoryTopic()
    run_day(pipeline(lake, topic), FIRST)
    topic.produce(0, order(at(FIRST, 3)), at(SECOND, 3))  # late
    topic.produce(0, order(at(THIRD, 3)), at(SECOND, 4))  # of a later day
    topic.produce(0, order(at(FIRST, -3)), at(SECOND, 5))  # before the first
    topic.produce(0, None, at(SECOND, 6))
    shown = [show(pipeline(lake, topic, late=Late.AMEND), 0, offset, 9) for offset in range(3)]
    assert [each.verdict for each in shown] == ["late", "later_day", "before_first"]
    assert [each.run for each in shown] == [SECOND, SECOND, SECOND]
    assert f"brought into {FIRST}" in shown[0].outcome
    assert f"pending in Kafka until the run for {THIRD}" in shown[1].outcome
    assert f"before the lake's first day, {FIRST}" in shown[2].outcome
    assert "_late/" in show(pipeline(lake, topic), 0, 0, 9).outcome
    assert show(pipeline(lake, topic), 0, 3, 9).verdict == "invalid"


def test_a_skipped_tombstone_is_shown_as_counted(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, None, at(FIRST, 3), key=b"gone")
    shown = show(pipeline(lake, topic, rules=replace(RULES, tombstones=Tombstones.SKIP)), 0, 0, 9)
    assert (shown.verdict, shown.value, shown.cause) == ("skipped", None, None)


def test_a_record_stamped_after_its_day_is_late_before_any_day_is_run(lake: Path) -> None:
    """A replay: its event is of the first day, and the run that reads it is that of the day of its stamp."""
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, 3)), at(THIRD, 3))
    shown = show(pipeline(lake, topic), 0, 0, 9)
    assert (shown.verdict, shown.day, shown.run) == ("late", FIRST, THIRD)


def test_a_record_of_today_waits_for_a_run_that_is_not_over(lake: Path) -> None:
    topic = MemoryTopic()
    now = datetime(2026, 4, 20, 12, tzinfo=UTC)
    topic.produce(0, order(now), now)
    shown = show(pipeline(lake, topic, now=now), 0, 0, 9)
    assert (shown.verdict, shown.run, shown.settled) == ("in_day", date(2026, 4, 20), False)
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, 40)), at(FIRST, 40))
    shown = show(pipeline(lake, topic, now=at(FIRST, 2)), 0, 0, 9)
    assert (shown.verdict, shown.run) == ("in_day", SECOND)


def test_a_record_stamped_days_ahead_waits_for_the_run_of_its_stamp(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, 100)), at(FIRST, 100))
    shown = show(pipeline(lake, topic, now=at(FIRST, 30)), 0, 0, 9)
    assert (shown.verdict, shown.day, shown.run) == ("in_day", date(2026, 4, 1), date(2026, 4, 1))


def test_a_record_before_the_first_offset_read_is_read_by_no_run(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, -90)), at(FIRST, -90))
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1))
    for _ in range(2):
        shown = show(pipeline(lake, topic), 0, 0, 9)
        assert (shown.verdict, shown.run, shown.settled) == ("not_read", None, False)
        run_day(pipeline(lake, topic), FIRST)


def test_an_offset_without_a_record_says_which_one_can_be_shown() -> None:
    """Each `show P:OFFSET` that a message advises shows a record."""
    topic = MemoryTopic(2)
    for hour in range(6):
        topic.produce(0, order(at(FIRST, hour)), at(FIRST, hour))
    topic.marker(0, at(FIRST, 7))
    topic.produce(0, order(at(FIRST, 8)), at(FIRST, 8))
    topic.marker(0, at(FIRST, 9))
    topic.retain_from(0, 2)
    for partition, offset, words, advised in (
        (0, 1, "retention", 2),
        (0, 6, "a gap", 7),
        (0, 8, "a gap", 7),
        (0, 99, "not written yet", 7),
    ):
        with pytest.raises(ConfigError, match=words) as stopped:
            read_record(topic, "orders", partition, offset)
        assert f"`show 0:{advised}`" in stopped.value.do
        assert read_record(topic, "orders", 0, advised).offset == advised
    with pytest.raises(ConfigError, match="0 to 1") as stopped:
        read_record(topic, "orders", 2, 3)
    assert "`show 0:3`" in stopped.value.do
    with pytest.raises(ConfigError, match="none by now"):
        read_record(topic, "orders", 1, 0)


def test_an_open_transaction_hides_a_record_for_now() -> None:
    topic, transaction = MemoryTopic(), Transaction()
    topic.produce(0, b"{}", at(FIRST, 1), transaction=transaction)
    with pytest.raises(BrokerBehind, match="open transaction from offset 0"):
        read_record(topic, "orders", 0, 0)
    topic.end(transaction, commit=True, at=at(FIRST, 1) + timedelta(seconds=1))
    assert read_record(topic, "orders", 0, 0).value == b"{}"
    topic.compact(0, [0])
    with pytest.raises(ConfigError, match="Name another partition"):
        read_record(topic, "orders", 0, 0)


def test_text_is_cut_by_characters_and_its_controls_are_never_obeyed() -> None:
    cut = text_of("ééé".encode(), 2)
    assert (cut.text, cut.bytes, cut.cut) == ("éé", 6, True)
    assert text_of(b"\xff\x00", 4).text == "ff00"
    assert not text_of(b"\xff\x00", 4).cut
    assert printable("a\x1b[31mé\n\u202e") == "a\\x1b[31mé\\n\\u202e"


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("sentinel", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"])
def test_the_first_and_last_hours_of_the_calendar_can_be_shown_in_any_zone(
    lake: Path, sentinel: str, zone: str
) -> None:
    """Programs write them for "never"; in one of the zones they have no date."""
    topic, never = MemoryTopic(), datetime.fromisoformat(sentinel)
    topic.produce(0, order(never), at(FIRST, 12))
    shown = show(pipeline(lake, topic, zone=zone), 0, 0, 99)
    assert (shown.event_time, shown.verdict) == (never, "invalid")
    assert shown.day is not None
    assert abs(shown.day - never.date()) <= timedelta(days=1)
