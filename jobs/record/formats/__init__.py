"""The formats that a record's value can have, each known to the rest by its protocol alone."""

from jobs.record.formats.json import Json
from jobs.record.formats.protocol import RecordDecoder
from jobs.record.formats.raw import Raw
from jobs.record.rules import RecordFormat

DECODERS: dict[RecordFormat, RecordDecoder] = {RecordFormat.JSON: Json(), RecordFormat.RAW: Raw()}
"""Each format's name and the one object that has all that is special to it."""
