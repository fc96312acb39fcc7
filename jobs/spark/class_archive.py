"""Java's archive of the classes that a run loads (class data sharing): with it the next JVM starts sooner.

Set-up makes it, by `python -m jobs.spark.class_archive`; a run only reads it. It fits one Java and one list
of jars. Java checks that, and ignores an archive that does not fit.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from jobs.paths import class_archive
from jobs.spark.engine import Engine, quoted

PATIENCE: Final = 300.0
"""Seconds that Java has to end: it writes the archive then."""


def main() -> None:
    """Start Spark, do what a run does, and write the loaded classes; replace an older archive.

    Raises:
        RunFailed: Spark did not start, or gave up.
        OSError: Java did not end well, or left no archive.
    """
    archive = class_archive()
    for left in archive.parent.glob("classes.*.new"):
        left.unlink()
    # a Java that outlives its set-up by some seconds, after Ctrl-C, writes one of another name
    new = archive.with_suffix(f".{os.getpid()}.new")
    archive.unlink(missing_ok=True)  # Java writes none while it reads one
    at_exit = f"-XX:ArchiveClassesAtExit={quoted(new)}"
    options = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": at_exit}
    with Engine(options, {}, patience=PATIENCE) as engine:
        engine.warm_up()
    if engine.ended != 0:  # a JVM crashes on an archive that was cut short
        raise OSError(f"Java ended with {engine.ended} while it wrote {new}")
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(archive)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C need not wait for an archive that nobody will use
    main()
