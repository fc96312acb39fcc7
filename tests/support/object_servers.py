"""Real object stores for the tests: the demo's, which speaks S3, and Azurite, as Azure's Blob Storage speaks.

Relies on Go and on npm, which make them once. A test that needs one is skipped where its tool is not on the
machine, and fails there with KAFKA_DAILY_TEST_BUCKETS=required. Never listens beyond loopback, and never
outlives this process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, Protocol

import pytest

from jobs.config.bucket import bucket_settings
from jobs.config.schema import LakeSection, StoreSection
from jobs.context import open_bucket
from jobs.demo.object_server import (
    BUCKET,
    BUILD_SECONDS,
    READY_SECONDS,
    VERSITYGW,
    Program,
    S3Server,
    run_s3,
    started,
)
from jobs.lake.objects.bucket import Bucket
from jobs.lake.objects.lake import IN_FLIGHT, ObjectLake
from offsets.errors import ConfigError
from tests.support.brokers import fixtures_of

REQUIRED: Final = "KAFKA_DAILY_TEST_BUCKETS"
TIMEOUT: Final = "10s"
"""How long the lakes of the tests try a store that does not answer."""
ACCOUNT: Final = "kafkadaily"
AZURITE: Final = Program(
    name="azurite",
    version="3.35.0",
    tool="npm",
    command=lambda made, scratch: [
        *("install", "--prefix", str(made), "--cache", str(scratch / "cache")),
        *("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "azurite@3.35.0"),
    ],
)


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
def run_azure(folder: Path) -> Iterator[AzureServer]:
    """Run Azurite with its data in memory."""
    program = AZURITE.folder() / "node_modules/azurite/dist/src/blob/main.js"
    node = shutil.which("node")
    if node is None:
        raise ConfigError(expected="node on the path, which runs azurite", found="none", do="Install it.")
    key = base64.b64encode(secrets.token_bytes(64)).decode()

    def command(port: int) -> list[str]:
        # it would tell its maker of each start
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
        return [node, str(program), "--blobPort", str(port), *quiet]

    with started("azurite", command, folder, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}) as (port, _):
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
    except ConfigError as error:
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
        except ConfigError as missing:
            print(f"no tests on {program.name}: {missing}", flush=True)
            code = code or int(os.environ.get(REQUIRED) == "required")
    sys.exit(code)


if __name__ == "__main__":
    main()
