"""Days that expire by policy are gone, counted and never missing; nothing else is gone with them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import jobs.verify.run
from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.clean import clean
from jobs.lake.expiry import Expiring, expire, expiring
from jobs.lake.port import DayContents, Entry, LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.lake.status import status
from jobs.lake.store import System
from jobs.rebuild import rebuild_day
from jobs.record.rules import EventTimeRule
from jobs.record.time_format import TimeFormat
from jobs.upgrade.run import upgrade
from jobs.verify.files import locate
from jobs.verify.level import Level
from jobs.verify.result import Verified
from jobs.verify.run import verify
from offsets.checkpoint import Checkpoint, PartitionCheckpoint, TopicIdentity
from offsets.commit_log import read_chain, read_expired, read_ledger, read_manifest
from offsets.days import ONE_DAY, Day, midnight
from offsets.errors import ConfigError, LedgerBroken, StoreFailed, VerifyFailed
from offsets.expired import ExpiredDay, Removed, from_text, to_text
from offsets.instants import micros
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, to_json
from offsets.plan import Accept
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.reference import Coordinate, Place
from tests.support.lake import places
from tests.support.local_engine import RULES, ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.unprivileged import folder_of_nobody, unprivileged

DAYS = [date(2026, 3, 28) + timedelta(days=number) for number in range(6)]
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = DAYS
NOW = datetime(2026, 4, 10, tzinfo=UTC)
HOLDER = LockHolder(run_id="expire", host="here", pid=1, since=NOW)


def six_days() -> MemoryTopic:
    """Six days; each but the first brings late rows of the day before, and the last two of the first day."""
    topic = MemoryTopic(2)
    for day in DAYS:
        start = midnight(day, ZONE)
        for hour in range(4):
            topic.produce(hour % 2, order(start + timedelta(hours=hour)), start + timedelta(hours=hour))
        topic.produce(0, b"not json", start + timedelta(hours=5))
        topic.produce(1, order(start + timedelta(hours=25)), start + timedelta(hours=6))
        if day > FIRST:
            topic.produce(0, order(start - timedelta(hours=3)), start + timedelta(hours=7))
        if day > FOURTH:
            topic.produce(1, order(midnight(FIRST, ZONE)), start + timedelta(hours=8))
    return topic


@pytest.fixture
def topic() -> MemoryTopic:
    return six_days()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the first five days, which is made once; never change it."""
    lake = tmp_path_factory.mktemp("made") / "lake"
    for day in DAYS[:5]:
        run(lake, six_days(), day)
    return lake


@pytest.fixture
def lake(tmp_path: Path, made: Path) -> Path:
    """A lake of the first five days, in which the names of one file are those of one file again."""
    copies: dict[int, str] = {}

    def copy(source: str, target: str) -> None:
        first = copies.setdefault(Path(source).stat().st_ino, target)
        if first == target:
            shutil.copy2(source, target)
        else:
            Path(target).hardlink_to(first)

    return Path(shutil.copytree(made, tmp_path / "lake", copy_function=copy))


def run(lake: Path, topic: MemoryTopic, day: date, **changed: Any) -> Outcome:
    return run_day(pipeline(lake, topic, **{"late": Late.AMEND, **changed}), day)


def rebuild(lake: Path, topic: MemoryTopic, day: date, late: Late = Late.AMEND) -> Outcome:
    return rebuild_day(pipeline(lake, topic, late=late), day)


def remove(lake: Path, before: date) -> list[Expiring]:
    there = PosixLake(lake)
    with there.lock(HOLDER):
        ledger, _ = finish_last_run(there, "expire")
        return expire(there, ledger, before, NOW, "expire", f"expire --before {before}")


def look(lake: Path, topic: MemoryTopic | None = None, only: date | None = None) -> Verified:
    level = Level.KAFKA if topic else Level.RECORDS
    return verify(PosixLake(lake), only, lambda *_: None, level, (lambda: topic) if topic else None)


def folders(lake: Path) -> list[str]:
    return sorted(path.name for path in lake.glob("date=*"))


def test_what_would_leave_is_told_and_nothing_leaves(lake: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in lake.rglob("*")}
    (first, second) = expiring(PosixLake(lake), THIRD)
    assert (first.date, second.date) == (FIRST, SECOND)
    assert (first.removed.rows, first.removed.amended) == (5, 2)
    inside = [path for path in (lake / f"date={FIRST}").rglob("*") if path.suffix in (".parquet", ".rows")]
    assert first.removed.files == len(inside)
    assert first.removed.bytes == sum(path.stat().st_size for path in inside)
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*")} == before


def test_days_leave_with_all_that_lay_in_them_and_the_lake_goes_on(lake: Path, topic: MemoryTopic) -> None:
    before, planned = places(lake), expiring(PosixLake(lake), THIRD)
    manifests = {day: read_manifest(PosixLake(lake), day) for day in (FIRST, SECOND)}
    assert remove(lake, THIRD) == planned
    assert folders(lake) == [f"date={day}" for day in (THIRD, FOURTH, FIFTH)]
    gone = {at for at, place in before.items() if (place.of or place.day) < THIRD}
    assert places(lake) == {at: place for at, place in before.items() if at not in gone}
    for day, manifest in manifests.items():
        left = read_expired(PosixLake(lake), day)
        assert left
        assert manifest
        assert (left.tally, left.day) == (manifest.tally, manifest.day)
        assert left.next == (manifest.next if day == SECOND else None)
    found = look(lake, topic)
    assert found.problems == ()
    assert (found.expired.days, found.expired.until) == (2, SECOND)
    assert found.expired.rows == len(gone)
    assert found.expired.files == sum(day.removed.files for day in planned)
    assert not run(lake, topic, SIXTH).already
    assert look(lake, topic).problems == ()
    assert [manifest.day.date for manifest in read_chain(PosixLake(lake))] == [THIRD, FOURTH, FIFTH, SIXTH]
    assert [day.date for day in read_ledger(PosixLake(lake)).days] == DAYS


