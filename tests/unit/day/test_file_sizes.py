"""Files have their size from the first day on, since a sample tells what a row takes before tasks are cut."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.daily import run_day
from jobs.day.execute import Execution
from jobs.day.plan import make_plan
from jobs.day.sampling import PLACES, SAMPLE_BYTES, SAMPLE_ROWS, SECONDS, places, sampled_row_bytes
from jobs.stages import DayStages
from jobs.task.classify import DayBounds
from jobs.task.result import TaskResult
from jobs.task.task import TaskSpec
from offsets.commit_log import read_ledger
from offsets.days import day_in
from offsets.manifest import Manifest
from offsets.verdict import Verdict
from tests.support.local_engine import RULES, ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.plain_files import FILES

FIRST = date(2026, 3, 28)
NEXT = FIRST + timedelta(days=1)
TARGET = 512 << 10
ROWS = 24_000
SIZES: dict[str, Any] = {"target_file_size": TARGET, "min_file_size": TARGET // 8}
DICE = random.Random(5)

Text = Callable[[], str]


@dataclass
class WatchedEngine(LocalEngine):
    """Keeps what the tasks reported."""

    reports: list[TaskResult] = field(default_factory=list)

    def run_tasks(self, *given: Any, **named: Any) -> list[TaskResult]:
        self.reports = super().run_tasks(*given, **named)
        return self.reports


def random_text(size: int) -> Text:
    return lambda: DICE.randbytes(size // 2).hex()


def repeated_text(size: int) -> Text:
    return lambda: f"{DICE.randrange(1 << 30):x}" + "again and again " * (size // 16)


def fill(topic: MemoryTopic, day: date, text: Text, rows: int = ROWS) -> None:
    start = day_in(ZONE, day).start
    for number in range(rows):
        at = start + timedelta(seconds=number * 80_000 / rows)
        topic.produce(number % 3, order(at, id=text(), n=number), at, key=b"k%d" % (number % 500))


def sizes(engine: WatchedEngine) -> tuple[list[int], list[int]]:
    """Return the sizes of all files, and of those that are not the last of a task."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for report in engine.reports:
        for file in report.files:
            by_task[str(Path(file.path).parent)].append(file.bytes)
    return [size for each in by_task.values() for size in each], [
        size for each in by_task.values() for size in each[:-1]
    ]


def check(engine: WatchedEngine, manifest: Manifest) -> None:
    every, whole = sizes(engine)
    assert sorted(every) == sorted(file.bytes for file in manifest.files_of(Verdict.IN_DAY))
    assert len(every) <= math.ceil(sum(every) / TARGET) + engine.cores, f"{len(every)} files: {every}"
    assert max(every) <= 1.15 * TARGET
    assert all(0.85 * TARGET <= size <= 1.15 * TARGET for size in whole), whole


@pytest.mark.parametrize(
    "text", [random_text(180), repeated_text(900), repeated_text(90)], ids=["dense", "thin", "small"]
)
def test_the_first_days_files_are_not_small_because_nobody_knew_the_compression(
    text: Text, tmp_path: Path
) -> None:
    topic = MemoryTopic(3)
    fill(topic, FIRST, text)
    engine = WatchedEngine(topic, batch_rows=2_000)
    check(engine, run_day(pipeline(tmp_path / "lake", topic, engine=engine, **SIZES), FIRST).manifest)


