"""`copy-lake` brings a whole lake to another place, whatever kind both are, also when it is killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.context import Pipeline
from jobs.copy_lake import run as copying
from jobs.copy_lake.run import copy_lake
from jobs.daily import run_day
from jobs.lake.expiry import expire
from jobs.lake.objects.lake import ObjectLake
from jobs.lake.port import Lake, LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.lake.store import Store
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_chain
from offsets.errors import ConfigError, DayExists, LakeLocked, NotPublished, StoreFailed, VerifyFailed
from offsets.manifest_text import LISTS_NAME
from tests.faults.memory_lake import MemoryLake, MemoryStore
from tests.faults.object_store import Fate, MemoryObjects
from tests.faults.store import Fault, FaultyOs
from tests.faults.story import memory_folder
from tests.faults.sweeps import ANSWER_LOST, KILLED, POWER_LOST, REFUSED, SOME_KEPT, Mode, within
from tests.support.kept_lake import a_kept_lake
from tests.support.local_engine import Crash, order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.sampled import Record, numbered
from tests.support.three_days import FIRST, SECOND, THIRD, at, three_days

DAYS = (FIRST, SECOND, THIRD)
EMPTY = date(2026, 3, 31)
NOW = datetime(2026, 4, 1, 12, tzinfo=UTC)
HOLDER = LockHolder(run_id="20260402T000000-copied", host="here", pid=1, since=NOW)
Make = Callable[[Path], Lake]


def folder(path: Path) -> Lake:
    return PosixLake(path / "folder")


def bucket(path: Path) -> Lake:
    return ObjectLake(MemoryObjects(), timedelta(0))


def memory(path: Path) -> Lake:
    return MemoryLake(MemoryStore(path))


KINDS = (folder, bucket, memory)


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


def of(lake: Lake, topic: MemoryTopic, now: datetime = NOW) -> Pipeline:
    return replace(pipeline(Path("unused"), topic, now=now, late=Late.AMEND), lake=lake)


@pytest.fixture
def three(topic: MemoryTopic) -> Callable[[Lake], Lake]:
    """Return what settles three days in a lake, with late rows that were brought to their days."""

    def settled(lake: Lake) -> Lake:
        for day in DAYS:
            run_day(of(lake, topic), day)
        return lake

    return settled


def contents(lake: Lake) -> dict[str, bytes]:
    """Read all that the manifests name, the manifests and the columns."""
    refs = ["_schema.json"]
    for manifest in read_chain(lake):
        refs += [file.target or f"date={manifest.day.date}/{file.path}" for file in manifest.files]
    texts = {str(day): lake.manifest_text(day) or b"" for day in lake.days()}
    return {**texts, **{ref: lake.open_file(ref).read() for ref in refs}}


def problems(lake: Lake) -> tuple[str, ...]:
    return verify(lake, None, lambda *_: None, Level.RECORDS).problems


def require_copy(old: Lake, new: Lake) -> None:
    assert contents(new) == contents(old)
    assert problems(new) == ()
    assert new.staged_names() == []


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("from_", KINDS)
def test_all_comes_along_and_the_next_day_is_settled_there(
    from_: Make, to: Make, tmp_path: Path, topic: MemoryTopic, three: Callable[[Lake], Lake]
) -> None:
    old, new = three(from_(tmp_path / "old")), to(tmp_path / "new")
    seen: list[tuple[int, int]] = []
    copied = copy_lake(old, new, HOLDER, progress=lambda done, total: seen.append((done, total)))
    require_copy(old, new)
    assert (copied.days, copied.copied_days, copied.first, copied.last) == (3, 3, FIRST, THIRD)
    assert seen[-1] == (copied.files, copied.files)
    again = copy_lake(old, new, HOLDER)
    assert (again.copied_days, again.copied_files, again.copied_bytes) == (0, 0, 0)
    run_day(of(new, topic), EMPTY)
    rebuild_day(of(new, topic), SECOND)
    assert problems(new) == ()
    with pytest.raises(ConfigError, match="an empty place"):  # it has gone on there
        copy_lake(old, new, HOLDER)


@pytest.mark.parametrize("middle", [bucket, memory])
def test_there_and_back_it_is_the_same_folder(
    middle: Make, tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    there = middle(tmp_path)
    copy_lake(three(PosixLake(tmp_path / "old")), there, HOLDER)
    copy_lake(there, PosixLake(tmp_path / "new"), HOLDER)

    def files(root: Path) -> dict[str, bytes]:
        paths = (path for path in root.rglob("*") if path.is_file() and path.name != "_lock")
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}

    assert files(tmp_path / "new") == files(tmp_path / "old")


def test_days_that_the_old_job_settled_since_are_copied_by_the_next_call(
    tmp_path: Path, topic: MemoryTopic, three: Callable[[Lake], Lake]
) -> None:
    old, new = three(folder(tmp_path / "old")), bucket(tmp_path)
    copy_lake(old, new, HOLDER)
    run_day(of(old, topic), EMPTY)
    assert copy_lake(old, new, HOLDER).copied_days == 1
    require_copy(old, new)


def test_a_rebuilt_day_keeps_its_revision(
    tmp_path: Path, topic: MemoryTopic, three: Callable[[Lake], Lake]
) -> None:
    old, new = three(bucket(tmp_path)), folder(tmp_path / "new")
    rebuild_day(of(old, topic), SECOND)
    copy_lake(old, new, HOLDER)
    require_copy(old, new)


@pytest.mark.parametrize("to", KINDS)
def test_long_sets_and_success_files_come_along(to: Make, tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    three_days(topic)
    for number in range(250):  # every second one is of a later day: its offset stays pending
        topic.produce(0, order(at(FIRST, 2 if number % 2 else 26)), at(FIRST, 22))
    old, new = PosixLake(tmp_path / "old"), to(tmp_path / "new")
    run_day(of(old, topic), FIRST)
    (tmp_path / f"old/date={FIRST}/_SUCCESS").touch()
    copy_lake(old, new, HOLDER)
    require_copy(old, new)
    lists = f"date={FIRST}/{LISTS_NAME}"
    assert new.open_file(lists).read() == old.open_file(lists).read()
    run_day(of(new, topic), SECOND)
    assert problems(new) == ()
    if to is folder:
        assert (tmp_path / f"new/folder/date={FIRST}/_SUCCESS").read_bytes() == b""


def plant(store: MemoryObjects, at: int, fate: Fate) -> None:
    """Give one change of the store a fate; a process that dies then makes no other one."""
    numbers, dead = count(1), list[str]()

    def fate_of(kind: str, key: str) -> Fate:
        if dead:
            return Fate.KILLED_BEFORE
        if next(numbers) == at:
            if fate in (Fate.KILLED_BEFORE, Fate.KILLED_AFTER):
                dead.append(key)
            return fate
        return Fate.ANSWERED

    store.fate = fate_of


@pytest.mark.parametrize("fate", [Fate.KILLED_BEFORE, Fate.KILLED_AFTER, Fate.LOST_ANSWER, Fate.LOST_REQUEST])
def test_killed_at_any_change_of_a_bucket_it_goes_on(
    fate: Fate, tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    old = three(folder(tmp_path))
    for number in count(1):
        store = MemoryObjects()
        plant(store, number, fate)
        with suppress(Crash, StoreFailed, NotPublished):
            copy_lake(old, ObjectLake(store, with_lease=False), HOLDER)
        if not any(str(fate).removeprefix("Fate.") in kind for kind in store.kinds):
            assert number > 60
            break
        store.fate = lambda kind, key: Fate.ANSWERED
        new = ObjectLake(store, with_lease=False)
        copy_lake(old, new, HOLDER)
        assert contents(new) == contents(old)
    assert problems(new) == ()


@pytest.mark.parametrize(
    "mode", [KILLED, REFUSED, ANSWER_LOST, POWER_LOST, SOME_KEPT], ids=lambda mode: mode.name
)
def test_stopped_at_any_change_of_a_folder_it_goes_on(
    mode: Mode,
    tmp_path: Path,
    three: Callable[[Lake], Lake],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    monkeypatch.setattr(copying, "AT_ONCE", 1)  # so that the changes have an order
    old = three(bucket(tmp_path))
    for number in numbered(7, record_property):
        with memory_folder() as root:
            system = FaultyOs(root)
            system.plant(Fault(at=number, within=within(number), error=mode.error, after=mode.after))
            new = PosixLake(root / "lake", Store(system))
            with suppress(Crash, StoreFailed, NotPublished):
                copy_lake(old, new, HOLDER)
            if not system.injected:
                assert number > 100
                break
            system.power_loss(mode.power(number)) if mode.power else system.plant()
            copy_lake(old, new, replace(HOLDER, run_id="20260402T000001-again"))
            assert contents(new) == contents(old)
            left = f"{FIRST}.{HOLDER.run_id}"  # of a look whether there are links; `clean` removes these
            assert all(name.startswith(("put.", "removed.", left)) for name in new.staged_names())


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_change_of_a_memory_lake_it_goes_on(
    after: bool, tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    old = three(folder(tmp_path))
    for number in count(1):
        store = MemoryStore(tmp_path)
        store.plant(Fault(at=number, after=after))
        try:
            copy_lake(old, MemoryLake(store), HOLDER)
        except Crash:
            store.plant()
        else:
            assert number > 40
            break
        copy_lake(old, MemoryLake(store), HOLDER)
        require_copy(old, MemoryLake(store))


@pytest.mark.parametrize("to", KINDS)
def test_a_damaged_file_stops_it_and_is_named(
    to: Make, tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    old, new = three(PosixLake(tmp_path / "old")), to(tmp_path / "new")
    path = next((tmp_path / f"old/date={SECOND}").glob("part-2*.parquet"))
    right = path.read_bytes()
    path.write_bytes(right[:-1] + b"?")
    with pytest.raises(VerifyFailed, match=path.name):
        copy_lake(old, new, HOLDER)
    assert new.days() == [FIRST]
    path.write_bytes(right)
    assert copy_lake(old, new, HOLDER).copied_days == 2
    require_copy(old, new)


@pytest.mark.parametrize("to", KINDS)
def test_another_lake_is_refused_before_anything_is_written(
    to: Make, tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    old, new = three(folder(tmp_path / "old")), three(to(tmp_path / "new"))
    before = contents(new)
    with pytest.raises(ConfigError, match=f"{FIRST}, which is not that of"):
        copy_lake(old, new, HOLDER)
    assert contents(new) == before


def test_files_of_a_day_that_is_not_committed_are_refused(
    tmp_path: Path, three: Callable[[Lake], Lake]
) -> None:
    old, store = three(folder(tmp_path / "old")), MemoryObjects()
    store.put(f"date={THIRD}/part-0.parquet", b"PAR1")
    with pytest.raises(DayExists, match=str(THIRD)):
        copy_lake(old, ObjectLake(store), HOLDER)
    assert [*store.objects] == [f"date={THIRD}/part-0.parquet"]


@pytest.fixture
def expired(tmp_path: Path, three: Callable[[Lake], Lake]) -> Lake:
    """A lake whose first day has expired, which had got late rows."""
    lake = three(PosixLake(tmp_path / "old"))
    with lake.lock(HOLDER):
        ledger, _ = finish_last_run(lake, "expire")
        expire(lake, ledger, SECOND, NOW, "expire", "a test")
    return lake


def test_expired_days_come_along_into_a_folder(expired: Lake, tmp_path: Path, topic: MemoryTopic) -> None:
    new = folder(tmp_path / "new")
    copy_lake(expired, new, HOLDER)
    assert new.entry_text(FIRST) == expired.entry_text(FIRST)
    assert new.days() == [SECOND, THIRD]
    assert problems(new) == problems(expired) == ()
    run_day(of(new, topic), EMPTY)
    assert problems(new) == ()


def test_expired_days_are_refused_by_a_bucket(expired: Lake, tmp_path: Path) -> None:
    store = MemoryObjects()
    with pytest.raises(ConfigError, match="Keep this lake in a folder"):
        copy_lake(expired, ObjectLake(store), HOLDER)
    assert not store.objects


def test_a_lake_of_an_earlier_format_is_refused(tmp_path: Path) -> None:
    old = PosixLake(a_kept_lake(tmp_path / "old"))
    with pytest.raises(ConfigError, match="upgrade --execute"):
        copy_lake(old, PosixLake(tmp_path / "new"), HOLDER)
    assert not (tmp_path / "new").exists()


def test_what_a_dead_run_left_to_do_is_done_first(tmp_path: Path, three: Callable[[Lake], Lake]) -> None:
    old = three(PosixLake(tmp_path / "old"))
    (tmp_path / f"old/_ledger/{THIRD}.json").unlink()
    with pytest.raises(NotPublished, match="Run `run` for the old lake first"):
        copy_lake(old, PosixLake(tmp_path / "new"), HOLDER)
    assert not (tmp_path / "new").exists()


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a lake with committed days"):
        copy_lake(PosixLake(tmp_path / "old"), PosixLake(tmp_path / "new"), HOLDER)
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_somebody_holds_is_not_copied(tmp_path: Path, three: Callable[[Lake], Lake]) -> None:
    old = three(PosixLake(tmp_path / "old"))
    with PosixLake(tmp_path / "old").lock(HOLDER), pytest.raises(LakeLocked):
        copy_lake(old, PosixLake(tmp_path / "new"), HOLDER)
    assert not (tmp_path / "new").exists()
