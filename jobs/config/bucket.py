"""How a lake's bucket is reached: the keys below `lake.store`, and the rules between them.

Pure. The names of obstore's options are written down here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from jobs.config.problems import Problems
from jobs.config.schema import LakeSection
from jobs.config.secrets import Secret

_ANY: Final = ("allow_http", "ca", "timeout")
_NAMES: Final = {
    "s3": {
        "endpoint": "endpoint",
        "region": "region",
        "virtual_hosted": "virtual_hosted_style_request",
        "access_key_id": "access_key_id",
        "secret_access_key": "secret_access_key",
        "session_token": "session_token",
        "encryption": "server_side_encryption",
        "kms_key": "sse_kms_key_id",
    },
    "gs": {"endpoint": "base_url", "service_account": "service_account"},
    "az": {"endpoint": "endpoint", "account": "account_name", "account_key": "account_key", "sas": "sas_key"},
}
"""The keys of each kind of store, with obstore's names."""
_PAIRS: Final = (
    ("access_key_id", "secret_access_key"),
    ("secret_access_key", "access_key_id"),
    ("session_token", "access_key_id"),
    ("account_key", "account"),
)
LARGEST_TARGET: Final = 4 << 30
"""S3 copies objects up to 5 GiB, and a file may grow to 1.15 times its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSettings:
    """A prefix in a bucket, and how to reach it, by obstore's names."""

    url: str
    options: Mapping[str, str | bool | Secret] = field(repr=False)
    allow_http: bool
    ca: Path | None
    timeout: timedelta


def bucket_settings(lake: LakeSection, folder: Path) -> BucketSettings:
    """Return how a checked lake's bucket is reached; paths count from the config's folder."""
    given, names = lake.store, _NAMES[_kind(lake.path)]
    options = {
        name: value for key, name in names.items() if (value := getattr(given, key)) not in (None, False)
    }
    if "service_account" in options:
        options["service_account"] = str(folder / options["service_account"])
    return BucketSettings(
        url=lake.path,
        options=options,
        allow_http=given.allow_http,
        ca=folder / given.ca if given.ca else None,
        timeout=given.timeout,
    )


def bucket_problems(lake: LakeSection, target: int, problems: Problems) -> None:
    """Note each key that the lake's kind of store does not know, or that lacks another."""
    kind, written = _kind(lake.path), lake.store.model_fields_set
    for key in sorted(written - {*_ANY, *_NAMES[kind]}):
        problems.add(("lake", "store", key), f"a lake at {kind}:// has no such key; remove it")
    for key, other in _PAIRS:
        if key in written and other not in written:
            problems.add(("lake", "store", other), f"is missing; {key} needs it")
    if lake.keep:
        problems.add(("lake", "keep"), "days of a bucket cannot expire yet; remove this key")
    if lake.shared:
        problems.add(("lake", "shared"), "is of a lake in a folder; every node reaches a bucket")
    if target > LARGEST_TARGET:
        problems.add(
            ("lake", "target_file_size"), "expected at most 4GiB in a bucket: stores copy no larger objects"
        )


def _kind(path: str) -> str:
    return path.partition("://")[0]
