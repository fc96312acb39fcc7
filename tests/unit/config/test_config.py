"""The promises of the configuration: nothing wrong is taken, all of it is said at once, no secret is seen."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import confluent_kafka
import pytest
import yaml

from jobs.config import Late, Settings, load
from jobs.config.bucket import BucketSettings
from jobs.config.problems import Problems
from jobs.config.read import all_keys, read
from jobs.config.schema import ConfigFile, Mechanism
from jobs.config.secrets import Secret
from jobs.config.security import jaas
from jobs.config.spark_keys import FIXED, is_local, why_fixed
from jobs.config.strict_yaml import parse
from jobs.record.columns import Column, Decimal, parse_type
from jobs.record.rules import RecordFormat, Tombstones
from jobs.record.time_format import TimeFormat, TimePattern, Written
from offsets.contract import Contract
from offsets.errors import ConfigError
from tests.support.config_text import SMALLEST

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "conf" / "example.yaml"
HUNTER = "hunter2-Zq9"


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def pem_key(kind: str = "", body: bytes = b"key") -> str:
    text = base64.b64encode(body).decode()
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{text}\n-----END {kind}PRIVATE KEY-----\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "orders.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def changed(**sections: str) -> str:
    """Give the smallest configuration with whole sections replaced or added; an empty text removes one."""
    parts = re.split(r"^(?=\w)", SMALLEST, flags=re.MULTILINE)
    kept = {part.split(":")[0]: part for part in parts if part}
    kept |= {
        name: text if not text or text.endswith("\n") else text + "\n" for name, text in sections.items()
    }
    return "".join(kept.values())


def refusal(folder: Path, text: str, environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ or {})
    return caught.value


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    listed = refusal(folder, text, environ).facts["problems"]
    assert isinstance(listed, list)
    return {str(entry["path"]): str(entry["problem"]) for entry in listed}


def settings(folder: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    return load(write(folder, text), environ or {})


# What is taken


def test_the_example_loads_as_it_is_and_means_what_it_says() -> None:
    found = load(EXAMPLE, {})
    assert (found.topic, found.day.zone, found.day.first) == ("orders", "Europe/Amsterdam", date(2026, 11, 1))
    assert (found.day.grace, found.day.headroom) == (timedelta(hours=1), timedelta(hours=24))
    assert found.kafka.bootstrap_servers == "localhost:9092"
    assert found.kafka.client == {"bootstrap.servers": "localhost:9092", "security.protocol": "PLAINTEXT"}
    assert {column.name: column.type for column in found.rules.columns}["amount"] == Decimal(10, 2)
    assert found.rules.kafka_columns == {"key", "headers"}
    assert (found.lake.path, found.lake.target_file_size) == (EXAMPLE.parent / "lake/orders", 256 * 2**20)
    assert (found.invalid.limit, found.late, found.spark) == (
        0.001,
        Late.AMEND,
        {"spark.master": "local[*]"},
    )


def test_the_example_holds_every_key_of_the_schema() -> None:
    key = re.compile(r"^(\s*)# (?=[a-z_]+: \S+$)", re.MULTILINE)
    tree = parse(key.sub(r"\1", EXAMPLE.read_text()), Problems())
    held = set(dotted_keys(tree))
    assert [name for name in all_keys(ConfigFile) if name not in held] == []


def test_the_keys_that_the_example_comments_out_can_all_be_read() -> None:
    key = re.compile(r"^(\s*)# (?=[a-z_]+: \S+$)", re.MULTILINE)
    found = Problems()
    read(ConfigFile, parse(key.sub(r"\1", EXAMPLE.read_text()), found), found)
    assert list(found) == []


def dotted_keys(tree: object, prefix: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return []
    return [
        dotted
        for name, inner in tree.items()
        for dotted in (f"{prefix}{name}", *dotted_keys(inner, f"{prefix}{name}."))
    ]


def test_a_bucket_is_reached_by_the_keys_of_its_store_and_no_secret_is_shown(tmp_path: Path) -> None:
    store = "endpoint: 'http://h:1', allow_http: true, ca: ca.pem, timeout: 9s, access_key_id: me, "
    store += "secret_access_key: hush, session_token: '${env:TOKEN}', encryption: AES256"
    lake = f"lake: {{path: 's3://b/l/', store: {{{store}}}}}"
    text = re.sub(r"lake:\n  path: .*", lake, SMALLEST)
    (tmp_path / "c.yaml").write_text(text)
    path = load(tmp_path / "c.yaml", {"TOKEN": "still"}).lake.path
    assert isinstance(path, BucketSettings)
    assert (path.url, path.allow_http, path.ca) == ("s3://b/l", True, tmp_path / "ca.pem")
    assert path.timeout == timedelta(seconds=9)
    shown = {
        name: getattr(value, "reveal", lambda value=value: value)() for name, value in path.options.items()
    }
    assert shown == {
        "endpoint": "http://h:1",
        "access_key_id": "me",
        "secret_access_key": "hush",
        "session_token": "still",
        "server_side_encryption": "AES256",
    }
    assert "hush" not in f"{path!r} {path.options!r}"
    assert "still" not in f"{path!r} {path.options!r}"


def test_what_is_left_out_has_the_documented_default(tmp_path: Path) -> None:
    found = settings(tmp_path, SMALLEST)
    assert (found.day.grace, found.day.headroom) == (timedelta(hours=1), timedelta(hours=24))
    assert (found.rules.past, found.rules.future) == (timedelta(days=30), timedelta(days=1))
    assert (found.lake.target_file_size, found.lake.min_file_size) == (256 * 2**20, 32 * 2**20)
    assert (found.lake.compression, found.lake.shared, found.lake.success_file) == ("zstd", False, False)
    assert found.lake.keep is None
    assert (found.invalid.limit, found.invalid.floor) == (0.001, 100)
    assert found.rules.event_time.format is TimeFormat.ISO8601
    assert (found.rules.tombstones, found.rules.kafka_columns) == (Tombstones.QUARANTINE, frozenset())
    assert (found.kafka.timeout, found.spark) == (timedelta(seconds=30), {})


def test_raw_records_need_no_section_of_their_own_but_the_format(tmp_path: Path) -> None:
    found = settings(tmp_path, changed(event_time="", record="record:\n  format: raw"))
    assert found.rules.format is RecordFormat.RAW
    assert found.rules.event_time.path == ()
    assert found.rules.kafka_columns == {"key", "headers"}


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90s", 90),
        ("15m", 900),
        ("1h", 3600),
        ("30d", 2_592_000),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("PT1H", 3600),
        ("P1DT2H", 93_600),
        ("0s", 0),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2w", 1_209_600),
    ],
)
def test_a_duration_is_read_as_written(tmp_path: Path, text: str, seconds: float) -> None:
    day = f"day:\n  zone: UTC\n  first: 2026-11-01\n  grace: {text}"
    assert settings(tmp_path, changed(day=day)).day.grace == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text, size",
    [("64MiB", 2**26), ("100MB", 10**8), ("1.5GiB", 3 * 2**29), ("1048576", 2**20), ("1024 kib", 2**20)],
)
def test_a_size_is_read_as_written(tmp_path: Path, text: str, size: int) -> None:
    lake = f"lake:\n  path: lake\n  target_file_size: {text}\n  min_file_size: 1KiB"
    assert settings(tmp_path, changed(lake=lake)).lake.target_file_size == size


@pytest.mark.parametrize(
    "sizes, target, minimum",
    [
        ("target_file_size: 8MiB", 8 * 2**20, 2**20),
        ("target_file_size: 1GiB", 2**30, 32 * 2**20),
        ("min_file_size: 300MiB", 2400 * 2**20, 300 * 2**20),
        ("min_file_size: 1MiB", 256 * 2**20, 2**20),
        ("target_file_size: 8MiB\n  min_file_size: 8MiB", 8 * 2**20, 8 * 2**20),
    ],
)
def test_a_size_of_files_that_nobody_wrote_follows_the_one_that_somebody_wrote(
    tmp_path: Path, sizes: str, target: int, minimum: int
) -> None:
    found = settings(tmp_path, changed(lake=f"lake:\n  path: l\n  {sizes}")).lake
    assert (found.target_file_size, found.min_file_size) == (target, minimum)


@pytest.mark.parametrize(
    "text, share", [("0.1%", 0.001), ("0.001", 0.001), ("100%", 1), ("0", 0), ("5 %", 0.05)]
)
def test_a_share_is_read_as_written(tmp_path: Path, text: str, share: float) -> None:
    assert settings(tmp_path, changed(invalid=f"invalid:\n  limit: {text}")).invalid.limit == pytest.approx(
        share
    )


@pytest.mark.parametrize(
    "section, floor",
    [("limit: 0%", 0), ("limit: 0%\n  floor: 7", 7), ("limit: 0.01%", 100), ("floor: 0", 0)],
)
def test_a_limit_of_nothing_lets_nothing_pass(tmp_path: Path, section: str, floor: int) -> None:
    """With `invalid.limit: 0%` a hundred invalid records passed, by a floor that nobody wrote."""
    found = load(write(tmp_path, SMALLEST + f"\ninvalid:\n  {section}\n"), {})
    assert found.invalid.floor == floor


@pytest.mark.parametrize("text, floor", [("0", 0), ("2500", 2500), ("007", 7)])
def test_a_number_of_records_is_read_as_written(tmp_path: Path, text: str, floor: int) -> None:
    assert settings(tmp_path, changed(invalid=f"invalid:\n  floor: {text}")).invalid.floor == floor


@pytest.mark.parametrize("text", ["a:1,b:2", "[a:1, b:2]", '"a:1 , b:2"', "['a:1', 'b:2']"])
def test_servers_are_one_text_or_a_list(tmp_path: Path, text: str) -> None:
    found = settings(tmp_path, changed(kafka=f"kafka:\n  bootstrap_servers: {text}"))
    assert (found.kafka.bootstrap_servers, found.kafka.spark["kafka.bootstrap.servers"]) == (
        "a:1,b:2",
        "a:1,b:2",
    )


def test_no_scalar_is_turned_into_something_else(tmp_path: Path) -> None:
    spark = "spark:\n  spark.a: on\n  spark.b: 0010\n  spark.c: 1.10\n  spark.d: true\n  spark.e: 1:30"
    found = settings(tmp_path, changed(spark=spark, topic="topic: 2026-11-01"))
    assert found.spark == {
        "spark.a": "on",
        "spark.b": "0010",
        "spark.c": "1.10",
        "spark.d": "true",
        "spark.e": "1:30",
    }
    assert found.topic == "2026-11-01"


def test_paths_count_from_the_config_file_wherever_the_job_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", SMALLEST)
    monkeypatch.chdir(tmp_path)
    found = load(Path("conf/orders.yaml"), {})
    assert (found.path, found.lake.path) == (Path("conf/orders.yaml"), Path("conf/lake/orders"))
    found = load(tmp_path / "conf/orders.yaml", {})
    assert (found.path, found.lake.path) == (tmp_path / "conf/orders.yaml", tmp_path / "conf/lake/orders")


def test_the_environment_names_the_file_where_the_command_does_not(tmp_path: Path) -> None:
    file = write(tmp_path, SMALLEST)
    assert load(None, {"KAFKA_DAILY_CONFIG": str(file)}).topic == "orders"
    with pytest.raises(ConfigError, match=r"no such file. Copy conf/example\.yaml"):
        load(tmp_path / "none.yaml", {"KAFKA_DAILY_CONFIG": str(file)})


def test_a_config_that_nobody_named_says_how_to_make_one() -> None:
    with pytest.raises(
        ConfigError, match=r"--config or KAFKA_DAILY_CONFIG; found neither. Copy conf/example\.yaml"
    ):
        load(None, {})


def test_a_column_is_read_from_where_its_mapping_says(tmp_path: Path) -> None:
    record = """\
