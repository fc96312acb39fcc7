"""How deep a verification looks. A module of its own: the command line names it before anything is loaded."""

from enum import StrEnum


class Level(StrEnum):
    """Each level includes the ones before."""

    FILES = "files"
    RECORDS = "records"
    KAFKA = "kafka"
