"""What dead runs left is listed, and removed only when somebody asks and nobody is at work."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cli import tables
from jobs.config import Late
from jobs.daily import run_day
from jobs.day.execute import staging
from jobs.lake.clean import clean, orphans
from jobs.lake.names import STAGED_DAY
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store, System
from offsets.errors import AuditFailed, LakeLocked, StoreFailed
from tests.support.lake import files
from tests.support.lake_to_read import a_lake_to_read
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic

DAY = date(2026, 3, 28)
HOLDER = LockHolder(run_id="clean", host="here", pid=1, since=datetime(2026, 3, 30, tzinfo=UTC))


@pytest.fixture
def lake(tmp_path: Path) -> PosixLake:
    """A lake with a committed day and what one dead run left."""
    run_day(pipeline(tmp_path / "lake", MemoryTopic()), DAY)
    made = PosixLake(tmp_path / "lake")
    folder = made.root / made.stage(DAY, "dead") / "attempts" / "7"
    folder.mkdir(parents=True)
    (folder / "00000.parquet.part").write_bytes(b"12345")
    return made


def test_orphans_are_listed_with_their_run_size_and_age_and_stay(lake: PosixLake) -> None:
    before = files(lake.root)
    (orphan,) = orphans(lake)
    assert (orphan.day, orphan.run_id, orphan.files, orphan.bytes) == ("2026-03-28", "dead", 1, 5)
    assert abs((datetime.now(UTC) - orphan.changed).total_seconds()) < 60
    assert files(lake.root) == before


@pytest.mark.parametrize(
    "run_id, host, pid, live",
    [
        ("dead", socket.gethostname(), os.getpid(), True),
        ("dead", socket.gethostname(), (1 << 22) + 1, False),
        ("dead", "elsewhere", 1, None),
        ("another", socket.gethostname(), os.getpid(), False),
    ],
    ids=["at work", "dead", "on another host", "of another run"],
)
def test_the_folder_of_a_run_that_is_at_work_is_marked(
    lake: PosixLake, run_id: str, host: str, pid: int, live: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was listed as one that a dead run had left, with the advice to remove it."""
    with lake.lock(LockHolder(run_id=run_id, host=host, pid=pid, since=HOLDER.since)):
        (orphan,) = orphans(lake)
    assert orphan.live is live
    tables.orphans([orphan], datetime.now(UTC), removed=False)
    text = capsys.readouterr().out
    assert ("orphan" in text.splitlines()[1]) is (live is not True)
    assert ("`clean --execute` removes it" in text) is (live is False)


def test_an_orphan_takes_what_all_its_files_take(lake: PosixLake) -> None:
    for name, size in (("attempts/7/00001.parquet.part", 7), ("day/_manifest.json", 11)):
        path = lake.root / "_staging" / f"{DAY}.dead" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
    (orphan,) = orphans(lake)
    assert (orphan.files, orphan.bytes) == (3, 5 + 7 + 11)


def test_orphans_go_when_asked_and_nothing_else_does(lake: PosixLake) -> None:
    kept = {name for name in files(lake.root) if not name.startswith("_staging/")}
    assert [each.run_id for each in clean(lake, HOLDER)] == ["dead"]
    assert files(lake.root) == kept
    assert clean(lake, HOLDER) == []


def test_nothing_is_removed_while_a_run_is_alive(lake: PosixLake) -> None:
    before = files(lake.root)
    with lake.lock(HOLDER), pytest.raises(LakeLocked):
        clean(lake, HOLDER)
    assert files(lake.root) == before


def test_a_day_that_is_not_committed_goes_before_the_barrier_beside_it(tmp_path: Path) -> None:
    """A reader of `**/*.parquet` could count its rows between the two."""

    class Watched(System):
        def rmtree(self, path: Path) -> None:
            super().rmtree(path)
            if path.name == STAGED_DAY:
                left.extend(sorted(each.name for each in path.parent.iterdir()))

    left: list[str] = []
    a_lake_to_read(tmp_path / "lake", unfinished=True)
    assert clean(PosixLake(tmp_path / "lake", Store(Watched())), HOLDER)
    assert "not-committed.parquet" in left
    assert not list((tmp_path / "lake").glob("_staging/**/*"))


