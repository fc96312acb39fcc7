"""A committed day built again: the same fates for the same records, or the old day stays."""

from __future__ import annotations

import errno
import hashlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import structlog

from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.names import late_source
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store, System
from jobs.rebuild import rebuild_day
from jobs.record import rules
from jobs.record.columns import Column, Kind, Scalar
from jobs.record.schema import INSTANT
from jobs.stages import Stage
from jobs.task import task
from jobs.upgrade.run import upgrade
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.checkpoint import Checkpoint, LostOffsets
from offsets.commit_log import read_chain, read_ledger, read_manifest
from offsets.days import midnight
from offsets.errors import (
    AuditFailed,
    ConfigError,
    ContractChanged,
    DayExists,
    EarlierDayMissing,
    LedgerBroken,
    OffsetsLost,
    StoreFailed,
    TopicChanged,
    VerifyFailed,
)
from offsets.manifest import DataFile
from offsets.manifest_text import MANIFEST_NAME, to_json
from offsets.plan import Accept
from offsets.verdict import Verdict
from tests.reference import Fate, Place
from tests.support import lake_parts
from tests.support.earlier_formats import as_of_format
from tests.support.lake import files, late_paths, places
from tests.support.local_engine import RULES, ZONE, Crash, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic

NANOSECONDS = 1_774_652_400_000_000_000
FIRST, SECOND, THIRD, FOURTH = DAYS = [date(2026, 3, day) for day in (28, 29, 30, 31)]


@pytest.fixture
def topic() -> MemoryTopic:
    return four_days()


def four_days() -> MemoryTopic:
    """Make four days with their orders; each has one invalid, one of the next day, late ones, one too old."""
    topic = MemoryTopic(2)
    for day in DAYS:
        start = midnight(day, ZONE)
        for number in range(8):
            when = start + timedelta(hours=1 + 2 * number)
            topic.produce(number % 2, order(when, n=number), when)
        evening = start + timedelta(hours=20)
        topic.produce(0, b"not json", evening)
        topic.produce(0, order(evening).replace(b'"n":0', b'"n":"?"'), evening)
        topic.produce(1, order(evening + timedelta(hours=8)), evening)
        topic.produce(0, order(midnight(FIRST, ZONE) - timedelta(hours=1)), evening)
        topic.marker(1, evening)
        if day > FIRST:
            topic.produce(0, order(start - timedelta(hours=3)), evening)
        if day > SECOND:
            topic.produce(1, order(start - timedelta(hours=30)), evening)
    return topic


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit the four days once; copy it, never change it."""
    lake, topic = tmp_path_factory.mktemp("committed") / "lake", four_days()
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    return lake


@pytest.fixture
def lake(tmp_path: Path, committed: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "lake"))


def rebuild(lake: Path, topic: MemoryTopic, day: date, **changed: Any) -> Outcome:
    return rebuild_day(pipeline(lake, topic, late=Late.AMEND, **changed), day)


def state(lake: Path) -> tuple[object, ...]:
    return places(lake), [manifest.next for manifest in read_chain(PosixLake(lake))]


@pytest.mark.parametrize("day", DAYS)
def test_a_rebuilt_day_holds_what_it_held(lake: Path, topic: MemoryTopic, day: date) -> None:
    before, names = state(lake), files(lake)
    manifest = rebuild(lake, topic, day).manifest
    assert state(lake) == before
    assert manifest.revision == 2
    assert read_manifest(PosixLake(lake), day) == manifest
    own = {name for name in names if f"date={day}/" in name}
    assert files(lake) - own >= names - own
    assert not (lake / "_staging").exists()
    for file in manifest.files:
        path = lake / (file.target or f"date={day}/{file.path}")
        assert path.stat().st_size == file.bytes
    assert rebuild(lake, topic, day).manifest.revision == 3
    assert state(lake) == before


@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_day_of_each_format_is_built_again(
    lake: Path, topic: MemoryTopic, version: int, upgraded: bool
) -> None:
    """Format 1 kept no digests, and an upgrade makes none: no such day could ever be built again."""
    as_of_format(lake, version)
    if upgraded:
        upgrade(pipeline(lake, topic))
    before = state(lake)
    for day in DAYS:
        rebuild(lake, topic, day)
    assert state(lake) == before
    assert all(entry.digest for manifest in read_chain(PosixLake(lake)) for entry in manifest.tally)


def test_a_day_without_digests_is_built_again_under_its_own_contract_alone(
    lake: Path, topic: MemoryTopic
) -> None:
    """Under another one as many records may be late, but other ones."""
    as_of_format(lake, 1)
    wider = replace(RULES, columns=(*RULES.columns, Column("more", Scalar(Kind.STRING))))
    with pytest.raises(AuditFailed, match="or other ones"):
        rebuild(lake, topic, THIRD, rules=wider, accept=Accept(contract=True))
    topic.logs[0].records = [
        replace(record, value=order(midnight(THIRD, ZONE))) if record.value == b"not json" else record
        for record in topic.logs[0].records
    ]
    with pytest.raises(AuditFailed, match="or other ones"):
        rebuild(lake, topic, THIRD)


def test_a_rebuild_has_the_stages_of_a_day(lake: Path, topic: MemoryTopic) -> None:
    """What it did after its commit was no stage: neither in the log, nor among its seconds."""
    assert list(rebuild(lake, topic, SECOND).seconds) == [stage.value for stage in Stage]


@pytest.mark.parametrize("pattern", ["part-*.parquet", "_invalid/*.rows"])
@pytest.mark.parametrize("harm", [os.unlink, lambda path: path.write_bytes(b"PAR1")], ids=["gone", "broken"])
def test_a_damaged_day_is_mended(
    lake: Path, topic: MemoryTopic, pattern: str, harm: Callable[[Path], None]
) -> None:
    before = state(lake)
    harm(next((lake / f"date={SECOND}").glob(pattern)))
    rebuild(lake, topic, SECOND)
    assert state(lake) == before


@pytest.mark.parametrize("lost", ["folder", "manifest", "half a manifest"])
def test_a_day_whose_manifest_is_gone_is_built_from_what_its_neighbours_record(
    tmp_path: Path, topic: MemoryTopic, lost: str
) -> None:
    """Of the third day, which nothing amended yet, two rows lie late in earlier days: these stay there."""
    lake = tmp_path / "lake"
    engine = LocalEngine(topic)
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine), day)
    run_day(pipeline(lake, topic, late=Late.SET_ASIDE), FOURTH)
    before = state(lake)
    folder = lake / f"date={THIRD}"
    if lost == "folder":
        shutil.rmtree(folder)
    elif lost == "manifest":
        (folder / MANIFEST_NAME).unlink()
    else:
        (folder / MANIFEST_NAME).write_bytes((folder / MANIFEST_NAME).read_bytes()[:100])
    manifest = rebuild(lake, topic, THIRD).manifest
    assert state(lake) == before
    assert {file.target is None for file in manifest.files_of(Verdict.LATE)} == {False}
    assert manifest.rows(Verdict.LATE) == 2


def test_a_day_that_is_gone_keeps_its_zone_though_the_next_day_has_another(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    """Brussels has the hours of Amsterdam; the days' bounds are recorded with their zones."""
    lake, new = tmp_path / "lake", Accept(contract=True)
    for day in DAYS:
        zone = ZONE if day < THIRD else "Europe/Brussels"
        run_day(pipeline(lake, topic, late=Late.AMEND, zone=zone, accept=new), day)
    before = [manifest.day for manifest in read_chain(PosixLake(lake))]
    shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND, zone="Europe/Brussels")
    assert [manifest.day for manifest in read_chain(PosixLake(lake))] == before
    assert problems(lake) == ()


def test_late_rows_of_a_day_that_is_gone_which_lie_nowhere_yet_are_set_aside(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake = tmp_path / "lake"
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND if day < FOURTH else Late.SET_ASIDE), day)
    gone = next(lake.glob(f"date={FIRST}/part-late-{THIRD}-*"))
    gone.unlink()
    shutil.rmtree(lake / f"date={THIRD}")
    manifest = rebuild(lake, topic, THIRD).manifest
    late = {file.day: file.target for file in manifest.files_of(Verdict.LATE)}
    assert late[FIRST] is None
    assert late[SECOND] is not None
    assert (
        len(places(lake))
        == len([1 for log in topic.logs.values() for each in log.records if not each.marker]) - 5
    )
    before = state(lake)
    again = rebuild(lake, topic, THIRD).manifest
    assert {file.day: file.target for file in again.files_of(Verdict.LATE)} == late, (
        "one of two lies elsewhere"
    )
    assert state(lake) == before


def behind_a_link(path: Path) -> None:
    away = path.parents[2] / path.name
    path.rename(away)
    path.symlink_to(away)


