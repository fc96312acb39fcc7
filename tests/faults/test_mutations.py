"""Each rule, broken on purpose, is missed: a small fixed history or a lying store notices.

Every mutation is played twice, without it and with it: the same check must be green first. A mutation that
nothing notices would mean that a law has no teeth.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import jobs.daily
import jobs.day.audit
import jobs.day.commit
import jobs.day.compare
import jobs.day.execute
import jobs.lake.expiry
import jobs.lake.late
import jobs.lake.roll_forward
import jobs.task.classify
import jobs.task.small_files
import jobs.task.task
import jobs.upgrade.run
import jobs.verify.files
import jobs.verify.run
import offsets.days
import offsets.kafka.offset_lookup
import offsets.kafka.recheck
import offsets.plan
import tests.faults.histories
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.day.carry_over import CarriedOver
from jobs.day.commit import recommit
from jobs.lake.clean import clean, orphans
from jobs.lake.late import finish_moves
from jobs.lake.names import parent
from jobs.lake.port import DayContents, LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import System
from jobs.rebuild import rebuild_day
from jobs.record.decode import Decoder
from jobs.task.classify import CODE
from jobs.task.result import WrittenFile
from jobs.upgrade.day import UpgradedDay
from jobs.verify.files import file_problems
from jobs.verify.run import verify
from offsets.commit_log import read_ledger
from offsets.day_plan import DayPlan
from offsets.errors import AuditFailed, KafkaDailyError, LedgerBroken
from offsets.instants import micros
from offsets.manifest import Manifest
from offsets.plan import next_checkpoint
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.faults.histories import AFTER_THE_COMMIT, AFTER_THE_ENTRY, MEMORY, History
from tests.faults.scripts import FIRST, Arrival, Attempt, Change, DayScript, Script
from tests.faults.store import Fault, nothing, some
from tests.reference import DAY
from tests.support.local_engine import Crash, LocalEngine

Patch = pytest.MonkeyPatch
SECOND, THIRD = FIRST + DAY, FIRST + 2 * DAY


# -- small histories


def came(kind: str = "on time", hour: int = 10, *, to: int = 0, micro: int = 0, ending: str = "") -> Arrival:
    """Make an arrival."""
    return Arrival(to, hour, kind, micro, ending)


def a_day(*arrivals: Arrival, change: Change | None = None, attempt: Attempt | None = None) -> DayScript:
    """Make a day, with a change and an attempt that fails before it is settled."""
    return DayScript(list(arrivals), [change] if change else [], [attempt] if attempt else [], 3, 1, False)


def new_history(*days: DayScript, compacted: bool = False, amend: bool = True) -> History:
    """Make a history in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="mutation-", dir=MEMORY if MEMORY.is_dir() else None))
    return History(folder, Script(compacted, amend, list(days), []), Counter(), real=False)


def play(*days: DayScript, compacted: bool = False, amend: bool = True) -> None:
    """Play a history to its end."""
    history = new_history(*days, compacted=compacted, amend=amend)
    try:
        history.play()
    finally:
        shutil.rmtree(history.folder.parent)


LATE_ROWS = (
    a_day(came()),
    a_day(came()),
    a_day(came(), came("late", 11), came("very late", 12), came("late", 13)),
)
"""Three days, and late rows of the third run for each of the days before."""


# -- the mutations: what breaks a rule


def _already_settled_by_the_day(patched: Patch) -> None:
    """Ask the event time, not the checkpoint: settled is "below seen_until, and dated before the day"."""
    patched.setattr(
        jobs.task.classify.SettledOffsets, "settled", lambda self, offsets: np.zeros(len(offsets), dtype=bool)
    )
    judge = jobs.task.task._Task._classify

    def by_the_day(self: Any, batch: Any) -> None:
        decoded = self._decoder.decode(batch.value, batch.kafka_timestamp)
        times = decoded.event_time.fill_null(0).to_numpy(zero_copy_only=False)
        until = np.array([self._bounds.seen[part].until for part in batch.partition.tolist()])
        settled = (batch.offset < until) & (times < self._bounds.starts[-1])
        if settled.any():
            code = CODE[Verdict.ALREADY_SETTLED]
            self._count(batch.partition[settled], batch.offset[settled], np.full(settled.sum(), code))
        if not settled.all():
            judge(self, batch.keep(~settled))

    patched.setattr(jobs.task.task._Task, "_classify", by_the_day)


