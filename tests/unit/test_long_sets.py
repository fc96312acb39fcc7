"""A topic written by many small transactions, whose gaps and pending offsets are long sets."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.rebuild import rebuild_day
from jobs.storage import Lake
from jobs.verify.lake import verify
from jobs.verify.level import Level
from offsets.errors import LedgerBroken
from offsets.ledger import read_chain
from offsets.manifest import LISTS_NAME, LONG
from offsets.model import Verdict, day_in
from tests.local_engine import ZONE, desk, order, settings
from tests.memory_topic import MemoryTopic, Transaction

FIRST = settings(Path("x")).first
DAYS = [day_in(ZONE, FIRST + timedelta(n)) for n in range(3)]
EACH = 3 * LONG


@pytest.fixture
def topic() -> MemoryTopic:
    """Each transaction holds a record of its day and one of the next, in front of its marker."""
    topic = MemoryTopic(1)
    for day, after in itertools.pairwise(DAYS):
        at = day.start + timedelta(hours=10)
        for number in range(EACH):
            transaction = Transaction()
            topic.produce(0, order(at, f"d{number}"), at, transaction=transaction)
            topic.produce(0, order(after.start, f"n{number}"), at, transaction=transaction)
            topic.end(transaction, commit=True, at=at)
    return topic


@pytest.fixture
def lake(topic: MemoryTopic, tmp_path: Path) -> Path:
    lake = tmp_path / "lake"
    for day in DAYS[:2]:
        run_day(desk(lake, topic), day.date)
    return lake


def problems(lake: Path, topic: MemoryTopic, level: Level = Level.KAFKA) -> tuple[str, ...]:
    return verify(Lake(lake), None, lambda *_: None, level, lambda: topic).problems


def test_long_gaps_and_pending_offsets_are_committed_and_proved(lake: Path, topic: MemoryTopic) -> None:
    manifest = run_day(desk(lake, topic), DAYS[1].date).manifest
    assert [gap.offsets.range_count for gap in manifest.gaps] == [2 * EACH]
    assert [part.pending.range_count for part in manifest.next.partitions] == [EACH]
    assert manifest.rows(Verdict.IN_DAY) == 2 * EACH, "pending rows of the first day came to their own"
    assert (lake / f"date={DAYS[1].date}" / LISTS_NAME).is_file()
    assert len((lake / f"date={DAYS[1].date}" / "_manifest.json").read_bytes()) < 20_000
    assert problems(lake, topic) == ()


def test_a_rebuild_holds_long_sets_against_those_of_then(lake: Path, topic: MemoryTopic) -> None:
    before = next(read_chain(Lake(lake)))
    assert rebuild_day(desk(lake, topic), DAYS[0].date).manifest.gaps == before.gaps
    assert problems(lake, topic) == ()


@pytest.mark.parametrize("level", list(Level))
def test_a_lost_or_changed_list_is_a_problem_and_a_rebuild_mends_it(
    lake: Path, topic: MemoryTopic, level: Level
) -> None:
    run_day(desk(lake, topic), DAYS[2].date)
    place = lake / f"date={DAYS[1].date}" / LISTS_NAME
    text = place.read_bytes()
    for damaged in (text[:-1], text[:-1] + b"?"):
        place.write_bytes(damaged)
        assert any(LISTS_NAME in each for each in problems(lake, topic, level))
    place.unlink()
    assert any(LISTS_NAME in each for each in problems(lake, topic, level))
    rebuild_day(desk(lake, topic), DAYS[1].date)
    assert problems(lake, topic) == ()


def test_of_a_lost_list_of_the_newest_day_the_message_names_the_way_out(
    lake: Path, topic: MemoryTopic
) -> None:
    (lake / f"date={DAYS[1].date}" / LISTS_NAME).unlink()
    with pytest.raises(LedgerBroken, match="so can the newest: `run --date D --force`"):
        run_day(desk(lake, topic), DAYS[2].date)
    rebuild_day(desk(lake, topic), DAYS[1].date)
    assert problems(lake, topic) == ()
    run_day(desk(lake, topic), DAYS[2].date)
    assert problems(lake, topic) == ()


def test_a_list_that_no_manifest_names_is_a_stranger(tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    run_day(desk(tmp_path, topic), DAYS[0].date)
    place = tmp_path / f"date={DAYS[0].date}" / LISTS_NAME
    assert not place.exists(), "an empty day has no long set"
    place.write_bytes(b"x")
    assert any("no manifest names this file" in each for each in problems(tmp_path, topic, Level.FILES))