record:
  columns:
    id: bigint
    order_date: {from: date, type: date}
    city:
      from: address.city
      type: string
    total: {from: [payload, "total.eur"], type: "decimal(10,2)"}
    same: {from: same, type: array<string>}
    seen: {type: timestamp, format: epoch_ms}
    local: {type: "array<struct<at:timestamp>>", format: iso8601, zone: Asia/Tokyo}
    strict: {type: timestamp, format: iso8601}
    at: {type: timestamp, format: rfc3339}
    day: {type: date, format: rfc3339}
    local_day: {type: date, format: dd/MM/yyyy}
    told: {type: timestamp, format: dd/MM/yyyy HH:mm, zone: Asia/Tokyo}
"""
    assert settings(tmp_path, changed(record=record)).rules.columns == (
        Column("id", parse_type("bigint")),
        Column("order_date", parse_type("date"), ("date",)),
        Column("city", parse_type("string"), ("address", "city")),
        Column("total", Decimal(10, 2), ("payload", "total.eur")),
        Column("same", parse_type("array<string>")),
        Column("seen", parse_type("timestamp"), written=Written(TimeFormat.EPOCH_MS)),
        Column(
            "local",
            parse_type("array<struct<at:timestamp>>"),
            written=Written(TimeFormat.ISO8601, "Asia/Tokyo"),
        ),
        Column("strict", parse_type("timestamp")),
        Column("at", parse_type("timestamp")),
        Column("day", parse_type("date"), written=Written(TimeFormat.ISO8601)),
        Column("local_day", parse_type("date"), written=Written(TimePattern("dd/MM/yyyy"))),
        Column(
            "told",
            parse_type("timestamp"),
            written=Written(TimePattern("dd/MM/yyyy HH:mm"), "Asia/Tokyo"),
        ),
    )


def test_the_event_time_may_lie_below_a_name_with_a_dot(tmp_path: Path) -> None:
    event_time = 'event_time:\n  field: ["meta.data", at]'
    assert settings(tmp_path, changed(event_time=event_time)).rules.event_time.path == ("meta.data", "at")


def test_the_config_of_a_lake_from_before_makes_the_same_contract(tmp_path: Path) -> None:
    """Written with all that could be written then."""
    old = json.loads((ROOT / "tests" / "data" / "manifest-of-the-demo.json").read_bytes())["contract"]
    sections: dict[str, object] = {
        "topic": "orders",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "day": old["day"],
        "event_time": {key: old["event_time"][key] for key in ("field", "format", "zone")},
        "record": old["record"],
        "tombstones": old["tombstones"],
        "lake": {"path": "lake"},
    }
    found = settings(tmp_path, yaml.safe_dump(sections, sort_keys=False))
    assert found.rules.contract(found.day.zone, found.day.first) == Contract(old)


# What is refused

DAY = "day:\n  zone: UTC\n  first: 2026-11-01\n"
RECORD = "record:\n  columns:\n"

REFUSED = [
    ({"topic": ""}, "topic", "is missing"),
    ({"topic": "topic: or ders"}, "topic", "1 to 249"),
    ({"topic": "topic: .."}, "topic", "1 to 249"),
    ({"topic": f"topic: {'x' * 250}"}, "topic", "1 to 249"),
    ({"topic": "topic: [a]"}, "topic", "found a list"),
    ({"topic": "topic:"}, "topic", "found nothing"),
    ({"topci": "topci: x"}, "topci", "did you mean topic?"),
    ({"grace": "grace: 1h"}, "grace", "did you mean day.grace?"),
    ({"kafka": "kafka: localhost:9092"}, "kafka", "expected a mapping of bootstrap_servers"),
    ({"kafka": "kafka:\n  timeout: 5s"}, "kafka.bootstrap_servers", "is missing"),
    ({"kafka": "kafka:\n  bootstrap_servers: localhost"}, "kafka.bootstrap_servers", "need a port"),
    ({"kafka": "kafka:\n  bootstrap_servers: [a:1, b:0]"}, "kafka.bootstrap_servers", "number 2"),
    ({"kafka": "kafka:\n  bootstrap_servers: SSL://a:1"}, "kafka.bootstrap_servers", "no protocol"),
    ({"kafka": "kafka:\n  bootstrap_servers: []"}, "kafka.bootstrap_servers", "found a list"),
    ({"kafka": "kafka:\n  bootstrap_servers: a:1\n  client: {a: b}"}, "kafka.client", "unknown key"),
    ({"kafka": "kafka:\n  bootstrap_servers: a:1\n  timeout: 20ms"}, "kafka.timeout", "at least 1s"),
    ({"kafka": "kafka:\n  bootstrap_servers: a:1\n  timeout: 999ms"}, "kafka.timeout", "at least 1s"),
    ({"day": "day:\n  zone: Europe/Amsterdm\n  first: 2026-11-01"}, "day.zone", "mean Europe/Amsterdam?"),
    ({"day": "day:\n  zone: amsterdam\n  first: 2026-11-01"}, "day.zone", "mean Europe/Amsterdam?"),
    ({"day": "day:\n  zone: localtime\n  first: 2026-11-01"}, "day.zone", "differs between machines"),
    ({"day": "day:\n  zone: ../etc\n  first: 2026-11-01"}, "day.zone", "expected a zone"),
    ({"day": "day:\n  zone: UTC\n  first: 2026-02-30"}, "day.first", "no such day"),
    ({"day": "day:\n  zone: UTC\n  first: 1-11-2026"}, "day.first", "expected a date such as 2026-11-01"),
    ({"day": "day:\n  zone: UTC\n  first: 1969-12-31"}, "day.first", "begin in 1970"),
    ({"day": DAY + "  grace: 1 fortnight"}, "day.grace", "a duration such as 1h, found '1 fortnight'"),
    ({"day": DAY + "  grace: 60"}, "day.grace", "needs a unit"),
    ({"day": DAY + "  grace: true"}, "day.grace", "found 'true'"),
    ({"day": DAY + "  grace: -1h"}, "day.grace", "cannot be negative"),
    ({"day": DAY + "  grace:"}, "day.grace", "found nothing"),
    ({"day": DAY + "  headroom: P1M"}, "day.headroom", "only weeks, days"),
    ({"validity": "validity:\n  past: -1d"}, "validity.past", "cannot be negative"),
    ({"validity": "validity:\n  past: 20001d"}, "validity.past", "longer than 20000d"),
    ({"validity": "validity:\n  future: PT"}, "validity.future", "expected a duration"),
    ({"event_time": ""}, "event_time.field", "is missing"),
    ({"event_time": "event_time:\n  field: a..b"}, "event_time.field", "between two dots"),
    ({"event_time": "event_time:\n  field: a\n  source: kafka"}, "event_time.field", "combined with source"),
    ({"event_time": "event_time:\n  source: kafak"}, "event_time.source", "did you mean kafka?"),
    ({"event_time": "event_time:\n  field: a\n  format: epoch"}, "event_time.format", "did you mean epoch_"),
    (
        {"event_time": "event_time:\n  field: order_id\n  format: epoch_ms"},
        "event_time.field",
        "its column is string",
    ),
    ({"event_time": "event_time:\n  field: order_id.at"}, "event_time.field", "lies inside `order_id`"),
    ({"record": ""}, "record.columns", "at least one"),
    ({"record": "record:\n  columns: [a]"}, "record.columns", "found a list"),
    ({"record": RECORD + "    a: strnig"}, "record.columns.a", "did you mean `string`?"),
    ({"record": RECORD + "    a: decimal(99,2)"}, "record.columns.a", "p <= 38"),
    ({"record": RECORD + "    a:"}, "record.columns.a", "found nothing"),
    ({"record": RECORD + "    a:\n      city: string"}, "record.columns.a", "found a mapping"),
    ({"record": RECORD + "    Date: string"}, "record.columns.Date", "otherwise, and write from: Date"),
    ({"record": RECORD + "    kafka_x: string"}, "record.columns.kafka_x", "reserved"),
    ({"record": RECORD + "    a: string\n    A: string"}, "record.columns.A", "in case only"),
    ({"record": RECORD + "    a: string\n    a: bigint"}, "record.columns.a", "in lines 11 and 12"),
    (
        {"record": RECORD + "    no: string"},
        "record.columns.no",
        'line 11 is a YAML bool, not text; write "no"',
    ),
    ({"record": RECORD + "    1: string"}, "record.columns.1", "YAML int"),
    ({"record": "record:\n  columns: {a: decimal(10,2)}"}, "record.columns", "one key a line"),
    (
        {"record": RECORD + "    a: int\n  kafka_columns: [key, kye]"},
        "record.kafka_columns",
        "expected a list of key, headers, found 'kye'; did you mean key?",
    ),
    (
        {"record": RECORD + "    a: int\n  kafka_columns: [timestamp]"},
        "record.kafka_columns",
        "found 'timestamp'",
    ),
    ({"record": RECORD + "    a: int\n  kafka_columns: key"}, "record.kafka_columns", "[key, headers]"),
    ({"lake": ""}, "lake.path", "is missing"),
    ({"lake": "lake:\n  path: s3a://bucket/orders"}, "lake.path", "write s3://"),
    ({"lake": "lake:\n  path: hdfs://name/orders"}, "lake.path", "s3://bucket/prefix"),
    ({"lake": "lake:\n  path: s3://bucket/a//b"}, "lake.path", "each name between two slashes"),
    ({"lake": "lake:\n  path: s3://bucket/a?b=c"}, "lake.path", "s3://bucket/prefix"),
    ({"lake": "lake:\n  path: l\n  store: {region: eu-west-1}"}, "lake.store", "lake.path is a folder"),
    (
        {"lake": "lake:\n  path: gs://b/l\n  store: {region: eu-west-1}"},
        "lake.store.region",
        "gs:// has no such key",
    ),
    (
        {"lake": "lake:\n  path: s3://b/l\n  store: {access_key_id: a}"},
        "lake.store.secret_access_key",
        "access_key_id needs it",
    ),
    (
        {"lake": "lake:\n  path: s3://b/l\n  target_file_size: 5GiB"},
        "lake.target_file_size",
        "at most 4GiB in a bucket",
    ),
    ({"lake": "lake:\n  path: s3://b/l\n  keep: 9d"}, "lake.keep", "cannot expire yet"),
    ({"lake": "lake:\n  path: s3://b/l\n  shared: true"}, "lake.shared", "every node reaches a bucket"),
    ({"lake": "lake:\n  path: file:///lake"}, "lake.path", "no file://"),
    ({"lake": "lake:\n  path: ~/lake"}, "lake.path", "${env:HOME}"),
    (
        {"lake": "lake:\n  path: l\n  target_file_size: 1023KiB\n  min_file_size: 1KiB"},
        "lake.target_file_size",
        "at least 1.0MiB",
    ),
    (
        {"lake": "lake:\n  path: l\n  target_file_size: -5MiB"},
        "lake.target_file_size",
        "a size such as 256MiB",
    ),
    ({"lake": "lake:\n  path: l\n  min_file_size: 0"}, "lake.min_file_size", "one byte"),
    (
        {"lake": "lake:\n  path: l\n  min_file_size: 300MiB\n  target_file_size: 256MiB"},
        "lake.min_file_size",
        "256.0MiB, found 300.0MiB",
    ),
    ({"lake": "lake:\n  path: l\n  target_file_size: 1023KiB"}, "lake.target_file_size", "at least 1.0MiB"),
    ({"lake": f"lake:\n  path: l\n  min_file_size: {'9' * 400}GiB"}, "lake.min_file_size", "1024 TiB"),
    ({"lake": "lake:\n  path: l\n  min_file_size: 5 parsec"}, "lake.min_file_size", "the units are"),
    ({"lake": "lake:\n  path: l\n  compression: zstandard"}, "lake.compression", "did you mean zstd?"),
    ({"lake": "lake:\n  path: l\n  keep: 36h"}, "lake.keep", "whole days, and at least 2d"),
    ({"lake": "lake:\n  path: l\n  keep: 1d"}, "lake.keep", "whole days, and at least 2d"),
    ({"lake": "lake:\n  path: l\n  shared: yes"}, "lake.shared", "expected true or false, found 'yes'"),
    ({"tombstones": "tombstones: drop"}, "tombstones", "one of quarantine, skip"),
    ({"invalid": "invalid:\n  limit: 5"}, "invalid.limit", "write the % sign"),
    ({"invalid": "invalid:\n  floor: 1%"}, "invalid.floor", "a number of records such as 100"),
    ({"invalid": "invalid:\n  limit: 101%"}, "invalid.limit", "between 0% and 100%"),
    ({"invalid": "invalid:\n  limit: .nan"}, "invalid.limit", "found '.nan'"),
    ({"invalid": "invalid:\n  limit: -1%"}, "invalid.limit", "a share such as"),
    ({"late": "late: drop"}, "late", "one of amend, set_aside"),
    ({"spark": "spark:\n  master: local"}, "spark.master", "such as spark.master"),
    ({"spark": "spark:\n  spark.a: [1]"}, "spark.spark.a", "expected one value, found a list"),
    ({"spark": "spark:\n  spark.master: yarn"}, "lake.shared", "every node sees"),
    ({"spark": "spark: local"}, "spark", "a mapping of Spark's settings"),
]


def record_of(*lines: str, column: str = "a") -> dict[str, str]:
    return {"record": "".join([RECORD, f"    {column}:\n", *(f"      {line}\n" for line in lines)])}


REFUSED += [
    (record_of("from: b"), "record.columns.a.type", "is missing; expected a type such as string"),
    (record_of("from: b", "type: strnig"), "record.columns.a.type", "did you mean `string`?"),
    (record_of("from: b", "type: [int]"), "record.columns.a.type", "found a list"),
    (record_of("from: b..c", "type: int"), "record.columns.a.from", "a name between two dots is empty"),
    (record_of("from: []", "type: int"), "record.columns.a.from", "a name of the list is empty"),
    (record_of('from: [b, ""]', "type: int"), "record.columns.a.from", "of the list is empty"),
    (record_of("from: [b, [c]]", "type: int"), "record.columns.a.from", "of the list is empty"),
    (record_of("from: {b: c}", "type: int"), "record.columns.a.from", "found a mapping"),
    (record_of(f"from: {'.'.join('b' * 65)}", "type: int"), "record.columns.a.from", "at most 64 levels"),
    (record_of("from: 'b\"c'", "type: int"), "record.columns.a", "must not hold a double quote"),
    (record_of("frm: b", "type: int"), "record.columns.a.frm", "did you mean from?"),
    (record_of("type: timestamp", "format: epoch"), "record.columns.a.format", "did you mean epoch_"),
    (
        record_of("type: string", "format: epoch_s"),
        "record.columns.a.format",
        "is for timestamp and date; the type has",
    ),
    (record_of("type: bigint", "zone: UTC"), "record.columns.a.zone", "is for timestamp; the type has none"),
    (record_of("type: timestamp", "zone: UTC"), "record.columns.a.zone", "needs format, such as"),
    (record_of("type: date", "zone: UTC", "format: iso8601"), "record.columns.a.zone", "is for timestamp;"),
    (
        record_of("type: timestamp", "format: iso8601", "zone: Mars"),
        "record.columns.a.zone",
        "expected a zone such as",
    ),
    (
        record_of("type: timestamp", "format: epoch_s", "zone: UTC"),
        "record.columns.a.zone",
        "plays no part: epoch_s",
    ),
    (record_of("type: timestamp", "format: yyyy-MM-dd"), "record.columns.a.zone", "the format has no offset"),
    (
        record_of("type: timestamp", "format: yyyy-MM-dd XXX", "zone: UTC"),
        "record.columns.a.zone",
        "plays no part: the format has an offset",
    ),
    (
        record_of("type: date", "format: yyyy-dd"),
        "record.columns.a.format",
        "a pattern needs yyyy, MM and dd",
    ),
    (record_of("type: date", "format: yyyy-MMM-dd"), "record.columns.a.format", "MMM is not read"),
    (record_of("type: date", "format: yyyy-MM-dd yyyy"), "record.columns.a.format", "there twice"),
    (record_of("type: date", "format: yyyy-MM-dd'T"), "record.columns.a.format", "a quote of the pattern"),
    ({"event_time": "event_time:\n  field: a\n  format: yyyy"}, "event_time.format", "needs yyyy, MM and dd"),
    (record_of("from: b", "type: int", column="Date"), "record.columns.Date", "reserved"),
    (record_of("from: b", "type: int", "", column="b: string\n    a"), "record.columns.a", "as int, and by"),
    (
        record_of("from: b.c", "type: int", column="b: json\n    a"),
        "record.columns.a",
        "inside `b`, which is json",
    ),
    (record_of("from: created_at", "type: bigint"), "event_time.field", "its column is bigint"),
]
KEY = RECORD + "    order_id: string\n  key:\n"
REFUSED += [
    ({"record": KEY + "    format: jsn"}, "record.key.format", "did you mean json?"),
    ({"record": KEY + "    columns: {a: strnig}"}, "record.key.columns.a", "did you mean `string`?"),
    (
        {"record": KEY + "    columns: {Order_Id: string}"},
        "record.key.columns.Order_Id",
        "of record.columns already",
    ),
    ({"record": KEY + "    columns: {event_time: string}"}, "record.key.columns.event_time", "reserved"),
    ({"record": KEY + "    columns: {a: int}"}, "record.key.columns", "one column of type string or bigint"),
    (
        {"record": KEY + "    columns: {a: {from: b, type: string}}"},
        "record.key.columns",
        "one column of type",
    ),
    (
        {"record": KEY + "    format: json\n    columns: {a: {from: b, type: int}, b: string}"},
        "record.key.columns.b",
        "is read as string, and by another column as int",
    ),
    (
        {"record": "record:\n  format: raw\n  key:\n    columns: {a: string}", "event_time": ""},
        "record.key",
        "raw keeps the key as bytes",
    ),
]
RAW = "record:\n  format: raw\n"
SOURCE = "event_time:\n  source: kafka"
REFUSED += [
    ({"record": RAW}, "event_time.field", "raw, which takes Kafka's timestamp"),
    (
        {"record": RAW + "  columns:\n    a: int", "event_time": SOURCE},
        "record.columns",
        "keeps the value as bytes",
    ),
    (
        {"record": RAW + "  kafka_columns: [key]", "event_time": SOURCE},
        "record.kafka_columns",
        "always keeps",
    ),
    (
        {"record": RAW, "event_time": SOURCE, "tombstones": "tombstones: skip"},
        "tombstones",
        "without a value",
    ),
]


@pytest.mark.parametrize("sections, path, words", REFUSED, ids=[f"{row[1]}-{row[2][:24]}" for row in REFUSED])
def test_what_is_wrong_is_refused_at_its_path(
    tmp_path: Path, sections: dict[str, str], path: str, words: str
) -> None:
    found = problems(tmp_path, changed(**sections))
    assert list(found) == [path]
    assert words in found[path]


@pytest.mark.parametrize("key", [key.replace("*", "x") for key in FIXED])
def test_a_spark_key_that_the_job_fixes_is_refused_with_the_reason(tmp_path: Path, key: str) -> None:
    found = problems(tmp_path, changed(spark=f"spark:\n  {key}: x"))
    assert found == {f"spark.{key}": f"is fixed by the job: {why_fixed(key)}"}


def test_a_fixed_spark_key_is_known_in_any_case_and_no_other_key_is_taken_for_it() -> None:
    assert why_fixed("spark.sql.session.timeZone") == why_fixed("SPARK.SQL.SESSION.TIMEZONE") is not None
    assert why_fixed("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [
        key for key in ("spark.jarsx", "spark.executor.pyspark.memory", "spark.master") if why_fixed(key)
    ] == []


@pytest.mark.parametrize(
    "master, local",
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local[*, 3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", False),
        ("yarn", False),
        ("local[0]", False),
    ],
)
def test_a_cluster_master_needs_a_lake_that_is_said_to_be_shared(
    tmp_path: Path, master: str, local: bool
) -> None:
    assert is_local(master) is local
    spark = f"spark:\n  spark.master: {master}"
    if local:
        settings(tmp_path, changed(spark=spark))
    else:
        assert list(problems(tmp_path, changed(spark=spark))) == ["lake.shared"]
    settings(tmp_path, changed(spark=spark, lake="lake:\n  path: l\n  shared: true"))


def test_a_file_for_those_who_wait_for_one_is_asked_for(tmp_path: Path) -> None:
    found = settings(tmp_path, changed(lake="lake:\n  path: l\n  success_file: true"))
    assert found.lake.success_file


def test_every_problem_is_reported_at_once_with_exit_code_2(tmp_path: Path) -> None:
    text = changed(
        topic="topic: or ders\ntopic: x",
        kafka="kafka:\n  bootstrap_servers: ${env:NOPE}\n  security:\n    protocol: SASL_SSL",
        day="day:\n  zone: Mars\n  first: soon\n  grace: 1 fortnight",
        validity="validity: {past: -1d}",
        record="record:\n  columns:\n    date: string\n    a: strnig",
        lake="lake:\n  path: l\n  min_file_size: 2GiB\n  target_file_size: 1GiB\n  colour: red",
        spark="spark:\n  spark.master: yarn\n  spark.jars: x",
    )
    wrong = refusal(tmp_path, text)
    assert wrong.exit_code == 2
    assert set(problems(tmp_path, text)) == {
        *("topic", "kafka.bootstrap_servers", "kafka.security.mechanism", "kafka.security.username"),
        *("kafka.security.password", "day.zone", "day.first", "day.grace", "validity.past"),
        *("record.columns.date", "record.columns.a", "lake.min_file_size", "lake.colour", "lake.shared"),
        "spark.spark.jars",
    }
    assert "\n  day.grace: expected a duration such as 1h, found '1 fortnight'" in str(wrong)
    assert len(str(wrong).splitlines()) == 1 + len(problems(tmp_path, text)) + 1


def test_each_column_that_cannot_be_read_from_its_place_is_reported_at_once(tmp_path: Path) -> None:
    record = """\
