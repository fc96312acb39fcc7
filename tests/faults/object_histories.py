"""Random histories of several processes on one lake in a bucket, and what must hold after each change.

Runs, cleans and their deaths are interleaved at each question to the store, whose answers are lost, delayed
and refused. The code is the product's own, from the plan to the copies; broker and Spark are stand-ins in
memory. No run holds a lock: no promise may rest on one.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from jobs.config import Late
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.lake.clean import clean
from jobs.lake.names import in_day
from jobs.lake.objects.lake import ObjectLake
from jobs.lake.objects.ledger import read_entries
from jobs.lake.port import LockHolder
from jobs.rebuild import rebuild_day
from offsets.days import midnight
from offsets.errors import ConfigError, EarlierDayMissing, LakeLocked, NotPublished, StoreFailed
from offsets.instants import micros
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import from_json
from tests.faults.light_files import file_rows
from tests.faults.object_store import Fate, MemoryObjects
from tests.support.local_engine import Crash, LocalEngine, pipeline
from tests.support.memory_topic import MemoryTopic, Record

FIRST: Final = date(2026, 3, 28)
DAYS: Final = 3
PARTITIONS: Final = 2
EXPECTED: Final = (StoreFailed, NotPublished, LakeLocked, EarlierDayMissing)
"""The errors with which a process may end where the store fails, or another process was first."""
CHAOS: Final = (0.0, 0.01, 0.04, 0.1)
"""How many of the changes go wrong."""
HOUR: Final = timedelta(hours=1)
NOON: Final = timedelta(hours=12)
KILLED: Final = (Fate.KILLED_BEFORE, Fate.KILLED_AFTER, Fate.KILLED_DELAYED)
WRONG: Final = [fate for fate in Fate if fate is not Fate.ANSWERED]


class Violation(Exception):
    """A promise was broken."""


@dataclass
class Actor:
    """A process: a thread that goes on from one question to the store to the next when it is told to."""

    name: str
    work: Callable[[], object]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    at: tuple[str, str] = ("", "")
    """The question before which it waits: its kind, and the key."""
    dead: bool = False
    """Whether it was killed: it asks nothing more, whatever its code does on its way out."""
    ended: str | None = None
    error: BaseException | None = None
    told: str = ""
    """The message of the error with which it ended, expected or not."""
    thread: threading.Thread | None = None

    def step(self) -> bool:
        """Let it go on to its next question; return whether it is alive."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()
        else:
            self.go.release()
        self.stopped.acquire()
        return self.ended is None

    def _run(self) -> None:
        try:
            self.work()
            self.ended = "well"
        except (Crash, *EXPECTED) as error:
            self.ended, self.told = type(error).__name__, str(error)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
            self.ended, self.error, self.told = type(error).__name__, error, str(error)
        finally:
            self.stopped.release()

    def wait(self) -> None:
        """Stop before a question, until it is told to go on."""
        self.stopped.release()
        self.go.acquire()


@dataclass
class Due:
    """The fate of one change: of a kind, or of any, to a key that begins so, after some others."""

    kind: str
    key: str
    fate: Fate
    after: int


