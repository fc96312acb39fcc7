"""Whole days without Spark: every record exactly once, over faults, reruns, new rules and odd topics."""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import jobs.daily
import jobs.day.audit
import jobs.day.commit
import jobs.day.execute
import jobs.task.small_files
import offsets.manifest_text
from jobs.config import Evolve
from jobs.daily import run_day
from jobs.day.plan import due_days, next_due
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import Store
from jobs.record.columns import Column, Kind, Scalar
from jobs.record.rules import KeyRule, Tombstones
from offsets.commit_log import read_ledger, read_manifest
from offsets.day_plan import EndFrom
from offsets.errors import (
    AuditFailed,
    BrokerBehind,
    ConfigError,
    ContractChanged,
    DayExists,
    DayNotOver,
    EarlierDayMissing,
    KafkaDailyError,
    LakeLocked,
    LedgerBroken,
    OffsetsLost,
    RunFailed,
    StoreFailed,
    TooManyInvalid,
    TopicChanged,
)
from offsets.kafka.recheck import prove_gaps
from offsets.manifest import Manifest
from offsets.plan import Accept
from offsets.verdict import Verdict
from tests.reference import Fate, Place
from tests.support.lake import files, places
from tests.support.local_engine import RULES, Crash, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.three_days import FIRST, SECOND, STARTS, THIRD, a_lake, at, orders, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


MICRO = timedelta(microseconds=1)


# -- where records go


def test_every_record_lies_in_exactly_one_place(lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic), day)
    last = read_ledger(PosixLake(lake)).newest
    assert last is not None
    pending = {
        (part.partition, offset)
        for part in last.next.partitions
        for from_, until in part.pending
        for offset in range(from_, until)
    }
    found = places(lake)
    everything = {(part, each.offset) for part, log in topic.logs.items() for each in log.visible(0, 99)}
    assert found.keys() | pending == everything
    assert not found.keys() & pending
    kinds = sorted((place.day.day, place.fate.name) for place in found.values())
    assert {each: kinds.count(each) for each in kinds} == {
        (28, "IN_DAY"): 6, (28, "INVALID"): 1,
        (29, "IN_DAY"): 7, (29, "INVALID"): 1, (29, "SET_ASIDE"): 1,
        (30, "IN_DAY"): 7, (30, "INVALID"): 1, (30, "SET_ASIDE"): 1,
    }  # fmt: skip


def test_the_first_and_last_microsecond_of_a_short_day_are_its_own(lake: Path) -> None:
    topic = MemoryTopic()
    instants = [STARTS[SECOND] - MICRO, STARTS[SECOND], STARTS[THIRD] - MICRO, STARTS[THIRD]]
    for instant in instants:
        topic.produce(0, order(instant), at(FIRST, 23.5))
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic), day)
    assert [place.day for _, place in sorted(places(lake).items())] == [FIRST, SECOND, SECOND, THIRD]


def test_a_late_row_is_filed_under_the_day_that_it_belongs_to(lake: Path) -> None:
    topic = MemoryTopic()
    run_day(pipeline(lake, topic), FIRST)
    run_day(pipeline(lake, topic), SECOND)
    for instant in (STARTS[FIRST], STARTS[SECOND] - MICRO, STARTS[SECOND], STARTS[FIRST] - MICRO):
        topic.produce(0, order(instant), at(THIRD, 3))
    manifest = run_day(pipeline(lake, topic), THIRD).manifest
    assert [place.of for _, place in sorted(places(lake).items())] == [FIRST, FIRST, SECOND]
    assert manifest.rows(Verdict.BEFORE_FIRST) == 1
    assert {file.day for file in manifest.files if file.rows} == {FIRST, SECOND}


def test_a_day_of_late_rows_alone_has_one_file_without_rows(lake: Path) -> None:
    topic = MemoryTopic()
    run_day(pipeline(lake, topic), FIRST)
    topic.produce(0, order(at(FIRST, 1)), at(SECOND, 1))
    manifest = run_day(pipeline(lake, topic), SECOND).manifest
    assert [(file.verdict, file.rows) for file in manifest.files] == [(Verdict.IN_DAY, 0), (Verdict.LATE, 1)]


