"""A fake NVML, built once."""

from __future__ import annotations

import pytest

from tests.profiler.compute_node import build_driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a library that answers like NVML on a machine with a GPU."""
    return build_driver(tmp_path_factory.mktemp("nvml"))
