"""Three days over four partitions: every record exactly once, each in its right place."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.daily import run_day
from offsets.errors import ContractChanged
from offsets.plan import Accept
from tests.reference import Coordinate, Fate
from tests.support import lake as lakes
from tests.support.brokers import Broker, wait_for_leaders
from tests.support.engine import FIRST, Command, Configured, MakePipeline
from tests.support.judged import FUTURE, Night, SentRecord, assert_exact, judged, midnight, night
from tests.support.produce import Record, ms, send

SEED = 20240330
DAYS = [FIRST + timedelta(days=step) for step in range(3)]
STEP = timedelta(minutes=7)
KINDS = {
    "in order": 80,
    "late": 4,
    "ahead": 4,
    "long before the first day": 2,
    "too old": 2,
    "too far ahead": 2,
    "broken": 2,
    "tombstone": 2,
    "text for a number": 2,
}


@dataclass(frozen=True)
class History:
    topic: str
    records: dict[Coordinate, Record]
    said: list[SentRecord]


@pytest.fixture(scope="module")
def history(broker: Broker, admin: AdminClient) -> Iterator[History]:
    """Produce from 30 hours before the first day to 30 hours after the last."""
    topic, rng = f"days-{random.randrange(1 << 40):x}", random.Random(SEED)
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    wait_for_leaders(admin, topic, 4)
    made = [
        _record(rng, partition, at)
        for at in _instants(midnight(DAYS[0]) - timedelta(hours=30), midnight(DAYS[-1]) + timedelta(hours=54))
        for partition in range(4)
    ]
    offsets = send(broker.bootstrap_servers, topic, [record for record, _ in made])
    yield History(
        topic,
        {(r.partition, offset): r for (r, _), offset in zip(made, offsets, strict=True)},
        [replace(word, offset=offset) for (_, word), offset in zip(made, offsets, strict=True)],
    )
    admin.delete_topics([topic])[topic].exception(30)


def _instants(from_: datetime, until: datetime) -> Iterator[datetime]:
    while from_ < until:
        yield from_
        from_ += STEP


def _record(rng: random.Random, partition: int, at: datetime) -> tuple[Record, SentRecord]:
    """Make one record, stamped at an instant, and its maker's word on it."""
    [kind] = rng.choices(list(KINDS), list(KINDS.values()))
    hours = timedelta(hours=1) * rng.random()
    happened = {
        "late": at - timedelta(hours=24) - 6 * hours,
        "ahead": at + 23 * hours,
        "long before the first day": at - timedelta(days=4),
        "too old": at - timedelta(days=30, microseconds=1),
        "too far ahead": at + timedelta(days=1, microseconds=1),
    }.get(kind, at - hours / 3)
    n: object = "7" if kind == "text for a number" else rng.randrange(-(2**63), 2**63)
    body = json.dumps({"id": f"é{rng.random()}", "n": n, "at": happened.astimezone(UTC).isoformat()})
    value = {"broken": body[:-3].encode(), "tombstone": None}.get(kind, body.encode())
    record = Record(partition, value, ms(at), rng.choice([None, b"", b"\xff\x00"]), _headers(rng))
    valid = kind in ("in order", "late", "ahead", "long before the first day")
    return record, SentRecord(
        partition=partition, offset=-1, stamp=ms(at), happened=happened if valid else None, name=kind
    )


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((f"h{number}", rng.choice([None, b"", b"\x80x"])) for number in range(rng.randrange(3)))


def test_three_days_hold_every_record_once_in_its_place(
    history: History, configured: Configured, command: Command, lake: Path
) -> None:
    config = configured(history.topic, {"record": {"kafka_columns": ["key", "headers"]}})
    done = command(config, "run", "--from", str(DAYS[0]), "--to", str(DAYS[-1]), "--json")
    assert done.code == 0, done.err
    nights = [night(day) for day in DAYS]
    assert_exact(lake, history.said, nights)
    expected, waiting = judged(history.said, nights)
    assert {place.fate for place in expected.values()} == {Fate.IN_DAY, Fate.AMENDED, Fate.INVALID}
    assert len(waiting) > 10
    _assert_values(lake, history)
    _assert_counted(lake, history, nights)
    _assert_footers(lake, history.topic)
    _assert_duckdb_counts(lake, nights)
    assert [each["rows"]["in_day"] for each in json.loads(done.out)["days"]] == [
        len(lakes.rows(lake, day, "part-2*.parquet")) for day in DAYS
    ]
    assert command(config, "verify").code == 0
    _assert_mended(lake, config, command)
    assert_exact(lake, history.said, nights)
    assert not (lake / "_staging").exists()


