"""The keys of a configuration: their types and defaults, and what a message says was expected.

Relies on pydantic. Rules between keys are not here but in `checks`, and the reading is in `read`.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field

from jobs.config.fields import (
    CalendarDate,
    Count,
    DottedPath,
    Duration,
    Flag,
    Folder,
    HiddenText,
    InvalidValue,
    Mapped,
    Patience,
    Servers,
    Share,
    Size,
    TextOrSecret,
    TopicName,
    Zone,
    one_of,
)
from jobs.record.rules import RecordFormat, TimeFormat, Tombstones


class Protocol(StrEnum):
    """How both clients talk to the broker."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypts(self) -> bool:
        """Whether TLS is used."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def logs_in(self) -> bool:
        """Whether a user name and a password are used."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class Mechanism(StrEnum):
    """How a user name and a password are proved."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class TimeSource(StrEnum):
    """Where an event time may come from, other than a field."""

    KAFKA = "kafka"


class KafkaColumn(StrEnum):
    """A part of the Kafka record that can be written beside the columns."""

    KEY = "key"
    HEADERS = "headers"


class Compression(StrEnum):
    """How Parquet pages are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    NONE = "none"


class Late(StrEnum):
    """What becomes of a record dated before the day that is being settled."""

    AMEND = "amend"
    SET_ASIDE = "set_aside"


def _kafka_columns(value: object) -> list[KafkaColumn]:
    if not isinstance(value, list):
        raise InvalidValue("write it as [key, headers]")
    return [one_of(KafkaColumn)(item) for item in value]


class Section(BaseModel):
    """A mapping whose keys are known."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )


class SecuritySection(Section):
    """How to reach a broker that wants TLS or a login; applied to librdkafka and to Spark's Java client."""

    protocol: Annotated[Protocol, BeforeValidator(one_of(Protocol))] = Field(
        default=Protocol.PLAINTEXT, description="one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    )
    mechanism: Annotated[Mechanism, BeforeValidator(one_of(Mechanism))] | None = Field(
        default=None, description="one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
    )
    username: HiddenText | None = Field(default=None, description="a user name")
    password: HiddenText | None = Field(
        default=None, description="a password, as ${env:NAME} or ${file:PATH}"
    )
    ca: TextOrSecret | None = Field(
        default=None, description="the path of a PEM file with the authority's certificates"
    )
    certificate: TextOrSecret | None = Field(
        default=None, description="the path of a PEM file with our certificate"
    )
    key: TextOrSecret | None = Field(default=None, description="the path of a PEM file with our private key")
    key_password: HiddenText | None = Field(default=None, description="the password of the private key")
    verify_hostname: Flag = Field(default=True, description="true or false")


class KafkaSection(Section):
    """Where the topic is."""

    bootstrap_servers: Servers = Field(description="host:port, or several with commas or as a list")
    timeout: Patience = Field(default=timedelta(seconds=30), description="a duration such as 30s")
    security: SecuritySection = Field(default_factory=SecuritySection)


class DaySection(Section):
    """What a day is, and when it is over."""

    zone: Zone = Field(description="a zone such as Europe/Amsterdam or UTC")
    first: CalendarDate = Field(description="a date such as 2026-11-01")
    grace: Duration = Field(default=timedelta(hours=1), description="a duration such as 1h")
    headroom: Duration = Field(default=timedelta(hours=24), description="a duration such as 24h")


class EventTimeSection(Section):
    """Where a record says when it happened."""

    field: DottedPath | None = Field(
        default=None, description="the path of a field such as created_at or meta.created_at"
    )
    source: Annotated[TimeSource, BeforeValidator(one_of(TimeSource))] | None = Field(
        default=None, description="kafka, or no such key where field is given"
    )
    format: Annotated[TimeFormat, BeforeValidator(one_of(TimeFormat))] = Field(
        default=TimeFormat.ISO8601, description="one of iso8601, epoch_s, epoch_ms, epoch_us"
    )
    zone: Zone = Field(default="UTC", description="a zone such as Europe/Amsterdam or UTC")


class ValiditySection(Section):
    """How far an event time may lie from Kafka's own timestamp."""

    past: Duration = Field(default=timedelta(days=30), description="a duration such as 30d")
    future: Duration = Field(default=timedelta(days=1), description="a duration such as 1d")


class RecordSection(Section):
    """How a record is read, and which of it is written."""

    format: Annotated[RecordFormat, BeforeValidator(one_of(RecordFormat))] = Field(
        default=RecordFormat.JSON, description="one of json, raw"
    )
    columns: Mapped = Field(
        default_factory=dict, description="a mapping of column names to types such as order_id: string"
    )
    kafka_columns: Annotated[list[KafkaColumn], BeforeValidator(_kafka_columns)] = Field(
        default_factory=list, description="a list of key, headers"
    )


class LakeSection(Section):
    """Where days are written, and in which files."""

    path: Folder = Field(description="the path of a folder such as ./lake/orders")
    target_file_size: Size = Field(default=ByteSize(256 * 1024**2), description="a size such as 256MiB")
    min_file_size: Size = Field(default=ByteSize(32 * 1024**2), description="a size such as 32MiB")
    compression: Annotated[Compression, BeforeValidator(one_of(Compression))] = Field(
        default=Compression.ZSTD, description="one of zstd, snappy, gzip, none"
    )
    shared: Flag = Field(default=False, description="true or false")


class InvalidSection(Section):
    """How many invalid records a day may have."""

    limit: Share = Field(default=0.001, description="a share such as 0.1% or 0.001")
    floor: Count = Field(default=100, description="a number of records such as 100")


class ConfigFile(Section):
    """The whole configuration of one topic."""

    topic: TopicName = Field(description="the name of a topic such as orders")
    kafka: KafkaSection
    day: DaySection
    event_time: EventTimeSection = Field(default_factory=EventTimeSection)
    validity: ValiditySection = Field(default_factory=ValiditySection)
    record: RecordSection = Field(default_factory=RecordSection)
    lake: LakeSection
    tombstones: Annotated[Tombstones, BeforeValidator(one_of(Tombstones))] = Field(
        default=Tombstones.QUARANTINE, description="one of quarantine, skip"
    )
    invalid: InvalidSection = Field(default_factory=InvalidSection)
    late: Annotated[Late, BeforeValidator(one_of(Late))] = Field(
        default=Late.AMEND, description="one of amend, set_aside"
    )
    spark: Mapped = Field(
        default_factory=dict, description="a mapping of Spark's settings such as spark.master: local[*]"
    )
