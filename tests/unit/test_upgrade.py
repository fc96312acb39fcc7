"""`upgrade` brings the days of earlier formats to today's: other names and manifests, the same rows."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.lake.clean import clean
from jobs.lake.expiry import expire, expiring
from jobs.lake.names import earlier_name
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.lake.status import status
from jobs.lake.store import System
from jobs.rebuild import rebuild_day
from jobs.record.columns import Column, parse_type
from jobs.upgrade.chain import upgradable
from jobs.upgrade.run import Upgraded, upgrade
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_chain, read_expired, read_ledger
from offsets.errors import LakeLocked, LedgerBroken, VerifyFailed
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, to_json
from offsets.plan import Accept
from tests.support.earlier_formats import as_of_format
from tests.support.kept_lake import FOURTH, KEPT, a_kept_lake, four_days_of_orders
from tests.support.lake import files, manifest, manifests, places
from tests.support.lake_parts import manifest_of
from tests.support.local_engine import RULES, Crash, order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, at, orders

RUN = "20260401T000000"
HOLDER = LockHolder(run_id="other", host="here", pid=1, since=datetime(2026, 4, 10, tzinfo=UTC))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The lake that version 0.1.0 left."""
    return a_kept_lake(tmp_path / "lake")


@pytest.fixture
def topic() -> MemoryTopic:
    return four_days_of_orders()


def run(lake: Path, topic: MemoryTopic, *days: date, late: Late = Late.AMEND) -> Outcome:
    return [run_day(pipeline(lake, topic, late=late), day) for day in days][-1]


def upgraded(lake: Path, **settings: Any) -> Upgraded:
    return upgrade(pipeline(lake, MemoryTopic(2), **settings))


def problems(lake: Path, topic: MemoryTopic | None = None) -> list[str]:
    level = Level.KAFKA if topic else Level.RECORDS
    found = verify(PosixLake(lake), None, lambda *_: None, level, (lambda: topic) if topic else None)
    return [*found.problems, *found.notes]


def digests(lake: Path) -> Counter[str]:
    """Count the files with rows by their bytes."""
    texts = (lake / name for name in files(lake) if name.endswith((".parquet", ".rows")))
    return Counter(
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in texts
        if pq.ParquetFile(path).metadata.num_rows
    )


def counted(lake: Path, pattern: str) -> int:
    with duckdb.connect() as own:
        query = f"select count(*) from read_parquet('{lake}/{pattern}', union_by_name = true)"
        return int(own.execute(query).fetchall()[0][0])


def require_of_today(lake: Path) -> None:
    """Check format and names, and that nothing but rows of the days is counted by a search of all folders."""
    assert {document["format_version"] for document in manifests(lake)} == {4}
    in_days = [Path(name) for name in files(lake) if name.startswith("date=")]
    assert not [path for path in in_days if path.suffix == ".parquet" and len(path.parts) > 2]
    assert not [path for path in in_days if path.name.startswith("late-")]
    assert counted(lake, "**/*.parquet") == counted(lake, "date=*/*.parquet")
    assert not list(lake.glob("_staging/*"))
    assert upgradable(PosixLake(lake)) == ()


def test_a_kept_lake_has_todays_names_and_the_same_rows(kept: Path, topic: MemoryTopic) -> None:
    before, texts, rows = places(kept), digests(kept), counted(kept, "date=*/*.parquet")
    done = upgraded(kept)
    assert [(day.date, day.format, day.renamed) for day in done.days] == [
        (FIRST, 3, 1),
        (SECOND, 3, 2),
        (THIRD, 3, 2),
    ]
    assert done.left == {}
    assert (places(kept), digests(kept), counted(kept, "date=*/*.parquet")) == (before, texts, rows)
    require_of_today(kept)
    assert {name for name in files(kept) if "late" in name} == {
        f"date={SECOND}/_late/date={FIRST}/part-late-{SECOND}-{RUN}-000002-00001.rows",
        f"date={SECOND}/part-late-{THIRD}-{RUN}-000003-00001.parquet",
    }
    assert problems(kept, topic) == []
    run(kept, topic, FOURTH)
    assert problems(kept, topic) == []


