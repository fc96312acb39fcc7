"""The keys of a configuration: their types, their defaults and what they mean.

Relies on pydantic. A key's `description` is what a message says was expected; the text below a key is what
docs/CONFIG.md says of it, which is written from here. Rules between keys are in jobs/config/checks.py.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field

from jobs.config.fields import (
    CalendarDate,
    Count,
    Duration,
    FieldPath,
    Flag,
    HiddenText,
    InvalidValue,
    Keep,
    LakePath,
    Mapped,
    Patience,
    Revealed,
    Servers,
    Share,
    Size,
    Text,
    TextOrSecret,
    TimeText,
    TopicName,
    Zone,
)
from jobs.record.rules import KeyFormat, RecordFormat, Tombstones
from jobs.record.time_format import TimeFormat


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


class Late(StrEnum):
    """What becomes of a record dated before the day that is being settled."""

    AMEND = "amend"
    SET_ASIDE = "set_aside"


class Evolve(StrEnum):
    """Which changes of the contract are taken without being asked."""

    ASK = "ask"
    ADD = "add"


class Samples(StrEnum):
    """What the message of a day with too many invalid records shows of some of them."""

    NONE = "none"
    COORDINATES = "coordinates"
    VALUES = "values"


_TIME_FORMATS = f"one of {', '.join(TimeFormat)}, or a pattern such as dd/MM/yyyy HH:mm:ss"


def one_of(default: StrEnum) -> Any:
    """Make the field of a key that has one of an enum's values."""
    return Field(default=default, description=f"one of {', '.join(type(default))}")


def _listed(value: object) -> object:
    if not isinstance(value, list):
        raise InvalidValue("write it as [key, headers]")
    return value


class Section(BaseModel):
    """A mapping whose keys are known."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )


class SecuritySection(Section):
    """How to reach a broker that wants TLS or a login; applied to librdkafka and to Spark's Java client."""

    protocol: Annotated[Protocol, Revealed] = one_of(Protocol.PLAINTEXT)
    """Whether TLS is used (SSL, SASL_SSL), and whether a user name and a password (the SASL ones)."""
    mechanism: Annotated[Mechanism | None, Revealed] = Field(
        default=None, description="one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
    )
    """How the password is proved. SASL_PLAINTEXT and SASL_SSL need it; the others refuse it."""
    username: HiddenText | None = Field(default=None, description="a user name")
    """The user name. SASL_PLAINTEXT and SASL_SSL need it; the others refuse it."""
    password: HiddenText | None = Field(
        default=None, description="a password, as ${env:NAME} or ${file:PATH}"
    )
    """The password. SASL_PLAINTEXT and SASL_SSL need it; the others refuse it."""
    ca: TextOrSecret | None = Field(
        default=None, description="the path of a PEM file with the authority's certificates"
    )
    """The authorities that may sign the broker's certificate. Without it each client trusts those of its own
    system. For SSL and SASL_SSL only, as all keys below."""
    certificate: TextOrSecret | None = Field(
        default=None, description="the path of a PEM file with our certificate"
    )
    """The client's own certificate, with the chain that signed it, for brokers that ask for one. It needs
    `key`."""
    key: TextOrSecret | None = Field(default=None, description="the path of a PEM file with our private key")
    """The certificate's private key, in PKCS#8 (`-----BEGIN PRIVATE KEY-----`). It needs `certificate`."""
    key_password: HiddenText | None = Field(default=None, description="the password of the private key")
    """The password of an encrypted private key: such a key needs it, any other refuses it."""
    verify_hostname: Flag = Field(default=True, description="true or false")
    """Whether the broker's name must be the one in its certificate."""


class KafkaSection(Section):
    """Where the topic is."""

    bootstrap_servers: Servers = Field(description="host:port, or several with commas or as a list")
    """Where the cluster is first asked: one broker, or several."""
    timeout: Patience = Field(default=timedelta(seconds=30), description="a duration such as 30s")
    """How long a broker that does not answer is tried, 1s at least. Then the last try is waited for, and the
    run ends with 12."""
    security: SecuritySection = Field(default_factory=SecuritySection)


