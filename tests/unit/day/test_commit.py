"""What a commit leaves on disk: a whole day with a manifest that tells the truth, or nothing to see."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import offsets.manifest_text
from jobs.context import RunStamp
from jobs.day.audit import Audited
from jobs.day.commit import commit
from jobs.lake.names import late_target
from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import Store, System
from offsets.errors import DayExists, StoreFailed
from offsets.manifest import Manifest
from offsets.manifest_text import from_json
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.audited import made
from tests.support.bounds import DAY, DAYS
from tests.support.lake import files
from tests.support.local_engine import Crash

STAMP = RunStamp(
    run_id="r1",
    started=datetime(2026, 3, 31, 1, tzinfo=UTC),
    audited=datetime(2026, 3, 31, 1, 30, tzinfo=UTC),
    versions={"kafka-daily": "0"},
)
NAMES = {
    f"date={DAY.date}/_manifest.json",
    f"date={DAY.date}/part-r1-00000.parquet",
    f"date={DAY.date}/part-r1-00001.parquet",
    f"date={DAY.date}/_late/date={DAYS[1].date}/part-late-{DAY.date}-r1-00002.rows",
    f"date={DAY.date}/_invalid/invalid-r1-00003.rows",
    f"_staging/{DAY.date}.r1/not-committed.parquet",
}


@pytest.fixture
def lake(tmp_path: Path) -> PosixLake:
    return PosixLake(tmp_path / "lake")


@pytest.fixture
def staged(lake: PosixLake) -> str:
    return lake.stage(DAY.date, "r1")


@pytest.fixture
def audited(lake: PosixLake, staged: str) -> Audited:
    return in_lake(made(lake.root / staged / "attempts").audit(), lake)


def in_lake(audited: Audited, lake: PosixLake) -> Audited:
    """Name the files by references, as tasks of a real lake do."""
    files = (replace(each, path=Path(each.path).relative_to(lake.root).as_posix()) for each in audited.files)
    return replace(audited, files=tuple(files))


def manifest_of(lake: PosixLake) -> Manifest:
    text = lake.manifest_text(DAY.date)
    assert text is not None
    return from_json(text, "the lake")


def test_a_committed_day_holds_its_files_its_manifest_and_nothing_else(
    lake: PosixLake, staged: str, audited: Audited
) -> None:
    manifest = commit(lake, staged, audited, STAMP, amend=True)
    assert manifest_of(lake) == manifest
    assert files(lake.root) == NAMES
    for file in manifest.files:
        text = (lake.day_folder(DAY.date) / file.path).read_bytes()
        assert (len(text), hashlib.sha256(text).hexdigest()) == (file.bytes, file.sha256)


def test_the_manifest_tells_what_was_planned_found_and_comes_next(
    lake: PosixLake, staged: str, audited: Audited
) -> None:
    manifest = commit(lake, staged, audited, STAMP, amend=True)
    plan = audited.plan
    assert (manifest.day, manifest.spans, manifest.consumed) == (plan.day, plan.spans, plan.consumed)
    assert (manifest.tally, manifest.gaps, manifest.next) == (audited.tally, audited.gaps, audited.next)
    assert (manifest.run_id, manifest.started, manifest.audited) == ("r1", STAMP.started, STAMP.audited)
    (late,) = manifest.files_of(Verdict.LATE)
    assert (late.day, late.target) == (DAYS[1].date, late_target(DAYS[1].date, late.path))
    assert late.event_time_min == late.event_time_max == DAYS[1].start
    (invalid,) = manifest.files_of(Verdict.INVALID)
    assert invalid.event_time_min is None


@pytest.mark.parametrize(
    "policy, gaps, expected",
    [
        ("delete", True, True),
        ("compact", True, None),
        ("compact,delete", True, None),
        (None, True, None),
        ("delete", False, False),
        (None, False, False),
    ],
)
def test_gaps_show_transactions_only_where_compaction_cannot_have_made_them(
    lake: PosixLake, staged: str, audited: Audited, policy: str | None, gaps: bool, expected: bool | None
) -> None:
    audited = replace(
        audited,
        plan=replace(audited.plan, cleanup_policy=policy),
        gaps=audited.gaps if gaps else tuple(replace(gap, offsets=Offsets()) for gap in audited.gaps),
    )
    assert commit(lake, staged, audited, STAMP, amend=True).transactional is expected


def test_files_are_named_in_the_order_of_their_offsets_whatever_task_was_first(
    lake: PosixLake, staged: str, audited: Audited
) -> None:
    turned = replace(audited, files=tuple(reversed(audited.files)))
    manifest = commit(lake, staged, turned, STAMP, amend=True)
    assert [file.offsets[0].partition for file in manifest.files_of(Verdict.IN_DAY)] == [0, 1]
    assert files(lake.root) == NAMES


@pytest.mark.parametrize("full", [False, True])
def test_a_folder_that_is_there_already_is_left_as_it_is(
    lake: PosixLake, staged: str, audited: Audited, full: bool
) -> None:
    lake.day_folder(DAY.date).mkdir()
    if full:
        (lake.day_folder(DAY.date) / "mine").write_bytes(b"mine")
    with pytest.raises(DayExists):
        commit(lake, staged, audited, STAMP, amend=True)
    assert [path.name for path in lake.day_folder(DAY.date).iterdir()] == (["mine"] if full else [])


STEPS = [
    (Store, "make_folder"),
    (Store, "move"),
    (offsets.manifest_text, "to_json"),
    (PosixFile, "make_durable"),
    (Store, "sync_folder"),
]
TIMES = {"make_folder": 1, "to_json": 1, "make_durable": 2}
"""How often a commit takes such a step; the others more often than is tried."""


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("where, step", STEPS)
def test_a_crash_before_the_rename_leaves_nothing_to_see(
    lake: PosixLake,
    staged: str,
    audited: Audited,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    step: str,
    nth: int,
) -> None:
    done: Callable[..., Any] = getattr(where, step)
    calls = 0

    def crashing(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise Crash
        return done(*args, **named)

    monkeypatch.setattr(where, step, crashing)
    if nth > TIMES.get(step, nth):
        commit(lake, staged, audited, STAMP, amend=True)
        assert calls == TIMES[step]
        return
    with pytest.raises(Crash):
        commit(lake, staged, audited, STAMP, amend=True)
    assert lake.days() == []
    assert not list(lake.root.glob("date=*"))
    assert [f"_staging/{each.name}" for each in lake.orphans()] == [staged]


def test_a_sync_that_fails_after_the_rename_is_told_and_the_day_is_there(
    lake: PosixLake, staged: str, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is known to the disk alone: the rerun finds the day, and syncs again."""

    def failing(self: Store, folder: Path) -> None:
        raise StoreFailed(expected=f"to sync {folder}", found="EIO", do="Look at the disk.")

    sync = Store.sync_folder

    def failing_at_last(self: Store, folder: Path) -> None:
        (failing if folder == lake.root and lake.days() else sync)(self, folder)

    monkeypatch.setattr(Store, "sync_folder", failing_at_last)
    with pytest.raises(StoreFailed):
        commit(lake, staged, audited, STAMP, amend=True)
    assert files(lake.root) == NAMES


