"""Chains of manifests, and folders that hold them."""

from __future__ import annotations

from datetime import date, timedelta

from offsets.manifest import Manifest
from offsets.manifest_text import to_json
from tests.support.manifests import empty

FIRST = date(2026, 3, 28)


class Folders:
    """A lake of texts; implements `LedgerReader`."""

    def __init__(self, *manifests: Manifest) -> None:
        self.texts: dict[date, bytes | None] = {
            manifest.day.date: to_json(manifest) for manifest in manifests
        }
        self.entered: dict[date, bytes] = {}

    def days(self) -> list[date]:
        return sorted(self.texts)

    def has_day(self, day: date) -> bool:
        return day in self.texts

    def has_manifest(self, day: date) -> bool:
        return self.texts.get(day) is not None

    def manifest_text(self, day: date) -> bytes | None:
        return self.texts.get(day)

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        return b""

    def entries(self) -> list[date]:
        return sorted(self.entered)

    def entry_place(self, day: date) -> str:
        return f"_ledger/{day}.json"

    def replaced_place(self, day: date) -> str | None:
        return None

    def late_since_replaced(self, day: date) -> list[str]:
        return []

    def entry_text(self, day: date) -> bytes | None:
        return self.entered.get(day)

    def manifest_place(self, day: date) -> str:
        return f"date={day}/_manifest.json"


def chain(days: int = 3) -> list[Manifest]:
    made: list[Manifest] = []
    for step in range(days):
        made.append(empty(FIRST + timedelta(days=step), made[-1] if made else None))
    return made
