"""What verify takes grows with the partitions, not with their square."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.verify.manifests import sum_problems, uncounted
from jobs.verify.records import explain
from offsets.manifest import Manifest
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.passes import Passes
from tests.support.three_days import FIRST, at


@pytest.mark.parametrize(
    "check",
    [
        lambda manifest: list(sum_problems(manifest)),
        lambda manifest: list(uncounted(manifest)),
        lambda manifest: explain(manifest, {}, {}),
    ],
    ids=["sums", "uncounted", "classes"],
)
def test_a_manifest_is_not_gone_through_for_each_partition(
    check: Callable[[Manifest], object], tmp_path: Path
) -> None:
    """The sums of one day of 3,000 partitions took 9 seconds."""
    assert passes(check, tmp_path / "few", 2) == passes(check, tmp_path / "many", 12) > 0


def passes(check: Callable[[Manifest], object], lake: Path, partitions: int) -> int:
    """Count how often a check goes through a part of the manifest of a day with so many partitions."""
    topic = MemoryTopic(partitions)
    for partition in range(partitions):
        topic.produce(partition, order(at(FIRST, 1)), at(FIRST, 1))
    manifest = run_day(pipeline(lake, topic), FIRST).manifest
    counting = replace(
        manifest,
        tally=Passes(manifest.tally),
        gaps=Passes(manifest.gaps),
        consumed=replace(manifest.consumed, partitions=Passes(manifest.consumed.partitions)),
        next=replace(manifest.next, partitions=Passes(manifest.next.partitions)),
    )
    Passes.made = 0
    check(counting)
    return Passes.made