record:
  columns:
    a: string
    b: {from: a, type: bigint}
    c: {from: a.x, type: string}
    created_at: bigint
  key:
    format: json
    columns:
      d: {from: e, type: int}
      e: string
      f: {from: e.x, type: string}
"""
    assert problems(tmp_path, changed(record=record)) == {
        "record.columns.b": "its place `a` is read as bigint, and by another column as string",
        "record.columns.c": "its place `a.x` lies inside `a`, which is string; only a struct works",
        "event_time.field": "event time `created_at` is read as timestamp (iso8601); its column is bigint, "
        "expected string or timestamp",
        "record.key.columns.e": "its place `e` is read as string, and by another column as int",
        "record.key.columns.f": "its place `e.x` lies inside `e`, which is int; only a struct works",
    }


def test_a_value_that_could_not_be_read_makes_no_second_problem_elsewhere(tmp_path: Path) -> None:
    lake = "lake:\n  path: l\n  target_file_size: big\n  min_file_size: 300MiB"
    assert list(problems(tmp_path, changed(lake=lake))) == ["lake.target_file_size"]
    security = "kafka:\n  bootstrap_servers: a:1\n  security:\n    protocol: SASSL\n    username: me"
    assert list(problems(tmp_path, changed(kafka=security))) == ["kafka.security.protocol"]


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "a: {password: ${env:X}}",
            "line 1 is not YAML: expected ',' or '}', but got '{'; inside { } or [ ] put",
        ),
        ("topic: x\n a: b", "line 2 is not YAML"),
        ("topic: x\n---\ntopic: y", "line 2 starts a second document"),
        ("- a", "expected a mapping of topic, kafka"),
        ("[" * 1000, "nested deeper"),
        ("a: \x00", "characters that YAML does not allow"),
        ('a: "\\U00110000"', "not YAML: an escape names a character that there is not"),
        ('a: "\\UFFFFFFFF"', "not YAML: an escape names a character that there is not"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    found = problems(tmp_path, text)
    assert list(found) == [""]
    assert words in found[""]


def test_half_a_character_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    """No file can have it in its name: a lake's path with it was a bug of ours (70)."""
    lake = 'lake:\n  path: "./\\uD800"\n  "\\uDC00": x'
    found = problems(tmp_path, changed(lake=lake))
    assert [found[path] for path in ("lake.path", r"lake.'\udc00'")] == [
        f"line {line} holds half a character (\\uD800 to \\uDFFF); write the whole one" for line in (13, 14)
    ]


