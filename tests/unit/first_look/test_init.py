"""`init`: its config, unchanged, settles a topic's valid records; its types hold for all that it saw."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs import config
from jobs.daily import run_day
from jobs.first_look.init import init
from jobs.lake.posix import PosixLake
from jobs.record.columns import Array, ColumnType, Kind, Map, Scalar, Struct, ddl
from offsets.errors import ConfigError
from offsets.instants import millis
from offsets.verdict import Verdict
from tests.support.kinds_of_topics import (
    DAYS,
    KAFKA,
    KINDS,
    RECORDS,
    SIZES,
    START,
    invalid_in,
    iso,
    produce,
)
from tests.support.local_engine import LocalEngine, days, pipeline
from tests.support.memory_topic import MemoryTopic

NOW = START + timedelta(days=DAYS, hours=3)


def settled(path: Path, topic: MemoryTopic) -> dict[Verdict, int]:
    """Run all days by a written config, unchanged but for a limit of invalid records, and count verdicts."""
    settings = config.load(path, os.environ)
    made = pipeline(path.parent / "unused", topic, now=NOW, engine=LocalEngine(topic, batch_rows=500))
    made = replace(made, settings=settings, lake=PosixLake(settings.lake.folder))
    counts = dict.fromkeys(Verdict, 0)
    for day in days(settings.day.first, START.date() + timedelta(days=DAYS - 1)):
        manifest = run_day(made, day).manifest
        for verdict in Verdict:
            counts[verdict] += manifest.rows(verdict)
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_the_written_config_unchanged_settles_the_valid_records(kind: str, tmp_path: Path) -> None:
    topic = produce(kind)
    path = tmp_path / "orders.yaml"
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    counts = settled(path, topic)
    valid = SIZES.get(kind, RECORDS) - invalid_in(kind)
    rows = counts[Verdict.IN_DAY] + counts[Verdict.LATE]
    assert rows >= 0.999 * valid, (counts, path.read_text())
    assert counts[Verdict.BEFORE_FIRST] == 0
    assert proposed.first == START.date()
    assert proposed.rows == proposed.sampled - proposed.invalid - proposed.skipped
    assert proposed.invalid <= invalid_in(kind)
    assert counts[Verdict.INVALID] <= invalid_in(kind) + 0.001 * valid
    assert "source: kafka" not in path.read_text()
    assert_as_sent(path, topic, rows)


def assert_as_sent(path: Path, topic: MemoryTopic, rows: int) -> None:
    """Each row holds what its record holds, in every column."""
    rules, compared = config.load(path, os.environ).rules, 0
    kept = {column.path[0] for column in rules.columns} | {rules.event_time.path[0]}
    sent = {
        part: {found.offset: found for found in log.visible(0, 1 << 40)} for part, log in topic.logs.items()
    }
    for file in sorted((path.parent / "lake").rglob("date=*/*.parquet")):
        for row in pq.ParquetFile(file).read().to_pylist():
            record = json.loads(sent[row["kafka_partition"]][row["kafka_offset"]].value or b"")
            assert record.keys() <= kept
            for column in rules.columns:
                value = reduce(lambda at, name: (at or {}).get(name), column.path, record)
                assert holds(column.type, row[column.name], value), (column, row[column.name], value)
            compared += 1
    assert compared == rows


def holds(type: ColumnType, cell: Any, value: Any) -> bool:
    """Return whether a cell of a lake is a value of a record, whole and exact."""
    match type:
        case Scalar(Kind.JSON):
            return bool(json.loads(cell or "null") == value)
        case _ if value is None or cell is None:
            return value is cell
        case Scalar(Kind.TIMESTAMP):
            time = datetime.fromisoformat(value)
            return bool(cell == (time if time.tzinfo else time.replace(tzinfo=UTC)))
        case Scalar(Kind.DATE):
            return bool(cell.isoformat() == value)
        case Array(element):
            return len(cell) == len(value) and all(map(partial(holds, element), cell, value))
        case Map(inner):
            return dict(cell).keys() == value.keys() and all(
                holds(inner, each, value[key]) for key, each in cell
            )
        case Struct(fields):
            return all(holds(field.type, cell[field.name], value.get(field.name)) for field in fields)
        case _:
            return bool(cell == value)


def columns(kind: str, folder: Path) -> dict[str, str]:
    init(produce(kind), "orders", KAFKA, folder / f"{kind}.yaml", "UTC")
    rules = config.load(folder / f"{kind}.yaml", os.environ).rules
    return {column.name: ddl(column.type) for column in rules.columns}


def event_time(kind: str, folder: Path) -> tuple[str, str]:
    rule = config.load(folder / f"{kind}.yaml", os.environ).rules.event_time
    return ".".join(rule.path), str(rule.format)


def test_the_columns_are_what_a_person_would_write(tmp_path: Path) -> None:
    orders = columns("orders", tmp_path)
    assert orders["amount"] == "double"
    assert orders["items"] == "array<struct<sku:string,quantity:bigint,price:double>>"
    assert orders["address"] == "struct<city:string,zip:string>"
    assert (orders["paid"], orders["delivery_day"], orders["created_at"]) == ("boolean", "date", "timestamp")
    assert event_time("orders", tmp_path) == ("created_at", "iso8601")
    iot = columns("iot", tmp_path)
    assert iot["device"] == "struct<id:string,firmware:string,location:struct<lat:double,lon:bigint>>"
    assert iot["measured"] == "struct<epoch_ms:bigint,sequence:bigint>"
    assert (iot["samples"], iot["alarms"]) == ("array<array<double>>", "array<json>")
    assert iot["serial"] == "decimal(38,0)"
    assert event_time("iot", tmp_path) == ("measured.epoch_ms", "epoch_ms")
    clicks = columns("clicks", tmp_path)
    assert (clicks["properties"], clicks["counters"]) == ("map<string,json>", "map<string,bigint>")
    assert clicks["context"] == "json"
    assert (clicks["record_date"], clicks["ip"], clicks["IP_2"]) == ("date", "string", "string")
    assert event_time("clicks", tmp_path) == ("eventTime", "iso8601")
    transfers = columns("transfers", tmp_path)
    assert transfers["amount"] == "string"
    assert "decimal(38,2) would hold these as exact numbers" in (tmp_path / "transfers.yaml").read_text()
    assert event_time("transfers", tmp_path) == ("bookedAt", "iso8601")
    debezium = columns("debezium", tmp_path)
    assert debezium["after"] == "struct<id:bigint,name:string,price:double,updated:bigint>"
    assert event_time("debezium", tmp_path) == ("ts_ms", "epoch_ms")
    assert "tombstones: skip" in (tmp_path / "debezium.yaml").read_text()
    assert columns("connect", tmp_path)["payload"].startswith("struct<before:struct<id:bigint,")
    assert event_time("connect", tmp_path) == ("payload.ts_ms", "epoch_ms")
    sensors = columns("sensors", tmp_path)
    assert sensors["sensor"] == "struct<id:string,place:struct<floor:bigint,lat:double>>"
    assert (sensors["ts"], sensors["count"]) == ("bigint", "bigint")
    assert event_time("sensors", tmp_path) == ("ts", "epoch_ms")


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text("mine")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nowhere")
    for there in (path, tmp_path / "link.yaml"):
        with pytest.raises(ConfigError, match="writes over nothing"):
            init(produce("orders", records=50), "orders", KAFKA, there, "UTC")
    assert path.read_text() == "mine"
    with pytest.raises(ConfigError, match="a folder"):
        init(MemoryTopic(), "orders", KAFKA, tmp_path / "none" / "a.yaml", "UTC")


def test_a_topic_from_which_nothing_can_be_proposed_writes_nothing(tmp_path: Path) -> None:
    topic = MemoryTopic()
    with pytest.raises(ConfigError, match="none that can be read"):
        init(topic, "orders", KAFKA, tmp_path / "a.yaml", "UTC")
    topic.produce(0, b"\0\0\0\0\7avro", START)
    with pytest.raises(ConfigError, match="schema registry") as stopped:
        init(topic, "orders", KAFKA, tmp_path / "a.yaml", "UTC")
    assert "record.format: raw" in stopped.value.do
    assert list(tmp_path.iterdir()) == []


def test_replayed_events_get_a_longer_validity_and_their_own_first_day(tmp_path: Path) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(200):
        at = START - timedelta(days=90, minutes=number)
        topic.produce(0, json.dumps({"id": number, "at": iso(at)}).encode(), START)
    proposed = init(topic, "orders", KAFKA, path, "Europe/Amsterdam")
    assert (proposed.rows, proposed.invalid) == (200, 0)
    assert proposed.first == date(2026, 1, 30)
    assert config.load(path, os.environ).rules.past == timedelta(days=182)


def test_a_clock_that_was_never_set_moves_neither_the_first_day_nor_the_validity(tmp_path: Path) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(1000):
        at = "0001-01-01T00:00:00Z" if number == 500 else iso(START)
        topic.produce(0, json.dumps({"at": at}).encode(), START)
    topic.produce(0, b'{"at":"2026-05-01T00:10:00Z"}', 1 << 62)
    topic.produce(0, b'{"at":"2026-05-01T00:10:00Z"}', -1)
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert (proposed.first, proposed.invalid, proposed.rows) == (START.date(), 3, 999)
    assert "validity" not in path.read_text()


def test_records_whose_fields_cannot_be_columns_write_nothing(tmp_path: Path) -> None:
    topic = MemoryTopic()
    topic.produce(0, b'{"":"2026-05-01","a\\"b":1}', START)
    with pytest.raises(ConfigError, match="that can be columns"):
        init(topic, "orders", KAFKA, tmp_path / "a.yaml", "UTC")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_retention_has_begun_to_take_starts_on_a_whole_day(tmp_path: Path) -> None:
    topic = produce("orders")
    topic.retain_from(1, 900)
    proposed = init(topic, "orders", KAFKA, tmp_path / "a.yaml", "UTC")
    assert proposed.first > START.date() + timedelta(days=1)
    assert proposed.before_first > 0


def test_records_of_an_event_time_alone_keep_it_as_a_column(tmp_path: Path) -> None:
    """JSON needs a column."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    topic.produce(0, json.dumps({"event_time": iso(START)}).encode(), START)
    assert init(topic, "orders", KAFKA, path, "UTC").rows == 1
    assert [column.name for column in config.load(path, os.environ).rules.columns] == ["record_event_time"]


