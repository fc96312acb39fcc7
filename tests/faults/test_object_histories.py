"""Random histories of several processes on a lake in a bucket; each rule of the protocol removed is noticed.

KAFKA_DAILY_OBJECT_HISTORIES says how many are played, KAFKA_DAILY_HISTORY_SEED where they begin.
"""

from __future__ import annotations

import json
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
from jobs.lake.ledger import entry_problems
from jobs.lake.names import STAGING_NAME, last
from jobs.lake.objects.lake import MOVES_NAME, ObjectLake, _OpenDay
from jobs.lake.objects.ledger import entry_key
from jobs.lake.objects.store import ObjectStore
from jobs.lake.port import DayContents
from offsets.days import ONE_DAY
from offsets.errors import StoreFailed
from offsets.manifest import DataFile
from tests.faults.histories import drop_event
from tests.faults.light_files import light_files
from tests.faults.object_histories import FIRST, HOUR, ObjectHistory, Violation, play
from tests.faults.object_store import Fate

SEED: Final = "KAFKA_DAILY_HISTORY_SEED"
HISTORIES: Final = 500
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


@pytest.fixture
def history() -> ObjectHistory:
    """Return a bucket with the first day's records, of which one is not the first day's."""
    return ObjectHistory(3, Counter())


def _dies(history: ObjectHistory, kind: str, key: str, fate: Fate, work: str = "run") -> None:
    """Let a process die at a change."""
    history.next_fate(kind, key, fate)
    assert history.to_its_end(history.start(work, FIRST)) == "Crash"


def _ends(history: ObjectHistory, work: str, day: date = FIRST) -> str:
    return history.to_its_end(history.start(work, day))


def _files(history: ObjectHistory, number: int = 1) -> dict[str, str]:
    """Return where each file of an entry of the first day ends, by where it lies in staging."""
    entry = json.loads(history.store.objects[entry_key(FIRST, number)][0])
    moves = json.loads(history.store.objects[f"_staging/{FIRST}.{entry['run_id']}/{MOVES_NAME}"][0])
    return {
        moves[file["path"]]: file.get("target") or f"date={FIRST}/{file['path']}" for file in entry["files"]
    }


def test_a_copier_that_slept_brings_nothing_back_that_a_rebuild_replaced(history: ObjectHistory) -> None:
    asleep = history.until("run", FIRST, "copy from", STAGING_NAME)
    _dies(history, "delete", STAGING_NAME, Fate.KILLED_BEFORE)
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "LakeLocked"  # it removes what the copier would copy, and waits
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.to_its_end(asleep)
    history.come_to_rest()