def test_an_empty_file_names_what_is_missing(tmp_path: Path) -> None:
    assert {"topic", "kafka.bootstrap_servers", "day.zone", "day.first", "lake.path"} <= set(
        problems(tmp_path, "")
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file"):
        load(tmp_path, {})
    (tmp_path / "latin.yaml").write_bytes(b"topic: caf\xe9")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "latin.yaml", {})


# Secrets

LOGIN = """\
kafka:
  bootstrap_servers: broker:9093
  security:
    protocol: SASL_SSL
    mechanism: SCRAM-SHA-512
    username: ${env:WHO}
    password: ${file:secret.txt}
"""


def test_a_login_is_given_to_both_clients(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(HUNTER + "\n")
    found = settings(tmp_path, changed(kafka=LOGIN), {"WHO": "me"})
    assert reveal(found.kafka.client) == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": HUNTER,
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert reveal(found.kafka.spark) == {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="me" password="{HUNTER}";',
        "kafka.ssl.endpoint.identification.algorithm": "https",
    }


def reveal(options: object) -> dict[str, str]:
    assert isinstance(options, dict)
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in options.items()}


def test_librdkafka_takes_the_names_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(HUNTER)
    found = settings(tmp_path, changed(kafka=LOGIN), {"WHO": "me"})
    confluent_kafka.Consumer({**reveal(found.kafka.client), "group.id": "none"}).close()


