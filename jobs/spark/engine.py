"""Spark: its session, Kafka's records as a frame, and the job that settles them.

The only module that imports pyspark. Spark plans, reads, distributes and retries; jobs/task/task.py is what a
task does. Relies on jars that set-up has resolved. Never downloads anything.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import pwd
import re
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from functools import reduce
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from jobs import logs
from jobs.config.spark_keys import is_local, local_cores
from jobs.paths import class_archive, conf_folder, jars
from jobs.record.without_pandas import keep_pandas_out
from jobs.spark.counts import ReadCounts, counted
from jobs.spark.jvm import Jvm
from jobs.spark.worker import drop_zip_importers
from jobs.task.batch_limit import LACK_OF_MEMORY, BatchLimit
from jobs.task.result import TaskResult
from jobs.task.task import TaskSpec, rebatch, run_task
from offsets.errors import ConfigError, KafkaDailyError, RunFailed
from offsets.ranges import Offsets

log = structlog.get_logger(__name__)
# py4j raises what it logs, in part by the root logger; and it logs a signal as an error
logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: "/py4j/" not in record.pathname)
Progress = Callable[[int, int], None]

FIXED: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.speculation": "false",
    # a task that finds too little memory fails, and is tried otherwise, where Spark would end the JVM
    "spark.executor.killOnFatalError.depth": "0",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.python.worker.reuse": "true",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
}
DEFAULTS: Final = {
    "spark.app.name": "kafka-daily",
    # with Spark's default of 1g half the time goes to garbage collection: Kafka's client holds much
    "spark.driver.memory": "2g",
    # a task frees and takes the same memory with every row group; memory that is kept for some seconds is
    # not cleared again
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "10000",
}
OTHERS: Final = (
    *("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
)
"""Variables that make pyspark use a session that another process started."""
READ: Final = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # the records of a poll stay in the heap until the task has taken them
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(2 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # the broker holds a fetch at the log's end for this time, and Spark's next request waits behind it
    "kafka.fetch.max.wait.ms": "5",
    # every partition has a client, and nobody reads their metrics
    "kafka.auto.include.jmx.reporter": "false",
    "kafka.enable.metrics.push": "false",
    "kafkaConsumer.pollTimeoutMs": "30000",
}
COMPILER: Final = tuple(
    # code that runs for each record is still compiled early; code that runs for each batch is not worth it
    f"-XX:Tier4{name}Threshold={at}"
    for name, at in {
        "Invocation": 50_000,
        "MinInvocation": 6_000,
        "Compile": 150_000,
        "BackEdge": 400_000,
    }.items()
)
YOUNG_MIB: Final = 96
"""The young generation of the JVM's heap for each core, up to a third of the default heap."""
# stdout is for the command's result
JVM_LOG: Final = ("-Xlog:disable", "-Xlog:all=warning:stderr")
FAILURE: Final = "most recent failure: "
TRACEBACK: Final = "Traceback (most recent call last):"
NEVER: Final = re.compile(
    r"ClassNotFound|NoClassDefFound|NoSuchMethod|ClassCast|IllegalArgument|NumberFormat|FileNotFound|NoSuchFile"
    r"|AccessControl|AccessDenied|Permission denied|Could not parse Master URL|\[INVALID_"
)
"""Exceptions of Java for a setting that it refuses every time."""
THROWN: Final = re.compile(r'(?:\w+\.)+\w*(?:Exception|Error): [^"\\\n]*')
"""An exception in the lines of a log, whatever their layout."""
LATER: Final = re.compile(r"requirement failed")
"""The message where a cluster's master does not answer."""
LOOK: Final = "Look at the log above, then run the day again."
MORE: Final = "Raise spark.driver.memory (2g, unless the config says otherwise), then run the day again."
KILLED: Final = (
    "The kernel kills what takes too much memory, and `dmesg` tells: then lower spark.driver.memory, or the "
    "cores of spark.master. Run the day again."
)
PATIENCE: Final = 5.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ARROW: Final = "spark.sql.execution.arrow"
UNWEIGHED: Final = (1 << 31) - 1
REPORT: Final = pa.schema([("report", pa.binary())])


