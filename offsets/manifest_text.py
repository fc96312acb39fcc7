"""The manifest as JSON: the only truth about what a day holds and which offsets come next.

Pure: turns text into a Manifest, and back. Reading is strict: an unknown or missing field, an invalid value,
an unknown format version or a wrong checksum is an error. A set of more than 100 ranges lies in a file beside
the manifest; the text holds its figures and its SHA-256.
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
"""A function that reads bytes of a day's list file, given the position and the number of bytes."""


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest's text, with the SHA-256 of its canonical body as `checksum`."""
    body = to_jsonable(manifest, _Lists())
    assert isinstance(body, dict)
    head = {"format_version": FORMAT_VERSION, "checksum": checksum_of(body)}
    return json.dumps(head | body, indent=1, ensure_ascii=False).encode() + b"\n"


def lists_of(manifest: Manifest) -> bytes:
    """Return the contents of the list file beside the manifest; no bytes if all sets are short."""
    lists = _Lists()
    to_jsonable(manifest, lists)
    return b"".join(lists.texts)


def texts_of(manifest: Manifest) -> dict[str, bytes]:
    """Return the text files of a day: the list file, if there are long sets, and last the manifest."""
    lists = lists_of(manifest)
    return {**({LISTS_NAME: lists} if lists else {}), MANIFEST_NAME: to_json(manifest)}


def from_json(text: bytes, where: str, read: ReadList | None = None) -> Manifest:
    """Read a manifest's text; `read` reads its long sets later, when they are used.

    Raises:
        LedgerBroken: the text is damaged, edited, or of an unknown format.
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
    if not _checksum_matches(checksum, document):
        raise _damaged(where, "a checksum that does not fit the text: it was edited or cut")
    try:
        if version == 1:
            document = _from_format_1(document)
        if version <= 2:
            document = _from_format_2(document)
        if version <= 3:
            document = _from_format_3(document) | {"late_expired": 0}
        manifest = msgspec.convert(document, Manifest, dec_hook=partial(_decode, where, read))
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise _damaged(where, str(error)) from None
    if not _round_trips(manifest, document):
        raise _damaged(where, f"fields that format {version} does not have")
    return manifest


def format_of(text: bytes) -> int:
    """Return the format of a manifest's text that `from_json` has read."""
    return msgspec.json.decode(text, type=_Head).format_version


class _Head(msgspec.Struct):
    format_version: int


def require_lists(manifest: Manifest) -> None:
    """Read each set in the list file of a manifest, and compare it with the figures in the text.

    Raises:
        LedgerBroken: a list is gone, damaged, or not the one that the manifest names.
    """
    for offsets in long_sets(manifest):
        if listing := offsets.listing:
            offsets_read = Offsets() | offsets
            recorded = (listing.offsets, listing.ranges, listing.from_offset, listing.until_offset)
            if (
                not len(offsets_read)
                or (len(offsets_read), offsets_read.range_count, offsets_read.first, offsets_read.until)
                != recorded
            ):
                raise _other_list(manifest, listing)


def _other_list(manifest: Manifest, listing: Listing) -> LedgerBroken:
    edges = f"from {listing.from_offset} to {listing.until_offset}"
    return LedgerBroken(
        expected=f"{listing.offsets:,} offsets in {listing.ranges:,} ranges, {edges}, at byte {listing.at} "
        f"of {LISTS_NAME} of {manifest.day.date}",
        found="other ones",
        do=LOST_LIST,
    )


def long_sets(manifest: Manifest) -> Iterator[Offsets]:
    """Yield the sets of a manifest that may lie in its list file."""
    for checkpoint in (manifest.consumed, manifest.next):
        yield from (part.pending for part in checkpoint.partitions)
    yield from (gap.offsets for gap in manifest.gaps)


class _Lists:
    """Encodes sets while a manifest is written: short ones go into the text, long ones into `texts`."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._at = 0

    def __call__(self, offsets: Offsets) -> object:
        if offsets.range_count <= LONG:
            return ranges_of(offsets)
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
    return dataclasses.asdict(offsets.listing) if offsets.listing else ranges_of(offsets)


def _as_shown(offsets: Offsets) -> object:
    """Return a set as JSON for other programs: a short one as ranges, a long one as figures."""
    if offsets.range_count <= LONG:
        return ranges_of(offsets)
    edges = {"from_offset": offsets.first, "until_offset": offsets.until}
    return {"offsets": len(offsets), "ranges": offsets.range_count, **edges}


def ranges_of(offsets: Offsets) -> object:
    """Return a set as its ranges, however many."""
    return [list(range_) for range_ in offsets]


def _from_format_1(old: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that format 1 lacked: no digests, no accepted loss, and up to 1,000 gaps probed."""
    new = {name: value for name, value in old.items() if name != "compacted"}
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
    """Add the field that format 2 lacked: the bounds of the days before, as None."""
    return old | {"earlier": None}


def _from_format_3(old: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that format 3 lacked: no columns of any day, and no count of lost offsets."""
    losses = [{**loss, "unsettled": None} for loss in old["accepted"]["loss"]]
    return old | {"columns": [], "accepted": {**old["accepted"], "loss": losses}}


def to_jsonable(value: object, sets: Callable[[Offsets], object] = _as_shown) -> object:
    """Return a value of the model in JSON's own types; `sets` converts sets of offsets."""
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
            return [to_jsonable(item, sets) for item in value]
        case Mapping():
            return {str(key): to_jsonable(item, sets) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {
                field.name: to_jsonable(getattr(value, field.name), sets)
                for field in dataclasses.fields(value)
            }
        case _:
            return value


def decode(kind: type[Any], value: Any) -> Any:
    """Read a value that JSON does not have, where no list lies beside the text."""
    return _decode("", None, kind, value)


def _decode(where: str, read: ReadList | None, kind: type[Any], value: Any) -> Any:
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


def _checksum_matches(checksum: object, document: dict[str, Any]) -> bool:
    quick = _sorted_json(document)
    return (quick is not None and hashlib.sha256(quick).hexdigest() == checksum) or (
        checksum_of(document) == checksum
    )


def _round_trips(manifest: Manifest, document: dict[str, Any]) -> bool:
    quick = _sorted_json(manifest)
    return (quick is not None and quick == _sorted_json(document)) or to_jsonable(
        manifest, _as_read
    ) == document


def _sorted_json(value: object) -> bytes | None:
    """Return canonical JSON by msgspec, in a tenth of the time; None if msgspec refuses the value.

    msgspec writes a few numbers differently. Equality is therefore proof, and after a difference `_checksum`
    or `to_jsonable` decides.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_encode_own_type, order="sorted")
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _encode_own_type(value: Any) -> object:
    if isinstance(value, Offsets | Contract):
        return to_jsonable(value, _as_read)
    raise TypeError(f"no JSON for a {type(value).__name__}")


def checksum_of(body: object) -> str:
    """Return the SHA-256 of the canonical JSON of a body."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _damaged(where: str, found: str) -> LedgerBroken:
    return LedgerBroken(
        expected=f"a readable manifest at {where}",
        found=found,
        do="Restore it from a backup, or build its day again (`run --date D --force`).",
    )
