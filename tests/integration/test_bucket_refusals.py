"""Stores that refuse, are absent or are none: each ends with its exit code and a word on what to do.

No sentence has the store's XML or a secret in it, and nothing is written that counts.
"""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
import yaml

from jobs.daily import run_day
from jobs.demo.broker import free_ports
from jobs.lake.objects.lake import ObjectLake
from offsets.errors import KafkaDailyError, StoreFailed
from tests.support.engine import Command
from tests.support.fault_proxy import CHANGING, PASSED, Asked, Fate, FaultProxy, Rule, refused
from tests.support.object_servers import StoredLake
from tests.support.stored_days import made, three_days_of_records
from tests.support.three_days import FIRST

DAY: Final = "2026-03-28"
AT_MOST: Final = 15.0
"""Seconds that a refusal may take, with a patience of one."""
SECRETS: Final = ("secret_access_key", "account_key", "access_key_id")
WRONG_KEYS: Final = {
    "s3": [
        ({"access_key_id": "NOBODYATALL"}, "UserNotFound", "Correct the credentials"),
        ({"secret_access_key": "wrong-secret"}, "SignatureDoesNotMatch", "Correct the credentials"),
        ({"region": "eu-north-7"}, "eu-north-7", "Correct `lake.store.region`"),
    ],
    "az": [
        ({"account_key": "d3Jvbmc="}, "failed to authenticate", "Correct the credentials"),
        ({"account_key": "no base64!"}, "Invalid Access Key", "Correct the credentials"),
        ({"account": "somebodyelse"}, "failed to authenticate", "Correct the credentials"),
    ],
}
ANSWERS: Final = [
    (403, "AccessDenied", "rights that docs/BUCKETS.md lists"),
    (403, "", "rights that docs/BUCKETS.md lists"),
    (403, "RequestTimeTooSkewed", "Set the clock of this machine"),
    (400, "ExpiredToken", "Get new credentials"),
    (400, "AuthorizationHeaderMalformed", "Correct `lake.store.region`"),
    (301, "PermanentRedirect", "Correct `lake.store.region`"),
    (503, "SlowDown", "The store is busy"),
    (429, "", "The store is busy"),
    (500, "InternalError", "Look at the store and its logs"),
]
"""What a store may answer, with S3's code for it, and what the message then advises."""


class NoStore(BaseHTTPRequestHandler):
    """A web server, which answers everything with a page."""

    status = 200

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        page = b"<html><head><title>Welcome</title></head><body>No store</body></html>"
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def web_server(answers: int) -> Iterator[str]:
    """Run a web server that is no store, and yield its address."""
    handler = type("Answers", (NoStore,), {"status": answers})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Said:
    """What a command said about a lake that it could not reach."""

    def __init__(self, code: int, text: str, section: Mapping[str, str]) -> None:
        self.code, self.text, self._section = code, text, section

    def assert_plain(self) -> None:
        """Check that it is the store's exit code, and one paragraph without XML and without secrets."""
        assert self.code == StoreFailed.exit_code, self.text
        assert "The lake's store refused an operation. Expected to " in self.text
        assert not re.search(r"</?\w+>|Debug source|\.\. |Traceback", self.text), self.text
        assert not [key for key in SECRETS if self._section.get(key, "none") in self.text], self.text


@pytest.fixture
def asked(stored: StoredLake, command: Command, tmp_path: Path) -> Asking:
    return Asking(stored, command, tmp_path)


class Asking:
    """Asks for a lake by the command line, with a config whose store is written otherwise than it is."""

    def __init__(self, stored: StoredLake, command: Command, folder: Path) -> None:
        self._stored, self._command, self._folder = stored, command, folder

    def __call__(self, *arguments: str, path: str | None = None, **changes: str) -> Said:
        section = self._stored.store_section() | {"timeout": "1s"} | changes
        config = self._folder / "topic.yaml"
        sections = {
            "topic": "orders",
            "kafka": {"bootstrap_servers": "127.0.0.1:1", "timeout": "1s"},  # nobody gets that far
            "day": {"zone": "UTC", "first": DAY},
            "event_time": {"field": "at"},
            "record": {"columns": {"id": "string"}},
            "lake": {"path": path or self._stored.path, "store": section},
        }
        config.write_text(yaml.safe_dump(sections))
        ended = self._command(config, *(arguments or ("run", "--date", DAY)))
        return Said(ended.code, ended.err, section)


def nothing_counts(stored: StoredLake) -> bool:
    """Return whether a lake has neither an entry nor a file that readers see."""
    return not [each for each in stored.bucket().find("") if each.key.startswith(("_ledger", "date="))]


def test_a_bucket_that_is_not_there(stored: StoredLake, asked: Asking) -> None:
    said = asked(path=stored.path.replace("//lakes/", "//nowhere-at-all/"))
    said.assert_plain()
    assert re.search("NoSuchBucket|ContainerNotFound", said.text)
    assert "Make the bucket, or correct `lake.path`." in said.text


def test_credentials_that_are_wrong(stored: StoredLake, asked: Asking) -> None:
    for changes, found, advice in WRONG_KEYS[stored.path[:2]]:
        said = asked(**changes)
        said.assert_plain()
        assert found in said.text
        assert advice in said.text, said.text
    assert nothing_counts(stored)


def test_nobody_listens(stored: StoredLake, asked: Asking) -> None:
    [port] = free_ports(1)
    said = asked(endpoint=f"http://127.0.0.1:{port}")
    said.assert_plain()
    assert "Connection refused. Look at the network and at `lake.store.endpoint`." in said.text