class Engine:
    """A Spark session that starts when it is first needed and ends with the `with` block."""

    def __init__(
        self, spark: Mapping[str, str], kafka: Mapping[str, str], *, patience: float = PATIENCE
    ) -> None:
        """Take the user's `spark.*` keys, and the options by which Spark reaches the broker.

        `patience` is how many seconds the JVM has to end by itself.
        """
        self._keys, self._kafka, self._patience = dict(spark), dict(kafka), patience
        self.ended: int | None = None
        """How the JVM ended: its exit code."""
        self._session: SparkSession | None = None
        self._failed: KafkaDailyError | None = None
        self._starting = threading.Lock()
        self._jvm = Jvm()

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the session and its JVM."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._jvm.silence()
        if self._jvm.process is None:
            return
        with suppress(Exception):
            if self._session is not None:
                self._session.stop()
        with suppress(Exception):
            if SparkContext._gateway is not None:
                SparkContext._gateway.shutdown()
        # else pyspark would use this JVM for the next session
        SparkContext._gateway = SparkContext._jvm = None
        self.ended = self._jvm.end(self._patience)

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        with self._errors():
            return self.session.sparkContext.defaultParallelism

    @property
    def session(self) -> SparkSession:
        """The session; the first use starts it."""
        with self._starting:
            if self._failed is not None:  # another attempt would leave another JVM behind
                raise copy(self._failed)
            if self._session is None:
                self._session = self._started()
            return self._session

    def _started(self) -> SparkSession:
        try:
            with _signals_wait(), self._errors(starting=True):
                return _start(self._keys, self._jvm)
        except KafkaDailyError as failed:
            self._failed = failed
            raise

    def lent(self, kafka: Mapping[str, str]) -> Engine:
        """Return this engine for another topic: with its own session, and with this one's JVM."""
        return _Lent(self, kafka)

    def cancel(self) -> None:
        """Cancel all jobs, and drop what the JVM writes about that."""
        self._jvm.silence()
        with suppress(Exception):
            if self._session is not None:
                self._session.sparkContext.cancelAllJobs()

    def run_tasks(
        self,
        topic: str,
        reads: Mapping[int, Offsets],
        spec: TaskSpec,
        *,
        tasks: int,
        piece: int,
        batches: BatchLimit,
        progress: Progress,
    ) -> list[TaskResult]:
        """Run one job over these offsets of each partition: one task attempt, one report.

        Raises:
            RunFailed: Spark gave up.
        """
        headers = "headers" in spec.rules.kafka_columns

        with self._errors(), self._watched(sum(map(len, reads.values())), progress) as counts:
            place = counts.place

            def settle_task(sent: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
                drop_zip_importers()
                keep_pandas_out()
                context = TaskContext.get()
                attempt, task = (context.taskAttemptId(), context.partitionId()) if context else (0, 0)
                batches = counted(rebatch(sent), place, task)
                report = run_task(spec, f"{attempt}-{secrets.token_hex(4)}", batches)
                reports = [pa.array([pickle.dumps(report)], pa.binary())]
                yield pa.RecordBatch.from_arrays(reports, schema=REPORT)

            self.session.conf.set(f"{ARROW}.maxRecordsPerBatch", batches.rows)
            self.session.conf.set(f"{ARROW}.maxBytesPerBatch", batches.bytes or UNWEIGHED)
            frame = _records(self.session, topic, reads, self._kafka, piece=piece, headers=headers).coalesce(
                tasks
            )
            rows = frame.mapInArrow(settle_task, "report binary").collect()
        return [pickle.loads(bytes(row.report)) for row in rows]

    def warm_up(self) -> None:
        """Make the JVM load the classes that a run needs, as far as that works without a broker.

        Raises:
            RunFailed: Spark gave up.
        """

        def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from batches

        with self._errors():
            # without an action the source returns its schema only, and asks no broker
            nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
            kafka = self.session.read.format("kafka").options(**READ, **nowhere).load()
            kafka.union(kafka).select("partition", "offset").coalesce(1)
            rows = self.session.range(2000, numPartitions=4).selectExpr("id", "cast(id as string) as text")
            rows.coalesce(2).mapInArrow(same, "id bigint, text string").collect()

    @contextmanager
    def _errors(self, *, starting: bool = False) -> Iterator[None]:
        """Turn what Spark raises into our errors; drop what the JVM writes after a signal."""
        try:
            yield
        except KeyboardInterrupt:
            self._jvm.silence()
            raise
        except (Py4JError, PySparkException, OSError) as error:
            if interrupt := _interrupt_behind(error):
                self._jvm.silence()
                raise interrupt from None
            raise self._failure(error, starting=starting) from error

    def _failure(self, error: Exception, *, starting: bool) -> KafkaDailyError:
        # a JVM that answers with an exception lives
        death = None if isinstance(error, Py4JJavaError) else self._jvm.death()
        if starting and (refused := self._refusal(error)):
            return ConfigError(
                expected="Spark to start as the `spark` section of the config says",
                found=refused,
                do=f"Correct {self._keys_behind(refused)}, then run again.",
            )
        if death:
            return RunFailed(
                expected="Spark's JVM to live until the job is done",
                found=death,
                do=f"Nothing was committed. {KILLED if '(SIGKILL)' in death else LOOK}",
                jvm=death,
            )
        reason = _reason(error)
        return RunFailed(
            expected="the Spark job to end well",
            found=reason,
            do=f"Nothing was committed. {MORE if re.search(LACK_OF_MEMORY, reason) else LOOK}",
        )

    def _refusal(self, error: Exception) -> str | None:
        """Return why Spark can never start under this config; None where it may, later."""
        if self._jvm.process is None:
            return self._jvm.complaint()
        if code := self._jvm.process.poll():
            thrown = THROWN.findall("\n".join(self._jvm.last_words()))
            return next(filter(NEVER.search, thrown), None) if code > 0 else None
        reason = _reason(error)
        return reason if NEVER.search(reason) and not LATER.search(reason) else None

    def _keys_behind(self, refused: str) -> str:
        """Return the names of the keys whose name or value a refusal holds."""
        named = [key for key, value in self._keys.items() if key in refused or (value and value in refused)]
        return ", ".join(named) or "that section, JAVA_HOME or JAVA_TOOL_OPTIONS"

    @contextmanager
    def _watched(self, offsets: int, progress: Progress) -> Iterator[ReadCounts]:
        """Report twice a second how many records the tasks have read, and at the end all offsets.

        Of tasks on other machines only those count that have ended: of one that still runs Spark tells
        nothing, not with heartbeats a second apart either. Jobs of other topics do not count.
        """
        context, group = self.session.sparkContext, secrets.token_hex(4)
        tracker = context.statusTracker()
        store = context._jsc.sc().statusStore()
        context.setJobGroup(group, "kafka-daily")
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.5):
                with suppress(Py4JError, OSError):  # a stage that Spark does not know yet is an error
                    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
                    stages = {stage for job in jobs if job for stage in job.stageIds}
                    ended = sum(store.lastStageAttempt(stage).inputRecords() for stage in stages)
                    progress(min(max(ended, counts.total()), offsets), offsets)

        watcher = threading.Thread(target=watch, daemon=True)
        with ReadCounts() as counts:
            watcher.start()
            try:
                yield counts
            finally:
                done.set()
                watcher.join()
        progress(offsets, offsets)


