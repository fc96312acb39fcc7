"""The protocol of a format of records.

Relies on the rules alone. Never imports a library that decodes, since every command and the config import it.
Knows no format: `jobs.record.formats` has the table, and a folder or module for each format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from jobs.record.columns import Column
from jobs.record.rules import Rules

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.record.event_time import Faults

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """Why a format cannot use the value of a key; skipped where a key of `unless` has a problem."""

    path: KeyPath
    problem: str
    unless: tuple[KeyPath, ...] = ()


@dataclass(slots=True, kw_only=True)
class Read:
    """What was read from a batch of values, one slot a value.

    `columns` are those of the format. `event_time` is in microseconds, with its own faults, or None where the
    rules take Kafka's timestamp. `value_faults` are of values that are not valid, whose slots mean nothing;
    `field_faults` are of values with a field that its column cannot hold. A record's cause is its value
    fault, else its event time's fault, else its field fault.
    """

    columns: list[pa.Array]
    event_time: tuple[pa.Int64Array, Faults] | None = None
    value_faults: Faults = field(default_factory=dict)
    field_faults: Faults = field(default_factory=dict)


class RecordDecoder(Protocol):
    """One format of records: the keys of a config that it needs, its columns, and how its values are read.

    A third format is a folder beside `json/` with a class like this, a name in `RecordFormat`, and a line in
    the table. It must keep these rules:

    - The rules hold all that `reader` may use, on the driver and in each task. It reads no file and calls no
      service. Avro also needs the schema of each registry id: the driver asks for it, and it becomes a field
      of `Rules`. The registry's subjects are a term of the contract, the ids are not. Old
      contracts must stay valid: a new term is left out where it is not used.
    - Each value is read by its bytes and the rules alone: the result is the same in any batch, and the cause
      holds nothing of the value. One batch may hold values of many writers' schemas; the columns are always
      those of `columns`.
    - Where no verdict is possible, as for an id that the driver did not resolve, `reader`'s function raises a
      KafkaDailyError. The task reports it, and nothing is committed.
    - Another verdict or other bytes for the same rules need another `DECODER_VERSION`.
    """

    has_fields: ClassVar[bool]
    """Whether a value has fields that can hold the event time; else Kafka's timestamp is the event time."""
    keeps_null_values: ClassVar[bool]
    """Whether a record without a value is a row like any other; else it is a tombstone."""
    kafka_columns: ClassVar[frozenset[str]]
    """The Kafka columns that are written where the config names none."""

    def problems(self, rules: Rules) -> Iterator[KeyProblem]:
        """Yield the keys of a config that this format misses or refuses; import no library that decodes."""
        ...

    def columns(self, rules: Rules) -> tuple[Column, ...]:
        """Return the record's own columns, all nullable."""
        ...

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        """Return a function that reads a batch; raise ValueError where the rules let no record be read.

        It gets null values too. Without `keeps_null_values` their slots mean nothing and need no fault.
        """
        ...