def test_its_manifests_differ_in_what_format_3_lacked_alone(kept: Path) -> None:
    old = manifests(kept)
    upgraded(kept)
    for before, after in zip(old, manifests(kept), strict=True):
        changed = {"format_version", "checksum", "columns", "late_expired", "files", "revision"}
        assert {key for key in after if after[key] != before.get(key)} == changed
        assert (after["revision"], after["late_expired"]) == (before["revision"] + 1, 0)
        for was, is_ in zip(before["files"], after["files"], strict=True):
            assert {key for key in is_ if is_[key] != was[key]} <= {"path", "target"}


def test_each_upgraded_day_is_built_again(kept: Path, topic: MemoryTopic) -> None:
    before = places(kept)
    upgraded(kept)
    for day in (SECOND, THIRD, FIRST):
        assert rebuild_day(pipeline(kept, topic, late=Late.AMEND), day).manifest.revision == 3
        assert places(kept) == before
        assert problems(kept, topic) == []


def test_a_second_upgrade_has_nothing_to_do(kept: Path) -> None:
    upgraded(kept)
    seen = {path: path.stat().st_mtime_ns for path in kept.rglob("*") if path.name != "_lock"}
    assert upgraded(kept) == Upgraded(left={})
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*") if path.name != "_lock"} == seen