def test_a_success_before_the_staging_goes_is_noticed(
    history: ObjectHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = ObjectLake._record_published

    def record(self: ObjectLake, open_day: _OpenDay) -> None:
        self._store.put(f"date={FIRST}/_SUCCESS", f"{open_day.entry.key}\n".encode())
        records(self, open_day)

    monkeypatch.setattr(ObjectLake, "_record_published", record)
    asleep = history.until("run", FIRST, "copy from", STAGING_NAME)
    _dies(history, "delete", STAGING_NAME, Fate.KILLED_BEFORE)
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    with pytest.raises(Violation, match="doubled"):
        history.to_its_end(asleep)


def test_a_rebuild_that_does_not_wait_is_noticed(
    history: ObjectHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_way = history.until("run", FIRST, "copy", "date=")
    assert _ends(history, "run") == "well"
    assert _ends(history, "rebuild") == "LakeLocked"
    monkeypatch.setattr(ObjectLake, "require_replace", lambda self, staged: None)
    assert _ends(history, "rebuild") == "well"
    with pytest.raises(Violation, match="doubled"):
        history.to_its_end(on_its_way)


@pytest.mark.parametrize("fate", [Fate.KILLED_BEFORE, Fate.KILLED_AFTER])
def test_a_copier_that_slept_finds_no_source_after_success(history: ObjectHistory, fate: Fate) -> None:
    asleep = history.until("run", FIRST, "copy from", STAGING_NAME)
    _dies(history, "put", f"date={FIRST}/_SUCCESS", fate)
    assert _ends(history, "run") == "well"
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.to_its_end(asleep)
    history.come_to_rest()


def test_a_rebuild_keeps_the_staged_files_as_long_as_another_object_is_in_the_way(
    history: ObjectHistory,
) -> None:
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    staged, final = next(iter(_files(history).items()))
    history.tamper(final, b"somebody else's")
    for work in ("run", "rebuild"):
        assert "Move that object out" in _ends_with(history, work)
        assert staged in history.store.objects
    history.tamper(final, None)  # the advice
    assert _ends(history, "rebuild") == "LakeLocked"
    assert final in history.store.objects
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.come_to_rest()


def test_a_day_with_a_file_that_is_nowhere_keeps_the_others_and_can_be_built_again(
    history: ObjectHistory,
) -> None:
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    files = _files(history)
    lost = next(iter(files))
    history.tamper(lost, None)
    assert "Build 2026-03-28 again" in _ends_with(history, "run")
    history.let_pass(HOUR)
    assert "Run again after" in _ends_with(history, "rebuild")
    history.let_pass(HOUR / 2)
    assert "Run again after" in _ends_with(history, "rebuild")  # its hour does not begin anew
    assert {final for staged, final in files.items() if staged != lost} <= set(history.store.objects)
    history.let_pass(HOUR / 2)
    assert _ends(history, "rebuild") == "well"
    history.come_to_rest()


def test_a_file_that_was_nowhere_and_is_restored_completes_its_day(history: ObjectHistory) -> None:
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    lost, final = next(iter(_files(history).items()))
    text = history.store.objects[lost][0]
    history.tamper(lost, None)
    assert _ends(history, "rebuild") == "LakeLocked"
    history.tamper(final, text)
    assert _ends(history, "run") == "well"
    history.come_to_rest()


def test_a_rebuild_that_died_before_it_removed_anything_is_finished_by_the_next(
    history: ObjectHistory,
) -> None:
    assert _ends(history, "run") == "well"
    history.let_pass(HOUR)
    _dies(history, "delete", "date=", Fate.KILLED_BEFORE, "rebuild")
    assert _ends(history, "rebuild") == "LakeLocked"
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.come_to_rest()


@pytest.mark.parametrize("fate", [Fate.KILLED_BEFORE, Fate.KILLED_DELAYED])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_rebuild_that_is_stopped_at_any_change_is_made_again(fate: Fate, *, is_whole: bool) -> None:
    """One copier sleeps meanwhile; of a day that is not whole a file is nowhere."""
    for change in range(100):
        history = ObjectHistory(3, Counter())
        asleep = history.until("run", FIRST, "copy from", STAGING_NAME)
        if is_whole:
            assert _ends(history, "run") == "well"
            history.let_pass(HOUR)
        else:
            _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
            history.tamper(next(iter(_files(history))), None)
        history.next_fate("", "", fate, after=change)
        if _ends(history, "rebuild") in ("well", "LakeLocked") and history.is_due:
            return
        ended = []
        while "well" not in ended:
            history.let_pass(HOUR)
            ended.append(_ends(history, "rebuild"))
            assert len(ended) <= 3
        history.to_its_end(asleep)
        history.come_to_rest()
    pytest.fail("it ends after fewer changes")


def test_what_a_rebuild_replaces_stays_as_long_as_a_file_of_its_own_is_nowhere(
    history: ObjectHistory,
) -> None:
    assert _ends(history, "run") == "well"
    history.let_pass(HOUR)
    _dies(history, "delete", "date=", Fate.KILLED_BEFORE, "rebuild")
    replaced = {key for key in history.store.objects_below("date=") if key.endswith((".parquet", ".rows"))}
    lost = next(key for key in history.store.objects if "/attempts/" in key)
    history.tamper(lost, None)
    for work in ("run", "rebuild"):
        assert "the files that it replaces are still there" in _ends_with(history, work)
        assert replaced <= set(history.store.objects)
        assert [key for key in history.store.objects if "/attempts/" in key]
    for key in replaced:  # the advice
        history.tamper(key, None)
    assert _ends(history, "rebuild") == "LakeLocked"
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.come_to_rest()


def test_what_a_rebuild_replaces_goes_once_its_own_file_was_restored(history: ObjectHistory) -> None:
    assert _ends(history, "run") == "well"
    history.let_pass(HOUR)
    _dies(history, "delete", "date=", Fate.KILLED_BEFORE, "rebuild")
    lost, final = next(iter(_files(history, 2).items()))
    text = history.store.objects[lost][0]
    history.tamper(lost, None)
    assert "Restore the object to its place" in _ends_with(history, "run")
    history.tamper(final, text)
    assert _ends(history, "run") == "well"
    history.come_to_rest()


def test_staged_files_stay_where_it_is_not_known_what_they_are(history: ObjectHistory) -> None:
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    files = _files(history)
    moves = next(key for key in history.store.objects if key.endswith(MOVES_NAME))
    text = history.store.objects[moves][0]
    history.tamper(moves, None)
    assert MOVES_NAME in _ends_with(history, "rebuild")
    assert set(files) <= set(history.store.objects)
    history.tamper(moves, text)
    assert _ends(history, "run") == "well"
    history.come_to_rest()


def test_a_day_whose_moves_are_gone_for_good_is_built_again(history: ObjectHistory) -> None:
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    staging = next(key for key in history.store.objects if key.endswith(MOVES_NAME)).rpartition("/")[0]
    history.tamper(f"{staging}/{MOVES_NAME}", None)
    assert f"move what is left below memory:{staging} out of the lake" in _ends_with(history, "rebuild")
    for key in history.store.objects_below(f"{staging}/"):
        history.tamper(key, None)
    assert _ends(history, "rebuild") == "LakeLocked"
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.come_to_rest()


def test_a_file_that_is_put_back_into_a_settled_staging_is_known(history: ObjectHistory) -> None:
    """The hour begins anew for it: a process that slept may copy it."""
    _dies(history, "copy", "date=", Fate.KILLED_BEFORE)
    files = _files(history)
    assert len(files) > 1
    texts = {staged: history.store.objects[staged][0] for staged in files}
    for staged in texts:
        history.tamper(staged, None)
    assert _ends(history, "rebuild") == "LakeLocked"
    history.let_pass(HOUR)
    back, *others = files
    history.tamper(back, texts[back])
    assert _ends(history, "rebuild") == "LakeLocked"
    assert files[back] in history.store.objects
    for staged in others:
        history.tamper(staged, texts[staged])
    assert _ends(history, "run") == "well"
    history.come_to_rest()


def test_a_success_that_lands_late_is_put_right_by_a_run_of_its_day(history: ObjectHistory) -> None:
    _dies(history, "put", f"date={FIRST}/_SUCCESS", Fate.KILLED_DELAYED)
    for number in range(2):
        assert _ends(history, "run", FIRST + number * ONE_DAY) == "well"
    history.let_pass(HOUR)
    assert _ends(history, "rebuild") == "well"
    history.land_all()
    assert history.store.objects[f"date={FIRST}/_SUCCESS"][0] == b"_ledger/2026-03-28/000001.json\n"
    assert [problem.partition(". ")[2] for problem in _problems(history)] == [
        "`run --date 2026-03-28` puts it anew, once all files of the day are there"
    ]
    assert _ends(history, "run") == "well"
    assert not _problems(history)
    history.come_to_rest()


def test_a_success_that_somebody_removed_is_put_again_by_a_run_of_its_day(history: ObjectHistory) -> None:
    for number in range(2):
        assert _ends(history, "run", FIRST + number * ONE_DAY) == "well"
    history.tamper(f"date={FIRST}/_SUCCESS", None)
    assert len(_problems(history)) == 1
    assert _ends(history, "run") == "well"
    assert not _problems(history)


def _problems(history: ObjectHistory) -> list[str]:
    lake = ObjectLake(history.store, with_lease=False)
    days = lake.days()
    return [problem for _, problem in entry_problems(lake, days[0], days[-1], days)]


def _ends_with(history: ObjectHistory, work: str) -> str:
    """Return the message with which a process ends."""
    actor = history.start(work, FIRST)
    assert history.to_its_end(actor) != "well"
    return actor.told


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