def test_the_newest_two_days_stay_whatever_the_date(lake: Path, topic: MemoryTopic) -> None:
    remove(lake, date(2099, 1, 1))
    assert folders(lake) == [f"date={day}" for day in (FOURTH, FIFTH)]
    assert remove(lake, date(2099, 1, 1)) == []
    assert not run(lake, topic, SIXTH).already
    assert run(lake, topic, FIFTH).already
    assert look(lake, topic).problems == ()


def test_late_rows_of_an_expired_day_stay_aside_and_are_counted(lake: Path, topic: MemoryTopic) -> None:
    remove(lake, THIRD)
    done = run(lake, topic, SIXTH)
    assert done.amended == {FIFTH: 1}
    assert done.manifest.late_expired == 1
    (file,) = [file for file in done.manifest.files_of(Verdict.LATE) if file.day == FIRST]
    assert file.target is None
    assert (lake / f"date={SIXTH}" / file.path).exists()
    seen = status(PosixLake(lake), FIRST, lambda *_: NOW, NOW)
    assert [day.late_expired for day in seen.days] == [0, 0, 0, 1]
    assert (seen.expired, seen.kept_from) == (2, THIRD)
    assert look(lake, topic).problems == ()
    assert rebuild(lake, topic, SIXTH).manifest.late_expired == 1
    assert look(lake, topic).problems == ()


@pytest.mark.parametrize("command", [run, rebuild, lambda lake, topic, day: plan(lake, topic, day)])
def test_an_expired_day_is_neither_settled_nor_planned_nor_built_again(
    lake: Path, topic: MemoryTopic, command: Any
) -> None:
    remove(lake, THIRD)
    for day in (FIRST, SECOND):
        with pytest.raises(ConfigError, match=f"expired by policy .expire --before {THIRD}."):
            command(lake, topic, day)
    assert look(lake, topic).problems == ()


def plan(lake: Path, topic: MemoryTopic, day: date) -> object:
    return preview(pipeline(lake, topic, late=Late.AMEND), day)


def test_a_rebuild_goes_on_naming_late_files_that_went_with_an_expired_day(
    lake: Path, topic: MemoryTopic
) -> None:
    before = places(lake)
    old = read_manifest(PosixLake(lake), FIFTH)
    assert old
    remove(lake, THIRD)
    kept = {at: place for at, place in before.items() if (place.of or place.day) >= THIRD}
    for day in (THIRD, FOURTH, FIFTH):
        new = rebuild(lake, topic, day).manifest
        assert places(lake) == kept
    assert set(new.files_of(Verdict.LATE)) == set(old.files_of(Verdict.LATE))
    assert {file.day for file in new.files if file.target} == {FIRST, FOURTH}
    assert look(lake, topic).problems == ()


def test_a_rebuild_of_a_day_with_a_lost_and_an_expired_late_file_writes_the_lost_one_again(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, THIRD)
    kept = places(lake)
    (late,) = (lake / f"date={FOURTH}").glob(f"part-late-{FIFTH}-*")
    late.unlink()
    rebuild(lake, topic, FIFTH)
    assert places(lake) == kept
    assert look(lake, topic).problems == ()


CREATED = EventTimeRule(path=("created",), format=TimeFormat.EPOCH_US, zone="UTC")
"""Another event time than the one of the other tests, `at`."""


def produce_event(topic: MemoryTopic, at: date, created: date, stamp: datetime) -> None:
    """Add a record that happened on day `at`, or by the rule CREATED on day `created`."""
    times = [micros(midnight(day, ZONE) + timedelta(hours=1)) for day in (at, created)]
    topic.produce(0, b'{"id":"o","n":0,"at":%d,"created":%d}' % (*times,), stamp)


