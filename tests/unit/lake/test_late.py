"""Late rows reach the day that they belong to, once, whatever was done before, and over no other file."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.day.plan import make_plan
from jobs.lake.late import finish_moves, has_unfinished_moves, late_moves
from jobs.lake.names import earlier_name
from jobs.lake.posix import PosixLake
from jobs.lake.status import amendments
from jobs.lake.store import System
from offsets.commit_log import read_ledger
from offsets.days import midnight
from offsets.errors import LedgerBroken, NotPublished, StoreFailed
from offsets.manifest import Manifest
from offsets.verdict import Verdict
from tests.reference import Fate, Place
from tests.support.lake import files, places
from tests.support.local_engine import ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic

FIRST, SECOND, THIRD = (date(2026, 3, day) for day in (28, 29, 30))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def topic() -> MemoryTopic:
    """Two orders a day; on the third, one late order for each of the days before."""
    topic = MemoryTopic()
    for day in (FIRST, SECOND, THIRD):
        for hours in (2, 4):
            when = midnight(day, ZONE) + timedelta(hours=hours)
            topic.produce(0, order(when), when)
    for day in (FIRST, SECOND):
        topic.produce(0, order(midnight(day, ZONE)), midnight(THIRD, ZONE) + timedelta(hours=5))
    return topic


def run(lake: Path, topic: MemoryTopic, *days: date, late: Late = Late.AMEND) -> Manifest:
    for day in days or (FIRST, SECOND, THIRD):
        manifest = run_day(pipeline(lake, topic, late=late), day).manifest
    return manifest


def unmoved(lake: Path, topic: MemoryTopic) -> Manifest:
    """Commit all days, and die before the late rows of the last are moved."""
    run(lake, topic, FIRST, SECOND)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PosixLake, "bring", lambda *_: False)
        return run(lake, topic, THIRD)


def amended(day: date) -> Place:
    """Give the place of a late row that the run of the third day brought home."""
    return Place(Fate.AMENDED, THIRD, day)


def test_a_late_row_lies_in_its_own_day_once(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST, SECOND)
    outcome = run_day(pipeline(lake, topic, late=Late.AMEND), THIRD)
    assert outcome.amended == {FIRST: 1, SECOND: 1}
    found = places(lake)
    assert (found[0, 6], found[0, 7]) == (amended(FIRST), amended(SECOND))
    assert sorted(name for name in files(lake) if "late-" in name) == sorted(
        file.target or "" for file in outcome.manifest.files_of(Verdict.LATE)
    )
    assert run_day(pipeline(lake, topic, late=Late.AMEND), THIRD).amended == {}


def test_amended_rows_are_counted_over_all_files_of_a_day(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST, SECOND)
    for minute in range(20):
        topic.produce(
            0, order(midnight(FIRST, ZONE)), midnight(THIRD, ZONE) + timedelta(hours=6, minutes=minute)
        )
    engine = LocalEngine(topic, least_tasks=3)
    outcome = run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine, min_file_size=1), THIRD)
    late = [file for file in outcome.manifest.files_of(Verdict.LATE) if file.day == FIRST]
    assert len(late) > 1
    assert max(file.rows for file in late) > 1
    assert outcome.amended == {FIRST: 21, SECOND: 1}
    assert [(each.by, each.rows) for each in amendments([outcome.manifest])[FIRST]] == [(THIRD, 21)]


@pytest.mark.parametrize("cut_short", [False, True])
def test_no_empty_folder_stays_where_late_files_lay(lake: Path, topic: MemoryTopic, cut_short: bool) -> None:
    """Each night left `_late/date=D/` behind in its day, empty."""
    manifest = unmoved(lake, topic)
    assert list(lake.glob("date=*/_late/*/*"))
    if cut_short:
        for _, source, target in late_moves(manifest):
            os.link(lake / source, lake / target)
            (lake / source).unlink()
    finish_moves(PosixLake(lake), manifest)
    assert not list(lake.glob("date=*/_late"))


@pytest.mark.parametrize("did", ["link", "unlink", "nothing"])
def test_a_move_that_was_cut_short_is_finished_by_the_next_run(
    lake: Path, topic: MemoryTopic, did: str
) -> None:
    manifest = unmoved(lake, topic)
    (_, source, target), *_ = late_moves(manifest)
    if did != "nothing":
        os.link(lake / source, lake / target)
    if did == "unlink":
        (lake / source).unlink()
    assert has_unfinished_moves(PosixLake(lake), manifest)
    engine = LocalEngine(topic)
    again = run_day(pipeline(lake, topic, late=Late.SET_ASIDE, engine=engine), THIRD)
    assert (again.already, engine.jobs) == (True, 0)
    assert not has_unfinished_moves(PosixLake(lake), manifest)
    assert [places(lake)[0, offset] for offset in (6, 7)] == [amended(FIRST), amended(SECOND)]


def test_moves_are_finished_before_the_next_day_is_planned(lake: Path, topic: MemoryTopic) -> None:
    unmoved(lake, topic)
    asked = topic.asked.copy()
    topic.before = lambda question: _no_late_rows(lake)
    outcome = run_day(pipeline(lake, topic, late=Late.AMEND), THIRD + timedelta(days=1))
    assert len(topic.asked) > len(asked)
    assert outcome.amended == {FIRST: 1, SECOND: 1}


def _no_late_rows(lake: Path) -> None:
    assert not list(lake.glob("date=*/_late/**/*.rows"))


def under_earlier_names(lake: Path, manifest: Manifest, copied: bool) -> list[Path]:
    """Put the late files that wait into their days under earlier names too, as an upgrade leaves them."""
    paths = []
    for _, source, target in late_moves(manifest):
        paths.append(lake / earlier_name(target))
        if copied:
            shutil.copy(lake / source, paths[-1])
        else:
            paths[-1].hardlink_to(lake / source)
    return paths


@pytest.mark.parametrize("copied", [False, True], ids=["links", "a copy of the lake"])
def test_a_late_file_that_its_day_has_under_its_earlier_name_is_renamed_there(
    lake: Path, topic: MemoryTopic, copied: bool
) -> None:
    """A link beside it would show its rows twice, and they did not come just now."""
    newest = unmoved(lake, topic)
    earlier = under_earlier_names(lake, newest, copied)
    assert run_day(pipeline(lake, topic, late=Late.AMEND), THIRD).amended == {}
    assert not [path for path in earlier if path.exists()]
    found = places(lake)
    assert (found[0, 6], found[0, 7]) == (amended(FIRST), amended(SECOND))
    assert not has_unfinished_moves(PosixLake(lake), newest)


def test_another_file_under_the_earlier_name_stops_the_move_and_the_advice_works(
    lake: Path, topic: MemoryTopic
) -> None:
    newest = unmoved(lake, topic)
    earlier, _ = under_earlier_names(lake, newest, copied=True)
    earlier.write_bytes(b"another")
    with pytest.raises(LedgerBroken, match="two files") as stopped:
        finish_moves(PosixLake(lake), newest)
    assert str(earlier) in str(stopped.value)
    earlier.rename(lake.parent / "aside")
    finish_moves(PosixLake(lake), newest)
    assert places(lake)[0, 6] == amended(FIRST)


@pytest.mark.parametrize("found", ["neither", "two files"])
def test_a_late_file_that_somebody_changed_stops_the_run(lake: Path, topic: MemoryTopic, found: str) -> None:
    manifest = unmoved(lake, topic)
    (_, source, target), *_ = late_moves(manifest)
    if found == "neither":
        (lake / source).unlink()
    else:
        shutil.copy(lake / source, lake / target)
    with pytest.raises(LedgerBroken, match=found):
        run(lake, topic, THIRD + timedelta(days=1))


def test_a_store_that_refuses_a_move_leaves_the_day_committed(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, topic, FIRST, SECOND)

    def refuse(self: PosixLake, source: str, target: str) -> bool:
        raise StoreFailed(expected="to amend", found="EIO", do="Look.")

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "bring", refuse)
        with pytest.raises(NotPublished, match="The day is committed"):
            run(lake, topic, THIRD)
    assert not (lake / "_staging").exists()
    assert run_day(pipeline(lake, topic, late=Late.AMEND), THIRD).amended == {FIRST: 1, SECOND: 1}


def test_late_rows_that_were_set_aside_stay_whatever_the_config_says_later(
    lake: Path, topic: MemoryTopic
) -> None:
    run(lake, topic, late=Late.SET_ASIDE)
    run(lake, topic, THIRD, THIRD + timedelta(days=1), late=Late.AMEND)
    assert [places(lake)[0, offset].fate for offset in (6, 7)] == [Fate.SET_ASIDE, Fate.SET_ASIDE]


def test_a_day_that_was_removed_after_it_amended_others_is_not_run_again(
    lake: Path, topic: MemoryTopic
) -> None:
    run(lake, topic)
    shutil.rmtree(lake / f"date={THIRD}")
    shutil.rmtree(lake / "_ledger")  # as older versions left it
    for step in (run, lambda *_: make_plan(pipeline(lake, topic), read_ledger(PosixLake(lake)), THIRD)):
        with pytest.raises(LedgerBroken, match="committed, and then removed"):
            step(lake, topic, THIRD)


def test_a_store_without_links_is_refused_before_anything_is_read(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(System, "link", refuse)
    engine = LocalEngine(topic)
    with pytest.raises(StoreFailed, match="hard links"):
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine), FIRST)
    assert engine.jobs == 0
    assert files(lake) == {"_lock"}
    run(lake, topic, late=Late.SET_ASIDE)