def test_skipped_tombstones_are_counted_and_lie_nowhere(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, None, at(FIRST, 1), key=b"k")
    rules = replace(RULES, tombstones=Tombstones.SKIP)
    manifest = run_day(pipeline(lake, topic, rules=rules), FIRST).manifest
    assert manifest.rows(Verdict.SKIPPED) == 1
    assert places(lake) == {}


def test_an_empty_day_commits_a_manifest_and_a_file_without_rows(lake: Path) -> None:
    topic = MemoryTopic()
    engine = LocalEngine(topic)
    done = run_day(pipeline(lake, topic, engine=engine), FIRST)
    (file,) = done.manifest.files
    assert file.rows == 0
    assert files(lake) - {"_lock", "_schema.json"} == {
        f"_ledger/{FIRST}.json",
        f"date={FIRST}/_manifest.json",
        f"date={FIRST}/{file.path}",
    }
    assert engine.jobs == 0, "an empty plan needs no Spark"
    assert places(lake) == {}


def test_aborted_records_and_markers_are_gaps_and_never_rows(lake: Path) -> None:
    topic = MemoryTopic()
    kept, dropped = Transaction(), Transaction()
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), transaction=kept)
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), transaction=dropped)
    topic.end(kept, commit=True, at=at(FIRST, 1))
    topic.end(dropped, commit=False, at=at(FIRST, 1))
    topic.produce(0, order(at(FIRST, 2)), at(FIRST, 2))
    manifest = run_day(pipeline(lake, topic), FIRST).manifest
    assert [offset for _, offset in places(lake)] == [0, 4]
    assert [list(gap.offsets) for gap in manifest.gaps] == [[(1, 4)]]


def test_an_open_transaction_below_the_days_end_stops_the_run_until_it_ends(lake: Path) -> None:
    topic = MemoryTopic()
    hanging = Transaction()
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), transaction=hanging)
    orders(topic, FIRST)
    with pytest.raises(BrokerBehind):
        run_day(pipeline(lake, topic), FIRST)
    assert not list(lake.glob("date=*"))
    topic.end(hanging, commit=True, at=at(SECOND, 1))
    run_day(pipeline(lake, topic), FIRST)
    assert len(places(lake)) == 7


@pytest.mark.parametrize("paused", [True, False], ids=["a pause", "a record past the day"])
def test_the_advice_for_transactions_that_overlap_without_end_works(lake: Path, paused: bool) -> None:
    """It was to abort a transaction, at each run, of producers that were well."""
    topic, open_now = MemoryTopic(), deque[Transaction]()

    def write(*, at: datetime) -> None:
        open_now.append(Transaction())
        topic.produce(0, order(at), at, transaction=open_now[-1])
        if len(open_now) > 2:
            topic.end(open_now.popleft(), commit=True, at=at)

    def before(question: str) -> None:
        if question == "log_offsets":
            write(at=at(FIRST, 4))

    for _ in range(3):
        write(at=at(FIRST, 3))
    topic.before = before
    for _ in range(3):
        with pytest.raises(
            BrokerBehind, match=r"abort none.*in a pause.*or once a record here is stamped past"
        ):
            run_day(pipeline(lake, topic), FIRST)
    topic.before = lambda question: None
    if not paused:
        for _ in range(3):
            write(at=at(SECOND, 4))
    else:
        while open_now:
            topic.end(open_now.popleft(), commit=True, at=at(FIRST, 5))
    assert run_day(pipeline(lake, topic), FIRST).manifest.rows(Verdict.IN_DAY) > 3


