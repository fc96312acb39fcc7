"""Plays histories on the real code and on the reference at once, and checks the laws after each step.

Relies on `run_day` over a real folder whose store is a `FaultyOs`; broker and Spark are stand-ins in memory.
A history is plain data, so that a failing one can be shrunk, printed and played again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import structlog

import jobs.context
import jobs.daily
import jobs.day.commit
import jobs.day.execute
import offsets.days
from jobs.config import Late
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.day.execute import Execution
from jobs.lake.clean import clean
from jobs.lake.expiry import expire
from jobs.lake.port import Lake, LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.lake.store import Store
from jobs.rebuild import rebuild_day
from jobs.record.columns import Column, Kind, Scalar
from jobs.record.rules import Tombstones
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.checkpoint import LostOffsets
from offsets.errors import KafkaDailyError
from offsets.plan import Accept
from tests import reference
from tests.faults.laws import Reader, Seen, check, no_coordinate_twice, todays_name
from tests.faults.light_files import light_files, light_rows, parquet_rows
from tests.faults.memory_lake import MemoryLake, MemoryStore
from tests.faults.scripts import (
    DAMAGES,
    FIRST,
    STAMPS,
    ZONES,
    Arrival,
    Attempt,
    Change,
    DayScript,
    Script,
    scripts,
)
from tests.faults.store import Fault, FaultyOs, some
from tests.faults.twins import WALL_CLOCK, TwinTopic
from tests.faults.upgrades import finish_upgrade, upgrade_oldest_days
from tests.reference import DAY, Fate, Request, ZoneDatabase
from tests.support.local_engine import RULES, Crash, LocalEngine, pipeline
from tests.support.memory_topic import MemoryTopic

GRACE: Final = timedelta(hours=1)
HOLDER: Final = LockHolder(run_id="expire", host="here", pid=1, since=WALL_CLOCK)
MEMORY: Final = Path("/dev/shm")
STEPS: Final[list[tuple[Any, str]]] = [
    (jobs.daily, "plan_with_retries"),
    (Execution, "run_tasks"),
    (Execution, "audit"),
    (jobs.day.execute, "recheck"),
    (jobs.day.execute, "prove_gaps"),
    (jobs.day.commit, "commit"),
    (jobs.daily, "enter_days"),
]
"""The calls after which a process is killed."""
AFTER_THE_COMMIT: Final = 8
AFTER_THE_ENTRY: Final = 4
"""Where an attempt is killed after the last two of them."""


class _Zone(tzinfo):
    """A zone by the rules of today's zone database."""

    def __init__(self, key: str, zones: ZoneDatabase) -> None:
        self._key, self._zones = key, zones

    def utcoffset(self, at: datetime | None) -> timedelta:
        assert at is not None
        return self._zones.utc_offset(self._key, at.replace(tzinfo=None))

    def dst(self, at: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> str:
        return self._key

    def fromutc(self, at: datetime) -> datetime:
        utc = at.replace(tzinfo=None)
        guess = utc + self._zones.utc_offset(self._key, utc)
        return (utc + self._zones.utc_offset(self._key, guess)).replace(tzinfo=self)


class History:
    """A topic and a lake, each twice: the product's and the reference's."""

    def __init__(
        self, folder: Path, script: Script, counts: Counter[str], *, real: bool = True, memory: bool = False
    ) -> None:
        """Start with an empty topic; `real` files are Parquet, and a lake is a folder or in `memory`."""
        self.folder, self.script, self.counts, self.real = folder / "lake", script, counts, real
        self.store: FaultyOs | MemoryStore = MemoryStore(folder) if memory else FaultyOs(folder)
        self.twin = TwinTopic(compacted=script.compacted)
        self.lake = reference.Lake()
        self.rules = reference.Rules(
            zone="Europe/Amsterdam",
            past=RULES.past,
            future=RULES.future,
            skip_tombstones=False,
            number_column=True,
        )
        self.zones = ZoneDatabase()
        self.amend = script.amend
        self.reader = Reader(parquet_rows if real else light_rows)
        self.before: dict[str, str] = {}
        self.earlier = set[date]()
        """The days of an earlier format, until an upgrade ended well."""
        self.made = 60
        self._candidates: dict[str, reference.Lake] = {}
        self._accept = Accept()

    @property
    def on_store(self) -> Lake:
        """The lake, on the store that fails at the planned change."""
        match self.store:
            case MemoryStore():
                return MemoryLake(self.store)
            case FaultyOs():
                return PosixLake(self.folder, Store(self.store))

    def play(self) -> None:
        """Play all days, and count the injected faults."""
        with self.in_place():
            for number, script in enumerate(self.script.days):
                day = FIRST + number * DAY
                self.play_day(day, script)
            for change in self.script.afterwards:
                self.change(day, change, script)
            self.finish()
        self.counts["histories"] += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the real zone database and files by those of this history."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(offsets.days, "ZoneInfo", lambda key: _Zone(key, self.zones))
            with nullcontext() if self.real else light_files():
                yield

    def finish(self) -> None:
        """Clean up, and verify the lake."""
        if self.earlier:
            finish_upgrade(self)
        self.store.plant()
        lake = self.on_store
        holder = LockHolder(run_id="clean", host="here", pid=1, since=WALL_CLOCK)
        self.counts["orphans cleaned"] += len(clean(lake, holder))
        assert lake.orphans() == []
        self.store.show()
        self.look(moving=False)
        if self.real:
            result = verify(lake, None, lambda *_: None, Level.KAFKA, lambda: self.topic)
            assert result.problems == (), result.problems
            self.counts["lakes verified"] += 1

    def play_day(self, day: date, script: DayScript) -> None:
        """Play one day: its records, its changes, the runs that fail, the run that settles it."""
        for arrival in script.arrivals:
            self.produce(day, arrival)
        for change in script.changes:
            self.change(day, change, script)
        for attempt in script.attempts:
            self.attempt(day, attempt, script)
        self.settle(day, script)

    # -- the topic

    @property
    def topic(self) -> MemoryTopic:
        """The topic that the product reads."""
        return self.twin.memory

    @property
    def known(self) -> reference.Topic:
        """The topic of the reference."""
        return self.twin.known

    def produce(self, day: date, arrival: Arrival) -> None:
        """Produce one record."""
        self.twin.produce(day, arrival)
        self.counts["records"] += 1
        self.counts["stray stamps"] += arrival.kind in STAMPS
        self.counts["transactions"] += bool(arrival.ending)

    # -- what happens between two runs

    def change(self, day: date, change: Change, script: DayScript) -> None:
        """Make a change between two runs."""
        number = change.how % len(self.known.partitions)
        log = self.known.partitions[number]
        match change.kind:
            case "add partition":
                self.twin.add_partition()
                self.counts["new partitions"] += bool(self.lake.days)
            case "compact":
                self._compact(number, change.how)
            case "retain":
                self.twin.retain_from(number, log.log_start + change.how // 3 % 12)
            case "columns":
                self._change_rules(number_column=not self.rules.number_column)
            case "past":
                days_ = self.rules.past == RULES.past
                self._change_rules(past=timedelta(hours=12) if days_ else RULES.past)
            case "future":
                a_day = self.rules.future == RULES.future
                self._change_rules(future=timedelta(days=3) if a_day else RULES.future)
            case "tombstones":
                self._change_rules(skip_tombstones=not self.rules.skip_tombstones)
            case "zone":
                self._change_rules(zone=ZONES[change.how % len(ZONES)])
            case "zone database":
                self.zones = ZoneDatabase(day + change.how % 3 * DAY, timedelta(hours=change.how % 5 - 2))
                self.counts["zone database changes"] += 1
            case "late":
                self.amend = not self.amend
                self.counts["late switched"] += 1
            case "rerun":
                self._rerun(change.how)
            case "rebuild":
                self._rebuild(change.how)
            case "expire":
                self._expire(change.how)
            case "upgrade":
                upgrade_oldest_days(self, change.how)
            case "power loss":
                self.store.power_loss(some(change.how))
                self.counts["power losses between runs"] += 1
                self.look(moving=False)
            case _ if day in self._days():
                pass  # the reader dropped nothing, so the day is settled
            case "reader drops" | "reader doubles" | "too soon" | "too far":
                self._refused_run(day, change.kind, script)
            case _:
                self._refused_topic(day, change.kind, number, script)

    def _change_rules(self, **changed: Any) -> None:
        new = replace(self.rules, **changed)
        if new != self.rules:
            self.rules = new
            self.counts[f"contract changes: {next(iter(changed))}"] += 1

    def _compact(self, number: int, how: int) -> None:
        if not self.known.compacted:
            return
        log = self.known.partitions[number]
        waiting = self.lake.pending(number) if how % 3 == 0 else []
        seen = [at for at, record in log.records.items() if record.visible]
        gone = [at for at in seen if how >> (at % 8) & 1 or at in waiting]
        for at in gone:
            place = self.lake.places.get((number, at))
            self.counts["compacted while pending"] += bool(place and place.fate is Fate.PENDING)
        self.twin.forget(number, gone)
        self.counts["compacted"] += len(gone)

    def _rerun(self, how: int) -> None:
        """Check that a run of a committed day does nothing, under any rules."""
        if not self.lake.days:
            return
        day = self.lake.kept[how % len(self.lake.kept)].day.date
        engine = LocalEngine(self.topic)
        self.store.plant()
        outcome = run_day(self.pipeline(engine), day)
        assert outcome.already
        assert engine.jobs == 0
        self.counts["reruns of committed days"] += 1
        self.look(moving=False)

    def _rebuild(self, how: int, *, whole: bool = False) -> None:
        """Rebuild a committed day, damaged or not, after a failed attempt or without one."""
        if not self.lake.days:
            return
        how = how * 617 % 1000  # spread it: hypothesis draws small numbers most often
        first = len(self.lake.days) - len(self.lake.kept)
        at = first + how % len(self.lake.kept)
        damage = "" if whole or self.earlier else DAMAGES[how // 3 % len(DAMAGES)]
        if damage == "gone":
            between = [
                n for n in range(first + 1, len(self.lake.days) - 1) if not self.lake.days[n + 1].lossy
            ]
            at, damage = (between[0], damage) if between else (at, "")
        day = self.lake.days[at].day.date
        amended = sorted(self.folder.glob("date=*/part-late-*"))
        late = amended[how % len(amended)] if damage == "late" and amended else None
        damage = "cut" if damage == "late" and not late else damage
        if late:  # its day is rebuilt, or the one that brought it
            day = date.fromisoformat(late.name[10:20] if how & 32 else late.parent.name[5:])
            at = self._days().index(day)
        rules = self.lake.days[at + 1 if damage == "gone" else at].request.rules
        expected = self.lake.rebuild(self.known, day, self.rules, gone=damage == "gone")
        ways, runs = self._revisions(day, expected), self._runs()
        saved = self._damage(day, damage, how, late)
        may = {"OffsetsLost"} if self.known.compacted else set[str]()
        owned = damage == "gone" and any((self.folder.parent / "aside").glob("part-late-*"))
        if "late-" in saved[1] or owned:  # a rebuild needs all records that its run read
            may |= {"OffsetsLost", "RunFailed"}
        if expected is None or (late and not self._can_rebuild_owner(late)):
            may |= {"OffsetsLost", "AuditFailed"}
        if rules != self.rules:
            assert self._rebuilt(day, None) in {"ContractChanged", *may}
        self._accept = Accept(contract=True)
        if how & 64 and (late or not damage) and not whole:
            fault = Fault(at=1 + how * self.made // 1000)
            failed = self._rebuilt(day, fault)
            assert failed in {"done", "crash", *may}, f"a rebuild ends with {failed}"
            self.counts["rebuilds that crashed"] += failed == "crash"
            self.counts["rebuilds of late files that crashed"] += bool(late) and failed == "crash"
            if how & 128:
                self.store.power_loss(some(how))
            if late:
                no_coordinate_twice(self.seen(self.lake, moving=False))
            else:
                self._look_rebuilt(day, ways, runs)
        result = self._rebuilt(day, None)
        self._accept = Accept()
        assert result in {"done", *may}, f"a rebuild ends with {result}"
        if result == "done":
            assert expected is not None, f"{day} was rebuilt, and should not be"
            self.lake = expected
            self.counts[f"rebuilds: {damage or 'whole'}"] += 1
        else:
            self._restore(saved)
            self.counts["rebuilds refused"] += 1
        self._look_rebuilt(day, ways, runs)

    def _can_rebuild_owner(self, late: Path) -> bool:
        """Return whether the day that brought a late file comes out as it was, by the rules of its run."""
        owner = date.fromisoformat(late.name[10:20])
        rules = self.lake.days[self._days().index(owner)].request.rules
        return self.lake.rebuild(self.known, owner, rules) is not None

    def _expire(self, how: int) -> None:
        """Let the oldest days leave, after an attempt that crashed or without one; the newest two stay."""
        leaving = [settled.day.date for settled in self.lake.kept[:-2]]
        if not leaving or not self.manifest(self.lake.kept[-1].day.date).get("columns"):
            return  # the newest day must be of today's format
        until, lake = leaving[how % len(leaving)], self.on_store
        expected = self.lake.expire(until)
        if how & 1:
            self.store.plant(Fault(at=1 + how // 2 * 617 % 40, after=bool(how & 2)))
            with suppress(Crash), lake.lock(HOLDER):
                ledger, _ = finish_last_run(lake, "expire")
                expire(lake, ledger, until + DAY, WALL_CLOCK, "expire", "a policy")
            self.store.show()
            self.counts["expiries that crashed"] += self.store.dead
            if self.store.dead and how & 4:
                self.store.power_loss(some(how))
            no_coordinate_twice(self.seen(self.lake, moving=False))
        self.store.plant()
        with lake.lock(HOLDER):
            ledger, _ = finish_last_run(lake, "expire")
            expire(lake, ledger, until + DAY, WALL_CLOCK, "expire", "a policy")
        self.store.show()
        self.lake = expected
        gone = {f"date={settled.day.date}" for settled in self.lake.days if settled.day.date <= until}
        self.before = {name: text for name, text in self.before.items() if name.split("/")[0] not in gone}
        self.counts["days expired"] += len(leaving[: leaving.index(until) + 1])
        self.look(moving=False)

    def _rebuild_first(self, day: date, how: int) -> None:
        """Rebuild a day while late files of the newest one still wait: they are moved first."""
        self.store.plant()
        if day not in self._days():
            self.lake = self._candidates[self.manifest(day)["run_id"]]
        before = sum(self.counts[name] for name in self.counts if name.startswith("rebuilds"))
        self._rebuild(how, whole=True)
        after = sum(self.counts[name] for name in self.counts if name.startswith("rebuilds"))
        self.counts["rebuilds before the rerun"] += after > before

    def _damage(self, day: date, damage: str, how: int, late: Path | None) -> tuple[Path, str, bytes]:
        """Damage a day, or a late file, without the store's knowledge; return what repairs it."""
        folder = self.folder / f"date={day}"
        files = (
            [late]
            if late
            else sorted(path for path in folder.rglob("*") if path.suffix in (".parquet", ".rows"))
        )
        if damage == "gone":
            aside = self.folder.parent / "aside"
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(folder, aside)
            shutil.rmtree(folder)
            self.store.reload()
            return folder, "gone", b""
        if not files or not damage:
            return folder, "", b""
        path = files[how % len(files)]
        text = path.read_bytes()
        path.unlink()
        if damage == "cut" or (late and not how & 64):
            path.write_bytes(text[: len(text) // 2])
        self.store.reload()
        return path, path.name, text

    def _restore(self, saved: tuple[Path, str, bytes]) -> None:
        path, name, text = saved
        if name.startswith("part-late-") and not self._named(path):
            return  # its owner was rebuilt, and brought the rows in another file
        if name == "gone":
            shutil.copytree(self.folder.parent / "aside", path)
        elif name:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        if name:
            self.store.reload()

    def _named(self, path: Path) -> bool:
        """Return whether a manifest names a file."""
        name = path.relative_to(self.folder).as_posix()
        manifests = filter(None, map(self.manifest, self._days()))
        return any(
            name in (file["target"], f"date={manifest['day']['date']}/{file['path']}")
            for manifest in manifests
            for file in manifest["files"]
        )

    def _rebuilt(self, day: date, fault: Fault | None) -> str:
        self.store.plant(fault)
        made = self.store.kinds.total()
        try:
            rebuild_day(self.pipeline(LocalEngine(self.topic)), day)
        except Crash:
            return "crash"
        except KafkaDailyError as stopped:
            return type(stopped).__name__
        finally:
            self.store.show()
        self.made = max(self.store.kinds.total() - made, 1)
        return "done"

    def _revisions(self, day: date, expected: reference.Lake | None) -> dict[str, reference.Lake]:
        """Return what the lake holds by run: the revision that is there now, else the new one."""
        manifest = self.manifest(day)
        ways = {manifest["run_id"]: self.lake} if manifest else {}
        return ways | ({"": expected} if expected else {})

    def _look_rebuilt(self, day: date, ways: dict[str, reference.Lake], runs: dict[date, str]) -> None:
        """Check the lake by all laws: as it was before the rebuild, or as it is after it.

        Those days changed that were rebuilt, and late files that a rebuilt day no longer names.
        """
        run = self.manifest(day)["run_id"]
        lake = ways[run] if run in ways else ways.get("", self.lake)
        rebuilt = [other for other, run in self._runs().items() if runs.get(other) != run]
        self.counts["rebuilds of owners"] += len(set(rebuilt) - {day})
        targets = {file["target"] for other in rebuilt for file in self.manifest(other)["files"]}
        named = {todays_name(target) for target in targets if target}
        self.before = {
            name: digest
            for name, digest in self.before.items()
            if not any(name.startswith(f"date={other}/") for other in {day, *rebuilt})
            and (name in named or not any(f"/part-late-{other}-" in name for other in rebuilt))
        }
        check(self.seen(lake, moving=False))

    def _runs(self) -> dict[date, str]:
        """Return the run that wrote each day."""
        return {day: manifest["run_id"] for day in self._days() if (manifest := self.manifest(day))}

    def _refused_topic(self, day: date, kind: str, number: int, script: DayScript) -> None:
        """Change the topic in a way that no run may accept; then undo it."""
        with self.twin.broken(kind, number, self.lake):
            if self.lake.refusals(self.known, self._request(day)).must:
                self.counts[f"refused: {kind}"] += 1
                result = self.run(day, script)
                assert result not in ("done", "crash", "store"), f"{kind} was accepted"

    def _refused_run(self, day: date, kind: str, script: DayScript) -> None:
        """Make a run fail in a way that it must notice."""
        engine = self._engine(script)
        changed: dict[str, Any] = {}
        expected = {"AuditFailed", "TopicChanged"}
        match kind:
            case "reader drops":
                engine.dropped = {0}
            case "reader doubles":
                engine.doubled, expected = {0}, {"AuditFailed"}
            case "too soon":
                over = self.lake.bounds(self._request(day)).end
                due = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=over) + GRACE
                changed, expected = {"now": due - timedelta(microseconds=1)}, {"DayNotOver"}
            case _:
                day, expected = day + DAY, {"EarlierDayMissing"}
        result = self.run(day, script, engine=engine, also=expected, **changed)
        if result != "done":
            self.counts[f"refused: {kind}"] += result in expected
            return
        newest = self.manifest(day)
        assert kind.startswith("reader"), f"{kind} was accepted"
        assert sum(tally["rows"] for tally in newest["tally"]) == 0, f"{kind} was not noticed"

    # -- runs

    def _request(self, day: date) -> Request:
        return Request(
            day=day,
            rules=self.rules,
            zones=self.zones,
            grace=GRACE,
            amend=self.amend,
            accept_contract=self._accept.contract,
            accept_start=self._accept.start,
            accept_loss=frozenset(
                (lost.partition, lost.from_offset, lost.until_offset) for lost in self._accept.loss
            ),
        )

    def _engine(self, script: DayScript) -> LocalEngine:
        return LocalEngine(
            self.topic,
            batch_rows=script.batch_rows,
            least_tasks=script.tasks,
            failing_tasks={0} if script.failing else set(),
        )

    def pipeline(self, engine: LocalEngine, **changed: Any) -> Pipeline:
        """Return what a run works with, by the rules in force."""
        columns = [Column("id", Scalar(Kind.STRING))]
        if self.rules.number_column:
            columns.append(Column("n", Scalar(Kind.BIGINT)))
        rules = replace(
            RULES,
            columns=tuple(columns),
            past=self.rules.past,
            future=self.rules.future,
            tombstones=Tombstones.SKIP if self.rules.skip_tombstones else Tombstones.QUARANTINE,
        )
        late = Late.AMEND if self.amend else Late.SET_ASIDE
        made = pipeline(
            self.folder,
            self.topic,
            engine=engine,
            accept=self._accept,
            rules=rules,
            zone=self.rules.zone,
            late=late,
            **changed,
        )
        return replace(made, lake=self.on_store)

    def run(
        self,
        day: date,
        script: DayScript,
        *,
        fault: Fault | None = None,
        engine: LocalEngine | None = None,
        also: Iterable[str] = (),
        **changed: Any,
    ) -> str:
        """Run a day once, and return how it ended: `done`, `crash`, `store`, or the name of its refusal."""
        engine = engine or self._engine(script)
        self.store.plant(fault)
        struck, made = self.store.injected, self.store.kinds.total()
        request = self._request(day)
        refusals = self.lake.refusals(self.known, request)
        of_run, message = self.pipeline(engine, **changed), ""
        try:
            outcome = run_day(of_run, day)
        except Crash:
            result = "crash"
        except KafkaDailyError as stopped:
            result, message = type(stopped).__name__, str(stopped)
        else:
            assert outcome.already or not refusals.must, f"done, and not refused with {refusals.must}"
            result = "done"
            self.made = max(self.store.kinds.total() - made, 1)
        finally:
            self.store.show()
        if self.store.injected > struck and result in ("StoreFailed", "NotPublished", "AuditFailed"):
            result = "store"
        lawful = {"done", "crash", "store", *refusals.may, *also}
        assert result in lawful, f"refused, and should not be: {message}"
        self.counts["attempts of tasks that failed"] += script.failing and engine.jobs > 0
        self._note(day, request)
        self.look(moving=result != "done", day=day)
        if result == "done":
            self._committed(day)
        return result

    def _note(self, day: date, request: Request) -> None:
        """Work out what a new day should hold, if this run committed one."""
        manifest = self.manifest(day)
        if manifest is None or manifest["run_id"] in self._candidates or day in self._days():
            return
        ends = {span["partition"]: span["until_offset"] for span in manifest["spans"]}
        for number, until in ends.items():
            assert self.lake.end_is_lawful(self.known, request, number, until), f"{number} ends at {until}"
        self._candidates[manifest["run_id"]] = self.lake.settle(self.known, request, ends)

    def _days(self) -> list[date]:
        return [settled.day.date for settled in self.lake.days]

    def manifest(self, day: date) -> Any:
        """Return the manifest of a day as JSON; None for a day that is not there."""
        text = self.manifest_text(day)
        return json.loads(text) if text else None

    def manifest_text(self, day: date) -> bytes:
        """Return the manifest of a day as it is; empty for a day that is not there."""
        path = self.folder / f"date={day}" / "_manifest.json"
        return path.read_bytes() if path.exists() else b""

    def _committed(self, day: date) -> None:
        """Note that the day is committed: from here on nothing may remove it."""
        if day not in self._days():
            self.lake = self._candidates[self.manifest(day)["run_id"]]
        self.note_files()
        self.counts["days committed"] += 1
        self.counts["late rows of expired days"] += sum(
            place.fate is Fate.SET_ASIDE and place.of is not None and place.of <= self.lake.expired
            for place in self.lake.days[-1].placed.values()
        )
        for fate in Fate:
            self.counts[f"fate: {fate.name}"] += sum(
                p.fate is fate for p in self.lake.days[-1].placed.values()
            )

    def note_files(self) -> None:
        """Note what the committed days hold: from here on nothing may change it."""
        files = self.seen(self.lake, moving=False).files
        self.before = {todays_name(name): file.sha256 for name, file in files.items()}

    def look(self, *, moving: bool, day: date | None = None) -> None:
        """Check the lake by all laws."""
        manifest = self.manifest(day) if day and day not in self._days() else None
        lake = self._candidates[manifest["run_id"]] if manifest else self.lake
        if self.folder.exists():
            check(self.seen(lake, moving=moving))

    def seen(self, lake: reference.Lake, *, moving: bool) -> Seen:
        """Return the lake as it is, beside the reference's."""
        return Seen.of(
            self.folder,
            self.reader,
            lake=lake,
            topic=self.known,
            produced=self.twin.produced,
            moving=moving,
            upgrading=bool(self.earlier),
            before=self.before,
        )

    def attempt(self, day: date, attempt: Attempt, script: DayScript) -> None:
        """Run a day with a fault half-way, if it gets that far."""
        where = attempt.at * 617 % 1000  # spread it: hypothesis draws small numbers most often
        at = 1 + where * self.made // 1000
        match attempt.fault:
            case "kill":
                module, step = STEPS[where % len(STEPS)]
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(module, step, _killed_after(getattr(module, step)))
                    result = self.run(day, script)
            case "crash" | "lost answer" | "power loss":
                result = self.run(day, script, fault=Fault(at=at, after=attempt.fault == "lost answer"))
            case _:
                fault = Fault(at=at, after=attempt.fault == "EIO after", error=5)
                result = self.run(day, script, fault=fault)
        if result in ("crash", "store"):
            self.counts[f"fault: {attempt.fault}"] += 1
            self.counts["committed and then crashed"] += (self.folder / f"date={day}").exists()
        if attempt.fault == "power loss":
            self.store.power_loss(some(attempt.at))
            self.look(moving=True, day=day)
        if result == "crash" and where % 2 and self.manifest(day):
            self._rebuild_first(day, attempt.at)
        if attempt.late_switched:
            self.amend = not self.amend
            self.counts["late switched before the rerun"] += 1

    def settle(self, day: date, script: DayScript) -> None:
        """Run a day until it is committed, accepting what has to be accepted."""
        for _ in range(6):
            match self.run(day, script):
                case "done":
                    self._accept = Accept()
                    return
                case "ContractChanged":
                    self.counts["refused: contract"] += 1
                    self._accept = replace(self._accept, contract=True)
                case "OffsetsLost":
                    self._accept_loss(day, script)
                case "BrokerBehind":
                    self.counts["refused: open transaction"] += 1
                    self.twin.end_open(day)
                case other:
                    raise AssertionError(f"{day} ends with {other}")
        raise AssertionError(f"{day} is never committed")

    def _accept_loss(self, day: date, script: DayScript) -> None:
        logs = self.known.partitions.items()
        lost = [loss for number, log in logs if (loss := self.lake.lost(number, log))]
        if lost:
            number, from_, until = lost[0]
            self._accept = replace(
                self._accept, loss=(LostOffsets(partition=number, from_offset=from_, until_offset=until + 1),)
            )
            assert self.run(day, script) != "done", "a wider loss was accepted"
            self.counts["refused: a wider loss"] += 1
        self.counts["losses accepted"] += bool(lost)
        self.counts["starts accepted"] += not lost
        self._accept = replace(
            self._accept,
            start=True,
            loss=tuple(LostOffsets(partition=p, from_offset=f, until_offset=u) for p, f, u in lost),
        )


def _killed_after(step: Callable[..., Any]) -> Callable[..., Any]:
    def killed(*arguments: Any, **named: Any) -> Any:
        step(*arguments, **named)
        raise Crash("between two steps")

    return killed


def play_many(count: int, seed: int, *, real: bool, memory: bool) -> tuple[Counter[str], str]:
    """Play random histories in this process; return counts of faults, and how one failed or an empty text."""
    counts: Counter[str] = Counter()
    structlog.configure(processors=[drop_event])

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        print_blob=False,
    )
    @hypothesis.given(scripts)
    def histories(script: Script) -> None:
        play(script, counts, real=real, memory=memory)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jobs.context, "_versions", lambda: {"kafka-daily": "0"})
        try:
            histories()
        except Exception:  # noqa: BLE001 -- an error of ours may not cross processes: its text does
            return counts, traceback.format_exc()
    return counts, ""


def drop_event(*_: object) -> dict[str, object]:
    """Write no log: thousands of runs would."""
    raise structlog.DropEvent


def play(script: Script, counts: Counter[str], *, real: bool, memory: bool = False) -> None:
    """Play one history in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="history-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        History(folder, script, counts, real=real, memory=memory).play()
        counts[f"lakes: {'in memory' if memory else 'folder'}"] += 1
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
