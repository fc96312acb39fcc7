"""The manifest as JSON: the only truth about what a day holds and which offsets come next.

Pure: text in, Manifest out, and back. Reading is strict: a field more or less, a value that breaks its
law, another format version or a checksum that does not fit is an error, never a guess.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import msgspec

from offsets.errors import LedgerBroken
from offsets.model import FORMAT_VERSION, Contract, Manifest
from offsets.ranges import Offsets

MANIFEST_NAME = "_manifest.json"


def to_json(manifest: Manifest) -> bytes:
    """Give the manifest's text, with the SHA-256 of its canonical body as `checksum`."""
    body = plain(manifest)
    assert isinstance(body, dict)
    head = {"format_version": FORMAT_VERSION, "checksum": _checksum(body)}
    return json.dumps(head | body, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(text: bytes, where: str) -> Manifest:
    """Read a manifest's text.

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
    if version not in (1, 2, FORMAT_VERSION):
        raise LedgerBroken(
            expected=f"a manifest of format 1 to {FORMAT_VERSION} at {where}",
            found=f"format {version!r}",
            do="Run the version of kafka-daily that wrote it, or a newer one.",
        )
    if not _fits(checksum, document):
        raise _damaged(where, "a checksum that does not fit the text: it was edited or cut")
    try:
        if version == 1:
            document = _from_format_1(document)
        if version <= 2:
            document = _from_format_2(document)
        manifest = msgspec.convert(document, Manifest, dec_hook=_revive)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise _damaged(where, str(error)) from None
    if not _same(manifest, document):
        raise _damaged(where, f"fields that format {version} does not have")
    return manifest


def _from_format_1(old: dict[str, Any]) -> dict[str, Any]:
    """Give what format 1 did not say: no digests, no accepted loss, and gaps probed up to 1,000."""
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
    """Return what format 2 did not say: the bounds of the days before."""
    return old | {"earlier": None}


def plain(value: object) -> object:
    """Turn a value of the model into JSON's own types."""
    match value:
        case Offsets():
            return [list(each) for each in value]
        case Contract():
            return value.terms
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case tuple() | list():
            return [plain(each) for each in value]
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def _revive(kind: type[Any], value: Any) -> Any:
    if kind is Offsets:
        return Offsets(value)
    if kind is Contract and isinstance(value, dict):
        return Contract(value)
    raise ValueError(f"no {kind.__name__} can be made of a {type(value).__name__}")


def _fits(checksum: object, document: dict[str, Any]) -> bool:
    quick = _sorted_json(document)
    return (quick is not None and hashlib.sha256(quick).hexdigest() == checksum) or (
        _checksum(document) == checksum
    )


def _same(manifest: Manifest, document: dict[str, Any]) -> bool:
    quick = _sorted_json(manifest)
    return (quick is not None and quick == _sorted_json(document)) or plain(manifest) == document


def _sorted_json(value: object) -> bytes | None:
    """Return canonical JSON as msgspec writes it, in a tenth of the time; None for what it refuses.

    It writes a few numbers otherwise than `_checksum` and `plain` do: where it does not agree, these decide.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_own_types, order="sorted")
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _own_types(value: Any) -> object:
    if isinstance(value, Offsets | Contract):
        return plain(value)
    raise TypeError(f"no JSON for a {type(value).__name__}")


def _checksum(body: object) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def _damaged(where: str, found: str) -> LedgerBroken:
    return LedgerBroken(
        expected=f"a readable manifest at {where}",
        found=found,
        do="Restore it from a backup; nothing can be settled after a day whose offsets are not known.",
    )
