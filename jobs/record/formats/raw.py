"""Raw records: value, key and headers as bytes, with Kafka's timestamp as the event time.

Never refuses a record for its value, not even one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

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
        """Yield the keys that a record without fields cannot have, or that would leave a part out."""
        refused = {
            ("event_time", "field"): (
                rules.event_time.path,
                "cannot be read with record.format raw, which takes Kafka's timestamp",
            ),
            ("record", "columns"): (
                rules.columns,
                "cannot be read with record.format raw, which keeps the value as bytes",
            ),
            ("record", "kafka_columns"): (
                self.kafka_columns - rules.kafka_columns,
                "record.format raw always keeps key and headers; leave it out",
            ),
            ("tombstones",): (
                rules.tombstones is Tombstones.SKIP,
                "record.format raw keeps records without a value; leave it out",
            ),
        }
        for path, (wrong, problem) in refused.items():
            if wrong:
                yield KeyProblem(path=path, problem=problem)

    def schema(self, rules: Rules) -> pa.Schema:
        """Return the value as the one column."""
        import pyarrow as pa

        return pa.schema([pa.field("value", pa.binary())])

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        """Return what takes the values as they are."""
        return lambda values: Read(columns=[values])