def _checkpoint_before_the_audit(patched: Patch) -> None:
    patched.setattr(
        jobs.day.audit, "next_checkpoint", lambda plan, later, last: next_checkpoint(plan, {}, last)
    )


def _pending_as_one_range(patched: Patch) -> None:
    def joined(plan: Any, later: Any, last: Any) -> Any:
        one = {p: Offsets.between(o.ranges[0][0], o.ranges[-1][1]) for p, o in later.items() if o.ranges}
        return next_checkpoint(plan, one, last)

    patched.setattr(jobs.day.audit, "next_checkpoint", joined)


def _files_of_failed_attempts_kept(patched: Patch) -> None:
    """Commit the files in the folders instead of those in the results of successful tasks."""
    real = jobs.task.small_files.merge_small_files

    def all_found(lake: Any, written: list[WrittenFile], folder: str, *rest: Any) -> list[WrittenFile]:
        paths = {file.path for file in written}
        parts = [ref for ref in lake.files_below(f"{parent(folder)}/attempts") if ref.endswith(".part")]
        more = [replace(written[0], path=ref) for ref in parts if ref not in paths]
        return real(lake, [*written, *more], folder, *rest)

    patched.setattr(jobs.task.small_files, "merge_small_files", all_found)


def _until_below_seen_until(patched: Patch) -> None:
    """Take the second of two values instead of the greater."""

    def greatest(*values: Any, **named: Any) -> Any:
        return values[1] if len(values) == 2 else max(*values, **named)

    patched.setattr(offsets.plan, "max", greatest, raising=False)


def _stable_offset_after_the_look_up(patched: Patch) -> None:
    real = offsets.kafka.offset_lookup._start

    def late(edges: Any, stable: int, *rest: Any) -> Any:
        return real(replace(edges, last_stable=stable), stable, *rest)

    patched.setattr(offsets.kafka.offset_lookup, "_start", late)


def _anchor_not_compared(patched: Patch) -> None:
    for where in (offsets.plan, offsets.kafka.recheck):
        patched.setattr(where, "check_anchor", lambda *_: None)


def _moves_not_finished_first(patched: Patch) -> None:
    """Start the next day without finishing the moves of the last one."""
    patched.setattr(jobs.lake.roll_forward, "finish_moves", lambda *_: {})


def _unlink_before_the_targets_fsync(patched: Patch) -> None:
    def hasty(self: PosixLake, source: str, target: str) -> bool:
        from_, to, store = self.root / source, self.root / target, self._store
        if not from_.exists():
            return False
        if not to.exists():
            store.link(from_, to)
        store.unlink(from_)
        store.sync_folder(from_.parent)
        store.sync_folder(to.parent)
        return True

    patched.setattr(PosixLake, "bring", hasty)


def _rename_for_link(patched: Patch) -> None:
    def renamed(self: PosixLake, source: str, target: str) -> bool:
        existed = (self.root / source).exists()
        if existed:
            (self.root / source).rename(self.root / target)
        return existed

    patched.setattr(PosixLake, "bring", renamed)


def _manifest_after_the_rename(patched: Patch) -> None:
    """Rename the folder, and write the commit record into it then."""
    commit = PosixLake.commit

    def committed(self: PosixLake, staged: str, day: Any, contents: DayContents) -> None:
        commit(self, staged, day, replace(contents, texts={}))
        for name, text in contents.texts.items():
            file = PosixFile(self.day_folder(day) / name, name, self._store.system)
            file.write(text)
            file.make_durable()

    patched.setattr(PosixLake, "commit", committed)


def _rename_not_made_durable(patched: Patch) -> None:
    def committed(self: PosixLake, staged: str, day: Any, contents: DayContents) -> None:
        self._store.move(self._put_together(staged, contents), self.day_folder(day))

    patched.setattr(PosixLake, "commit", committed)
    patched.setattr(jobs.daily, "write_schema", lambda *_: None)  # it syncs the same folder


def _files_not_made_durable(patched: Patch) -> None:
    def released(self: PosixFile) -> str:
        self._release()
        return self._hash.hexdigest()

    patched.setattr(PosixFile, "make_durable", released)


