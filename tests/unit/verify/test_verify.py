"""`verify` finds every damage by its name, on the level that promises it, and goes on with the rest."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog

import jobs.daily
import jobs.verify.run
from jobs.cli import tables
from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.record.rules import Tombstones
from jobs.task.parquet_writer import read_back
from jobs.verify.advice import Damage, advice
from jobs.verify.damage import find_damage
from jobs.verify.files import unknown_files
from jobs.verify.level import Level
from jobs.verify.manifests import Summary, day_problems, read_chain
from jobs.verify.result import DayLedger, Verified
from jobs.verify.run import verify
from offsets.checkpoint import Checkpoint, LostOffsets
from offsets.commit_log import read_ledger
from offsets.contract import Accepted
from offsets.days import ONE_DAY, runs_of
from offsets.errors import ConfigError, LedgerBroken
from offsets.manifest import DataFile, FileOffsets, Manifest, Tally
from offsets.manifest_text import MANIFEST_NAME, from_json, to_json
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.lake import parquet_files, places
from tests.support.lake_parts import a_lossy_lake, manifest_of, part
from tests.support.local_engine import RULES, order, pipeline
from tests.support.manifests import empty, full
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.plain_files import FILES
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake, at, orders, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give a lake whose late rows were set aside."""
    return Path(shutil.copytree(a_lake(3), tmp_path / "lake"))


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


DAYS = (FIRST, SECOND, THIRD)
LEVELS = (Level.FILES, Level.RECORDS)


@pytest.fixture
def amended(tmp_path: Path) -> Path:
    """Give a lake whose late rows were brought to their days."""
    return Path(shutil.copytree(a_lake(3, Late.AMEND), tmp_path / "amended"))


def look(
    lake: Path, level: Level = Level.RECORDS, topic: MemoryTopic | None = None, only: date | None = None
) -> Verified:
    return verify(PosixLake(lake), only, lambda done, total: None, level, (lambda: topic) if topic else None)


def problems(lake: Path, level: Level = Level.RECORDS, only: date | None = None) -> list[str]:
    return list(look(lake, level, only=only).problems)


def against(lake: Path, topic: MemoryTopic) -> list[str]:
    return list(look(lake, Level.KAFKA, topic).problems)


def reseal(lake: Path, day: date, change: Callable[[Manifest], Manifest]) -> None:
    """Change a manifest and give it the checksum that fits."""
    place = Path(PosixLake(lake).manifest_place(day))
    text = to_json(change(from_json(place.read_bytes(), "here")))
    for copy in (place, Path(PosixLake(lake).entry_place(day))):
        copy.write_bytes(text)


def refile(lake: Path, day: date, old: DataFile, new: DataFile) -> None:
    """Let a manifest name one file in place of another."""
    reseal(
        lake, day, lambda own: replace(own, files=tuple(new if each == old else each for each in own.files))
    )


