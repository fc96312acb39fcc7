"""Damage of two kinds at once: what a manifest no longer says, and a file or a topic that changed as well."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import structlog

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.names import late_source
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.days import day_in
from offsets.errors import LedgerBroken, OffsetsLost, StoreFailed, VerifyFailed
from offsets.manifest_text import MANIFEST_NAME
from tests.support.lake import places
from tests.support.lake_parts import part
from tests.support.local_engine import ZONE, order, pipeline, settings
from tests.support.memory_topic import MemoryTopic
from tests.support.unprivileged import folder_of_nobody, unprivileged

FIRST = settings(Path("x")).day.first
DAYS = [day_in(ZONE, FIRST + timedelta(n)) for n in range(4)]


@pytest.fixture
def topic() -> MemoryTopic:
    """Each day brings five rows of its own, and one of the day before."""
    topic = MemoryTopic(1)
    for number, day in enumerate(DAYS):
        at = day.start + timedelta(hours=10)
        for n in range(5):
            topic.produce(0, order(at, f"{n}" * 300), at)
        if number:
            topic.produce(0, order(DAYS[number - 1].start + timedelta(hours=3), "late" * 300), at)
    return topic


@pytest.fixture
def lake(topic: MemoryTopic, tmp_path: Path) -> Path:
    for day in DAYS[:3]:
        run_day(pipeline(tmp_path / "lake", topic, late=Late.AMEND), day.date)
    return tmp_path / "lake"


def late_file(lake: Path, by: int) -> Path:
    (path,) = lake.glob(f"date=*/part-late-{DAYS[by].date}-*")
    return path


def in_its_runs_day(path: Path, by: int) -> Path:
    """Return where a late file lay before it was brought to its day."""
    return path.parent.parent / f"date={DAYS[by].date}" / late_source(f"{path.parent.name}/{path.name}")


def problems(lake: Path, *, only: int | None = None) -> tuple[str, ...]:
    return verify(
        PosixLake(lake), DAYS[only].date if only is not None else None, lambda *_: None, Level.RECORDS
    ).problems


@pytest.mark.parametrize("by", [1, 2])
def test_a_damaged_late_file_is_not_taken_for_the_truth_by_a_rebuild_without_a_manifest(
    lake: Path, topic: MemoryTopic, by: int
) -> None:
    """Its new hash was written into the manifest, and the good row of Kafka thrown away."""
    path = late_file(lake, by)
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    start = column.dictionary_page_offset or column.data_page_offset
    damaged = bytearray(path.read_bytes())
    for at in range(start + 25, start + column.total_compressed_size):
        damaged[at] ^= 255
    path.write_bytes(damaged)
    (lake / f"date={DAYS[by].date}" / MANIFEST_NAME).unlink()
    with pytest.raises(LedgerBroken, match="move it out of the lake"):
        rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[by].date)
    path.rename(lake.parent / "moved.parquet")
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[by].date)
    assert problems(lake) == ()


@pytest.mark.parametrize("day", [1, 2])
def test_a_row_that_the_old_folder_alone_still_holds_stays(lake: Path, topic: MemoryTopic, day: int) -> None:
    """Without a manifest, what compaction had taken since was a proved gap, and the old file went."""
    folder = lake / f"date={DAYS[day].date}"
    offsets = pq.ParquetFile(part(lake, DAYS[day].date)).read(columns=["kafka_offset"])["kafka_offset"]
    topic.compact(0, [offsets[2].as_py()])
    (folder / MANIFEST_NAME).unlink()
    with pytest.raises(OffsetsLost, match="The old folder stays"):
        rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[day].date)
    assert part(lake, DAYS[day].date).exists()


@pytest.mark.parametrize("day", [0, 1])
def test_a_good_late_file_in_its_first_place_and_a_damaged_one_in_its_day_are_one_after_a_rebuild(
    lake: Path, topic: MemoryTopic, day: int
) -> None:
    path, before = late_file(lake, 1), places(lake).keys()
    first = in_its_runs_day(path, 1)
    first.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, first)
    path.write_bytes(b"damaged")
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[day].date)
    assert places(lake).keys() == before
    assert problems(lake) == ()


def test_a_day_is_not_as_committed_where_what_was_brought_to_it_is_not_known(lake: Path) -> None:
    path = late_file(lake, 2)
    (lake / f"date={DAYS[2].date}" / MANIFEST_NAME).write_bytes(b"{")
    path.write_bytes(b"garbage")
    assert any("could not be looked at" in each for each in problems(lake, only=1))


def test_of_two_copies_of_a_late_file_the_message_says_which_may_go(lake: Path, topic: MemoryTopic) -> None:
    path = late_file(lake, 2)
    first = in_its_runs_day(path, 2)
    first.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, first)
    with pytest.raises(LedgerBroken, match=f"where both are alike, {first}"):
        run_day(pipeline(lake, topic, late=Late.AMEND), DAYS[3].date)
    first.unlink()
    run_day(pipeline(lake, topic, late=Late.AMEND), DAYS[3].date)
    assert problems(lake) == ()


@pytest.mark.parametrize("gone", [False, True], ids=["", "without its manifest"])
def test_a_rebuild_and_verify_pass_over_no_folder_that_they_cannot_list(
    topic: MemoryTopic, gone: bool
) -> None:
    """A rebuild took such a folder for an empty one, and moved it out of the day."""
    with folder_of_nobody() as work, unprivileged():
        lake, closed = work / "lake", work / "lake" / f"date={DAYS[1].date}" / "theirs"
        for day in DAYS[:3]:
            run_day(pipeline(lake, topic, late=Late.AMEND), day.date)
        closed.mkdir()
        (closed / "notes").write_bytes(b"somebody's")
        closed.chmod(0)
        if gone:
            (closed.parent / MANIFEST_NAME).unlink()
        else:
            assert [each for each in problems(lake) if f"list {closed}" in each]
        with pytest.raises(StoreFailed, match=r"to list .*theirs; found .*EACCES.* right to read"):
            rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[1].date)
        closed.chmod(0o500)
        assert (closed / "notes").read_bytes() == b"somebody's"
        with pytest.raises(VerifyFailed, match="theirs/notes"):
            rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[1].date)
        closed.chmod(0o700)


def test_a_file_in_the_place_of_a_day_stays(lake: Path, topic: MemoryTopic) -> None:
    """A rebuild found nothing below it, and put the day in its place."""
    folder = lake / f"date={DAYS[1].date}"
    shutil.rmtree(folder)
    folder.write_bytes(b"somebody's")
    with pytest.raises(StoreFailed, match="ENOTDIR"):
        rebuild_day(pipeline(lake, topic, late=Late.AMEND), DAYS[1].date)
    assert folder.read_bytes() == b"somebody's"


def test_a_folder_that_is_closed_just_before_the_exchange_stays_in_staging_and_is_named(
    topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Store.exchange

    def with_a_closed_folder(self: Store, one: Path, other: Path) -> None:
        if other.name == f"date={DAYS[0].date}":
            (other / "theirs").mkdir(mode=0)
        exchange(self, one, other)

    with folder_of_nobody() as work, unprivileged():
        lake = work / "lake"
        run_day(pipeline(lake, topic), DAYS[0].date)
        monkeypatch.setattr(Store, "exchange", with_a_closed_folder)
        with structlog.testing.capture_logs() as said:
            assert rebuild_day(pipeline(lake, topic), DAYS[0].date).manifest.revision == 2
        (kept,) = (lake / "_staging").glob("*/day/theirs")
        (warning,) = [each for each in said if each["log_level"] == "warning"]
        assert str(kept) in str(warning)
