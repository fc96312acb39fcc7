"""The rules of a contract in the form that tasks use: what decides a record's verdict and bytes.

Pure. The config builds the rules; every task gets them; the manifest holds them as the contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any

from jobs.record.columns import Column, ddl, parse_type
from jobs.record.time_format import TimeForm, TimeFormat, Written, time_form
from offsets.contract import Contract

DECODER_VERSION = 1
"""Increased whenever the decoder classifies or writes any record differently."""


class RecordFormat(StrEnum):
    """How a record's value is read."""

    JSON = "json"
    RAW = "raw"


class KeyFormat(StrEnum):
    """How a record's key is read."""

    TEXT = "text"
    JSON = "json"


class Tombstones(StrEnum):
    """What becomes of a record without a value."""

    QUARANTINE = "quarantine"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeRule:
    """Where a record holds its event time; an empty `path` means Kafka's own timestamp."""

    path: tuple[str, ...]
    format: TimeForm
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """How the key is decoded, and to which columns; without columns it is not decoded."""

    format: KeyFormat = KeyFormat.TEXT
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that decides verdict and bytes of a record, beside the day's bounds."""

    format: RecordFormat
    columns: tuple[Column, ...]
    kafka_columns: frozenset[str]
    event_time: EventTimeRule
    past: timedelta
    future: timedelta
    tombstones: Tombstones
    key: KeyRule = KeyRule()

    def contract(self, zone: str, first: date) -> Contract:
        """Return the contract that these rules make with a zone and a lake's first day."""
        return Contract(
            {
                "decoder": DECODER_VERSION,
                "day": {"zone": zone, "first": first.isoformat()},
                "event_time": {
                    "source": "field" if self.event_time.path else "kafka",
                    "field": _dotted(self.event_time.path),
                    "format": self.event_time.format.value if self.event_time.path else None,
                    "zone": self.event_time.zone if self.event_time.path else None,
                },
                "validity": {
                    "past_seconds": self.past.total_seconds(),
                    "future_seconds": self.future.total_seconds(),
                },
                "record": {
                    "format": self.format.value,
                    "columns": _terms(self.columns),
                    "kafka_columns": sorted(self.kafka_columns),
                    **self._key_term(),
                },
                "tombstones": self.tombstones.value,
            }
        )

    def _key_term(self) -> dict[str, object]:
        """Return the term of the key, which contracts have only where it is decoded."""
        rule = self.key
        if not rule.columns:
            return {}
        return {"key": {"format": rule.format.value, "columns": _terms(rule.columns)}}


def _dotted(path: tuple[str, ...]) -> str | list[str] | None:
    """Return a path as earlier contracts have it, as a list where a name has a dot, or None."""
    return list(path) if any("." in name for name in path) else ".".join(path) or None


def _path(term: str | list[str] | None) -> tuple[str, ...]:
    return tuple(term.split(".") if isinstance(term, str) else term or ())


def _terms(columns: tuple[Column, ...]) -> dict[str, object]:
    return {column.name: _term(column) for column in columns}


def _term(column: Column) -> str | dict[str, object]:
    """Return a column's term: the type alone, as earlier contracts have it, unless there is more to it."""
    written = column.written
    more = {
        "from": _dotted(column.source),
        "format": written.format.value if written else None,
        "zone": written.zone if written else None,
    }
    term = {key: value for key, value in more.items() if value is not None}
    return {"type": ddl(column.type), **term} if term else ddl(column.type)


def _columns(terms: Any) -> tuple[Column, ...]:
    return tuple(_column(name, term) for name, term in terms.items())


def _column(name: str, term: Any) -> Column:
    if isinstance(term, str):
        return Column(name, parse_type(term))
    written = Written(time_form(term["format"]), term.get("zone")) if "format" in term else None
    return Column(name, parse_type(term["type"]), _path(term.get("from")), written)


def rules_of(contract: Contract) -> Rules:
    """Return the rules that made a contract.

    Raises:
        ValueError: another decoder made it, or it lacks a term.
    """
    terms: Any = contract.terms
    if terms.get("decoder") != DECODER_VERSION:
        raise ValueError(f"a contract of decoder {terms.get('decoder')}; this one is {DECODER_VERSION}")
    time, record, validity = terms["event_time"], terms["record"], terms["validity"]
    return Rules(
        format=RecordFormat(record["format"]),
        columns=_columns(record["columns"]),
        kafka_columns=frozenset(record["kafka_columns"]),
        event_time=EventTimeRule(
            path=_path(time["field"]),
            format=time_form(time["format"] or TimeFormat.ISO8601),
            zone=time["zone"] or "UTC",
        ),
        past=timedelta(seconds=validity["past_seconds"]),
        future=timedelta(seconds=validity["future_seconds"]),
        tombstones=Tombstones(terms["tombstones"]),
        key=_key_rule(record.get("key")),
    )


def _key_rule(term: Any) -> KeyRule:
    if term is None:
        return KeyRule()
    return KeyRule(format=KeyFormat(term["format"]), columns=_columns(term["columns"]))