def rewritten(lake: Path, day: date, verdict: Verdict, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the rows of a day's file anew, and let its manifest say just what is there now."""
    old = manifest_of(lake, day).files_of(verdict)[0]
    path = lake / f"date={day}" / old.path
    table = change(pq.ParquetFile(path).read())
    back_offsets: dict[int, list[int]] = {}
    for partition, offset in zip(
        *(table[name].to_pylist() for name in ("kafka_partition", "kafka_offset")), strict=True
    ):
        back_offsets.setdefault(partition, []).append(offset)
    parts = tuple(
        FileOffsets(partition=number, rows=len(each), from_offset=min(each), until_offset=max(each) + 1)
        for number, each in sorted(back_offsets.items())
    )
    said = dict(table.schema.metadata or {})
    ranges = [[part.partition, part.from_offset, part.until_offset] for part in parts]
    said[b"kafka_daily.offsets"] = str(ranges).encode()
    pq.write_table(table.replace_schema_metadata(said), path)
    back = read_back(FILES, str(path))
    times = (table["event_time"].to_pylist(),) if "event_time" in table.column_names else ()
    new = replace(
        old,
        rows=back.rows,
        bytes=back.bytes,
        sha256=back.sha256,
        offsets=parts,
        event_time_min=min(*times) if times else None,
        event_time_max=max(*times) if times else None,
    )
    refile(lake, day, old, new)


# -- a whole lake


@pytest.mark.parametrize("level", list(Level))
def test_a_whole_lake_is_green_and_every_offset_has_a_class(
    amended: Path, topic: MemoryTopic, level: Level
) -> None:
    found = look(amended, level, topic)
    assert found.problems == ()
    assert (found.days, found.rows, found.unfinished_moves) == (3, 25, ())
    assert found.files == sum(len(manifest_of(amended, day).files) for day in DAYS)
    assert found.bytes == sum(path.stat().st_size for path in parquet_files(amended))
    for day in found.ledger:
        assert day.offsets == sum(day.verdicts.values()) + day.gaps_proved + day.gaps_sampled
        assert day.unexplained == 0
    assert [day.amended for day in found.ledger] == [1, 1, 0]
    assert [day.gaps_proved for day in found.ledger] == [0, 0, 1]
    assert (found.ledger[0].kafka is not None) is (level is Level.KAFKA)


@pytest.mark.parametrize("days", [1, 2, 3])
def test_all_offsets_of_the_topic_are_accounted_for(days: int, tmp_path: Path, topic: MemoryTopic) -> None:
    """Nothing told how many records lie behind the last run, and figures did not add up."""
    lake = Path(shutil.copytree(a_lake(days), tmp_path / "lake"))
    account = look(lake, Level.KAFKA, topic).account
    assert account is not None
    assert account.unread is not None
    begins = sum(part.offset for part in manifest_of(lake, FIRST).first_offsets)
    assert account.offsets + account.unread == sum(log.high for log in topic.logs.values()) - begins
    assert account.offsets == sum(account.verdicts.values()) + account.gaps + account.pending
    assert look(lake).account == replace(account, unread=None)
    assert look(lake, only=FIRST).account is None


def test_a_gap_that_two_days_read_is_accounted_for_once(tmp_path: Path) -> None:
    """The marker between two pending records was counted by both days."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for day in (FIRST, SECOND):
        for _ in range(3):
            transaction = Transaction()
            topic.produce(0, order(at(day + ONE_DAY, 2)), at(day, 20), transaction=transaction)
            topic.end(transaction, commit=True, at=at(day, 20))
    for day in (FIRST, SECOND):
        run_day(pipeline(lake, topic), day)
    account = look(lake, Level.KAFKA, topic).account
    assert account is not None
    assert account.unread is not None
    assert account.offsets + account.unread == topic.logs[0].high
    assert account.gaps == 6


def test_a_lake_of_which_all_folders_are_gone_is_sent_where_help_is(amended: Path) -> None:
    for day in DAYS:
        shutil.rmtree(amended / f"date={day}")
    with pytest.raises(ConfigError, match=r"_ledger alone. `plan` says how"):
        look(amended)
    with pytest.raises(LedgerBroken, match="Restore their folders from a backup"):
        read_ledger(PosixLake(amended))


def test_lost_offsets_are_in_the_account(tmp_path: Path) -> None:
    topic = a_lossy_lake(tmp_path / "lake")
    account = look(tmp_path / "lake", Level.KAFKA, topic).account
    assert account is not None
    assert account.unread is not None
    assert account.lost == 2
    assert account.offsets + account.unread == sum(log.high for log in topic.logs.values())


def test_the_advice_names_the_day_to_build_again_and_files_of_others(amended: Path) -> None:
    """It named `--date D`."""
    assert look(amended).damage == Damage()
    (amended / f"date={SECOND}" / "notes.txt").write_text("mine")
    found = look(amended)
    assert found.damage.days == ()
    assert advice(found.damage) == f"Move what no manifest names out of the lake, such as that of {SECOND}."
    assert found.account is None
    part(amended, FIRST).unlink()
    told = advice(look(amended).damage)
    assert told.startswith("Move what no manifest names out of the lake")
    assert f"`run --date {FIRST} --force`. Then `verify` again." in told


def test_a_day_that_is_gone_or_has_no_manifest_comes_before_a_damaged_one(amended: Path) -> None:
    """A rebuild of the day that the advice named was refused, and `verify` repeated the advice for ever."""
    part(amended, FIRST).unlink()
    manifest = amended / f"date={SECOND}" / MANIFEST_NAME
    text = manifest.read_bytes()
    manifest.write_bytes(b"junk")
    found = look(amended)
    assert found.damage.days == (SECOND, FIRST)
    assert advice(found.damage).startswith(f"Bring the manifest of {SECOND} back first, as its line says")
    manifest.write_bytes(text)
    shutil.rmtree(amended / f"date={THIRD}")
    found = look(amended)
    assert found.damage.days == (THIRD, FIRST)
    assert str(THIRD) in found.problems[0]
    assert advice(found.damage) == f"Bring {THIRD} back first: `plan` says how. Then `verify` again."
    assert advice(look(amended, only=FIRST).damage).startswith("`verify` without --date, at the same level,")
    (amended / f"_ledger/{THIRD}.json").unlink()
    assert look(amended).damage.gone == (THIRD,)


@pytest.mark.parametrize(
    "name",
    [
        "part-late-2000-01-01-x.parquet",
        "part-late-2026-12-01-x.parquet",
        "backup/part-late-2026-04-09-x.parquet",
        "x; 2026-99-99, whose run brought it, is not committed.parquet",
    ],
)
def test_a_file_of_somebody_else_makes_no_day_a_lost_one(amended: Path, name: str) -> None:
    """The advice sent to a day that never was, for ever; a month 99 in a name ended `verify` as a bug."""
    stray = amended / f"date={SECOND}" / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("mine")
    assert look(amended).damage == Damage(holds_others=(SECOND,))


@pytest.mark.parametrize("foreign", ["2026-03-31", "2099-01-01", "9999-12-31"])
def test_a_folder_of_somebody_else_hides_no_lost_newest_day(amended: Path, foreign: str) -> None:
    """The advice was to move away the late files of the lost day; the last date ended `verify` as a bug."""
    shutil.rmtree(amended / f"date={THIRD}")
    (amended / f"_ledger/{THIRD}.json").unlink()
    (amended / f"date={foreign}").mkdir()
    found = look(amended)
    assert found.damage.gone == (THIRD,)
    assert advice(found.damage).startswith(f"Bring {THIRD} back first")


@pytest.mark.parametrize("day", [FIRST, THIRD])
def test_a_first_or_newest_day_without_a_manifest_and_an_entry_is_told_first(
    amended: Path, day: date
) -> None:
    """It dropped out, and the advice named a day whose rebuild was refused."""
    part(amended, SECOND).unlink()
    (amended / f"date={day}" / MANIFEST_NAME).write_bytes(b"junk")
    (amended / f"_ledger/{day}.json").unlink()
    assert look(amended).damage.days == (day, SECOND)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_first_day_without_a_folder_and_an_entry_is_told_first(amended: Path, emptied: bool) -> None:
    """The advice was to build the day after it again, which is refused; then `verify` said the same."""
    folder = amended / f"date={FIRST}"
    shutil.rmtree(folder)
    (amended / f"_ledger/{FIRST}.json").unlink()
    if emptied:
        folder.mkdir()
    found = look(amended)
    assert found.damage.days[0] == FIRST
    assert advice(found.damage).startswith(f"Bring {'the manifest of ' if emptied else ''}{FIRST} back first")


def test_a_day_that_a_run_commits_meanwhile_is_not_gone(amended: Path) -> None:
    """Beside another problem its entry was seen, and its folder had not been: it was called gone."""
    part(amended, FIRST).unlink()
    lake = PosixLake(amended)
    chain = read_chain(lake)
    before = tuple(day for day in chain.days if day != THIRD)
    known = {day: chain.known[day] for day in before}
    found = find_damage(lake, replace(chain, days=before, known=known), {FIRST: ["gone"], None: []})
    assert found.gone == ()


def test_a_manifest_and_an_entry_that_are_junk_are_told_with_their_date(amended: Path) -> None:
    """The line said `--date D`."""
    (amended / f"date={SECOND}" / MANIFEST_NAME).write_bytes(b"junk")
    (amended / f"_ledger/{SECOND}.json").write_bytes(b"junk")
    told = "\n".join(look(amended).problems)
    assert f"`run --date {SECOND} --force`" in told
    assert "--date D " not in told


def test_a_newest_manifest_that_cannot_be_read_hides_no_other_finding(amended: Path, tmp_path: Path) -> None:
    """`verify` ended with the refusal of the store, and told nothing else."""
    part(amended, FIRST).unlink()
    manifest = amended / f"date={THIRD}" / MANIFEST_NAME
    manifest.rename(tmp_path / "elsewhere")
    manifest.symlink_to(tmp_path / "elsewhere")
    found = "\n".join(look(amended).problems)
    assert "symbolic link" in found
    assert f"date={FIRST}" in found


def test_a_folder_and_a_link_of_somebody_else_are_no_damage(amended: Path, tmp_path: Path) -> None:
    (amended / "date=2099-01-01").mkdir()
    (amended / f"date={SECOND}" / "link.parquet").symlink_to(tmp_path)
    found = look(amended)
    assert len(found.problems) >= 2
    assert found.damage.days == ()


def test_what_kafka_shows_no_more_is_no_damage_of_the_lake(lake: Path, topic: MemoryTopic) -> None:
    topic.recreate(2)
    found = look(lake, Level.KAFKA, topic)
    assert found.problems
    assert found.damage == Damage()


@pytest.mark.parametrize("level", list(Level))
def test_progress_is_told_up_to_its_end(lake: Path, topic: MemoryTopic, level: Level) -> None:
    seen: list[tuple[int, int]] = []
    found = verify(PosixLake(lake), None, lambda *step: seen.append(step), level, lambda: topic)
    total = found.files + (found.days if level is Level.KAFKA else 0)
    assert seen == [(step, total) for step in range(1, total + 1)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_lake_at_another_path_is_green(amended: Path, tmp_path: Path, level: Level) -> None:
    (tmp_path / "far").mkdir()
    moved = amended.rename(tmp_path / "far" / "away")
    assert problems(moved, level) == []


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("made", [False, True], ids=["absent", "empty"])
def test_of_a_lake_without_a_committed_day_nothing_is_proved(
    tmp_path: Path, topic: MemoryTopic, made: bool, level: Level
) -> None:
    if made:
        (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match=r"committed days at .*none; found .* Correct `lake.path`"):
        look(tmp_path / "none", level, topic)


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("day", [FIRST - timedelta(days=1), THIRD + timedelta(days=1)])
def test_of_a_day_that_was_never_committed_nothing_is_proved(
    lake: Path, topic: MemoryTopic, day: date, level: Level
) -> None:
    with pytest.raises(ConfigError, match=f"{day}, and days from {FIRST} to {THIRD}"):
        look(lake, level, topic, only=day)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("day", [FIRST, SECOND])
def test_a_day_that_was_committed_and_is_gone_is_a_problem(lake: Path, day: date, level: Level) -> None:
    shutil.rmtree(lake / f"date={day}")
    (problem,) = problems(lake, level, only=day)
    assert "its folder is gone" in problem


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("count", [1, 2])
def test_oldest_days_that_were_deleted_are_found(
    lake: Path, topic: MemoryTopic, count: int, level: Level
) -> None:
    for day in DAYS[:count]:
        shutil.rmtree(lake / f"date={day}")
    for only in (None, DAYS[count]):
        (found,) = look(lake, level, topic, only=only).problems
        assert f"Expected {FIRST}, the first day of this lake, to be there" in found


def test_oldest_days_that_were_deleted_are_found_behind_a_manifest_that_cannot_be_read(lake: Path) -> None:
    shutil.rmtree(lake / f"date={FIRST}")
    (lake / f"date={SECOND}" / MANIFEST_NAME).unlink()
    assert any("the first day of this lake" in each for each in problems(lake))


# -- while a run is at work


@pytest.fixture
def committing(amended: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give what a run does that brings a late row to the second day."""
    fourth = THIRD + timedelta(days=1)
    topic.produce(0, order(at(SECOND, 12)), at(fourth, 1))
    topic.produce(0, order(at(fourth, 2)), at(fourth, 2))
    return lambda: void(run_day(pipeline(amended, topic, late=Late.AMEND), fourth))


def void(_: object) -> None:
    """Return nothing."""


def once(monkeypatch: pytest.MonkeyPatch, after: str, *do: Callable[[], None]) -> None:
    """Let something happen after a step of the verification, a thing a call."""
    step, left = getattr(jobs.verify.run, after), list(do)

    def stepped(*arguments: Any) -> Any:
        found = step(*arguments)
        if left:
            left.pop(0)()
        return found

    monkeypatch.setattr(jobs.verify.run, after, stepped)


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("step", ["read_chain", "locate", "unknown_files", "unknown_day_folders"])
def test_a_run_that_commits_meanwhile_raises_no_alarm(
    amended: Path,
    topic: MemoryTopic,
    monkeypatch: pytest.MonkeyPatch,
    committing: Callable[[], None],
    step: str,
    level: Level,
) -> None:
    once(monkeypatch, step, committing)
    assert look(amended, level, topic).problems == ()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("only", [None, SECOND, THIRD])
def test_late_files_that_reach_their_days_meanwhile_raise_no_alarm(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, level: Level, only: date | None
) -> None:
    lake = tmp_path / "lake"
    for day in DAYS:
        with monkeypatch.context() as patched:
            if day == THIRD:
                patched.setattr(jobs.daily, "finish_moves", lambda *_: {})
            run_day(pipeline(lake, topic, late=Late.AMEND), day)
    locates = len([file for day in DAYS for file in manifest_of(lake, day).files])
    waits: list[Callable[[], None]] = [lambda: None] * ((locates if only is None else 1) - 1)
    once(monkeypatch, "locate", *waits, lambda: void(run_day(pipeline(lake, topic, late=Late.AMEND), THIRD)))
    assert look(lake, level, only=only).problems == ()


@pytest.mark.parametrize("level", LEVELS)
def test_a_day_that_is_built_again_meanwhile_raises_no_alarm(
    amended: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    once(
        monkeypatch,
        "read_chain",
        lambda: void(rebuild_day(pipeline(amended, topic, late=Late.AMEND), SECOND)),
    )
    found = look(amended, level)
    assert found.problems == ()
    assert [day.revision for day in found.ledger] == [1, 2, 1]
    assert [day.rows for day in found.ledger] == [day.rows for day in look(amended, level).ledger]


def test_a_second_look_that_is_disturbed_too_is_followed_by_another(
    amended: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, committing: Callable[[], None]
) -> None:
    rebuilding = lambda: void(rebuild_day(pipeline(amended, topic, late=Late.AMEND), SECOND))  # noqa: E731
    once(monkeypatch, "read_chain", committing, rebuilding)
    assert problems(amended) == []


def test_what_goes_wrong_at_the_second_look_is_told(
    amended: Path, monkeypatch: pytest.MonkeyPatch, committing: Callable[[], None]
) -> None:
    once(monkeypatch, "read_chain", committing, part(amended).unlink)
    assert any("cannot be read" in each for each in problems(amended))


@pytest.mark.parametrize("level", [Level.FILES, Level.RECORDS])
def test_a_day_whose_link_could_not_be_looked_at_is_not_called_as_committed(lake: Path, level: Level) -> None:
    (lake / f"date={FIRST}" / MANIFEST_NAME).write_bytes(b"{}")
    (told,) = problems(lake, level, only=SECOND)
    assert told.startswith(f"{SECOND}: whether it goes on from {FIRST} could not be looked at")
    assert problems(lake, level, only=THIRD) == []


def test_a_row_that_lies_twice_is_found_where_a_day_was_looked_at_again(
    amended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first look held of that day does not count, and what the second one holds does."""
    found = part(amended)
    text = found.read_bytes()
    found.write_bytes(b"PAR1")
    once(monkeypatch, "read_chain", lambda: None, lambda: void(found.write_bytes(text)))
    assert problems(amended) == []
    rewritten(amended, THIRD, Verdict.IN_DAY, doubled_from(amended))
    found.write_bytes(b"PAR1")
    monkeypatch.undo()
    once(monkeypatch, "read_chain", lambda: None, lambda: void(found.write_bytes(text)))
    assert any("lie in" in each for each in problems(amended))


def doubled_from(lake: Path) -> Callable[[pa.Table], pa.Table]:
    """Put the rows of the second day into another file too."""
    rows = pq.ParquetFile(part(lake)).read()
    return lambda table: pa.concat_tables([table, rows.replace_schema_metadata(table.schema.metadata)])


def test_what_belongs_into_a_day_is_known_without_going_through_all_manifests(amended: Path) -> None:
    """Over ten years of days, that was a walk through all their files for each of them."""

    class LookedUp(Mapping[date, Summary]):
        def __getitem__(self, day: date) -> Summary:
            return known[day]

        def __iter__(self) -> Iterator[date]:
            raise AssertionError("gone through")

        def __len__(self) -> int:
            raise AssertionError("gone through")

    chain = read_chain(PosixLake(amended))
    known = chain.known
    chain = replace(chain, known=LookedUp())
    (amended / f"date={FIRST}" / "stranger").touch()
    before = None
    for day in DAYS:
        own = manifest_of(amended, day)
        assert len(list(unknown_files(PosixLake(amended), chain, own))) == (day == FIRST)
        assert list(day_problems(chain, own, before, day)) == []
        before = own


# -- what is no file of this lake


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("which", ["part-*", "_invalid/*", "part-late-*", MANIFEST_NAME, "_invalid", "."])
def test_a_link_out_of_the_lake_is_found(
    amended: Path, topic: MemoryTopic, tmp_path: Path, which: str, level: Level
) -> None:
    folder = amended / f"date={SECOND}"
    path = folder if which == "." else next(folder.glob(which))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    found = look(amended, level, topic).problems
    assert any(str(path) in each and "symbolic link" in each for each in found)


def test_staging_the_lock_and_an_empty_late_folder_are_no_problem(amended: Path) -> None:
    PosixLake(amended).stage(THIRD, "dead")
    (amended / f"date={SECOND}" / "_late" / f"date={FIRST}").mkdir(parents=True, exist_ok=True)
    assert problems(amended) == []


def test_skipped_and_too_early_records_are_what_is_left(tmp_path: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    topic.produce(0, None, at(FIRST, 20.5))
    topic.produce(0, order(at(FIRST, -30)), at(FIRST, 21))
    rules = replace(RULES, tombstones=Tombstones.SKIP)
    run_day(pipeline(tmp_path / "lake", topic, rules=rules), FIRST)
    (day,) = look(tmp_path / "lake").ledger
    assert (day.verdicts["skipped"], day.verdicts["before_first"], day.unexplained) == (1, 1, 0)
    assert problems(tmp_path / "lake") == []


def test_gaps_of_which_a_sample_was_probed_are_not_called_proved(lake: Path) -> None:
    def sampled(manifest: Manifest) -> Manifest:
        return replace(manifest, gaps=tuple(replace(gap, probed=0) for gap in manifest.gaps))

    reseal(lake, THIRD, sampled)
    day = look(lake).ledger[-1]
    assert (day.gaps_proved, day.gaps_sampled, day.sampled, day.sampled_of) == (0, 1, 0, 1)


def test_a_sample_is_told_of_the_ranges_that_there_are(tmp_path: Path) -> None:
    topic = MemoryTopic()
    for hour, markers in enumerate((3, 2, 0)):
        topic.produce(0, order(at(FIRST, hour)), at(FIRST, hour))
        for _ in range(markers):
            topic.marker(0, at(FIRST, hour))
    run_day(pipeline(tmp_path / "lake", topic), FIRST)
    reseal(
        tmp_path / "lake",
        FIRST,
        lambda manifest: replace(manifest, gaps=tuple(replace(gap, probed=1) for gap in manifest.gaps)),
    )
    (day,) = look(tmp_path / "lake").ledger
    assert (day.gaps_proved, day.gaps_sampled, day.sampled, day.sampled_of) == (0, 5, 1, 2)


def test_a_marker_that_is_read_over_behind_a_pending_record_is_a_gap_and_not_settled(tmp_path: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, order(at(SECOND, 2)), at(FIRST, 10))
    topic.marker(0, at(FIRST, 10))
    orders(topic, FIRST)
    orders(topic, SECOND)
    for day in (FIRST, SECOND):
        run_day(pipeline(tmp_path / "lake", topic), day)
    found = look(tmp_path / "lake", Level.KAFKA, topic)
    assert found.problems == ()
    second = found.ledger[1]
    assert (second.verdicts["already_settled"], second.gaps_proved, second.unexplained) == (6, 1, 0)


def test_a_lossy_day_is_told_and_is_no_problem(tmp_path: Path) -> None:
    topic = a_lossy_lake(tmp_path / "lake")
    found = look(tmp_path / "lake", Level.KAFKA, topic)
    assert found.problems == ()
    assert [(day.state, day.lost, day.lost_offsets) for day in found.ledger] == [
        ("complete", (), 0),
        ("lossy", ("1:3-5",), 2),
    ]


@pytest.mark.parametrize("lost", [(7, 0, 2), (1, 3, 6)])
def test_a_loss_that_the_checkpoint_does_not_show_is_found(
    tmp_path: Path, lost: tuple[int, int, int]
) -> None:
    lake = tmp_path / "lake"
    a_lossy_lake(lake)
    more = LostOffsets(partition=lost[0], from_offset=lost[1], until_offset=lost[2])
    reseal(lake, SECOND, lambda manifest: replace(manifest, accepted=Accepted(loss=(more,))))
    assert any("accepted as lost" in each for each in problems(lake))


@pytest.mark.parametrize("unsettled, found", [(None, 0), (1, 1), (2, 0)])
def test_a_loss_of_another_count_than_the_day_before_left_is_found(
    tmp_path: Path, unsettled: int | None, found: int
) -> None:
    """Up to format 3, a manifest did not say how many."""
    lake = tmp_path / "lake"
    a_lossy_lake(lake)
    (loss,) = manifest_of(lake, SECOND).accepted.loss
    counted = Accepted(loss=(replace(loss, unsettled=unsettled),))
    reseal(lake, SECOND, lambda manifest: replace(manifest, accepted=counted))
    assert len([each for each in problems(lake) if "lost 1 offsets in 1:3-5" in each]) == found
    assert bool(problems(lake)) == bool(found)


# -- files


@pytest.mark.parametrize("older_format", [False, True], ids=["format 3", "a day of format 2 between"])
def test_other_bounds_than_an_earlier_day_has_are_found(lake: Path, older_format: bool) -> None:
    first, second = manifest_of(lake, FIRST).day, manifest_of(lake, SECOND).day
    if older_format:
        reseal(lake, SECOND, lambda manifest: replace(manifest, earlier=None))
    assert problems(lake) == []
    early = replace(first, start=first.start - timedelta(hours=1))
    reseal(lake, THIRD, lambda manifest: replace(manifest, earlier=runs_of([early, second])))
    (found,) = problems(lake)
    assert f"other bounds {f'of {FIRST}' if older_format else 'for the days before them'}" in found


def edit(path: Path) -> None:
    text = bytearray(path.read_bytes())
    where = text.rindex(b"orders")
    text[where : where + 6] = b"ordres"
    path.write_bytes(text)


def corrupt(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[8:60] = bytes(52)
    path.write_bytes(text)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def swap(path: Path) -> None:
    shutil.copy(part(path.parents[1], THIRD), path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILED: list[tuple[Callable[[Path], object], str]] = [
    (edit, "sha256 should be"),
    (corrupt, "sha256 should be|cannot be read"),
    (shorten, "cannot be read"),
    (Path.unlink, "cannot be read"),
    (swap, "sha256 should be"),
    (a_folder, "cannot be read"),
    (lambda path: path.write_bytes(b""), "cannot be read"),
    (lambda path: path.write_bytes(b"PAR1" + bytes(50) + b"PAR1"), "cannot be read"),
]


def test_no_damage_to_a_footer_ends_the_process(lake: Path) -> None:
    """Arrow ends it over some statistics that it reads: a look at each of these files must come back."""
    path = part(lake)
    read_each = f"""
from pathlib import Path
from jobs.task.parquet_writer import UNREADABLE
from jobs.verify.files import read_footer
from tests.support.plain_files import FILES
good, path = Path({str(path)!r}).read_bytes(), Path({str(path)!r} + ".spoiled")
for at in range(len(good) - 8 - int.from_bytes(good[-8:-4], "little"), len(good) - 8):
    path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 4]) + good[at + 1 :])
    try:
        read_footer(FILES, str(path), {hashlib.sha256(path.read_bytes()).hexdigest()!r})
    except UNREADABLE:
        pass
