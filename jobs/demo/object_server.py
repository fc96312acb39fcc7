"""A real S3 server of our own: versitygw, which Go makes once from its pinned source.

Relies on Go alone; what it made stays below `servers` in the set-up's folder, and is taken as it is.
Never listens beyond loopback, and never outlives this process unless it is to be kept.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jobs.demo.broker import free_ports
from jobs.demo.children import bound_to, ended
from jobs.paths import conf_folder, in_checkout
from offsets.errors import ConfigError, RunFailed

BUILD_SECONDS: Final = 1500.0
"""Far longer than it takes: another process may take both cores meanwhile."""
READY_SECONDS: Final = 60.0
STARTS: Final = 3
BUCKET: Final = "lakes"
REGION: Final = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server at one version, and how its tool makes it; what that leaves goes to another folder."""

    name: str
    version: str
    tool: str
    command: Callable[[Path, Path], list[str]]
    environment: Callable[[Path, Path], dict[str, str]] = lambda folder, scratch: {}

    def folder(self) -> Path:
        """Return the folder in which it is, as a whole; make it there where it is not.

        Raises:
            ConfigError: its tool is not on this machine.
            RunFailed: it could not be made.
        """
        folder = servers() / f"{self.name}-{self.version}"
        if not folder.exists():
            with _locked(servers() / f".{folder.name}.lock"):
                if not folder.exists():  # another process may have made it meanwhile
                    self._make(folder)
        return folder

    def _make(self, folder: Path) -> None:
        tool = shutil.which(self.tool)
        if tool is None:
            raise ConfigError(
                expected=f"{self.tool} on the path, which makes {self.name}",
                found="none",
                do=f"Install {self.tool}, then try again.",
            )
        for left in servers().glob(f".{folder.name}.new-*"):  # by who was killed over it
            shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=servers(), prefix=f".{folder.name}.new-"))
        made, scratch = new / "made", new / "scratch"
        made.mkdir()
        scratch.mkdir()
        try:
            self._run(tool, made, scratch)
            made.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _run(self, tool: str, made: Path, scratch: Path) -> None:
        environment = os.environ | self.environment(made, scratch)
        with (scratch / "log").open("w+") as log:
            process = subprocess.Popen(
                [tool, *self.command(made, scratch)],
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=bound_to(os.getpid(), signal.SIGKILL),  # go hears nothing else
            )
            with ended(process):
                code = process.wait(BUILD_SECONDS)
            log.seek(0)
            said = log.read().strip().splitlines()[-20:]
        if code:
            raise RunFailed(
                expected=f"{self.tool} to make {self.name} {self.version}",
                found="\n".join([f"exit code {code}; it ended with:", *said, ""]),
                do="Look at what it says, then try again.",
            )


VERSITYGW: Final = Program(
    name="versitygw",
    version="1.8.0",
    tool="go",
    # a program without C needs no compiler of C, and one without what a debugger reads is made sooner
    command=lambda made, scratch: [
        *("install", "-modcacherw", "-ldflags=-s -w", "-gcflags=all=-dwarf=false"),
        "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    ],
    environment=lambda made, scratch: {
        "CGO_ENABLED": "0",
        "GOBIN": str(made),
        "GOPATH": str(scratch / "path"),
        "GOMODCACHE": str(scratch / "modules"),
        "GOCACHE": str(scratch / "cache"),
        "GOTMPDIR": str(scratch),
    },
)


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running versitygw; a folder in its own is a bucket."""

    endpoint: str
    folder: Path
    key_id: str
    key: str = field(repr=False)
    pid: int

    def path(self, prefix: str) -> str:
        """Return the address of a lake below a prefix."""
        return f"s3://{BUCKET}/{prefix}"

    def folder_of(self, prefix: str) -> Path:
        """Return the folder in which it keeps the objects below a prefix, each as a file."""
        return self.folder / BUCKET / prefix

    def store_section(self) -> dict[str, str]:
        """Return what `lake.store` says of it."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.key_id,
            "secret_access_key": self.key,
        }


@contextmanager
def run_s3(folder: Path, *, keep: bool = False) -> Iterator[S3Server]:
    """Run versitygw with its data in a folder until the block is left; with `keep` it outlives this process.

    Raises:
        ConfigError: Go, which makes it, is not on this machine.
        RunFailed: it could not be made, or did not start.
    """
    program, key_id, key = VERSITYGW.folder() / "versitygw", secrets.token_hex(8), secrets.token_hex(16)
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True)
    options = [] if _has_attributes(data) else ["--sidecar", str(folder / "sidecar")]
    (folder / "sidecar").mkdir()
    environment = {"ROOT_ACCESS_KEY": key_id, "ROOT_SECRET_KEY": key}

    def command(port: int) -> list[str]:
        return [str(program), "--quiet", "--port", f"127.0.0.1:{port}", "posix", *options, str(data)]

    with started("versitygw", command, folder, environment, keep=keep) as (port, pid):
        yield S3Server(f"http://127.0.0.1:{port}", data, key_id, key, pid)


@contextmanager
def started(
    name: str,
    command: Callable[[int], list[str]],
    folder: Path,
    environment: dict[str, str],
    *,
    keep: bool = False,
) -> Iterator[tuple[int, int]]:
    """Run a server in a folder and on a free port until the block is left; yield its port and its pid.

    Raises:
        RunFailed: it did not start.
    """
    with tempfile.TemporaryFile("w+") as log, ExitStack() as held:
        for attempt in range(1, STARTS + 1):
            [port] = free_ports(1)
            process = subprocess.Popen(
                command(port),
                cwd=folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for who started it, and still needs it
                preexec_fn=None if keep else bound_to(os.getpid(), signal.SIGKILL),
            )
            if _listens(process, port):
                held.enter_context(ended(process, keep=keep))
                yield port, process.pid
                return
            with ended(process):
                log.seek(0)
                said = "\n".join(log.read().splitlines()[-20:])
            # another process can take a free port before the server does
            if attempt == STARTS:
                raise RunFailed(
                    expected=f"{name} to start", found=f"it ended with:\n{said}\n", do="Try again."
                )


def servers() -> Path:
    """Return the folder of all servers, which set-up leaves alone; make it where it is not."""
    around = conf_folder().parent / ".kafka-daily" if in_checkout() else Path(sys.prefix)
    folder = Path(os.environ.get("KAFKA_DAILY_HOME") or around) / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _listens(process: subprocess.Popen[Any], port: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.05)
    return False


def _has_attributes(folder: Path) -> bool:
    """Return whether a file system keeps attributes of users, in which versitygw keeps ETags."""
    try:
        os.setxattr(folder, "user.kafka-daily", b"")
        os.removexattr(folder, "user.kafka-daily")
    except OSError:
        return False
    return True