def test_records_without_a_time_take_kafkas(tmp_path: Path) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(20):
        topic.produce(0, b'{"n":%d,"b":"%d"}' % (number, number), datetime(2026, 5, 1, 3, tzinfo=UTC))
    assert init(topic, "orders", KAFKA, path, "UTC").rows == 20
    assert config.load(path, os.environ).rules.event_time.path == ()


def test_times_without_a_zone_are_read_in_the_one_that_is_written(tmp_path: Path) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(20):
        value = json.dumps({"when": (START + timedelta(seconds=number)).replace(tzinfo=None).isoformat()})
        topic.produce(0, value.encode(), START)
    assert init(topic, "orders", KAFKA, path, "UTC").rows == 20
    assert "zone: UTC" in path.read_text()


@pytest.mark.parametrize("nested", [False, True])
def test_no_column_says_that_a_time_without_a_zone_is_invalid_where_it_is_the_event_time(
    tmp_path: Path, nested: bool
) -> None:
    """The note at its column said that the record becomes invalid; the event time is read in its zone."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(2000):
        at = START + timedelta(seconds=number)
        text = iso(at) if number != 7 else at.replace(tzinfo=None).isoformat()
        sent = iso(at + timedelta(hours=1)) if number != 7 else "2026-05-01T10:00:00"
        event = {"at": text, "sent": sent}
        topic.produce(0, json.dumps({"meta": event} if nested else event).encode(), at)
    assert init(topic, "orders", KAFKA, path, "UTC").invalid == 1  # the other timestamp needs a zone
    written = path.read_text()
    assert "they are read in this one" in written
    event_time = config.load(path, os.environ).rules.event_time.path[-1]
    where = f"in {'sent' if event_time == 'at' else 'at'}, " if nested else ""
    assert written.count("becomes invalid") == 1
    assert f"# {where}1 of 2,000 is no timestamp: that record becomes invalid" in written


def lacking(every: int, records: int = 2000, behind: timedelta = timedelta()) -> MemoryTopic:
    """Make a topic of which one record in so many has no event time."""
    topic = MemoryTopic()
    for number in range(records):
        at = START + timedelta(seconds=number)
        value = {"n": number} | ({"at": iso(at)} if number % every else {})
        topic.produce(0, json.dumps(value).encode(), at + behind)
    return topic


def test_an_event_time_that_many_records_lack_is_named_and_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    topic = lacking(50, behind=timedelta(days=2))
    assert init(topic, "orders", KAFKA, path, "UTC").rows == 2000
    text = path.read_text()
    assert "source: kafka" in text
    evidence = "1,960 of 2,000 sampled JSON records; the median is 2 days before Kafka's timestamp"
    assert f"# or, in {evidence}, with day.first: {START.date()}:" in text
    lines = [line for line in text.splitlines() if "source: kafka" not in line]
    other = ("  # field:", "  # format:")
    path.write_text("\n".join(line.replace("# ", "", line.startswith(other)) for line in lines))
    assert config.load(path, os.environ).rules.event_time.path == ("at",)


@pytest.mark.parametrize("every", [100, 400])
def test_an_event_time_that_a_few_records_lack_is_chosen_and_days_are_committed(
    every: int, tmp_path: Path
) -> None:
    """Of 3,219 payments 7 had none, and all were filed by their arrival; 1 in 100 stopped each day."""
    topic, path = lacking(every, 20_000), tmp_path / "a.yaml"
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert proposed.hints == ()
    assert 1.5 / every < config.load(path, os.environ).invalid.limit < 3 / every
    assert "0.001 by default; some records have no event time" in path.read_text()
    counts = settled(path, topic)
    assert (counts[Verdict.IN_DAY], counts[Verdict.INVALID]) == (20_000 - 20_000 // every, 20_000 // every)


@pytest.mark.parametrize("field", ["n", "KEY"])
def test_keys_that_are_numbers_and_keys_of_some_records_are_told(field: str, tmp_path: Path) -> None:
    """Without a key on each record nothing was said of keys; a field of that name spoiled the advice."""
    path, topic = tmp_path / "a.yaml", MemoryTopic()
    for number in range(100):
        key = str(number).encode() if number else None
        topic.produce(0, json.dumps({"at": iso(START), field: 1}).encode(), START, key=key)
    init(topic, "orders", KAFKA, path, "UTC")
    text = path.read_text()
    assert "# kafka_columns: [key] # 99 of 100 records have a key" in " ".join(text.split())
    path.write_text(text.replace("  # key: {", "  key: {").replace("  # kafka_columns", "  kafka_columns"))
    rules = config.load(path, os.environ).rules
    assert (sorted(rules.kafka_columns), [ddl(column.type) for column in rules.key.columns]) == (
        ["key"],
        ["bigint"],
    )


def test_keys_with_leading_zeros_are_no_numbers(tmp_path: Path) -> None:
    """A column of numbers was proposed, and each record with such a key became invalid."""
    path, topic = tmp_path / "a.yaml", MemoryTopic()
    topic.produce(0, json.dumps({"at": iso(START)}).encode(), START, key=b"007")
    init(topic, "orders", KAFKA, path, "UTC")
    assert "bigint" not in path.read_text()


def test_an_object_whose_keys_may_be_data_is_told(tmp_path: Path) -> None:
    """Labels of six keys became a struct, and a seventh key would have been left out of each row."""
    path, topic = tmp_path / "a.yaml", MemoryTopic()
    for number in range(300):
        labels = {key: "x" for at, key in enumerate("abcdef") if number >> at & 1}
        topic.produce(0, json.dumps({"at": iso(START), "row": {"labels": labels}}).encode(), START)
    init(topic, "orders", KAFKA, path, "UTC")
    (line,) = [line for line in path.read_text().splitlines() if "struct<" in line]
    assert (
        "in labels, no key is in all of these: if the keys are data, map<string,string> keeps new ones too"
        in line
    )


def test_amounts_in_quotes_are_told_beside_a_few_that_are_none(tmp_path: Path) -> None:
    path, topic = tmp_path / "a.yaml", MemoryTopic()
    for number in range(1000):
        value = {"at": iso(START), "amount": f"{number}.50" if number % 400 else "free"}
        topic.produce(0, json.dumps(value).encode(), START)
    init(topic, "orders", KAFKA, path, "UTC")
    assert "decimal(38,2) would hold these as exact numbers, but 3, whose records" in path.read_text()


def test_a_few_events_that_come_much_later_are_valid(tmp_path: Path) -> None:
    """The age of one event in two hundred did not count, and ten times fewer invalid records stop a day."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(3000):
        at = START + timedelta(days=60, seconds=number) - timedelta(days=0 if number % 250 else 45)
        topic.produce(0, json.dumps({"at": iso(at)}).encode(), START + timedelta(days=60, seconds=number))
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert (proposed.invalid, proposed.before_first, proposed.rows) == (0, 0, proposed.sampled)
    assert config.load(path, os.environ).rules.past == timedelta(days=92)


