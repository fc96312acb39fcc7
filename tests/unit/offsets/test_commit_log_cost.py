"""What a run reads of the days behind it does not grow with them, and what it passes over cannot hurt."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import offsets.commit_log
from jobs.config import Late
from jobs.daily import run_day
from jobs.day.plan import make_plan, next_due
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.verify.run import verify
from offsets.commit_log import read_ledger
from offsets.days import ONE_DAY, midnight
from offsets.errors import LedgerBroken, StoreFailed
from offsets.manifest_text import MANIFEST_NAME, from_json
from tests.support.local_engine import LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic

FIRST = date(2026, 3, 28)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""A run at that time leaves a lake in which nothing has changed since."""


def topic_of(count: int) -> MemoryTopic:
    """Make a topic with two records a day, and from the second day on a late one of the day before."""
    topic = MemoryTopic(1)
    for number in range(count):
        start = midnight(FIRST + number * ONE_DAY, "Europe/Amsterdam")
        for hour in (2, 3):
            topic.produce(0, order(start + timedelta(hours=hour)), start + timedelta(hours=hour))
        if number:
            topic.produce(0, order(start - timedelta(hours=1)), start + timedelta(hours=4))
    return topic


def lake_of(lake: Path, topic: MemoryTopic, count: int, **changed: Any) -> None:
    for number in range(count):
        run_day(pipeline(lake, topic, late=Late.AMEND, now=LATER, **changed), FIRST + number * ONE_DAY)


def quiet(lake: Path) -> None:
    """Make the store's clock agree with the runs', which went far ahead."""
    for age, path in enumerate(sorted(lake.glob(f"date=*/{MANIFEST_NAME}"), reverse=True)):
        os.utime(path, (LATER.timestamp() - age, LATER.timestamp() - age))


@contextmanager
def looked_at(lake: Path) -> Iterator[Counter[str]]:
    """Count manifests that are read, listings of the lake, and listings of its days."""
    seen: Counter[str] = Counter()
    read, parse, scan = PosixLake.manifest_text, from_json, os.scandir

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            seen[name] += 1
            return call(*arguments)

        return wrapper

    def scanned(path: Any) -> Any:
        place = Path(str(path))  # `rmtree` lists by number
        if place == lake:
            seen["lake"] += 1
        elif place.parent == lake and place.name.startswith("date="):
            seen["day"] += 1
        return scan(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PosixLake, "manifest_text", counted("manifest read", read))
        patched.setattr(offsets.commit_log, "from_json", counted("manifest parsed", parse))
        patched.setattr(os, "scandir", scanned)
        yield seen


def committed_again(lake: Path, topic: MemoryTopic, count: int) -> None:
    assert run_day(pipeline(lake, topic), FIRST + (count // 2) * ONE_DAY).already


def nothing_due(lake: Path, topic: MemoryTopic, count: int) -> None:
    assert next_due(pipeline(lake, topic))[0] == FIRST + count * ONE_DAY


def a_plan(lake: Path, topic: MemoryTopic, count: int) -> None:
    there = pipeline(lake, topic, late=Late.AMEND)
    planned = make_plan(there, read_ledger(there.lake), FIRST + count * ONE_DAY)
    assert len(planned.plan.earlier) == count


def a_day(lake: Path, topic: MemoryTopic, count: int) -> None:
    assert not run_day(pipeline(lake, topic, late=Late.AMEND), FIRST + count * ONE_DAY).already


def a_rebuild(lake: Path, topic: MemoryTopic, count: int) -> None:
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), FIRST + (count - 3) * ONE_DAY)


@pytest.mark.parametrize(
    "command, lists, reads",
    [(committed_again, 0, 1), (nothing_due, 1, 2), (a_plan, 1, 2), (a_day, 1, 2), (a_rebuild, 1, 4)],
)
def test_a_run_reads_as_much_after_twelve_days_as_after_four(
    tmp_path: Path, command: Callable[[Path, MemoryTopic, int], None], lists: int, reads: int
) -> None:
    """Every run read all manifests, and listed the lake once for each; a rebuild needs its neighbours."""
    for count in (4, 12):
        lake, topic = tmp_path / f"{count}", topic_of(count + 1)
        lake_of(lake, topic, count)
        quiet(lake)
        with looked_at(lake) as seen:
            command(lake, topic, count)
        assert seen.pop("day", 0) <= (4 if command is a_rebuild else 0), "a rebuild lists its own day"
        assert seen == Counter({"lake": lists, "manifest read": reads, "manifest parsed": reads}), count


def test_a_plan_after_a_rebuild_of_the_newest_day_lists_no_day(tmp_path: Path) -> None:
    """It listed all of them: the names of 3,650 days of 1,000 files take many seconds, at each plan."""
    for count in (4, 12):
        lake, topic = tmp_path / f"{count}", topic_of(count + 1)
        lake_of(lake, topic, count)
        newest = FIRST + (count - 1) * ONE_DAY
        rebuild_day(pipeline(lake, topic, late=Late.AMEND, now=LATER), newest)
        quiet(lake)
        with looked_at(lake) as seen:
            a_plan(lake, topic, count)
        assert (seen["day"], seen["manifest read"]) == (0, 3), count