def _assert_mended(lake: Path, config: Path, command: Command) -> None:
    """One command mends a day with a damaged late file: it builds the day that brought it again as well."""
    damaged = next(lake.glob(f"date={DAYS[0]}/part-late-*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert command(config, "verify").code == 28
    done = command(config, "run", "--date", str(DAYS[0]), "--force")
    assert done.code == 0, done.err
    assert command(config, "verify").code == 0


def _assert_values(lake: Path, history: History) -> None:
    """Every row holds what its record held, key, headers and invalid bytes included."""
    words = {(each.partition, each.offset): each for each in history.said}
    for day in DAYS:
        for where, row in lakes.rows(lake, day).items():
            record, body = history.records[where], json.loads(history.records[where].value or b"")
            assert row["event_time"] == words[where].happened
            assert ms(row["kafka_timestamp"]) == record.stamp
            assert (row["id"], row["n"], row["kafka_key"]) == (body["id"], body["n"], record.key)
            assert _as_sent(row["kafka_headers"]) == record.headers
        for where, row in lakes.invalid(lake, day).items():
            record = history.records[where]
            assert (row["key"], row["value"], _as_sent(row["headers"])) == (
                record.key,
                record.value,
                record.headers,
            )
            assert row["cause"]


def _as_sent(headers: list[dict[str, object]] | None) -> tuple[tuple[object, object], ...]:
    return tuple((each["key"], each["value"]) for each in headers or [])


def _assert_counted(lake: Path, history: History, nights: list[Night]) -> None:
    """What is dated before the first day is counted, and nothing is a gap."""
    first, over = nights[0], ms(nights[-1].end + timedelta(hours=1))
    before = [
        each
        for each in history.said
        if each.happened and each.happened < first.start and ms(first.start - FUTURE) <= each.stamp < over
    ]
    tallies = [lakes.verdicts(document) for document in lakes.manifests(lake)]
    assert sum(tally.get("before_first", 0) for tally in tallies) == len(before) > 0
    assert all(not lakes.gaps(document) for document in lakes.manifests(lake))


def _assert_footers(lake: Path, topic: str) -> None:
    """A file's own metadata names topic, day, run and offset ranges."""
    for document in lakes.manifests(lake):
        day = document["day"]["date"]
        assert len([file for file in document["files"] if file["verdict"] == "in_day"]) >= 2
        for file in document["files"]:
            place = file["target"] or f"date={day}/{file['path']}"
            found = pq.ParquetFile(lake / place).metadata.metadata
            about = {
                key.decode().removeprefix("kafka_daily."): value.decode()
                for key, value in found.items()
                if key.startswith(b"kafka_daily.")
            }
            ranges = [
                [each["partition"], each["from_offset"], each["until_offset"]] for each in file["offsets"]
            ]
            assert json.loads(about.pop("offsets")) == ranges
            assert about == {
                "topic": topic,
                "day": day,
                "run": document["run_id"],
                "verdict": file["verdict"],
            }


def _assert_duckdb_counts(lake: Path, nights: list[Night]) -> None:
    """A second reader, by the promised glob, finds each day's rows and no event outside its day."""
    found = duckdb.execute(
        "select date, count(*), min(epoch_us(event_time)), max(epoch_us(event_time))"
        f" from read_parquet('{lake}/date=*/*.parquet', hive_partitioning = true) group by 1 order by 1"
    ).fetchall()
    assert [(date.fromisoformat(str(day)), rows) for day, rows, _, _ in found] == [
        (each.day, len(lakes.rows(lake, each.day))) for each in nights
    ]
    for each, (_, _, earliest, latest) in zip(nights, found, strict=True):
        assert ms(each.start) * 1000 <= earliest <= latest < ms(each.end) * 1000


def test_nothing_is_lost_or_doubled_across_changes_of_the_contract(
    history: History, pipeline: MakePipeline, lake: Path
) -> None:
    """Day 2 has another column type, day 3 another zone too; what was pending is judged by the new one."""
    texts = {"record": {"columns": {"id": "string", "n": "json"}}, "tombstones": "skip"}
    utc = texts | {"day": {"zone": "UTC"}}
    run_day(pipeline(history.topic, {"tombstones": "skip"}), DAYS[0])
    with pytest.raises(ContractChanged, match=r'record.columns.n: "bigint" -> "json"'):
        run_day(pipeline(history.topic, texts), DAYS[1])
    run_day(pipeline(history.topic, texts, accept=Accept(contract=True)), DAYS[1])
    with pytest.raises(ContractChanged, match=r"day\.zone"):
        run_day(pipeline(history.topic, utc), DAYS[2])
    run_day(pipeline(history.topic, utc, accept=Accept(contract=True)), DAYS[2])

    said = [_under_texts(history, each) for each in history.said]
    nights = [night(DAYS[0]), night(DAYS[1]), night(DAYS[2], "UTC")]
    assert_exact(lake, said, [nights[0], *(replace(each, number_column=False) for each in nights[1:])])
    accepted = [document["accepted"]["contract"] for document in lakes.manifests(lake)]
    assert [len(each) for each in accepted] == [0, 1, 2], accepted


def _under_texts(history: History, word: SentRecord) -> SentRecord:
    """Say of a record what holds where tombstones are skipped, and texts are good for numbers."""
    if word.name != "text for a number":
        return replace(word, counted=word.name == "tombstone")
    body = json.loads(history.records[word.partition, word.offset].value or b"")
    return replace(word, happened=datetime.fromisoformat(body["at"]), number=False)