"""
    ended = subprocess.run([sys.executable, "-c", read_each], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("spoil, said", SPOILED)
def test_a_spoiled_file_is_found(
    lake: Path, spoil: Callable[[Path], object], said: str, level: Level
) -> None:
    path = part(lake)
    spoil(path)
    for found in (problems(lake, level), problems(lake, level, SECOND)):
        assert str(path) in found[0]
        assert re.search(said, " ".join(found))
        assert all(str(path) in each or each.startswith(str(SECOND)) for each in found)
    assert problems(lake, level, FIRST) == []


@pytest.mark.parametrize("name", ["part-x.parquet", "extra.txt", "_late/date=2026-03-28/x.parquet", "_x"])
def test_a_file_that_no_manifest_names_is_found(lake: Path, name: str) -> None:
    path = lake / f"date={SECOND}" / name
    path.write_bytes(b"")
    assert problems(lake, Level.FILES) == [f"{path}: no manifest names this file"]


def test_a_name_that_readers_would_take_for_a_day_is_found(lake: Path) -> None:
    (lake / "date=20260328").mkdir()
    (lake / "notes").mkdir()
    (found,) = problems(lake, Level.FILES)
    assert found.startswith(f"{lake / 'date=20260328'}: no day of this lake")


def test_a_footer_of_another_origin_is_found(lake: Path) -> None:
    def foreign(table: pa.Table) -> pa.Table:
        return table.replace_schema_metadata(table.schema.metadata | {b"kafka_daily.topic": b"payments"})

    rewritten(lake, SECOND, Verdict.IN_DAY, foreign)
    (found,) = problems(lake, Level.FILES)
    assert "should name the topic orders, and names payments" in found


@pytest.mark.parametrize(
    "change, said",
    [
        ({"rows": 99}, "rows should be 99"),
        ({"bytes": 1}, "bytes should be 1"),
        ({"event_time_min": at(SECOND, 0)}, "earliest event should be"),
        ({"event_time_max": at(SECOND, 22.9)}, "latest event should be"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
@pytest.mark.parametrize("level", LEVELS)
def test_each_figure_of_a_file_is_checked(
    lake: Path, change: dict[str, int | datetime], said: str, level: Level
) -> None:
    file = manifest_of(lake, SECOND).files_of(Verdict.IN_DAY)[0]
    more = {"offsets": (replace(file.offsets[0], rows=99),)} if "rows" in change else {}
    refile(lake, SECOND, file, replace(file, **(change | more)))  # type: ignore[arg-type]
    assert any(said in each for each in problems(lake, level))


# -- manifests and their chain


@pytest.mark.parametrize("level", LEVELS)
def test_an_edited_manifest_is_found_and_the_other_days_are_still_looked_at(
    amended: Path, level: Level
) -> None:
    path = amended / f"date={SECOND}" / "_manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"revision": 1', b'"revision": 2'))
    part(amended, THIRD).unlink()
    found = problems(amended, level)
    assert "checksum" in found[0]
    assert "cannot be read" in found[1]
    # what the second day brought to the first is not called a stranger
    assert not any("no manifest names" in each for each in found)
    (unknown,) = problems(amended, level, FIRST)
    assert "could not be looked at" in unknown


@pytest.mark.parametrize("level", LEVELS)
def test_a_day_deleted_in_the_middle_is_found(lake: Path, level: Level) -> None:
    shutil.rmtree(lake / f"date={SECOND}")
    (found,) = problems(lake, level)
    assert f"{SECOND} is missing between {FIRST} and {THIRD}" in found
    (gone,) = problems(lake, level, SECOND)
    assert f"{SECOND}: its folder is gone" in gone


def test_a_hole_beside_an_unreadable_manifest_is_found_too(lake: Path) -> None:
    shutil.rmtree(lake / f"date={SECOND}")
    (lake / f"date={THIRD}" / "_manifest.json").write_bytes(b"{}")
    damaged, missing = problems(lake)
    assert "readable manifest" in damaged
    assert f"{SECOND} is missing" in missing


def test_a_newest_day_that_was_deleted_is_found_by_what_it_brought_to_others(amended: Path) -> None:
    shutil.rmtree(amended / f"date={THIRD}")
    gone, found = problems(amended)
    assert f"{THIRD}, whose run brought it, is not committed" in found
    assert f"{THIRD}: its folder is gone; {amended / '_ledger' / f'{THIRD}.json'} shows" in gone


@pytest.mark.parametrize("day", [date(2026, 3, 31), date(2026, 5, 1), date(2026, 3, 27)], ids=str)
@pytest.mark.parametrize("file", [None, "part-0.parquet"])
def test_a_day_folder_made_by_hand_is_found(lake: Path, day: date, file: str | None) -> None:
    (lake / f"date={day}").mkdir()
    if file:
        shutil.copy(part(lake), lake / f"date={day}" / file)
    found = problems(lake)
    assert f"its folder without {lake / f'date={day}'}" in " ".join(found)
    assert problems(lake, only=day)
    assert problems(lake, only=SECOND) == []


def test_a_day_that_is_a_file_is_found(lake: Path) -> None:
    (lake / "date=2026-03-31").write_bytes(b"")
    assert len(problems(lake)) == 1


def test_two_days_that_do_not_go_together_are_found(lake: Path, tmp_path: Path) -> None:
    other, topic = tmp_path / "other", MemoryTopic(2)
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1))
    for day in DAYS:
        run_day(pipeline(other, topic), day)
    shutil.rmtree(lake / f"date={THIRD}")
    shutil.copytree(other / f"date={THIRD}", lake / f"date={THIRD}")
    for level in LEVELS:
        (found,) = problems(lake, level)
        assert "did not start from the checkpoint" in found


def test_a_day_that_does_not_begin_where_the_one_before_ends_is_found(lake: Path) -> None:
    def later(manifest: Manifest) -> Manifest:
        start = manifest.day.start + timedelta(microseconds=1)
        return replace(manifest, day=replace(manifest.day, start=start), earlier=None)

    reseal(lake, SECOND, later)
    link, bounds = problems(lake)
    assert f"{SECOND} starts at" in link
    assert f"{THIRD}: it records other bounds of {SECOND}" in bounds


def with_next(manifest: Manifest, **changes: object) -> Manifest:
    first, *others = manifest.next.partitions
    changed = replace(first, **changes)  # type: ignore[arg-type]
    return replace(manifest, next=Checkpoint(topic=manifest.topic, partitions=(changed, *others)))


SHAPES: list[tuple[Callable[[Manifest], Manifest], str]] = [
    (lambda m: with_next(m, seen_until=m.spans[0].until_offset + 1), "where its spans end"),
    (lambda m: with_next(m, pending=Offsets()), "0 pending"),
    (lambda m: replace(m, gaps=m.gaps[:1]), "not of the same partitions"),
    (
        lambda m: replace(m, gaps=(replace(m.gaps[0], offsets=Offsets([(900, 901)])), *m.gaps[1:])),
        "gaps outside of what was read",
    ),
    (lambda m: replace(m, tally=(*m.tally, replace(m.tally[0], partition=9))), "that it did not read, [9]"),
    (lambda m: replace(m, tally=m.tally[1:]), "have no fate"),
    (lambda m: replace(m, files=m.files[1:]), "in files"),
]


@pytest.mark.parametrize("change, said", SHAPES, ids=[said for _, said in SHAPES])
@pytest.mark.parametrize("level", LEVELS)
def test_a_manifest_whose_parts_do_not_go_together_is_found(
    lake: Path, change: Callable[[Manifest], Manifest], said: str, level: Level
) -> None:
    reseal(lake, THIRD, change)
    assert any(said in each for each in problems(lake, level, THIRD)), problems(lake, level, THIRD)


def test_a_span_that_does_not_start_where_its_checkpoint_stands_is_found(lake: Path) -> None:
    def shifted(manifest: Manifest) -> Manifest:
        (first, *others) = manifest.spans
        read = replace(first, from_offset=1, seen_until=1, reads=first.reads - Offsets([(0, 1)]))
        return replace(manifest, spans=(read, *others))

    reseal(lake, FIRST, shifted)
    found = problems(lake, only=FIRST)
    assert any("do not start from the checkpoint" in each for each in found)
    assert any("have no fate" in each for each in found)
    assert any("offsets outside the day's span" in each for each in found)


# -- late files


def late_of(lake: Path, day: date) -> tuple[DataFile, Path, Path]:
    (file,) = (each for each in manifest_of(lake, day).files if each.target)
    return file, lake / f"date={day}" / file.path, lake / str(file.target)


@pytest.mark.parametrize("linked", [False, True], ids=["before the link", "before the unlink"])
@pytest.mark.parametrize("level", LEVELS)
def test_an_open_move_of_the_newest_day_is_told_and_is_no_problem(
    amended: Path, level: Level, linked: bool
) -> None:
    file, source, target = late_of(amended, THIRD)
    source.parent.mkdir(parents=True, exist_ok=True)
    os.link(target, source)
    if not linked:
        target.unlink()
    for only in (None, THIRD):
        found = look(amended, level, only=only)
        assert (found.problems, found.unfinished_moves) == ((), (file.target,))


@pytest.mark.parametrize("level", LEVELS)
def test_an_open_move_of_an_older_day_is_a_problem(amended: Path, level: Level) -> None:
    _, source, target = late_of(amended, SECOND)
    source.parent.mkdir(parents=True, exist_ok=True)
    os.link(target, source)
    (found,) = problems(amended, level)
    assert found.startswith(f"{source}: still there, though later days are committed")
    target.unlink()
    (found,) = problems(amended, level)
    assert str(target) in found


@pytest.mark.parametrize("day", [SECOND, THIRD])
@pytest.mark.parametrize("level", LEVELS)
def test_a_late_file_that_is_at_neither_place_is_a_problem(amended: Path, level: Level, day: date) -> None:
    _, source, target = late_of(amended, day)
    target.unlink()
    found = problems(amended, level)
    assert found[0] == f"{target}: gone, and so is {source}, from where it is brought"
    assert len(found) == (1 if level is Level.FILES else 3)


def test_two_late_files_where_one_should_be_are_a_problem(amended: Path) -> None:
    _, source, target = late_of(amended, THIRD)
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, source)
    found = problems(amended)
    assert found == [f"{target}: another file than {source}, from where it is brought"]


def test_an_amendment_is_checked_with_the_day_in_which_it_lies(amended: Path) -> None:
    _, _, target = late_of(amended, THIRD)
    edit(target)
    for only in (None, SECOND, THIRD):
        assert any(f"{target}: sha256" in each for each in problems(amended, only=only))
    assert problems(amended, only=FIRST) == []


def test_a_late_file_that_is_brought_to_another_day_than_its_own_is_a_problem(amended: Path) -> None:
    file, _, target = late_of(amended, THIRD)
    wrong = f"date={FIRST}/{target.name}"
    target.rename(amended / wrong)
    refile(amended, THIRD, file, replace(file, target=wrong))
    assert any("which is not its day's folder" in each for each in problems(amended, Level.FILES))


# -- records: each damage keeps every hash and figure of its file as its manifest says


def doubled_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def test_a_row_twice_in_one_file_is_found_by_the_records_alone(lake: Path) -> None:
    rewritten(lake, SECOND, Verdict.IN_DAY, doubled_row)
    assert not any("distinct" in each for each in problems(lake, Level.FILES))
    assert any("distinct offsets" in each for each in problems(lake))


def test_a_row_in_two_days_is_found_and_both_files_are_named(lake: Path) -> None:
    row = pq.ParquetFile(part(lake, FIRST)).read().slice(0, 1)
    moved = row.set_column(
        0, row.schema.field("event_time"), pa.array([at(SECOND, 1)], row.schema.field("event_time").type)
    )

    def with_a_row_of_the_first_day(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table, moved.cast(table.schema)])

    rewritten(lake, SECOND, Verdict.IN_DAY, with_a_row_of_the_first_day)
    found = problems(lake)
    assert any(
        each.endswith(f"lie in {part(lake, FIRST)} too") and each.startswith(str(part(lake)))
        for each in found
    )
    assert any("outside the day's span" in each for each in found)
    # in the day alone it can only be said that it was not read
    assert any("outside the day's span" in each for each in problems(lake, only=SECOND))


def test_a_row_in_two_files_of_one_day_is_found(lake: Path) -> None:
    """A late file takes the place of the invalid row, with an offset of the day's own."""
    own = pq.ParquetFile(part(lake)).read().slice(0, 1)
    offset = own["kafka_offset"][0].as_py()

    def the_same(table: pa.Table) -> pa.Table:
        at_ = table.schema.get_field_index("kafka_offset")
        return table.set_column(at_, table.schema.field(at_), pa.array([offset], pa.int64()))

    rewritten(lake, SECOND, Verdict.LATE, the_same)
    found = problems(lake)
    assert any("have another fate too" in each for each in found)
    assert any(f"lie in {part(lake)} too" in each for each in found)
    assert look(lake).ledger[1].unexplained == 1
    assert look(lake, Level.FILES).ledger[1].unexplained == 0


