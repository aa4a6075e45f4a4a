"""Controllers for fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.busy_load import SETTINGS
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    """A controller that has not been started; it is killed at the end if it still runs."""
    made = RealController(clean_cluster, tmp_path, SETTINGS)
    made.write_config()
    yield made
    made.end()