@pytest.mark.parametrize(
    "harm", [os.unlink, lambda path: path.write_bytes(b"PAR1"), behind_a_link], ids=["gone", "broken", "link"]
)
@pytest.mark.parametrize("by", [THIRD, FOURTH])
def test_an_amendment_that_was_lost_is_made_again_from_the_spans_that_brought_it(
    lake: Path, topic: MemoryTopic, by: date, harm: Callable[[Path], None]
) -> None:
    """By the day that brought it, under its contract, whatever contract holds now for the rebuilt day."""
    before = state(lake)
    (lost,) = lake.glob(f"date={SECOND}/part-late-{by}-*")
    harm(lost)
    assert problems(lake)
    others = {path: path.stat().st_ino for path in late_paths(lake, by) if path != lost}
    assert rebuild(lake, topic, SECOND).also == {by: 2}
    assert revisions(lake) == {day: 2 if day in (SECOND, by) else 1 for day in DAYS}
    assert {path: path.stat().st_ino for path in others} == others, "what was intact was written again"
    assert state(lake) == before
    assert problems(lake) == ()
    (again,) = lake.glob(f"date={SECOND}/part-late-{by}-*")
    assert again != lost
    harm(again)
    narrow = replace(RULES, columns=RULES.columns[:1])
    rebuild(lake, topic, SECOND, rules=narrow, accept=Accept(contract=True))
    assert problems(lake) == ()
    contracts = {manifest.day.date: manifest.contract for manifest in read_chain(PosixLake(lake))}
    assert contracts[by] != contracts[SECOND]
    shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("late", Late)
@pytest.mark.parametrize("by", [THIRD, FOURTH])
def test_a_day_brings_its_damaged_late_files_again_and_leaves_the_intact_ones(
    lake: Path, topic: MemoryTopic, by: date, late: Late
) -> None:
    """Its manifest decides that they are brought, not the config."""
    before = state(lake)
    damaged, *intact = late_paths(lake, by)
    damaged.write_bytes(damaged.read_bytes()[:99])
    nodes = [path.stat().st_ino for path in intact]
    outcome = rebuild_day(pipeline(lake, topic, late=late), by)
    assert sum(outcome.amended.values()) == 1
    assert revisions(lake) == {day: 1 + (day == by) for day in DAYS}
    assert not damaged.exists()
    assert [path.stat().st_ino for path in intact] == nodes
    assert state(lake) == before
    assert problems(lake) == ()