@pytest.mark.parametrize(
    "password, quoted",
    [
        ("plain", '"plain"'),
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ("a\\", r'"a\\"'),
        ("a;b='c' //", "\"a;b='c' //\""),
        ("\\101", r'"\\101"'),
        ("a\nb", r'"a\nb"'),
        ("pässwörd€", '"pässwörd€"'),
    ],
)
def test_a_password_reaches_java_whole(password: str, quoted: str) -> None:
    written = jaas(Mechanism.PLAIN, Secret("me"), Secret(password)).reveal()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert written == f'{module} required username="me" password={quoted};'


SPILLS = [
    "    protocol: {0}",
    "    protocol: [{0}]",
    "    {{password: {0}, x}}",
    "    protocol: SASL_SSL\n    mechanism: ${{env:S}}\n    username: [{0}]\n    password: {{a: {0}}}",
    "    pasword: {0}",
    "    password:\n      value: {0}",
    "    password: ${{env:S}}${{env:NOPE}}",
    "    password: {0}-${{env:NOPE}}",
    "    password: ${{{0}",
    "    password: *{0}",
    "    password: !{0} x",
    "    password: '{0}",
    "    username: {0}\n    password: {0}\n    password: {0}\n    mechanism: PLAIN",
    "    protocol: SSL\n    ca: ${{env:S}}\n    key: ${{env:S}}\n    key_password: {0}",
    "    verify_hostname: ${{env:S}}\n    protocol: ${{env:S}}",
    "  timeout: ${{env:S}}\n  security: {0}",
    "  timeout: ${{env:S}}\n  security: [{0}]",
]


