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
from tests.support.engine import FIRST, Child, Configured, MakePipeline
from tests.support.judged import assert_exact, midnight, night, sent_records
from tests.support.produce import every, order, send

ARROW = "spark.sql.execution.arrow"
NARROW = "-XX:TieredStopAtLevel=1 -Darrow.vector.max_allocation_bytes=16777216"
"""Arrow's own limit, of 16 MiB for 2 GiB: the same error for a 128th of the bytes."""


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


def test_a_stretch_of_large_records_does_not_stop_a_day_whose_sample_is_small(
    broker: Broker, topic: MakeTopic, configured: Configured, child: Child, lake: Path, tmp_path: Path
) -> None:
    """Batches were only counted, each rerun failed alike, and no run settled the day."""
    name, start = topic(), midnight(FIRST)
    small = every(timedelta(seconds=1), start, 60)
    hour, step = start + timedelta(hours=1), timedelta(seconds=1)
    large = [order(hour + step * at, n=at, padding="x" * 60_000) for at in range(COUNTED.rows)]
    gzip = {"compression.type": "gzip"}
    words = sent_records(records := [*small, *large], send(broker.bootstrap_servers, name, records, gzip))
    config = configured(name, {"spark": {"spark.driver.extraJavaOptions": NARROW}})
    child(config).run("run", "--date", str(FIRST))
    assert_exact(lake, words, [night(FIRST)])
    assert "run once more with batches bounded in bytes" in (tmp_path / "logs" / "01-run.log").read_text()


def test_progress_is_told_in_rows(broker: Broker, topic: MakeTopic, pipeline: MakePipeline) -> None:
    """It was told in tasks: of ten million rows in two tasks, 0 of 2."""
    name, count = topic(), 3_000
    send(broker.bootstrap_servers, name, every(timedelta(seconds=20), midnight(FIRST), count))
    watching = Watching([])
    run_day(replace(pipeline(name), observers=(watching,)), FIRST)
    assert watching.seen[-1] == (count, count)
    assert {total for _, total in watching.seen} == {count}


def test_progress_is_told_while_the_only_task_runs(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline
) -> None:
    """Spark tells of a task once it has ended: of a day in one task, 0 rows until the end."""
    name, count = topic(partitions=1), 400_000
    send(broker.bootstrap_servers, name, every(timedelta(seconds=0.2), midnight(FIRST), count))
    watching = Watching([])
    run_day(replace(pipeline(name), observers=(watching,)), FIRST)
    told = [done for done, _ in watching.seen]
    assert told == sorted(told)
    assert any(0 < done < count for done in told)


@dataclass
class Watching(LogStages):
    seen: list[tuple[int, int]]

    def counted(self, stage: Stage, done: int, total: int) -> None:
        if stage is Stage.TASKS:
            self.seen.append((done, total))