class ObjectHistory:
    """A topic, a bucket, and the processes that work on them."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        """Draw all from a seed."""
        self.random, self.counts = Random(seed), counts
        self.store, self.topic = MemoryObjects(), MemoryTopic(PARTITIONS)
        self.live: list[Actor] = []
        self.trace: list[str] = []
        self.chaos, self._calm = 0.0, False
        self._due: Due | None = None
        self._checker = Checker(self.store)
        self.store.asked, self.store.fate = self._asked, self._fate
        self.amend = self.random.random() < 0.8
        for number in range(DAYS):
            for _ in range(self.random.randint(1, 5)):
                self.produce(FIRST + timedelta(days=number))

    def produce(self, stamped: date) -> None:
        """Produce a record that Kafka stamps on a day; its event is often of another, or no event at all."""
        about = stamped + timedelta(days=self.random.choice((0, 0, 0, -1, 1, -2)))
        at = midnight(about, "UTC") + NOON
        value = b'{"id":"o","n":1,"at":%d}' % micros(at) if self.random.random() < 0.9 else b"?"
        stamp = midnight(stamped, "UTC") + NOON
        self.topic.produce(self.random.randrange(PARTITIONS), value, stamp)

    def play(self) -> None:
        """Play all processes, then let what is delayed land, and come to rest."""
        self.chaos = self.random.choice(CHAOS)
        plans = self._plans()
        width = self.random.choice((1, 2, 2, 3))
        while plans or self.live:
            while plans and len(self.live) < width:
                self.start(*plans.pop(0))
            self._go_on(self.live[0] if self.random.random() < 0.2 else self.random.choice(self.live))
            if self.store.flying and self.random.random() < 0.1:
                self._land()
            if self.random.random() < 0.03:
                self.let_pass(HOUR)
            if self.random.random() < 0.03:
                self.produce(FIRST + timedelta(days=self.random.randrange(DAYS)))
        self.come_to_rest()
        self.counts["histories"] += 1

    def let_pass(self, time: timedelta) -> None:
        """Let an hour or more pass: each copy that has begun comes to its end, as none takes so long."""
        for actor in [actor for actor in self.live if actor.at[0] == "copy"]:
            self._go_on(actor, steps=1, calm=True)
        for number in reversed(range(len(self.store.flying))):
            if self.store.flying[number][0].startswith("copy"):
                self._land(number)
        self.store.now += time
        self.trace.append(f"{time} passes")

    def _plans(self) -> list[tuple[str, date]]:
        days = [FIRST + timedelta(days=number) for number in (0, 0, 0, 1, 1, 2)]
        more = [("run", self.random.choice(days)), ("run", self.random.choice(days))]
        more += [("clean", FIRST)] * 3
        more += [("rebuild", self.random.choice(days[:5])), ("rebuild", self.random.choice(days[:5]))]
        plans = [("run", day) for day in days] + self.random.sample(more, self.random.randint(1, len(more)))
        if self.random.random() < 0.7:
            return sorted(plans, key=lambda plan: (plan[1] - FIRST).days + self.random.random() * 1.5)
        self.random.shuffle(plans)
        return plans

    def start(self, kind: str, day: date) -> Actor:
        """Start a process; it waits before it does anything."""
        self.counts[kind] += 1
        name = f"{kind} {day} #{self.counts[kind]}"
        works = {"clean": self._clean, "run": lambda: self._run(day), "rebuild": lambda: self._rebuild(day)}
        work = works[kind]
        self.live.append(Actor(name, work))
        self.trace.append(f"{name} starts")
        return self.live[-1]

    def _pipeline(self) -> Pipeline:
        engine = LocalEngine(self.topic, least_tasks=2)
        late = Late.AMEND if self.amend else Late.SET_ASIDE
        made = pipeline(Path("unused"), self.topic, engine=engine, late=late)
        return replace(made, lake=ObjectLake(self.store, with_lease=False))

    def until(self, kind: str, day: date, question: str, key: str) -> Actor:
        """Start a process, and let it go on until it waits before a question about a key that begins so."""
        actor = self.start(kind, day)
        while actor.step() and not (actor.at[0] == question and actor.at[1].startswith(key)):
            self._checker.check()
        assert actor.ended is None
        return actor

    def to_its_end(self, actor: Actor) -> str:
        """Let a process go on to its end, and return how it ended."""
        while actor.step():
            self._checker.check()
        self._checker.check()
        self.live.remove(actor)
        return f"{actor.ended} {actor.error or ''}".strip()

    def next_fate(self, kind: str, key: str, fate: Fate, after: int = 0) -> None:
        """Let the next change of a kind to a key that begins so have a fate, after so many such changes."""
        self._due = Due(kind, key, fate, after)

    @property
    def is_due(self) -> bool:
        """Whether the change that is to have a fate has not come yet."""
        return self._due is not None

    def _due_fate(self, kind: str, key: str) -> Fate | None:
        due = self._due
        if due is None or due.kind not in ("", kind) or not key.startswith(due.key):
            return None
        due.after -= 1
        if due.after >= 0:
            return None
        self._due = None
        return due.fate

    def tamper(self, key: str, text: bytes | None) -> None:
        """Put an object in the place of another, or remove it; nothing is checked until all is at rest."""
        self._checker.checks = False
        if text is None:
            self.store.delete([key])
        else:
            self.store.put(key, text)

    def _run(self, day: date) -> None:
        outcome = run_day(self._pipeline(), day)
        self.counts["days committed"] += not outcome.already

    def _rebuild(self, day: date) -> None:
        try:
            rebuild_day(self._pipeline(), day)
        except ConfigError:  # it was not committed yet
            return
        self.counts["days rebuilt"] += 1

    def _clean(self) -> None:
        holder = LockHolder(run_id="clean", host="here", pid=1, since=datetime(2027, 1, 1, tzinfo=UTC))
        self.counts["orphans cleaned"] += len(clean(ObjectLake(self.store, with_lease=False), holder))

    def _go_on(self, actor: Actor, steps: int | None = None, *, calm: bool = False) -> None:
        self._calm = calm
        for _ in range(steps or self.random.choice((1, 1, 2, 5, 20))):
            if not actor.step():
                self.live.remove(actor)
                self.trace.append(f"{actor.name} ends: {actor.ended}")
                self.counts[f"ended: {actor.ended}"] += 1
                if actor.error:
                    raise Violation(f"{actor.name}: {actor.error!r}") from actor.error
                break
            self._checker.check()
        self._checker.check()

    def land_all(self) -> None:
        """Let all that is delayed land, without an order of its own."""
        while self.store.flying:
            self._land()

    def come_to_rest(self) -> None:
        """Let what is delayed land, run each day and clean, without faults: then all is where it belongs."""
        self.land_all()
        self.chaos, self._checker.checks = 0.0, True
        for number in range(DAYS):
            self._run(FIRST + timedelta(days=number))
            self._checker.check()
        self._clean()
        self._checker.check()
        self._checker.check_rest(self.topic)

    def _land(self, number: int | None = None) -> None:
        what = self.store.land(self.random.randrange(len(self.store.flying)) if number is None else number)
        self.trace.append(f"landed: {what}")
        self.counts["landed"] += 1
        self._checker.check()

    def _asked(self, kind: str, key: str) -> None:
        if actor := self._asking():
            if actor.dead:
                raise Crash("not alive")
            actor.at = kind, key
            actor.wait()
            self.trace.append(f"{actor.name}: {kind} {key}")

    def _fate(self, kind: str, key: str) -> Fate:
        if due := self._due_fate(kind, key):
            fate = due
        elif self._calm or self.random.random() >= self.chaos:
            return Fate.ANSWERED
        else:
            fate = self.random.choice(WRONG)
        self.counts[f"fate: {fate.name}"] += 1
        self.trace.append(f"   {kind} {key}: {fate.name}")
        if actor := self._asking():
            actor.dead = fate in KILLED
        return fate

    def _asking(self) -> Actor | None:
        """Return the process whose thread this is."""
        return next((actor for actor in self.live if actor.thread is threading.current_thread()), None)


class Checker:
    """What must hold of a bucket at any time."""

    def __init__(self, store: MemoryObjects) -> None:
        """Take the bucket; what is known of an object is known by its contents."""
        self._store = store
        self._manifests: dict[bytes, Manifest] = {}
        self._rows: dict[bytes, list[tuple[int, int]]] = {}
        self._hashes: dict[bytes, str] = {}
        self._seen_at = -1
        self.checks = True

    def check(self) -> None:
        """Check the bucket, unless it is as before, or somebody tampers with it."""
        if self._store.changes == self._seen_at or not self.checks:
            return
        self._seen_at = self._store.changes
        counts, ever = self._truth()
        self._no_row_lost(counts)
        self._no_row_twice()
        self._no_row_uncommitted(ever)
        self._success_is_true(counts)
        self._chain_is_whole(counts)

    def check_rest(self, topic: MemoryTopic) -> None:
        """Check that each file is at its place, no other is there, and each offset has its one verdict."""
        counts, _ = self._truth()
        wanted = {key for manifest in counts.values() for key in _finals(manifest).values()}
        there = {
            key for key in self._store.objects if key.startswith("date=") and "." in key.rsplit("/", 1)[1]
        }
        there = {key for key in there if not key.endswith("_manifest.json")}
        if wanted != there:
            raise Violation(f"at rest: missing {sorted(wanted - there)}, too many {sorted(there - wanted)}")
        if left := self._store.objects_below("_staging/"):
            raise Violation(f"at rest: {left}")
        for day, entries in read_entries(self._store).days.items():
            if entries.counts and self._success_of(day) != entries.counts.key:
                raise Violation(f"at rest: _SUCCESS of {day} names {self._success_of(day)!r}")
        seen = Counter(row for key in wanted for row in self._rows_at(key))
        newest = counts[max(counts)].next
        expected = {
            (part.partition, record.offset)
            for part in newest.partitions
            for record in topic.logs[part.partition].records
            if record.offset < part.seen_until and record.offset not in part.pending and _is_kept(record)
        }
        if set(seen) != expected or max(seen.values(), default=1) > 1:
            raise Violation(f"at rest: {sorted(set(seen) ^ expected)} have no place, or {seen} two")

    def _truth(self) -> tuple[dict[date, Manifest], list[Manifest]]:
        """Return the manifests that count, by day, and all that ever did."""
        counts, ever = {}, []
        for day, entries in read_entries(self._store).days.items():
            for entry in (*entries.before, entries.counts):
                if entry:
                    ever.append(self._manifest(entry.key))
            if entries.counts:
                counts[day] = self._manifest(entries.counts.key)
        return counts, ever

    def _manifest(self, key: str) -> Manifest:
        text = self._store.objects[key][0]
        if text not in self._manifests:
            self._manifests[text] = from_json(text, key)
        return self._manifests[text]

    def _rows_at(self, key: str) -> list[tuple[int, int]]:
        text = self._store.objects[key][0]
        if text not in self._rows:
            self._rows[text] = [row.at for row in file_rows(BytesIO(text))]
        return self._rows[text]

    def _hash(self, text: bytes) -> str:
        if text not in self._hashes:
            self._hashes[text] = hashlib.sha256(text).hexdigest()
        return self._hashes[text]

    def _no_row_lost(self, counts: dict[date, Manifest]) -> None:
        hashes = {key: self._hash(text) for key, (text, _) in self._store.objects.items()}
        staged = {sha256 for key, sha256 in hashes.items() if key.startswith("_staging/")}
        for manifest in counts.values():
            for file, key in _finals(manifest).items():
                if key not in hashes and file.sha256 not in staged:
                    raise Violation(f"lost: {file.path} of {manifest.run_id}, neither staged nor in place")
                if hashes.get(key, file.sha256) != file.sha256:
                    raise Violation(f"another file at {file.path} of {manifest.run_id}")

    def _no_row_twice(self) -> None:
        seen = Counter(row for key in self._day_files() for row in self._rows_at(key))
        if doubled := sorted(row for row, times in seen.items() if times > 1):
            raise Violation(f"doubled for readers of date=*/*.parquet: {doubled}")

    def _no_row_uncommitted(self, ever: list[Manifest]) -> None:
        named = {key for manifest in ever for key in _finals(manifest).values()}
        if alien := sorted(set(self._day_files()) - named):
            raise Violation(f"uncommitted: {alien}")

    def _day_files(self) -> Iterator[str]:
        for key in self._store.objects:
            if key.startswith("date=") and key.endswith(".parquet"):
                yield key

    def _success_is_true(self, counts: dict[date, Manifest]) -> None:
        entries = read_entries(self._store)
        for day, manifest in counts.items():
            counting = entries.of(day).counts
            if counting and counting.key == self._success_of(day):
                finals = _finals(manifest).items()
                if absent := [file.path for file, key in finals if key not in self._store.objects]:
                    raise Violation(f"_SUCCESS of {day} speaks of {absent}, which are not there")

    def _success_of(self, day: date) -> str:
        return self._store.objects.get(f"date={day}/_SUCCESS", (b"",))[0].decode().strip()

    def _chain_is_whole(self, counts: dict[date, Manifest]) -> None:
        days = sorted(counts)
        for before, after in pairwise(days):
            if after != before + timedelta(days=1):
                raise Violation(f"no day between {before} and {after}")
            if not counts[after].consumed.continues(counts[before].next):
                raise Violation(f"{after} does not go on from {before}")


def _finals(manifest: Manifest) -> dict[DataFile, str]:
    """Return the keys at which the files of a manifest end."""
    return {file: file.target or in_day(manifest.day.date, file.path) for file in manifest.files}


def _is_kept(record: Record) -> bool:
    """Return whether a record has a row in some file: all but events before the first day."""
    at = re.search(rb'"at":(\d+)', record.value or b"")
    return at is None or int(at[1]) >= micros(midnight(FIRST, "UTC"))


def play(seed: int, counts: Counter[str]) -> None:
    """Play the history of a seed.

    Raises:
        Violation: a promise was broken; the message has the end of what happened.
    """
    history = ObjectHistory(seed, counts)
    try:
        history.play()
    except Violation as violation:
        happened = "\n".join(history.trace[-60:])
        raise Violation(f"seed {seed}: {violation}\n{happened}") from violation
