"""Makes of a lake what an earlier version would have left: its manifest format, its names, no more files.

Changes names and manifests alone, as plain JSON. `tests/data` holds a manifest of each format, and a lake of
format 3, to compare with.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from offsets.manifest_text import checksum_of

Document = dict[str, Any]


def as_of_format(lake: Path, version: int, *days: str) -> Path:
    """Turn a lake, or only some of its days, into one of an earlier format; return it."""
    shutil.rmtree(lake / "_ledger", ignore_errors=True)
    (lake / "_schema.json").unlink(missing_ok=True)
    for path in sorted(lake.glob("date=*/_manifest.json")):
        if not days or path.parent.name.removeprefix("date=") in days:
            manifest = json.loads(path.read_bytes())
            manifest["files"] = [_renamed(lake, path.parent, file) for file in _of_then(path, manifest)]
            path.write_text(_text(manifest, version))
    return lake


def _of_then(path: Path, manifest: Document) -> list[Document]:
    """Return the files of a day; earlier versions wrote none for a day without rows."""
    for file in manifest["files"]:
        if file["rows"] == 0:
            (path.parent / file["path"]).unlink()
    return [file for file in manifest["files"] if file["rows"]]


def _renamed(lake: Path, folder: Path, file: Document) -> Document:
    of_day = file["verdict"] == "in_day"
    path = file["path"] if of_day else _name(file["path"]).replace(".rows", ".parquet")
    target = file["target"] and _name(file["target"])
    if (folder / file["path"]).exists():
        (folder / file["path"]).rename(folder / path)
    if target and (lake / file["target"]).parent.exists():  # else the day that it was brought to expired
        (lake / file["target"]).rename(lake / target)
    return file | {"path": path, "target": target}


def _name(path: str) -> str:
    return path.replace("/part-late-", "/late-")


def _text(manifest: Document, version: int) -> str:
    gone = {"format_version", "checksum", "columns", "late_expired"}
    gone |= {"earlier"} if version <= 2 else set()
    gone |= {"cleanup_policy", "transactional", "remade"} if version == 1 else set()
    body = {key: value for key, value in manifest.items() if key not in gone}
    if version == 1:
        body |= {
            "compacted": {"compact": True, "delete": False, None: None}[manifest["cleanup_policy"]],
            "accepted": {key: value for key, value in manifest["accepted"].items() if key != "loss"},
            "gaps": [{key: gap[key] for key in ("partition", "offsets")} for gap in manifest["gaps"]],
            "tally": [
                {key: value for key, value in tally.items() if key != "digest"} for tally in manifest["tally"]
            ],
        }
    return json.dumps({"format_version": version, "checksum": checksum_of(body)} | body, indent=1) + "\n"