def test_an_offset_exchanged_for_another_of_the_span_is_found_by_its_digest(tmp_path: Path) -> None:
    """Equal counts, equal edges: a skipped record changes places with one in a file."""
    topic = MemoryTopic()
    orders(topic, FIRST, 3)
    topic.produce(0, None, at(FIRST, 20))
    orders(topic, FIRST, 2)
    lake = tmp_path / "lake"
    run_day(pipeline(lake, topic, rules=replace(RULES, tombstones=Tombstones.SKIP)), FIRST)

    def exchanged(table: pa.Table) -> pa.Table:
        offsets = [{2: 3}.get(each, each) for each in table["kafka_offset"].to_pylist()]
        at_ = table.schema.get_field_index("kafka_offset")
        return table.set_column(at_, table.schema.field(at_), pa.array(offsets, pa.int64()))

    rewritten(lake, FIRST, Verdict.IN_DAY, exchanged)
    assert problems(lake, Level.FILES) == []
    assert [each.partition(": ")[2] for each in problems(lake)] == [
        "partition 0: the rows in_day are of other offsets than the audit counted",
        "partition 0: the rows skipped are of other offsets than the audit counted",
    ]


def test_a_manifest_without_digests_is_held_to_its_counts(lake: Path) -> None:
    def without(manifest: Manifest) -> Manifest:
        return replace(manifest, tally=tuple(replace(each, digest="") for each in manifest.tally))

    for day in DAYS:
        reseal(lake, day, without)
    assert problems(lake) == []
    reseal(lake, SECOND, one_row_elsewhere)
    assert any("found" in each and "counted" in each for each in problems(lake))


