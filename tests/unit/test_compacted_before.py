"""A topic that was compacted once: what that took is gone for ever, whatever the policy says today."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_chain
from offsets.day_plan import after_compaction
from offsets.days import midnight
from offsets.errors import AuditFailed, KafkaDailyError, TopicChanged
from offsets.manifest_text import MANIFEST_NAME, checksum_of
from offsets.verdict import Verdict
from tests.support.lake import places
from tests.support.local_engine import ZONE, order, pipeline
from tests.support.memory_topic import MemoryTopic

FIRST = date(2026, 3, 28)
DAYS = [FIRST + timedelta(days=step) for step in range(4)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def topic_of(policy: str) -> MemoryTopic:
    """Two orders a day in partition 0, one dated a day later; partition 1 is idle from the second on."""
    topic = MemoryTopic(2, cleanup_policy=policy)
    topic.produce(1, order(midnight(FIRST, ZONE)), midnight(FIRST, ZONE))
    for day in DAYS:
        when = midnight(day, ZONE) + timedelta(hours=2)
        topic.produce(0, order(when), when)
        topic.produce(0, order(when + timedelta(days=1)), when + timedelta(hours=1))
    return topic


def compact_and_delete(topic: MemoryTopic) -> None:
    """Take what is pending, which is the anchor too, and the idle partition's anchor; then end compaction."""
    topic.compact(0, [1])
    topic.compact(1, [0])
    topic.cleanup_policy = "delete"


@pytest.mark.parametrize("days_between", [0, 1])
def test_a_lake_goes_on_where_compaction_was_turned_off(lake: Path, days_between: int) -> None:
    """It was TopicChanged at each run, with the advice to begin another lake."""
    topic = topic_of("compact")
    run_day(pipeline(lake, topic), DAYS[0])
    topic.compact(0, [1])
    topic.compact(1, [0])
    for day in DAYS[1 : 1 + days_between]:
        run_day(pipeline(lake, topic), day)
    topic.cleanup_policy = "delete"
    for day in DAYS[1 + days_between :]:
        run_day(pipeline(lake, topic), day)
    manifests = list(read_chain(PosixLake(lake)))
    policies = [each.cleanup_policy for each in manifests]
    assert policies == ["compact"] * (1 + days_between) + ["delete, compact before"] * (3 - days_between)
    assert [each.missing_pending for each in manifests] == [0, 1, 0, 0]
    assert {offset for part, offset in places(lake) if part == 0} == {0, 2, 3, 4, 5, 6}
    assert manifests[1].transactional is None


def test_verify_and_a_rebuild_allow_for_it_too_on_days_before_it(lake: Path) -> None:
    topic = topic_of("delete")
    run_day(pipeline(lake, topic), DAYS[0])
    topic.cleanup_policy = "compact"
    run_day(pipeline(lake, topic), DAYS[1])
    topic.compact(0, [2, 3])
    topic.cleanup_policy = "delete"
    run_day(pipeline(lake, topic), DAYS[2])
    topic.compact(0, [1])
    found = verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic)
    assert found.problems == ()
    assert [day.kafka.compacted for day in found.ledger if day.kafka] == [1, 3, 0]
    again = rebuild_day(pipeline(lake, topic), DAYS[2]).manifest
    assert (again.missing_pending, again.rows(Verdict.IN_DAY)) == (1, 1)


def as_format_2(lake: Path, day: date, policy: str) -> None:
    """Write a day's manifest as format 2 did: it named the policy of its own run alone."""
    place = lake / f"date={day}" / MANIFEST_NAME
    document = json.loads(place.read_bytes()) | {"cleanup_policy": policy}
    rest = {
        key: value for key, value in document.items() if key not in ("format_version", "checksum", "earlier")
    }
    place.write_text(json.dumps({"format_version": 2, "checksum": checksum_of(rest)} | rest))


@pytest.mark.parametrize("rebuilt", [None, DAYS[1], DAYS[2]])
def test_compaction_that_an_older_version_saw_is_not_forgotten(lake: Path, rebuilt: date | None) -> None:
    """Format 2 had no mark for it, and the newest manifest alone was asked."""
    topic = topic_of("compact")
    for day in DAYS[:3]:
        run_day(pipeline(lake, topic), day)
    topic.cleanup_policy = "delete"
    for day, policy in zip(DAYS, ("compact", "delete", "delete"), strict=False):
        as_format_2(lake, day, policy)
    if rebuilt:
        assert rebuild_day(pipeline(lake, topic), rebuilt).manifest.cleanup_policy == "delete, compact before"
    compact_and_delete(topic)
    assert run_day(pipeline(lake, topic), DAYS[3]).manifest.cleanup_policy == "delete, compact before"


