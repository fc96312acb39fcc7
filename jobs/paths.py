"""Where set-up has put its parts: the jars, the class archive, the shipped configuration.

Reads the environment and the installation; changes nothing and downloads nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from offsets.errors import ConfigError


def conf_folder() -> Path:
    """Return the folder of shipped configuration: inside the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "conf"
    return packed if packed.is_dir() else package.parent / "conf"


def in_checkout() -> bool:
    """Return whether this is a checkout, which has run.sh; a wheel has its configuration inside."""
    return conf_folder().parent != Path(__file__).resolve().parent


def home() -> Path:
    """Return the folder of environment and jars: KAFKA_DAILY_HOME, else the one around this environment."""
    return Path(os.environ.get("KAFKA_DAILY_HOME") or Path(sys.prefix).parent)


def class_archive() -> Path:
    """Return the path of Java's class archive: in this environment, since it fits these jars alone."""
    return Path(sys.prefix) / "classes.jsa"


def jars(kind: str) -> list[Path]:
    """List the jars of a kind, `spark` or `broker`.

    Raises:
        ConfigError: they were never resolved.
    """
    files = sorted((home() / "jars" / kind).glob("*.jar"))
    if not files:
        raise ConfigError(
            expected=f"jars in {home() / 'jars' / kind}",
            found="none",
            do=f"Run `{'./run.sh' if in_checkout() else 'kafka-daily'} setup` once, or point "
            "KAFKA_DAILY_HOME at the folder that it made.",
        )
    return files