class DaySection(Section):
    """What a day is, and when it is over."""

    zone: Zone = Field(description="a zone such as Europe/Amsterdam or UTC")
    """A day is a calendar date in this zone, 23 to 25 hours long where clocks change."""
    first: CalendarDate = Field(description="a date such as 2026-11-01")
    """The lake's first day. Records dated before it are counted, not written. A lake that has days keeps
    it."""
    grace: Duration = Field(default=timedelta(hours=1), description="a duration such as 1h")
    """How long after its end a day is settled. What arrives later is late."""
    headroom: Duration = Field(default=timedelta(hours=24), description="a duration such as 24h")
    """Warn when Kafka's retention will delete the next offset to be read sooner than this."""


class EventTimeSection(Section):
    """Where a record says when it happened."""

    field: FieldPath | None = Field(
        default=None, description="the path of a field such as created_at or meta.created_at"
    )
    """The field that holds the event time, with dots for nested ones, or a list of names where one of them
    has a dot. JSON needs it or `source`, and not both; raw refuses it."""
    source: Literal["kafka"] | None = Field(
        default=None, description="kafka, or no such key where field is given"
    )
    """Instead of `field`: Kafka's own timestamp. For raw records this is so in any case."""
    format: TimeText = Field(default=TimeFormat.ISO8601, description=_TIME_FORMATS)
    """How the field is written. `iso8601`, or `rfc3339`, is text such as `2026-11-18T10:00:00.5+01:00`, down
    to the second, with T or a blank. `iso8601_lenient` takes that, and `+0100`, `+01`, a comma before the
    fraction, no seconds, and a bare date, which is its midnight. The epochs are whole numbers since 1970:
    days, seconds, milliseconds, microseconds, nanoseconds. A pattern has `yyyy`, `MM`, `dd`, and may have
    `HH`, `mm`, `ss`, `S` for each digit of a fraction, an offset as `X` (`+01`, `+0130`, `Z`), `XX` (`+0100`)
    or `XXX` (`+01:00`), and quotes around other letters, as in `yyyy-MM-dd'T'HH:mm`. What is finer than a
    microsecond is cut off."""
    zone: Zone = Field(default="UTC", description="a zone such as Europe/Amsterdam or UTC")
    """The zone of times that name none: they are read in it, not refused."""


class ValiditySection(Section):
    """How far an event time may lie from Kafka's own timestamp."""

    past: Duration = Field(default=timedelta(days=30), description="a duration such as 30d")
    """How long before Kafka's timestamp an event may have happened. One that is older is invalid."""
    future: Duration = Field(default=timedelta(days=1), description="a duration such as 1d")
    """How long after Kafka's timestamp an event may claim to happen. One that is later is invalid."""


class ColumnSection(Section):
    """A column that is not simply the field of its name, written as a mapping."""

    from_: FieldPath | None = Field(
        default=None, alias="from", description="the path of a field such as address.city"
    )
    """Where the record holds the value: a path with dots, or a list of names where one of them has a dot, as
    in `[payload, "order.id"]`. Without it the value has the column's own name. A reserved name can stand
    here. Where a field on the way is missing or null, the value is null; where it is no object, the record is
    invalid. Of a field that is there twice the last counts, whole. Columns may share a place where they are
    decoded alike, as `string` and `timestamp`, or lie inside one that is a struct; they may not lie inside
    any other type."""
    type: Text = Field(description="a type such as string or array<bigint>")
    """The column's type, as in the short form."""
    format: TimeText | None = Field(default=None, description=_TIME_FORMATS)
    """How the timestamps and dates in the column are written, also inside arrays, maps and structs: see
    `event_time.format`. Without it a timestamp is `iso8601` with a zone, unless it is the event time, which
    is read as that; a date is `2026-11-18`. With it a date is that of the time as it is written, or of a
    number the date in UTC."""
    zone: Zone | None = Field(default=None, description="a zone such as Europe/Amsterdam or UTC")
    """The zone of timestamps that name none. Without it they make the record invalid. It needs `format`; a
    pattern without an offset needs it."""


