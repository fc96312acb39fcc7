"""Lakes in real object stores: each day as in a folder, one of two runs commits, and damage is found."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import obstore
import pytest

import jobs.lake.objects.bucket as bucket_module
from jobs.config import Late
from jobs.daily import run_day
from jobs.day.plan import preview
from jobs.lake.clean import clean, orphans
from jobs.lake.names import SUCCESS_NAME
from jobs.lake.objects.bucket import Bucket
from jobs.lake.objects.lake import ObjectLake
from jobs.lake.objects.ledger import FENCE
from jobs.lake.port import Lake, LockHolder
from jobs.lake.status import Status, status
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from offsets.days import midnight
from offsets.errors import (
    DayExists,
    EarlierDayMissing,
    KafkaDailyError,
    LakeLocked,
    LedgerBroken,
    StoreFailed,
)
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST as SPARKS_FIRST
from tests.support.engine import Command, Configured
from tests.support.judged import assert_exact, night, sent_records
from tests.support.judged import midnight as starts
from tests.support.local_engine import ZONE, LocalEngine, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.object_servers import StoredLake
from tests.support.produce import every, send
from tests.support.stored_days import (
    DAYS,
    EMPTY,
    NOW,
    downloaded,
    in_a_folder,
    made,
    problems,
    three_days_of_records,
)
from tests.support.three_days import FIRST, SECOND, THIRD

ROUNDS: Final = 12
WAIT: Final = 60.0


@pytest.fixture
def records() -> MemoryTopic:
    return three_days_of_records()


class Killed(BaseException):
    """Ends a run as a kill would: no handler of ours knows it."""


class Dying(ObjectLake):
    """A lake whose process is killed before it has removed anything."""

    def discard(self, staged: str) -> None:
        """Remove nothing."""
        raise Killed


def state(lake: Lake) -> Status:
    return status(lake, FIRST, lambda _, day: midnight(day + timedelta(days=1), ZONE), NOW)


# ---------------------------------------------------------------- days


@pytest.mark.parametrize("late", [Late.AMEND, Late.SET_ASIDE])
def test_days_hold_what_they_hold_in_a_folder(
    stored: StoredLake, late: Late, records: MemoryTopic, tmp_path: Path
) -> None:
    outcomes = [run_day(made(stored.lake(), records, late), day) for day in DAYS]
    here = in_a_folder(tmp_path / "folder", records, late)
    there = downloaded(stored, tmp_path / "downloaded")
    assert lakes.places(there) == lakes.places(here)
    assert len(lakes.places(there)) > 20
    assert lakes.pending(there) == lakes.pending(here)
    assert [outcome.already for outcome in outcomes] == [False] * 4
    amended = [dict(outcome.amended) for outcome in outcomes]
    assert amended == ([{}, {FIRST: 1}, {SECOND: 1}, {}] if late is Late.AMEND else [{}] * 4)
    assert all(run_day(made(stored.lake(), records, late), day).already for day in DAYS)
    assert not problems(stored.lake(), Level.FILES)
    assert not problems(stored.lake())
    assert downloaded(stored, tmp_path / "again").is_dir()
    assert lakes.files(tmp_path / "again") == lakes.files(there)


def test_status_and_plan_tell_of_it_what_they_tell_of_a_folder(
    stored: StoredLake, records: MemoryTopic, tmp_path: Path
) -> None:
    for day in DAYS[:3]:
        run_day(made(stored.lake(), records), day)
    in_a_folder(tmp_path, records, Late.AMEND, DAYS[:3])
    here, there = (state(lake) for lake in (made_in(tmp_path), stored.lake()))
    assert [replace(day, run_id="", bytes=0) for day in there.days] == [
        replace(day, run_id="", bytes=0) for day in here.days
    ]
    assert there.lake == stored.path
    assert (there.next_day, there.due, there.due_at) == (EMPTY, here.due, here.due_at)
    left = (there.unfinished_moves, there.not_entered, there.other_entries, there.staged)
    assert left == ((), (), (), ())
    plan = preview(made(stored.lake(), records), None)
    assert plan.planned is not None
    assert plan.planned.plan.day.date == EMPTY
    assert plan.planned.plan.spans == _planned_spans(tmp_path, records)


def made_in(folder: Path) -> Lake:
    return pipeline(folder, MemoryTopic()).lake


def _planned_spans(folder: Path, records: MemoryTopic) -> object:
    planned = preview(pipeline(folder, records, now=NOW, late=Late.AMEND), None).planned
    assert planned is not None
    return planned.plan.spans


@pytest.mark.parametrize("prefix", ["two words/100%/a+b&c=d", "tägliche/день/日", "~.-_!*'()"])
def test_a_prefix_may_have_any_characters(
    stored: StoredLake, prefix: str, records: MemoryTopic, tmp_path: Path
) -> None:
    place = replace(stored, prefix=f"{stored.prefix}/{prefix}")
    for day in DAYS[:2]:
        run_day(made(place.lake(), records), day)
    here = in_a_folder(tmp_path / "folder", records, Late.AMEND, DAYS[:2])
    assert lakes.places(downloaded(place, tmp_path / "there")) == lakes.places(here)
    assert not problems(place.lake())
    assert {key.split("/date=")[0] for key in _keys(stored.bucket()) if "/date=" in key} == {prefix}


def _keys(bucket: Bucket) -> list[str]:
    return [each.key for each in bucket.find("")]


# ---------------------------------------------------------------- rebuilds and remains


def test_a_day_is_built_again_once_no_copy_can_be_on_its_way(
    stored: StoredLake, records: MemoryTopic, tmp_path: Path
) -> None:
    for day in DAYS[:3]:
        run_day(made(stored.lake(), records), day)
    before = downloaded(stored, tmp_path / "before")
    with pytest.raises(LakeLocked, match="copy"):
        rebuild_day(made(stored.lake(), records), SECOND)
    assert lakes.files(downloaded(stored, tmp_path / "refused")) == lakes.files(before)
    at_once = timedelta(0)
    assert rebuild_day(made(stored.lake(at_once), records), SECOND).manifest.revision == 2
    after = downloaded(stored, tmp_path / "after")
    assert lakes.places(after) == lakes.places(before)
    assert {path.name for path in lakes.parquet_files(before)}.isdisjoint(
        path.name for path in (after / f"date={SECOND}").glob("part-2*")
    )
    assert not problems(stored.lake())
    run_day(made(stored.lake(), records), EMPTY)
    assert not problems(stored.lake())


def test_what_a_killed_run_left_is_cleaned_and_the_day_comes_after_it(
    stored: StoredLake, records: MemoryTopic, tmp_path: Path
) -> None:
    run_day(made(stored.lake(), records), FIRST)
    _be_killed(stored, records)
    [left] = orphans(stored.lake())
    assert (left.day, left.live) == (str(SECOND), None)
    assert left.files > 1
    holder = LockHolder(run_id="clean", host="here", pid=1, since=NOW)
    assert clean(stored.lake(), holder) == [left]
    assert not orphans(stored.lake())
    assert stored.bucket().get(f"_ledger/{SECOND}/000001.json") == FENCE
    run_day(made(stored.lake(), records), SECOND)
    there = downloaded(stored, tmp_path / "there")
    assert lakes.places(there) == lakes.places(
        in_a_folder(tmp_path / "here", records, Late.AMEND, (FIRST, SECOND))
    )
    assert not problems(stored.lake())


def test_a_run_that_clean_took_for_dead_is_beaten(
    stored: StoredLake, records: MemoryTopic, tmp_path: Path
) -> None:
    engine = LocalEngine(records)
    holder = LockHolder(run_id="clean", host="here", pid=1, since=NOW)
    without = stored.lake(with_lease=False)  # as where a lease has ended, and its run has not
    engine.between = lambda: None if clean(without, holder) else pytest.fail("nothing was cleaned")
    with pytest.raises(LakeLocked):
        run_day(made(stored.lake(), records, engine=engine), FIRST)
    assert stored.lake().days() == []
    run_day(made(stored.lake(), records), FIRST)
    here = in_a_folder(tmp_path / "here", records, Late.AMEND, (FIRST,))
    assert lakes.places(downloaded(stored, tmp_path / "there")) == lakes.places(here)


def _be_killed(stored: StoredLake, records: MemoryTopic) -> None:
    def die() -> None:
        raise Killed

    engine = LocalEngine(records, between=die)
    with suppress(Killed):
        run_day(made(Dying(stored.bucket()), records, engine=engine), SECOND)


# ---------------------------------------------------------------- two at once


def test_of_two_runs_at_once_one_commits(stored: StoredLake, records: MemoryTopic, tmp_path: Path) -> None:
    seen: Counter[tuple[str, ...]] = Counter()
    right = {
        days: lakes.places(in_a_folder(tmp_path / f"{len(days)}", records, Late.AMEND, days))
        for days in ((FIRST,), (FIRST, SECOND))
    }
    for number in range(ROUNDS):
        place = replace(stored, prefix=f"{stored.prefix}/{number}")
        days = ((FIRST,), (FIRST, SECOND))[number % 2]
        for day in days[:-1]:
            run_day(made(place.lake(), records), day)
        ends = _ends_of_both(place, records, days[-1], with_lease=number % 4 == 0)
        assert ends.count("committed") == 1, ends
        assert set(ends) <= {"committed", "already committed", "LakeLocked"}, ends
        assert run_day(made(place.lake(), records), days[-1]).already
        there = downloaded(place, tmp_path / "there")
        assert lakes.places(there) == right[days]
        assert not list(there.glob("_staging/*/*.part"))
        assert not problems(place.lake())
        seen[tuple(sorted(ends))] += 1
    print(dict(seen))
    assert seen["LakeLocked", "committed"] > 0, seen


def _ends_of_both(place: StoredLake, records: MemoryTopic, day: date, *, with_lease: bool) -> list[str]:
    """Run a day twice at once, in two threads, and return how both ended; no promise rests on a lease."""
    barrier, ends = threading.Barrier(2, timeout=WAIT), list[str]()

    def run() -> None:
        mine = made(place.lake(with_lease=with_lease), records)
        barrier.wait()
        try:
            ends.append("already committed" if run_day(mine, day).already else "committed")
        except KafkaDailyError as stopped:
            ends.append(type(stopped).__name__)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    return ends


# ---------------------------------------------------------------- damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A change that somebody else made, and a word of what `verify` says of it."""

    name: str
    change: Callable[[Bucket], None]
    says: str
    level: Level = Level.FILES