def _gaps_not_probed(patched: Patch) -> None:
    def believed(reader: Any, topic: str, gaps: Any, seed: str) -> Any:
        return tuple(replace(gap, probed=len(gap.offsets.ranges)) for gap in gaps)

    patched.setattr(jobs.day.execute, "prove_gaps", believed)


def _bounds_by_todays_zone_rules(patched: Patch) -> None:
    real = jobs.task.classify.DayBounds.of

    def by_rules(plan: DayPlan, rules: Any) -> Any:
        days = (*plan.earlier, plan.day)
        starts = [micros(offsets.days.midnight(day.date, day.zone)) for day in days]
        return replace(real(plan, rules), starts=np.array(starts, dtype=np.int64))

    patched.setattr(jobs.task.classify.DayBounds, "of", by_rules)


def _event_time_rounded(patched: Patch) -> None:
    """Cut event times to whole milliseconds."""
    real = Decoder.decode

    def rounded(self: Any, *arguments: Any) -> Any:
        decoded = real(self, *arguments)
        return replace(
            decoded, event_time=pc.multiply(pc.divide(pc.add(decoded.event_time, 500), 1000), 1000)
        )

    patched.setattr(Decoder, "decode", rounded)


def _a_wider_loss_accepted(patched: Patch) -> None:
    real = offsets.plan._accepted_losses

    def generous(day: date, known: Any, start: Any, terms: Any) -> Any:
        lost = offsets.plan._find_losses(known, start)
        covers = [
            loss
            for loss in terms.accept.loss
            for gone in lost
            if loss.partition == gone.partition
            and loss.from_offset <= gone.from_offset
            and gone.until_offset <= loss.until_offset
        ]
        return covers if covers and len(covers) == len(lost) else real(day, known, start, terms)

    patched.setattr(offsets.plan, "_accepted_losses", generous)


def _new_partitions_from_the_look_up(patched: Patch) -> None:
    """Begin a new partition where the day begins, as on a first day."""
    real = offsets.kafka.offset_lookup._start

    def as_a_first_day(edges: Any, stable: int, start: Any, first_day: bool) -> Any:
        return real(edges, stable, start, True)

    patched.setattr(offsets.kafka.offset_lookup, "_start", as_a_first_day)


def _rerun_leaves_moves_open(patched: Patch) -> None:
    patched.setattr(jobs.daily, "has_unfinished_moves", lambda *_: False)
    patched.setattr(jobs.daily, "is_behind", lambda *_: False)


def _no_entry_after_the_commit(patched: Patch) -> None:
    patched.setattr(jobs.daily, "enter_days", lambda *_: None)


def _rerun_enters_nothing(patched: Patch) -> None:
    patched.setattr(PosixLake, "is_entered", lambda *_: True)
    patched.setattr(jobs.daily, "is_behind", lambda *_: False)


def _next_run_enters_nothing(patched: Patch) -> None:
    patched.setattr(jobs.lake.roll_forward, "not_entered", lambda *_: ())


def _rebuild_keeps_the_old_entry(patched: Patch) -> None:
    patched.setattr(jobs.rebuild, "enter_days", lambda *_: None)


def _expired_days_get_late_rows(patched: Patch) -> None:
    patched.setattr(jobs.day.commit, "first_kept", lambda _: date.min)


def _a_newer_day_expires_too(patched: Patch) -> None:
    real = jobs.lake.expiry.expire
    patched.setattr(
        tests.faults.histories,
        "expire",
        lambda lake, ledger, before, *rest: real(lake, ledger, before + DAY, *rest),
    )


def _an_upgrade_forgets_amendments(patched: Patch) -> None:
    real = UpgradedDay.contents
    patched.setattr(
        UpgradedDay, "contents", lambda self, new, moved: real(replace(self, received={}), new, moved)
    )


def _an_upgrade_enters_nothing(patched: Patch) -> None:
    patched.setattr(jobs.upgrade.run, "enter_days", lambda *_: None)


def _a_folder_stays_after_a_kill(patched: Patch) -> None:
    patched.setattr(jobs.lake.roll_forward, "finish_expiry", lambda *_: None)