def test_without_execute_nothing_is_changed(kept: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    assert upgradable(PosixLake(kept)) == upgraded(Path(shutil.copytree(kept, kept.parent / "copy"))).days
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before


@pytest.mark.parametrize("late", [Late.AMEND, Late.SET_ASIDE])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_lake_of_each_format_is_the_lake_that_today_would_leave(
    tmp_path: Path, topic: MemoryTopic, version: int, late: Late
) -> None:
    lake = tmp_path / "lake"
    run(lake, topic, FIRST, SECOND, THIRD, FOURTH, late=late)
    today, names, before = manifests(lake), files(lake), places(lake)
    as_of_format(lake, version)
    assert {each["format_version"] for each in manifests(lake)} == {version}
    assert [day.format for day in upgraded(lake).days] == [version] * 4
    assert files(lake) == names
    assert places(lake) == before
    for is_, was in zip(manifests(lake), today, strict=True):
        lost = {"checksum", "revision"} | ({"tally", "transactional"} if version == 1 else set())
        assert {key for key in is_ if is_[key] != was[key]} <= lost
    require_of_today(lake)
    assert problems(lake, topic) == []


def test_the_builder_makes_what_version_3_made(tmp_path: Path, topic: MemoryTopic) -> None:
    """The manifests of the kept lake have the fields of one that was turned into an older one."""
    lake = tmp_path / "lake"
    run(lake, topic, FIRST, SECOND, late=Late.SET_ASIDE)
    run(lake, topic, THIRD)
    as_of_format(lake, 3)
    old, new = manifests(KEPT), manifests(lake)
    assert [list(each) for each in old] == [list(each) for each in new]
    assert [_masked(each) for each in old] == [_masked(each) for each in new]


def _masked(document: dict[str, Any]) -> list[str]:
    names = [name for file in document["files"] for name in (file["path"], file["target"] or "")]
    return [part for name in names for part in name.split("/")[:-1]] + [name[-8:] for name in names]


def test_a_day_without_rows_is_found_by_a_glob(tmp_path: Path, topic: MemoryTopic) -> None:
    lake, few = tmp_path / "lake", MemoryTopic(2)
    orders(few, FIRST)
    few.produce(0, b"not json", at(SECOND, 3))
    orders(few, THIRD)
    run(lake, few, FIRST, SECOND, THIRD)
    (path,) = lake.glob(f"date={SECOND}/*.parquet")
    columns = pq.read_schema(path).remove_metadata()
    as_of_format(lake, 3)
    assert not list(lake.glob(f"date={SECOND}/*.parquet"))
    (day,) = [day for day in upgraded(lake).days if day.without_file]
    assert day.date == SECOND
    (path,) = lake.glob(f"date={SECOND}/*.parquet")
    assert pq.read_schema(path).remove_metadata() == columns
    require_of_today(lake)
    assert problems(lake, few) == []
    rebuild_day(pipeline(lake, few, late=Late.AMEND), SECOND)
    assert problems(lake, few) == []


def test_what_an_older_version_remade_is_recorded_by_its_owner(kept: Path, topic: MemoryTopic) -> None:
    before = places(kept)
    (path,) = kept.glob(f"date={SECOND}/late-{THIRD}-*")
    pq.write_table(pq.ParquetFile(path).read(), path, compression="none")
    text = path.read_bytes()
    (file,) = [file for file in manifest_of(kept, THIRD).files if file.target]
    remade = replace(file, bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    own = json.loads(to_json(replace(manifest_of(kept, SECOND), remade=(remade,))))
    (kept / f"date={SECOND}" / MANIFEST_NAME).write_text(json.dumps(own))
    as_of_format(kept, 3, str(SECOND))
    assert problems(kept) == []
    assert upgraded(kept).left == {}
    assert [each["remade"] for each in manifests(kept)] == [[], [], []]
    (file,) = [file for file in manifest_of(kept, THIRD).files if file.target]
    assert file.sha256 == remade.sha256
    assert places(kept) == before
    assert problems(kept, topic) == []


def test_a_remade_file_of_an_owner_that_is_left_is_recorded_where_it_was(kept: Path) -> None:
    (path,) = kept.glob(f"date={SECOND}/late-{THIRD}-*")
    pq.write_table(pq.ParquetFile(path).read(), path, compression="none")
    text = path.read_bytes()
    (file,) = [file for file in manifest_of(kept, THIRD).files if file.target]
    remade = replace(file, bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    (kept / f"date={SECOND}" / MANIFEST_NAME).write_bytes(
        to_json(replace(manifest_of(kept, SECOND), remade=(remade,)))
    )
    as_of_format(kept, 3, str(SECOND))
    (kept / f"date={THIRD}" / "mine.txt").write_text("x")
    done = upgraded(kept)
    assert [day.date for day in done.days] == [FIRST, SECOND]
    assert manifest_of(kept, SECOND).remade == (remade,)
    assert [problem for problem in problems(kept) if "mine.txt" not in problem] == []


def lost(path: Path) -> None:
    path.unlink()


def broken(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9)


def linked(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[2] / "elsewhere"))


@pytest.mark.parametrize("harm", [lost, broken, linked])
@pytest.mark.parametrize(
    "name, owner",
    [
        (f"date={SECOND}/part-*.parquet", SECOND),
        (f"date={SECOND}/_invalid/*", SECOND),
        (f"date={SECOND}/late-{THIRD}-*", THIRD),
    ],
    ids=["rows", "invalid", "late"],
)
def test_a_day_that_is_not_as_committed_is_left_and_named_and_the_advice_works(
    kept: Path, topic: MemoryTopic, name: str, owner: date, harm: Callable[[Path], None]
) -> None:
    before = places(kept)
    (path,) = kept.glob(name)
    harm(path)
    done = upgraded(kept)
    assert list(done.left) == ([SECOND, THIRD] if harm is linked and owner == THIRD else [owner])
    assert str(path) in done.left[owner]
    assert manifest(kept, owner)["format_version"] == 3
    assert manifest(kept, FIRST)["format_version"] == 4
    found = verify(PosixLake(kept), None, lambda *_: None, Level.FILES).problems
    assert found
    assert all(str(path) in problem for problem in found)
    if harm is linked:
        path.unlink()
    rebuild_day(pipeline(kept, topic, late=Late.AMEND), owner)
    assert upgraded(kept).left == {}
    assert places(kept) == before
    require_of_today(kept)
    assert problems(kept, topic) == []


def test_a_strange_file_is_named_and_stays(kept: Path) -> None:
    mine = kept / f"date={SECOND}" / "mine.parquet"
    mine.write_bytes(b"x")
    done = upgraded(kept)
    assert list(done.left) == [SECOND]
    assert "mine.parquet" in done.left[SECOND]
    assert mine.read_bytes() == b"x"


def test_a_lake_that_began_under_an_earlier_format_is_upgraded_in_its_old_days(
    kept: Path, topic: MemoryTopic
) -> None:
    run(kept, topic, FOURTH)
    newest = manifest(kept, FOURTH)
    assert [day.date for day in upgraded(kept).days] == [FIRST, SECOND, THIRD]
    assert manifest(kept, FOURTH) == newest
    require_of_today(kept)
    assert problems(kept, topic) == []


def test_a_day_of_today_that_goes_on_naming_an_old_file_is_upgraded(kept: Path, topic: MemoryTopic) -> None:
    """A rebuild leaves a late file under its old name where it is intact."""
    rebuild_day(pipeline(kept, topic, late=Late.AMEND), THIRD)
    assert manifest(kept, THIRD)["format_version"] == 4
    assert [day.format for day in upgraded(kept).days] == [3, 3, 4]
    require_of_today(kept)
    assert problems(kept, topic) == []


def test_days_that_expired_are_known_to_the_manifests_of_those_that_stay(
    kept: Path, topic: MemoryTopic
) -> None:
    run(kept, topic, FOURTH)
    newest, lake = manifest_of(kept, FOURTH), PosixLake(kept)
    with lake.lock(HOLDER):
        expire(lake, read_ledger(lake), SECOND, HOLDER.since, "other", "a test")
    before = places(kept)
    assert [day.date for day in upgraded(kept).days] == [SECOND, THIRD]
    assert [each.columns for each in read_chain(lake)] == [newest.columns] * 3
    assert places(kept) == before
    require_of_today(kept)
    assert problems(kept, topic) == []


def test_a_late_file_that_went_with_an_expired_day_is_not_missed(tmp_path: Path, topic: MemoryTopic) -> None:
    lake = tmp_path / "lake"
    run(lake, topic, FIRST, SECOND, THIRD, FOURTH)
    as_of_format(lake, 3, str(FIRST), str(SECOND), str(THIRD))
    posix = PosixLake(lake)
    with posix.lock(HOLDER):
        finish_last_run(posix, "other")
        expire(posix, read_ledger(posix), SECOND, HOLDER.since, "other", "a test")
    before = places(lake)
    assert upgraded(lake).left == {}
    assert places(lake) == before
    require_of_today(lake)
    assert problems(lake, topic) == []


def test_that_a_topic_was_compacted_once_is_known_after_an_upgrade(
    tmp_path: Path, topic: MemoryTopic
) -> None:
    lake = tmp_path / "lake"
    run(lake, topic, FIRST, SECOND, THIRD)
    for day, policy in ((FIRST, "compact"), (SECOND, "delete"), (THIRD, "delete")):
        path = lake / f"date={day}" / MANIFEST_NAME
        path.write_bytes(to_json(replace(manifest_of(lake, day), cleanup_policy=policy)))
    as_of_format(lake, 2)
    upgraded(lake)
    assert [each["cleanup_policy"] for each in manifests(lake)] == [
        "compact",
        "delete, compact before",
        "delete, compact before",
    ]


def test_long_sets_of_offsets_go_along_and_a_damaged_one_leaves_the_day(tmp_path: Path) -> None:
    lake, gapped = tmp_path / "lake", MemoryTopic(2)
    for number in range(120):
        gapped.produce(0, order(at(FIRST, 1 + number / 10)), at(FIRST, 1 + number / 10))
        gapped.marker(0, at(FIRST, 1 + number / 10))
    orders(gapped, SECOND)
    run(lake, gapped, FIRST, SECOND)
    as_of_format(lake, 3)
    path, gaps = lake / f"date={FIRST}" / LISTS_NAME, manifests(lake)[0]["gaps"]
    copy = Path(shutil.copytree(lake, tmp_path / "copy"))
    assert upgraded(lake).left == {}
    assert manifests(lake)[0]["gaps"] == gaps
    assert path.exists()
    assert problems(lake, gapped) == []
    broken(copy / f"date={FIRST}" / LISTS_NAME)
    assert list(upgraded(copy).left) == [FIRST]
    assert not list(copy.glob("_staging/*"))


def test_a_success_file_stays_and_one_is_made_where_the_config_wants_it(kept: Path) -> None:
    (kept / f"date={FIRST}" / "_SUCCESS").touch()
    upgraded(kept)
    assert [path.parent.name for path in kept.glob("date=*/_SUCCESS")] == [f"date={FIRST}"]
    shutil.rmtree(kept)
    shutil.copytree(KEPT, kept)
    upgraded(kept, success_file=True)
    assert len(list(kept.glob("date=*/_SUCCESS"))) == 3


def test_a_lake_that_is_held_is_refused(kept: Path) -> None:
    with PosixLake(kept).lock(HOLDER), pytest.raises(LakeLocked):
        upgraded(kept)


def test_an_empty_lake_has_nothing_to_upgrade(tmp_path: Path) -> None:
    assert upgraded(tmp_path / "lake") == Upgraded(left={})
    assert not (tmp_path / "lake").exists()


def test_a_late_file_that_is_two_files_is_named_each_time(kept: Path, topic: MemoryTopic) -> None:
    run(kept, topic, FOURTH)
    upgraded(kept)
    (path,) = kept.glob(f"date={SECOND}/part-late-{THIRD}-*")
    source = kept / f"date={THIRD}/_late/date={SECOND}/{path.stem}.rows"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"another")
    for _ in range(2):
        done = upgraded(kept)
        assert (done.days, list(done.left)) == ((), [THIRD])
        assert str(path) in done.left[THIRD]


def test_of_two_copies_of_a_late_file_the_upgrade_says_which_may_go(kept: Path, topic: MemoryTopic) -> None:
    """It said to build the day again, which Kafka may not hold any more."""
    run(kept, topic, FOURTH)
    upgraded(kept)
    (path,) = kept.glob(f"date={SECOND}/part-late-{THIRD}-*")
    source = kept / f"date={THIRD}/_late/date={SECOND}/{path.stem}.rows"
    source.parent.mkdir(parents=True)
    shutil.copy(path, source)
    assert f"where both are alike, {source}" in upgraded(kept).left[THIRD]
    source.unlink()
    assert upgraded(kept).left == {}
    assert problems(kept, topic) == []


def test_a_rename_that_a_dead_upgrade_left_is_told_and_made_by_a_rebuild(
    kept: Path, topic: MemoryTopic
) -> None:
    """Of a day that is not the newest no run finishes moves; its rows are read under the earlier name."""
    before = places(kept)
    run(kept, topic, FOURTH)
    upgraded(kept)
    (path,) = kept.glob(f"date={SECOND}/part-late-{THIRD}-*")
    source = kept / f"date={THIRD}/_late/date={SECOND}/{path.stem}.rows"
    source.parent.mkdir(parents=True)
    source.hardlink_to(path)
    path.rename(path.with_name(Path(earlier_name(path.name)).name))
    (problem,) = problems(kept)
    assert "run `upgrade --execute` again" in problem
    copy = Path(shutil.copytree(kept, kept.parent / "copied"))
    assert [day.date for day in upgraded(kept).days] == [THIRD]
    assert problems(kept, topic) == []
    assert before.items() <= places(kept).items()
    assert path.exists()
    shutil.rmtree(kept)
    copy.rename(kept)
    rebuild_day(pipeline(kept, topic, late=Late.AMEND), SECOND)
    assert path.exists()


# -- an upgrade that died, and what comes after it


class KilledAtTheRename(System):
    """The process dies before a late file gets its new name in its day."""

    def rename(self, old: Path, new: Path) -> None:
        if old.name.startswith("late-"):
            raise Crash("killed")
        super().rename(old, new)


def test_a_day_whose_late_file_an_upgrade_had_still_to_rename_expires_with_its_row(
    kept: Path, topic: MemoryTopic
) -> None:
    """Its file was called somebody else's; who moved it out, as advised, lost a row that nothing counted."""
    run(kept, topic, FOURTH)
    with pytest.raises(Crash):
        upgraded(kept, system=KilledAtTheRename())
    assert list(kept.glob(f"date={SECOND}/late-{THIRD}-*"))
    lake = PosixLake(kept)
    told = {day.date: day.removed for day in expiring(lake, THIRD)}
    with lake.lock(HOLDER):
        ledger, _ = finish_last_run(lake, "other")
        expire(lake, ledger, THIRD, HOLDER.since, "other", "a policy")
    expired = read_expired(lake, SECOND)
    assert expired
    assert expired.removed == told[SECOND]
    assert expired.removed.amended == 2
    assert not list(kept.glob(f"date={THIRD}/_late/date={SECOND}/*"))
    assert upgraded(kept).left == {}
    assert problems(kept) == []


def test_a_late_row_that_an_upgrade_had_still_to_rename_is_no_missing_one(kept: Path) -> None:
    """`status` counted it as not brought, though each reader saw it."""
    before = counted(kept, "date=*/*.parquet")
    with pytest.raises(Crash):
        upgraded(kept, system=KilledAtTheRename())
    assert counted(kept, "date=*/*.parquet") == before
    state = status(PosixLake(kept), FIRST, lambda ledger, day: HOLDER.since, HOLDER.since)
    assert sum(day.rows + sum(late.rows for late in day.amended) for day in state.days) == before


def test_an_upgrade_remembers_the_columns_of_a_day_that_was_built_again(
    kept: Path, topic: MemoryTopic
) -> None:
    """The newest manifest became the younger one, and went on recording the columns of before."""
    rebuild_day(pipeline(kept, topic, late=Late.AMEND), THIRD)
    more = replace(RULES, columns=(*RULES.columns, Column("extra", parse_type("string"))))
    accepting = pipeline(kept, topic, late=Late.AMEND, rules=more, accept=Accept(contract=True))
    rebuild_day(accepting, SECOND)
    assert problems(kept) == []
    assert upgraded(kept).left == {}
    assert problems(kept) == []
    assert '"extra"' in (kept / "_schema.json").read_text()


def a_copy_with_a_damaged_file(kept: Path) -> tuple[Path, Path]:
    """Return a copy, without hard links, of a lake whose upgrade died, and its waiting late file, damaged."""
    with pytest.raises(Crash):
        upgraded(kept, system=KilledAtTheRename())
    copy = Path(shutil.copytree(kept, kept.parent / "copy"))
    (source,) = copy.glob(f"date={THIRD}/_late/date={SECOND}/*")
    broken(source)
    return copy, source


def again(lake: Path, topic: MemoryTopic) -> None:
    assert upgraded(lake).left == {}


def next_day(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FOURTH + timedelta(days=1) if (lake / f"date={FOURTH}").exists() else FOURTH)


def the_day_that_received(lake: Path, topic: MemoryTopic) -> None:
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), SECOND)


