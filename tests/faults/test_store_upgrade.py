"""One fault at every change of an upgrade: a reader sees each row once all along, and a rerun is exact."""

from __future__ import annotations

import atexit
import errno
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final, cast

import pytest

from jobs.context import Pipeline
from jobs.daily import Outcome
from jobs.lake.files import awaits_rename
from jobs.lake.names import earlier_name
from jobs.lake.port import DayContents
from jobs.lake.posix import PosixLake
from jobs.upgrade.chain import upgradable
from jobs.upgrade.run import Upgraded, _Upgrade, upgrade
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import LedgerBroken, StoreFailed
from tests.faults.store import Fault, nothing
from tests.faults.story import Reader, Story, Trial, at, four_days, memory_folder
from tests.faults.sweeps import (
    ANSWER_LOST,
    KILLED,
    MODES,
    MOVES,
    POWER_LOST,
    SOME_KEPT,
    Alike,
    Mode,
    Record,
    each_fault,
    settle_all,
)
from tests.support.earlier_formats import as_of_format
from tests.support.lake import places
from tests.support.local_engine import days, order
from tests.support.memory_topic import MemoryTopic
from tests.support.sampled import numbered

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Arrow's writer closes its file when it is collected, and meets the fault again."""

NAMES = MOVES | {"rename", "exchange"}
"""The changes of names that an upgrade consists of."""


@cache
def with_an_empty_day() -> Story:
    """Four days, of which the second has no row of its own; the others bring late rows of the first."""
    all_days = tuple(days(four_days(1).days[0], four_days(1).days[3]))
    topic = MemoryTopic(2)
    for number, day in enumerate(all_days):
        if number != 1:
            topic.produce(0, order(at(day, 2)), at(day, 2))
        if number:
            topic.produce(1, order(at(all_days[0], 4)), at(day, 3))
        topic.produce(0, b"not json", at(day, 12))
    return Story(all_days, topic, 1)


