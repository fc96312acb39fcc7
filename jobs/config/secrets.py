"""Secrets, and the references `${env:NAME}` and `${file:PATH}` that stand for values.

Relies on the environment that it is given, on the files that references name, and on pydantic for hiding.
Only `reveal` shows a secret: never repr, str, format, JSON or `dataclasses.asdict`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

_REFERENCE = re.compile(r"\$(?P<literal>\$?)\{(?P<inside>[^}]*)(?P<closed>\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Secret(SecretStr):
    """A text that hides itself; `origin` is where it came from, in words."""

    def __init__(self, value: str, origin: str = "a hidden value") -> None:
        """Hide a value."""
        super().__init__(str(value))
        self.origin = origin

    reveal = SecretStr.get_secret_value


class ResolvedText(str):
    """A text that came from a reference: usable, but never repeated in messages."""

    origin = "a referenced value"


class Unresolved(ValueError):
    """A reference without a value; the message holds the reason, and no value."""


def is_reference(text: str) -> bool:
    """Return whether a text is one reference and nothing else."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and not match["literal"]


class References:
    """Replaces references by values from one environment, and from files relative to one folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Take the folder of the config file and the environment."""
        self._folder, self._environ = folder, environ

    def fill(self, text: str) -> str:
        """Replace each reference by its value and `$${` by `${`; raise Unresolved where one has no value."""
        origins: list[str] = []

        def value(match: re.Match[str]) -> str:
            if match["literal"]:
                return match[0][1:]
            origins.append(match[0])
            return self._value(match["inside"], closed=bool(match["closed"]))

        filled = _REFERENCE.sub(value, text)
        if not origins:
            return filled
        resolved = ResolvedText(filled)
        resolved.origin = f"the value of {' and '.join(origins)}"
        return resolved

    def _value(self, inside: str, *, closed: bool) -> str:
        kind, _, name = inside.partition(":")
        if closed and kind == "env" and _NAME.fullmatch(name):
            if name in self._environ:
                return self._environ[name]
            raise Unresolved(f"the environment variable {name} is not set; set it where the job is started")
        if closed and kind == "file" and name:
            return self._text(name)
        raise Unresolved(
            "expected ${env:NAME} or ${file:PATH}, found another text after ${; "
            "write $${ where ${ is meant as it stands"
        )

    def _text(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise Unresolved(f"cannot read the file {self._folder / name}: {error.strerror}") from None
        except ValueError:
            raise Unresolved(f"the file {self._folder / name} is not UTF-8 text") from None
