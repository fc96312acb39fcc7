"""The store: one writer, names that are whole or absent, and every refusal told with its reason."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.lake.port import DayContents, LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import Store, System
from offsets.errors import DayExists, LakeLocked, StoreFailed
from tests.support.unprivileged import folder_of_nobody, unprivileged

DAY = date(2026, 3, 28)
HOLDER = LockHolder(run_id="r1", host="here", pid=42, since=datetime(2026, 3, 29, 1, 2, 3, tzinfo=UTC))
REFUSALS = [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO]


@pytest.fixture
def lake(tmp_path: Path) -> PosixLake:
    return PosixLake(tmp_path / "lakes" / "orders")


def new_file(path: Path) -> PosixFile:
    return PosixFile(path, path.name, System())


def staged_file(lake: PosixLake) -> tuple[str, DayContents]:
    """Stage a file, and return its staging and what a day of it holds."""
    staged = lake.stage(DAY, "r1")
    file = lake.create_file(f"{staged}/new.part")
    file.write(b"new")
    file.make_durable()
    return staged, DayContents(moved={"new": file.ref}, shared={}, texts={})


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*args: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


# -- the lock


def test_a_second_taker_is_told_who_holds_the_lake_and_since_when(lake: PosixLake) -> None:
    with lake.lock(HOLDER):
        assert lake.lock_holder() == HOLDER
        with pytest.raises(LakeLocked) as stopped, PosixLake(lake.root).lock(HOLDER):
            pass
        assert "run r1 (pid 42 on here) since 2026-03-29T01:02:03Z" in str(stopped.value)
    assert lake.lock_holder() is None
    with lake.lock(HOLDER):
        pass


def test_a_lock_that_is_being_taken_has_no_text_yet(lake: PosixLake) -> None:
    with lake.lock(HOLDER):
        (lake.root / "_lock").write_bytes(b"")
        with pytest.raises(LakeLocked, match="just starting"), lake.lock(HOLDER):
            pass


def test_a_run_that_stopped_in_order_leaves_no_holder_behind(lake: PosixLake) -> None:
    with pytest.raises(DayExists), lake.lock(HOLDER):
        raise DayExists(expected="", found="", do="")
    assert lake.lock_holder() is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"run_id":"a"}', b"null", b"\xff", b'{"since":1}']
)
def test_a_lock_file_without_sense_names_nobody(lake: PosixLake, text: bytes) -> None:
    lake.root.mkdir(parents=True)
    (lake.root / "_lock").write_bytes(text)
    assert lake.lock_holder() is None


def test_a_longer_text_of_an_older_holder_leaves_no_trace(lake: PosixLake) -> None:
    lake.root.mkdir(parents=True)
    (lake.root / "_lock").write_bytes(b"x" * 500)
    with lake.lock(HOLDER):
        assert json.loads((lake.root / "_lock").read_bytes())["pid"] == 42


HOLD = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from jobs.lake.posix import PosixLake, LockHolder
holder = LockHolder(run_id="child", host="here", pid=7, since=datetime.now(UTC))
with PosixLake(Path(sys.argv[1])).lock(holder):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_dead_holder_frees_the_lake_and_its_text_stays_as_a_trace(lake: PosixLake) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, lake.root], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LakeLocked, match="run child"), lake.lock(HOLDER):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        left = lake.lock_holder()
        assert left is not None
        assert left.run_id == "child"
        with lake.lock(HOLDER):
            assert lake.lock_holder() == HOLDER
    finally:
        child.kill()
        child.wait()
        child.communicate()


def test_a_child_that_outlives_its_parent_does_not_hold_the_lake(lake: PosixLake) -> None:
    """Spark's JVM is such a child: the lock must not be inherited."""
    with lake.lock(HOLDER):
        sleeper = subprocess.Popen(
            ["sh", "-c", "echo up; exec sleep 60"], close_fds=False, stdout=subprocess.PIPE
        )
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == b"up\n"
    try:
        with lake.lock(HOLDER):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()
        sleeper.stdout.close()


