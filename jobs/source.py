"""Spark: its session, Kafka's records as a frame, and the job that settles them.

The only module that imports pyspark. Spark plans, reads, distributes and retries; what a task does is the
sink's. Relies on jars that set-up has resolved; nothing is downloaded at run time.
"""

from __future__ import annotations

import json
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from jobs.config.spark_keys import is_local, local_cores
from jobs.paths import class_archive, conf_folder, jars
from jobs.report import TaskReport
from jobs.sink import TaskOrder, gathered, run_task
from jobs.sizing import BatchLimit
from jobs.worker import spare_archives
from offsets.errors import RunFailed
from offsets.model import DayPlan

log = structlog.get_logger(__name__)
Progress = Callable[[int, int], None]

FIXED: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.python.worker.reuse": "true",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
}
DEFAULTS: Final = {
    "spark.app.name": "kafka-daily",
    # what Kafka's client holds lives longer than Spark's usual 1g gives it: half the time in collections
    "spark.driver.memory": "2g",
    # a task frees and takes the same memory with every row group: kept for some seconds, it need not be
    # cleared again each time
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "10000",
}
READ: Final = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # a poll holds its records in the heap until the task has taken them
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(2 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # nobody looks at these clients' metrics, and every partition has a client
    "kafka.auto.include.jmx.reporter": "false",
    "kafka.enable.metrics.push": "false",
    "kafkaConsumer.pollTimeoutMs": "30000",
}
COMPILER: Final = tuple(
    # what runs for each record is compiled just as soon; what runs for each batch is not worth the time
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
# stdout is for what the command says
JVM_LOG: Final = ("-Xlog:disable", "-Xlog:all=warning:stderr")
FAILURE: Final = "most recent failure: "
TRACEBACK: Final = "Traceback (most recent call last):"
PATIENCE: Final = 5.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
ARROW: Final = "spark.sql.execution.arrow"
UNWEIGHED: Final = (1 << 31) - 1
REPORT: Final = pa.schema([("report", pa.binary())])


class Engine:
    """A Spark session that starts when it is first needed and ends with the `with` block."""

    def __init__(
        self, spark: Mapping[str, str], kafka: Mapping[str, str], *, patience: float = PATIENCE
    ) -> None:
        """Take the user's `spark.*` keys, and the options by which Spark reaches the broker.

        Patience is how many seconds the JVM is given to end by itself.
        """
        self._keys, self._kafka, self._patience = dict(spark), dict(kafka), patience
        self.ended: int | None = None
        """How the JVM ended: its exit code."""
        self._session: SparkSession | None = None

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the session and its JVM."""
        if self._session is None:
            return
        gateway = self._session.sparkContext._gateway
        with suppress(Exception):
            self._session.stop()
        process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
        with suppress(Exception):
            if gateway is not None:
                gateway.shutdown()
        if process is not None:
            self.ended = _end(process, self._patience)

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        with _job_errors():
            return self.session.sparkContext.defaultParallelism

    @property
    def session(self) -> SparkSession:
        """The session; the first use starts it."""
        if self._session is None:
            with _signals_wait(), _job_errors():
                self._session = _start(self._keys)
        return self._session

    def settle(
        self,
        plan: DayPlan,
        order: TaskOrder,
        *,
        tasks: int,
        piece: int,
        batches: BatchLimit,
        progress: Progress,
    ) -> list[TaskReport]:
        """Run one job over the plan's spans: one task attempt, one report.

        Raises:
            RunFailed: Spark gave up.
        """
        headers = "headers" in order.rules.kafka_columns

        def settle_task(sent: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            spare_archives()
            context = TaskContext.get()
            attempt = context.taskAttemptId() if context else 0
            report = run_task(order, f"{attempt}-{secrets.token_hex(4)}", gathered(sent))
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], schema=REPORT)

        with _job_errors(), self._watched(tasks, progress):
            self.session.conf.set(f"{ARROW}.maxRecordsPerBatch", batches.rows)
            self.session.conf.set(f"{ARROW}.maxBytesPerBatch", batches.bytes or UNWEIGHED)
            frame = _records(self.session, plan, self._kafka, piece=piece, headers=headers).coalesce(tasks)
            rows = frame.mapInArrow(settle_task, "report binary").collect()
        return [pickle.loads(bytes(row.report)) for row in rows]

    def rehearse(self) -> None:
        """Have the JVM load what a run needs, as far as that can be had without a broker.

        Raises:
            RunFailed: Spark gave up.
        """

        def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from batches

        with _job_errors():
            # without an action the source only gives its schema, and asks no broker
            nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
            kafka = self.session.read.format("kafka").options(**READ, **nowhere).load()
            kafka.union(kafka).select("partition", "offset").coalesce(1)
            rows = self.session.range(2000, numPartitions=4).selectExpr("id", "cast(id as string) as text")
            rows.coalesce(2).mapInArrow(same, "id bigint, text string").collect()

    @contextmanager
    def _watched(self, tasks: int, progress: Progress) -> Iterator[None]:
        """Tell the progress now and then while the job runs."""
        tracker = self.session.sparkContext.statusTracker()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.5):
                with suppress(Py4JError, OSError):
                    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                    progress(sum(stage.numCompletedTasks for stage in stages if stage), tasks)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _records(
    session: SparkSession, plan: DayPlan, kafka: Mapping[str, str], *, piece: int, headers: bool
) -> DataFrame:
    """Give exactly the plan's offsets as a frame: one source for the n-th ranges of all partitions."""
    wanted = ["partition", "offset", "timestamp", "key", "value", *(["headers"] if headers else [])]
    reader = session.read.format("kafka").options(**READ, **kafka)
    reader = reader.option("maxRecordsPerPartition", piece).option("includeHeaders", headers)
    frames = []
    for ranges in zip_longest(*(span.reads for span in plan.spans)):
        here = {span.partition: range_ for span, range_ in zip(plan.spans, ranges, strict=True) if range_}
        options = {
            "assign": {plan.topic.name: list(here)},
            "startingOffsets": {plan.topic.name: {part: from_ for part, (from_, _) in here.items()}},
            "endingOffsets": {plan.topic.name: {part: until for part, (_, until) in here.items()}},
        }
        frames.append(reader.options(**{name: json.dumps(each) for name, each in options.items()}).load())
    return reduce(DataFrame.union, frames).select(*wanted)


def _start(keys: Mapping[str, str]) -> SparkSession:
    master = keys.get("spark.master", "local[*]")
    local = is_local(master)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONSAFEPATH"] = "1"
    found = jars("spark")
    logging = f"-Dlog4j2.configurationFile=file:{quoted(conf_folder() / 'log4j2.properties')}"
    config = {**FIXED, **DEFAULTS, "spark.master": master, **keys}
    given = keys.get("spark.driver.extraJavaOptions", "")
    java = [logging, *collector(given, local_cores(master)), *JVM_LOG, *COMPILER]
    if local:
        java += _shared_classes()
        for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
            os.environ.pop(name, None)
        config["spark.driver.extraClassPath"] = os.pathsep.join(map(str, found))
        config["spark.driver.bindAddress"] = config["spark.driver.host"] = "127.0.0.1"
    else:
        config["spark.jars"] = ",".join(path.as_uri() for path in found)
    config["spark.driver.extraJavaOptions"] = " ".join(filter(None, (*java, given)))
    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    log.debug("starting spark", master=master)
    return builder.getOrCreate()


def collector(given: str, cores: int) -> list[str]:
    """Return the options for the JVM's collector; what the user says of it stands.

    The job makes much short-lived garbage and has no user who waits for it. Left alone, the young generation
    grows with the day, to 640 MiB of 2 GiB, and the day is no faster for it.
    """
    if "GC" in given:
        return []
    young = f"-Xmn{min(max(cores, 2), 7) * YOUNG_MIB}m"
    return ["-XX:+UseParallelGC", *([] if "-Xmn" in given or "NewSize" in given else [young])]


def _shared_classes() -> list[str]:
    """Have the JVM use the archive of classes if set-up made one; one that does not fit, Java passes over."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={quoted(archive)}", "-Xlog:cds*=off:stderr"] if archive.is_file() else []


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let a signal wait until the session is there, and undo the handler that pyspark sets for Ctrl-C.

    A start that a signal cut short left a JVM behind that nobody knew, for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    waiting: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda late, _: waiting.append(late))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in waiting:
        signal.raise_signal(late)


def quoted(path: Path) -> str:
    """Quote a path for a list of Java's options, where it needs that."""
    return f'"{path}"' if " " in str(path) else str(path)


def _end(process: subprocess.Popen[bytes], patience: float) -> int:
    """See a JVM off: close its input, which it watches, then insist; gives its exit code."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    try:
        return process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@contextmanager
def _job_errors() -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException, OSError) as error:
        if interrupt := _interrupt_behind(error):
            raise interrupt from None
        raise RunFailed(
            expected="the Spark job to end well",
            found=_reason(error),
            do="Nothing was committed. Look at the log above, then run the day again.",
        ) from error


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Find the signal that an error hides: py4j's own clean-up after one can fail in turn."""
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


def _reason(error: Exception) -> str:
    """Give what failed in the job, and its innermost cause where that says more, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = next((number for number, line in enumerate(lines) if FAILURE in line), 0)
    failure = lines[at].rpartition(FAILURE)[2]
    if failure.endswith(TRACEBACK):
        failure = [failure, *takewhile(lambda line: not line.startswith("at "), lines[at + 1 :])][-1]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return "; ".join(each[:300] for each in [failure, *causes[-1:]])