def test_records_above_an_open_transaction_of_the_next_day_wait_for_it(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    hanging = Transaction()
    topic.produce(0, order(at(SECOND, 2)), at(SECOND, 2), transaction=hanging)
    run_day(pipeline(lake, topic), FIRST)
    topic.end(hanging, commit=True, at=at(SECOND, 3))
    run_day(pipeline(lake, topic), SECOND)
    assert len(places(lake)) == 7


def test_three_new_partitions_between_days_lose_nothing(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    run_day(pipeline(lake, topic), FIRST)
    topic.add_partitions(3)
    for partition in range(4):
        orders(topic, SECOND, 2, partition)
    manifest = run_day(pipeline(lake, topic), SECOND).manifest
    assert len(places(lake)) == 14
    assert [start.offset for start in manifest.first_offsets] == [0, 0, 0, 0]


def test_compaction_inside_the_pending_set_is_counted_and_nothing_is_settled_twice(lake: Path) -> None:
    topic = MemoryTopic(cleanup_policy="compact")
    orders(topic, FIRST)
    for minute in range(4):
        topic.produce(0, order(at(SECOND, 1)), at(FIRST, 22) + timedelta(minutes=minute))
    run_day(pipeline(lake, topic), FIRST)
    topic.compact(0, [1, 6, 8])
    manifest = run_day(pipeline(lake, topic), SECOND).manifest
    assert manifest.missing_pending == 2
    assert {offset for (_, offset), place in places(lake).items() if place.day == SECOND} == {7, 9}


def test_a_missing_pending_record_of_an_uncompacted_topic_is_never_accepted(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1))
    topic.produce(0, order(at(SECOND, 1)), at(FIRST, 22))
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 22))
    run_day(pipeline(lake, topic), FIRST)
    topic.compact(0, [1])
    with pytest.raises(AuditFailed, match="pending"):
        run_day(pipeline(lake, topic), SECOND)
    assert not (lake / f"date={SECOND}").exists()


def test_headers_are_in_the_day_only_where_asked_for(lake: Path) -> None:
    import pyarrow.parquet as pq

    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), key=b"k", headers=[("h", b"1"), ("h", None)])
    topic.produce(0, b"{", at(FIRST, 1), headers=[("x", b"2")])
    rules = replace(RULES, kafka_columns=frozenset({"key", "headers"}))
    run_day(pipeline(lake, topic, rules=rules), FIRST)
    (file,) = (lake / f"date={FIRST}").glob("*.parquet")
    (row,) = pq.read_table(file, partitioning=None).to_pylist()
    assert row["kafka_key"] == b"k"
    assert row["kafka_headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    (file,) = (lake / f"date={FIRST}" / "_invalid").glob("*.rows")
    (row,) = pq.read_table(file, partitioning=None).to_pylist()
    assert (row["value"], row["headers"]) == (b"{", [{"key": "x", "value": b"2"}])


def test_a_key_becomes_columns_or_its_record_is_set_aside(lake: Path) -> None:
    import pyarrow.parquet as pq

    topic = MemoryTopic()
    for key in (b"7", None, b"seven"):
        topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), key=key)
    columns = (Column("customer", Scalar(Kind.BIGINT)),)
    run_day(pipeline(lake, topic, rules=replace(RULES, key=KeyRule(columns=columns))), FIRST)
    (file,) = (lake / f"date={FIRST}").glob("*.parquet")
    rows = pq.read_table(file, partitioning=None).to_pylist()
    assert [(row["kafka_key"], row["customer"]) for row in rows] == [(b"7", 7), (None, None)]
    (file,) = (lake / f"date={FIRST}" / "_invalid").glob("*.rows")
    (row,) = pq.read_table(file, partitioning=None).to_pylist()
    assert (row["key"], row["cause"]) == (b"seven", "Key: Not a whole number for `bigint`")


# -- again, and again


def test_running_a_committed_day_again_changes_nothing_and_takes_no_lock(lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    first = run_day(pipeline(lake, topic), FIRST)
    before = {path: (lake / path).read_bytes() for path in files(lake)}
    topic.asked.clear()
    holder = LockHolder(run_id="other", host="h", pid=1, since=at(FIRST, 0))
    with PosixLake(lake).lock(holder):
        again = run_day(pipeline(lake, topic), FIRST)
    assert again.already
    assert again.manifest == first.manifest
    assert topic.asked == []
    assert {path: (lake / path).read_bytes() for path in files(lake)} == before


def test_a_locked_lake_is_left_alone(lake: Path) -> None:
    topic = MemoryTopic()
    holder = LockHolder(run_id="other", host="elsewhere", pid=7, since=at(FIRST, 0))
    with PosixLake(lake).lock(holder), pytest.raises(LakeLocked, match=r"run other .pid 7 on elsewhere"):
        run_day(pipeline(lake, topic), FIRST)
    assert files(lake) == {"_lock"}


def test_a_day_that_another_run_committed_while_this_one_waited_for_the_lock_is_done(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    before_the_lock: list[Manifest | None] = [None, None]
    monkeypatch.setattr(
        jobs.daily, "read_manifest", lambda *asked: (before_the_lock or [read_manifest(*asked)]).pop()
    )
    first = run_day(pipeline(lake, topic), FIRST)
    again = run_day(pipeline(lake, topic), FIRST)
    assert (first.already, again.already) == (False, True)
    assert again.manifest == first.manifest


def test_a_batch_that_the_reader_drops_from_the_middle_is_noticed(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST, 30)
    with pytest.raises(AuditFailed):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dropped={1})), FIRST)