class KeySection(Section):
    """A record's key as columns of its own, after the record's; `kafka_columns: [key]` keeps its bytes."""

    format: KeyFormat = one_of(KeyFormat.TEXT)
    """How a key is read: as the text of one column, of type `string` or `bigint` (digits), or as a JSON
    object. Without a key the columns are null. A key that cannot be read makes the record invalid."""
    columns: Mapped = Field(
        default_factory=dict, description="a mapping of column names to types such as customer_id: string"
    )
    """The columns, as in `record.columns`, whose names they cannot share. Without any, keys are not decoded.
    raw refuses them."""


class RecordSection(Section):
    """How a record is read, and which of it is written."""

    format: RecordFormat = one_of(RecordFormat.JSON)
    """How a record's value is read. raw keeps value, key and headers as bytes."""
    columns: Mapped = Field(
        default_factory=dict, description="a mapping of column names to types such as order_id: string"
    )
    """The columns, by their names in JSON, each with its type; or with a mapping, as below, where the field
    has another name, lies deeper, or holds its times in another form. JSON needs one at least, raw refuses
    them. Types: `string`, `boolean`, `int`, `bigint`, `float`, `double`, `decimal(10,2)`, `date`,
    `timestamp`, `binary` (base64 in JSON), `json` (any value, kept as its text), `array<...>`,
    `struct<name:type,...>`, `map<string,...>`. Missing and null are null; a value of another type makes the
    record invalid. Reserved as names of columns, in any case: `date`, `event_time`, `kafka_*`."""
    key: KeySection = Field(default_factory=KeySection)
    kafka_columns: Annotated[list[Literal["key", "headers"]], BeforeValidator(_listed)] = Field(
        default_factory=list, description="a list of key, headers"
    )
    """What else of the record is written: key as `kafka_key`, headers as `kafka_headers`. Headers that are
    not named here are not read at all. raw always keeps both, and refuses a shorter list."""
    evolve: Evolve = one_of(Evolve.ASK)
    """Which changes of columns a run takes without `--accept-contract`. ask: none. add: those that only add
    columns, or fields of a struct."""


class StoreSection(Section):
    """How to reach the bucket of a lake, where its environment does not say it already.

    Without these keys a store is reached as its own tools reach it: by the variables of the environment
    (`AWS_*`, `GOOGLE_*`, `AZURE_*`), or by the identity that a machine or a workload has.
    """

    endpoint: Text | None = Field(default=None, description="an address such as https://minio.example:9000")
    """Where the store is, if it is not that of Amazon, Google or Microsoft."""
    allow_http: Flag = Field(default=False, description="true or false")
    """Whether an endpoint without TLS is taken."""
    ca: Text | None = Field(
        default=None, description="the path of a PEM file with the authority's certificates"
    )
    """The authorities that may sign the store's certificate, beside those of the system."""
    timeout: Patience = Field(default=timedelta(minutes=2), description="a duration such as 2m")
    """How long a store is tried that does not answer, or that answers that it is busy. Then the run ends."""
    region: Text | None = Field(default=None, description="a region such as eu-west-1")
    """S3: the bucket's region."""
    virtual_hosted: Flag = Field(default=False, description="true or false")
    """S3: whether the bucket is named in the host, and not in the path."""
    access_key_id: TextOrSecret | None = Field(default=None, description="the id of an access key")
    """S3: the id of an access key. It needs `secret_access_key`."""
    secret_access_key: HiddenText | None = Field(
        default=None, description="a secret, as ${env:NAME} or ${file:PATH}"
    )
    """S3: the secret of that key."""
    session_token: HiddenText | None = Field(
        default=None, description="a token, as ${env:NAME} or ${file:PATH}"
    )
    """S3: the token of a key that is valid for some hours."""
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = Field(
        default=None, description="one of AES256, aws:kms, aws:kms:dsse"
    )
    """S3: how new objects are encrypted, if not as the bucket says."""
    kms_key: Text | None = Field(default=None, description="the id of a key of KMS")
    """S3: the key for `aws:kms`."""
    service_account: Text | None = Field(default=None, description="the path of a JSON file")
    """Google: the key of a service account."""
    account: Text | None = Field(default=None, description="the name of a storage account")
    """Azure: the storage account."""
    account_key: HiddenText | None = Field(default=None, description="a key, as ${env:NAME} or ${file:PATH}")
    """Azure: the account's key."""
    sas: HiddenText | None = Field(default=None, description="a token, as ${env:NAME} or ${file:PATH}")
    """Azure: a shared access signature."""


