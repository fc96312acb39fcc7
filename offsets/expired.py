"""What is left of a day that expired by policy: its manifest without the files, in the ledger.

Pure. The counts, their digests and the next checkpoint stay, so that the chain goes on from it and each
offset keeps its verdict. A set of offsets stands in the text, a long one in Roaring's bytes: no file lies
beside it.
Of a day whose manifest was damaged, what is not known is null.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from offsets.checkpoint import Checkpoint, TopicIdentity
from offsets.contract import Accepted, Contract
from offsets.days import Day, Runs
from offsets.errors import LedgerBroken
from offsets.manifest import CauseCount, Manifest, Tally
from offsets.manifest_text import LONG, checksum_of, decode, ranges_of, to_jsonable
from offsets.ranges import Offsets, from_bytes

FORMAT: Final = 1
HEAD: Final = '"expired_format"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed with a day's folder: its own `rows` and files, and those that `amended` it."""

    files: int
    """How many Parquet files lay in the folder."""
    bytes: int
    """Their size."""
    rows: int | None
    """How many rows of the day's own run were in them, with late and invalid ones."""
    amended: int | None
    """How many rows later runs had brought there; null if a manifest of theirs cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredDay:
    """One day that expired; the fields up to `next` are those of its manifest, null if that was damaged."""

    day: Day
    run_id: str | None = None
    revision: int | None = None
    earlier: Runs | None = None
    topic: TopicIdentity | None = None
    contract: Contract | None = None
    accepted: Accepted | None = None
    tally: tuple[Tally, ...] | None = None
    causes: tuple[CauseCount, ...] | None = None
    next: Checkpoint | None
    """The checkpoint from which the next day goes on; null too once a later day has expired."""
    gaps: int | None = None
    """How many offsets of its spans Kafka did not deliver."""
    removed: Removed
    """What went with its folder."""
    expired: datetime
    """When it expired."""
    reason: str
    """By which policy: a command, or a key of the config."""

    @classmethod
    def of(cls, manifest: Manifest, removed: Removed, expired: datetime, reason: str) -> ExpiredDay:
        """Return what is left of a day."""
        return cls(
            run_id=manifest.run_id,
            revision=manifest.revision,
            day=manifest.day,
            earlier=manifest.earlier,
            topic=manifest.topic,
            contract=manifest.contract,
            accepted=manifest.accepted,
            tally=manifest.tally,
            causes=manifest.causes,
            next=manifest.next,
            gaps=sum(len(gap.offsets) for gap in manifest.gaps),
            removed=removed,
            expired=expired,
            reason=reason,
        )


def to_text(expired: ExpiredDay) -> bytes:
    """Return the text of an expired day, with the SHA-256 of its canonical body as `checksum`."""
    body = to_jsonable(expired, _set_of)
    assert isinstance(body, dict)
    head = {"expired_format": FORMAT, "checksum": checksum_of(body)}
    return json.dumps(head | body, indent=1, ensure_ascii=False).encode() + b"\n"


def _set_of(offsets: Offsets) -> object:
    if offsets.range_count <= LONG:
        return ranges_of(offsets)
    return {"offsets": len(offsets), "roaring": base64.b64encode(offsets.to_bytes()).decode()}


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Offsets and isinstance(value, dict):
        return from_bytes(base64.b64decode(value["roaring"], validate=True))
    return decode(kind, value)


def from_text(text: bytes, where: str) -> ExpiredDay | None:
    """Read an entry of the ledger; None if it is no expired day's.

    Raises:
        LedgerBroken: the text is damaged, edited, or of an unknown format.
    """
    return _parse(text, where) if HEAD.encode() in text[:100] else None


@lru_cache(maxsize=1)  # a run asks several times for the last expired day, whose sets may be of any length
def _parse(text: bytes, where: str) -> ExpiredDay:
    try:
        document = json.loads(text)
        version, checksum = document.pop("expired_format"), document.pop("checksum")
        if (version, checksum) != (FORMAT, checksum_of(document)):
            raise ValueError(f"format {version!r}, or a checksum that does not fit the text")
        expired = msgspec.convert(document, ExpiredDay, dec_hook=_decode)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise LedgerBroken(
            expected=f"a readable entry of an expired day at {where}",
            found=str(error),
            do="Restore it from a backup. Where a later day has expired too, it may be moved away instead: "
            "only its counts are lost then, and `verify` goes on naming it.",
        ) from None
    return expired