def _late_policy_of_the_rerun(patched: Patch) -> None:
    """Read the policy for late rows from the config of the finishing run, not from the manifest."""
    amends: list[bool] = []
    lock = Pipeline.lock_lake

    def noted(pipeline: Pipeline) -> AbstractContextManager[None]:
        amends.append(pipeline.amends)
        return lock(pipeline)

    def by_config(lake: PosixLake, manifest: Manifest) -> Any:
        return finish_moves(lake, manifest) if amends[-1] else {}

    patched.setattr(Pipeline, "lock_lake", noted)
    patched.setattr(jobs.lake.roll_forward, "finish_moves", by_config)


def _rebuild_moves_late_rows(patched: Patch) -> None:
    patched.setattr(CarriedOver, "new_files", lambda self, old, contract, files, *_: (tuple(files), self))


def _rebuild_compares_counts(patched: Patch) -> None:
    def counts(tally: Any) -> Any:
        bare = (replace(entry, from_offset=0, until_offset=entry.rows, digest="") for entry in tally)
        return {(entry.partition, entry.verdict): entry for entry in bare}

    patched.setattr(jobs.day.compare, "_fates", counts)


def _rebuild_forgets_amendments(patched: Patch) -> None:
    def without(
        lake: Any, staged: Any, audited: Any, files: Any, kept: CarriedOver, *rest: Any, **named: Any
    ) -> Manifest:
        return recommit(lake, staged, audited, files, replace(kept, shared={}), *rest, **named)

    patched.setattr(jobs.day.commit, "recommit", without)


def _clean_without_the_rename(patched: Patch) -> None:
    def removed(self: PosixLake, staged: str) -> None:
        with suppress(OSError):
            self._store.system.rmtree(self.root / staged)
            self._store.system.rmdir((self.root / staged).parent)

    patched.setattr(PosixLake, "discard", removed)


def _hash_not_compared(patched: Patch) -> None:
    def lenient(*arguments: Any) -> Iterator[str]:
        return (problem for problem in file_problems(*arguments) if "sha256" not in problem)

    patched.setattr(jobs.verify.run, "file_problems", lenient)


# -- the checks: each is green where no rule is broken


def _a_record_that_changed_contracts(  # an invalid one becomes a valid one of a day that reads over it
) -> None:
    play(
        a_day(came(), came("early"), came("days ahead")),
        a_day(came("early"), change=Change("future", 0)),
        a_day(came()),
    )


def _early_and_late_rows() -> None:
    play(a_day(came("early"), came(), came("early"), came()), *LATE_ROWS[1:])


def _a_task_that_fails_once() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        for hour in range(12):
            history.produce(FIRST, came(hour=hour))
        engine = LocalEngine(history.topic, failing_tasks={0}, batch_rows=4)
        # a group for each batch, so that the attempt that dies has finished a file
        run_day(history.pipeline(engine, target_file_size=1), FIRST)


def _an_end_that_goes_back() -> None:
    history = new_history(compacted=True)
    with history.in_place(), _folder_of(history):
        for arrival in (came("stray ahead"), *[came(hour=hour) for hour in (11, 12, 13)]):
            history.produce(FIRST, arrival)
        history.settle(FIRST, a_day())
        history.twin.forget(0, [1, 2, 3])
        for hour in (3, 4, 5):
            history.produce(THIRD, came(hour=hour))
        history.settle(SECOND, a_day())


def _a_record_between_two_questions() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):

        def produce(question: str) -> None:
            if question == "log_offsets" and history.topic.asked.count("log_offsets") == 2:
                history.produce(FIRST, came())

        history.topic.before = produce
        for day in (FIRST, SECOND):
            run_day(history.pipeline(LocalEngine(history.topic)), day)
        rows = [
            row.at for path in history.folder.rglob("*.parquet") for row in history.reader.read(path).rows
        ]
        assert rows == [(0, 0)], f"{rows} were settled, and the others passed over"


def _another_record_where_the_anchor_was() -> None:
    play(a_day(came(), came()), a_day(came(), change=Change("other anchor", 0)))


def _a_run_killed_before_it_amends() -> None:
    killed = Attempt("kill", AFTER_THE_ENTRY, late_switched=False)
    play(*LATE_ROWS[:2], replace(LATE_ROWS[2], attempts=[killed]), a_day(came()))


def _days_that_expire() -> None:
    """Four days, of which two leave before a fifth, whose run reads a late row of the second."""
    late = a_day(came(), came("days late", 11), change=Change("expire", 1))
    play(a_day(came()), a_day(came()), a_day(came()), a_day(came()), late)


