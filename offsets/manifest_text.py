"""The manifest as JSON: the only truth about what a day holds and which offsets come next.

Pure: text in, Manifest out, and back. Reading is strict: a field more or less, a value that breaks its
law, another format version or a checksum that does not fit is an error, never a guess. A set of more than
100 ranges is not in the text: figures and a SHA-256 are, and the set lies in a file beside it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Final

import msgspec

from offsets.contract import Contract
from offsets.errors import LedgerBroken
from offsets.manifest import FORMAT_VERSION, Manifest
from offsets.ranges import Listing, Offsets

MANIFEST_NAME = "_manifest.json"
LISTS_NAME = "_offsets.roaring"
LONG: Final = 100
"""A set with more ranges than this lies in a file beside the manifest."""
LOST_LIST: Final = (
    "Restore the day's folder from a backup. A day between two others can be built again too, and so can the "
    "newest: `run --date D --force`."
)
ReadList = Callable[[int, int], bytes]
"""Reads bytes of a day's list file, by their position and their number."""


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest's text, with the SHA-256 of its canonical body as `checksum`."""
    body = to_jsonable(manifest, _Lists())
    assert isinstance(body, dict)
    head = {"format_version": FORMAT_VERSION, "checksum": _checksum(body)}
    return json.dumps(head | body, indent=1, ensure_ascii=False).encode() + b"\n"


def lists_of(manifest: Manifest) -> bytes:
    """Return the long sets of offsets that belong beside the manifest's text; nothing where all are short."""
    lists = _Lists()
    to_jsonable(manifest, lists)
    return b"".join(lists.texts)


def from_json(text: bytes, where: str, read: ReadList | None = None) -> Manifest:
    """Read a manifest's text; its long sets are read, by `read`, when they are used.

    Raises:
        LedgerBroken: it is damaged, edited, or of a format that this version does not know.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, f"no JSON ({error})") from None
    if not isinstance(document, dict) or "format_version" not in document:
        raise _damaged(where, "JSON, but no manifest")
    version, checksum = document.pop("format_version"), document.pop("checksum", None)
    if version not in range(1, FORMAT_VERSION + 1):
        raise LedgerBroken(
            expected=f"a manifest of format 1 to {FORMAT_VERSION} at {where}",
            found=f"format {version!r}",
            do="Run the version of kafka-daily that wrote it, or a newer one.",
            format=version,
        )
    if not _fits(checksum, document):
        raise _damaged(where, "a checksum that does not fit the text: it was edited or cut")
    try:
        if version == 1:
            document = _from_format_1(document)
        if version <= 2:
            document = _from_format_2(document)
        manifest = msgspec.convert(document, Manifest, dec_hook=partial(_revive, where, read))
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise _damaged(where, str(error)) from None
    if not _same(manifest, document):
        raise _damaged(where, f"fields that format {version} does not have")
    return manifest


def require_lists(manifest: Manifest) -> None:
    """Read each set that is listed beside a manifest, and compare it with the figures in the text.

    Raises:
        LedgerBroken: a list is gone, damaged, or not the one that the manifest names.
    """
    for listing, offsets in ((each.listing, each) for each in long_sets(manifest)):
        if listing:
            held = Offsets() | offsets
            said = (listing.offsets, listing.ranges, listing.from_offset, listing.until_offset)
            if not len(held) or (len(held), held.range_count, held.first, held.until) != said:
                raise _unlike(manifest, listing)


def _unlike(manifest: Manifest, listing: Listing) -> LedgerBroken:
    edges = f"from {listing.from_offset} to {listing.until_offset}"
    return LedgerBroken(
        expected=f"{listing.offsets:,} offsets in {listing.ranges:,} ranges, {edges}, at byte {listing.at} "
        f"of {LISTS_NAME} of {manifest.day.date}",
        found="other ones",
        do=LOST_LIST,
    )


def long_sets(manifest: Manifest) -> Iterator[Offsets]:
    """Yield the sets of a manifest that may be long."""
    for checkpoint in (manifest.consumed, manifest.next):
        yield from (part.pending for part in checkpoint.partitions)
    yield from (gap.offsets for gap in manifest.gaps)


class _Lists:
    """The sets of a manifest as it is written: short ones in the text, long ones one after the other."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._at = 0

    def __call__(self, offsets: Offsets) -> object:
        if offsets.range_count <= LONG:
            return _ranges(offsets)
        text = offsets.to_bytes()
        listing = Listing(
            offsets=len(offsets),
            ranges=offsets.range_count,
            from_offset=offsets.first,
            until_offset=offsets.until,
            at=self._at,
            bytes=len(text),
            sha256=hashlib.sha256(text).hexdigest(),
        )
        self.texts.append(text)
        self._at += len(text)
        return dataclasses.asdict(listing)