def with_odd(every: int, odd: dict[str, Any], records: int = 2000) -> MemoryTopic:
    """Make a topic of measurements; one in so many has odd fields."""
    topic = MemoryTopic()
    for number in range(records):
        at = START + timedelta(seconds=number)
        usual = {"ts": millis(at), "sensor": {"id": 7, "when": {"at": iso(at)}}, "seq": number}
        value = usual | (odd if number % every == 1 else {})
        topic.produce(0, json.dumps(value).encode(), at)
    return topic


@pytest.mark.parametrize(
    "odd, column, note",
    [
        ({"ts": "soon"}, "ts", "2 of 2,000 are strings: those records become invalid"),
        ({"seq": "7"}, "seq", "2 of 2,000 are strings: those records become invalid"),
        ({"sensor": "s-1"}, "sensor", "2 of 2,000 are strings: those records become invalid"),
        ({"sensor": {"id": "x"}}, "sensor", "in id, 2 of 2,000 are strings: those records become invalid"),
        (
            {"sensor": {"when": {"at": "soon"}}},
            "sensor",
            "in when, in at, 2 of 2,000 are no timestamps: those",
        ),
        ({"sensor": {"when": [1]}}, "sensor", "in when, 2 of 2,000 are arrays: those records become invalid"),
    ],
)
def test_a_few_values_of_another_type_turn_no_column_into_json_and_are_counted_as_invalid(
    tmp_path: Path, odd: dict[str, Any], column: str, note: str
) -> None:
    """One string in 2,675 made its column json, and the lake's days those of Kafka's timestamps."""
    path = tmp_path / "a.yaml"
    proposed = init(with_odd(1000, odd), "orders", KAFKA, path, "UTC")
    rules = config.load(path, os.environ).rules
    assert {column.name: ddl(column.type) for column in rules.columns} == {
        "ts": "bigint",
        "sensor": "struct<id:bigint,when:struct<at:timestamp>>",
        "seq": "bigint",
    }
    assert (rules.event_time.path, str(rules.event_time.format)) == (("ts",), "epoch_ms")
    assert (proposed.sampled, proposed.invalid, proposed.rows) == (2000, 2, 1998)
    (line,) = [line for line in path.read_text().splitlines() if line.startswith(f"    {column}: ")]
    assert note in line


