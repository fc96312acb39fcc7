"""One fault at every change of writing a small file beside the days: a reader sees the old one or the new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from jobs.lake.clean import clean, orphans
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store
from offsets.errors import StoreFailed
from tests.faults.store import Fault, FaultyOs, Keeps, everything, nothing, some
from tests.faults.story import HOLDER
from tests.faults.sweeps import ANSWER_LOST, KILLED, MODES, REFUSED, Mode
from tests.support.local_engine import Crash

OLD, NEW = b"the old contents", b"new"
REFS = ["_schema.json", "_beside/2026-05-04.json"]


def a_lake(folder: Path, ref: str, *, before: bytes | None) -> tuple[PosixLake, FaultyOs]:
    """Make a lake on a faulty store, with a small file or without it."""
    (folder / "lake").mkdir(parents=True)
    store = FaultyOs(folder)
    lake = PosixLake(folder / "lake", Store(store))
    with lake.lock(HOLDER):
        if before is not None:
            lake.put(ref, before)
    return lake, store


def read(lake: PosixLake, ref: str) -> bytes | None:
    path = lake.root / ref
    return path.read_bytes() if path.exists() else None


def sweep(
    mode: Mode, folder: Path, ref: str, before: bytes | None
) -> Iterator[tuple[PosixLake, FaultyOs, set[bytes | None]]]:
    """Yield a lake after each single fault, with all that a reader saw, until no fault is left."""
    for n in count(1):
        lake, store = a_lake(folder / f"{n}", ref, before=before)
        seen: set[bytes | None] = set()
        store.watch = lambda lake=lake, seen=seen: seen.add(read(lake, ref))  # type: ignore[misc]
        store.plant(Fault(at=n, within=n % 2, error=mode.error, after=mode.after))
        struck = store.injected
        with suppress(Crash, StoreFailed):
            lake.put(ref, NEW)
        store.plant()
        if mode.power and store.injected > struck:
            store.power_loss(mode.power(n))
        seen.add(read(lake, ref))
        yield lake, store, seen
        if store.injected == struck:
            return


@pytest.mark.parametrize("ref", REFS)
@pytest.mark.parametrize("before", [OLD, None], ids=["over an old one", "new"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_small_file_has_its_old_contents_or_the_new_ones_and_a_second_call_ends_well(
    mode: Mode, before: bytes | None, ref: str, tmp_path: Path
) -> None:
    faults = 0
    for lake, store, seen in sweep(mode, tmp_path, ref, before):
        assert seen <= {before, NEW}, mode.name
        faults += store.injected
        with lake.lock(HOLDER):
            lake.put(ref, NEW)
        assert lake.staged_names() == []
        store.power_loss(nothing)
        assert read(lake, ref) == NEW
        store.require_all_seen()
    assert faults >= 7, "folder, file, write, sync, rename, sync, and the folder goes"


@pytest.mark.parametrize("keeps", [nothing, everything, *map(some, range(8))])
def test_a_small_file_that_was_written_survives_any_loss_of_power(keeps: Keeps, tmp_path: Path) -> None:
    lake, store = a_lake(tmp_path, REFS[1], before=OLD)
    store.plant()
    lake.put(REFS[1], NEW)
    store.power_loss(keeps)
    assert read(lake, REFS[1]) == NEW


def test_what_a_killed_writer_leaves_in_staging_is_an_orphan_that_clean_removes(tmp_path: Path) -> None:
    left = 0
    for lake, store, _ in sweep(KILLED, tmp_path, REFS[0], OLD):
        left += bool(orphans(lake))
        clean(lake, HOLDER)
        assert lake.staged_names() == []
        store.require_all_seen()
    assert left >= 3


@pytest.mark.parametrize("mode", [REFUSED, ANSWER_LOST], ids=lambda mode: mode.name)
def test_a_writer_that_the_store_refuses_leaves_nothing_in_staging(mode: Mode, tmp_path: Path) -> None:
    for lake, _, _ in sweep(mode, tmp_path, REFS[0], OLD):
        assert lake.staged_names() == []


def test_a_link_in_the_place_of_a_small_file_is_refused(tmp_path: Path) -> None:
    lake, _ = a_lake(tmp_path, REFS[0], before=None)
    (tmp_path / "elsewhere").write_bytes(OLD)
    (lake.root / REFS[0]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match="a symbolic link"):
        lake.put(REFS[0], NEW)
    assert (tmp_path / "elsewhere").read_bytes() == OLD


def test_a_power_loss_takes_a_small_file_that_was_written_without_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, store = a_lake(tmp_path, REFS[0], before=OLD)
    monkeypatch.setattr(Store, "sync_folder", lambda self, folder: None)
    lake.put(REFS[0], NEW)
    store.power_loss(nothing)
    assert read(lake, REFS[0]) != NEW