@pytest.mark.parametrize(
    "newest, command",
    [
        (THIRD, again),
        (THIRD, next_day),
        (THIRD, the_day_that_received),
        (FOURTH, again),
        (FOURTH, the_day_that_received),
    ],
)
def test_a_late_file_that_lies_in_its_day_alone_under_its_earlier_name_is_renamed_there(
    kept: Path, topic: MemoryTopic, newest: date, command: Callable[[Path, MemoryTopic], None]
) -> None:
    """Of two files the one that was right had no other; once the damaged one was moved away, as advised,
    it was called gone, and its own file somebody else's."""
    if newest == FOURTH:
        run(kept, topic, FOURTH)
    before = places(kept)
    copy, source = a_copy_with_a_damaged_file(kept)
    with pytest.raises(LedgerBroken, match="two files"):
        command(copy, topic)
    source.rename(copy.parent / "aside")
    (problem,) = verify(PosixLake(copy), None, lambda *_: None, Level.RECORDS).problems
    assert "run `upgrade --execute` again" in problem
    assert counted(copy, "date=*/*.parquet") == counted(kept, "date=*/*.parquet")
    assert THIRD in [day.date for day in upgradable(PosixLake(copy))]
    command(copy, topic)
    assert before.items() <= places(copy).items()
    assert upgraded(copy).left == {}
    assert problems(copy, topic) == []