def _a_day_that_expires() -> None:
    last = a_day(came(), change=Change("expire", 0))
    play(a_day(came()), a_day(came()), a_day(came()), a_day(came()), last)


def _a_day_of_an_earlier_format() -> None:
    play(*LATE_ROWS, a_day(came(), change=Change("upgrade", 0)))


def _an_expiry_killed_after_its_entry() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        for number in range(3):
            history.settle(FIRST + number * DAY, a_day())
        with pytest.MonkeyPatch.context() as patched, suppress(Crash):
            patched.setattr(PosixLake, "remove", _crash)
            history._expire(0)
        history.lake = history.lake.expire(FIRST)
        history.before.clear()
        history.settle(THIRD + DAY, a_day())


def _crash(*_: Any) -> None:
    raise Crash("killed after the entry")


def _a_run_killed_before_it_is_entered() -> None:
    killed = Attempt("kill", AFTER_THE_COMMIT, late_switched=False)
    play(a_day(came(), attempt=killed))


def _a_lake_of_an_older_version() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        history.settle(FIRST, a_day())
        shutil.rmtree(history.folder / "_ledger")
        history.store.reload()
        history.settle(SECOND, a_day())


def _the_next_day_right_after_the_kill() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        _play_until_killed(history)
        history.topic.before = lambda question: _no_late_file(history.folder)
        run_day(history.pipeline(LocalEngine(history.topic)), THIRD + DAY)


def _no_late_file(lake: Path) -> None:
    assert not list(lake.glob("date=*/_late/**/*.rows")), "late rows still wait"


def _play_until_killed(history: History) -> None:
    for number, script in enumerate(LATE_ROWS):
        for arrival in script.arrivals:
            history.produce(FIRST + number * DAY, arrival)
        if number < 2:
            history.settle(FIRST + number * DAY, script)
    history.attempt(THIRD, Attempt("kill", AFTER_THE_COMMIT, late_switched=False), LATE_ROWS[2])


def _moves_and_a_loss_of_power() -> None:
    """Cut the power after each change of the moves, and lose or keep what was not durable."""
    history = new_history()
    with history.in_place(), _folder_of(history):
        _play_until_killed(history)
        manifest = read_ledger(history.on_store).newest
        assert manifest is not None
        rows = sum(file.rows for file in manifest.files if file.target)
        saved = history.folder.parent.with_suffix(".saved")
        shutil.copytree(history.folder.parent, saved)
        try:
            for at in range(1, 16):
                for keeps in (nothing, *(some(seed) for seed in range(6))):
                    _restored(history, saved)
                    history.store.plant(Fault(at=at))
                    with suppress(Crash):
                        finish_moves(history.on_store, manifest)
                    history.store.power_loss(keeps)
                    finish_moves(history.on_store, manifest)
                    amended = history.folder.glob(f"date=*/part-late-{THIRD}-*")
                    left = sum(len(history.reader.read(path).rows) for path in amended)
                    assert left == rows, f"{rows - left} late rows are gone"
        finally:
            shutil.rmtree(saved)


def _restored(history: History, saved: Path) -> None:
    shutil.rmtree(history.folder)
    shutil.copytree(saved / history.folder.name, history.folder)
    history.store.reload()


def _a_taken_name() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        _play_until_killed(history)
        manifest = read_ledger(history.on_store).newest
        assert manifest is not None
        (_, _, ref), *_ = jobs.lake.late.late_moves(manifest)
        target = history.folder / ref
        target.write_bytes(b"somebody's")
        with pytest.raises(LedgerBroken):
            finish_moves(history.on_store, manifest)
        assert target.read_bytes() == b"somebody's"


def _a_crash_at_every_change() -> None:
    for at in range(1, 60):
        history = new_history()
        with history.in_place(), _folder_of(history):
            history.produce(FIRST, came())
            history.run(FIRST, a_day(), fault=Fault(at=at))
            history.settle(FIRST, a_day())


def _a_loss_of_power_after_the_run() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        history.produce(FIRST, came())
        for day in (FIRST, SECOND):  # the first one's rename is synced with the name of the ledger
            history.settle(day, a_day())
        history.store.power_loss(nothing)
        history.look(moving=False)


def _a_reader_that_drops_a_batch() -> None:
    rows = [came(hour=hour) for hour in range(8)]
    play(a_day(*rows, change=Change("reader drops", 0)))


