"""Sends records whose header keys are not UTF-8, by librdkafka itself."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka


def send_header_keys(servers: str, topic: str, keys: list[bytes], stamp: int) -> None:
    """Produce records by librdkafka itself, since its Python client takes no key that is not UTF-8."""
    shipped = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(shipped.glob("librdkafka*.so*"))))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    conf, error = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), error, ctypes.c_size_t(512))
    producer = ctypes.c_void_p(library.rd_kafka_new(0, conf, error, ctypes.c_size_t(512)))
    name, value, size = ctypes.c_char_p(topic.encode()), ctypes.c_char_p(b"v" * 2000), ctypes.c_size_t(2000)
    for key in keys:
        header = (9, ctypes.c_char_p(key), ctypes.c_char_p(b"1"), ctypes.c_size_t(1))
        arguments = (1, name, 4, value, size, 7, 2, 8, ctypes.c_longlong(stamp), *header, 0)
        assert library.rd_kafka_producev(producer, *arguments) == 0
    assert library.rd_kafka_flush(producer, 10_000) == 0
    library.rd_kafka_destroy(producer)
