"""A pytest plugin: what is quick to fail is run first, what needs a real cluster last."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slurm") is not None)
