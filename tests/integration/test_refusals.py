"""Every way in which a run is refused: its exit code, what it says, and what it leaves on disk.

Empty days are committed without Spark, so most lakes here are made in no time.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.demo.broker import BrokerProcess, free_ports
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.spark import engine
from jobs.spark.engine import Engine
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeBroker, MakeTopic, wait_for_leaders
from tests.support.engine import FIRST, Command, Configured, Ended, Sections
from tests.support.judged import assert_exact, midnight, night, sent_records
from tests.support.killed import assert_lock_free
from tests.support.processes import command_of, descendants, jvm_of, until
from tests.support.produce import Record, every, ms, order, send

NEXT = FIRST + timedelta(days=1)
MINUTE = timedelta(minutes=1)


def refused(done: Ended, code: int, *sentences: str) -> None:
    """Check a refusal: its code, one paragraph that says so, and no traceback."""
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    text = " ".join(map(event_of, done.err.splitlines()))
    assert f"(exit {code})" in text
    for sentence in sentences:
        assert re.search(sentence, text), f"{sentence!r} is not said in: {text}"


def event_of(line: str) -> str:
    """Take the words of a line of the log, where it is one."""
    try:
        return str(json.loads(line)["event"])
    except ValueError:
        return line


@pytest.fixture
def empty(topic: MakeTopic, configured: Configured, command: Command, lake: Path) -> Path:
    """Give the config of a lake with one committed, empty day."""
    config = configured(topic(partitions=3))
    assert command(config, "run", "--date", str(FIRST)).code == 0
    return config


def changed(config: Path, old: str, new: str) -> Path:
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    return config


def test_no_broker(configured: Configured, command: Command, lake: Path) -> None:
    [port] = free_ports(1)
    config = configured("orders", {"kafka": {"bootstrap_servers": f"127.0.0.1:{port}", "timeout": "2s"}})
    began = time.monotonic()
    done = command(config, "run", "--date", str(FIRST))
    assert time.monotonic() - began < 6
    refused(done, 12, f"an answer from 127.0.0.1:{port} about", r"none in [2-5] s and \d+ tries")
    assert not lakes.manifests(lake)
    assert_lock_free(lake)


def test_no_config(command: Command) -> None:
    refused(command(None, "status"), 2, "neither", "Copy conf/example.yaml")
    refused(command(Path("/nowhere.yaml"), "run"), 2, "a configuration at /nowhere.yaml", "no such file")


def test_an_unknown_topic(configured: Configured, command: Command, admin: AdminClient) -> None:
    for name in ("run", "plan"):
        refused(command(configured("not-there"), name), 2, "named 'not-there'", "it was not created")
    assert "not-there" not in admin.list_topics(timeout=20).topics


def test_a_day_that_is_not_over(topic: MakeTopic, configured: Configured, command: Command) -> None:
    today = datetime.now(UTC).date()
    config = configured(topic(), {"day": {"zone": "UTC", "first": str(today)}})
    for name in ("run", "plan"):
        refused(command(config, name, "--date", str(today)), 10, f"{today} .*to be over", "T01:00:00Z")
    done = command(config, "run")
    assert done.code == 0
    assert "nothing is due" in done.out


def test_an_earlier_day_is_missing(empty: Path, command: Command) -> None:
    done = command(empty, "run", "--date", str(FIRST + timedelta(days=3)))
    refused(done, 16, f"{NEXT} is the next day to settle", f"run --from {NEXT}")


def test_a_day_before_the_first(empty: Path, command: Command) -> None:
    refused(command(empty, "run", "--date", str(FIRST - timedelta(days=1))), 2, f"from {FIRST} on")


def test_a_later_day_is_committed(empty: Path, command: Command, lake: Path) -> None:
    for days in range(1, 3):
        assert command(empty, "run", "--date", str(FIRST + timedelta(days=days))).code == 0
    shutil.rmtree(lake / f"date={NEXT}")
    done = command(empty, "run", "--date", str(NEXT))
    refused(done, 22, f"{NEXT} is missing between {FIRST} and {FIRST + timedelta(days=2)}")
    assert not (lake / f"date={NEXT}").exists()


def test_a_lake_that_is_locked(empty: Path, command: Command, lake: Path) -> None:
    since = datetime(2024, 5, 1, 2, 3, 4, tzinfo=UTC)
    with PosixLake(lake).lock(LockHolder(run_id="other-run", host="other-host", pid=4711, since=since)):
        done = command(empty, "run", "--date", str(NEXT))
        refused(done, 11, "run other-run", "pid 4711 on other-host", "since 2024-05-01T02:03:04Z")
        assert command(empty, "run", "--date", str(FIRST)).code == 0  # committed: nothing to lock for
        assert "other-run" in command(empty, "status").out
    assert command(empty, "run", "--date", str(NEXT)).code == 0


def test_a_contract_that_changed(empty: Path, command: Command, lake: Path) -> None:
    changed(changed(empty, "n: bigint", "n: double"), "field: at", "field: happened_at")
    for name in ("run", "plan"):
        done = command(empty, name, "--date", str(NEXT))
        refused(done, 25, 'record.columns.n: "bigint" -> "double"', 'event_time.field: "at" -> "happened_at"')
    assert not (lake / f"date={NEXT}").exists()
    assert command(empty, "run", "--date", str(NEXT), "--accept-contract").code == 0
    assert len(lakes.manifest(lake, NEXT)["accepted"]["contract"]) == 2


@pytest.mark.parametrize(
    "harm, sentence",
    [
        (lambda text: text[: len(text) // 2], "no JSON"),
        (
            lambda text: text.replace(b'"seen_until": 0', b'"seen_until": 1', 1),
            "a checksum that does not fit",
        ),
        (lambda text: text.replace(b'"format_version": 4', b'"format_version": 5'), "found format 5"),
        (lambda text: b"", "no JSON"),
        (lambda text: b"\x00" * len(text), "no JSON"),
    ],
    ids=["cut", "edited", "newer format", "empty", "zeros"],
)
def test_a_damaged_manifest(harm: object, sentence: str, empty: Path, command: Command, lake: Path) -> None:
    assert callable(harm)
    path = lake / f"date={FIRST}" / "_manifest.json"
    before = path.read_bytes()
    path.write_bytes(harm(before))
    assert path.read_bytes() != before
    for arguments in (["run", "--date", str(FIRST)], ["run", "--date", str(NEXT)], ["plan"], ["status"]):
        refused(command(empty, *arguments), 22, sentence)
    refused(command(empty, "verify"), 28)
    assert not (lake / f"date={NEXT}").exists()


def test_a_folder_of_somebody_else(empty: Path, command: Command, lake: Path) -> None:
    (lake / f"date={NEXT}").mkdir()
    refused(command(empty, "run", "--date", str(NEXT)), 24, "without .*_manifest.json")


def test_too_many_invalid_records(
    broker: Broker, topic: MakeTopic, configured: Configured, command: Command, lake: Path
) -> None:
    """Four causes; the three commonest are told, each with the coordinate of one of its records."""
    name, at = topic(), midnight(FIRST)
    broken = {
        b'{"n": "x"}': 60,
        b"[]": 50,
        b'{"id": 1}': 40,
        b"\xff": 3,
    }
    records = every(timedelta(seconds=10), at, 400)
    for value, times in broken.items():
        records += [Record(0, value, ms(at + MINUTE * 70))] * times
    words = sent_records(records, send(broker.bootstrap_servers, name, records))
    config = configured(name, {"invalid": {"limit": "10%"}})
    done = command(config, "run", "--date", str(FIRST), "--json")
    refused(done, 26, r"at most 10\.0000% of 553 records", "153: 60 x", "50 x", "40 x", "such as 0:400")
    facts = json.loads(done.out)["facts"]
    assert [(each["rows"], each["partition"], each["offset"]) for each in facts["causes"]] == [
        (60, 0, 400),
        (50, 0, 460),
        (40, 0, 510),
    ]
    assert not lakes.manifests(lake)
    assert not list(lake.glob("date=*"))

    assert command(configured(name, {"invalid": {"limit": "30%"}}), "run", "--date", str(FIRST)).code == 0
    words = [replace(word, happened=None) if word.offset >= 400 else word for word in words]
    assert_exact(lake, words, [night(FIRST)])


def test_a_lake_that_cannot_be_made(
    topic: MakeTopic, configured: Configured, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    config = configured(topic(), {"lake": {"path": "./file/lake"}})
    for arguments in (["run", "--date", str(FIRST)], ["run"], ["status"]):
        refused(command(config, *arguments), 27, "Not a directory")


def test_a_disk_that_fills_up_while_tasks_write(
    broker: Broker, topic: MakeTopic, configured: Configured, command: Command, engine: Engine, lake: Path
) -> None:
    """A limit on the size of files, which is no space left to whoever writes one."""
    name, rng = topic(), random.Random(1)
    records = [order(midnight(FIRST) + MINUTE * n, id=rng.randbytes(500).hex()) for n in range(1000)]
    words = sent_records(records, send(broker.bootstrap_servers, name, records))
    config = configured(name)
    with small_files(engine, 100_000):
        done = command(config, "run", "--date", str(FIRST))
    refused(done, 27, "to write .*_staging", "File too large")
    assert not lakes.manifests(lake)
    assert_lock_free(lake)
    assert command(config, "run", "--date", str(FIRST)).code == 0
    assert_exact(lake, words, [night(FIRST)])


@contextmanager
def small_files(engine: Engine, limit: int) -> Iterator[None]:
    """Limit what the Python workers of a session may write."""
    # whoever writes beyond it gets an error; a worker that is not there yet inherits it
    engine.session.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    jvm = jvm_of(engine)
    workers = [pid for pid in descendants(jvm) if "pyspark.daemon" in command_of(pid)]
    assert workers
    for pid in workers:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for pid in descendants(jvm):
            if "pyspark.daemon" in command_of(pid):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_disk_that_is_full_at_the_commit(
    topic: MakeTopic, configured: Configured, command: Command, lake: Path
) -> None:
    config = configured(topic(partitions=9))
    limited = 'ulimit -f 2; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", limited, "sh", sys.executable, "-m", "jobs", "run", "--date", str(FIRST)],
        env=os.environ | {"KAFKA_DAILY_CONFIG": str(config), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    refused(Ended(code=done.returncode, out=done.stdout, err=done.stderr), 27, "_manifest.json", "too large")
    assert not lakes.manifests(lake)
    assert command(config, "run", "--date", str(FIRST)).code == 0


@pytest.mark.parametrize(
    "master", ["spark://head:7077", "yarn", "k8s://https://head", "local-cluster[2,1,1024]"]
)
def test_a_local_lake_under_a_cluster(master: str, configured: Configured, command: Command) -> None:
    config = configured("orders", {"spark": {"spark.master": master}})
    refused(command(config, "run"), 2, "lake.shared", "tasks run elsewhere")


def listens(servers: str) -> bool:
    """Return whether anything takes a connection there."""
    host, _, port = servers.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_broker_that_dies_in_the_middle_of_a_run(
    make_broker: MakeBroker,
    configured: Configured,
    command: Command,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It hangs as soon as a task has begun to read 40 MB; when it is back, a rerun is exact.

    It hangs for so long that the controller takes it for dead: for a while the cluster has no broker then.
    """
    monkeypatch.setitem(engine.READ, "kafkaConsumer.pollTimeoutMs", "2000")
    monkeypatch.setitem(engine.READ, "kafka.default.api.timeout.ms", "2000")
    monkeypatch.setitem(engine.READ, "kafka.request.timeout.ms", "2000")
    name = "orders"
    own = make_broker(settings={"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"})
    servers = own.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    wait_for_leaders(admin, name, 2)
    long = "x" * 100_000
    records = [order(midnight(FIRST) + MINUTE * n, n % 2, id=long, n=n) for n in range(400)]
    words = sent_records(records, send(servers, name, records))
    kafka: Sections = {"kafka": {"bootstrap_servers": servers, "timeout": "3s"}}

    def hang() -> None:
        until(lambda: lakes.begun(lake))
        own.pause()
        hung.append(time.monotonic())

    hung: list[float] = []
    watch = Thread(target=hang, daemon=True)
    watch.start()
    done = command(configured(name, kafka), "run", "--date", str(FIRST))
    watch.join()
    assert done.code in (12, 15), done.err
    refused(done, done.code)
    assert not lakes.manifests(lake)
    time.sleep(max(0.0, hung.pop() + 3 - time.monotonic()))
    own.resume()
    patient: Sections = {"kafka": {"bootstrap_servers": servers, "timeout": "30s"}}
    done = command(configured(name, patient), "run", "--date", str(FIRST))
    if done.code == 12 and not listens(servers):  # Kafka itself may end over so long a pause
        own.restart()
        done = command(configured(name, patient), "run", "--date", str(FIRST))
    assert done.code == 0, done.err
    assert_exact(lake, words, [night(FIRST)])


