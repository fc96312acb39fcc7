"""Java's archive of the classes that a run loads (class data sharing), by which the next JVM starts sooner.

Set-up makes it, by `python -m jobs.spark.class_archive`; a run only reads it. It holds for one Java and one
list of jars, and Java itself checks that: with any other it starts as if there were none.
"""

from __future__ import annotations

import os
from typing import Final

from jobs.paths import class_archive
from jobs.spark.engine import Engine, quoted

PATIENCE: Final = 300.0
"""Java writes the archive when it ends; seconds."""


def main() -> None:
    """Start Spark, do what a run does, and keep the classes that were loaded; replaces an older archive.

    Raises:
        RunFailed: Spark did not start, or gave up.
        OSError: Java did not end well, or left no archive.
    """
    archive = class_archive()
    made = archive.with_suffix(".new")
    made.unlink(missing_ok=True)
    keep = f"-XX:ArchiveClassesAtExit={quoted(made)}"
    options = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": keep}
    with Engine(options, {}, patience=PATIENCE) as engine:
        engine.warm_up()
    if engine.ended != 0:  # a JVM crashes on an archive that was cut short
        raise OSError(f"Java ended with {engine.ended} while it wrote {made}")
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(archive)


if __name__ == "__main__":
    main()