@pytest.mark.parametrize("spill", SPILLS)
def test_a_refusal_shows_no_secret(tmp_path: Path, spill: str) -> None:
    head = "kafka:\n  bootstrap_servers: ${env:S}\n"
    text = spill.format(HUNTER)
    section = head + (text if text.startswith("  t") else "  security:\n" + text)
    if "protocol: " + HUNTER in text or "protocol: [" in text:
        section = section.replace(HUNTER, "${env:S}")
    wrong = refusal(tmp_path, changed(kafka=section), {"S": HUNTER})
    for shown in (str(wrong), repr(wrong), repr(wrong.args), json.dumps(wrong.document())):
        assert HUNTER not in shown
    assert wrong.__cause__ is None


def test_a_referenced_value_is_not_repeated_wherever_it_stands(tmp_path: Path) -> None:
    record = 'record:\n  columns:\n    a: ${env:S}\n  kafka_columns: ["${env:S}"]\n  format: ${env:S}\n'
    mapping = "{from: '${env:S}..', type: '${env:S}', format: '${env:S}', zone: '${env:S}'}"
    record += f"  key:\n    columns:\n      b: {mapping}\n      c: {{type: string, format: 'yyyy${{env:S}}'}}"
    text = changed(topic="topic: a b${env:S}", day="day:\n  zone: ${env:S}\n  first: ${env:S}", record=record)
    wrong = refusal(tmp_path, text + "lat: ${env:S}\nspark:\n  spark.master: ${env:S}\n", {"S": HUNTER})
    assert "found the value of ${env:S}" in str(wrong)
    assert HUNTER not in str(wrong) + json.dumps(wrong.document())
    assert "h is not read" not in str(wrong)


