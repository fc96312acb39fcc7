"""Two runs at once, on one day and on neighbouring days: one works, the other stops or finds it done.

Without Spark for many rounds, in two processes that a barrier starts together; with Spark for one of three
meetings, or all where it is the proof that asks. The lake is held against what is right after each round.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import structlog

from jobs.config import Late
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from offsets.errors import KafkaDailyError
from tests.support import lake as lakes
from tests.support.engine import Child, Configured
from tests.support.judged import SentRecord, assert_exact, night
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.sampled import Record, drawn
from tests.support.three_days import FIRST, SECOND, THIRD, three_days
from tests.support.two_days import DAYS

WAIT = 120.0
ROUNDS = 200
PAIRS_DRAWN = 1
IN_TURN_EVERY = 50
"""Of so many rounds, one of each meeting is in turn."""
STEP_IN = 0.15
"""How many seconds the second process may come after the first: about as long as a run takes."""
DONE = {"committed", "already committed"}
REFUSED = {"LakeLocked", "EarlierDayMissing"}


class Killed(BaseException):
    """Ends a run as a kill would: no handler of ours knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What lies there when two runs start, and the day of each."""

    name: str
    before: int
    days: tuple[date, date]
    moves_open: bool = False


MEETINGS = [
    Meeting(name="the first day", before=0, days=(FIRST, FIRST)),
    Meeting(name="the first day and the next", before=0, days=(FIRST, SECOND)),
    Meeting(name="a day with late rows", before=1, days=(SECOND, SECOND)),
    Meeting(name="two days with late rows", before=1, days=(SECOND, THIRD)),
    Meeting(name="moves left open, and the next day", before=2, days=(SECOND, THIRD), moves_open=True),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One meeting in a lake of its own; `waits` are the seconds that each process steps in later.

    `second` is the process that begins once the other has ended.
    """

    lake: Path
    meeting: Meeting
    waits: tuple[float, float]
    second: int | None