def test_an_endpoint_whose_name_is_of_nobody(stored: StoredLake, asked: Asking) -> None:
    said = asked(endpoint="http://no-such-host.invalid:9000")
    said.assert_plain()
    assert re.search("Correct `lake.store.endpoint`|Look whether it is a store", said.text), said.text


def test_an_endpoint_that_never_answers_is_given_up_in_time(stored: StoredLake, asked: Asking) -> None:
    """`lake.store.timeout` says how long a store is tried that does not answer."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        began = time.monotonic()
        said = asked("status", endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        seconds = time.monotonic() - began
    said.assert_plain()
    assert "timed out. Look at the network and at `lake.store.endpoint`." in said.text
    assert seconds < AT_MOST


@pytest.mark.parametrize("answers", [200, 404])
def test_a_web_server_that_is_no_store_settles_no_day(
    answers: int, stored: StoredLake, asked: Asking
) -> None:
    with web_server(answers) as address:
        said = asked(endpoint=address)
    said.assert_plain()
    assert "Look whether it is a store that answers at `lake.store.endpoint`." in said.text


def test_a_web_server_that_is_no_store_is_no_empty_lake(stored: StoredLake, asked: Asking) -> None:
    """Consoles of stores answer any question with a page, which reads as a listing without objects."""
    with web_server(200) as address:
        said = asked("status", endpoint=address)
    said.assert_plain()


@pytest.mark.parametrize("status, code, advice", ANSWERS)
def test_what_a_store_answers_is_told_with_what_to_do(
    status: int, code: str, advice: str, stored: StoredLake, asked: Asking
) -> None:
    with FaultProxy(stored.server.endpoint, rule=lambda _: refused(status, code)) as proxy:
        said = asked("status", endpoint=proxy.endpoint)
    said.assert_plain()
    assert advice in said.text, said.text


def test_an_identity_that_may_read_alone_commits_nothing(stored: StoredLake) -> None:
    def rule(asked: Asked) -> Fate:
        return refused(403, "AccessDenied") if asked.method in CHANGING else PASSED

    stopped = _refusal(stored, rule)
    assert "rights that docs/BUCKETS.md lists" in stopped.do
    assert not stored.bucket().find("")


def test_a_store_that_ignores_conditions_commits_nothing(stored: StoredLake) -> None:
    """Each of two runs at once would find its own entry put, and one of them would be lost.

    What is signed cannot be left out of a request, so the answer alone is that of such a store.
    """

    def rule(asked: Asked) -> Fate:
        return Fate(answer=201) if "if-none-match" in asked.headers else PASSED

    stopped = _refusal(stored, rule)
    assert "If-None-Match is ignored" in stopped.found
    assert nothing_counts(stored)


def test_a_conflict_is_not_taken_for_a_store_that_ignores_conditions(stored: StoredLake) -> None:
    """S3 answers 409 where two conditional requests overlap, such as one that was asked for again."""
    conflicts = iter([refused(409, "ConditionalRequestConflict")])

    def rule(asked: Asked) -> Fate:
        return next(conflicts, PASSED) if "if-none-match" in asked.headers else PASSED

    with FaultProxy(stored.server.endpoint, rule=rule) as proxy:
        there = stored.with_store(endpoint=proxy.endpoint)
        run_day(made(ObjectLake(there.bucket()), three_days_of_records()), FIRST)
    assert stored.lake().days() == [FIRST]


def _refusal(stored: StoredLake, rule: Rule) -> KafkaDailyError:
    """Run a day into a store behind a proxy, and return how that ended."""
    with FaultProxy(stored.server.endpoint, rule=rule) as proxy:
        there = stored.with_store(endpoint=proxy.endpoint)
        with pytest.raises(StoreFailed) as stopped:
            run_day(made(ObjectLake(there.bucket(timedelta(seconds=1))), three_days_of_records()), FIRST)
    return stopped.value


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for loopback, which signs itself; its key is beside it."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate, and is not on this machine")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=kafka-daily", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),  # else it is refused as an authority's
            *("-keyout", "key.pem", "-out", "ca.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "ca.pem"


@contextmanager
def behind_tls(stored: StoredLake, certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FaultProxy(stored.server.endpoint, tls=context) as proxy:
        yield proxy.endpoint


def test_a_certificate_of_an_authority_that_the_config_names(stored: StoredLake, certificate: Path) -> None:
    with behind_tls(stored, certificate) as endpoint:
        place = stored.with_store(endpoint=endpoint, ca=str(certificate), allow_http="false")
        run_day(made(place.lake(), three_days_of_records()), FIRST)
    assert stored.lake().days() == [FIRST]


def test_a_certificate_of_an_unknown_authority(stored: StoredLake, asked: Asking, certificate: Path) -> None:
    with behind_tls(stored, certificate) as endpoint:
        said = asked("status", endpoint=endpoint)
    said.assert_plain()
    assert "Correct `lake.store.endpoint` or `lake.store.ca`." in said.text


def test_a_store_without_tls_where_the_config_wants_it(stored: StoredLake, asked: Asking) -> None:
    said = asked("status", endpoint=stored.server.endpoint.replace("http:", "https:"))
    said.assert_plain()
    assert "speaks no TLS. Correct `lake.store.endpoint` or `lake.store.ca`." in said.text