def test_a_rename_that_the_next_run_makes_is_no_problem(kept: Path) -> None:
    with pytest.raises(Crash):
        upgraded(kept, system=KilledAtTheRename())
    assert list(kept.glob(f"date={SECOND}/late-{THIRD}-*"))
    assert verify(PosixLake(kept), None, lambda *_: None, Level.RECORDS).problems == ()


def test_a_link_under_the_earlier_name_is_not_taken_for_the_late_file(kept: Path) -> None:
    """Its rows lay behind the link alone then, in somebody else's file."""
    with pytest.raises(Crash):
        upgraded(kept, system=KilledAtTheRename())
    (earlier,) = kept.glob(f"date={SECOND}/late-{THIRD}-*")
    theirs = kept.parent / "theirs.parquet"
    shutil.copy(earlier, theirs)
    earlier.unlink()
    earlier.symlink_to(theirs)
    (source,) = kept.glob(f"date={THIRD}/_late/date={SECOND}/*")
    with pytest.raises(LedgerBroken, match="two files"):
        upgraded(kept)
    assert source.exists()
    earlier.unlink()
    assert upgraded(kept).left == {}
    assert problems(kept) == []


def test_a_file_of_somebody_else_with_an_earlier_name_is_told(kept: Path) -> None:
    upgraded(kept)
    (kept / f"date={SECOND}" / f"late-{THIRD}-mine.parquet").write_bytes(b"mine")
    (problem,) = problems(kept)
    assert "no manifest names this file" in problem


