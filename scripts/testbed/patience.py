"""How long tests wait for what should happen soon. A test that passes does not wait that long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE_S = 360.0 if os.environ.get("CI") else 180.0
"""Slurm makes a requeued job wait for two minutes. Build servers may be slow and busy."""


def wait_until(
    condition: Callable[[], object], what: str = "it comes about", timeout_s: float = PATIENCE_S
) -> None:
    """Wait until the condition holds; raise ``AssertionError`` if it does not in time."""
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)
