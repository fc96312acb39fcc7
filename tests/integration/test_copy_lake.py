"""`copy-lake` into real object stores and back: the folder that comes out is the one that went in."""

from __future__ import annotations

from pathlib import Path

from jobs.config import Late
from jobs.copy_lake.run import copy_lake
from jobs.daily import run_day
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from tests.support.object_servers import StoredLake
from tests.support.stored_days import EMPTY, NOW, in_a_folder, made, problems, three_days_of_records
from tests.support.three_days import FIRST, SECOND, THIRD

HOLDER = LockHolder(run_id="20260402T000000-copied", host="here", pid=1, since=NOW)


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != "_lock")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def test_a_lake_goes_into_a_bucket_and_comes_back_as_it_was(stored: StoredLake, tmp_path: Path) -> None:
    records = three_days_of_records()
    old = PosixLake(in_a_folder(tmp_path / "old", records, Late.AMEND, (FIRST, SECOND, THIRD)))
    copied = copy_lake(old, stored.lake(), HOLDER)
    assert (copied.days, copied.copied_files) == (3, copied.files)
    assert problems(stored.lake()) == ()
    assert copy_lake(old, stored.lake(), HOLDER).copied_days == 0
    run_day(made(stored.lake(), records), EMPTY)
    assert problems(stored.lake()) == ()
    there = stored.lake()
    back = PosixLake(tmp_path / "new")
    copy_lake(there, back, HOLDER)
    assert problems(back) == ()
    rebuild_day(made(back, records), SECOND)
    assert problems(back) == ()


def test_a_copy_of_a_copy_is_the_same_folder(stored: StoredLake, tmp_path: Path) -> None:
    old = in_a_folder(tmp_path / "old", three_days_of_records(), Late.AMEND, (FIRST, SECOND, THIRD))
    copy_lake(PosixLake(old), stored.lake(), HOLDER)
    copy_lake(stored.lake(), PosixLake(tmp_path / "new"), HOLDER)
    assert files(tmp_path / "new") == files(old)
