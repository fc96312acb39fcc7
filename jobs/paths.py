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
    """Return the folder around `jars`: the environment, or for a wheel KAFKA_DAILY_HOME, if that is set.

    What lies around an environment is other environments, with jars of their own, or is somebody else's.
    """
    other = os.environ.get("KAFKA_DAILY_HOME")
    return Path(other if other and not in_checkout() else sys.prefix)


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
            do="Run `./run.sh setup` once."
            if in_checkout()
            else "Run `kafka-daily setup` once, or point KAFKA_DAILY_HOME at the folder that it made.",
        )
    return files
