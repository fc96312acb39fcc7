"""The order of the tests here."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play the random histories last: they take both cores, once the other lanes have left them."""
    items.sort(key=lambda item: item.name == "test_random_histories_end_in_the_lake_of_the_reference")
