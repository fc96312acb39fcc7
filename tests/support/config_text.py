"""The smallest configuration, and that of the lakes of `three_days`."""

from __future__ import annotations

SMALLEST = """\
topic: orders
kafka:
  bootstrap_servers: localhost:9092
day:
  zone: Europe/Amsterdam
  first: 2026-11-01
event_time:
  field: created_at
record:
  columns:
    order_id: string
lake:
  path: ./lake/orders
"""

THREE_DAYS = """\
topic: orders
kafka: {bootstrap_servers: "127.0.0.1:1"}
day: {zone: Europe/Amsterdam, first: 2026-03-28}
event_time: {field: at, format: epoch_us}
record:
  columns: {id: string, n: bigint}
  kafka_columns: [key]
lake: {path: ./lake}
"""