@pytest.mark.parametrize(
    "at, created",
    [(FIRST, THIRD), (THIRD, FIRST), (FIRST, FIRST), (THIRD, THIRD)],
    ids=["no more of the expired day", "now of the expired day", "as it was, expired", "as it was"],
)
def test_a_rebuild_by_another_event_time_loses_and_doubles_no_late_row_beside_an_expired_day(
    tmp_path: Path, at: date, created: date
) -> None:
    """Late files are left out by their day: a row that the rule dates otherwise was lost, or kept twice."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in DAYS:
        produce_event(topic, day, day, midnight(day, ZONE) + timedelta(hours=1))
        if day == FIFTH:
            produce_event(topic, FIRST, FIRST, midnight(day, ZONE) + timedelta(hours=2))
            produce_event(topic, at, created, midnight(day, ZONE) + timedelta(hours=3))
    for day in DAYS[:5]:
        run(lake, topic, day)
    every = places(lake)
    remove(lake, SECOND)
    before = places(lake)
    again = pipeline(
        lake,
        topic,
        late=Late.AMEND,
        rules=replace(RULES, event_time=CREATED),
        accept=Accept(contract=True),
    )
    rebuild_day(again, FIFTH)
    assert places(lake) == before
    assert look(lake, topic).problems == ()
    if late := [*(lake / f"date={THIRD}").glob(f"part-late-{FIFTH}-*")]:
        late[0].unlink()  # so that it is written again
        rebuild_day(again, FIFTH)
        assert_none_is_lost(every, before, lake)
        assert look(lake, topic).problems == ()


def assert_none_is_lost(
    every: Mapping[Coordinate, Place], before: Mapping[Coordinate, Place], lake: Path
) -> None:
    """Each row is there as `before`; rows that expired of `every` one may have come back, and no others."""
    assert before.keys() <= places(lake).keys() <= every.keys()


@pytest.mark.parametrize("link", [False, True])
def test_what_somebody_put_in_the_place_of_late_files_stops_no_expiry(lake: Path, link: bool) -> None:
    """A file called `_late` in a day that stays ended each expiry; a link was followed."""
    theirs = lake / f"date={THIRD}" / "_late"
    shutil.rmtree(theirs, ignore_errors=True)
    theirs.symlink_to(lake.parent) if link else theirs.write_text("theirs")
    assert [gone.date for gone in remove(lake, THIRD)] == [FIRST, SECOND]
    assert theirs.exists()


def test_a_row_that_was_set_aside_changes_no_place_with_one_that_expired(tmp_path: Path) -> None:
    """By another event time each took the other's day: the first was lost, the second kept twice, unseen."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in DAYS:
        produce_event(topic, day, day, midnight(day, ZONE) + timedelta(hours=1))
    late = midnight(SIXTH, ZONE) + timedelta(hours=2)
    for at, created in ((SECOND, SECOND), (SECOND, FIRST), (FIRST, SECOND), (SECOND, SECOND)):
        produce_event(topic, at, created, late)
    for day in DAYS[:5]:
        run(lake, topic, day)
    remove(lake, SECOND)
    run(lake, topic, SIXTH)
    every = places(lake)
    remove(lake, THIRD)
    before = places(lake)
    rules = replace(RULES, event_time=CREATED)
    again = pipeline(lake, topic, late=Late.AMEND, rules=rules, accept=Accept(contract=True))
    rebuild_day(again, SIXTH)
    assert places(lake) == before
    (aside,) = (lake / f"date={SIXTH}" / "_late").rglob("*.rows")
    aside.unlink()
    rebuild_day(again, SIXTH)
    assert_none_is_lost(every, before, lake)
    assert look(lake, topic).problems == ()


@pytest.mark.parametrize("others", [(), (SECOND, THIRD, FOURTH)], ids=["alone", "with the days beside"])
def test_rows_inside_the_same_bounds_change_no_place_with_those_of_an_expired_day(
    tmp_path: Path, others: tuple[date, ...]
) -> None:
    """Rows, first offset and end of each day were alike by either rule: one row was lost, and an expired one
    came in its place, without a word and without any option.
    """
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in DAYS:
        produce_event(topic, day, day, midnight(day, ZONE) + timedelta(hours=1))
        if day == FIFTH:
            by_both = [(THIRD, THIRD), (FIRST, FIRST), (THIRD, FIRST), (FIRST, THIRD)]
            for at, created in (*by_both, *by_both[1::-1]):
                produce_event(topic, at, created, midnight(day, ZONE) + timedelta(hours=2))
    for day in DAYS[:5]:
        run(lake, topic, day)
    rules = replace(RULES, event_time=CREATED)
    for day in (*others, FIFTH):
        accept = Accept(contract=True)
        rebuild_day(pipeline(lake, topic, late=Late.AMEND, rules=rules, accept=accept), day)
    every = places(lake)
    remove(lake, SECOND)
    before = places(lake)
    (late,) = (lake / f"date={THIRD}").glob("part-late-*")
    late.unlink()
    with capture_logs() as logged:
        rebuild_day(pipeline(lake, topic, late=Late.AMEND, rules=rules), FIFTH)
    assert any("are written again" in entry["event"] for entry in logged)
    assert_none_is_lost(every, before, lake)
    assert look(lake, topic).problems == ()


@pytest.mark.parametrize("gone", ["folder", "manifest", "manifest and entry"])
def test_late_rows_of_a_day_that_was_built_again_without_its_manifest_are_not_taken_for_others(
    tmp_path: Path, gone: str
) -> None:
    """Its new manifest had today's rule, and its late files that of before: a row was lost."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in DAYS:
        produce_event(topic, day, day, midnight(day, ZONE) + timedelta(hours=1))
        if day == FOURTH:
            for at, created in ((SECOND, SECOND), (FIRST, FIRST), (SECOND, FIRST), (FIRST, SECOND)):
                produce_event(topic, at, created, midnight(day, ZONE) + timedelta(hours=2))
            for at in (FIRST, SECOND):
                produce_event(topic, at, at, midnight(day, ZONE) + timedelta(hours=2))
    for day in DAYS[:4]:
        run(lake, topic, day)
    rules = replace(RULES, event_time=CREATED)
    now = pipeline(lake, topic, late=Late.AMEND, rules=rules, accept=Accept(contract=True))
    run_day(now, FIFTH)
    folder = lake / f"date={FOURTH}"
    shutil.rmtree(folder) if gone == "folder" else (folder / MANIFEST_NAME).unlink()
    if "entry" in gone:
        (lake / f"_ledger/{FOURTH}.json").unlink()
    rebuild_day(pipeline(lake, topic, late=Late.AMEND, rules=rules), FOURTH)
    every = places(lake)
    remove(lake, SECOND)
    before = places(lake)
    (late,) = (lake / f"date={SECOND}").glob("part-late-*")
    late.unlink()
    rebuild_day(pipeline(lake, topic, late=Late.AMEND, rules=rules), FOURTH)
    assert_none_is_lost(every, before, lake)
    assert look(lake, topic).problems == ()


def test_late_files_of_two_contracts_beside_an_expired_one_are_built_again_by_either(tmp_path: Path) -> None:
    """Each contract was refused (23), as the other one had dated one of the files."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in DAYS:
        produce_event(topic, day, day, midnight(day, ZONE) + timedelta(hours=1))
        if day == FIFTH:
            for at, created in ((FIRST, SECOND), (THIRD, FOURTH)):
                produce_event(topic, at, created, midnight(day, ZONE) + timedelta(hours=2))
    for day in DAYS[:5]:
        run(lake, topic, day)
    rules = replace(RULES, event_time=CREATED)
    every = places(lake)
    again = pipeline(lake, topic, late=Late.AMEND, rules=rules, accept=Accept(contract=True))
    next((lake / f"date={THIRD}").glob("part-late-*")).unlink()
    rebuild_day(again, FIFTH)
    remove(lake, SECOND)
    before = places(lake)
    next((lake / f"date={FOURTH}").glob("part-late-*")).unlink()
    for contract in (again, pipeline(lake, topic, late=Late.AMEND, accept=Accept(contract=True))):
        rebuild_day(contract, FIFTH)
        assert_none_is_lost(every, before, lake)
        assert look(lake, topic).problems == ()