def _late_rows_after_the_clocks_were_moved() -> None:
    play(
        a_day(came("on time", 23, micro=1), came("disorder", 1)),
        a_day(came(), change=Change("zone database", 0)),
        a_day(came("late", 22), came("late", 23), came("very late", 0), came("very late", 1)),
    )


def _the_last_microsecond() -> None:
    play(a_day(came(hour=23, micro=-1), came(hour=22, micro=1), came(micro=400)), a_day(came()))


def _offsets_that_were_lost() -> None:
    rows = [came(hour=hour) for hour in range(6)]
    play(a_day(came()), a_day(*rows, change=Change("retain", 18)))


def _a_new_partition() -> None:
    history = new_history()
    with history.in_place(), _folder_of(history):
        history.produce(FIRST, came())
        history.settle(FIRST, a_day())
        history.change(SECOND, Change("add partition", 0), a_day())
        for kind in ("late", "on time"):
            history.produce(SECOND, came(kind, to=2))
        history.settle(SECOND, a_day())


def _late_switched_before_the_rerun() -> None:
    killed = Attempt("kill", AFTER_THE_COMMIT, late_switched=True)
    play(*LATE_ROWS[:2], replace(LATE_ROWS[2], attempts=[killed]))


def _a_rebuilt_day(day: Any) -> Callable[[], None]:
    def check() -> None:
        history = new_history()
        with history.in_place(), _folder_of(history):
            for number, script in enumerate(LATE_ROWS):
                history.play_day(FIRST + number * DAY, script)
            rebuild_day(history.pipeline(LocalEngine(history.topic)), day)
            history.before = {}
            history.look(moving=False)

    return check


def _two_records_that_traded_places() -> None:
    """Replace records behind the anchor: as many rows, but others."""
    history = new_history()
    with history.in_place(), _folder_of(history):
        for arrival in (came(), came("early"), came()):
            history.produce(FIRST, arrival)
        for arrival in (came("late"), came(), came()):
            history.produce(SECOND, arrival)
        history.settle(FIRST, a_day())
        history.settle(SECOND, a_day())
        records = history.topic.logs[0].records
        records[3], records[4] = (
            replace(records[3], value=records[4].value, timestamp=records[4].timestamp),
            replace(records[4], value=records[3].value, timestamp=records[3].timestamp),
        )
        with pytest.raises(AuditFailed):
            rebuild_day(history.pipeline(LocalEngine(history.topic)), SECOND)


def _a_zombie_in_an_orphan() -> None:
    """Let a worker that outlived its run write into its folder while that is removed."""
    history = new_history()
    with _folder_of(history):
        lake = PosixLake(history.folder)
        attempt = lake.root / lake.stage(FIRST, "dead") / "attempts" / "1-a"
        attempt.mkdir(parents=True)

        def slow(self: System, folder: Path) -> None:
            if attempt.is_dir():
                (attempt / "00001.parquet.part").write_bytes(b"zombie")
                raise OSError("directory not empty")
            shutil.rmtree(folder)

        holder = LockHolder(run_id="c", host="h", pid=1, since=datetime(2026, 4, 1, tzinfo=UTC))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(System, "rmtree", slow)
            clean(lake, holder)
        assert orphans(lake) == []


def _a_byte_that_was_changed() -> None:
    history = new_history()
    history.real = True
    with history.in_place(), _folder_of(history):
        for hour in range(9):
            history.produce(FIRST, came(hour=hour))
        run_day(history.pipeline(LocalEngine(history.topic)), FIRST)
        (file,) = history.folder.glob("date=*/*.parquet")
        assert verify(history.on_store, None, lambda *_: None).problems == ()
        text = bytearray(file.read_bytes())
        text[20] ^= 1
        file.write_bytes(text)
        assert verify(history.on_store, None, lambda *_: None).problems, "a changed byte was not noticed"


class _folder_of:
    """Removes a history's folder at the end."""

    def __init__(self, history: History) -> None:
        self._root = history.folder.parent

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root)


@dataclass(frozen=True)
class Mutation:
    """A broken rule, the check that notices it, and a part of the check's message."""

    breaks: Callable[[Patch], None]
    check: Callable[[], None]
    says: str


