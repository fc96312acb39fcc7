"""`status` and `verify` see a lake as it is: whole, spoiled, held, or left behind."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.inspect import status, verify
from jobs.storage import Lake, LockHolder
from offsets.errors import LedgerBroken
from offsets.ledger import Ledger
from offsets.manifest import from_json, to_json
from offsets.ranges import Offsets
from tests.local_engine import desk, order
from tests.memory_topic import MemoryTopic
from tests.unit.test_day import FIRST, SECOND, THIRD, a_lake, at

NOW = datetime(2026, 4, 1, 12, tzinfo=UTC)
DAYS = (FIRST, SECOND, THIRD)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(a_lake(3), tmp_path / "lake"))


def due_at(ledger: Ledger, day: date) -> datetime:
    return NOW + timedelta(hours=1)


def problems(lake: Path, only: date | None = None) -> list[str]:
    return list(verify(Lake(lake), only, lambda done, total: None).problems)


def test_a_lake_at_a_glance(lake: Path) -> None:
    found = status(Lake(lake), FIRST, due_at, NOW)
    assert [(day.date, day.state, day.rows, day.late, day.invalid) for day in found.days] == [
        (FIRST, "complete", 6, 0, 1),
        (SECOND, "complete", 7, 1, 1),
        (THIRD, "complete", 7, 1, 1),
    ]
    assert [day.pending for day in found.days] == [1, 1, 1]
    assert [day.gaps for day in found.days] == [0, 0, 1]
    assert (found.next_day, found.due) == (date(2026, 3, 31), False)
    assert (found.holder, found.staged) == (None, ())
    assert status(Lake(lake), FIRST, lambda ledger, day: NOW, NOW).due


def test_an_absent_lake_and_an_empty_day_are_told_as_they_are(tmp_path: Path) -> None:
    found = status(Lake(tmp_path / "none"), FIRST, due_at, NOW)
    assert (found.days, found.next_day) == ((), FIRST)
    assert not (tmp_path / "none").exists()
    run_day(desk(tmp_path / "lake", MemoryTopic()), FIRST)
    (day,) = status(Lake(tmp_path / "lake"), FIRST, due_at, NOW).days
    assert (day.state, day.rows, day.files, day.bytes) == ("empty", 0, 0, 0)


def test_a_holder_is_alive_dead_or_elsewhere(lake: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = socket.gethostname()
    for host, pid, alive in ((here, 1, True), (here, gone.pid, False), ("elsewhere", 1, None)):
        holder = LockHolder(run_id="r", host=host, pid=pid, since=NOW)
        with Lake(lake).lock(holder):
            found = status(Lake(lake), FIRST, due_at, NOW)
        assert (found.holder, found.holder_alive) == (holder, alive)


def test_an_orphan_in_staging_is_told(lake: Path) -> None:
    Lake(lake).stage(THIRD, "dead")
    assert status(Lake(lake), FIRST, due_at, NOW).staged == ("2026-03-30.dead",)


def test_a_whole_lake_is_verified(lake: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = verify(Lake(lake), None, lambda done, total: seen.append((done, total)))
    assert found.problems == ()
    assert (found.days, found.rows) == (3, 25)
    assert len(seen) == found.files
    assert found.bytes == sum(path.stat().st_size for path in lake.rglob("*.parquet"))


def test_a_day_that_is_not_committed_is_a_problem(lake: Path) -> None:
    assert problems(lake, date(2026, 3, 31)) == ["2026-03-31 is not committed"]
    assert problems(lake, SECOND) == []


def part(lake: Path, day: date = SECOND) -> Path:
    return min((lake / f"date={day}").glob("part-*.parquet"))


def edit(path: Path) -> None:
    text = bytearray(path.read_bytes())
    at = text.rindex(b"orders")
    text[at : at + 6] = b"ordres"
    path.write_bytes(text)


def corrupt(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[8:60] = bytes(52)
    path.write_bytes(text)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def swap(path: Path) -> None:
    shutil.copy(part(path.parents[1], THIRD), path)


SPOILED: list[tuple[Callable[[Path], object], str]] = [
    (edit, "sha256 should be"),
    (corrupt, "sha256|cannot be read"),
    (shorten, "cannot be read"),
    (Path.unlink, "cannot be read"),
    (swap, "rows should be|holds other offsets"),
    (lambda path: path.write_bytes(b""), "cannot be read"),
    (lambda path: path.write_bytes(b"PAR1" + bytes(50) + b"PAR1"), "cannot be read"),
]


@pytest.mark.parametrize("spoil, said", SPOILED)
def test_a_spoiled_file_is_found(lake: Path, spoil: Callable[[Path], object], said: str) -> None:
    import re

    path = part(lake)
    spoil(path)
    for found in (problems(lake), problems(lake, SECOND)):
        assert found
        assert all(str(path) in each for each in found)
        assert re.search(said, " ".join(found))
    assert problems(lake, FIRST) == []


@pytest.mark.parametrize("name", ["part-x.parquet", "extra.txt", "_late/date=2026-03-28/x.parquet", "_x"])
def test_a_file_that_no_manifest_names_is_found(lake: Path, name: str) -> None:
    path = lake / f"date={SECOND}" / name
    path.write_bytes(b"")
    assert problems(lake) == [f"{path}: no manifest names this file"]


def test_an_edited_manifest_is_found_and_the_other_days_are_still_checked(lake: Path) -> None:
    path = lake / f"date={SECOND}" / "_manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"revision": 1', b'"revision": 2'))
    part(lake, THIRD).unlink()
    found = problems(lake)
    assert len(found) == 2
    assert "checksum" in found[0]
    assert "cannot be read" in found[1]
    with pytest.raises(LedgerBroken):
        status(Lake(lake), FIRST, due_at, NOW)


def test_a_file_that_holds_more_than_its_day_read_is_found(lake: Path) -> None:
    text = Lake(lake).manifest_text(FIRST)
    assert text is not None
    manifest = from_json(text, "here")
    (first, *others) = manifest.spans
    read = replace(first, from_offset=1, seen_until=1, reads=first.reads - Offsets([(0, 1)]))
    place = Path(Lake(lake).manifest_place(FIRST))
    place.write_bytes(to_json(replace(manifest, spans=(read, *others))))
    found = problems(lake, FIRST)
    assert any("offsets outside the day's span" in each for each in found)
    assert any("have no fate" in each for each in found)


def test_a_removed_day_and_a_strange_folder_are_found(lake: Path) -> None:
    shutil.rmtree(lake / f"date={SECOND}")
    (found,) = problems(lake)
    assert "2026-03-29 is missing" in found
    (lake / "date=2026-05-01").mkdir()
    assert any("2026-05-01" in each for each in problems(lake))


def test_two_days_that_do_not_go_together_are_found(lake: Path, tmp_path: Path) -> None:
    other, topic = tmp_path / "other", MemoryTopic(2)
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1))
    for day in DAYS:
        run_day(desk(other, topic), day)
    shutil.rmtree(lake / f"date={THIRD}")
    shutil.copytree(other / f"date={THIRD}", lake / f"date={THIRD}")
    (found,) = problems(lake)
    assert "did not start from the checkpoint" in found
