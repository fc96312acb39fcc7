"""Spark: its session, Kafka's records as a frame, and the job that settles them.

The only module that imports pyspark. Spark plans, reads, distributes and retries; what a task does is the
sink's. Relies on jars that set-up has resolved; nothing is downloaded at run time.
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
from jobs.spark.jvm import Jvm
from jobs.spark.worker import drop_zip_importers
from jobs.task.batch_limit import BatchLimit
from jobs.task.result import TaskResult
from jobs.task.task import TaskSpec, rebatch, run_task
from offsets.errors import ConfigError, KafkaDailyError, RunFailed
from offsets.ranges import Offsets

log = structlog.get_logger(__name__)
# what py4j logs, some of it by the root logger, it raises too; and a signal is no error
logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: "/py4j/" not in record.pathname)
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
OTHERS: Final = (
    *("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
)
"""Variables by which pyspark goes to a session of somebody else's."""
READ: Final = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # a poll holds its records in the heap until the task has taken them
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(2 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # a fetch that meets the log's end is held so long, and what Spark asks next waits behind it
    "kafka.fetch.max.wait.ms": "5",
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
NEVER: Final = re.compile(
    r"ClassNotFound|NoClassDefFound|NoSuchMethod|ClassCast|IllegalArgument|NumberFormat|FileNotFound|NoSuchFile"
    r"|AccessControl|AccessDenied|Permission denied|Could not parse Master URL|\[INVALID_"
)
"""What Java throws at a setting that it will refuse each time."""
THROWN: Final = re.compile(r'(?:\w+\.)+\w*(?:Exception|Error): [^"\\\n]*')
"""An exception among lines of a log, whatever their layout."""
LATER: Final = re.compile(r"requirement failed")
"""What a cluster's master that does not answer ends in."""
LOOK: Final = "Look at the log above, then run the day again."
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

        Patience is how many seconds the JVM is given to end by itself.
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
        # else pyspark would take this JVM for the next session's
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
            if self._failed is not None:  # each new attempt would leave one more JVM behind
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
        """End all jobs; nothing is heard of what they then complain of."""
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

        def settle_task(sent: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            drop_zip_importers()
            context = TaskContext.get()
            attempt = context.taskAttemptId() if context else 0
            report = run_task(spec, f"{attempt}-{secrets.token_hex(4)}", rebatch(sent))
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)], pa.binary())], schema=REPORT)

        with self._errors(), self._watched(tasks, progress):
            self.session.conf.set(f"{ARROW}.maxRecordsPerBatch", batches.rows)
            self.session.conf.set(f"{ARROW}.maxBytesPerBatch", batches.bytes or UNWEIGHED)
            frame = _records(self.session, topic, reads, self._kafka, piece=piece, headers=headers).coalesce(
                tasks
            )
            rows = frame.mapInArrow(settle_task, "report binary").collect()
        return [pickle.loads(bytes(row.report)) for row in rows]

    def warm_up(self) -> None:
        """Have the JVM load what a run needs, as far as that can be had without a broker.

        Raises:
            RunFailed: Spark gave up.
        """

        def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield from batches

        with self._errors():
            # without an action the source only gives its schema, and asks no broker
            nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
            kafka = self.session.read.format("kafka").options(**READ, **nowhere).load()
            kafka.union(kafka).select("partition", "offset").coalesce(1)
            rows = self.session.range(2000, numPartitions=4).selectExpr("id", "cast(id as string) as text")
            rows.coalesce(2).mapInArrow(same, "id bigint, text string").collect()

    @contextmanager
    def _errors(self, *, starting: bool = False) -> Iterator[None]:
        """Turn what Spark raises into our errors; of a signal nothing more is heard."""
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
        return RunFailed(
            expected="the Spark job to end well",
            found=_reason(error),
            do=f"Nothing was committed. {LOOK}",
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
        """Name the keys that a refusal speaks of, else all that are set."""
        named = [key for key, value in self._keys.items() if key in refused or (value and value in refused)]
        return ", ".join(named) or "that section, JAVA_HOME or JAVA_TOOL_OPTIONS"

    @contextmanager
    def _watched(self, tasks: int, progress: Progress) -> Iterator[None]:
        """Report the progress now and then while the job runs; jobs of other topics do not count."""
        context, group = self.session.sparkContext, secrets.token_hex(4)
        tracker = context.statusTracker()
        context.setJobGroup(group, "kafka-daily")
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.5):
                with suppress(Py4JError, OSError):
                    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
                    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
                    progress(sum(stage.numCompletedTasks for stage in stages if stage), tasks)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


