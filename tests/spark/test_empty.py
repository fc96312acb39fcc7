"""A day without records is a day: committed with a manifest and a file without rows, and without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from jobs.context import Engine
from jobs.daily import run_day
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Command, Configured, MakePipeline
from tests.support.judged import assert_exact, midnight, night, sent_records
from tests.support.produce import every, send

NEXT = FIRST + timedelta(days=1)


def no_engine() -> Engine:
    raise AssertionError("an empty day needs no Spark")


def test_a_topic_without_records_gives_empty_days(
    topic: MakeTopic, pipeline: MakePipeline, configured: Configured, command: Command, lake: Path
) -> None:
    name = topic(partitions=3)
    for day in (FIRST, NEXT):
        run_day(replace(pipeline(name), engine=no_engine), day)
        document = lakes.manifest(lake, day)
        (file,) = document["files"]
        assert {path.name for path in (lake / f"date={day}").iterdir()} == {"_manifest.json", file["path"]}
        assert (file["rows"], document["tally"]) == (0, [])
    found = command(configured(name), "status", "--json")
    assert found.out.count('"state": "empty"') == 2


def test_an_empty_day_between_full_ones_loses_nothing(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    step = timedelta(minutes=10)
    last = NEXT + timedelta(days=1)
    words: list[Any] = []
    words += sent_records(
        records := every(step, midnight(FIRST), 30), send(broker.bootstrap_servers, name, records)
    )
    run_day(pipeline(name), FIRST)
    run_day(replace(pipeline(name), engine=no_engine), NEXT)
    words += sent_records(
        records := every(step, midnight(last), 30), send(broker.bootstrap_servers, name, records)
    )
    run_day(pipeline(name), last)
    assert_exact(lake, words, [night(FIRST), night(NEXT), night(last)])
    anchors = [document["next"]["partitions"][0]["anchor"]["offset"] for document in lakes.manifests(lake)]
    assert anchors == [29, 29, 59]