def _file_of(bucket: Bucket, day: date) -> str:
    return next(key for key in _keys(bucket) if key.startswith(f"date={day}/part-2"))


def _flip(bucket: Bucket, key: str) -> None:
    text = bytearray(bucket.get(key) or b"")
    text[len(text) // 2] ^= 1
    bucket.put(key, bytes(text))


def _edit(bucket: Bucket, key: str, old: bytes, new: bytes) -> None:
    text = bucket.get(key) or b""
    assert old in text
    bucket.put(key, text.replace(old, new, 1))


def _entry(day: date) -> str:
    return f"_ledger/{day}/000001.json"


DAMAGES: Final = [
    Damage(
        name="a file is gone",
        change=lambda bucket: bucket.delete([_file_of(bucket, FIRST)]),
        says="it is not there",
    ),
    Damage(
        name="one bit of a file is another",
        change=lambda bucket: _flip(bucket, _file_of(bucket, FIRST)),
        says="sha256 should be",
    ),
    Damage(
        name="a file is another one",
        change=lambda bucket: bucket.put(
            _file_of(bucket, FIRST), bucket.get(_file_of(bucket, SECOND)) or b""
        ),
        says="footer should name the day",
    ),
    Damage(
        name="an entry was edited",
        change=lambda bucket: _edit(bucket, _entry(SECOND), b'"rows": ', b'"rows": 1'),
        says=str(SECOND),
    ),
    Damage(
        name="an entry is no JSON",
        change=lambda bucket: bucket.put(_entry(SECOND), b"{"),
        says=str(SECOND),
    ),
    Damage(
        name="an entry between others is gone",
        change=lambda bucket: bucket.delete([_entry(SECOND)]),
        says=str(SECOND),
    ),
    Damage(
        name="the first entry is gone",
        change=lambda bucket: bucket.delete([_entry(FIRST)]),
        says=str(FIRST),
    ),
    Damage(
        name="the newest entry is gone",
        change=lambda bucket: bucket.delete([_entry(THIRD)]),
        says=str(THIRD),
    ),
    Damage(
        name="somebody else's file lies in a day",
        change=lambda bucket: bucket.put(
            f"date={FIRST}/more.parquet", bucket.get(_file_of(bucket, SECOND)) or b""
        ),
        says="more.parquet",
    ),
    Damage(
        name="somebody else's day",
        change=lambda bucket: bucket.put("date=2020-01-01/x.parquet", b"PAR1"),
        says="2020-01-01",
    ),
]


def test_verify_finds_what_somebody_else_changed(stored: StoredLake, records: MemoryTopic) -> None:
    for day in DAYS[:3]:
        run_day(made(stored.lake(), records), day)
    bucket = stored.bucket()
    sound = {key: bucket.get(key) or b"" for key in _keys(bucket)}
    unseen = {}
    for damage in DAMAGES:
        damage.change(bucket)
        found = _found(stored, damage.level)
        if not any(damage.says in each for each in found):
            unseen[damage.name] = found
        _restore(bucket, sound)
    assert not unseen
    assert not problems(stored.lake())


def test_a_success_that_is_gone_is_put_anew_as_verify_advises(
    stored: StoredLake, records: MemoryTopic
) -> None:
    for day in DAYS[:3]:
        run_day(made(stored.lake(), records), day)
    stored.bucket().delete([f"date={FIRST}/{SUCCESS_NAME}"])
    (problem,) = problems(stored.lake())
    assert f"`run --date {FIRST}` puts it anew" in problem
    assert run_day(made(stored.lake(), records), FIRST).already
    assert not problems(stored.lake())


@pytest.mark.parametrize("gone", [FIRST, SECOND, THIRD])
def test_no_day_is_settled_where_an_entry_is_gone(
    stored: StoredLake, gone: date, records: MemoryTopic
) -> None:
    for day in DAYS[:3]:
        run_day(made(stored.lake(), records), day)
    bucket = stored.bucket()
    bucket.delete([_entry(gone)])
    sound = _of_days(bucket)
    for day in (gone, EMPTY):
        with pytest.raises((LedgerBroken, DayExists, EarlierDayMissing)):
            run_day(made(stored.lake(), records), day)
    assert _of_days(bucket) == sound
    assert not orphans(stored.lake()), "a run that was refused left what it had begun"


def _of_days(bucket: Bucket) -> dict[str, bytes | None]:
    return {key: bucket.get(key) for key in _keys(bucket) if key.startswith(("_ledger/", "date="))}


def _found(stored: StoredLake, level: Level) -> tuple[str, ...]:
    try:
        return problems(stored.lake(), level)
    except KafkaDailyError as stopped:
        return (str(stopped),)


def _restore(bucket: Bucket, sound: Mapping[str, bytes]) -> None:
    there = {key: bucket.get(key) for key in _keys(bucket)}
    bucket.delete(there.keys() - sound.keys())
    for key, text in sound.items():
        if there.get(key) != text:
            bucket.put(key, text)


# ---------------------------------------------------------------- objects


def test_an_object_of_many_parts_is_there_once_it_is_durable(stored: StoredLake) -> None:
    bucket = stored.bucket()
    text = bytes(range(256)) * (68 << 10)  # 17 MiB are three parts
    file = bucket.new_object("a/big")
    for at in range(0, len(text), 3 << 20):
        file.write(text[at : at + (3 << 20)])
    assert bucket.head("a/big") is None
    file.make_durable()
    assert bucket.copy("a/big", "b/big")
    with bucket.open_object("b/big") as read:
        read.seek(-5, 2)
        assert read.read() == text[-5:]
        read.seek((8 << 20) - 3)
        assert read.read(6) == text[(8 << 20) - 3 :][:6]
        read.seek(0)
        assert read.read() == text
    unfinished = bucket.new_object("a/never")
    unfinished.write(text[: 9 << 20])
    del unfinished
    assert _keys(bucket) == ["a/big", "b/big"]


def test_a_listing_of_several_pages_is_whole(s3: StoredLake) -> None:
    _many(s3.bucket(), 1005)  # S3 lists 1,000 at a time, and deletes 1,000


def test_a_copy_through_a_job_that_slept_leaves_nothing(
    azure: StoredLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour a rebuild takes it that no copy to its day is on its way."""
    bucket = azure.bucket()
    bucket.put("from", b"text")
    assert bucket.copy("from", "to")
    monkeypatch.setattr(bucket_module, "COPY_LIMIT", timedelta(0))
    with pytest.raises(StoreFailed, match="the copy took longer"):
        bucket.copy("from", "too late")
    assert not bucket.head("too late")


def test_a_deletion_of_several_batches_is_whole(azure: StoredLake) -> None:
    _many(azure.bucket(), 260)  # Azure deletes 256 at a time


def _many(bucket: Bucket, count: int) -> None:
    keys = [f"many/{number % 7}/{number:05d}" for number in range(count)]
    for key in keys:
        obstore.put(bucket._store, key, b"x", use_multipart=False)
    assert sorted(keys) == _keys(bucket)
    assert bucket.folders("many") == [str(number) for number in range(7)]
    bucket.delete([*keys, "many/none"])
    assert not _keys(bucket)


# ---------------------------------------------------------------- Spark


def test_spark_settles_days_into_a_bucket(
    s3: StoredLake,
    broker: Broker,
    topic: MakeTopic,
    configured: Configured,
    command: Command,
    tmp_path: Path,
) -> None:
    """The lake is pickled, and opened in workers, which are processes of their own."""
    name, days = topic(partitions=2), [SPARKS_FIRST, SPARKS_FIRST + timedelta(days=1)]
    sent = [
        record
        for partition in range(2)
        for record in every(timedelta(minutes=5), starts(days[0]), 600, partition)
    ]
    words = sent_records(sent, send(broker.bootstrap_servers, name, sent))
    config = configured(name, {"lake": {"path": s3.path, "store": s3.store_section()}})
    ran = command(config, "run", "--from", str(days[0]), "--to", str(days[1]))
    assert ran.code == 0, ran.err
    assert_exact(downloaded(s3, tmp_path / "there"), words, [night(day) for day in days])
    verified = command(config, "verify", "--level", "kafka")
    assert verified.code == 0, verified.err
    told = json.loads(command(config, "status", "--json").out)
    assert [day["date"] for day in told["days"]] == [str(day) for day in days]
    again = command(config, "run", "--date", str(days[1]), "--json")
    assert (again.code, json.loads(again.out)["days"][0]["already"]) == (0, True), again.out
