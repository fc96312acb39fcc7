"""Real object stores for the tests: versitygw speaks S3, and Azurite what Azure's Blob Storage speaks.

Relies on Go and on npm, which make them once, below `servers` in the set-up's folder; what is there already
is taken as it is. A test that needs one is skipped where its tool is not on the machine, and fails there with
KAFKA_DAILY_TEST_BUCKETS=required. Never listens beyond loopback, and never outlives this process.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from jobs.config.bucket import bucket_settings
from jobs.config.schema import LakeSection, StoreSection
from jobs.context import open_bucket
from jobs.demo.broker import free_ports
from jobs.lake.objects.bucket import Bucket
from jobs.lake.objects.lake import IN_FLIGHT, ObjectLake
from tests.lanes import bound_to
from tests.support.brokers import fixtures_of

REQUIRED: Final = "KAFKA_DAILY_TEST_BUCKETS"
BUILD_SECONDS: Final = 1500.0
"""Far longer than either takes: another process may take both cores meanwhile."""
READY_SECONDS: Final = 60.0
STARTS: Final = 3
TIMEOUT: Final = "10s"
"""How long the lakes of the tests try a store that does not answer."""
BUCKET: Final = "lakes"
REGION: Final = "us-east-1"
ACCOUNT: Final = "kafkadaily"


class Unavailable(Exception):
    """The tool that makes a server is not on this machine."""


# ---------------------------------------------------------------- making them


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
            Unavailable: its tool is not on this machine.
            RuntimeError: it could not be made.
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
            raise Unavailable(f"{self.name} is made by {self.tool}, which is not on this machine")
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
                preexec_fn=bound_to(os.getpid(), 0, signal.SIGKILL),  # go hears nothing else
            )
            with _ended(process):
                code = process.wait(BUILD_SECONDS)
            log.seek(0)
            said = log.read().strip().splitlines()[-20:]
        if code:
            raise RuntimeError(f"{self.tool} could not make {self.name}:\n" + "\n".join(said))


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
AZURITE: Final = Program(
    name="azurite",
    version="3.35.0",
    tool="npm",
    command=lambda made, scratch: [
        *("install", "--prefix", str(made), "--cache", str(scratch / "cache")),
        *("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "azurite@3.35.0"),
    ],
)


def servers() -> Path:
    """Return the folder of all servers, which set-up leaves alone."""
    home = os.environ.get("KAFKA_DAILY_HOME") or Path(__file__).parents[2] / ".kafka-daily"
    folder = Path(home) / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Make sure that a process is over when the block is left."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


# ---------------------------------------------------------------- running them


class Server(Protocol):
    """A running store, and how it is reached."""

    @property
    def endpoint(self) -> str:
        """Return the address at which it listens."""
        ...

    def path(self, prefix: str) -> str:
        """Return the address of a lake below a prefix."""
        ...

    def store_section(self) -> dict[str, str]:
        """Return what `lake.store` says of it."""
        ...


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running versitygw; a folder in its own is a bucket."""

    endpoint: str
    folder: Path
    key_id: str
    key: str = field(repr=False)

    def path(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def folder_of(self, prefix: str) -> Path:
        """Return the folder in which it keeps the objects below a prefix, each as a file."""
        return self.folder / BUCKET / prefix

    def store_section(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.key_id,
            "secret_access_key": self.key,
        }


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running Azurite with one account."""

    endpoint: str
    account: str
    key: str = field(repr=False)

    def path(self, prefix: str) -> str:
        return f"az://{BUCKET}/{prefix}"

    def store_section(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "account": self.account, "account_key": self.key}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLake:
    """A place for one lake in a running store, with nothing below it."""

    server: Server
    prefix: str
    changes: Mapping[str, str] = field(default_factory=dict)
    """What `store_section` says otherwise than the server's own."""

    @property
    def path(self) -> str:
        """Return `lake.path`."""
        return self.server.path(self.prefix)

    def store_section(self) -> dict[str, str]:
        """Return `lake.store`, in which each value is a text."""
        usual = {"allow_http": "true", "timeout": TIMEOUT}
        return usual | self.server.store_section() | dict(self.changes)

    def with_store(self, **changes: str) -> StoredLake:
        """Return the same place, reached otherwise: by another endpoint or key, or with less patience."""
        return replace(self, changes={**self.changes, **changes})

    def bucket(self, timeout: timedelta | None = None) -> Bucket:
        """Return the objects below the prefix, as a config with that section opens them.

        `timeout` may be shorter than a config allows.
        """
        section = LakeSection.model_construct(
            path=self.path, store=StoreSection.model_validate(self.store_section())
        )
        found = bucket_settings(section, Path("/"))
        return open_bucket(replace(found, timeout=found.timeout if timeout is None else timeout))

    def in_config(self, text: str, folder: str) -> str:
        """Return a config's text in which this is the lake, and not a folder."""
        here = f"  path: {folder}\n"
        assert here in text
        return text.replace(here, f"  path: {self.path}\n  store: {self.store_section()}\n")

    def lake(self, in_flight: timedelta = IN_FLIGHT, *, with_lease: bool = True) -> ObjectLake:
        """Return the lake, as a new process would open it."""
        return ObjectLake(self.bucket(), in_flight, with_lease=with_lease)


@contextmanager
def _started(
    name: str, command: Callable[[int], list[str]], folder: Path, **environment: str
) -> Iterator[int]:
    """Run a server in a folder and on a free port until the block is left, and yield the port."""
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
                start_new_session=True,  # Ctrl-C is for the tests, which still need it
                preexec_fn=bound_to(os.getpid(), 0, signal.SIGKILL),
            )
            if _listens(process, port):
                held.enter_context(_ended(process))
                yield port
                return
            with _ended(process):
                log.seek(0)
                said = "\n".join(log.read().splitlines()[-20:])
            # another process can take a free port before the server does
            if attempt == STARTS:
                raise RuntimeError(f"{name} did not start:\n{said}")


