"""How many records reach a task at once: small ones are counted, large ones weighed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.daily import run_day
from jobs.spark.engine import Engine
from jobs.stages import LogStages, Stage
from jobs.task.batch_limit import COUNTED, WEIGHED, BatchLimit
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, MakePipeline
from tests.support.judged import assert_exact, midnight, night, sent_records
from tests.support.produce import every, send

ARROW = "spark.sql.execution.arrow"


@pytest.mark.parametrize(
    "count, padding, limit",
    [(3_000, 0, COUNTED), (150, 200_000, WEIGHED)],
    ids=["small records", "large records"],
)
def test_batches_of_small_records_are_counted_and_of_large_ones_weighed(
    count: int,
    padding: int,
    limit: BatchLimit,
    broker: Broker,
    topic: MakeTopic,
    engine: Engine,
    pipeline: MakePipeline,
    lake: Path,
) -> None:
    name = topic()
    records = [
        record._replace(value=(record.value or b"") + b" " * padding)
        for record in every(timedelta(seconds=20), midnight(FIRST), count)
    ]
    words = sent_records(records, send(broker.bootstrap_servers, name, records))
    run_day(pipeline(name), FIRST)
    set_to = engine.session.conf.get
    assert set_to(f"{ARROW}.maxRecordsPerBatch") == str(limit.rows)
    assert set_to(f"{ARROW}.maxBytesPerBatch") == str(limit.bytes or (1 << 31) - 1)
    assert_exact(lake, words, [night(FIRST)])


def test_progress_is_told_in_rows(broker: Broker, topic: MakeTopic, pipeline: MakePipeline) -> None:
    """It was told in tasks: of ten million rows in two tasks, 0 of 2."""
    name, count = topic(), 3_000
    send(broker.bootstrap_servers, name, every(timedelta(seconds=20), midnight(FIRST), count))
    watching = Watching([])
    run_day(replace(pipeline(name), observers=(watching,)), FIRST)
    assert watching.seen[-1] == (count, count)
    assert {total for _, total in watching.seen} == {count}


@dataclass
class Watching(LogStages):
    seen: list[tuple[int, int]]

    def counted(self, stage: Stage, done: int, total: int) -> None:
        if stage is Stage.TASKS:
            self.seen.append((done, total))
