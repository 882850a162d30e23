"""The test that compares what was executed with the registry comes last, in the process that executed everything."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """The tests of instructions share one process, however many there are."""
    if "tests/emu/isa/" in item.nodeid:
        item.add_marker(pytest.mark.xdist_group("isa"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "test_coverage" in item.nodeid)
