"""What dead runs left is listed, and removed only when somebody asks and nobody is at work."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from jobs.clean import clean, orphans
from jobs.daily import run_day
from jobs.storage import Lake, LockHolder
from offsets.errors import LakeLocked, StoreFailed
from tests.lake_rows import files
from tests.local_engine import desk
from tests.memory_topic import MemoryTopic

DAY = date(2026, 3, 28)
HOLDER = LockHolder(run_id="clean", host="here", pid=1, since=datetime(2026, 3, 30, tzinfo=UTC))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a committed day and what one dead run left."""
    run_day(desk(tmp_path / "lake", MemoryTopic()), DAY)
    made = Lake(tmp_path / "lake")
    folder = made.stage(DAY, "dead") / "attempts" / "7"
    folder.mkdir(parents=True)
    (folder / "00000.parquet.part").write_bytes(b"12345")
    return made


def test_orphans_are_listed_with_their_run_size_and_age_and_stay(lake: Lake) -> None:
    before = files(lake.root)
    (orphan,) = orphans(lake)
    assert (orphan.day, orphan.run_id, orphan.files, orphan.bytes) == ("2026-03-28", "dead", 1, 5)
    assert abs((datetime.now(UTC) - orphan.changed).total_seconds()) < 60
    assert files(lake.root) == before


def test_orphans_go_when_asked_and_nothing_else_does(lake: Lake) -> None:
    kept = {name for name in files(lake.root) if not name.startswith("_staging/")}
    assert [each.run_id for each in clean(lake, HOLDER)] == ["dead"]
    assert files(lake.root) == kept
    assert clean(lake, HOLDER) == []


def test_nothing_is_removed_while_a_run_is_alive(lake: Lake) -> None:
    before = files(lake.root)
    with lake.lock(HOLDER), pytest.raises(LakeLocked):
        clean(lake, HOLDER)
    assert files(lake.root) == before


def test_an_orphan_is_renamed_before_it_is_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    remove = shutil.rmtree

    def watched(folder: Path) -> None:
        seen.append(folder.name)
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", watched)
    clean(lake, HOLDER)
    assert seen == ["removed.2026-03-28.dead"]


def test_a_removal_that_was_cut_short_is_an_orphan_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError("no")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(StoreFailed, match="still there"):
            clean(lake, HOLDER)
    (left,) = orphans(lake)
    assert (left.name, left.run_id) == ("removed.2026-03-28.dead", "dead")
    clean(lake, HOLDER)
    assert orphans(lake) == []
