"""Days that expire by policy are gone, counted and never missing; nothing else is gone with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import jobs.verify.run
from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.expiry import Expiring, expire, expiring
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.status import status
from jobs.rebuild import rebuild_day
from jobs.verify.files import locate
from jobs.verify.level import Level
from jobs.verify.result import Verified
from jobs.verify.run import verify
from offsets.commit_log import read_chain, read_expired, read_ledger, read_manifest
from offsets.days import midnight
from offsets.errors import ConfigError, LedgerBroken
from offsets.expired import from_text, to_text
from offsets.manifest_text import MANIFEST_NAME, to_json
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.lake import places
from tests.support.local_engine import ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic

DAYS = [date(2026, 3, 28) + timedelta(days=number) for number in range(6)]
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = DAYS
NOW = datetime(2026, 4, 10, tzinfo=UTC)
HOLDER = LockHolder(run_id="expire", host="here", pid=1, since=NOW)


@pytest.fixture
def topic() -> MemoryTopic:
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
def lake(tmp_path: Path, topic: MemoryTopic) -> Path:
    """A lake of the first five days."""
    for day in DAYS[:5]:
        run(tmp_path / "lake", topic, day)
    return tmp_path / "lake"


def run(lake: Path, topic: MemoryTopic, day: date, **changed: Any) -> Outcome:
    return run_day(pipeline(lake, topic, **{"late": Late.AMEND, **changed}), day)


def rebuild(lake: Path, topic: MemoryTopic, day: date, late: Late = Late.AMEND) -> Outcome:
    return rebuild_day(pipeline(lake, topic, late=late), day)


def remove(lake: Path, before: date) -> list[Expiring]:
    there = PosixLake(lake)
    with there.lock(HOLDER):
        return expire(there, before, NOW, "expire", f"expire --before {before}")


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
        assert (left.tally, left.next, left.day) == (manifest.tally, manifest.next, manifest.day)
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


def test_a_damaged_old_day_is_told_with_the_word_that_the_new_one_is_committed(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake = tmp_path / "lake"
    for day in DAYS[:4]:
        run(lake, topic, day)
    (lake / f"date={FIRST}" / MANIFEST_NAME).write_bytes(b"{}")
    with pytest.raises(LedgerBroken, match=f"{DAYS[4]} is committed; old days wait"):
        run(lake, topic, DAYS[4], keep=timedelta(days=3))
    assert run(lake, topic, DAYS[4], keep=timedelta(days=3)).already


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


def test_a_damaged_entry_of_an_expired_day_may_be_moved_away_where_it_is_not_the_last(
    lake: Path, topic: MemoryTopic
) -> None:
    remove(lake, FOURTH)
    entry = lake / "_ledger" / f"{FIRST}.json"
    entry.write_bytes(entry.read_bytes()[:-20])
    with pytest.raises(LedgerBroken, match=r"it may be moved away instead.* `verify` goes on naming it"):
        run(lake, topic, SIXTH)
    entry.unlink()
    assert not run(lake, topic, SIXTH).already
    assert [str(entry) in problem for problem in look(lake).problems] == [True]


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


def test_a_day_that_a_killed_run_left_is_no_problem_and_the_next_run_removes_it(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(lake, SECOND)
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
    holes = Offsets((2 * number, 2 * number + 1) for number in range(500))
    first, *others = left.next.partitions
    first = replace(first, seen_until=2_000, pending=holes)
    long = replace(left, next=replace(left.next, partitions=(first, *others)))
    again = from_text(to_text(long), "here")
    assert again
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
    with pytest.raises(LedgerBroken, match=r"Restore the day's folder from a backup\.$"):
        rebuild(lake, topic, FOURTH)