def test_staging_of_a_committed_day_is_gone(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    run_day(pipeline(lake, topic), FIRST)
    assert not (lake / "_staging").exists()


@pytest.mark.parametrize("error", [AuditFailed, StoreFailed, TopicChanged])
def test_staging_of_a_run_that_failed_stays_where_it_is_evidence(
    lake: Path, monkeypatch: pytest.MonkeyPatch, error: type[KafkaDailyError]
) -> None:
    def stopped(*_: object) -> None:
        raise error(expected="one thing", found="another", do="Look.")

    topic = MemoryTopic()
    orders(topic, FIRST)
    monkeypatch.setattr(jobs.day.execute, "recheck", stopped)
    with pytest.raises(error):
        run_day(pipeline(lake, topic), FIRST)
    kept = [name for name in files(lake) if name.startswith("_staging/") and name.endswith(".parquet.part")]
    assert bool(kept) == (error is AuditFailed)


@pytest.mark.parametrize("kind", ["failing_tasks", "doubled", "dropped"])
def test_faults_of_tasks(lake: Path, kind: str) -> None:
    """A retried attempt counts once, a batch that came twice is refused; a dropped one of the end too."""
    topic = MemoryTopic()
    orders(topic, FIRST, 30)
    engine = LocalEngine(topic, least_tasks=3)
    setattr(engine, kind, {5} if kind == "dropped" else {0})
    if kind == "failing_tasks":
        run_day(pipeline(lake, topic, engine=engine), FIRST)
        assert len(places(lake)) == 30
        return
    with pytest.raises(AuditFailed if kind == "doubled" else TopicChanged):
        run_day(pipeline(lake, topic, engine=engine), FIRST)
    assert not list(lake.glob("date=*"))
    run_day(pipeline(lake, topic), FIRST)
    assert len(places(lake)) == 30


def test_a_failed_attempts_files_stay_in_staging(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST, 30)
    staged: set[str] = set()
    monkeypatch.setattr(PosixLake, "discard", lambda self, folder: staged.update(files(lake)))
    # one group a batch, so that the attempt that dies has a file to leave
    run_day(pipeline(lake, topic, engine=LocalEngine(topic, failing_tasks={0}), target_file_size=4096), FIRST)
    assert any("-failed/" in name for name in staged)
    assert len(places(lake)) == 30


def test_a_day_whose_job_failed_leaves_nothing_visible_and_runs_again(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    with pytest.raises(RunFailed):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dies=True)), FIRST)
    assert not list(lake.glob("date=*"))
    run_day(pipeline(lake, topic), FIRST)
    assert len(places(lake)) == 6