def test_of_two_runs_that_start_together_one_works_and_the_lake_is_exact(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    right = [_lake_of(tmp_path / f"right-{count}", count) for count in range(4)]
    starts = {
        meeting.name: _lake_of(
            tmp_path / f"start-{number}", meeting.before, killed_before_moving=meeting.moves_open
        )
        for number, meeting in enumerate(MEETINGS)
    }
    rounds = list(_rounds(tmp_path, random.Random(seed), starts))
    seen: Counter[tuple[str, ...]] = Counter()
    for round_, ends in zip(rounds, _ran(rounds), strict=True):
        said = f"{round_.meeting.name}, in {round_.lake}: {ends}"
        assert set(ends) <= DONE | REFUSED, said
        assert "EarlierDayMissing" not in ends or round_.meeting.days[0] != round_.meeting.days[1], said
        assert ends.count("committed") < 2 or round_.meeting.days[0] != round_.meeting.days[1], said
        committed = len(lakes.manifests(round_.lake))
        assert committed == round_.meeting.before + ends.count("committed"), said
        assert lakes.places(round_.lake) == lakes.places(right[committed]), said
        assert _shape(round_.lake) == _shape(right[committed]), said
        seen[tuple(sorted(ends))] += 1
        shutil.rmtree(round_.lake)
    print(dict(seen))
    assert sum(seen.values()) == ROUNDS
    assert seen["LakeLocked", "committed"] > ROUNDS / 10, seen
    assert seen["already committed", "committed"] > 0, seen
    assert seen["EarlierDayMissing", "LakeLocked"] + seen["EarlierDayMissing", "committed"] > 0, seen


def _rounds(folder: Path, rng: random.Random, starts: dict[str, Path]) -> Iterator[Round]:
    for number in range(ROUNDS):
        meeting = MEETINGS[number % len(MEETINGS)]
        lake = folder / f"round-{number}"
        if meeting.before:
            shutil.copytree(starts[meeting.name], lake)
        # half of them at once, the others a little apart, so that each part of a run meets each; and some in
        # turn, however slow the machine is
        late = rng.uniform(0, STEP_IN) if rng.random() < 0.5 else 0.0
        waits = (late, 0.0) if rng.random() < 0.5 else (0.0, late)
        second = number // IN_TURN_EVERY % 2 if number % IN_TURN_EVERY < len(MEETINGS) else None
        yield Round(lake=lake, meeting=meeting, waits=waits, second=second)


def _ran(rounds: Sequence[Round]) -> Iterator[tuple[str, ...]]:
    """Run all rounds in two processes; give how the two runs of each ended."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2, timeout=WAIT)
    told: list[SimpleQueue[list[str]]] = [context.SimpleQueue() for _ in range(2)]
    children = [
        context.Process(target=_run_all, args=(which, rounds, barrier, told[which]), daemon=True)
        for which in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(2 * WAIT)
        assert child.exitcode == 0
    return zip(*(queue.get() for queue in told), strict=True)


def _run_all(which: int, rounds: Sequence[Round], barrier: Barrier, told: SimpleQueue[list[str]]) -> None:
    """Take part in every round, in a process of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    topic = _topic()
    ends = []
    for number, round_ in enumerate(rounds):
        mine = replace(pipeline(round_.lake, topic, late=Late.AMEND), run_id=f"run-{number}-{which}")
        barrier.wait()
        if round_.second == which:
            barrier.wait()
        time.sleep(round_.waits[which])
        ends.append(_end_of(mine, round_.meeting.days[which]))
        if round_.second == 1 - which:
            barrier.wait()
    told.put(ends)


def _end_of(mine: Pipeline, day: date) -> str:
    try:
        return "already committed" if run_day(mine, day).already else "committed"
    except KafkaDailyError as stopped:
        return type(stopped).__name__


def _topic() -> MemoryTopic:
    topic = MemoryTopic(2)
    three_days(topic)
    return topic


def _lake_of(folder: Path, count: int, *, killed_before_moving: bool = False) -> Path:
    """Make a lake of the first days; the last run may be killed just before its late rows move."""
    topic, lake = _topic(), folder / "lake"
    for number, day in enumerate((FIRST, SECOND, THIRD)[:count], start=1):
        with pytest.MonkeyPatch.context() as patched, suppress(Killed):
            if killed_before_moving and number == count:
                patched.setattr(PosixLake, "bring", _killed)
            run_day(pipeline(lake, topic, late=Late.AMEND), day)
    shutil.rmtree(lake / "_staging", ignore_errors=True)
    assert bool(list(lake.glob("date=*/_late/**/*.rows"))) == killed_before_moving
    return lake


def _killed(*_: object) -> bool:
    raise Killed


def _shape(lake: Path) -> Counter[str]:
    """Count the files of each folder but the lock: the names differ by their runs."""
    files = (path for path in lake.rglob("*") if path.is_file() and path.name != "_lock")
    return Counter(str(path.parent.relative_to(lake)) for path in files)


@pytest.mark.timeout(600)
def test_of_two_runs_with_spark_that_start_together_one_works_and_the_lake_is_exact(
    two_days: tuple[str, list[SentRecord]],
    configured: Configured,
    child: Child,
    lake: Path,
    record_property: Record,
) -> None:
    topic, words = two_days
    first, second = map(str, DAYS)
    both = ("--from", first, "--to", second)
    cli = child(configured(topic))
    pairs = [(("--date", first),) * 2, (("--date", first), ("--date", second)), (both, both)]
    for one, two in drawn(pairs, PAIRS_DRAWN, record_property):
        shutil.rmtree(lake, ignore_errors=True)
        with (
            cli.started("run", *one, "--json") as (a, said_a),
            cli.started("run", *two, "--json") as (b, said_b),
        ):
            ends = [_ended(a, said_a), _ended(b, said_b)]
        committed = len(lakes.manifests(lake))
        if one == two:
            assert ends[0] == 0 or ends[1] == 0
            assert set(ends) <= {0, 11}, ends
            assert committed == (2 if one == both else 1)
        else:
            assert ends[0] in (0, 11), ends
            assert ends[1] in (0, 11, 16), ends
            assert committed == ends.count(0)
        if committed:
            assert_exact(lake, words, [night(day) for day in DAYS[:committed]])


def _ended(run: subprocess.Popen[bytes], log: Path) -> int:
    """Wait for a run; what it says must fit its code."""
    code = run.wait(WAIT)
    said = json.loads(log.with_suffix(".out").read_text())
    errors = {11: "LakeLocked", 16: "EarlierDayMissing"}
    assert said.get("error") == errors.get(code), log.read_text()
    return code
