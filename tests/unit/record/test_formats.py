"""A format of records is whole through its protocol: what the table does not say, nothing else asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.config.checks import check
from jobs.config.problems import Problems, dotted
from jobs.config.read import read
from jobs.config.schema import ConfigFile
from jobs.config.strict_yaml import parse
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.record.columns import Column, Kind, Scalar
from jobs.record.decode import Decoder, day_schema
from jobs.record.event_time import TimeReader, faults_where, read_event_times
from jobs.record.formats import DECODERS
from jobs.record.formats.protocol import KeyProblem, Read, RecordDecoder
from jobs.record.rules import RecordFormat, Rules, Tombstones
from jobs.record.schema import columns_schema
from offsets.commit_log import read_ledger
from offsets.errors import BrokerBehind
from offsets.instants import micros
from offsets.verdict import Verdict
from tests.support.config_text import SMALLEST
from tests.support.local_engine import RULES, pipeline
from tests.support.memory_topic import MemoryTopic

DAY = date(2026, 3, 28)
NOON = datetime(2026, 3, 28, 11, tzinfo=UTC)


class Another(StrEnum):
    LINE = "line"


LINE = cast(RecordFormat, Another.LINE)
TERMS = replace(RULES, format=LINE, columns=(Column("id", Scalar(Kind.STRING)),))


class Line(RecordDecoder):
    """A line of text, `<microseconds> <id>`: a format that no one but this test knows."""

    has_fields = True
    keeps_null_values = False
    kafka_columns = frozenset({"key"})

    def problems(self, rules: Rules) -> Iterator[KeyProblem]:
        if len(rules.columns) != 1:
            columns = ("record", "columns")
            yield KeyProblem(columns, "expected the one column of a line", unless=(columns,))

    def columns(self, rules: Rules) -> tuple[Column, ...]:
        return rules.columns

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        def read(values: pa.BinaryArray) -> Read:
            if pc.any(pc.equal(values, b"?")).as_py():
                raise BrokerBehind(expected="an id that was resolved", found="?", do="Run the day again.")
            texts = values.cast(pa.string())
            good = pc.fill_null(pc.match_substring_regex(texts, "^[0-9]+ "), False)
            parts = pc.split_pattern(pc.if_else(good, texts, "0 "), " ", max_splits=1)
            at = pc.list_element(parts, 0).cast(pa.int64())
            return Read(
                columns=[pc.list_element(parts, 1)],
                event_time=read_event_times(at, TimeReader(format=rules.event_time.format), ("at",)),
                value_faults=faults_where(pc.invert(good), "Not a line"),
            )

        return read


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, LINE, Line())


def line_of(when: datetime, id: str) -> bytes:
    return f"{micros(when)} {id}".encode()


def test_each_name_has_its_decoder() -> None:
    assert set(DECODERS) == set(RecordFormat)


@pytest.mark.parametrize("name", RecordFormat)
def test_an_empty_batch_of_a_format_has_its_columns(name: RecordFormat) -> None:
    terms = replace(RULES, format=name)
    schema = columns_schema(DECODERS[name].columns(terms))
    assert all(field.nullable for field in schema)
    read = DECODERS[name].reader(terms)(pa.array([], pa.binary()))
    assert [column.type for column in read.columns] == schema.types
    assert day_schema(terms).names[-len(schema) :] == schema.names


@pytest.mark.usefixtures("line")
def test_a_format_that_only_the_table_knows_settles_a_day(tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    for value in (line_of(NOON, "a"), b"nonsense", None, b"7", line_of(NOON + timedelta(days=1), "b")):
        topic.produce(0, value, NOON)
    run_day(pipeline(tmp_path / "lake", topic, rules=TERMS), DAY)
    manifest = read_ledger(PosixLake(tmp_path / "lake")).newest
    assert manifest is not None
    assert {each.verdict: each.rows for each in manifest.tally} == {
        Verdict.IN_DAY: 1,
        Verdict.INVALID: 3,
        Verdict.LATER_DAY: 1,
    }
    assert {each.cause: each.rows for each in manifest.causes} == {"Not a line": 2, "No value (tombstone)": 1}
    assert cast(dict[str, str], manifest.contract.terms["record"])["format"] == "line"


@pytest.mark.usefixtures("line")
def test_a_format_without_a_verdict_stops_the_day(tmp_path: Path) -> None:
    """As Avro's will where a record names a schema that the driver did not resolve."""
    topic = MemoryTopic(1)
    topic.produce(0, line_of(NOON, "a"), NOON)
    topic.produce(0, b"?", NOON)
    with pytest.raises(BrokerBehind, match="resolved"):
        run_day(pipeline(tmp_path / "lake", topic, rules=TERMS), DAY)
    assert read_ledger(PosixLake(tmp_path / "lake")).newest is None


@pytest.mark.parametrize("keeps, cause", [(False, "No value (tombstone)"), (True, "Not a line")])
@pytest.mark.usefixtures("line")
def test_a_record_without_a_value_is_a_tombstone_unless_the_format_keeps_it(
    monkeypatch: pytest.MonkeyPatch, keeps: bool, cause: str
) -> None:
    monkeypatch.setattr(Line, "keeps_null_values", keeps)
    found = Decoder(TERMS).decode(pa.array([None], pa.binary()), pa.nulls(1, pa.timestamp("us", "UTC")))
    assert found.cause.to_pylist() == [cause]


@pytest.mark.usefixtures("line")
def test_a_skipped_tombstone_of_another_format_is_counted(tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    topic.produce(0, None, NOON)
    run_day(
        pipeline(tmp_path / "lake", topic, rules=replace(TERMS, tombstones=Tombstones.SKIP)),
        DAY,
    )
    manifest = read_ledger(PosixLake(tmp_path / "lake")).newest
    assert manifest is not None
    assert [each.verdict for each in manifest.tally] == [Verdict.SKIPPED]


def problems_of(text: str) -> dict[str, str]:
    """Check a config as one of lines."""
    found = Problems()
    config = read(ConfigFile, parse(text, found), found)
    check(config.model_copy(update={"record": config.record.model_copy(update={"format": LINE})}), found)
    return {dotted(path): problem for path, problem in found.items()}


@pytest.mark.usefixtures("line")
def test_the_problems_of_a_format_stand_among_those_of_its_config() -> None:
    assert problems_of(SMALLEST) == {}
    two = SMALLEST.replace("order_id: string", "a: string\n    b: string")
    assert problems_of(two) == {"record.columns": "expected the one column of a line"}
    timeless = problems_of(two.replace("event_time:\n  field: created_at\n", ""))
    assert list(timeless) == ["event_time.field", "record.columns"]
    odd = problems_of(two.replace("b: string", "b: strng"))
    assert list(odd) == ["record.columns.b"], "a column that has a problem may be the one too many"


@pytest.mark.parametrize("name", RecordFormat)
def test_the_contract_is_written_as_the_lakes_of_today_have_it(name: RecordFormat) -> None:
    assert replace(RULES, format=name).contract("UTC", DAY).canonical == (
        '{"day":{"first":"2026-03-28","zone":"UTC"},"decoder":1,"event_time":{"field":"at","format":"epoch_us",'
        '"source":"field","zone":"UTC"},"record":{"columns":{"id":"string","n":"bigint"},'
        f'"format":"{name}","kafka_columns":["key"]}},"tombstones":"quarantine",'
        '"validity":{"future_seconds":86400.0,"past_seconds":2592000.0}}'
    )
