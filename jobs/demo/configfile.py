"""The config that the demo's topic is run by.

Relies on the names of the demo's fields. Never read by the oracle.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final

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
  path: ./lake
  target_file_size: 1MiB
  min_file_size: 256KiB
tombstones: quarantine
late: amend
"""


def write_config(path: Path, *, topic: str, bootstrap_servers: str, zone: str, first: date) -> None:
    """Write the YAML; the lake lies beside it."""
    path.write_text(CONFIG.format(topic=topic, bootstrap_servers=bootstrap_servers, zone=zone, first=first))
