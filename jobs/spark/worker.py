"""What a task does for its Python worker, which Spark keeps for many tasks.

Relies on how pyspark prepares a task. Never imports it.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def drop_zip_importers() -> None:
    """Drop the importers of zip archives, which would read their archive's list of files before every task.

    pyspark calls `importlib.invalidate_caches()` before a task. A zip importer then reads the list again, in
    plain Python: once for each package in `pyspark.zip`, and once for Spark's own jar. This took 0.35 s a
    task. A new importer takes the list that the process already has.
    """
    for entry, importer in [*sys.path_importer_cache.items()]:
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]
