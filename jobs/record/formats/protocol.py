"""What a format of records is to the rest of the job.

Relies on the rules alone; imports no library that decodes, since every command and the config import it.
Never knows a format: `jobs.record.formats` has the table, and a folder or module for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from jobs.record.rules import Rules

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.record.event_time import Faults

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """Why a format cannot work with the value of a key; left out where a key of `unless` has a problem."""

    path: KeyPath
    problem: str
    unless: tuple[KeyPath, ...] = ()


@dataclass(slots=True, kw_only=True)
class Read:
    """What was read of a batch of values, one slot a value.

    `columns` are those of the schema; `event_time` is in microseconds with the faults of its own, or None
    where the rules take Kafka's timestamp. `unread` are the values that are not valid, whose slots mean
    nothing; `unmade` those with a field that its column cannot hold. A record's cause is its fault in
    `unread`, else the event time's, else that in `unmade`.
    """

    columns: list[pa.Array]
    event_time: tuple[pa.Int64Array, Faults] | None = None
    unread: Faults = field(default_factory=dict)
    unmade: Faults = field(default_factory=dict)


class RecordDecoder(Protocol):
    """One format of records: its demands on a config, the columns of its rows, and how its values are read.

    A third format is a folder beside `json/` with a class like this, a name in `RecordFormat`, and a line in
    the table. It must hold to this:

    - `reader` gets all that it may know inside the rules, on the driver and in each task alike. It reads no
      file and asks no service. What Avro needs beyond the columns, the schema behind each registry id, is
      asked by the driver and becomes a field of `Rules`; the registry's subjects are a term of the contract,
      the ids are not. Old contracts must stay as they are: a new term is left out where it is not used.
    - Each value is judged alone, by its bytes and the rules: the same alone as in any batch, with a cause
      that holds nothing of the value. Values of many writers' schemas come in one batch: their columns are
      those of `schema`, whoever wrote them.
    - Where no verdict is possible, as on an id that the driver did not resolve, `reader`'s function raises a
      KafkaDailyError: the task reports it and nothing is committed.
    - Another verdict or other bytes for the same rules need another `DECODER_VERSION`.
    """

    has_fields: ClassVar[bool]
    """Whether a value has fields that an event time can name; else it is Kafka's timestamp."""
    keeps_null_values: ClassVar[bool]
    """Whether a record without a value is a row like any other; else it is a tombstone."""
    kafka_columns: ClassVar[frozenset[str]]
    """The parts of the Kafka record that are written where the config names none."""

    def problems(self, rules: Rules) -> Iterator[KeyProblem]:
        """Yield which keys of a config this format needs or refuses; imports nothing that decodes."""
        ...

    def schema(self, rules: Rules) -> pa.Schema:
        """Return the record's own columns, all nullable."""
        ...

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        """Compile the rules to what reads a batch; raise ValueError where no record can be read by them.

        Null values are read too. Without `keeps_null_values` their slots mean nothing and need no fault.
        """
        ...