def _listens(process: subprocess.Popen[Any], port: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.05)
    return False


@contextmanager
def run_s3(folder: Path) -> Iterator[S3Server]:
    """Run versitygw with its data in a folder."""
    program, key_id, key = VERSITYGW.folder() / "versitygw", secrets.token_hex(8), secrets.token_hex(16)
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True)
    options = [] if _has_attributes(data) else ["--sidecar", str(folder / "sidecar")]
    (folder / "sidecar").mkdir()
    environment = {"ROOT_ACCESS_KEY": key_id, "ROOT_SECRET_KEY": key}

    def command(port: int) -> list[str]:
        return [str(program), "--quiet", "--port", f"127.0.0.1:{port}", "posix", *options, str(data)]

    with _started("versitygw", command, folder, **environment) as port:
        yield S3Server(f"http://127.0.0.1:{port}", data, key_id, key)


def _has_attributes(folder: Path) -> bool:
    """Return whether a file system keeps attributes of users, in which versitygw keeps ETags."""
    try:
        os.setxattr(folder, "user.kafka-daily", b"")
        os.removexattr(folder, "user.kafka-daily")
    except OSError:
        return False
    return True


@contextmanager
def run_azure(folder: Path) -> Iterator[AzureServer]:
    """Run Azurite with its data in memory."""
    program = AZURITE.folder() / "node_modules/azurite/dist/src/blob/main.js"
    node = shutil.which("node")
    if node is None:
        raise Unavailable("azurite is run by node, which is not on this machine")
    key = base64.b64encode(secrets.token_bytes(64)).decode()

    def command(port: int) -> list[str]:
        # it would tell its maker of each start
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
        return [node, str(program), "--blobPort", str(port), *quiet]

    with _started("azurite", command, folder, AZURITE_ACCOUNTS=f"{ACCOUNT}:{key}") as port:
        server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}", ACCOUNT, key)
        _make_container(server, port)
        yield server


def _make_container(server: AzureServer, port: int) -> None:
    """Make the container by one signed request, as obstore makes none."""
    named = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "x-ms-version": "2021-08-06"}
    place = f"/{server.account}/{BUCKET}"
    lines = [
        *("PUT", *[""] * 11),
        *(f"{name}:{value}" for name, value in named.items()),
        f"/{server.account}{place}",
        "restype:container",
    ]
    digest = hmac.digest(base64.b64decode(server.key), "\n".join(lines).encode(), hashlib.sha256)
    signed = {"Authorization": f"SharedKey {server.account}:{base64.b64encode(digest).decode()}"}
    connection = HTTPConnection("127.0.0.1", port, timeout=READY_SECONDS)
    connection.request("PUT", f"{place}?restype=container", headers=named | signed | {"Content-Length": "0"})
    answer = connection.getresponse()
    said = answer.read().decode(errors="replace")
    connection.close()
    if answer.status != 201:
        raise RuntimeError(f"azurite made no container: {answer.status} {said}")


# ---------------------------------------------------------------- for tests


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Share one versitygw."""
    with _or_skipped(), run_s3(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Share one Azurite."""
    with _or_skipped(), run_azure(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@contextmanager
def _or_skipped() -> Iterator[None]:
    try:
        yield
        return
    except Unavailable as error:
        missing = str(error)
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, but {missing}", pytrace=False)
    pytest.skip(missing)


@pytest.fixture
def s3(s3_server: S3Server) -> StoredLake:
    """Return a place for a lake in an S3 store."""
    return StoredLake(server=s3_server, prefix=f"test-{secrets.token_hex(6)}")


@pytest.fixture
def azure(azure_server: AzureServer) -> StoredLake:
    """Return a place for a lake in Azure's store."""
    return StoredLake(server=azure_server, prefix=f"test-{secrets.token_hex(6)}")


@pytest.fixture(params=["s3", "azure"])
def stored(request: pytest.FixtureRequest) -> StoredLake:
    """Return a place for a lake, in each store in turn."""
    place: StoredLake = request.getfixturevalue(request.param)
    return place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what needs a store last: it may still be made meanwhile, which takes longer than a test may."""
    waiting = [item for item in items if fixtures_of(item) & {"s3", "azure", "stored"}]
    for item in waiting:
        item.add_marker(pytest.mark.timeout(BUILD_SECONDS))
    last = set(map(id, waiting))
    items.sort(key=lambda item: id(item) in last)


def main() -> None:
    """Make both servers, where they are not there yet."""
    code = 0
    for program in (AZURITE, VERSITYGW):
        began = time.monotonic()
        try:
            print(f"{program.folder()}, after {time.monotonic() - began:.0f} s", flush=True)
        except Unavailable as missing:
            print(f"no tests on {program.name}: {missing}", flush=True)
            code = code or int(os.environ.get(REQUIRED) == "required")
    sys.exit(code)


if __name__ == "__main__":
    main()