def test_compaction_that_a_rebuild_of_the_day_before_saw_is_not_forgotten(lake: Path) -> None:
    topic = topic_of("delete")
    for day in DAYS[:3]:
        run_day(pipeline(lake, topic), day)
    topic.cleanup_policy = "compact"
    rebuild_day(pipeline(lake, topic), DAYS[1])
    topic.compact(1, [0])
    topic.cleanup_policy = "delete"
    assert run_day(pipeline(lake, topic), DAYS[3]).manifest.cleanup_policy == "delete, compact before"
    assert verify(PosixLake(lake), None, lambda *_: None, Level.KAFKA, lambda: topic).problems == ()


def test_a_log_that_was_never_compacted_is_refused_still(lake: Path) -> None:
    topic = topic_of("delete")
    run_day(pipeline(lake, topic), DAYS[0])
    compact_and_delete(topic)
    with pytest.raises(TopicChanged):
        run_day(pipeline(lake, topic), DAYS[1])


def test_a_pending_record_that_goes_while_it_is_read_is_refused_still(lake: Path) -> None:
    topic = topic_of("delete")
    topic.produce(1, order(midnight(DAYS[1], ZONE)), midnight(DAYS[0], ZONE))
    topic.produce(1, order(midnight(DAYS[0], ZONE)), midnight(DAYS[0], ZONE))
    run_day(pipeline(lake, topic), DAYS[0])
    topic.compact(1, [1])
    with pytest.raises(AuditFailed, match="pending"):
        run_day(pipeline(lake, topic), DAYS[1])


def test_another_record_is_refused_though_the_log_was_compacted(lake: Path) -> None:
    topic = topic_of("compact")
    run_day(pipeline(lake, topic), DAYS[0])
    compact_and_delete(topic)
    topic.truncate(1, 0)
    topic.produce(1, b"another", midnight(FIRST, ZONE))
    with pytest.raises(TopicChanged, match="truncated and filled again"):
        run_day(pipeline(lake, topic), DAYS[1])


@pytest.mark.parametrize(
    "now, before, both",
    [
        ("delete", None, "delete"),
        ("delete", "delete", "delete"),
        (None, "delete", None),
        ("compact", "delete", "compact"),
        ("compact,delete", "delete, compact before", "compact,delete"),
        ("delete", "compact,delete", "delete, compact before"),
        ("delete", "delete, compact before", "delete, compact before"),
        (None, "compact", "not shown, compact before"),
    ],
)
def test_a_policy_keeps_what_an_earlier_one_did(
    now: str | None, before: str | None, both: str | None
) -> None:
    assert after_compaction(now, before) == both


@pytest.mark.parametrize(
    "taken, error", [((1, 1), AuditFailed), ((0, 2), TopicChanged)], ids=["pending", "anchor"]
)
@pytest.mark.parametrize("shown", [None, "delete"], ids=["no right to read settings", "turned off since"])
def test_compaction_that_no_run_saw_is_refused_with_advice_that_works(
    lake: Path, taken: tuple[int, int], error: type[KafkaDailyError], shown: str | None
) -> None:
    """The advice was to run the day again, which ended alike for ever, or to begin another lake."""
    partition, offset = taken
    topic = MemoryTopic(2, cleanup_policy=shown)
    for hour in (1, 25, 2):
        when = midnight(DAYS[0], ZONE)
        for part in (0, 1):
            topic.produce(part, order(when + timedelta(hours=hour)), when + timedelta(hours=1))
    run_day(pipeline(lake, topic), DAYS[0])
    topic.compact(partition, [offset])
    with pytest.raises(error, match=r"DescribeConfigs.*set cleanup.policy to compact,delete"):
        run_day(pipeline(lake, topic), DAYS[1])
    topic.cleanup_policy = "compact,delete"
    run_day(pipeline(lake, topic), DAYS[1])
    topic.cleanup_policy = shown
    run_day(pipeline(lake, topic), DAYS[2])
    assert verify(PosixLake(lake), None, lambda *_: None, Level.KAFKA, lambda: topic).problems == ()