def _as_read(offsets: Offsets) -> object:
    return dataclasses.asdict(offsets.listing) if offsets.listing else _ranges(offsets)


def _shown(offsets: Offsets) -> object:
    """Return a set as JSON for other programs: the ranges of a short one, the figures of a long one."""
    if offsets.range_count <= LONG:
        return _ranges(offsets)
    edges = {"from_offset": offsets.first, "until_offset": offsets.until}
    return {"offsets": len(offsets), "ranges": offsets.range_count, **edges}


def _ranges(offsets: Offsets) -> object:
    return [list(each) for each in offsets]


def _from_format_1(old: dict[str, Any]) -> dict[str, Any]:
    """Add what format 1 lacked: empty digests, no accepted loss, and gaps probed up to 1,000."""
    new = {name: each for name, each in old.items() if name != "compacted"}
    policy = {True: "compact", False: "delete", None: None}[old["compacted"]]
    gaps = [{**gap, "probed": min(len(gap["offsets"]), 1_000)} for gap in old["gaps"]]
    return new | {
        "accepted": old["accepted"] | {"loss": []},
        "cleanup_policy": policy,
        "transactional": None,
        "remade": [],
        "gaps": gaps,
        "tally": [{**tally, "digest": ""} for tally in old["tally"]],
    }


def _from_format_2(old: dict[str, Any]) -> dict[str, Any]:
    """Add what format 2 lacked: the bounds of the days before, which are None."""
    return old | {"earlier": None}


def to_jsonable(value: object, sets: Callable[[Offsets], object] = _shown) -> object:
    """Turn a value of the model into JSON's own types; `sets` turns a set of offsets."""
    match value:
        case Offsets():
            return sets(value)
        case Contract():
            return value.terms
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case tuple() | list():
            return [to_jsonable(each, sets) for each in value]
        case Mapping():
            return {str(key): to_jsonable(each, sets) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {
                field.name: to_jsonable(getattr(value, field.name), sets)
                for field in dataclasses.fields(value)
            }
        case _:
            return value


def _revive(where: str, read: ReadList | None, kind: type[Any], value: Any) -> Any:
    if kind is Offsets and isinstance(value, dict):
        listing = msgspec.convert(value, Listing)
        return Offsets.listed(listing, partial(_read_list, where, read, listing))
    if kind is Offsets:
        return Offsets(value)
    if kind is Contract and isinstance(value, dict):
        return Contract(value)
    raise ValueError(f"no {kind.__name__} can be made of a {type(value).__name__}")


def _read_list(where: str, read: ReadList | None, listing: Listing) -> bytes:
    text = read(listing.at, listing.bytes) if read else b""
    if hashlib.sha256(text).hexdigest() == listing.sha256:
        return text
    raise LedgerBroken(
        expected=f"the list of {listing.offsets:,} offsets that {where} names in {LISTS_NAME} beside it",
        found=f"another one, of {len(text)} bytes" if text else "none",
        do=LOST_LIST,
    )


def _fits(checksum: object, document: dict[str, Any]) -> bool:
    quick = _sorted_json(document)
    return (quick is not None and hashlib.sha256(quick).hexdigest() == checksum) or (
        _checksum(document) == checksum
    )


def _same(manifest: Manifest, document: dict[str, Any]) -> bool:
    quick = _sorted_json(manifest)
    return (quick is not None and quick == _sorted_json(document)) or to_jsonable(
        manifest, _as_read
    ) == document


def _sorted_json(value: object) -> bytes | None:
    """Return canonical JSON as msgspec writes it, in a tenth of the time; None for what it refuses.

    It writes a few numbers differently from `_checksum` and `to_jsonable`: where they disagree, these decide.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_own_types, order="sorted")
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _own_types(value: Any) -> object:
    if isinstance(value, Offsets | Contract):
        return to_jsonable(value, _as_read)
    raise TypeError(f"no JSON for a {type(value).__name__}")


def _checksum(body: object) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _damaged(where: str, found: str) -> LedgerBroken:
    return LedgerBroken(
        expected=f"a readable manifest at {where}",
        found=found,
        do="Restore it from a backup, or build its day again (`run --date D --force`).",
    )
