"""Each day's manifest is in the ledger too, so that a lost day is never taken for one that never was."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.clean import clean
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.status import status
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_ledger
from offsets.errors import DayExists, LedgerBroken
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME
from tests.support.lake import places
from tests.support.local_engine import LocalEngine, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, orders, three_days

DAYS = (FIRST, SECOND, THIRD)
FOURTH = date(2026, 3, 31)
NOW = datetime(2026, 4, 1, 12, tzinfo=UTC)
HOLDER = LockHolder(run_id="other", host="here", pid=1, since=NOW)


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


@pytest.fixture
def lake(tmp_path: Path, topic: MemoryTopic) -> Path:
    for day in DAYS:
        run(tmp_path / "lake", topic, day)
    return tmp_path / "lake"


def run(lake: Path, topic: MemoryTopic, day: date) -> Outcome:
    return run_day(pipeline(lake, topic, late=Late.AMEND), day)


def rebuild(lake: Path, topic: MemoryTopic, day: date) -> Outcome:
    return rebuild_day(pipeline(lake, topic, late=Late.AMEND), day)


def entry(lake: Path, day: date) -> Path:
    return lake / "_ledger" / f"{day}.json"


def manifest(lake: Path, day: date) -> Path:
    return lake / f"date={day}" / MANIFEST_NAME


def problems(lake: Path, only: date | None = None) -> tuple[str, ...]:
    return verify(PosixLake(lake), only, lambda *_: None, Level.RECORDS).problems


def told(lake: Path) -> tuple[tuple[date, ...], tuple[str, ...]]:
    """Return what `status` tells of the ledger."""
    seen = status(PosixLake(lake), FIRST, lambda *_: NOW + timedelta(1), NOW)
    return seen.not_entered, seen.other_entries


def test_each_days_manifest_is_in_the_ledger_as_the_same_file_also_after_a_rebuild(
    lake: Path, topic: MemoryTopic
) -> None:
    rebuild(lake, topic, SECOND)
    assert sorted(path.name for path in (lake / "_ledger").iterdir()) == [f"{day}.json" for day in DAYS]
    assert all(entry(lake, day).samefile(manifest(lake, day)) for day in DAYS)
    assert told(lake) == ((), ())
    assert problems(lake) == ()


@pytest.mark.parametrize("copied", [False, True], ids=["a link", "a copy"])
def test_a_newest_day_that_is_lost_is_told_by_all_and_comes_back_as_they_advise(
    lake: Path, topic: MemoryTopic, tmp_path: Path, copied: bool
) -> None:
    """Nothing of it lies in other days here: it was settled once more, and nobody was told."""
    if copied:
        lake = Path(shutil.copytree(lake, tmp_path / "copy"))
    before = places(lake)
    shutil.rmtree(lake / f"date={THIRD}")
    for late in lake.glob(f"date=*/part-late-{THIRD}-*"):
        late.unlink()
    engine = LocalEngine(topic)
    there = pipeline(lake, topic, late=Late.AMEND, engine=engine)
    calls: list[Callable[[], object]] = [
        lambda: run_day(there, THIRD),
        lambda: run_day(there, FOURTH),
        lambda: preview(there, None),
        lambda: told(lake),
    ]
    for call in calls:
        with pytest.raises(LedgerBroken, match=f"`run --date {THIRD} --force`"):
            call()
    assert engine.jobs == 0
    (gone,) = problems(lake)
    assert gone == f"{THIRD}: its folder is gone; {entry(lake, THIRD)} shows that it was committed"
    assert problems(lake, THIRD) == (gone,)
    rebuild(lake, topic, THIRD)
    assert places(lake) == before
    assert problems(lake) == ()
    assert entry(lake, THIRD).samefile(manifest(lake, THIRD))


Damage = Callable[[Path, date], None]


def unlink(lake: Path, day: date) -> None:
    manifest(lake, day).unlink()


def cut(lake: Path, day: date) -> None:
    """Damage a manifest whose entry is a copy."""
    text = manifest(lake, day).read_bytes()
    manifest(lake, day).unlink()
    manifest(lake, day).write_bytes(text[:-9])


@pytest.mark.parametrize("damage", [unlink, cut])
@pytest.mark.parametrize(
    "days", [DAYS[:1], DAYS[:2], DAYS[1:], DAYS], ids=["first", "two", "last two", "all"]
)
def test_manifests_that_are_gone_or_damaged_come_back_from_the_ledger_as_all_commands_advise(
    lake: Path, topic: MemoryTopic, days: tuple[date, ...], damage: Damage
) -> None:
    before = places(lake)
    for day in days:
        damage(lake, day)
    calls: list[Callable[[], object]] = [
        lambda: rebuild(lake, topic, days[0]),
        lambda: problems(lake),
    ]
    if damage is unlink or days == DAYS[1:]:  # a run reads the newest two
        calls.append(lambda: run(lake, topic, FOURTH))
    for call in calls:
        while advice := advised(call):
            for command in advice:
                subprocess.run(shlex.split(command), check=True)
        assert problems(lake) == ()
        assert {at: place for at, place in places(lake).items() if place.day <= THIRD} == before
        for day in days:
            damage(lake, day)


def advised(call: Callable[[], object]) -> list[str]:
    """Return the commands that a call advises; none if it ends well."""
    try:
        found = str(call())
    except (DayExists, LedgerBroken) as stopped:
        found = str(stopped)
    assert "backup" not in found
    return re.findall(r"`(cp [^`]+)`", found)


def test_an_entry_that_names_sets_which_are_gone_is_no_way_back(
    tmp_path: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offsets.manifest_text.LONG", 0)
    lake = tmp_path / "lake"
    for day in DAYS:
        run(lake, topic, day)
    for name in (MANIFEST_NAME, LISTS_NAME):
        (lake / f"date={FIRST}" / name).unlink()
    for command, day in ((rebuild, FIRST), (run, FOURTH)):
        with pytest.raises((DayExists, LedgerBroken), match=r"estore .*from a backup") as stopped:
            command(lake, topic, day)
        assert "`cp " not in str(stopped.value)


def test_a_damaged_oldest_day_is_not_told_to_be_built_again(lake: Path, topic: MemoryTopic) -> None:
    """Its entry is the same file, and no day before it records where it began."""
    text = manifest(lake, FIRST).read_bytes()
    manifest(lake, FIRST).write_bytes(text[:-9])
    (problem,) = problems(lake)
    assert problem.endswith("Restore the day's folder from a backup.")
    with pytest.raises(LedgerBroken, match=r"Restore the day's folder from a backup\.$"):
        rebuild(lake, topic, FIRST)
    manifest(lake, FIRST).write_bytes(text)
    assert problems(lake) == ()


def test_a_lake_that_lost_its_only_day_is_no_new_lake(topic: MemoryTopic, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(lake, topic, FIRST)
    before = places(lake)
    shutil.rmtree(lake / f"date={FIRST}")
    with pytest.raises(LedgerBroken, match=f"Without one, move {entry(lake, FIRST)} out of the lake"):
        run(lake, topic, FIRST)
    with pytest.raises(LedgerBroken, match="from a backup"):
        rebuild(lake, topic, FIRST)
    entry(lake, FIRST).rename(tmp_path / "entry")
    run(lake, topic, FIRST)
    assert places(lake) == before


def test_a_lake_of_an_older_version_has_a_ledger_after_the_next_run(lake: Path, topic: MemoryTopic) -> None:
    shutil.rmtree(lake / "_ledger")
    assert told(lake) == (DAYS, ())
    assert problems(lake) == ()
    assert run(lake, topic, FIRST).already
    assert all(entry(lake, day).samefile(manifest(lake, day)) for day in DAYS)
    assert told(lake) == ((), ())


def test_a_copy_of_a_lake_needs_neither_a_lock_nor_an_entry(
    lake: Path, topic: MemoryTopic, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(lake, tmp_path / "copy"))
    assert not entry(copy, THIRD).samefile(manifest(copy, THIRD))
    with PosixLake(copy).lock(HOLDER):
        assert run(copy, topic, THIRD).already
    assert told(copy) == ((), ())
    assert problems(copy) == ()


@pytest.mark.parametrize("day", [FIRST, SECOND])
def test_an_entry_that_is_not_the_manifest_is_told_and_made_again_once_it_is_removed(
    lake: Path, topic: MemoryTopic, day: date
) -> None:
    text = entry(lake, day).read_bytes()
    entry(lake, day).unlink()
    entry(lake, day).write_bytes(text.replace(b'"revision": 1', b'"revision": 2'))
    (problem,) = problems(lake)
    assert f"{entry(lake, day)}: other contents than {manifest(lake, day)}" in problem
    assert told(lake) == ((), (problem,))
    assert problems(lake, day) == (problem,)
    entry(lake, day).unlink()
    assert told(lake) == ((day,), ())
    assert run(lake, topic, THIRD).already
    assert run(lake, topic, day).already
    assert told(lake) == ((), ())
    assert problems(lake) == ()


def test_clean_enters_what_a_killed_rebuild_replaced_before_it_removes_what_shows_it(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PosixLake, "enter", killed)
        with pytest.raises(KeyboardInterrupt):
            rebuild(lake, topic, FIRST)
    assert told(lake) == ((FIRST,), ())
    assert problems(lake) == ()
    assert clean(PosixLake(lake), HOLDER)
    assert told(lake) == ((), ())
    assert entry(lake, FIRST).samefile(manifest(lake, FIRST))


def test_what_is_no_entry_in_the_ledgers_folder_is_passed_over(lake: Path) -> None:
    for name in ("2026-03-31.json.bak", "20260331.json", ".nfs0123456789abcdef0", "2026-W14-2.json"):
        (lake / "_ledger" / name).write_bytes(b"")
    assert [day.date for day in read_ledger(PosixLake(lake)).days] == list(DAYS)


def test_a_rebuild_enters_the_newest_day_that_a_killed_run_did_not_enter(
    lake: Path, topic: MemoryTopic
) -> None:
    """Else that day could be lost and settled once more, and nobody would be told."""
    entry(lake, THIRD).unlink()
    assert told(lake) == ((THIRD,), ())
    rebuild(lake, topic, SECOND)
    assert told(lake) == ((), ())
    shutil.rmtree(lake / f"date={THIRD}")
    for late in lake.glob(f"date=*/part-late-{THIRD}-*"):
        late.unlink()
    with pytest.raises(LedgerBroken, match=f"`run --date {THIRD} --force`"):
        run(lake, topic, THIRD)


@pytest.mark.parametrize("command", ["run", "clean"])
def test_a_damaged_manifest_never_takes_the_place_of_its_intact_entry(
    lake: Path, topic: MemoryTopic, tmp_path: Path, command: str
) -> None:
    """After a rebuild of its day that was killed, the next command wrote the damage over the only copy."""
    orders(topic, FOURTH)
    copied = Path(shutil.copytree(lake, tmp_path / "copied"))  # an entry is another file than its manifest
    damaged = bytearray(whole := manifest(copied, FIRST).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    manifest(copied, FIRST).write_bytes(damaged)
    (copied / "_staging" / f"{FIRST}.20260401T000000-ffffff").mkdir(parents=True)
    if command == "run":
        run(copied, topic, FOURTH)
    else:
        clean(PosixLake(copied), HOLDER)
    assert entry(copied, FIRST).read_bytes() == whole
