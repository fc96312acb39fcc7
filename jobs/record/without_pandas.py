"""Keeps pandas out of processes that have no use for it: pyarrow imports it as soon as it makes an array.

Relies on pyarrow doing without. A Spark worker never sees it; from other processes it is hidden for one look.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is kept out of this process", name=name)


_NO_PANDAS = _NoPandas()


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let pyarrow find no pandas: with its first array or scalar it looks, once.

    What converts to or from pandas looks again later, and finds it; until then `pyarrow.array` takes a series
    of pandas for any other sequence.
    """
    sys.meta_path.insert(0, _NO_PANDAS)
    try:
        yield
    finally:
        sys.meta_path.remove(_NO_PANDAS)


def keep_pandas_out() -> None:
    """Import no pandas from now on, where it is not there yet: half of the time that a worker takes to start.

    pyarrow would import it for each conversion to numpy, though no value of ours is of pandas.
    """
    if _NO_PANDAS not in sys.meta_path:
        sys.meta_path.insert(0, _NO_PANDAS)
