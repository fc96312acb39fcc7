"""What a task does for the Python worker that runs it; Spark keeps a worker for many tasks.

Knows of Spark's ways, but imports nothing of it.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def drop_zip_importers() -> None:
    """Forget the importers of archives; else each would read its archive's list of files before every task.

    pyspark calls `importlib.invalidate_caches()` there, and importers of archives do that in plain Python:
    once for each package met in `pyspark.zip`, and for Spark's own jar. It took 0.35 s a task. An importer
    that is made anew takes the list that the process already has.
    """
    for entry, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