def test_settings_show_no_secret_however_they_are_printed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(HUNTER)
    spark = "spark:\n  spark.hadoop.fs.s3a.secret.key: ${env:KEY}"
    found = settings(tmp_path, changed(kafka=LOGIN, spark=spark), {"WHO": HUNTER, "KEY": HUNTER})
    whole = repr(found) + str(found) + f"{found}" + repr(found.kafka) + str(dict(found.kafka.client))
    whole += json.dumps(dict(found.kafka.spark), default=str) + repr(dataclasses.asdict(found.kafka))
    assert HUNTER not in whole
    with pytest.raises(TypeError):
        json.dumps(dict(found.kafka.client))
    assert HUNTER not in found.rules.contract(found.day.zone, found.day.first).canonical


def test_settings_can_be_pickled(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(HUNTER)
    found = settings(tmp_path, changed(kafka=LOGIN), {"WHO": "me"})
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "text, value",
    [
        ("${env:A}", "x"),
        ("a-${env:A}-${env:A}", "a-x-x"),
        ("$${env:A}", "${env:A}"),
        ("${file:f.txt}", "y z"),
        ("$5", "$5"),
        ("${env:B}", "${env:A}"),
    ],
)
def test_a_reference_is_filled_in_once(tmp_path: Path, text: str, value: str) -> None:
    (tmp_path / "f.txt").write_text("y z\r\n\n")
    found = settings(tmp_path, changed(spark=f"spark:\n  spark.x: {text}"), {"A": "x", "B": "${env:A}"})
    assert found.spark == {"spark.x": value}


