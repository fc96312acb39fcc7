"""Random histories of several processes on a lake in a bucket; each rule of the protocol removed is noticed.

KAFKA_DAILY_OBJECT_HISTORIES says how many are played, KAFKA_DAILY_HISTORY_SEED where they begin.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

import pytest
import structlog

import jobs.lake.objects.lake as lake_module
import jobs.lake.objects.ledger as ledger_module
from jobs.lake.names import STAGING_NAME, last
from jobs.lake.objects.lake import ObjectLake, _OpenDay
from jobs.lake.objects.ledger import entry_key
from jobs.lake.objects.store import ObjectStore
from jobs.lake.port import DayContents
from offsets.errors import StoreFailed
from offsets.manifest import DataFile
from tests.faults.histories import drop_event
from tests.faults.light_files import light_files
from tests.faults.object_histories import FIRST, ObjectHistory, Violation, play

SEED: Final = "KAFKA_DAILY_HISTORY_SEED"
HISTORIES: Final = 150
PROOF: Final = 2_000
"""How many histories must show every kind of event often."""
TRIES: Final = 400
"""So many histories notice each rule that is removed."""
OFTEN: Final = (
    *("days committed", "days rebuilt", "orphans cleaned", "landed"),
    *("ended: Crash", "ended: LakeLocked", "ended: NotPublished", "ended: StoreFailed"),
    *("fate: LOST_ANSWER", "fate: LOST_REQUEST", "fate: DELAYED", "fate: KILLED_DELAYED"),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Write no log: thousands of runs would."""
    before = structlog.get_config()
    structlog.configure(processors=[drop_event])
    with light_files():
        yield
    structlog.configure(**before)


@pytest.mark.timeout(3_600)
def test_random_histories_of_several_processes_keep_every_promise(
    record_property: Callable[[str, object], None],
) -> None:
    histories = PLAYED
    drawn = os.environ.get(SEED)
    first = int(drawn) if drawn else secrets.randbelow(1 << 32)
    record_property(SEED, first)
    counts = Counter[str]()
    for seed in range(first, first + histories):
        play(seed, counts)
    for what, count in sorted(counts.items()):
        print(f"{what:45}{count:>9,}")
        record_property(f"objects: {what}", count)
    if histories >= PROOF:
        rare = {what: counts[what] for what in OFTEN if counts[what] < histories // 100}
        assert not rare


def test_a_run_that_commits_just_before_its_fence_keeps_its_files() -> None:
    """`clean` put the fence behind the entry, and removed the files by a ledger that it had read before."""
    history = ObjectHistory(0, Counter())
    run = history.until("run", FIRST, "create", "_ledger/")
    clean = history.until("clean", FIRST, "find", "_staging/2026")
    assert run.step()
    assert history.to_its_end(clean) == "well"
    assert history.to_its_end(run) == "well"


def test_a_run_that_was_fenced_off_commits_nothing() -> None:
    history = ObjectHistory(0, Counter())
    run = history.until("run", FIRST, "create", "_ledger/")
    assert history.to_its_end(history.until("clean", FIRST, "find", "_staging/")) == "well"
    assert history.to_its_end(run) == "LakeLocked"
    assert history.to_its_end(history.until("run", FIRST, "find", "_ledger/")) == "well"


def _taken_for_anothers(patched: pytest.MonkeyPatch) -> None:
    """`exists` is taken for another's entry, and not read."""

    def put(store: ObjectStore, day: date, number: int, text: bytes) -> bool:
        return store.create(entry_key(day, number), text)

    patched.setattr(lake_module, "put_entry", put)


def _removes_what_may_be_committed(patched: pytest.MonkeyPatch) -> None:
    """A run removes its staging where it does not know whether its entry arrived."""
    puts = ObjectLake._put_entry

    def put(self: ObjectLake, staged: str, day: date, contents: DayContents) -> None:
        try:
            puts(self, staged, day, contents)
        except StoreFailed:
            self._runs[last(staged)].may_be_committed = False
            raise

    patched.setattr(ledger_module, "TRIES", 1)  # so that it often does not know
    patched.setattr(ObjectLake, "_put_entry", put)


def _success_names_nothing(patched: pytest.MonkeyPatch) -> None:
    """`_SUCCESS` speaks of whatever entry counts."""
    patched.setattr(lake_module, "_names", lambda entry: b"done")


def _cleans_without_a_fence(patched: pytest.MonkeyPatch) -> None:
    """`clean` removes what no entry that counts needs, and fences nobody off."""

    def discard(self: ObjectLake, name: str) -> None:
        if not self._is_needed(name):
            self._store.delete(each.key for each in self._store.find(f"{STAGING_NAME}/{name}"))

    patched.setattr(ObjectLake, "_discard_orphan", discard)


def _copies_before_it_removes(patched: pytest.MonkeyPatch) -> None:
    """The files of a rebuilt day come before those that they replace have gone."""
    removes, copies = ObjectLake._remove_superseded, ObjectLake._copy_missing

    def copy(self: ObjectLake, open_day: _OpenDay, files: Sequence[DataFile]) -> int:
        copied = copies(self, open_day, files)
        removes(self, open_day)
        return copied

    patched.setattr(ObjectLake, "_remove_superseded", lambda self, open_day: None)
    patched.setattr(ObjectLake, "_copy_missing", copy)


def _removes_nothing(patched: pytest.MonkeyPatch) -> None:
    """The files that a rebuild replaces stay."""
    patched.setattr(ObjectLake, "_remove_superseded", lambda self, open_day: None)


def _takes_the_next_free_number(patched: pytest.MonkeyPatch) -> None:
    """An entry gets the number that is free when it is put, not the one after what the run had read."""
    puts = ObjectLake._put_entry

    def put(self: ObjectLake, staged: str, day: date, contents: DayContents) -> None:
        run = self._runs[last(staged)]
        run.entries = replace(run.entries, number=self._look_again(day).number)
        puts(self, staged, day, contents)

    patched.setattr(ObjectLake, "_put_entry", put)


QUICK: Final = (_success_names_nothing, _copies_before_it_removes, _removes_nothing)
SLOW: Final = (  # noticed after a hundred histories: `./run.sh prove` plays them
    _taken_for_anothers,
    _removes_what_may_be_committed,
    _cleans_without_a_fence,
    _takes_the_next_free_number,
)


PLAYED: Final = int(os.environ.get("KAFKA_DAILY_OBJECT_HISTORIES", HISTORIES))


@pytest.mark.parametrize("remove", [*QUICK, *(SLOW if PLAYED >= PROOF else ())])
def test_a_rule_that_is_removed_is_noticed(remove: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        remove(patched)
        with pytest.raises(Violation):
            _play_until_noticed()


def _play_until_noticed() -> None:
    for seed in range(TRIES):
        play(seed, Counter())
