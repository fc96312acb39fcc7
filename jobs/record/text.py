"""Turn the bytes of a record into text that a person can read.

Pure. Never fails on bytes that are no text, and never returns more than it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesText:
    """The first characters of some bytes; hexadecimal where they are no UTF-8; `bytes` counts all of them."""

    text: str
    encoding: str
    bytes: int
    cut: bool


def text_of(content: bytes, limit: int) -> BytesText:
    """Return the first `limit` characters of some bytes."""
    try:
        whole, encoding = content.decode(), "utf-8"
    except UnicodeDecodeError:
        whole, encoding = content.hex(), "hex"
    return BytesText(text=whole[:limit], encoding=encoding, bytes=len(content), cut=len(whole) > limit)


def printable(text: str) -> str:
    """Return a text whose control characters are written as escapes: a terminal would obey them."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
