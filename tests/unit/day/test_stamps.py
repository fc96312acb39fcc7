"""A plan warns where most records are stamped after the day of their event, and foretells their fate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from jobs.config import Late
from jobs.daily import run_day
from jobs.day import stamps
from jobs.day.plan import preview
from jobs.first_look.show import show
from offsets.errors import OffsetsLost
from offsets.verdict import Verdict
from tests.support.local_engine import RULES, order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, at, orders, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def warned(lake: Path, topic: MemoryTopic, day: date = FIRST, **changed: Any) -> str:
    planned = preview(pipeline(lake, topic, **changed), day).planned
    assert planned is not None
    return " ".join(planned.warnings)


def replayed(topic: MemoryTopic, count: int = 30) -> None:
    """Produce events of the first day, all stamped on the third."""
    for number in range(count):
        topic.produce(number % len(topic.logs), order(at(FIRST, 1 + number / 10)), at(THIRD, 3))


def test_a_first_try_with_past_events_is_told_why_its_day_is_empty(lake: Path) -> None:
    """Each day was settled empty without a word, until a night later all rows came late."""
    topic = MemoryTopic(2)
    replayed(topic)
    told = warned(lake, topic, late=Late.AMEND)
    assert f"30 of 30 sampled records that follow this day's are events of {FIRST} or earlier" in told
    assert f"the run for {THIRD}, or a later one, does" in told
    assert "30 will be late rows, brought into their days (late: amend)." in told
    place = told.split("`show ")[1].split("`")[0]
    partition, offset = map(int, place.split(":"))
    shown = show(pipeline(lake, topic), partition, offset, 9)
    assert (shown.day, shown.run, shown.verdict) == (FIRST, THIRD, "late")
    for day in (FIRST, SECOND):
        with capture_logs() as logs:
            assert run_day(pipeline(lake, topic), day).manifest.rows(Verdict.IN_DAY) == 0
        assert [line["log_level"] for line in logs if "stamped later" in line["event"]] == ["warning"]
    with capture_logs() as logs:
        assert run_day(pipeline(lake, topic), THIRD).manifest.rows(Verdict.LATE) == 30
    told = " ".join(line["event"] for line in logs)
    assert "30 of 30 sampled records that this run reads were stamped after the day of their event" in told
    assert "kept in _late/, outside their days (late: set_aside)." in told


def test_records_that_come_as_they_happen_are_no_cause_for_a_warning(lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    for day in (FIRST, SECOND, THIRD):
        assert warned(lake, topic, day) == ""
        run_day(pipeline(lake, topic), day)


def test_replays_before_the_first_day_or_beyond_validity_are_told_apart(lake: Path) -> None:
    topic = MemoryTopic()
    for number in range(20):
        topic.produce(0, order(at(FIRST, -5 + number / 10)), at(SECOND, 5))
    told = warned(lake, topic)
    assert f"20 are dated before day.first ({FIRST}): only counted" in told
    told = warned(lake, topic, rules=replace(RULES, past=timedelta(hours=12)))
    assert "20 happened more than validity.past (12:00:00)" in told
    run_day(pipeline(lake, topic), FIRST)
    assert run_day(pipeline(lake, topic), SECOND).manifest.rows(Verdict.BEFORE_FIRST) == 20


def test_a_few_stragglers_behind_a_full_day_are_no_cause_for_a_warning(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST, 50)
    for number in range(9):
        topic.produce(0, order(at(FIRST, 23)), at(SECOND, 2 + number / 10))
    assert warned(lake, topic) == ""


def test_a_first_day_behind_all_records_of_the_topic_is_warned_of(lake: Path) -> None:
    """The lake began with an empty day, and its first day stays for ever."""
    topic = MemoryTopic(2)
    assert warned(lake, topic, SECOND, first=SECOND) == ""
    orders(topic, FIRST, 5)
    assert "set day.first to an earlier day" in warned(lake, topic, day := date(2026, 4, 9), first=day)
    run_day(pipeline(lake, topic, first=FIRST), FIRST)
    assert warned(lake, topic, SECOND) == ""


def test_a_plan_without_a_sample_stands(lake: Path) -> None:
    topic = MemoryTopic()
    replayed(topic)

    def refuse(question: str) -> None:
        if question == "sample":
            raise OffsetsLost(expected="a", found="b", do="c")

    topic.before = refuse
    assert warned(lake, topic) == ""
    assert run_day(pipeline(lake, topic), FIRST).manifest.rows(Verdict.IN_DAY) == 0


def test_a_slow_broker_makes_the_sample_smaller(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, clock = MemoryTopic(2), [0.0]
    replayed(topic)
    monkeypatch.setattr("jobs.day.stamps.time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert "30 of 30 sampled" in warned(lake, topic)

    def wait(question: str) -> None:
        clock[0] += stamps.SECONDS + 0.1 if question == "sample" else 0.0

    topic.before = wait
    assert "15 of 15 sampled" in warned(lake, topic)


def test_records_stamped_in_the_calendars_last_hours_stop_no_run(lake: Path) -> None:
    """A warning, which no verdict depends on, must not keep a day from being settled."""
    topic = MemoryTopic()
    run_day(pipeline(lake, topic, zone="Asia/Tokyo"), FIRST)
    for number in range(20):
        topic.produce(0, order(at(FIRST, number)), datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    assert "A run reads by Kafka's timestamps" in warned(lake, topic, SECOND, zone="Asia/Tokyo")
    assert run_day(pipeline(lake, topic, zone="Asia/Tokyo"), SECOND).manifest.day.date == SECOND