def test_the_event_time_counts_the_few_records_whose_text_is_no_time(tmp_path: Path) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(1000):
        at = START + timedelta(seconds=number)
        topic.produce(0, json.dumps({"meta": {"at": iso(at) if number % 200 else 7}}).encode(), at)
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert (proposed.invalid, proposed.rows) == (5, 995)
    text = path.read_text()
    assert "field: meta.at # in 995 of 1,000 sampled JSON" in " ".join(text.split())
    assert "; the other 5 become invalid" in text
    assert "zone: UTC     " not in text.split("event_time:")[1]
    (limit,) = proposed.hints
    assert limit.startswith("5 of 1,000 is a larger share than invalid.limit, 0.1%")


def test_the_advice_for_too_many_invalid_records_works(tmp_path: Path) -> None:
    """By default more than one invalid record in a thousand stop a day, and init takes ten as a few."""
    topic, path = with_odd(200, {"seq": "7"}), tmp_path / "a.yaml"
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert proposed.invalid == 10
    assert proposed.hints[0].endswith("set that limit; or give seq the type json, which takes any value")
    path.write_text(path.read_text().replace("seq: bigint", "seq: json"))
    counts = settled(path, topic)
    assert (counts[Verdict.INVALID], counts[Verdict.IN_DAY]) == (0, 2000)


