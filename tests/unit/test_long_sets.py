"""A topic written by many small transactions, whose gaps and pending offsets are long sets."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.daily import run_day
from jobs.day.plan import next_due, preview
from jobs.lake.posix import PosixLake
from jobs.lake.status import status
from jobs.lake.store import Store
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_chain
from offsets.days import day_in, midnight
from offsets.errors import LedgerBroken
from offsets.manifest_text import LISTS_NAME, LONG, MANIFEST_NAME, checksum_of
from offsets.verdict import Verdict
from tests.support.local_engine import ZONE, order, pipeline, settings
from tests.support.memory_topic import MemoryTopic, Transaction

FIRST = settings(Path("x")).day.first
DAYS = [day_in(ZONE, FIRST + timedelta(n)) for n in range(3)]
EACH = 3 * LONG


@pytest.fixture
def topic() -> MemoryTopic:
    return transactions()


def transactions() -> MemoryTopic:
    """Make a topic whose transactions hold a record of their day and one of the next, and their marker."""
    topic = MemoryTopic(1)
    for day, after in itertools.pairwise(DAYS):
        at = day.start + timedelta(hours=10)
        for number in range(EACH):
            transaction = Transaction()
            topic.produce(0, order(at, f"d{number}"), at, transaction=transaction)
            topic.produce(0, order(after.start, f"n{number}"), at, transaction=transaction)
            topic.end(transaction, commit=True, at=at)
    return topic


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit two days once; copy it, never change it."""
    lake, topic = tmp_path_factory.mktemp("committed") / "lake", transactions()
    for day in DAYS[:2]:
        run_day(pipeline(lake, topic), day.date)
    return lake


@pytest.fixture
def lake(committed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "lake"))


def problems(lake: Path, topic: MemoryTopic, level: Level = Level.KAFKA) -> tuple[str, ...]:
    return verify(PosixLake(lake), None, lambda *_: None, level, lambda: topic).problems


def test_long_gaps_and_pending_offsets_are_committed_and_proved(lake: Path, topic: MemoryTopic) -> None:
    manifest = run_day(pipeline(lake, topic), DAYS[1].date).manifest
    assert [gap.offsets.range_count for gap in manifest.gaps] == [2 * EACH]
    assert [part.pending.range_count for part in manifest.next.partitions] == [EACH]
    assert manifest.rows(Verdict.IN_DAY) == 2 * EACH, "pending rows of the first day came to their own"
    assert (lake / f"date={DAYS[1].date}" / LISTS_NAME).is_file()
    assert len((lake / f"date={DAYS[1].date}" / "_manifest.json").read_bytes()) < 20_000
    assert problems(lake, topic) == ()


def test_a_rebuild_holds_long_sets_against_those_of_then(lake: Path, topic: MemoryTopic) -> None:
    before = next(read_chain(PosixLake(lake)))
    assert rebuild_day(pipeline(lake, topic), DAYS[0].date).manifest.gaps == before.gaps
    assert problems(lake, topic) == ()


@pytest.mark.parametrize("level", list(Level))
def test_a_lost_or_changed_list_is_a_problem_and_a_rebuild_mends_it(
    lake: Path, topic: MemoryTopic, level: Level
) -> None:
    run_day(pipeline(lake, topic), DAYS[2].date)
    place = lake / f"date={DAYS[1].date}" / LISTS_NAME
    text = place.read_bytes()
    for damaged in (text[:-1], text[:-1] + b"?"):
        place.write_bytes(damaged)
        assert any(LISTS_NAME in each for each in problems(lake, topic, level))
    place.unlink()
    assert any(LISTS_NAME in each for each in problems(lake, topic, level))
    rebuild_day(pipeline(lake, topic), DAYS[1].date)
    assert problems(lake, topic) == ()


@pytest.mark.parametrize("level", [Level.FILES, Level.RECORDS])
@pytest.mark.parametrize("which", [0, 1])
def test_a_list_that_could_not_be_read_once_was_not_proved(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, which: int, level: Level
) -> None:
    """It was logged alone where the next look could read it: whichever read it is, the verdict says so."""
    place, opened = lake / f"date={DAYS[which].date}" / LISTS_NAME, Path.open
    reads: list[int] = []
    failing = -1

    def once(self: Path, *rest: Any, **named: Any) -> Any:
        if self == place:
            reads.append(len(reads))
            if len(reads) == failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *rest, **named)

    monkeypatch.setattr(Path, "open", once)
    assert problems(lake, topic, level) == ()
    count = len(reads)
    assert count > 2
    for failing in range(1, count + 1):
        reads.clear()
        assert any("Input/output error" in each for each in problems(lake, topic, level)), failing