def test_only_folders_that_changed_are_listed_and_a_restored_mtime_hides_none(tmp_path: Path) -> None:
    lake = PosixLake(tmp_path)
    days = [FIRST + number * ONE_DAY for number in range(3)]
    for day in days:
        lake.day_folder(day).mkdir()
    time.sleep(0.05)
    since, by = datetime.now(UTC), days[-1] + ONE_DAY
    time.sleep(0.05)  # a store's clock may go by the kernel's ticks
    late = lake.day_folder(days[1]) / f"part-late-{by}-run-00000.parquet"
    late.write_bytes(b"")
    os.utime(late.parent, (0, 0))  # as `cp -a` and `rsync -a` leave a folder that they add to
    found = [late.relative_to(tmp_path).as_posix()]
    with looked_at(tmp_path) as seen:
        assert lake.late_files(days, by, since) == found
        assert seen["day"] == 1
        assert lake.late_files(days, by, None) == found
    assert lake.late_files(days, by + ONE_DAY, None) == []
    assert lake.late_files(days, by - ONE_DAY, None) == found, "a later day's rows count"
    assert lake.late_files([*days, by], by, since + timedelta(days=1)) == []


def test_two_days_that_were_removed_are_noticed_though_the_first_of_them_brought_nothing(
    tmp_path: Path,
) -> None:
    """If the first were run again, its commit would be younger than the late rows of the second."""
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    for number in range(4):
        start = midnight(FIRST + number * ONE_DAY, "Europe/Amsterdam")
        topic.produce(0, order(start + timedelta(hours=2)), start + timedelta(hours=2))
    topic.produce(
        0, order(midnight(FIRST, "Europe/Amsterdam") + timedelta(hours=5)), start + timedelta(hours=4)
    )
    lake_of(lake, topic, 4)
    assert len(list(lake.glob(f"date={FIRST}/part-late-*"))) == 1
    for number in (2, 3):
        shutil.rmtree(lake / f"date={FIRST + number * ONE_DAY}")
    engine = LocalEngine(topic)
    shutil.rmtree(lake / "_ledger")  # as older versions left it
    with pytest.raises(LedgerBroken, match="committed, and then removed"):
        run_day(pipeline(lake, topic, late=Late.AMEND, engine=engine), FIRST + 2 * ONE_DAY)
    assert engine.jobs == 0


def test_a_removed_day_is_noticed_though_the_one_before_was_built_again_since(tmp_path: Path) -> None:
    lake, topic = tmp_path / "lake", MemoryTopic(1)
    second, third = FIRST + ONE_DAY, FIRST + 2 * ONE_DAY
    for number in range(3):
        at = midnight(FIRST + number * ONE_DAY, "Europe/Amsterdam") + timedelta(hours=5)
        topic.produce(0, order(at), at)
    topic.produce(0, order(midnight(FIRST, "Europe/Amsterdam")), at)
    for day in (FIRST, second, third):
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    shutil.rmtree(lake / f"date={third}")
    rebuild_day(pipeline(lake, topic, late=Late.AMEND, now=LATER), second)
    os.utime(lake / f"date={second}" / MANIFEST_NAME, (LATER.timestamp(), LATER.timestamp()))
    shutil.rmtree(lake / "_ledger")  # as older versions left it
    with pytest.raises(LedgerBroken, match="committed, and then removed"):
        run_day(pipeline(lake, topic, late=Late.AMEND), third)


def test_a_removed_day_is_noticed_whatever_the_clock_of_the_run_said(tmp_path: Path) -> None:
    """The runs' clock is a lifetime ahead of the store's, and only the folders' times tell."""
    lake, topic = tmp_path / "lake", topic_of(3)
    lake_of(lake, topic, 3)
    shutil.rmtree(lake / f"date={FIRST + 2 * ONE_DAY}")
    shutil.rmtree(lake / "_ledger")  # as older versions left it
    with pytest.raises(LedgerBroken, match="committed, and then removed"):
        run_day(pipeline(lake, topic, late=Late.AMEND), FIRST + 2 * ONE_DAY)


def test_a_damaged_manifest_behind_the_newest_two_stops_no_run_and_verify_names_it(tmp_path: Path) -> None:
    lake, topic = tmp_path / "lake", topic_of(5)
    lake_of(lake, topic, 4)
    path = lake / f"date={FIRST + ONE_DAY}" / MANIFEST_NAME
    path.write_bytes(path.read_bytes().replace(b'"revision": 1', b'"revision": 2'))
    a_day(lake, topic, 4)
    (problem,) = verify(PosixLake(lake), FIRST + ONE_DAY, lambda done, total: None).problems
    assert str(path) in problem
    for near in (4, 3):
        path = lake / f"date={FIRST + near * ONE_DAY}" / MANIFEST_NAME
        text = path.read_bytes()
        path.write_bytes(text[:-9])
        with pytest.raises(LedgerBroken, match=f"date={FIRST + near * ONE_DAY}"):
            run_day(pipeline(lake, topic), FIRST + 5 * ONE_DAY)
        path.write_bytes(text)


def test_a_day_behind_a_link_stops_a_run_though_its_manifest_is_not_read(tmp_path: Path) -> None:
    lake, topic = tmp_path / "lake", topic_of(4)
    lake_of(lake, topic, 4)
    folder = (lake / f"date={FIRST}").rename(tmp_path / "away")
    (lake / f"date={FIRST}").symlink_to(folder)
    with pytest.raises(StoreFailed, match="symbolic link"):
        nothing_due(lake, topic, 4)
