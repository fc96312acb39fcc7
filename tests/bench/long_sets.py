"""Memory and time of the driver against the number of gaps, or of late runs, in one day.

    python tests/bench/long_sets.py [--ranges 10000000]

Plays the driver's part: reports taken in, audit, commit, and the ledger that reads the day the next night.
Sets, manifest and list file are real; the data files are empty, and said to hold what was delivered. Kafka
Streams' exactly-once, which commits ten times a second, makes 864,000 gaps a day in each partition. Ends
with 1 where 1 GiB or 60 s are passed.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np

from jobs.context import RunStamp
from jobs.day.audit import audit
from jobs.day.commit import commit
from jobs.lake.posix import PosixLake
from jobs.task.classify import Mask
from jobs.task.result import Longs, RangeLog, ReadBack, TaskResult, WrittenFile
from offsets.checkpoint import Anchor, Checkpoint, PartitionCheckpoint, TopicIdentity
from offsets.commit_log import read_manifest
from offsets.contract import Accepted, Contract
from offsets.day_plan import DayPlan, EndFrom, Evidence, Span, StartFrom
from offsets.days import day_in
from offsets.instants import micros
from offsets.manifest import FileOffsets, Tally
from offsets.manifest_text import require_lists
from offsets.ranges import Offsets
from offsets.verdict import Verdict

EACH = 10
"""Records between two gaps, or between two late records."""
BATCH = 20_000
MOST_MIB, MOST_SECONDS = 1024, 60.0
TOPIC = TopicIdentity(name="t", topic_id="t", cluster_id="c")
BEFORE, DAY = day_in("UTC", date(2026, 2, 28)), day_in("UTC", date(2026, 3, 1))
Sets = Mapping[Verdict, Offsets]


def main() -> int:
    """Play each kind in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranges", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=("gaps", "late"))
    given = parser.parse_args()
    if given.kind:
        return play(given.kind, given.ranges)
    again = [sys.executable, __file__, "--ranges", str(given.ranges), "--kind"]
    return max(subprocess.run([*again, kind], check=False).returncode for kind in ("gaps", "late"))


def play(kind: str, ranges: int) -> int:
    """Play one day with so many gaps, or late runs; print seconds and peak memory."""
    until = ranges * (EACH + 1)
    sets = {Verdict.IN_DAY: some(until, lambda offsets: offsets % (EACH + 1) != EACH)}
    if kind == "late":
        sets[Verdict.LATE] = some(until, lambda offsets: offsets % (EACH + 1) == EACH)
    sent = pickle.dumps(report_of(sets, until))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        lists = settle(pickle.loads(sent), sets, until, Path(folder))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = f"report of {len(sent) >> 20} MiB, lists of {lists >> 20} MiB beside the manifest"
    print(f"{ranges:,} {kind}: {seconds:.1f} s, peak {peak:,.0f} MiB; {sizes}", flush=True)
    return int(seconds > MOST_SECONDS or peak > MOST_MIB)


def some(until: int, chosen: Callable[[Longs], Mask]) -> Offsets:
    """Take offsets batch by batch, as a task does."""
    log = RangeLog()
    for from_ in range(0, until, BATCH):
        offsets: Longs = np.arange(from_, min(from_ + BATCH, until))
        log.add(0, offsets[chosen(offsets)])
    return log.ranges()[0]


def settle(report: TaskResult, sets: Sets, until: int, folder: Path) -> int:
    """Audit, commit, and read the day back; return the bytes of its list file."""
    lake = PosixLake(folder / "lake")
    staged = lake.stage(DAY.date, "r")
    files = [file_of(verdict, offsets, lake, staged) for verdict, offsets in sets.items()]
    back = {file.path: back_of(file, sets[file.verdict]) for file in files}
    audited = audit(plan_of(until), report, files, lambda file: back[file.path])
    now = datetime.now(UTC)
    commit(lake, staged, audited, RunStamp(run_id="r", started=now, audited=now, versions={}), amend=False)
    committed = read_manifest(lake, DAY.date)
    assert committed is not None
    require_lists(committed)
    return max((path.stat().st_size for path in lake.root.glob("*/_offsets.roaring")), default=0)


def file_of(verdict: Verdict, offsets: Offsets, lake: PosixLake, staged: str) -> WrittenFile:
    """Describe a file that holds a verdict's rows, and make one of its name."""
    held = FileOffsets(partition=0, rows=len(offsets), from_offset=offsets.first, until_offset=offsets.until)
    day = BEFORE if verdict is Verdict.LATE else DAY
    (lake.root / staged / verdict).touch()
    return WrittenFile(
        path=f"{staged}/{verdict}",
        verdict=verdict,
        day=BEFORE.date if verdict is Verdict.LATE else None,
        rows=len(offsets),
        bytes=1,
        sha256="x",
        offsets=(held,),
        event_time_min=micros(day.start),
        event_time_max=micros(day.start),
    )


def back_of(file: WrittenFile, offsets: Offsets) -> ReadBack:
    """Say what is read back of a file."""
    return ReadBack(
        rows=file.rows,
        bytes=file.bytes,
        sha256=file.sha256,
        offsets={0: offsets},
        event_time_min=file.event_time_min,
        event_time_max=file.event_time_max,
    )


def report_of(sets: Sets, until: int) -> TaskResult:
    """Make the report of one task that was given everything."""
    delivered = Offsets()
    for offsets in sets.values():
        delivered |= offsets
    return TaskResult(
        delivered={0: delivered},
        tally=tuple(
            Tally(
                partition=0, verdict=verdict, rows=len(each), from_offset=each.first, until_offset=each.until
            )
            for verdict, each in sets.items()
        ),
        last={0: Anchor(offset=until - 1, timestamp=1, digest="d")},
    )


def plan_of(until: int) -> DayPlan:
    """Plan to read everything of one partition."""
    part = PartitionCheckpoint(partition=0, seen_until=0, pending=Offsets(), anchor=None)
    span = Span(
        partition=0,
        from_offset=0,
        seen_until=0,
        until_offset=until,
        reads=Offsets.between(0, until),
        evidence=Evidence(start=StartFrom.LOOKUP, start_detail="", end=EndFrom.IDLE, end_detail=""),
    )
    return DayPlan(
        day=DAY,
        topic=TOPIC,
        contract=Contract({}),
        accepted=Accepted(),
        consumed=Checkpoint(topic=TOPIC, partitions=(part,)),
        earlier=(BEFORE,),
        spans=(span,),
        first_offsets=(),
        cleanup_policy="delete",
        headroom_hours=None,
        risks=(),
    )


if __name__ == "__main__":
    sys.exit(main())
