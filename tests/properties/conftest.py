"""Constants that random clusters of a few jobs reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.testbed.constants import replaced


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"GITTINS_SAMPLES": 2, "PROMOTE_FLOOR_S": 100.0}):
        yield