def one_row_elsewhere(manifest: Manifest) -> Manifest:
    """Count one row more as skipped and one less as of the day."""
    own = next(each for each in manifest.tally if each.verdict is Verdict.IN_DAY and each.rows > 1)
    fewer = replace(own, rows=own.rows - 1)
    skipped = Tally(
        partition=own.partition,
        verdict=Verdict.SKIPPED,
        rows=1,
        from_offset=own.from_offset,
        until_offset=own.from_offset + 1,
    )
    return replace(manifest, tally=(*(fewer if each == own else each for each in manifest.tally), skipped))


def test_a_row_that_is_missing_is_counted_as_unexplained(lake: Path) -> None:
    rewritten(lake, SECOND, Verdict.IN_DAY, lambda table: table.slice(1))
    found = look(lake)
    assert found.ledger[1].unexplained == 1
    assert any("1 offsets are in no file, and 0 were counted" in each for each in found.problems)


def test_an_event_outside_of_its_day_is_found(lake: Path) -> None:
    for verdict, wrong in ((Verdict.IN_DAY, at(THIRD, 1)), (Verdict.LATE, at(SECOND, 1))):

        def elsewhere(table: pa.Table, wrong: datetime = wrong) -> pa.Table:
            field = table.schema.field("event_time")
            times = [wrong, *table["event_time"].to_pylist()[1:]]
            return table.set_column(0, field, pa.array(times, field.type))

        rewritten(lake, SECOND, verdict, elsewhere)
    assert problems(lake, Level.FILES) == []
    for words in (f"outside of {SECOND}", f"outside of {FIRST}"):
        assert any(words in each for each in problems(lake))