def test_a_late_file_that_its_day_has_under_both_names_is_told(kept: Path) -> None:
    """A reader sees its rows twice."""
    upgraded(kept)
    (path,) = kept.glob(f"date={SECOND}/part-late-{THIRD}-*")
    shutil.copy(path, kept / earlier_name(path.relative_to(kept).as_posix()))
    (problem,) = problems(kept)
    assert "no manifest names this file" in problem
    assert upgradable(PosixLake(kept)) == ()


class KilledAfterTheExchange(System):
    """The process dies before the ledger gets the new manifest."""

    def exchange(self, first: Path, second: Path) -> None:
        super().exchange(first, second)
        if second.name.startswith("date="):
            raise Crash("killed")


def upgrade_third(lake: Path, topic: MemoryTopic) -> None:
    upgraded(lake, system=KilledAfterTheExchange())


def rebuild_third(lake: Path, topic: MemoryTopic) -> None:
    rebuild_day(pipeline(lake, topic, late=Late.AMEND, system=KilledAfterTheExchange()), THIRD)


@pytest.mark.parametrize("command", [upgrade_third, rebuild_third])
def test_a_damaged_manifest_that_was_not_entered_yet_is_no_reason_to_copy_the_one_of_other_files(
    kept: Path, topic: MemoryTopic, command: Callable[[Path, MemoryTopic], None]
) -> None:
    """The entry is of the folder that the run exchanged: copied, it named files that were not there."""
    run(kept, topic, SECOND)  # enters the days
    before = places(kept)
    with pytest.raises(Crash):
        command(kept, topic)
    broken(kept / f"date={THIRD}" / MANIFEST_NAME)
    clean(PosixLake(kept), HOLDER)
    with pytest.raises(LedgerBroken) as stopped:
        run(kept, topic, FOURTH)
    (problem,) = verify(PosixLake(kept), None, lambda *_: None, Level.FILES).problems
    for told in (str(stopped.value), problem):
        assert "`cp " not in told
        commands = re.findall(r"`(mv [^`]+)`", told)
        assert len(commands) == 2
    for line in commands:
        subprocess.run(shlex.split(line), check=True)
        clean(PosixLake(kept), HOLDER)  # between the two the day has no folder but the one in staging
    assert places(kept) == before
    assert verify(PosixLake(kept), None, lambda *_: None, Level.RECORDS).problems == ()
    assert upgraded(kept).left == {}
    clean(PosixLake(kept), HOLDER)
    assert PosixLake(kept).staged_names() == []
    assert places(kept) == before
    assert problems(kept, topic) == []


