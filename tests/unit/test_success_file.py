"""`_SUCCESS` comes with its day, in the same rename, where the config asks for it; it is ours and no row."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.lake.names import STAGED_DAY
from jobs.lake.posix import PosixLake
from jobs.lake.store import System
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import VerifyFailed
from tests.support.lake import places
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.readers import READERS, WAYS, counted
from tests.support.three_days import FIRST, SECOND, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


def files(lake: Path) -> list[str]:
    return sorted(path.parent.name for path in lake.rglob("_SUCCESS") if path.read_bytes() == b"")


def problems(lake: Path, topic: MemoryTopic) -> tuple[str, ...]:
    return verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic).problems


class Watches(System):
    """System calls that note whether the file is there when a day becomes visible."""

    def __init__(self) -> None:
        self.renamed: list[bool] = []

    def rename(self, source: Path, target: Path) -> None:
        if source.name == STAGED_DAY:
            self.renamed.append((source / "_SUCCESS").exists())
        super().rename(source, target)


@pytest.mark.parametrize("asked", [True, False])
def test_it_is_there_where_it_is_asked_for_and_comes_with_the_rename(
    lake: Path, topic: MemoryTopic, asked: bool
) -> None:
    system = Watches()
    run_day(pipeline(lake, topic, system=system, success_file=asked), FIRST)
    assert system.renamed == [asked]
    assert files(lake) == [f"date={FIRST}"] * asked
    assert problems(lake, topic) == ()


@pytest.mark.parametrize("manifest", ["whole", "gone"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_day_that_has_it_is_built_again_as_the_config_says_by_then(
    lake: Path, topic: MemoryTopic, asked: bool, manifest: str
) -> None:
    run_day(pipeline(lake, topic, success_file=True), FIRST)
    run_day(pipeline(lake, topic, success_file=True), SECOND)
    before = places(lake)
    if manifest == "gone":
        (lake / f"date={SECOND}" / "_manifest.json").unlink()
    rebuild_day(pipeline(lake, topic, success_file=asked), SECOND)
    assert files(lake) == [f"date={FIRST}", *[f"date={SECOND}"] * asked]
    assert places(lake) == before
    assert problems(lake, topic) == ()


@pytest.mark.parametrize("where", ["_SUCCESS", "_invalid/_SUCCESS"])
def test_one_with_contents_or_elsewhere_is_somebody_elses(lake: Path, topic: MemoryTopic, where: str) -> None:
    run_day(pipeline(lake, topic), FIRST)
    path = lake / f"date={FIRST}" / where
    path.write_bytes(b"x" if where == "_SUCCESS" else b"")
    assert [problem for problem in problems(lake, topic) if "no manifest names this file" in problem]
    with pytest.raises(VerifyFailed, match="_SUCCESS"):
        rebuild_day(pipeline(lake, topic), FIRST)


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_counts_it(tmp_path: Path, topic: MemoryTopic, reader: str) -> None:
    for asked in (True, False):
        run_day(pipeline(tmp_path / f"{asked}", topic, success_file=asked), FIRST)
    counts = {
        asked: [counted(reader, f"{tmp_path}/{asked}/{way}") for way in WAYS] for asked in (True, False)
    }
    assert counts[True] == counts[False]
    assert 6 in counts[True]
