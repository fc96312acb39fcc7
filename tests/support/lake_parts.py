"""Lakes of three days, and their parts: files and manifests."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from offsets.checkpoint import LostOffsets
from offsets.commit_log import read_manifest
from offsets.manifest import Manifest
from offsets.plan import Accept
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, three_days


def manifest_of(lake: Path, day: date) -> Manifest:
    manifest = read_manifest(PosixLake(lake), day)
    assert manifest is not None
    return manifest


def part(lake: Path, day: date = SECOND) -> Path:
    return min((lake / f"date={day}").glob("part-*.parquet"))


def a_lossy_lake(lake: Path) -> MemoryTopic:
    """Settle two days, the second of which found its first offsets gone."""
    topic = MemoryTopic(2)
    three_days(topic)
    run_day(pipeline(lake, topic), FIRST)
    start = manifest_of(lake, FIRST).next.partitions[1].next_from_offset
    topic.retain_from(1, start + 2)
    lost = LostOffsets(partition=1, from_offset=start, until_offset=start + 2)
    run_day(pipeline(lake, topic, accept=Accept(loss=(lost,))), SECOND)
    return topic