def test_late_rows_that_came_since_go_with_the_folder_that_is_put_back(
    kept: Path, topic: MemoryTopic
) -> None:
    """They stayed in the damaged folder, which is set aside in staging, where `clean` removes it."""
    run(kept, topic, SECOND)  # enters the days
    with pytest.raises(Crash):
        rebuild_day(pipeline(kept, topic, late=Late.AMEND, system=KilledAfterTheExchange()), FIRST)
    broken(kept / f"date={FIRST}" / MANIFEST_NAME)
    for partition in range(2):
        topic.produce(partition, order(at(FIRST, 5)), at(FOURTH, 3))
    run(kept, topic, FOURTH)
    before = places(kept)
    (problem,) = verify(PosixLake(kept), None, lambda *_: None, Level.FILES).problems
    for line in re.findall(r"`(mv [^`]+)`", problem):
        subprocess.run(shlex.split(line), check=True)
    clean(PosixLake(kept), HOLDER)
    assert places(kept) == before
    assert verify(PosixLake(kept), None, lambda *_: None, Level.RECORDS).problems == ()


def test_a_copy_in_staging_of_a_day_that_is_as_committed_is_removed(kept: Path, topic: MemoryTopic) -> None:
    """Whoever puts a replaced folder back by a copy has no use for the other one."""
    run(kept, topic, SECOND)  # enters the days
    shutil.copytree(kept / f"date={FIRST}", kept / "_staging" / f"{FIRST}.dead" / "day")
    clean(PosixLake(kept), HOLDER)
    assert PosixLake(kept).staged_names() == []