def test_a_file_system_without_locks_is_told(lake: PosixLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", refusing(errno.ENOLCK))
    with pytest.raises(StoreFailed, match="ENOLCK"), lake.lock(HOLDER):
        pass


def test_a_new_lakes_own_name_is_made_durable(lake: PosixLake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        System, "fsync", lambda _, file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    with lake.lock(HOLDER):
        pass
    assert {str(lake.root.parent), str(lake.root.parent.parent)} <= set(synced)


@pytest.mark.parametrize("there", [False, True])
def test_a_relative_path_makes_the_same_names_durable(
    there: bool, lake: PosixLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder that a relative path begins in has no parent in that path."""
    (tmp_path / "lakes").mkdir()
    if there:
        lake.root.mkdir()
    monkeypatch.chdir(tmp_path / "lakes")
    synced: list[Path] = []
    monkeypatch.setattr(
        System, "fsync", lambda _, file: synced.append(Path(f"/proc/self/fd/{file}").readlink())
    )
    with PosixLake(Path("orders")).lock(HOLDER):
        assert lake.lock_holder() == HOLDER
    above = [tmp_path / "lakes"] if there else [tmp_path, tmp_path / "lakes", tmp_path / "lakes"]
    assert synced == [*above, lake.root]


def test_a_task_gets_the_whole_path_of_a_lake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.loads(pickle.dumps(PosixLake(Path("lake"))))
    assert sent.place("x") == str(tmp_path / "lake" / "x")


@pytest.mark.parametrize("mode", [0o100, 0o300, 0o500, 0o700])
def test_a_lake_that_is_there_needs_no_right_to_list_a_parent_where_this_user_makes_no_folder(
    mode: int,
) -> None:
    """The sync of a parent that may be passed alone ended each run, though nothing in it was ours."""
    with folder_of_nobody() as work, unprivileged():
        lake = PosixLake(work / "parent" / "lake")
        lake.root.mkdir(parents=True)
        lake.root.parent.chmod(mode)
        if mode == 0o300:  # this user may have made the lake's folder, in a run that was killed
            with (
                pytest.raises(StoreFailed, match=r"sync .*parent; found .* the right to read"),
                lake.lock(HOLDER),
            ):
                pass
            lake.root.parent.chmod(0o700)
        with lake.lock(HOLDER):
            assert lake.lock_holder() == HOLDER
        lake.root.parent.chmod(0o300)
        with lake.lock(HOLDER):
            assert lake.lock_holder() == HOLDER


def test_a_new_lake_needs_no_right_to_list_what_lies_above_the_folder_that_it_is_made_in() -> None:
    with folder_of_nobody() as work, unprivileged():
        (work / "outer" / "parent").mkdir(parents=True)
        (work / "outer").chmod(0o100)
        lake = PosixLake(work / "outer" / "parent" / "lakes" / "orders")
        with lake.lock(HOLDER):
            assert lake.lock_holder() == HOLDER


def test_no_folder_is_made_in_a_parent_that_cannot_be_synced() -> None:
    """It was left there, and a power loss could take it with the lake in it."""
    with folder_of_nobody() as work, unprivileged():
        parent = work / "outer" / "parent"
        parent.mkdir(parents=True)
        parent.chmod(0o300)
        lake = PosixLake(parent / "lakes" / "orders")
        with (
            pytest.raises(StoreFailed, match=r"sync .*parent; found .* the right to read"),
            lake.lock(HOLDER),
        ):
            pass
        parent.chmod(0o700)
        assert list(parent.iterdir()) == []
        with lake.lock(HOLDER):
            assert lake.lock_holder() == HOLDER


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_keeps_its_text(lake: PosixLake) -> None:
    lake.root.mkdir(parents=True)
    other = lake.root.parent / "other"
    other.write_bytes(b"somebody's")
    (lake.root / "_lock").symlink_to(other)
    with pytest.raises(StoreFailed, match=r"_lock to be .* a symbolic link"), lake.lock(HOLDER):
        pass
    assert other.read_bytes() == b"somebody's"


def test_a_lakes_own_folder_may_be_a_link(lake: PosixLake, tmp_path: Path) -> None:
    lake.root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(lake.root)
    by_link = PosixLake(tmp_path / "link")
    with by_link.lock(HOLDER), pytest.raises(LakeLocked), lake.lock(HOLDER):
        pass
    by_link.discard(by_link.stage(DAY, "r1"))
    assert lake.orphans() == []


# -- days


def test_days_are_the_folders_of_dates_and_nothing_else(lake: PosixLake) -> None:
    assert lake.days() == []
    for name in (
        "date=2026-03-29",
        "date=2026-03-28",
        "date=20260327",
        "date=2026-W13-1",
        "date=x",
        "_staging",
        "2026-03-26",
    ):
        (lake.root / name).mkdir(parents=True)
    assert lake.days() == [DAY, date(2026, 3, 29)]


def test_a_manifest_is_given_as_it_lies_there_or_not_at_all(lake: PosixLake) -> None:
    assert lake.manifest_text(DAY) is None
    lake.day_folder(DAY).mkdir(parents=True)
    assert lake.manifest_text(DAY) is None
    Path(lake.manifest_place(DAY)).write_bytes(b"text")
    assert lake.manifest_text(DAY) == b"text"


@pytest.mark.parametrize("which", ["folder", "manifest"])
def test_a_day_behind_a_link_is_refused(lake: PosixLake, tmp_path: Path, which: str) -> None:
    folder, away = lake.day_folder(DAY), tmp_path / "away"
    folder.mkdir(parents=True)
    place = Path(lake.manifest_place(DAY))
    place.write_bytes(b"text")
    moved = folder if which == "folder" else place
    moved.rename(away)
    moved.symlink_to(away)
    with pytest.raises(StoreFailed, match=r"symbolic link.* put what it leads to in its place"):
        lake.manifest_text(DAY)
    moved.unlink()
    away.rename(moved)
    assert lake.manifest_text(DAY) == b"text"


def test_a_late_file_is_not_brought_behind_a_link(lake: PosixLake, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    lake.root.mkdir(parents=True)
    lake.day_folder(DAY).symlink_to(tmp_path / "away")
    late = lake.root / "late"
    late.write_bytes(b"rows")
    with pytest.raises(StoreFailed, match="symbolic link"):
        lake.bring("late", f"date={DAY}/late")
    assert late.exists()
    assert list((tmp_path / "away").iterdir()) == []


def test_a_file_in_the_place_of_a_day_is_no_manifest(lake: PosixLake) -> None:
    lake.root.mkdir(parents=True)
    lake.day_folder(DAY).write_bytes(b"")
    assert lake.days() == [DAY]
    assert lake.manifest_text(DAY) is None


@pytest.mark.parametrize("make", ["empty", "full", "file", "dangling link"])
def test_whatever_is_there_already_is_never_replaced(lake: PosixLake, make: str) -> None:
    staged, new = staged_file(lake)
    target = lake.day_folder(DAY)
    match make:
        case "empty":
            target.mkdir()
        case "full":
            target.mkdir()
            (target / "mine").write_bytes(b"mine")
        case "file":
            target.write_bytes(b"mine")
        case _:
            target.symlink_to("nowhere")
    with pytest.raises(DayExists):
        lake.commit(staged, DAY, new)
    assert (lake.root / staged / "day/new").exists()
    assert not (target / "new").exists()


def test_a_published_day_is_there_whole_and_readable_by_others(lake: PosixLake) -> None:
    before = os.umask(0o022)
    try:
        staged, new = staged_file(lake)
        lake.commit(staged, DAY, new)
    finally:
        os.umask(before)
    assert (lake.day_folder(DAY) / "new").read_bytes() == b"new"
    assert lake.day_folder(DAY).stat().st_mode & 0o777 == 0o755
    assert not (lake.root / staged / "day").exists()


# -- staging


def test_only_a_runs_own_staging_is_ever_removed(lake: PosixLake) -> None:
    mine, other = lake.stage(DAY, "mine"), lake.stage(DAY, "other")
    assert [each.run_id for each in lake.orphans()] == ["mine", "other"]
    lake.discard(mine)
    assert [each.run_id for each in lake.orphans()] == ["other"]
    for wrong in ("", f"date={DAY}", f"{other}/deeper", "_staging"):
        with pytest.raises(ValueError, match="no staging folder"):
            lake.discard(wrong)
    lake.discard(other)
    assert lake.orphans() == []
    assert not (lake.root / "_staging").exists()


# -- refusals


@pytest.mark.parametrize("number", REFUSALS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", ["mkdir", "rename", "open", "fsync", "write", "scandir"])
def test_every_refusal_says_what_was_tried_and_what_to_do(
    lake: PosixLake, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    lake.root.mkdir(parents=True)
    (lake.root / "file").write_bytes(b"")
    new, store = new_file(lake.root / "new"), Store()
    steps: dict[str, tuple[object, str, Callable[[], object]]] = {
        "mkdir": (System, "mkdir", lambda: store.make_folder(lake.root / "folder")),
        "rename": (System, "rename", lambda: store.move(lake.root / "file", lake.root / "moved")),
        "open": (System, "open", lambda: new_file(lake.root / "other")),
        "fsync": (System, "fsync", lambda: store.sync_folder(lake.root)),
        "write": (System, "write", lambda: new.write(b"text")),
        "scandir": (os, "scandir", lake.days),
    }
    owner, name, step = steps[call]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, refusing(number))
        with pytest.raises(StoreFailed) as stopped:
            step()
    assert errno.errorcode[number] in str(stopped.value)
    assert str(lake.root) in stopped.value.expected
    assert stopped.value.exit_code == 27


def test_a_task_that_may_not_look_into_its_runs_staging_is_told_what_to_do() -> None:
    """It died of a bare PermissionError, which a run took for a failure of Spark: run again later."""
    with folder_of_nobody() as folder, unprivileged():
        lake = PosixLake(folder / "lake")
        staged = lake.stage(DAY, "r1")
        Path(lake.place(staged)).chmod(0)
        with pytest.raises(StoreFailed, match="Give this user the right"):
            lake.begin_attempt(f"{staged}/attempts/1")


def test_a_sync_of_a_file_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new_file(tmp_path / "new")
    file.write(b"text")
    monkeypatch.setattr(System, "fsync", refusing(errno.EIO))
    with pytest.raises(StoreFailed, match="EIO"):
        file.make_durable()


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = new_file(tmp_path / "new")
    write = os.write
    monkeypatch.setattr(System, "write", lambda _, file, data: write(file, data[:3]))
    assert file.write(b"0123456789") == 10
    assert file.tell() == file.size == 10
    file.make_durable()
    assert (tmp_path / "new").read_bytes() == b"0123456789"


def test_above_a_lake_that_is_mounted_nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below autofs no day could ever be run: the folder above the mount refuses it (EINVAL)."""
    mounted, synced = Path("/proc"), list[Path]()
    assert mounted.is_mount()
    monkeypatch.setattr(Store, "sync_folder", lambda _, folder: synced.append(folder))
    PosixLake(mounted)._make_root()
    assert synced == []
