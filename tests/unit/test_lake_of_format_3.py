"""A lake as version 0.1.0 left it, with its names: it is read, verified, built again, and goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from itertools import product
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import KafkaDailyError
from offsets.manifest_text import MANIFEST_NAME
from tests.support.kept_lake import FOURTH, a_kept_lake, four_days_of_orders
from tests.support.lake import files, manifests, places
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD

ASIDE = f"date={SECOND}/_late/date={FIRST}/late-{SECOND}-20260401T000000-000002-00001.parquet"
AMENDED = f"date={SECOND}/late-{THIRD}-20260401T000000-000003-00001.parquet"
SOURCE = f"date={THIRD}/_late/{AMENDED}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return a_kept_lake(tmp_path / "lake")


@pytest.fixture
def topic() -> MemoryTopic:
    return four_days_of_orders()


def problems(lake: Path, topic: MemoryTopic) -> list[str]:
    return list(verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic).problems)


def run(lake: Path, topic: MemoryTopic, day: date = FOURTH) -> None:
    run_day(pipeline(lake, topic, late=Late.AMEND), day)


def rebuild(lake: Path, topic: MemoryTopic, day: date) -> None:
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), day)


def test_it_is_as_it_was_committed(lake: Path, topic: MemoryTopic) -> None:
    assert [manifest["format_version"] for manifest in manifests(lake)] == [3, 3, 3]
    assert {ASIDE, AMENDED} <= files(lake)
    assert problems(lake, topic) == []


def test_it_goes_on_and_its_old_names_stay(lake: Path, topic: MemoryTopic) -> None:
    names, before = files(lake), places(lake)
    run(lake, topic)
    assert names <= files(lake)
    assert before.items() <= places(lake).items()
    assert [path.name[:20] for path in lake.glob(f"date={SECOND}/part-late-*.parquet")] == [
        f"part-late-{FOURTH}"
    ]
    assert problems(lake, topic) == []


@pytest.mark.parametrize(
    "day, harm",
    [(FIRST, "whole"), *product([SECOND, THIRD, FOURTH], ["whole", "without manifest", "without folder"])],
)
def test_each_of_its_days_is_built_again_and_holds_what_it_held(
    lake: Path, topic: MemoryTopic, day: date, harm: str
) -> None:
    run(lake, topic)
    before = places(lake)
    if harm == "without manifest":
        (lake / f"date={day}" / MANIFEST_NAME).unlink()
    if harm == "without folder":
        shutil.rmtree(lake / f"date={day}")
    rebuild(lake, topic, day)
    assert places(lake) == before
    assert problems(lake, topic) == []


@pytest.mark.parametrize("day", [FIRST, SECOND, THIRD])
def test_a_day_that_is_built_again_gives_its_own_files_todays_names(
    lake: Path, topic: MemoryTopic, day: date
) -> None:
    assert list((lake / f"date={day}").glob("_*/**/*.parquet"))
    rebuild(lake, topic, day)
    assert not list((lake / f"date={day}").glob("_*/**/*.parquet"))
    assert len(list((lake / f"date={day}").glob("_invalid/*.rows"))) == 1


def test_a_move_that_was_begun_under_its_names_is_finished_under_them(lake: Path, topic: MemoryTopic) -> None:
    before = places(lake)
    (lake / SOURCE).parent.mkdir(parents=True, exist_ok=True)
    (lake / AMENDED).rename(lake / SOURCE)
    run(lake, topic)
    assert (lake / AMENDED).exists()
    assert not (lake / SOURCE).exists()
    assert before.items() <= places(lake).items()


def lost(path: Path) -> None:
    path.unlink()


def broken(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("harm", [lost, broken])
def test_a_late_file_of_its_names_is_brought_again_by_its_day_under_a_name_of_today(
    lake: Path, topic: MemoryTopic, harm: Callable[[Path], None]
) -> None:
    before = places(lake)
    harm(lake / AMENDED)
    rebuild(lake, topic, SECOND)
    assert places(lake) == before
    assert AMENDED not in files(lake)
    assert len(list(lake.glob(f"date={SECOND}/part-late-{THIRD}-*.parquet"))) == 1
    assert problems(lake, topic) == []


def test_a_late_file_of_its_names_is_known_where_its_day_was_removed(lake: Path, topic: MemoryTopic) -> None:
    """Its rows lie in an earlier day: the day must not be settled again as a new one."""
    shutil.rmtree(lake / f"date={THIRD}")
    with pytest.raises(KafkaDailyError, match=f"late-{THIRD}"):
        run(lake, topic, THIRD)
