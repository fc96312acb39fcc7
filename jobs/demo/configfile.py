"""The config that the demo's topic is run by.

Relies on the names of the demo's fields. Never read by the oracle.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final

from jobs.demo.object_server import S3Server

CONFIG: Final = """\
# Written by `kafka-daily demo`; conf/example.yaml explains every key.
topic: {topic}
kafka:
  bootstrap_servers: {bootstrap_servers}
day:
  zone: {zone}
  first: {first}
  grace: 1h
event_time:
  field: created_at
  format: iso8601
  zone: UTC
validity:
  past: 30d
  future: 1d
record:
  format: json
  columns:
    order_id: string
    customer: string
    amount: double
    items: bigint
    tags: array<string>
    address: struct<city:string,zip:string>
    status: string
    note: string
  kafka_columns:
    - key
lake:
{lake}
  target_file_size: 1MiB
  min_file_size: 256KiB
tombstones: quarantine
late: amend
"""


FOLDER: Final = "  path: ./lake"
IN_S3: Final = """\
  path: {path}
  store:
    endpoint: {endpoint}
    allow_http: true
    region: {region}
    access_key_id: {access_key_id}
    secret_access_key: ${{file:{key_file}}}"""


def write_config(
    path: Path, *, topic: str, bootstrap_servers: str, zone: str, first: date, lake: str = FOLDER
) -> None:
    """Write the YAML; the lake lies beside it, unless `lake` has other keys."""
    path.write_text(
        CONFIG.format(topic=topic, bootstrap_servers=bootstrap_servers, zone=zone, first=first, lake=lake)
    )


def keys_in_s3(server: S3Server, prefix: str, key_file: Path) -> str:
    """Return the keys of a lake in a bucket; its secret is put into a file, as none stands in a config."""
    store = server.store_section()
    key_file.touch(mode=0o600)
    key_file.write_text(store.pop("secret_access_key"))
    return IN_S3.format(path=server.path(prefix), key_file=key_file, **store)
