"""The test that compares what was executed with the registry comes last, in the process that executed everything."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_coverage" in item.nodeid)
    for item in items:
        if "tests/emu/isa/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("isa"))
