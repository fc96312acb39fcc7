"""Records with stamps that Spark's source overflows on, or tells otherwise than librdkafka."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException

from jobs.daily import run_day
from jobs.day import stretches
from jobs.rebuild import rebuild_day
from jobs.spark.engine import Engine
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import ConfigError, ContractChanged, OffsetsLost
from offsets.kafka import client as clients
from offsets.plan import Accept
from offsets.ranges import Offsets
from tests.reference import Fate
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, MakePipeline
from tests.support.header_keys import send_header_keys
from tests.support.judged import midnight
from tests.support.produce import Record, Transactions, every, order, send
from tests.support.retention import delete_before

NEXT = FIRST + timedelta(days=1)
HOUR = timedelta(hours=1)
NANOSECONDS = 1_711_800_000_000_000_000
SPARK_TAKES = 9_223_372_036_854_775
TAKEN = [-2, -86_400_000, -4_000_000_000_000, -62_100_000_000_000, (1 << 62) // 1000]
BEYOND = [NANOSECONDS, -NANOSECONDS, SPARK_TAKES, SPARK_TAKES + 1, -SPARK_TAKES, (1 << 63) - 1, -(1 << 63)]
HEADERS = (("trace", b"\xff"), ("none", None))


def stamped(partition: int, stamp: int) -> Record:
    return order(midnight(FIRST) + HOUR, partition)._replace(stamp=stamp, key=b"k", headers=HEADERS)


def test_odd_stamps_of_all_kinds_are_settled_once_and_stop_no_day(
    broker: Broker,
    topic: MakeTopic,
    pipeline: MakePipeline,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition for each kind: at its end when the first day runs, and again between good records."""
    found: list[dict[int, Offsets]] = []
    find = stretches.find_stretches

    def noted(*asked: Any) -> dict[int, Offsets]:
        found.append(find(*asked))
        return found[-1]

    monkeypatch.setattr(stretches, "find_stretches", noted)
    odd = [*TAKEN, *BEYOND]
    name = topic(partitions=len(odd))
    config = {"record": {"kafka_columns": ["key", "headers"]}}
    for day in (FIRST, NEXT):
        for part, stamp in enumerate(odd):
            good = every(HOUR, midnight(day), 5, part)
            send(broker.bootstrap_servers, name, [*good, stamped(part, stamp), *good, stamped(part, stamp)])
        run_day(pipeline(name, config), day)
    run_day(pipeline(name, config), NEXT + timedelta(days=1))
    beyond = [part for part, stamp in enumerate(odd) if stamp in BEYOND]
    assert all(set(each) == set(beyond) for each in found[:1]), "Spark takes the others"
    held = lakes.places(lake)
    # a record of the future at the very end is of a later day, until others follow it
    left = {(part, 23) for part, stamp in enumerate(odd) if stamp > 0}
    assert held.keys() == {(part, at) for part in range(len(odd)) for at in range(24)} - left
    assert {at for (_, at), place in held.items() if place.fate is Fate.INVALID} == {5, 11, 17, 23}
    for path in lake.glob("date=*/_invalid/*.rows"):
        table = pq.ParquetFile(path).read()
        for row in table.drop_columns(["kafka_timestamp"]).to_pylist():
            assert row["cause"].startswith("Event time more than")
            assert row["key"] == b"k"
            assert [(each["key"], each["value"]) for each in row["headers"]] == list(HEADERS)
        assert set(table["kafka_timestamp"].cast(pa.int64()).to_pylist()) <= {
            -2_000, -86_400_000_000, 1 << 62, ((1 << 62) // 1000) * 1000, -(1 << 62),
        }  # fmt: skip

    told = pipeline(name, config)
    assert verify(told.lake, None, lambda done, total: None, Level.KAFKA, told.broker).problems == ()
    next(lake.glob(f"date={FIRST}/_invalid/*.rows")).unlink()
    rebuild_day(told, FIRST)
    assert lakes.places(lake) == held


@pytest.mark.parametrize("stamp", [*TAKEN, -((1 << 62) // 1000), *BEYOND])
def test_spark_takes_a_stamp_or_tells_that_it_overflows(engine: Engine, stamp: int) -> None:
    """By that word alone is it known that a search for such stamps is worth while."""
    told = as_spark_tells(engine, stamp)
    if isinstance(told, str):
        assert stamp in BEYOND
        assert stretches.OVERFLOW in told
    else:
        assert told == stamp * 1000 or (stamp < -2_000_000_000_000 and told < -2_000_000_000_000_000)


def as_spark_tells(engine: Engine, stamp: int) -> int | str:
    """Give a stamp in microseconds as Spark's source makes them, or what it throws."""
    jvm = engine.session.sparkContext._jvm
    assert jvm is not None
    convert = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.fromJavaTimestamp
    try:
        return int(convert(jvm.java.sql.Timestamp(stamp)))
    except PySparkException as error:
        return str(error)


def test_what_an_aborted_transaction_holds_in_a_stretch_is_not_delivered(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    good = every(HOUR, midnight(FIRST), 3)
    writer = Transactions(broker.bootstrap_servers, name)
    writer.commit([*good, stamped(0, NANOSECONDS)])  # and a marker, at 4
    writer.abort([*good, stamped(0, NANOSECONDS)])  # and one at 9
    writer.commit([*good, stamped(0, -NANOSECONDS)])
    run_day(pipeline(name), FIRST)
    run_day(pipeline(name), NEXT)
    assert {at for _, at in lakes.places(lake)} == {0, 1, 2, 3, 10, 11, 12, 13}
    assert {at for (_, at), place in lakes.places(lake).items() if place.fate is Fate.INVALID} == {3, 13}


def test_the_advice_for_a_header_key_in_a_stretch_that_is_no_text_works(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """Spark takes such a key and overflows on the stamp; the second client takes the stamp, not the key."""
    name = topic()
    send(broker.bootstrap_servers, name, every(HOUR, midnight(FIRST), 3))
    asked = {"record": {"kafka_columns": ["key", "headers"]}}
    run_day(pipeline(name, asked), FIRST)
    send_header_keys(broker.bootstrap_servers, name, [b"\xff\xfe"], NANOSECONDS)
    send(broker.bootstrap_servers, name, every(HOUR, midnight(NEXT), 3))
    with pytest.raises(ConfigError, match=r"Leave headers out of record.kafka_columns.*--accept-contract"):
        run_day(pipeline(name, asked), NEXT)
    without = {"record": {"kafka_columns": ["key"]}}
    with pytest.raises(ContractChanged):
        run_day(pipeline(name, without), NEXT)
    run_day(pipeline(name, without, accept=Accept(contract=True)), NEXT)
    assert {at for _, at in lakes.places(lake)} == set(range(7))
    assert lakes.places(lake)[0, 3].fate is Fate.INVALID


def test_a_stream_of_records_is_whole_however_few_are_held_at_a_time(
    broker: Broker,
    admin: AdminClient,
    topic: MakeTopic,
    pipeline: MakePipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    records = [stamped(0, NANOSECONDS)._replace(value=b"%d" % n) for n in range(50)]
    send(broker.bootstrap_servers, name, records)
    client = pipeline(name).broker()
    monkeypatch.setattr(clients, "AT_ONCE", 7)
    for from_, until in [(0, 50), (3, 17), (9, 10), (44, 50), (5, 5)]:
        got = list(client.stream(name, 0, from_, until, headers=True))
        assert [int(each.value or b"") for each in got] == [*range(from_, until)]
        assert {(each.timestamp, each.key, each.headers) for each in got} <= {(NANOSECONDS, b"k", HEADERS)}
    assert {each.headers for each in client.stream(name, 0, 0, 5)} == {()}
    delete_before(admin, name, 0, 10)
    with pytest.raises(OffsetsLost):
        list(client.stream(name, 0, 9, 20))
