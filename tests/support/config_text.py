"""The smallest configuration."""

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