def test_an_odd_type_in_more_than_one_record_of_a_hundred_is_a_kind_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    proposed = init(with_odd(90, {"ts": "soon"}), "orders", KAFKA, path, "UTC")
    types = {each.name: ddl(each.type) for each in config.load(path, os.environ).rules.columns}
    assert (types["ts"], proposed.invalid) == ("json", 0)


def test_many_items_in_few_records_are_a_kind_of_their_own_where_they_spoil_many_records(
    tmp_path: Path,
) -> None:
    """One item in 150 is rare, and one record in three has one."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(600):
        value = {"at": iso(START), "items": [1] * 49 + ["x" if number % 3 == 0 else 1]}
        topic.produce(0, json.dumps(value).encode(), START)
    assert init(topic, "orders", KAFKA, path, "UTC").invalid == 0
    assert "items: array<json>" in path.read_text()


def test_days_by_kafkas_timestamps_are_said_with_the_nearest_field(tmp_path: Path) -> None:
    """A lake was filed by arrival, and the summary said that all was well."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(1000):
        at = START + timedelta(seconds=number)
        topic.produce(0, json.dumps({"ts": millis(at) if number % 40 else "soon"}).encode(), at)
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert proposed.hints == (
        "no event time was found: days are by Kafka's timestamps. Nearest: ts, epoch_ms in 975 of 1,000",
    )
    topic = MemoryTopic()
    topic.produce(0, b'{"n":7}', START)
    proposed = init(topic, "orders", KAFKA, tmp_path / "b.yaml", "UTC")
    assert proposed.hints == ("no event time was found: days are by Kafka's timestamps",)


