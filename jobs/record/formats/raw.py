"""Raw records: value, key and headers as bytes, with Kafka's timestamp as the event time.

Never refuses a record for its value, not even one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobs.record.columns import Column, Kind, Scalar
from jobs.record.formats.protocol import KeyProblem, Read, RecordDecoder
from jobs.record.rules import Rules, Tombstones

if TYPE_CHECKING:
    import pyarrow as pa


class Raw(RecordDecoder):
    """Keeps a whole record as it is."""

    has_fields = False
    keeps_null_values = True
    kafka_columns = frozenset({"key", "headers"})

    def problems(self, rules: Rules) -> Iterator[KeyProblem]:
        """Yield the keys that need fields, or that would leave a part of the record out."""
        raw = "record.format raw"
        if rules.event_time.path:
            problem = f"cannot be read with {raw}, which takes Kafka's timestamp"
            yield KeyProblem(("event_time", "field"), problem)
        if rules.columns:
            yield KeyProblem(
                ("record", "columns"), f"cannot be read with {raw}, which keeps the value as bytes"
            )
        if rules.kafka_columns < self.kafka_columns:
            yield KeyProblem(("record", "kafka_columns"), f"{raw} always keeps key and headers; leave it out")
        if rules.tombstones is Tombstones.SKIP:
            yield KeyProblem(("tombstones",), f"{raw} keeps records without a value; leave it out")

    def columns(self, rules: Rules) -> tuple[Column, ...]:
        """Return the value as the one column."""
        return (Column("value", Scalar(Kind.BINARY)),)

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        """Return a function that takes the values as they are."""
        return lambda values: Read(columns=[values])