@pytest.mark.parametrize("cause", ["", None])
def test_an_invalid_row_without_a_cause_is_found(lake: Path, cause: str | None) -> None:
    def silent(table: pa.Table) -> pa.Table:
        at_ = table.schema.get_field_index("cause")
        return table.set_column(at_, pa.field("cause", pa.string()), pa.array([cause], pa.string()))

    rewritten(lake, SECOND, Verdict.INVALID, silent)
    assert problems(lake, Level.FILES) == []
    (found,) = problems(lake)
    assert "1 invalid rows have no cause" in found


def test_rows_of_a_partition_that_was_not_read_are_found(lake: Path) -> None:
    def foreign(table: pa.Table) -> pa.Table:
        at_ = table.schema.get_field_index("kafka_partition")
        column = pa.array([9] * table.num_rows, pa.int32())
        return table.set_column(at_, table.schema.field(at_), column)

    rewritten(lake, SECOND, Verdict.LATE, foreign)
    assert any("partitions [9], which it did not read" in each for each in problems(lake))


def test_rows_without_an_event_time_are_found(lake: Path) -> None:
    rewritten(lake, SECOND, Verdict.IN_DAY, lambda table: table.drop_columns(["event_time"]))
    assert any("has rows without an event time" in each for each in problems(lake))