class _Lent(Engine):
    """Another engine's JVM with a session of its own, so that two topics do not share settings."""

    def __init__(self, lender: Engine, kafka: Mapping[str, str]) -> None:
        super().__init__({}, kafka)
        self._lender, self._jvm = lender, lender._jvm

    def __exit__(self, *_: object) -> None:
        """Leave the JVM to its owner."""

    @property
    def session(self) -> SparkSession:
        """The session; the first use starts it."""
        if self._session is None:
            lender = self._lender.session
            with self._errors():
                self._session = lender.newSession()
        return self._session


def _records(
    session: SparkSession,
    topic: str,
    reads: Mapping[int, Offsets],
    kafka: Mapping[str, str],
    *,
    piece: int,
    headers: bool,
) -> DataFrame:
    """Return exactly these offsets as a frame: one source for the n-th ranges of all partitions."""
    columns = ["partition", "offset", "timestamp", "key", "value", *(["headers"] if headers else [])]
    reader = session.read.format("kafka").options(**READ, **kafka)
    reader = reader.option("maxRecordsPerPartition", piece).option("includeHeaders", headers)
    frames = []
    for ranges in zip_longest(*reads.values()):
        by_partition = {part: range_ for part, range_ in zip(reads, ranges, strict=True) if range_}
        options = {
            "assign": {topic: list(by_partition)},
            "startingOffsets": {topic: {part: from_ for part, (from_, _) in by_partition.items()}},
            "endingOffsets": {topic: {part: until for part, (_, until) in by_partition.items()}},
        }
        frames.append(reader.options(**{name: json.dumps(value) for name, value in options.items()}).load())
    return reduce(DataFrame.union, frames).select(*columns)