def test_late_files_that_are_set_aside_have_no_target(lake: PosixLake, staged: str, audited: Audited) -> None:
    manifest = commit(lake, staged, audited, STAMP, amend=False)
    assert {file.target for file in manifest.files} == {None}


def test_every_name_is_durable_before_the_rename_and_the_lakes_folder_after_it(
    lake: PosixLake, staged: str, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the bottom up, the manifest's contents before its name; only then the one rename."""
    story: list[str] = []
    rename = os.rename

    def renamed(source: Path, target: Path) -> None:
        story.append(f"rename {source.relative_to(lake.root)}")
        rename(source, target)

    def synced(file: int) -> None:
        story.append(os.path.relpath(str(Path(f"/proc/self/fd/{file}").readlink()), lake.root))

    monkeypatch.setattr(System, "rename", staticmethod(renamed))
    monkeypatch.setattr(System, "fsync", staticmethod(synced))
    commit(lake, staged, audited, STAMP, amend=True)
    day = f"_staging/{DAY.date}.r1/day"
    moves = [number for number, each in enumerate(story) if each.startswith(f"rename {day[:-4]}/attempts")]
    assert len(moves) == 4
    assert max(moves) < story.index(f"{day}/_manifest.json")
    tail = story[story.index(f"{day}/_manifest.json") :]
    assert tail[-3:] == [day, f"rename {day}", "."]
    assert set(tail[1:-3]) == {f"{day}/_invalid", f"{day}/_late", f"{day}/_late/date={DAYS[1].date}"}
    assert tail.index(f"{day}/_late/date={DAYS[1].date}") < tail.index(f"{day}/_late")
