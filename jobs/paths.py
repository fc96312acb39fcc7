"""Where the parts that were set up lie: the jars, the shipped configuration.

Reads the environment and the installation; changes nothing and downloads nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from offsets.errors import ConfigError


def conf_folder() -> Path:
    """Return the folder of shipped configuration: inside the package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    packed = here / "conf"
    return packed if packed.is_dir() else here.parent / "conf"


def home() -> Path:
    """Return the folder of environment and jars: KAFKA_DAILY_HOME, else the one around this environment."""
    return Path(os.environ.get("KAFKA_DAILY_HOME") or Path(sys.prefix).parent)


def class_archive() -> Path:
    """Return the place of Java's archive of classes, in this environment: it fits these jars alone."""
    return Path(sys.prefix) / "classes.jsa"


def jars(kind: str) -> list[Path]:
    """List the jars of a kind, `spark` or `broker`.

    Raises:
        ConfigError: they were never resolved.
    """
    found = sorted((home() / "jars" / kind).glob("*.jar"))
    if not found:
        raise ConfigError(
            expected=f"jars in {home() / 'jars' / kind}",
            found="none",
            do="Run `./run.sh setup` once, or point KAFKA_DAILY_HOME at the folder that it made.",
        )
    return found
