"""Random histories against the reference, other ones each time, and each law after each step.

Of ten seeds one writes real Parquet, the others Arrow's own files; of four, the lakes of one are in memory.
A red run says the smallest history that fails, and how to play it again: KAFKA_DAILY_HISTORY_SEED is the seed
of the first batch, and as many are played as KAFKA_DAILY_HISTORIES says. `./run.sh prove` plays so many that
each thing must happen often.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import AuditFailed
from tests.faults import histories
from tests.faults.histories import AFTER_THE_COMMIT, History, play_many
from tests.faults.scripts import FIRST, Arrival, Attempt, Change, DayScript, Script
from tests.faults.store import Fault
from tests.reference import DAY
from tests.support.local_engine import LocalEngine

Record = Callable[[str, object], None]

SEED: Final = "KAFKA_DAILY_HISTORY_SEED"
HISTORIES: Final = 300
PROOF: Final = 2_000
"""How many histories must show every kind of event often."""
BATCH: Final = 25
REAL_EVERY: Final = 10
"""One of this many seeds writes Parquet."""

MEMORY_EVERY: Final = 4
"""One of this many seeds has its lakes in memory."""

INJECTED: Final = {
    "fault: crash": 100,
    "fault: lost answer": 100,
    "fault: power loss": 100,
    "fault: EIO": 100,
    "fault: EIO after": 100,
    "fault: kill": 100,
    "committed and then crashed": 50,
    "power losses between runs": 50,
    "attempts of tasks that failed": 500,
    "reruns of committed days": 50,
    "late switched before the rerun": 100,
    "contract changes: number_column": 30,
    "contract changes: past": 30,
    "contract changes: future": 30,
    "contract changes: skip_tombstones": 30,
    "contract changes: zone": 10,
    "zone database changes": 30,
    "compacted while pending": 5,
    "losses accepted": 30,
    "starts accepted": 30,
    "new partitions": 30,
    "stray stamps": 500,
    "refused: a wider loss": 30,
    "refused: contract": 100,
    "refused: forget pending": 10,
    "refused: open transaction": 200,
    "refused: other anchor": 20,
    "refused: reader doubles": 5,
    "refused: reader drops": 20,
    "refused: recreate": 30,
    "refused: too far": 30,
    "refused: too soon": 30,
    "refused: truncate": 30,
    "rebuilds: whole": 200,
    "rebuilds: cut": 60,
    "rebuilds: removed": 60,
    "rebuilds: gone": 3,
    "rebuilds: late": 10,
    "rebuilds of owners": 5,
    "rebuilds of late files that crashed": 5,
    "rebuilds refused": 50,
    "rebuilds that crashed": 100,
    "rebuilds before the rerun": 20,
    "days expired": 100,
    "expiries that crashed": 20,
    "days upgraded": 100,
    "upgrades that failed": 30,
    "left of an earlier format": 50,
    "orphans cleaned": 500,
    "lakes verified": 100,
    "lakes: in memory": 200,
    "lakes: folder": 1_000,
    "fate: IN_DAY": 2_000,
    "fate: AMENDED": 500,
    "fate: SET_ASIDE": 500,
    "fate: INVALID": 500,
    "fate: SKIPPED": 5,
    "fate: BEFORE_FIRST": 200,
    "fate: PENDING": 500,
    "fate: GAP": 500,
    "fate: LOST": 90,
}
"""The least number of each kind of event in PROOF histories, so that none disappears unnoticed."""
FREQUENT: Final = 100
"""An event that is this frequent in PROOF histories must also happen in HISTORIES of them."""
AGAIN: Final = "./run.sh test tests/faults/test_histories.py -k random"


@pytest.mark.timeout(3_600)
def test_random_histories_end_in_the_lake_of_the_reference(record_property: Record) -> None:
    histories = int(os.environ.get("KAFKA_DAILY_HISTORIES", HISTORIES))
    drawn = os.environ.get(SEED)
    first = int(drawn) if drawn else secrets.randbelow(1 << 32)
    record_property(SEED, first)
    counts = played(range(first, first + math.ceil(histories / BATCH)))
    for what, count in sorted(counts.items()):
        print(f"{what:45}{count:>9,}")
        record_property(what, count)
    assert counts["histories"] >= histories
    assert too_seldom(counts) == {}, f"too seldom, with {SEED}={first} {AGAIN}"


def played(seeds: range) -> Counter[str]:
    """Play a batch for each seed, and return how often each kind of event happened."""
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        try:
            batches = [
                (seed, pool.submit(play_many, BATCH, seed, real=is_real(seed), memory=in_memory(seed)))
                for seed in seeds
            ]
            for seed, batch in batches:
                batch_counts, failure = batch.result()
                counts += batch_counts
                if failure:
                    again = f"KAFKA_DAILY_HISTORIES={BATCH} {SEED}={seed} {AGAIN}"
                    pytest.fail(f"To play it again: {again}\n{failure}", pytrace=False)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return counts


def is_real(seed: int) -> bool:
    """Return whether the histories of a seed write Parquet; it depends on the seed alone."""
    return seed % REAL_EVERY == 0


def in_memory(seed: int) -> bool:
    """Return whether the lakes of a seed are in memory instead of folders; some of them hold Parquet."""
    return seed // REAL_EVERY % MEMORY_EVERY == 0 if is_real(seed) else seed % MEMORY_EVERY == 0


def too_seldom(counts: Counter[str]) -> dict[str, int]:
    """Return what did not happen often enough."""
    if counts["histories"] < HISTORIES:
        return {}
    rarely = 1 if counts["histories"] >= PROOF else FREQUENT
    return {what: counts[what] for what, least in INJECTED.items() if counts[what] < least // rarely}


# -- the smallest histories of defects that random ones have shown


ON_TIME, DISORDER, LATE = (
    Arrival(0, hour, kind, 0, "") for hour, kind in ((10, "on time"), (0, "disorder"), (10, "late"))
)
SECOND, THIRD = FIRST + DAY, FIRST + 2 * DAY


def a_day(*arrivals: Arrival, change: Change | None = None) -> DayScript:
    return DayScript(list(arrivals), [change] if change else [], [], 3, 1, failing=False)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path, Script(compacted=False, amend=True, days=[], afterwards=[]), Counter())
    with made.in_place():
        yield made


def delete(history: History, day: date) -> None:
    shutil.rmtree(history.folder / f"date={day}")
    history.store.reload()
    history.store.plant()


def build_again(history: History, day: date) -> None:
    rebuild_day(history.pipeline(LocalEngine(history.topic)), day)


def test_a_day_without_its_manifest_is_not_rebuilt_by_rules_that_make_its_amendments_invalid(
    history: History,
) -> None:
    """The row lies in the day that it was brought to, and must not lie among the invalid ones as well."""
    history.play_day(FIRST, a_day(ON_TIME))
    history.play_day(SECOND, a_day(LATE))
    history.play_day(THIRD, a_day(ON_TIME, change=Change("past", 0)))
    delete(history, SECOND)
    with pytest.raises(AuditFailed):
        build_again(history, SECOND)


def test_a_day_that_was_rebuilt_without_its_manifest_can_be_rebuilt_again(history: History) -> None:
    """Some of its late rows lie in earlier days, and others, invalid by the rules of then, are set aside."""
    history.change(FIRST, Change("past", 0), a_day())
    history.play_day(FIRST, a_day(ON_TIME))
    history.play_day(SECOND, a_day(ON_TIME, DISORDER, LATE))
    history.play_day(THIRD, a_day(ON_TIME, change=Change("past", 0)))
    delete(history, SECOND)
    for _ in range(2):
        build_again(history, SECOND)
        result = verify(PosixLake(history.folder), None, lambda *_: None, Level.RECORDS)
        assert result.problems == ()


def test_a_day_that_is_gone_can_be_rebuilt_while_late_rows_still_wait_to_be_brought_to_it(
    history: History,
) -> None:
    history.play_day(FIRST, a_day(ON_TIME))
    history.play_day(SECOND, a_day(ON_TIME))
    for arrival in (ON_TIME, LATE):
        history.produce(THIRD, arrival)
    history.attempt(THIRD, Attempt("kill", AFTER_THE_COMMIT, late_switched=False), a_day())
    delete(history, SECOND)
    build_again(history, SECOND)
    history.before.clear()
    history.settle(THIRD, a_day())


def test_a_day_that_accepted_a_loss_and_is_gone_comes_back_with_that_loss(tmp_path: Path) -> None:
    """Its entry in the ledger names the loss; the reference held that nobody knew of it any more."""
    day = a_day(ON_TIME, ON_TIME)
    lossy = replace(day, changes=[Change("retain", 10)])
    script = Script(compacted=False, amend=False, days=[day, lossy, day], afterwards=[Change("rebuild", 1)])
    counts: Counter[str] = Counter()
    History(tmp_path, script, counts, real=False).play()
    assert (counts["losses accepted"], counts["rebuilds: gone"]) == (1, 1)


def test_a_rebuild_that_a_power_loss_ends_is_entered_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name in staging, by which a replaced day is known, went with the power: its entry stayed old."""
    on_time = Arrival(0, 0, "on time", 0, "")
    day = DayScript([on_time, on_time], [], [], 2, 1, failing=False)
    rebuilt = replace(day, changes=[Change("rebuild", 160)])
    script = Script(compacted=False, amend=False, days=[day, rebuilt], afterwards=[])
    for at in range(20, 40):
        monkeypatch.setattr(histories, "Fault", partial(_fault_here, at))
        folder = tmp_path / str(at)
        folder.mkdir()
        counts: Counter[str] = Counter()
        History(folder, script, counts, real=False).play()
        assert counts["rebuilds that crashed"] == 1


def _fault_here(here: int, **_: object) -> Fault:
    return Fault(at=here)
