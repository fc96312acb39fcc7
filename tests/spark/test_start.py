"""How the session starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.paths import class_archive
from jobs.record.without_pandas import keep_pandas_out
from jobs.spark.engine import Engine
from tests.support.processes import jvm_of

pytestmark = pytest.mark.spark


def test_the_jvm_takes_its_classes_from_the_archive_that_set_up_made(engine: Engine) -> None:
    """Java maps an archive that fits, and passes over any other without a word."""
    assert str(class_archive().resolve()) in Path(f"/proc/{jvm_of(engine)}/maps").read_text()


def test_a_worker_imports_our_modules_and_no_pandas(engine: Engine) -> None:
    """pyarrow imported it by itself: half of the time that a worker took to start."""

    def loaded(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        from jobs.task import task

        pa.array([1, None]).to_numpy(zero_copy_only=False)
        found = [name for name in ("pandas", task.__name__) if name in sys.modules]
        yield pa.RecordBatch.from_arrays([pa.array([",".join(found)])], ["found"])

    frame = engine.session.range(4, numPartitions=2)
    assert {row.found for row in frame.mapInArrow(loaded, "found string").collect()} == {"jobs.task.task"}


MAKES = """
import contextlib, sys
from pathlib import Path
from jobs.spark import class_archive, engine
engine.class_archive = class_archive.class_archive = lambda: Path(sys.argv[1])
start = engine._start
class Started(Exception):
    pass
def context(conf, gateway):
    context._gateway = gateway
    raise Started
def without_context(keys, jvm):
    with contextlib.suppress(Started):
        start(keys, jvm)
# the JVM alone: it has a tenth of the classes, and writes them in seconds
engine.SparkContext, engine._start = context, without_context
engine.Engine.warm_up = lambda self: self.session
class_archive.main()
"""


@pytest.mark.alone
def test_an_archive_is_made_where_one_is(tmp_path: Path) -> None:
    """As after an update of the jars: Java refuses to write one while it reads one, and none came again."""
    archive = tmp_path / "classes.jsa"
    archive.write_text("of other jars")
    subprocess.run([sys.executable, "-c", MAKES, archive], check=True)
    assert archive.stat().st_size > 1_000_000


STARTS = """
from jobs.spark.engine import Engine
keys = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
with Engine(keys, {}) as engine:
    manager = engine.session._jvm.org.apache.logging.log4j.LogManager
    manager.getLogger("odd").error('two\\n"lines"')
    engine.warm_up()
"""
OTHERS = {
    "SPARK_REMOTE": "sc://localhost",
    "SPARK_API_MODE": "connect",
    "SPARK_CONNECT_MODE_ENABLED": "1",
    "PYSPARK_GATEWAY_PORT": "1",
    "PYSPARK_GATEWAY_SECRET": "secret",
}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Start Spark once, on a machine that knows no name of its own and was told of another Spark."""
    hosts = tmp_path_factory.mktemp("started") / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    odd = OTHERS | {"JDK_JAVA_OPTIONS": f'"-Djdk.net.hosts.file={hosts}"'}
    done = subprocess.run(
        [sys.executable, "-c", STARTS], capture_output=True, env=os.environ | odd, check=False
    )
    return f"{done.stderr.decode()}\nended with {done.returncode}"


@pytest.mark.alone
def test_a_start_hears_nothing_of_another_spark_and_logs_one_document_a_line(started: str) -> None:
    """A developer's SPARK_REMOTE ended every run, with advice on a config that was right.

    And the lines of Spark's log were text between our documents; what Java itself warns of still is.
    """
    documents = [json.loads(line) for line in started.splitlines() if line.startswith("{")]
    assert [(each["event"], each["level"]) for each in documents if each["logger"] == "odd"] == [
        ('two\n"lines"', "error")
    ], started


@pytest.mark.alone
def test_a_machine_whose_own_name_is_not_known_is_no_obstacle(started: str) -> None:
    """As offline, or in a container whose name no file holds: Spark asked for its address and refused."""
    assert started.endswith("\nended with 0"), started


REFUSED = """
from jobs.spark.engine import Engine
from offsets.errors import ConfigError
from tests.support.processes import command_of, descendants
import os
with Engine({"spark.master": "local[1]", "spark.serializer": "no.such.Class"}, {}) as engine:
    for each in (engine, engine.lent({}), engine.lent({})):
        try:
            each.cores
        except ConfigError as refused:
            commands = map(command_of, descendants(os.getpid()))
            print("no.such.Class" in refused.found, sum("deploy.SparkSubmit" in each for each in commands))
"""


@pytest.mark.alone
def test_a_start_that_was_refused_is_not_tried_again_for_each_topic() -> None:
    """Each attempt took seconds and left one more JVM: a hundred topics, a hundred of them."""
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, check=True)
    told = [line for line in done.stdout.decode().splitlines() if line.startswith(("True", "False"))]
    assert told == ["True 1"] * 3