def test_a_file_that_holds_other_offsets_than_its_manifest_says_is_found(lake: Path) -> None:
    file = manifest_of(lake, SECOND).files_of(Verdict.IN_DAY)[0]
    first, second = file.offsets
    wider = replace(first, until_offset=first.until_offset + 1)
    refile(lake, SECOND, file, replace(file, offsets=(wider, second)))
    assert any("partition 0 holds other offsets than" in each for each in problems(lake))


def test_a_file_that_holds_a_partition_which_its_manifest_does_not_name_is_found(lake: Path) -> None:
    file = manifest_of(lake, SECOND).files_of(Verdict.IN_DAY)[0]
    all_of_it = replace(file.offsets[0], rows=file.rows)
    refile(lake, SECOND, file, replace(file, offsets=(all_of_it,)))
    assert any("holds rows of partitions [1]" in each for each in problems(lake))


# -- what a person sees


def test_a_person_is_shown_open_moves_losses_and_problems_as_they_are(
    tmp_path: Path, amended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, source, target = late_of(amended, THIRD)
    source.parent.mkdir(parents=True, exist_ok=True)
    target.rename(source)
    part(amended).unlink()
    found = look(amended)
    tables.verified(found)
    shown = capsys.readouterr().out
    assert f"late rows to {file.target}" in shown
    tables.verified(replace(found, unfinished_moves=("/data/[x]/lake",)))
    assert "late rows to /data/[x]/lake" in capsys.readouterr().out
    assert all(f"wrong {problem}" in shown for problem in found.problems)
    assert "not as committed (level records): 3 day(s)" in shown
    topic = a_lossy_lake(tmp_path / "lossy")
    tables.verified(look(tmp_path / "lossy", Level.KAFKA, topic))
    shown = capsys.readouterr().out
    assert "lossy 2026-03-29: Kafka lost 2 offset(s) in 1:3-5 before" in shown
    assert "gone by retention" in shown
    assert "all as committed (level kafka)" in shown


# -- Kafka


def test_kafka_is_not_asked_on_the_other_levels(lake: Path, topic: MemoryTopic) -> None:
    for level in LEVELS:
        look(lake, level, topic)
    assert topic.asked == []
    with pytest.raises(ValueError, match="broker is needed"):
        look(lake, Level.KAFKA)


def kafka_of(found: Verified) -> list[tuple[int, int, int]]:
    return [(day.kafka.visible, day.kafka.gone, day.kafka.compacted) for day in found.ledger if day.kafka]


def test_what_retention_took_is_counted_and_what_is_left_is_compared(lake: Path, topic: MemoryTopic) -> None:
    whole = kafka_of(look(lake, Level.KAFKA, topic))
    assert all(gone == 0 for _, gone, _ in whole)
    topic.retain_from(0, 3)
    found = look(lake, Level.KAFKA, topic)
    assert found.problems == ()
    assert [gone for _, gone, _ in kafka_of(found)] == [3, 0, 0]
    topic.retain_from(0, topic.logs[0].high)
    topic.retain_from(1, topic.logs[1].high)
    found = look(lake, Level.KAFKA, topic)
    assert found.problems == ()
    assert [(visible, gone) for visible, gone, _ in kafka_of(found)] == [
        (0, day.offsets) for day in found.ledger
    ]


def test_retention_that_takes_records_while_they_are_read_is_no_problem(
    lake: Path, topic: MemoryTopic
) -> None:
    asked: list[str] = []

    def take(question: str) -> None:
        asked.append(question)
        if question == "present" and asked.count("present") == 1:
            topic.retain_from(0, 4)

    topic.before = take
    found = look(lake, Level.KAFKA, topic)
    assert found.problems == ()
    assert kafka_of(found)[0][1] == 4


def test_a_record_that_the_run_was_not_given_is_found_by_kafka_alone(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    """No client was shown it while the day ran, so that the gap counts as proved."""
    lake, log = tmp_path / "lake", topic.logs[0]
    hidden = log.records.pop(2)
    run_day(pipeline(lake, topic), FIRST)
    log.records.insert(2, hidden)
    assert problems(lake) == []
    (found,) = against(lake, topic)
    assert f"Kafka shows [{hidden.offset}, {hidden.offset + 1}), which" in found
    assert "which the run was not given" in found


def test_a_record_that_is_not_there_any_more_is_lawful_on_a_compacted_topic_only(
    lake: Path, topic: MemoryTopic
) -> None:
    topic.compact(1, [0])
    assert any("does not show [0, 1), which" in each for each in against(lake, topic))
    topic.cleanup_policy = "compact,delete"
    found = look(lake, Level.KAFKA, topic)
    assert found.problems == ()
    assert sum(compacted for _, _, compacted in kafka_of(found)) == 1


def test_a_recreated_topic_is_found(lake: Path, topic: MemoryTopic) -> None:
    topic.generation += 1
    found = against(lake, topic)
    assert len(found) == 3
    assert all("was recreated" in each for each in found)


def test_a_refilled_log_is_found_by_its_anchor(lake: Path, topic: MemoryTopic) -> None:
    records, high = list(topic.logs[1].records), topic.logs[1].high
    topic.truncate(1, records[0].offset)
    for record in records:
        topic.produce(1, b"other", record.timestamp)
    assert topic.logs[1].high == high
    found = against(lake, topic)
    assert len(found) == 3
    assert all("the record that was read there" in each for each in found)


def test_a_partition_that_is_gone_is_found(lake: Path, topic: MemoryTopic) -> None:
    del topic.logs[1]
    assert any("partition 1 is not there any more" in each for each in against(lake, topic))


def test_a_truncated_log_is_found(lake: Path, topic: MemoryTopic) -> None:
    topic.truncate(1, 2)
    assert any("does not show" in each for each in against(lake, topic))


def test_a_truncated_log_that_an_open_transaction_refills_is_found(lake: Path, topic: MemoryTopic) -> None:
    """Where nothing can be read, up to the high watermark, is no more known than where nothing is."""
    high, opened = topic.logs[1].high, Transaction()
    topic.truncate(1, 2)
    while topic.logs[1].high < high:
        topic.produce(1, b"other", at(FIRST, 1), transaction=opened)
    assert any("does not show" in each for each in against(lake, topic))


def test_aborted_and_compacted_offsets_are_explained_on_every_level(tmp_path: Path) -> None:
    topic = MemoryTopic(2, cleanup_policy="compact")
    for number in range(30):
        transaction = Transaction()
        for step in range(5):
            when = at(FIRST, 0.5 * number)
            topic.produce(step % 2, order(when), when, transaction=transaction)
        topic.end(transaction, commit=number % 3 > 0, at=at(FIRST, 0.5 * number))
    topic.compact(0, range(0, 60, 7))
    lake = tmp_path / "lake"
    run_day(pipeline(lake, topic), FIRST)
    found = look(lake, Level.KAFKA, topic)
    assert found.problems == ()
    (day,) = found.ledger
    assert (day.unexplained, day.gaps_sampled) == (0, 0)
    assert day.gaps_proved == day.offsets - len(places(lake)) > 60
    topic.compact(1, range(0, 60, 5))
    assert against(lake, topic) == []


# -- how fast


def test_a_small_lake_is_verified_at_once_and_without_spark(lake: Path) -> None:
    program = (
        "import sys, time; began = time.monotonic()\n"
        "from pathlib import Path\n"
        "from jobs.lake.posix import PosixLake; from jobs.verify.run import verify\n"
        f"found = verify(PosixLake(Path({str(lake)!r})), None, lambda *_: None)\n"
        "assert not {'pyspark', 'confluent_kafka', 'pandas'} & sys.modules.keys(), 'too much is loaded'\n"
        "print(found.days, len(found.problems))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", "0"], done.stderr


def test_a_ledger_shows_every_verdict(lake: Path) -> None:
    (first, *_) = look(lake).ledger
    assert isinstance(first, DayLedger)
    assert list(first.verdicts) == [verdict.value for verdict in Verdict]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["file", "manifest", "manifest, read again"])
def test_a_read_error_that_is_gone_at_the_second_look_is_told(
    lake: Path, monkeypatch: pytest.MonkeyPatch, level: Level, what: str
) -> None:
    """A disk that cannot be read once is no run that went on meanwhile."""
    path = part(lake) if what == "file" else part(lake).parent / "_manifest.json"
    reads: list[Path] = []
    opened = Path.open

    def failing(self: Path, *rest: Any, **named: Any) -> Any:
        if self == path:
            reads.append(path)
            if len(reads) == (2 if "again" in what else 1):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *rest, **named)

    monkeypatch.setattr(Path, "open", failing)
    (told,) = look(lake, level).problems
    assert str(path) in told
    assert "Input/output error" in told
    assert len(reads) > 1
    assert look(lake, level).problems == ()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", ["scandir", "lstat", "is_symlink"])
