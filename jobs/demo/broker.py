"""A real single-node Apache Kafka of our own, for the demo and for tests where Docker is not to be had.

Relies on Java, on a POSIX shell and on the broker's jars, which set-up has resolved.
Never downloads, never listens beyond loopback, and never outlives this process unless it is to be kept.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from jobs.paths import home
from offsets.errors import BrokerUnavailable

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
STARTS: Final = 3

# The shell is the broker's parent, so the pid stays the broker's until the shell has ended. It holds the
# read end of a pipe whose other end only we hold: however we end, by SIGKILL too, it sees the pipe close.
WATCHED: Final = """
folder=$1; shift
exec 3<&0
"$@" </dev/null >>"$folder/broker.log" 2>&1 3<&- &
broker=$!
echo "$broker"
exec >&- 2>&-
{ read -r _ <&3; : >"$folder/orphaned"; kill -KILL "$broker"; } &
watch=$!
wait "$broker"
code=$?
if [ -e "$folder/orphaned" ]; then rm -rf "$folder"; else kill "$watch"; fi
exit "$code"
"""
KEPT: Final = """
folder=$1; shift
"$@" </dev/null >>"$folder/broker.log" 2>&1 &
echo "$!"
exec >&- 2>&-
wait "$!"
"""

SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "1000",
    # Records stamped in the past must stay, and a wrong clock may stamp them in the future.
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    # On purpose: what must never create a topic is tested where a topic could be created.
    "auto.create.topics.enable": "true",
}

LOG4J2: Final = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
"""


class BrokerProcess:
    """Runs one broker, as a context manager; can pause, resume or restart it to try an outage.

    `settings` override the broker's properties. With `keep` neither leaving the context nor the end of this
    process stops the broker: `broker.pid` in its folder holds the pid that a user can stop.
    """

    bootstrap_servers: str
    folder: Path
    pid: int

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, keep: bool = False, heap: str = "512m"
    ) -> None:
        """Choose the settings; nothing is started yet."""
        self._settings = {**SETTINGS, **(settings or {})}
        self._keep = keep
        self._heap = heap
        self._shell: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the broker and wait until it answers."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the broker and remove its folder, unless it is kept."""
        if not self._keep:
            self.stop()

    def start(self) -> None:
        """Make the folder, format it and start the broker; on failure nothing is left behind."""
        for attempt in range(1, STARTS + 1):
            self.folder = Path(tempfile.mkdtemp(prefix="kafka-daily-broker-"))
            try:
                self._format()
                self._launch()
                return
            except BrokerUnavailable:
                # Another process can take a free port before the broker does.
                if attempt == STARTS or "Address already in use" not in self.log():
                    self.stop()
                    raise
                self.stop()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the broker, in an orderly way if it can, and remove its folder."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Stop the broker and start it again with the same data and port."""
        self._end()
        self._launch()

    def pause(self) -> None:
        """Let the broker hang: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Return the broker's own log."""
        try:
            return (self.folder / "broker.log").read_text(errors="replace")
        except OSError:
            return ""

    def _format(self) -> None:
        broker, controller = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{broker}"
        properties = {
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.folder / "data"),
            **self._settings,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        (self.folder / "log4j2.properties").write_text(LOG4J2)
        with self._spawn("kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c") as shell:
            if shell.wait() != 0:
                raise self._failed("could not format its folder")

    def _launch(self) -> None:
        self._shell = self._spawn("kafka.Kafka")
        (self.folder / "broker.pid").write_text(f"{self.pid}\n")
        self._await_metadata(self._shell)

    def _spawn(self, *main: str) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C on the terminal is ours to handle; a kept broker survives its terminal.
        command = [*self._java(), *main, str(self.folder / "server.properties")]
        shell = subprocess.Popen(
            ["/bin/sh", "-c", KEPT if self._keep else WATCHED, "broker", str(self.folder), *command],
            stdin=subprocess.DEVNULL if self._keep else subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if shell.stdout is None:
            raise TypeError("the shell's output is a pipe")
        with shell.stdout:
            self.pid = int(shell.stdout.readline())
        return shell

    def _await_metadata(self, shell: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if answers(self.bootstrap_servers):
                return
            if shell.poll() is not None:
                raise self._failed(f"ended with code {shell.returncode} before it was ready")
            time.sleep(0.2)
        raise self._failed(f"did not answer within {READY_SECONDS:.0f} s")

    def _end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is None:
            return
        if shell.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
                os.kill(self.pid, signal.SIGCONT)
            try:
                shell.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                shell.wait()
        if shell.stdin is not None:
            shell.stdin.close()

    def _java(self) -> list[str]:
        return [
            java(),
            f"-Xmx{self._heap}",
            f"-Xms{self._heap}",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            *_shared_classes(),
            # it lives for minutes: what the second compiler does for it comes too late
            *([] if self._keep else ["-XX:TieredStopAtLevel=1"]),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp",
            f"{broker_jars()}/*",
        ]

    def _failed(self, what: str) -> BrokerUnavailable:
        tail = "\n".join(self.log().splitlines()[-20:])
        return BrokerUnavailable(
            expected="our own Kafka broker to start",
            found=f"that it {what}; its log ends with:\n{tail}\n",
            do="Look for what else uses the machine's memory, disk or ports, then try again.",
        )


def class_archive() -> Path:
    """Return the path of an archive of a broker's classes, which fits this Java and these jars alone.

    A broker starts in half the time with it, and needs none.
    """
    program, jars = Path(java()).resolve(), broker_jars()
    names = sorted(path.name for path in jars.glob("*.jar"))
    known = f"{program} {program.stat().st_mtime_ns} {jars.resolve()} {names}"
    return jars.parent / f"broker-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"


def _shared_classes() -> list[str]:
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.is_file() else []


def broker_jars() -> Path:
    """Return the folder with the broker's jars.

    Raises:
        BrokerUnavailable: set-up has not resolved them.
    """
    folder = home() / "jars" / "broker"
    if not any(folder.glob("kafka_*.jar")):
        raise BrokerUnavailable(
            expected=f"the broker's jars in {folder}",
            found="none",
            do="Run `./run.sh demo`, which resolves them.",
        )
    return folder


def java() -> str:
    """Return the Java program: of JAVA_HOME, else of the path.

    Raises:
        BrokerUnavailable: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise BrokerUnavailable(
            expected="Java 17 or newer in JAVA_HOME or on the path", found="none", do="Run `./run.sh setup`."
        )
    return found


def answers(bootstrap_servers: str) -> bool:
    """Return whether a broker answers with its metadata within a second."""
    # Refused connections are what waiting is for: librdkafka need not log them.
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False


def new_cluster_id() -> str:
    """Make an id as Kafka writes it: 16 bytes in base64, of which the first is no dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")


def free_ports(count: int) -> list[int]:
    """Find ports of loopback that nothing listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