def test_a_lost_day_is_back_before_its_owners_are_and_the_next_run_names_the_command_that_goes_on(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    """A file of somebody else stops the owner; to the next run a late file of the newest day is gone."""
    move_on(topic)
    before, sidecar = state(lake), lake / f"date={FOURTH}" / "_index.sidecar"
    shutil.rmtree(lake / f"date={SECOND}")
    sidecar.write_text("somebody's")
    with pytest.raises(VerifyFailed, match=f"Move these files.*build {SECOND} again"):
        rebuild(lake, topic, SECOND)
    with pytest.raises(LedgerBroken, match=f"run --date {SECOND} --force"):
        run_day(pipeline(lake, topic, late=Late.AMEND), FIFTH)
    sidecar.rename(tmp_path / "away")
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    run_day(pipeline(lake, topic, late=Late.AMEND), FIFTH)
    assert problems(lake) == ()


class Depths:
    """Notes how deep in the stack each stage of a plan begins."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def started(self, stage: Stage, day: date) -> None:
        if stage is Stage.PLAN:
            self.seen.append(len(inspect.stack(0)))

    def counted(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...


def test_a_chain_of_days_that_lost_their_late_files_takes_no_level_of_the_stack_for_each(
    tmp_path: Path,
) -> None:
    """A lake of 500 days without its late files could not be mended: Python stops at 1,000 levels."""
    topic, lake = MemoryTopic(2), tmp_path / "lake"
    days = [FIRST + timedelta(days=step) for step in range(9)]
    for day in days:
        noon = midnight(day, ZONE) + timedelta(hours=12)
        topic.produce(0, order(noon), noon)
        if day > FIRST:
            topic.produce(0, order(noon - timedelta(hours=20)), noon)
        if day == days[3]:
            topic.produce(1, order(noon), noon)
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    before, backup = state(lake), shutil.copytree(lake, tmp_path / "backup")
    for day in days[1:]:
        for path in late_paths(lake, day):
            path.unlink()
    shorter, depths = deepcopy(topic), Depths()
    shorter.retain_from(1, 1)
    copied = Path(shutil.copytree(lake, tmp_path / "copied"))
    with pytest.raises(OffsetsLost, match=f"{days[3]}, which brought late rows to {days[2]}") as stopped:
        rebuild(copied, shorter, FIRST)
    assert set(revisions(copied).values()) == {1}
    assert f"from a backup, then build {FIRST} again (`run --date {FIRST} --force`)" in stopped.value.do
    target = re.findall("date=[^ ]*parquet", stopped.value.do)[0]
    shutil.copy2(backup / target, copied / target)
    rebuild(copied, shorter, FIRST)
    assert [revision for _, revision in sorted(revisions(copied).items())] == [2] * 3 + [1] * 6
    rebuild_day(replace(pipeline(lake, topic, late=Late.AMEND), observers=(depths,)), FIRST)
    assert state(lake) == before
    assert set(revisions(lake).values()) == {2}
    assert len(depths.seen) == len(days)
    assert max(depths.seen) - min(depths.seen) <= 2
    assert problems(lake) == ()


class RottenLake(PosixLake):
    """A lake that damages each late file that it brings."""

    def bring(self, source: str, target: str) -> bool:
        brought = super().bring(source, target)
        if brought:
            (self.root / target).write_bytes(b"rotten")
        return brought


def test_a_day_is_not_exchanged_where_what_its_owner_brought_again_is_damaged_too(
    lake: Path, topic: MemoryTopic
) -> None:
    (lost,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    lost.unlink()
    with pytest.raises(LedgerBroken, match=f"as {THIRD} has just brought it"):
        rebuild_day(replace(pipeline(lake, topic, late=Late.AMEND), lake=RottenLake(lake)), SECOND)
    assert revisions(lake)[SECOND] == 1
    rebuild(lake, topic, SECOND)
    assert problems(lake) == ()


def revisions(lake: Path) -> dict[date, int]:
    return {manifest.day.date: manifest.revision for manifest in read_chain(PosixLake(lake))}


@pytest.mark.parametrize("folder_gone", [False, True])
def test_an_amendment_whose_owner_kafka_no_longer_holds_is_mended_by_a_backup_as_the_error_advises(
    tmp_path: Path, folder_gone: bool
) -> None:
    """The error names the owner, and the old day stays."""
    lake, topic = tmp_path / "lake", MemoryTopic(2)
    for day in DAYS[:3]:
        noon = midnight(day, ZONE) + timedelta(hours=12)
        topic.produce(0, order(noon), noon)
    for day in (FIRST, SECOND):
        topic.produce(1, order(midnight(day, ZONE)), midnight(THIRD, ZONE) + timedelta(hours=13))
    for day in DAYS[:3]:
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    before = state(lake)
    (path,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    backup = path.read_bytes()
    path.write_bytes(backup[:99])
    if folder_gone:
        shutil.rmtree(path.parent)
    topic.retain_from(1, 1)
    name = path.relative_to(lake).as_posix()
    refused(lake, topic, OffsetsLost, f"{THIRD}, which brought late rows.*Restore {name} from a backup")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(backup)
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


def test_what_an_older_version_remade_is_intact_and_its_owner_takes_it_over(
    lake: Path, topic: MemoryTopic
) -> None:
    """Versions before rebuilt an amendment where it lay: its hash is in the manifest of the day around it."""
    before, own = state(lake), read_manifest(PosixLake(lake), SECOND)
    (path,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    (file,) = [each for each in late_of(lake, THIRD) if each.day == SECOND]
    written_otherwise(path)
    assert problems(lake)
    text = path.read_bytes()
    remade = replace(file, bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    assert own
    for copy in (lake / f"date={SECOND}" / MANIFEST_NAME, lake / "_ledger" / f"{SECOND}.json"):
        copy.write_bytes(to_json(replace(own, remade=(remade,))))
    assert problems(lake) == ()
    assert rebuild(lake, topic, SECOND).manifest.remade == (remade,)
    assert revisions(lake)[THIRD] == 1, "what is intact is not written again"
    assert remade in rebuild(lake, topic, THIRD).manifest.files
    assert path.read_bytes() == text
    assert problems(lake) == ()
    assert rebuild(lake, topic, SECOND).manifest.remade == (), "its owner records it by now"
    assert state(lake) == before
    assert problems(lake) == ()


def written_otherwise(path: Path) -> None:
    """Write the rows of a file again, so that their bytes are others."""
    pq.write_table(pq.ParquetFile(path).read(), path, compression="none")


def follow_the_advice(lake: Path, topic: MemoryTopic, day: date) -> None:
    """Build a day again; where a message says to build another one first, do that."""
    for _ in range(3):
        try:
            rebuild(lake, topic, day)
            return
        except (LedgerBroken, DayExists) as stopped:
            (first,) = re.findall(r"again first \(`run --date (\S+) --force`\)", str(stopped))
        follow_the_advice(lake, topic, date.fromisoformat(first))
    raise AssertionError("the advice leads in a circle")


def test_an_amendment_that_an_older_version_brought_is_made_again_though_days_between_were_rebuilt(
    tmp_path: Path,
) -> None:
    """A manifest of format 2 records no bounds of other days, and of the days between not all are kept."""
    lake, topic = tmp_path / "lake", MemoryTopic()
    for day in DAYS:
        noon = midnight(day, ZONE) + timedelta(hours=12)
        topic.produce(0, order(noon), noon)
    topic.produce(0, order(midnight(FIRST, ZONE)), midnight(FOURTH, ZONE) + timedelta(hours=13))
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    old = [replace(each, earlier=None) for each in read_chain(PosixLake(lake)) if each.day.date != THIRD]
    for manifest in old:
        (lake / f"date={manifest.day.date}" / MANIFEST_NAME).write_bytes(to_json(manifest))
    before = places(lake)
    (lost,) = lake.glob(f"date={FIRST}/part-late-{FOURTH}-*")
    lost.unlink()
    rebuild(lake, topic, FIRST)
    assert places(lake) == before
    assert problems(lake) == ()


def six_days_of_format_2(lake: Path, brought: int, until: int) -> tuple[MemoryTopic, list[date]]:
    """Settle six days; one brings a late row to each day before it, and the first ones record no bounds."""
    topic, days = MemoryTopic(), [FIRST + timedelta(days=number) for number in range(6)]
    for number, day in enumerate(days):
        noon = midnight(day, ZONE) + timedelta(hours=12)
        topic.produce(0, order(noon), noon)
        for earlier in days[:number] if number == brought else ():
            topic.produce(0, order(midnight(earlier, ZONE)), noon)
    for day in days:
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    for manifest in list(read_chain(PosixLake(lake)))[:until]:
        old = to_json(replace(manifest, earlier=None))
        (lake / f"date={manifest.day.date}" / MANIFEST_NAME).write_bytes(old)
    return topic, days


@pytest.mark.parametrize("brought", [4, 5])
def test_a_lost_folder_and_a_later_manifest_of_an_older_version_come_back(
    tmp_path: Path, brought: int
) -> None:
    """The days between had a hole for the late rows: a bug (70), or rows of another day (23), each time."""
    lake = tmp_path / "lake"
    topic, days = six_days_of_format_2(lake, brought, 6)
    before = places(lake)
    lose(lake / f"date={days[1]}", "folder")
    lose(lake / f"date={days[3]}", "manifest")
    follow_the_advice(lake, topic, days[1])
    assert places(lake) == before
    assert problems(lake) == ()


def test_of_two_manifests_in_a_row_of_an_older_version_one_is_asked_for(tmp_path: Path) -> None:
    """Nothing tells where one of these days ended and the next began."""
    lake = tmp_path / "lake"
    topic, days = six_days_of_format_2(lake, 5, 6)
    before, saved = places(lake), (lake / f"date={days[3]}" / MANIFEST_NAME).read_bytes()
    lose(lake / f"date={days[1]}", "folder")
    for day in (days[3], days[4]):
        lose(lake / f"date={day}", "manifest")
    with pytest.raises(DayExists, match=f"--date {days[4]} --force"):
        rebuild(lake, topic, days[1])
    with pytest.raises(LedgerBroken, match=rf"`cp \S+{days[3]}.json .* and `cp \S+{days[4]}.json"):
        rebuild(lake, topic, days[4])
    (lake / "_ledger" / f"{days[3]}.json").unlink()
    (lake / "_ledger" / f"{days[4]}.json").unlink()
    with pytest.raises(LedgerBroken, match="Two days in a row are missing: restore one of them"):
        rebuild(lake, topic, days[4])
    (lake / f"date={days[3]}" / MANIFEST_NAME).write_bytes(saved)
    follow_the_advice(lake, topic, days[1])
    assert places(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("until", [3, 4, 5])
def test_a_lost_folder_behind_a_lost_manifest_of_an_older_version_comes_back(
    tmp_path: Path, until: int
) -> None:
    """Each of the two was to be built before the other."""
    lake = tmp_path / "lake"
    topic, days = six_days_of_format_2(lake, 5, until)
    before = places(lake)
    lose(lake / f"date={days[1]}", "manifest")
    lose(lake / f"date={days[3]}", "folder")
    for day in (days[3], days[1]):
        rebuild(lake, topic, day)
    assert places(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("what", ["folder", "manifest"])
def test_of_two_lost_days_one_needs_a_backup_where_no_day_records_bounds(tmp_path: Path, what: str) -> None:
    lake = tmp_path / "lake"
    topic, days = six_days_of_format_2(lake, 5, 6)
    before, saved = places(lake), (lake / f"date={days[1]}" / MANIFEST_NAME).read_bytes()
    lose(lake / f"date={days[1]}", "manifest")
    lose(lake / f"date={days[3]}", what)
    with pytest.raises(LedgerBroken, match=rf"`cp \S+{days[1]}.json"):
        rebuild(lake, topic, days[3])
    (lake / "_ledger" / f"{days[1]}.json").unlink()
    with pytest.raises(LedgerBroken, match=f"Restore date={days[1]} from a backup first"):
        rebuild(lake, topic, days[3])
    (lake / f"date={days[1]}" / MANIFEST_NAME).write_bytes(saved)
    rebuild(lake, topic, days[3])
    assert places(lake) == before


@pytest.mark.parametrize("accept", [Accept(), Accept(contract=True)])
def test_a_lake_of_an_older_version_without_its_first_day_gets_no_other_first_day(
    tmp_path: Path, accept: Accept
) -> None:
    """The advice was to accept another first day: then runs went on without it, and none after its return."""
    lake = tmp_path / "lake"
    topic, days = six_days_of_format_2(lake, 2, 6)
    shutil.move(lake / f"date={days[0]}", tmp_path / "away")
    before = files(lake)
    with pytest.raises(LedgerBroken, match="Restore the missing days from a backup"):
        rebuild(lake, topic, days[4], accept=accept)
    assert {name for name in files(lake) if not name.startswith("_staging/")} == before


def problems(lake: Path) -> tuple[str, ...]:
    return verify(PosixLake(lake), None, lambda done, total: None, Level.RECORDS).problems


def test_an_amendment_that_kafka_no_longer_holds_is_lost_and_the_day_stays(
    lake: Path, topic: MemoryTopic
) -> None:
    (lost,) = lake.glob(f"date={SECOND}/part-late-{FOURTH}-*")
    lost.unlink()
    late = next(each for each in topic.logs[1].records if each.offset == offset_of(topic, lost.name))
    topic.compact(1, [late.offset])
    refused(lake, topic, AuditFailed, "again")


def test_an_amendment_that_another_decoder_made_is_not_made_again(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lost,) = lake.glob(f"date={SECOND}/part-late-{FOURTH}-*")
    lost.unlink()
    monkeypatch.setattr(rules, "DECODER_VERSION", 2)
    refused(lake, topic, OffsetsLost, "a contract of decoder 1; this one is 2", accept=Accept(contract=True))


@pytest.mark.parametrize("whole_folder", [False, True])
def test_several_lost_amendments_by_one_run_are_made_again_each_with_its_own_rows(
    tmp_path: Path, topic: MemoryTopic, whole_folder: bool
) -> None:
    """A day that lost its folder could not be built again, and no later day could be run."""
    lake = tmp_path / "lake"
    for number in range(12):
        topic.produce(number % 2, order(midnight(SECOND, ZONE)), midnight(FOURTH, ZONE) + timedelta(hours=22))
    for day in DAYS:
        engine = LocalEngine(topic, least_tasks=4)
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine, min_file_size=1), day)
    before, lost = state(lake), list(lake.glob(f"date={SECOND}/part-late-{FOURTH}-*"))
    assert len(lost) > 1
    for path in lost:
        path.unlink()
    if whole_folder:
        shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


def small_around_large(lake: Path) -> MemoryTopic:
    """Settle two days; the second brings a large file of late rows, and a small one from before and after."""
    topic = MemoryTopic()
    for number in range(900):
        late, stamp = 300 <= number < 600 or number % 75 == 0, midnight(SECOND, ZONE) + timedelta(hours=9)
        text = hashlib.sha512(b"%d" % number).hexdigest()
        topic.produce(0, order(midnight(FIRST if late else SECOND, ZONE), text), stamp)
    for day in (FIRST, SECOND):
        engine = LocalEngine(topic, least_tasks=3)
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine, min_file_size=9_000), day)
    return topic


def test_a_lost_amendment_whose_rows_lie_on_both_sides_of_anothers_is_made_again(tmp_path: Path) -> None:
    """Small pieces of the first and the last task are joined: the rows of a large one lie between theirs."""
    lake = tmp_path / "lake"
    topic = small_around_large(lake)
    small, large = (file.offsets[0] for file in late_of(lake, SECOND))
    assert small.from_offset < large.from_offset < large.until_offset < small.until_offset
    before = state(lake)
    for path in lake.glob(f"date={FIRST}/part-late-*"):
        path.unlink()
    rebuild(lake, topic, FIRST)
    assert state(lake) == before
    assert problems(lake) == ()


def test_lost_amendments_whose_rows_lie_between_each_others_are_made_again(tmp_path: Path) -> None:
    """Rows beside a stretch of broken stamps are joined with those in it: no file was to be made first."""
    lake, topic = tmp_path / "lake", MemoryTopic()
    for number in range(1000):
        late = 100 <= number < 200 or 300 <= number < 500 or number in (220, 260, 800, 900)
        text, stamp = hashlib.sha512(b"%d" % number).hexdigest(), midnight(SECOND, ZONE) + timedelta(hours=9)
        value = order(midnight(FIRST if late else SECOND, ZONE), text)
        topic.produce(0, value, NANOSECONDS if number in (200, 299) else stamp)
    for day in (FIRST, SECOND):
        engine = LocalEngine(topic, least_tasks=2)
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine, min_file_size=9_000), day)
    large, small = (file.offsets[0] for file in late_of(lake, SECOND))
    assert large.from_offset < small.from_offset < large.until_offset < small.until_offset
    before = state(lake)
    for path in lake.glob(f"date={FIRST}/part-late-*"):
        path.unlink()
    rebuild(lake, topic, FIRST)
    assert state(lake) == before
    assert problems(lake) == ()


class Watched(PosixLake):
    """A lake that counts the files that are opened in this process."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open_file(self, ref: str) -> BufferedReader:
        self.opened.append(ref)
        return super().open_file(ref)


def test_many_lost_amendments_of_one_run_are_made_again_without_reading_all_its_late_rows_for_each(
    tmp_path: Path,
) -> None:
    """420 lost files of a row or two took 204 s, and take 9."""
    lake, topic, watched = tmp_path / "lake", MemoryTopic(), Watched(tmp_path / "lake")
    for number in range(250):
        text, stamp = hashlib.sha512(b"%d" % number).hexdigest(), midnight(SECOND, ZONE) + timedelta(hours=9)
        topic.produce(0, order(midnight(FIRST, ZONE), text), stamp)
    sizes: dict[str, Any] = {"late": Late.AMEND, "min_file_size": 1, "target_file_size": 6_000}
    for day in (FIRST, SECOND):
        run_day(pipeline(lake, topic, **sizes), day)
    before, lost = state(lake), list(lake.glob(f"date={FIRST}/part-late-*"))
    for path in lost:
        path.unlink()
    rebuild_day(replace(pipeline(lake, topic, **sizes), lake=watched), FIRST)
    assert state(lake) == before
    assert len(lost) > 9
    assert len(watched.opened) < 9 * len(lost)


@pytest.mark.parametrize("aside_is_lost", [False, True])
@pytest.mark.parametrize("aside", [0, 1])
def test_a_lost_amendment_beside_rows_of_its_run_that_are_set_aside_is_made_again(
    tmp_path: Path, aside: int, aside_is_lost: bool
) -> None:
    """The rows that a rebuild of the run's day set aside were taken for some of the lost file.

    Where both files are lost, nothing tells them apart: all of their rows go where they belong.
    """
    lake = tmp_path / "lake"
    topic = small_around_large(lake)
    noon = midnight(THIRD, ZONE) + timedelta(hours=12)
    topic.produce(0, order(noon), noon)
    run_day(pipeline(lake, topic, late=Late.AMEND), THIRD)
    targets = [lake / str(file.target) for file in late_of(lake, SECOND)]
    targets.pop(aside).unlink()
    shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND)
    before = state(lake)
    (set_aside,) = lake.glob(f"date={SECOND}/_late/*/*")
    for path in (*targets, *([set_aside] if aside_is_lost else [])):
        path.unlink()
    rebuild(lake, topic, FIRST)
    if aside_is_lost:
        late = {file.target is None for file in late_of(lake, SECOND)}
        assert (places(lake).keys(), late) == (places_of(before).keys(), {False})
    else:
        assert state(lake) == before
    assert problems(lake) == ()