@pytest.mark.parametrize("figure", ["offsets", "ranges", "from_offset", "until_offset"])
def test_figures_that_a_list_does_not_have_are_a_problem(lake: Path, topic: MemoryTopic, figure: str) -> None:
    """Where a run reads on, and how much is pending, is taken from the figures alone."""
    place = lake / f"date={DAYS[1].date}" / MANIFEST_NAME
    body = json.loads(place.read_bytes())
    head = {name: body.pop(name) for name in ("format_version", "checksum")}
    body["gaps"][0]["offsets"][figure] -= 1
    place.write_text(json.dumps(head | body | {"checksum": checksum_of(body)}))
    found = problems(lake, topic, Level.FILES)
    assert any("other ones" in each and LISTS_NAME in each for each in found)


def moved_lists(lake: Path, day: date, into: Path) -> None:
    """Copy a day with its sets at other places of the list file: another version of the same day."""
    shutil.copytree(lake / f"date={day}", into)
    (into / LISTS_NAME).write_bytes(b"another" + (into / LISTS_NAME).read_bytes())
    body = json.loads((into / MANIFEST_NAME).read_bytes())
    head = {name: body.pop(name) for name in ("format_version", "checksum")}
    checkpoints = [part["pending"] for each in ("consumed", "next") for part in body[each]["partitions"]]
    for listed in [*checkpoints, *(gap["offsets"] for gap in body["gaps"])]:
        if isinstance(listed, dict):
            listed["at"] += len(b"another")
    (into / MANIFEST_NAME).write_text(json.dumps(head | body | {"checksum": checksum_of(body)}))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("command", ["plan", "status", "verify", "next_due"])
def test_a_day_that_is_exchanged_between_two_reads_is_read_again(
    lake: Path,
    topic: MemoryTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    which: int,
) -> None:
    """Manifest and list were of two versions of the day, and the chain was called broken."""
    day, other, read = DAYS[which].date, tmp_path / "other", PosixLake.manifest_text
    moved_lists(lake, day, other)
    exchanged: list[date] = []

    def then_exchanged(self: PosixLake, of: date) -> bytes | None:
        text = read(self, of)
        if of == day and not exchanged:
            exchanged.append(of)
            Store().exchange(other, lake / f"date={day}")
            self.enter([day])
        return text

    monkeypatch.setattr(PosixLake, "manifest_text", then_exchanged)
    here = pipeline(lake, topic)
    match command:
        case "plan":
            planned = preview(here, None).planned
            assert planned is not None
            assert planned.plan.day.date == DAYS[2].date
        case "status":
            seen = status(PosixLake(lake), FIRST, lambda ledger, of: midnight(of, ZONE), here.now())
            assert [each.date for each in seen.days] == [each.date for each in DAYS[:2]]
        case "next_due":
            assert next_due(here)[0] == DAYS[2].date
        case _:
            assert problems(lake, topic) == ()
    assert exchanged


def test_a_broken_chain_is_told_after_the_second_read(lake: Path, topic: MemoryTopic) -> None:
    (lake / f"date={DAYS[1].date}" / LISTS_NAME).unlink()
    with pytest.raises(LedgerBroken, match=LISTS_NAME):
        preview(pipeline(lake, topic), None)


def test_of_a_lost_list_of_the_newest_day_the_message_names_the_way_out(
    lake: Path, topic: MemoryTopic
) -> None:
    (lake / f"date={DAYS[1].date}" / LISTS_NAME).unlink()
    with pytest.raises(LedgerBroken, match="so can the newest: `run --date D --force`"):
        run_day(pipeline(lake, topic), DAYS[2].date)
    rebuild_day(pipeline(lake, topic), DAYS[1].date)
    assert problems(lake, topic) == ()
    run_day(pipeline(lake, topic), DAYS[2].date)
    assert problems(lake, topic) == ()


def test_a_list_that_no_manifest_names_is_a_stranger(tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    run_day(pipeline(tmp_path, topic), DAYS[0].date)
    place = tmp_path / f"date={DAYS[0].date}" / LISTS_NAME
    assert not place.exists(), "an empty day has no long set"
    place.write_bytes(b"x")
    assert any("no manifest names this file" in each for each in problems(tmp_path, topic, Level.FILES))


@pytest.mark.parametrize("kind", ["gaps", "late"])
def test_the_bench_of_long_sets_plays_to_its_end(kind: str) -> None:
    """It ended in LedgerBroken: the ledger missed the first day of a lake that has one day."""
    program = [sys.executable, "-m", "tests.bench.long_sets", "--ranges", "1000", "--kind", kind]
    assert subprocess.run(program, check=False, capture_output=True).returncode == 0
