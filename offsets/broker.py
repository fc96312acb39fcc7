"""What a Kafka broker says of one topic.

The only module that speaks to the broker with librdkafka. Relies on the admin API for offsets and on a
consumer, without any group's offsets, for single records. Never creates a topic and never commits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, cast

import structlog
import tenacity
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)

# it takes them from modules of its own and does not mark them as exported
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from offsets.errors import BrokerUnavailable, ConfigWrong, OffsetsLost
from offsets.model import TopicIdentity, Watermarks
from offsets.ranges import Offsets, Range
from offsets.topic import FullRecord, Headers, SeenRecord, TopicDescription, digest_of

log = structlog.get_logger(__name__)
T = TypeVar("T")

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
# confluent-kafka leaves them untyped
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
LONGEST_REQUEST = timedelta(seconds=10)
REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
BEYOND = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
MANY: Final = {"fetch.message.max.bytes": 8 << 20, "queued.max.messages.kbytes": 64 << 10}
"""What a client needs that reads all there is, not a few records here and there."""
AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 8 << 20
"""So many records, or bytes, of a stream are held at a time."""
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class Broker:
    """A broker, as librdkafka sees it, with patience: every question is asked again until `timeout`."""

    def __init__(self, client: Mapping[str, str], timeout: timedelta) -> None:
        """Prepare clients; nothing is sent yet. `client` are librdkafka properties."""
        self._timeout = timeout
        self._request = min(timeout / 3, LONGEST_REQUEST).total_seconds()
        self._servers = client["bootstrap.servers"]
        self._refusal: KafkaError | None = None
        common: dict[str, Any] = {
            **client,
            "error_cb": self._on_error,
            "logger": _QuietLogger(),
            "client.id": "kafka-daily",
        }
        self._admin = AdminClient({**common, "socket.timeout.ms": int(self._request * 1000)})
        self._consumer_settings = {
            **common,
            "group.id": f"kafka-daily-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # reads are short: a request that waits at the log's end holds up the next partition's
            "fetch.wait.max.ms": 1,
            "fetch.message.max.bytes": 128 * 1024,
            "queued.max.messages.kbytes": 4096,
            "allow.auto.create.topics": False,
        }
        self._consumer: Consumer | None = None
        self._reader: Consumer | None = None

    def close(self) -> None:
        """Leave the broker."""
        for client in (self._consumer, self._reader):
            if client is not None:
                client.close()

    def describe(self, topic: str) -> TopicDescription:
        """Describe a topic.

        Raises:
            ConfigWrong: the broker has no such topic; it is not created.
        """
        cluster = self._patiently("the cluster", self._metadata)
        try:
            found = self._ask(
                f"topic {topic}",
                lambda: self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._request)[
                    topic
                ],
            )
        except KafkaException as error:
            if error.args[0].code() in UNKNOWN:
                raise self._unknown_topic(topic) from None
            raise
        settings = self._settings(topic)
        retention, size = settings.get("retention.ms"), settings.get("retention.bytes")
        largest = settings.get("max.message.bytes")
        return TopicDescription(
            identity=TopicIdentity(
                name=topic, topic_id=str(found.topic_id), cluster_id=str(cluster.cluster_id)
            ),
            partitions=tuple(sorted(part.id for part in found.partitions)),
            cleanup_policy=settings.get("cleanup.policy"),
            retention=timedelta(milliseconds=int(retention)) if retention not in (None, "-1") else None,
            retention_bytes=int(size) if size is not None else None,
            largest_message=int(largest) if largest is not None else None,
        )

    def watermarks(self, topic: str, partitions: Iterable[int]) -> dict[int, Watermarks]:
        """Give log start, last stable offset and high watermark of each partition."""
        wanted = list(partitions)
        starts = self._list_offsets(topic, dict.fromkeys(wanted, EARLIEST), UNCOMMITTED)
        stable = self._list_offsets(topic, dict.fromkeys(wanted, LATEST), COMMITTED)
        highs = self._list_offsets(topic, dict.fromkeys(wanted, LATEST), UNCOMMITTED)
        return {
            part: Watermarks(
                partition=part, log_start=starts[part], last_stable=stable[part], high=highs[part]
            )
            for part in wanted
        }

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        """Give per partition the first offset stamped at or after an instant (ms).

        Records of open transactions count.
        None means that the broker holds no such record, and said so without an error.
        """
        specs = {part: OffsetSpec.for_timestamp(instant) for part, instant in instants.items()}
        found = self._list_offsets(topic, specs, UNCOMMITTED)
        return {part: offset if offset >= 0 else None for part, offset in found.items()}

    def records(self, topic: str, partition: int, from_: int, until: int, limit: int) -> list[SeenRecord]:
        """Read up to `limit` visible records of `[from_, until)`; fewer mean that there are no more."""
        if from_ >= until or limit <= 0:
            return []
        return self._patiently(
            f"records of {topic}-{partition}", lambda: self._read(topic, partition, from_, until, limit)
        )

    def _read(self, topic: str, partition: int, from_: int, until: int, limit: int) -> list[SeenRecord]:
        if self._consumer is None:
            self._consumer = Consumer(self._consumer_settings)
        self._consumer.assign([TopicPartition(topic, partition, from_)])
        seen: list[SeenRecord] = []
        for message in _messages(self._consumer, self._request):
            offset = message.offset()
            if offset is None or offset >= until:
                break
            seen.append(_seen(message, offset))
            if len(seen) == limit or offset == until - 1:
                # no need to see what follows, or to wait until the broker says that nothing does
                break
        self._consumer.unassign()
        return seen

    def present(self, topic: str, partition: int, from_: int, until: int) -> Offsets:
        """Give the offsets of all visible records of `[from_, until)`.

        Raises:
            OffsetsLost: the log starts above `from_` by now.
        """
        if from_ >= until:
            return Offsets()
        with _beyond(topic, partition, from_):
            return self._patiently(
                f"records of {topic}-{partition}", lambda: self._all_of(topic, partition, from_, until)
            )

    def _all_of(self, topic: str, partition: int, from_: int, until: int) -> Offsets:
        if self._reader is None:
            self._reader = Consumer({**self._consumer_settings, **MANY})
        self._reader.assign([TopicPartition(topic, partition, from_)])
        ranges: list[Range] = []
        for message in _messages(self._reader, self._request):
            offset = message.offset()
            if offset is None or offset >= until:
                break
            if ranges and ranges[-1][1] == offset:
                ranges[-1] = (ranges[-1][0], offset + 1)
            else:
                ranges.append((offset, offset + 1))
            if offset == until - 1:
                break
        self._reader.unassign()
        return Offsets(ranges)

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Read all visible records of `[from_, until)`, few at a time; headers only when asked for.

        Raises:
            OffsetsLost: the log starts above `from_` by now.
        """
        reader = Consumer({**self._consumer_settings, **MANY})
        what, at, more = f"records of {topic}-{partition}", from_, from_ < until
        try:
            while more:
                ask = partial(self._some, reader, TopicPartition(topic, partition, at), until)
                with _beyond(topic, partition, at):
                    found, more = self._patiently(what, ask)
                for message in found:
                    record = _full(message, headers=headers)
                    at = record.offset + 1
                    yield record
        finally:
            reader.close()

    def _some(self, reader: Consumer, where: TopicPartition, until: int) -> tuple[list[Message], bool]:
        """Read on from an offset, up to AT_ONCE; the second value tells whether there is more."""
        if reader.position([where])[0].offset != where.offset:
            # at the start, and where a try before failed half-way
            reader.assign([where])
        found: list[Message] = []
        size = 0
        for message in _messages(reader, self._request):
            offset = message.offset()
            if offset is None or offset >= until:
                return found, False
            found.append(message)
            size += len(message)
            if offset == until - 1:
                return found, False
            if len(found) >= AT_ONCE or size >= BYTES_AT_ONCE:
                return found, True
        return found, False

    def _list_offsets(
        self, topic: str, specs: Mapping[int, OffsetSpec], isolation: IsolationLevel
    ) -> dict[int, int]:
        request = {TopicPartition(topic, part): spec for part, spec in specs.items()}
        if not request:
            return {}

        def ask() -> dict[int, int]:
            answers = self._admin.list_offsets(
                request, isolation_level=isolation, request_timeout=self._request
            )
            return {where.partition: self._result(answer).offset for where, answer in answers.items()}

        return self._patiently(f"offsets of {topic}", ask)

    def _settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            entries = self._ask(
                f"settings of {topic}",
                lambda: self._admin.describe_configs([resource], request_timeout=self._request)[resource],
            )
        except (KafkaException, ConfigWrong) as error:
            log.warning("the broker does not show the topic's settings", topic=topic, error=str(error))
            return {}
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def _metadata(self) -> ClusterMetadata:
        """Ask for the cluster's id and brokers.

        Not by describe_cluster: while a cluster names no broker, as one does that is just coming back,
        librdkafka 2.16 ends the whole process by an assertion there, and in describe_topics.
        """
        try:
            found = self._admin.list_topics(timeout=min(self._request, 5.0))
        except KafkaException:
            self._admin.poll(0)
            raise
        if not found.brokers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker is ready yet"))
        return found

    def _ask(self, what: str, send: Callable[[], Future[T]]) -> T:
        return self._patiently(what, lambda: self._result(send()))

    def _result(self, answer: Future[T]) -> T:
        """Wait for an answer; the admin client tells of refused credentials only when it is polled."""
        while True:
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                self._admin.poll(0)
                if self._refusal is not None:
                    raise KafkaException(self._refusal) from None

    def _patiently(self, what: str, ask: Callable[[], T]) -> T:
        """Ask again, with growing pauses, while the broker is silent."""
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: self._refusal is None and _is_transient(error)),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5),
            stop=tenacity.stop_after_delay(self._timeout.total_seconds()),
            before_sleep=lambda state: log.warning(
                "the broker does not answer yet", asked=what, tries=state.attempt_number
            ),
            reraise=True,
        )
        try:
            with self._refusals():
                return tries(ask)
        except KafkaException as error:
            if not _is_transient(error):
                raise
            raise BrokerUnavailable(
                expected=f"an answer from {self._servers} about {what}",
                found=f"none in {self._timeout.total_seconds():g} s and {tries.statistics['attempt_number']}"
                f" tries ({error.args[0].str()})",
                do="Check kafka.bootstrap_servers and the network, or run again later; nothing was changed.",
            ) from None

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            refused = self._refusal or error.args[0]
            if refused.code() not in REFUSED:
                raise
            raise ConfigWrong(
                expected=f"{self._servers} to accept the credentials of kafka.security",
                found=refused.str(),
                do="Correct kafka.security, or ask for the right to read and describe the topic.",
            ) from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self._refusal = error

    def _unknown_topic(self, topic: str) -> ConfigWrong:
        return ConfigWrong(
            expected=f"a topic named {topic!r} at {self._servers}",
            found="no such topic (it was not created)",
            do="Correct `topic` in the config, or create the topic.",
        )