CRASHES: list[tuple[object, str]] = [
    (jobs.daily, "plan_with_retries"),
    (PosixLake, "stage"),
    (jobs.day.audit, "require_few_invalid"),
    (jobs.task.small_files, "merge_small_files"),
    (jobs.day.audit, "audit"),
    (jobs.day.execute, "recheck"),
    (jobs.day.commit, "commit"),
    (offsets.manifest_text, "to_json"),
    (PosixLake, "_put_together"),
    (Store, "sync_all"),
    (PosixLake, "commit"),
    (Store, "move"),
    (PosixLake, "discard"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("where, step", CRASHES, ids=[step for _, step in CRASHES])
def test_a_crash_at_any_step_leaves_the_day_whole_or_absent(
    lake: Path, monkeypatch: pytest.MonkeyPatch, where: object, step: str, after: bool
) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    shutil.copytree(a_lake(2), lake)
    done = getattr(where, step)

    def crashing(*args: Any, **named: Any) -> Any:
        if after:
            done(*args, **named)
        raise Crash(step)

    with monkeypatch.context() as patched:
        patched.setattr(where, step, crashing)
        with pytest.raises(Crash):
            run_day(pipeline(lake, topic), THIRD)
    # the commit's own rename is the last step that can fail with the day there
    there = (where, step, after) in {
        (jobs.day.commit, "commit", True),
        (PosixLake, "commit", True),
        (PosixLake, "discard", False),
        (PosixLake, "discard", True),
    }
    assert (lake / f"date={THIRD}").exists() == there
    assert run_day(pipeline(lake, topic), THIRD).already == there
    assert places(lake) == places(a_lake(3))


# -- what a run leaves in staging

FULL = StoreFailed(expected="sync", found="No space left on device (ENOSPC)", do="Free some.")
WHERE: dict[str, tuple[object, str]] = {
    "task": (PosixFile, "make_durable"),
    "audit": (jobs.day.audit, "audit"),
    "commit": (PosixLake, "commit"),
    "committed": (PosixLake, "commit"),
}
ENDS = [FULL, KeyboardInterrupt(), ZeroDivisionError("a bug"), RunFailed(expected="", found="", do="")]


@pytest.mark.parametrize("ended", ENDS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("where", WHERE)
def test_a_run_that_ends_early_leaves_no_staging_and_what_it_committed(
    lake: Path, monkeypatch: pytest.MonkeyPatch, where: str, ended: BaseException
) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    shutil.copytree(a_lake(2), lake)

    owner, step = WHERE[where]
    done = getattr(owner, step)

    def ending(*args: Any, **named: Any) -> None:
        if where == "committed":  # the rename was made, and its sync failed
            done(*args, **named)
        raise ended

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, ending)
        with pytest.raises(type(ended)):
            run_day(pipeline(lake, topic), THIRD)
    assert not (lake / "_staging").exists()
    assert run_day(pipeline(lake, topic), THIRD).already is (where == "committed")
    assert places(lake) == places(a_lake(3))


def test_what_an_audit_refused_stays_as_evidence(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST, 30)
    with pytest.raises(AuditFailed):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dropped={1})), FIRST)
    assert list((lake / "_staging").glob("*/attempts/*/*.part"))


# -- what stops a day


def test_a_range_stops_at_a_hole(lake: Path) -> None:
    topic = MemoryTopic()
    run_day(pipeline(lake, topic), FIRST)
    with pytest.raises(EarlierDayMissing, match=r"2026-03-29") as stopped:
        run_day(pipeline(lake, topic), THIRD)
    assert stopped.value.exit_code in range(10, 20), "a scheduler's catch-up started them out of order"


@pytest.mark.parametrize("now", [datetime(2027, 1, 1, tzinfo=UTC), STARTS[SECOND] + timedelta(hours=2)])
def test_a_first_day_that_was_changed_afterwards_is_refused_also_when_nothing_is_due(
    lake: Path, now: datetime
) -> None:
    """It did nothing, and `run` said nothing: who moved it to have older days waited for them in vain."""
    topic = MemoryTopic()
    orders(topic, FIRST)
    run_day(pipeline(lake, topic, now=now), FIRST)
    for first in (FIRST - timedelta(days=9), SECOND):
        there = pipeline(lake, topic, first=first, now=now)
        with pytest.raises(ConfigError, match=r"day\.first: 2026-03-28"):
            next_due(there)
        with pytest.raises(ConfigError, match=r"day\.first: 2026-03-28"):
            run_day(there, SECOND)
    assert run_day(pipeline(lake, topic, first=SECOND), FIRST).already


@pytest.mark.parametrize("committed", [[], [FIRST]])
def test_a_day_that_is_not_over_says_so_also_where_earlier_ones_are_missing(
    lake: Path, committed: list[date]
) -> None:
    """To name a day of the future was an error for a person, though to wait was all it needed."""
    topic, now = MemoryTopic(), at(THIRD, 12)
    for day in committed:
        run_day(pipeline(lake, topic, now=now), day)
    with pytest.raises(DayNotOver) as stopped:
        run_day(pipeline(lake, topic, now=now), THIRD)
    assert stopped.value.facts["due"] == "2026-03-30T23:00:00+00:00"


def test_a_day_before_the_first_is_refused(lake: Path) -> None:
    with pytest.raises(ConfigError):
        run_day(pipeline(lake, MemoryTopic()), FIRST - timedelta(days=1))