class _Lent(Engine):
    """Another engine's JVM, with a session of its own: settings of one topic's job are not another's."""

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
    wanted = ["partition", "offset", "timestamp", "key", "value", *(["headers"] if headers else [])]
    reader = session.read.format("kafka").options(**READ, **kafka)
    reader = reader.option("maxRecordsPerPartition", piece).option("includeHeaders", headers)
    frames = []
    for ranges in zip_longest(*reads.values()):
        here = {part: range_ for part, range_ in zip(reads, ranges, strict=True) if range_}
        options = {
            "assign": {topic: list(here)},
            "startingOffsets": {topic: {part: from_ for part, (from_, _) in here.items()}},
            "endingOffsets": {topic: {part: until for part, (_, until) in here.items()}},
        }
        frames.append(reader.options(**{name: json.dumps(each) for name, each in options.items()}).load())
    return reduce(DataFrame.union, frames).select(*wanted)


def _start(keys: Mapping[str, str], jvm: Jvm) -> SparkSession:
    master = keys.get("spark.master", "local[*]")
    local = is_local(master)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONSAFEPATH"] = "1"
    for variable in OTHERS:
        os.environ.pop(variable, None)
    found = jars("spark")
    logging = f"-Dlog4j2.configurationFile=file:{quoted(conf_folder() / 'log4j2.properties')}"
    config = {**FIXED, **DEFAULTS, "spark.master": master, **keys}
    given = keys.get("spark.driver.extraJavaOptions", "")
    lines = "" if logs.for_people() else "-Dkafka.daily.log=json"
    java = [logging, lines, *collector(given, local_cores(master)), *JVM_LOG, *COMPILER]
    if name := _made_up_name():
        os.environ.setdefault("SPARK_USER", name)
        java.append(f"-Duser.home={quoted(Path(tempfile.gettempdir()))}")
    if local:
        java += _shared_classes()
        for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
            os.environ.pop(variable, None)
        # else Spark looks up the machine's own name, which offline or in a container may have no address
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        config["spark.driver.extraClassPath"] = os.pathsep.join(map(str, found))
        config["spark.driver.bindAddress"] = config["spark.driver.host"] = "127.0.0.1"
    else:
        config["spark.jars"] = ",".join(path.as_uri() for path in found)
    config["spark.driver.extraJavaOptions"] = " ".join(filter(None, (*java, given)))
    log.debug("starting spark", master=master)
    set_up = SparkConf().setAll(list(config.items()))
    with jvm.launching() as arguments:
        gateway = launch_gateway(set_up, arguments)  # type: ignore[no-untyped-call]
    jvm.process = gateway.proc
    if name := _made_up_name():
        # Hadoop asks the system for the user's name, and takes no other answer
        users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(name))
    SparkContext(conf=set_up, gateway=gateway)
    session = SparkSession.builder.config(conf=set_up).getOrCreate()
    # Spark looks at its own `spark.sql` keys only when it is first asked for one
    session.conf.get("spark.sql.session.timeZone")
    return session


def _made_up_name() -> str | None:
    """Make a name for a user id that has none, as in many containers."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return f"uid-{os.getuid()}"
    return None


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
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as of nohup: then the JVM must ignore it too
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


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Find the signal that an error hides: py4j's own clean-up after one can fail in turn."""
    behind = error.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


def _reason(error: Exception) -> str:
    """Return what failed in the job, and its innermost cause where that says more, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = next((number for number, line in enumerate(lines) if FAILURE in line or line[:2] == ": "), 0)
    failure = lines[at].rpartition(FAILURE)[2].removeprefix(": ")
    if failure.endswith(TRACEBACK):
        failure = [failure, *takewhile(lambda line: not line.startswith("at "), lines[at + 1 :])][-1]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return "; ".join(each[:300] for each in [failure, *causes[-1:]])