@dataclass(frozen=True, eq=False)
class Upgrading(Story):
    """Committed days of an earlier format, which are upgraded."""

    of: Story
    version: int

    def command(self, pipeline: Pipeline, day: object) -> Outcome:
        assert upgrade(pipeline).left == {}
        return cast("Outcome", None)

    @cache  # noqa: B019 - stories live as long as the tests
    def start(self, count: int) -> Path:
        """Return the lake as an earlier version would have left it."""
        folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        lake = Path(shutil.copytree(self.of.lake(count), folder / "lake"))
        return as_of_format(lake, self.version)

    @cache  # noqa: B019 - as above
    def lake(self, count: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        trial = Trial(folder, self.of, count, self.start(count))
        trial.store.watch = lambda: None
        self.run(trial.lake, self.days[0])
        return trial.lake


@cache
def upgrading(story: Story, version: int = 3) -> Upgrading:
    return Upgrading(story.days, story.topic, story.tasks, of=story, version=version)


class AnyName(Reader):
    """Looks as any reader does: no row is away for a moment, and none is seen twice, by whatever name."""

    def look(self) -> None:
        super().look()
        last = sum(map(len, self._own.values())) + sum(map(len, self._amended.values()))
        assert len(self._last) == last, "a row is away"


class Upgrade(Trial):
    """An upgrade on a faulty store."""

    def __init__(self, folder: Path, story: Story, number: int = 2, version: int = 3) -> None:
        self.of = story
        of_format = upgrading(story, version)
        super().__init__(folder, of_format, number, of_format.start(number + 1))

    def watch(self, number: int) -> None:
        self.number = number
        self.reader = AnyName(self.lake, self.of, number + 1)
        self.reader.look()
        self.store.watch = self.reader.look

    def confirm(self) -> None:
        assert upgradable(PosixLake(self.lake)) == (), "an upgrade ended well, and was lost"

    def require(self) -> None:
        super().require()
        assert upgradable(PosixLake(self.lake)) == ()
        found = verify(PosixLake(self.lake), None, lambda *_: None, Level.RECORDS)
        assert (found.problems, found.not_entered, found.notes) == ((), (), ())


DRAWN: Final = 3
"""A test run draws each third fault; the proof plays all."""


def sweep(
    mode: Mode,
    story: Story,
    numbers: Iterator[int],
    version: int = 3,
    of: frozenset[str] | None = None,
) -> Iterator[tuple[Trial, str]]:
    """Yield a lake after each single fault of some kinds, until an upgrade gets through without one."""
    return each_fault(lambda folder: Upgrade(folder, story, version=version), mode, numbers, of)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_fault_at_any_change_of_an_upgrade_hides_no_row_and_a_rerun_is_exact(
    mode: Mode, record_property: Record
) -> None:
    faults = sweep(mode, four_days(1), numbered(DRAWN, record_property))
    assert settle_all(faults, record_property, f"upgrade, {mode.name}") > 100 // DRAWN


@pytest.mark.parametrize("mode", [KILLED, ANSWER_LOST], ids=lambda mode: mode.name)
def test_a_fault_at_any_change_of_an_upgrade_of_format_1_with_an_empty_day_is_mended_by_a_rerun(
    mode: Mode, record_property: Record
) -> None:
    numbers = numbered(DRAWN, record_property)
    of_format_1 = sweep(mode, with_an_empty_day(), numbers, version=1, of=NAMES)
    assert settle_all(of_format_1, record_property, f"upgrade of format 1, {mode.name}") > 30 // DRAWN


@pytest.mark.parametrize("seed", range(3))
def test_a_second_fault_in_the_rerun_of_an_upgrade_leaves_the_lake_exact(
    seed: int, record_property: Record
) -> None:
    def pairs() -> Iterator[tuple[Trial, str]]:
        chance = random.Random(seed)
        for _ in range(12):
            with memory_folder() as folder:
                trial = Upgrade(folder, four_days(1))
                notes = [chance.choice(MODES).fail(trial, chance.randint(1, 100)) for _ in range(2)]
                yield trial, "; ".join(notes)

    assert settle_all(pairs(), record_property, f"two faults, seed {seed}") > 12


@pytest.mark.parametrize("mode", [KILLED, SOME_KEPT], ids=lambda mode: mode.name)
def test_a_run_of_the_next_day_goes_on_after_an_upgrade_that_died_and_the_command_ends_it(mode: Mode) -> None:
    """The run loses and doubles no row; renames of late files of the newest day it makes itself."""
    story, states, alike = four_days(1), Counter[int](), Alike(mode, NAMES)
    for n in count(1):
        with memory_folder() as folder:
            trial = Upgrade(folder, story)
            note = alike.fail(trial, n)
            try:
                lake = PosixLake(trial.lake)
                states[len(upgradable(lake))] += 1
                trial.store.watch = lambda: None
                assert not story.run(trial.lake, story.days[3], system=trial.store).already
                assert places(trial.lake) == places(story.lake(4))
                trial.watch(3)
                trial.run()
                trial.power_loss(nothing)
                assert places(trial.lake) == places(story.lake(4))
                assert upgradable(lake) == ()
                assert verify(lake, None, lambda *_: None, Level.RECORDS).problems == ()
            except BaseException as failed:
                failed.add_note(note)
                raise
        if not note:
            break
    assert states.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("refused", ["exchange", "link"])
def test_a_store_without_links_or_exchange_is_refused_before_any_day_is_changed(
    refused: str, tmp_path: Path
) -> None:
    trial = Upgrade(tmp_path, four_days(1))
    fault = Fault(at=1, error=errno.ENOTSUP, of=frozenset({refused}), lasting=True)
    before = dict(trial.story.files(trial.lake))
    ended = trial.stopped(fault)
    assert isinstance(ended, StoreFailed)
    assert "No day was changed" in ended.do
    beside = ("_ledger/", "_staging/")
    assert before == {
        name: held for name, held in trial.story.files(trial.lake) if not name.startswith(beside)
    }
    trial.settle()


# -- the sweep sees an upgrade that lacks one of its rules


def exchange_without_a_sync(self: PosixLake, staged: str, day: object, contents: DayContents) -> None:
    self._store.exchange(self._put_together(staged, contents), self.root / f"date={day}")


def link_then_unlink(self: PosixLake, source: str, target: str) -> bool:
    if awaits_rename(self, source, target) and not self.stat(target):
        self._store.link(self.root / earlier_name(target), self.root / target)
        self._store.unlink(self.root / earlier_name(target))
    return BRING(self, source, target)


def unlink_then_link(self: PosixLake, source: str, target: str) -> bool:
    if awaits_rename(self, source, target):
        self._store.unlink(self.root / earlier_name(target))
    return BRING(self, source, target)


def oldest_first(self: _Upgrade, days: list[date]) -> Upgraded:
    return RUN(self, days[::-1])


BRING, RUN = PosixLake.bring, _Upgrade.run


@pytest.mark.parametrize(
    "of, rule, broken, mode",
    [
        (PosixLake, "replace", exchange_without_a_sync, POWER_LOST),
        (PosixLake, "bring", link_then_unlink, KILLED),
        (PosixLake, "bring", unlink_then_link, KILLED),
        (_Upgrade, "run", oldest_first, KILLED),
    ],
    ids=["not durable", "seen twice", "away", "oldest first"],
)
def test_a_broken_rule_of_an_upgrade_is_noticed(
    of: type, rule: str, broken: object, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrading(four_days(1)).held(3)
    monkeypatch.setattr("tests.faults.story._SETTLED", set())
    monkeypatch.setattr(of, rule, broken)
    with pytest.raises((AssertionError, LedgerBroken)):
        settle_all(sweep(mode, four_days(1), count(1)), lambda name, value: None, rule)
