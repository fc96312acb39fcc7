"""The levels of a verification, in a module of their own, which the command line can import fast."""

from enum import StrEnum


class Level(StrEnum):
    """Each level includes the ones before."""

    FILES = "files"
    RECORDS = "records"
    KAFKA = "kafka"