def late_of(lake: Path, day: date) -> tuple[DataFile, ...]:
    manifest = read_manifest(PosixLake(lake), day)
    assert manifest is not None
    return manifest.files_of(Verdict.LATE)


def test_an_amendment_is_made_again_by_more_tasks_than_brought_it(lake: Path, topic: MemoryTopic) -> None:
    """More tasks leave its rows in more files, which was taken for a loss in Kafka."""
    for number in range(12):
        topic.produce(number % 2, order(midnight(SECOND, ZONE)), midnight(FOURTH, ZONE) + timedelta(hours=25))
    fifth = FOURTH + timedelta(days=1)
    run_day(pipeline(lake, topic, late=Late.AMEND), fifth)
    before = state(lake)
    (lost,) = lake.glob(f"date={SECOND}/part-late-{fifth}-*")
    lost.unlink()
    rebuild(lake, topic, SECOND, engine=LocalEngine(topic, least_tasks=4), min_file_size=1)
    assert state(lake) == before
    assert problems(lake) == ()


def test_a_day_beside_a_missing_one_says_which_to_build_first(lake: Path, topic: MemoryTopic) -> None:
    shutil.rmtree(lake / f"date={SECOND}")
    with pytest.raises(LedgerBroken, match=f"Build {SECOND} again first"):
        rebuild(lake, topic, THIRD)
    rebuild(lake, topic, SECOND)
    rebuild(lake, topic, THIRD)
    for day in (SECOND, THIRD):
        shutil.rmtree(lake / f"date={day}")
    with pytest.raises(LedgerBroken, match="Two days in a row"):
        rebuild(lake, topic, SECOND)


def offset_of(topic: MemoryTopic, name: str) -> int:
    """Find the record that the fourth day dates into the second."""
    when = midnight(FOURTH, ZONE) - timedelta(hours=30)
    return next(each.offset for each in topic.logs[1].records if each.value == order(when))


@pytest.mark.parametrize("folder_gone", [False, True])
def test_an_amendment_that_still_lies_where_it_came_from_is_taken_from_there(
    lake: Path, topic: MemoryTopic, folder_gone: bool
) -> None:
    before = state(lake)
    newest = read_ledger(PosixLake(lake)).newest
    assert newest is not None
    file = next(file for file in newest.files if file.day == SECOND and file.target)
    source, target = lake / f"date={FOURTH}" / file.path, lake / str(file.target)
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, source)
    target.unlink()
    if folder_gone:
        shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND)
    assert state(lake) == before


# -- what is refused; the old day stays


def refused(lake: Path, topic: MemoryTopic, error: type[Exception], words: str, **changed: Any) -> None:
    before = files(lake)
    with pytest.raises(error, match=words):
        rebuild(lake, topic, SECOND, **changed)
    assert {name for name in files(lake) if not name.startswith("_staging")} == before


def test_what_retention_took_cannot_be_built_again(lake: Path, topic: MemoryTopic) -> None:
    topic.retain_from(0, 8)
    refused(lake, topic, OffsetsLost, "The old day stays")


def test_a_pending_record_that_retention_took_since_cannot_be_built_again(
    lake: Path, topic: MemoryTopic
) -> None:
    span = [*read_chain(PosixLake(lake))][1].spans[1]
    assert span.from_offset + 1 < span.seen_until, "the first one that is read was pending"
    topic.retain_from(1, span.from_offset + 1)
    refused(lake, topic, OffsetsLost, "The old day stays")


def test_what_compaction_took_since_cannot_be_built_again(lake: Path, topic: MemoryTopic) -> None:
    topic.cleanup_policy = "compact"
    span = [*read_chain(PosixLake(lake))][1].spans[0]
    topic.compact(0, [span.seen_until])
    refused(lake, topic, OffsetsLost, "compaction took")


def test_a_record_that_is_missing_on_a_topic_that_is_not_compacted_is_never_lawful(
    lake: Path, topic: MemoryTopic
) -> None:
    span = [*read_chain(PosixLake(lake))][1].spans[0]
    topic.compact(0, [span.seen_until])
    refused(lake, topic, AuditFailed, "again")


@pytest.mark.parametrize("accepted", [False, True])
def test_a_record_where_there_was_none_is_not_taken_into_the_day(
    lake: Path, topic: MemoryTopic, accepted: bool
) -> None:
    """Nor under another contract, by which records may become valid, but not come from nowhere."""
    *_, gap = [*read_chain(PosixLake(lake))][1].gaps[1].offsets
    log = topic.logs[1]
    at = next(n for n, each in enumerate(log.records) if each.offset == gap[0])
    value = order(midnight(SECOND, ZONE) + timedelta(hours=9))
    log.records[at] = replace(log.records[at], marker=False, value=value)
    narrow = {"rules": replace(RULES, columns=RULES.columns[:1]), "accept": Accept(contract=True)}
    refused(lake, topic, AuditFailed, "nothing at", **(narrow if accepted else {}))


def test_a_recreated_topic_is_refused(lake: Path, topic: MemoryTopic) -> None:
    topic.recreate(2)
    refused(lake, topic, TopicChanged, "The old day stays")


def test_a_changed_contract_is_refused_until_it_is_accepted(lake: Path, topic: MemoryTopic) -> None:
    narrow = replace(RULES, columns=RULES.columns[:1])
    refused(lake, topic, ContractChanged, "columns", rules=narrow)
    before = places(lake)
    manifest = rebuild(lake, topic, SECOND, rules=narrow, accept=Accept(contract=True)).manifest
    assert manifest.accepted.contract
    after = places(lake)
    (moved,) = [each for each in before if before[each] != after[each]]
    assert (before[moved], after[moved]) == (Place(Fate.INVALID, SECOND), Place(Fate.IN_DAY, SECOND))
    assert after.keys() == before.keys()


def test_a_rebuild_under_a_changed_contract_names_its_own_day_and_logs_the_change(
    lake: Path, topic: MemoryTopic
) -> None:
    """It spoke of the day before, and nothing told what an accepted change means for readers."""
    narrow = {"rules": replace(RULES, columns=RULES.columns[:1])}
    with pytest.raises(ContractChanged) as stopped:
        rebuild(lake, topic, SECOND, **narrow)
    assert "the contract of 2026-03-29, under which that day was built" in str(stopped.value)
    assert "the day before" not in str(stopped.value)
    with structlog.testing.capture_logs() as said:
        rebuild(lake, topic, SECOND, **narrow, accept=Accept(contract=True))
    (change,) = (line for line in said if line["event"] == "the contract changed")
    assert (change["day"], change["kind"]) == ("2026-03-29", "breaking")
    assert "late rows that come to earlier days from now on, lack it" in change["readers"]