MUTATIONS = (
    Mutation(_already_settled_by_the_day, _a_record_that_changed_contracts, "each delivered record one fate"),
    Mutation(_checkpoint_before_the_audit, _early_and_late_rows, "pending"),
    Mutation(_pending_as_one_range, _early_and_late_rows, "pending"),
    Mutation(
        _files_of_failed_attempts_kept, _a_task_that_fails_once, "1-failed/00000.parquet.part to be readable"
    ),
    Mutation(_until_below_seen_until, _an_end_that_goes_back, "span must hold"),
    Mutation(_stable_offset_after_the_look_up, _a_record_between_two_questions, "passed over"),
    Mutation(_anchor_not_compared, _another_record_where_the_anchor_was, "TopicChanged"),
    Mutation(_moves_not_finished_first, _the_next_day_right_after_the_kill, "late rows still wait"),
    Mutation(
        _rerun_leaves_moves_open, _a_run_killed_before_it_amends, "should be Place.*AMENDED.*is .*SET_ASIDE"
    ),
    Mutation(_no_entry_after_the_commit, _a_lake_of_an_older_version, "is not in the ledger"),
    Mutation(_rerun_enters_nothing, _a_run_killed_before_it_is_entered, "is not in the ledger"),
    Mutation(_expired_days_get_late_rows, _days_that_expire, "counts other late rows"),
    Mutation(_a_newer_day_expires_too, _a_day_that_expires, "the wrong days are there"),
    Mutation(_a_folder_stays_after_a_kill, _an_expiry_killed_after_its_entry, "the wrong days are there"),
    Mutation(_an_upgrade_forgets_amendments, _a_day_of_an_earlier_format, "part-late-.* is missing"),
    Mutation(_an_upgrade_enters_nothing, _a_day_of_an_earlier_format, "is not in the ledger"),
    Mutation(_next_run_enters_nothing, _a_lake_of_an_older_version, "is not in the ledger"),
    Mutation(_rebuild_keeps_the_old_entry, _a_rebuilt_day(THIRD), "is not in the ledger"),
    Mutation(
        _late_policy_of_the_rerun, _late_switched_before_the_rerun, "should be Place.*AMENDED.*is .*SET_ASIDE"
    ),
    Mutation(_unlink_before_the_targets_fsync, _moves_and_a_loss_of_power, "late rows are gone"),
    Mutation(_rename_for_link, _a_taken_name, "DID NOT RAISE"),
    Mutation(_manifest_after_the_rename, _a_crash_at_every_change, "the wrong days are there"),
    Mutation(_rename_not_made_durable, _a_loss_of_power_after_the_run, "the wrong days are there"),
    Mutation(_files_not_made_durable, _a_loss_of_power_after_the_run, "too small"),
    Mutation(_gaps_not_probed, _a_reader_that_drops_a_batch, "is nowhere"),
    Mutation(_bounds_by_todays_zone_rules, _late_rows_after_the_clocks_were_moved, "to hold events of"),
    Mutation(_event_time_rounded, _the_last_microsecond, "is nowhere"),
    Mutation(_a_wider_loss_accepted, _offsets_that_were_lost, "refused, and should not be"),
    Mutation(_new_partitions_from_the_look_up, _a_new_partition, "is nowhere"),
    Mutation(_rebuild_moves_late_rows, _a_rebuilt_day(THIRD), "AMENDED.*SET_ASIDE"),
    Mutation(_rebuild_forgets_amendments, _a_rebuilt_day(FIRST), "is missing|found neither"),
    Mutation(_rebuild_compares_counts, _two_records_that_traded_places, "DID NOT RAISE"),
    Mutation(_clean_without_the_rename, _a_zombie_in_an_orphan, "it is still there"),
    Mutation(_hash_not_compared, _a_byte_that_was_changed, "was not noticed"),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.breaks.__name__[1:] for mutation in MUTATIONS])
def test_a_rule_that_is_broken_is_noticed(mutation: Mutation) -> None:
    mutation.check()
    with pytest.MonkeyPatch.context() as patched:
        mutation.breaks(patched)
        with pytest.raises((AssertionError, KafkaDailyError, ValueError, pytest.fail.Exception)) as noticed:
            mutation.check()
    assert re.search(mutation.says, f"{noticed.type.__name__}: {noticed.value}", re.DOTALL), str(
        noticed.value
    )