def test_a_removed_day_below_a_committed_one_is_noticed(lake: Path) -> None:
    topic = MemoryTopic()
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic), day)
    shutil.rmtree(lake / f"date={SECOND}")
    for day in (SECOND, date(2026, 3, 31)):
        with pytest.raises(LedgerBroken, match=r"2026-03-29 is missing"):
            run_day(pipeline(lake, topic), day)


def test_a_first_day_that_was_removed_is_noticed(lake: Path) -> None:
    topic = MemoryTopic()
    for day in (FIRST, SECOND):
        run_day(pipeline(lake, topic), day)
    shutil.rmtree(lake / f"date={FIRST}")
    with pytest.raises(LedgerBroken, match=r"2026-03-28, the first day of this lake"):
        run_day(pipeline(lake, topic), THIRD)


def test_a_day_is_refused_until_its_grace_has_passed(lake: Path) -> None:
    topic = MemoryTopic()
    over = STARTS[SECOND] + timedelta(hours=1)
    with pytest.raises(DayNotOver):
        run_day(pipeline(lake, topic, now=over - MICRO), FIRST)
    run_day(pipeline(lake, topic, now=over), FIRST)


def test_a_folder_of_somebody_else_is_never_touched(lake: Path) -> None:
    (lake / f"date={FIRST}").mkdir(parents=True)
    with pytest.raises(DayExists):
        run_day(pipeline(lake, MemoryTopic()), FIRST)
    assert files(lake) == set()


def test_too_many_invalid_records_stop_the_day_and_a_higher_limit_lets_it_pass(lake: Path) -> None:
    topic = MemoryTopic()
    for _ in range(101):
        topic.produce(0, b"{", at(FIRST, 1))
    with pytest.raises(TooManyInvalid, match="101"):
        run_day(pipeline(lake, topic, invalid_limit=0.001), FIRST)
    assert not list(lake.glob("date=*"))
    manifest = run_day(pipeline(lake, topic, invalid_limit=1.0), FIRST).manifest
    assert manifest.rows(Verdict.INVALID) == 101


def test_a_day_of_80_records_that_are_all_invalid_is_not_committed_and_can_be_ended(lake: Path) -> None:
    topic = MemoryTopic()
    for _ in range(80):
        topic.produce(0, order(at(FIRST, 1)).replace(b'"at"', b'"a"'), at(FIRST, 1))
    with pytest.raises(TooManyInvalid, match=r"set invalid\.limit: 100%"):
        run_day(pipeline(lake, topic, invalid_limit=0.001), FIRST)
    assert not list(lake.glob("date=*"))
    assert run_day(pipeline(lake, topic, invalid_limit=1.0), FIRST).manifest.rows(Verdict.INVALID) == 80


def test_a_topic_recreated_while_it_was_read_is_noticed(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)

    def remake() -> None:
        topic.recreate(1)
        orders(topic, FIRST)

    with pytest.raises(TopicChanged, match="recreated while it was read"):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, between=remake)), FIRST)
    assert not list(lake.glob("date=*"))


def test_a_topic_recreated_while_its_gaps_were_proved_is_noticed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MemoryTopic()
    dropped = Transaction()
    orders(topic, FIRST)
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, 1), transaction=dropped)
    topic.end(dropped, commit=False, at=at(FIRST, 1))

    def prove(*given: Any) -> Any:
        proved = prove_gaps(*given)
        topic.recreate(1)
        orders(topic, FIRST)
        return proved

    monkeypatch.setattr(jobs.day.execute, "prove_gaps", prove)
    with pytest.raises(TopicChanged, match="recreated while it was read"):
        run_day(pipeline(lake, topic), FIRST)
    assert not list(lake.glob("date=*"))


def test_a_topic_refilled_while_it_was_read_is_noticed(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)

    def refill() -> None:
        topic.truncate(0, 3)
        for _ in range(3):
            topic.produce(0, order(at(FIRST, 5)), at(FIRST, 5))

    with pytest.raises(TopicChanged):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, between=refill)), FIRST)


