"""The test that compares what was executed with the registry comes last, after everything was executed."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_coverage" in item.nodeid)
