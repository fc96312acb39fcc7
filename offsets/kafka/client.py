"""The client that asks a Kafka broker about one topic, and reads single records.

With `fetch`, the only code of a run that uses librdkafka. Relies on the admin API for offsets, and on a
consumer without group offsets for records. Never creates a topic and never commits offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

import structlog
import tenacity
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

# confluent_kafka.admin imports them from its own modules and does not mark them as exported
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from offsets.checkpoint import TopicIdentity
from offsets.day_plan import LogOffsets
from offsets.errors import BrokerUnavailable, ConfigError, OffsetsLost
from offsets.kafka.fetch import Contents, EndsEarly, Fetched, Fetcher, Presence, Sample
from offsets.kafka.reader import FullRecord, SeenRecord, Stretch, TopicDescription, out_of_range, retention_of
from offsets.kafka.trouble import advice_for, without_noise
from offsets.ranges import Offsets, Range

log = structlog.get_logger(__name__)
T = TypeVar("T")
Item = TypeVar("Item")

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
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
SECRETS: Final = ("sasl.password", "sasl.username", "ssl.key.password")
BEYOND = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
ELECTED: Final = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._NOENT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""The errors that a client gets until it knows a partition's new leader, and until that leader caught up."""
SAMPLED_AT_ONCE: Final = 128
"""How many partitions are sampled at a time: a fetch may bring 128 KiB of each."""
READ_AT_ONCE: Final = 8
"""How many partitions are read whole at a time."""
MANY: Final = {
    "fetch.message.max.bytes": 8 << 20,
    "fetch.max.bytes": 8 << 20,
    "queued.max.messages.kbytes": 64 << 10,
}
"""Settings of a client that reads whole ranges, not a few records here and there."""
AT_ONCE: Final = 50_000
BYTES_AT_ONCE: Final = 32 << 20
"""How many records, or bytes, of a stream are held in memory at a time."""
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class Broker:
    """A broker, through librdkafka; a request without an answer is repeated until `timeout`."""

    def __init__(self, client: Mapping[str, str], timeout: timedelta) -> None:
        """Make the clients; nothing is sent yet. `client` are librdkafka properties."""
        self._timeout = timeout
        self._request = min(timeout / 3, LONGEST_REQUEST).total_seconds()
        self._servers = client["bootstrap.servers"]
        self._secrets = [client[name] for name in SECRETS if client.get(name)]
        self._refusal: KafkaError | None = None
        self._last_message = ""
        common: dict[str, Any] = {
            **client,
            "error_cb": self._on_error,
            "logger": _QuietLogger(self._note),
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
            # reads are short, and a request that waits at the end of a log delays the other partitions
            "fetch.wait.max.ms": 1,
            "fetch.message.max.bytes": 128 * 1024,
            "queued.max.messages.kbytes": 4096,
            # progress is seen only when an answer is complete, so no answer may take long
            "fetch.max.bytes": 1 << 20,
            # a full queue is soon empty again, so that fetching may continue at once
            "fetch.queue.backoff.ms": 10,
            "allow.auto.create.topics": False,
        }
        self._small: Fetcher | None = None
        self._large: Fetcher | None = None
        self._hidden: dict[tuple[str, int], list[Range]] = {}

    def close(self) -> None:
        """Close all connections that hold resources."""
        self.release()

    def release(self) -> None:
        """Close the consumers until the next request: librdkafka queues statistics while nobody polls."""
        for client in (self._small, self._large):
            if client is not None:
                client.close()
        self._small = self._large = None

    def describe(self, topic: str) -> TopicDescription:
        """Describe a topic.

        Raises:
            ConfigError: the broker has no such topic.
        """
        # the topic may have been recreated since: then other offsets are invisible
        self._hidden.clear()
        cluster = self._with_retries("the cluster", self._metadata)
        try:
            description = self._ask(
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
        size = settings.get("retention.bytes")
        largest = settings.get("max.message.bytes")
        return TopicDescription(
            identity=TopicIdentity(
                name=topic, topic_id=str(description.topic_id), cluster_id=str(cluster.cluster_id)
            ),
            partitions=tuple(sorted(part.id for part in description.partitions)),
            cleanup_policy=settings.get("cleanup.policy"),
            retention=retention_of(settings.get("retention.ms")),
            retention_bytes=int(size) if size is not None else None,
            largest_message=int(largest) if largest is not None else None,
        )

    def log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Return log start, last stable offset and high watermark of each partition."""
        wanted = list(partitions)
        starts = self._list_offsets(topic, dict.fromkeys(wanted, EARLIEST), UNCOMMITTED)
        stable = self._list_offsets(topic, dict.fromkeys(wanted, LATEST), COMMITTED)
        highs = self._list_offsets(topic, dict.fromkeys(wanted, LATEST), UNCOMMITTED)
        return {
            part: LogOffsets(
                partition=part, log_start=starts[part], last_stable=stable[part], high=highs[part]
            )
            for part in wanted
        }

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        """Return per partition the first offset stamped at or after an instant (ms).

        Records of open transactions count. None means that the broker holds no such record.
        """
        specs = {part: OffsetSpec.for_timestamp(instant) for part, instant in instants.items()}
        offsets = self._list_offsets(topic, specs, UNCOMMITTED)
        return {part: offset if offset >= 0 else None for part, offset in offsets.items()}

    def records_of(self, topic: str, wanted: Mapping[int, Stretch]) -> dict[int, list[SeenRecord]]:
        """Read the first visible records of one stretch per partition, up to its limit.

        Raises:
            OffsetsLost: a log now starts after the beginning of its stretch, or ends before its end.
        """
        samples = {
            part: Sample(stretch, self._skip_hidden(topic, part, stretch.from_))
            for part, stretch in wanted.items()
        }
        unread = {
            part: sample
            for part, sample in samples.items()
            if sample.at < sample.stretch.until and sample.stretch.limit > 0
        }
        for batch in _batches(unread, SAMPLED_AT_ONCE):
            self._read(topic, self._sampler(), batch, stop_if_invisible=True)
            unfinished = {part: sample for part, sample in batch.items() if not sample.done}
            for group in _batches(unfinished, READ_AT_ONCE):
                self._read(topic, self._reader(), group)
            for part, sample in unfinished.items():
                self._hidden.setdefault((topic, part), []).extend(sample.hidden)
        return {part: sample.seen for part, sample in samples.items()}

    def present_of(self, topic: str, wanted: Mapping[int, Range]) -> dict[int, Offsets]:
        """Return the offsets of all visible records of one range per partition.

        Raises:
            OffsetsLost: a log now starts after the beginning of its range, or ends before its end.
        """
        starts = {part: self._skip_hidden(topic, part, from_) for part, (from_, _) in wanted.items()}
        presences = {
            part: Presence(starts[part], until) for part, (_, until) in wanted.items() if starts[part] < until
        }
        for group in _batches(presences, READ_AT_ONCE):
            self._read(topic, self._reader(), group)
            self._hidden.update(
                {(topic, part): [presence.hidden] for part, presence in group.items() if presence.hidden}
            )
        return {part: presences[part].offsets if part in presences else Offsets() for part in wanted}

    def sample(
        self, topic: str, partition: int, from_: int, until: int, limit: int, *, headers: bool = False
    ) -> list[FullRecord]:
        """Read up to about `limit` bytes of visible records in `[from_, until)`.

        Returns none if retention took them, or if too many invisible records precede them.
        """
        # known=0: a sample does not wait for a leader that has not caught up
        contents = Contents(at=from_, until=until, rows=until - from_, bytes=limit, headers=headers, known=0)
        try:
            self._read(
                topic, self._sampler(), {partition: contents} if from_ < until else {}, stop_if_invisible=True
            )
        except OffsetsLost:
            return []
        return contents.records

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Yield all visible records of `[from_, until)`, reading few at a time, with `headers` if asked.

        Raises:
            OffsetsLost: the log now starts after `from_`.
        """
        while from_ < until:
            reader = self._reader()
            contents = Contents(
                at=from_, until=until, rows=AT_ONCE, bytes=BYTES_AT_ONCE, headers=headers, known=until
            )
            # keep_ahead: otherwise the client would fetch up to 64 MiB, which it holds already, again
            self._read(topic, reader, {partition: contents}, keep_ahead=True)
            if contents.ended:
                reader.forget()
            yield from contents.records
            from_ = until if contents.ended else contents.at

    def _read(
        self,
        topic: str,
        fetcher: Fetcher,
        wanted: Mapping[int, Fetched],
        *,
        stop_if_invisible: bool = False,
        keep_ahead: bool = False,
    ) -> None:
        """Read, and continue if a silent broker or a leader that has not caught up interrupts the read."""

        def read() -> None:
            try:
                fetcher.read(topic, wanted, stop_if_invisible=stop_if_invisible, keep_ahead=keep_ahead)
            except EndsEarly as early:
                self._require_readable(topic, early, wanted)
                raise

        try:
            self._with_retries(f"records of {topic}", read, lambda: fetcher.moved)
        except KafkaException as error:
            problem, *where = error.args
            if problem.code() not in BEYOND:
                raise
            raise out_of_range(topic, where[0], wanted[where[0]].at, problem.str()) from None

    def _require_readable(self, topic: str, early: EndsEarly, wanted: Mapping[int, Fetched]) -> None:
        """Check that the log did not shrink: a leader that has not caught up would not answer."""
        message, part = early.args[0].str(), early.args[1]
        stable = self._list_offsets(topic, {part: LATEST}, COMMITTED)[part]
        if stable < wanted[part].known:
            problem = f"{message}; its last stable offset is {stable} now"
            raise out_of_range(topic, part, wanted[part].at, problem) from None
        self._note(message)

    def _skip_hidden(self, topic: str, partition: int, from_: int) -> int:
        """Return where to start, after ranges known to be invisible: below the LSO these never change."""
        for hidden, until in self._hidden.get((topic, partition), ()):
            if hidden <= from_ < until:
                from_ = until
        return from_

    def _sampler(self) -> Fetcher:
        if self._small is None:
            self._small = Fetcher(self._consumer_settings, self._request)
        return self._small

    def _reader(self) -> Fetcher:
        if self._large is None:
            patience = self._timeout.total_seconds()
            self._large = Fetcher({**self._consumer_settings, **MANY}, patience)
        return self._large

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
            try:
                return {where.partition: self._result(answer).offset for where, answer in answers.items()}
            except KafkaException as error:
                if error.args[0].code() in ELECTED:
                    self._metadata()  # the answer holds the new leader's epoch
                raise

        return self._with_retries(f"offsets of {topic}", ask)

    def _settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            entries = self._ask(
                f"settings of {topic}",
                lambda: self._admin.describe_configs([resource], request_timeout=self._request)[resource],
            )
        except (KafkaException, ConfigError) as error:
            log.warning("the broker does not show the topic's settings", topic=topic, error=str(error))
            return {}
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def _metadata(self) -> ClusterMetadata:
        """Return the cluster's id and brokers.

        describe_cluster is not used: if a restarting cluster names no broker yet, an assertion in librdkafka
        2.16 ends the whole process there, and in describe_topics.
        """
        try:
            metadata = self._admin.list_topics(timeout=min(self._request, 5.0))
        except KafkaException:
            self._admin.poll(0)
            raise
        if not metadata.brokers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker is ready yet"))
        return metadata

    def _ask(self, what: str, send: Callable[[], Future[T]]) -> T:
        def ask() -> T:
            try:
                return self._result(send())
            except KafkaException as error:
                if _is_transient(error):
                    self._metadata()  # the answer names the controller, for which the client waits
                raise

        return self._with_retries(what, ask)

    def _result(self, answer: Future[T]) -> T:
        """Wait for an answer, and poll: only then does the admin client report refused credentials."""
        while True:
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                self._admin.poll(0)
                if self._refusal is not None:
                    raise KafkaException(self._refusal) from None

    def _with_retries(self, what: str, ask: Callable[[], T], moved: Callable[[], float] = lambda: 0.0) -> T:
        """Ask again, with growing pauses, while the broker is silent.

        `moved` returns when the broker last sent something; the timeout counts from then.
        """
        began, patience, self._last_message = time.monotonic(), self._timeout.total_seconds(), ""
        pause = tenacity.wait_exponential_jitter(multiplier=0.2, max=5)

        def silent() -> float:
            return time.monotonic() - max(began, moved())

        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: self._refusal is None and _is_transient(error)),
            wait=lambda state: min(pause(state), max(patience - silent(), 0.0)),
            stop=lambda _: silent() >= patience,
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
            message = self._last_message or error.args[0].str()
            raise BrokerUnavailable(
                expected=f"an answer from {self._servers} about {what}",
                found=f"none in {silent():.0f} s and {tries.statistics['attempt_number']}"
                f" tries ({without_noise(message, self._secrets)})",
                do=advice_for(message),
            ) from None

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            refused = self._refusal or error.args[0]
            if refused.code() not in REFUSED:
                raise
            raise ConfigError(
                expected=f"{self._servers} to accept the credentials of kafka.security",
                found=without_noise(refused.str(), self._secrets),
                do=advice_for(
                    refused.str(),
                    "Correct kafka.security, or ask for the rights to read the topic and to describe"
                    " the groups kafka-daily-*.",
                ),
            ) from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self._refusal = error
        self._note(error.str())

    def _note(self, message: str) -> None:
        """Store the client's last message about a broker that it cannot reach."""
        if "brokers are down" not in message:
            self._last_message = message

    def _unknown_topic(self, topic: str) -> ConfigError:
        return ConfigError(
            expected=f"a topic named {topic!r} at {self._servers}",
            found="no such topic (it was not created)",
            do="Correct the topic's name (`topic` in the config), or create the topic.",
        )


class _QuietLogger:
    """Receives librdkafka's log lines, which would otherwise go to stderr, and passes failures to `note`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def log(self, level: int, message: str, *args: object) -> None:
        line = message % args if args else message
        log.debug("librdkafka", level=level, message=line)
        if line.startswith("FAIL "):
            self._note(line)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda message, *args, **_: self.log(0, message, *args)


def _batches(wanted: Mapping[int, Item], size: int) -> Iterator[dict[int, Item]]:
    """Split a mapping into mappings of at most `size` entries."""
    items = list(wanted.items())
    return (dict(items[at : at + size]) for at in range(0, len(items), size))


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
            KafkaError.REQUEST_TIMED_OUT,
            *ELECTED,
        }
    )