def test_offsets_that_retention_took_before_they_were_read_are_lost_not_gaps(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    engine = LocalEngine(topic, dropped={0}, between=lambda: topic.retain_from(0, 6))
    with pytest.raises(OffsetsLost, match="not read in time"):
        run_day(pipeline(lake, topic, engine=engine), FIRST)


def test_a_failed_job_is_told_as_lost_offsets_where_retention_was_the_reason(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST)
    engine = LocalEngine(topic, dies=True, between=lambda: topic.retain_from(0, 2))
    with pytest.raises(OffsetsLost):
        run_day(pipeline(lake, topic, engine=engine), FIRST)


# -- rules that change


def test_a_changed_contract_is_refused_then_accepted_and_recorded(lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    run_day(pipeline(lake, topic), FIRST)
    rules = replace(RULES, past=timedelta(hours=2))
    with pytest.raises(ContractChanged, match=r"validity\.past_seconds: 2592000\.0 -> 7200\.0"):
        run_day(pipeline(lake, topic, rules=rules), SECOND)
    accepted = run_day(pipeline(lake, topic, rules=rules, accept=Accept(contract=True)), SECOND)
    assert accepted.manifest.accepted.contract == ("validity.past_seconds: 2592000.0 -> 7200.0",)
    assert accepted.manifest.rows(Verdict.INVALID) == 2, "the late one is not valid by the new rules"
    plain = run_day(pipeline(lake, topic, rules=rules), THIRD)
    assert plain.manifest.accepted.contract == ()
    places(lake)


def test_a_changed_contract_says_what_readers_see_and_how_to_go_on(lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    run_day(pipeline(lake, topic), FIRST)
    wider = replace(RULES, columns=(*RULES.columns, Column("more", Scalar(Kind.STRING))))
    with pytest.raises(ContractChanged) as stopped:
        run_day(pipeline(lake, topic, rules=wider), SECOND)
    assert stopped.value.facts["changes"] == ['record.columns.more: (none) -> "string"']
    for word in (
        "2026-03-28",
        "(additive: rows of earlier days lack it, but for late rows",
        "--accept-contract; `plan --accept-contract` shows that day first",
        "record.evolve: add",
    ):
        assert word in str(stopped.value)


@pytest.mark.parametrize("both", [False, True], ids=["added", "added, and another changed"])
def test_what_only_adds_is_taken_where_the_config_allows_it(both: bool, lake: Path) -> None:
    topic = MemoryTopic(2)
    three_days(topic)
    run_day(pipeline(lake, topic), FIRST)
    wider = replace(RULES, columns=(*RULES.columns, Column("more", Scalar(Kind.STRING))))
    if both:
        wider = replace(wider, past=timedelta(days=60))
    evolving = pipeline(lake, topic, rules=wider, evolve=Evolve.ADD)
    if both:
        with pytest.raises(ContractChanged) as stopped:
            run_day(evolving, SECOND)
        assert "record.evolve" not in str(stopped.value)
        return
    manifest = run_day(evolving, SECOND).manifest
    assert manifest.accepted.contract == ('record.columns.more: (none) -> "string"',)
    assert run_day(pipeline(lake, topic, rules=wider), THIRD).manifest.accepted.contract == ()


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Tokyo", "America/New_York", "Pacific/Kiritimati", "Pacific/Midway"]
)
def test_a_changed_zone_loses_no_instant(lake: Path, zone: str) -> None:
    topic = MemoryTopic()
    for half_hour in range(200):
        when = STARTS[FIRST] + timedelta(minutes=30 * half_hour)
        topic.produce(0, order(when), when)
    run_day(pipeline(lake, topic), FIRST)
    with pytest.raises(ContractChanged, match="zone"):
        run_day(pipeline(lake, topic, zone=zone), SECOND)
    for day in (SECOND, THIRD):
        run_day(pipeline(lake, topic, zone=zone, accept=Accept(contract=True)), day)
    first, second, third = read_ledger(PosixLake(lake)).days
    assert (second.start, third.start) == (first.end, second.end)
    assert all(place.fate is Fate.IN_DAY for place in places(lake).values())
    covered = [offset for (_, offset) in places(lake)]
    assert sorted(covered) == list(range(len(covered)))


def test_records_that_a_new_zone_moves_below_the_days_start_are_late_and_not_lost(lake: Path) -> None:
    """A pending record keeps its claim whatever its day is called under the new rules."""
    topic = MemoryTopic()
    topic.produce(0, order(at(SECOND, 1)), at(FIRST, 20))
    topic.produce(0, order(at(SECOND, 22.5)), at(FIRST, 23.5))
    run_day(pipeline(lake, topic), FIRST)
    run_day(pipeline(lake, topic, zone="Asia/Tokyo", accept=Accept(contract=True)), SECOND)
    run_day(pipeline(lake, topic, zone="Asia/Tokyo"), THIRD)
    assert {offset: place for (_, offset), place in places(lake).items()} == {
        0: Place(Fate.IN_DAY, SECOND),
        1: Place(Fate.IN_DAY, THIRD),
    }


@pytest.mark.parametrize(
    "zone, first, hours",
    [
        ("Europe/Amsterdam", date(2026, 3, 28), [24, 23, 24]),
        ("Europe/Amsterdam", date(2026, 10, 24), [24, 25, 24]),
        ("America/Havana", date(2026, 10, 31), [24, 25, 24]),
        ("Africa/Cairo", date(2026, 4, 23), [24, 23, 24]),
        ("Australia/Lord_Howe", date(2026, 4, 4), [24, 24.5, 24]),
        ("Pacific/Apia", date(2011, 12, 29), [24, 0, 24]),
    ],
)
def test_days_around_clock_changes_hold_every_half_hour_once(
    lake: Path, zone: str, first: date, hours: list[float]
) -> None:
    topic = MemoryTopic()
    start = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    for half_hour in range(160):
        when = start + timedelta(minutes=30 * half_hour)
        topic.produce(0, order(when), when)
    for step in range(3):
        run_day(pipeline(lake, topic, zone=zone, first=first), first + timedelta(days=step))
    lengths = [(day.end - day.start) / timedelta(hours=1) for day in read_ledger(PosixLake(lake)).days]
    assert lengths == hours
    held = [
        sum(place.day == first + timedelta(days=step) for place in places(lake).values()) for step in range(3)
    ]
    assert held == [2 * length for length in hours]


# -- ends and starts


def test_a_stamp_from_the_future_does_not_end_the_day_early(lake: Path) -> None:
    topic = MemoryTopic()
    orders(topic, FIRST, 3)
    topic.produce(0, order(at(FIRST, 5)), datetime(2099, 1, 1, tzinfo=UTC))
    orders(topic, FIRST, 60)
    orders(topic, SECOND, 60)
    manifest = run_day(pipeline(lake, topic), FIRST).manifest
    assert manifest.spans[0].evidence.end is EndFrom.BISECTED
    assert manifest.rows(Verdict.IN_DAY) == 63
    assert manifest.rows(Verdict.INVALID) == 1


def test_a_transactional_replay_of_old_events_is_settled_whole(lake: Path) -> None:
    topic = MemoryTopic()
    today = datetime(2026, 5, 1, tzinfo=UTC)
    for day in (FIRST, SECOND, THIRD):
        for _ in range(10):
            replayed = Transaction()
            for step in range(10):
                topic.produce(0, order(at(day, 2 * step)), at(day, 2 * step), transaction=replayed)
            topic.end(replayed, commit=True, at=today)
    for day in (FIRST, SECOND, THIRD):
        assert run_day(pipeline(lake, topic), day).manifest.rows(Verdict.IN_DAY) == 100


def test_the_first_day_starts_at_the_look_up_and_what_lies_before_is_not_read(lake: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, order(at(FIRST, -30)), at(FIRST, -30))
    topic.produce(0, order(at(FIRST, -23)), at(FIRST, -23))
    topic.produce(0, order(at(FIRST, 1)), at(FIRST, -22))
    manifest = run_day(pipeline(lake, topic), FIRST).manifest
    assert manifest.spans[0].from_offset == 1
    assert manifest.rows(Verdict.BEFORE_FIRST) == 1
    assert list(places(lake)) == [(0, 2)]


def test_due_days_are_those_that_are_over_in_order(lake: Path) -> None:
    topic = MemoryTopic()
    now = STARTS[THIRD] + timedelta(hours=1)
    table = pipeline(lake, topic, now=now)
    assert due_days(table, *next_due(table)) == [FIRST, SECOND]
    for day in due_days(table, *next_due(table)):
        run_day(pipeline(lake, topic, now=now), day)
    assert due_days(table, *next_due(table)) == []
    assert next_due(table) == (THIRD, STARTS[date(2026, 3, 31)] + timedelta(hours=1))