class _QuietLogger:
    """librdkafka's own lines, which would otherwise reach stderr unformatted."""

    def log(self, level: int, message: str, *args: object) -> None:
        log.debug("librdkafka", level=level, message=message % args if args else message)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda message, *args, **_: self.log(0, message, *args)


def _messages(consumer: Consumer, patience: float) -> Iterator[Message]:
    """Give messages until the end of the partition; a silent broker is an error."""
    while True:
        message = consumer.poll(patience)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no record and no end of the partition"))
        problem = message.error()
        if problem is None:
            yield message
        elif problem.code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(problem)


@contextmanager
def _beyond(topic: str, partition: int, from_: int) -> Iterator[None]:
    """Turn the answer that an offset is out of range into what it means."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in BEYOND:
            raise
        raise OffsetsLost(
            expected=f"partition {partition} of {topic} to begin at or below offset {from_}",
            found=error.args[0].str(),
            do="Ask for the log start again.",
        ) from None


def _full(message: Message, *, headers: bool) -> FullRecord:
    offset = message.offset()
    assert offset is not None, "only an error has none"
    kind, timestamp = message.timestamp()
    stamp = -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
    more = cast(Headers, tuple(message.headers() or ())) if headers else ()
    return FullRecord(offset, stamp, message.key(), message.value(), more)


def _seen(message: Message, offset: int) -> SeenRecord:
    kind, timestamp = message.timestamp()
    key, value = message.key(), message.value()
    return SeenRecord(
        offset=offset,
        timestamp=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        size=len(key or b"") + len(value or b""),
        digest=digest_of(key, value),
    )


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, KafkaException):
        return False
    problem = error.args[0]
    return problem.code() not in REFUSED | UNKNOWN and (
        problem.retriable()
        or problem.code()
        in {
            KafkaError._TRANSPORT,
            KafkaError._TIMED_OUT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._WAIT_COORD,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.REQUEST_TIMED_OUT,
        }
    )