def test_what_could_not_be_looked_at_once_was_not_proved(
    lake: Path, monkeypatch: pytest.MonkeyPatch, level: Level, step: str
) -> None:
    """A folder that was not listed was logged alone, and a file that was not looked at ended it as a bug."""
    module: Any = os if step == "scandir" else Path
    path = part(lake) if step != "scandir" else part(lake).parent
    real, calls = getattr(module, step), list[object]()

    def failing(at: Any = ".", *rest: Any, **named: Any) -> Any:
        if Path(at) == path:
            calls.append(at)
            if len(calls) == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(at, *rest, **named)

    monkeypatch.setattr(module, step, failing)
    (told,) = look(lake, level).problems
    assert str(path) in told
    assert "Input/output error" in told
    assert len(calls) > 1


@pytest.mark.parametrize("spoiled", [False, True])
def test_the_manifests_of_a_long_lake_are_not_held_together(tmp_path: Path, spoiled: bool) -> None:
    """All of them, and where a day was looked at again all of them twice, take gigabytes."""
    held: list[int] = []
    before: Manifest | None = None
    for number in range(12):
        before = empty(FIRST + timedelta(days=number), before)
        before = replace(before, files=(replace(full().files[0], path=f"part-{number}.parquet"),))
        folder = tmp_path / f"date={before.day.date}"
        folder.mkdir()
        (folder / MANIFEST_NAME).write_bytes(to_json(before))
    if spoiled:
        (tmp_path / "date=strange").mkdir()

    def count(done: int, total: int) -> None:
        held.append(sum(isinstance(each, Manifest) for each in gc.get_objects()))

    gc.freeze()  # what is there already is not counted, and not looked through each time
    try:
        assert verify(PosixLake(tmp_path), None, count).problems
    finally:
        gc.unfreeze()
    assert 0 < max(held) <= 3


def test_what_is_gone_at_the_second_look_is_logged(amended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = part(amended).with_name("more.parquet")
    stranger.write_bytes(b"x")
    once(monkeypatch, "unknown_day_folders", stranger.unlink)
    with structlog.testing.capture_logs() as said:
        assert problems(amended) == []
    (warning,) = [each for each in said if each["log_level"] == "warning"]
    assert str(stranger) in warning["problem"]