def _start(keys: Mapping[str, str], jvm: Jvm) -> SparkSession:
    master = keys.get("spark.master", "local[*]")
    local = is_local(master)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONSAFEPATH"] = "1"
    for variable in OTHERS:
        os.environ.pop(variable, None)
    spark_jars = jars("spark")
    logging = f"-Dlog4j2.configurationFile=file:{quoted(conf_folder() / 'log4j2.properties')}"
    config = {**FIXED, **DEFAULTS, "spark.master": master, **keys}
    given = keys.get("spark.driver.extraJavaOptions", "")
    lines = "" if logs.for_people() else "-Dkafka.daily.log=json"
    java = [logging, lines, *collector(given, local_cores(master)), *JVM_LOG, *COMPILER]
    if name := _name_without_account():
        os.environ.setdefault("SPARK_USER", name)
        java.append(f"-Duser.home={quoted(Path(tempfile.gettempdir()))}")
    if local:
        java += _shared_classes()
        for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
            os.environ.pop(variable, None)
        # else Spark looks up the machine's own name, which may have no address offline or in a container
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        config["spark.driver.extraClassPath"] = os.pathsep.join(map(str, spark_jars))
        config["spark.driver.bindAddress"] = config["spark.driver.host"] = "127.0.0.1"
    else:
        config["spark.jars"] = ",".join(path.as_uri() for path in spark_jars)
    config["spark.driver.extraJavaOptions"] = " ".join(filter(None, (*java, given)))
    log.debug("starting spark", master=master)
    set_up = SparkConf().setAll(list(config.items()))
    with jvm.launching() as arguments:
        # pyspark leaves it untyped
        gateway = launch_gateway(set_up, arguments)  # type: ignore[no-untyped-call]
    jvm.process = gateway.proc
    if name := _name_without_account():
        # Hadoop takes the user's name from the operating system, and ignores SPARK_USER
        users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(name))
    SparkContext(conf=set_up, gateway=gateway)
    session = SparkSession.builder.config(conf=set_up).getOrCreate()
    # Spark checks its `spark.sql` keys only when one of them is first read
    session.conf.get("spark.sql.session.timeZone")
    return session


def _name_without_account() -> str | None:
    """Make a name for a user id without one, as in many containers; None where it has a name."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return f"uid-{os.getuid()}"
    return None


def collector(given: str, cores: int) -> list[str]:
    """Return the options for the JVM's garbage collector, except those that the user sets.

    The job makes much short-lived garbage, and nobody waits for its pauses. Without a bound the young
    generation grows with the day, to 640 MiB of 2 GiB, and the day is not faster.
    """
    if "GC" in given:
        return []
    young = f"-Xmn{min(max(cores, 2), 7) * YOUNG_MIB}m"
    return ["-XX:+UseParallelGC", *([] if "-Xmn" in given or "NewSize" in given else [young])]


def _shared_classes() -> list[str]:
    """Return the options for the class archive, if set-up made one; Java ignores one that does not fit."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={quoted(archive)}", "-Xlog:cds*=off:stderr"] if archive.is_file() else []


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back signals until the session has started, and remove pyspark's handler for Ctrl-C.

    A signal during the start would leave a JVM behind that nobody ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    waiting: list[int] = []
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup ignores SIGHUP, and then the JVM must ignore it too
            signal.signal(number, lambda late, _: waiting.append(late))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in waiting:
        signal.raise_signal(late)


def quoted(path: Path) -> str:
    """Quote a path that holds a space, for a list of Java's options."""
    return f'"{path}"' if " " in str(path) else str(path)


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the signal that an error hides: py4j's clean-up after a signal can fail in turn."""
    cause = error.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


def _reason(error: Exception) -> str:
    """Return in one line what failed in the job, and its innermost cause if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = next((number for number, line in enumerate(lines) if FAILURE in line or line[:2] == ": "), 0)
    failure = lines[at].rpartition(FAILURE)[2].removeprefix(": ")
    if failure.endswith(TRACEBACK):
        failure = [failure, *takewhile(lambda line: not line.startswith("at "), lines[at + 1 :])][-1]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return "; ".join(text[:300] for text in [failure, *causes[-1:]])