@pytest.mark.parametrize(
    "text, words",
    [
        ("${env:NOPE}", "variable NOPE is not set"),
        ("${file:nope}", "No such file"),
        ("${vault:x}", "${env:NAME}"),
        ("${env:X", "${env:NAME}"),
        ("${env:}", "${env:NAME}"),
        ("${file:.}", "Is a directory"),
    ],
)
def test_a_reference_that_leads_nowhere_is_a_problem_at_its_path(
    tmp_path: Path, text: str, words: str
) -> None:
    found = problems(tmp_path, changed(topic=f"topic: {text}"))
    assert list(found) == ["topic"]
    assert words in found["topic"]


# TLS


def tls(folder: Path, *lines: str, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.pem").write_text(text)
    body = "".join(f"    {line}\n" for line in ("protocol: SSL", *lines))
    return changed(kafka="kafka:\n  bootstrap_servers: a:1\n  security:\n" + body)


def test_certificates_are_given_to_both_clients(tmp_path: Path) -> None:
    key = pem_key("ENCRYPTED ")
    lines = (
        "ca: ca.pem",
        "certificate: own.pem",
        "key: key.pem",
        f"key_password: {HUNTER}",
        "verify_hostname: false",
    )
    found = settings(tmp_path, tls(tmp_path, *lines, ca=CERTIFICATE, own=CERTIFICATE, key=key))
    assert reveal(found.kafka.client) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "own.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": HUNTER,
    }
    assert reveal(found.kafka.spark) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": key,
        "kafka.ssl.key.password": HUNTER,
    }
    assert isinstance(found.kafka.spark["kafka.ssl.keystore.key"], Secret)


PBES2 = pem_key("ENCRYPTED ", bytes.fromhex("301b06092a864886f70d01050d"))


@pytest.mark.parametrize(
    "lines, key, path, words",
    [
        (["ca: none.pem"], "", "ca", "found 'none.pem': No such file"),
        (["ca: key.pem"], "text", "ca", "BEGIN CERTIFICATE"),
        (["certificate: own.pem"], "", "key", "certificate needs it"),
        (["key: key.pem"], pem_key(), "certificate", "key needs it"),
        (["certificate: own.pem", "key: key.pem"], "text", "key", "BEGIN PRIVATE KEY"),
        (["certificate: own.pem", "key: key.pem"], pem_key("RSA "), "key", "openssl pkcs8 -topk8 -nocrypt"),
        (["certificate: own.pem", "key: key.pem"], pem_key("ENCRYPTED "), "key_password", "is encrypted"),
        (
            ["certificate: own.pem", "key: key.pem", "key_password: x"],
            pem_key(),
            "key_password",
            "plays no part",
        ),
        (["certificate: own.pem", "key: key.pem", "key_password: x"], PBES2, "key", "-v1 PBE-SHA1-3DES"),
        (["username: me"], "", "username", "needs protocol SASL_SSL or SASL_PLAINTEXT, found SSL"),
        (["protcol: SSL"], "", "protcol", "did you mean protocol?"),
        (["verify_hostname: maybe"], "", "verify_hostname", "expected true or false"),
    ],
)
def test_tls_that_could_not_work_is_refused(
    tmp_path: Path, lines: list[str], key: str, path: str, words: str
) -> None:
    found = problems(tmp_path, tls(tmp_path, *lines, own=CERTIFICATE, key=key))
    assert list(found) == [f"kafka.security.{path}"]
    assert words in found[f"kafka.security.{path}"]


def test_a_key_pasted_in_place_of_its_path_is_not_shown(tmp_path: Path) -> None:
    pasted = 'key: "-----BEGIN PRIVATE KEY-----\\nTUlJ\\n"'
    wrong = refusal(tmp_path, tls(tmp_path, "certificate: own.pem", pasted, own=CERTIFICATE))
    assert "TUlJ" not in str(wrong)


def test_a_choice_that_came_from_a_reference_is_not_guessed_at(tmp_path: Path) -> None:
    kafka = "kafka:\n  bootstrap_servers: a:1\n  security:\n    protocol: ${env:SPOKEN}"
    found = problems(tmp_path, changed(kafka=kafka), {"SPOKEN": "SSLL"})
    expected = "expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, found the value of ${env:SPOKEN}"
    assert found == {"kafka.security.protocol": expected}


def test_tls_keys_are_refused_where_no_tls_is_spoken(tmp_path: Path) -> None:
    kafka = "kafka:\n  bootstrap_servers: a:1\n  security:\n    ca: ca.pem"
    found = problems(tmp_path, changed(kafka=kafka))
    assert found == {"kafka.security.ca": "needs protocol SSL or SASL_SSL, found PLAINTEXT"}


# Start-up


def test_loading_imports_nothing_that_decodes_writes_or_talks(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from jobs.config import load; load(Path(sys.argv[1]), {}); "
        "print([name for name in ('pyarrow', 'msgspec', 'sqlglot', 'confluent_kafka', 'pyspark', 'pandas') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_messages_show_values_only_where_the_config_says_so(tmp_path: Path) -> None:
    assert settings(tmp_path, SMALLEST).invalid.samples == "coordinates"
    assert settings(tmp_path, changed(invalid="invalid:\n  samples: values")).invalid.samples == "values"
    with pytest.raises(ConfigError, match="one of none, coordinates, values, found 'all'"):
        settings(tmp_path, changed(invalid="invalid:\n  samples: all"))