@pytest.mark.parametrize("before, now", [(90, 180), (360, 90)], ids=["doubled", "a quarter"])
def test_a_days_files_do_not_follow_the_day_before(before: int, now: int, tmp_path: Path) -> None:
    topic = MemoryTopic(3)
    fill(topic, FIRST, random_text(before), ROWS // 4)
    fill(topic, NEXT, random_text(now))
    engine = WatchedEngine(topic, batch_rows=2_000)
    here = pipeline(tmp_path / "lake", topic, engine=engine, **SIZES)
    for day in (FIRST, NEXT):
        manifest = run_day(here, day).manifest
    check(engine, manifest)


def sample(tmp_path: Path, topic: MemoryTopic, **changed: Any) -> tuple[float | None, float]:
    """Return what a sample says of a row, and what the day's files say."""
    engine = WatchedEngine(topic, batch_rows=2_000)
    here = pipeline(tmp_path / "lake", topic, engine=engine, **SIZES, **changed)
    planned = make_plan(here, read_ledger(here.lake), FIRST)
    plan, rules = planned.plan, here.settings.rules
    task = TaskSpec(
        rules=rules,
        bounds=DayBounds.of(plan, rules),
        lake=FILES,
        attempts=str(tmp_path / "attempts"),
        files=Execution.begin(here, planned, "", DayStages(FIRST)).file_options(),
    )
    found = sampled_row_bytes(topic, plan, task)
    run_day(here, FIRST)
    return found, sum(sizes(engine)[0]) / plan.offsets


@pytest.mark.parametrize("headers", [False, True])
def test_a_sample_comes_near_the_truth(headers: bool, tmp_path: Path) -> None:
    topic = MemoryTopic(2)
    start = day_in(ZONE, FIRST).start
    text = random_text(100)
    for number in range(30_000):
        at = start + timedelta(seconds=number)
        pairs = [("trace", DICE.randbytes(30))] if headers else []
        value = b"broken" if number % 1000 == 3 else order(at, id=text())
        topic.produce(number % 2, value, at, key=b"k", headers=pairs)
    rules = replace(RULES, kafka_columns=frozenset({"key", "headers"} if headers else {"key"}))
    found, truth = sample(tmp_path, topic, rules=rules, invalid_limit=0.5)
    assert found == pytest.approx(truth, rel=0.08), "the many row groups of small files weigh most here"


def test_large_records_count_in_a_sample_as_much_as_small_ones(tmp_path: Path) -> None:
    """Bytes end the sample of large records sooner: counted as they come, they would hardly show."""
    topic = MemoryTopic(2)
    start = day_in(ZONE, FIRST).start
    small, large = random_text(60), random_text(40_000)
    for number in range(4_000):
        at = start + timedelta(seconds=number)
        topic.produce(number % 2, order(at, id=large() if number % 2 else small()), at)
    assert SAMPLE_BYTES / PLACES < 40_000 * 2_000 / PLACES
    found, truth = sample(tmp_path, topic)
    assert found == pytest.approx(truth, rel=0.1)


def test_a_sample_that_cannot_be_had_leaves_the_guess(tmp_path: Path) -> None:
    topic = MemoryTopic()
    start = day_in(ZONE, FIRST).start
    for number in range(100):
        topic.produce(0, b"broken", start + timedelta(seconds=number))
    here = pipeline(tmp_path / "lake", topic, invalid_limit=1.0, engine=LocalEngine(topic), **SIZES)
    planned = make_plan(here, read_ledger(here.lake), FIRST)
    plan = planned.plan
    (tmp_path / "sample").write_text("no folder")
    task = TaskSpec(
        rules=RULES,
        bounds=DayBounds.of(plan, RULES),
        lake=FILES,
        attempts=str(tmp_path / "attempts"),
        files=Execution.begin(here, planned, "", DayStages(FIRST)).file_options(),
    )
    assert sampled_row_bytes(topic, plan, task) is None


def test_a_slow_broker_makes_the_sample_small_and_not_the_run_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of its own: on a busy machine a sample less fitted into the real seconds."""
    topic, clock = MemoryTopic(3), [0.0]
    fill(topic, FIRST, random_text(60), 2_000)
    for module in ("sampling", "stamps"):
        monkeypatch.setattr(f"jobs.day.{module}.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def wait(question: str) -> None:
        clock[0] += SECONDS / 2.5 if question == "sample" else 0.0

    topic.before = wait
    found, truth = sample(tmp_path, topic)
    assert topic.asked.count("sample") == 2 * (3 + 2), (
        "once by the test, once by the run; each plan takes two"
    )
    assert found == pytest.approx(truth, rel=0.3)


@pytest.mark.parametrize("rows", [1, 15, 17, 1_000, 70_000])
def test_places_lie_apart_and_within_what_is_read(rows: int, tmp_path: Path) -> None:
    topic = MemoryTopic(3)
    start = day_in(ZONE, FIRST).start
    for number in range(rows):
        topic.produce(number % 3, b"{}", start + timedelta(milliseconds=number))
    here = pipeline(tmp_path / "lake", topic)
    planned = make_plan(here, read_ledger(here.lake), FIRST)
    plan = planned.plan
    spans: Sequence[Any] = plan.spans
    chosen = places(plan)
    sampled = [(part, at) for part, from_, until in chosen for at in range(from_, until)]
    assert len(sampled) == len(set(sampled)) <= SAMPLE_ROWS
    assert sampled, "nothing is sampled of nothing"
    read = {
        (span.partition, at) for span in spans for from_, until in span.reads for at in range(from_, until)
    }
    assert set(sampled) <= read
    if rows > SAMPLE_ROWS:
        assert len(sampled) > 0.9 * SAMPLE_ROWS
        assert {part for part, _, _ in chosen} == {0, 1, 2}


def test_a_sample_without_a_record_leaves_the_guess(tmp_path: Path) -> None:
    """It said that a row takes nothing, and the whole day went through one task."""
    topic = MemoryTopic()
    start = day_in(ZONE, FIRST).start
    aborted = Transaction()
    for number in range(1_000):
        topic.produce(0, b"dropped", start + timedelta(seconds=number), transaction=aborted)
    topic.end(aborted, commit=False, at=start + timedelta(hours=1))
    found, _ = sample(tmp_path, topic)
    assert found is None
