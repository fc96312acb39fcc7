"""A broker that cannot be reached: what the client knows is passed on, with advice that fits."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Thread

import pytest

from offsets.errors import BrokerUnavailable, ConfigError, KafkaDailyError
from offsets.kafka.client import Broker
from offsets.kafka.reader import Stretch
from offsets.kafka.trouble import CHECK, advice_for, without_noise

Answer = Callable[[socket.socket], None]


def as_http(connection: socket.socket) -> None:
    """Answer as web servers do to what is no HTTP."""
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def as_tls(connection: socket.socket) -> None:
    """Expect a TLS handshake; a certificate is not needed to refuse what is none."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True)


@contextmanager
def listening(answer: Answer) -> Iterator[str]:
    def serve() -> None:
        with suppress(OSError):  # of the server, which is closed then
            while True:
                connection, _ = server.accept()
                with suppress(OSError), connection:
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive(), "it would take the processor from all tests that follow"


def stopped(servers: str, client: Mapping[str, str] | None = None) -> KafkaDailyError:
    broker = Broker({"bootstrap.servers": servers, **(client or {})}, timedelta(seconds=1.5))
    with pytest.raises(KafkaDailyError) as raised:
        broker.describe("orders")
    broker.close()
    return raised.value


def test_a_port_that_nothing_listens_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = stopped(f"127.0.0.1:{port}")
    assert isinstance(found, BrokerUnavailable)
    assert f"127.0.0.1:{port}: Connect to ipv4#127.0.0.1:{port} failed: Connection refused)" in found.found
    assert "start the broker" in found.do


def test_a_host_that_is_not_there() -> None:
    found = stopped("no-such-host.invalid:9092")
    assert isinstance(found, BrokerUnavailable)
    assert "Failed to resolve 'no-such-host.invalid:9092'" in found.found
    assert "Correct the host" in found.do


def test_a_web_server() -> None:
    with listening(as_http) as servers:
        found = stopped(servers)
    assert isinstance(found, BrokerUnavailable)
    assert "Invalid response size" in found.found
    assert "increase" not in found.found, "its own advice leads astray"
    assert "HTTP server" in found.do


def test_a_port_that_speaks_tls() -> None:
    with listening(as_tls) as servers:
        found = stopped(servers)
    assert isinstance(found, BrokerUnavailable)
    assert "Disconnected" in found.found
    assert "where the port speaks TLS" in found.do


def test_tls_on_a_port_that_speaks_without() -> None:
    with listening(as_http) as servers:
        found = stopped(servers, {"security.protocol": "SSL"})
    assert isinstance(found, ConfigError)
    assert "SSL handshake failed" in found.found
    assert "asks for TLS" in found.do


def test_a_broker_that_goes_away_while_records_are_read_is_not_waited_for_for_ever() -> None:
    """Each new try looked like progress."""
    broker = Broker({"bootstrap.servers": "127.0.0.1:1"}, timedelta(seconds=1))
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="Connection refused"):
        broker.records_of("orders", {0: Stretch(from_=0, until=9, limit=1)})
    assert 1 <= time.monotonic() - began < 5
    broker.close()


def test_no_secret_is_told() -> None:
    told = "FAIL [x] [thrd:sasl_ssl://b:1/bootstrap]: sasl_ssl://b:1/bootstrap: bad hunter2 (after 3ms in UP)"
    assert without_noise(told, ["hunter2"]) == "b:1: bad ***"
    assert advice_for("something else") == CHECK