class LakeSection(Section):
    """Where days are written, and in which files."""

    path: LakePath = Field(description="a folder such as ./lake/orders, or s3://bucket/orders")
    """The lake's folder, which is made where it is missing; a relative path counts from the config's folder.
    Or a prefix in a bucket: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`."""
    store: StoreSection = Field(default_factory=StoreSection)
    target_file_size: Size = Field(default=ByteSize(256 * 1024**2), description="a size such as 256MiB")
    """The size that files should have; none grows beyond 1.15 times it. At least 1MiB. Where only
    `min_file_size` is written, this is eight times it, and 256MiB at least."""
    min_file_size: Size = Field(default=ByteSize(32 * 1024**2), description="a size such as 32MiB")
    """The size below which no file stays but a remainder; at most the target. Where it is not written, it is
    an eighth of the target, and 32MiB at most."""
    compression: Literal["zstd", "snappy", "gzip", "none"] = Field(
        default="zstd", description="one of zstd, snappy, gzip, none"
    )
    """How Parquet pages are compressed."""
    keep: Keep | None = Field(default=None, description="a number of days such as 400d")
    """How many days stay, counted back from the newest. After each commit the older ones are removed, as
    `expire` removes them: their entries in `_ledger/` still say what they were. Without it all days stay. At
    least 2d."""
    shared: Flag = Field(default=False, description="true or false")
    """True where spark.master is a cluster and each node sees the path. A cluster is refused without
    it."""
    success_file: Flag = Field(default=False, description="true or false")
    """Whether a day's folder gets an empty file `_SUCCESS`, in the same step as all else, for programs that
    wait for one. The folder itself says as much."""


class InvalidSection(Section):
    """How many invalid records a day may have."""

    limit: Share = Field(default=0.001, description="a share such as 0.1% or 0.001")
    """The share of the judged records that may be invalid. A day with more of them is not committed (26),
    unless `floor` allows it. 100% lets any day pass."""
    floor: Count = Field(default=100, description="a number of records such as 100")
    """So many invalid records pass whatever their share, if they are not most of the records that have a
    value. Where it is not written and `limit` is 0%, it is 0."""
    samples: Samples = one_of(Samples.COORDINATES)
    """What the message about too many invalid records shows of three of them, beside the causes. none:
    nothing; coordinates: partition and offset, for `show`; values: the begin of each value too. Messages go
    into logs, and values may be personal data."""


class ConfigFile(Section):
    """The whole configuration of one topic."""

    topic: TopicName = Field(description="the name of a topic such as orders")
    """The topic. All its partitions are read. Its name has 1 to 249 of the characters `a-z A-Z 0-9 . _ -`."""
    kafka: KafkaSection
    day: DaySection
    event_time: EventTimeSection = Field(default_factory=EventTimeSection)
    validity: ValiditySection = Field(default_factory=ValiditySection)
    record: RecordSection = Field(default_factory=RecordSection)
    lake: LakeSection
    tombstones: Tombstones = one_of(Tombstones.QUARANTINE)
    """What becomes of a record without a value: quarantine writes it to `_invalid/`, skip counts it. raw
    keeps it as a row, and refuses skip."""
    invalid: InvalidSection = Field(default_factory=InvalidSection)
    late: Late = one_of(Late.AMEND)
    """What becomes of a record dated before its day. amend: once that night's day is committed, it is brought
    into the day that it belongs to. set_aside: it stays in `_late/` of the day that settled it."""
    spark: Mapped = Field(
        default_factory=dict, description="a mapping of Spark's settings such as spark.master: local[*]"
    )
    """Spark's own settings. What the job fixes (time zone, jars, Python, Arrow's batches) is refused, each
    with the reason. spark.master is local[*] where it is not written."""
