"""The formats of a record's value; other modules know each by its protocol alone."""

from jobs.record.formats.json import Json
from jobs.record.formats.protocol import RecordDecoder
from jobs.record.formats.raw import Raw
from jobs.record.rules import RecordFormat

DECODERS: dict[RecordFormat, RecordDecoder] = {RecordFormat.JSON: Json(), RecordFormat.RAW: Raw()}
"""Each format's name, and the object that holds all that is special to the format."""