def test_under_an_accepted_contract_what_is_late_or_pending_stays_so(lake: Path, topic: MemoryTopic) -> None:
    """`id` as a number: every order is invalid now, late and pending ones too, which may not be."""
    numbers = replace(RULES, columns=(Column("id", Scalar(Kind.BIGINT)), RULES.columns[1]))
    refused(
        lake,
        topic,
        AuditFailed,
        "to leave pending",
        rules=numbers,
        accept=Accept(contract=True),
        invalid_limit=1.0,
    )


def test_a_row_that_lies_in_an_earlier_day_is_not_filed_once_more_under_another_contract(
    lake: Path, topic: MemoryTopic
) -> None:
    """The manifest that would tell so is gone: only the row itself shows where it lies."""
    shutil.rmtree(lake / f"date={THIRD}")
    strict = replace(RULES, past=timedelta(hours=40))  # its late row of two days before is invalid by that
    before = files(lake)
    with pytest.raises(AuditFailed, match="which lie in earlier days, to be late"):
        rebuild(lake, topic, THIRD, rules=strict, accept=Accept(contract=True), invalid_limit=1.0)
    assert {name for name in files(lake) if not name.startswith("_staging")} == before


def test_a_record_with_another_verdict_stays_where_it_is(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    trade_places(lake, topic)
    refused(lake, topic, AuditFailed, "or other ones")


def trade_places(lake: Path, topic: MemoryTopic) -> None:
    """Let two records of the second day trade places: all counts are equal, and the sets are not."""
    log = topic.logs[0]
    span = [*read_chain(PosixLake(lake))][1].spans[0]
    inside = [n for n, each in enumerate(log.records) if span.seen_until <= each.offset < span.until_offset]
    bad = next(n for n in inside if log.records[n].value == b"not json")
    good = inside[0]
    one, other = log.records[good], log.records[bad]
    log.records[good] = replace(one, value=other.value)
    log.records[bad] = replace(other, value=order(midnight(SECOND, ZONE) + timedelta(hours=9)))


def stamps_as_0_1_0_read_them(column: pa.Array) -> pa.Array:
    stamps = column.cast(pa.int64())
    return pc.if_else(pc.less(stamps, 0), pa.scalar(None, pa.int64()), stamps).cast(column.type)


def test_a_day_that_another_version_judged_otherwise_stays_and_the_message_names_that_version(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record stamped in 1965 was invalid, and is dated before the first day by now."""
    lake, sixties = tmp_path / "lake", datetime(1965, 6, 1, tzinfo=UTC)
    topic.produce(0, order(sixties), sixties)
    move_on(topic)
    with monkeypatch.context() as older:
        older.setattr(task, "_stamps", stamps_as_0_1_0_read_them)
        for day in (*DAYS, FIFTH):
            run_day(pipeline(lake, topic, late=Late.AMEND), day)
    before = state(lake)
    (judged,) = [
        day for day in (*DAYS, FIFTH) if "No Kafka timestamp" in str(read_manifest(PosixLake(lake), day))
    ]
    with pytest.raises(AuditFailed, match="build it again with kafka-daily 0, which wrote it"):
        rebuild(lake, topic, judged)
    assert state(lake) == before
    monkeypatch.setattr(task, "_stamps", stamps_as_0_1_0_read_them)
    rebuild(lake, topic, judged)
    assert state(lake) == before


def test_a_store_that_cannot_exchange_keeps_the_old_day(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(System, "exchange", refuse)
    refused(lake, topic, StoreFailed, "in one step")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_store_that_cannot_exchange_is_refused_before_anything_is_read(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(System, "exchange", refuse)
    engine = LocalEngine(topic)
    refused(lake, topic, StoreFailed, "file system that has Linux's renameat2", engine=engine)
    assert engine.jobs == 0
    assert not (lake / "_staging").exists()
    # a folder that is gone is not exchanged, but those of the days that brought late rows to it are
    shutil.rmtree(lake / f"date={SECOND}")
    refused(lake, topic, StoreFailed, "file system that has Linux's renameat2", engine=engine)
    assert engine.jobs == 0
    monkeypatch.undo()
    rebuild(lake, topic, SECOND)
    monkeypatch.setattr(System, "exchange", refuse)
    shutil.rmtree(lake / f"date={FOURTH}")
    rebuild(lake, topic, FOURTH)


def test_the_old_day_stays_in_staging_while_its_successor_may_not_be_durable(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power would undo the exchange, and the old folder is the day again: with all its files."""
    old = files(lake / f"date={SECOND}")
    sync = Store.sync_folder

    def unsure(self: Store, folder: Path) -> None:
        if folder == lake and (lake / f"date={SECOND}").stat().st_ino not in before:
            raise StoreFailed(expected=f"to sync {folder}", found="EIO", do="Look.")
        sync(self, folder)

    before = {(lake / f"date={SECOND}").stat().st_ino}
    monkeypatch.setattr(Store, "sync_folder", unsure)
    with pytest.raises(StoreFailed, match="to sync"):
        rebuild(lake, topic, SECOND)
    (left,) = (lake / "_staging").glob("*/day")
    assert files(left) == old
    assert json.loads((lake / f"date={SECOND}" / MANIFEST_NAME).read_bytes())["revision"] == 2


def test_only_a_committed_day_is_built_again(lake: Path, topic: MemoryTopic) -> None:
    for day in (FIRST - timedelta(days=1), FOURTH + timedelta(days=1)):
        with pytest.raises(ConfigError, match="--force"):
            rebuild(lake, topic, day)


# -- what a person accepted, and what is not ours


def test_a_rebuild_keeps_what_was_accepted_and_adds_what_is_accepted_now(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake, narrow = tmp_path / "lake", replace(RULES, columns=RULES.columns[:1])
    run_day(pipeline(lake, topic), FIRST)
    accept = Accept(contract=True)
    then = run_day(pipeline(lake, topic, rules=narrow, accept=accept), SECOND).manifest.accepted.contract
    assert then
    assert rebuild_day(pipeline(lake, topic, rules=narrow), SECOND).manifest.accepted.contract == then
    again = rebuild_day(pipeline(lake, topic, accept=accept), SECOND).manifest.accepted.contract
    assert again[: len(then)] == then
    assert len(again) > len(then)


def test_a_contract_that_was_accepted_once_lets_a_later_rebuild_move_nothing(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake, narrow = tmp_path / "lake", replace(RULES, columns=RULES.columns[:1])
    run_day(pipeline(lake, topic), FIRST)
    run_day(pipeline(lake, topic, rules=narrow, accept=Accept(contract=True)), SECOND)
    trade_places(lake, topic)
    refused(lake, topic, AuditFailed, "or other ones", rules=narrow)


@pytest.mark.parametrize(
    "accept",
    [Accept(loss=(LostOffsets(partition=0, from_offset=0, until_offset=99),)), Accept(start=True)],
    ids=["loss", "start"],
)
def test_a_loss_is_not_accepted_of_a_day_that_is_built_again(
    lake: Path, topic: MemoryTopic, accept: Accept
) -> None:
    engine = LocalEngine(topic)
    refused(lake, topic, ConfigError, "Leave the option out", accept=accept, engine=engine)
    assert engine.jobs == 0


STRANGE = ["_SUCCESS", ".part.parquet.crc", "notes/read.me", "more.parquet", "late-x.parquet"]
STRANGE += ["part-late-2026-04-01-20260401T000000-abcdef-00007.parquet", "a link"]


@pytest.mark.parametrize("gone", [False, True], ids=["", "without its manifest"])
def test_files_of_somebody_else_in_the_days_folder_are_named_and_kept(
    lake: Path, topic: MemoryTopic, tmp_path: Path, gone: bool
) -> None:
    before, folder = state(lake), lake / f"date={SECOND}"
    if gone:
        (folder / MANIFEST_NAME).unlink()
    for name in STRANGE[:-1]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"somebody's")
    (folder / "a link").symlink_to(folder)
    (folder / ".nfs000000000003a0b400000001").touch()
    engine = LocalEngine(topic)
    with pytest.raises(VerifyFailed, match="Move these files out") as stopped:
        rebuild(lake, topic, SECOND, engine=engine)
    assert engine.jobs == 0
    for name in STRANGE:
        assert name in str(stopped.value)
        (folder / name).rename(tmp_path / Path(name).name)
    assert ".nfs" not in str(stopped.value)
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


# -- the newest day, whose manifest is gone: nothing goes on from it, and nothing tells where it ended

FIFTH = date(2026, 4, 1)


def move_on(topic: MemoryTopic) -> None:
    """Produce a fifth day, with late rows of the two before."""
    for number, back in enumerate((-1, 2, 5, -26)):
        when = midnight(FIFTH, ZONE) + timedelta(hours=3)
        topic.produce(number % 2, order(midnight(FIFTH, ZONE) + timedelta(hours=back)), when)


def lose(folder: Path, what: str) -> None:
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "manifest":
        (folder / MANIFEST_NAME).unlink()
    else:
        (folder / MANIFEST_NAME).write_bytes((folder / MANIFEST_NAME).read_bytes()[:100])


@pytest.mark.parametrize("what", ["folder", "manifest", "half a manifest"])
def test_the_newest_day_without_its_manifest_is_settled_again_and_each_row_stays_once(
    lake: Path, topic: MemoryTopic, tmp_path: Path, what: str
) -> None:
    """Of its late rows some lie in earlier days, others of its rows are pending: the next day goes on."""
    whole = Path(shutil.copytree(lake, tmp_path / "whole"))
    before, all_rows = state(lake), len(places(lake))
    move_on(topic)
    lose(lake / f"date={FOURTH}", what)
    for day in (FOURTH, FIFTH):
        with pytest.raises((DayExists, LedgerBroken, EarlierDayMissing)) as stopped:
            run_day(pipeline(lake, topic, late=Late.AMEND), day)
        if what != "folder" or day == FOURTH:
            assert "--force" in str(stopped.value)
    assert len(late_paths(lake, FOURTH)) == 2
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()
    for each in (lake, whole):
        run_day(pipeline(each, topic, late=Late.AMEND), FIFTH)
    assert places(lake) == places(whole)
    assert len(places(lake)) == all_rows + 5
    assert problems(lake) == ()
    rebuild(lake, topic, FOURTH)
    assert places(lake) == places(whole)


def test_a_day_that_is_settled_again_ends_where_its_files_ended_at_least(
    lake: Path, topic: MemoryTopic
) -> None:
    """It was read with a grace of five hours; by the grace of now, a late row of it would not be reached."""
    for hours, dated in ((2, 10), (3, -20), (6, 26)):
        stamp = midnight(FIFTH, ZONE) + timedelta(hours=hours)
        topic.produce(0, order(midnight(FOURTH, ZONE) + timedelta(hours=dated)), stamp)
    shutil.rmtree(lake)
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND, grace=timedelta(hours=5)), day)
    before = state(lake)
    lose(lake / f"date={FOURTH}", "manifest")
    manifest = rebuild(lake, topic, FOURTH).manifest
    assert manifest.spans[0].evidence.end_detail == "as far as the day's files reach, whose manifest is gone"
    assert state(lake) == before
    assert problems(lake) == ()


def dying(step: Callable[..., None]) -> Callable[..., None]:
    """Let a step of the store kill the run where it moves a late file."""

    def stepped(path: object, *rest: object, **named: object) -> None:
        if "_late/" in str(path):
            raise Crash("killed")
        step(path, *rest, **named)

    return stepped


def test_late_rows_that_were_not_brought_anywhere_yet_are_brought_after_a_kill_too(
    tmp_path: Path, topic: MemoryTopic, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, again = state(lake), tmp_path / "again"
    for day in DAYS[:-1]:
        run_day(pipeline(again, topic, late=Late.AMEND), day)
    with monkeypatch.context() as patched:
        patched.setattr(System, "link", staticmethod(dying(os.link)))
        with pytest.raises(Crash):
            run_day(pipeline(again, topic, late=Late.AMEND), FOURTH)
    assert not late_paths(again, FOURTH)
    lose(again / f"date={FOURTH}", "manifest")
    with monkeypatch.context() as patched:
        patched.setattr(System, "unlink", staticmethod(dying(os.unlink)))
        with pytest.raises(Crash):
            rebuild(again, topic, FOURTH)
    assert len(late_paths(again, FOURTH)) == 1
    run_day(pipeline(again, topic, late=Late.SET_ASIDE), FOURTH)
    assert state(again) == before
    assert problems(again) == ()


@pytest.mark.parametrize("column", [None, b"kafka_partition", b"event_time"])
def test_a_late_file_that_cannot_be_read_is_settled_again_once_it_is_out_of_the_lake(
    lake: Path, topic: MemoryTopic, tmp_path: Path, column: bytes | None
) -> None:
    before = state(lake)
    broken = late_paths(lake, FOURTH)[0]
    lose(lake / f"date={FOURTH}", "manifest")
    broken.write_bytes(broken.read_bytes().replace(column, column.upper()) if column else b"PAR1")
    with pytest.raises(LedgerBroken, match=r"ove (it|that file) out of the lake"):
        rebuild(lake, topic, FOURTH)
    broken.rename(tmp_path / "away")
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()


def damage_values(path: Path, name: str, values: pa.Array) -> None:
    """Write a file of one row again with its own footer, its row twice, and a column of other values."""
    table, said = pq.read_table(path, partitioning=None), pq.read_metadata(path).metadata
    table = pa.concat_tables([table, table])
    columns = {**dict(zip(table.column_names, table.columns, strict=True)), name: values}
    pq.write_table(pa.table(columns, metadata=said), path, row_group_size=1)


@pytest.mark.parametrize(
    "name, values",
    [
        ("kafka_offset", pa.array([7, 7], pa.int64())),
        ("kafka_offset", pa.array([-7, -6], pa.int64())),
        ("event_time", pa.array([1 << 60, 1 << 60], pa.int64()).cast(INSTANT)),
        ("event_time", pa.array([None, None], INSTANT)),
        ("kafka_partition", pa.array(["a", "b"])),
    ],
    ids=["twice", "below zero", "beyond all years", "no time", "text"],
)
def test_a_late_file_with_values_that_no_run_writes_is_settled_again_once_it_is_out_of_the_lake(
    lake: Path, topic: MemoryTopic, tmp_path: Path, name: str, values: pa.Array
) -> None:
    """A page has no checksum: one flipped bit of an offset's first byte was a bug (70), with no way out."""
    before, broken = state(lake), late_paths(lake, FOURTH)[0]
    lose(lake / f"date={FOURTH}", "manifest")
    damage_values(broken, name, values)
    with pytest.raises(LedgerBroken, match=r"ove (it|that file) out of the lake"):
        rebuild(lake, topic, FOURTH)
    broken.rename(tmp_path / "away")
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()


def test_late_rows_are_not_filed_twice_where_their_file_was_damaged_to_hold_an_offset_twice(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    """Such a file counted as one without offsets, so its rows were set aside beside it."""
    lake = tmp_path / "lake"
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND if day < FOURTH else Late.SET_ASIDE), day)
    next(lake.glob(f"date={FIRST}/part-late-{THIRD}-*")).unlink()
    lose(lake / f"date={THIRD}", "folder")
    rebuild(lake, topic, THIRD)  # from now on one late file is set aside, and the other lies in its day
    before = state(lake)
    (broken,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    damage_values(broken, "kafka_offset", pa.array([7, 7], pa.int64()))
    rebuild(lake, topic, THIRD)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("by, into", [(FOURTH, FIRST), (THIRD, FIRST), (THIRD, FOURTH)])
def test_a_late_file_that_was_moved_into_another_day_is_not_committed_there(
    lake: Path, topic: MemoryTopic, by: date, into: date
) -> None:
    """Without a manifest, its place alone said to which day it belongs."""
    before = state(lake)
    path = next(path for path in late_paths(lake, by) if path.parent.name == f"date={SECOND}")
    moved = path.rename(lake / f"date={into}" / path.name)
    lose(lake / f"date={by}", "manifest")
    with pytest.raises(LedgerBroken, match=rf"or into date={SECOND}\b"):
        rebuild(lake, topic, by)
    moved.rename(path)
    rebuild(lake, topic, by)
    assert state(lake) == before
    assert problems(lake) == ()


def test_a_late_file_that_was_moved_may_also_be_moved_out_of_the_lake(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    before, (*_, path) = state(lake), late_paths(lake, FOURTH)
    moved = path.rename(lake / f"date={FIRST}" / path.name)
    lose(lake / f"date={FOURTH}", "manifest")
    with pytest.raises(LedgerBroken, match="Move that file out of the lake"):
        rebuild(lake, topic, FOURTH)
    moved.rename(tmp_path / "away")
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before


def test_a_late_file_of_another_topic_is_none_of_the_days_late_files(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    before, path = state(lake), late_paths(lake, FOURTH)[0]
    table, said = pq.read_table(path, partitioning=None), pq.read_metadata(path).metadata
    other = path.with_name(f"part-late-{FOURTH}-20260401T000000-abcdef-00007.parquet")
    pq.write_table(table.replace_schema_metadata({**said, b"kafka_daily.topic": b"others"}), other)
    path.rename(tmp_path / "away")
    lose(lake / f"date={FOURTH}", "manifest")
    with pytest.raises(LedgerBroken, match="Move that file out of the lake"):
        rebuild(lake, topic, FOURTH)
    other.unlink()
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_late_file_behind_a_link_is_not_committed(tmp_path: Path, topic: MemoryTopic, what: str) -> None:
    lake = tmp_path / "lake"
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.AMEND if day == FOURTH else Late.SET_ASIDE), day)
    path = next(path for path in late_paths(lake, FOURTH) if path.parent.name == f"date={SECOND}")
    linked = path if what == "file" else path.parent
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    lose(lake / f"date={FOURTH}", "manifest")
    with pytest.raises(StoreFailed, match="put what it leads to in its place"):
        rebuild(lake, topic, FOURTH)
    linked.unlink()
    (tmp_path / "elsewhere").rename(linked)
    rebuild(lake, topic, FOURTH)
    assert problems(lake) == ()


def test_where_retention_took_some_of_it_the_folder_stays_and_the_advice_leads_on(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    before, away = places(lake), tmp_path / "away"
    third = read_manifest(PosixLake(lake), THIRD)
    assert third
    start = third.next.partitions[0].next_from_offset
    lose(lake / f"date={FOURTH}", "manifest")
    topic.retain_from(0, start + 2)
    refused_day = files(lake)
    with pytest.raises(OffsetsLost, match="The old folder stays") as stopped:
        rebuild(lake, topic, FOURTH)
    assert files(lake) == refused_day
    away.mkdir()
    entry = lake / "_ledger" / f"{FOURTH}.json"
    for path in [*late_paths(lake, FOURTH), lake / f"date={FOURTH}", entry]:
        assert path.match(f"date=*/part-late-{FOURTH}-*") or path in (entry, lake / f"date={FOURTH}")
        path.rename(away / path.name)
    named = f"date={FOURTH}, _ledger/{FOURTH}.json and all date=*/*late-{FOURTH}-*"
    assert named in str(stopped.value)
    with pytest.raises(OffsetsLost, match="--accept-loss") as lost:
        run_day(pipeline(lake, topic, late=Late.AMEND), FOURTH)
    assert lost.value.facts["accept"] == f"0:{start}-{start + 2}"
    loss = LostOffsets(partition=0, from_offset=start, until_offset=start + 2)
    run_day(pipeline(lake, topic, late=Late.AMEND, accept=Accept(loss=(loss,))), FOURTH)
    assert problems(lake) == ()
    assert before.keys() - places(lake).keys() == {(0, start), (0, start + 1)}


def test_a_topic_that_ends_before_the_days_files_do_is_not_the_one_that_they_were_read_from(
    lake: Path, topic: MemoryTopic
) -> None:
    lose(lake / f"date={FOURTH}", "manifest")
    manifest_less = files(lake)
    topic.truncate(1, max(each.offset for each in topic.logs[1].records))
    topic.truncate(1, topic.logs[1].high - 1)
    with pytest.raises(TopicChanged, match="as the day's files do"):
        rebuild(lake, topic, FOURTH)
    assert files(lake) == manifest_less


def test_what_compaction_may_have_taken_of_a_day_without_its_manifest_stays_in_the_old_folder(
    lake: Path, topic: MemoryTopic
) -> None:
    lose(lake / f"date={FOURTH}", "manifest")
    before = files(lake)
    topic.cleanup_policy = "compact"
    with pytest.raises(OffsetsLost, match="Nobody can say what compaction has taken"):
        rebuild(lake, topic, FOURTH)
    assert files(lake) == before


def test_a_start_that_is_vouched_for_drops_nothing_that_the_old_folder_holds(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake = tmp_path / "lake"
    run_day(pipeline(lake, topic), FIRST)
    lose(lake / f"date={FIRST}", "manifest")
    before = files(lake)
    topic.retain_from(0, 2)
    with pytest.raises(OffsetsLost, match="--accept-start"):
        rebuild_day(pipeline(lake, topic), FIRST)
    with pytest.raises(OffsetsLost, match="as the day's files hold; found a plan from 2 on"):
        rebuild_day(pipeline(lake, topic, accept=Accept(start=True)), FIRST)
    assert files(lake) == before


def test_the_only_day_without_its_manifest_is_settled_again(tmp_path: Path, topic: MemoryTopic) -> None:
    lake = tmp_path / "lake"
    run_day(pipeline(lake, topic), FIRST)
    before = state(lake)
    lose(lake / f"date={FIRST}", "manifest")
    rebuild_day(pipeline(lake, topic), FIRST)
    assert state(lake) == before
    assert problems(lake) == ()


def test_late_rows_of_removed_later_days_are_doubled_by_neither_a_run_nor_a_rebuild(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    """The newest two days are gone; what the later one brought to earlier days must leave before."""
    before = state(lake)
    for day in (THIRD, FOURTH):
        lose(lake / f"date={day}", "folder")
    for command in (run_day, rebuild_day):
        with pytest.raises(LedgerBroken, match="from a backup"):
            command(pipeline(lake, topic, late=Late.AMEND), THIRD)
    with pytest.raises(LedgerBroken, match=f"_ledger/{THIRD}.json and those of the days after it out of the"):
        run_day(pipeline(lake, topic, late=Late.AMEND), THIRD)
    for day in (THIRD, FOURTH):
        (lake / "_ledger" / f"{day}.json").rename(tmp_path / f"{day}.json")
    with pytest.raises(LedgerBroken, match=f"--date {THIRD} --force"):
        run_day(pipeline(lake, topic, late=Late.AMEND), THIRD)
    with pytest.raises(LedgerBroken, match="move these files out of the lake"):
        rebuild(lake, topic, THIRD)
    for path in late_paths(lake, FOURTH):
        path.rename(tmp_path / path.name)
    rebuild(lake, topic, THIRD)
    run_day(pipeline(lake, topic, late=Late.AMEND), FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()


# -- what a rebuild must not drop or file twice, and advice that leads out


@pytest.mark.parametrize(
    "number, harm",
    [(2, "manifest"), (2, "folder"), (2, "half a manifest"), (2, ""), (1, ""), (4, "manifest")],
)
def test_a_lake_without_its_first_day_is_not_built_on(
    lake: Path, topic: MemoryTopic, tmp_path: Path, number: int, harm: str
) -> None:
    """Late rows of a day may lie in the deleted one: by its folder's return they would be there twice."""
    if number == 4:
        when = midnight(FIFTH, ZONE) + timedelta(hours=2)
        topic.produce(0, order(midnight(FIRST, ZONE) + timedelta(hours=5), n=99), when)
        run_day(pipeline(lake, topic, late=Late.AMEND), FIFTH)
    before, day = state(lake), [*DAYS, FIFTH][number]
    (lake / f"date={FIRST}").rename(tmp_path / "away")
    if harm:
        lose(lake / f"date={day}", harm)
    with pytest.raises(LedgerBroken, match=f"{FIRST}, the first day of this lake, to be there"):
        rebuild(lake, topic, day)
    (tmp_path / "away").rename(lake / f"date={FIRST}")
    rebuild(lake, topic, day)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("day", [SECOND, THIRD])
def test_late_rows_that_still_lie_in_an_older_days_folder_do_not_go_with_it(
    lake: Path, topic: MemoryTopic, day: date
) -> None:
    """As after a kill between the exchange of a day and the moves of its late files."""
    before = state(lake)
    (target,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    source = lake / f"date={THIRD}" / late_source(target.relative_to(lake).as_posix())
    source.parent.mkdir(parents=True, exist_ok=True)
    target.rename(source)
    advice = rf"uild {SECOND} again first \(`run --date {SECOND} --force`\)"
    assert any(re.search(advice, each) for each in problems(lake))
    rebuild(lake, topic, day)
    assert target.exists()
    assert state(lake) == before
    assert problems(lake) == ()


def test_a_late_file_that_came_back_beside_the_one_in_its_day_goes_with_its_folder(
    lake: Path, topic: MemoryTopic
) -> None:
    """A backup of the day may hold it. Each of the two days told to build the other one first, for ever."""
    (target,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    backup, before = target.read_bytes(), state(lake)
    source = lake / f"date={THIRD}" / late_source(target.relative_to(lake).as_posix())
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(backup)
    (told,) = problems(lake)
    assert f"`run --date {THIRD} --force`" in told
    rebuild(lake, topic, THIRD)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("what", ["another table", "another day", "no Parquet"])
def test_a_file_of_somebody_else_that_is_named_like_ours_is_kept(
    lake: Path, topic: MemoryTopic, tmp_path: Path, what: str
) -> None:
    before, folder = state(lake), lake / f"date={FOURTH}"
    lose(folder, "manifest")
    strange = folder / "part-00000-4c2f1b0e-a1b2-4c3d-9e8f-001122334455.c000.snappy.parquet"
    if what == "another table":
        pq.write_table(pa.table({"precious": [1, 2, 3]}), strange)
    elif what == "another day":
        shutil.copy(lake_parts.part(lake, SECOND), strange)
    else:
        strange.write_bytes(b"PAR1")
    with pytest.raises(VerifyFailed, match=f"found {re.escape(strange.name)}; Move|{strange.name}"):
        rebuild(lake, topic, FOURTH)
    strange.rename(tmp_path / "away")
    (folder / "part-20260402T010203-0a1b2c-00000.parquet").write_bytes(b"PAR1")
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()


def write(sidecar: Path) -> None:
    sidecar.write_text("somebody's")


def test_a_file_that_comes_into_the_day_while_it_is_read_again_is_kept(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    sidecar = lake / f"date={SECOND}" / "_index.sidecar"
    engine = LocalEngine(topic, between=lambda: write(sidecar))
    with pytest.raises(VerifyFailed, match=sidecar.name):
        rebuild(lake, topic, SECOND, engine=engine)
    assert sidecar.read_text() == "somebody's"
    sidecar.rename(tmp_path / "away")
    rebuild(lake, topic, SECOND)


def test_a_file_that_comes_into_the_day_just_before_the_exchange_stays_in_staging_and_is_named(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Store.exchange

    def with_a_sidecar(self: Store, one: Path, other: Path) -> None:
        if other.parent == lake:
            (other / "_index.sidecar").write_text("somebody's")
        exchange(self, one, other)

    before = state(lake)
    monkeypatch.setattr(Store, "exchange", with_a_sidecar)
    with structlog.testing.capture_logs() as said:
        assert rebuild(lake, topic, SECOND).manifest.revision == 2
    (kept,) = (lake / "_staging").glob("*/day/_index.sidecar")
    assert kept.read_text() == "somebody's"
    (warning,) = [each for each in said if each["log_level"] == "warning"]
    assert str(kept) in str(warning)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("harm", ["folder", "manifest", "half a manifest"])
@pytest.mark.parametrize("one, other", [(SECOND, FOURTH), (THIRD, FIFTH)])
def test_two_days_that_are_lost_apart_from_each_other_are_built_one_after_the_other(
    lake: Path, topic: MemoryTopic, one: date, other: date, harm: str
) -> None:
    """Of lost folders the earlier comes first: late rows of the later one may have lain in it."""
    move_on(topic)
    for day in (FIFTH, FIFTH + timedelta(days=1)):
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    before = state(lake)
    for day in (one, other):
        lose(lake / f"date={day}", harm)
    first, then = (one, other) if harm == "folder" else (other, one)
    with pytest.raises(
        (LedgerBroken, DayExists), match=f"--date {first} --force|date={first}/_manifest.json"
    ):
        rebuild(lake, topic, then)
    follow_the_advice(lake, topic, first)
    follow_the_advice(lake, topic, then)
    assert places(lake).keys() == places_of(before).keys()
    if harm != "folder":
        assert state(lake) == before
    assert problems(lake) == ()


def places_of(state: tuple[object, ...]) -> dict[tuple[int, int], object]:
    return state[0]  # type: ignore[return-value]


@pytest.mark.parametrize("restored", [SECOND, FOURTH])
def test_of_two_lost_folders_one_may_come_back_from_a_backup(
    lake: Path, topic: MemoryTopic, tmp_path: Path, restored: date
) -> None:
    """Whatever was built again before: no late row lies in a day and in the folder of its run too."""
    move_on(topic)
    run_day(pipeline(lake, topic, late=Late.AMEND), FIFTH)
    before = state(lake)
    for day in (SECOND, FOURTH):
        (lake / f"date={day}").rename(tmp_path / str(day))
    if restored == FOURTH:
        with pytest.raises(LedgerBroken, match=f"uild {FOURTH} again first"):
            rebuild(lake, topic, SECOND)
    else:
        with pytest.raises(LedgerBroken, match=f"uild {SECOND} again first"):
            rebuild(lake, topic, FOURTH)
    (tmp_path / str(restored)).rename(lake / f"date={restored}")
    rebuild(lake, topic, SECOND if restored == FOURTH else FOURTH)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("harm", ["folder", "manifest", "half a manifest"])
@pytest.mark.parametrize("day", [SECOND, THIRD])
def test_of_two_lost_days_in_a_row_one_must_come_back(
    lake: Path, topic: MemoryTopic, day: date, harm: str
) -> None:
    for each in (SECOND, THIRD):
        lose(lake / f"date={each}", harm)
        (lake / "_ledger" / f"{each}.json").unlink()
    with pytest.raises(LedgerBroken, match="Two days in a row are missing: restore one of them"):
        rebuild(lake, topic, day)


def test_a_newest_day_without_its_manifest_beside_another_one_is_built_first(
    lake: Path, topic: MemoryTopic
) -> None:
    before = state(lake)
    for day in (SECOND, FOURTH):
        lose(lake / f"date={day}", "manifest")
    with pytest.raises(DayExists, match=f"--date {FOURTH} --force"):
        rebuild(lake, topic, SECOND)
    rebuild(lake, topic, FOURTH)
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


def test_a_newest_day_without_its_manifest_is_not_settled_while_its_late_rows_may_lie_in_a_lost_folder(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    before = state(lake)
    lose(lake / f"date={FOURTH}", "manifest")
    (lake / f"date={SECOND}").rename(tmp_path / "away")
    with pytest.raises(LedgerBroken, match=f"Restore date={SECOND} from a backup"):
        rebuild(lake, topic, FOURTH)
    (tmp_path / "away").rename(lake / f"date={SECOND}")
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before


def test_a_newest_day_without_its_manifest_does_not_wait_for_what_the_day_before_brought_elsewhere(
    lake: Path, topic: MemoryTopic
) -> None:
    before = state(lake)
    lose(lake / f"date={FOURTH}", "manifest")
    for path in lake.glob(f"date={SECOND}/part-late-{THIRD}-*"):
        path.unlink()
    with pytest.raises(DayExists, match=f"--date {FOURTH} --force"):
        rebuild(lake, topic, SECOND)
    rebuild(lake, topic, FOURTH)
    rebuild(lake, topic, SECOND)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("name", [f"date={SECOND}.bak", "date=20260329"])
@pytest.mark.parametrize("harm", ["folder", "manifest"])
def test_a_copy_of_a_day_beside_the_lakes_days_is_none_of_them(
    lake: Path, topic: MemoryTopic, harm: str, name: str
) -> None:
    before = state(lake)
    shutil.copytree(lake / f"date={SECOND}", lake / name)
    lose(lake / f"date={FOURTH}", harm)
    rebuild(lake, topic, FOURTH)
    shutil.rmtree(lake / name)
    assert state(lake) == before
    assert problems(lake) == ()


@pytest.mark.parametrize("edge", [date.min, date.max])
def test_a_folder_that_somebody_named_like_the_calendars_first_or_last_day_is_no_bug_of_ours(
    lake: Path, topic: MemoryTopic, tmp_path: Path, edge: date
) -> None:
    """The day beside it lies outside the calendar: each look at it was an OverflowError."""
    before, folder = state(lake), lake / f"date={edge}"
    folder.mkdir()
    for day in (FOURTH, edge):
        with pytest.raises((DayExists, LedgerBroken)):
            rebuild(lake, topic, day)
    with pytest.raises((LedgerBroken, ConfigError), match=r"move it away|first day of this lake"):
        rebuild(lake, topic, edge)
    lose(lake / f"date={FOURTH}", "folder")
    with suppress(DayExists, LedgerBroken):
        rebuild(lake, topic, FOURTH)
    folder.rmdir()
    rebuild(lake, topic, FOURTH)
    assert state(lake) == before


@pytest.mark.parametrize("edge", [date.min, date.max])
def test_the_calendars_first_and_last_day_can_never_be_run(
    lake: Path, topic: MemoryTopic, edge: date
) -> None:
    for step in (run_day, preview, rebuild_day):
        with pytest.raises(ConfigError):
            step(pipeline(lake, topic), edge)


@pytest.mark.parametrize("harm", ["folder", "manifest"])
def test_a_lost_first_day_comes_back_from_a_backup_alone(
    lake: Path, topic: MemoryTopic, tmp_path: Path, harm: str
) -> None:
    backup = shutil.copytree(lake / f"date={FIRST}", tmp_path / "backup")
    before = state(lake)
    lose(lake / f"date={FIRST}", harm)
    if harm == "manifest":
        (lake / "_ledger" / f"{FIRST}.json").unlink()
    for command in (run_day, rebuild_day):
        with pytest.raises((LedgerBroken, DayExists), match=r"(?i)restore .* from a backup") as stopped:
            command(pipeline(lake, topic, late=Late.AMEND), FIRST)
        assert "--force" not in str(stopped.value)
    shutil.rmtree(lake / f"date={FIRST}", ignore_errors=True)
    shutil.copytree(backup, lake / f"date={FIRST}")
    assert state(lake) == before
    assert problems(lake) == ()


def test_what_nfs_keeps_of_a_removed_file_is_no_problem(lake: Path) -> None:
    (lake / f"date={SECOND}" / ".nfs000000000003a0b400000001").touch()
    assert problems(lake) == ()


def test_a_rebuilt_day_keeps_the_anchor_that_the_day_after_goes_on_from(tmp_path: Path) -> None:
    """Older versions recorded -1 for a stamp below zero: with another one, no later day could be settled."""
    lake, topic = tmp_path / "lake", MemoryTopic()
    for day in DAYS[:3]:
        when = midnight(day, ZONE) + timedelta(hours=2)
        topic.produce(0, order(when), when)
        topic.produce(0, order(when), -5_000 if day == FIRST else when)
    for day in DAYS[:2]:
        run_day(pipeline(lake, topic, invalid_limit=1.0), day)
    for manifest in [*read_chain(PosixLake(lake))]:
        old = replace(manifest, consumed=_as_of_old(manifest.consumed), next=_as_of_old(manifest.next))
        (lake / f"date={old.day.date}" / MANIFEST_NAME).write_bytes(to_json(old))
    rebuild_day(pipeline(lake, topic, invalid_limit=1.0), FIRST)
    run_day(pipeline(lake, topic, invalid_limit=1.0), THIRD)
    assert len([*read_chain(PosixLake(lake))]) == 3


@pytest.mark.parametrize("harm", ["", "manifest", "folder"])
def test_a_day_is_not_built_again_of_other_records_than_the_day_after_goes_on_from(
    lake: Path, topic: MemoryTopic, harm: str
) -> None:
    """As after an unclean election: the rebuild was committed, and its link to the next day was broken."""
    anchor = list(read_chain(PosixLake(lake)))[-2].next.partitions[0].anchor
    assert anchor
    records = topic.logs[0].records
    number = next(number for number, each in enumerate(records) if each.offset == anchor.offset)
    records[number] = replace(records[number], key=b"another")
    if harm:
        lose(lake / f"date={THIRD}", harm)
    before = files(lake)
    with pytest.raises(TopicChanged, match="the record that the day ended with"):
        rebuild(lake, topic, THIRD)
    assert {name for name in files(lake) if not name.startswith("_staging/")} == before


def _as_of_old(checkpoint: Checkpoint) -> Checkpoint:
    parts = (
        replace(part, anchor=part.anchor and replace(part.anchor, timestamp=max(-1, part.anchor.timestamp)))
        for part in checkpoint.partitions
    )
    return replace(checkpoint, partitions=tuple(parts))