def test_the_first_day_of_the_config_stays_what_it_was(lake: Path, topic: MemoryTopic) -> None:
    remove(lake, FOURTH)
    with pytest.raises(ConfigError, match="first day of this lake"):
        run(lake, topic, SIXTH, first=FOURTH)
    assert not run(lake, topic, SIXTH).already


def test_a_lake_keeps_so_many_days_after_each_commit(tmp_path: Path, topic: MemoryTopic) -> None:
    lake = tmp_path / "lake"
    for number, day in enumerate(DAYS):
        done = run(lake, topic, day, keep=timedelta(days=3))
        assert done.expired == ((DAYS[number - 3],) if number >= 3 else ())
    assert folders(lake) == [f"date={day}" for day in DAYS[3:]]
    left = read_expired(PosixLake(lake), FIRST)
    assert left
    assert left.reason == "lake.keep: 3d"
    assert look(lake, topic).problems == ()


def damage(path: Path) -> None:
    """Change one bit in place: an entry that is a hard link changes too."""
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)


def test_an_old_day_with_a_damaged_manifest_expires_with_unknown_counts(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake = tmp_path / "lake"
    for day in DAYS[:4]:
        run(lake, topic, day)
    damage(lake / f"date={FIRST}" / MANIFEST_NAME)
    with capture_logs() as logs:
        assert run(lake, topic, FIFTH, keep=timedelta(days=3)).expired == (FIRST, SECOND)
    assert [entry["day"] for entry in logs if "cannot be read" in entry["event"]] == [str(FIRST)]
    left = read_expired(PosixLake(lake), FIRST)
    assert left
    assert (left.run_id, left.tally, left.removed.rows) == (None, None, None)
    assert left.removed.files > 0
    found = look(lake, topic)
    assert (found.problems, found.expired.days, found.expired.uncounted) == ((), 2, 1)
    assert run(lake, topic, SIXTH, keep=timedelta(days=3)).expired == (THIRD,)
    assert look(lake, topic).problems == ()


def test_an_old_day_with_a_damaged_manifest_leaves_what_its_copy_in_the_ledger_says(
    lake: Path, topic: MemoryTopic
) -> None:
    (would, _) = expiring(PosixLake(lake), THIRD)
    manifest = lake / f"date={FIRST}" / MANIFEST_NAME
    copy = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(copy[:-9])
    assert remove(lake, SECOND) == [would]
    left = read_expired(PosixLake(lake), FIRST)
    assert left
    assert left.tally
    assert look(lake, topic).problems == ()


@pytest.mark.parametrize("second", [THIRD, SECOND], ids=["it stays", "it expires"])
def test_days_in_a_row_with_damaged_manifests_expire(lake: Path, topic: MemoryTopic, second: date) -> None:
    """The last of them to expire records a checkpoint only if the day after it can be read."""
    for day in (second - ONE_DAY, second):
        damage(lake / f"date={day}" / MANIFEST_NAME)
    remove(lake, THIRD)
    left = read_expired(PosixLake(lake), SECOND)
    assert left
    assert (left.next is None) == (second == THIRD)
    assert not run(lake, topic, SIXTH).already
    problems = look(lake, topic).problems
    assert all(str(THIRD) in problem for problem in problems)
    assert bool(problems) == (second == THIRD)
    assert [day.date for day in remove(lake, FOURTH)] == [THIRD]
    assert look(lake, topic).problems == ()


def test_rows_that_a_damaged_later_day_brought_to_a_day_that_expires_are_unknown(lake: Path) -> None:
    damage(lake / f"date={SECOND}" / MANIFEST_NAME)
    (first,) = remove(lake, SECOND)
    assert (first.removed.rows, first.removed.amended) == (5, None)


def test_an_old_day_that_lost_its_file_of_long_sets_expires(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offsets.manifest_text.LONG", 0)
    lake = tmp_path / "lake"
    for day in DAYS[:5]:
        run(lake, topic, day)
    (lake / f"date={SECOND}" / LISTS_NAME).unlink()
    assert [day.date for day in remove(lake, THIRD)] == [FIRST, SECOND]
    assert look(lake, topic).problems == ()


FOREIGN = [
    "report-of-finance.xlsx",
    "notes/a.txt",
    "part-mine.parquet",
    f"part-late-{SECOND}-mine.parquet",
    "_late/late.rows",
    "_SUCCESS",
]


@pytest.mark.parametrize("damaged", [False, True], ids=["", "manifest damaged"])
@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_somebody_else_are_never_removed_with_a_day(
    lake: Path, topic: MemoryTopic, name: str, damaged: bool
) -> None:
    theirs = lake / f"date={SECOND}" / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_bytes(b"their only copy")
    for day in (SECOND, THIRD) if damaged else ():
        damage(lake / f"date={day}" / MANIFEST_NAME)
    for command in (expiring_before, remove):
        with pytest.raises(VerifyFailed, match=f"until then {SECOND} stays") as refused:
            command(lake, FOURTH)
        assert refused.value.facts["files"] == [name]
        assert theirs.read_bytes() == b"their only copy"
        assert folders(lake)[0] == f"date={FIRST}"
    with pytest.raises(VerifyFailed, match=f"{SIXTH} is committed; old days wait"):
        run(lake, topic, SIXTH, keep=timedelta(days=3))
    assert run(lake, topic, SIXTH, keep=timedelta(days=3)).already
    shutil.move(theirs, lake.parent / "theirs")
    assert [day.date for day in remove(lake, FOURTH)] == [FIRST, SECOND, THIRD]
    assert look(lake, topic).problems == ()


def expiring_before(lake: Path, before: date) -> object:
    return expiring(PosixLake(lake), before)


def test_what_programs_leave_by_themselves_goes_with_a_day(lake: Path) -> None:
    for name in ("_SUCCESS", ".nfs0000000000000001"):
        (lake / f"date={FIRST}" / name).touch()
    assert [day.date for day in remove(lake, SECOND)] == [FIRST]


def test_a_manifest_of_a_newer_version_does_not_expire(lake: Path, topic: MemoryTopic) -> None:
    manifest = lake / f"date={FIRST}" / MANIFEST_NAME
    manifest.write_bytes(manifest.read_bytes().replace(b'"format_version": 4', b'"format_version": 5'))
    with pytest.raises(LedgerBroken, match="Run the version of kafka-daily that wrote it"):
        remove(lake, SECOND)
    with pytest.raises(LedgerBroken, match=f"{SIXTH} is committed; old days wait"):
        run(lake, topic, SIXTH, keep=timedelta(days=3))
    assert run(lake, topic, SIXTH, keep=timedelta(days=3)).already
    assert folders(lake)[0] == f"date={FIRST}"


@pytest.mark.parametrize("day", [THIRD, FOURTH])
def test_a_day_that_was_lost_beside_expired_ones_is_missing(
    lake: Path, topic: MemoryTopic, day: date
) -> None:
    remove(lake, THIRD)
    shutil.rmtree(lake / f"date={day}")
    with pytest.raises(LedgerBroken, match=str(day)):
        run(lake, topic, SIXTH)
    assert any(str(day) in problem for problem in look(lake).problems)


def test_a_stub_that_is_gone_or_damaged_is_told(lake: Path, topic: MemoryTopic) -> None:
    remove(lake, FOURTH)
    for day, harm in ((SECOND, b""), (THIRD, b""), (FIRST, b'"revision": 1'), (THIRD, b'"revision": 1')):
        entry = lake / "_ledger" / f"{day}.json"
        text = entry.read_bytes()
        entry.write_bytes(text.replace(harm, b'"revision": 2')) if harm else entry.unlink()
        assert any(str(day) in problem or str(entry) in problem for problem in look(lake).problems), day
        if day == THIRD:
            with pytest.raises(LedgerBroken):
                run(lake, topic, SIXTH)
        entry.write_bytes(text)
    assert look(lake).problems == ()


def test_a_damaged_entry_of_an_expired_day_that_is_not_the_last_stops_no_run_and_may_be_moved_away(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, FOURTH)
    entry = lake / "_ledger" / f"{FIRST}.json"
    entry.write_bytes(entry.read_bytes()[:-20])
    problems = look(lake).problems
    assert problems
    assert all(str(entry) in problem and "it may be moved away instead" in problem for problem in problems)
    assert run(lake, topic, FIFTH).already
    entry.unlink()
    assert not run(lake, topic, SIXTH).already
    assert [str(entry) in problem for problem in look(lake).problems] == [True]


@pytest.mark.parametrize("entries", range(3, 6))
@pytest.mark.parametrize("other", [FIRST, SECOND])
def test_an_entry_from_an_older_backup_amid_those_of_expired_days_stops_no_run(
    lake: Path, topic: MemoryTopic, other: date, entries: int
) -> None:
    """It stopped the run that had a number of entries by which a bisection met it."""
    entry = lake / "_ledger" / f"{other}.json"
    manifest = entry.read_bytes()
    remove(lake, FOURTH)
    entry.unlink()
    entry.write_bytes(manifest)
    for day in (FIFTH, FOURTH)[: 5 - entries]:
        (lake / "_ledger" / f"{day}.json").unlink()
    assert len(PosixLake(lake).entries()) == entries
    assert [day.date for day in read_ledger(PosixLake(lake)).days] == DAYS[:5]
    assert not run(lake, topic, SIXTH).already
    assert read_ledger(PosixLake(lake)).kept == [FOURTH, FIFTH, SIXTH]
    assert {str(entry) in problem for problem in look(lake).problems} == {True}


def test_the_folder_of_an_expired_day_that_came_back_is_none_of_the_lakes_days(
    lake: Path, topic: MemoryTopic
) -> None:
    backup = shutil.copytree(lake / f"date={FIRST}", lake.parent / "backup")
    remove(lake, FOURTH)
    shutil.copytree(backup, lake / f"date={FIRST}")
    assert read_ledger(PosixLake(lake)).kept == [FOURTH, FIFTH]
    assert not run(lake, topic, SIXTH).already


def test_the_last_expired_day_alone_keeps_its_checkpoint_and_is_parsed_once_a_run(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(lake, SECOND)
    remove(lake, FOURTH)
    left = [read_expired(PosixLake(lake), day) for day in (FIRST, SECOND, THIRD)]
    assert [bool(expired and expired.next) for expired in left] == [False, False, True]
    parsed, convert = list[object](), msgspec.convert

    def counted(value: object, kind: type[Any], **options: Any) -> object:
        parsed.append(kind)
        return convert(value, kind, **options)

    monkeypatch.setattr("offsets.expired.msgspec.convert", counted)
    assert not run(lake, topic, SIXTH).already
    assert parsed.count(ExpiredDay) <= 1
    assert look(lake, topic).problems == ()


def test_a_day_that_expires_while_it_is_looked_at_raises_no_alarm(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = locate, [lambda: remove(lake, FOURTH)]

    def located(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments)

    monkeypatch.setattr(jobs.verify.run, "locate", located)
    found = look(lake, topic)
    assert found.problems == ()
    assert found.expired.days == 3


def killed_before_the_rename(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first day expire, and its folder stay."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(lake, SECOND)


def test_a_day_that_a_killed_run_left_is_no_problem_and_the_next_run_removes_it(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_the_rename(lake, monkeypatch)
    assert folders(lake)[0] == f"date={FIRST}"
    found = look(lake, topic)
    assert (found.problems, found.expired.days, found.expired.leaving) == ((), 1, True)
    with pytest.raises(ConfigError, match="expired by policy"):
        rebuild(lake, topic, FIRST)
    assert not run(lake, topic, SIXTH).already
    assert folders(lake)[0] == f"date={SECOND}"
    assert look(lake, topic).problems == ()


def test_an_expired_days_entry_is_small_and_holds_long_sets_in_its_text(lake: Path) -> None:
    manifest = read_manifest(PosixLake(lake), FIRST)
    assert manifest
    remove(lake, SECOND)
    left = read_expired(PosixLake(lake), FIRST)
    assert left
    assert left.next
    holes = Offsets((2 * number, 2 * number + 1) for number in range(500))
    first, *others = left.next.partitions
    first = replace(first, seen_until=2_000, pending=holes)
    long = replace(left, next=replace(left.next, partitions=(first, *others)))
    again = from_text(to_text(long), "here")
    assert again
    assert again.next
    assert list(again.next.partitions[0].pending) == list(holes)
    assert again == long
    document = json.loads(to_text(left))
    assert "files" not in document
    assert from_text(to_json(manifest), "here") is None


def test_a_lake_whose_newest_day_is_of_an_older_version_keeps_its_days(
    lake: Path, topic: MemoryTopic
) -> None:
    newest = read_manifest(PosixLake(lake), FIFTH)
    assert newest
    for copy in (lake / f"date={FIFTH}" / "_manifest.json", lake / "_ledger" / f"{FIFTH}.json"):
        copy.write_bytes(to_json(replace(newest, earlier=None)))
    with pytest.raises(LedgerBroken, match="Run one more day first"):
        remove(lake, THIRD)
    run(lake, topic, SIXTH)
    remove(lake, THIRD)
    assert look(lake, topic).problems == ()


def test_a_rebuild_writes_again_what_was_set_aside_beside_a_file_that_went_with_an_expired_day(
    tmp_path: Path,
) -> None:
    lake, topic = tmp_path / "lake", MemoryTopic(2)
    for day in DAYS[:4]:
        at = midnight(day, ZONE) + timedelta(hours=8)
        for partition in (0, 1):
            topic.produce(partition, order(at), at)
            for _ in range(3 * (day == THIRD)):
                topic.produce(partition, order(midnight(FIRST, ZONE)), at)
                topic.produce(partition, order(midnight(SECOND, ZONE)), at)
    for day in DAYS[:4]:
        sizes: dict[str, Any] = {"target_file_size": 3000, "min_file_size": 1}
        run(lake, topic, day, engine=LocalEngine(topic, least_tasks=2), **sizes)
    one, _ = sorted((lake / f"date={FIRST}").glob("part-late-*"))
    one.unlink()
    (lake / f"date={THIRD}" / "_manifest.json").unlink()
    rebuild(lake, topic, THIRD, late=Late.SET_ASIDE)
    remove(lake, SECOND)
    before = places(lake)
    assert rebuild(lake, topic, THIRD).manifest.late_expired == 6
    again = {at: place for at, place in places(lake).items() if at not in before}
    assert places(lake) == before | again
    assert {place.of for place in again.values()} == {FIRST}
    assert len(again) == 3
    assert look(lake, topic).problems == ()


def test_a_lake_that_lost_all_days_that_had_not_expired_is_no_new_lake(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, FOURTH)
    kept = [lake / f"date={day}" for day in (FOURTH, FIFTH)]
    backup = [shutil.copytree(folder, lake.parent / folder.name) for folder in kept]
    for folder in kept:
        shutil.rmtree(folder)
    for _ in range(2):  # without the entries of these days too
        with pytest.raises(LedgerBroken, match=f"{FOURTH}, the first day .* after those that expired"):
            run(lake, topic, FOURTH)
        (lake / "_ledger" / f"{FOURTH}.json").unlink(missing_ok=True)
        (lake / "_ledger" / f"{FIFTH}.json").unlink(missing_ok=True)
    for folder, copy in zip(kept, backup, strict=True):
        shutil.copytree(copy, folder)
    assert not run(lake, topic, SIXTH).already
    assert look(lake, topic).problems == ()


def test_a_copy_without_the_ledger_of_a_lake_with_expired_days_goes_on_once_it_is_there(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, FOURTH)
    ledger = shutil.move(lake / "_ledger", lake.parent / "ledger")
    with pytest.raises(LedgerBroken, match="If they expired by policy, restore `_ledger`"):
        run(lake, topic, SIXTH)
    shutil.copytree(ledger, lake / "_ledger")
    assert not run(lake, topic, SIXTH).already
    assert look(lake, topic).problems == ()


def test_the_first_day_that_stays_is_not_told_to_lean_on_an_expired_one(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, FOURTH)
    (lake / f"date={FOURTH}" / "_manifest.json").unlink()
    with pytest.raises(LedgerBroken, match="Copy the manifest from the ledger"):
        rebuild(lake, topic, FOURTH)
    (lake / "_ledger" / f"{FOURTH}.json").unlink()
    with pytest.raises(LedgerBroken, match=r"Restore the day's folder from a backup\.$"):
        rebuild(lake, topic, FOURTH)


def a_run(lake: Path, topic: MemoryTopic) -> None:
    assert not run(lake, topic, SIXTH).already


def a_rebuild(lake: Path, topic: MemoryTopic) -> None:
    rebuild(lake, topic, THIRD)


def a_cleaning(lake: Path, topic: MemoryTopic) -> None:
    (lake / "_staging" / f"{FIFTH}.dead").mkdir(parents=True)
    clean(PosixLake(lake), HOLDER)


def an_upgrade(lake: Path, topic: MemoryTopic) -> None:
    upgrade(pipeline(lake, topic))


@pytest.mark.parametrize("command", [a_run, a_rebuild, a_cleaning, an_upgrade])
def test_a_file_that_came_into_an_expired_day_before_its_folder_went_stays_and_stops_no_run(
    lake: Path, topic: MemoryTopic, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on after a kill removed it, though `expire` never does."""
    killed_before_the_rename(lake, monkeypatch)
    theirs = lake / f"date={FIRST}" / "report-of-finance.xlsx"
    theirs.write_bytes(b"their only copy")
    with capture_logs() as logs:
        command(lake, topic)
    assert theirs.read_bytes() == b"their only copy"
    assert [entry["day"] for entry in logs if "an expired day stays" in entry["event"]] == [str(FIRST)]
    for ask in (expiring_before, remove):
        with pytest.raises(VerifyFailed, match=f"until then {FIRST} stays") as refused:
            ask(lake, FOURTH)
        assert refused.value.facts["files"] == [theirs.name]
    shutil.move(theirs, lake.parent / "theirs")
    assert [day.date for day in remove(lake, THIRD)] == [SECOND]
    assert folders(lake)[0] == f"date={THIRD}"
    assert look(lake, topic).problems == ()


def test_a_file_that_came_just_before_an_expired_days_folder_went_is_kept_in_staging(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PosixLake.remove

    def removed(self: PosixLake, staged: str, day: date) -> None:
        (lake / f"date={day}" / "theirs.txt").write_text("theirs")
        real(self, staged, day)

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "remove", removed)
        remove(lake, SECOND)
    assert not run(lake, topic, SIXTH).already
    (theirs,) = lake.glob("_staging/*/day/theirs.txt")
    assert theirs.read_text() == "theirs"
    remove(lake, THIRD)
    assert theirs.exists()
    assert look(lake, topic).problems == ()
    clean(PosixLake(lake), HOLDER)
    assert PosixLake(lake).staged_names() == []


def test_what_a_rebuild_kept_in_staging_for_somebody_else_outlives_its_day(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PosixLake.replace

    def replaced(self: PosixLake, staged: str, day: date, contents: DayContents) -> None:
        (lake / f"date={day}" / "theirs.txt").write_text("theirs")
        real(self, staged, day, contents)

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "replace", replaced)
        rebuild(lake, topic, FIRST)
    (theirs,) = lake.glob("_staging/*/day/theirs.txt")
    remove(lake, SECOND)
    assert not run(lake, topic, SIXTH).already
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize(
    "name", ["removed.{}.dead/day", "{}.dead/day -> theirs/day", "{}.dead -> theirs", "{}.dead -> nowhere"]
)
def test_what_is_left_of_an_expired_day_in_staging_goes_without_a_look_behind_it(
    lake: Path, topic: MemoryTopic, name: str
) -> None:
    """A removal that had begun ends, whatever it has left; and a link goes as a link."""
    remove(lake, SECOND)
    theirs = lake.parent / "theirs" / "day"
    theirs.mkdir(parents=True)
    (theirs / "theirs.txt").write_text("theirs")
    place, _, link = name.format(FIRST).partition(" -> ")
    staged = lake / "_staging" / place
    staged.parent.mkdir(parents=True)
    staged.symlink_to(lake.parent / link) if link else shutil.copytree(theirs, staged)
    assert not run(lake, topic, SIXTH).already
    assert PosixLake(lake).staged_names() == []
    assert (theirs / "theirs.txt").read_text() == "theirs"


def test_a_file_in_staging_with_the_name_of_an_expired_day_stops_no_run(
    lake: Path, topic: MemoryTopic
) -> None:
    """Each run, and `clean` too, ended with a sync that the store refused."""
    remove(lake, SECOND)
    (lake / "_staging").mkdir(exist_ok=True)
    (lake / "_staging" / f"{FIRST}.txt").write_text("theirs")
    assert not run(lake, topic, SIXTH).already
    clean(PosixLake(lake), HOLDER)
    assert PosixLake(lake).staged_names() == []


class OpensNoLink(System):
    """A link leads to a folder that this user may not open."""

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if path.is_symlink():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super().open(path, flags, mode)


def test_a_link_in_staging_to_a_closed_folder_stops_no_run(lake: Path, topic: MemoryTopic) -> None:
    """Each run ended with a sync that was refused behind it."""
    remove(lake, SECOND)
    (lake / "_staging").mkdir(exist_ok=True)
    (lake / "_staging" / f"{FIRST}.link").symlink_to(lake.parent)
    assert not run_day(pipeline(lake, topic, late=Late.AMEND, system=OpensNoLink()), SIXTH).already
    assert PosixLake(lake).staged_names() == []


def test_a_folder_in_staging_that_is_closed_to_us_stops_no_run(topic: MemoryTopic) -> None:
    """Each run, each rebuild and `clean` ended with a sync that was refused there."""
    with folder_of_nobody() as folder, unprivileged():
        lake = folder / "lake"
        for day in DAYS[:4]:
            run(lake, topic, day)
        remove(lake, SECOND)
        theirs = lake / "_staging" / f"{FIRST}.theirs"
        theirs.mkdir(parents=True)
        theirs.chmod(0)
        assert not run(lake, topic, FIFTH).already
        with pytest.raises(StoreFailed, match=r"to remove .*theirs; found it is still there"):
            clean(PosixLake(lake), HOLDER)


@pytest.mark.parametrize("days", [3, 6])
def test_what_is_looked_at_before_days_leave_grows_with_the_days_alone(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """It looked for each pair of days, and read a day's manifest for each other: minutes for ten years."""
    for day in DAYS[:days]:
        run(tmp_path / "lake", topic, day)
    asked, read = list[str](), list[date]()
    stat, text = PosixLake.stat, PosixLake.manifest_text

    def asking(lake: PosixLake, ref: str) -> Entry | None:
        asked.append(ref)
        return stat(lake, ref)

    def reading(lake: PosixLake, day: date) -> bytes | None:
        read.append(day)
        return text(lake, day)

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "stat", asking)
        patched.setattr(PosixLake, "manifest_text", reading)
        remove(tmp_path / "lake", DAYS[-1])
    assert sum(ref.endswith("_late") for ref in asked) == days
    assert not [ref for ref in asked if "_late/date=" in ref and ref.count("/") == 2]
    assert max(map(read.count, DAYS)) <= 6


def test_the_entry_of_an_expired_day_is_short_however_long_its_pending_set_is(topic: MemoryTopic) -> None:
    """A million ranges made 40 MiB of text, which each `plan` and `status` read."""
    pending = Offsets((3 * number, 3 * number + 1) for number in range(100_000))
    checkpoint = Checkpoint(
        topic=TopicIdentity(name="orders", topic_id="id", cluster_id="cluster"),
        partitions=(PartitionCheckpoint(partition=0, seen_until=300_000, pending=pending, anchor=None),),
    )
    day = Day(date=FIRST, start=midnight(FIRST, ZONE), end=midnight(SECOND, ZONE), zone="UTC")
    removed = Removed(files=1, bytes=1, rows=1, amended=0)
    left = ExpiredDay(day=day, next=checkpoint, removed=removed, expired=NOW, reason="policy")
    text = to_text(left)
    assert len(text) < 400_000
    assert from_text(text, "here") == left


def test_an_expired_day_that_cannot_be_listed_stays_and_stops_no_run(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_the_rename(lake, monkeypatch)
    real = PosixLake.files_below

    def refused(self: PosixLake, ref: str) -> Any:
        if ref == f"date={FIRST}":
            raise StoreFailed(
                expected=f"to list {ref}", found="Input/output error (EIO)", do="Look at the disk."
            )
        return real(self, ref)

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "files_below", refused)
        with capture_logs() as logs:
            assert not run(lake, topic, SIXTH).already
        assert [entry["files"] for entry in logs if "an expired day stays" in entry["event"]] == [
            [f"Input/output error (EIO) when trying to list date={FIRST}"]
        ]
        with pytest.raises(StoreFailed):
            remove(lake, FOURTH)
    assert folders(lake)[0] == f"date={FIRST}"


def test_a_file_that_cannot_be_opened_stops_an_expiry_by_its_name(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That ended it as a bug of ours."""
    (own,) = (lake / f"date={FIRST}").glob("part-2*.parquet")
    real = PosixLake.open_file

    def refused(self: PosixLake, ref: str) -> Any:
        if ref.endswith(own.name):
            raise PermissionError(13, "Permission denied")
        return real(self, ref)

    monkeypatch.setattr(PosixLake, "open_file", refused)
    with pytest.raises(StoreFailed, match=own.name):
        remove(lake, SECOND)
    assert folders(lake)[0] == f"date={FIRST}"


@pytest.mark.parametrize("harm", ["a link", "nothing there"])
def test_a_link_in_the_place_of_an_own_file_stops_an_expiry_and_the_advice_works(
    lake: Path, topic: MemoryTopic, harm: str
) -> None:
    """One that led nowhere ended it as a bug of ours, each night."""
    (own,) = (lake / f"date={FIRST}").glob("part-2*.parquet")
    theirs = lake.parent / "theirs"
    own.rename(theirs) if harm == "a link" else own.unlink()
    own.symlink_to(theirs)
    with pytest.raises(StoreFailed, match="Remove the link"):
        remove(lake, SECOND)
    own.unlink()
    assert [day.date for day in remove(lake, SECOND)] == [FIRST]
    assert theirs.exists() == (harm == "a link")
    assert look(lake, topic).problems == ()