def test_one_record_in_seconds_gets_no_advice_for_all(tmp_path: Path) -> None:
    """`init` proposed epoch_ms for 2,674 of 2,675 records, and then advised epoch_s."""
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    topic.produce(0, b'{"ts":%d}' % (millis(START) // 1000), START)
    for number in range(999):
        topic.produce(0, b'{"ts":%d}' % millis(START + timedelta(seconds=number)), START)
    proposed = init(topic, "orders", KAFKA, path, "UTC")
    assert "format: epoch_ms" in path.read_text()
    assert (proposed.invalid, proposed.hints) == (1, ())


def test_a_lake_lies_beside_the_folder_of_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake was below conf/, and every page reads lake/orders."""
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    topic = produce("orders", records=50)
    for path in (Path("conf/a.yaml"), Path("b.yaml")):
        proposed = init(topic, "orders", KAFKA, path, "UTC")
        assert proposed.lake == "lake/orders"
        assert config.load(path, os.environ).lake.folder.resolve() == tmp_path / "lake" / "orders"
    monkeypatch.chdir(tmp_path / "conf")
    assert init(topic, "orders", KAFKA, Path("c.yaml"), "UTC").lake == str(tmp_path / "lake" / "orders")


@pytest.mark.parametrize(
    "written, format",
    [
        ("%Y-%m-%dT%H:%M:%S+0000", "iso8601_lenient"),
        ("%Y-%m-%dT%H:%MZ", "iso8601_lenient"),
        ("%Y-%m-%d %H:%M:%S,25", "iso8601_lenient"),
        ("%Y-%m-%d %H:%M:%S.25", "iso8601"),
        ("%Y-%m-%d", None),
    ],
)
def test_times_are_read_as_iso8601_in_any_form_and_bare_dates_are_no_times(
    tmp_path: Path, written: str, format: str | None
) -> None:
    topic, path = MemoryTopic(), tmp_path / "a.yaml"
    for number in range(100):
        at = START + timedelta(minutes=number)
        topic.produce(0, json.dumps({"when.it": {"was": at.strftime(written)}}).encode(), at)
    assert init(topic, "orders", KAFKA, path, "UTC").rows == 100
    rule = config.load(path, os.environ).rules.event_time
    expected = (("when.it", "was"), format) if format else ((), "iso8601")
    assert (rule.path, str(rule.format)) == expected


SECURED = """
topic: another
unknown: key
kafka:
  bootstrap_servers: [kafka-1:9093, "kafka-2:9093"]
  timeout: 40s
  security: {protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: "it's #me", password: "${env:SECRET}"}
"""


def test_a_cluster_with_a_login_is_taken_from_a_config_and_its_password_stays_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, path = tmp_path / "cluster.yaml", tmp_path / "orders.yaml"
    base.write_text(SECURED)
    monkeypatch.setenv("SECRET", "hunter2")
    kafka = config.load_kafka(base, tmp_path, os.environ)
    init(produce("orders", records=50), "orders", kafka.written, path, "UTC")
    text = path.read_text()
    assert "password: '${env:SECRET}'" in text
    assert "hunter2" not in text + repr(kafka)
    assert "another" not in text
    made = config.load(path, os.environ).kafka
    assert (made, made.client, made.spark) == (kafka.settings, kafka.settings.client, kafka.settings.spark)
    assert made.timeout == timedelta(seconds=40)


@pytest.mark.parametrize("password", ["hunter2", "${env:SECRET}hunter2", "$${env:SECRET}hunter2"])
def test_a_password_that_stands_in_a_config_is_neither_copied_nor_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    base = tmp_path / "cluster.yaml"
    base.write_text(SECURED.replace("${env:SECRET}", password))
    with pytest.raises(ConfigError, match=r"kafka\.security\.password: expected a reference") as stopped:
        config.load_kafka(base, tmp_path, os.environ)
    assert "hunter2" not in str(stopped.value) + repr(stopped.value)


def test_the_paths_of_a_copied_section_are_those_that_the_written_config_has(
    tmp_path: Path,
) -> None:
    """A copy in another folder would name files that are not there."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "password").write_text("hunter2\n")
    base = tmp_path / "cluster.yaml"
    base.write_text(SECURED.replace("${env:SECRET}", "${file:password}"))
    assert config.load_kafka(base, tmp_path, {}).settings.client
    with pytest.raises(ConfigError, match="cannot read the file") as stopped:
        config.load_kafka(base, tmp_path / "elsewhere", {})
    assert "paths count from" in stopped.value.do


@pytest.mark.parametrize("text", ["", "topic: a\n", "kafka: 7\n", "- kafka\n"])
def test_a_config_without_a_kafka_section_is_refused(tmp_path: Path, text: str) -> None:
    base = tmp_path / "cluster.yaml"
    base.write_text(text)
    with pytest.raises(ConfigError, match="kafka"):
        config.load_kafka(base, tmp_path, {})