def test_credentials_that_are_refused(
    configured: Configured, command: Command, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with the right ones both clients, librdkafka and Spark's, are let in, and `init` by that config."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{login} username="me" password="it;s me" user_me="it;s me";'
        ),
    }
    user = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "it;s me",
    }
    monkeypatch.setattr("jobs.demo.broker.answers", lambda servers: _lets_in(servers, user))
    monkeypatch.setenv("THE_PASSWORD", "guessed")
    with BrokerProcess(settings=settings) as own:
        client = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0, **user})
        client.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        security = {
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "PLAIN",
            "username": "me",
            "password": "${env:THE_PASSWORD}",
        }
        config = configured(
            "orders",
            {"kafka": {"bootstrap_servers": own.bootstrap_servers, "timeout": "20s", "security": security}},
        )
        began = time.monotonic()
        done = command(config, "run", "--date", str(FIRST))
        refused(done, 2, "accept the credentials of kafka.security", "[Aa]uthentication failed")
        assert time.monotonic() - began < 10, "refused credentials are not tried again and again"
        assert "guessed" not in done.err + done.out

        monkeypatch.setenv("THE_PASSWORD", "it;s me")
        records = every(MINUTE, midnight(FIRST), 20)
        words = sent_records(records, send(own.bootstrap_servers, "orders", records, user))
        done = command(config, "run", "--date", str(FIRST))
        assert done.code == 0, done.err
        assert "it;s me" not in done.err + done.out
        assert_exact(lake, words, [night(FIRST)])

        proposed = command(config, "init", "--topic", "orders", "--zone", "Europe/Amsterdam")
        assert proposed.code == 0, proposed.err
        written = config.with_name("orders.yaml")
        assert "password: '${env:THE_PASSWORD}'" in written.read_text()
        assert "it;s me" not in written.read_text() + proposed.out + proposed.err
        assert command(written, "plan", "--date", str(FIRST)).code == 0


def _lets_in(servers: str, user: dict[str, str]) -> bool:
    try:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **user})
        return bool(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