def test_a_day_whose_new_manifest_was_damaged_before_it_was_entered_expires(
    kept: Path, topic: MemoryTopic
) -> None:
    """Its files were called those of somebody else: the entry names those of before."""
    run(kept, topic, FOURTH)
    with pytest.raises(Crash):
        rebuild_day(pipeline(kept, topic, late=Late.AMEND, system=KilledAfterTheExchange()), FIRST)
    broken(kept / f"date={FIRST}" / MANIFEST_NAME)
    lake = PosixLake(kept)
    with lake.lock(HOLDER):
        ledger, _ = finish_last_run(lake, "other")
        assert [day.date for day in expire(lake, ledger, SECOND, HOLDER.since, "other", "a test")] == [FIRST]
    assert problems(kept) == []


@pytest.mark.parametrize("newest", [THIRD, FOURTH])
def test_a_day_of_an_older_backup_is_not_built_again_beside_its_late_files_of_today(
    kept: Path, topic: MemoryTopic, newest: date
) -> None:
    """The rebuild brought them under their earlier names once more: an earlier day had their rows twice."""
    day = THIRD
    if newest == FOURTH:
        run(kept, topic, FOURTH)
    backup = Path(shutil.copytree(kept / f"date={day}", kept.parent / "backup"))
    seen = counted(kept, "date=*/*.parquet")
    assert upgraded(kept).left == {}
    shutil.rmtree(kept / f"date={day}")
    backup.rename(kept / f"date={day}")
    with pytest.raises(VerifyFailed) as refused:
        rebuild_day(pipeline(kept, topic, late=Late.AMEND), day)
    assert counted(kept, "date=*/*.parquet") == seen
    unnamed = sorted(kept.glob(f"date=*/part-late-{day}-*"))
    assert refused.value.facts["files"] == list(map(str, unnamed))
    for file in unnamed:
        file.unlink()
    rebuild_day(pipeline(kept, topic, late=Late.AMEND), day)
    assert counted(kept, "date=*/*.parquet") == seen