def test_an_orphan_is_renamed_before_it_is_deleted(lake: PosixLake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    remove = shutil.rmtree

    def watched(folder: Path) -> None:
        seen.append(folder.name)
        remove(folder)

    monkeypatch.setattr(System, "rmtree", staticmethod(watched))
    clean(lake, HOLDER)
    assert seen == ["removed.2026-03-28.dead"]


def test_a_removal_that_was_cut_short_is_an_orphan_too(
    lake: PosixLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError("no")

    with monkeypatch.context() as patched:
        patched.setattr(System, "rmtree", staticmethod(refuse))
        with pytest.raises(StoreFailed, match="still there"):
            clean(lake, HOLDER)
    (left,) = orphans(lake)
    assert (left.name, left.run_id) == ("removed.2026-03-28.dead", "dead")
    clean(lake, HOLDER)
    assert orphans(lake) == []


# -- what is no folder of this lake, and what goes away meanwhile


def test_staging_that_is_a_link_into_another_lake_is_refused_and_nothing_there_is_touched(
    lake: PosixLake, tmp_path: Path
) -> None:
    before, mine = files(lake.root), PosixLake(tmp_path / "mine")
    mine.root.mkdir()
    (mine.root / "_staging").symlink_to("../lake")
    for ask in (
        lambda: clean(mine, HOLDER),
        lambda: orphans(mine),
        lambda: mine.stage(DAY, "run"),
        lambda: mine.discard(f"_staging/date={DAY}"),
        lambda: run_day(pipeline(mine.root, MemoryTopic()), DAY),
    ):
        with pytest.raises(
            StoreFailed, match=r"_staging to be .* a symbolic link to ../lake.* Remove the link"
        ):
            ask()
    assert files(lake.root) == before
    (mine.root / "_staging").unlink()
    run_day(pipeline(mine.root, MemoryTopic()), DAY)


def test_links_and_files_below_staging_are_listed_and_removed_as_what_they_are(
    lake: PosixLake, tmp_path: Path
) -> None:
    day = lake.day_folder(DAY)
    kept = files(day)
    staging = lake.root / "_staging"
    (staging / "a_link").symlink_to(day)
    (staging / "a_file").write_bytes(b"x")
    (staging / "dangling").symlink_to("nowhere")
    (staging / f"{DAY}.dead" / "inner").symlink_to(day)
    sizes = {each.name: (each.files, each.bytes) for each in orphans(lake)}
    assert sizes == {f"{DAY}.dead": (1, 5), "a_file": (0, 0), "a_link": (0, 0), "dangling": (0, 0)}
    clean(lake, HOLDER)
    assert not staging.exists()
    assert files(day) == kept


def test_what_a_run_removes_while_it_is_listed_is_no_orphan(
    lake: PosixLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def ends_meanwhile(self: Path) -> Iterator[Path]:
        found = list(listed(self))
        if self == lake.root / "_staging":
            shutil.rmtree(self)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", ends_meanwhile)
    assert orphans(lake) == []


def test_only_orphans_of_an_age_go_where_one_is_named(lake: PosixLake) -> None:
    old = lake.stage(DAY, "old")
    then = datetime(2026, 3, 1, tzinfo=UTC)
    os.utime(lake.root / old, (then.timestamp(), then.timestamp()))
    since = then + timedelta(days=1)
    assert [each.run_id for each in orphans(lake, since)] == ["old"]
    assert [each.run_id for each in clean(lake, HOLDER, since)] == ["old"]
    assert [each.run_id for each in orphans(lake)] == ["dead"]
    assert clean(lake, HOLDER, since) == []


def test_an_orphan_of_a_lake_that_amends_does_not_grow_young_with_each_run(tmp_path: Path) -> None:
    """Its probe for links is a name of the lock, which every run writes, and `clean` too."""
    lake = PosixLake(tmp_path / "lake")
    work = pipeline(lake.root, MemoryTopic(), late=Late.AMEND)
    with work.lock_lake(), suppress(AuditFailed), staging(work, DAY) as left:
        raise AuditFailed(expected="", found="", do="")
    then = datetime(2026, 3, 1, tzinfo=UTC)
    for path in (lake.root / left, *(lake.root / left).iterdir()):
        os.utime(path, (then.timestamp(), then.timestamp()))
    run_day(pipeline(lake.root, MemoryTopic(), late=Late.AMEND), DAY)
    assert [each.run_id for each in clean(lake, HOLDER, then + timedelta(days=1))] == [work.run_id]
    assert orphans(lake) == []


def test_what_came_into_staging_by_a_rename_is_as_young_as_its_place(lake: PosixLake) -> None:
    """The old day of a rebuild has old files, and what somebody else put there waits for a person."""
    (path,) = (lake.root / "_staging").rglob("*.part")
    os.utime(path, (0, 0))
    assert clean(lake, HOLDER, datetime.now(UTC) - timedelta(days=1)) == []
    assert path.exists()


def test_a_second_removal_of_one_run_is_not_stopped_by_what_the_first_one_left(lake: PosixLake) -> None:
    for name in (f"{DAY}.dead", f"removed.{DAY}.dead"):
        (lake.root / "_staging" / name).mkdir(exist_ok=True)
        (lake.root / "_staging" / name / "file").write_bytes(b"x")
    clean(lake, HOLDER)
    assert orphans(lake) == []


@pytest.mark.parametrize("place", ["00000.parquet.part", "2026-03-28.dead"])
def test_a_folder_that_can_be_listed_and_not_passed_is_the_stores_refusal(
    lake: PosixLake, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The tests may run as root, whom no mode stops: so the call fails as it does for others."""
    lstat = Path.lstat

    def refusing(self: Path) -> os.stat_result:
        if self.name == place:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return lstat(self)

    monkeypatch.setattr(Path, "lstat", refusing)
    with pytest.raises(StoreFailed, match="EACCES"):
        orphans(lake)
    with pytest.raises(StoreFailed, match="EACCES"):
        clean(lake, HOLDER)


def test_names_in_staging_are_shown_as_they_are(lake: PosixLake, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["2026-03-28.[red]", "[bold].[", "[.[x]"]
    for name in names:
        (lake.root / "_staging" / name).mkdir()
    tables.orphans(orphans(lake), datetime.now(UTC), removed=False)
    shown = capsys.readouterr().out
    assert all(part in shown for name in names for part in name.split("."))
